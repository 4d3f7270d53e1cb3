//! How much may be sent at a rate by now.
//!
//! A credit grows with time at its rate and falls by what is sent; something may be sent while it is not negative. So
//! it goes below zero by less than a packet, no packet is too large for it, and what is sent over any time is the
//! rate times that time, give or take one burst. It is counted in billionths of a bit: a rate of so many bits a
//! second times a number of nanoseconds is a whole number of them, so that nothing is ever rounded and nothing drifts,
//! from one bit a second to hundreds of Gbit/s.
//!
//! There are two limits to what is saved up. While nothing waits, a credit grows to one burst only
//! ([`Credit::rest`]), so that what comes after a pause leaves smoothly. While packets wait it grows further: it was
//! the worker that was late then, held up by its core, and what it owes it makes up for. That takes it longer than the
//! packets last that a queue holds, so for some time after it was late nothing is cut off either ([`Delay`]).

use millrace_types::{BitRate, Duration, Time};

/// Billionths of a bit in a byte.
const BYTE: i64 = 8_000_000_000;
/// What may leave at once after a pause, as time at the rate.
const BURST: Duration = Duration::from_millis(1);
/// And at least so many bytes: two full frames.
const BURST_BYTES_MIN: i64 = 3_028;
/// What is made up for when a worker is late, as time at the rate: longer than the kernel keeps a busy worker from its
/// core, shorter than anybody notices.
const LATE: Duration = Duration::from_millis(20);

/// Whether a worker was late, and still makes up for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Delay {
    /// When it last came by. It never sleeps for as long as a burst takes.
    seen: Time,
    until: Time,
}

impl Delay {
    pub(super) fn new(now: Time) -> Delay {
        Delay {
            seen: now,
            until: Time::ZERO,
        }
    }

    /// The worker comes by.
    #[inline]
    pub(super) fn see(&mut self, now: Time) {
        if now > self.seen + BURST {
            self.until = now + LATE;
        }
        self.seen = now;
    }

    /// Returns true if what was saved up by now is to be made up for.
    #[inline]
    pub(super) fn holds(&self, now: Time) -> bool {
        now < self.until
    }
}

/// What may be sent at a rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Credit {
    /// Bits a second, and so billionths of a bit a nanosecond.
    rate: u64,
    left: i64,
    burst: i64,
    most: i64,
    at: Time,
}

impl Credit {
    /// For a rate, which counts as one bit a second if it is zero; with a full burst.
    pub(super) fn new(rate: BitRate, now: Time) -> Credit {
        let rate = rate.bps().max(1);
        let burst = saved(rate, BURST).max(BURST_BYTES_MIN * BYTE);
        Credit {
            rate,
            left: burst,
            burst,
            most: burst.saturating_add(saved(rate, LATE)),
            at: now,
        }
    }

    /// Returns the rate in bits a second.
    pub(super) fn rate(&self) -> BitRate {
        BitRate::from_bps(self.rate)
    }

    /// Lets time pass. Time that is before the last one changes nothing.
    #[inline]
    pub(super) fn pass(&mut self, now: Time) {
        let nanos = now.nanos().saturating_sub(self.at.nanos());
        if nanos != 0 {
            let more = u128::from(self.rate) * u128::from(nanos);
            let more = i64::try_from(more).unwrap_or(i64::MAX);
            self.left = self.left.saturating_add(more).min(self.most);
            self.at = now;
        }
    }

    /// Lets time pass in which nothing waited.
    #[inline]
    pub(super) fn rest(&mut self, now: Time) {
        self.pass(now);
        self.left = self.left.min(self.burst);
    }

    /// Returns true if something may be sent.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.left >= 0
    }

    /// Sends so many bytes.
    #[inline]
    pub(super) fn spend(&mut self, bytes: u32) {
        self.left = self.left.saturating_sub(i64::from(bytes).saturating_mul(BYTE));
    }

    /// When something may be sent again.
    #[inline]
    pub(super) fn opens(&self) -> Time {
        if self.is_open() {
            return self.at;
        }
        self.at + Duration::from_nanos(self.left.unsigned_abs().div_ceil(self.rate))
    }
}

/// What a rate brings in some time, and no more than can be counted.
fn saved(rate: u64, time: Duration) -> i64 {
    i64::try_from(u128::from(rate) * time.as_nanos())
        .unwrap_or(i64::MAX)
        .min(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credit_never_drifts_however_often_it_is_asked() {
        // A rate that no power of two or ten divides, asked every seven nanoseconds.
        let mut credit = Credit::new(BitRate::from_bps(999_999_937), Time::ZERO);
        let mut bytes = 0_u64;
        for nanos in (0..70_000_000).step_by(7) {
            credit.pass(Time::from_nanos(nanos));
            while credit.is_open() {
                credit.spend(64);
                bytes += 64;
            }
        }
        let burst = 999_999_937 / 1000 / 8;
        let exact = 999_999_937 * 7 / 100 / 8 + burst;
        assert!(bytes.abs_diff(exact) <= 128, "{bytes} of {exact}");
    }

    #[test]
    fn it_opens_when_it_says_and_not_a_nanosecond_before() {
        for rate in [1_000_000, 3_333_333, 5_000_000_000, 100_000_000_000_u64] {
            let mut credit = Credit::new(BitRate::from_bps(rate), Time::ZERO);
            while credit.is_open() {
                credit.spend(1518);
            }
            let opens = credit.opens();
            let mut early = credit;
            early.pass(Time::from_nanos(opens.nanos() - 1));
            assert!(!early.is_open(), "{rate}");
            credit.pass(opens);
            assert!(credit.is_open(), "{rate}");
        }
    }

    #[test]
    fn after_a_pause_a_burst_is_saved_and_after_a_delay_more() {
        let rate = BitRate::from_bps(1_000_000_000);
        let bytes = |mut credit: Credit| {
            let mut bytes = 0;
            while credit.is_open() {
                credit.spend(1000);
                bytes += 1000;
            }
            bytes
        };
        let (mut rested, mut late) = (Credit::new(rate, Time::ZERO), Credit::new(rate, Time::ZERO));
        rested.rest(Time::from_secs(9));
        late.pass(Time::from_secs(9));
        assert_eq!(bytes(rested), 126_000);
        assert_eq!(bytes(late), 2_626_000);
    }

    #[test]
    fn no_rate_and_no_time_overflows() {
        for rate in [0, 1, u64::MAX] {
            let mut credit = Credit::new(BitRate::from_bps(rate), Time::ZERO);
            credit.pass(Time::from_nanos(u64::MAX));
            credit.spend(u32::MAX);
            credit.pass(Time::ZERO);
            let _ = credit.opens();
        }
    }
}
