//! Hashed windows: one bit rules out most positions of a block.
//!
//! Each pattern of five or more bytes is represented by two neighbouring windows of four folded (lower-case) bytes: the rarest
//! two among its last `TAIL` bytes. One of them begins at an even position, wherever the pattern is, so only even positions
//! are examined. Shorter patterns are represented by their first two bytes, single bytes by themselves.
//!
//! ```text
//!  T[b[i], b[i+1]].first & T[b[i+2], b[i+3]].second ──▶ buckets of windows, eight positions at a time    none ──▶ next
//!                       │ some
//!  hash of fold(b[i..i+4]) ──▶ heads: 131,072 bits (16 KiB)                                             no ──▶ next
//!                       │ yes
//!                       ▼
//!            entries[hash] ──▶ compare four bytes beside the window ──▶ compare the pattern at i - offset ──▶ hit
//! ```
//!
//! `T` has two bytes for each pair of bytes, in upper and lower case. Each byte has one bit for each of eight
//! buckets: the bit in `first` is set if a window of the bucket begins with the pair, the bit in `second` if
//! one ends with it. A position passes if its two pairs have a bucket in common. Windows that begin alike are
//! mostly in one bucket, so that few buckets have a given beginning, and each bucket has few ends.
//!
//! Short patterns have two separate buckets. In `EVEN_BUCKET` they begin at the position, and every pair is an end. In `ODD_BUCKET`
//! they begin one byte behind it: any byte is in front of their first one, and their next bytes are the end. There, a pattern of four
//! bytes counts as short, because only three of them are in the window.
//!
//! ```text
//!  position        i     i+1   i+2   i+3
//!  EVEN_BUCKET   [ a     b ] [ any   any ]
//!  ODD_BUCKET    [ any   a ] [ b     c   ]
//! ```
//!
//! The first test covers four positions before it branches, because in text single positions pass too often
//! and too irregularly for branch prediction. Text in one language has few pairs, so the used part of `T`
//! stays in the L1 cache.
//!
//! A window begins at most `TAIL` bytes before the end of its pattern. A scan of new bytes therefore starts
//! `TAIL` - 1 bytes before them. The comparison of a pattern may read still earlier bytes.
//!
//! The scheme follows "DFC: Accelerating String Pattern Matching for Network Applications" (Choi et al., NSDI 2016),
//! with windows chosen by rarity in place of the first bytes.

mod entry;
mod search;
mod tables;

use crate::scanner::{Pattern, Scanner};
use entry::EntryTable;
use search::Scan;
pub(crate) use tables::Windows;

impl Scanner for Windows {
    fn scan(&self, bytes: &[u8], hit: &mut dyn FnMut(u32, usize)) {
        self.scan_new(bytes, 0, hit);
    }

    fn scan_new(&self, bytes: &[u8], from: usize, hit: &mut dyn FnMut(u32, usize)) {
        Scan::run(self, bytes, from, hit);
    }

    fn longest(&self) -> usize {
        self.longest
    }

    fn memory(&self) -> usize {
        let patterns: usize = self
            .patterns
            .iter()
            .map(|p| p.bytes.len() + size_of::<Pattern>())
            .sum();
        let entries = |table: &EntryTable| size_of_val(&table.starts[..]) + size_of_val(&table.entries[..]);
        let bits = size_of_val(&*self.pairs) + size_of_val(&*self.heads);
        patterns + bits + entries(&self.long) + entries(&self.short) + entries(&self.odd)
    }
}
