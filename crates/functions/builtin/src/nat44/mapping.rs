//! The mapping of an inside endpoint: its outside port, and the time-out by the state of its TCP connections.

use millrace_nf::flow::flag;
use millrace_types::{Duration, Time};

/// The fields of a packet that determine the state of its mapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// The TCP flags, or 0 for other protocols.
    pub(super) flags: u8,
    pub(super) has_payload: bool,
    pub(super) is_from_outside: bool,
}

/// The state of the TCP connections of a mapping, which determines its idle time-out (RFC 5382, section 5).
///
/// ```text
///         ACK from outside        FIN or RST
/// Opening ----------------> Open ------------> Closing
///    ^                       ^                  |  |
///    |                       +------------------+  |
///    |                         data from outside   |
///    +---------------------------------------------+
///                          SYN
/// ```
///
/// FIN or RST also leads from Opening to Closing. Only packets from outside lead to the long time-out: otherwise one
/// inside host could hold all ports for a long time without any answer. Data after FIN or RST shows that a connection
/// continues (RFC 6146, section 3.5.2.2, state TRANS), because any outside host may send a FIN or RST to the mapping.
/// An ACK without data may be the last packet of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// The protocol has no connections; this state never changes.
    Datagrams,
    Opening,
    Open,
    Closing,
}

impl State {
    /// Returns the state of a mapping after its first packet, which comes from inside.
    pub(super) fn new(is_tcp: bool) -> State {
        match is_tcp {
            true => State::Opening,
            false => State::Datagrams,
        }
    }

    pub(super) fn next(self, segment: Segment) -> State {
        let has = |flags| segment.flags & flags != 0;
        let is_answer = segment.is_from_outside && has(flag::ACK);
        match self {
            State::Datagrams => State::Datagrams,
            _ if has(flag::FIN | flag::RST) => State::Closing,
            State::Opening if is_answer => State::Open,
            State::Closing if has(flag::SYN) => State::Opening,
            State::Closing if is_answer && segment.has_payload => State::Open,
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
    /// Returns whether a mapping has expired. `used` is the time of its last use.
    pub(super) fn is_over(&self, mapping: &Mapping, used: Time, now: Time) -> bool {
        let idle = match mapping.state {
            State::Open => self.open,
            State::Datagrams | State::Opening | State::Closing => self.other,
        };
        now.since(used) >= idle
    }
}

#[cfg(test)]
mod tests {
    use super::flag::{ACK, FIN, RST, SYN};
    use super::*;

    fn inside(flags: u8) -> Segment {
        Segment {
            flags,
            has_payload: true,
            is_from_outside: false,
        }
    }

    fn outside(flags: u8, has_payload: bool) -> Segment {
        Segment {
            flags,
            has_payload,
            is_from_outside: true,
        }
    }

    fn after(segments: &[Segment]) -> State {
        let first = State::new(true);
        segments.iter().fold(first, |state, segment| state.next(*segment))
    }

    #[test]
    fn only_an_answer_opens_a_mapping() {
        assert_eq!(after(&[inside(ACK), inside(SYN), inside(ACK)]), State::Opening);
        assert_eq!(after(&[outside(SYN, false)]), State::Opening);
        assert_eq!(after(&[outside(SYN | ACK, false)]), State::Open);
        assert_eq!(after(&[inside(SYN), outside(RST | ACK, false)]), State::Closing);
    }

    #[test]
    fn data_from_outside_leads_back_from_closing() {
        let open = outside(ACK, false);
        for end in [outside(RST, false), outside(FIN | ACK, false), inside(FIN | ACK)] {
            assert_eq!(after(&[open, end]), State::Closing);
            assert_eq!(after(&[open, end, outside(ACK, false)]), State::Closing);
            assert_eq!(after(&[open, end, inside(ACK)]), State::Closing);
            assert_eq!(after(&[open, end, outside(0, true)]), State::Closing);
            assert_eq!(after(&[open, end, outside(RST | ACK, true)]), State::Closing);
            assert_eq!(after(&[open, end, outside(SYN | ACK, true)]), State::Opening);
            assert_eq!(after(&[open, end, outside(ACK, true)]), State::Open);
        }
    }
}
