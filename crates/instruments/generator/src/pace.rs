//! The schedule of packets: a token bucket on the time-stamp counter.
//!
//! A generator that was absent (its core had other work) has overdue packets. It sends a few of them and counts the
//! others as missed: a burst of all overdue packets would measure the depth of the switch's queues, not its speed.

/// A token bucket.
#[derive(Debug, Clone)]
pub struct Pacer {
    /// The packets per tick, in units of 2^-64.
    per_tick: u64,
    start: u64,
    issued: u64,
    missed: u64,
    depth: u64,
}

impl Pacer {
    /// Returns a bucket for `rate` packets per second (below `hz`) from the tick `start` on, with `hz` ticks per
    /// second and `depth` overdue packets at most.
    pub fn new(rate: f64, hz: u64, start: u64, depth: u64) -> Pacer {
        // A ratio of 1 or more saturates: no device sends a packet per tick.
        let per_tick = (rate.max(0.0) / hz.max(1) as f64 * 2_f64.powi(64)) as u64;
        Pacer {
            per_tick,
            start,
            issued: 0,
            missed: 0,
            depth: depth.max(1),
        }
    }

    /// Returns the number of packets that are due at the tick `now`.
    #[inline]
    pub fn due(&mut self, now: u64) -> u64 {
        let elapsed = now.saturating_sub(self.start);
        let total = ((u128::from(elapsed) * u128::from(self.per_tick)) >> 64) as u64;
        let owed = total.saturating_sub(self.issued + self.missed);
        if owed > self.depth {
            self.missed += owed - self.depth;
        }
        owed.min(self.depth)
    }

    /// Records that `len` packets were sent or refused.
    #[inline]
    pub fn issue(&mut self, len: u64) {
        self.issued += len;
    }

    /// Ends the schedule at the tick `now`: packets that are due count as missed.
    pub fn close(&mut self, now: u64) {
        self.depth = 0;
        self.due(now);
    }

    /// Returns the number of packets that were due and never sent.
    pub fn missed(&self) -> u64 {
        self.missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HZ: u64 = 2_600_000_000;

    #[test]
    fn packets_come_at_their_rate_however_odd_it_is() {
        for rate in [1.0, 3.3, 999.5, 1e6, 14_880_952.0] {
            let mut pacer = Pacer::new(rate, HZ, 1000, 1 << 40);
            let mut sent = 0;
            for tick in (1000..=1000 + 10 * HZ).step_by(26_000_000) {
                let due = pacer.due(tick);
                pacer.issue(due);
                sent += due;
            }
            assert!(
                (sent as f64 - rate * 10.0).abs() <= 1.0 + rate * 1e-6,
                "{rate}: {sent}"
            );
        }
    }

    #[test]
    fn what_was_missed_while_away_is_counted_and_not_made_up_for() {
        let mut pacer = Pacer::new(1e6, HZ, 0, 64);
        assert_eq!(pacer.due(HZ), 64);
        pacer.issue(64);
        assert!((999_900..=1_000_000 - 64).contains(&pacer.missed()));
        assert_eq!(pacer.due(HZ), 0);
        assert_eq!(pacer.due(HZ + HZ / 1_000_000 * 10), 10);
        let before = pacer.missed();
        pacer.close(HZ + HZ / 1_000_000 * 10);
        assert_eq!(pacer.missed(), before + 10);
    }

    #[test]
    fn nothing_is_due_before_the_start_or_at_rate_zero() {
        assert_eq!(Pacer::new(1e9, HZ, 100, 64).due(50), 0);
        assert_eq!(Pacer::new(0.0, HZ, 0, 64).due(HZ), 0);
    }
}
