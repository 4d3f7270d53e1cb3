//! Whether the cache of paths pays: it is on only while it does.
//!
//! Traffic decides how often a path is found, and traffic may be made by somebody who wants it never to be. So a
//! worker weighs, window by window, what the hits saved against what the misses cost. A loss begins a trial: many flows, or
//! many that were forgotten after a change, take their time to become known. A trial that ends with a loss, and without
//! ever more hits, switches the cache off, and each time it goes off it stays off twice as long. What an attacker can take
//! away is a few windows in many, and of each of those no more than misses cost.
//!
//! There is no clock here: costs are nanoseconds by the measurements of ADR 3 and ADR 4, of which only the
//! proportions matter.

use millrace_flow::classify::Kind;

/// Packets in a window.
const WINDOW: u64 = 8192;
/// Windows of a trial: 524,288 packets, so that most of 100,000 flows in turn come a fifth time.
const TRIAL: u32 = 64;
/// So often a trial is followed by another, if that found a quarter more than the one before.
const TRIALS: u32 = 4;
/// What is to be found in a trial, of so many packets one.
const FOUND_LEAST: u64 = 32;
/// Windows for which it is off after the first failure, and after many.
const PAUSE: u32 = 64;
const PAUSE_MAX: u32 = 4096;
/// After so many windows without a loss earlier failures are forgotten.
const GOOD: u32 = 256;

/// What a packet costs that is not found in the cache, because it was looked for, and its path is noted now and then.
const MISS: u64 = 30;
/// What a hit costs, and for each entry on its path.
const HIT: u64 = 15;
const HIT_STEP: u64 = 3;
/// What it costs to go from one table to the next, beside the lookups.
const NEXT_TABLE: u64 = 12;
/// What must be saved for a trial to begin.
const WORTH: u64 = 10;

/// A table of more entries does not fit a second-level cache with what is counted for them, and a lookup costs so much
/// more: it visits a line more than a known path does.
const FAR_LEN: usize = 1 << 14;
const FAR: u64 = 12;

/// What it costs to compare so many rules: beyond a few by bit vectors, all at once.
fn compared(rules: usize) -> u64 {
    (rules as u64 / 3).min(12)
}

/// What a lookup in a table of this kind and with so many entries costs.
pub(crate) fn cost(kind: Kind, len: usize) -> u64 {
    let far = if len > FAR_LEN { FAR } else { 0 };
    far + match kind {
        Kind::Constant => 2,
        Kind::Direct { rules } => 3 + compared(rules),
        Kind::ExactHash => 12,
        Kind::LongestPrefix { .. } => 14,
        Kind::Tuples {
            tuples,
            merged,
            prefixes,
            direct,
        } => {
            let several = if merged > 0 { 4 } else { 0 };
            12 + several + 7 * (tuples + prefixes).min(12) as u64 + compared(direct)
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// For so many windows more.
    Off(u32),
    Trial(Trial),
    /// For so many windows without a loss.
    On(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Trial {
    /// Windows so far.
    windows: u32,
    /// Packets that were found.
    found: u64,
    /// Packets that were found in the trial before, and how many there were before.
    found_before: u64,
    before: u32,
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
        let (pays, hits) = (saved > lost, self.hits);
        (self.hits, self.steps, self.walks) = (0, 0, 0);
        let before = self.state;
        self.state = match before {
            State::Off(0) if self.walk_cost >= HIT + HIT_STEP + WORTH => State::Trial(Trial::default()),
            State::Off(left) => State::Off(left.saturating_sub(1)),
            State::On(windows) if pays => {
                if windows == GOOD {
                    self.pause = PAUSE;
                }
                State::On(windows.saturating_add(1))
            }
            State::On(_) => State::Trial(Trial::default()),
            State::Trial(trial) => self.go_on(trial, hits, pays),
        };
        matches!((before, self.state), (State::Off(_), State::Trial(_)))
    }

    /// After a window of a trial.
    fn go_on(&mut self, mut trial: Trial, hits: u64, pays: bool) -> State {
        trial.windows += 1;
        trial.found += hits;
        if trial.windows < TRIAL {
            return State::Trial(trial);
        }
        if pays {
            return State::On(0);
        }
        let is_found = trial.found * FOUND_LEAST >= WINDOW * u64::from(TRIAL);
        let is_found_more = trial.found * 4 > trial.found_before * 5;
        if is_found && is_found_more && trial.before + 1 < TRIALS {
            return State::Trial(Trial {
                windows: 0,
                found: 0,
                found_before: trial.found,
                before: trial.before + 1,
            });
        }
        self.fail()
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
        let worth = |kind| cost(kind, 10_000) >= HIT + HIT_STEP + WORTH;
        let tuples = |tuples, merged| Kind::Tuples {
            tuples,
            merged,
            prefixes: 0,
            direct: 0,
        };
        assert!(!worth(Kind::ExactHash) && !worth(tuples(2, 0)) && !worth(tuples(1, 1)));
        assert!(worth(tuples(3, 2)) && worth(tuples(5, 4)));
        // Of many entries a lookup costs more, but in an exact table hardly more than a known path.
        let worth = |kind| cost(kind, 100_000) >= HIT + HIT_STEP + WORTH;
        assert!(!worth(Kind::ExactHash) && worth(tuples(1, 1)));
    }

    #[test]
    fn traffic_that_is_never_found_has_it_on_for_less_than_a_twentieth_of_the_time() {
        assert!(windows(&mut Governor::new(), 20_000, 0, 200) < 1000);
    }

    #[test]
    fn traffic_that_changes_as_soon_as_it_is_on_soon_finds_it_off() {
        let mut governor = Governor::new();
        windows(&mut governor, 100, 99, 200);
        assert!(windows(&mut governor, 20_000, 1, 200) < 1000);
        assert!(windows(&mut governor, 10_000, 99, 200) > 5000);
        // Whoever has it found for a while each time does not have it forget its failures.
        let bad = |governor: &mut Governor| {
            windows(governor, 10, 99, 200);
            windows(governor, 500, 1, 200)
        };
        let mut governor = Governor::new();
        let first: u64 = (0..20).map(|_| bad(&mut governor)).sum();
        let last: u64 = (0..200).map(|_| bad(&mut governor)).sum();
        assert!(first > 500 && last < 5000, "{first} {last}");
    }

    #[test]
    fn flows_that_become_known_slowly_are_waited_for() {
        let mut governor = Governor::new();
        for percent in 0..90 {
            windows(&mut governor, 2, percent, 60);
        }
        assert!(governor.is_on());
        assert_eq!(windows(&mut governor, 1000, 90, 60), 1000);
        // A change forgets all of them, now and then.
        for _ in 0..10 {
            for percent in 0..9 {
                windows(&mut governor, 5, percent * 10, 60);
            }
            assert_eq!(windows(&mut governor, 300, 90, 60), 300);
        }
    }
}
