//! Reports of the engine to the model: services in place or gone, numbers that no switch has any more, ends of validity.

use std::collections::BTreeSet;

use millrace_ix_engine::Event;
use millrace_ix_model::state::CommercialState;
use millrace_ix_model::{Actor, Applied, Exchange, ObjectId, Operation, PoolKind, ServiceId, Timestamp};
use millrace_ix_store::{ChangeState, StoreError, Transaction};

use crate::core::Core;
use crate::draft::Script;
use crate::now::Now;
use crate::order::OrderOptions;

/// Executes reports on an exchange. A report that the model refuses is left out, because its object is gone.
pub(crate) fn apply(exchange: &mut Exchange, operations: Vec<Operation>, now: Timestamp) -> Applied {
    let before = exchange.clone();
    let mut touched = BTreeSet::new();
    for operation in operations {
        match exchange.apply(&Actor::system(), now, operation) {
            Ok(applied) => touched.extend([applied.created, applied.changed, applied.deleted].concat()),
            Err(refusal) => tracing::debug!(%refusal, "a report has no object any more"),
        }
    }
    difference(&before, exchange, touched)
}

/// Returns which of some objects are new, changed and gone in a second exchange, each once.
pub(crate) fn difference(before: &Exchange, after: &Exchange, objects: BTreeSet<ObjectId>) -> Applied {
    let mut applied = Applied::default();
    for id in objects {
        match (before.object(id), after.object(id)) {
            (None, Some(_)) => applied.created.push(id),
            (Some(_), None) => applied.deleted.push(id),
            (Some(old), Some(new)) if old != new => applied.changed.push(id),
            _ => {}
        }
    }
    applied
}

impl Core {
    /// Returns the reports about the services of cleaned changes.
    pub(crate) fn reports_of(&self, cleaned: &[u64]) -> Vec<Operation> {
        let mut services = BTreeSet::new();
        for change in cleaned.iter().filter_map(|id| self.open.get(id)) {
            for id in change.redo.objects.keys() {
                match id {
                    ObjectId::Service(service) => {
                        services.insert((*service, change.has_entries));
                    }
                    ObjectId::Config(config) => {
                        if let Some(config) = self.exchange.configs.get(config) {
                            services.insert((config.service, change.has_entries));
                        }
                    }
                    _ => {}
                }
            }
        }
        let reports = services
            .into_iter()
            .filter_map(|(id, has_entries)| Some((id, report(&self.exchange, id, has_entries)?)));
        let reports: Vec<_> = reports.collect();
        if reports.is_empty() {
            return Vec::new();
        }
        let cleaned: BTreeSet<u64> = cleaned.iter().copied().collect();
        let others = self.open.iter();
        let others =
            others.filter(|(id, change)| !cleaned.contains(id) && change.state != ChangeState::RolledBack);
        let busy: BTreeSet<ObjectId> = others
            .flat_map(|(_, change)| change.redo.objects.keys())
            .copied()
            .collect();
        reports
            .into_iter()
            .filter(|(id, _)| !busy.contains(&ObjectId::Service(*id)))
            .map(|(_, operation)| operation)
            .collect()
    }

    /// Returns the reports about the services of changes that were undone, which leaves `after`: an earlier change has brought
    /// a service in place, and its report has waited for them.
    pub(crate) fn reports_of_undone(&self, undone: &[u64], after: &Exchange) -> Vec<Operation> {
        let of_changes = |is_undone: bool| -> BTreeSet<ServiceId> {
            let changes = self.open.iter().filter(|(id, change)| {
                undone.contains(id) == is_undone && change.state != ChangeState::RolledBack
            });
            let objects = changes.flat_map(|(_, change)| change.redo.objects.keys());
            let services = objects.filter_map(|id| match id {
                ObjectId::Service(service) => Some(*service),
                ObjectId::Config(config) => Some(after.configs.get(config)?.service),
                _ => None,
            });
            services.collect()
        };
        let (services, busy) = (of_changes(true), of_changes(false));
        let settled = services.difference(&busy).copied();
        settled
            .filter_map(|id| report(after, id, self.planner.has_entries(after, id, self.planned_at)))
            .collect()
    }

    /// Reports the numbers that a finished change frees, and removes the change from the open changes.
    pub(crate) fn report_gone(&mut self, id: u64, now: Now) -> Result<(), StoreError> {
        if let Some(change) = self.open.get(&id) {
            let is_undone = change.state == ChangeState::RolledBack;
            let mut numbers = if is_undone {
                change.takes.clone()
            } else {
                change.frees.clone()
            };
            let kept = self.carried_by_kept();
            numbers.retain(|number| !kept.numbers.contains(number));
            if !numbers.is_empty() {
                self.write_reports(vec![Operation::ReportRulesGone { numbers }], now)?;
            }
            self.open.remove(&id);
            self.changed = true;
            // A service that is gone may have left entries that were adopted.
            self.note_kept(kept, now);
        }
        Ok(())
    }

    /// Completes the reports of changes that were finished before the start.
    pub(crate) fn sweep(&mut self, now: Now) -> Result<(), StoreError> {
        let mut operations = Vec::new();
        let busy: BTreeSet<ObjectId> = self
            .open
            .values()
            .flat_map(|change| change.redo.objects.keys())
            .copied()
            .collect();
        let gone = self.exchange.services.iter().filter(|(id, service)| {
            service.state == CommercialState::DecommissionRequested
                && !busy.contains(&ObjectId::Service(**id))
        });
        operations.extend(gone.map(|(id, _)| Operation::ReportRemoved { service: *id }));
        let numbers = self.orphans();
        if !numbers.is_empty() {
            operations.push(Operation::ReportRulesGone { numbers });
        }
        if operations.is_empty() {
            Ok(())
        } else {
            self.write_reports(operations, now)
        }
    }

    fn write_reports(&mut self, operations: Vec<Operation>, now: Now) -> Result<(), StoreError> {
        let mut after = Exchange::clone(&self.exchange);
        let applied = apply(&mut after, operations, now.timestamp());
        let transaction = self.transaction(&after, &applied);
        if transaction != Transaction::default() {
            self.commit(&transaction, now)?;
            self.replace(after, &applied, now);
        }
        Ok(())
    }

    /// Brings the plan up to date. One change covers all addresses and filters whose validity has begun or ended since the plan
    /// was made, and the objects that are removed because of that.
    pub(crate) fn advance_validity(&mut self, now: Now) {
        let (from, to) = (self.planned_at, now.timestamp());
        if crate::phases::has_boundary(&self.exchange, from, to) {
            let done = self.execute(Script::Expire, &Actor::system(), &OrderOptions::default(), now);
            if let Err(error) = done {
                tracing::warn!(%error, "ends of validity wait");
                self.lapse(now);
            }
        } else {
            self.planned_at = self.planned_at.max(to);
        }
    }

    /// Removes the entries of what is over from the switches while the database cannot be written. A filter must not drop frames
    /// for longer than its owner has ordered. The objects, and what begins, wait for the database.
    fn lapse(&mut self, now: Now) {
        let (then, now_wall) = (self.planned_at, now.timestamp());
        let phases = self
            .planner
            .phases((&self.exchange, then), (&self.exchange, now_wall));
        for (switch, delta) in phases.into_iter().flatten() {
            let gone = delta.into_iter().filter(|(_, (_, after))| after.is_none());
            let keys: Vec<_> = gone.map(|(key, _)| key).collect();
            if !keys.is_empty() {
                let actions = self.engine.handle(Event::Lapsed { switch, keys }, now.time);
                self.queue.extend(actions);
            }
        }
        self.drain(now);
    }

    /// Does the periodic work: ends validities, reverts overdue changes, watches quarantine and MAC
    /// addresses, sends probes, and removes expired objects.
    pub fn expire(&mut self, now: Now) {
        self.advance_validity(now);
        self.revert_overdue(now);
        self.watch_quarantine(now);
        self.watch_macs(now);
        self.probe_trunks(now);
        let actor = Actor::system();
        let rest = self.exchange.draft(&actor, now.timestamp(), Operation::Expire);
        let Ok(rest) = rest.map(|changes| (changes.objects, changes.released)) else {
            return;
        };
        if rest != Default::default() {
            let done = self.execute(Script::Expire, &actor, &OrderOptions::default(), now);
            if let Err(error) = done {
                tracing::debug!(%error, "what is over is removed later");
            }
        }
        if rest.1.iter().any(|(kind, ..)| *kind == PoolKind::WireId) {
            self.reroute_rest(now);
        }
    }
}

/// Returns the report that a service is in place or gone.
fn report(exchange: &Exchange, service: ServiceId, has_entries: bool) -> Option<Operation> {
    let object = exchange.services.get(&service)?;
    if object.state == CommercialState::DecommissionRequested {
        return Some(Operation::ReportRemoved { service });
    }
    let is_new = has_entries && object.state.is_carried() && object.state != CommercialState::Production;
    is_new.then_some(Operation::ReportInPlace {
        service,
        generation: object.generation,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use millrace_ix_store::{Sqlite, UnixMillis};
    use millrace_types::Time;
    use serde_json::{Value, json};

    use super::*;

    fn at(secs: u32) -> Now {
        Now {
            time: Time::from_secs(secs.into()),
            wall: UnixMillis(1_700_000_000_000 + u64::from(secs) * 1000),
        }
    }

    fn order(core: &mut Core, operations: &[Value]) {
        let operations = operations
            .iter()
            .cloned()
            .map(|value| serde_json::from_value(value).unwrap());
        let options = OrderOptions::default();
        core.order(operations.collect(), &Actor::system(), &options, at(1))
            .unwrap();
    }

    #[test]
    fn a_moment_that_changes_no_entry_is_looked_at_once() {
        let store = Box::new(Sqlite::in_memory().unwrap());
        let mut core = Core::start(store, millrace_ix_engine::Settings::default(), false, at(1)).unwrap();
        order(
            &mut core,
            &[
                json!({"operation": "create_site", "name": "Otemachi"}),
                json!({"operation": "create_switch", "name": "ote-1", "site": "st-0", "dpid": "0000000000000001",
                    "ports": [{"number": 1, "speed_mbps": 10000}, {"number": 2, "speed_mbps": 10000}]}),
                json!({"operation": "create_account", "name": "A", "kind": "member"}),
            ],
        );
        let switch = *core.exchange().switches.keys().next().unwrap();
        let account = *core.exchange().accounts.keys().next().unwrap();
        let connection = |port: u32| {
            json!({"operation": "create_connection", "account": account, "name": format!("a{port}"), "kind": "standalone",
                "ports": [format!("{switch}:{port}")]})
        };
        let policy = json!({"name": "lan", "ethertypes": [0x0800, 0x0806, 0x86dd], "macs_max": 4, "broadcast_pps": 100,
            "multicast_pps": 100, "arp": "unicast", "quarantine_secs": 900});
        let create_policy = json!({"operation": "create_policy", "policy": policy});
        order(&mut core, &[connection(1), connection(2), create_policy]);
        let ids: Vec<_> = core.exchange().connections.keys().copied().collect();
        let policy = *core.exchange().policies.keys().next().unwrap();
        let vlan = json!({"type": "dot1q", "vlan": 7});
        order(
            &mut core,
            &[
                json!({"operation": "create_service", "account": account, "kind": "p2p_vc", "name": "keyed"}),
                json!({"operation": "create_service_key", "service": "sv-0", "secret": "a-long-enough-secret-of-a-key",
                    "valid_until": at(5).timestamp()}),
                json!({"operation": "redeem_service_key", "secret": "a-long-enough-secret-of-a-key",
                    "connection": ids[0], "vlan": vlan}),
                json!({"operation": "create_service", "account": account, "kind": "exchange_lan", "name": "lan",
                    "policy": policy, "networks": ["192.0.2.0/24"]}),
                json!({"operation": "configure_end", "service": "sv-0", "connection": ids[1], "vlan": vlan}),
            ],
        );
        let end = *core.exchange().configs.keys().last().unwrap();
        order(
            &mut core,
            &[
                json!({"operation": "shut_down", "config": end, "shut_down": true}),
                json!({"operation": "add_mac", "config": end, "address": "02:00:00:00:00:77",
                    "valid_from": at(10).timestamp()}),
            ],
        );
        for secs in 2..15 {
            core.expire(at(secs));
            assert_eq!(core.planned_at, at(secs).timestamp());
        }
    }
}
