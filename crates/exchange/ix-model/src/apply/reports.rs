//! Reports of the engine: rules installed and removed, quarantine, ends of validity.

use core::time::Duration;
use std::collections::BTreeMap;

use super::{Order, Outcome};
use crate::allocate::HOLD_DOWN;
use crate::filter::{Filter, FilterOrigin, FilterState};
use crate::id::{AccountId, FilterId, IpId, MacId, ServiceId, ServiceKeyId};
use crate::operation::Operation;
use crate::reason;
use crate::refusal::{Refusal, RefusalCode};
use crate::service::{NumberHold, PoolKind, Quarantine};
use crate::state::CommercialState;
use crate::time::Timestamp;

/// The time for which an ended filter is kept, so that its owner sees it.
const EXPIRED_FILTERS_KEPT: Duration = Duration::from_secs(7 * 86_400);
/// The largest number of ended filters of an account that are kept.
const EXPIRED_FILTERS_MAX: usize = 500;

impl Order<'_> {
    pub(super) fn reports(&mut self, operation: Operation) -> Outcome {
        if !self.actor.is_system() {
            return Err(Refusal::new(RefusalCode::Forbidden, reason::engine_only()));
        }
        match operation {
            Operation::ReportInPlace {
                service: id,
                generation,
            } => {
                let mut service = self.object(id)?;
                if service.generation == generation && service.state.is_carried() {
                    service.state = CommercialState::Production;
                    self.draft.put(id, service);
                }
                Ok(())
            }
            Operation::ReportRemoved { service } => self.remove_service(service),
            Operation::ReportQuarantine { config: id, clean } => {
                let mut config = self.object(id)?;
                let Quarantine::Running { clean_since } = config.quarantine else {
                    return Ok(());
                };
                let service = self.object(config.service)?;
                let policy = service.policy.and_then(|policy| self.draft.find(policy));
                let needed =
                    Duration::from_secs(policy.map_or(900, |policy| u64::from(policy.quarantine_secs)));
                if !clean {
                    config.quarantine = Quarantine::Running {
                        clean_since: self.now,
                    };
                } else if self.now.since(clean_since) >= needed {
                    config.quarantine = Quarantine::Passed;
                }
                self.draft.put(id, config);
                Ok(())
            }
            Operation::ReportRulesGone { numbers } => {
                for (kind, number) in numbers {
                    if self.draft.released(kind).get(&number) == Some(&NumberHold::InSwitches) {
                        let free_from = self.now.after(HOLD_DOWN);
                        self.draft
                            .set_released(kind, number, Some(NumberHold::FreeFrom(free_from)));
                    }
                }
                Ok(())
            }
            Operation::ReportTrunksDown { trunks } => self.reroute(&trunks.into_iter().collect()),
            Operation::Expire => {
                self.expire();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Deletes a service whose deletion was ordered, with its ends. Its numbers are held for [`HOLD_DOWN`].
    fn remove_service(&mut self, id: ServiceId) -> Outcome {
        let service = self.object(id)?;
        if service.state != CommercialState::DecommissionRequested {
            return Err(Refusal::conflict(reason::nobody_ordered_end(id)).object(id));
        }
        let ends: Vec<_> = self.draft.ends_of(id).map(|(end, _)| end).collect();
        let mut numbers = vec![(PoolKind::ServiceIndex, service.index.raw())];
        numbers.extend(service.wire_id.map(|wire_id| (PoolKind::WireId, wire_id.raw())));
        for end in ends {
            let config = self.object(end)?;
            let index = self
                .draft
                .find(config.connection)
                .map(|connection| connection.index);
            numbers.push((PoolKind::Meter, config.meter.raw()));
            numbers.extend(config.group.map(|group| (PoolKind::Group, group.raw())));
            if index != Some(config.index) {
                numbers.push((PoolKind::ConnectionIndex, config.index.raw()));
            }
            self.remove_end(end)?;
        }
        for (kind, number) in numbers {
            self.draft.set_released(
                kind,
                number,
                Some(NumberHold::FreeFrom(self.now.after(HOLD_DOWN))),
            );
        }
        self.draft.delete(id);
        Ok(())
    }

    fn expire(&mut self) {
        let now = self.now;
        let is_over = |end: Option<crate::time::Timestamp>| end.is_some_and(|end| end <= now);
        let macs: Vec<_> = self
            .draft
            .all::<MacId>()
            .filter(|(_, mac)| is_over(mac.valid_until))
            .map(|(id, _)| id)
            .collect();
        macs.into_iter().for_each(|id| self.draft.delete(id));
        let ips: Vec<_> = self
            .draft
            .all::<IpId>()
            .filter(|(_, ip)| is_over(ip.valid_until))
            .map(|(id, _)| id)
            .collect();
        ips.into_iter().for_each(|id| self.draft.delete(id));
        let keys = self.draft.all::<ServiceKeyId>();
        let keys: Vec<_> = keys
            .filter(|(_, key)| key.redeemed_by.is_none() && key.valid_until <= now)
            .map(|(id, _)| id)
            .collect();
        keys.into_iter().for_each(|id| self.draft.delete(id));
        self.expire_filters();
        // Numbers whose hold-down is over need no record.
        for kind in [
            PoolKind::ConnectionIndex,
            PoolKind::ServiceIndex,
            PoolKind::WireId,
            PoolKind::Meter,
            PoolKind::Group,
        ] {
            for (number, released) in self.draft.released(kind) {
                if !crate::allocate::is_held(released, now) {
                    self.draft.set_released(kind, number, None);
                }
            }
        }
    }

    /// Ends filters whose validity is over. Deletes ended filters of page and API that are old, or that
    /// exceed the maximum of their account. An ended BGP filter stays until its route is withdrawn, because
    /// the route would order it again.
    fn expire_filters(&mut self) {
        let now = self.now;
        let is_over = |filter: &Filter| filter.valid_until.is_some_and(|end| end <= now);
        let ending: Vec<_> = self
            .draft
            .all::<FilterId>()
            .filter(|(_, filter)| is_over(filter) && filter.state != FilterState::Expired)
            .map(|(id, filter)| (id, filter.clone()))
            .collect();
        for (id, mut filter) in ending {
            filter.state = FilterState::Expired;
            self.draft.put(id, filter);
        }
        let mut ended: BTreeMap<AccountId, Vec<(Option<Timestamp>, FilterId)>> = BTreeMap::new();
        for (id, filter) in self.draft.all::<FilterId>() {
            let is_of_bgp = matches!(filter.origin, FilterOrigin::Rtbh | FilterOrigin::Flowspec);
            if filter.state == FilterState::Expired && !is_of_bgp {
                let of_account = ended.entry(filter.account).or_default();
                of_account.push((filter.valid_until, id));
            }
        }
        for (_, mut filters) in ended {
            filters.sort_unstable();
            let excess = filters.len().saturating_sub(EXPIRED_FILTERS_MAX);
            for (index, (end, id)) in filters.into_iter().enumerate() {
                let is_old = end.is_some_and(|end| end.after(EXPIRED_FILTERS_KEPT) <= now);
                if index < excess || is_old {
                    self.draft.delete(id);
                }
            }
        }
    }
}
