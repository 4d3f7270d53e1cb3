//! The packets in flight: 16 bytes for each packet, and a record for each quantum of packets that left
//! together.
//!
//! ```text
//!   base              largest acknowledged        next number
//!    v                        v                       v
//!    A A L A A I A A S A I A A│I I I I I I I I I I I I│      A acknowledged, L lost, I in flight, S skipped
//!        └───── holes ─────┘
//! ```
//!
//! A feedback is compared with the holes only, not with every packet. A lost packet stays for a while: if it is acknowledged
//! after all, it was reordered, and the loss detection learns from it.

use crate::congestion::Tag;
use crate::packet::Acknowledged;
use crate::ranges::RangeSet;
use millrace_types::Time;
use std::collections::VecDeque;
use std::ops::Range;

/// Skipped numbers that are remembered.
const SKIPPED: usize = 64;

/// The state of a sent packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PacketState {
    InFlight,
    Acked,
    Lost,
    /// The number was skipped. A receiver that acknowledges it violates the protocol.
    Skipped,
}

/// A sent packet: the address of its bytes, and the quantum that it left in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) address: u64,
    /// The low 32 bits of the quantum's index.
    quantum: u32,
    pub(super) len: u16,
    pub(super) state: PacketState,
}

/// Packets that left together, and the connection's state at that time (draft-ietf-ccwg-bbr, section 4.1.2).
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantum {
    pub(super) first: u64,
    pub(super) len: u64,
    pub(super) sent_at: Time,
    pub(super) tag: Tag,
    pub(super) delivered: u64,
    pub(super) delivered_at: Time,
    pub(super) first_sent_at: Time,
    pub(super) lost: u64,
    pub(super) tx_in_flight: u64,
    pub(super) app_limited: bool,
}

/// An acknowledgement that no honest receiver sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProtocolViolation {
    /// The number was not used yet.
    #[error(
        "the receiver acknowledges packet {number}, but {next} is the next one to be sent; end the connection"
    )]
    AckOfUnsent {
        number: u64,
        /// The next number.
        next: u64,
    },
    /// The number was skipped to catch optimistic acknowledgements (RFC 9000, section 21.4).
    #[error("the receiver acknowledges packet {number}, which was never sent; end the connection")]
    AckOfSkipped { number: u64 },
}

/// The packets of one flow that are not resolved yet.
#[derive(Clone, Debug, Default)]
pub(super) struct SentPackets {
    base: u64,
    packets: VecDeque<Packet>,
    quanta_base: u64,
    quanta: VecDeque<Quantum>,
    /// Numbers below `end_acked` that are not acknowledged.
    holes: RangeSet,
    /// One more than the largest number acknowledged.
    end_acked: u64,
    /// No packet with a lower number is in flight.
    settled: u64,
    skipped: VecDeque<u64>,
}

impl SentPackets {
    /// Returns the number of the next packet.
    pub(super) fn next_number(&self) -> u64 {
        self.base + self.packets.len() as u64
    }

    /// Returns how many numbers are remembered.
    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Returns one more than the largest number acknowledged.
    pub(super) fn end_acked(&self) -> u64 {
        self.end_acked
    }

    /// Skips a packet number.
    pub(super) fn skip(&mut self) {
        self.skipped.push_back(self.next_number());
        if self.skipped.len() > SKIPPED {
            self.skipped.pop_front();
        }
        self.packets.push_back(Packet {
            address: 0,
            quantum: 0,
            len: 0,
            state: PacketState::Skipped,
        });
    }

    /// Begins a quantum; its packets follow by [`SentPackets::push`].
    pub(super) fn begin(&mut self, quantum: Quantum) {
        self.quanta.push_back(quantum);
    }

    /// Adds a packet to the current quantum and returns its number.
    pub(super) fn push(&mut self, address: u64, len: u16) -> u64 {
        let number = self.next_number();
        let index = self.quanta_base + self.quanta.len() as u64 - 1;
        #[allow(
            clippy::cast_possible_truncation,
            reason = "the low bits suffice: see `quantum`"
        )]
        let quantum = index as u32;
        self.packets.push_back(Packet {
            address,
            quantum,
            len,
            state: PacketState::InFlight,
        });
        if let Some(quantum) = self.quanta.back_mut() {
            quantum.len += 1;
        }
        number
    }

    /// Records the bytes in flight after the current quantum has left.
    pub(super) fn set_in_flight(&mut self, bytes: u64) {
        if let Some(quantum) = self.quanta.back_mut() {
            quantum.tx_in_flight = bytes;
        }
    }

    /// Returns a packet and its quantum, if they are remembered.
    pub(super) fn packet(&mut self, number: u64) -> Option<(&mut Packet, &Quantum)> {
        let at = usize::try_from(number.checked_sub(self.base)?).ok()?;
        let packet = self.packets.get_mut(at)?;
        if packet.state == PacketState::Skipped {
            return None;
        }
        #[allow(
            clippy::cast_possible_truncation,
            reason = "the difference of two indices less than 2^32 apart"
        )]
        let at = packet.quantum.wrapping_sub(self.quanta_base as u32) as usize;
        Some((packet, self.quanta.get(at)?))
    }

    /// Returns the ranges of numbers that are acknowledged for the first time.
    ///
    /// # Errors
    /// If a number was never sent.
    pub(super) fn newly_acked(
        &mut self,
        ranges: &Acknowledged,
    ) -> Result<Vec<Range<u64>>, ProtocolViolation> {
        let Some(newest) = ranges.last() else {
            return Ok(Vec::new());
        };
        let next = self.next_number();
        if newest.end > next {
            let number = newest.end - 1;
            return Err(ProtocolViolation::AckOfUnsent { number, next });
        }
        for number in &self.skipped {
            let at = ranges.partition_point(|range| range.end <= *number);
            if ranges.get(at).is_some_and(|range| range.contains(number)) {
                return Err(ProtocolViolation::AckOfSkipped { number: *number });
            }
        }
        if newest.end > self.end_acked {
            self.holes.insert(self.end_acked.max(self.base)..newest.end);
            self.end_acked = newest.end;
        }
        let newly = intersection(self.holes.ranges(), ranges);
        self.holes.remove_all(&newly);
        Ok(newly)
    }

    /// Calls `judge` for packets in flight below the largest acknowledged, oldest first, until it returns false.
    pub(super) fn check_unacknowledged(&mut self, mut judge: impl FnMut(u64, &mut Packet, &Quantum) -> bool) {
        let holes = std::mem::take(&mut self.holes);
        let from = holes.ranges().partition_point(|hole| hole.end <= self.settled);
        'holes: for hole in &holes.ranges()[from..] {
            for number in hole.start.max(self.settled)..hole.end {
                if let Some((packet, quantum)) = self.packet(number)
                    && packet.state == PacketState::InFlight
                    && !judge(number, packet, quantum)
                {
                    self.settled = number;
                    break 'holes;
                }
                self.settled = number + 1;
            }
        }
        self.holes = holes;
    }

    /// Returns the oldest packet in flight.
    pub(super) fn oldest_in_flight(&mut self) -> Option<Packet> {
        let mut number = self.settled.max(self.base);
        // Below the largest acknowledged only holes can be in flight.
        while number < self.next_number() {
            if let Some((packet, _)) = self.packet(number)
                && packet.state == PacketState::InFlight
            {
                return Some(*packet);
            }
            number += 1;
        }
        None
    }

    /// Removes resolved packets from the oldest on. Lost packets are removed only if they were sent before
    /// `lost_before`.
    pub(super) fn forget(&mut self, lost_before: Time) {
        while let Some(front) = self.packets.front() {
            let resolved = match front.state {
                PacketState::InFlight => false,
                PacketState::Acked | PacketState::Skipped => true,
                PacketState::Lost => {
                    let base = self.base;
                    self.packet(base)
                        .is_none_or(|(_, quantum)| quantum.sent_at < lost_before)
                }
            };
            if !resolved {
                break;
            }
            self.packets.pop_front();
            self.base += 1;
        }
        self.holes.remove(0..self.base);
        while self
            .quanta
            .front()
            .is_some_and(|quantum| quantum.first + quantum.len <= self.base)
        {
            self.quanta.pop_front();
            self.quanta_base += 1;
        }
    }
}

/// Returns the numbers in both of two ascending lists of disjoint ranges. Both lists are walked once, from
/// the first range that can overlap.
fn intersection(one: &[Range<u64>], other: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut both = Vec::new();
    let Some(first) = one.first() else {
        return both;
    };
    let from = other.partition_point(|range| range.end <= first.start);
    let (mut one, mut other) = (one.iter().peekable(), other[from..].iter().peekable());
    while let (Some(a), Some(b)) = (one.peek(), other.peek()) {
        let common = a.start.max(b.start)..a.end.min(b.end);
        if !common.is_empty() {
            both.push(common);
        }
        if a.end <= b.end {
            one.next();
        } else {
            other.next();
        }
    }
    both
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(count: u64) -> SentPackets {
        let mut sent = SentPackets::default();
        for number in 0..count {
            if number % 4 == 0 {
                sent.begin(Quantum {
                    first: number,
                    len: 0,
                    sent_at: Time::from_millis(number),
                    tag: Tag::default(),
                    delivered: 0,
                    delivered_at: Time::ZERO,
                    first_sent_at: Time::ZERO,
                    lost: 0,
                    tx_in_flight: 0,
                    app_limited: false,
                });
            }
            assert_eq!(sent.push(number * 1_000, 1_000), number);
        }
        sent
    }

    fn ack(sent: &mut SentPackets, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
        let newly = sent.newly_acked(&ranges.to_vec()).unwrap();
        for number in newly.iter().flat_map(Clone::clone) {
            sent.packet(number).unwrap().0.state = PacketState::Acked;
        }
        newly
    }

    #[test]
    fn a_packet_in_flight_takes_16_bytes() {
        assert_eq!(size_of::<Packet>(), 16);
    }

    #[test]
    fn a_number_is_acknowledged_once_however_often_it_is_repeated() {
        let mut sent = sent(20);
        assert_eq!(ack(&mut sent, &[0..3, 5..8]), [0..3, 5..8]);
        assert_eq!(ack(&mut sent, &[0..4, 5..8, 10..12]), [3..4, 10..12]);
        assert_eq!(ack(&mut sent, &[0..12]), [4..5, 8..10]);
        assert_eq!(ack(&mut sent, &[0..12]), []);
        sent.forget(Time::ZERO);
        assert_eq!((sent.base, sent.len(), sent.quanta.len()), (12, 8, 2));
    }

    #[test]
    fn holes_are_judged_oldest_first_and_lost_packets_stay_for_a_while() {
        let mut sent = sent(20);
        ack(&mut sent, &[2..4, 6..10]);
        let mut judged = Vec::new();
        sent.check_unacknowledged(|number, packet, _| {
            judged.push(number);
            if number < 5 {
                packet.state = PacketState::Lost;
            }
            number < 5
        });
        assert_eq!(judged, [0, 1, 4, 5]);
        sent.forget(Time::ZERO);
        assert_eq!(sent.base, 0);
        sent.forget(Time::from_millis(4));
        assert_eq!(sent.base, 4, "packet 4 was sent at 4 ms");
        assert_eq!(ack(&mut sent, &[4..5]), [4..5]);
    }

    #[test]
    fn acknowledgements_of_what_was_never_sent_are_violations() {
        let mut sent = sent(8);
        assert_eq!(
            sent.newly_acked(&vec![3..9]),
            Err(ProtocolViolation::AckOfUnsent { number: 8, next: 8 })
        );
        sent.skip();
        sent.begin(sent.quanta[0]);
        sent.push(0, 1);
        assert_eq!(
            sent.newly_acked(&vec![3..10]),
            Err(ProtocolViolation::AckOfSkipped { number: 8 })
        );
        assert!(sent.newly_acked(&vec![3..8, 9..10]).is_ok());
    }
}
