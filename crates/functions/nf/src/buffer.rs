//! A function's view of a packet.

use millrace_wire::{NoHeadroom, Packet};

/// A packet in a buffer of any type.
pub trait Buffer {
    /// Returns the number of bytes in all segments.
    fn len(&self) -> usize;

    /// Returns whether the packet has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the contiguous first segment, which holds all headers.
    fn head(&self) -> &[u8];

    /// Calls `each` with the bytes of each segment that the function can read, in order. If their sizes add up to less
    /// than [`Buffer::len`], the function cannot read the other bytes.
    fn each_segment<'a>(&'a self, each: &mut dyn FnMut(&'a [u8])) {
        each(self.head());
    }

    /// Returns the first segment for rewriting in place.
    fn head_mut(&mut self) -> &mut [u8];

    /// Grows the first segment by `size` bytes at its front, with unspecified contents.
    ///
    /// # Errors
    /// [`NoHeadroom`]; the packet is unchanged.
    fn prepend(&mut self, size: usize) -> Result<(), NoHeadroom>;

    /// Removes `size` bytes at the front of the first segment, or all of it if it has fewer.
    fn trim_front(&mut self, size: usize);
}

impl<P: Packet> Buffer for P {
    #[inline]
    fn len(&self) -> usize {
        Packet::len(self)
    }

    #[inline]
    fn head(&self) -> &[u8] {
        Packet::head(self)
    }

    #[inline]
    fn each_segment<'a>(&'a self, each: &mut dyn FnMut(&'a [u8])) {
        Packet::each_segment(self, &mut |segment| each(segment));
    }

    #[inline]
    fn head_mut(&mut self) -> &mut [u8] {
        Packet::head_mut(self)
    }

    #[inline]
    fn prepend(&mut self, size: usize) -> Result<(), NoHeadroom> {
        Packet::prepend(self, size)
    }

    #[inline]
    fn trim_front(&mut self, size: usize) {
        Packet::trim_front(self, size);
    }
}
