//! The switches of an exchange that runs in its own thread. They answer each request at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_ix_engine::{Entries as _, Event};
use millrace_ix_model::{Exchange, SwitchId};
use millrace_types::{Cookie, PortNo};
use parking_lot::Mutex;

use super::ModelSwitch;
use crate::fabric::Fabric;
use crate::handle::FabricHandle;
use crate::links::PortReport;
use crate::output::FabricRequest;

/// A switch with its ports, and the requests that it has not answered.
#[derive(Debug, Default)]
struct Simulated {
    model: ModelSwitch,
    ports: BTreeSet<PortNo>,
    down: BTreeSet<PortNo>,
    waiting: Vec<FabricRequest>,
}

#[derive(Debug, Default)]
struct State {
    engine: Option<FabricHandle>,
    switches: BTreeMap<SwitchId, Simulated>,
    sessions: u64,
}

/// The switches of a service. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct SimulatedFabric(Arc<Mutex<State>>);

impl SimulatedFabric {
    /// Takes a request of the engine.
    pub fn request(&self, request: FabricRequest) {
        self.0.lock().take(request);
    }

    /// Connects all switches of an exchange, whose ports are up.
    pub fn connect_all(&self, engine: FabricHandle, exchange: &Exchange) {
        let mut state = self.0.lock();
        state.engine = Some(engine);
        for (id, switch) in &exchange.switches {
            let found = state.switches.entry(*id).or_default();
            found.ports = switch.ports.iter().map(|port| port.number).collect();
            state.connect(*id);
        }
    }

    /// Connects a switch again, with the content that it has.
    pub fn connect(&self, switch: SwitchId) {
        self.0.lock().connect(switch);
    }

    /// Ends the connection of a switch.
    pub fn disconnect(&self, switch: SwitchId) {
        self.0.lock().disconnect(switch);
    }

    /// Sets the ports of a switch that are down; all others are up.
    pub fn set_down(&self, switch: SwitchId, down: &[PortNo]) {
        let mut state = self.0.lock();
        if let Some(found) = state.switches.get_mut(&switch) {
            found.down = down.iter().copied().collect();
        }
        state.report_ports(switch);
    }

    /// Lets a switch answer nothing, or answer again, beginning with what it has not answered.
    pub fn set_deaf(&self, switch: SwitchId, is_deaf: bool) {
        let mut state = self.0.lock();
        let Some(found) = state.switches.get_mut(&switch) else {
            return;
        };
        found.model.is_deaf = is_deaf;
        let waiting = if is_deaf {
            Vec::new()
        } else {
            std::mem::take(&mut found.waiting)
        };
        for request in waiting {
            state.take(request);
        }
    }

    /// Changes the model of a switch.
    pub fn change(&self, switch: SwitchId, change: impl FnOnce(&mut ModelSwitch)) {
        if let Some(found) = self.0.lock().switches.get_mut(&switch) {
            change(&mut found.model);
        }
    }

    /// Changes the model of a switch as somebody beside the engine would: the switch reports that an entry was changed.
    pub fn change_by_another(&self, switch: SwitchId, change: impl FnOnce(&mut ModelSwitch)) {
        self.change(switch, change);
        let state = self.0.lock();
        let session = state.switches.get(&switch).and_then(|found| found.model.session);
        if let (Some(engine), Some(session)) = (&state.engine, session) {
            engine.event(Event::ForeignChange {
                switch: switch.0,
                session,
            });
        }
    }

    /// Gives a switch the entries of a later revision than the database has, as after the restore of an old backup: an entry is
    /// gone.
    pub fn set_revision(&self, switch: SwitchId, revision: u64) {
        let (key, entry) = Fabric::marker(revision);
        self.change(switch, |model| {
            let gone = model.content.keys().find(|other| **other != key).cloned();
            gone.map(|gone| model.content.remove(&gone));
            model.content.insert(key, entry);
        });
    }

    /// Returns true if a switch is connected.
    pub fn is_connected(&self, switch: SwitchId) -> bool {
        let state = self.0.lock();
        let found = state.switches.get(&switch);
        found.is_some_and(|found| found.model.session.is_some())
    }

    /// Returns true if a switch is away, or leaves a request without an answer.
    pub fn is_late(&self) -> bool {
        let state = self.0.lock();
        let mut switches = state.switches.values();
        switches.any(|switch| switch.model.session.is_none() || switch.model.is_deaf)
    }

    /// Passes a frame that an entry with this cookie has sent to the controller.
    pub fn packet_in(&self, switch: SwitchId, cookie: Cookie, frame: Vec<u8>) {
        let state = self.0.lock();
        let session = state.switches.get(&switch).and_then(|found| found.model.session);
        if let (Some(engine), Some(session)) = (&state.engine, session) {
            engine.packet_in(switch, session, cookie, frame);
        }
    }
}

impl State {
    fn send(&self, event: Event<Fabric>) {
        if let Some(engine) = &self.engine {
            engine.event(event);
        }
    }

    fn take(&mut self, request: FabricRequest) {
        let (FabricRequest::Dump { switch, session }
        | FabricRequest::Commit { switch, session, .. }
        | FabricRequest::PacketOut { switch, session, .. }) = &request;
        let Some(found) = self.switches.get_mut(switch) else {
            return;
        };
        // A request of an earlier connection is lost with it.
        if found.model.session != Some(*session) {
            return;
        }
        if found.model.is_deaf {
            found.waiting.push(request);
        } else if let Some(answer) = found.model.answer(request) {
            self.send(answer);
        }
    }

    fn connect(&mut self, switch: SwitchId) {
        self.disconnect(switch);
        self.sessions += 1;
        let session = self.sessions;
        let Some(found) = self.switches.get_mut(&switch) else {
            return;
        };
        found.model.session = Some(session);
        self.send(Event::Connected {
            switch: switch.0,
            session,
        });
        self.report_ports(switch);
    }

    fn disconnect(&mut self, switch: SwitchId) {
        let Some(found) = self.switches.get_mut(&switch) else {
            return;
        };
        found.waiting.clear();
        if let Some(session) = found.model.session.take() {
            let switch = switch.0;
            self.send(Event::Disconnected { switch, session });
        }
    }

    fn report_ports(&self, switch: SwitchId) {
        let Some(found) = self.switches.get(&switch) else {
            return;
        };
        let report = |number: &PortNo| PortReport {
            number: *number,
            link: !found.down.contains(number),
            live: !found.down.contains(number),
        };
        if let (Some(engine), Some(session)) = (&self.engine, found.model.session) {
            engine.ports(switch, session, found.ports.iter().map(report).collect());
        }
    }
}
