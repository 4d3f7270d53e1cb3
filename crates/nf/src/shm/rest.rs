//! What a function's process does while there is no packet: it leaves its core to others.
//!
//! Functions share a core, and each has something to do for some microseconds at a time. Who finds nothing yields, so that
//! the next one runs at once: that costs a microsecond, where to sleep and to be woken costs several. But to yield says
//! to the kernel that all others may go first, and where one of them is no function it keeps the core for a whole time
//! slice, some milliseconds, for which the chain stands still. A function that has seen that sleeps instead for a while:
//! one that wakes goes before one that computes.

use std::time::Duration;

/// Looks without a packet before sleeps grow.
const LOOKS: u32 = 64;
/// The shortest sleep. To set a timer takes a virtual machine some 20 µs; of a sleep that has run out by then the kernel
/// makes nothing, and the core stays with who only wanted to leave it.
const SLEEP_MIN: Duration = Duration::from_micros(50);
const SLEEP_MAX: Duration = Duration::from_micros(200);
/// A function gives the core back sooner than that, however many share it.
const TURN_MAX: Duration = Duration::from_millis(1);
/// How long nobody yields after that.
const CROWDED: Duration = Duration::from_millis(100);

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// Leave the core to whoever is next (sched_yield(2)).
    Yield,
    /// Sleep so long.
    Sleep(Duration),
}

/// Counts looks that found nothing, and watches how long it takes to get the core back.
#[derive(Debug)]
pub struct Rest {
    looks: u32,
    sleep: Duration,
    yielded: Option<Duration>,
    crowded_until: Duration,
}

impl Default for Rest {
    fn default() -> Rest {
        Rest::new()
    }
}

impl Rest {
    /// One that has just had packets.
    #[must_use]
    pub fn new() -> Rest {
        Rest {
            looks: 0,
            sleep: SLEEP_MIN,
            yielded: None,
            crowded_until: Duration::ZERO,
        }
    }

    /// There were packets.
    #[inline]
    pub fn found(&mut self) {
        (self.looks, self.sleep) = (0, SLEEP_MIN);
    }

    /// Says when the process runs: before each look.
    #[inline]
    pub fn runs(&mut self, now: Duration) {
        if let Some(yielded) = self.yielded.take()
            && now.saturating_sub(yielded) > TURN_MAX
        {
            self.crowded_until = now + CROWDED;
        }
    }

    /// There was no packet at a look at this time.
    #[inline]
    pub fn pause(&mut self, now: Duration) -> Pause {
        self.looks = self.looks.saturating_add(1);
        if self.looks >= LOOKS {
            let sleep = self.sleep;
            self.sleep = (sleep * 2).min(SLEEP_MAX);
            return Pause::Sleep(sleep);
        }
        if now < self.crowded_until {
            return Pause::Sleep(SLEEP_MIN);
        }
        self.yielded = Some(now);
        Pause::Yield
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn who_finds_nothing_yields_then_sleeps_longer_and_longer_until_a_packet_comes() {
        let mut rest = Rest::new();
        for look in 1..u64::from(LOOKS) {
            rest.runs(at(look));
            assert_eq!(rest.pause(at(look)), Pause::Yield);
        }
        assert_eq!(rest.pause(at(100)), Pause::Sleep(SLEEP_MIN));
        assert_eq!(rest.pause(at(105)), Pause::Sleep(2 * SLEEP_MIN));
        for _ in 0..20 {
            rest.pause(at(200));
        }
        assert_eq!(rest.pause(at(200)), Pause::Sleep(SLEEP_MAX));
        rest.found();
        assert_eq!(rest.pause(at(400)), Pause::Yield);
    }

    #[test]
    fn where_a_stranger_took_the_core_nobody_yields_for_a_while() {
        let mut rest = Rest::new();
        assert_eq!(rest.pause(at(0)), Pause::Yield);
        rest.runs(at(900));
        assert_eq!(rest.pause(at(900)), Pause::Yield, "many functions");
        rest.runs(at(4900));
        rest.found();
        assert_eq!(rest.pause(at(4950)), Pause::Sleep(SLEEP_MIN));
        // A sleep may be as long as it likes.
        rest.runs(at(90_000));
        rest.found();
        assert_eq!(rest.pause(at(104_901)), Pause::Yield);
    }
}
