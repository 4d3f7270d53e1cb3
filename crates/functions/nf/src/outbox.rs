//! What a function has to say to the outside: flow records, captured packets. A function does no IO, so it fills a
//! buffer that was allocated before, and somebody else carries it away.

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;

#[derive(Debug)]
struct Inner {
    free: ArrayQueue<Vec<u8>>,
    full: ArrayQueue<Vec<u8>>,
    size: usize,
}

/// A fixed number of messages of bounded size on their way from one function to whoever carries them away. Clones are
/// the same outbox. Neither end waits, and sending allocates nothing.
#[derive(Clone, Debug)]
pub struct Outbox(Arc<Inner>);

impl Outbox {
    /// Room for `len` messages (at least one) of up to `size` bytes.
    pub fn new(len: usize, size: usize) -> Outbox {
        let free = ArrayQueue::new(len.max(1));
        while free.push(Vec::with_capacity(size)).is_ok() {}
        Outbox(Arc::new(Inner {
            full: ArrayQueue::new(free.capacity()),
            free,
            size,
        }))
    }

    /// The longest message in bytes.
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// Has `write` fill an empty buffer with a message of at most [`Outbox::size`] bytes, and sends it if it says so.
    /// Returns false, and calls nothing, when no buffer is free.
    pub fn send(&self, write: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
        let Some(mut buffer) = self.0.free.pop() else {
            return false;
        };
        buffer.clear();
        let home = if write(&mut buffer) {
            &self.0.full
        } else {
            &self.0.free
        };
        // Each queue has a place for every buffer.
        home.push(buffer).is_ok()
    }

    /// Hands the oldest message to `read`. Returns whether there was one.
    pub fn receive(&self, read: impl FnOnce(&[u8])) -> bool {
        let Some(buffer) = self.0.full.pop() else {
            return false;
        };
        read(&buffer);
        // There is a place for every buffer.
        self.0.free.push(buffer).is_ok()
    }

    /// Messages that wait.
    pub fn len(&self) -> usize {
        self.0.full.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.0.full.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_in_order_and_a_full_outbox_says_so() {
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
    fn what_is_not_sent_costs_no_buffer() {
        let outbox = Outbox::new(1, 16);
        assert!(outbox.send(|_| false));
        assert!(outbox.is_empty());
        assert!(outbox.send(|_| true));
    }
}
