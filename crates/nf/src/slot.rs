//! A packet in a place of its own: some bytes with room in front.

use millrace_wire::NoHeadroom;

use crate::function::Buffer;

/// A packet in its place.
#[derive(Debug)]
pub(crate) struct Slot<'a> {
    place: &'a mut [u8],
    start: usize,
    end: usize,
    /// Bytes of further segments.
    more: usize,
}

impl<'a> Slot<'a> {
    /// The packet that begins at `start` and has `size` bytes there, of `total` in all; as much of it as lies in the place.
    #[inline]
    pub(crate) fn new(place: &'a mut [u8], start: usize, size: usize, total: usize) -> Slot<'a> {
        let start = start.min(place.len());
        let end = start.saturating_add(size).min(place.len());
        Slot {
            place,
            start,
            end,
            more: total.saturating_sub(end - start),
        }
    }

    /// Where it begins now, and its size there.
    #[inline]
    pub(crate) fn bounds(&self) -> (usize, usize) {
        (self.start, self.end - self.start)
    }
}

impl Buffer for Slot<'_> {
    fn len(&self) -> usize {
        self.end - self.start + self.more
    }

    fn head(&self) -> &[u8] {
        &self.place[self.start..self.end]
    }

    fn head_mut(&mut self) -> &mut [u8] {
        &mut self.place[self.start..self.end]
    }

    fn prepend(&mut self, size: usize) -> Result<(), NoHeadroom> {
        self.start = self.start.checked_sub(size).ok_or(NoHeadroom)?;
        Ok(())
    }

    fn trim_front(&mut self, size: usize) {
        self.start += size.min(self.end - self.start);
    }
}
