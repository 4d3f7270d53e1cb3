//! Delay, its distribution over time, and the order of release.

use std::fmt;
use std::str::FromStr;

use crate::text::{Grammar, Interval, Items, Probability, TextError, serde_as_text, words};

/// The delay of a frame after the link, without jitter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DelayConfig {
    /// The same delay for every frame. With jitter, it is the mean.
    Constant(Interval),
    /// A file of delays: one for each frame, or pairs of a time and the delay from that time on.
    Trace(String),
}

impl DelayConfig {
    /// The longest delay.
    pub const MAX: Interval = Interval::from_millis(10_000);
    pub(crate) const GRAMMAR: Grammar = Grammar {
        what: "a delay",
        expected: "`100ms` (0s to 10s) or `trace:FILE`",
    };
}

impl Default for DelayConfig {
    fn default() -> DelayConfig {
        DelayConfig::Constant(Interval::default())
    }
}

impl fmt::Display for DelayConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DelayConfig::Constant(delay) => delay.fmt(f),
            DelayConfig::Trace(file) => write!(f, "trace:{file}"),
        }
    }
}

impl FromStr for DelayConfig {
    type Err = TextError;

    fn from_str(text: &str) -> Result<DelayConfig, TextError> {
        if let Some(file) = text.strip_prefix("trace:") {
            return Ok(DelayConfig::Trace(file.to_owned()));
        }
        let items = Items::new(text, DelayConfig::GRAMMAR);
        let delay: Interval = text.parse().map_err(|error| items.error(error))?;
        let delay = items.within("the delay", delay, Interval::default()..=DelayConfig::MAX)?;
        Ok(DelayConfig::Constant(delay))
    }
}

/// The order in which frames of a path are released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// In the order of arrival: a frame is released at max(previous release, arrival + delay).
    #[default]
    Ordered,
    /// Each frame is released after its own delay. Frames may overtake each other.
    Reordering,
}

words!(Order, "an order", "ordered" => Ordered, "reordering" => Reordering);

/// The variation of the delay. The mean of the delays is the configured delay, and their standard deviation is
/// `spread`. Exceptions are [`Distribution::Uniform`], which ends at `spread` on both sides, a truncated
/// [`Distribution::Normal`], and the distributions of netem's tables.
#[derive(Debug, Clone, PartialEq)]
pub struct Jitter {
    /// The standard deviation, the half width of a uniform distribution, or the unit of netem's tables.
    pub spread: Interval,
    /// The shape.
    pub distribution: Distribution,
    /// The correlation of a frame's delay with the delays of earlier frames.
    pub correlation: Correlation,
}

/// The shape of a distribution of delays.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Distribution {
    /// All delays from delay - spread to delay + spread are equally probable.
    #[default]
    Uniform,
    /// Normal. With a delay below four standard deviations, it is truncated on both sides, from 0 to 2 ×
    /// delay.
    Normal,
    /// Exponential from delay - spread.
    Exponential,
    /// Gamma of this shape (0.1 to 1000) from delay - √shape × spread.
    Gamma(f64),
    /// Pareto of shape 3, as netem's table: from delay - 2/3 × spread, near which delays are most frequent, to
    /// delay + 4 × spread, the delay of 1.1 % of all frames. The standard deviation is 0.82 × spread.
    Pareto,
    /// A quarter of the normal and three quarters of the Pareto quantile, as netem's table. The standard
    /// deviation is 0.83 × spread.
    ParetoNormal,
    /// A file of netem: a list of quantiles in units of 1/8192 × spread.
    Table(String),
}

/// The correlation of successive delays. An AR(1) process makes Gaussian draws, which are then mapped to the
/// configured distribution (a Gaussian copula). So the distribution is the same with and without correlation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Correlation {
    /// The delays of frames are independent.
    #[default]
    None,
    /// The correlation halves in this time, at any frame rate.
    HalfLife(Interval),
    /// The correlation of two consecutive frames, whatever the time between them. This is netem's parameter.
    PerFrame(Probability),
}

impl Jitter {
    pub(crate) const GRAMMAR: Grammar = Grammar {
        what: "a jitter",
        expected: "`5ms`, a distribution as in `5ms,normal` (`uniform`, `normal`, `exponential`, `gamma,shape=4`, `pareto`, \
                   `pareto-normal` or `table:FILE`), and `half-life=50ms` or `correlation=25%`",
    };
    /// The shape of a gamma distribution, if none is given.
    pub const GAMMA_SHAPE: f64 = 4.0;
}

impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},", self.spread)?;
        match &self.distribution {
            Distribution::Uniform => f.write_str("uniform")?,
            Distribution::Normal => f.write_str("normal")?,
            Distribution::Exponential => f.write_str("exponential")?,
            Distribution::Gamma(shape) => write!(f, "gamma,shape={shape}")?,
            Distribution::Pareto => f.write_str("pareto")?,
            Distribution::ParetoNormal => f.write_str("pareto-normal")?,
            Distribution::Table(file) => write!(f, "table:{file}")?,
        }
        match self.correlation {
            Correlation::None => Ok(()),
            Correlation::HalfLife(time) => write!(f, ",half-life={time}"),
            Correlation::PerFrame(share) => write!(f, ",correlation={share}"),
        }
    }
}

impl FromStr for Jitter {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Jitter, TextError> {
        let mut items = Items::new(text, Jitter::GRAMMAR);
        let spread: Interval = items.head().parse().map_err(|error| items.error(error))?;
        let spread = items.within("the jitter", spread, Interval::default()..=DelayConfig::MAX)?;
        let half_life: Option<Interval> = items.value("half-life")?;
        let per_frame: Option<Probability> = items.value("correlation")?;
        let correlation = match (half_life, per_frame) {
            (None, None) => Correlation::None,
            (Some(time), None) if time > Interval::default() => Correlation::HalfLife(time),
            (None, Some(share)) if share < Probability::CERTAIN => Correlation::PerFrame(share),
            (Some(_), Some(_)) => return Err(items.error("`half-life` and `correlation` exclude each other")),
            _ => return Err(items.error("a half-life of 0 or a correlation of 100%")),
        };
        let distribution = match items.word() {
            None | Some("uniform") => Distribution::Uniform,
            Some("normal") => Distribution::Normal,
            Some("exponential") => Distribution::Exponential,
            Some("gamma") => {
                let shape = items.value("shape")?.unwrap_or(Jitter::GAMMA_SHAPE);
                Distribution::Gamma(items.within("shape", shape, 0.1..=1000.0)?)
            }
            Some("pareto") => Distribution::Pareto,
            Some("pareto-normal") => Distribution::ParetoNormal,
            Some(word) => match word.strip_prefix("table:") {
                Some(file) => Distribution::Table(file.to_owned()),
                None => return Err(items.error(format!("there is no distribution `{word}`"))),
            },
        };
        items.finish()?;
        Ok(Jitter {
            spread,
            distribution,
            correlation,
        })
    }
}

serde_as_text!(DelayConfig, Jitter);
