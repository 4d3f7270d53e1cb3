//! The trial of every hand-off: flows are handed to other workers only while all workers together process
//! more packets than the receiving worker did alone.
//!
//! ```text
//!           a worker is full, and begins to hash          SETTLE samples later, still full
//!  Alone ─────────────────────────────────────▶ Trying ──────────────────────────────────────▶ Worthwhile
//!    ▲                                             │ processes less than GAIN times as much        │
//!    │  after 5 s, then 10, up to a minute         ▼                                               │
//!    └─────────────────────────────── Returning, then Waiting                                      │
//!    ▲                                                                                             │
//!    └───────────────────────── all queues have ceased to hash, as the load is low ────────────────┘
//! ```
//!
//! The cost of a hand-off depends on the machine, as a hand-off moves a packet from one core's caches to
//! another's. Measurements are 30 ns on a machine with two cores, and 60 to 80 ns on one with sixteen
//! (docs/results/switch.md).

use super::load::Load;

/// Minimum ratio of the packets processed while flows are handed off to the packets processed before.
const GAIN: f64 = 1.05;
/// Number of samples after which a trial is judged: flows have moved by then, and the balance has settled.
const SETTLE: u32 = 15;
/// Number of samples at the end of a trial. Their packets decide if the trial has succeeded.
const JUDGED: u32 = 8;
/// Number of samples for which no queue begins to hash after a trial that failed; doubled each time.
const WAIT_MIN: u32 = 50;
/// Maximum number of samples for which no queue begins to hash.
const WAIT_MAX: u32 = 600;

/// The moves that the balancer may make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Permission {
    /// Hand flows off as the load requires, and do not return them when it is low
    /// ([`Spread::Always`](super::Spread)).
    Always,
    /// Hand flows off as the load requires, and return them when it is low.
    AsRequired,
    /// Return all flows.
    Return,
    /// Leave packets with the worker that receives them.
    Stay,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    /// No queue hashes. `before` is the moving average of the packets of a sample in which a worker was full.
    Alone {
        before: Option<f64>,
    },
    /// A queue has hashed for `samples` samples. `packets` is the number of packets in those that are judged.
    Trying {
        before: f64,
        samples: u32,
        packets: f64,
    },
    Worthwhile,
    Returning,
    Waiting {
        left: u32,
    },
}

/// The state of the hand-off, and the length of the last wait.
#[derive(Debug)]
pub(super) struct Trial {
    state: State,
    /// Number of samples of the last wait after a failed trial.
    waited: u32,
}

impl Trial {
    /// Returns the state in which no queue hashes.
    pub(super) fn new() -> Trial {
        Trial {
            state: State::Alone { before: None },
            waited: 0,
        }
    }

    /// Updates the state by one sample of all workers' loads. `is_on` is true if a queue hashes.
    pub(super) fn sample(&mut self, loads: &[Load], is_on: bool) -> Permission {
        let is_full = loads.iter().any(Load::is_full);
        let processed: f64 = loads.iter().map(|load| load.packets).sum();
        self.state = match self.state {
            State::Alone { before: Some(before) } if is_on => State::Trying {
                before,
                samples: 0,
                packets: 0.0,
            },
            // A queue hashes from its start.
            State::Alone { before: None } if is_on => State::Worthwhile,
            State::Alone { before } if is_full => State::Alone {
                before: Some(before.map_or(processed, |before| (before + processed) / 2.0)),
            },
            State::Alone { .. } => State::Alone { before: None },
            _ if !is_on && !matches!(self.state, State::Waiting { .. } | State::Returning) => {
                State::Alone { before: None }
            }
            // The load has fallen: the number of packets no longer shows how many the workers could process.
            State::Trying { .. } if !is_full => State::Worthwhile,
            State::Trying {
                before,
                samples,
                packets,
            } => self.judge(before, samples + 1, packets, processed),
            State::Worthwhile => State::Worthwhile,
            State::Returning if is_on => State::Returning,
            State::Returning => State::Waiting { left: self.waited },
            State::Waiting { left: 0 } => State::Alone { before: None },
            State::Waiting { left } => State::Waiting { left: left - 1 },
        };
        match self.state {
            State::Returning => Permission::Return,
            State::Waiting { .. } => Permission::Stay,
            // The packets of one complete sample must be counted first.
            State::Alone { before: None } => Permission::Stay,
            State::Alone { .. } | State::Trying { .. } | State::Worthwhile => Permission::AsRequired,
        }
    }

    fn judge(&mut self, before: f64, samples: u32, packets: f64, processed: f64) -> State {
        let packets = match samples > SETTLE - JUDGED {
            true => packets + processed,
            false => packets,
        };
        if samples < SETTLE {
            return State::Trying {
                before,
                samples,
                packets,
            };
        }
        if packets / f64::from(JUDGED) >= GAIN * before {
            self.waited = 0;
            return State::Worthwhile;
        }
        self.waited = (self.waited * 2).clamp(WAIT_MIN, WAIT_MAX);
        State::Returning
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(busy: f64, packets: f64) -> [Load; 2] {
        let load = |packets| Load {
            busy,
            packets,
            packet_nanos: 100.0,
            ..Load::default()
        };
        [load(packets), load(0.0)]
    }

    /// Runs a trial that begins with `before` packets a sample and processes `after`; returns the last permission.
    fn tried(trial: &mut Trial, before: f64, after: f64) -> Permission {
        for _ in 0..3 {
            assert_ne!(trial.sample(&loads(1.0, before), false), Permission::Return);
        }
        let mut last = Permission::AsRequired;
        for _ in 0..=SETTLE {
            last = trial.sample(&loads(1.0, after), true);
        }
        last
    }

    #[test]
    fn a_hand_off_that_gains_is_kept() {
        let mut trial = Trial::new();
        assert_eq!(tried(&mut trial, 1000.0, 1200.0), Permission::AsRequired);
        for _ in 0..1000 {
            assert_eq!(trial.sample(&loads(1.0, 500.0), true), Permission::AsRequired);
        }
    }

    #[test]
    fn a_hand_off_that_does_not_gain_is_undone_and_tried_again_later_each_time() {
        let mut trial = Trial::new();
        for wait in [WAIT_MIN, 2 * WAIT_MIN, 4 * WAIT_MIN] {
            assert_eq!(tried(&mut trial, 1000.0, 1020.0), Permission::Return);
            assert_eq!(trial.sample(&loads(1.0, 900.0), true), Permission::Return);
            let stays = (0..).take_while(|_| trial.sample(&loads(1.0, 1000.0), false) == Permission::Stay);
            // One more sample counts the packets before the next trial.
            assert_eq!(stays.count() as u32, wait + 2);
        }
    }

    #[test]
    fn a_load_that_falls_during_the_trial_is_no_reason() {
        let mut trial = Trial::new();
        trial.sample(&loads(1.0, 1000.0), false);
        trial.sample(&loads(1.0, 1000.0), true);
        for _ in 0..100 {
            assert_eq!(trial.sample(&loads(0.3, 300.0), true), Permission::AsRequired);
        }
    }

    #[test]
    fn nothing_is_begun_before_the_rate_of_a_full_worker_is_known() {
        let mut trial = Trial::new();
        assert_eq!(trial.sample(&loads(0.2, 100.0), false), Permission::Stay);
        assert_eq!(trial.sample(&loads(0.9, 1000.0), false), Permission::AsRequired);
    }
}
