//! Histograms of latencies with three significant digits, and their summaries.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The largest recorded latency in nanoseconds. Longer latencies are recorded with this value.
const MAX_NS: u64 = 20_000_000_000;
/// The number of significant digits of a recorded value.
const DIGITS: u8 = 3;

/// A histogram of latencies in nanoseconds.
#[derive(Debug, Clone)]
pub struct Latencies(Option<Histogram<u32>>);

impl Default for Latencies {
    fn default() -> Latencies {
        // The constant bounds are valid, so that this cannot fail; without a histogram nothing would be recorded.
        Latencies(Histogram::new_with_bounds(1, MAX_NS, DIGITS).ok())
    }
}

/// A summary of latencies; all zero without packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The number of packets.
    pub count: u64,
    /// The minimum.
    pub min_ns: u64,
    pub mean_ns: f64,
    /// The 50th percentile.
    pub p50_ns: u64,
    /// The 90th percentile.
    pub p90_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The 99.9th percentile.
    pub p999_ns: u64,
    /// The 99.99th percentile.
    pub p9999_ns: u64,
    /// The maximum.
    pub max_ns: u64,
}

impl Latencies {
    /// Records a latency.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(ns);
        }
    }

    /// Adds the latencies of another histogram.
    pub fn add(&mut self, other: &Latencies) {
        if let (Some(own), Some(other)) = (&mut self.0, &other.0) {
            // The bounds are equal, so that this cannot fail.
            let _ = own.add(other);
        }
    }

    /// Removes all latencies.
    pub fn clear(&mut self) {
        if let Some(histogram) = &mut self.0 {
            histogram.reset();
        }
    }

    /// Returns the summary.
    pub fn summary(&self) -> Summary {
        let Some(histogram) = self.0.as_ref().filter(|histogram| !histogram.is_empty()) else {
            return Summary::default();
        };
        let at = |quantile| histogram.value_at_quantile(quantile);
        Summary {
            count: histogram.len(),
            min_ns: histogram.min(),
            mean_ns: histogram.mean(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            p9999_ns: at(0.9999),
            max_ns: histogram.max(),
        }
    }

    /// Returns the bars of a plot: an upper bound in nanoseconds, and the number of packets. Each bar is about 19 % (a
    /// quarter of an octave) wider than the one before. Empty bars are left out.
    pub fn bars(&self) -> Vec<(u64, u64)> {
        let Some(histogram) = &self.0 else {
            return Vec::new();
        };
        let mut bars: Vec<(u64, u64)> = Vec::new();
        let mut bound = 64.0_f64;
        for step in histogram.iter_recorded() {
            let value = step.value_iterated_to();
            while value as f64 > bound {
                bound *= 2_f64.powf(0.25);
            }
            let (bound, count) = (bound as u64, step.count_since_last_iteration());
            match bars.last_mut() {
                Some(last) if last.0 == bound => last.1 += count,
                _ => bars.push((bound, count)),
            }
        }
        bars
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_values_to_a_thousandth() {
        let mut latencies = Latencies::default();
        for ns in 1..=100_000 {
            latencies.record(ns);
        }
        let summary = latencies.summary();
        for (value, wanted) in [
            (summary.p50_ns, 50_000.0),
            (summary.p99_ns, 99_000.0),
            (summary.p9999_ns, 99_990.0),
            (summary.max_ns, 100_000.0),
        ] {
            assert!((value as f64 / wanted - 1.0).abs() < 0.002, "{value} {wanted}");
        }
        assert_eq!((summary.count, summary.min_ns), (100_000, 1));
    }

    #[test]
    fn bars_hold_every_packet_once() {
        let mut latencies = Latencies::default();
        for ns in [3, 70, 71, 5_000, 5_001, 9_000_000, u64::MAX] {
            latencies.record(ns);
        }
        let bars = latencies.bars();
        assert_eq!(bars.iter().map(|bar| bar.1).sum::<u64>(), 7);
        assert!(bars.windows(2).all(|pair| pair[0].0 < pair[1].0), "{bars:?}");
        assert_eq!(bars[0], (64, 1));
    }

    #[test]
    fn nothing_has_no_latency() {
        assert_eq!(Latencies::default().summary(), Summary::default());
        assert!(Latencies::default().bars().is_empty());
    }
}
