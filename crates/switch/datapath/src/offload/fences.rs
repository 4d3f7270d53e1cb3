//! Fences: numbers that come through the receive queues of a port in order with its packets. What a queue delivered before a
//! fence may have marks of entries that were removed before it; what comes after it has none.
//!
//! The interface of `nic:` has fences. Other devices have none, so their queues find out themselves what came before:
//! [`QueueFence`].

use core::sync::atomic::{AtomicU32, Ordering};

/// The last fence that was sent, and the last one that each queue delivered.
#[derive(Debug)]
pub(crate) struct Fences {
    queues: Box<[AtomicU32]>,
    last: AtomicU32,
}

impl Fences {
    pub(crate) fn new(queues: u16) -> Fences {
        Fences {
            queues: (0..queues).map(|_| AtomicU32::new(0)).collect(),
            last: AtomicU32::new(0),
        }
    }

    /// Notes that a fence came through a queue; called by its worker.
    pub(crate) fn note(&self, queue: usize, number: u32) {
        if let Some(fence) = self.queues.get(queue) {
            fence.store(number, Ordering::Release);
        }
    }

    /// Returns the number of the next fence, which is not 0. One thread sends fences.
    pub(crate) fn next(&self) -> u32 {
        let number = self.last.load(Ordering::Relaxed).wrapping_add(1).max(1);
        self.last.store(number, Ordering::Release);
        number
    }

    /// Returns true if a fence has come through the first `queues` queues.
    pub(crate) fn has_passed(&self, number: u32, queues: usize) -> bool {
        let mut fences = self.queues.iter().take(queues);
        // Numbers are modulo 2^32: the difference is small once the fence has passed.
        fences.all(|fence| fence.load(Ordering::Acquire).wrapping_sub(number) < 1 << 31)
    }
}

/// Packets that a receive queue may hold: descriptors are counted in 16 bits (`rte_eth_rx_queue_setup`).
const DESCRIPTORS_MAX: u32 = u16::MAX as u32;
/// The room of a burst from which on "no packet" means that the queue is empty: some drivers deliver nothing for less.
const ROOM_MIN: usize = 32;

/// The place of the last fence in a queue whose device has no fences. The fence has passed when the queue is empty, or has
/// delivered as many packets as it can have held.
#[derive(Debug, Default)]
pub(crate) struct QueueFence {
    number: u32,
    has_passed: bool,
    delivered: u32,
}

impl QueueFence {
    /// Looks for a new fence. To be called before each burst.
    #[inline]
    pub(crate) fn begin(&mut self, fences: &Fences) {
        let last = fences.last.load(Ordering::Acquire);
        if last != self.number {
            *self = QueueFence {
                number: last,
                ..QueueFence::default()
            };
        }
    }

    /// Notes the packets of a burst that had `room`. To be called after each burst.
    #[inline]
    pub(crate) fn end(&mut self, fences: &Fences, queue: usize, room: usize, received: usize) {
        if self.has_passed || self.number == 0 {
            return;
        }
        let is_empty = received == 0 && room >= ROOM_MIN;
        self.delivered = self.delivered.saturating_add(received as u32);
        if is_empty || self.delivered >= DESCRIPTORS_MAX {
            self.has_passed = true;
            fences.note(queue, self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_has_passed_when_all_queues_in_use_delivered_it() {
        let fences = Fences::new(3);
        let number = fences.next();
        fences.note(0, number);
        assert!(!fences.has_passed(number, 2));
        fences.note(1, number.wrapping_add(1));
        assert!(fences.has_passed(number, 2) && !fences.has_passed(number, 3));
        assert!(!fences.has_passed(number + 1, 2));
    }

    #[test]
    fn a_queue_without_fences_delivers_one_when_it_is_empty_or_has_delivered_all_that_it_can_hold() {
        let fences = Fences::new(1);
        let mut queue = QueueFence::default();
        let number = fences.next();
        let mut burst = |room, received| {
            queue.begin(&fences);
            queue.end(&fences, 0, room, received);
            fences.has_passed(number, 1)
        };
        assert!(!burst(64, 64));
        assert!(!burst(64, 5), "a device may deliver fewer packets than it has");
        assert!(!burst(8, 0), "some drivers deliver nothing into little room");
        assert!(burst(32, 0));
        let mut busy = QueueFence::default();
        let number = fences.next();
        let mut bursts = 0_u32;
        while !fences.has_passed(number, 1) {
            busy.begin(&fences);
            busy.end(&fences, 0, 64, 32);
            bursts += 1;
        }
        assert_eq!(bursts, DESCRIPTORS_MAX.div_ceil(32));
    }

    #[test]
    fn packets_before_a_fence_was_sent_do_not_count_for_it() {
        let fences = Fences::new(1);
        let mut queue = QueueFence::default();
        fences.next();
        for _ in 0..2_000 {
            queue.begin(&fences);
            queue.end(&fences, 0, 64, 32);
        }
        let number = fences.next();
        // The burst began before the fence.
        queue.end(&fences, 0, 64, 0);
        queue.begin(&fences);
        queue.end(&fences, 0, 64, 32);
        assert!(!fences.has_passed(number, 1));
        queue.begin(&fences);
        queue.end(&fences, 0, 64, 0);
        assert!(fences.has_passed(number, 1));
    }
}
