//! The slab cache: shared parts of packets as they were sealed, for receivers that are a little behind, and for repairs.
//!
//! A direct-mapped ring: the slot of a piece is its index in the session modulo the number of slots. A sender that goes on in
//! order therefore overwrites what is oldest, and a piece is found without a hash table.

use crate::extent::Layout;
use crate::flow::Piece;
use crate::packet::{SHARED_OVERHEAD, SealedPart};

/// Sealed packets by piece.
#[derive(Clone, Debug)]
pub(super) struct SlabCache {
    layout: Layout,
    payload: u64,
    pieces_per_extent: u64,
    slot_size: usize,
    pieces: Vec<Option<Piece>>,
    bytes: Vec<u8>,
}

impl SlabCache {
    /// Returns a cache of about `size` bytes for packets with up to `payload` bytes of payload.
    pub(super) fn new(layout: Layout, payload: u16, size: usize) -> SlabCache {
        let slot_size = usize::from(payload) + SHARED_OVERHEAD;
        let slots = (size / slot_size).max(1);
        SlabCache {
            layout,
            payload: u64::from(payload),
            pieces_per_extent: layout.extent_size().div_ceil(u64::from(payload)),
            slot_size,
            pieces: vec![None; slots],
            bytes: vec![0; slots * slot_size],
        }
    }

    fn slot(&self, piece: Piece) -> usize {
        let extent = self.layout.extent_of(piece.address);
        let offset = piece.address - self.layout.bounds(extent).0;
        let index = extent * self.pieces_per_extent + offset / self.payload;
        usize::try_from(index % self.pieces.len() as u64).unwrap_or(0)
    }

    /// Returns the shared part of a piece, if it is cached.
    pub(super) fn get(&self, piece: Piece) -> Option<SealedPart<'_>> {
        let slot = self.slot(piece);
        (self.pieces[slot] == Some(piece)).then_some(())?;
        let size = usize::from(piece.len) + SHARED_OVERHEAD;
        SealedPart::new(&self.bytes[slot * self.slot_size..][..size]).ok()
    }

    /// Returns room for the shared part of a piece, which is cached from now on.
    pub(super) fn insert(&mut self, piece: Piece) -> &mut [u8] {
        let slot = self.slot(piece);
        self.pieces[slot] = Some(piece);
        let size = (usize::from(piece.len) + SHARED_OVERHEAD).min(self.slot_size);
        &mut self.bytes[slot * self.slot_size..][..size]
    }

    /// Forgets a piece, of which nothing valid was written.
    pub(super) fn remove(&mut self, piece: Piece) {
        let slot = self.slot(piece);
        self.pieces[slot] = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::ExtentSize;

    #[test]
    fn what_is_oldest_is_overwritten_first() {
        let layout = Layout::new(1 << 30, ExtentSize::Small).unwrap();
        let mut cache = SlabCache::new(layout, 1_000, 10 * (1_000 + SHARED_OVERHEAD));
        let piece = |index: u64| Piece {
            address: index * 1_000,
            len: 1_000,
        };
        for index in 0..15 {
            cache.insert(piece(index))[0] = index as u8;
        }
        for index in 0..15 {
            assert_eq!(cache.get(piece(index)).is_some(), index >= 5, "{index}");
        }
        let shorter = Piece {
            address: 14_000,
            len: 600,
        };
        assert!(
            cache.get(shorter).is_none(),
            "another cut of the same bytes is another packet"
        );
        cache.remove(piece(14));
        assert!(cache.get(piece(14)).is_none());
    }
}
