//! Events in virtual time, in the order of their times. Events of the same time keep the order in which they
//! were scheduled.

use millrace_types::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The pending events by time.
pub(crate) struct EventQueue<E> {
    now: Time,
    sequence: u64,
    heap: BinaryHeap<Reverse<(Time, u64, usize)>>,
    /// Events by slot. The heap holds only slot numbers.
    slots: Vec<Option<E>>,
    free: Vec<usize>,
}

impl<E> EventQueue<E> {
    pub(crate) fn new() -> EventQueue<E> {
        EventQueue {
            now: Time::ZERO,
            sequence: 0,
            heap: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Returns the time of the last event.
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// Schedules an event. A time in the past counts as now.
    pub(crate) fn schedule(&mut self, at: Time, event: E) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(event);
        self.sequence += 1;
        self.heap.push(Reverse((at.max(self.now), self.sequence, slot)));
    }

    /// Returns the pending events.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &E> {
        self.slots.iter().flatten()
    }

    /// Removes and returns the next event that is due by `end`. If there is none, the time becomes `end`.
    pub(crate) fn next(&mut self, end: Time) -> Option<E> {
        while let Some(Reverse((at, _, slot))) = self.heap.peek().copied() {
            if at > end {
                break;
            }
            self.heap.pop();
            self.now = at;
            self.free.push(slot);
            if let Some(event) = self.slots[slot].take() {
                return Some(event);
            }
        }
        self.now = self.now.max(end);
        None
    }
}
