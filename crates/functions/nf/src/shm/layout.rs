//! Offsets and sizes in a window; the module [`shm`](super) has a picture.

use crate::burst::BURST;

/// The first number of a window; identifies this version of the layout.
pub(super) const MAGIC: u64 = 0x6d69_6c6c_7261_6335;

/// Offsets of the numbers in a window.
pub(super) mod at {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const SLOTS: usize = 8;
    pub(crate) const SLOT_SIZE: usize = 16;
    /// A number other than zero tells the function to end.
    pub(crate) const STOP: usize = 24;
    /// The number of packets given; written by the switch.
    pub(crate) const GIVEN: usize = 128;
    /// The number of notices written; written by the switch.
    pub(crate) const NOTICES_WRITTEN: usize = 136;
    /// The number of bytes of records that the switch has read.
    pub(crate) const RECORDS_READ: usize = 144;
    /// The fill level of the chain's entry, from 0 to 255.
    pub(crate) const LOAD: usize = 152;
    /// The number of packets done; written by the function.
    pub(crate) const DONE: usize = 256;
    /// The number of bytes of records that the function has written. It is in the cache line of `DONE`,
    /// because the switch reads both.
    pub(crate) const RECORDS_WRITTEN: usize = 264;
    /// Notices that the function has read.
    pub(crate) const NOTICES_READ: usize = 320;
    /// Packets that the function could not send.
    pub(crate) const REFUSED: usize = 328;
    /// The heartbeat counter, which the function increments. It is not in the cache line of `DONE`, because
    /// the switch reads that line all the time.
    pub(crate) const HEARTBEAT: usize = 384;
    /// The number of the source from which the function's shared value was compiled; 0 without a value.
    pub(crate) const VALUE: usize = 392;
    /// The number of the last source that the function's process could not compile; 0 if there is none.
    pub(crate) const VALUE_FAILED: usize = 400;
    /// The function's counters.
    pub(crate) const COUNTERS: usize = 512;
    /// The descriptors, followed by notes, answers and slots.
    pub(crate) const DESCRIPTORS: usize = 4096;
}

/// Counters that a window holds.
pub(super) const COUNTERS_MAX: usize = 64;
/// Bytes of a descriptor: a [`Descriptor`](super::Descriptor), and the address of the packet if it is not in the window.
const DESCRIPTOR_SIZE: usize = 16;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes of an answer: offset and size of the packet in its slot, and the verdict.
const ANSWER_SIZE: usize = 16;
/// The note of a packet that is forwarded to the next hop with its offset and size unchanged.
pub(super) const UNCHANGED: u8 = 0;
/// The note of a packet whose answer must be read.
pub(super) const CHANGED: u8 = 1;
/// Bytes of the tails.
pub(super) const TAILS_SIZE: usize = 1 << 20;
/// Bytes of the unit in which tails are allocated.
pub(super) const TAIL_UNIT: usize = 64;
/// The number of low bits of a descriptor's second word that hold the address; the upper bits hold the tail's
/// index.
pub(super) const ADDRESS_BITS: u32 = 48;
/// Free bytes in front of a packet in a slot.
pub(super) const HEADROOM: usize = 128;

/// Bytes of the ring of records, a power of two.
pub(super) const RECORDS_SIZE: usize = 256 * 1024;
/// The number of notices in their ring, a power of two.
pub(super) const NOTICES: usize = 1024;
/// Bytes of a notice.
pub(super) const NOTICE_SIZE: usize = 64;

/// The layout of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// The number of slots, a power of two.
    pub(super) slots: usize,
    /// Bytes of a slot; 0 if packets are not in the window.
    pub(super) slot_size: usize,
}

impl Layout {
    pub(super) fn size(self) -> usize {
        let tails = if self.slot_size == 0 { TAILS_SIZE } else { 0 };
        self.first_tail() + tails
    }

    pub(super) const fn first_tail(self) -> usize {
        self.first_notice() + NOTICES * NOTICE_SIZE
    }

    pub(super) const fn first_record(self) -> usize {
        self.first_slot() + self.slots * self.slot_size
    }

    pub(super) const fn first_notice(self) -> usize {
        self.first_record() + RECORDS_SIZE
    }

    #[inline]
    pub(super) const fn notice(self, number: u64) -> usize {
        self.first_notice() + (number as usize & (NOTICES - 1)) * NOTICE_SIZE
    }

    /// Returns the bytes of all notes, rounded up to cache lines.
    pub(super) const fn notes_size(self) -> usize {
        self.slots.next_multiple_of(64)
    }

    pub(super) const fn first_note(self) -> usize {
        at::DESCRIPTORS + self.slots * DESCRIPTOR_SIZE
    }

    pub(super) const fn first_answer(self) -> usize {
        self.first_note() + self.notes_size()
    }

    pub(super) const fn first_slot(self) -> usize {
        self.first_answer() + self.slots * ANSWER_SIZE
    }

    /// Returns the slot of a packet. The number of slots is a power of two, because a division would cost more than all other
    /// work on a descriptor.
    #[inline]
    pub(super) fn index(self, number: u64) -> usize {
        number as usize & (self.slots - 1)
    }

    #[inline]
    pub(super) fn descriptor(self, number: u64) -> usize {
        at::DESCRIPTORS + self.index(number) * DESCRIPTOR_SIZE
    }

    /// Returns the offsets of the cache lines that hold the descriptors of `packets` packets (a burst at
    /// most), starting with packet `number`.
    #[inline]
    pub(super) fn descriptor_lines(self, number: u64, packets: usize) -> impl Iterator<Item = usize> {
        let (first, size) = (self.index(number) * DESCRIPTOR_SIZE, self.slots * DESCRIPTOR_SIZE);
        let last = first + packets.min(BURST) * DESCRIPTOR_SIZE;
        (first & !(LINE - 1)..last)
            .step_by(LINE)
            .map(move |at| at::DESCRIPTORS + (at & (size - 1)))
    }

    #[inline]
    pub(super) fn note(self, number: u64) -> usize {
        self.first_note() + self.index(number)
    }

    #[inline]
    pub(super) fn answer(self, number: u64) -> usize {
        self.first_answer() + self.index(number) * ANSWER_SIZE
    }

    #[inline]
    pub(super) fn slot(self, number: u64) -> usize {
        self.first_slot() + self.index(number) * self.slot_size
    }
}
