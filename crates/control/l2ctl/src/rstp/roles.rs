//! Role selection: the spanning tree (IEEE 802.1D-2004, sections 17.21.25 and 17.28).

use super::Role;
use super::bpdu::Times;
use super::bridge::Bridge;
use super::port::{InfoIs, Port};
use super::vector::PriorityVector;

/// One second in the units of [`Times`].
const ONE_SECOND: u16 = 256;

impl Bridge {
    /// Selects the root and the roles of all ports if a port asks for it. Returns true if it did.
    pub(super) fn select_roles(&mut self) -> bool {
        if !self.ports.iter().any(|port| port.reselect) {
            return false;
        }
        self.ports.iter_mut().for_each(|port| port.reselect = false);
        self.update_roles();
        self.ports.iter_mut().for_each(|port| port.selected = true);
        true
    }

    /// Computes the root priority vector, the designated vectors and the roles (`updtRolesTree`).
    fn update_roles(&mut self) {
        let own = self.own_priority();
        let address = self.settings.address;
        let root_paths = self.ports.iter().enumerate().filter_map(|(at, port)| {
            let is_candidate = port.info_is == InfoIs::Received
                && !port.settings.root_guard
                && port.port_priority.designated_bridge.address != address;
            is_candidate.then(|| (root_path(port), Some(at)))
        });
        let (root_priority, root_port) = root_paths
            .chain([(own, None)])
            .min_by_key(|(vector, _)| *vector)
            .unwrap_or((own, None));
        self.root_priority = root_priority;
        self.root_port = root_port
            .and_then(|at| self.ports.get(at))
            .map(|port| port.number);
        self.root_times = match root_port.and_then(|at| self.ports.get(at)) {
            // Each hop makes the information a second older, rounded to a whole second.
            Some(port) => Times {
                message_age: (port
                    .port_times
                    .message_age
                    .saturating_add(ONE_SECOND + ONE_SECOND / 2))
                    & 0xff00,
                ..port.port_times
            },
            None => self.own_times(),
        };
        let times = Times {
            hello_time: self.own_times().hello_time,
            ..self.root_times
        };
        for (at, port) in self.ports.iter_mut().enumerate() {
            let id = port.id();
            port.designated_priority = PriorityVector {
                designated_bridge: own.root,
                designated_port: id,
                bridge_port: id,
                ..root_priority
            };
            port.designated_times = times;
            (port.selected_role, port.updt_info) = select_role(port, root_port == Some(at), address);
        }
    }
}

/// Returns the root path priority vector of a port: its vector, with the cost of the port added.
fn root_path(port: &Port) -> PriorityVector {
    PriorityVector {
        root_path_cost: port.port_priority.root_path_cost.saturating_add(port.path_cost()),
        bridge_port: port.id(),
        ..port.port_priority
    }
}

/// Returns the role of a port, and true if its priority vector becomes its designated vector.
fn select_role(port: &Port, is_root_port: bool, address: millrace_types::Mac) -> (Role, bool) {
    let mine = &port.designated_priority;
    match port.info_is {
        InfoIs::Disabled => (Role::Disabled, false),
        InfoIs::Aged => (Role::Designated, true),
        InfoIs::Mine => {
            let is_current = port.port_priority == *mine && port.port_times == port.designated_times;
            (Role::Designated, !is_current)
        }
        InfoIs::Received if is_root_port => (Role::Root, false),
        InfoIs::Received if mine.message() < port.port_priority.message() => (Role::Designated, true),
        InfoIs::Received if port.port_priority.designated_bridge.address == address => (Role::Backup, false),
        InfoIs::Received => (Role::Alternate, false),
    }
}
