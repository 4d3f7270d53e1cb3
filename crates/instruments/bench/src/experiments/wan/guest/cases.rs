//! The settings that both systems get as the same text, and the figures that are judged.

use super::super::statistics::judge::{
    KS_CRITICAL, Z_TWO_SIDED, autocorrelation, binomial_z, chi_square, kolmogorov_smirnov, normal,
};
use super::super::statistics::losses::{geometric, run_lengths};
use super::observed::Observed;
use crate::gated::Gate;

/// The time between two frames, in microseconds.
pub(super) const INTERVAL_US: u64 = 1_000;
/// The delay of all cases but the baseline, in milliseconds.
const DELAY_MS: f64 = 50.0;
/// The longest delay of a case, after which a frame is lost, in milliseconds.
pub(super) const LONGEST_MS: u64 = 150;
/// The jitter in milliseconds.
const JITTER_MS: f64 = 5.0;
/// The correlation of two delays in a row.
const CORRELATION: f64 = 0.5;
/// For tests that assume independent delays, every 20th delay of a correlated jitter is used: the correlation
/// of two such delays is 0.5^20.
const INDEPENDENT: usize = 20;
const LOSS: f64 = 0.05;
/// The transition probabilities of the Gilbert-Elliott model, at the start and at the end of a burst. All frames in a
/// burst are lost.
const BURST_BEGIN: f64 = 0.01;
const BURST_END: f64 = 0.1;

/// The settings without delay. The median of this run is the delay of the test bed itself.
pub(super) const BASELINE: &str = "delay 0ms";

/// Options that netem and `millrace-wan` both get, and the figures that are compared.
pub(super) struct Case {
    /// The options of netem (tc-netem(8)), for `tc` and for `millrace-wan --netem`.
    pub(super) netem: &'static str,
    /// Options of `millrace-wan` that netem does not have; the name of the row includes them.
    pub(super) more: &'static [&'static str],
    pub(super) figures: &'static [Figure],
}

/// A figure of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Figure {
    /// The mean of the delay.
    Mean,
    /// The median of the delay's error.
    ErrorMedian,
    /// The 99th percentile of the delay's error.
    ErrorP99,
    /// The standard deviation of the delay.
    Deviation,
    /// The Kolmogorov-Smirnov test against uniform delays.
    Uniform,
    /// The Kolmogorov-Smirnov test against normally distributed delays.
    Normal,
    /// The same test, with every 20th delay.
    NormalThinned,
    /// The correlation of two delays in a row.
    Correlation,
    /// The deviation of that correlation from what was asked.
    CorrelationError,
    /// The frames that arrive after a later one.
    Reordered,
    /// The frames that did not arrive. The three variants are for a path without loss, with 5 % of loss, and
    /// with a Gilbert-Elliott model.
    LostOfNone,
    LostOfShare,
    LostOfBursts,
    /// The deviation of the share of lost frames from what was asked.
    ShareError,
    /// The mean length of runs of lost frames.
    Burst,
    /// The chi-square test of the lengths of runs of lost frames.
    Bursts,
}

pub(super) const CASES: [Case; 9] = [
    Case {
        netem: "delay 50ms",
        more: &[],
        figures: &[
            Figure::ErrorMedian,
            Figure::ErrorP99,
            Figure::LostOfNone,
            Figure::Reordered,
        ],
    },
    Case {
        netem: "delay 50ms 5ms",
        more: &[],
        figures: &[
            Figure::Uniform,
            Figure::Mean,
            Figure::Deviation,
            Figure::Reordered,
        ],
    },
    Case {
        netem: "delay 50ms 5ms distribution normal",
        more: &[],
        figures: &[Figure::Normal, Figure::Mean, Figure::Deviation, Figure::Reordered],
    },
    Case {
        netem: "delay 50ms 5ms distribution normal",
        more: &["--order", "ordered"],
        figures: &[Figure::Mean, Figure::Reordered],
    },
    Case {
        netem: "delay 50ms 5ms 50% distribution normal",
        more: &[],
        figures: &[
            Figure::NormalThinned,
            Figure::Deviation,
            Figure::Correlation,
            Figure::CorrelationError,
        ],
    },
    Case {
        netem: "loss 5%",
        more: &[],
        figures: &[Figure::LostOfShare, Figure::ShareError, Figure::Burst],
    },
    Case {
        netem: "loss 5% 50%",
        more: &[],
        figures: &[Figure::LostOfShare, Figure::Burst],
    },
    Case {
        netem: "loss gemodel 1% 10%",
        more: &[],
        figures: &[Figure::LostOfBursts, Figure::Burst, Figure::Bursts],
    },
    Case {
        netem: "limit 20 delay 50ms",
        more: &[],
        figures: &[Figure::LostOfNone],
    },
];

impl Case {
    /// Returns the settings in words.
    pub(super) fn text(&self) -> String {
        std::iter::once(self.netem)
            .chain(self.more.iter().copied())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

impl Figure {
    /// Returns the quantity, the asked value in a case with these options, the gate of the emulator, and the
    /// unit.
    pub(super) fn row(self, netem: &str) -> (&'static str, String, Gate, &'static str) {
        let (ms, percent) = (
            |ms: f64| format!("{ms:.2} ms"),
            |share: f64| format!("{:.2} %", share * 100.0),
        );
        let burst = match netem.contains("gemodel") {
            true => format!("{:.2}", 1.0 / BURST_END),
            false => format!("{:.2}", 1.0 / (1.0 - LOSS)),
        };
        let deviation = match self {
            Figure::Deviation if !netem.contains("normal") => JITTER_MS / 3_f64.sqrt(),
            _ => JITTER_MS,
        };
        match self {
            Figure::Mean => ("mean", ms(DELAY_MS), Gate::None, "ms"),
            Figure::ErrorMedian => ("error, p50", ms(DELAY_MS), Gate::None, "us"),
            Figure::ErrorP99 => ("error, p99", ms(DELAY_MS), Gate::None, "us"),
            Figure::Deviation => ("standard deviation", ms(deviation), Gate::None, "ms"),
            Figure::Uniform | Figure::Normal | Figure::NormalThinned => (
                "Kolmogorov-Smirnov, sqrt(n) D",
                String::new(),
                Gate::AtMost(KS_CRITICAL),
                "",
            ),
            Figure::Correlation => (
                "correlation of neighbours",
                CORRELATION.to_string(),
                Gate::None,
                "",
            ),
            Figure::CorrelationError => (
                "correlation, deviation",
                CORRELATION.to_string(),
                Gate::AtMost(Z_TWO_SIDED),
                "sigma",
            ),
            Figure::Reordered => ("reordered", String::new(), Gate::None, "%"),
            Figure::LostOfNone => ("lost", percent(0.0), Gate::Exactly(0.0), "%"),
            Figure::LostOfShare => ("lost", percent(LOSS), Gate::None, "%"),
            Figure::LostOfBursts => (
                "lost",
                percent(BURST_BEGIN / (BURST_BEGIN + BURST_END)),
                Gate::None,
                "%",
            ),
            Figure::ShareError => (
                "lost, deviation",
                percent(LOSS),
                Gate::AtMost(Z_TWO_SIDED),
                "sigma",
            ),
            Figure::Burst => ("mean length of losses", burst, Gate::None, "frames"),
            Figure::Bursts => (
                "chi-square of lengths of losses / critical value",
                format!("{:.2}", 1.0 / BURST_END),
                Gate::AtMost(1.0),
                "",
            ),
        }
    }

    /// Returns the value of the figure for an observed run; `None` if too few frames arrived, or were lost, for it.
    /// `baseline_ms` is the median without delay.
    pub(super) fn value(self, observed: &Observed, baseline_ms: f64) -> Option<f64> {
        let delays: Vec<f64> = observed.delays_ms().map(|delay| delay - baseline_ms).collect();
        let mean = || delays.iter().sum::<f64>() / delays.len() as f64;
        let standardised = |spread: f64| delays.iter().map(move |delay| (delay - DELAY_MS) / spread);
        let error = |share: f64| {
            let mut errors: Vec<f64> = delays
                .iter()
                .map(|delay| (delay - DELAY_MS).abs() * 1000.0)
                .collect();
            errors.sort_by(f64::total_cmp);
            match errors.is_empty() {
                true => f64::NAN,
                false => millrace_report::stats::quantile(&errors, share),
            }
        };
        let value = match self {
            Figure::Mean => mean(),
            Figure::ErrorMedian => error(0.5),
            Figure::ErrorP99 => error(0.99),
            Figure::Deviation => {
                let mean = mean();
                let squares = delays.iter().map(|delay| (delay - mean).powi(2));
                (squares.sum::<f64>() / delays.len() as f64).sqrt()
            }
            Figure::Uniform => {
                let mut values: Vec<f64> = standardised(JITTER_MS).collect();
                kolmogorov_smirnov(&mut values, |x| ((x + 1.0) / 2.0).clamp(0.0, 1.0))?
            }
            Figure::Normal => kolmogorov_smirnov(&mut standardised(JITTER_MS).collect::<Vec<_>>(), normal)?,
            Figure::NormalThinned => {
                let mut values: Vec<f64> = standardised(JITTER_MS).step_by(INDEPENDENT).collect();
                kolmogorov_smirnov(&mut values, normal)?
            }
            Figure::Correlation => autocorrelation(&delays, 1),
            Figure::CorrelationError => {
                // The variance of an estimated autocorrelation of an AR(1) process at lag 1 (Bartlett 1946).
                let variance = (1.0 - CORRELATION * CORRELATION) / delays.len() as f64;
                (autocorrelation(&delays, 1) - CORRELATION).abs() / variance.sqrt()
            }
            Figure::Reordered => 100.0 * observed.reordered() as f64 / delays.len() as f64,
            Figure::LostOfNone | Figure::LostOfShare | Figure::LostOfBursts => {
                100.0 * observed.lost_count() as f64 / observed.len() as f64
            }
            Figure::ShareError => binomial_z(observed.lost_count(), observed.len() as u64, LOSS).abs(),
            Figure::Burst => {
                let lost = observed.lost();
                let runs = lost.chunk_by(|a, b| a == b).filter(|run| run[0]).count();
                observed.lost_count() as f64 / runs as f64
            }
            Figure::Bursts => chi_square(&run_lengths(&observed.lost(), true), &geometric(BURST_END)),
        };
        // A mean of nothing is not a number.
        value.is_finite().then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the observed run of a path with these delays in milliseconds; `None` is a lost frame.
    fn observed(delays: impl IntoIterator<Item = Option<f64>>) -> Observed {
        let lines: Vec<String> = delays
            .into_iter()
            .enumerate()
            .map(|(number, delay)| {
                let entered = number as u64 * INTERVAL_US * 1000;
                match delay {
                    Some(ms) => format!("{entered} {}", entered + (ms * 1e6) as u64),
                    None => format!("{entered} -"),
                }
            })
            .collect();
        Observed::parse(&lines.join("\n"), lines.len()).unwrap()
    }

    /// Returns numbers that are spread evenly over (0, 1) and are not sorted (a Weyl sequence, with the
    /// golden ratio).
    fn fractions() -> impl Iterator<Item = f64> {
        (1..=4000).map(|i| (f64::from(i) * 0.618_033_988_749_894_9).fract())
    }

    #[test]
    fn a_uniform_jitter_is_accepted_and_one_that_is_a_tenth_narrower_is_not() {
        let path = |width: f64| observed(fractions().map(|x| Some(0.1 + 50.0 + width * (2.0 * x - 1.0))));
        assert!(Figure::Uniform.value(&path(5.0), 0.1).unwrap() < KS_CRITICAL);
        assert!(Figure::Uniform.value(&path(4.5), 0.1).unwrap() > KS_CRITICAL);
        assert!((Figure::Mean.value(&path(5.0), 0.1).unwrap() - 50.0).abs() < 0.01);
        assert!((Figure::Deviation.value(&path(5.0), 0.1).unwrap() - 5.0 / 3_f64.sqrt()).abs() < 0.01);
    }

    #[test]
    fn delays_without_memory_are_not_taken_for_correlated_ones() {
        let path = observed(fractions().map(|x| Some(50.0 + x)));
        assert!(Figure::CorrelationError.value(&path, 0.0).unwrap() > Z_TWO_SIDED);
    }

    #[test]
    fn losses_are_counted_in_frames_and_in_runs() {
        let path = observed((0..1000).map(|number| (number % 40 >= 2).then_some(50.0)));
        assert!((Figure::LostOfShare.value(&path, 0.0).unwrap() - 5.0).abs() < 1e-9);
        assert!(Figure::ShareError.value(&path, 0.0).unwrap() < 1e-9);
        assert!((Figure::Burst.value(&path, 0.0).unwrap() - 2.0).abs() < 1e-9);
        // All runs of lost frames have two frames, which is not a geometric distribution with mean 10.
        assert!(Figure::Bursts.value(&path, 0.0).unwrap() > 1.0);
    }

    #[test]
    fn a_path_on_which_no_frame_arrives_has_losses_and_no_distribution() {
        let path = observed((0..100).map(|_| None));
        for of in &CASES {
            for figure in of.figures {
                let value = figure.value(&path, 0.2);
                match figure {
                    Figure::LostOfNone | Figure::LostOfShare | Figure::LostOfBursts => {
                        assert_eq!(value, Some(100.0));
                    }
                    Figure::ShareError => assert!(value.unwrap() > Z_TWO_SIDED),
                    Figure::Burst => assert_eq!(value, Some(100.0)),
                    _ => assert_eq!(value, None, "{figure:?}"),
                }
            }
        }
    }

    #[test]
    fn the_error_is_what_remains_after_the_delay_and_the_baseline() {
        let path = observed((0..100).map(|number| Some(if number < 97 { 50.21 } else { 51.2 })));
        assert!((Figure::ErrorMedian.value(&path, 0.2).unwrap() - 10.0).abs() < 0.1);
        assert!((Figure::ErrorP99.value(&path, 0.2).unwrap() - 1000.0).abs() < 0.1);
    }
}
