//! The slot of a ring between bursts: of a vhost-user driver, or of an interface of the kernel.
//!
//! A worker acquires the ring for a burst, and then releases it. The control thread of the port removes the
//! ring when the driver stops it; from then on no other thread has the ring. The control thread does not wait
//! for the worker's next burst, since a transmit queue may have none for hours. While a worker has the ring,
//! the control thread retries, as a burst takes microseconds. A worker that finds the slot empty has no peer.
//!
//! ```text
//!           insert                    acquire
//!   empty ----------> in the slot <------------> with the worker
//!     ^                    |          release
//!     |       remove       |
//!     +--------------------+
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_utils::atomic::AtomicCell;

/// Number of retries, and sleep between them: some seconds of the thread's own time, so that a process that was
/// stopped for a while does not fail.
const RETRIES_MAX: usize = 100_000;
const RETRY_AFTER: Duration = Duration::from_micros(20);

/// A ring with the state that the worker and the control thread share.
pub(super) struct RunningRing<T> {
    pub(super) ring: T,
    /// True if the peer violated the protocol. The ring is then only removed.
    pub(super) is_violated: bool,
}

/// The slot of a ring, shared by a control thread and a worker.
pub(super) struct RingSlot<T> {
    ring: AtomicCell<Option<Box<RunningRing<T>>>>,
    /// True while the ring runs. Until the control thread removes it, the ring is in the slot or with the worker; from
    /// then on a worker that has it puts it back and does not acquire it again.
    is_running: AtomicBool,
}

impl<T> RingSlot<T> {
    pub(super) fn new() -> RingSlot<T> {
        RingSlot {
            ring: AtomicCell::new(None),
            is_running: AtomicBool::new(false),
        }
    }

    /// Starts a ring, so that the worker can acquire it; called by the control thread.
    pub(super) fn insert(&self, ring: T) {
        let running = RunningRing {
            ring,
            is_violated: false,
        };
        self.ring.store(Some(Box::new(running)));
        self.is_running.store(true, Ordering::Release);
    }

    /// Removes the ring, so that no other thread has it; called by the control thread. Returns `None` if
    /// there was no ring, or if a worker ended in the middle of a burst.
    pub(super) fn remove(&self) -> Option<T> {
        if !self.is_running.swap(false, Ordering::AcqRel) {
            return None;
        }
        for _ in 0..RETRIES_MAX {
            if let Some(running) = self.ring.take() {
                return Some(running.ring);
            }
            std::thread::sleep(RETRY_AFTER);
        }
        None
    }

    /// Acquires the ring for one burst; called by the worker.
    #[inline]
    pub(super) fn acquire(&self) -> Option<Box<RunningRing<T>>> {
        if !self.is_running.load(Ordering::Acquire) {
            return None;
        }
        let running = self.ring.take()?;
        if running.is_violated {
            self.release(running);
            return None;
        }
        Some(running)
    }

    /// Puts the ring back into the slot after a burst; called by the worker.
    #[inline]
    pub(super) fn release(&self, running: Box<RunningRing<T>>) {
        self.ring.store(Some(running));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_ring_is_with_one_of_the_two_and_a_worker_that_is_at_it_all_the_time_loses_it_all_the_same() {
        let slot = Arc::new(RingSlot::new());
        assert!(slot.acquire().is_none() && slot.remove().is_none());
        for given in 0..20_u64 {
            slot.insert(given);
            let worker = std::thread::spawn({
                let slot = Arc::clone(&slot);
                move || {
                    let mut bursts = 0_u64;
                    while let Some(mut running) = slot.acquire() {
                        running.ring += 100;
                        bursts += 1;
                        slot.release(running);
                    }
                    given + 100 * bursts
                }
            });
            let ring = slot.remove().unwrap();
            assert_eq!(ring, worker.join().unwrap());
            assert!(slot.remove().is_none());
        }
    }

    #[test]
    fn a_ring_with_a_violation_is_only_taken_away() {
        let slot = RingSlot::new();
        slot.insert(7);
        let mut running = slot.acquire().unwrap();
        running.is_violated = true;
        slot.release(running);
        assert!(slot.acquire().is_none() && slot.acquire().is_none());
        assert_eq!(slot.remove(), Some(7));
    }
}
