//! Whether the cache of paths pays: it is on only while it does.
//!
//! Traffic decides how often a path is found, and traffic may be made by somebody who wants it never to be. So a
//! worker weighs, window by window, what the hits saved against what the misses cost; if that is a loss, the cache
//! goes off, and each time it goes off it stays off twice as long. What an attacker can take away is one window in
//! many.
//!
//! There is no clock here: costs are nanoseconds by the measurements of ADR 3 and ADR 4, of which only the
//! proportions matter.

use millrace_flow::classify::Kind;

/// Packets in a window.
const WINDOW: u64 = 8192;
/// Windows for which the cache is on at first, and is filled.
const TRIAL: u32 = 16;
/// After so many of them it is given up, if hardly anything was found.
const EARLY: u32 = 4;
/// Windows for which it is off after the first failure, and after many.
const PAUSE: u32 = 64;
const PAUSE_MAX: u32 = 4096;

/// What a packet costs that is not found in the cache, because it was looked for, and its path is noted now and then.
const MISS: u64 = 30;
/// What a hit costs, and for each entry on its path.
const HIT: u64 = 15;
const HIT_STEP: u64 = 3;
/// What it costs to go from one table to the next, beside the lookups.
const NEXT_TABLE: u64 = 12;
/// What must be saved for a trial to begin.
const WORTH: u64 = 10;

/// What a lookup in a table of this kind costs.
pub(crate) fn cost(kind: Kind) -> u64 {
    match kind {
        Kind::Constant => 2,
        Kind::Direct { rules } => 3 + rules as u64 / 4,
        Kind::ExactHash => 12,
        Kind::LongestPrefix { .. } => 14,
        Kind::Tuples {
            tuples,
            merged,
            prefixes,
            direct,
        } => {
            let several = if merged > 0 { 4 } else { 0 };
            12 + several + 7 * (tuples + prefixes).min(12) as u64 + direct as u64 / 3
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// For so many windows more.
    Off(u32),
    /// For so many windows so far, and that is a trial.
    Trial(u32),
    On,
}

/// See the beginning of this file.
#[derive(Debug)]
pub(crate) struct Governor {
    state: State,
    pause: u32,
    /// In this window: packets that were found, and entries on their paths.
    hits: u64,
    steps: u64,
    /// Packets that went through the tables.
    walks: u64,
    /// What walks cost by the last windows, for one packet.
    walk_cost: u64,
}

impl Governor {
    pub(crate) fn new() -> Governor {
        Governor {
            state: State::Off(0),
            pause: PAUSE,
            hits: 0,
            steps: 0,
            walks: 0,
            walk_cost: 0,
        }
    }

    /// Whether the cache is to be used.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        !matches!(self.state, State::Off(_))
    }

    /// Packets were found; `steps` entries were on their paths.
    #[inline(always)]
    pub(crate) fn hit(&mut self, packets: usize, steps: usize) {
        self.hits += packets as u64;
        self.steps += steps as u64;
    }

    /// Packets are about to go through the tables.
    #[inline(always)]
    pub(crate) fn walk(&mut self, packets: usize) {
        self.walks += packets as u64;
    }

    /// Whether the window is over, and [`Governor::judge`] is to be called.
    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        self.hits + self.walks >= WINDOW
    }

    /// Begins the next window. `visits` are visits of tables in this one, and `cost` is the cost of all their
    /// lookups. Answers whether the cache was switched on by this.
    pub(crate) fn judge(&mut self, visits: u64, cost: u64) -> bool {
        if self.walks >= WINDOW / 16 {
            let further = visits.saturating_sub(self.walks);
            self.walk_cost = (cost + further * NEXT_TABLE) / self.walks;
        }
        let saved = (self.hits * self.walk_cost).saturating_sub(self.hits * HIT + self.steps * HIT_STEP);
        let lost = self.walks * MISS;
        let found_few = self.hits * 20 < self.walks;
        (self.hits, self.steps, self.walks) = (0, 0, 0);
        let before = self.state;
        self.state = match before {
            State::Off(0) if self.walk_cost >= HIT + HIT_STEP + WORTH => State::Trial(1),
            State::Off(left) => State::Off(left.saturating_sub(1)),
            State::Trial(EARLY) if found_few => self.fail(),
            State::Trial(windows) if windows < TRIAL => State::Trial(windows + 1),
            State::Trial(_) | State::On if saved > lost => {
                self.pause = PAUSE;
                State::On
            }
            State::Trial(_) | State::On => self.fail(),
        };
        matches!((before, self.state), (State::Off(_), State::Trial(_)))
    }

    fn fail(&mut self) -> State {
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        State::Off(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of traffic of which `percent` would be found, in tables that cost `cost`; how many of them the cache
    /// was on.
    fn windows(governor: &mut Governor, count: u64, percent: u64, cost: u64) -> u64 {
        let mut on = 0;
        for _ in 0..count {
            on += u64::from(governor.is_on());
            let hits = if governor.is_on() {
                WINDOW * percent / 100
            } else {
                0
            };
            governor.hit(hits as usize, 8 * hits as usize);
            governor.walk((WINDOW - hits) as usize);
            assert!(governor.is_due());
            governor.judge(WINDOW - hits, (WINDOW - hits) * cost);
        }
        on
    }

    #[test]
    fn it_stays_on_while_it_saves_and_never_goes_on_for_a_cheap_table() {
        assert!(windows(&mut Governor::new(), 1000, 99, 200) > 990);
        assert_eq!(windows(&mut Governor::new(), 1000, 99, 14), 0);
    }

    #[test]
    fn one_table_is_worth_it_if_it_has_several_tuples_and_not_if_it_has_one() {
        let worth = |kind| cost(kind) >= HIT + HIT_STEP + WORTH;
        let tuples = |tuples, merged| Kind::Tuples {
            tuples,
            merged,
            prefixes: 0,
            direct: 0,
        };
        assert!(!worth(Kind::ExactHash) && !worth(tuples(2, 0)) && !worth(tuples(1, 1)));
        assert!(worth(tuples(3, 2)) && worth(tuples(5, 4)));
    }

    #[test]
    fn traffic_that_is_never_found_has_it_on_for_less_than_a_hundredth_of_the_time() {
        assert!(windows(&mut Governor::new(), 10_000, 0, 200) < 100);
    }

    #[test]
    fn traffic_that_changes_as_soon_as_it_is_on_soon_finds_it_off() {
        let mut governor = Governor::new();
        windows(&mut governor, 100, 99, 200);
        assert!(windows(&mut governor, 10_000, 1, 200) < 200);
        assert!(windows(&mut governor, 10_000, 99, 200) > 5000);
    }
}
