//! Reports of the engine to the model: services in place or gone, numbers that no switch has any more, ends of validity.

use std::collections::BTreeSet;

use millrace_ix_model::state::CommercialState;
use millrace_ix_model::{Actor, Applied, Exchange, ObjectId, Operation, PoolKind, ServiceId, Timestamp};
use millrace_ix_store::{ChangeState, StoreError, Transaction};

use crate::core::{Core, Now};
use crate::draft::Script;
use crate::order::OrderOptions;

/// Executes reports on an exchange; one that the model refuses is left out, because its object is gone.
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
        let is_open = |service: ServiceId| {
            let others = self
                .open
                .iter()
                .filter(|(id, change)| !cleaned.contains(id) && change.state != ChangeState::RolledBack);
            others
                .into_iter()
                .any(|(_, change)| change.redo.objects.contains_key(&ObjectId::Service(service)))
        };
        services
            .into_iter()
            .filter(|(service, _)| !is_open(*service))
            .filter_map(|(id, has_entries)| report(&self.exchange, id, has_entries))
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

    /// Lets the numbers of a finished change rest, and forgets the change.
    pub(crate) fn report_gone(&mut self, id: u64, now: Now) -> Result<(), StoreError> {
        if let Some(change) = self.open.get(&id) {
            let is_undone = change.state == ChangeState::RolledBack;
            let mut numbers = if is_undone {
                change.takes.clone()
            } else {
                change.frees.clone()
            };
            if self.engine.is_adopted() {
                let kept = self.carried_by_kept().numbers;
                numbers.retain(|number| !kept.contains(number));
            }
            if !numbers.is_empty() {
                self.write_reports(vec![Operation::ReportRulesGone { numbers }], now)?;
            }
            self.open.remove(&id);
            self.changed = true;
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
            }
        } else {
            self.planned_at = self.planned_at.max(to);
        }
    }

    /// Removes what is over: addresses, keys, filters, changes that nobody confirmed, and numbers whose rest has ended.
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
