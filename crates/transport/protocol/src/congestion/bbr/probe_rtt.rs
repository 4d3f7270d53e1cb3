//! ProbeRTT (draft-ietf-ccwg-bbr, section 5.3.4): a tenth of a BDP in flight for 200 ms and a round, to
//! measure the path without a queue.
//!
//! ProbeRTT is skipped while Down phases measure round-trip times near the minimum: within 2 % and the path's
//! jitter.

use super::Bbr;
use super::model::Tolerance;
use super::state::{PROBE_RTT_CWND_GAIN, ProbeRtt, State};
use crate::congestion::Sample;
use millrace_types::Duration;

/// The shortest time in ProbeRTT (draft-ietf-ccwg-bbr, ProbeRTTDuration).
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);
/// The queueing delay up to which a sample counts as the minimum.
const NEAR: Tolerance = Tolerance {
    share: 0.02,
    least: Duration::ZERO,
};

impl Bbr {
    pub(super) fn probe_rtt_window(&self) -> f64 {
        (PROBE_RTT_CWND_GAIN * self.bdp(self.usable_bandwidth())).max(self.min_window())
    }

    /// Enters, runs and leaves ProbeRTT. `due` is true after [`PROBE_RTT_INTERVAL`](super::model::PROBE_RTT_INTERVAL) without a round-trip time
    /// near the minimum.
    pub(super) fn check_probe_rtt(&mut self, sample: &Sample, due: bool) {
        let drained = matches!(self.state, State::Down | State::Cruise);
        if drained && sample.rtt.is_some() && self.min_rtt.is_near(NEAR) {
            self.min_rtt.refresh(sample.now);
        } else if due && self.state != State::ProbeRtt && self.full_pipe.reached {
            self.probe_rtt = ProbeRtt {
                ends_at: None,
                round_over: false,
                saved_window: self.window,
            };
            self.cycle.stop();
            self.rounds.restart(sample.delivered);
            self.state = State::ProbeRtt;
        }
        if self.state == State::ProbeRtt {
            self.run_probe_rtt(sample);
        }
    }

    fn run_probe_rtt(&mut self, sample: &Sample) {
        let Some(ends_at) = self.probe_rtt.ends_at else {
            if sample.in_flight as f64 <= self.probe_rtt_window() {
                self.probe_rtt.ends_at = Some(sample.now + PROBE_RTT_DURATION);
                self.rounds.restart(sample.delivered);
            }
            return;
        };
        self.probe_rtt.round_over |= self.rounds.starts;
        if !self.probe_rtt.round_over || sample.now <= ends_at {
            return;
        }
        self.min_rtt.refresh(sample.now);
        self.window = self.window.max(self.probe_rtt.saved_window);
        self.bounds.reset_shortterm();
        self.start_down(sample);
        self.start_cruise();
    }
}
