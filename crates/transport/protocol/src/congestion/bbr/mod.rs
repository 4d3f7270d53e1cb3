//! The state machine of BBR version 3 (draft-ietf-ccwg-bbr) with a loss floor ([`evidence`], ADR 15).
//!
//! ```text
//!            plateau of the delivery rate          in flight <= BDP
//!   Startup ─────────────────────────────> Drain ───────────────────┐
//!      ^     or loss and a longer RTT                               v
//!      │ breaker                        ┌──────────────────────> Down (0.90)
//!      │                                │ plateau with a queue,     │ in flight <= BDP
//!      │                                │ or Up loses more          v
//!      │                               Up (1.25)                 Cruise (1.0)
//!      │                                ^ one round                 │ 2..3 s, or 62..63 rounds
//!      │                                └────── Refill (1.0) <──────┘
//!   any state ── no RTT near the minimum for 5 s ──> ProbeRTT (0.1 BDP, 200 ms and a round) ──> Cruise
//! ```
//!
//! Differences from the draft, and their reasons:
//! 1. Loss counts only as far as it is above the floor, or depends on the rate ([`evidence`]).
//! 2. Up also ends when a queue of a fifth of the BDP has formed and the delivery rate does not grow. The
//!    draft's three rounds of plateau would queue 0.75 BDP.
//! 3. The pacing rate is divided by 1 − p₀: to keep the path full, the flow must also send the share that the
//!    path loses at random.
//! 4. ProbeRTT costs 6 % at 400 ms. It is skipped if Down measured a round-trip time near the minimum.
//! 5. ProbeRTT leaves a tenth of a BDP in flight instead of half a BDP, and Up has a window of 1.75 BDP
//!    instead of 2.25. So the measured minimal round-trip time remains that of the path alongside CUBIC in a
//!    deep buffer.
//! 6. A path that becomes longer in one step replaces the minimal round-trip time at once ([`path_change`]).
//! 7. A hint (`--rate`, or the bandwidth of the last session) replaces most of Startup ([`ramp`], RFC 9959).

mod cycle;
mod evidence;
mod model;
mod path_change;
mod probe_rtt;
mod ramp;
mod state;

pub use state::Hint;

use super::{
    Controller, Departure, Dose, INITIAL_WINDOW, MINIMUM_WINDOW, Sample, TAGS, Tag, bit_rate, bytes,
};
use crate::pacing::{QUANTUM, QUANTUM_PACKETS_MIN};
use crate::packet::VARINT_MAX;
use crate::random::Random;
use evidence::{Counts, DoseResponse, LossFloor};
use millrace_types::{BitRate, Duration, Time};
use model::{
    BETA, Bounds, ExtraAcked, FullPipe, MaxBandwidth, MinRtt, PROBE_RTT_INTERVAL, Rounds, Tolerance,
};
use path_change::PathChange;
use state::{Cycle, ProbeRtt, Ramp, STARTUP_PACING_GAIN, State};

/// The queueing time that the window of Down and Cruise covers in addition to a BDP. So a flow with a short
/// round-trip time can share a queue with other flows.
const SHARED_QUEUE: Duration = Duration::from_millis(20);
/// The share by which the pacing rate stays below the bandwidth.
const PACING_MARGIN: f64 = 0.01;
/// The share of the long-term bound that Cruise leaves to others.
const HEADROOM: f64 = 0.15;
/// The number of packets in a round from which loss may end Startup without a longer round-trip time.
const STARTUP_LOSS_PACKETS: f64 = 2_000.0;
/// The loss above the tolerated share from which a round is congested (draft-ietf-ccwg-bbr, BBR.LossThresh).
const LOSS_THRESHOLD: f64 = 0.02;
/// The quanta that the window covers in addition, so that a quantum at the sender and one at the receiver do not
/// stop the flow (draft-ietf-ccwg-bbr, section 5.5.8, BBR.offload_budget).
const OFFLOAD_QUANTA: f64 = 3.0;
/// The packets by which the window of Up is larger, so that a short path can be probed (draft-ietf-ccwg-bbr,
/// BBRQuantizationBudget).
const UP_PACKETS: f64 = 2.0;
/// The queueing delay up to which a packet counts as calm.
const CALM: Tolerance = Tolerance {
    share: 0.05,
    least: TIMER_DELAY,
};
/// The queueing delay from which high loss ends Startup.
const STARTUP_QUEUE: Tolerance = Tolerance {
    share: 0.25,
    least: TIMER_DELAY,
};
/// The delay that timers and schedulers of both ends cause without a queue.
const TIMER_DELAY: Duration = Duration::from_millis(1);
/// The shortest round-trip time that a rate is computed from, in seconds.
const RTT_MIN_S: f64 = 1e-6;

/// The default cap of the loss floor, as a share of packets.
pub const LOSS_TOLERANCE: f64 = 0.05;
/// The largest `--loss-tolerance`, as a share of packets.
pub const LOSS_TOLERANCE_MAX: f64 = 0.15;

/// The configuration at the start.
#[derive(Clone, Copy, Debug)]
pub struct BbrConfig {
    /// Bytes of a full IP packet.
    pub packet_size: u64,
    /// The cap of the loss floor, at most [`LOSS_TOLERANCE_MAX`].
    pub loss_tolerance: f64,
    /// An upper bound of the pacing rate.
    pub rate_limit: Option<BitRate>,
    /// The bandwidth and round-trip time of the path, if an earlier session or the user gave them.
    pub hint: Option<Hint>,
    /// The round-trip time of the control channel's handshake.
    pub initial_rtt: Option<Duration>,
    /// The most bytes that the control channel delivered in a round trip, on the same path just before. The initial window is no
    /// smaller (as RFC 9040, section 6.2, shares what a connection has learned).
    pub delivered_before: u64,
    /// Seeds the random waits between probes.
    pub seed: u64,
}

impl BbrConfig {
    /// Returns the default configuration for packets of this size.
    pub fn new(packet_size: u64, seed: u64) -> BbrConfig {
        BbrConfig {
            packet_size,
            loss_tolerance: LOSS_TOLERANCE,
            rate_limit: None,
            hint: None,
            initial_rtt: None,
            delivered_before: 0,
            seed,
        }
    }

    /// Returns the initial window in bytes.
    fn initial_window(&self) -> f64 {
        (INITIAL_WINDOW * self.packet_size).max(self.delivered_before) as f64
    }
}

/// BBR version 3 with a loss floor.
#[derive(Clone, Debug)]
pub struct Bbr {
    config: BbrConfig,
    random: Random,
    state: State,
    window: f64,
    /// Bytes a second.
    pacing_rate: f64,
    max_bandwidth: MaxBandwidth,
    min_rtt: MinRtt,
    path_change: PathChange,
    rounds: Rounds,
    full_pipe: FullPipe,
    extra_acked: ExtraAcked,
    bounds: Bounds,
    floor: LossFloor,
    doses: DoseResponse,
    /// The outcomes of the packets of the current round.
    round: Counts,
    ce_in_round: bool,
    cycle: Cycle,
    probe_rtt: ProbeRtt,
    ramp: Ramp,
}

impl Bbr {
    /// Returns a controller for a flow that starts now.
    pub fn new(config: BbrConfig, now: Time) -> Bbr {
        let window = config.initial_window();
        let rtt = config.initial_rtt.unwrap_or(Duration::from_millis(1));
        Bbr {
            config,
            random: Random::new(config.seed),
            state: State::Startup,
            window,
            pacing_rate: STARTUP_PACING_GAIN * window / rtt.as_secs_f64().max(RTT_MIN_S),
            max_bandwidth: MaxBandwidth::default(),
            min_rtt: MinRtt::new(now),
            path_change: PathChange::default(),
            rounds: Rounds::default(),
            full_pipe: FullPipe::default(),
            extra_acked: ExtraAcked::default(),
            bounds: Bounds::new(),
            floor: LossFloor::new(config.loss_tolerance.clamp(0.0, LOSS_TOLERANCE_MAX), now),
            doses: DoseResponse::default(),
            round: Counts::default(),
            ce_in_round: false,
            cycle: Cycle::new(now),
            probe_rtt: ProbeRtt::default(),
            ramp: Ramp::new(config.hint),
        }
    }

    /// Returns the share of loss that does not count as congestion.
    pub fn loss_floor(&self) -> f64 {
        self.floor.known()
    }

    fn packet(&self) -> f64 {
        self.config.packet_size as f64
    }

    fn min_window(&self) -> f64 {
        (MINIMUM_WINDOW * self.config.packet_size) as f64
    }

    /// Returns the bandwidth in bytes a second, within the short-term bound.
    fn usable_bandwidth(&self) -> f64 {
        self.max_bandwidth.value().min(self.bounds.bandwidth_shortterm)
    }

    /// Returns the bandwidth-delay product.
    fn bdp(&self, bandwidth: f64) -> f64 {
        match self.min_rtt.value() {
            Some(rtt) => bandwidth * rtt.as_secs_f64(),
            None => self.config.initial_window(),
        }
    }

    fn target_in_flight(&self) -> f64 {
        self.bdp(self.usable_bandwidth()).min(self.window)
    }

    /// Returns the bytes that Cruise may have in flight: the long-term bound less a headroom for other flows.
    fn in_flight_with_headroom(&self) -> f64 {
        let longterm = self.bounds.inflight_longterm;
        if longterm.is_infinite() {
            return longterm;
        }
        let bound = longterm - (HEADROOM * longterm).max(self.packet());
        let least = if self.bounds.has_queue {
            self.min_window()
        } else {
            self.bdp(self.max_bandwidth.value())
        };
        bound.max(least)
    }

    fn count_outcomes(&mut self, sample: &Sample) {
        let of = |dose, calm| &sample.outcomes[Tag::new(dose, calm).index()];
        for dose in [Dose::Other, Dose::Down, Dose::Up] {
            self.floor.add(sample.now, of(dose, true));
        }
        for calm in [false, true] {
            self.doses.add(of(Dose::Up, calm), of(Dose::Down, calm));
        }
        for tag in 0..TAGS {
            self.round.add(&sample.outcomes[tag]);
        }
        self.ce_in_round |= sample.ce > 0;
    }

    /// Reduces the bounds once a round if loss exceeds the floor (draft-ietf-ccwg-bbr, section 5.5.10.3). The
    /// draft reduces them for any loss.
    fn adapt_to_round(&mut self) {
        if !self.bounds.round_starts {
            return;
        }
        let congested = self.ce_in_round || self.floor.is_exceeded(&self.round);
        if congested && !self.state.is_probing() {
            self.bounds.yield_to_loss(self.max_bandwidth.value(), self.window);
        }
        self.round = Counts::default();
        self.ce_in_round = false;
    }

    /// Leaves Startup when the pipe is full. Also leaves it at high loss, if the round-trip time is longer or
    /// the round has enough packets to exclude chance.
    fn check_startup(&mut self) {
        if self.state != State::Startup {
            return;
        }
        let cap = self.config.loss_tolerance + LOSS_THRESHOLD;
        let queued = !self.min_rtt.is_near(STARTUP_QUEUE);
        let lossy = self.bounds.round_starts
            && self.floor.is_exceeded(&self.round)
            && self.round.loss() > cap
            && (queued || self.round.packets() >= STARTUP_LOSS_PACKETS);
        if lossy && !self.ramp.retreats() {
            self.full_pipe.reached = true;
            let latest = self.bounds.inflight_latest;
            self.bounds.inflight_longterm = self.bdp(self.max_bandwidth.value()).max(latest);
        }
        if self.full_pipe.reached {
            self.state = State::Drain;
        }
    }

    fn check_drain(&mut self, sample: &Sample) {
        if self.state == State::Drain && sample.in_flight as f64 <= self.bdp(self.max_bandwidth.value()) {
            self.start_down(sample);
        }
    }

    /// Takes the round-trip time of a path that became longer as the minimum.
    fn check_path(&mut self, sample: &Sample) {
        let minimum = self.min_rtt.value().unwrap_or_default();
        let bandwidth = self.max_bandwidth.value();
        if let Some(rtt) = self.path_change.update(sample, minimum, bandwidth) {
            self.min_rtt.replace(sample.now, rtt);
            // The bounds were those of the volume on the shorter path.
            self.bounds.reset_shortterm();
            self.bounds.inflight_longterm += bandwidth * rtt.saturating_sub(minimum).as_secs_f64();
        }
    }

    fn set_pacing_rate(&mut self) {
        let sent_for_delivered = 1.0 - self.floor.known();
        let rate =
            self.state.pacing_gain() * self.usable_bandwidth() * (1.0 - PACING_MARGIN) / sent_for_delivered;
        if self.full_pipe.reached || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    fn set_window(&mut self, sample: &Sample) {
        let gain = self.state.cwnd_gain();
        let quantum = self.pacing_rate * QUANTUM.as_secs_f64();
        let budget = (QUANTUM_PACKETS_MIN as f64 * self.packet()).max(OFFLOAD_QUANTA * quantum);
        let bdp = self.bdp(self.usable_bandwidth());
        let mut room = gain * bdp;
        if matches!(self.state, State::Down | State::Cruise) {
            room = room.max(bdp + self.usable_bandwidth() * SHARED_QUEUE.as_secs_f64());
        }
        let mut most = (room + self.extra_acked.value() as f64).max(self.min_window()) + budget;
        if self.state == State::Up {
            most += UP_PACKETS * self.packet();
        }
        let acked = sample.acked as f64;
        if self.full_pipe.reached {
            self.window = (self.window + acked).min(most);
        } else if self.window < most || (sample.delivered as f64) < self.config.initial_window() {
            self.window += acked;
        }
        let cap = match self.state {
            State::Down | State::Refill | State::Up => self.bounds.inflight_longterm,
            State::Cruise | State::ProbeRtt => self.in_flight_with_headroom(),
            State::Startup | State::Drain => f64::INFINITY,
        };
        let cap = cap.min(self.bounds.inflight_shortterm).max(self.min_window());
        let mut window = self.window.max(self.min_window()).min(cap);
        if self.state == State::ProbeRtt {
            window = window.min(self.probe_rtt_window());
        }
        self.window = window.min(VARINT_MAX as f64);
    }
}

impl Controller for Bbr {
    fn on_send(&mut self, departure: &Departure) -> Tag {
        if departure.app_limited && departure.in_flight == 0 && self.state.is_probe_bw() {
            self.pacing_rate = self.usable_bandwidth();
        }
        let dose = match self.state {
            State::Up => Dose::Up,
            State::Down => Dose::Down,
            _ => Dose::Other,
        };
        let calm = departure.in_flight as f64 <= self.bdp(self.max_bandwidth.value())
            && self.state != State::Startup
            && self.min_rtt.is_near(CALM);
        Tag::new(dose, calm)
    }

    fn on_feedback(&mut self, sample: &Sample) {
        self.count_outcomes(sample);
        if self.min_rtt.value().is_none()
            && let Some(rtt) = sample.rtt
        {
            self.pacing_rate = STARTUP_PACING_GAIN * self.window / rtt.as_secs_f64().max(RTT_MIN_S);
        }
        let probe_due = self.min_rtt.update(sample.now, sample.rtt, PROBE_RTT_INTERVAL);
        self.check_path(sample);
        if let Some(rate) = &sample.rate {
            self.bounds.update_latest(sample, rate);
            self.rounds.update(sample);
            self.max_bandwidth.update(rate);
            self.full_pipe.update(rate, self.rounds.starts);
            self.check_startup();
            self.adapt_to_round();
            self.extra_acked.update(
                sample,
                self.usable_bandwidth(),
                bytes(self.window),
                self.rounds.count,
                self.full_pipe.reached,
            );
            self.check_drain(sample);
            self.update_cycle(sample, rate);
        }
        self.check_probe_rtt(sample, probe_due);
        if let Some(rate) = &sample.rate {
            self.bounds.advance_latest(rate);
        }
        self.set_pacing_rate();
        self.set_window(sample);
        self.update_ramp(sample);
    }

    fn set_packet_size(&mut self, packet_size: u64) {
        self.config.packet_size = packet_size;
    }

    fn on_breaker(&mut self, now: Time) {
        let fresh = Bbr::new(
            BbrConfig {
                hint: None,
                // The bytes that the path delivered before it broke do not describe it now.
                delivered_before: 0,
                initial_rtt: self.min_rtt.value(),
                seed: self.random.next(),
                ..self.config
            },
            now,
        );
        let (floor, delivered) = (self.floor, self.bounds);
        *self = fresh;
        self.floor = floor;
        self.bounds.continue_rounds(&delivered);
    }

    fn window(&self) -> u64 {
        bytes(self.window)
    }

    fn pacing_rate(&self) -> Option<BitRate> {
        let rate = bit_rate(self.pacing_rate);
        Some(self.config.rate_limit.map_or(rate, |limit| limit.min(rate)))
    }

    fn state(&self) -> &'static str {
        self.state.name()
    }

    fn bandwidth(&self) -> Option<BitRate> {
        (self.max_bandwidth.value() > 0.0).then(|| bit_rate(self.max_bandwidth.value()))
    }
}
