//! Statistical tests, by their textbook formulas.

use super::super::error::WanBenchError;
use super::super::recorder::Recorder;
use crate::gated::recorder::Case;

/// The quantile of the normal distribution at 1 - 0.001, and at 1 - 0.001/2.
const Z_ONE_SIDED: f64 = 3.0902;
pub(in super::super) const Z_TWO_SIDED: f64 = 3.2905;
/// The critical value of √n D of the Kolmogorov-Smirnov test at 0.001: the Kolmogorov distribution, one sample.
pub(in super::super) const KS_CRITICAL: f64 = 1.9495;
/// The smallest number of expected observations of a cell in a chi-square test.
const EXPECTED_MIN: f64 = 10.0;

/// The smallest number of values for a Kolmogorov-Smirnov test. Fewer than four keep its gate whatever they are.
const VALUES_MIN: usize = 50;

/// Returns √n D of the Kolmogorov-Smirnov test of values against a distribution function. Sorts the values. Returns `None`
/// for fewer than 50 values, which show nothing.
pub(in super::super) fn kolmogorov_smirnov(
    values: &mut [f64],
    distribution: impl Fn(f64) -> f64,
) -> Option<f64> {
    if values.len() < VALUES_MIN {
        return None;
    }
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let mut largest = 0.0_f64;
    for (index, value) in values.iter().enumerate() {
        let expected = distribution(*value);
        largest = largest
            .max((expected - index as f64 / n).abs())
            .max(((index + 1) as f64 / n - expected).abs());
    }
    Some(largest * n.sqrt())
}

/// Returns the critical value of chi-square with these degrees of freedom at 0.001 (Wilson and Hilferty 1931).
pub(in super::super) fn chi_square_critical(freedom: usize) -> f64 {
    let freedom = freedom as f64;
    let spread = 2.0 / (9.0 * freedom);
    freedom * (1.0 - spread + Z_ONE_SIDED * spread.sqrt()).powi(3)
}

/// Returns chi-square divided by its critical value. `shares` are the expected shares of the first counts;
/// the other counts together have the remaining share. Adjacent counts are merged into a cell until enough
/// observations are expected in it.
pub(in super::super) fn chi_square(counts: &[u64], shares: &[f64]) -> f64 {
    let n = counts.iter().sum::<u64>() as f64;
    let (mut cells, mut statistic) = (0, 0.0);
    let (mut seen, mut expected, mut left) = (0.0, 0.0, n);
    let mut seen_before = 0.0;
    for (count, share) in counts.iter().zip(shares) {
        seen += *count as f64;
        expected += share * n;
        if expected >= EXPECTED_MIN && left - expected >= EXPECTED_MIN {
            statistic += (seen - expected).powi(2) / expected;
            cells += 1;
            left -= expected;
            seen_before += seen;
            (seen, expected) = (0.0, 0.0);
        }
    }
    statistic += (n - seen_before - left).powi(2) / left;
    statistic / chi_square_critical(cells.max(1))
}

/// Returns the deviation of a count from a binomial distribution, in standard deviations.
pub(in super::super) fn binomial_z(count: u64, trials: u64, probability: f64) -> f64 {
    let n = trials as f64;
    (count as f64 - n * probability) / (n * probability * (1.0 - probability)).sqrt()
}

/// Returns the autocorrelation of values at a lag.
pub(in super::super) fn autocorrelation(values: &[f64], lag: usize) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let products = values.iter().zip(values.iter().skip(lag));
    products.map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>() / variance
}

/// Returns the statistic of Ljung and Box (1978) over these lags, divided by its critical value.
pub(in super::super) fn ljung_box(values: &[f64], lags: usize) -> f64 {
    let n = values.len() as f64;
    let sum: f64 = (1..=lags)
        .map(|lag| autocorrelation(values, lag).powi(2) / (n - lag as f64))
        .sum();
    n * (n + 2.0) * sum / chi_square_critical(lags)
}

/// Returns the distribution function of the standard normal distribution. Near 0, it uses the series of the
/// error function, elsewhere its continued fraction. Both are exact to 1e-12.
pub(in super::super) fn normal(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    let upper = if x < 3.0 {
        // erf(x) = 2/√π Σ (-1)^n x^(2n+1) / (n! (2n+1)), here as its Kummer form, which has no alternating sign.
        let (mut term, mut sum, mut n) = (x, x, 0.0);
        while term > 1e-17 * sum {
            n += 1.0;
            term *= 2.0 * x * x / (2.0 * n + 1.0);
            sum += term;
        }
        0.5 - sum * (-x * x).exp() / std::f64::consts::PI.sqrt()
    } else {
        // erfc(x) = exp(-x²)/√π / (x + (1/2)/(x + 1/(x + (3/2)/(x + …)))).
        let mut fraction = x;
        for k in (1..=60).rev() {
            fraction = x + f64::from(k) / 2.0 / fraction;
        }
        0.5 * (-x * x).exp() / std::f64::consts::PI.sqrt() / fraction
    };
    if z < 0.0 { upper } else { 1.0 - upper }
}

/// Returns the distribution function of the gamma distribution of a whole-numbered shape (Erlang) and scale 1.
pub(in super::super) fn erlang(shape: u32, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let (mut term, mut sum) = (1.0, 1.0);
    for k in 1..shape {
        term *= x / f64::from(k);
        sum += term;
    }
    1.0 - sum * (-x).exp()
}

/// Records the statistic of a Kolmogorov-Smirnov test of `count` values.
pub(super) fn record_test(
    recorder: &mut Recorder<'_>,
    row: &Case,
    statistic: Option<f64>,
    count: usize,
) -> Result<(), WanBenchError> {
    match statistic {
        Some(statistic) => recorder.value(row, 0, statistic),
        None => recorder.missing(
            row,
            &format!("{count} values are too few to judge their distribution"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_agree_with_published_tables() {
        for (z, p) in [
            (0.0, 0.5),
            (1.0, 0.841_344_746_068_543),
            (-1.959_963_984_540_054, 0.025),
            (3.090_232_306_167_813, 0.999),
            (-5.0, 2.866_515_718_791_94e-7),
        ] {
            assert!((normal(z) - p).abs() < 1e-12 * p.max(1e-3), "{z}: {}", normal(z));
        }
        // Critical values at 0.001; the approximation is within 1.5 %.
        for (freedom, value) in [(5, 20.515), (10, 29.588), (20, 45.315), (100, 149.449)] {
            assert!(
                (chi_square_critical(freedom) / value - 1.0).abs() < 15e-3,
                "{freedom}"
            );
        }
        assert!((erlang(1, 2.0) - (1.0 - (-2.0_f64).exp())).abs() < 1e-15);
        assert!((erlang(4, 4.0) - 0.566_529_879_633_291).abs() < 1e-12);
    }

    #[test]
    fn a_distribution_is_not_judged_from_no_value_or_from_a_few() {
        assert_eq!(kolmogorov_smirnov(&mut [], |x| x), None);
        assert_eq!(kolmogorov_smirnov(&mut [0.5; 49], |x| x), None);
        assert!(kolmogorov_smirnov(&mut [0.5; 50], |x| x).unwrap() > KS_CRITICAL);
    }

    #[test]
    fn tests_accept_what_they_are_for_and_reject_what_is_slightly_off() {
        let n = 100_000;
        let mut even: Vec<f64> = (0..n).map(|i| (f64::from(i) + 0.5) / f64::from(n)).collect();
        assert!(kolmogorov_smirnov(&mut even, |x| x).unwrap() < 0.01);
        // The distribution is one percent narrower than the model's.
        let mut narrow: Vec<f64> = even.iter().map(|x| 0.5 + (x - 0.5) * 0.98).collect();
        assert!(kolmogorov_smirnov(&mut narrow, |x| x.clamp(0.0, 1.0)).unwrap() > KS_CRITICAL);
        let shares: Vec<f64> = (0..40).map(|k| 0.25 * 0.75_f64.powi(k)).collect();
        let counts: Vec<u64> = shares.iter().map(|share| (share * 1e5) as u64).collect();
        assert!(chi_square(&counts, &shares) < 0.1);
        let longer: Vec<f64> = (0..40).map(|k| 0.24 * 0.76_f64.powi(k)).collect();
        assert!(chi_square(&counts, &longer) > 1.0);
        assert!(binomial_z(1_000, 100_000, 0.01).abs() < 1e-9);
        assert!(binomial_z(1_150, 100_000, 0.01) > Z_TWO_SIDED);
        let alternating: Vec<f64> = (0..1000).map(|i| f64::from(i % 2)).collect();
        assert!((autocorrelation(&alternating, 1) + 1.0).abs() < 0.01);
        assert!(ljung_box(&alternating, 10) > 1.0);
    }
}
