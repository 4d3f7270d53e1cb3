//! The states of the machine and of its parts: ProbeBW's cycle, ProbeRTT, and the ramp with a hint. The files
//! [`cycle`](super::cycle), [`probe_rtt`](super::probe_rtt) and [`ramp`](super::ramp) have the transitions.

use millrace_types::{BitRate, Duration, Time};

/// The gains of draft-ietf-ccwg-bbr (StartupPacingGain, DrainPacingGain, DefaultCwndGain); Cruise has less than the default.
pub(super) const STARTUP_PACING_GAIN: f64 = 2.77;
const DRAIN_PACING_GAIN: f64 = 0.5;
const CWND_GAIN: f64 = 2.0;
const CRUISE_CWND_GAIN: f64 = 1.5;

/// The window gain of Up. The draft has 2.25. Alongside CUBIC in a deep buffer, the queue that Up adds would
/// count as bandwidth for two cycles (ADR 15).
const UP_CWND_GAIN: f64 = 1.75;
/// The window gain of ProbeRTT. The draft has 0.5. Alongside CUBIC, that gain leaves so much queue that its
/// delay counts as delay of the path (ADR 15).
pub(super) const PROBE_RTT_CWND_GAIN: f64 = 0.1;

/// The minimum time between probes. A random time of up to a second is added.
pub(super) const PROBE_WAIT: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl State {
    pub(super) fn is_probe_bw(self) -> bool {
        matches!(self, State::Down | State::Cruise | State::Refill | State::Up)
    }

    /// Returns true while the flow deliberately sends more than before.
    pub(super) fn is_probing(self) -> bool {
        matches!(self, State::Startup | State::Refill | State::Up)
    }

    pub(super) fn pacing_gain(self) -> f64 {
        match self {
            State::Startup => STARTUP_PACING_GAIN,
            State::Drain => DRAIN_PACING_GAIN,
            State::Down => 0.90,
            State::Up => 1.25,
            State::Cruise | State::Refill | State::ProbeRtt => 1.0,
        }
    }

    pub(super) fn cwnd_gain(self) -> f64 {
        match self {
            State::Up => UP_CWND_GAIN,
            State::ProbeRtt => PROBE_RTT_CWND_GAIN,
            State::Down | State::Cruise => CRUISE_CWND_GAIN,
            _ => CWND_GAIN,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            State::Startup => "startup",
            State::Drain => "drain",
            State::Down => "down",
            State::Cruise => "cruise",
            State::Refill => "refill",
            State::Up => "up",
            State::ProbeRtt => "probe_rtt",
        }
    }
}

/// The state of the feedback on a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AckPhase {
    Idle,
    Refilling,
    /// Up has begun. The acknowledged packets were sent before it.
    Starting,
    /// The acknowledged packets were sent in Up.
    Feedback,
    /// Up is over. The acknowledged packets were sent in Up.
    Stopping,
}

/// The state of ProbeBW.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cycle {
    pub(super) started_at: Time,
    pub(super) wait: Duration,
    pub(super) rounds_since_probe: u64,
    pub(super) ack_phase: AckPhase,
    /// Feedback belongs to a probe to which the flow has not responded yet.
    pub(super) is_probe_sample: bool,
    /// Binary logarithm of the growth of the long-term bound in this round of Up.
    pub(super) up_rounds: u32,
    pub(super) up_acked: f64,
    pub(super) acked_per_increment: f64,
    /// The delivery rate that Up has found, in bytes a second; the queueing delay when Up began; and whether a round has passed
    /// without growth.
    pub(super) up_bandwidth: f64,
    pub(super) up_delay: Duration,
    pub(super) up_round_over: bool,
    pub(super) previous_too_high: bool,
    pub(super) previous_precautionary: bool,
}

impl Cycle {
    pub(super) fn new(now: Time) -> Cycle {
        Cycle {
            started_at: now,
            wait: PROBE_WAIT,
            rounds_since_probe: 0,
            ack_phase: AckPhase::Idle,
            is_probe_sample: false,
            up_rounds: 0,
            up_acked: 0.0,
            acked_per_increment: f64::INFINITY,
            up_bandwidth: 0.0,
            up_delay: Duration::ZERO,
            up_round_over: false,
            previous_too_high: false,
            previous_precautionary: false,
        }
    }

    /// Ends the probe, because ProbeRTT begins.
    pub(super) fn stop(&mut self) {
        self.ack_phase = AckPhase::Stopping;
    }
}

/// The progress of a ProbeRTT.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProbeRtt {
    /// The end of ProbeRTT. It is set once few enough bytes are in flight.
    pub(super) ends_at: Option<Time>,
    pub(super) round_over: bool,
    pub(super) saved_window: f64,
}

/// The bandwidth and round-trip time of a path, known before the flow starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hint {
    /// The bandwidth that an earlier session measured or the user allows.
    pub rate: BitRate,
    /// The minimal round-trip time of the earlier session. `None` if it was not measured.
    pub rtt: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Reconnaissance,
    Unvalidated { until: Time, from_delivered: u64 },
    Validating { until: Time, from_delivered: u64 },
    Normal,
}

/// The progress of the ramp.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ramp {
    pub(super) hint: Option<Hint>,
    pub(super) phase: Phase,
}

impl Ramp {
    pub(super) fn new(hint: Option<Hint>) -> Ramp {
        Ramp {
            hint,
            phase: if hint.is_some() {
                Phase::Reconnaissance
            } else {
                Phase::Normal
            },
        }
    }

    /// Returns true while loss causes the ramp's Retreat instead of the end of Startup.
    pub(super) fn retreats(&self) -> bool {
        matches!(self.phase, Phase::Unvalidated { .. } | Phase::Validating { .. })
    }
}
