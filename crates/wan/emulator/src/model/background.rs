//! Traffic of other users on the link, as a fluid: it takes a part of the rate, so that the queue drains more
//! slowly.

use millrace_types::Time;

use super::renewal::{Period, Renewal, longest_gap};
use crate::config::Background;
use crate::random::Stream;

/// A time of constant background traffic.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section {
    /// The rate in bits per second.
    pub(crate) rate: u64,
    /// The end of the time, in nanoseconds.
    pub(crate) until: u64,
}

/// The parameters of background traffic.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BackgroundModel {
    /// The rate of the traffic while it flows, in bits per second.
    rate: u64,
    /// The lengths of pauses and bursts. `None` means that the traffic always flows.
    periods: Option<(Period, Period)>,
}

impl BackgroundModel {
    pub(crate) fn new(config: &Background, rate: u64) -> BackgroundModel {
        match *config {
            Background::Constant(share) => BackgroundModel {
                rate: share.of(rate),
                periods: None,
            },
            Background::OnOff {
                share,
                on,
                off,
                pareto,
            } => {
                let period = |mean: crate::Interval| Period {
                    mean: mean.nanos() as f64,
                    pareto,
                };
                BackgroundModel {
                    rate: share.of(rate),
                    periods: Some((period(off), period(on))),
                }
            }
        }
    }
}

/// The state of background traffic.
#[derive(Debug, Clone)]
pub(crate) struct BackgroundState {
    start: Time,
    bursts: Option<Renewal>,
    /// The traffic sent so far, in billionths of a bit.
    sent: u128,
}

impl BackgroundState {
    pub(crate) fn new(start: Time) -> BackgroundState {
        BackgroundState {
            start,
            bursts: None,
            sent: 0,
        }
    }

    /// Returns the bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        (self.sent / 8_000_000_000) as u64
    }

    /// Skips a part of a long pause without a backlog, so that it is not divided into bursts. Only the time
    /// of a thousand mean cycles remains. The skipped part counts as traffic at the mean rate. Returns its
    /// length in nanoseconds from `now`.
    pub(crate) fn skip(&mut self, model: &BackgroundModel, now: u64, end: u64) -> u64 {
        let Some((off, on)) = model.periods else {
            return 0;
        };
        let skipped = (end - now).saturating_sub(longest_gap(off, on));
        let share = on.mean / (on.mean + off.mean);
        self.sent += (model.rate as f64 * share * skipped as f64) as u128;
        skipped
    }

    /// Returns the rate from `now` on, for a time that ends at `end` at the latest.
    pub(crate) fn until(&mut self, model: &BackgroundModel, stream: Stream, now: u64, end: u64) -> Section {
        let section = match model.periods {
            None => Section {
                rate: model.rate,
                until: end,
            },
            Some((off, on)) => {
                let start = self.start.nanos();
                let bursts = self
                    .bursts
                    .get_or_insert_with(|| Renewal::new(start, off, stream));
                bursts.advance(now, off, on, stream);
                Section {
                    rate: if bursts.on { model.rate } else { 0 },
                    until: bursts.until.min(end),
                }
            }
        };
        self.sent += u128::from(section.rate) * u128::from(section.until - now);
        section
    }
}
