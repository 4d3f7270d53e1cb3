//! The rate limit of a session. The receiver enforces it by credit, so that it holds for every sender. Sessions that share a rate
//! divide it into time slots; each byte of credit that a session grants counts against one of its slots.
//!
//! ```text
//!   written bytes ──┐
//!                   ├─> unpaid ── slots at the shared rate ──> credit
//!   pool, once ─────┘
//! ```

use crate::clock::Clock;
use crate::shared_rate::{RateSlots, SharedRate, packet_bytes};
use millrace_transport::receiver::Receiver;
use millrace_types::Time;
use std::sync::Arc;
use std::time::Duration;

/// The pool of a limited session, as a duration at the rate: the pool fills paths with round-trip times up to this one.
const POOL: Duration = Duration::from_millis(400);
/// The smallest pool.
const POOL_MIN: u64 = 64 << 10;

/// Releases credit at a rate.
#[derive(Debug)]
pub(super) struct RateLimit {
    clock: Clock,
    slots: RateSlots,
    /// Bytes of the pool for which the sender has credit; `unpaid_pool` are those for which it has none yet.
    pool: u64,
    unpaid_pool: u64,
    /// Written bytes for which no credit is released yet.
    unpaid: u64,
}

impl RateLimit {
    pub(super) fn new(rate: Arc<SharedRate>, clock: Clock) -> RateLimit {
        RateLimit {
            clock,
            slots: RateSlots::new(rate),
            pool: 0,
            unpaid_pool: 0,
            unpaid: 0,
        }
    }

    /// Returns true if there is a limit now.
    pub(super) fn is_limited(&self) -> bool {
        self.slots.rate().is_some()
    }

    /// Opens a session that lacks `missing` bytes; returns the first credit in bytes. `unlimited` is the size
    /// of the pool in bytes if there is no rate limit, and else its maximum.
    pub(super) fn open(&mut self, now: Time, missing: u64, unlimited: u64) -> u64 {
        self.unpaid_pool = match self.slots.rate() {
            Some(rate) => SharedRate::bytes_in(rate, POOL)
                .max(POOL_MIN)
                .min(unlimited)
                .min(missing),
            None => unlimited,
        };
        self.pay(now).0
    }

    /// Notes bytes that were written.
    pub(super) fn add(&mut self, bytes: u64) {
        self.unpaid += bytes;
    }

    /// Spends the bytes of the slots that have begun; returns how many of them went to the pool, and how many to written bytes.
    fn pay(&mut self, now: Time) -> (u64, u64) {
        let (mut pool, mut written) = (0, 0);
        let now = self.clock.instant(now);
        while self.unpaid_pool + self.unpaid > 0 && self.slots.opens(now).is_none() {
            let left = self.slots.left();
            let from_pool = self.unpaid_pool.min(left);
            let from_written = self.unpaid.min(left - from_pool);
            self.slots.spend(packet_bytes(from_pool + from_written));
            self.unpaid_pool -= from_pool;
            self.unpaid -= from_written;
            (pool, written) = (pool + from_pool, written + from_written);
        }
        self.pool += pool;
        (pool, written)
    }

    /// Grants the sender the credit that the present slots allow.
    pub(super) fn release(&mut self, now: Time, receiver: &mut Receiver) {
        let (pool, written) = self.pay(now);
        if pool > 0 {
            receiver.grow_pool(self.pool);
        }
        if written > 0 {
            receiver.written(written);
        }
        if pool + written > 0 {
            receiver.announce_credit();
        }
    }

    /// Returns credit that was granted and not used to the shared rate.
    pub(super) fn give_back(&mut self, bytes: u64) {
        self.slots.give_back(packet_bytes(bytes));
    }

    /// Returns when credit is released next.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        let waits = self.unpaid_pool + self.unpaid > 0;
        let begins = self.slots.begins().filter(|_| waits)?;
        Some(self.clock.time(begins))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_transport::extent::{ExtentSize, Layout};
    use millrace_transport::ranges::RangeSet;
    use millrace_transport::receiver::ReceiverConfig;
    use millrace_types::BitRate;

    /// A session. The sender uses credit at once, and the receiver writes bytes at once.
    struct Sent {
        limit: RateLimit,
        receiver: Receiver,
        missing: u64,
        credit: u64,
        bytes: u64,
    }

    const PACKET: u64 = 1_024;

    impl Sent {
        fn open(rate: &Arc<SharedRate>, clock: Clock, now: Time, missing: u64) -> Sent {
            let mut limit = RateLimit::new(Arc::clone(rate), clock);
            let pool = limit.open(now, missing, 16 << 20);
            Sent {
                limit,
                receiver: Receiver::new(ReceiverConfig {
                    layout: Layout::new(1 << 30, ExtentSize::Small).unwrap(),
                    have: RangeSet::new(),
                    connection: 1,
                    pool,
                    pool_max: 16 << 20,
                }),
                missing,
                credit: pool,
                bytes: 0,
            }
        }

        fn step(&mut self, now: Time) {
            self.limit.release(now, &mut self.receiver);
            for (_, feedback) in self.receiver.poll_feedback(now) {
                self.credit = feedback.credit;
            }
            while self.bytes + PACKET <= self.credit.min(self.missing) {
                let number = self.bytes / PACKET;
                self.receiver
                    .accept(now, number, self.bytes, PACKET, false)
                    .unwrap();
                self.bytes += PACKET;
                self.limit.add(PACKET);
            }
        }
    }

    #[test]
    fn sessions_get_equal_credit_and_together_no_more_than_the_rate() {
        let rate = SharedRate::new(Some(BitRate::from_bps(84_270_000)));
        let clock = Clock::start();
        let mut sessions = [0; 3].map(|_| Sent::open(&rate, clock, Time::ZERO, 1 << 30));
        for millis in 1..=5_000 {
            for session in &mut sessions {
                session.step(Time::from_millis(millis));
            }
            let sum: u64 = sessions.iter().map(|session| session.bytes).sum();
            // 84.27 Mbit/s of IP packets carry 10 kB of payload a millisecond; 10 ms are saved up, and slots are 4 ms long.
            assert!(sum <= (millis + 30) * 10_000, "{sum} bytes in {millis} ms");
        }
        let bytes = sessions.map(|session| session.bytes);
        let sum: u64 = bytes.iter().sum();
        assert!(sum >= 48_500_000, "{bytes:?}");
        assert!(
            bytes.iter().all(|bytes| bytes.abs_diff(sum / 3) < 200_000),
            "{bytes:?}"
        );
    }

    #[test]
    fn short_sessions_one_after_the_other_get_no_more_than_the_rate() {
        let rate = SharedRate::new(Some(BitRate::from_bps(84_270_000)));
        let clock = Clock::start();
        let (mut millis, mut sum) = (0, 0);
        for _ in 0..100 {
            let mut session = Sent::open(&rate, clock, Time::from_millis(millis), 51_200);
            while session.bytes < 51_200 {
                millis += 1;
                session.step(Time::from_millis(millis));
            }
            sum += 51_200;
            session.limit.give_back(session.receiver.unused_credit());
            assert!(sum <= (millis + 30) * 10_000, "{sum} bytes in {millis} ms");
        }
        assert!(
            millis <= 600,
            "credit that was not used is given back: {millis} ms"
        );
    }
}
