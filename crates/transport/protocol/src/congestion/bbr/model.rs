//! BBR's model of the path (draft-ietf-ccwg-bbr, section 5.5): bandwidth, round-trip time, and the volume in
//! flight that the path holds.

use crate::congestion::{RateSample, Sample};
use millrace_types::{Duration, Time};
use std::collections::VecDeque;

/// The time for which a minimum of the round-trip time holds (draft-ietf-ccwg-bbr, MinRTTFilterLen).
const MIN_RTT_FILTER: Duration = Duration::from_secs(10);
/// The time without a round-trip time near the minimum after which ProbeRTT is due.
pub(super) const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);

/// The growth below which a round of Startup found no more bandwidth, as a factor.
const FULL_GROWTH: f64 = 1.25;
/// Rounds without growth after which the pipe is full.
const FULL_ROUNDS: u32 = 3;
/// The number of rounds over which the maximal aggregation of acknowledgements is kept.
const EXTRA_ACKED_ROUNDS: u64 = 10;

/// The largest delivery rate of this cycle and of the previous one, in bytes a second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MaxBandwidth {
    cycles: [f64; 2],
}

impl MaxBandwidth {
    pub(super) fn update(&mut self, sample: &RateSample) {
        let rate = sample.rate();
        if rate >= self.value() || !sample.app_limited {
            self.cycles[1] = self.cycles[1].max(rate);
        }
    }

    /// Begins a cycle. Values from before the previous cycle are discarded.
    pub(super) fn advance(&mut self) {
        if self.cycles[1] > 0.0 {
            self.cycles = [self.cycles[1], 0.0];
        }
    }

    pub(super) fn value(&self) -> f64 {
        self.cycles[0].max(self.cycles[1])
    }
}

/// A queueing delay that is tolerated: a share of the minimal round-trip time or a duration, whichever is longer, and the
/// jitter of the path in addition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tolerance {
    pub(super) share: f64,
    pub(super) least: Duration,
}

/// The minimal round-trip time of the last ten seconds, the variation of round-trip times, and the time of
/// the next ProbeRTT.
#[derive(Clone, Copy, Debug)]
pub(super) struct MinRtt {
    value: Option<Duration>,
    measured_at: Time,
    probe_value: Option<Duration>,
    probe_measured_at: Time,
    latest: Duration,
    jitter: Duration,
}

impl MinRtt {
    pub(super) fn new(now: Time) -> MinRtt {
        MinRtt {
            value: None,
            measured_at: now,
            probe_value: None,
            probe_measured_at: now,
            latest: Duration::ZERO,
            jitter: Duration::ZERO,
        }
    }

    /// Takes a sample; returns true if a ProbeRTT is due.
    pub(super) fn update(&mut self, now: Time, rtt: Option<Duration>, probe_interval: Duration) -> bool {
        let probe_due = now > self.probe_measured_at + probe_interval;
        let Some(rtt) = rtt else {
            return probe_due;
        };
        if self.value.is_some() {
            // RFC 3550, section 6.4.1: the mean difference of consecutive samples, with a gain of 1/16.
            self.jitter = (15 * self.jitter + rtt.abs_diff(self.latest)) / 16;
        }
        self.latest = rtt;
        if probe_due || self.probe_value.is_none_or(|least| rtt < least) {
            self.probe_value = Some(rtt);
            self.probe_measured_at = now;
        }
        let expired = now > self.measured_at + MIN_RTT_FILTER;
        if expired || self.value.is_none_or(|least| Some(least) > self.probe_value) {
            self.value = self.probe_value;
            self.measured_at = self.probe_measured_at;
        }
        probe_due
    }

    /// Replaces the minimum by the round-trip time of a new path.
    pub(super) fn replace(&mut self, now: Time, rtt: Duration) {
        (self.value, self.probe_value) = (Some(rtt), Some(rtt));
        self.refresh(now);
    }

    /// Postpones the next ProbeRTT, because the path had no queue or because ProbeRTT is over.
    pub(super) fn refresh(&mut self, now: Time) {
        self.probe_measured_at = now;
        self.measured_at = now;
    }

    pub(super) fn value(&self) -> Option<Duration> {
        self.value
    }

    /// Returns the excess of the latest sample over the minimum.
    pub(super) fn queueing_delay(&self) -> Duration {
        self.latest.saturating_sub(self.value.unwrap_or(self.latest))
    }

    /// Returns the jitter of the path, at most a tenth of the minimum: the delay of a queue varies, too.
    pub(super) fn jitter(&self) -> Duration {
        self.jitter.min(self.value.unwrap_or_default() / 10)
    }

    /// Returns true if the latest sample exceeds the minimum by at most a tolerance.
    pub(super) fn is_near(&self, tolerance: Tolerance) -> bool {
        self.is_within(Duration::ZERO, tolerance)
    }

    /// Returns true if the queueing delay exceeds `delay` by at most a tolerance.
    pub(super) fn is_within(&self, delay: Duration, tolerance: Tolerance) -> bool {
        let share = self.value.unwrap_or_default().mul_f64(tolerance.share);
        self.queueing_delay() <= delay + share.max(tolerance.least) + self.jitter()
    }
}

/// The count of rounds. A round ends when a packet is acknowledged that was sent after the end of the
/// previous round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rounds {
    next_delivered: u64,
    pub(super) count: u64,
    /// True if the current feedback ends a round.
    pub(super) starts: bool,
}

impl Rounds {
    pub(super) fn update(&mut self, sample: &Sample) {
        self.starts = sample
            .rate
            .is_some_and(|rate| rate.prior_delivered >= self.next_delivered);
        if self.starts {
            self.count += 1;
            self.restart(sample.delivered);
        }
    }

    /// Makes the current round end with the first packet sent from now on.
    pub(super) fn restart(&mut self, delivered: u64) {
        self.next_delivered = delivered;
    }
}

/// The full-pipe estimator (draft-ietf-ccwg-bbr, section 5.3.1.2): detects a plateau of the delivery rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullPipe {
    bandwidth: f64,
    rounds: u32,
    /// True if there is a plateau since the last reset.
    pub(super) now: bool,
    /// True once there was any plateau: Startup is over.
    pub(super) reached: bool,
}

impl FullPipe {
    pub(super) fn reset(&mut self, bandwidth: f64) {
        (self.bandwidth, self.rounds, self.now) = (bandwidth, 0, false);
    }

    pub(super) fn update(&mut self, rate: &RateSample, round_starts: bool) {
        if self.now || rate.app_limited {
            return;
        }
        if rate.rate() >= self.bandwidth * FULL_GROWTH {
            self.reset(rate.rate());
            return;
        }
        if round_starts {
            self.rounds += 1;
            self.now = self.rounds >= FULL_ROUNDS;
            self.reached |= self.now;
        }
    }
}

/// The degree of aggregation of acknowledgements (draft-ietf-ccwg-bbr, section 5.5.9): the bytes acknowledged
/// in excess of the bandwidth.
#[derive(Clone, Debug, Default)]
pub(super) struct ExtraAcked {
    since: Time,
    delivered: u64,
    /// Descending maxima by round: the first is the maximum of the window.
    maxima: VecDeque<Maximum>,
}

/// The most bytes that were acknowledged in excess of the bandwidth in one round.
#[derive(Clone, Copy, Debug)]
struct Maximum {
    round: u64,
    extra: u64,
}

impl ExtraAcked {
    pub(super) fn update(&mut self, sample: &Sample, bandwidth: f64, window: u64, round: u64, full: bool) {
        let mut expected = bandwidth * sample.now.since(self.since).as_secs_f64();
        if self.delivered as f64 <= expected {
            (self.delivered, self.since, expected) = (0, sample.now, 0.0);
        }
        self.delivered += sample.acked;
        let extra = crate::congestion::bytes((self.delivered as f64 - expected).max(0.0)).min(window);
        while self.maxima.back().is_some_and(|other| other.extra <= extra) {
            self.maxima.pop_back();
        }
        self.maxima.push_back(Maximum { round, extra });
        let rounds = if full { EXTRA_ACKED_ROUNDS } else { 1 };
        while self
            .maxima
            .front()
            .is_some_and(|first| first.round + rounds < round)
        {
            self.maxima.pop_front();
        }
    }

    pub(super) fn value(&self) -> u64 {
        self.maxima.front().map_or(0, |first| first.extra)
    }
}

/// The delivery process of the last round, and the bounds that losses set (draft-ietf-ccwg-bbr,
/// section 5.5.10).
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    round_delivered: u64,
    /// True if the current feedback ends a round in this structure's count of rounds.
    pub(super) round_starts: bool,
    pub(super) bandwidth_latest: f64,
    pub(super) inflight_latest: f64,
    pub(super) bandwidth_shortterm: f64,
    pub(super) inflight_shortterm: f64,
    pub(super) inflight_longterm: f64,
    /// True if the bottleneck had a queue when the long-term bound was set. A policer has no queue: it limits
    /// a rate, not a volume.
    pub(super) has_queue: bool,
}

/// The factor of a reduction, the same as CUBIC's.
pub(super) const BETA: f64 = 0.7;

impl Bounds {
    pub(super) fn new() -> Bounds {
        Bounds {
            round_delivered: 0,
            round_starts: false,
            bandwidth_latest: 0.0,
            inflight_latest: 0.0,
            bandwidth_shortterm: f64::INFINITY,
            inflight_shortterm: f64::INFINITY,
            inflight_longterm: f64::INFINITY,
            has_queue: true,
        }
    }

    /// Copies the count of rounds from `other`, so that it continues when the model restarts.
    pub(super) fn continue_rounds(&mut self, other: &Bounds) {
        self.round_delivered = other.round_delivered;
    }

    /// Updates the latest delivery signals. Runs before the other steps of a feedback (draft-ietf-ccwg-bbr,
    /// section 5.5.10).
    pub(super) fn update_latest(&mut self, sample: &Sample, rate: &RateSample) {
        self.bandwidth_latest = self.bandwidth_latest.max(rate.rate());
        self.inflight_latest = self.inflight_latest.max(rate.delivered as f64);
        self.round_starts = rate.prior_delivered >= self.round_delivered;
        if self.round_starts {
            self.round_delivered = sample.delivered;
        }
    }

    /// Resets the latest delivery signals after a round. Runs after the other steps of a feedback.
    pub(super) fn advance_latest(&mut self, rate: &RateSample) {
        if self.round_starts {
            self.bandwidth_latest = rate.rate();
            self.inflight_latest = rate.delivered as f64;
        }
    }

    pub(super) fn reset_latest(&mut self) {
        (self.bandwidth_latest, self.inflight_latest) = (0.0, 0.0);
    }

    pub(super) fn reset_shortterm(&mut self) {
        (self.bandwidth_shortterm, self.inflight_shortterm) = (f64::INFINITY, f64::INFINITY);
    }

    /// Lowers the short-term bounds after a round that lost more than the floor.
    pub(super) fn yield_to_loss(&mut self, max_bandwidth: f64, window: f64) {
        if self.bandwidth_shortterm.is_infinite() {
            self.bandwidth_shortterm = max_bandwidth;
        }
        if self.inflight_shortterm.is_infinite() {
            self.inflight_shortterm = window;
        }
        self.bandwidth_shortterm = self.bandwidth_latest.max(BETA * self.bandwidth_shortterm);
        self.inflight_shortterm = self.inflight_latest.max(BETA * self.inflight_shortterm);
    }
}
