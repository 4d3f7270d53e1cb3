//! Where a worker finds the end of a ring that a connection brought, and leaves it when the connection has gone. Neither
//! side waits for the other: the worker looks at a flag in each poll, and the thread collects later.

use core::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::ArrayQueue;

/// One end of a ring, and the connection that it belongs to.
pub(super) struct Held<T> {
    pub(super) ring: T,
    pub(super) connection: u64,
}

/// Between a thread that gives and a worker that takes.
pub(super) struct Seat<T> {
    /// Whether there is something in `given`.
    has_news: AtomicBool,
    /// The last word: a ring, or none.
    given: ArrayQueue<Option<Held<T>>>,
    /// What the worker is done with: its memory is not the worker's to unmap.
    left: ArrayQueue<Held<T>>,
}

impl<T> Seat<T> {
    pub(super) fn new() -> Seat<T> {
        Seat {
            has_news: AtomicBool::new(false),
            given: ArrayQueue::new(1),
            left: ArrayQueue::new(2),
        }
    }

    /// The thread's: from now on the worker has this.
    pub(super) fn give(&self, held: Option<Held<T>>) {
        drop(self.given.force_push(held));
        self.has_news.store(true, Ordering::Release);
        self.collect();
    }

    /// The thread's: drops what the worker has left.
    pub(super) fn collect(&self) {
        while self.left.pop().is_some() {}
    }

    /// The worker's: takes what was given, if anything was.
    #[inline]
    pub(super) fn look(&self, held: &mut Option<Held<T>>) {
        if self.has_news.load(Ordering::Acquire) {
            self.change(held);
        }
    }

    #[cold]
    fn change(&self, held: &mut Option<Held<T>>) {
        // Read and written in one: what is given from here on leaves the flag for the next poll.
        self.has_news.swap(false, Ordering::AcqRel);
        while let Some(new) = self.given.pop() {
            let old = core::mem::replace(held, new);
            if let Some(old) = old {
                self.leave(old);
            }
        }
    }

    /// The worker's: done with it.
    pub(super) fn leave(&self, held: Held<T>) {
        // If nobody collects, which is rare, unmapping it here costs a moment.
        drop(self.left.push(held));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn held(ring: &Arc<()>, connection: u64) -> Option<Held<Arc<()>>> {
        Some(Held {
            ring: Arc::clone(ring),
            connection,
        })
    }

    #[test]
    fn a_worker_has_what_was_given_last_and_the_thread_drops_what_it_left() {
        let (seat, ring) = (Seat::new(), Arc::new(()));
        let mut mine = None;
        seat.look(&mut mine);
        assert!(mine.is_none());
        seat.give(held(&ring, 1));
        seat.give(held(&ring, 2));
        assert_eq!(Arc::strong_count(&ring), 2, "what nobody took is dropped");
        seat.look(&mut mine);
        assert_eq!(mine.as_ref().map(|held| held.connection), Some(2));
        seat.give(None);
        seat.look(&mut mine);
        assert!(mine.is_none());
        assert_eq!(Arc::strong_count(&ring), 2, "not dropped by the worker");
        seat.collect();
        assert_eq!(Arc::strong_count(&ring), 1);
    }
}
