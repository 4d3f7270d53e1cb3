//! Distributions of delay, as quantile functions of a fraction between 0 and 1.
//!
//! The normal, exponential and gamma distributions have mean 0 and standard deviation 1. The uniform distribution
//! ends at -1 and 1. The two Pareto distributions are those of netem's tables: the means are -0.03 and -0.02, the
//! standard deviations 0.82 and 0.83. A quantile function maps a uniform draw to a delay. It maps a Gaussian draw
//! through the normal distribution function, so that correlated delays can have any distribution.

use libm::{cbrt, log, sqrt};

use crate::config::{ConfigError, Distribution, Jitter};
use crate::math::{gamma_quantile, normal_cdf, normal_quantile};
use crate::sources::Sources;

/// The probability at which unbounded distributions are truncated on both sides. Memory is sized for the
/// longest delay, and such distributions have no maximum. On each side, one frame in a million gets the quantile
/// at this probability.
pub(crate) const TAIL: f64 = 1e-6;

/// The largest Pareto quantile, as in netem's tables, whose values are at most 32767/8192.
const PARETO_MAX: f64 = 4.0;

/// A standardised quantile function.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Quantile {
    Uniform,
    /// A normal distribution without its tails. Each removed tail has the probability `low`.
    Normal {
        low: f64,
    },
    Exponential,
    Gamma(Box<Interpolated>),
    Pareto,
    ParetoNormal,
    /// The values of a netem table, equally probable.
    Steps(Box<[f64]>),
}

impl Quantile {
    /// Returns the quantile function of a jitter around a delay of `delay` nanoseconds.
    ///
    /// # Errors
    /// [`ConfigError`] if a table cannot be read.
    pub(crate) fn compile(
        jitter: &Jitter,
        delay: u64,
        sources: &dyn Sources,
    ) -> Result<Quantile, ConfigError> {
        Ok(match &jitter.distribution {
            Distribution::Uniform => Quantile::Uniform,
            Distribution::Normal => {
                let deviations = delay as f64 / jitter.spread.nanos().max(1) as f64;
                let low = if deviations < 4.0 {
                    normal_cdf(-deviations)
                } else {
                    0.0
                };
                Quantile::Normal { low }
            }
            Distribution::Exponential => Quantile::Exponential,
            Distribution::Gamma(shape) => Quantile::Gamma(Box::new(Interpolated::gamma(*shape))),
            Distribution::Pareto => Quantile::Pareto,
            Distribution::ParetoNormal => Quantile::ParetoNormal,
            Distribution::Table(name) => {
                let text = sources
                    .read(name)
                    .map_err(|error| ConfigError::new("jitter", error))?;
                let table = crate::tables::distribution(&text);
                Quantile::Steps(
                    table.map_err(|error| ConfigError::new("jitter", format!("{name}: {error}")))?,
                )
            }
        })
    }

    /// Returns the quantile at a fraction, 0 < fraction < 1.
    #[inline]
    pub(crate) fn at(&self, fraction: f64) -> f64 {
        let inside = fraction.clamp(TAIL, 1.0 - TAIL);
        match self {
            Quantile::Uniform => 2.0 * fraction - 1.0,
            Quantile::Normal { low } if *low == 0.0 => normal_quantile(inside),
            Quantile::Normal { low } => normal_quantile(low + fraction * (1.0 - 2.0 * low)),
            Quantile::Exponential => -log(1.0 - inside) - 1.0,
            Quantile::Gamma(table) => table.at(inside),
            Quantile::Pareto => pareto(inside),
            Quantile::ParetoNormal => {
                (0.25 * normal_quantile(inside) + 0.75 * pareto(inside)).min(PARETO_MAX)
            }
            Quantile::Steps(values) => {
                values[((fraction * values.len() as f64) as usize).min(values.len() - 1)]
            }
        }
    }

    /// Returns the quantile that corresponds to a standard normal draw.
    #[inline]
    pub(crate) fn at_normal(&self, z: f64) -> f64 {
        match self {
            Quantile::Normal { low } if *low == 0.0 => {
                let end = -normal_quantile(TAIL);
                z.clamp(-end, end)
            }
            _ => self.at(normal_cdf(z)),
        }
    }

    /// Returns the largest quantile.
    pub(crate) fn max(&self) -> f64 {
        self.at(1.0 - f64::EPSILON / 2.0)
    }
}

/// Returns the quantile of netem's table of a Pareto distribution of shape 3. The mean 3/2 is subtracted, and the
/// difference is divided by the variance 3/4. The 1.1 % of values above [`PARETO_MAX`] become [`PARETO_MAX`].
#[inline]
fn pareto(fraction: f64) -> f64 {
    ((1.0 / cbrt(1.0 - fraction) - 1.5) / 0.75).min(PARETO_MAX)
}

/// A quantile function by linear interpolation, finer in both tails.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Interpolated {
    low: Box<[f64]>,
    middle: Box<[f64]>,
    high: Box<[f64]>,
}

impl Interpolated {
    const CELLS: usize = 1024;
    /// The probability of each tail.
    const EDGE: f64 = 1.0 / 256.0;

    fn gamma(shape: f64) -> Interpolated {
        let standard = |p: f64| (gamma_quantile(shape, p.clamp(TAIL, 1.0 - TAIL)) - shape) / sqrt(shape);
        let between = |from: f64, to: f64| {
            let point = |cell| standard(from + (to - from) * cell as f64 / Interpolated::CELLS as f64);
            (0..=Interpolated::CELLS).map(point).collect()
        };
        Interpolated {
            low: between(0.0, Interpolated::EDGE),
            middle: between(0.0, 1.0),
            high: between(1.0 - Interpolated::EDGE, 1.0),
        }
    }

    #[inline]
    fn at(&self, fraction: f64) -> f64 {
        let (table, from, width) = if fraction < Interpolated::EDGE {
            (&self.low, 0.0, Interpolated::EDGE)
        } else if fraction > 1.0 - Interpolated::EDGE {
            (&self.high, 1.0 - Interpolated::EDGE, Interpolated::EDGE)
        } else {
            (&self.middle, 0.0, 1.0)
        };
        let position = (fraction - from) / width * Interpolated::CELLS as f64;
        let cell = (position as usize).min(Interpolated::CELLS - 1);
        let (left, right) = (table[cell], table[cell + 1]);
        left + (right - left) * (position - cell as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoSources;

    fn quantile(text: &str) -> Quantile {
        let jitter: Jitter = text.parse().unwrap();
        Quantile::compile(&jitter, 100_000_000, &NoSources).unwrap()
    }

    #[test]
    fn pareto_distributions_are_those_of_the_tables_of_netem() {
        // The mean of the first is -(4/3) / (2 × 4.5²). Deviations and shares are those of iproute2's files.
        for (text, mean, deviation, above_3) in [
            ("1ms,pareto", -0.0329, 0.821, 0.0190),
            ("1ms,pareto-normal", -0.0247, 0.835, 0.0159),
        ] {
            let quantile = quantile(text);
            let values: Vec<f64> = (0..100_000)
                .map(|i| quantile.at((f64::from(i) + 0.5) / 1e5))
                .collect();
            let moment = |power| values.iter().map(|value| value.powi(power)).sum::<f64>() / 1e5;
            assert!((moment(1) - mean).abs() < 2e-4, "{text}: mean {}", moment(1));
            let found = (moment(2) - moment(1).powi(2)).sqrt();
            assert!((found - deviation).abs() < 2e-3, "{text}: deviation {found}");
            let above = values.iter().filter(|value| **value > 3.0).count() as f64 / 1e5;
            assert!((above - above_3).abs() < 5e-4, "{text}: {above} above 3");
        }
        let pareto = quantile("1ms,pareto");
        assert_eq!(pareto.max(), 4.0);
        assert!((pareto.at(1e-9) + 2.0 / 3.0).abs() < 1e-5);
    }

    #[test]
    fn normal_exponential_and_gamma_distributions_have_mean_0_and_deviation_1() {
        let n = 1_000_000;
        for text in [
            "1ms,normal",
            "1ms,exponential",
            "1ms,gamma,shape=2",
            "1ms,gamma,shape=0.5",
        ] {
            let quantile = quantile(text);
            let draw = |i| quantile.at((f64::from(i) + 0.5) / f64::from(n));
            let mean = (0..n).map(draw).sum::<f64>() / f64::from(n);
            let variance = (0..n).map(|i| draw(i).powi(2)).sum::<f64>() / f64::from(n);
            assert!(mean.abs() < 1e-3, "{text}: mean {mean}");
            assert!((variance - 1.0).abs() < 1e-3, "{text}: variance {variance}");
        }
    }

    #[test]
    fn a_gaussian_draw_gives_the_quantile_of_its_probability() {
        for text in [
            "1ms,normal",
            "1ms,exponential",
            "1ms,uniform",
            "1ms,pareto-normal",
            "1ms,gamma",
        ] {
            let quantile = quantile(text);
            for z in [-3.0, -0.5, 0.0, 1.0, 4.0] {
                let (direct, through) = (quantile.at_normal(z), quantile.at(normal_cdf(z)));
                assert!(
                    (direct - through).abs() < 1e-9,
                    "{text} at {z}: {direct} {through}"
                );
            }
        }
    }

    #[test]
    fn quantiles_grow_and_end_at_the_largest() {
        for text in [
            "1ms,normal",
            "1ms,exponential",
            "1ms,gamma,shape=0.3",
            "1ms,pareto-normal",
        ] {
            let quantile = quantile(text);
            let values: Vec<_> = (1..5000).map(|i| quantile.at(f64::from(i) / 5000.0)).collect();
            assert!(values.is_sorted(), "{text}");
            assert!(values.iter().all(|value| *value <= quantile.max()), "{text}");
        }
    }
}
