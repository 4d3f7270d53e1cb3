//! The colors of packets: the markers of RFC 2697, RFC 2698 and RFC 4115.

use core::sync::atomic::{AtomicU64, Ordering};

use millrace_types::{BitRate, Time};

use crate::meter::Gcra;

/// The color of a packet, by its conformance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Color {
    /// The packet conforms to the committed rate.
    Green = 0,
    /// The packet exceeds the committed rate, and conforms to the excess burst, the peak rate or the excess
    /// rate.
    Yellow = 1,
    /// The packet exceeds both limits.
    Red = 2,
}

/// The type of a marker, with its rates, and with its burst sizes in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PolicerRates {
    /// srTCM (RFC 2697): tokens that overflow the committed bucket go to the excess bucket.
    SingleRate {
        /// The committed information rate.
        cir: BitRate,
        /// The committed burst size.
        cbs: u64,
        /// The excess burst size.
        ebs: u64,
    },
    /// trTCM (RFC 2698): green packets take tokens from both buckets.
    TwoRate {
        /// The committed information rate.
        cir: BitRate,
        /// The committed burst size.
        cbs: u64,
        /// The peak information rate.
        pir: BitRate,
        /// The peak burst size.
        pbs: u64,
    },
    /// trTCM of RFC 4115: green packets take tokens from one bucket, yellow ones from the other.
    TwoRateExcess {
        /// The committed information rate.
        cir: BitRate,
        /// The committed burst size.
        cbs: u64,
        /// The excess information rate.
        eir: BitRate,
        /// The excess burst size.
        ebs: u64,
    },
}

/// The state of a marker.
#[derive(Debug)]
pub(super) enum Buckets {
    SingleRate { committed: Gcra, excess: Overflow },
    TwoRate { committed: Gcra, peak: Gcra },
    TwoRateExcess { committed: Gcra, excess: Gcra },
}

impl Buckets {
    /// Returns a marker with full buckets.
    pub(super) fn new(rates: &PolicerRates, now: Time) -> Buckets {
        match *rates {
            PolicerRates::SingleRate { cir, cbs, ebs } => {
                let committed = Gcra::of_bytes(cir, cbs, now);
                let excess = Overflow::new(committed.duration(usize::try_from(ebs).unwrap_or(usize::MAX)));
                Buckets::SingleRate { committed, excess }
            }
            PolicerRates::TwoRate { cir, cbs, pir, pbs } => Buckets::TwoRate {
                committed: Gcra::of_bytes(cir, cbs, now),
                peak: Gcra::of_bytes(pir, pbs, now),
            },
            PolicerRates::TwoRateExcess { cir, cbs, eir, ebs } => Buckets::TwoRateExcess {
                committed: Gcra::of_bytes(cir, cbs, now),
                excess: Gcra::of_bytes(eir, ebs, now),
            },
        }
    }

    /// Returns the new color of a packet that arrived with the color `before`. For a color-blind marker, the
    /// caller passes green.
    #[inline]
    pub(super) fn color(&self, size: usize, before: Color, now: Time) -> Color {
        if before == Color::Red {
            return Color::Red;
        }
        let is_green = before == Color::Green;
        match self {
            Buckets::SingleRate { committed, excess } => {
                excess.fill(committed.idle(now));
                if is_green && committed.conforms_within_burst(size, now) {
                    Color::Green
                } else if excess.take(committed.duration(size)) {
                    Color::Yellow
                } else {
                    Color::Red
                }
            }
            Buckets::TwoRate { committed, peak } => {
                if !peak.conforms_within_burst(size, now) {
                    Color::Red
                } else if is_green && committed.conforms_within_burst(size, now) {
                    Color::Green
                } else {
                    Color::Yellow
                }
            }
            Buckets::TwoRateExcess { committed, excess } => {
                if is_green && committed.conforms_within_burst(size, now) {
                    Color::Green
                } else if excess.conforms_within_burst(size, now) {
                    Color::Yellow
                } else {
                    Color::Red
                }
            }
        }
    }
}

/// The excess bucket of srTCM, which the overflow of the committed bucket fills. It counts tokens as time at the
/// committed rate.
#[derive(Debug)]
pub(super) struct Overflow {
    size: u64,
    /// The tokens that the bucket lacks until it is full.
    missing: AtomicU64,
}

impl Overflow {
    fn new(size: u64) -> Overflow {
        Overflow {
            size,
            missing: AtomicU64::new(0),
        }
    }

    #[inline]
    fn fill(&self, amount: u64) {
        if amount != 0 {
            let filled = |missing: u64| Some(missing.saturating_sub(amount));
            // The update always returns a value, so its result is not needed.
            let _ = self
                .missing
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, filled);
        }
    }

    #[inline]
    fn take(&self, amount: u64) -> bool {
        let taken = |missing: u64| {
            missing
                .checked_add(amount)
                .filter(|missing| *missing <= self.size)
        };
        self.missing
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The pseudo-code of the RFCs, with tokens in millionths of a byte.
    struct Model {
        rates: PolicerRates,
        first: u64,
        second: u64,
        at: Time,
    }

    const PART: u64 = 1_000_000;

    impl Model {
        fn new(rates: PolicerRates) -> Model {
            let (first, second) = match rates {
                PolicerRates::SingleRate { cbs, ebs, .. } | PolicerRates::TwoRateExcess { cbs, ebs, .. } => {
                    (cbs, ebs)
                }
                PolicerRates::TwoRate { cbs, pbs, .. } => (cbs, pbs),
            };
            Model {
                rates,
                first: first * PART,
                second: second * PART,
                at: Time::ZERO,
            }
        }

        fn color(&mut self, size: usize, before: Color, now: Time) -> Color {
            let nanos = now.nanos() - self.at.nanos();
            self.at = now;
            // The rates of the tests are whole numbers of bytes per microsecond.
            let grown = |rate: BitRate| rate.bps() / 8 * nanos / 1_000;
            let size = size as u64 * PART;
            match self.rates {
                PolicerRates::SingleRate { cir, cbs, ebs } => {
                    let all = self.first + grown(cir);
                    self.first = all.min(cbs * PART);
                    self.second = (self.second + all - self.first).min(ebs * PART);
                }
                PolicerRates::TwoRate {
                    cir,
                    cbs,
                    pir: other,
                    pbs: burst,
                }
                | PolicerRates::TwoRateExcess {
                    cir,
                    cbs,
                    eir: other,
                    ebs: burst,
                } => {
                    self.first = (self.first + grown(cir)).min(cbs * PART);
                    self.second = (self.second + grown(other)).min(burst * PART);
                }
            }
            let (has_first, has_second) = (self.first >= size, self.second >= size);
            match self.rates {
                PolicerRates::TwoRate { .. } => {
                    if before == Color::Red || !has_second {
                        return Color::Red;
                    }
                    self.second -= size;
                    if before == Color::Yellow || !has_first {
                        return Color::Yellow;
                    }
                    self.first -= size;
                    Color::Green
                }
                _ if before == Color::Green && has_first => {
                    self.first -= size;
                    Color::Green
                }
                _ if before != Color::Red && has_second => {
                    self.second -= size;
                    Color::Yellow
                }
                _ => Color::Red,
            }
        }
    }

    fn rates() -> impl Strategy<Value = PolicerRates> {
        // A byte takes a whole number of nanoseconds at these rates, so that tokens are exact in the marker
        // and in the model.
        let rate = || {
            prop_oneof![Just(8_000_000_u64), Just(80_000_000), Just(1_000_000_000)]
                .prop_map(BitRate::from_bps)
        };
        let size = || 64_u64..20_000;
        (0..3, rate(), rate(), size(), size()).prop_map(|(kind, one, other, cbs, burst)| match kind {
            0 => PolicerRates::SingleRate {
                cir: one,
                cbs,
                ebs: burst,
            },
            1 => PolicerRates::TwoRate {
                cir: one.min(other),
                cbs,
                pir: one.max(other),
                pbs: burst,
            },
            _ => PolicerRates::TwoRateExcess {
                cir: one,
                cbs,
                eir: other,
                ebs: burst,
            },
        })
    }

    fn colors() -> impl Strategy<Value = Color> {
        prop_oneof![4 => Just(Color::Green), 2 => Just(Color::Yellow), 1 => Just(Color::Red)]
    }

    proptest! {
        #[test]
        fn colors_are_those_of_the_rfc(
            rates in rates(),
            packets in prop::collection::vec((0_u64..2_000_000, 60_usize..9_000, colors()), 1..300),
            is_aware in any::<bool>(),
        ) {
            let buckets = Buckets::new(&rates, Time::ZERO);
            let mut model = Model::new(rates);
            let mut now = Time::ZERO;
            for (gap, size, color) in packets {
                now = now + millrace_types::Duration::from_nanos(gap);
                let before = if is_aware { color } else { Color::Green };
                prop_assert_eq!(buckets.color(size, before, now), model.color(size, before, now));
            }
        }
    }

    /// Returns the rate of each color in bit/s, for packets that arrive at the rate `bps` for five seconds.
    fn measured(rates: PolicerRates, bps: u64, size: u64) -> [f64; 3] {
        let buckets = Buckets::new(&rates, Time::ZERO);
        let mut bits = [0.0; 3];
        let gap = size * 8_000_000_000 / bps;
        for n in 0..5_000_000_000 / gap {
            let color = buckets.color(size as usize, Color::Green, Time::from_nanos(n * gap));
            bits[color as usize] += size as f64 * 8.0 / 5.0;
        }
        bits
    }

    #[test]
    fn rates_of_all_colors_are_exact_over_five_seconds() {
        for (cir, size) in [
            (1_000_000, 64),
            (50_000_000, 512),
            (1_000_000_000, 1500),
            (5_000_000_000, 9000),
        ] {
            let rate = BitRate::from_bps;
            let burst = (cir / 800).max(size * 4);
            let two = PolicerRates::TwoRate {
                cir: rate(cir),
                cbs: burst,
                pir: rate(cir * 3 / 2),
                pbs: burst,
            };
            let excess = PolicerRates::TwoRateExcess {
                cir: rate(cir),
                cbs: burst,
                eir: rate(cir / 2),
                ebs: burst,
            };
            let one = PolicerRates::SingleRate {
                cir: rate(cir),
                cbs: burst,
                ebs: burst,
            };
            for (rates, yellow) in [(two, 0.5), (excess, 0.5), (one, 0.0)] {
                let [green, got, red] = measured(rates, cir * 2, size).map(|bps| bps / cir as f64);
                assert!((green - 1.0).abs() < 0.01, "{rates:?}: {green}");
                assert!((got - yellow).abs() < 0.01, "{rates:?}: {got}");
                assert!((red - (1.0 - yellow)).abs() < 0.02, "{rates:?}: {red}");
            }
        }
    }

    #[test]
    fn workers_at_once_get_no_more_than_one_alone() {
        let rates = PolicerRates::SingleRate {
            cir: BitRate::from_bps(1_000_000),
            cbs: 64_000,
            ebs: 32_000,
        };
        let buckets = Buckets::new(&rates, Time::ZERO);
        let counts: Vec<[u32; 3]> = std::thread::scope(|scope| {
            let count = || {
                let mut counts = [0; 3];
                (0..5_000).for_each(|_| counts[buckets.color(64, Color::Green, Time::ZERO) as usize] += 1);
                counts
            };
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        let sum = |color: usize| counts.iter().map(|counts| counts[color]).sum::<u32>();
        assert_eq!([sum(0), sum(1), sum(2)], [1_000, 500, 18_500]);
    }
}
