//! Where the end of a ring is while nobody uses it: of a vhost-user driver, or of an interface of the kernel.
//!
//! A worker takes it out for a burst and puts it back; the thread that speaks to the driver takes it out when the driver
//! says that the ring stops, and may say so in turn as soon as it has it. Neither waits for the other's next turn: a
//! transmit queue may have none for hours. A worker that finds the slot empty has nobody to speak to; the thread that does
//! comes again, as a burst takes microseconds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_utils::atomic::AtomicCell;

/// How often the thread looks for a ring that a worker has, and how long it sleeps between: some seconds of its own time,
/// so that a process that was stopped for a while has not been late.
const LOOKS_MAX: usize = 100_000;
const LOOK_AGAIN: Duration = Duration::from_micros(20);

/// A ring that runs.
pub(super) struct Held<T> {
    pub(super) ring: T,
    /// True if the driver wrote what cannot be: then it is only to be taken away.
    pub(super) is_lie: bool,
}

/// Between a thread that gives and takes away, and a worker.
pub(super) struct Slot<T> {
    held: AtomicCell<Option<Box<Held<T>>>>,
    /// Whether the worker may have it. Until the thread takes it away there is a ring, here or with the worker; from then
    /// on a worker that has it puts it back, and leaves it there.
    is_given: AtomicBool,
}

impl<T> Slot<T> {
    pub(super) fn new() -> Slot<T> {
        Slot {
            held: AtomicCell::new(None),
            is_given: AtomicBool::new(false),
        }
    }

    /// The thread's: from now on the worker finds this.
    pub(super) fn give(&self, ring: T) {
        let held = Held { ring, is_lie: false };
        self.held.store(Some(Box::new(held)));
        self.is_given.store(true, Ordering::Release);
    }

    /// The thread's: nobody else has the ring from now on. None if there was none, or if a worker ended in the middle of a
    /// burst.
    pub(super) fn take_away(&self) -> Option<T> {
        if !self.is_given.swap(false, Ordering::AcqRel) {
            return None;
        }
        for _ in 0..LOOKS_MAX {
            if let Some(held) = self.held.take() {
                return Some(held.ring);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        None
    }

    /// Takes the content of the slot for one burst; called by the worker.
    #[inline]
    pub(super) fn take(&self) -> Option<Box<Held<T>>> {
        if !self.is_given.load(Ordering::Acquire) {
            return None;
        }
        let held = self.held.take()?;
        if held.is_lie {
            self.put(held);
            return None;
        }
        Some(held)
    }

    /// The worker's: it is done with it.
    #[inline]
    pub(super) fn put(&self, held: Box<Held<T>>) {
        self.held.store(Some(held));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_ring_is_with_one_of_the_two_and_a_worker_that_is_at_it_all_the_time_loses_it_all_the_same() {
        let slot = Arc::new(Slot::new());
        assert!(slot.take().is_none() && slot.take_away().is_none());
        for given in 0..20_u64 {
            slot.give(given);
            let worker = std::thread::spawn({
                let slot = Arc::clone(&slot);
                move || {
                    let mut bursts = 0_u64;
                    while let Some(mut held) = slot.take() {
                        held.ring += 100;
                        bursts += 1;
                        slot.put(held);
                    }
                    given + 100 * bursts
                }
            });
            let ring = slot.take_away().unwrap();
            assert_eq!(ring, worker.join().unwrap());
            assert!(slot.take_away().is_none());
        }
    }

    #[test]
    fn a_ring_that_holds_a_lie_is_only_taken_away() {
        let slot = Slot::new();
        slot.give(7);
        let mut held = slot.take().unwrap();
        held.is_lie = true;
        slot.put(held);
        assert!(slot.take().is_none() && slot.take().is_none());
        assert_eq!(slot.take_away(), Some(7));
    }
}
