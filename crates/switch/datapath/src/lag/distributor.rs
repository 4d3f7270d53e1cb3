//! The choice of the member that sends a packet, in one worker.

use millrace_types::{Duration, PortNo, Time};
use millrace_wire::Packet;

use super::Distribution;
use millrace_wire::flow_hash::FlowHash;

/// The time after which flows move to a new member although their old one has packets waiting: its device takes
/// nothing, and the flows would never move. It also covers packets in the inbox of another worker.
const SETTLE_TIME_MAX: Duration = Duration::from_millis(2);

/// Flows that move from working members.
#[derive(Debug)]
struct Move {
    to: Distribution,
    /// The members that lose flows.
    donors: Vec<PortNo>,
    until: Time,
}

/// The distribution of one LAG in one worker.
#[derive(Debug)]
pub(crate) struct Distributor {
    hash: FlowHash,
    now: Distribution,
    next: Option<Box<Move>>,
}

impl Distributor {
    pub(crate) fn new(hash: FlowHash) -> Distributor {
        Distributor {
            hash,
            now: Distribution::EMPTY,
            next: None,
        }
    }

    /// Returns the member that sends a packet; `None` if no member distributes.
    #[inline]
    pub(crate) fn member_of<P: Packet>(&self, packet: &P) -> Option<PortNo> {
        self.now.member(self.hash.of(packet.head()))
    }

    /// Sets the distribution. Flows of members that left move now. Returns true if others wait for [`Self::finish`].
    pub(crate) fn set(&mut self, to: Distribution, now: Time) -> bool {
        let donors = self.now.leave(&to);
        let until = now + SETTLE_TIME_MAX;
        self.next = (!donors.is_empty()).then(|| Box::new(Move { to, donors, until }));
        self.next.is_some()
    }

    /// Moves the flows that wait if `has_waiting` is false for all members that lose flows, or has been true for too
    /// long. Returns true if flows still wait.
    pub(crate) fn finish(&mut self, now: Time, mut has_waiting: impl FnMut(PortNo) -> bool) -> bool {
        let Some(next) = &self.next else {
            return false;
        };
        if now < next.until && next.donors.iter().any(|donor| has_waiting(*donor)) {
            return true;
        }
        if let Some(next) = self.next.take() {
            self.now = next.to;
        }
        false
    }
}
