//! A timer wheel for the time-outs of entries.
//!
//! The wheel has one slot for each tick, and a timer is in the slot of its tick. A timer beyond the horizon is in the
//! last slot; there its entry is checked and gets another timer. An entry costs a few bytes, and one check for each
//! horizon or time-out, whichever is shorter. Adding and checking take constant time.
//!
//! Removal of an entry does not search for its timer. When the tick of such a timer comes, the entry's slot
//! is empty, or has an entry with another timer.

use millrace_flow::classify::Slot;
use millrace_types::{Duration, Time};

/// Length of a tick. Time-outs are whole seconds; entries are removed at most this much late.
const TICK: Duration = Duration::from_millis(100);
/// Number of slots: a horizon of 51 seconds.
const SLOTS: u32 = 512;

/// A tick since the origin of time; 32 bits last 13 years.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Tick(u32);

impl Tick {
    /// The origin, at which no timer is due.
    pub(super) const NONE: Tick = Tick(0);

    fn of(time: Time) -> Tick {
        Tick(u32::try_from(u128::from(time.nanos()) / TICK.as_nanos()).unwrap_or(u32::MAX))
    }
}

#[derive(Debug)]
pub(super) struct Wheel {
    slots: Box<[Vec<(Slot, Tick)>]>,
    /// The first tick whose slot may have timers.
    done: Tick,
}

impl Wheel {
    pub(super) fn new() -> Wheel {
        Wheel {
            slots: (0..SLOTS).map(|_| Vec::new()).collect(),
            done: Tick(1),
        }
    }

    /// Adds a timer that is due when `due` has passed, or at the horizon if that is sooner. Returns the tick, which
    /// identifies the timer of the entry.
    pub(super) fn add(&mut self, slot: Slot, due: Time) -> Tick {
        // The tick after the one of `due`, so that `due` has passed.
        let tick = Tick::of(due).0.saturating_add(1);
        let tick = Tick(tick.clamp(self.done.0, self.done.0 + SLOTS - 1));
        self.slots[(tick.0 % SLOTS) as usize].push((slot, tick));
        tick
    }

    /// Removes and returns the next timer whose tick has come.
    pub(super) fn pop(&mut self, now: Time) -> Option<(Slot, Tick)> {
        let now = Tick::of(now);
        // After a pause longer than the horizon, each slot is visited only once.
        self.done.0 = self.done.0.max(now.0.saturating_sub(SLOTS - 1));
        while self.done <= now {
            let slot = &mut self.slots[(self.done.0 % SLOTS) as usize];
            if let Some(timer) = slot.pop() {
                return Some(timer);
            }
            if slot.capacity() > 64 {
                *slot = Vec::new();
            }
            self.done.0 += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(wheel: &mut Wheel, now: Time) -> Vec<usize> {
        let mut slots: Vec<usize> =
            core::iter::from_fn(|| wheel.pop(now).map(|(slot, _)| slot.index())).collect();
        slots.sort_unstable();
        slots
    }

    #[test]
    fn a_timer_fires_when_its_time_has_passed_and_not_before() {
        let mut wheel = Wheel::new();
        wheel.add(Slot::new(1), Time::from_millis(2000));
        wheel.add(Slot::new(2), Time::from_millis(2050));
        assert!(due(&mut wheel, Time::from_millis(2000)).is_empty());
        assert_eq!(due(&mut wheel, Time::from_millis(2100)), [1, 2]);
        assert!(due(&mut wheel, Time::from_secs(99)).is_empty());
    }

    #[test]
    fn a_timer_beyond_the_horizon_is_looked_at_there() {
        let mut wheel = Wheel::new();
        let tick = wheel.add(Slot::new(7), Time::from_secs(3600));
        assert_eq!(tick.0, SLOTS);
        assert!(due(&mut wheel, Time::from_secs(51)).is_empty());
        assert_eq!(due(&mut wheel, Time::from_secs(52)), [7]);
    }

    #[test]
    fn a_long_pause_loses_no_timer() {
        let mut wheel = Wheel::new();
        for i in 0..100 {
            wheel.add(Slot::new(i), Time::from_secs(u64::from(i)));
        }
        assert_eq!(due(&mut wheel, Time::from_secs(1_000_000)).len(), 100);
        let tick = wheel.add(Slot::new(3), Time::from_secs(1));
        assert!(tick.0 > 9_999_999);
    }
}
