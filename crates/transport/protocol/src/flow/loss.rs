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
    pub(super) fn is_lost(&self, packet: (u64, Time), newest: (u64, Time), rtt: Duration) -> bool {
        let overtaken = newest.0.saturating_sub(packet.0) >= PACKET_THRESHOLD;
        let earlier = newest.1.since(packet.1);
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

    #[test]
    fn three_numbers_or_an_eighth_of_the_round_trip_are_a_loss() {
        let detector = LossDetector::new(Time::ZERO);
        let at = Time::from_millis;
        assert!(!detector.is_lost((5, at(0)), (7, at(9)), RTT));
        assert!(detector.is_lost((5, at(0)), (8, at(0)), RTT));
        assert!(detector.is_lost((5, at(0)), (6, at(10)), RTT));
    }

    #[test]
    fn after_reordering_only_time_counts_and_the_window_is_wide_enough_for_it_until_it_is_forgotten() {
        let mut detector = LossDetector::new(Time::ZERO);
        let at = Time::from_millis;
        detector.on_spurious(at(100), at(0), at(40));
        assert!(!detector.is_lost((5, at(0)), (900, at(49)), RTT));
        assert!(detector.is_lost((5, at(0)), (6, at(50)), RTT));
        for minutes in 1..20 {
            detector.advance(Time::from_secs(60 * minutes), RTT);
        }
        assert!(detector.is_lost((5, at(0)), (8, at(0)), RTT));
    }
}
