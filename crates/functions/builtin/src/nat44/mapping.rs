//! The mapping of an inside endpoint: its outside port, and the time-out by the state of its TCP connections.

use millrace_nf::flow::flag;
use millrace_types::{Duration, Time};

/// The state of the TCP connections of a mapping, which determines its idle time-out (RFC 5382, section 5).
///
/// ```text
///         ACK without SYN       FIN or RST
/// Opening --------------> Open ------------> Closing
///    ^                                         |
///    +-----------------------------------------+
///                        SYN
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// The protocol has no connections; this state never changes.
    Datagrams,
    Opening,
    Open,
    Closing,
}

impl State {
    /// Returns the state of a mapping whose first packet has these TCP flags.
    pub(super) fn new(is_tcp: bool, flags: u8) -> State {
        match is_tcp {
            true => State::Opening.next(flags),
            false => State::Datagrams,
        }
    }

    pub(super) fn next(self, flags: u8) -> State {
        let is_syn = flags & flag::SYN != 0;
        match self {
            State::Datagrams => State::Datagrams,
            _ if flags & (flag::FIN | flag::RST) != 0 => State::Closing,
            State::Opening if !is_syn && flags & flag::ACK != 0 => State::Open,
            State::Closing if is_syn => State::Opening,
            state => state,
        }
    }
}

/// The outside port of an inside endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    pub(super) port: u16,
    pub(super) state: State,
}

/// The idle time-outs of mappings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Idle {
    /// The time-out of a mapping with an established TCP connection.
    pub(super) open: Duration,
    /// The time-out of other mappings.
    pub(super) other: Duration,
}

impl Idle {
    /// Returns whether a mapping that was used last at a time is over.
    pub(super) fn is_over(&self, mapping: &Mapping, used: Time, now: Time) -> bool {
        let idle = match mapping.state {
            State::Open => self.open,
            State::Datagrams | State::Opening | State::Closing => self.other,
        };
        now.since(used) >= idle
    }
}
