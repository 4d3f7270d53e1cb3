//! The level of overload, from the fill level of the queue in front of the function.
//!
//! ```text
//!  level   0 ──75 %──▶ 1 ──85 %──▶ 2 ──95 %──▶ 3     up, at once
//!          0 ◀─25 %─── 1 ◀─25 %─── 2 ◀─25 %─── 3     down, one level after a second below
//! ```
//! With profile closed, level 2 is the last. Each level sheds more work ([`Overload`]).

use millrace_ips_engine::Overload;
use millrace_types::{Duration, Time};

/// The fill levels, from 0 to 255, at which the levels 1, 2 and 3 of overload begin.
const UP: [u8; 3] = [191, 217, 242];
/// The fill level below which the level of overload falls.
const DOWN: u8 = 64;
/// The time below [`DOWN`] after which the level of overload falls by one.
const CALM: Duration = Duration::from_secs(1);

/// The state of overload of one function.
#[derive(Debug)]
pub(crate) struct LoadGauge {
    levels: &'static [Overload],
    level: usize,
    calm_since: Option<Time>,
    /// The number of changes.
    pub(crate) changes: u64,
}

impl LoadGauge {
    /// Returns a gauge with these levels.
    pub(crate) fn new(levels: &'static [Overload]) -> LoadGauge {
        LoadGauge {
            levels,
            level: 0,
            calm_since: None,
            changes: 0,
        }
    }

    /// Returns the index of the level.
    pub(crate) fn level(&self) -> usize {
        self.level
    }

    /// Notes the fill level in front of a burst. Returns the new level if it changes.
    #[inline]
    pub(crate) fn note(&mut self, load: u8, now: Time) -> Option<Overload> {
        if self.level == 0 && load < UP[0] {
            return None;
        }
        self.change(load, now)
    }

    #[cold]
    fn change(&mut self, load: u8, now: Time) -> Option<Overload> {
        let highest = self.levels.len() - 1;
        let wanted = UP.iter().filter(|from| load >= **from).count().min(highest);
        let level = if wanted > self.level {
            self.calm_since = None;
            wanted
        } else if load >= DOWN {
            self.calm_since = None;
            return None;
        } else if now.since(*self.calm_since.get_or_insert(now)) >= CALM {
            self.calm_since = None;
            self.level - 1
        } else {
            return None;
        };
        self.level = level;
        self.changes += 1;
        self.levels.get(level).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVELS: &[Overload] = &[Overload::NONE, Overload::RECORDS, Overload::FLOWS];

    #[test]
    fn levels_rise_at_once_and_fall_one_by_one_after_a_calm_second() {
        let mut gauge = LoadGauge::new(LEVELS);
        assert_eq!(gauge.note(190, Time::ZERO), None);
        assert_eq!(gauge.note(191, Time::ZERO), Some(Overload::RECORDS));
        assert_eq!(gauge.note(255, Time::ZERO), Some(Overload::FLOWS));
        assert_eq!(gauge.note(63, Time::from_secs(1)), None);
        assert_eq!(gauge.note(64, Time::from_millis(1500)), None, "not calm");
        assert_eq!(gauge.note(10, Time::from_secs(2)), None);
        assert_eq!(gauge.note(10, Time::from_millis(2999)), None);
        assert_eq!(gauge.note(10, Time::from_secs(3)), Some(Overload::RECORDS));
        assert_eq!(gauge.note(10, Time::from_secs(3)), None);
        assert_eq!(gauge.note(10, Time::from_secs(4)), Some(Overload::NONE));
        assert_eq!((gauge.level(), gauge.changes), (0, 4));
    }
}
