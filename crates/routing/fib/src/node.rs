//! Nodes of the lookup tree: 256 entries, run-length compressed.
//!
//! An entry is a word. It is a leaf (a group and the length of its route) or a link to a node that decides by the next
//! eight bits of the address:
//!
//! ```text
//!        31  30 29 28      24 23                                  0
//! leaf  | 0 | 0  0 | depth    | next-hop group, 0: no route        |
//! link  | 1 | 0                | line of the node                   |
//! ```
//!
//! The *depth* of a leaf is the length of its route, less the number of address bits that lead to the node (1 to 8); 0 is
//! the leaf that the node inherits: a shorter route, which the nodes above decide. In a direct table, it is the length of
//! the route itself (0 to 24).
//!
//! Neighbouring entries with one value form a run. A node stores the first entries of its runs as a bitmap of 256 bits,
//! and a word for each run. Most nodes have at most six runs, and so one cache line:
//!
//! ```text
//! words 0..8   bitmap: bit b of word w is set if entry 32 w + b begins a run; bit 0 is always set
//! word  8      byte k: the number of bits in the words 0..2 k
//! word  9      the inherited leaf, as the entry above would be without this node; only the writer reads it
//! words 10..   the words of the runs
//! ```
//!
//! The bitmap of a published node never changes: the writer fills a new node, and replaces the link to the old one. Words
//! of runs change in place. So every reader sees each entry before or after a change, never between.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::arena::{LINE_LEN, Lines, read, word, write};

/// The number of address bits that a node decides by.
pub(crate) const STRIDE: u8 = 8;
/// The number of entries.
pub(crate) const ENTRIES: usize = 256;

const COUNTS: usize = 8;
const INHERITED: usize = 9;
const RUNS: usize = 10;

const LINK: u32 = 1 << 31;
const DEPTH_SHIFT: u32 = 24;
const LOW: u32 = (1 << DEPTH_SHIFT) - 1;

/// An entry, see the drawing above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry(pub(crate) u32);

impl Entry {
    pub(crate) const NO_ROUTE: Entry = Entry(0);

    pub(crate) const fn leaf(depth: u8, group: u32) -> Entry {
        Entry((depth as u32) << DEPTH_SHIFT | group & LOW)
    }

    pub(crate) const fn link(line: u32) -> Entry {
        Entry(LINK | line & LOW)
    }

    #[inline(always)]
    pub(crate) const fn is_link(self) -> bool {
        self.0 & LINK != 0
    }

    /// Returns the line of the node; meaningless for a leaf.
    #[inline(always)]
    pub(crate) const fn line(self) -> u32 {
        self.0 & LOW
    }

    /// Returns the group; meaningless for a link.
    #[inline(always)]
    pub(crate) const fn group(self) -> u32 {
        self.0 & LOW
    }

    pub(crate) const fn depth(self) -> u8 {
        (self.0 >> DEPTH_SHIFT & 0x1f) as u8
    }
}

/// Returns the entry of a node for eight bits of an address.
#[inline(always)]
pub(crate) fn entry(memory: &Lines, line: u32, byte: u8) -> Entry {
    let Some((chunk, at)) = memory.chunk(line) else {
        return Entry::NO_ROUTE;
    };
    let head = &chunk[at].0;
    let byte = usize::from(byte);
    let pair = byte / 64;
    let bits = u64::from(head[pair * 2].load(Relaxed)) | u64::from(head[pair * 2 + 1].load(Relaxed)) << 32;
    let before = head[COUNTS].load(Relaxed) >> (8 * pair) & 0xff;
    let up_to = bits << (63 - byte % 64);
    let run = (before + up_to.count_ones()).wrapping_sub(1);
    let slot = RUNS + run as usize;
    // A block lies in one chunk.
    let line = &chunk[(at + slot / LINE_LEN) % crate::chunks::CHUNK_LEN];
    Entry(line.0[slot % LINE_LEN].load(Acquire))
}

/// Loads from the first line of a node; the value means nothing.
#[inline(always)]
pub(crate) fn touch(memory: &Lines, line: u32) -> u32 {
    memory.get(line).map_or(0, |line| line.0[COUNTS].load(Relaxed))
}

/// The runs of a node, as the writer changes them: first entry and value, in order. The first run begins at 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Runs {
    len: usize,
    starts: [u8; ENTRIES],
    entries: [Entry; ENTRIES],
}

impl Runs {
    /// Returns one run.
    pub(crate) fn new(entry: Entry) -> Runs {
        let mut runs = Runs::empty();
        runs.push(0, entry);
        runs
    }

    fn empty() -> Runs {
        Runs {
            len: 0,
            starts: [0; ENTRIES],
            entries: [Entry::NO_ROUTE; ENTRIES],
        }
    }

    /// Reads the runs of a node.
    pub(crate) fn read(memory: &Lines, line: u32) -> Runs {
        let mut runs = Runs::empty();
        for at in 0..8 {
            let mut bits = read(memory, line, at);
            while bits != 0 {
                let start = at as u32 * 32 + bits.trailing_zeros();
                bits &= bits - 1;
                runs.starts[runs.len] = start as u8;
                runs.entries[runs.len] = Entry(read(memory, line, RUNS + runs.len));
                runs.len += 1;
            }
        }
        runs
    }

    /// Appends a run, or prolongs the last one if it has this value.
    fn push(&mut self, start: u8, entry: Entry) {
        if self.len > 0 && self.entries[self.len - 1] == entry {
            return;
        }
        self.starts[self.len] = start;
        self.entries[self.len] = entry;
        self.len += 1;
    }

    /// Returns first entry, last entry and value of each run.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u8, u8, Entry)> {
        (0..self.len).map(|at| {
            let last = if at + 1 < self.len {
                self.starts[at + 1] - 1
            } else {
                u8::MAX
            };
            (self.starts[at], last, self.entries[at])
        })
    }

    /// Returns the value of an entry.
    pub(crate) fn get(&self, at: u8) -> Entry {
        let run = self.starts[..self.len].partition_point(|start| *start <= at);
        self.entries[run.saturating_sub(1)]
    }

    /// Returns the runs after a change of the entries `first..=last`.
    pub(crate) fn changed(&self, first: u8, last: u8, mut change: impl FnMut(Entry) -> Entry) -> Runs {
        let mut runs = Runs::empty();
        for (start, end, entry) in self.iter() {
            if end < first || start > last {
                runs.push(start, entry);
                continue;
            }
            if start < first {
                runs.push(start, entry);
            }
            runs.push(start.max(first), change(entry));
            if end > last {
                runs.push(last + 1, entry);
            }
        }
        runs
    }

    /// Returns the value if all entries have one, and it is the inherited leaf.
    pub(crate) fn is_inherited_only(&self) -> bool {
        self.len == 1 && !self.entries[0].is_link() && self.entries[0].depth() == 0
    }

    fn has_same_starts(&self, other: &Runs) -> bool {
        self.starts[..self.len] == other.starts[..other.len]
    }

    /// Returns the number of lines of a node with these runs.
    pub(crate) fn lines(&self) -> u32 {
        (RUNS + self.len).div_ceil(LINE_LEN) as u32
    }

    /// Fills a node that is not published.
    pub(crate) fn fill(&self, memory: &Lines, line: u32, inherited: Entry) {
        let mut bitmap = [0u32; 8];
        for start in &self.starts[..self.len] {
            bitmap[usize::from(start / 32)] |= 1 << (start % 32);
        }
        let mut counts = 0;
        let mut before = 0;
        for (at, bits) in bitmap.iter().enumerate() {
            if at % 2 == 0 {
                // At most 192 bits precede the last pair.
                counts |= before << (at * 4);
            }
            before += bits.count_ones();
            write(memory, line, at, *bits);
        }
        write(memory, line, COUNTS, counts);
        write(memory, line, INHERITED, inherited.0);
        for (at, entry) in self.entries[..self.len].iter().enumerate() {
            write(memory, line, RUNS + at, entry.0);
        }
    }

    /// Changes the words of a published node from `before` to these runs; false if the bitmaps differ.
    pub(crate) fn store_in_place(&self, memory: &Lines, line: u32, before: &Runs) -> bool {
        if !self.has_same_starts(before) {
            return false;
        }
        for at in 0..self.len {
            if self.entries[at] != before.entries[at]
                && let Some(word) = word(memory, line, RUNS + at)
            {
                word.store(self.entries[at].0, Release);
            }
        }
        true
    }
}

/// Returns the leaf that a node inherits.
pub(crate) fn inherited(memory: &Lines, line: u32) -> Entry {
    Entry(read(memory, line, INHERITED))
}

/// Gives a published node another inherited leaf; `leaf` is the entry above without the node.
pub(crate) fn inherit(memory: &Lines, line: u32, leaf: Entry) {
    write(memory, line, INHERITED, leaf.0);
    let inner = Entry::leaf(0, leaf.group());
    let runs = Runs::read(memory, line);
    for (at, (_, _, entry)) in runs.iter().enumerate() {
        if entry.is_link() {
            if inherited(memory, entry.line()).depth() == 0 {
                inherit(memory, entry.line(), inner);
            }
        } else if entry.depth() == 0
            && let Some(word) = word(memory, line, RUNS + at)
        {
            word.store(inner.0, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Allocator;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_node_returns_the_entries_that_it_was_filled_with(
            changes in prop::collection::vec((any::<u8>(), any::<u8>(), 0u32..6), 0..200),
        ) {
            let memory = Lines::new();
            let mut allocator = Allocator::new();
            let mut naive = [Entry::leaf(0, 9); ENTRIES];
            let mut runs = Runs::new(Entry::leaf(0, 9));
            for (one, other, value) in changes {
                let (first, last) = (one.min(other), one.max(other));
                naive[usize::from(first)..=usize::from(last)].fill(Entry::leaf(3, value));
                runs = runs.changed(first, last, |_| Entry::leaf(3, value));
            }
            let block = allocator.allocate(&memory, runs.lines()).unwrap();
            runs.fill(&memory, block.line, Entry::leaf(2, 9));
            prop_assert_eq!(inherited(&memory, block.line), Entry::leaf(2, 9));
            prop_assert_eq!(&Runs::read(&memory, block.line), &runs);
            for at in 0..=255u8 {
                prop_assert_eq!(entry(&memory, block.line, at), naive[usize::from(at)]);
                prop_assert_eq!(runs.get(at), naive[usize::from(at)]);
            }
        }
    }
}
