//! BBR version 1 (Cardwell et al., ACM Queue 14(5), 2016; draft-cardwell-iccrg-bbr-congestion-control-00), the `bbr` of Linux.
//!
//! It does not respond to loss.

use super::round_to_bytes;
use millrace_transport::congestion::{Controller, Departure, INITIAL_WINDOW, RateSample, Sample, Tag};
use millrace_types::{BitRate, Duration, Time};
use std::collections::VecDeque;

/// The gain of Startup, 2/ln 2; the pacing gains of the cycle of ProbeBW; the windows of the filters; the time in ProbeRTT. All are
/// those of the draft.
const HIGH_GAIN: f64 = 2.885;
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const BANDWIDTH_ROUNDS: u64 = 10;
const MIN_RTT_TIME: Duration = Duration::from_secs(10);
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
// The other constants are those of `tcp_bbr.c` in Linux.
/// The gain of the window in ProbeBW.
const WINDOW_GAIN: f64 = 2.0;
/// The growth below which a round found no more bandwidth, as a factor, and the rounds after which the pipe is full.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// The smallest window, in packets.
const WINDOW_MIN: f64 = 4.0;
/// The packets that the window covers in addition: three segments of offload, here of one packet each.
const OFFLOAD_PACKETS: f64 = 3.0;
/// The round-trip time before the first sample, in seconds.
const RTT_INITIAL_S: f64 = 0.001;
/// The share of a BDP that one feedback acknowledges: there are 32 in a round.
const FEEDBACK_SHARE: f64 = 1.0 / 32.0;

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Startup,
    Drain,
    ProbeBandwidth { phase: usize, since: Time },
    ProbeRtt { until: Option<Time> },
}

/// The largest delivery rate of a round.
#[derive(Clone, Copy, Debug)]
struct Maximum {
    round: u64,
    /// Bytes a second.
    rate: f64,
}

/// BBR version 1.
#[derive(Clone, Debug)]
pub struct Bbr1 {
    packet: f64,
    state: State,
    window: f64,
    pacing_rate: f64,
    /// Descending maxima by round.
    bandwidth: VecDeque<Maximum>,
    round: u64,
    next_delivered: u64,
    min_rtt: Option<Duration>,
    min_rtt_at: Time,
    full_bandwidth: f64,
    full_rounds: u32,
    full: bool,
}

impl Bbr1 {
    /// Returns a controller for packets of this size.
    pub fn new(packet_size: u64) -> Bbr1 {
        let packet = packet_size as f64;
        let window = INITIAL_WINDOW as f64 * packet;
        Bbr1 {
            packet,
            state: State::Startup,
            window,
            pacing_rate: HIGH_GAIN * window / RTT_INITIAL_S,
            bandwidth: VecDeque::new(),
            round: 0,
            next_delivered: 0,
            min_rtt: None,
            min_rtt_at: Time::ZERO,
            full_bandwidth: 0.0,
            full_rounds: 0,
            full: false,
        }
    }

    fn max_bandwidth(&self) -> f64 {
        self.bandwidth.front().map_or(0.0, |maximum| maximum.rate)
    }

    fn bdp(&self) -> f64 {
        self.min_rtt
            .map_or(self.window, |rtt| self.max_bandwidth() * rtt.as_secs_f64())
    }

    fn update_bandwidth(&mut self, sample: &Sample, rate: &RateSample) -> bool {
        let round_starts = rate.prior_delivered >= self.next_delivered;
        if round_starts {
            self.round += 1;
            self.next_delivered = sample.delivered;
        }
        let (round, value) = (self.round, rate.rate());
        if !rate.app_limited || value >= self.max_bandwidth() {
            while self.bandwidth.back().is_some_and(|last| last.rate <= value) {
                self.bandwidth.pop_back();
            }
            self.bandwidth.push_back(Maximum { round, rate: value });
        }
        let oldest = self.round.saturating_sub(BANDWIDTH_ROUNDS);
        while self.bandwidth.len() > 1 && self.bandwidth.front().is_some_and(|first| first.round < oldest) {
            self.bandwidth.pop_front();
        }
        round_starts
    }

    fn check_full(&mut self, round_starts: bool, app_limited: bool) {
        if self.full || !round_starts || app_limited {
            return;
        }
        if self.max_bandwidth() >= FULL_GROWTH * self.full_bandwidth {
            self.full_bandwidth = self.max_bandwidth();
            self.full_rounds = 0;
            return;
        }
        self.full_rounds += 1;
        self.full = self.full_rounds >= FULL_ROUNDS;
    }

    fn advance(&mut self, sample: &Sample) {
        let (now, in_flight) = (sample.now, sample.in_flight as f64);
        match self.state {
            State::Startup if self.full => self.state = State::Drain,
            State::Drain if in_flight <= self.bdp() => self.probe_bandwidth(now),
            State::ProbeBandwidth { phase, since } => {
                let elapsed = now.since(since) > self.min_rtt.unwrap_or_default();
                let over = match CYCLE[phase] {
                    gain if gain > 1.0 => elapsed && (sample.lost > 0 || in_flight >= gain * self.bdp()),
                    gain if gain < 1.0 => elapsed || in_flight <= self.bdp(),
                    _ => elapsed,
                };
                if over {
                    self.state = State::ProbeBandwidth {
                        phase: (phase + 1) % CYCLE.len(),
                        since: now,
                    };
                }
            }
            _ => {}
        }
    }

    fn probe_bandwidth(&mut self, now: Time) {
        // The first phase is any phase except the draining one. The clock supplies the randomness.
        let phase = [0, 2, 3, 4, 5, 6, 7][usize::try_from(now.nanos() / 1_000 % 7).unwrap_or(0)];
        self.state = State::ProbeBandwidth { phase, since: now };
    }

    fn update_min_rtt(&mut self, sample: &Sample) {
        let expired = sample.now > self.min_rtt_at + MIN_RTT_TIME;
        if let Some(rtt) = sample.rtt
            && (expired || self.min_rtt.is_none_or(|least| rtt <= least))
        {
            self.min_rtt = Some(rtt);
            self.min_rtt_at = sample.now;
        }
        if expired && !matches!(self.state, State::ProbeRtt { .. }) {
            self.state = State::ProbeRtt { until: None };
        }
        if let State::ProbeRtt { until } = self.state {
            match until {
                None if sample.in_flight as f64 <= WINDOW_MIN * self.packet => {
                    let round = self.min_rtt.unwrap_or_default().max(PROBE_RTT_TIME);
                    self.state = State::ProbeRtt {
                        until: Some(sample.now + round),
                    };
                }
                Some(until) if sample.now > until => {
                    self.min_rtt_at = sample.now;
                    if self.full {
                        self.probe_bandwidth(sample.now);
                    } else {
                        self.state = State::Startup;
                    }
                }
                _ => {}
            }
        }
    }
}

impl Controller for Bbr1 {
    fn on_send(&mut self, _: &Departure) -> Tag {
        Tag::default()
    }

    fn on_feedback(&mut self, sample: &Sample) {
        if let Some(rate) = &sample.rate {
            let round_starts = self.update_bandwidth(sample, rate);
            self.check_full(round_starts, rate.app_limited);
            self.advance(sample);
        }
        self.update_min_rtt(sample);
        let (pacing_gain, window_gain) = match self.state {
            State::Startup => (HIGH_GAIN, HIGH_GAIN),
            State::Drain => (1.0 / HIGH_GAIN, HIGH_GAIN),
            State::ProbeBandwidth { phase, .. } => (CYCLE[phase], WINDOW_GAIN),
            State::ProbeRtt { .. } => (1.0, 1.0),
        };
        let rate = pacing_gain * self.max_bandwidth();
        if self.full || rate > self.pacing_rate || self.round <= 1 {
            self.pacing_rate = rate.max(self.packet);
        }
        // Linux adds the aggregation of acknowledgements.
        let target = window_gain * self.bdp() * (1.0 + FEEDBACK_SHARE) + OFFLOAD_PACKETS * self.packet;
        let acked = sample.acked as f64;
        self.window = if self.full {
            (self.window + acked).min(target)
        } else {
            self.window + acked
        }
        .max(WINDOW_MIN * self.packet);
    }

    fn on_breaker(&mut self, _: Time) {}

    fn window(&self) -> u64 {
        if matches!(self.state, State::ProbeRtt { .. }) {
            return round_to_bytes(WINDOW_MIN * self.packet);
        }
        round_to_bytes(self.window)
    }

    fn pacing_rate(&self) -> Option<BitRate> {
        Some(BitRate::from_bps(round_to_bytes(self.pacing_rate * 8.0)))
    }

    fn state(&self) -> &'static str {
        match self.state {
            State::Startup => "startup",
            State::Drain => "drain",
            State::ProbeBandwidth { .. } => "probe_bw",
            State::ProbeRtt { .. } => "probe_rtt",
        }
    }
}
