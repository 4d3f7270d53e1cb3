//! A packet in a memory slot: bytes with headroom in front.

use core::ops::Range;

use arrayvec::ArrayVec;
use millrace_wire::NoHeadroom;

use crate::buffer::Buffer;
use crate::burst::{BURST, Context, Verdict};
use crate::effects::Effects;
use crate::function::Function;

/// A packet in a slot.
#[derive(Debug)]
pub struct Slot<'a> {
    /// The memory from the start of the slot to the end of the packet.
    memory: &'a mut [u8],
    /// The offset of the packet in the memory.
    start: u32,
    /// The offset of the packet when the slot was created.
    first_start: u32,
    /// The bytes of further segments that the function can read.
    rest: &'a [u8],
    /// The number of bytes of further segments that the function cannot read.
    more: u32,
}

impl<'a> Slot<'a> {
    /// Returns the packet whose first segment of `size` bytes begins at offset `start` of `memory`. All its segments
    /// together have `total` bytes. A segment that exceeds the memory is truncated.
    #[inline]
    #[must_use]
    pub fn new(memory: &'a mut [u8], start: usize, size: usize, total: usize) -> Slot<'a> {
        let start = start.min(memory.len());
        let end = start.saturating_add(size).min(memory.len());
        Slot {
            memory: &mut memory[..end],
            start: start as u32,
            first_start: start as u32,
            rest: &[],
            more: total.saturating_sub(end - start) as u32,
        }
    }

    /// Returns the packet as [`new`](Slot::new) does, with all its segments, which follow the first one in `memory`.
    #[inline]
    #[must_use]
    pub fn whole(memory: &'a mut [u8], start: usize, size: usize, total: usize) -> Slot<'a> {
        let start = start.min(memory.len());
        let end = start.saturating_add(size).min(memory.len());
        let (head, rest) = memory.split_at_mut(end);
        let more = total.saturating_sub(end - start);
        let rest = &rest[..more.min(rest.len())];
        Slot {
            memory: head,
            start: start as u32,
            first_start: start as u32,
            rest,
            more: (more - rest.len()) as u32,
        }
    }

    /// Adds the bytes of further segments, which the function can read.
    #[cfg(unix)]
    #[inline]
    #[must_use]
    pub(crate) fn with_rest(mut self, rest: &'a [u8]) -> Slot<'a> {
        let size = rest.len().min(self.more as usize);
        self.rest = &rest[..size];
        self.more -= size as u32;
        self
    }

    /// Passes packets to a function, and returns the verdict on each.
    ///
    /// # Panics
    /// If there are more than [`BURST`] packets.
    #[inline]
    pub fn process(
        slots: &mut [Slot<'_>],
        function: &mut dyn Function,
        context: &Context,
        effects: &mut Effects,
    ) -> ArrayVec<Verdict, BURST> {
        let mut burst = ArrayVec::<&mut dyn Buffer, BURST>::new();
        for slot in slots {
            burst.push(slot);
        }
        let mut verdicts: ArrayVec<Verdict, BURST> = burst.iter().map(|_| Verdict::Next).collect();
        function.process_with_effects(context, &mut burst, &mut verdicts, effects);
        verdicts
    }

    /// Returns the place of the packet's first segment in the slot.
    #[inline]
    #[must_use]
    pub fn bounds(&self) -> Range<usize> {
        self.start as usize..self.memory.len()
    }

    /// Returns whether the packet still starts at its first offset.
    #[cfg(unix)]
    #[inline]
    pub(crate) fn is_in_place(&self) -> bool {
        self.start == self.first_start
    }
}

impl Buffer for Slot<'_> {
    #[inline]
    fn len(&self) -> usize {
        self.memory.len() - self.start as usize + self.rest.len() + self.more as usize
    }

    #[inline]
    fn head(&self) -> &[u8] {
        &self.memory[self.start as usize..]
    }

    #[inline]
    fn each_segment<'b>(&'b self, each: &mut dyn FnMut(&'b [u8])) {
        each(self.head());
        if !self.rest.is_empty() {
            each(self.rest);
        }
    }

    #[inline]
    fn head_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start as usize..]
    }

    fn prepend(&mut self, size: usize) -> Result<(), NoHeadroom> {
        let size = u32::try_from(size).map_err(|_| NoHeadroom)?;
        self.start = self.start.checked_sub(size).ok_or(NoHeadroom)?;
        Ok(())
    }

    fn trim_front(&mut self, size: usize) {
        self.start += size.min(self.memory.len() - self.start as usize) as u32;
    }
}
