//! The governor: marks are used only while they save time.
//!
//! A trial measures the busy time of a packet in ten pairs of windows, one with marks and one without, and compares the windows of
//! each pair. The median decides: a worker that another program takes its core from for a while spoils some pairs, and not the
//! verdict. If marks save less than two per cent, they are not used. The next trial comes after a pause that doubles from 5
//! seconds to a minute while verdicts are the same. This also finds drivers that deliver marks only by a slower receive function.
//!
//! ```text
//!   Trial: with, without, with, without, ... (0.1 s each) --saves--> On(pause)  --after the pause--> Trial
//!                                                         --costs--> Off(pause) --after the pause--> Trial
//! ```

use millrace_types::{Duration, Time};

/// The length of a window of a trial.
const WINDOW: Duration = Duration::from_millis(100);
/// Pairs of windows of a trial; the first one of each is with marks.
const PAIRS: usize = 10;
/// The part of a packet's time that marks must save: without marks, a packet takes this many times as long as with.
const RATIO_MIN: f64 = 1.02;
/// The pause after a trial with another verdict than the one before, and the longest.
const PAUSE_MIN: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// The packets that each window must have; with fewer, the trial begins again.
const PACKETS_MIN: u64 = 2_000;

/// The work of the workers so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// Packets processed.
    pub packets: u64,
    /// Busy time in nanoseconds.
    pub busy_nanos: u64,
}

/// The standing of marks at a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// A trial runs.
    Trial,
    /// Marks save time.
    Saves,
    /// Marks save nothing, and are not used.
    Costs,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Trial { window: usize, until: Time },
    On { until: Time },
    Off { until: Time },
}

/// Nanoseconds of a packet without marks and with.
#[derive(Clone, Copy, Debug)]
struct Pair {
    without: f64,
    with: f64,
}

impl Pair {
    /// Returns the time without marks, in times with marks.
    fn ratio(self) -> f64 {
        self.without / self.with
    }
}

/// The governor of one port.
#[derive(Debug)]
pub struct Governor {
    state: State,
    pause: Duration,
    /// The work at the begin of the window.
    before: Load,
    /// Nanoseconds of a packet in the last window with marks.
    with: f64,
    pairs: Vec<Pair>,
    /// The median pair of the last trial.
    measured: Option<Pair>,
}

impl Governor {
    /// Returns a governor that begins with a trial.
    pub fn new(now: Time, load: Load) -> Governor {
        Governor {
            state: State::Trial {
                window: 0,
                until: now + WINDOW,
            },
            pause: PAUSE_MIN,
            before: load,
            with: 0.0,
            pairs: Vec::new(),
            measured: None,
        }
    }

    /// Returns the standing.
    pub fn standing(&self) -> Standing {
        match self.state {
            State::Trial { .. } => Standing::Trial,
            State::On { .. } => Standing::Saves,
            State::Off { .. } => Standing::Costs,
        }
    }

    /// Returns the nanoseconds that marks saved for a packet in the last trial; negative if they cost time.
    pub fn saved_nanos(&self) -> Option<f64> {
        self.measured.map(|pair| pair.without - pair.with)
    }

    /// Returns true if marks are to be used now.
    pub fn uses_marks(&self) -> bool {
        match self.state {
            State::Trial { window, .. } => window.is_multiple_of(2),
            State::On { .. } => true,
            State::Off { .. } => false,
        }
    }

    /// Takes the work so far.
    pub fn tick(&mut self, now: Time, load: Load) {
        match self.state {
            State::Trial { window, until } if now >= until => self.end_window(window, now, load),
            State::On { until } | State::Off { until } if now >= until => self.begin_trial(now, load),
            _ => {}
        }
    }

    fn begin_trial(&mut self, now: Time, load: Load) {
        self.before = load;
        self.pairs.clear();
        self.state = State::Trial {
            window: 0,
            until: now + WINDOW,
        };
    }

    fn end_window(&mut self, window: usize, now: Time, load: Load) {
        let packets = load.packets.saturating_sub(self.before.packets);
        let busy_nanos = load.busy_nanos.saturating_sub(self.before.busy_nanos);
        self.before = load;
        if packets < PACKETS_MIN {
            // Too little traffic to tell: marks stay in use, and are measured when there is more.
            return self.begin_trial(now, load);
        }
        let nanos = busy_nanos as f64 / packets as f64;
        if window.is_multiple_of(2) {
            self.with = nanos;
        } else {
            self.pairs.push(Pair {
                without: nanos,
                with: self.with,
            });
        }
        if self.pairs.len() < PAIRS {
            self.state = State::Trial {
                window: window + 1,
                until: now + WINDOW,
            };
            return;
        }
        self.decide(now);
    }

    fn decide(&mut self, now: Time) {
        self.pairs
            .sort_unstable_by(|one, other| one.ratio().total_cmp(&other.ratio()));
        let median = self.pairs[PAIRS / 2];
        let saves = |pair: Pair| pair.ratio() >= RATIO_MIN;
        let is_same = self.measured.is_some_and(|before| saves(before) == saves(median));
        self.pause = if is_same {
            (self.pause * 2).min(PAUSE_MAX)
        } else {
            PAUSE_MIN
        };
        self.measured = Some(median);
        let until = now + self.pause;
        self.state = if saves(median) {
            State::On { until }
        } else {
            State::Off { until }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a governor for some seconds at a million packets a second. Returns the share of time with marks.
    fn run(governor: &mut Governor, at: &mut (Time, Load), seconds: u64, (with, without): (u64, u64)) -> f64 {
        let mut used = 0;
        for _ in 0..seconds * 20 {
            let uses = governor.uses_marks();
            used += u64::from(uses);
            at.0 = at.0 + Duration::from_millis(50);
            at.1.packets += 50_000;
            at.1.busy_nanos += 50_000 * if uses { with } else { without };
            governor.tick(at.0, at.1);
        }
        used as f64 / (seconds * 20) as f64
    }

    #[test]
    fn marks_that_save_time_are_used_nearly_always() {
        let mut at = (Time::ZERO, Load::default());
        let mut governor = Governor::new(at.0, at.1);
        assert!(run(&mut governor, &mut at, 300, (50, 70)) > 0.95);
        assert_eq!(governor.standing(), Standing::Saves);
        let saved = governor.saved_nanos().unwrap_or_default();
        assert!((19.0..21.0).contains(&saved), "{saved}");
    }

    #[test]
    fn marks_that_cost_time_are_used_for_less_than_a_twentieth_of_it_and_come_back_when_they_save() {
        let mut at = (Time::ZERO, Load::default());
        let mut governor = Governor::new(at.0, at.1);
        run(&mut governor, &mut at, 60, (70, 70));
        assert!(run(&mut governor, &mut at, 600, (75, 70)) < 0.05);
        assert_eq!(governor.standing(), Standing::Costs);
        run(&mut governor, &mut at, 63, (50, 70));
        assert!(governor.uses_marks());
    }

    #[test]
    fn a_core_that_is_taken_away_for_a_while_does_not_decide() {
        let mut at = (Time::ZERO, Load::default());
        let mut governor = Governor::new(at.0, at.1);
        let mut windows = 0;
        while governor.standing() == Standing::Trial {
            let uses = governor.uses_marks();
            at.0 = at.0 + WINDOW;
            at.1.packets += 100_000;
            at.1.busy_nanos += 100_000 * if uses { 77 } else { 70 };
            // Another program had the core in three of the ten windows without marks, for half of each.
            if matches!(windows, 1 | 7 | 9) {
                at.1.busy_nanos += 7_000_000;
            }
            windows += 1;
            governor.tick(at.0, at.1);
        }
        assert_eq!((governor.standing(), windows), (Standing::Costs, 20));
        let saved = governor.saved_nanos().unwrap_or_default();
        assert!((-7.1..-6.9).contains(&saved), "{saved}");
    }

    #[test]
    fn without_traffic_nothing_is_concluded() {
        let mut governor = Governor::new(Time::ZERO, Load::default());
        for tick in 0..1000 {
            governor.tick(Time::from_millis(50 * tick), Load::default());
            assert!(governor.uses_marks());
        }
        assert_eq!(governor.saved_nanos(), None);
    }
}
