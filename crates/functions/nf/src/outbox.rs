//! Messages from a function to the outside, such as flow records and captured packets. A function does no IO: it fills a
//! buffer that was allocated before, and the control side sends it.

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;

#[derive(Debug)]
struct Inner {
    free: ArrayQueue<Vec<u8>>,
    full: ArrayQueue<Vec<u8>>,
    size: usize,
}

/// A queue of a fixed number of messages of bounded size, from one function to the control side. Clones share the queue.
/// Neither end blocks, and sending does not allocate.
#[derive(Clone, Debug)]
pub struct Outbox(Arc<Inner>);

impl Outbox {
    /// Returns a queue for `len` messages (at least one) of up to `size` bytes.
    pub fn new(len: usize, size: usize) -> Outbox {
        let free = ArrayQueue::new(len.max(1));
        while free.push(Vec::with_capacity(size)).is_ok() {}
        Outbox(Arc::new(Inner {
            full: ArrayQueue::new(free.capacity()),
            free,
            size,
        }))
    }

    /// Returns the size limit of a message, in bytes.
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// Calls `write` to fill an empty buffer with at most [`Outbox::size`] bytes, and sends the buffer if `write` returns
    /// true. Returns false without calling `write` if no buffer is free.
    pub fn send(&self, write: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
        let Some(mut buffer) = self.0.free.pop() else {
            return false;
        };
        buffer.clear();
        let queue = if write(&mut buffer) {
            &self.0.full
        } else {
            &self.0.free
        };
        // Each queue has room for every buffer.
        queue.push(buffer).is_ok()
    }

    /// Passes the oldest message to `read`. Returns whether there was one.
    pub fn receive(&self, read: impl FnOnce(&[u8])) -> bool {
        let Some(buffer) = self.0.full.pop() else {
            return false;
        };
        read(&buffer);
        // The queue has room for every buffer.
        self.0.free.push(buffer).is_ok()
    }

    /// Returns the number of messages in the queue.
    pub fn len(&self) -> usize {
        self.0.full.len()
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.0.full.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_in_order_and_a_full_outbox_takes_none() {
        let outbox = Outbox::new(2, 16);
        let say = |byte: u8| {
            outbox.send(|buffer| {
                buffer.push(byte);
                true
            })
        };
        assert!(say(1) && say(2) && !say(3));
        let mut seen = Vec::new();
        while outbox.receive(|bytes| seen.extend_from_slice(bytes)) {}
        assert_eq!(seen, [1, 2]);
        assert!(say(4));
        assert_eq!(outbox.len(), 1);
    }

    #[test]
    fn a_message_that_is_not_sent_costs_no_buffer() {
        let outbox = Outbox::new(1, 16);
        assert!(outbox.send(|_| false));
        assert!(outbox.is_empty());
        assert!(outbox.send(|_| true));
    }
}
