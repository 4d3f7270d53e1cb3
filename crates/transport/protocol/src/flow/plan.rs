//! The bytes that one receiver still needs, and the next piece of them.
//!
//! Repairs come first: they complete extents, which frees memory at the receiver. Fresh bytes go on at a cursor and wrap around,
//! so that a receiver that joins late can be led to where the others are. Fresh bytes need credit, repairs do not.

use crate::extent::Layout;
use crate::ranges::RangeSet;
use std::collections::VecDeque;

/// A piece of the session that one packet carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Address of the first byte.
    pub address: u64,
    /// Number of bytes.
    pub len: u16,
}

/// The bytes that one receiver needs.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    layout: Layout,
    fresh: RangeSet,
    cursor: u64,
    repairs: VecDeque<Piece>,
    /// Fresh bytes sent so far, and how many may be.
    sent: u64,
    credit: u64,
    /// Extents that are not verified yet.
    unverified: RangeSet,
    needed: u64,
}

impl Plan {
    /// Returns the plan of a receiver that has the extents of `have` already and is to begin at an extent.
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

    /// Returns the extent at which fresh bytes go on.
    pub(super) fn cursor(&self) -> u64 {
        self.layout.extent_of(self.cursor)
    }

    /// Raises the credit; it never falls.
    pub(super) fn raise_credit(&mut self, credit: u64) {
        self.credit = self.credit.max(credit);
    }

    /// Takes the next piece of at most `payload` bytes, which does not cross the border of an extent.
    pub(super) fn next(&mut self, payload: u16) -> Option<Piece> {
        while let Some(repair) = self.repairs.pop_front() {
            if !self.is_needed(repair.address) {
                continue;
            }
            if repair.len > payload {
                self.repairs.push_front(Piece {
                    address: repair.address + u64::from(payload),
                    len: repair.len - payload,
                });
            }
            return Some(Piece {
                address: repair.address,
                len: repair.len.min(payload),
            });
        }
        if self.sent >= self.credit {
            return None;
        }
        let layout = self.layout;
        let room = |address| {
            let (_, border) = layout.bounds(layout.extent_of(address));
            (border - address).min(u64::from(payload))
        };
        let range = self.fresh.take(self.cursor, room)?;
        self.cursor = range.end;
        let len = range.end - range.start;
        self.sent += len;
        Some(Piece {
            address: range.start,
            len: u16::try_from(len).unwrap_or(payload),
        })
    }

    /// Takes a lost piece back.
    pub(super) fn repair(&mut self, piece: Piece) {
        self.repairs.push_back(piece);
    }

    fn is_needed(&self, address: u64) -> bool {
        self.unverified.contains(self.layout.extent_of(address))
    }

    /// Forgets an extent whose digest the receiver checked.
    pub(super) fn verified(&mut self, extent: u64) {
        self.unverified.remove(extent..extent.saturating_add(1));
        let (start, end) = self.layout.bounds(extent);
        self.fresh.remove(start..end);
    }

    /// Sends an extent again whose digest was wrong.
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

    fn pieces(plan: &mut Plan, payload: u16) -> Vec<Piece> {
        std::iter::from_fn(|| plan.next(payload)).collect()
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
        let first = plan.next(1_000).unwrap();
        assert_eq!(plan.next(1_000).unwrap().address, 1_000);
        assert!(plan.is_blocked() && plan.next(1_000).is_none());
        plan.repair(first);
        assert_eq!(plan.next(600), Some(Piece { address: 0, len: 600 }));
        assert_eq!(
            plan.next(600),
            Some(Piece {
                address: 600,
                len: 400
            })
        );
        plan.repair(first);
        plan.verified(0);
        assert_eq!(plan.next(600), None);
        plan.raise_credit(9_000);
        assert_eq!(plan.next(600).unwrap().address, 1 << 20);
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
