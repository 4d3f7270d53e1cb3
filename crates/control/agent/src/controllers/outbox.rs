//! The queue of encoded messages from the control thread to the task of a connection.
//!
//! The control thread never waits. Replies are always queued. Submitted requests bound their number, and a
//! connection submits no requests while its socket is slow. Asynchronous messages are refused beyond a limit.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use tokio::sync::mpsc;

/// The maximum sizes of the queue, in bytes, at which an asynchronous message is still accepted.
pub(crate) mod outbox_limit {
    /// For a packet-in.
    pub(crate) const PACKET_IN: usize = 1 << 20;
    /// For a message that a controller should not miss: flow_removed, port_status, flow updates. The flow_removed
    /// messages of 300,000 entries fit.
    pub(crate) const REPORT: usize = 32 << 20;
}

/// The control thread's end of the queue.
#[derive(Clone)]
pub(crate) struct Outbox {
    queue: mpsc::UnboundedSender<Vec<u8>>,
    size: Arc<AtomicUsize>,
}

/// The connection's end of the queue.
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
        // The connection may have ended; then its messages are dropped.
        let _closed = self.queue.send(bytes);
    }

    /// Queues an asynchronous message unless more than `limit` bytes are queued. Returns true if the message
    /// was queued.
    pub(crate) fn offer(&self, bytes: Vec<u8>, limit: usize) -> bool {
        let has_room = self.has_room(limit);
        if has_room {
            self.reply(bytes);
        }
        has_room
    }

    /// Returns true if at most `limit` bytes are queued.
    pub(crate) fn has_room(&self, limit: usize) -> bool {
        self.size.load(Ordering::Relaxed) <= limit
    }
}

impl OutboxReader {
    /// Returns the next messages; pending while there are none, `None` once the control thread has dropped its end.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        let bytes = self.queue.recv().await?;
        self.size.fetch_sub(bytes.len(), Ordering::Relaxed);
        Some(bytes)
    }

    /// Returns the next messages, if there are any now.
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
    fn offers_are_refused_while_too_much_is_queued_and_replies_never_are() {
        let (outbox, mut reader) = outbox();
        assert!(outbox.offer(vec![0; 10], 5));
        assert!(!outbox.offer(vec![0; 1], 5));
        outbox.reply(vec![0; 100]);
        assert_eq!(reader.try_next().map(|bytes| bytes.len()), Some(10));
        assert_eq!(reader.try_next().map(|bytes| bytes.len()), Some(100));
        assert!(outbox.offer(vec![0; 1], 5));
    }
}
