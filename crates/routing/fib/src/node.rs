//! Nodes of the lookup tree: run-length compressed entries, in three forms.
//!
//! An entry is a word. It is a leaf (a group and the length of its route) or a link to a node that decides by the next
//! bits of the address:
//!
//! ```text
//!        31  30  29       24 23                                  0
//! leaf  | 0 | 0 | depth     | next-hop group, 0: no route        |
//! link  | 1 | form  |   0   | line of the node                   |
//! ```
//!
//! The *depth* of a leaf is the length of its route, less the number of address bits that lead to the node (1 to 32); 0 is
//! the leaf that the node inherits: a shorter route, which the nodes above decide. In a direct table, it is the length of
//! the route itself (0 to 24).
//!
//! Neighbouring entries with one value form a run.
//!
//! # Form `Byte`: the next eight bits
//! A node stores the first entries of its runs as a bitmap of 256 bits, and a word for each run. Most nodes have at most six
//! runs, and so one cache line:
//!
//! ```text
//! words 0..8   bitmap: bit b of word w is set if entry 32 w + b begins a run; bit 0 is always set
//! word  8      byte k: the number of bits in the words 0..2 k
//! word  9      the inherited leaf, as the entry above would be without this node; only the writer reads it
//! words 10..   the words of the runs
//! ```
//!
//! # Forms `Line` and `Lines`: the rest of a segment
//! IPv6 addresses behind the first 24 bits are cut into segments of 32 bits (24 to 56, 56 to 88, and so on). A node of these
//! forms decides by all bits that are left of its segment: it stores the *last* key of each run, where a key is the whole
//! segment. The first run begins with key 0, and the last one ends with the last key, although the node has only keys that
//! begin with the bits that lead to it.
//!
//! ```text
//! Line, at most 8 runs        Lines, at most 128 runs: a head line, then a line for each 8 runs
//! words 0..7  last keys       words 0..15  last key of each line but the last    words 0..7  last keys of 7 runs
//! word  7     inherited       word  15     inherited                            word  7     unused
//! words 8..   words of runs                                                     words 8..   words of 8 runs
//! ```
//!
//! Unused last keys are the greatest number. A lookup takes one or two lines, whatever the lengths of the routes. A node with
//! more runs is split: it becomes a node of the form `Byte`, whose entries lead to nodes for the rest of the segment.
//!
//! Bitmap and last keys of a published node never change: the writer fills a new node, and replaces the link to the old one.
//! Words of runs change in place. So every reader sees each entry before or after a change, never between.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use arrayvec::ArrayVec;

use crate::Family;
use crate::arena::{LINE_LEN, Lines, read, word, write};

/// The number of address bits that a node of the form `Byte` decides by.
pub(crate) const STRIDE: u8 = 8;
/// The number of entries of such a node: the greatest number of runs.
pub(crate) const ENTRIES: usize = 256;

/// The number of bits of a segment.
const SEGMENT: u8 = 32;
/// The first bit of the first segment of IPv6 addresses.
const FIRST_SEGMENT: u8 = 24;
/// The number of runs in a line.
const RUNS_PER_LINE: usize = 8;
/// The greatest number of runs of a node of the form `Lines`.
pub(crate) const SEGMENT_RUNS: usize = 128;

const COUNTS: usize = 8;
const RUNS: usize = 10;

const LINK: u32 = 1 << 31;
const FORM_SHIFT: u32 = 29;
const DEPTH_SHIFT: u32 = 24;
const LOW: u32 = (1 << DEPTH_SHIFT) - 1;

/// The form of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Form {
    Byte = 0,
    Line = 1,
    Lines = 2,
}

impl Form {
    /// Returns the word of the inherited leaf.
    const fn inherited(self) -> usize {
        match self {
            Form::Byte => 9,
            Form::Line => RUNS_PER_LINE - 1,
            Form::Lines => LINE_LEN - 1,
        }
    }

    /// Returns the word of a run.
    const fn run(self, at: usize) -> usize {
        match self {
            Form::Byte => RUNS + at,
            Form::Line => RUNS_PER_LINE + at,
            Form::Lines => LINE_LEN * (1 + at / RUNS_PER_LINE) + RUNS_PER_LINE + at % RUNS_PER_LINE,
        }
    }
}

/// The bits that a node decides by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Span {
    /// Eight bits.
    Byte,
    /// The rest of a segment.
    Segment,
}

/// Returns the first bit of the segment of a bit of an IPv6 address, from 24.
#[inline(always)]
pub(crate) const fn segment_start(bit: u8) -> u8 {
    ((bit + SEGMENT - FIRST_SEGMENT) & !(SEGMENT - 1)) - (SEGMENT - FIRST_SEGMENT)
}

/// Returns the first bit behind the segment of a bit.
#[inline(always)]
pub(crate) const fn segment_end(bit: u8) -> u8 {
    segment_start(bit) + SEGMENT
}

impl Span {
    /// Returns the bits that a new node decides by. `base` is the number of bits that lead to it.
    pub(crate) fn at(family: Family, base: u8) -> Span {
        match family {
            Family::V6 if base >= FIRST_SEGMENT => Span::Segment,
            _ => Span::Byte,
        }
    }

    /// Returns the number of bits that lead to the entries of a node.
    pub(crate) fn end(self, base: u8) -> u8 {
        match self {
            Span::Byte => base + STRIDE,
            Span::Segment => segment_end(base),
        }
    }

    fn last_key(self) -> u32 {
        match self {
            Span::Byte => 0xff,
            Span::Segment => u32::MAX,
        }
    }
}

/// An entry, see the drawing above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry(pub(crate) u32);

impl Entry {
    pub(crate) const NO_ROUTE: Entry = Entry(0);

    pub(crate) const fn leaf(depth: u8, group: u32) -> Entry {
        Entry((depth as u32) << DEPTH_SHIFT | group & LOW)
    }

    pub(crate) const fn link(form: Form, line: u32) -> Entry {
        Entry(LINK | (form as u32) << FORM_SHIFT | line & LOW)
    }

    /// Returns the form of the node; meaningless for a leaf.
    #[inline(always)]
    pub(crate) const fn form(self) -> Form {
        match self.0 >> FORM_SHIFT & 3 {
            0 => Form::Byte,
            1 => Form::Line,
            _ => Form::Lines,
        }
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
        (self.0 >> DEPTH_SHIFT & 0x3f) as u8
    }
}

/// Returns the entry of a node of the form `Byte` for eight bits of an address.
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

/// Loads from a line; the value means nothing.
#[inline(always)]
pub(crate) fn touch(memory: &Lines, line: u32) -> u32 {
    memory.get(line).map_or(0, |line| line.0[COUNTS].load(Relaxed))
}

/// Returns the number of the line that has the entry of a key, of a node of the form `Line` or `Lines`.
#[inline(always)]
pub(crate) fn line_of(memory: &Lines, link: Entry, key: u32) -> u32 {
    let Some(head) = memory.get(link.line()) else {
        return link.line();
    };
    // A bisection without branches, because no branch could be predicted.
    let mut at = 0;
    for step in [8, 4, 2, 1] {
        let is_before = head.0[(at + step - 1) % LINE_LEN].load(Relaxed) < key;
        at += usize::from(is_before) * step;
    }
    let is_head = u32::from(link.form() as u8 >> 1);
    link.line() + is_head * (1 + at as u32)
}

/// Returns the entry of a key from the line that [`line_of`] returned.
#[inline(always)]
pub(crate) fn entry_in_line(memory: &Lines, line: u32, key: u32) -> Entry {
    let Some(line) = memory.get(line) else {
        return Entry::NO_ROUTE;
    };
    let mut at = 0;
    for step in [4, 2, 1] {
        let is_before = line.0[(at + step - 1) % RUNS_PER_LINE].load(Relaxed) < key;
        at += usize::from(is_before) * step;
    }
    Entry(line.0[RUNS_PER_LINE + at % RUNS_PER_LINE].load(Acquire))
}

/// The runs of a node, as the writer changes them: first key and value, in order. The first run begins at 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Runs {
    span: Span,
    runs: ArrayVec<(u32, Entry), ENTRIES>,
}

impl Runs {
    /// Returns one run.
    pub(crate) fn new(span: Span, entry: Entry) -> Runs {
        let mut runs = Runs::empty(span);
        runs.push(0, entry);
        runs
    }

    pub(crate) fn empty(span: Span) -> Runs {
        Runs {
            span,
            runs: ArrayVec::new(),
        }
    }

    /// Reads the runs of a node.
    pub(crate) fn read(memory: &Lines, link: Entry) -> Runs {
        let (form, line) = (link.form(), link.line());
        let mut runs = Runs::empty(if form == Form::Byte {
            Span::Byte
        } else {
            Span::Segment
        });
        if form == Form::Byte {
            for at in 0..8 {
                let mut bits = read(memory, line, at);
                while bits != 0 {
                    let start = at as u32 * 32 + bits.trailing_zeros();
                    bits &= bits - 1;
                    let entry = read(memory, line, form.run(runs.len()));
                    runs.runs.push((start, Entry(entry)));
                }
            }
            return runs;
        }
        let mut start = 0;
        for at in 0..SEGMENT_RUNS {
            let entry = Entry(read(memory, line, form.run(at)));
            runs.runs.push((start, entry));
            let (in_line, number) = (at % RUNS_PER_LINE, at / RUNS_PER_LINE);
            let last_of_run = match in_line + 1 < RUNS_PER_LINE {
                true => read(memory, line, form.run(at) - RUNS_PER_LINE),
                false => u32::MAX,
            };
            let last_of_line = match form == Form::Lines && number + 1 < LINE_LEN {
                true => read(memory, line, number),
                false => u32::MAX,
            };
            match last_of_run.min(last_of_line).checked_add(1) {
                Some(next) => start = next,
                None => break,
            }
        }
        runs
    }

    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Returns true if a node of these bits has no room for the runs.
    pub(crate) fn is_too_long(&self) -> bool {
        self.span == Span::Segment && self.len() > SEGMENT_RUNS
    }

    /// Returns the bits that the node decides by.
    pub(crate) fn span(&self) -> Span {
        self.span
    }

    pub(crate) fn form(&self) -> Form {
        match self.span {
            Span::Byte => Form::Byte,
            Span::Segment if self.len() <= RUNS_PER_LINE => Form::Line,
            Span::Segment => Form::Lines,
        }
    }

    /// Appends a run, or prolongs the last one if it has this value.
    pub(crate) fn push(&mut self, start: u32, entry: Entry) {
        if self.runs.last().is_none_or(|(_, last)| *last != entry) {
            self.runs.push((start, entry));
        }
    }

    /// Returns first key, last key and value of each run.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32, Entry)> {
        (0..self.len()).map(|at| {
            let last = match self.runs.get(at + 1) {
                Some((next, _)) => next - 1,
                None => self.span.last_key(),
            };
            (self.runs[at].0, last, self.runs[at].1)
        })
    }

    /// Returns the value of a key.
    pub(crate) fn get(&self, key: u32) -> Entry {
        let run = self.runs.partition_point(|(start, _)| *start <= key);
        self.runs[run.saturating_sub(1)].1
    }

    /// Returns the runs after a change of the keys `first..=last`.
    pub(crate) fn changed(&self, first: u32, last: u32, mut change: impl FnMut(Entry) -> Entry) -> Runs {
        let mut runs = Runs::empty(self.span);
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
        matches!(*self.runs, [(_, entry)] if !entry.is_link() && entry.depth() == 0)
    }

    /// Returns the number of lines of a node with these runs.
    pub(crate) fn lines(&self) -> u32 {
        match self.form() {
            Form::Byte => (RUNS + self.len()).div_ceil(LINE_LEN) as u32,
            Form::Line => 1,
            Form::Lines => 1 + self.len().div_ceil(RUNS_PER_LINE) as u32,
        }
    }

    /// Fills a node that is not published.
    pub(crate) fn fill(&self, memory: &Lines, line: u32, inherited: Entry) {
        let form = self.form();
        match form {
            Form::Byte => self.fill_bitmap(memory, line),
            Form::Line => self.fill_keys(memory, line, 0),
            Form::Lines => {
                let last_line = self.len().div_ceil(RUNS_PER_LINE) - 1;
                for at in 0..LINE_LEN - 1 {
                    let is_used = at < last_line;
                    let last = if is_used {
                        self.last(at * RUNS_PER_LINE + RUNS_PER_LINE - 1)
                    } else {
                        u32::MAX
                    };
                    write(memory, line, at, last);
                }
                for at in 0..=last_line {
                    self.fill_keys(memory, line + 1 + at as u32, at * RUNS_PER_LINE);
                }
            }
        }
        write(memory, line, form.inherited(), inherited.0);
        for (at, (_, entry)) in self.runs.iter().enumerate() {
            write(memory, line, form.run(at), entry.0);
        }
    }

    /// Returns the last key of a run.
    fn last(&self, at: usize) -> u32 {
        self.runs.get(at + 1).map_or(u32::MAX, |(next, _)| next - 1)
    }

    /// Writes the last keys of the runs of a line, whose first is `first`.
    fn fill_keys(&self, memory: &Lines, line: u32, first: usize) {
        for at in 0..RUNS_PER_LINE - 1 {
            write(memory, line, at, self.last(first + at));
        }
    }

    fn fill_bitmap(&self, memory: &Lines, line: u32) {
        let mut bitmap = [0u32; 8];
        for (start, _) in &self.runs {
            bitmap[(start / 32) as usize % 8] |= 1 << (start % 32);
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
    }

    /// Changes the words of a published node from `before` to these runs; false if the runs begin elsewhere.
    pub(crate) fn store_in_place(&self, memory: &Lines, line: u32, before: &Runs) -> bool {
        let pairs = || self.runs.iter().zip(&before.runs);
        if self.len() != before.len() || !pairs().all(|(new, old)| new.0 == old.0) {
            return false;
        }
        for (at, (new, old)) in pairs().enumerate() {
            if new.1 != old.1
                && let Some(word) = word(memory, line, self.form().run(at))
            {
                word.store(new.1.0, Release);
            }
        }
        true
    }
}

/// Returns the leaf that a node inherits.
pub(crate) fn inherited(memory: &Lines, link: Entry) -> Entry {
    Entry(read(memory, link.line(), link.form().inherited()))
}

/// Records the leaf that a node inherits, and changes none of its entries.
pub(crate) fn record_inherited(memory: &Lines, link: Entry, leaf: Entry) {
    write(memory, link.line(), link.form().inherited(), leaf.0);
}

/// Gives a published node another inherited leaf; `leaf` is the entry above without the node.
pub(crate) fn inherit(memory: &Lines, link: Entry, leaf: Entry) {
    record_inherited(memory, link, leaf);
    let inner = Entry::leaf(0, leaf.group());
    let runs = Runs::read(memory, link);
    for (at, (_, _, entry)) in runs.iter().enumerate() {
        if entry.is_link() {
            if inherited(memory, entry).depth() == 0 {
                inherit(memory, entry, inner);
            }
        } else if entry.depth() == 0
            && let Some(word) = word(memory, link.line(), link.form().run(at))
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

    fn looked_up(memory: &Lines, link: Entry, key: u32) -> Entry {
        match link.form() {
            Form::Byte => entry(memory, link.line(), key as u8),
            Form::Line | Form::Lines => entry_in_line(memory, line_of(memory, link, key), key),
        }
    }

    proptest! {
        #[test]
        fn a_node_returns_the_entries_that_it_was_filled_with(
            changes in prop::collection::vec((any::<u8>(), any::<u8>(), 0u32..6), 0..200),
            span in prop::sample::select(vec![Span::Byte, Span::Segment]),
        ) {
            let memory = Lines::new();
            let mut allocator = Allocator::new();
            let mut naive = [Entry::leaf(0, 9); ENTRIES];
            let mut runs = Runs::new(span, Entry::leaf(0, 9));
            // Each byte stands for 2^24 keys of a segment.
            let shift = if span == Span::Byte { 0 } else { 24 };
            let (first_key, last_key) = (|at: u8| u32::from(at) << shift, |at: u8| ((u32::from(at) + 1) << shift).wrapping_sub(1));
            for (one, other, value) in changes {
                let (first, last) = (one.min(other), one.max(other));
                let mut new = naive;
                new[usize::from(first)..=usize::from(last)].fill(Entry::leaf(3, value));
                let changed = runs.changed(first_key(first), last_key(last), |_| Entry::leaf(3, value));
                if !changed.is_too_long() {
                    (runs, naive) = (changed, new);
                }
            }
            let block = allocator.allocate(&memory, runs.lines()).unwrap();
            let link = Entry::link(runs.form(), block.line);
            runs.fill(&memory, block.line, Entry::leaf(2, 9));
            prop_assert_eq!(inherited(&memory, link), Entry::leaf(2, 9));
            prop_assert_eq!(&Runs::read(&memory, link), &runs);
            for at in 0..=255u8 {
                for key in [first_key(at), last_key(at)] {
                    prop_assert_eq!(looked_up(&memory, link, key), naive[usize::from(at)]);
                    prop_assert_eq!(runs.get(key), naive[usize::from(at)]);
                }
            }
        }
    }

    #[test]
    fn segments_begin_at_24_and_have_32_bits() {
        let starts: Vec<u8> = [24, 32, 55, 56, 87, 88, 119, 120, 127]
            .map(segment_start)
            .to_vec();
        assert_eq!(starts, [24, 24, 24, 56, 56, 88, 88, 120, 120]);
        assert_eq!(segment_end(48), 56);
    }
}
