//! The half that takes frames when they are due.

use std::sync::Arc;

use millrace_types::Time;

use crate::ring::records::{Head, Memory, Reader};
use crate::ring::wheel::Wheel;
use crate::stats::Counters;

/// The receiving half of a direction. One thread owns it; no call waits, takes a lock or allocates.
///
/// While frames keep their order, the next frame that is due is the next one in the ring. After the first
/// configuration in which frames can overtake each other, a timer wheel finds the next frame.
pub struct Receiver<M> {
    reader: Reader<M>,
    wheel: Wheel,
    counters: Arc<Counters>,
}

/// A frame that is due.
pub struct Frame<'a, M> {
    reader: &'a Reader<M>,
    unit: u32,
    head: Head,
}

impl<M: Memory> Receiver<M> {
    pub(crate) fn new(reader: Reader<M>, start: Time, counters: Arc<Counters>) -> Receiver<M> {
        Receiver {
            reader,
            wheel: Wheel::new(start.nanos()),
            counters,
        }
    }

    /// Takes the next frame with a release not after `now`, in the order of (release, offer). A frame is
    /// never returned before its release.
    #[inline]
    pub fn take(&mut self, now: Time) -> Option<Frame<'_, M>> {
        self.arrive();
        let unit = if self.reader.is_reordering() {
            self.wheel.take(&mut self.reader, now.nanos())?
        } else {
            let unit = self.reader.peek()?;
            if self.reader.release(unit) > now.nanos() {
                return None;
            }
            self.reader.arrived()?
        };
        let head = self.reader.head(unit);
        self.counters
            .released(usize::from(head.size), now.nanos() - head.release);
        // `free` returns the memory. The frame's borrow forbids `free` until the frame is no longer used.
        self.reader.free(unit);
        Some(Frame {
            reader: &self.reader,
            unit,
            head,
        })
    }

    /// Inserts published frames into the wheel, if they may overtake each other.
    #[inline]
    fn arrive(&mut self) {
        if self.reader.peek().is_none() || !self.reader.is_reordering() {
            return;
        }
        while let Some(unit) = self.reader.arrived() {
            self.wheel.insert(&mut self.reader, unit);
        }
    }

    /// Returns the memory of taken frames to the sender. Call it once a burst.
    #[inline]
    pub fn free(&mut self) {
        self.reader.reclaim();
        self.counters.freed(self.reader.freed());
    }

    /// Returns a time before which no frame is due. If frames keep their order, it is the release of the next
    /// frame. Otherwise the time may be earlier than that release: by up to 1.024 us for a release in the
    /// wheel's current period, by up to a period (1.05 ms) for a later one, and by more if the release is
    /// over 8.6 s away.
    pub fn next_due(&mut self) -> Option<Time> {
        self.arrive();
        let due = if self.reader.is_reordering() {
            self.wheel.next_due(&self.reader)
        } else {
            self.reader.peek().map(|unit| self.reader.release(unit))
        };
        due.map(Time::from_nanos)
    }

    /// Returns the number of waiting frames, published or not.
    pub fn in_flight(&self) -> u64 {
        self.counters.in_flight()
    }
}

impl<M: Memory> Frame<'_, M> {
    /// Returns the frame of a record. The reader has not reclaimed the memory of the record.
    #[inline]
    pub(crate) fn new(reader: &Reader<M>, unit: u32) -> Frame<'_, M> {
        let head = reader.head(unit);
        Frame { reader, unit, head }
    }

    /// Returns the size in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.head.size)
    }

    /// Returns true for a frame without bytes.
    pub fn is_empty(&self) -> bool {
        self.head.size == 0
    }

    /// Returns the time of release.
    pub fn release(&self) -> Time {
        Time::from_nanos(self.head.release)
    }

    /// Returns the class with which the frame was offered.
    pub fn class(&self) -> usize {
        usize::from(self.head.class)
    }

    /// Copies as much of the frame as fits into `bytes`.
    #[inline]
    pub fn copy_to(&self, bytes: &mut [u8]) {
        self.reader.copy(self.unit, bytes);
    }
}
