//! Paths over trunks between switches, and the contracted rates that they carry.
//!
//! Two switches are *joined* if a trunk has an end at each. Joined switches may have several trunks: one of
//! them, the carrier, carries the traffic. If it fails, another trunk replaces it without a change of the
//! path. A circuit between switches that are not joined crosses other switches (*transit*); the switches of
//! its path are in [`Service::via`].

use std::collections::{BTreeMap, BTreeSet};

use crate::exchange::Exchange;
use crate::fabric::Trunk;
use crate::id::{ConnectionId, SwitchId, TrunkId};
use crate::service::{Config, Consent, Service, ServiceKind};

pub use crate::index::Contracts;

/// The trunks of an exchange by the switches that they join.
#[derive(Clone, Debug, Default)]
pub struct Topology<'a> {
    /// The trunks of each pair of joined switches. The lower switch comes first.
    joined: BTreeMap<(SwitchId, SwitchId), Vec<(TrunkId, &'a Trunk)>>,
}

impl<'a> Topology<'a> {
    /// Returns the topology of these trunks.
    pub fn new(trunks: impl IntoIterator<Item = (TrunkId, &'a Trunk)>) -> Topology<'a> {
        let mut joined: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (id, trunk) in trunks {
            let [one, two] = trunk.ends.map(|end| end.switch);
            joined.entry(in_order(one, two)).or_default().push((id, trunk));
        }
        for trunks in joined.values_mut() {
            trunks.sort_by_key(|(id, trunk)| (trunk.drained, trunk.cost, *id));
        }
        Topology { joined }
    }

    /// Returns the topology of an exchange.
    pub fn of(exchange: &'a Exchange) -> Topology<'a> {
        Topology::new(exchange.trunks.iter().map(|(id, trunk)| (*id, trunk)))
    }

    /// Returns the trunks between two switches in the order of their use: drained ones last, then by cost.
    pub fn trunks(&self, one: SwitchId, two: SwitchId) -> &[(TrunkId, &'a Trunk)] {
        self.joined.get(&in_order(one, two)).map_or(&[], Vec::as_slice)
    }

    /// Returns the trunk that carries the traffic between two switches while all are up.
    pub fn carrier(&self, one: SwitchId, two: SwitchId) -> Option<(TrunkId, &'a Trunk)> {
        self.trunks(one, two).first().copied()
    }

    /// Returns the pairs of joined switches, the lower switch first.
    pub fn pairs(&self) -> impl Iterator<Item = (SwitchId, SwitchId)> + '_ {
        self.joined.keys().copied()
    }

    /// Returns the cheapest path between two switches, both included, over pairs that `accepts` admits. A
    /// drained pair costs more than any other pair. Among paths of equal cost, the path with fewer switches
    /// is chosen, then the path with the lower switch numbers, so that the same topology always gives the
    /// same path.
    pub fn path(
        &self,
        from: SwitchId,
        to: SwitchId,
        accepts: impl Fn(SwitchId, SwitchId) -> bool,
    ) -> Option<Vec<SwitchId>> {
        // Dijkstra's algorithm: the first path to a switch that is removed from `open` is the cheapest path
        // to it.
        let mut open = BTreeSet::from([(0_usize, 0_u64, vec![from])]);
        let mut done = BTreeSet::new();
        while let Some((drained, cost, path)) = open.pop_first() {
            let Some(last) = path.last().copied() else {
                continue;
            };
            if last == to {
                return Some(path);
            }
            if !done.insert(last) {
                continue;
            }
            for (one, two) in self.pairs() {
                let next = match (one == last, two == last) {
                    (true, _) => two,
                    (_, true) => one,
                    _ => continue,
                };
                if done.contains(&next) || !accepts(last, next) {
                    continue;
                }
                let Some((_, trunk)) = self.carrier(last, next) else {
                    continue;
                };
                let mut longer = path.clone();
                longer.push(next);
                open.insert((
                    drained + usize::from(trunk.drained),
                    cost + u64::from(trunk.cost),
                    longer,
                ));
            }
        }
        None
    }
}

impl Trunk {
    /// Returns the sum of contracted rates that the trunk admits in each direction, in Mbit/s.
    pub fn contracts_max(&self) -> u64 {
        u64::from(self.capacity_mbps) * u64::from(self.contract_percent) / 100
    }
}

impl Service {
    /// Returns the switches of a circuit's path from `from` to `to`, both included.
    pub fn path(&self, from: SwitchId, to: SwitchId) -> Vec<SwitchId> {
        let mut path = vec![from];
        if from < to {
            path.extend(&self.via);
        } else {
            path.extend(self.via.iter().rev());
        }
        path.push(to);
        path
    }

    /// Returns true if the contracted rates of the ends are reserved on trunks. This holds for a circuit that
    /// switches carry and that the invited account has not refused. A peering LAN has no contract between two
    /// of its members.
    fn has_contracts(&self) -> bool {
        let is_refused = matches!(self.consent, Consent::Refused { .. });
        self.kind != ServiceKind::ExchangeLan && self.state.is_carried() && !is_refused
    }
}

/// Returns the contracted rates of a service on the pairs of joined switches, in each direction. An end without a rate has no
/// contract and reserves nothing.
pub fn service_contracts<'a>(
    service: &Service,
    ends: impl IntoIterator<Item = &'a Config>,
    switch_of: impl Fn(ConnectionId) -> Option<SwitchId>,
) -> Contracts {
    let mut contracts = Contracts::new();
    if !service.has_contracts() {
        return contracts;
    }
    let at_switch = |config: &Config| {
        let rate: u64 = config.capacity_mbps.unwrap_or(0).into();
        Some((switch_of(config.connection)?, rate))
    };
    let ends: Vec<(SwitchId, u64)> = ends.into_iter().filter_map(at_switch).collect();
    let switches: BTreeSet<SwitchId> = ends.iter().map(|(switch, _)| *switch).collect();
    for (from, rate) in ends.iter().filter(|(_, rate)| *rate > 0) {
        for to in switches.iter().filter(|to| *to != from) {
            for pair in service.path(*from, *to).windows(2) {
                if let [one, two] = pair {
                    *contracts.entry((*one, *two)).or_default() += rate;
                }
            }
        }
    }
    contracts
}

/// Returns the contracted rates of all circuits of an exchange.
pub fn contracts_of(exchange: &Exchange) -> Contracts {
    exchange.index().total().clone()
}

/// Returns two switches, the lower one first.
fn in_order(one: SwitchId, two: SwitchId) -> (SwitchId, SwitchId) {
    if one < two { (one, two) } else { (two, one) }
}
