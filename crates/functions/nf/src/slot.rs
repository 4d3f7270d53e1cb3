//! A packet in a place of its own: some bytes with room in front.

use arrayvec::ArrayVec;
use millrace_wire::NoHeadroom;

use crate::function::{Buffer, Context, Function, Verdict};

/// Packets that a function outside the switch sees at once, at most.
pub const BURST: usize = 64;

/// A packet in its place.
#[derive(Debug)]
pub struct Slot<'a> {
    /// Ends where the packet does.
    place: &'a mut [u8],
    start: u32,
    /// Where it began.
    began: u32,
    /// Bytes of further segments.
    more: u32,
}

impl<'a> Slot<'a> {
    /// The packet that begins at `start` and has `size` bytes there, of `total` in all; as much of it as lies in the place.
    #[inline]
    #[must_use]
    pub fn new(place: &'a mut [u8], start: usize, size: usize, total: usize) -> Slot<'a> {
        let start = start.min(place.len());
        let end = start.saturating_add(size).min(place.len());
        Slot {
            place: &mut place[..end],
            start: start as u32,
            began: start as u32,
            more: total.saturating_sub(end - start) as u32,
        }
    }

    /// Has a function look at packets, and returns what it says of each.
    ///
    /// # Panics
    /// If there are more than [`BURST`].
    #[inline]
    pub fn process(
        slots: &mut [Slot<'_>],
        function: &mut dyn Function,
        context: &Context,
    ) -> ArrayVec<Verdict, BURST> {
        let mut burst = ArrayVec::<&mut dyn Buffer, BURST>::new();
        for slot in slots {
            burst.push(slot);
        }
        let mut verdicts: ArrayVec<Verdict, BURST> = burst.iter().map(|_| Verdict::Next).collect();
        function.process(context, &mut burst, &mut verdicts);
        verdicts
    }

    /// Where it begins now, and its size there.
    #[inline]
    #[must_use]
    pub fn bounds(&self) -> (usize, usize) {
        (self.start as usize, self.place.len() - self.start as usize)
    }

    /// Whether it begins where it began.
    #[cfg(unix)]
    #[inline]
    pub(crate) fn is_in_place(&self) -> bool {
        self.start == self.began
    }
}

impl Buffer for Slot<'_> {
    #[inline]
    fn len(&self) -> usize {
        self.place.len() - self.start as usize + self.more as usize
    }

    #[inline]
    fn head(&self) -> &[u8] {
        &self.place[self.start as usize..]
    }

    #[inline]
    fn head_mut(&mut self) -> &mut [u8] {
        &mut self.place[self.start as usize..]
    }

    fn prepend(&mut self, size: usize) -> Result<(), NoHeadroom> {
        let size = u32::try_from(size).map_err(|_| NoHeadroom)?;
        self.start = self.start.checked_sub(size).ok_or(NoHeadroom)?;
        Ok(())
    }

    fn trim_front(&mut self, size: usize) {
        self.start += size.min(self.place.len() - self.start as usize) as u32;
    }
}
