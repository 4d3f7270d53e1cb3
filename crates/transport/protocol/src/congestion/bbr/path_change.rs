//! Detection of a path that became longer.
//!
//! The minimal round-trip time is that of the last ten seconds, so that a queue does not become part of it. After a
//! handover to a path of five times the delay, the window would be a fifth of the bandwidth-delay product for that time,
//! and the flow would then have to find the bandwidth again.
//!
//! A path that becomes longer differs from a queue in three ways, and all of them count:
//!
//! ```text
//!  round-trip time                        1. a step: for as long as the path became longer, nothing arrives;
//!        ________________ after              a queue grows while packets arrive
//!       |                                 2. it stays: a stall of the path is followed by a burst, after
//!  _____|  before                            which the round-trip time is as before
//!       gap                               3. packets then arrive as fast as before: a bottleneck that became
//!                                            slower queues them, and they arrive at its rate
//! ```

use crate::congestion::Sample;
use millrace_types::{Duration, Time};

/// The step from which a path may have changed: this share of the minimal round-trip time, and a duration.
const STEP: (f64, Duration) = (0.25, Duration::from_millis(5));
/// The share of the step by which all later round-trip times must exceed the one before it.
const STAYS: f64 = 0.75;
/// The share of the bandwidth at which packets must arrive after the step, between two feedback packets.
const ARRIVES: f64 = 0.5;
/// The rounds in which no round-trip time is shorter.
const ROUNDS: u32 = 2;

/// A step that may be a longer path.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    /// The least round-trip time that confirms the step.
    bound: Duration,
    least: Duration,
    /// The largest rate of arrival since, in bytes a second.
    arrival_rate: f64,
    /// A packet that was sent when this many bytes were delivered ends the round.
    round_delivered: u64,
    rounds: u32,
}

/// The state of the detection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PathChange {
    /// The time of the latest feedback, and its round-trip time.
    latest: Option<(Time, Duration)>,
    candidate: Option<Candidate>,
}

impl PathChange {
    /// Takes a feedback. Returns the round-trip time of the new path once it is certain. `minimum` is the minimal
    /// round-trip time so far, `bandwidth` that of the path in bytes a second.
    pub(super) fn update(&mut self, sample: &Sample, minimum: Duration, bandwidth: f64) -> Option<Duration> {
        let rtt = sample.rtt?;
        let (at, before) = self.latest.replace((sample.now, rtt))?;
        let gap = sample.now.since(at);
        let Some(candidate) = &mut self.candidate else {
            let step = rtt.saturating_sub(before);
            if step >= minimum.mul_f64(STEP.0).max(STEP.1) && 2 * step >= gap {
                self.candidate = Some(Candidate {
                    bound: before + step.mul_f64(STAYS),
                    least: rtt,
                    arrival_rate: 0.0,
                    round_delivered: sample.delivered,
                    rounds: 0,
                });
            }
            return None;
        };
        candidate.least = candidate.least.min(rtt);
        let rate = sample.acked as f64 / gap.as_secs_f64().max(1e-6);
        candidate.arrival_rate = candidate.arrival_rate.max(rate);
        if candidate.least < candidate.bound {
            self.candidate = None;
            return None;
        }
        if sample
            .rate
            .is_some_and(|rate| rate.prior_delivered >= candidate.round_delivered)
        {
            candidate.rounds += 1;
            candidate.round_delivered = sample.delivered;
        }
        if candidate.rounds < ROUNDS {
            return None;
        }
        let candidate = self.candidate.take()?;
        (candidate.arrival_rate >= ARRIVES * bandwidth).then_some(candidate.least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::{Outcome, RateSample, TAGS};

    const BANDWIDTH: f64 = 6.25e6;
    const MINIMUM: Duration = Duration::from_millis(40);

    /// Feeds round-trip times in milliseconds, each with the time since the one before and the bytes that arrived. Every
    /// tenth ends a round. Returns the first detection.
    fn detect(samples: impl Iterator<Item = (u64, u64, u64)>) -> Option<Duration> {
        let (mut change, mut now, mut delivered) = (PathChange::default(), Time::ZERO, 0);
        for (index, (rtt, gap, acked)) in samples.enumerate() {
            now = now + Duration::from_millis(gap);
            let before = delivered;
            delivered += acked;
            let is_end = index % 10 == 9;
            let sample = Sample {
                now,
                rtt: Some(Duration::from_millis(rtt)),
                acked,
                lost: 0,
                lost_sent_at: None,
                delivered,
                in_flight: 0,
                window_limited: false,
                rate: Some(RateSample {
                    delivered: acked,
                    interval: Duration::from_millis(gap),
                    prior_delivered: if is_end { before } else { 0 },
                    tx_in_flight: 0,
                    lost: 0,
                    app_limited: false,
                }),
                outcomes: [Outcome::default(); TAGS],
                ce: 0,
            };
            if let Some(rtt) = change.update(&sample, MINIMUM, BANDWIDTH) {
                return Some(rtt);
            }
        }
        None
    }

    /// A feedback every 8 ms with what arrives in that time at the full rate.
    const STEADY: (u64, u64, u64) = (40, 8, 50_000);

    #[test]
    fn a_step_that_stays_and_after_which_packets_arrive_as_fast_is_a_longer_path() {
        let steady = std::iter::repeat_n(STEADY, 20);
        let longer = std::iter::once((200, 168, 50_000)).chain(std::iter::repeat_n((201, 8, 50_000), 40));
        assert_eq!(detect(steady.chain(longer)), Some(Duration::from_millis(200)));
    }

    #[test]
    fn a_queue_that_grows_is_none() {
        let growing = (0..40).map(|index| (40 + 4 * index, 8, 50_000));
        assert_eq!(detect(growing), None);
    }

    #[test]
    fn a_stall_and_the_burst_after_it_are_none() {
        let steady = std::iter::repeat_n(STEADY, 20);
        let stall = std::iter::once((200, 168, 50_000));
        let burst = (0..20).map(|index| (200 - 8 * index, 1, 50_000));
        assert_eq!(
            detect(steady.clone().chain(stall).chain(burst).chain(steady)),
            None
        );
    }

    #[test]
    fn a_bottleneck_that_became_a_hundred_times_slower_is_none() {
        let steady = std::iter::repeat_n(STEADY, 20);
        let slower = (0..40).map(|index| ((65 + 25 * index).min(290), 25, 1_500));
        assert_eq!(detect(steady.chain(slower)), None);
    }
}
