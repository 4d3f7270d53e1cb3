//! Loss detection: RFC 9002, section 6.1, with thresholds that adapt to reordering, as RACK's (RFC 8985, section 6.2).
//!
//! A packet is lost if a later packet is acknowledged and one of these is true:
//! * The packet's number is smaller by three or more, and the path has not reordered packets lately.
//! * The packet was sent earlier by at least the reordering window. The window is the longer of an eighth of
//!   the round-trip time and 1.25 times the worst reordering seen, and at most two round-trip times.
//!
//! A packet that is acknowledged after it was declared lost is evidence of reordering. Half a minute without
//! such a packet halves the recorded reordering.

use millrace_types::{Duration, Time};

/// The difference of packet numbers at which an overtaken packet is lost (RFC 9002, `kPacketThreshold`).
const PACKET_THRESHOLD: u64 = 3;
/// The time without reordering after which the recorded reordering is halved.
const FORGET: Duration = Duration::from_secs(30);

/// Decides which packets are lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct LossDetector {
    /// The worst reordering seen, as time between departures.
    reordering: Duration,
    reordered_at: Time,
}

/// A packet number, and the time at which the packet was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SentPacket {
    pub(super) number: u64,
    pub(super) sent_at: Time,
}

impl LossDetector {
    pub(super) fn new(now: Time) -> LossDetector {
        LossDetector {
            reordering: Duration::ZERO,
            reordered_at: now,
        }
    }

    /// Returns the reordering window: a packet sent earlier than an acknowledged packet by at least this time
    /// is lost.
    pub(super) fn window(&self, rtt: Duration) -> Duration {
        let window = (rtt / 8).max(self.reordering + self.reordering / 4);
        window.min(2 * rtt).max(Duration::from_micros(100))
    }

    /// Returns true if the packet is lost, given the newest packet acknowledged.
    pub(super) fn is_lost(&self, packet: SentPacket, newest: SentPacket, rtt: Duration) -> bool {
        let overtaken = newest.number.saturating_sub(packet.number) >= PACKET_THRESHOLD;
        let earlier = newest.sent_at.since(packet.sent_at);
        (overtaken && self.reordering.is_zero()) || earlier >= self.window(rtt)
    }

    /// Records the reordering of a packet that was declared lost and is acknowledged now.
    pub(super) fn on_spurious(&mut self, now: Time, sent_at: Time, newest_sent_at: Time) {
        let late = newest_sent_at.since(sent_at).max(Duration::from_micros(1));
        self.reordering = self.reordering.max(late);
        self.reordered_at = now;
    }

    /// Halves the recorded reordering if no reordering was seen for [`FORGET`].
    pub(super) fn advance(&mut self, now: Time, rtt: Duration) {
        if !self.reordering.is_zero() && now.since(self.reordered_at) > FORGET {
            self.reordering /= 2;
            self.reordered_at = now;
            if self.reordering < rtt / 64 {
                self.reordering = Duration::ZERO;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(80);

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn packet(number: u64, sent_at_millis: u64) -> SentPacket {
        SentPacket {
            number,
            sent_at: at(sent_at_millis),
        }
    }

    #[test]
    fn three_numbers_or_an_eighth_of_the_round_trip_are_a_loss() {
        let detector = LossDetector::new(Time::ZERO);
        assert!(!detector.is_lost(packet(5, 0), packet(7, 9), RTT));
        assert!(detector.is_lost(packet(5, 0), packet(8, 0), RTT));
        assert!(detector.is_lost(packet(5, 0), packet(6, 10), RTT));
    }

    #[test]
    fn after_reordering_only_time_counts_and_the_window_is_wide_enough_for_it_until_it_is_forgotten() {
        let mut detector = LossDetector::new(Time::ZERO);
        detector.on_spurious(at(100), at(0), at(40));
        assert!(!detector.is_lost(packet(5, 0), packet(900, 49), RTT));
        assert!(detector.is_lost(packet(5, 0), packet(6, 50), RTT));
        for minutes in 1..20 {
            detector.advance(Time::from_secs(60 * minutes), RTT);
        }
        assert!(detector.is_lost(packet(5, 0), packet(8, 0), RTT));
    }
}
