//! The summary of many measurements: median and spread.

use serde::{Deserialize, Serialize};

/// A summary of measurements. Quartiles are computed by linear interpolation between the closest ranks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The number of measurements.
    pub len: usize,
    /// The minimum.
    pub min: f64,
    /// The lower quartile.
    pub q1: f64,
    pub median: f64,
    /// The upper quartile.
    pub q3: f64,
    /// The maximum.
    pub max: f64,
    pub mean: f64,
    /// The coefficient of variation: standard deviation (of a sample) over mean; 0 for one measurement.
    pub cv: f64,
}

impl Summary {
    /// Returns the summary of the finite values; `None` if there is none.
    pub fn of(values: &[f64]) -> Option<Summary> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (squares / (sorted.len().max(2) - 1) as f64).sqrt();
        Some(Summary {
            len: sorted.len(),
            min,
            q1: quantile(&sorted, 0.25),
            median: quantile(&sorted, 0.5),
            q3: quantile(&sorted, 0.75),
            max,
            mean,
            cv: if mean == 0.0 { 0.0 } else { deviation / mean },
        })
    }

    /// Returns half of the range in percent of the median, which a table prints after the plus-minus sign.
    pub fn spread_percent(&self) -> f64 {
        if self.median == 0.0 {
            0.0
        } else {
            (self.max - self.min) / 2.0 / self.median * 100.0
        }
    }
}

/// Returns the quantile `q` (0 to 1) of `sorted`, interpolated linearly; 0 if `sorted` is empty.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let position = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (position.floor() as usize, position.ceil() as usize);
    let (below, above) = (sorted[low.min(last)], sorted[high.min(last)]);
    below + (above - below) * (position - position.floor())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_the_quartiles_and_the_variation() {
        let summary = Summary::of(&[4.0, 1.0, 3.0, 2.0, 5.0]).unwrap();
        assert_eq!(
            (summary.min, summary.q1, summary.median, summary.q3, summary.max),
            (1.0, 2.0, 3.0, 4.0, 5.0)
        );
        // The standard deviation of the sample 1 to 5 is sqrt(2.5).
        assert!((summary.cv - 2.5_f64.sqrt() / 3.0).abs() < 1e-12);
        assert!((summary.spread_percent() - 66.666).abs() < 0.01);
    }

    #[test]
    fn an_even_count_has_its_median_between_the_middle_two() {
        assert_eq!(Summary::of(&[1.0, 2.0, 3.0, 10.0]).unwrap().median, 2.5);
    }

    #[test]
    fn one_measurement_does_not_vary_and_none_has_no_summary() {
        let one = Summary::of(&[7.0]).unwrap();
        assert_eq!((one.median, one.cv), (7.0, 0.0));
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[f64::NAN]), None);
    }
}
