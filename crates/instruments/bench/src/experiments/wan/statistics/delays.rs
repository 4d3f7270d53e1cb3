//! Tests of the distributions of the delay, and of the correlation or independence of successive delays.

use millrace_types::Time;
use millrace_wan_emulator::{NoSources, Outcome, Path, Seed, Sources};

use super::super::error::WanBenchError;
use super::super::recorder::Recorder;
use super::super::settings::path as config;
use super::judge::{
    KS_CRITICAL, Z_TWO_SIDED, autocorrelation, chi_square, erlang, kolmogorov_smirnov, ljung_box, normal,
    record_test,
};
use crate::gated::Gate;
use crate::gated::recorder::case;

/// The delay and the jitter of all distributions in nanoseconds, and the text of the delay.
const MEAN: f64 = 100e6;
const SPREAD: f64 = 5e6;
const DELAY: (&str, &str) = ("delay", "100ms");
/// The time between two frames in nanoseconds.
const GAP: u64 = 1_000_000;
/// A table file of netem for the test: eight values of equal probability.
const TABLE: &str = "-16384 -8192 -4096 -1024 1024 4096 8192 16384";

/// Returns the delay of each frame, in units of the jitter around the configured delay.
fn delays(jitter: &str, seed: u64, frames: u64, sources: &dyn Sources) -> Result<Vec<f64>, WanBenchError> {
    let config = config(&[DELAY, ("jitter", jitter), ("order", "reordering")])?;
    let mut path = Path::new(&config, Seed::new(seed), sources)?;
    let released = (0..frames).flat_map(|number| {
        let arrival = number * GAP;
        path.offer_sized(Time::from_nanos(arrival), 60)
            .into_iter()
            .filter_map(move |outcome| match outcome {
                Outcome::Released(release) => Some((release.at.nanos() - arrival) as f64),
                Outcome::Dropped(_) => None,
            })
    });
    Ok(released.map(|delay| (delay - MEAN) / SPREAD).collect())
}

/// The largest value of netem's Pareto table, which 1.1 % of its entries have.
const PARETO_END: f64 = 4.0;

/// Returns the distribution function of netem's Pareto table: (value - 3/2) × 4/3 for a value of shape 3. The
/// probability of the largest value is spread as in [`spread_end`].
fn pareto(x: f64) -> f64 {
    let below = |x: f64| 1.0 - (x.min(PARETO_END) * 0.75 + 1.5).max(1.0).powi(-3);
    below(x) + (1.0 - below(PARETO_END)) * (x - PARETO_END).clamp(0.0, 1.0)
}

/// Spreads the delays with the largest value of netem's Pareto table evenly over the unit above it. So a test for
/// continuous distributions judges their share.
fn spread_end(values: &mut [f64]) {
    let ends = values.iter_mut().filter(|value| **value >= PARETO_END - 1e-6);
    let mut ends: Vec<&mut f64> = ends.collect();
    let len = ends.len() as f64;
    for (index, value) in ends.iter_mut().enumerate() {
        **value = PARETO_END + (index as f64 + 0.5) / len;
    }
}

/// Returns the distribution function of netem's Pareto-normal table. A quantile of it is a quarter of the
/// normal quantile plus three quarters of the Pareto quantile.
fn pareto_normal(x: f64) -> f64 {
    let pareto = |p: f64| (((1.0 - p).powf(-1.0 / 3.0) - 1.5) / 0.75).min(PARETO_END);
    let quantile = |p: f64| 0.25 * inverse(normal, p, -9.0, 9.0) + 0.75 * pareto(p);
    inverse(quantile, x, 1e-12, 1.0 - 1e-12)
}

/// Returns the argument between two bounds at which an increasing function has this value, by bisection.
fn inverse(function: impl Fn(f64) -> f64, value: f64, low: f64, high: f64) -> f64 {
    let (mut low, mut high) = (low, high);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if function(middle) < value {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

type DistributionFunction = fn(f64) -> f64;

/// Judges each distribution.
pub(super) fn distributions(recorder: &mut Recorder<'_>) -> Result<(), WanBenchError> {
    let expected: [(&str, DistributionFunction); 7] = [
        ("5ms,uniform", |x| ((x + 1.0) / 2.0).clamp(0.0, 1.0)),
        ("5ms,normal", normal),
        ("5ms,normal,half-life=1ms", normal),
        ("5ms,exponential", |x| erlang(1, x + 1.0)),
        ("5ms,gamma,shape=4", |x| erlang(4, x * 2.0 + 4.0)),
        ("5ms,pareto", pareto),
        ("5ms,pareto-normal", pareto_normal),
    ];
    for ((jitter, distribution), seed) in expected.into_iter().zip(1..) {
        // The Pareto-normal function needs nested bisections, so only a fiftieth of the frames is judged.
        let frames = match jitter {
            "5ms,pareto-normal" => recorder.length.frames / 50,
            _ => recorder.length.frames,
        };
        // Of a correlated jitter, every twentieth frame is judged, because the correlation halves with each
        // frame.
        let every = if jitter.contains("half-life") { 20 } else { 1 };
        let mut values: Vec<f64> = delays(jitter, seed, frames, &NoSources)?
            .into_iter()
            .step_by(every)
            .collect();
        if jitter == "5ms,pareto" {
            spread_end(&mut values);
        }
        let statistic = kolmogorov_smirnov(&mut values, distribution);
        let row = case(
            format!("W5 distribution {jitter}: Kolmogorov-Smirnov, sqrt(n) D"),
            jitter,
            Gate::AtMost(KS_CRITICAL),
            "",
        );
        record_test(recorder, &row, statistic, values.len())?;
    }
    table(recorder)
}

/// Judges a table file of netem: each value is equally probable.
fn table(recorder: &mut Recorder<'_>) -> Result<(), WanBenchError> {
    let file = |_: &str| Ok::<_, String>(TABLE.to_owned());
    let values = delays("5ms,table:own", 11, recorder.length.frames, &file)?;
    let steps: Vec<f64> = TABLE
        .split(' ')
        .filter_map(|word| Some(word.parse::<f64>().ok()? / 8192.0))
        .collect();
    let mut counts = vec![0_u64; steps.len()];
    let mut others = 0;
    for value in values {
        match steps.iter().position(|step| (step - value).abs() < 1e-5) {
            Some(index) => counts[index] += 1,
            None => others += 1,
        }
    }
    let shares = vec![1.0 / steps.len() as f64; steps.len()];
    let row = |name: &str, gate| {
        case(
            format!("W5 distribution 5ms,table:FILE: {name}"),
            "8 values",
            gate,
            "",
        )
    };
    let statistic = chi_square(&counts, &shares);
    recorder.value(
        &row("chi-square / critical value", Gate::AtMost(1.0)),
        0,
        statistic,
    )?;
    recorder.value(
        &row("delays that are not in the file", Gate::Exactly(0.0)),
        0,
        others.into(),
    )
}

/// Judges the autocorrelation of a jitter with a half-life, at one and at two half-lives.
pub(super) fn correlation(recorder: &mut Recorder<'_>) -> Result<(), WanBenchError> {
    let values = delays(
        "5ms,normal,half-life=50ms",
        12,
        recorder.length.frames,
        &NoSources,
    )?;
    let n = values.len() as f64;
    let phi = 2_f64.powf(-1.0 / 50.0);
    for (lag, expected) in [(50_usize, 0.5), (100, 0.25)] {
        // The variance of an estimated autocorrelation of an AR(1) process (Bartlett 1946).
        let squared = phi.powi(2 * lag as i32);
        let variance = (1.0 + phi * phi) * (1.0 - squared) / (1.0 - phi * phi) - 2.0 * lag as f64 * squared;
        let z = (autocorrelation(&values, lag) - expected) / (variance / n).sqrt();
        let row = case(
            format!("W5 half-life 50 ms: autocorrelation after {lag} ms, deviation"),
            format!("{expected}"),
            Gate::AtMost(Z_TWO_SIDED),
            "sigma",
        );
        recorder.value(&row, 0, z.abs())?;
    }
    Ok(())
}

/// Judges whether the delays of a jitter without correlation are independent.
pub(super) fn independence(recorder: &mut Recorder<'_>) -> Result<(), WanBenchError> {
    for (jitter, seed) in [("5ms,normal", 13), ("5ms,uniform", 14)] {
        let values = delays(jitter, seed, recorder.length.frames, &NoSources)?;
        let row = case(
            format!("W5 independence of {jitter}: Ljung-Box, 20 lags / critical value"),
            jitter,
            Gate::AtMost(1.0),
            "",
        );
        recorder.value(&row, 0, ljung_box(&values, 20))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distribution_functions_have_the_means_of_their_distributions() {
        // netem's table ends at 4, which lowers the mean of 0 by (4/3) / (2 × 4.5²).
        let distributions: [(DistributionFunction, f64); 2] = [(normal, 0.0), (pareto, -0.0329)];
        for (distribution, expected) in distributions {
            // The mean is computed from quantiles, because the judge has no density functions.
            let n = 20_000;
            let quantile = |i| inverse(distribution, (f64::from(i) + 0.5) / f64::from(n), -9.0, 9.0);
            let mean = (0..n).map(|i| quantile(i).min(PARETO_END)).sum::<f64>() / f64::from(n);
            assert!((mean - expected).abs() < 2e-3, "{mean}");
        }
        // The quantile at 0.64 is near 0.
        assert!((pareto_normal(0.0) - 0.64).abs() < 0.01, "{}", pareto_normal(0.0));
    }

    #[test]
    fn the_share_of_the_largest_value_is_judged() {
        let table = |end: usize| -> Vec<f64> {
            let continuous = (0..10_000 - end).map(|i| (i as f64 + 0.5) / 10_000.0);
            let quantiles = continuous.map(|p| inverse(pareto, p, -0.7, PARETO_END));
            quantiles.chain(std::iter::repeat_n(PARETO_END, end)).collect()
        };
        for (end, is_met) in [(110, true), (400, false)] {
            let mut values = table(end);
            spread_end(&mut values);
            assert_eq!(
                kolmogorov_smirnov(&mut values, pareto).unwrap() <= KS_CRITICAL,
                is_met,
                "{end}"
            );
        }
    }
}
