//! The path of a service over trunks: its wire id, its transit switches, and the admission of its contracted rates.

use std::collections::{BTreeMap, BTreeSet};

use super::{Order, Outcome, out_of_range};
use crate::fabric::TrunkKind;
use crate::id::{ServiceId, SwitchId, TrunkId, WireId};
use crate::path::{Contracts, Topology};
use crate::reason;
use crate::refusal::{Refusal, RefusalCode};
use crate::service::{EndRole, PoolKind, Service, ServiceKind};

/// The VIDs that wire ids on S-tags may have.
const S_TAG_WIRE_IDS: (u32, u32) = (2, 4094);
/// The number of wire ids on S-tags that are kept for circuits whose path is broken or drained: such a circuit has its old wire
/// id until the new path is in place.
const S_TAG_RESERVE: usize = 128;
/// The wire ids of services that use VXLAN only. They begin above those of S-tags, which are few.
const VXLAN_WIRE_IDS: (u32, u32) = (4096, WireId::MAX);

/// The trunks that a path may use, by their load.
#[derive(Clone, Copy)]
enum Load {
    /// Trunks whose contracts admit the rates of the circuit.
    Fits,
    Any,
}

impl Order<'_> {
    pub(super) fn topology(&self) -> Topology<'_> {
        Topology::new(self.draft.all::<TrunkId>())
    }

    /// Returns the circuits whose path goes over a pair of joined switches, and the other services with ends at both.
    pub(super) fn services_over(&self, one: SwitchId, two: SwitchId) -> Vec<ServiceId> {
        let services = self.draft.all::<ServiceId>();
        let carried = services.filter(|(_, service)| service.wire_id.is_some());
        carried
            .filter(|(id, service)| {
                let switches: Vec<_> = self.switches_of(*id).into_iter().collect();
                match (service.kind, &switches[..]) {
                    (ServiceKind::P2pVc, [from, to]) => service
                        .path(*from, *to)
                        .windows(2)
                        .any(|pair| pair == [one, two] || pair == [two, one]),
                    _ => switches.contains(&one) && switches.contains(&two),
                }
            })
            .map(|(id, _)| id)
            .collect()
    }

    /// Returns each pair of switches with ends of a service, the lower switch first.
    fn pairs_of(&self, id: ServiceId) -> Vec<(SwitchId, SwitchId)> {
        let switches = self.switches_of(id);
        let lower = |high| switches.range(..high).map(move |low| (*low, high));
        switches.iter().copied().flat_map(lower).collect()
    }

    /// Refuses a service whose ends are at switches that no trunk joins: a circuit may pass through other switches, a
    /// multipoint service may not.
    pub(super) fn check_reach(&self, id: ServiceId) -> Outcome {
        let service = self.object(id)?;
        let topology = self.topology();
        let is_joined = |one, two| topology.carrier(one, two).is_some();
        for (low, high) in self.pairs_of(id) {
            let is_circuit = service.kind == ServiceKind::P2pVc;
            let is_reached = if is_circuit {
                let path = service.path(high, low);
                path.windows(2).all(|pair| is_joined(pair[0], pair[1]))
            } else {
                is_joined(high, low)
            };
            if !is_reached {
                let reason = if is_circuit {
                    reason::no_route_over_trunks(low, high)
                } else {
                    reason::no_trunk(low, high)
                };
                return Err(Refusal::conflict(reason).field("connection"));
            }
        }
        Ok(())
    }

    /// Refuses leaves of a service over a trunk with S-tags.
    pub(super) fn check_leaves(&self, id: ServiceId) -> Outcome {
        if self.draft.ends_of(id).all(|(_, end)| end.role == EndRole::Root) {
            return Ok(());
        }
        let topology = self.topology();
        for (low, high) in self.pairs_of(id) {
            let carrier = topology.carrier(high, low);
            if carrier.is_some_and(|(_, trunk)| trunk.kind == TrunkKind::STag) {
                let reason = reason::leaves_over_s_tags(low, high);
                return Err(Refusal::conflict(reason).field("connection"));
            }
        }
        Ok(())
    }

    /// Refuses an order that raises the contracted rates of a service beyond the limit of a trunk on its path.
    pub(super) fn check_contracts(&self, id: ServiceId) -> Outcome {
        let own = self.draft.contracts(id);
        if own.is_empty() {
            return Ok(());
        }
        let before = self.draft.base().index().contracts(id);
        let all = self.draft.total_contracts();
        let topology = self.topology();
        for ((from, to), rate) in own {
            let Some((trunk_id, trunk)) = topology.carrier(from, to) else {
                continue;
            };
            let (total, max) = (
                all.get(&(from, to)).copied().unwrap_or_default(),
                trunk.contracts_max(),
            );
            let grows = rate > before.get(&(from, to)).copied().unwrap_or_default();
            if grows && total > max {
                let (taken, free) = (total - rate, max.saturating_sub(total - rate));
                let reason = reason::trunk_full(&trunk.name, from, to, max, taken, rate, free);
                return Err(Refusal::new(RefusalCode::Exhausted, reason)
                    .field("capacity_mbps")
                    .object(trunk_id));
            }
        }
        Ok(())
    }

    /// Returns the transit switches of a circuit on its cheapest path over trunks that are not in `avoid`, beginning at
    /// the end whose switch has the lower number; `None` if there is no such path.
    fn select_via(
        &self,
        id: ServiceId,
        switches: &BTreeSet<SwitchId>,
        avoid: &BTreeSet<TrunkId>,
        load: Load,
    ) -> Option<Vec<SwitchId>> {
        let (from, to) = (*switches.first()?, *switches.last()?);
        let topology = self.topology();
        let is_usable = |one: SwitchId, two: SwitchId| {
            let trunks = topology.trunks(one, two);
            trunks.iter().any(|(trunk, _)| !avoid.contains(trunk))
        };
        let mut rates: BTreeMap<SwitchId, u64> = BTreeMap::new();
        for (_, config) in self.draft.ends_of(id) {
            if let Some(switch) = self.draft.switch_of(config.connection) {
                *rates.entry(switch).or_default() += u64::from(config.capacity_mbps.unwrap_or(0));
            }
        }
        let rate = |switch| rates.get(&switch).copied().unwrap_or_default();
        let (all, own) = (self.draft.total_contracts(), self.draft.contracts(id));
        let fits = |one: SwitchId, two: SwitchId| {
            let max = topology
                .carrier(one, two)
                .map_or(0, |(_, trunk)| trunk.contracts_max());
            let sum = |of: &Contracts, from, to| of.get(&(from, to)).copied().unwrap_or_default();
            let load = |from, to| sum(&all, from, to).saturating_sub(sum(&own, from, to));
            load(one, two) + rate(from) <= max && load(two, one) + rate(to) <= max
        };
        let path = match load {
            Load::Fits => topology.path(from, to, |one, two| is_usable(one, two) && fits(one, two)),
            Load::Any => topology.path(from, to, is_usable),
        }?;
        Some(path[1..path.len() - 1].to_vec())
    }

    /// Returns the types of the trunks on the path of a service.
    fn trunk_kinds(&self, service: &Service, switches: &BTreeSet<SwitchId>) -> Vec<TrunkKind> {
        let on_way: BTreeSet<SwitchId> = switches.iter().chain(&service.via).copied().collect();
        let trunks = self.draft.all::<TrunkId>();
        let inner = trunks.filter(|(_, trunk)| trunk.ends.iter().all(|end| on_way.contains(&end.switch)));
        inner.map(|(_, trunk)| trunk.kind).collect()
    }

    /// Gives a service the wire id and the transit switches that its ends need, after an end was added, moved or removed. An
    /// existing wire id is kept with `adds_only`, and by services that forward by MAC address, where a moved address changes one
    /// entry in place. An S-tag has no room for the wire id of a service that had VXLAN trunks only: the service gets another one.
    pub(super) fn renew_path(&mut self, id: ServiceId, adds_only: bool) -> Outcome {
        let service = self.object(id)?;
        let switches = self.switches_of(id);
        let is_too_wide = service
            .wire_id
            .is_some_and(|wire_id| wire_id.raw() > S_TAG_WIRE_IDS.1)
            && self.trunk_kinds(&service, &switches).contains(&TrunkKind::STag);
        let keeps = (adds_only || service.kind != ServiceKind::P2pVc) && !is_too_wide;
        if keeps && (switches.len() > 1) == service.wire_id.is_some() {
            return Ok(());
        }
        if switches.len() > 1 && service.wire_id.is_none() {
            self.check_carried_limit(service.account)?;
        }
        let is_circuit = service.kind == ServiceKind::P2pVc && switches.len() == 2;
        let via = if is_circuit {
            // Without a path that is up and has room, the service waits on a path that has room: an order for a full
            // path is refused.
            let none = BTreeSet::new();
            let select = |avoid, load| self.select_via(id, &switches, avoid, load);
            select(self.down, Load::Fits)
                .or_else(|| select(&none, Load::Fits))
                .or_else(|| select(self.down, Load::Any))
                .or_else(|| select(&none, Load::Any))
        } else {
            None
        };
        self.set_path(id, service, &switches, via.unwrap_or_default(), S_TAG_RESERVE)
    }

    /// Gives a service the next generation of its path, under a new wire id. At least `reserve` wire ids on S-tags stay free. A
    /// refusal changes nothing.
    fn set_path(
        &mut self,
        id: ServiceId,
        mut service: Service,
        switches: &BTreeSet<SwitchId>,
        via: Vec<SwitchId>,
        reserve: usize,
    ) -> Outcome {
        service.via = via;
        let new = if switches.len() > 1 {
            // The old wire id of this service counts as taken: its object in the draft still has it.
            let number = self.new_wire_id(&self.trunk_kinds(&service, switches), reserve)?;
            Some(WireId::new(number).map_err(out_of_range)?)
        } else {
            None
        };
        if let Some(wire_id) = core::mem::replace(&mut service.wire_id, new) {
            self.release(PoolKind::WireId, wire_id.raw());
        }
        service.generation = service.generation.wrapping_add(1);
        self.draft.put(id, service);
        Ok(())
    }

    /// Returns a wire id for a path over trunks of these types. At least `reserve` wire ids on S-tags stay free.
    fn new_wire_id(&self, kinds: &[TrunkKind], reserve: usize) -> Result<u32, Refusal> {
        if !kinds.contains(&TrunkKind::STag) {
            return self.allocate(PoolKind::WireId, VXLAN_WIRE_IDS);
        }
        if self.free_numbers(PoolKind::WireId, S_TAG_WIRE_IDS) <= reserve {
            let (first, last) = S_TAG_WIRE_IDS;
            return Err(Refusal::new(
                RefusalCode::Exhausted,
                reason::s_tags_full(first, last, reserve),
            ));
        }
        self.allocate(PoolKind::WireId, S_TAG_WIRE_IDS)
    }

    /// Gives circuits whose path is broken or drained another path, if there is one with a free wire id. A path is broken or
    /// drained if each trunk between two of its switches is in `down` or drained. All other circuits keep their path.
    pub(super) fn reroute(&mut self, down: &BTreeSet<TrunkId>) -> Outcome {
        let topology = self.topology();
        let is_good = |pair: &[SwitchId]| {
            let trunks = topology.trunks(pair[0], pair[1]);
            trunks
                .iter()
                .any(|(id, trunk)| !down.contains(id) && !trunk.drained)
        };
        if topology.pairs().all(|(one, two)| is_good(&[one, two])) && self.all_joined(&topology) {
            return Ok(());
        }
        let circuits: Vec<_> = self
            .draft
            .all::<ServiceId>()
            .filter(|(_, service)| service.kind == ServiceKind::P2pVc && service.state.is_carried())
            .map(|(id, service)| (id, service.clone()))
            .collect();
        let mut moves = Vec::new();
        for (id, service) in circuits {
            let switches = self.switches_of(id);
            let [from, to] = switches.iter().copied().collect::<Vec<_>>()[..] else {
                continue;
            };
            if service.path(from, to).windows(2).all(is_good) {
                continue;
            }
            let drained = self.draft.all::<TrunkId>().filter(|(_, trunk)| trunk.drained);
            let drained: BTreeSet<TrunkId> = drained.map(|(trunk, _)| trunk).collect();
            let avoid = down | &drained;
            let select = |avoid| {
                self.select_via(id, &switches, avoid, Load::Fits)
                    .or_else(|| self.select_via(id, &switches, avoid, Load::Any))
            };
            let mut via = select(&avoid);
            let is_joined = |pair: &[SwitchId]| topology.carrier(pair[0], pair[1]).is_some();
            if via.is_none() && !service.path(from, to).windows(2).all(is_joined) {
                // A trunk of the path is deleted: a path that is down is better than none.
                via = select(&drained);
            }
            if let Some(via) = via
                && via != service.via
            {
                moves.push((id, service, switches, via));
            }
        }
        for (id, service, switches, via) in moves {
            match self.set_path(id, service, &switches, via, 0) {
                Err(refusal) if refusal.code == RefusalCode::Exhausted => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// Returns true if each pair of switches that a trunk joined before the order still has a trunk.
    fn all_joined(&self, topology: &Topology<'_>) -> bool {
        let before = Topology::of(self.draft.base());
        before
            .pairs()
            .all(|(one, two)| topology.carrier(one, two).is_some())
    }
}
