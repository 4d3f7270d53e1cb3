//! A token bucket: a credit of data that may be sent at a given rate.
//!
//! A credit grows with time at its rate, and shrinks by the amount sent. Packets may be sent while it is not
//! negative. It therefore goes below zero by less than a packet, no packet is too large for it, and the
//! amount sent over any time is the rate times that time, plus or minus one burst. The unit is a billionth of
//! a bit: a rate in bits per second times a time in nanoseconds is a whole number of units. Nothing is
//! therefore rounded, and nothing drifts, from one bit per second to hundreds of Gbit/s.
//!
//! The credit has two upper limits. While nothing is queued, it grows to one burst only
//! ([`Credit::advance_idle`]), so that packets leave smoothly after a pause. While packets are queued, it
//! grows further: the worker was late, because it was kept from its core, and catches up. To catch up takes
//! longer than the packets of a queue last, so the higher limit also applies for some time after the worker
//! was late ([`Delay`]).

use millrace_types::{BitRate, Duration, Time};

/// Billionths of a bit in a byte.
const BYTE: i64 = 8_000_000_000;
/// The burst: the amount that may leave at once after a pause, as time at the rate.
const BURST: Duration = Duration::from_millis(1);
/// Minimum size of the burst in bytes: two full frames.
const BURST_BYTES_MIN: i64 = 3_028;
/// The amount that a late worker may catch up, as time at the rate: longer than the kernel keeps a busy
/// worker from its core, and too short for people to notice.
const LATE: Duration = Duration::from_millis(20);

/// Records whether the worker was late, and until when it catches up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Delay {
    /// The time of the last poll. A worker never sleeps for as long as a burst lasts, so a longer gap means
    /// that the worker was late.
    polled_at: Time,
    catch_up_until: Time,
}

impl Delay {
    pub(super) fn new(now: Time) -> Delay {
        Delay {
            polled_at: now,
            catch_up_until: Time::ZERO,
        }
    }

    /// Records a poll by the worker.
    #[inline]
    pub(super) fn note_poll(&mut self, now: Time) {
        if now > self.polled_at + BURST {
            self.catch_up_until = now + LATE;
        }
        self.polled_at = now;
    }

    /// Returns true while the worker catches up.
    #[inline]
    pub(super) fn is_catching_up(&self, now: Time) -> bool {
        now < self.catch_up_until
    }
}

/// A token bucket of one rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Credit {
    /// Bits per second, which are billionths of a bit per nanosecond.
    rate: u64,
    amount: i64,
    burst: i64,
    max: i64,
    at: Time,
}

impl Credit {
    /// Returns a full bucket for a rate; a rate of zero counts as one bit per second.
    pub(super) fn new(rate: BitRate, now: Time) -> Credit {
        let rate = rate.bps().max(1);
        let burst = credit_of(rate, BURST).max(BURST_BYTES_MIN * BYTE);
        Credit {
            rate,
            amount: burst,
            burst,
            max: burst.saturating_add(credit_of(rate, LATE)),
            at: now,
        }
    }

    /// Returns the rate in bits a second.
    pub(super) fn rate(&self) -> BitRate {
        BitRate::from_bps(self.rate)
    }

    /// Adds the credit of the time since the last call. Does nothing if `now` is before that call.
    #[inline]
    pub(super) fn advance(&mut self, now: Time) {
        let nanos = now.nanos().saturating_sub(self.at.nanos());
        if nanos != 0 {
            let more = u128::from(self.rate) * u128::from(nanos);
            let more = i64::try_from(more).unwrap_or(i64::MAX);
            self.amount = self.amount.saturating_add(more).min(self.max);
            self.at = now;
        }
    }

    /// Adds the credit of a time without queued packets: one burst at most.
    #[inline]
    pub(super) fn advance_idle(&mut self, now: Time) {
        self.advance(now);
        self.amount = self.amount.min(self.burst);
    }

    /// Returns true if a packet may be sent.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.amount >= 0
    }

    /// Subtracts `bytes` from the credit.
    #[inline]
    pub(super) fn spend(&mut self, bytes: u32) {
        self.amount = self.amount.saturating_sub(i64::from(bytes).saturating_mul(BYTE));
    }

    /// Returns the time at which a packet may be sent again.
    #[inline]
    pub(super) fn eligible_at(&self) -> Time {
        if self.is_open() {
            return self.at;
        }
        self.at + Duration::from_nanos(self.amount.unsigned_abs().div_ceil(self.rate))
    }
}

/// Returns the credit for a time at a rate, limited to a quarter of the range.
fn credit_of(rate: u64, time: Duration) -> i64 {
    i64::try_from(u128::from(rate) * time.as_nanos())
        .unwrap_or(i64::MAX)
        .min(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credit_never_drifts_however_often_it_is_asked() {
        // A rate that no power of two or ten divides, advanced every seven nanoseconds.
        let mut credit = Credit::new(BitRate::from_bps(999_999_937), Time::ZERO);
        let mut bytes = 0_u64;
        for nanos in (0..70_000_000).step_by(7) {
            credit.advance(Time::from_nanos(nanos));
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
            let eligible_at = credit.eligible_at();
            let mut early = credit;
            early.advance(Time::from_nanos(eligible_at.nanos() - 1));
            assert!(!early.is_open(), "{rate}");
            credit.advance(eligible_at);
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
        rested.advance_idle(Time::from_secs(9));
        late.advance(Time::from_secs(9));
        assert_eq!(bytes(rested), 126_000);
        assert_eq!(bytes(late), 2_626_000);
    }

    #[test]
    fn no_rate_and_no_time_overflows() {
        for rate in [0, 1, u64::MAX] {
            let mut credit = Credit::new(BitRate::from_bps(rate), Time::ZERO);
            credit.advance(Time::from_nanos(u64::MAX));
            credit.spend(u32::MAX);
            credit.advance(Time::ZERO);
            let _ = credit.eligible_at();
        }
    }
}
