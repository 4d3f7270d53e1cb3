//! Statistics of measured values.

use millrace_types::{Duration, Time};

/// Byte counts in bins of time.
#[derive(Clone, Debug)]
pub struct Bins {
    width: Duration,
    bins: Vec<u64>,
}

impl Bins {
    /// Returns bins of this width.
    pub fn new(width: Duration) -> Bins {
        Bins {
            width,
            bins: Vec::new(),
        }
    }

    /// Adds bytes at a time.
    pub fn add(&mut self, at: Time, bytes: u64) {
        let bin = self.bin(at);
        if bin >= self.bins.len() {
            self.bins.resize(bin + 1, 0);
        }
        self.bins[bin] += bytes;
    }

    fn bin(&self, at: Time) -> usize {
        usize::try_from(u128::from(at.nanos()) / self.width.as_nanos().max(1)).unwrap_or(usize::MAX / 2)
    }

    /// Returns the bytes from one time to another, in whole bins.
    pub fn bytes(&self, from: Time, to: Time) -> u64 {
        let (from, to) = (self.bin(from), self.bin(to).min(self.bins.len()));
        self.bins.get(from..to.max(from)).unwrap_or_default().iter().sum()
    }

    /// Returns the rate in bit/s between two times.
    pub fn rate(&self, from: Time, to: Time) -> f64 {
        self.bytes(from, to) as f64 * 8.0 / to.since(from).as_secs_f64().max(1e-9)
    }

    /// Returns the end of the first run of `len` bins with a rate of at least `bps`.
    pub fn reaches(&self, bps: f64, len: usize) -> Option<Time> {
        let enough = bps * self.width.as_secs_f64() / 8.0 * len as f64;
        let at = self
            .bins
            .windows(len.max(1))
            .position(|bins| bins.iter().sum::<u64>() as f64 >= enough)?;
        Some(Time::ZERO + self.width * u32::try_from(at + len).unwrap_or(u32::MAX))
    }
}

/// A histogram of times, exact to a 64th of the value.
#[derive(Clone, Debug, Default)]
pub struct Quantiles {
    counts: std::collections::BTreeMap<u64, u64>,
    total: u64,
}

impl Quantiles {
    /// Adds a time.
    pub fn add(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let shift = 58_u32.saturating_sub(nanos.leading_zeros());
        *self.counts.entry(nanos >> shift << shift).or_default() += 1;
        self.total += 1;
    }

    /// Returns the quantile of the values at `share`, 0 to 1.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = share * self.total as f64;
        let mut below = 0;
        for (nanos, count) in &self.counts {
            below += count;
            if below as f64 >= rank {
                return Duration::from_nanos(*nanos);
            }
        }
        Duration::ZERO
    }
}

/// Returns Jain's fairness index: 1 if all rates are equal, 1/n if one flow has the total rate.
pub fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (rates.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_is_one_for_equals_and_one_in_n_for_a_winner() {
        assert_eq!(jain(&[2.0, 2.0, 2.0]), 1.0);
        assert_eq!(jain(&[4.0, 0.0, 0.0, 0.0]), 0.25);
    }

    #[test]
    fn quantiles_are_exact_to_a_64th() {
        let mut quantiles = Quantiles::default();
        for millis in 1..=1_000 {
            quantiles.add(Duration::from_millis(millis));
        }
        let p95 = quantiles.quantile(0.95).as_secs_f64();
        assert!((0.935..=0.951).contains(&p95), "{p95}");
    }
}
