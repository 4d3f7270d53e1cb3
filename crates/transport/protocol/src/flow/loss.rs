//! Loss detection: RFC 9002, section 6.1, with thresholds that adapt to reordering, as RACK's (RFC 8985, section 6.2).
//!
//! A packet is lost if one that was sent later is acknowledged and either
//! * it was sent three numbers or more before that one (as long as the path was not seen to reorder), or
//! * it was sent longer before than the reordering window: an eighth of the round-trip time, and a quarter more than the worst
//!   reordering that was seen, at most two round-trip times.
//!
//! A packet that is acknowledged after it was declared lost shows reordering. Half a minute without one halves the window again.

use millrace_types::{Duration, Time};

/// Numbers by which a packet may be overtaken (RFC 9002, `kPacketThreshold`).
const PACKET_THRESHOLD: u64 = 3;
/// The time without reordering after which the window shrinks.
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

    /// Returns how much earlier a packet must have been sent than an acknowledged one to be lost.
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

    /// Learns that a packet was declared lost and is acknowledged now.
    pub(super) fn on_spurious(&mut self, now: Time, sent_at: Time, newest_sent_at: Time) {
        let late = newest_sent_at.since(sent_at).max(Duration::from_micros(1));
        self.reordering = self.reordering.max(late);
        self.reordered_at = now;
    }

    /// Forgets reordering that was long ago.
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
