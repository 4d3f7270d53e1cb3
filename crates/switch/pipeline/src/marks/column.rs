//! The marks and hashes of a burst, as its device delivered them.

use millrace_flow::classify::BURST;

/// The marks and hashes of the packets of a burst, by their position.
#[derive(Clone, Debug)]
pub struct MarkColumn {
    pub(crate) marks: [u32; BURST],
    pub(crate) hashes: [u32; BURST],
    /// One bit for each packet with a mark.
    pub(crate) marked: u64,
    /// One bit for each packet with a hash.
    pub(crate) hashed: u64,
}

impl Default for MarkColumn {
    fn default() -> MarkColumn {
        MarkColumn {
            marks: [0; BURST],
            hashes: [0; BURST],
            marked: 0,
            hashed: 0,
        }
    }
}

impl MarkColumn {
    /// Removes all marks and hashes.
    #[inline]
    pub fn clear(&mut self) {
        (self.marked, self.hashed) = (0, 0);
    }

    /// Sets the mark and the hash of packet `i` of the burst. Mark 0 is none. Both directions of a flow, and no fewer
    /// packets than those of one flow, have one hash.
    #[inline]
    pub fn set(&mut self, i: usize, mark: u32, hash: Option<u32>) {
        if i < BURST {
            self.marks[i] = mark;
            self.hashes[i] = hash.unwrap_or_default();
            self.marked |= u64::from(mark != 0) << i;
            self.hashed |= u64::from(hash.is_some()) << i;
        }
    }

    /// Returns the mark of packet `i` of the burst; 0 for none.
    pub fn mark(&self, i: usize) -> u32 {
        let is_marked = i < BURST && self.marked >> i & 1 == 1;
        if is_marked { self.marks[i] } else { 0 }
    }

    /// Returns the number of packets with a mark.
    pub fn len(&self) -> usize {
        self.marked.count_ones() as usize
    }

    /// Returns true if no packet has a mark.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.marked == 0
    }
}
