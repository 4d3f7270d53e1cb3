//! Effects of a function besides its verdicts: packets of its own, and flows that it shuns.

use arrayvec::ArrayVec;
use millrace_types::Duration;

use crate::burst::{BURST, Direction};
use crate::flow::FlowId;

/// Limit of the packets that a function sends for one burst.
pub const SENT_MAX: usize = 32;
/// Size limit of a packet that a function sends: an Ethernet frame without FCS.
pub const SENT_SIZE_MAX: usize = 1514;

/// The treatment of the packets of a shunned flow, which the function does not see.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ShunAction {
    /// Packets go to the next hop.
    Pass,
    /// Packets are dropped.
    Drop,
}

/// A request to shun the flow of a packet, in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shun {
    /// The index of the packet in the burst.
    pub packet: usize,
    /// The treatment of the flow's packets.
    pub action: ShunAction,
    /// The flow is forgotten after this time without a packet.
    pub idle: Duration,
}

/// A flow that is no longer shunned, with its counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShunnedFlow {
    /// The flow; the smaller endpoint is its source.
    pub flow: FlowId,
    /// VLAN identifiers of the flow from the outermost on; 0 without a tag.
    pub vlans: [u16; 2],
    /// The treatment of the flow's packets.
    pub action: ShunAction,
    /// Packets in both directions.
    pub packets: u64,
    /// Bytes of those packets.
    pub bytes: u64,
}

/// The treatment of packets that a function sends during a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sending {
    Allowed,
    /// Functions sent the packets of the burst. Such packets must not cause further packets.
    Refused,
}

/// The effects of one call of a function. All memory is allocated with the value.
#[derive(Debug)]
pub struct Effects {
    /// The bytes of the packets, [`SENT_SIZE_MAX`] for each.
    bytes: Box<[u8]>,
    /// The direction and the size of each packet.
    sent: ArrayVec<(Direction, usize), SENT_MAX>,
    shuns: ArrayVec<Shun, BURST>,
    /// Packets that were not accepted.
    refused: u64,
    accepts: bool,
}

impl Default for Effects {
    fn default() -> Effects {
        Effects::new()
    }
}

impl Effects {
    /// Returns a value that accepts packets.
    pub fn new() -> Effects {
        Effects {
            bytes: vec![0; SENT_MAX * SENT_SIZE_MAX].into(),
            sent: ArrayVec::new(),
            shuns: ArrayVec::new(),
            refused: 0,
            accepts: true,
        }
    }

    /// Returns a value that refuses packets and ignores requests to shun, for callers that cannot carry them out.
    pub fn refusing() -> Effects {
        Effects {
            bytes: Box::default(),
            sent: ArrayVec::new(),
            shuns: ArrayVec::new(),
            refused: 0,
            accepts: false,
        }
    }

    /// Sends a packet from this hop, towards the far end or the near end. The packet traverses the hops that
    /// follow in that direction, after the packets of the burst. Returns false, and counts the packet, if
    /// there are [`SENT_MAX`] packets already, if the packet exceeds [`SENT_SIZE_MAX`], or if functions sent
    /// the packets of the burst: such packets must not cause further packets.
    pub fn send(&mut self, direction: Direction, frame: &[u8]) -> bool {
        self.send_with(direction, frame.len(), |slot| slot.copy_from_slice(frame))
    }

    /// Sends a packet of `size` bytes, as [`send`](Effects::send) does. `write` fills in the bytes.
    pub fn send_with(&mut self, direction: Direction, size: usize, write: impl FnOnce(&mut [u8])) -> bool {
        let at = self.sent.len() * SENT_SIZE_MAX;
        let slot = self.bytes.get_mut(at..at.saturating_add(size));
        match slot {
            Some(slot) if self.accepts && size <= SENT_SIZE_MAX && !self.sent.is_full() => {
                write(slot);
                self.sent.push((direction, size));
                true
            }
            _ => {
                self.refused += 1;
                false
            }
        }
    }

    /// Shuns the flow of a packet of the burst: later packets of both directions are treated without a call of the function.
    /// The switch ignores packets without a transport flow. It forgets the flow when a TCP packet opens a new connection with
    /// the same endpoints, and that packet goes to the function. The function must not have rewritten the packet's endpoints.
    pub fn shun(&mut self, packet: usize, action: ShunAction, idle: Duration) {
        // The list has room for one request for each packet of a burst. Requests beyond that are ignored.
        let _is_full = self.shuns.try_push(Shun { packet, action, idle });
    }

    /// Returns whether there is nothing to carry out.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.shuns.is_empty() && self.refused == 0
    }

    /// Returns the packets, with their directions.
    pub fn sent(&self) -> impl Iterator<Item = (Direction, &[u8])> {
        let frames = self.bytes.chunks_exact(SENT_SIZE_MAX);
        self.sent
            .iter()
            .zip(frames)
            .map(|((direction, size), bytes)| (*direction, &bytes[..*size]))
    }

    /// Returns the requests to shun.
    pub fn shuns(&self) -> &[Shun] {
        &self.shuns
    }

    /// Returns the number of packets that were not accepted.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Adds packets that were refused elsewhere to the number of packets that were not accepted.
    pub fn refuse(&mut self, packets: u64) {
        self.refused = self.refused.saturating_add(packets);
    }

    /// Forgets all effects, before a call of the function.
    pub fn reset(&mut self, sending: Sending) {
        self.sent.clear();
        self.shuns.clear();
        self.refused = 0;
        self.accepts = sending == Sending::Allowed && !self.bytes.is_empty();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_out_as_they_went_in_and_those_over_a_limit_are_counted() {
        let mut effects = Effects::new();
        assert!(effects.send(Direction::Backward, b"first"));
        assert!(effects.send(Direction::Forward, &[7; SENT_SIZE_MAX]));
        assert!(!effects.send(Direction::Forward, &[7; SENT_SIZE_MAX + 1]));
        while effects.send(Direction::Forward, b"more") {}
        let sent: Vec<_> = effects.sent().collect();
        assert_eq!(sent.len(), SENT_MAX);
        assert_eq!(sent[0], (Direction::Backward, &b"first"[..]));
        assert_eq!(sent[1], (Direction::Forward, &[7; SENT_SIZE_MAX][..]));
        assert_eq!(effects.refused(), 2);
        effects.reset(Sending::Allowed);
        assert!(effects.is_empty());
    }

    #[test]
    fn one_that_refuses_takes_no_packet() {
        let mut effects = Effects::refusing();
        assert!(!effects.send(Direction::Forward, b"frame"));
        effects.reset(Sending::Allowed);
        assert!(!effects.send(Direction::Forward, b"frame"));
        assert_eq!(effects.sent().count(), 0);
    }
}
