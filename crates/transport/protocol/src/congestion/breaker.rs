//! The circuit breaker (RFC 8084): a flow that loses half of its packets or more returns to the initial
//! window.
//!
//! Controllers adapt to less bandwidth without the breaker. The breaker is for controllers with a fixed rate,
//! for paths that vanish, and for defects. It trips after three rounds and a second in which each round lost
//! at least half of its bytes, or after three probe timeouts and a second without feedback.

use millrace_types::{Duration, Time};

/// The number of consecutive rounds with at least half of the bytes lost after which the breaker may trip.
const ROUNDS: u32 = 3;
/// The minimum time since the last good round before the breaker trips.
const TIME: Duration = Duration::from_secs(1);

/// The state of the circuit breaker of one flow.
#[derive(Clone, Copy, Debug)]
pub struct Breaker {
    round_ends: Time,
    acked: u64,
    lost: u64,
    bad_rounds: u32,
    /// The end of the last round in which more than half of the bytes arrived.
    good_until: Time,
}

impl Breaker {
    /// Returns a breaker for a flow that starts now.
    pub fn new(now: Time) -> Breaker {
        Breaker {
            round_ends: now,
            acked: 0,
            lost: 0,
            bad_rounds: 0,
            good_until: now,
        }
    }

    /// Takes the bytes of one feedback; returns true if the breaker trips.
    pub fn on_feedback(&mut self, now: Time, rtt: Duration, acked: u64, lost: u64) -> bool {
        self.acked += acked;
        self.lost += lost;
        if now < self.round_ends || self.acked + self.lost == 0 {
            return false;
        }
        if self.lost >= self.acked {
            self.bad_rounds += 1;
        } else {
            self.bad_rounds = 0;
            self.good_until = now;
        }
        (self.acked, self.lost) = (0, 0);
        self.round_ends = now + rtt;
        self.trips(now)
    }

    /// Counts a probe timeout that passed without feedback. Returns true if the breaker trips.
    pub fn on_timeout(&mut self, now: Time) -> bool {
        self.bad_rounds += 1;
        self.trips(now)
    }

    fn trips(&mut self, now: Time) -> bool {
        let trips = self.bad_rounds >= ROUNDS && now.since(self.good_until) >= TIME;
        if trips {
            self.bad_rounds = 0;
            self.good_until = now;
        }
        trips
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the time in milliseconds after which the breaker trips, if this share of the bytes is lost at
    /// a round trip of 100 ms.
    fn trips_after(lost_percent: u64) -> Option<u64> {
        let rtt = Duration::from_millis(100);
        let mut breaker = Breaker::new(Time::ZERO);
        (0..10_000).step_by(10).find(|millis| {
            breaker.on_feedback(Time::from_millis(*millis), rtt, 100 - lost_percent, lost_percent)
        })
    }

    #[test]
    fn it_trips_after_three_rounds_and_a_second_with_half_lost_and_never_with_less() {
        assert_eq!(trips_after(49), None);
        assert_eq!(trips_after(50), Some(1_000));
        assert_eq!(trips_after(99), Some(1_000));
    }

    #[test]
    fn silence_trips_it_too() {
        let mut breaker = Breaker::new(Time::ZERO);
        assert!(!breaker.on_timeout(Time::from_millis(400)));
        assert!(!breaker.on_timeout(Time::from_millis(1_200)));
        assert!(breaker.on_timeout(Time::from_millis(2_800)));
    }
}
