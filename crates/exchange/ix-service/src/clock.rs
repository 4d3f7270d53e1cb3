//! The clock of the engine: monotonic time, and a wall clock that never runs backwards.
//!
//! ```text
//!   system clock - engine's time
//!     more than JUMP_MIN ahead ......... the engine's time jumps forward, and the jump is reported
//!     ahead ............................ the engine's time follows at once
//!     behind ........................... the engine's time loses a tenth of each second until both agree;
//!                                        a step back of more than JUMP_MIN is reported
//! ```
//! At the start, the engine's time is that of the system, or the newest time in the database if that is later: an
//! engine that starts before NTP has set the clock must not take what exists for something of the future.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use millrace_ix_model::Timestamp;
use millrace_ix_store::UnixMillis;
use millrace_types::Time;
use parking_lot::Mutex;

use crate::now::Now;

const NANOS_PER_MILLI: u128 = 1_000_000;
/// The smallest step of the system clock that is reported, in nanoseconds: NTP corrects smaller errors by the rate of
/// the clock.
const JUMP_MIN: u128 = 1_000_000_000;
/// The rate of the engine's time while it is ahead of the system clock, as a fraction. Periods of validity are then
/// at most a ninth longer, and an error of ten minutes is gone after 100 minutes.
const SLOW: (u128, u128) = (9, 10);
/// The number of the newest jumps that are kept.
const JUMPS_MAX: usize = 16;

/// A step of the system clock, or a start with a system clock that was behind the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockJump {
    /// The engine's time after the jump.
    pub at: Timestamp,
    /// The step of the system clock in milliseconds, negative for a step back.
    pub millis: i64,
    /// True if the system clock was behind the newest time in the database when the engine started.
    pub is_start: bool,
}

impl std::fmt::Display for ClockJump {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let secs = self.millis.unsigned_abs() / 1000;
        let at = self.at;
        if self.is_start {
            write!(
                f,
                "the system clock is {secs} s behind the newest time in the database: the engine's time begins at {at}; \
                 check NTP"
            )
        } else if self.millis < 0 {
            write!(
                f,
                "the system clock was set back by {secs} s: the engine's time stays at {at} and runs a tenth slower \
                 until both agree"
            )
        } else {
            write!(
                f,
                "the system clock was set forward by {secs} s: the engine's time follows to {at}"
            )
        }
    }
}

/// The state of the engine's clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClockStatus {
    /// The engine's time.
    pub time: Timestamp,
    /// The time by which the engine's time is ahead of the system clock, in milliseconds.
    pub ahead_millis: u64,
    /// The newest jumps of the system clock since the start, oldest first.
    pub jumps: Vec<ClockJump>,
}

/// The engine's wall clock as a function of two readings: the monotonic clock and the system clock.
#[derive(Debug)]
struct WallClock {
    /// The monotonic time of the newest reading, in nanoseconds.
    monotonic: u128,
    /// The engine's time at that reading, in nanoseconds since the Unix epoch.
    wall: u128,
    /// The time by which the engine's time was ahead of the system clock, in nanoseconds.
    ahead: u128,
    jumps: Vec<ClockJump>,
    /// The number of the newest jumps that nobody has taken.
    new_jumps: usize,
}

impl WallClock {
    /// Returns a clock that starts at the system's time, or at `newest` if that is later.
    fn new(monotonic: u128, system: u128, newest: UnixMillis) -> WallClock {
        let newest = u128::from(newest.0) * NANOS_PER_MILLI;
        let mut clock = WallClock {
            monotonic,
            wall: system.max(newest),
            ahead: newest.saturating_sub(system),
            jumps: Vec::new(),
            new_jumps: 0,
        };
        if clock.ahead > JUMP_MIN {
            clock.note(clock.ahead, true, true);
        }
        clock
    }

    /// Returns the engine's time at a reading of both clocks, in nanoseconds since the Unix epoch.
    fn read(&mut self, monotonic: u128, system: u128) -> u128 {
        let elapsed = monotonic.saturating_sub(self.monotonic);
        self.monotonic = self.monotonic.max(monotonic);
        let expected = self.wall + elapsed;
        if system >= expected {
            let step = system - expected;
            self.wall = system;
            // A clock that was behind and is right again has stepped by the whole difference.
            let step = step + std::mem::take(&mut self.ahead);
            if step > JUMP_MIN {
                self.note(step, false, false);
            }
        } else {
            let slowed = self.wall + elapsed * SLOW.0 / SLOW.1;
            self.wall = slowed.max(system).max(self.wall);
            let ahead = self.wall - system;
            if ahead > self.ahead + JUMP_MIN {
                self.note(ahead - self.ahead, true, false);
            } else if ahead + elapsed + JUMP_MIN < self.ahead {
                self.note(self.ahead - ahead, false, false);
            }
            self.ahead = ahead;
        }
        self.wall
    }

    fn note(&mut self, nanos: u128, is_back: bool, is_start: bool) {
        let millis = i64::try_from(nanos / NANOS_PER_MILLI).unwrap_or(i64::MAX);
        self.jumps.push(ClockJump {
            at: timestamp(self.wall),
            millis: if is_back { -millis } else { millis },
            is_start,
        });
        self.new_jumps = (self.new_jumps + 1).min(JUMPS_MAX);
        if self.jumps.len() > JUMPS_MAX {
            self.jumps.remove(0);
        }
    }
}

fn timestamp(nanos: u128) -> Timestamp {
    Timestamp::from_millis(u64::try_from(nanos / NANOS_PER_MILLI).unwrap_or(u64::MAX))
}

/// The clocks of a machine.
pub trait Clocks: Send + Sync + std::fmt::Debug {
    /// Returns the time of the monotonic clock since its start.
    fn monotonic(&self) -> Duration;
    /// Returns the time of the system clock since the Unix epoch.
    fn system(&self) -> Duration;
}

/// The clocks of this machine. The monotonic one begins at the start of the engine.
#[derive(Debug)]
pub(crate) struct MachineClocks(Instant);

impl MachineClocks {
    pub(crate) fn new() -> MachineClocks {
        MachineClocks(Instant::now())
    }
}

impl Clocks for MachineClocks {
    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }

    fn system(&self) -> Duration {
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
    }
}

/// The clock of an engine. Clones share one state.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    machine: Arc<dyn Clocks>,
    wall: Arc<Mutex<WallClock>>,
}

impl Clock {
    /// Returns a clock that does not run behind `newest`, the newest time in the database.
    pub(crate) fn new(machine: Arc<dyn Clocks>, newest: UnixMillis) -> Clock {
        let (monotonic, system) = (machine.monotonic().as_nanos(), machine.system().as_nanos());
        Clock {
            wall: Arc::new(Mutex::new(WallClock::new(monotonic, system, newest))),
            machine,
        }
    }

    pub(crate) fn now(&self) -> Now {
        let mut wall = self.wall.lock();
        let elapsed = self.machine.monotonic().as_nanos();
        let now = wall.read(elapsed, self.machine.system().as_nanos());
        Now {
            time: Time::from_nanos(u64::try_from(elapsed).unwrap_or(u64::MAX)),
            wall: UnixMillis(timestamp(now).millis()),
        }
    }

    /// Returns the jumps since the last call.
    pub(crate) fn take_jumps(&self) -> Vec<ClockJump> {
        let mut wall = self.wall.lock();
        let new_jumps = std::mem::take(&mut wall.new_jumps);
        let first = wall.jumps.len().saturating_sub(new_jumps);
        wall.jumps.split_at(first).1.to_vec()
    }

    pub(crate) fn status(&self) -> ClockStatus {
        let time = self.now().timestamp();
        let wall = self.wall.lock();
        ClockStatus {
            time,
            ahead_millis: u64::try_from(wall.ahead / NANOS_PER_MILLI).unwrap_or(u64::MAX),
            jumps: wall.jumps.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u128 = 1_000_000_000;
    const DAY: u128 = 86_400 * SECOND;
    /// 2026-12-31T23:59:55Z: five seconds before a day, a month and a year begin.
    const EVE: u128 = 1_798_761_595 * SECOND;

    fn millis(nanos: u128) -> UnixMillis {
        UnixMillis((nanos / NANOS_PER_MILLI) as u64)
    }

    fn steps(clock: &WallClock) -> Vec<i64> {
        clock.jumps.iter().map(|jump| jump.millis / 1000).collect()
    }

    #[test]
    fn a_start_behind_the_database_begins_at_its_newest_time_and_says_so() {
        let mut clock = WallClock::new(0, EVE - 2 * DAY, millis(EVE));
        assert_eq!(steps(&clock), [-2 * 86_400]);
        assert!(clock.jumps[0].is_start);
        assert!(clock.jumps[0].to_string().contains("172800 s behind"));
        // NTP has not set the clock yet: time passes, a tenth slower.
        assert_eq!(
            clock.read(10 * SECOND, EVE - 2 * DAY + 10 * SECOND),
            EVE + 9 * SECOND
        );
        assert_eq!(clock.ahead, 2 * DAY - SECOND);
        assert_eq!(clock.jumps.len(), 1);
        // NTP sets it to the right time, which is an hour later than the database.
        let right = EVE + 3600 * SECOND;
        assert_eq!(clock.read(20 * SECOND, right), right);
        assert_eq!((clock.ahead, clock.jumps.len()), (0, 2));
        assert!(steps(&clock)[1] > 2 * 86_400);
    }

    #[test]
    fn a_right_clock_starts_without_a_word_and_crosses_the_end_of_a_year() {
        let mut clock = WallClock::new(0, EVE, millis(EVE - DAY));
        for second in 1..=10 {
            assert_eq!(
                clock.read(second * SECOND, EVE + second * SECOND),
                EVE + second * SECOND
            );
        }
        assert_eq!(clock.jumps, []);
        assert_eq!(timestamp(clock.wall).to_string(), "2027-01-01T00:00:05.000Z");
    }

    #[test]
    fn a_step_forward_is_followed_and_a_step_back_is_worked_off() {
        let mut clock = WallClock::new(0, EVE, UnixMillis(0));
        assert_eq!(clock.read(SECOND, EVE + 101 * SECOND), EVE + 101 * SECOND);
        assert_eq!(steps(&clock), [100]);
        // The step is taken back.
        let before = EVE + 101 * SECOND;
        assert_eq!(clock.read(2 * SECOND, EVE + 2 * SECOND), before + 9 * SECOND / 10);
        assert_eq!(clock.jumps.len(), 2);
        assert!(steps(&clock)[1] < -90);
        // The error of 99.9 s is gone after 999 s.
        let mut last = clock.wall;
        for second in 3..=1001 {
            let now = clock.read(second * SECOND, EVE + second * SECOND);
            assert!(now > last && now >= EVE + second * SECOND);
            last = now;
        }
        assert_eq!((last, clock.ahead), (EVE + 1001 * SECOND, 0));
        assert_eq!(clock.jumps.len(), 2, "only steps are reported");
    }

    #[test]
    fn small_errors_are_followed_and_not_reported() {
        let mut clock = WallClock::new(0, EVE, UnixMillis(0));
        let half = SECOND / 2;
        assert_eq!(clock.read(SECOND, EVE + SECOND + half), EVE + SECOND + half);
        assert!(clock.read(2 * SECOND, EVE + 2 * SECOND) >= EVE + SECOND + half);
        assert_eq!(clock.jumps, []);
    }

    #[test]
    fn a_jump_is_taken_once_and_stays_in_the_status() {
        let clock = Clock::new(Arc::new(MachineClocks::new()), UnixMillis(4_000_000_000_000));
        let taken = clock.take_jumps();
        assert_eq!(taken.len(), 1);
        assert_eq!(clock.take_jumps(), []);
        let status = clock.status();
        assert_eq!(status.jumps, taken);
        assert!(status.ahead_millis > 0 && status.time.millis() >= 4_000_000_000_000);
    }

    proptest! {
        #[test]
        fn the_time_never_runs_backwards_nor_faster_than_the_later_of_both_clocks(
            readings in prop::collection::vec((0_u64..10_000_000_000, 0_u64..4_000_000_000), 1..50),
            newest in 0_u64..4_000_000_000_000,
        ) {
            let mut clock = WallClock::new(0, 2_000_000_000 * SECOND, UnixMillis(newest));
            let (mut monotonic, mut last) = (0, clock.wall);
            prop_assert!(last >= u128::from(newest) * NANOS_PER_MILLI);
            for (elapsed, system) in readings {
                let system = u128::from(system) * SECOND;
                monotonic += u128::from(elapsed);
                let now = clock.read(monotonic, system);
                prop_assert!(now >= last && now >= system);
                prop_assert!(now <= system.max(last + u128::from(elapsed)));
                prop_assert!(clock.jumps.len() <= JUMPS_MAX);
                last = now;
            }
        }
    }
}
