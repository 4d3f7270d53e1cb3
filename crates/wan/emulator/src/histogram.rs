//! A histogram of times that one thread writes and others read, without a lock.
//!
//! Buckets are linear up to 32 ns. Above that there are 32 for each power of two, so that a value is known
//! within 3 %.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

const PRECISION: u32 = 5;
const LINEAR: u64 = 1 << PRECISION;
const BUCKETS: usize = (64 - PRECISION as usize + 1) << PRECISION;

/// A histogram of nanoseconds.
pub(crate) struct Histogram {
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
    max: AtomicU64,
}

/// Adds to a counter that only this thread writes.
#[inline]
pub(crate) fn add(counter: &AtomicU64, value: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(value),
        Ordering::Relaxed,
    );
}

fn bucket(nanos: u64) -> usize {
    if nanos < LINEAR {
        return nanos as usize;
    }
    let exponent = nanos.ilog2();
    let within = (nanos >> (exponent - PRECISION)) as usize & (LINEAR as usize - 1);
    ((exponent - PRECISION + 1) as usize) << PRECISION | within
}

/// Returns the largest value of a bucket.
fn upper(bucket: usize) -> u64 {
    if bucket < LINEAR as usize {
        return bucket as u64;
    }
    let exponent = (bucket >> PRECISION) as u32 - 1;
    let within = (bucket & (LINEAR as usize - 1)) as u64;
    ((LINEAR | within) << exponent) + ((1 << exponent) - 1)
}

impl Histogram {
    pub(crate) fn new() -> Histogram {
        Histogram {
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
        }
    }

    /// Adds a value. Only one thread may call it.
    #[inline]
    pub(crate) fn record(&self, nanos: u64) {
        add(&self.buckets[bucket(nanos)], 1);
        add(&self.sum, nanos);
        if nanos > self.max.load(Ordering::Relaxed) {
            self.max.store(nanos, Ordering::Relaxed);
        }
    }

    pub(crate) fn snapshot(&self) -> HistogramSnapshot {
        let buckets: Box<[u64]> = self
            .buckets
            .iter()
            .map(|bucket| bucket.load(Ordering::Relaxed))
            .collect();
        let count = buckets.iter().sum::<u64>();
        let mut snapshot = HistogramSnapshot {
            count,
            mean_ns: self.sum.load(Ordering::Relaxed) as f64 / count.max(1) as f64,
            p50_ns: 0,
            p90_ns: 0,
            p99_ns: 0,
            p999_ns: 0,
            max_ns: self.max.load(Ordering::Relaxed),
            buckets,
        };
        snapshot.p50_ns = snapshot.quantile(0.5);
        snapshot.p90_ns = snapshot.quantile(0.9);
        snapshot.p99_ns = snapshot.quantile(0.99);
        snapshot.p999_ns = snapshot.quantile(0.999);
        snapshot
    }
}

/// The values of a histogram at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistogramSnapshot {
    /// The number of values.
    pub count: u64,
    /// The mean in nanoseconds.
    pub mean_ns: f64,
    /// The median in nanoseconds.
    pub p50_ns: u64,
    /// The 90th percentile in nanoseconds.
    pub p90_ns: u64,
    /// The 99th percentile in nanoseconds.
    pub p99_ns: u64,
    /// The 99.9th percentile in nanoseconds.
    pub p999_ns: u64,
    /// The largest value in nanoseconds.
    pub max_ns: u64,
    #[serde(skip)]
    buckets: Box<[u64]>,
}

impl HistogramSnapshot {
    /// Returns the value in nanoseconds that `share` of the values (0 to 1) do not exceed, within 3 %.
    /// Returns 0 if there are no values.
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = (share * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let position = self.buckets.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        position.map_or(0, |bucket| upper(bucket).min(self.max_ns))
    }

    /// Returns (largest nanoseconds, count) of each bucket with values, for plots.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let used = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        used.map(|(bucket, count)| (upper(bucket), *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_a_bucket_of_three_percent() {
        for nanos in (0..64)
            .map(|bits| 1u64 << bits)
            .chain([0, 31, 33, 1000, 123_456_789, u64::MAX])
        {
            let upper = upper(bucket(nanos));
            assert!(
                upper >= nanos && (upper - nanos) as f64 <= nanos as f64 / 32.0,
                "{nanos} {upper}"
            );
        }
    }

    #[test]
    fn quantiles_are_those_of_the_values() {
        let histogram = Histogram::new();
        for value in 1..=1000 {
            histogram.record(value * 1000);
        }
        let snapshot = histogram.snapshot();
        assert_eq!(
            (snapshot.count, snapshot.mean_ns, snapshot.max_ns),
            (1000, 500_500.0, 1_000_000)
        );
        assert!(
            (500_000..516_000).contains(&snapshot.p50_ns),
            "{}",
            snapshot.p50_ns
        );
        assert!((990_000..=1_000_000).contains(&snapshot.p99_ns));
        assert_eq!(snapshot.buckets().map(|(_, count)| count).sum::<u64>(), 1000);
        assert_eq!(Histogram::new().snapshot().p50_ns, 0);
    }
}
