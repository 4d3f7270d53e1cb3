//! The search for the windows of a scanner in a block of bytes.

use super::entry::{Entry, EntryTable, TAIL, WINDOW, fold, folded, folded_window, head};
use super::tables::{BLOCK, EVEN_BUCKET, HEAD_WORDS, ODD_BUCKET, STEP, STRIDE, Windows};
use crate::scanner::is_equal;

/// A scan of a block of bytes.
pub(super) struct Scan<'a> {
    windows: &'a Windows,
    bytes: &'a [u8],
    /// Occurrences that end after this many bytes are reported.
    known: usize,
    /// The pattern that was reported last. Its next occurrences are not reported until another pattern occurs.
    last: Option<u32>,
    hit: &'a mut dyn FnMut(u32, usize),
}

impl<'a> Scan<'a> {
    /// Calls `hit` for occurrences that end after the first `known` bytes, for each pattern that occurs at least once.
    pub(super) fn run(
        windows: &'a Windows,
        bytes: &'a [u8],
        known: usize,
        hit: &'a mut dyn FnMut(u32, usize),
    ) {
        let mut scan = Scan {
            windows,
            bytes,
            known,
            last: None,
            hit,
        };
        scan.search((known + 1).saturating_sub(TAIL));
    }

    /// Compares the pattern of an entry whose window begins at `at`, and reports a hit.
    #[inline]
    fn confirm(&mut self, entry: &Entry, at: usize) {
        let Some(start) = at.checked_sub(entry.offset as usize) else {
            return;
        };
        self.compare(entry.pattern, start);
    }

    /// Compares a pattern at `start`, and reports a hit.
    #[inline]
    fn compare(&mut self, index: u32, start: usize) {
        if self.last == Some(index) {
            return;
        }
        let pattern = &self.windows.patterns[index as usize];
        let end = start + pattern.bytes.len();
        if end > self.known
            && let Some(candidate) = self.bytes.get(start..end)
            && is_equal(pattern, candidate)
        {
            self.last = Some(index);
            (self.hit)(pattern.id, end);
        }
    }

    /// Examines a position with a window of long patterns. `takes_second` is false if only the first window of a pattern counts.
    #[inline]
    fn examine_window(&mut self, at: usize, takes_second: bool) {
        let windows = self.windows;
        if let Some(window) = self.bytes.get(at..).and_then(<[u8]>::first_chunk::<WINDOW>) {
            let window = folded_window(*window);
            let head = head(window);
            if windows.heads[(head >> 6) as usize & (HEAD_WORDS - 1)] >> (head & 63) & 1 != 0 {
                self.examine_long(window, at, takes_second);
            }
        }
    }

    /// Compares the patterns of four or more bytes that have their window at a position.
    #[inline(never)]
    fn examine_long(&mut self, window: u32, at: usize, takes_second: bool) {
        let windows = self.windows;
        for entry in windows.long.find(window) {
            if entry.window == window
                && (takes_second || !entry.is_second)
                && entry.near.may_be(self.bytes, at)
            {
                self.confirm(entry, at);
            }
        }
    }

    /// Compares the short patterns of a table, and those of one byte, that begin at a position.
    #[inline(never)]
    fn examine_short(&mut self, table: &EntryTable, at: usize) {
        if !table.entries.is_empty()
            && let Some(pair) = self.bytes.get(at..at + 2)
        {
            let pair = folded(pair);
            for entry in table.find(pair) {
                if entry.window == pair {
                    self.confirm(entry, at);
                }
            }
        }
        let windows = self.windows;
        if windows.has_single
            && let Some(byte) = self.bytes.get(at)
        {
            for index in &windows.single[usize::from(fold(*byte))] {
                self.compare(*index, at);
            }
        }
    }

    /// Examines the positions of a block that may have a window.
    #[inline(never)]
    fn examine_block(&mut self, at: usize, block: &[u8; BLOCK]) {
        let windows = self.windows;
        for position in (0..STRIDE).step_by(STEP) {
            let end = windows.pair_at(block, position + 2);
            let buckets = windows.pair_at(block, position).until(end);
            if buckets == 0 {
                continue;
            }
            self.examine_window(at + position, true);
            // If there are no short patterns, these buckets have windows of four bytes.
            if buckets >> EVEN_BUCKET & 1 != 0 {
                self.examine_short(&windows.short, at + position);
            }
            if buckets >> ODD_BUCKET & 1 != 0 {
                self.examine_short(&windows.odd, at + position + 1);
            }
        }
    }

    /// Finds the occurrences with a window that begins at or after `from`.
    #[inline]
    fn search(&mut self, from: usize) {
        let (windows, bytes) = (self.windows, self.bytes);
        let mut at = from;
        // One branch covers eight bytes, because most blocks have no bucket.
        while let Some(block) = bytes.get(at..).and_then(<[u8]>::first_chunk::<BLOCK>) {
            if windows.has_buckets(block) {
                self.examine_block(at, block);
            }
            at += STRIDE;
        }
        // All positions of the rest may have a window. The first ones of patterns suffice there, but for the window whose neighbour is in
        // front of the rest.
        for position in at..bytes.len() {
            let rest = &bytes[position..];
            let buckets = match rest.first_chunk() {
                Some([a, b, c, d]) => windows.pair([*a, *b]).until(windows.pair([*c, *d])),
                None => 1 << EVEN_BUCKET,
            };
            if buckets != 0 {
                self.examine_window(position, position == at);
            }
            if buckets >> EVEN_BUCKET & 1 != 0 {
                self.examine_short(&windows.short, position);
            }
        }
    }
}
