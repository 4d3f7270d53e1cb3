//! The positions of buffers in the list of a transaction, so that a search reads only a part of the list.

use core::ops::Range;

use millrace_ips_rules::buffers::Buffer;

/// The first and the last index of each set of buffers in a list of stored buffers. A search reads only that
/// part of the list.
#[derive(Debug, Clone, Copy)]
pub(super) struct BufferIndexRanges([[u8; 2]; BufferIndexRanges::SETS]);

impl BufferIndexRanges {
    /// A power of two. Buffers of one protocol follow each other, so that few share a set.
    const SETS: usize = 32;
    /// The value for this index and all higher ones.
    const SATURATED: u8 = u8::MAX;
    pub(super) const EMPTY: Self = Self([[Self::SATURATED, 0]; Self::SETS]);

    /// Returns the set of a buffer.
    fn set(buffer: Buffer) -> usize {
        buffer as usize % Self::SETS
    }

    /// Records that a buffer is stored at an index.
    pub(super) fn add(&mut self, buffer: Buffer, index: usize) {
        let index = u8::try_from(index).unwrap_or(Self::SATURATED);
        let [first, last] = &mut self.0[Self::set(buffer)];
        *first = index.min(*first);
        *last = index.max(*last);
    }

    /// Returns the part of a list that can contain a buffer.
    pub(super) fn of<'a, T>(&self, buffer: Buffer, stored: &'a [T]) -> &'a [T] {
        stored.get(self.range(buffer, stored.len())).unwrap_or_default()
    }

    /// Returns the indices in a list of a size at which a buffer can be.
    pub(super) fn range(&self, buffer: Buffer, len: usize) -> Range<usize> {
        let [first, last] = self.0[Self::set(buffer)];
        let end = match last {
            Self::SATURATED => len,
            last => len.min(usize::from(last) + 1),
        };
        usize::from(first)..end
    }
}
