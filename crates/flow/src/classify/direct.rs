//! A few rules, compared one after the other with the whole burst at once.
//!
//! For a handful of rules there is nothing to look up: a compare costs less than a hash. The loop over the
//! packets of a burst has no branch, so that one instruction compares up to eight packets.

use super::BURST;
use super::columns::{Burst, Columns, Projection};
use super::masks::MaskId;

/// How many packets are compared at once.
const WIDE: usize = 8;

/// A column that a rule looks at: position in the burst, mask, key.
type Compare = (u8, u64, u64);

/// One rule.
#[derive(Clone, Debug)]
struct Line {
    /// Priority, and slot; see [`rank`](super::rank).
    rank: u64,
    mask: MaskId,
    /// The compact key.
    key: Columns,
    compares: Box<[Compare]>,
}

/// Some rules.
#[derive(Clone, Debug, Default)]
pub(super) struct Direct {
    lines: Vec<Line>,
}

impl Direct {
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    fn position(&self, mask: MaskId, key: &Columns) -> Option<usize> {
        self.lines
            .iter()
            .position(|line| line.mask == mask && line.key == *key)
    }

    /// The rank of the rule with this mask and key.
    pub(super) fn rank(&self, mask: MaskId, key: &Columns) -> Option<u64> {
        self.position(mask, key).map(|at| self.lines[at].rank)
    }

    /// Changes the rank of the rule with this mask and key.
    pub(super) fn replace(&mut self, mask: MaskId, key: &Columns, rank: u64) {
        if let Some(at) = self.position(mask, key) {
            self.lines[at].rank = rank;
        }
    }

    /// Adds a rule.
    pub(super) fn insert(
        &mut self,
        projection: &Projection,
        mask: (MaskId, &Columns),
        key: &Columns,
        rank: u64,
    ) {
        let compare = |column: usize| {
            let position = projection.position(column)? as u8;
            Some((position, mask.1.0[column], key.0[column]))
        };
        self.lines.push(Line {
            rank,
            mask: mask.0,
            key: *key,
            compares: mask.1.occupied().filter_map(compare).collect(),
        });
    }

    /// Removes the rule with this mask and key.
    pub(super) fn remove(&mut self, mask: MaskId, key: &Columns) -> Option<u64> {
        self.position(mask, key).map(|at| self.lines.swap_remove(at).rank)
    }

    /// Visits each rule.
    pub(super) fn each(&self, mut visit: impl FnMut(MaskId, &Columns, u64)) {
        for line in &self.lines {
            visit(line.mask, &line.key, line.rank);
        }
    }

    /// The highest rank.
    pub(super) fn highest(&self) -> u64 {
        self.lines.iter().map(|line| line.rank).max().unwrap_or(0)
    }

    /// Raises `best` of each of the first `len` packets to the highest rank of a matching rule.
    #[inline(always)]
    pub(super) fn search(&self, burst: &Burst, len: usize, best: &mut [u64; BURST]) {
        // Whole registers; what lies beyond the burst is never looked at. One column at a time: of a loop over several
        // the compiler makes gathers.
        let len = len.next_multiple_of(WIDE).min(BURST);
        let best = &mut best[..len];
        let mut differences = [0; BURST];
        let differences = &mut differences[..len];
        for line in &self.lines {
            differences.fill(0);
            for (position, mask, key) in &line.compares {
                let column = &burst[usize::from(*position)];
                for (difference, word) in differences.iter_mut().zip(column) {
                    *difference |= (word & mask) ^ key;
                }
            }
            let rank = line.rank;
            for (best, difference) in best.iter_mut().zip(&*differences) {
                *best = (*best).max(if *difference == 0 { rank } else { 0 });
            }
        }
    }

    /// Bytes of heap in use.
    pub(super) fn heap_size(&self) -> usize {
        let compares: usize = self.lines.iter().map(|line| line.compares.len()).sum();
        self.lines.capacity() * size_of::<Line>() + compares * size_of::<Compare>()
    }
}
