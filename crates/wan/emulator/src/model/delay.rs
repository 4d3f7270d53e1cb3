//! The delay of a frame after the link: distributions, correlation, traces.

use libm::exp2;
use millrace_types::Time;

use super::chance::LastDraw;
use crate::config::{ConfigError, Correlation, DelayConfig, PathConfig};
use crate::distribution::Quantile;
use crate::math::normal_quantile;
use crate::random::Stream;
use crate::sources::Sources;
use crate::tables::{self, Delays};

/// The parameters of the delay.
#[derive(Debug, Clone)]
pub(crate) enum DelayModel {
    /// The delay in nanoseconds.
    Constant(u64),
    Random {
        /// The mean in nanoseconds.
        mean: f64,
        /// The spread in nanoseconds.
        spread: f64,
        quantile: Quantile,
        correlation: CorrelationModel,
    },
    Trace(Delays),
}

/// The correlation of random delays.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum CorrelationModel {
    None,
    /// The inverse of the half-life in nanoseconds.
    PerTime(f64),
    /// The correlation of two consecutive frames.
    PerFrame(f64),
}

/// The earlier draws that the next delay depends on, and the position in a trace.
#[derive(Debug, Clone)]
pub(crate) struct DelayState {
    start: u64,
    /// The time of the last draw.
    last: u64,
    draw: LastDraw,
    traced: usize,
}

impl DelayModel {
    pub(crate) fn compile(config: &PathConfig, sources: &dyn Sources) -> Result<DelayModel, ConfigError> {
        let mean = match &config.delay {
            DelayConfig::Trace(name) => {
                let text = sources
                    .read(name)
                    .map_err(|error| ConfigError::new("delay", error))?;
                let trace = tables::delays(&text);
                let trace = trace.map_err(|error| ConfigError::new("delay", format!("{name}: {error}")))?;
                return Ok(DelayModel::Trace(trace));
            }
            DelayConfig::Constant(delay) => delay.nanos(),
        };
        let Some(jitter) = config.jitter.as_ref().filter(|jitter| jitter.spread.nanos() > 0) else {
            return Ok(DelayModel::Constant(mean));
        };
        Ok(DelayModel::Random {
            mean: mean as f64,
            spread: jitter.spread.nanos() as f64,
            quantile: Quantile::compile(jitter, mean, sources)?,
            correlation: match jitter.correlation {
                Correlation::None => CorrelationModel::None,
                Correlation::HalfLife(time) => CorrelationModel::PerTime(1.0 / time.nanos() as f64),
                Correlation::PerFrame(share) => CorrelationModel::PerFrame(share.get()),
            },
        })
    }

    /// Returns the longest delay in nanoseconds.
    pub(crate) fn longest(&self) -> u64 {
        match self {
            DelayModel::Constant(delay) => *delay,
            DelayModel::Random {
                mean,
                spread,
                quantile,
                ..
            } => to_nanos(mean + spread * quantile.max()),
            DelayModel::Trace(Delays::PerFrame(delays)) => delays.iter().copied().max().unwrap_or(0),
            DelayModel::Trace(Delays::Timed(rows)) => rows.iter().map(|(_, delay)| *delay).max().unwrap_or(0),
        }
    }
}

/// Returns a delay within the range of delays, in whole nanoseconds.
#[inline]
fn to_nanos(delay: f64) -> u64 {
    // The cast converts values below 0 to 0.
    ((delay + 0.5) as u64).min(DelayConfig::MAX.nanos())
}

impl DelayState {
    pub(crate) fn new(start: Time) -> DelayState {
        DelayState {
            start: start.nanos(),
            last: start.nanos(),
            draw: LastDraw::default(),
            traced: 0,
        }
    }

    /// Returns the delay of frame number `frame` in nanoseconds. The link has sent the frame at `now`.
    #[inline]
    pub(crate) fn draw(&mut self, model: &DelayModel, stream: Stream, frame: u64, now: Time) -> u64 {
        match model {
            DelayModel::Constant(delay) => *delay,
            DelayModel::Random {
                mean,
                spread,
                quantile,
                correlation,
            } => {
                let fraction = stream.fraction(frame);
                let quantile = match correlation {
                    CorrelationModel::None => quantile.at(fraction),
                    CorrelationModel::PerTime(inverse) => {
                        let elapsed = now.nanos().saturating_sub(self.last) as f64;
                        self.last = now.nanos();
                        let correlation = exp2(-elapsed * inverse);
                        quantile.at_normal(self.draw.next(correlation, normal_quantile(fraction)))
                    }
                    CorrelationModel::PerFrame(correlation) => {
                        quantile.at_normal(self.draw.next(*correlation, normal_quantile(fraction)))
                    }
                };
                to_nanos(mean + spread * quantile)
            }
            DelayModel::Trace(trace) => self.follow(trace, now),
        }
    }

    fn follow(&mut self, trace: &Delays, now: Time) -> u64 {
        match trace {
            Delays::PerFrame(delays) => {
                let at = self.traced % delays.len();
                self.traced = at + 1;
                delays[at]
            }
            Delays::Timed(rows) => {
                let period = rows.last().map_or(1, |(time, _)| *time);
                let within = now.nanos().saturating_sub(self.start) % period;
                let after = rows.partition_point(|(time, _)| *time <= within);
                rows[after.saturating_sub(1)].1
            }
        }
    }
}
