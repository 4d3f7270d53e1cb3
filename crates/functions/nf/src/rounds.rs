//! The rounds of a function's process: it looks for packets, tells the function the time, and leaves its core to others
//! while there is no packet.
//!
//! Functions share a core, and each has something to do for some microseconds at a time. Who finds nothing yields, so that
//! the next one runs at once: that costs a microsecond, where to sleep and to be woken costs several. But to yield says
//! to the kernel that all others may go first, and where one of them is no function it keeps the core for a whole time
//! slice, some milliseconds, for which the chain stands still. A function that has seen that sleeps instead for a while:
//! one that wakes goes before one that computes.

use std::time::{Duration, Instant};

use millrace_types::Time;

/// How often a function is told of the time without a packet.
const TICK: Duration = Duration::from_millis(100);

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

/// A round: a look for packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// When it began, since the first one did.
    pub now: Time,
    /// Whether it is time to tell the function so, and to look at what changes rarely. True of the first.
    pub ticks: bool,
}

/// Rounds of one process.
#[derive(Debug)]
pub struct Rounds {
    epoch: Instant,
    now: Duration,
    next_tick: Duration,
    rest: Rest,
}

impl Default for Rounds {
    fn default() -> Rounds {
        Rounds::new()
    }
}

impl Rounds {
    /// Begins now.
    #[must_use]
    pub fn new() -> Rounds {
        Rounds {
            epoch: Instant::now(),
            now: Duration::ZERO,
            next_tick: Duration::ZERO,
            rest: Rest::new(),
        }
    }

    /// Begins a round.
    #[inline]
    pub fn begin(&mut self) -> Round {
        self.now = self.epoch.elapsed();
        self.rest.runs(self.now);
        let ticks = self.now >= self.next_tick;
        if ticks {
            self.next_tick = self.now + TICK;
        }
        Round {
            now: Time::from_nanos(self.now.as_nanos() as u64),
            ticks,
        }
    }

    /// Ends a round. Where it found no packets, others may have the core for a while.
    #[inline]
    pub fn end(&mut self, has_found: bool) {
        if has_found {
            return self.rest.found();
        }
        match self.rest.pause(self.now) {
            Pause::Yield => std::thread::yield_now(),
            Pause::Sleep(time) => std::thread::sleep(time),
        }
    }
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pause {
    /// Leave the core to whoever is next (sched_yield(2)).
    Yield,
    /// Sleep so long.
    Sleep(Duration),
}

/// Counts looks that found nothing, and watches how long it takes to get the core back.
#[derive(Debug)]
struct Rest {
    looks: u32,
    sleep: Duration,
    yielded: Option<Duration>,
    crowded_until: Duration,
}

impl Rest {
    /// One that has just had packets.
    fn new() -> Rest {
        Rest {
            looks: 0,
            sleep: SLEEP_MIN,
            yielded: None,
            crowded_until: Duration::ZERO,
        }
    }

    /// There were packets.
    #[inline]
    fn found(&mut self) {
        (self.looks, self.sleep) = (0, SLEEP_MIN);
    }

    /// Says when the process runs: before each look.
    #[inline]
    fn runs(&mut self, now: Duration) {
        if let Some(yielded) = self.yielded.take()
            && now.saturating_sub(yielded) > TURN_MAX
        {
            self.crowded_until = now + CROWDED;
        }
    }

    /// There was no packet at a look at this time.
    #[inline]
    fn pause(&mut self, now: Duration) -> Pause {
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
    fn the_first_round_ticks_and_then_ten_a_second_do() {
        let mut rounds = Rounds::new();
        let first = rounds.begin();
        assert!(first.ticks);
        rounds.end(true);
        let mut ticks: Vec<Time> = Vec::new();
        while ticks.len() < 2 {
            let round = rounds.begin();
            assert!(round.now >= first.now);
            if round.ticks {
                ticks.push(round.now);
            }
            rounds.end(false);
        }
        let apart = ticks[1].nanos() - ticks[0].nanos();
        assert!(apart >= TICK.as_nanos() as u64, "{apart} ns");
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
