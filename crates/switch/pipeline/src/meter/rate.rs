//! Conformance of packets to a rate.
//!
//! The state is one number, the theoretical arrival time of the generic cell rate algorithm (ITU-T I.371,
//! virtual scheduling form). It is the time at which all conforming packets would have left if they had been
//! sent one after the other at the rate. A packet conforms if the theoretical arrival time is ahead of the
//! clock by at most the burst tolerance. A conforming packet advances it by the packet's duration at the
//! rate. This is a token bucket that may go below zero by less than a packet: a packet larger than the bucket
//! is not starved, and no rounding error accumulates.
//!
//! Workers share the number and change it by compare and exchange, so the rate limits all workers together,
//! however the traffic is spread. The clocks of workers may differ by the time between reading the clock and
//! the measurement; a worker with a late clock only measures more strictly.

use core::sync::atomic::{AtomicU64, Ordering};

use millrace_types::{BitRate, Time};

use super::config::{Band, DEFAULT_BURST, MeterFlags};

/// Units of time in a nanosecond. At 100 Gbit/s a packet of 64 bytes takes 5.12 ns, and the error of this
/// duration must be below a thousandth. 64 bits of these units last two years and then wrap.
const UNITS_PER_NS: u64 = 256;
const UNITS_PER_SECOND: u128 = UNITS_PER_NS as u128 * 1_000_000_000;
/// The number of fraction bits in the duration of a byte.
const FRACTION: u32 = 20;
/// The burst tolerance of a band without burst size ([`DEFAULT_BURST`]).
const BURST_DEFAULT: u64 = DEFAULT_BURST.as_nanos() as u64 * UNITS_PER_NS;
/// The longest burst tolerance: a day.
const BURST_MAX: u128 = 86_400 * UNITS_PER_SECOND;
/// A theoretical arrival time that is this far ahead of the clock, or further, has wrapped: its last update
/// was more than a year ago. A current value is never so far ahead, because the tolerance and one packet
/// together are less.
const STALE: i64 = 2 * BURST_MAX as i64;

/// A conformance test for a rate.
#[derive(Debug)]
pub(crate) struct Gcra {
    /// The duration of a byte, or of a packet if `counts_packets`: in units of [`UNITS_PER_NS`], with
    /// [`FRACTION`] fraction bits.
    time_per_unit: u64,
    counts_packets: bool,
    /// The burst tolerance in units of [`UNITS_PER_NS`].
    tolerance: i64,
    /// The theoretical arrival time in units of [`UNITS_PER_NS`]; may wrap.
    theoretical_arrival_time: AtomicU64,
}

impl Gcra {
    /// Returns the test of a band with a rate above zero. The bucket starts full.
    pub(super) fn new(flags: MeterFlags, band: &Band, now: Time) -> Gcra {
        let counts_packets = flags.contains(MeterFlags::PKTPS);
        let rate = u128::from(band.rate.max(1));
        // A kilobit is 125 bytes.
        let parts = if counts_packets { 1 } else { 125 };
        let time_per_unit = (UNITS_PER_SECOND << FRACTION) / (rate * parts);
        let tolerance = if flags.contains(MeterFlags::BURST) && band.burst_size > 0 {
            (u128::from(band.burst_size) * UNITS_PER_SECOND / rate).min(BURST_MAX) as i64
        } else {
            BURST_DEFAULT as i64
        };
        Gcra {
            time_per_unit: time_per_unit as u64,
            counts_packets,
            tolerance,
            theoretical_arrival_time: AtomicU64::new(units(now)),
        }
    }

    /// Returns a test that counts bytes. The bucket starts full, with `burst` bytes.
    pub(crate) fn of_bytes(rate: BitRate, burst: u64, now: Time) -> Gcra {
        let rate = u128::from(rate.bps().max(1));
        let tolerance = u128::from(burst) * 8 * UNITS_PER_SECOND / rate;
        Gcra {
            time_per_unit: ((UNITS_PER_SECOND << FRACTION) * 8 / rate) as u64,
            counts_packets: false,
            tolerance: tolerance.min(BURST_MAX) as i64,
            theoretical_arrival_time: AtomicU64::new(units(now)),
        }
    }

    /// Returns the duration of a packet of `size` bytes at the rate, in [`UNITS_PER_NS`].
    #[inline]
    pub(crate) fn duration(&self, size: usize) -> u64 {
        self.duration_of_packets(1, size)
    }

    /// Returns the duration of `packets` packets that are `size` bytes long together.
    #[inline]
    fn duration_of_packets(&self, packets: usize, size: usize) -> u64 {
        let amount = if self.counts_packets { packets } else { size };
        ((amount as u128 * u128::from(self.time_per_unit)) >> FRACTION) as u64
    }

    /// Returns true if a packet that counts as `packets` packets conforms to the rate. A conforming packet is
    /// charged to the bucket if `is_real`.
    #[inline]
    pub(super) fn conforms(&self, packets: usize, size: usize, now: Time, is_real: bool) -> bool {
        self.advance(
            self.duration_of_packets(packets, size),
            self.tolerance,
            now,
            is_real,
        )
    }

    /// Returns true if a packet conforms to the rate and the bucket has tokens for all of it. Such a packet
    /// is charged to the bucket.
    #[inline]
    pub(crate) fn conforms_within_burst(&self, size: usize, now: Time) -> bool {
        let duration = self.duration(size);
        let room = self
            .tolerance
            .saturating_sub(i64::try_from(duration).unwrap_or(i64::MAX));
        room >= 0 && self.advance(duration, room, now, true)
    }

    /// Returns the time since the last call during which the bucket was full and tokens overflowed, in
    /// [`UNITS_PER_NS`].
    #[inline]
    pub(crate) fn idle(&self, now: Time) -> u64 {
        let now = units(now);
        let until = self.theoretical_arrival_time.load(Ordering::Relaxed);
        let idle = now.wrapping_sub(until) as i64;
        // Only one of several concurrent callers gets the result.
        let is_claimed = idle > 0
            && self
                .theoretical_arrival_time
                .compare_exchange(until, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_claimed { idle as u64 } else { 0 }
    }

    /// Advances the theoretical arrival time by `duration`, unless it is ahead of the clock by more than
    /// `tolerance`.
    #[inline]
    fn advance(&self, duration: u64, tolerance: i64, now: Time, is_real: bool) -> bool {
        let now = units(now);
        let mut until = self.theoretical_arrival_time.load(Ordering::Relaxed);
        loop {
            let ahead = until.wrapping_sub(now) as i64;
            if ahead > tolerance && ahead < STALE {
                return false;
            }
            if !is_real {
                return true;
            }
            let from = if (0..STALE).contains(&ahead) { until } else { now };
            let next = from.wrapping_add(duration);
            // Relaxed, because no other data depend on this store.
            match self.theoretical_arrival_time.compare_exchange_weak(
                until,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(other) => until = other,
            }
        }
    }
}

#[inline]
fn units(time: Time) -> u64 {
    time.nanos().wrapping_mul(UNITS_PER_NS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::BandKind;
    use millrace_types::Duration;

    const KBPS_BURST: u16 = MeterFlags::KBPS.0 | MeterFlags::BURST.0;

    fn gcra(flags: u16, rate: u32, burst_size: u32) -> Gcra {
        let band = Band {
            rate,
            burst_size,
            kind: BandKind::Drop,
        };
        Gcra::new(MeterFlags(flags), &band, Time::from_secs(7))
    }

    /// Returns the number of conforming packets in a stream with a constant gap.
    fn passed(gcra: &Gcra, size: usize, gap_ns: u64, seconds: u64) -> u64 {
        let start = Time::from_secs(7);
        let len = seconds * 1_000_000_000 / gap_ns;
        let at = |n| start + Duration::from_nanos(n * gap_ns);
        (0..len).filter(|n| gcra.conforms(1, size, at(*n), true)).count() as u64
    }

    #[test]
    fn a_rate_above_that_of_the_packets_passes_all() {
        // 64 bytes every microsecond are 512 Mbit/s.
        assert_eq!(passed(&gcra(1, 512_000, 0), 64, 1000, 1), 1_000_000);
        assert_eq!(passed(&gcra(2, 1_000_000, 0), 64, 1000, 1), 1_000_000);
    }

    #[test]
    fn a_burst_passes_at_once_and_then_the_rate() {
        let gcra = gcra(MeterFlags::PKTPS.0 | MeterFlags::BURST.0, 1000, 50);
        let start = Time::from_secs(7);
        let at_once = (0..1000).filter(|_| gcra.conforms(1, 64, start, true)).count();
        assert_eq!(at_once, 51);
        let later = start + Duration::from_millis(20);
        assert_eq!(
            (0..1000).filter(|_| gcra.conforms(1, 64, later, true)).count(),
            20
        );
        // Tokens beyond the burst are lost.
        let much_later = later + Duration::from_secs(1_000_000);
        assert_eq!(
            (0..1000)
                .filter(|_| gcra.conforms(1, 64, much_later, true))
                .count(),
            51
        );
    }

    #[test]
    fn a_packet_larger_than_the_burst_is_not_starved() {
        // A packet of 9,000 bytes has 72 kbit; the bucket holds 1 kbit.
        let gcra = gcra(MeterFlags::KBPS.0 | MeterFlags::BURST.0, 7200, 1);
        let count = passed(&gcra, 9000, 1_000_000, 5);
        assert!((495..=505).contains(&count), "{count}: expected 100 a second");
    }

    #[test]
    fn a_packet_that_counts_as_many_takes_their_time() {
        let gcra = gcra(MeterFlags::PKTPS.0 | MeterFlags::BURST.0, 1000, 90);
        let now = Time::from_secs(7);
        // The second packet begins within the burst, and the third does not.
        let passed = (0..5).filter(|_| gcra.conforms(46, 65_000, now, true)).count();
        assert_eq!(passed, 2);
        assert!(!gcra.conforms(1, 64, now, true));
    }

    #[test]
    fn workers_at_once_pass_no_more_than_one_alone() {
        let gcra = gcra(MeterFlags::PKTPS.0 | MeterFlags::BURST.0, 1000, 5000);
        let now = Time::from_secs(7);
        let passed: usize = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..10_000).filter(|_| gcra.conforms(1, 64, now, true)).count()))
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert_eq!(passed, 5001);
    }

    #[test]
    fn looking_does_not_count() {
        let gcra = gcra(2, 1, 0);
        let now = Time::from_secs(7);
        assert!((0..10).all(|_| gcra.conforms(1, 64, now, false)));
        assert!(gcra.conforms(1, 64, now, true) && !gcra.conforms(1, 64, now, false));
    }

    #[test]
    fn a_gate_that_was_idle_for_years_passes_its_burst() {
        let gcra = gcra(2, 1000, 0);
        for years in 1..20 {
            let now = Time::from_secs(years * 31_536_000);
            assert_eq!(
                (0..1000).filter(|_| gcra.conforms(1, 64, now, true)).count(),
                201,
                "after {years} years"
            );
        }
    }

    #[test]
    fn two_workers_share_a_rate_from_1_mbit_to_5_gbit_to_one_per_cent_over_five_seconds() {
        for (rate_kbps, size) in [
            (1_000, 64),
            (1_000, 1500),
            (100_000, 512),
            (1_000_000, 1500),
            (5_000_000, 1500),
        ] {
            // A burst of 20 ms, which is 0.4 % of five seconds.
            let gcra = gcra(KBPS_BURST, rate_kbps, rate_kbps / 50);
            let start = Time::from_secs(7);
            // 1.3 times the rate, in bursts of up to 32 packets, alternately from two workers; the clock of
            // one worker is late.
            let gap_ns = size * 8_000_000 / u64::from(rate_kbps) * 10 / 13;
            let together = (10_000_000 / gap_ns).clamp(1, 32);
            let (mut nanos, mut bytes, mut turn) = (0, 0, 0);
            while nanos < 5_000_000_000 {
                let now = start + Duration::from_nanos(nanos - (turn % 2 * 1_000).min(nanos));
                bytes += size
                    * (0..together)
                        .filter(|_| gcra.conforms(1, size as usize, now, true))
                        .count() as u64;
                nanos += together * gap_ns;
                turn += 1;
            }
            let error = bytes as f64 * 8.0 / 5_000.0 / f64::from(rate_kbps) - 1.0;
            assert!(error.abs() < 0.01, "{rate_kbps} kbit/s, {size} bytes: {error}");
        }
    }

    #[test]
    fn the_highest_rates_are_exact() {
        for (rate_kbps, size, gap_ns) in [(100_000_000, 64, 4), (1_000_000_000, 1500, 10)] {
            let gcra = gcra(KBPS_BURST, rate_kbps, rate_kbps / 50);
            let start = Time::from_secs(7);
            let at = |n: u64| start + Duration::from_nanos(n * gap_ns);
            // The number of packets in 0.1 s, with a burst of 0.02 s.
            let count = (0..100_000_000 / gap_ns)
                .filter(|n| gcra.conforms(1, size, at(*n), true))
                .count() as f64;
            let exact = f64::from(rate_kbps) * 1000.0 * 0.12 / (8.0 * size as f64);
            assert!(
                (count / exact - 1.0).abs() < 0.001,
                "{rate_kbps}: {count} of {exact}"
            );
        }
    }
}
