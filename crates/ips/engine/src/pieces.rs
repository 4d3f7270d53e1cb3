//! Pieces of a byte sequence that arrive in any order and may overlap: IP fragments and TCP segments.
//!
//! ```text
//!   offset  0        8        16       24
//!           |--------|        |--------|        stored pieces do not overlap; each keeps its original extent
//!               |--------------|                a new piece: the policy decides which copy is kept
//! ```

use std::collections::BTreeMap;

/// The policy for overlapping pieces: which copy of the bytes a host keeps. From Novak and Sturges,
/// "Target-Based TCP Stream Reassembly", 2007, and Novak, "Target-Based Fragmentation Reassembly", 2005.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OverlapPolicy {
    /// The earlier copy.
    #[default]
    First,
    /// The later copy.
    Last,
    /// The earlier copy, unless the later piece begins before it.
    Bsd,
    /// The earlier copy, unless the later piece begins before it and ends after it.
    Windows,
    /// The earlier copy, unless the later piece begins before it, or begins with it and ends after it.
    Linux,
    /// The later copy, unless the earlier piece begins before the later one or ends after it.
    Solaris,
}

impl OverlapPolicy {
    /// Returns true if the overlapping bytes are taken from the new piece, false if from the old one.
    fn prefers_new(self, new: (u64, u64), old: (u64, u64)) -> bool {
        match self {
            OverlapPolicy::First => false,
            OverlapPolicy::Last => true,
            OverlapPolicy::Bsd => new.0 < old.0,
            OverlapPolicy::Windows => new.0 < old.0 && new.1 > old.1,
            OverlapPolicy::Linux => new.0 < old.0 || new.0 == old.0 && new.1 > old.1,
            OverlapPolicy::Solaris => new.0 <= old.0 && new.1 >= old.1,
        }
    }
}

/// The result of an insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Insertion {
    /// True if some of the bytes had already arrived.
    pub overlaps: bool,
    /// True if some of the bytes differ from those that had already arrived.
    pub conflicts: bool,
}

#[derive(Debug, Clone)]
struct Piece {
    bytes: Vec<u8>,
    /// The extent with which the piece arrived.
    arrived: (u64, u64),
}

/// Pieces by offset, without overlap.
#[derive(Debug, Clone, Default)]
pub struct Pieces {
    list: BTreeMap<u64, Piece>,
    size: usize,
}

impl Pieces {
    /// Memory of a piece in addition to its bytes, in bytes: an estimate that is charged to the pools.
    pub const OVERHEAD: usize = 96;

    /// Returns the memory that the pieces take, in bytes.
    pub fn memory(&self) -> usize {
        self.size + self.list.len() * Pieces::OVERHEAD
    }

    /// Returns true if there is no piece.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the offset of the first piece.
    pub fn first_offset(&self) -> Option<u64> {
        self.list.first_key_value().map(|(offset, _)| *offset)
    }

    /// Returns the offset after the last piece.
    pub fn end(&self) -> Option<u64> {
        let (offset, piece) = self.list.last_key_value()?;
        Some(offset + piece.bytes.len() as u64)
    }

    /// Returns true if the pieces cover `0..size` without a gap.
    pub fn covers(&self, size: u64) -> bool {
        let mut next = 0;
        for (offset, piece) in &self.list {
            if *offset > next {
                return false;
            }
            next = offset + piece.bytes.len() as u64;
        }
        next >= size
    }

    /// Inserts `bytes` at `offset`; `policy` decides about bytes that had already arrived.
    pub fn insert(&mut self, offset: u64, bytes: &[u8], policy: OverlapPolicy) -> Insertion {
        let mut result = Insertion::default();
        let new = (offset, offset + bytes.len() as u64);
        if bytes.is_empty() {
            return result;
        }
        // Parts of the new piece that are kept.
        let mut parts: Vec<(u64, u64)> = vec![new];
        for start in self.overlapping(new) {
            let Some(piece) = self.list.get(&start) else {
                continue;
            };
            let old = (start, start + piece.bytes.len() as u64);
            let shared = (old.0.max(new.0), old.1.min(new.1));
            result.overlaps = true;
            result.conflicts |= part(&piece.bytes, old.0, shared) != part(bytes, new.0, shared);
            if policy.prefers_new(new, piece.arrived) {
                self.cut(start, shared);
            } else if let Some(last) = parts.pop() {
                // Pieces come in ascending order, so the part before this piece overlaps no further piece.
                parts.extend(without(last, shared));
            }
        }
        for range in parts {
            let kept = part(bytes, new.0, range).to_vec();
            self.size += kept.len();
            let arrived = new;
            self.list.insert(range.0, Piece { bytes: kept, arrived });
        }
        result
    }

    /// Copies the kept bytes at `offset` over `bytes`; returns true if that changed `bytes`.
    pub fn overwrite(&self, offset: u64, bytes: &mut [u8]) -> bool {
        let range = (offset, offset + bytes.len() as u64);
        let mut is_changed = false;
        for start in self.overlapping(range) {
            let Some(piece) = self.list.get(&start) else {
                continue;
            };
            let shared = (
                start.max(range.0),
                (start + piece.bytes.len() as u64).min(range.1),
            );
            let kept = part(&piece.bytes, start, shared);
            let there = &mut bytes[(shared.0 - range.0) as usize..(shared.1 - range.0) as usize];
            if kept != there {
                there.copy_from_slice(kept);
                is_changed = true;
            }
        }
        is_changed
    }

    /// Removes the bytes from `offset` up to the next gap, at most to `limit`, and passes them to `take` in order.
    /// Returns the offset after them.
    pub fn take_contiguous(&mut self, offset: u64, limit: u64, mut take: impl FnMut(&[u8])) -> u64 {
        let mut next = offset;
        while next < limit {
            let Some(entry) = self.list.first_entry() else {
                break;
            };
            let start = *entry.key();
            if start > next {
                break;
            }
            let piece = entry.remove();
            let end = start + piece.bytes.len() as u64;
            self.size -= piece.bytes.len();
            if end <= next {
                continue;
            }
            let range = (next, end.min(limit));
            take(part(&piece.bytes, start, range));
            next = range.1;
            if end > limit {
                let rest = part(&piece.bytes, start, (limit, end)).to_vec();
                self.size += rest.len();
                let arrived = piece.arrived;
                self.list.insert(limit, Piece { bytes: rest, arrived });
            }
        }
        next
    }

    /// Returns the offset of the first gap at or after `offset`.
    pub fn contiguous_end(&self, offset: u64) -> u64 {
        let mut end = offset;
        let before = self.list.range(..=offset).next_back();
        let from = before.map_or(offset, |(start, _)| *start);
        for (start, piece) in self.list.range(from..) {
            if *start > end {
                break;
            }
            end = end.max(start + piece.bytes.len() as u64);
        }
        end
    }

    /// Returns the bytes without a gap that end at `offset`, at most the last `most`.
    pub fn run_before(&self, offset: u64, most: usize) -> Vec<u8> {
        let least = offset.saturating_sub(most as u64);
        let mut begin = offset;
        for (start, piece) in self.list.range(..offset).rev() {
            if begin <= least || start + (piece.bytes.len() as u64) < begin {
                break;
            }
            begin = *start;
        }
        self.copy((begin.max(least), offset))
    }

    /// Returns the bytes without a gap that begin at `offset`, at most the first `most`.
    pub fn run_behind(&self, offset: u64, most: usize) -> Vec<u8> {
        let limit = offset.saturating_add(most as u64);
        let mut end = offset;
        let before = self.list.range(..=offset).next_back();
        let from = before.map_or(offset, |(start, _)| *start);
        for (start, piece) in self.list.range(from..) {
            if *start > end || end >= limit {
                break;
            }
            end = end.max(start + piece.bytes.len() as u64);
        }
        self.copy((offset, end.min(limit)))
    }

    /// Returns a copy of a range without a gap.
    fn copy(&self, range: (u64, u64)) -> Vec<u8> {
        let mut bytes = vec![0; (range.1 - range.0) as usize];
        self.overwrite(range.0, &mut bytes);
        bytes
    }

    /// Removes all bytes from `offset` on.
    pub fn truncate(&mut self, offset: u64) {
        let later = self.list.split_off(&offset);
        self.size -= later.values().map(|piece| piece.bytes.len()).sum::<usize>();
        if let Some((start, piece)) = self.list.iter_mut().next_back() {
            let keep = (offset - start).min(piece.bytes.len() as u64) as usize;
            self.size -= piece.bytes.len() - keep;
            piece.bytes.truncate(keep);
        }
    }

    /// Removes all pieces.
    pub fn clear(&mut self) {
        self.list.clear();
        self.size = 0;
    }

    /// Returns the offsets of the pieces that share bytes with `range`.
    fn overlapping(&self, range: (u64, u64)) -> Vec<u64> {
        let before = self.list.range(..range.0).next_back();
        let before = before.filter(|(start, piece)| *start + piece.bytes.len() as u64 > range.0);
        let inside = self.list.range(range.0..range.1);
        before
            .into_iter()
            .chain(inside)
            .map(|(start, _)| *start)
            .collect()
    }

    /// Removes `range`, which is part of the piece at `start`.
    fn cut(&mut self, start: u64, range: (u64, u64)) {
        let Some(piece) = self.list.remove(&start) else {
            return;
        };
        let old = (start, start + piece.bytes.len() as u64);
        self.size -= piece.bytes.len();
        for kept in without(old, range) {
            let bytes = part(&piece.bytes, start, kept).to_vec();
            self.size += bytes.len();
            let arrived = piece.arrived;
            self.list.insert(kept.0, Piece { bytes, arrived });
        }
    }
}

/// Returns the bytes of `range`, which is part of the piece that begins at `start`.
fn part(bytes: &[u8], start: u64, range: (u64, u64)) -> &[u8] {
    &bytes[(range.0 - start) as usize..(range.1 - start) as usize]
}

/// Returns `range` without `hole`: zero, one or two ranges.
fn without(range: (u64, u64), hole: (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
    let left = (range.0, range.1.min(hole.0));
    let right = (range.0.max(hole.1), range.1);
    [left, right].into_iter().filter(|(from, to)| from < to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(pieces: &mut Pieces) -> Vec<u8> {
        let mut out = Vec::new();
        pieces.take_contiguous(0, u64::MAX, |bytes| out.extend_from_slice(bytes));
        out
    }

    fn merged(policy: OverlapPolicy, arrivals: &[(u64, &[u8])]) -> String {
        let mut pieces = Pieces::default();
        for (offset, bytes) in arrivals {
            pieces.insert(*offset, bytes, policy);
        }
        String::from_utf8(all(&mut pieces)).unwrap()
    }

    #[test]
    fn policies_differ_as_documented() {
        use OverlapPolicy::*;
        // The new piece begins before the old one and ends inside it.
        let before: &[(u64, &[u8])] = &[(2, b"oooo"), (0, b"nnnn")];
        let expected = [
            (First, "nnoooo"),
            (Last, "nnnnoo"),
            (Bsd, "nnnnoo"),
            (Windows, "nnoooo"),
            (Linux, "nnnnoo"),
            (Solaris, "nnoooo"),
        ];
        for (policy, text) in expected {
            assert_eq!(merged(policy, before), text, "{policy:?}");
        }
        // The new piece covers the old one.
        let around: &[(u64, &[u8])] = &[(2, b"oo"), (0, b"nnnnnn")];
        for (policy, text) in [
            (First, "nnoonn"),
            (Bsd, "nnnnnn"),
            (Windows, "nnnnnn"),
            (Solaris, "nnnnnn"),
        ] {
            assert_eq!(merged(policy, around), text, "{policy:?}");
        }
        // The new piece has the same extent.
        let same: &[(u64, &[u8])] = &[(0, b"oo"), (0, b"nn")];
        for (policy, text) in [
            (First, "oo"),
            (Last, "nn"),
            (Bsd, "oo"),
            (Linux, "oo"),
            (Solaris, "nn"),
        ] {
            assert_eq!(merged(policy, same), text, "{policy:?}");
        }
    }

    #[test]
    fn conflicts_are_told_from_retransmissions() {
        let mut pieces = Pieces::default();
        pieces.insert(0, b"abcd", OverlapPolicy::First);
        let again = pieces.insert(2, b"cdef", OverlapPolicy::First);
        assert_eq!((again.overlaps, again.conflicts), (true, false));
        let other = pieces.insert(3, b"X", OverlapPolicy::First);
        assert!(other.conflicts);
        let mut bytes = *b"XXXX";
        assert!(pieces.overwrite(3, &mut bytes));
        assert_eq!(&bytes, b"defX");
    }

    #[test]
    fn a_limit_splits_a_piece() {
        let mut pieces = Pieces::default();
        pieces.insert(0, b"abcdef", OverlapPolicy::First);
        assert_eq!(
            pieces.take_contiguous(0, 4, |bytes| assert_eq!(bytes, b"abcd")),
            4
        );
        assert_eq!(pieces.memory(), 2 + Pieces::OVERHEAD);
        pieces.insert(6, b"g", OverlapPolicy::First);
        for (offset, end) in [(3, 3), (4, 7), (5, 7), (6, 7), (7, 7), (9, 9)] {
            assert_eq!(pieces.contiguous_end(offset), end);
        }
        pieces.truncate(5);
        assert_eq!(pieces.end(), Some(5));
    }

    #[test]
    fn a_piece_that_covers_many_is_inserted_in_linear_time() {
        let mut pieces = Pieces::default();
        for offset in (0..65_000).step_by(2) {
            pieces.insert(offset, b"o", OverlapPolicy::First);
        }
        let start = std::time::Instant::now();
        pieces.insert(0, &[b'n'; 65_000], OverlapPolicy::First);
        // An algorithm in quadratic time would need 5 x 10^8 steps.
        assert!(start.elapsed() < std::time::Duration::from_secs(3));
        assert_eq!(pieces.list.len(), 65_000);
        assert_eq!(all(&mut pieces), b"on".repeat(32_500));
    }

    proptest! {
        /// The kept bytes equal those of a slow model, which decides about each byte in order of arrival.
        #[test]
        fn the_first_or_last_copy_of_each_byte_is_kept(
            arrivals in prop::collection::vec((0u64..40, 1usize..20, any::<u8>()), 0..12), first: bool,
        ) {
            let mut pieces = Pieces::default();
            let mut model = vec![None; 64];
            let policy = if first { OverlapPolicy::First } else { OverlapPolicy::Last };
            for (offset, len, byte) in arrivals {
                pieces.insert(offset, &vec![byte; len], policy);
                for slot in &mut model[offset as usize..][..len] {
                    if !first || slot.is_none() {
                        *slot = Some(byte);
                    }
                }
            }
            let size: usize = pieces.list.values().map(|piece| piece.bytes.len()).sum();
            prop_assert_eq!(size, pieces.size);
            prop_assert_eq!(size, model.iter().flatten().count());
            let expected: Vec<u8> = model.into_iter().map_while(|byte| byte).collect();
            prop_assert_eq!(all(&mut pieces), expected);
        }
    }
}
