//! The mailbox by which a control thread passes the end of a ring to a worker, and gets it back when the connection is
//! closed. Neither waits for the other: the worker tests a flag in each poll, and the thread drops returned rings
//! later.

use core::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::ArrayQueue;

/// One end of a ring, and the number of its connection.
pub(in crate::io) struct ConnectedRing<T> {
    pub(in crate::io) ring: T,
    pub(in crate::io) connection: u64,
}

/// The mailbox, shared by a control thread and a worker.
pub(in crate::io) struct RingMailbox<T> {
    /// True if `posted` has a value.
    has_update: AtomicBool,
    /// The last posted value: a ring, or `None`.
    posted: ArrayQueue<Option<ConnectedRing<T>>>,
    /// Rings that the worker has returned, because a worker must not unmap their memory.
    retired: ArrayQueue<ConnectedRing<T>>,
}

impl<T> RingMailbox<T> {
    pub(in crate::io) fn new() -> RingMailbox<T> {
        RingMailbox {
            has_update: AtomicBool::new(false),
            posted: ArrayQueue::new(1),
            retired: ArrayQueue::new(2),
        }
    }

    /// Posts the ring that the worker uses from now on, or `None`; called by the control thread.
    pub(in crate::io) fn post(&self, connected: Option<ConnectedRing<T>>) {
        drop(self.posted.force_push(connected));
        self.has_update.store(true, Ordering::Release);
        self.collect();
    }

    /// Drops the rings that the worker has returned; called by the control thread.
    pub(in crate::io) fn collect(&self) {
        while self.retired.pop().is_some() {}
    }

    /// Replaces the worker's ring by the posted one, if there is any; called by the worker.
    #[inline]
    pub(in crate::io) fn update(&self, connected: &mut Option<ConnectedRing<T>>) {
        if self.has_update.load(Ordering::Acquire) {
            self.receive(connected);
        }
    }

    #[cold]
    fn receive(&self, connected: &mut Option<ConnectedRing<T>>) {
        // The swap reads and writes in one step: a ring that is posted later sets the flag for the next poll.
        self.has_update.swap(false, Ordering::AcqRel);
        while let Some(new) = self.posted.pop() {
            let old = core::mem::replace(connected, new);
            if let Some(old) = old {
                self.retire(old);
            }
        }
    }

    /// Returns a ring to the control thread; called by the worker.
    pub(in crate::io) fn retire(&self, connected: ConnectedRing<T>) {
        // If the queue is full, because the thread has not collected for long, the worker unmaps the ring here.
        drop(self.retired.push(connected));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn connected(ring: &Arc<()>, connection: u64) -> Option<ConnectedRing<Arc<()>>> {
        Some(ConnectedRing {
            ring: Arc::clone(ring),
            connection,
        })
    }

    #[test]
    fn a_worker_has_what_was_given_last_and_the_thread_drops_what_it_left() {
        let (mailbox, ring) = (RingMailbox::new(), Arc::new(()));
        let mut mine = None;
        mailbox.update(&mut mine);
        assert!(mine.is_none());
        mailbox.post(connected(&ring, 1));
        mailbox.post(connected(&ring, 2));
        assert_eq!(Arc::strong_count(&ring), 2, "what nobody took is dropped");
        mailbox.update(&mut mine);
        assert_eq!(mine.as_ref().map(|connected| connected.connection), Some(2));
        mailbox.post(None);
        mailbox.update(&mut mine);
        assert!(mine.is_none());
        assert_eq!(Arc::strong_count(&ring), 2, "not dropped by the worker");
        mailbox.collect();
        assert_eq!(Arc::strong_count(&ring), 1);
    }
}
