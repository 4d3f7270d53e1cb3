//! The queue of encoded messages from the control thread to the task of a connection.
//!
//! The control thread never waits. Replies are always taken: how many there can be is bounded by the
//! requests that a connection hands over, which waits while its socket is slow. What a controller did not
//! ask for is refused when too much is queued.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use tokio::sync::mpsc;

/// Bytes that may be queued when a message is to join them that nobody asked for.
pub(crate) mod outbox_room {
    /// A packet-in.
    pub(crate) const PACKET_IN: usize = 1 << 20;
    /// A message that a controller should not miss: the end of a flow entry, the change of a port. Deleting
    /// 300,000 flow entries that are to be reported fits.
    pub(crate) const REPORT: usize = 32 << 20;
}

/// The control thread's end.
#[derive(Clone)]
pub(crate) struct Outbox {
    queue: mpsc::UnboundedSender<Vec<u8>>,
    size: Arc<AtomicUsize>,
}

/// The connection's end.
pub(crate) struct OutboxReader {
    queue: mpsc::UnboundedReceiver<Vec<u8>>,
    size: Arc<AtomicUsize>,
}

pub(crate) fn outbox() -> (Outbox, OutboxReader) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let size = Arc::new(AtomicUsize::new(0));
    let outbox = Outbox {
        queue: sender,
        size: Arc::clone(&size),
    };
    let reader = OutboxReader {
        queue: receiver,
        size,
    };
    (outbox, reader)
}

impl Outbox {
    /// Queues replies.
    pub(crate) fn reply(&self, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        self.size.fetch_add(bytes.len(), Ordering::Relaxed);
        // The connection may have ended meanwhile; then nobody waits for the reply.
        let _unread = self.queue.send(bytes);
    }

    /// Queues a message that nobody asked for, if no more than `room` bytes wait; false if not.
    pub(crate) fn offer(&self, bytes: Vec<u8>, room: usize) -> bool {
        let has_room = self.has_room(room);
        if has_room {
            self.reply(bytes);
        }
        has_room
    }

    /// Returns true if no more than `room` bytes wait.
    pub(crate) fn has_room(&self, room: usize) -> bool {
        self.size.load(Ordering::Relaxed) <= room
    }
}

impl OutboxReader {
    /// The next bytes; pending while there are none.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        let bytes = self.queue.recv().await?;
        self.size.fetch_sub(bytes.len(), Ordering::Relaxed);
        Some(bytes)
    }

    /// The next bytes, if there are any now.
    pub(crate) fn try_next(&mut self) -> Option<Vec<u8>> {
        let bytes = self.queue.try_recv().ok()?;
        self.size.fetch_sub(bytes.len(), Ordering::Relaxed);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_are_refused_while_too_much_waits_and_replies_never_are() {
        let (outbox, mut reader) = outbox();
        assert!(outbox.offer(vec![0; 10], 5));
        assert!(!outbox.offer(vec![0; 1], 5));
        outbox.reply(vec![0; 100]);
        assert_eq!(reader.try_next().map(|bytes| bytes.len()), Some(10));
        assert_eq!(reader.try_next().map(|bytes| bytes.len()), Some(100));
        assert!(outbox.offer(vec![0; 1], 5));
    }
}
