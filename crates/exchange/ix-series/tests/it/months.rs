//! The 95th percentiles of synthetic months beside exact ones: nearest rank, and the interpolation of numpy.

use millrace_ix_series::{Figure, Key, Measure, Month, Offset, Store, Subject, TimeZone};

use crate::model::in_memory;

/// A random number generator (xorshift64*; Vigna, 2016), as a fraction of one.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Returns the percentile as `numpy.percentile` computes it.
fn interpolated(sorted: &[f64]) -> f64 {
    let at = 0.95 * (sorted.len() - 1) as f64;
    let (low, part) = (at.floor() as usize, at.fract());
    let high = (low + 1).min(sorted.len() - 1);
    sorted[low] + (sorted[high] - sorted[low]) * part
}

#[test]
fn the_percentiles_of_three_months_are_within_a_thousandth_of_exact_ones() {
    for (seed, month, offset) in [(1, "2026-02", 0), (2, "2026-11", 540), (3, "2024-12", -210)] {
        let (month, mut random): (Month, Random) = (month.parse().unwrap(), Random(seed));
        let zone = TimeZone::fixed(Offset::from_seconds(offset * 60).unwrap());
        let (start, end) = (month.start(&zone), month.next().start(&zone));
        let folder = in_memory();
        let mut store = Store::open(folder.path()).unwrap();
        let key = |measure| Key::new(Subject::Connection(7), measure);
        let mut exact: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
        let mut at = start;
        while at < end {
            // A day with a high in the evening and noise; nothing is known for some hours.
            if random.next() < 0.0005 {
                at += 300 * (1 + (random.next() * 40.0) as u64);
                continue;
            }
            let hour = (at % 86_400) as f64 / 3600.0;
            let values = [1.0e9, 3.0e8].map(|peak| {
                let day = 0.55 + 0.45 * ((hour - 21.0) * std::f64::consts::PI / 12.0).cos();
                (peak * day * (0.8 + 0.4 * random.next())).round()
            });
            let measures = [Measure::In, Measure::Out];
            let pushed: Vec<_> = measures
                .iter()
                .zip(values)
                .map(|(measure, value)| (key(*measure), value as u64))
                .collect();
            store.push(at, &pushed).unwrap();
            for (all, value) in exact.iter_mut().zip(values) {
                all.push(value);
            }
            at += 300;
        }
        // The months beside it do not count.
        for outside in [start - 300, end] {
            store
                .push(
                    outside,
                    &[
                        (key(Measure::In), 9_000_000_000),
                        (key(Measure::Out), 9_000_000_000),
                    ],
                )
                .unwrap();
        }
        let figure = Figure::of(&store, 7, month, &zone, end + 86_400);
        for (all, found) in exact.iter_mut().zip([figure.incoming, figure.outgoing]) {
            all.sort_by(f64::total_cmp);
            let nearest = all[(all.len() * 95).div_ceil(100) - 1];
            let found = found.value.unwrap() as f64;
            for expected in [nearest, interpolated(all)] {
                assert!(
                    (found / expected - 1.0).abs() < 0.001,
                    "{month}: {found}, expected {expected}"
                );
            }
        }
        assert_eq!(figure.billed(), figure.incoming.value);
        assert!(
            !figure.is_billable(),
            "one interval in thirty is known: {}",
            figure.coverage_permille()
        );
    }
}
