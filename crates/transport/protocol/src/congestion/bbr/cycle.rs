//! ProbeBW: Down, Cruise, Refill, Up (draft-ietf-ccwg-bbr, section 5.3.3).

use super::model::Tolerance;
use super::state::{AckPhase, PROBE_WAIT, State};
use super::{BETA, Bbr, CALM, TIMER_DELAY};
use crate::congestion::{RateSample, Sample};
use millrace_types::{Duration, Time};

/// The maximum number of rounds between probes. A flow with fewer packets in its BDP probes after as many
/// rounds as packets, as Reno would (draft-ietf-ccwg-bbr, section 5.3.3.8).
const RENO_ROUNDS: f64 = 63.0;
/// The queueing delay at which Up ends if the delivery rate has not grown.
const UP_QUEUE: Tolerance = Tolerance {
    share: 0.2,
    least: TIMER_DELAY,
};
/// The growth of the delivery rate below which Up has found no more bandwidth, as a factor.
const UP_GROWTH: f64 = 1.05;

/// The maximum number of doublings of the growth of the long-term bound (draft-ietf-ccwg-bbr,
/// BBRRaiseInflightLongtermSlope).
const UP_ROUNDS_MAX: u32 = 30;

impl Bbr {
    pub(super) fn start_down(&mut self, sample: &Sample) {
        self.bounds.reset_latest();
        self.doses.start_down();
        self.cycle.acked_per_increment = f64::INFINITY;
        self.cycle.rounds_since_probe = self.random.next() & 1;
        self.cycle.wait = PROBE_WAIT + Duration::from_secs(1).mul_f64(self.random.fraction());
        self.cycle.started_at = sample.now;
        self.cycle.ack_phase = AckPhase::Stopping;
        self.rounds.restart(sample.delivered);
        self.state = State::Down;
    }

    pub(super) fn start_cruise(&mut self) {
        self.state = State::Cruise;
    }

    fn start_refill(&mut self, sample: &Sample) {
        self.bounds.reset_shortterm();
        self.cycle.up_rounds = 0;
        self.cycle.up_acked = 0.0;
        self.cycle.previous_precautionary = false;
        self.cycle.ack_phase = AckPhase::Refilling;
        self.rounds.restart(sample.delivered);
        self.state = State::Refill;
    }

    fn start_up(&mut self, sample: &Sample, rate: &RateSample) {
        self.doses.start_up();
        self.cycle.ack_phase = AckPhase::Starting;
        self.cycle.is_probe_sample = true;
        self.cycle.up_bandwidth = rate.rate();
        self.cycle.up_delay = self.min_rtt.queueing_delay();
        self.cycle.up_round_over = false;
        self.rounds.restart(sample.delivered);
        self.full_pipe.reset(rate.rate());
        self.state = State::Up;
        self.raise_slope();
    }

    /// Advances ProbeBW by one feedback.
    pub(super) fn update_cycle(&mut self, sample: &Sample, rate: &RateSample) {
        if !self.full_pipe.reached {
            return;
        }
        if self.rounds.starts {
            self.cycle.rounds_since_probe += 1;
        }
        if self.adapt_long_term(sample, rate) {
            return;
        }
        let state = self.state;
        match state {
            State::Down | State::Cruise if self.is_time_to_probe(sample.now) => self.start_refill(sample),
            State::Down if self.is_time_to_cruise(sample) => self.start_cruise(),
            State::Refill if self.rounds.starts => self.start_up(sample, rate),
            State::Up if self.is_time_to_go_down(sample, rate) => {
                self.cycle.previous_too_high = false;
                self.start_down(sample);
            }
            _ => {}
        }
    }

    fn is_time_to_probe(&self, now: Time) -> bool {
        let reno_rounds = (self.target_in_flight() / self.packet()).min(RENO_ROUNDS);
        now > self.cycle.started_at + self.cycle.wait || self.cycle.rounds_since_probe as f64 >= reno_rounds
    }

    fn is_time_to_cruise(&self, sample: &Sample) -> bool {
        let in_flight = sample.in_flight as f64;
        in_flight <= self.in_flight_with_headroom() && in_flight <= self.bdp(self.max_bandwidth.value())
    }

    fn is_time_to_go_down(&mut self, sample: &Sample, rate: &RateSample) -> bool {
        let longterm = self.bounds.inflight_longterm;
        if self.cycle.previous_too_high && sample.in_flight as f64 >= longterm {
            self.cycle.previous_precautionary = true;
            return true;
        }
        if sample.window_limited && self.window >= longterm {
            // The bound, not the path, limits the delivery rate, so a plateau is no evidence about the path.
            self.full_pipe.reset(rate.rate());
            self.cycle.up_bandwidth = rate.rate();
            return false;
        }
        if rate.rate() >= self.cycle.up_bandwidth * UP_GROWTH {
            self.cycle.up_bandwidth = rate.rate();
            self.cycle.up_round_over = false;
        } else if self.rounds.starts && self.cycle.ack_phase == AckPhase::Feedback {
            self.cycle.up_round_over = true;
        }
        let queued = !self.min_rtt.is_within(self.cycle.up_delay, UP_QUEUE);
        self.full_pipe.now || (queued && self.cycle.up_round_over)
    }

    /// Tracks which feedback belongs to a probe and adapts the long-term bound; returns true if it changed the state.
    fn adapt_long_term(&mut self, sample: &Sample, rate: &RateSample) -> bool {
        if self.cycle.ack_phase == AckPhase::Starting && self.rounds.starts {
            self.cycle.ack_phase = AckPhase::Feedback;
        }
        if self.is_in_flight_too_high() {
            return self.respond_to_probe(sample, rate);
        }
        if self.cycle.ack_phase == AckPhase::Stopping && self.rounds.starts {
            self.cycle.is_probe_sample = false;
            self.cycle.ack_phase = AckPhase::Idle;
            if self.state.is_probe_bw() {
                if !rate.app_limited {
                    self.max_bandwidth.advance();
                }
                if self.cycle.previous_precautionary && !self.cycle.previous_too_high {
                    self.start_refill(sample);
                    return true;
                }
            }
        }
        if self.bounds.inflight_longterm.is_finite() {
            self.bounds.inflight_longterm = self.bounds.inflight_longterm.max(rate.tx_in_flight as f64);
            if self.state == State::Up {
                self.raise_long_term(sample);
            }
        }
        false
    }

    /// Returns true if the current probe shows congestion: Up loses more than Down, or packets have ECN-CE
    /// marks.
    fn is_in_flight_too_high(&self) -> bool {
        self.cycle.is_probe_sample && (self.ce_in_round || self.doses.is_congested(self.floor.known()))
    }

    /// Sets the long-term bound to the bytes that were in flight, and ends Up. Does so once for each probe.
    fn respond_to_probe(&mut self, sample: &Sample, rate: &RateSample) -> bool {
        self.cycle.previous_too_high = true;
        self.cycle.is_probe_sample = false;
        self.doses.responded();
        if !rate.app_limited {
            let excess = 1.0 - rate.lost as f64 / (rate.tx_in_flight.max(1) as f64);
            let fitted = rate.tx_in_flight as f64 * excess.clamp(BETA, 1.0);
            self.bounds.inflight_longterm = fitted.max(self.target_in_flight() * BETA);
            self.bounds.has_queue = !self.min_rtt.is_near(CALM);
        }
        if self.state == State::Up {
            self.start_down(sample);
            return true;
        }
        false
    }

    fn raise_slope(&mut self) {
        let growth = 2.0_f64.powi(self.cycle.up_rounds.cast_signed());
        self.cycle.up_rounds = (self.cycle.up_rounds + 1).min(UP_ROUNDS_MAX);
        self.cycle.acked_per_increment = (self.window / growth).max(self.packet());
    }

    /// Raises the long-term bound while it limits the flow: by one packet a round, then by two, four, …
    fn raise_long_term(&mut self, sample: &Sample) {
        if !sample.window_limited || self.window < self.bounds.inflight_longterm {
            return;
        }
        self.cycle.up_acked += sample.acked as f64;
        let increments = (self.cycle.up_acked / self.cycle.acked_per_increment).floor();
        if increments >= 1.0 {
            self.cycle.up_acked -= increments * self.cycle.acked_per_increment;
            self.bounds.inflight_longterm += increments * self.packet();
        }
        if self.rounds.starts {
            self.raise_slope();
        }
    }
}
