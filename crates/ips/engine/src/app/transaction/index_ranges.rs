//! The positions of buffers in the list of a transaction, so that a search reads only a part of the list.

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
        let [first, last] = self.0[Self::set(buffer)];
        let end = match last {
            Self::SATURATED => stored.len(),
            last => stored.len().min(usize::from(last) + 1),
        };
        stored.get(usize::from(first)..end).unwrap_or_default()
    }
}
