//! A rate that several transfers share, by the generic cell rate algorithm (ITU-T I.371, annex A).
//!
//! Each transfer reserves one time slot in advance, after all slots that are reserved already. It may send
//! the bytes of a slot once the slot has begun. Slots are equally long, and a transfer has at most one slot
//! after its present one. So transfers that use every slot get equal shares. If a slower transfer leaves part
//! of its share, the others get it.
//!
//! ```text
//!        began         now                     theoretical arrival time: the next slot begins here
//!  ──────┬───────┬──────┼┬───────┬───────┬──────>
//!        │   A   │   B  ╵│   C   │   A   │
//! ```
//!
//! The transfers run on several threads; the theoretical arrival time is one atomic number, and no thread waits for another.

use millrace_types::BitRate;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The duration of a slot at the rate. A thread that wakes up later than this after its slot began loses a
/// part of its share.
const SLOT: Duration = Duration::from_millis(4);
/// The minimum size of a slot in bytes: two packets.
const SLOT_MIN: u64 = 3_000;
/// The maximum size of a slot in bytes.
const SLOT_MAX: u64 = 1 << 20;
/// The longest idle time that counts as credit, in nanoseconds. Threads that are late by less lose no rate.
const LATE_NANOS: u64 = 10_000_000;
/// Bytes of a full IPv4 packet, and bytes of its payload.
const PACKET: [u64; 2] = [1_500, 1_424];

/// The highest total rate of the transfers that share this value, counted in bytes of IP packets; no limit by default.
#[derive(Debug)]
pub struct SharedRate {
    /// The instant from which times are counted.
    epoch: Instant,
    /// Bits a second; 0: no limit.
    bps: AtomicU64,
    /// The end of the last reserved slot, in nanoseconds after `epoch`.
    theoretical_arrival_time: AtomicU64,
}

impl SharedRate {
    /// Returns a rate that no transfer uses yet; `None` is no limit.
    pub fn new(rate: Option<BitRate>) -> Arc<SharedRate> {
        Arc::new(SharedRate {
            epoch: Instant::now(),
            bps: AtomicU64::new(rate.map_or(0, |rate| rate.bps().max(1))),
            theoretical_arrival_time: AtomicU64::new(0),
        })
    }

    /// Changes the rate; slots that are reserved keep their time.
    pub fn set(&self, rate: Option<BitRate>) {
        let bps = rate.map_or(0, |rate| rate.bps().max(1));
        self.bps.store(bps, Ordering::Relaxed);
    }

    /// Returns the rate; `None` is no limit.
    pub fn rate(&self) -> Option<BitRate> {
        let bps = self.bps.load(Ordering::Relaxed);
        (bps > 0).then(|| BitRate::from_bps(bps))
    }

    /// Returns the number of bytes that the rate allows in a time.
    pub(crate) fn bytes_in(rate: BitRate, time: Duration) -> u64 {
        let bytes = u128::from(rate.bps()) * time.as_nanos() / 8_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    fn nanos_of(rate: BitRate, bytes: u64) -> u64 {
        let nanos = u128::from(bytes) * 8_000_000_000 / u128::from(rate.bps().max(1));
        u64::try_from(nanos).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
    }

    fn nanos_at(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Reserves a slot of this many bytes. Returns the time at which it begins.
    fn reserve(&self, rate: BitRate, bytes: u64, now: Instant) -> Instant {
        let earliest = self.nanos_at(now).saturating_sub(LATE_NANOS);
        let nanos = SharedRate::nanos_of(rate, bytes);
        let mut begins = earliest;
        let next = |reserved: u64| {
            begins = reserved.max(earliest);
            Some(begins.saturating_add(nanos))
        };
        let time = &self.theoretical_arrival_time;
        let _ = time.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        self.epoch + Duration::from_nanos(begins)
    }

    /// Returns reserved bytes that are not used: the next slots to be reserved begin earlier.
    fn give_back(&self, bytes: u64) {
        let Some(rate) = self.rate() else { return };
        let nanos = SharedRate::nanos_of(rate, bytes);
        let less = |reserved: u64| Some(reserved.saturating_sub(nanos));
        let time = &self.theoretical_arrival_time;
        let _ = time.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }
}

/// Returns the size of the IP packets that carry a payload, in bytes.
pub(crate) fn packet_bytes(payload: u64) -> u64 {
    payload.saturating_mul(PACKET[0]).div_ceil(PACKET[1])
}

/// The slots of one transfer. Dropping it returns the reserved bytes that it did not use.
#[derive(Debug)]
pub(crate) struct RateSlots {
    shared: Arc<SharedRate>,
    /// Bytes that remain in the present slot. Below zero, the transfer has moved more than the slot had.
    left: i64,
    /// The next slot: its start, and its bytes.
    next: Option<(Instant, u64)>,
}

impl RateSlots {
    pub(crate) fn new(shared: Arc<SharedRate>) -> RateSlots {
        RateSlots {
            shared,
            left: 0,
            next: None,
        }
    }

    /// Returns the rate that the transfers share.
    pub(crate) fn rate(&self) -> Option<BitRate> {
        self.shared.rate()
    }

    /// Returns the time at which the transfer may move bytes, if it may not now. Reserves its next slot for
    /// that time.
    pub(crate) fn opens(&mut self, now: Instant) -> Option<Instant> {
        let Some(rate) = self.shared.rate() else {
            // If a limit is set later, the transfer starts with neither credit nor debt.
            (self.left, self.next) = (0, None);
            return None;
        };
        let bytes = SharedRate::bytes_in(rate, SLOT).clamp(SLOT_MIN, SLOT_MAX);
        let reserve = |shared: &SharedRate| (shared.reserve(rate, bytes, now), bytes);
        while self.left <= 0 {
            let (begins, bytes) = *self.next.get_or_insert_with(|| reserve(&self.shared));
            if now < begins {
                return Some(begins);
            }
            self.left = self.left.saturating_add_unsigned(bytes);
            // The next slot is reserved now, so that a slow transfer need not wait for the slots of others
            // after this slot is used.
            self.next = Some(reserve(&self.shared));
        }
        None
    }

    /// Returns the start of the next slot, if one is reserved.
    pub(crate) fn begins(&self) -> Option<Instant> {
        self.next.map(|(begins, _)| begins)
    }

    /// Returns the bytes of IP packets that may be moved in this slot.
    pub(crate) fn left(&self) -> u64 {
        if self.shared.rate().is_none() {
            return u64::MAX;
        }
        u64::try_from(self.left).unwrap_or(0)
    }

    /// Accounts for bytes of IP packets that are moved.
    pub(crate) fn spend(&mut self, bytes: u64) {
        if self.shared.rate().is_some() {
            self.left = self.left.saturating_sub_unsigned(bytes);
        }
    }

    /// Returns bytes that were accounted for and never moved.
    pub(crate) fn give_back(&mut self, bytes: u64) {
        self.shared.give_back(bytes);
    }
}

impl Drop for RateSlots {
    fn drop(&mut self) {
        let next = self.next.map_or(0, |(_, bytes)| bytes);
        let unused = i64::try_from(next).unwrap_or(i64::MAX).saturating_add(self.left);
        self.shared.give_back(u64::try_from(unused).unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: BitRate = BitRate::from_bps(80_000_000);
    const SECOND: Duration = Duration::from_secs(1);

    /// A transfer in virtual time.
    struct Transfer {
        slots: RateSlots,
        /// Bytes that it moves in one call.
        quantum: u64,
        /// The time between two quanta that its own path needs.
        pause: Duration,
        next: Instant,
        moved: u64,
    }

    impl Transfer {
        fn new(shared: &Arc<SharedRate>, quantum: u64, pause: Duration) -> Transfer {
            Transfer {
                slots: RateSlots::new(Arc::clone(shared)),
                quantum,
                pause,
                next: shared.epoch,
                moved: 0,
            }
        }
    }

    /// Lets transfers move bytes for a time. Returns the bytes that each has moved.
    fn run(transfers: &mut [Transfer], from: Instant, time: Duration) -> Vec<u64> {
        let before: Vec<u64> = transfers.iter().map(|transfer| transfer.moved).collect();
        let end = from + time;
        loop {
            let next = transfers.iter_mut().min_by_key(|transfer| transfer.next).unwrap();
            let now = next.next.max(from);
            if now >= end {
                break;
            }
            match next.slots.opens(now) {
                Some(at) => next.next = at,
                None => {
                    next.slots.spend(next.quantum);
                    next.moved += next.quantum;
                    next.next = now + next.pause;
                }
            }
        }
        let moved = transfers.iter().zip(before);
        moved.map(|(transfer, before)| transfer.moved - before).collect()
    }

    #[test]
    fn transfers_with_long_and_short_quanta_get_equal_shares_of_the_rate() {
        let shared = SharedRate::new(Some(RATE));
        let mut transfers =
            [65_536, 9_000, 1_500].map(|quantum| Transfer::new(&shared, quantum, Duration::ZERO));
        let moved = run(&mut transfers, shared.epoch, 10 * SECOND);
        let sum: u64 = moved.iter().sum();
        assert!((99_000_000..=100_400_000).contains(&sum), "{moved:?}");
        for bytes in &moved {
            assert!(bytes.abs_diff(sum / 3) < sum / 100, "{moved:?}");
        }
    }

    #[test]
    fn what_a_slow_transfer_leaves_goes_to_the_others() {
        let shared = SharedRate::new(Some(RATE));
        // The slow transfer uses 1.5 of 10 MB/s.
        let slow = Transfer::new(&shared, 1_500, Duration::from_millis(1));
        let mut transfers = [slow, Transfer::new(&shared, 20_000, Duration::ZERO)];
        let moved = run(&mut transfers, shared.epoch, 10 * SECOND);
        assert!((14_500_000..=15_000_000).contains(&moved[0]), "{moved:?}");
        assert!((84_000_000..=85_700_000).contains(&moved[1]), "{moved:?}");
    }

    #[test]
    fn idle_time_is_not_saved_up_and_a_new_rate_holds_at_once() {
        let shared = SharedRate::new(Some(RATE));
        let mut transfers = [1_500, 1_500].map(|quantum| Transfer::new(&shared, quantum, Duration::ZERO));
        let from = shared.epoch + 100 * SECOND;
        let moved: u64 = run(&mut transfers, from, SECOND).iter().sum();
        assert!((9_900_000..=10_200_000).contains(&moved), "{moved}");
        shared.set(Some(BitRate::from_bps(8_000_000)));
        let moved: u64 = run(&mut transfers, from + SECOND, 10 * SECOND).iter().sum();
        assert!((9_900_000..=10_200_000).contains(&moved), "{moved}");
        shared.set(None);
        assert_eq!(transfers[0].slots.opens(from), None, "no limit");
        assert_eq!(transfers[0].slots.left(), u64::MAX);
    }

    #[test]
    fn a_transfer_that_ends_gives_back_what_it_has_not_used() {
        let shared = SharedRate::new(Some(RATE));
        let now = shared.epoch + SECOND;
        for _ in 0..1_000 {
            let _ = RateSlots::new(Arc::clone(&shared)).opens(now);
        }
        let mut slots = RateSlots::new(Arc::clone(&shared));
        assert_eq!(slots.opens(now), None, "nothing was moved");
    }
}
