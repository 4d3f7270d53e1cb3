//! The bytes that one receiver still needs, and the next piece of them.
//!
//! Repairs come first: they complete extents, which frees memory at the receiver. Fresh bytes continue at a
//! cursor and wrap around, so that a late receiver can begin at the position of the other receivers. Fresh
//! bytes need credit, repairs do not.

use crate::extent::Layout;
use crate::ranges::RangeSet;
use crate::slab::{Grid, Piece, SealRequest, SlabCache, SlabId};
use std::collections::VecDeque;

/// The number of repairs that are sealed ahead.
const REPAIRS_AHEAD: usize = 64;

/// The bytes that one receiver needs.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    layout: Layout,
    fresh: RangeSet,
    cursor: u64,
    repairs: VecDeque<Piece>,
    /// Fresh bytes sent so far; `credit` is how many may be sent in all.
    sent: u64,
    credit: u64,
    /// Extents that are not verified yet.
    unverified: RangeSet,
    needed: u64,
}

/// The last look-up of the slabs ahead of the cursor. The next one is due when the cursor reaches another slab.
#[derive(Clone, Copy, Default)]
pub(super) struct CachedAhead {
    /// The cursor's slab at the look-up.
    pub(super) cursor: Option<SlabId>,
    /// The number of slabs ahead that were cached.
    pub(super) slabs: usize,
}

impl Plan {
    /// Returns the plan of a receiver that already has the extents of `have`. Fresh bytes begin at the extent
    /// `start`.
    pub(super) fn new(layout: Layout, have: &RangeSet, start: u64, credit: u64) -> Plan {
        let mut unverified = RangeSet::new();
        unverified.insert(0..layout.extents());
        unverified.remove_all(have.ranges());
        let mut fresh = RangeSet::new();
        for extents in unverified.ranges() {
            fresh.insert(layout.bounds(extents.start).0..layout.bounds(extents.end - 1).1);
        }
        Plan {
            layout,
            needed: fresh.count(),
            fresh,
            cursor: layout.bounds(start).0,
            repairs: VecDeque::new(),
            sent: 0,
            credit,
            unverified,
        }
    }

    /// Returns the bytes that the receiver lacked at first.
    pub(super) fn needed(&self) -> u64 {
        self.needed
    }

    /// Returns true if every extent is verified.
    pub(super) fn is_complete(&self) -> bool {
        self.unverified.is_empty()
    }

    /// Returns true if a piece can be sent now.
    pub(super) fn has_piece(&self) -> bool {
        !self.repairs.is_empty() || (!self.fresh.is_empty() && self.sent < self.credit)
    }

    /// Returns true if only the receiver's credit keeps fresh bytes back.
    pub(super) fn is_blocked(&self) -> bool {
        self.repairs.is_empty() && !self.fresh.is_empty() && self.sent >= self.credit
    }

    /// Returns the extent at which fresh bytes continue.
    pub(super) fn cursor(&self) -> u64 {
        self.layout.extent_of(self.cursor)
    }

    /// Raises the credit; it never falls.
    pub(super) fn raise_credit(&mut self, credit: u64) {
        self.credit = self.credit.max(credit);
    }

    /// Returns the address of the next piece, if a piece may be sent.
    pub(super) fn next_address(&self) -> Option<u64> {
        let repair = self.repairs.front().map(|repair| repair.address);
        repair.or_else(|| self.fresh.first_from(self.cursor))
    }

    /// Returns the next ready piece of a grid, and true if the piece is a repair. Fresh bytes overtake a
    /// repair that is not ready.
    pub(super) fn peek(&mut self, grid: Grid, ready: &dyn Fn(Piece) -> bool) -> Option<(Piece, bool)> {
        while let Some(repair) = self.repairs.front() {
            if !self.is_needed(repair.address) {
                self.repairs.pop_front();
                continue;
            }
            let piece = grid.piece_at(repair.address);
            if ready(piece) {
                return Some((piece, true));
            }
            break;
        }
        if self.sent >= self.credit {
            return None;
        }
        let piece = grid.piece_at(self.fresh.first_from(self.cursor)?);
        ready(piece).then_some((piece, false))
    }

    /// Removes the next ready piece of a grid from the plan and returns it.
    pub(super) fn next(&mut self, grid: Grid, ready: &dyn Fn(Piece) -> bool) -> Option<Piece> {
        let (piece, is_repair) = self.peek(grid, ready)?;
        if is_repair {
            let end = piece.address + u64::from(piece.len);
            if let Some(repair) = self.repairs.pop_front() {
                // The lost piece may have been cut by another grid.
                let rest = (repair.address + u64::from(repair.len)).saturating_sub(end);
                if let Some(len) = u16::try_from(rest).ok().filter(|len| *len > 0) {
                    self.repairs.push_front(Piece { address: end, len });
                }
            }
        } else {
            self.take(piece);
        }
        Some(piece)
    }

    /// Counts the bytes of a piece as sent. The cursor moves past the piece.
    pub(super) fn take(&mut self, piece: Piece) {
        let end = piece.address + u64::from(piece.len);
        self.sent += self.fresh.remove(piece.address..end);
        self.cursor = end;
    }

    /// Appends seal requests for repairs that are not cached.
    pub(super) fn wanted_repairs(&self, grid: Grid, cache: &SlabCache, out: &mut Vec<SealRequest>) {
        for repair in self.repairs.iter().take(REPAIRS_AHEAD) {
            let piece = grid.piece_at(repair.address);
            if self.is_needed(repair.address) && cache.get(piece).is_none() {
                out.push(grid.request(piece));
            }
        }
    }

    /// Returns the slab at which fresh bytes continue.
    pub(super) fn cursor_slab(&self, grid: Grid) -> Option<SlabId> {
        Some(grid.slab_at(self.fresh.first_from(self.cursor)?))
    }

    /// Appends requests for `ahead` slabs from the cursor on that are not cached.
    pub(super) fn wanted_ahead(
        &self,
        grid: Grid,
        cache: &SlabCache,
        ahead: usize,
        out: &mut Vec<SealRequest>,
    ) {
        let Some(first) = self.fresh.first_from(self.cursor) else {
            return;
        };
        let mut address = first;
        for _ in 0..ahead {
            out.extend(cache.missing(grid, address));
            match self.fresh.first_from(grid.slab_end(address)) {
                Some(next) if next != first => address = next,
                _ => break,
            }
        }
    }

    /// Adds a lost piece to the repairs.
    pub(super) fn repair(&mut self, piece: Piece) {
        self.repairs.push_back(piece);
    }

    fn is_needed(&self, address: u64) -> bool {
        self.unverified.contains(self.layout.extent_of(address))
    }

    /// Removes an extent from the plan after the receiver has verified its digest.
    pub(super) fn verified(&mut self, extent: u64) {
        self.unverified.remove(extent..extent.saturating_add(1));
        let (start, end) = self.layout.bounds(extent);
        self.fresh.remove(start..end);
    }

    /// Adds an extent with a wrong digest to the plan again.
    pub(super) fn rejected(&mut self, extent: u64) {
        if extent < self.layout.extents() {
            self.unverified.insert(extent..extent + 1);
            let (start, end) = self.layout.bounds(extent);
            self.fresh.insert(start..end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::ExtentSize;

    fn plan(have: &[std::ops::Range<u64>], start: u64, credit: u64) -> Plan {
        let layout = Layout::new(3 * (1 << 20) + 500, ExtentSize::Small).unwrap();
        let mut set = RangeSet::new();
        for range in have {
            set.insert(range.clone());
        }
        Plan::new(layout, &set, start, credit)
    }

    fn next(plan: &mut Plan, payload: u16) -> Option<Piece> {
        plan.next(Grid::new(plan.layout, payload), &|_| true)
    }

    fn pieces(plan: &mut Plan, payload: u16) -> Vec<Piece> {
        std::iter::from_fn(|| next(plan, payload)).collect()
    }

    #[test]
    fn every_needed_byte_comes_once_and_no_piece_crosses_an_extent() {
        let mut plan = plan(&[1..2], 2, u64::MAX);
        let pieces = pieces(&mut plan, 1_428);
        assert_eq!(pieces[0].address, 2 << 20);
        let mut bytes = RangeSet::new();
        for piece in &pieces {
            let end = piece.address + u64::from(piece.len);
            assert_eq!(piece.address >> 20, (end - 1) >> 20);
            assert_eq!(bytes.insert(piece.address..end), u64::from(piece.len));
        }
        assert_eq!(bytes.ranges(), [0..1 << 20, 2 << 20..(3 << 20) + 500]);
        assert_eq!(plan.needed(), bytes.count());
    }

    #[test]
    fn repairs_come_first_shrink_with_the_payload_and_vanish_once_verified() {
        let mut plan = plan(&[], 0, 1_500);
        let first = next(&mut plan, 1_000).unwrap();
        assert_eq!(next(&mut plan, 1_000).unwrap().address, 1_000);
        assert!(plan.is_blocked() && next(&mut plan, 1_000).is_none());
        plan.repair(first);
        assert_eq!(next(&mut plan, 600), Some(Piece { address: 0, len: 600 }));
        // The second piece of the smaller grid carries the remainder of the first piece.
        let second = Piece {
            address: 600,
            len: 600,
        };
        assert_eq!(next(&mut plan, 600), Some(second));
        assert_eq!(next(&mut plan, 600), None);
        plan.repair(first);
        plan.verified(0);
        assert_eq!(next(&mut plan, 600), None);
        plan.raise_credit(9_000);
        assert_eq!(next(&mut plan, 600).unwrap().address, 1 << 20);
    }

    #[test]
    fn a_repair_that_is_not_sealed_lets_fresh_bytes_pass() {
        let mut plan = plan(&[], 0, u64::MAX);
        let grid = Grid::new(plan.layout, 1_000);
        let first = next(&mut plan, 1_000).unwrap();
        plan.repair(first);
        let ready = |piece: Piece| piece != first;
        assert_eq!(plan.next(grid, &ready).unwrap().address, 1_000);
        assert_eq!(plan.next(grid, &|_| true), Some(first));
        assert_eq!(plan.next(grid, &|_| false), None);
        assert_eq!(plan.next(grid, &|_| true).unwrap().address, 2_000);
    }

    #[test]
    fn a_rejected_extent_comes_again() {
        let mut plan = plan(&[0..3], 0, u64::MAX);
        assert_eq!(pieces(&mut plan, 1_428).len(), 1);
        plan.rejected(3);
        assert_eq!(pieces(&mut plan, 1_428).len(), 1);
        plan.verified(3);
        assert!(plan.is_complete());
    }
}
