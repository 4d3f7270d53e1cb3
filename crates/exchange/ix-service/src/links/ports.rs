//! The states of the ports of switches, and of the trunks between them.

use std::collections::BTreeMap;

use millrace_ix_model::{PortId, Timestamp};
use millrace_types::PortNo;

/// The state of a port in a report of its switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortReport {
    /// The port number.
    pub number: PortNo,
    /// True if the port has a link, and is neither shut down nor blocked.
    pub link: bool,
    /// True if the switch reports the port as live (`OFPPS_LIVE`).
    pub live: bool,
}

/// Link and liveness of a switch's port, and the time of their last change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortState {
    /// True if the port has a link, and is neither shut down nor blocked.
    pub link: bool,
    /// True if OAM finds no fault on the path behind the port, or does not watch the path.
    pub live: bool,
    /// The time at which the port entered this state.
    pub since: Timestamp,
}

impl PortState {
    /// Returns true if the port can pass frames.
    pub fn is_up(self) -> bool {
        self.link && self.live
    }
}

/// The states of the ports of connected switches.
pub type PortStates = BTreeMap<PortId, PortState>;

/// Returns true if both ends of a trunk are up, false if an end is down; `None` if the state is not known.
pub(crate) fn trunk_up(ports: &PortStates, ends: [PortId; 2]) -> Option<bool> {
    match ends.map(|end| ports.get(&end).map(|port| port.is_up())) {
        [Some(false), _] | [_, Some(false)] => Some(false),
        [Some(true), Some(true)] => Some(true),
        _ => None,
    }
}
