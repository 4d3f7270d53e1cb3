//! The states of ports as their switches report them, and the consequences for trunks and services.
//!
//! A port is up if it has a link and its switch reports it as live: BFD and continuity checks (docs/oam.md) clear
//! the live bit of a port whose path is broken although it has a link. Switches move traffic between trunks
//! by themselves. The engine notifies operators, and reroutes circuits that have no trunk left.

mod ports;

pub(crate) use ports::trunk_up;
pub use ports::{PortReport, PortState, PortStates};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_ix_engine::Session;
use millrace_ix_model::path::Topology;
use millrace_ix_model::{Actor, Operation, PortId, SwitchId, TrunkId};
use millrace_types::PortNo;

use crate::core::Core;
use crate::event::EventKind;
use crate::now::Now;
use crate::order::OrderOptions;

impl Core {
    /// Replaces the known ports of a switch by a complete listing. Ports that are not listed are removed.
    pub fn ports_listed(&mut self, switch: u32, session: Session, reports: &[PortReport], now: Now) {
        if !self.engine.is_session(switch, session) {
            return;
        }
        // A switch without a live port does not report the live bit, so only its link states count.
        let has_live = reports.iter().any(|report| report.live);
        let switch = SwitchId(switch);
        let mut changed = BTreeMap::new();
        for report in reports {
            let port = PortId {
                switch,
                port: report.number,
            };
            changed.insert(port, Some((report.link, report.live || !has_live)));
        }
        for port in self.ports.keys().filter(|port| port.switch == switch) {
            changed.entry(*port).or_insert(None);
        }
        self.set_ports(changed, now);
    }

    /// Records the new state of one port; `None` removes the port.
    pub fn port_changed(
        &mut self,
        switch: u32,
        session: Session,
        number: PortNo,
        report: Option<PortReport>,
        now: Now,
    ) {
        if self.engine.is_session(switch, session) {
            let switch = SwitchId(switch);
            let port = PortId { switch, port: number };
            let state = report.map(|report| (report.link, report.live));
            self.set_ports(BTreeMap::from([(port, state)]), now);
        }
    }

    /// Removes the ports of a switch that is not connected any more.
    pub(crate) fn forget_ports(&mut self, switch: SwitchId, now: Now) {
        let ports = self.ports.keys().filter(|port| port.switch == switch);
        let gone = ports.map(|port| (*port, None)).collect();
        self.set_ports(gone, now);
    }

    fn set_ports(&mut self, changed: BTreeMap<PortId, Option<(bool, bool)>>, now: Now) {
        let trunks_before = self.trunk_states();
        let mut events = Vec::new();
        let ports = Arc::make_mut(&mut self.ports);
        for (port, state) in changed {
            let before = ports.get(&port).map(|state| (state.link, state.live));
            if before == state {
                continue;
            }
            match state {
                Some((link, live)) => {
                    let since = now.timestamp();
                    ports.insert(port, PortState { link, live, since });
                }
                None => drop(ports.remove(&port)),
            }
            let up = state.map(|(link, live)| link && live);
            let was_up = before.map(|(link, live)| link && live);
            if up != was_up {
                events.push((port, up));
            }
        }
        let is_used = self.used_ports();
        for (port, up) in events.into_iter().filter(|(port, _)| is_used.contains(port)) {
            self.tell(EventKind::Port { port, up }, now);
        }
        self.tell_trunks(&trunks_before, now);
        // Circuits between two switches need another path when no trunk between the switches is up.
        let down = self.trunks_down();
        if self.changed && !down.is_empty() && self.broken_pairs(&down).next().is_some() {
            self.reroute(down, now);
        }
    }

    /// Returns the ports that connections and trunks use.
    fn used_ports(&self) -> BTreeSet<PortId> {
        let of_connections = self
            .exchange
            .connections
            .values()
            .flat_map(|found| found.ports.iter());
        let of_trunks = self.exchange.trunks.values().flat_map(|trunk| trunk.ends.iter());
        of_connections.chain(of_trunks).copied().collect()
    }

    fn trunk_states(&self) -> BTreeMap<TrunkId, Option<bool>> {
        let trunks = self.exchange.trunks.iter();
        trunks
            .map(|(id, trunk)| (*id, trunk_up(&self.ports, trunk.ends)))
            .collect()
    }

    /// Returns the trunks with an end that is known to be down, or is at a switch that does not return.
    pub(crate) fn trunks_down(&self) -> Vec<TrunkId> {
        let is_gone = |end: &PortId| {
            let switch = self.exchange.switches.get(&end.switch);
            switch.is_some_and(|switch| switch.retired) && self.engine.session(end.switch.0).is_none()
        };
        let has_gone = |id: &TrunkId| {
            let trunk = self.exchange.trunks.get(id);
            trunk.is_some_and(|trunk| trunk.ends.iter().any(is_gone))
        };
        let states = self.trunk_states().into_iter();
        states
            .filter(|(id, up)| *up == Some(false) || has_gone(id))
            .map(|(id, _)| id)
            .collect()
    }

    /// Returns the pairs of adjacent switches between which every trunk is down.
    fn broken_pairs(&self, down: &[TrunkId]) -> impl Iterator<Item = (SwitchId, SwitchId)> {
        let topology = Topology::of(&self.exchange);
        let pairs: Vec<_> = topology
            .pairs()
            .filter(|(one, two)| {
                topology
                    .trunks(*one, *two)
                    .iter()
                    .all(|(id, _)| down.contains(id))
            })
            .collect();
        pairs.into_iter()
    }

    /// Publishes one event for each trunk that went down or came up, and not one for each service.
    fn tell_trunks(&mut self, before: &BTreeMap<TrunkId, Option<bool>>, now: Now) {
        let down = self.trunks_down();
        let mut texts = Vec::new();
        for (id, up) in self.trunk_states() {
            let was = before.get(&id).copied().flatten();
            let Some(trunk) = self.exchange.trunks.get(&id) else {
                continue;
            };
            let [one, two] = trunk.ends.map(|end| end.switch);
            let is_broken = self
                .broken_pairs(&down)
                .any(|pair| pair == (one.min(two), one.max(two)));
            let text = match (was, up) {
                (Some(true) | None, Some(false)) if is_broken => {
                    format!(
                        "trunk {} is down, and no other one joins {one} and {two}: services between them are interrupted",
                        trunk.name
                    )
                }
                (Some(true) | None, Some(false)) => {
                    format!("trunk {} is down: another one carries its traffic", trunk.name)
                }
                (Some(false), Some(true)) => format!("trunk {} is up again", trunk.name),
                _ => continue,
            };
            texts.push((one, text));
        }
        for (switch, text) in texts {
            tracing::warn!(%switch, "{text}");
            let notice = EventKind::Notice {
                text,
                switch: Some(switch),
                change: None,
            };
            self.tell(notice, now);
        }
    }

    /// Reroutes circuits that were not rerouted when their path broke or was drained, because no wire id was
    /// free.
    pub(crate) fn reroute_rest(&mut self, now: Now) {
        let mut unusable = self.trunks_down();
        let drained = self.exchange.trunks.iter().filter(|(_, trunk)| trunk.drained);
        unusable.extend(drained.map(|(id, _)| *id));
        if self.broken_pairs(&unusable).next().is_some() {
            self.reroute(self.trunks_down(), now);
        }
    }

    /// Reroutes circuits whose path has no trunk any more, as one change.
    fn reroute(&mut self, trunks: Vec<TrunkId>, now: Now) {
        let operation = Operation::ReportTrunksDown { trunks };
        let drafted = self
            .exchange
            .draft(&Actor::system(), now.timestamp(), operation.clone());
        if drafted.is_ok_and(|changes| !changes.objects.is_empty()) {
            let done = self.order(vec![operation], &Actor::system(), &OrderOptions::default(), now);
            if let Err(error) = done {
                tracing::warn!(%error, "circuits without a trunk keep their path");
            }
        }
    }
}
