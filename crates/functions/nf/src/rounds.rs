//! The poll loop of a function's process: it polls for packets, reports the time to the function, and gives its core to
//! other processes while there is no packet.
//!
//! Functions that share a core work for some microseconds at a time. A process that finds no packet yields, so that the
//! next one runs at once. A yield costs a microsecond; sleep and wake-up cost several. But a yield lets every other process
//! on the core run first. A process that is not a function then keeps the core for a time slice of some milliseconds, and
//! the chain stalls. After such a stall a function sleeps instead of yielding for a while, because the kernel prefers a
//! process that wakes up to one that computes.

use std::time::{Duration, Instant};

use millrace_types::Time;

/// The interval between two calls of [`Function::tick`](crate::Function::tick).
const TICK: Duration = Duration::from_millis(100);

/// Number of consecutive empty polls after which the process sleeps instead of yielding. Each sleep is twice as long as
/// the one before, up to [`SLEEP_MAX`].
const EMPTY_POLLS: u32 = 64;
/// The shortest sleep. Setting a timer takes a virtual machine about 20 µs, and a sleep that has expired by then does not
/// give the core away.
const SLEEP_MIN: Duration = Duration::from_micros(50);
/// The longest sleep.
const SLEEP_MAX: Duration = Duration::from_micros(200);
/// The longest time that the core is away after a yield if only functions share it.
const YIELD_MAX: Duration = Duration::from_millis(1);
/// The time without yields after the core was away for longer than [`YIELD_MAX`].
const NO_YIELD: Duration = Duration::from_millis(100);

/// One poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// The time since [`Rounds::new`].
    pub now: Time,
    /// The function's tick is due. True for the first poll.
    pub ticks: bool,
}

/// The polls of one process.
#[derive(Debug)]
pub struct Rounds {
    epoch: Instant,
    now: Duration,
    next_tick: Duration,
    idle: IdleStrategy,
}

impl Default for Rounds {
    fn default() -> Rounds {
        Rounds::new()
    }
}

impl Rounds {
    /// Starts the clock.
    #[must_use]
    pub fn new() -> Rounds {
        Rounds {
            epoch: Instant::now(),
            now: Duration::ZERO,
            next_tick: Duration::ZERO,
            idle: IdleStrategy::new(),
        }
    }

    /// Begins a poll.
    #[inline]
    pub fn begin(&mut self) -> Round {
        self.now = self.epoch.elapsed();
        self.idle.runs(self.now);
        let ticks = self.now >= self.next_tick;
        if ticks {
            self.next_tick = self.now + TICK;
        }
        Round {
            now: Time::from_nanos(self.now.as_nanos() as u64),
            ticks,
        }
    }

    /// Ends a poll. Gives the core to other processes if it found no packets.
    #[inline]
    pub fn end(&mut self, has_found: bool) {
        if has_found {
            return self.idle.reset();
        }
        match self.idle.pause(self.now) {
            Pause::Yield => std::thread::yield_now(),
            Pause::Sleep(time) => std::thread::sleep(time),
        }
    }
}

/// The way to give the core away after an empty poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pause {
    /// Run the next process of the core (sched_yield(2)).
    Yield,
    /// Sleep for this time.
    Sleep(Duration),
}

/// Counts empty polls, and measures how long the core is away after a yield.
#[derive(Debug)]
struct IdleStrategy {
    /// Empty polls in a row.
    empty_polls: u32,
    /// The next sleep.
    sleep: Duration,
    /// The time of the last yield, if the process has not run since.
    yielded: Option<Duration>,
    /// The time at which yields are allowed again.
    no_yield_until: Duration,
}

impl IdleStrategy {
    fn new() -> IdleStrategy {
        IdleStrategy {
            empty_polls: 0,
            sleep: SLEEP_MIN,
            yielded: None,
            no_yield_until: Duration::ZERO,
        }
    }

    /// Starts over after a poll that found packets.
    #[inline]
    fn reset(&mut self) {
        (self.empty_polls, self.sleep) = (0, SLEEP_MIN);
    }

    /// Notes that the process runs, before each poll.
    #[inline]
    fn runs(&mut self, now: Duration) {
        if let Some(yielded) = self.yielded.take()
            && now.saturating_sub(yielded) > YIELD_MAX
        {
            self.no_yield_until = now + NO_YIELD;
        }
    }

    /// Returns the pause after an empty poll.
    #[inline]
    fn pause(&mut self, now: Duration) -> Pause {
        self.empty_polls = self.empty_polls.saturating_add(1);
        if self.empty_polls >= EMPTY_POLLS {
            let sleep = self.sleep;
            self.sleep = (sleep * 2).min(SLEEP_MAX);
            return Pause::Sleep(sleep);
        }
        if now < self.no_yield_until {
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
    fn empty_polls_yield_then_sleep_longer_and_longer_until_a_packet_comes() {
        let mut idle = IdleStrategy::new();
        for look in 1..u64::from(EMPTY_POLLS) {
            idle.runs(at(look));
            assert_eq!(idle.pause(at(look)), Pause::Yield);
        }
        assert_eq!(idle.pause(at(100)), Pause::Sleep(SLEEP_MIN));
        assert_eq!(idle.pause(at(105)), Pause::Sleep(2 * SLEEP_MIN));
        for _ in 0..20 {
            idle.pause(at(200));
        }
        assert_eq!(idle.pause(at(200)), Pause::Sleep(SLEEP_MAX));
        idle.reset();
        assert_eq!(idle.pause(at(400)), Pause::Yield);
    }

    #[test]
    fn a_process_that_keeps_the_core_makes_functions_sleep_instead_of_yield() {
        let mut idle = IdleStrategy::new();
        assert_eq!(idle.pause(at(0)), Pause::Yield);
        idle.runs(at(900));
        assert_eq!(idle.pause(at(900)), Pause::Yield, "many functions");
        idle.runs(at(4900));
        idle.reset();
        assert_eq!(idle.pause(at(4950)), Pause::Sleep(SLEEP_MIN));
        // A long sleep does not count.
        idle.runs(at(90_000));
        idle.reset();
        assert_eq!(idle.pause(at(104_901)), Pause::Yield);
    }
}
