//! Evidence of congestion from losses: a loss floor, and an experiment.
//!
//! BBR version 3 as published treats a loss of more than 2 % in a round as congestion. On a path that loses 2
//! % at random, this rule ends every Startup and every probe. Here loss counts as congestion only as far as
//! it depends on the actions of this flow:
//!
//! * **The floor p₀** is the loss of *calm* packets: packets that were sent while no more than the
//!   bandwidth-delay product was in flight, and no queue existed. This flow did not cause that loss. The
//!   floor has a cap, so that a permanently full path is not treated as a lossy path.
//! * **Dose and response**: ProbeBW's Up and Down phases send 1.25 and 0.9 times the bandwidth. Loss that is
//!   equal in both phases does not depend on the rate. Higher loss in Up depends on the rate, even behind a
//!   policer without a queue.
//!
//! Losses come in runs. With geometric runs, the variance of a count is that of independent losses times
//! `2·mean run − 1`.

use crate::congestion::Outcome;
use millrace_types::{Duration, Time};

/// The number of calm packets after which the floor's window advances.
const FLOOR_PACKETS: f64 = 10_000.0;
/// The time after which the floor's window advances, if it has at least [`FLOOR_KNOWN`] calm packets.
const FLOOR_TIME: Duration = Duration::from_secs(20);
/// The number of calm packets below which the floor is unknown.
const FLOOR_KNOWN: f64 = 1_000.0;
/// The number of packets of Down below which the floor stands for its loss.
const DOWN_KNOWN: f64 = 100.0;
/// The number of packets of Up or Down from which the next phase of that kind starts new counts. Fewer
/// packets are pooled over several phases.
const POOLED: f64 = 2_000.0;
/// The least difference of loss between doses that counts as congestion.
const DIFFERENCE: f64 = 0.02;
/// The number of losses below which nothing is known of their runs, or of the difference of two doses.
const LOSSES_MIN: f64 = 3.0;
/// The losses that a round may have above the floor in any case: with few packets, one run of losses is no evidence.
const EXCESS_MIN: f64 = 2.0;
/// The largest ratio of a variance to that of independent losses: runs of 32 packets on average.
const DISPERSION_MAX: f64 = 64.0;
/// The number of standard deviations from which a difference is significant.
const SIGMAS: f64 = 3.0;

/// Packets and losses.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Counts {
    packets: f64,
    lost: f64,
    runs: f64,
}

impl Counts {
    pub(super) fn add(&mut self, outcome: &Outcome) {
        // A packet that was declared lost by mistake is acknowledged now. It was counted as a packet before.
        let spurious = f64::from(outcome.spurious);
        self.packets += f64::from(outcome.acked) + f64::from(outcome.lost) - spurious;
        self.lost = (self.lost + f64::from(outcome.lost) - spurious).max(0.0);
        self.runs += f64::from(outcome.runs);
    }

    /// Returns the share of packets that were lost.
    pub(super) fn loss(&self) -> f64 {
        if self.packets < 1.0 {
            return 0.0;
        }
        (self.lost / self.packets).clamp(0.0, 1.0)
    }

    pub(super) fn packets(&self) -> f64 {
        self.packets
    }

    fn plus(&self, other: &Counts) -> Counts {
        Counts {
            packets: self.packets + other.packets,
            lost: self.lost + other.lost,
            runs: self.runs + other.runs,
        }
    }

    /// Returns the ratio of the variance to that of independent losses.
    fn dispersion(&self) -> f64 {
        if self.runs < 1.0 {
            return 1.0;
        }
        (2.0 * self.lost / self.runs - 1.0).clamp(1.0, DISPERSION_MAX)
    }
}

/// The loss that this flow does not cause.
#[derive(Clone, Copy, Debug)]
pub(super) struct LossFloor {
    cap: f64,
    current: Counts,
    previous: Counts,
    since: Time,
}

impl LossFloor {
    /// Returns a floor that never exceeds `cap`, the share of loss that the user tolerates.
    pub(super) fn new(cap: f64, now: Time) -> LossFloor {
        LossFloor {
            cap,
            current: Counts::default(),
            previous: Counts::default(),
            since: now,
        }
    }

    /// Adds the outcome of calm packets.
    pub(super) fn add(&mut self, now: Time, outcome: &Outcome) {
        self.current.add(outcome);
        let old = now.since(self.since) >= FLOOR_TIME;
        if self.current.packets >= FLOOR_PACKETS || (old && self.current.packets >= FLOOR_KNOWN) {
            self.previous = std::mem::take(&mut self.current);
            self.since = now;
        }
    }

    fn counts(&self) -> Counts {
        self.previous.plus(&self.current)
    }

    /// Returns the floor, or the cap while there are too few calm packets.
    pub(super) fn tolerated(&self) -> f64 {
        let counts = self.counts();
        if counts.packets < FLOOR_KNOWN {
            return self.cap;
        }
        counts.loss().min(self.cap)
    }

    /// Returns the floor, or zero while there are too few calm packets.
    pub(super) fn known(&self) -> f64 {
        let counts = self.counts();
        if counts.packets < FLOOR_KNOWN {
            return 0.0;
        }
        counts.loss().min(self.cap)
    }

    /// Returns true if a round lost significantly more than the floor.
    pub(super) fn is_exceeded(&self, round: &Counts) -> bool {
        let floor = self.tolerated();
        let expected = round.packets * floor;
        let variance = expected * (1.0 - floor) * self.counts().dispersion();
        round.lost > expected + SIGMAS * variance.sqrt() + EXCESS_MIN
    }
}

/// The experiment: the losses at the rates of Up and Down.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DoseResponse {
    up: Counts,
    down: Counts,
}

impl DoseResponse {
    pub(super) fn add(&mut self, up: &Outcome, down: &Outcome) {
        self.up.add(up);
        self.down.add(down);
    }

    /// Begins an Up phase. Counts of earlier Up phases are kept while they are few.
    pub(super) fn start_up(&mut self) {
        if self.up.packets >= POOLED {
            self.up = Counts::default();
        }
    }

    /// Begins a Down phase. Counts of earlier Down phases are kept while they are few.
    pub(super) fn start_down(&mut self) {
        if self.down.packets >= POOLED {
            self.down = Counts::default();
        }
    }

    /// Resets the counts of Up, because the flow has responded to its losses.
    pub(super) fn responded(&mut self) {
        self.up = Counts::default();
    }

    /// Returns true if Up loses significantly more than Down: by two percentage points and three standard
    /// deviations. `floor` replaces the loss of Down while Down has sent too few packets.
    pub(super) fn is_congested(&self, floor: f64) -> bool {
        let (up, down) = (self.up.loss(), self.down.loss());
        if self.up.lost < LOSSES_MIN {
            return false;
        }
        let (below, below_packets) = if self.down.packets >= DOWN_KNOWN {
            (down, self.down.packets)
        } else {
            (floor, FLOOR_KNOWN)
        };
        let pooled = (up * self.up.packets + below * below_packets) / (self.up.packets + below_packets);
        let variance = pooled * (1.0 - pooled) * (1.0 / self.up.packets + 1.0 / below_packets);
        let dispersion = if self.down.lost >= LOSSES_MIN {
            self.down.dispersion()
        } else {
            1.0
        };
        up - below > DIFFERENCE.max(SIGMAS * (variance * dispersion).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(acked: u32, lost: u32, runs: u32) -> Outcome {
        Outcome {
            acked,
            lost,
            runs,
            spurious: 0,
        }
    }

    #[test]
    fn loss_that_does_not_depend_on_the_dose_is_no_congestion() {
        for percent in [0, 1, 3, 10, 30] {
            let mut doses = DoseResponse::default();
            let same = outcome(10_000 - 100 * percent, 100 * percent, 100 * percent);
            doses.add(&same, &same);
            assert!(!doses.is_congested(0.05), "{percent} %");
        }
    }

    #[test]
    fn a_policer_that_drops_a_fifth_of_the_higher_dose_is_congestion_after_a_few_packets() {
        let mut doses = DoseResponse::default();
        doses.add(&outcome(80, 20, 20), &outcome(500, 0, 0));
        assert!(doses.is_congested(0.0));
        doses.responded();
        assert!(!doses.is_congested(0.0));
    }

    #[test]
    fn few_packets_are_no_evidence_and_are_pooled() {
        let mut doses = DoseResponse::default();
        for _ in 0..40 {
            doses.start_up();
            doses.add(&outcome(46, 2, 2), &outcome(100, 0, 0));
        }
        assert!(doses.is_congested(0.0), "4 % against none, in many small cycles");
        let mut doses = DoseResponse::default();
        doses.add(&outcome(30, 2, 2), &outcome(100, 1, 1));
        assert!(!doses.is_congested(0.0));
    }

    #[test]
    fn the_floor_is_measured_and_capped_and_rounds_above_it_stand_out() {
        let mut floor = LossFloor::new(0.05, Time::ZERO);
        assert_eq!(floor.tolerated(), 0.05);
        assert_eq!(floor.known(), 0.0);
        floor.add(Time::ZERO, &outcome(9_700, 300, 300));
        assert!((floor.tolerated() - 0.03).abs() < 1e-9);
        let mut round = Counts::default();
        round.add(&outcome(965, 35, 35));
        assert!(!floor.is_exceeded(&round));
        round.add(&outcome(0, 60, 60));
        assert!(floor.is_exceeded(&round));
        floor.add(Time::ZERO, &outcome(5_000, 5_000, 5_000));
        assert_eq!(floor.tolerated(), 0.05);
    }

    #[test]
    fn losses_in_runs_vary_more_before_they_stand_out() {
        let (mut single, mut runs) = (LossFloor::new(0.05, Time::ZERO), LossFloor::new(0.05, Time::ZERO));
        single.add(Time::ZERO, &outcome(9_900, 100, 100));
        runs.add(Time::ZERO, &outcome(9_900, 100, 12));
        let mut round = Counts::default();
        round.add(&outcome(976, 24, 3));
        assert!(single.is_exceeded(&round) && !runs.is_exceeded(&round));
    }
}
