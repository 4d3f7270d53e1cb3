//! The spanning tree of a bridge: the machines, and what the data plane does.

use std::collections::BTreeMap;

use millrace_l2ctl::rstp;
use millrace_types::{PortNo, Time};

/// The spanning tree of a bridge.
pub(super) struct SpanningTree {
    pub(super) bridge: rstp::Bridge,
    /// The ports that the data plane forwards, or not, as the machines said last.
    pub(super) forwards: BTreeMap<PortNo, bool>,
    /// The times of the ports.
    pub(super) times: BTreeMap<PortNo, PortTimes>,
}

/// The times of a port in a spanning tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortTimes {
    /// The time at which the port became a part of it.
    pub added: Time,
    /// The time of the last change of its state.
    pub state_since: Time,
}

impl SpanningTree {
    /// Returns true if the port takes part and does not forward.
    pub(super) fn blocks(&self, port: PortNo) -> bool {
        self.forwards.get(&port).is_some_and(|forwards| !forwards)
    }

    /// Returns the time at which the machines are due.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.bridge.deadline()
    }
}
