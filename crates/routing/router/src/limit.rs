//! Rate limits of one worker: token buckets for ICMP errors and for packets to the kernel.

use millrace_types::{Duration, Time};

/// A rate in packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketRate {
    /// Packets per second, from 1; zero lets nothing pass.
    pub per_second: u32,
    /// Number of packets that may pass at once after a pause.
    pub burst: u32,
}

/// A token bucket in the form of the generic cell rate algorithm (ITU-T I.371): its state is the time at which all
/// packets that passed would have passed one after the other at the rate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bucket {
    theoretical_arrival_time: Time,
}

impl Bucket {
    /// Returns true if a packet may pass now.
    #[inline]
    pub(crate) fn passes(&mut self, rate: PacketRate, now: Time) -> bool {
        if rate.per_second == 0 {
            return false;
        }
        let time_per_packet = 1_000_000_000 / u64::from(rate.per_second);
        let tolerance = time_per_packet * u64::from(rate.burst.saturating_sub(1));
        let ahead = self.theoretical_arrival_time.since(now);
        if ahead > Duration::from_nanos(tolerance) {
            return false;
        }
        let start = self.theoretical_arrival_time.max(now);
        self.theoretical_arrival_time = start + Duration::from_nanos(time_per_packet);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_at_once_and_then_the_rate() {
        let rate = PacketRate {
            per_second: 100,
            burst: 5,
        };
        let mut bucket = Bucket::default();
        let at = Time::from_secs(3);
        assert_eq!((0..20).filter(|_| bucket.passes(rate, at)).count(), 5);
        let later = |millis| at + Duration::from_millis(millis);
        assert!(!bucket.passes(rate, later(9)) && bucket.passes(rate, later(10)));
        let passed = (0..1000).filter(|millis| bucket.passes(rate, later(10 + millis)));
        assert_eq!(passed.count(), 99);
        let none = PacketRate {
            per_second: 0,
            burst: 5,
        };
        assert!(!Bucket::default().passes(none, at));
    }
}
