//! The decision whether the cache of traversals is on: only while it saves time.
//!
//! The hit rate depends on the traffic, and an attacker may send traffic that never hits. So a worker
//! compares, window by window, the time that hits save with the time that misses cost. A window with a loss
//! begins a trial, because many new flows, or many flows that a change has invalidated, take a while to be
//! cached. If the trial ends with a loss, another trial follows, at most `TRIALS` in a row, as long as each
//! finds more hits than the one before. After the last one, the cache is switched off, each time for twice as
//! long as before. An attacker can thus spoil only a few windows in many, and in each of them no more than
//! the cost of misses.
//!
//! There is no clock here: costs are nanoseconds, measured as docs/results/classifier.md and switch.md say.
//! Only their proportions matter.

use millrace_flow::classify::Kind;

/// The packets of a window.
const WINDOW: u64 = 8192;
/// The windows of a trial: 524,288 packets. If 100,000 flows send in turn, most of them send a fifth packet
/// in it.
const TRIAL_WINDOWS: u32 = 64;
/// The maximum number of consecutive trials. Each must find a quarter more hits than the one before.
const TRIALS: u32 = 4;
/// Another trial follows only if at least one packet in this many is a hit.
const PACKETS_PER_HIT_MAX: u64 = 32;
/// The number of windows for which the cache is off: after the first failure, and the maximum.
const PAUSE: u32 = 64;
const PAUSE_MAX: u32 = 4096;
/// The windows without a loss after which earlier failures are forgotten.
const GOOD_WINDOWS: u32 = 256;

/// The cost of a miss: the lookup in the cache, and the occasional recording of a traversal.
const MISS: u64 = 30;
/// The cost of a hit, and of each entry of its traversal.
const HIT: u64 = 15;
const HIT_STEP: u64 = 3;
/// The cost of going from one table to the next, without the lookup.
const NEXT_TABLE: u64 = 12;
/// The saving of a hit that a trial requires: without it, the cache stays off.
const MIN_SAVING: u64 = 10;

/// The number of entries beyond which a table with its counters does not fit the second-level cache. A lookup then
/// reads one cache line more than a hit, at the cost [`FAR`].
const FAR_LEN: usize = 1 << 14;
const FAR: u64 = 12;

/// Returns the additional cost of a hit in a cache whose traversals, of this many cache lines each, no longer fit the
/// second-level cache.
pub(crate) fn far_hit(lines: usize) -> u64 {
    FAR * lines as u64
}

/// Returns the cost of comparing this many rules: beyond a few, bit vectors compare all at once.
fn compared(rules: usize) -> u64 {
    (rules as u64 / 3).min(12)
}

/// Returns the cost of a lookup in a table of this kind and size.
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
    /// Off, for this many more windows.
    Off(u32),
    Trial(Trial),
    /// On, for this many windows without a loss so far.
    On(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Trial {
    /// The windows of this trial so far.
    windows: u32,
    /// The hits of this trial so far.
    found: u64,
    /// The hits of the previous trial, and the number of previous trials.
    found_before: u64,
    before: u32,
}

/// The state of the decision, for one worker.
#[derive(Debug)]
pub(crate) struct Governor {
    state: State,
    pause: u32,
    /// Hits in this window, and the entries of their traversals.
    hits: u64,
    steps: u64,
    /// Packets of this window that went through the tables.
    uncached_packets: u64,
    /// The cost of one packet's lookups in the tables, measured in the last windows.
    table_cost: u64,
}

impl Governor {
    pub(crate) fn new() -> Governor {
        Governor {
            state: State::Off(0),
            pause: PAUSE,
            hits: 0,
            steps: 0,
            uncached_packets: 0,
            table_cost: 0,
        }
    }

    /// Returns true if the cache is on.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        !matches!(self.state, State::Off(_))
    }

    /// Counts `packets` hits. Their traversals have `steps` entries together.
    #[inline(always)]
    pub(crate) fn hit(&mut self, packets: usize, steps: usize) {
        self.hits += packets as u64;
        self.steps += steps as u64;
    }

    /// Counts packets that go through the tables.
    #[inline(always)]
    pub(crate) fn count_uncached(&mut self, packets: usize) {
        self.uncached_packets += packets as u64;
    }

    /// Returns true if the window is over and [`Governor::judge`] is due.
    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        self.hits + self.uncached_packets >= WINDOW
    }

    /// Ends the window. It had `visits` lookups in tables, at a total cost of `cost`; each hit cost `far_hit` more than in
    /// a small cache. Returns true if the cache was switched on.
    pub(crate) fn judge(&mut self, (visits, cost): (u64, u64), far_hit: u64) -> bool {
        if self.uncached_packets >= WINDOW / 16 {
            let further = visits.saturating_sub(self.uncached_packets);
            self.table_cost = (cost + further * NEXT_TABLE) / self.uncached_packets;
        }
        let saved =
            (self.hits * self.table_cost).saturating_sub(self.hits * (HIT + far_hit) + self.steps * HIT_STEP);
        let lost = self.uncached_packets * MISS;
        let (pays, hits) = (saved > lost, self.hits);
        (self.hits, self.steps, self.uncached_packets) = (0, 0, 0);
        let before = self.state;
        self.state = match before {
            State::Off(0) if self.table_cost >= HIT + HIT_STEP + MIN_SAVING => State::Trial(Trial::default()),
            State::Off(left) => State::Off(left.saturating_sub(1)),
            State::On(windows) if pays => {
                if windows == GOOD_WINDOWS {
                    self.pause = PAUSE;
                }
                State::On(windows.saturating_add(1))
            }
            State::On(_) => State::Trial(Trial::default()),
            State::Trial(trial) => self.go_on(trial, hits, pays),
        };
        matches!((before, self.state), (State::Off(_), State::Trial(_)))
    }

    /// Returns the state after a window of a trial.
    fn go_on(&mut self, mut trial: Trial, hits: u64, pays: bool) -> State {
        trial.windows += 1;
        trial.found += hits;
        if trial.windows < TRIAL_WINDOWS {
            return State::Trial(trial);
        }
        if pays {
            return State::On(0);
        }
        let is_found = trial.found * PACKETS_PER_HIT_MAX >= WINDOW * u64::from(TRIAL_WINDOWS);
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
    use millrace_flow::Field;

    /// Runs `count` windows with `percent` hits, in tables that cost `cost`. Returns the number of windows in
    /// which the cache was on.
    fn windows(governor: &mut Governor, count: u64, percent: u64, cost: u64) -> u64 {
        windows_of(governor, (count, percent), cost, 0)
    }

    /// The same with hits that cost `far_hit` more.
    fn windows_of(governor: &mut Governor, (count, percent): (u64, u64), cost: u64, far_hit: u64) -> u64 {
        let mut on = 0;
        for _ in 0..count {
            on += u64::from(governor.is_on());
            let hits = if governor.is_on() {
                WINDOW * percent / 100
            } else {
                0
            };
            governor.hit(hits as usize, 8 * hits as usize);
            governor.count_uncached((WINDOW - hits) as usize);
            assert!(governor.is_due());
            governor.judge((WINDOW - hits, (WINDOW - hits) * cost), far_hit);
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
        let worth = |kind| cost(kind, 10_000) >= HIT + HIT_STEP + MIN_SAVING;
        let tuples = |tuples, merged| Kind::Tuples {
            tuples,
            merged,
            prefixes: 0,
            direct: 0,
        };
        assert!(!worth(Kind::ExactHash) && !worth(tuples(2, 0)) && !worth(tuples(1, 1)));
        assert!(worth(tuples(3, 2)) && worth(tuples(5, 4)));
        // A lookup among many entries costs more, but in an exact table hardly more than a hit.
        let worth = |kind| cost(kind, 100_000) >= HIT + HIT_STEP + MIN_SAVING;
        assert!(!worth(Kind::ExactHash) && worth(tuples(1, 1)));
    }

    #[test]
    fn two_tables_of_routes_are_not_worth_a_cache_that_is_far_if_a_quarter_of_the_packets_misses_it() {
        let route = cost(
            Kind::LongestPrefix {
                field: Field::Ipv6Dst,
            },
            30_000,
        );
        let tables = 2 * route + NEXT_TABLE;
        assert!(windows_of(&mut Governor::new(), (2000, 75), tables, 0) > 1900);
        assert!(windows_of(&mut Governor::new(), (20_000, 75), tables, far_hit(2)) < 2000);
        // Eight tables are.
        assert!(windows_of(&mut Governor::new(), (2000, 90), 8 * route, far_hit(2)) > 1900);
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
        // Traffic that hits for a short while each time does not make the governor forget failures.
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
        // A change sometimes invalidates all cached traversals.
        for _ in 0..10 {
            for percent in 0..9 {
                windows(&mut governor, 5, percent * 10, 60);
            }
            assert_eq!(windows(&mut governor, 300, 90, 60), 300);
        }
    }
}
