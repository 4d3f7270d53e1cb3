//! A bounded ring by which one worker hands values to another, with one thread at each end.
//!
//! # Guarantees
//! Values come out in the order in which they went in, each once. Neither end ever waits, takes a lock or allocates: a
//! full ring returns the value, an empty one returns nothing. The other end sees pushed values after
//! [`Sender::publish`], so that a burst costs one store that the other core has to fetch, not one for each packet.
//!
//! Besides the two usual positions there is a third: the position up to which the receiver has *settled* the values
//! that it took: these values have left the receiver. [`Sender::is_settled`] makes it safe to move a
//! flow to another worker (see `reta`).
//!
//! ```text
//!   0 <= settled <= taken <= filled <= taken + len
//!
//!   ... settled ......... taken ............. filled ............. taken + len
//!          | taken, not    | filled: the       | free: the sender's
//!          | settled yet   | receiver's        |
//! ```
//!
//! # Argument
//! A slot belongs to the sender from the moment at which the sender reads a `taken` beyond the slot until the
//! sender publishes a `filled` beyond it. At all other times the slot belongs to the receiver. One end writes
//! each of the two positions with release, after its last access to the slots; the other end reads the
//! position with acquire, before its first access. Positions only grow (at a thousand million packets a
//! second they wrap after 584 years), so neither end can mistake a new position for an old one.
//!
//! Besides `publish.rs` and `io/kernel.rs`, this is the only module of the crate with unsafe code. A queue for
//! any number of threads (`crossbeam_queue::ArrayQueue`) needs no unsafe code, but takes tens of nanoseconds
//! for each packet. This ring takes a few (docs/results/switch.md).

#![allow(unsafe_code)]

#[cfg(not(loom))]
use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(loom)]
use loom::cell::UnsafeCell;
#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
use std::mem::MaybeUninit;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

/// The standard library's cell with the interface of loom's cell. Loom's cell checks each access.
#[cfg(not(loom))]
struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    fn with_mut<R>(&self, use_it: impl FnOnce(*mut T) -> R) -> R {
        use_it(self.0.get())
    }
}

struct Shared<T> {
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// Slots before this position are filled; written by the sender.
    filled: CachePadded<AtomicU64>,
    /// Slots before this position are free again; written by the receiver.
    taken: CachePadded<AtomicU64>,
    /// Values from slots before this position have left the receiver; written by the receiver.
    settled: CachePadded<AtomicU64>,
}

// SAFETY: each slot is accessed by one end at a time (see the argument above), so values only move from one thread to
// the other.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: as for `Sync`.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    #[inline(always)]
    fn slot(&self, position: u64) -> &UnsafeCell<MaybeUninit<T>> {
        // The number of slots is a power of two.
        &self.slots[position as usize & (self.slots.len() - 1)]
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let (taken, filled) = (
            self.taken.load(Ordering::Acquire),
            self.filled.load(Ordering::Acquire),
        );
        for position in taken..filled {
            self.slot(position).with_mut(|slot| {
                // SAFETY: both ends are dropped, so nobody else has a reference to a slot.
                let slot = unsafe { &mut *slot };
                // SAFETY: slots between these two positions are filled.
                unsafe { slot.assume_init_drop() };
            });
        }
    }
}

/// The end that puts values in.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
    /// Number of slots filled so far, published or not.
    filled: u64,
    published: u64,
    /// The last known value of `Shared::taken`.
    taken: u64,
}

/// The end that takes values out.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    taken: u64,
    /// The last known value of `Shared::filled`.
    filled: u64,
    settled: u64,
}

/// Returns the two ends of a ring of `len` slots; `len` is rounded up to a power of two.
pub fn ring<T>(len: usize) -> (Sender<T>, Receiver<T>) {
    let position = || CachePadded::new(AtomicU64::new(0));
    let shared = Arc::new(Shared {
        slots: (0..len.next_power_of_two())
            .map(|_| UnsafeCell::new(MaybeUninit::uninit()))
            .collect(),
        filled: position(),
        taken: position(),
        settled: position(),
    });
    let sender = Sender {
        shared: Arc::clone(&shared),
        filled: 0,
        published: 0,
        taken: 0,
    };
    let receiver = Receiver {
        shared,
        taken: 0,
        filled: 0,
        settled: 0,
    };
    (sender, receiver)
}

impl<T> Sender<T> {
    /// Puts a value in. The other end sees the value after [`Self::publish`].
    ///
    /// # Errors
    /// Returns the value if the ring is full.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), T> {
        let len = self.shared.slots.len() as u64;
        if self.filled - self.taken == len {
            self.taken = self.shared.taken.load(Ordering::Acquire);
            if self.filled - self.taken == len {
                return Err(value);
            }
        }
        self.shared.slot(self.filled).with_mut(|slot| {
            // SAFETY: `taken` shows that the receiver has left this slot; the receiver accesses it again only after
            // `publish`.
            let slot = unsafe { &mut *slot };
            slot.write(value);
        });
        self.filled += 1;
        Ok(())
    }

    /// Makes all pushed values visible to the other end.
    #[inline]
    pub fn publish(&mut self) {
        if self.filled != self.published {
            self.shared.filled.store(self.filled, Ordering::Release);
            self.published = self.filled;
        }
    }

    /// Returns true if all published values have been taken and released.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.taken.load(Ordering::Acquire) == self.published
    }

    /// Returns the number of values pushed since the start: a mark for [`Self::is_settled`].
    #[inline]
    pub fn mark(&self) -> u64 {
        self.filled
    }

    /// Returns true if the receiver has settled all values that were pushed before the mark. Everything that
    /// the receiver did with these values then happens before this function returns, and before all later
    /// actions of this thread.
    #[inline]
    pub fn is_settled(&self, mark: u64) -> bool {
        self.shared.settled.load(Ordering::Acquire) >= mark
    }
}

impl<T> Receiver<T> {
    /// Takes the next value if `wanted` returns true for it.
    #[inline]
    pub fn pop_if(&mut self, wanted: impl FnOnce(&T) -> bool) -> Option<T> {
        if self.taken == self.filled {
            self.filled = self.shared.filled.load(Ordering::Acquire);
            if self.taken == self.filled {
                return None;
            }
        }
        let value = self.shared.slot(self.taken).with_mut(|slot| {
            // SAFETY: `filled` shows that the sender has left this slot; the sender accesses it again only after
            // `release`.
            let slot = unsafe { &*slot };
            // SAFETY: the sender has filled the slot before it stored `filled`.
            let value = unsafe { slot.assume_init_ref() };
            wanted(value).then(|| {
                // SAFETY: as above; `taken` grows below, so the value is not read again.
                unsafe { slot.assume_init_read() }
            })
        })?;
        self.taken += 1;
        Some(value)
    }

    /// Returns true if all published values have been taken.
    pub fn is_empty(&self) -> bool {
        self.taken == self.shared.filled.load(Ordering::Acquire)
    }

    /// Returns the share of the ring that is filled with published values, from 0 (empty) to 255 (full).
    #[inline]
    pub fn fill_level(&self) -> u8 {
        let filled = self.shared.filled.load(Ordering::Relaxed) - self.taken;
        (filled * 255 / self.shared.slots.len() as u64) as u8
    }

    /// Releases the emptied slots to the sender.
    #[inline]
    pub fn release(&mut self) {
        self.shared.taken.store(self.taken, Ordering::Release);
    }

    /// Acknowledges that all values taken so far have left the receiver.
    #[inline]
    pub fn settle(&mut self) {
        if self.settled != self.taken {
            self.settled = self.taken;
            self.shared.settled.store(self.taken, Ordering::Release);
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        // Values that were taken must not be dropped again with the ring.
        self.release();
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        // Values that were pushed and not published are dropped with the rest.
        self.publish();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn values_come_out_in_order_once_they_are_published() {
        let (mut sender, mut receiver) = ring(4);
        for round in 0..100u32 {
            assert_eq!(sender.push(2 * round), Ok(()));
            assert_eq!(sender.push(2 * round + 1), Ok(()));
            assert_eq!(receiver.pop_if(|_| true), None);
            sender.publish();
            assert_eq!(receiver.pop_if(|value| *value == 7_777), None);
            assert_eq!(receiver.pop_if(|_| true), Some(2 * round));
            assert_eq!(receiver.pop_if(|_| true), Some(2 * round + 1));
            receiver.release();
        }
    }

    #[test]
    fn a_full_ring_gives_the_value_back_until_slots_are_released() {
        let (mut sender, mut receiver) = ring(2);
        assert_eq!(
            [sender.push(1), sender.push(2), sender.push(3)],
            [Ok(()), Ok(()), Err(3)]
        );
        sender.publish();
        assert_eq!(receiver.pop_if(|_| true), Some(1));
        assert_eq!(sender.push(3), Err(3));
        receiver.release();
        assert_eq!([sender.push(3), sender.push(4)], [Ok(()), Err(4)]);
    }

    #[test]
    fn a_mark_is_settled_when_the_receiver_says_so() {
        let (mut sender, mut receiver) = ring(8);
        assert!(sender.is_settled(sender.mark()));
        assert!(sender.push(1).is_ok());
        sender.publish();
        let mark = sender.mark();
        assert_eq!(receiver.pop_if(|_| true), Some(1));
        receiver.release();
        assert!(!sender.is_settled(mark));
        receiver.settle();
        assert!(sender.is_settled(mark));
    }

    #[test]
    fn what_is_left_is_dropped_once() {
        let value = Arc::new(());
        let (mut sender, mut receiver) = ring(8);
        for _ in 0..5 {
            assert!(sender.push(Arc::clone(&value)).is_ok());
        }
        sender.publish();
        assert!(receiver.pop_if(|_| true).is_some());
        assert!(sender.push(Arc::clone(&value)).is_ok());
        drop((sender, receiver));
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn two_threads_hand_over_everything_in_order() {
        let rounds = if cfg!(miri) { 200 } else { 300_000u64 };
        let (mut sender, mut receiver) = ring(64);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for value in 0..rounds {
                    while sender.push(Box::new(value)).is_err() {
                        sender.publish();
                        std::thread::yield_now();
                    }
                    if value % 7 == 0 {
                        sender.publish();
                    }
                }
                sender.publish();
            });
            let mut next = 0;
            while next < rounds {
                while let Some(value) = receiver.pop_if(|_| true) {
                    assert_eq!(*value, next);
                    next += 1;
                }
                receiver.release();
                std::thread::yield_now();
            }
        });
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    #[test]
    fn loom_every_interleaving_hands_over_in_order_and_without_a_conflict() {
        loom::model(|| {
            // Two slots for three values, so that one is used again.
            let (mut sender, mut receiver) = ring(2);
            let thread = loom::thread::spawn(move || {
                for value in 0..3u32 {
                    let mut value = Box::new(value);
                    while let Err(back) = sender.push(value) {
                        value = back;
                        sender.publish();
                        loom::thread::yield_now();
                    }
                }
                sender.publish();
            });
            let mut next = 0;
            while next < 3 {
                match receiver.pop_if(|_| true) {
                    Some(value) => {
                        assert_eq!(*value, next);
                        next += 1;
                        receiver.release();
                    }
                    None => loom::thread::yield_now(),
                }
            }
            thread.join().unwrap();
        });
    }

    #[test]
    fn loom_what_the_receiver_did_is_seen_by_whom_the_sender_tells() {
        loom::model(|| {
            let (mut sender, mut receiver) = ring(2);
            let (mut onward, mut third) = ring(2);
            let done = Arc::new(loom::sync::atomic::AtomicU64::new(0));
            let did = Arc::clone(&done);
            let worker = loom::thread::spawn(move || {
                while receiver.pop_if(|_: &u32| true).is_none() {
                    loom::thread::yield_now();
                }
                receiver.release();
                // Stands for a change of a flow's owner; relaxed, as the order must come from the ring alone.
                did.store(1, Ordering::Relaxed);
                receiver.settle();
            });
            let other = loom::thread::spawn(move || {
                while third.pop_if(|_: &u32| true).is_none() {
                    loom::thread::yield_now();
                }
                assert_eq!(done.load(Ordering::Relaxed), 1);
            });
            assert!(sender.push(1).is_ok());
            sender.publish();
            let mark = sender.mark();
            while !sender.is_settled(mark) {
                loom::thread::yield_now();
            }
            assert!(onward.push(2).is_ok());
            onward.publish();
            worker.join().unwrap();
            other.join().unwrap();
        });
    }
}
