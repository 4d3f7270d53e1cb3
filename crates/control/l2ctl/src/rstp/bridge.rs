//! A bridge: its ports, what happens to them, and what the caller has to do.

use millrace_types::Time;

use super::bpdu::{Bpdu, Times};
use super::port::{Port, PortStatus};
use super::vector::{BridgeId, PortId, PriorityVector};
use super::{Link, PortSettings, PortState, Settings, Version};
use crate::frame;

/// Something that the caller carries out, in the order in which [`Bridge::poll`] returns it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// The port changes its state.
    SetState {
        /// The number of the port.
        port: u16,
        /// The new state.
        state: PortState,
    },
    /// Addresses that were learned from the port are forgotten.
    Flush {
        /// The number of the port.
        port: u16,
    },
    /// A frame leaves, ahead of all other traffic.
    Transmit(frame::Transmit),
}

/// The state of a bridge, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BridgeStatus {
    /// The identifier of this bridge.
    pub id: BridgeId,
    /// The root bridge.
    pub root: BridgeId,
    /// The cost of the path to the root.
    pub root_path_cost: u32,
    /// The priority vector of the path to the root.
    pub priority: PriorityVector,
    /// The number of the root port; `None` if this bridge is the root.
    pub root_port: Option<u16>,
    /// The times that the root determines.
    pub times: Times,
    /// Topology changes that this bridge detected or heard of.
    pub topology_changes: u64,
    /// The time of the last of them.
    pub last_change: Option<Time>,
}

/// A bridge that runs RSTP.
#[derive(Clone, Debug)]
pub struct Bridge {
    pub(super) settings: Settings,
    /// The ports, by number.
    pub(super) ports: Vec<Port>,
    pub(super) root_priority: PriorityVector,
    pub(super) root_port: Option<u16>,
    pub(super) root_times: Times,
    pub(super) actions: Vec<Action>,
    pub(super) topology_changes: u64,
    pub(super) last_change: Option<Time>,
    last_run: Time,
}

impl Bridge {
    /// Returns a bridge without ports.
    pub fn new(settings: Settings, now: Time) -> Bridge {
        let own = priority_of(&settings);
        Bridge {
            settings,
            ports: Vec::new(),
            root_priority: own,
            root_port: None,
            root_times: times_of(&settings),
            actions: Vec::new(),
            topology_changes: 0,
            last_change: None,
            last_run: now,
        }
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes the settings. A new version restarts all ports.
    pub fn set_settings(&mut self, settings: Settings, now: Time) {
        let old = core::mem::replace(&mut self.settings, settings);
        if old == settings {
            return;
        }
        if old.version != settings.version || old.address != settings.address {
            let ports: Vec<_> = self
                .ports
                .iter()
                .map(|port| (port.number, port.settings, port.link, port.state()))
                .collect();
            // All ports are discarding before the first begins anew.
            self.ports.clear();
            for (port, .., state) in &ports {
                if *state != PortState::Discarding {
                    let (port, state) = (*port, PortState::Discarding);
                    self.actions.push(Action::SetState { port, state });
                }
            }
            for (port, settings, link, _) in ports {
                self.set_port(port, settings, now);
                self.set_link(port, link, now);
            }
        }
        self.reselect();
        self.run(now);
    }

    /// Adds a port, or changes its settings. `number` is 1 to 4095. A new port is discarding.
    pub fn set_port(&mut self, number: u16, settings: PortSettings, now: Time) {
        let at = self.ports.binary_search_by_key(&number, |port| port.number);
        match at {
            Ok(at) => {
                let port = &mut self.ports[at];
                let old = core::mem::replace(&mut port.settings, settings);
                if old == settings {
                    return;
                }
                port.is_guarded &= settings.bpdu_guard;
                if old.edge != settings.edge {
                    port.oper_edge = settings.edge == super::Edge::Yes;
                }
            }
            Err(at) => {
                let is_rstp = self.settings.version == Version::Rstp;
                let (priority, times) = (self.own_priority(), self.own_times());
                self.ports
                    .insert(at, Port::new(number, settings, priority, times, is_rstp));
            }
        }
        self.reselect();
        self.run(now);
    }

    /// Removes a port, whose state no longer matters.
    pub fn remove_port(&mut self, number: u16, now: Time) {
        self.ports.retain(|port| port.number != number);
        self.reselect();
        self.run(now);
    }

    /// Handles a change of a port's link; `None` is no link.
    pub fn set_link(&mut self, number: u16, link: Option<Link>, now: Time) {
        self.run(now);
        let Some(port) = self.port_mut(number).filter(|port| port.link != link) else {
            return;
        };
        port.link = link;
        port.is_guarded &= link.is_some();
        port.reselect = true;
        self.run(now);
    }

    /// Handles a frame that a port received.
    pub fn receive(&mut self, number: u16, frame: &[u8], now: Time) {
        self.run(now);
        let Some(port) = self.port_mut(number) else {
            return;
        };
        let Some(bpdu) = frame::bpdu_of(frame)
            .and_then(Bpdu::parse)
            .filter(|_| port.is_enabled())
        else {
            port.counters.discarded += 1;
            return;
        };
        port.counters.received += 1;
        if port.settings.bpdu_guard {
            port.is_guarded = true;
        } else {
            port.receive(bpdu, now);
        }
        self.run(now);
        if let Some(port) = self.port_mut(number) {
            port.message = None;
        }
    }

    /// Asks a port to send RST BPDUs again to a neighbour that sent those of STP (`mcheck`).
    pub fn check_migration(&mut self, number: u16, now: Time) {
        if let Some(port) = self.port_mut(number) {
            port.mcheck = true;
        }
        self.run(now);
    }

    /// Runs the machines at `now`, and returns what has to be done, in this order.
    pub fn poll(&mut self, now: Time) -> Vec<Action> {
        self.run(now);
        core::mem::take(&mut self.actions)
    }

    /// Returns the time at which [`Bridge::poll`] is due; `None` if nothing is.
    pub fn deadline(&self) -> Option<Time> {
        if !self.actions.is_empty() {
            return Some(self.last_run);
        }
        let deadlines = self.ports.iter().flat_map(|port| port.deadlines(self.last_run));
        deadlines.min()
    }

    /// Returns the state of the bridge.
    pub fn status(&self) -> BridgeStatus {
        BridgeStatus {
            id: self.own_priority().root,
            root: self.root_priority.root,
            root_path_cost: self.root_priority.root_path_cost,
            priority: self.root_priority,
            root_port: self.root_port,
            times: self.root_times,
            topology_changes: self.topology_changes,
            last_change: self.last_change,
        }
    }

    /// Returns the states of the ports, by number.
    pub fn ports(&self) -> impl Iterator<Item = PortStatus> {
        self.ports.iter().map(Port::status)
    }

    /// Returns the state of a port; `None` if there is no such port.
    pub fn port(&self, number: u16) -> Option<PortStatus> {
        let at = self
            .ports
            .binary_search_by_key(&number, |port| port.number)
            .ok()?;
        self.ports.get(at).map(Port::status)
    }

    /// Returns the priority vector of this bridge as the root.
    pub(super) fn own_priority(&self) -> PriorityVector {
        priority_of(&self.settings)
    }

    /// Returns the times of this bridge as the root.
    pub(super) fn own_times(&self) -> Times {
        times_of(&self.settings)
    }

    fn reselect(&mut self) {
        self.ports.iter_mut().for_each(|port| port.reselect = true);
        if self.ports.is_empty() {
            self.root_priority = self.own_priority();
            self.root_times = self.own_times();
            self.root_port = None;
        }
    }

    fn port_mut(&mut self, number: u16) -> Option<&mut Port> {
        let at = self
            .ports
            .binary_search_by_key(&number, |port| port.number)
            .ok()?;
        self.ports.get_mut(at)
    }

    fn run(&mut self, now: Time) {
        // Time never goes back, whatever the caller passes.
        self.last_run = self.last_run.max(now);
        self.step(self.last_run);
    }
}

fn priority_of(settings: &Settings) -> PriorityVector {
    let id = BridgeId {
        priority: settings.priority & 0xf000,
        address: settings.address,
    };
    PriorityVector {
        root: id,
        root_path_cost: 0,
        designated_bridge: id,
        designated_port: PortId(0),
        bridge_port: PortId(0),
    }
}

fn times_of(settings: &Settings) -> Times {
    let units = |seconds: u8| u16::from(seconds) << 8;
    Times {
        message_age: 0,
        max_age: units(settings.max_age_s),
        hello_time: units(settings.hello_time_s),
        forward_delay: units(settings.forward_delay_s),
    }
}
