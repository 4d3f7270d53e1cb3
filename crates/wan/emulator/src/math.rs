//! Functions of the normal and the gamma distribution.
//!
//! Elementary functions come from `libm`, which computes the same bits on every machine. So a seed has the
//! same outcomes everywhere.

#![allow(clippy::excessive_precision, reason = "coefficients are as published")]

use libm::{erfc, exp, lgamma, log, sqrt};

/// Returns the probability that a standard normal variable is below `z`.
#[inline]
pub(crate) fn normal_cdf(z: f64) -> f64 {
    0.5 * erfc(-z * core::f64::consts::FRAC_1_SQRT_2)
}

/// Evaluates a polynomial; the coefficient of the highest power is the first.
#[inline]
fn polynomial<const N: usize>(x: f64, coefficients: [f64; N]) -> f64 {
    coefficients
        .iter()
        .fold(0.0, |sum, coefficient| sum * x + coefficient)
}

/// Returns the value that a standard normal variable is below with probability `p`, 0 < p < 1. The relative
/// error is about 1e-16.
///
/// Wichura, "Algorithm AS 241: The Percentage Points of the Normal Distribution", Applied Statistics 37 (1988), PPND16.
#[inline]
pub(crate) fn normal_quantile(p: f64) -> f64 {
    let q = p - 0.5;
    if q.abs() <= 0.425 {
        let r = 0.180_625 - q * q;
        return q * central(r);
    }
    let r = sqrt(-log(if q < 0.0 { p } else { 1.0 - p }));
    let tail = if r <= 5.0 {
        near_tail(r - 1.6)
    } else {
        far_tail(r - 5.0)
    };
    if q < 0.0 { -tail } else { tail }
}

#[inline]
fn central(r: f64) -> f64 {
    let numerator = polynomial(
        r,
        [
            2.509_080_928_730_122_672_7e3,
            3.343_057_558_358_812_810_5e4,
            6.726_577_092_700_870_085_3e4,
            4.592_195_393_154_987_145_7e4,
            1.373_169_376_550_946_112_5e4,
            1.971_590_950_306_551_442_7e3,
            1.331_416_678_917_843_774_5e2,
            3.387_132_872_796_366_608,
        ],
    );
    let denominator = polynomial(
        r,
        [
            5.226_495_278_852_854_561e3,
            2.872_908_573_572_194_267_4e4,
            3.930_789_580_009_271_061e4,
            2.121_379_430_158_659_586_7e4,
            5.394_196_021_424_751_107_7e3,
            6.871_870_074_920_579_083e2,
            4.231_333_070_160_091_125_2e1,
            1.0,
        ],
    );
    numerator / denominator
}

fn near_tail(r: f64) -> f64 {
    let numerator = polynomial(
        r,
        [
            7.745_450_142_783_414_076_4e-4,
            2.272_384_498_926_918_458_33e-2,
            2.417_807_251_774_506_117_7e-1,
            1.270_458_252_452_368_382_58,
            3.647_848_324_763_204_605_04,
            5.769_497_221_460_691_405_5,
            4.630_337_846_156_545_295_9,
            1.423_437_110_749_683_577_34,
        ],
    );
    let denominator = polynomial(
        r,
        [
            1.050_750_071_644_416_843_24e-9,
            5.475_938_084_995_344_946e-4,
            1.519_866_656_361_645_719_66e-2,
            1.481_039_764_274_800_745_9e-1,
            6.897_673_349_851_000_045_5e-1,
            1.676_384_830_183_803_849_4,
            2.053_191_626_637_758_821_87,
            1.0,
        ],
    );
    numerator / denominator
}

fn far_tail(r: f64) -> f64 {
    let numerator = polynomial(
        r,
        [
            2.010_334_399_292_288_132_65e-7,
            2.711_555_568_743_487_578_15e-5,
            1.242_660_947_388_078_438_6e-3,
            2.653_218_952_657_612_309_3e-2,
            2.965_605_718_285_048_912_3e-1,
            1.784_826_539_917_291_335_8,
            5.463_784_911_164_114_369_9,
            6.657_904_643_501_103_777_2,
        ],
    );
    let denominator = polynomial(
        r,
        [
            2.044_263_103_389_939_785_64e-15,
            1.421_511_758_316_445_888_7e-7,
            1.846_318_317_510_054_681_8e-5,
            7.868_691_311_456_132_591e-4,
            1.487_536_129_085_061_485_25e-2,
            1.369_298_809_227_358_053_1e-1,
            5.998_322_065_558_879_376_9e-1,
            1.0,
        ],
    );
    numerator / denominator
}

/// Returns the probability that a gamma variable of this shape and scale 1 is below `x`: the regularised incomplete gamma
/// function P(shape, x), by its series below the mean and by its continued fraction above (Abramowitz and Stegun,
/// "Handbook of Mathematical Functions", 6.5.29 and 6.5.31).
pub(crate) fn gamma_cdf(shape: f64, x: f64) -> f64 {
    const PRECISION: f64 = 1e-15;
    if x <= 0.0 {
        return 0.0;
    }
    let factor = exp(shape * log(x) - x - lgamma(shape));
    if x < shape + 1.0 {
        let (mut term, mut sum, mut n) = (1.0 / shape, 1.0 / shape, shape);
        while term > sum * PRECISION {
            n += 1.0;
            term *= x / n;
            sum += term;
        }
        return (sum * factor).min(1.0);
    }
    // Lentz's evaluation of the continued fraction of Q = 1 - P.
    let tiny = 1e-300;
    let mut b = x + 1.0 - shape;
    let (mut c, mut d) = (1.0 / tiny, 1.0 / b);
    let mut fraction = d;
    for n in 1..10_000 {
        let n = f64::from(n);
        let a = -n * (n - shape);
        b += 2.0;
        d = 1.0 / nonzero(a * d + b, tiny);
        c = nonzero(b + a / c, tiny);
        let change = c * d;
        fraction *= change;
        if (change - 1.0).abs() < PRECISION {
            break;
        }
    }
    (1.0 - fraction * factor).max(0.0)
}

fn nonzero(value: f64, tiny: f64) -> f64 {
    if value.abs() < tiny { tiny } else { value }
}

/// Returns the value that a gamma variable of this shape and scale 1 is below with probability `p`, by
/// bisection.
pub(crate) fn gamma_quantile(shape: f64, p: f64) -> f64 {
    let (mut low, mut high) = (0.0, shape + 10.0 * sqrt(shape) + 10.0);
    while gamma_cdf(shape, high) < p {
        high *= 2.0;
    }
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if gamma_cdf(shape, middle) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_normal_quantile_is_the_inverse_of_the_distribution() {
        // scipy.stats.norm.ppf
        for (p, z) in [
            (0.5, 0.0),
            (0.975, 1.959_963_984_540_054),
            (0.01, -2.326_347_874_040_840_8),
            (1e-6, -4.753_424_308_822_899),
            (1e-14, -7.650_628_092_935_269),
        ] {
            assert!((normal_quantile(p) - z).abs() < 1e-12, "{p}");
            assert!((normal_cdf(z) / p - 1.0).abs() < 1e-12, "{p}");
        }
    }

    #[test]
    fn the_gamma_quantile_is_the_inverse_of_the_distribution() {
        // scipy.stats.gamma.ppf
        for (shape, p, x) in [
            (4.0, 0.5, 3.672_060_748_850_894),
            (1.0, 0.9, core::f64::consts::LN_10),
            (0.5, 0.1, 0.007_895_385_155_9),
            // Half of a chi-square variable of 200 degrees of freedom.
            (100.0, 0.999, 133.770_26),
        ] {
            assert!(
                (gamma_quantile(shape, p) / x - 1.0).abs() < 1e-5,
                "{shape} {p} {}",
                gamma_quantile(shape, p)
            );
            assert!((gamma_cdf(shape, gamma_quantile(shape, p)) - p).abs() < 1e-12);
        }
    }
}
