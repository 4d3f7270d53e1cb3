//! Lookup of a burst in a tuple.

use super::super::BURST;
use super::super::columns::{Burst, COLUMNS};
use super::super::hash::{finish, term};
use super::super::lanes::{LANES, candidates, lane, tag};
use super::super::simd::prefetch;
use super::super::table::{OVERFLOW_SHIFT, Table, overflows};
use super::{Form, Tuple, Word};

impl Tuple {
    /// Raises `best` of each of the first `len` packets to the highest rank of a matching rule.
    #[inline(always)]
    pub(in super::super) fn search(
        &self,
        burst: &Burst,
        len: usize,
        best: &mut [u64; BURST],
        scratch: &mut Scratch,
    ) {
        match (self.merged, self.form.words.len()) {
            (false, 1) => self.search_words::<1, false>(burst, len, best, scratch),
            (false, 2) => self.search_words::<2, false>(burst, len, best, scratch),
            (false, 3) => self.search_words::<3, false>(burst, len, best, scratch),
            (false, _) => self.search_words::<0, false>(burst, len, best, scratch),
            (true, 1) => self.search_words::<1, true>(burst, len, best, scratch),
            (true, 2) => self.search_words::<2, true>(burst, len, best, scratch),
            (true, 3) => self.search_words::<3, true>(burst, len, best, scratch),
            (true, _) => self.search_words::<0, true>(burst, len, best, scratch),
        }
    }

    /// Searches as [`Tuple::search`] does for `WORDS` words, or for any number of words if that is zero.
    ///
    /// Each step processes all packets that the step before left, and has no branch that depends on a packet: a
    /// mispredicted branch costs more than a step.
    #[inline(always)]
    fn search_words<const WORDS: usize, const MERGED: bool>(
        &self,
        burst: &Burst,
        len: usize,
        best: &mut [u64; BURST],
        scratch: &mut Scratch,
    ) {
        let words = &self.form.words[..if WORDS == 0 { self.form.words.len() } else { WORDS }];
        let Scratch {
            hashes,
            segments,
            groups,
            tags,
            lanes,
            hits,
            checks,
        } = scratch;
        let mut columns = [&burst[0]; COLUMNS];
        for (column, word) in columns.iter_mut().zip(words) {
            *column = &burst[usize::from(word.position)];
        }
        // The loops process whole registers; results beyond the burst are ignored.
        let padded = len.next_multiple_of(8).min(BURST);
        hashes[..padded].fill(self.form.start);
        for (word, column) in words.iter().zip(&columns).filter(|(word, _)| word.hashed != 0) {
            for (hash, value) in hashes[..padded].iter_mut().zip(*column) {
                *hash = hash.wrapping_add(term(value & word.hashed, word.keys));
            }
        }
        hashes[..padded].iter_mut().for_each(|hash| *hash = finish(*hash));
        self.find_home_groups(&hashes[..len], segments, groups, tags);
        for ((lanes, tags), hash) in lanes[..padded].iter_mut().zip(&*tags).zip(&*hashes) {
            *lanes = candidates(*tags, tag(*hash));
        }
        let windows = self.form.windows.map(|window| {
            let word = usize::from(window.word) % COLUMNS;
            (columns[word], u32::from(window.shift) % u64::BITS)
        });
        let mut left = 0;
        if MERGED {
            // The hints of a group select the candidates to fetch. A single candidate is fetched without its hint.
            let (mut alone, mut count_alone) = ([0; BURST], 0);
            for packet in 0..len {
                let candidates = lanes[packet];
                let are_several = candidates & candidates.wrapping_sub(1) != 0 || overflows(tags[packet]);
                hits[left % BURST] = packet as u8;
                left += usize::from(are_several);
                alone[count_alone % BURST] = packet as u8;
                count_alone += usize::from(candidates != 0 && !are_several);
            }
            let found = left;
            left = 0;
            for packet in &hits[..found] {
                let packet = usize::from(*packet) % BURST;
                let segment = self.table.segment(segments[packet]);
                prefetch(&segment.hints, groups[packet] as usize);
            }
            for hit in 0..found {
                let packet = usize::from(hits[hit]) % BURST;
                let hints = &self.table.segment(segments[packet]).hints[groups[packet] as usize];
                let bytes = windows.map(|(column, shift)| column[packet] >> shift & 0xff);
                lanes[packet] &= hints.allow(bytes, self.form.classes.of(best[packet]));
                hits[left % BURST] = packet as u8;
                left += usize::from(lanes[packet] != 0 || overflows(tags[packet]));
            }
            for packet in &alone[..count_alone] {
                hits[left % BURST] = *packet;
                left += 1;
            }
        } else {
            // Keys differ, so that nearly every packet has at most one candidate, and after a match there is no other.
            let stride = words.len() + 1;
            let offset = |group: u32, lanes| (group as usize * LANES + lane(lanes) % LANES) * stride;
            // The difference is nonzero if there is no candidate or if its key differs.
            let difference = |packet: usize, lanes: u64, entry: &[u64]| {
                let mut difference = u64::from(lanes == 0);
                for ((word, column), held) in words.iter().zip(&columns).zip(&entry[1..]) {
                    difference |= (column[packet] & word.hashed) ^ held;
                }
                difference
            };
            let only = self.table.only_segment().map(|segment| &*segment.entries);
            if let Some(entries) = only.filter(|entries| entries.len() <= NEAR) {
                for packet in 0..len {
                    let entry = &entries[offset(groups[packet], lanes[packet])..][..stride];
                    let difference = difference(packet, lanes[packet], entry);
                    let rank = if difference == 0 { entry[0] } else { 0 };
                    best[packet] = rank.max(best[packet]);
                    checks[packet] = difference;
                }
            } else {
                for packet in 0..len {
                    let entries = &self.table.segment(segments[packet]).entries;
                    let at = offset(groups[packet], lanes[packet]);
                    prefetch(entries, at);
                    // The entry may begin at the end of a cache line.
                    prefetch(entries, at + stride - 1);
                    checks[packet] = at as u64;
                }
                for packet in 0..len {
                    let entries = &self.table.segment(segments[packet]).entries;
                    let entry = &entries[checks[packet] as usize..][..stride];
                    let difference = difference(packet, lanes[packet], entry);
                    let rank = if difference == 0 { entry[0] } else { 0 };
                    best[packet] = rank.max(best[packet]);
                    checks[packet] = difference;
                }
            }
            checks[len..padded].fill(0);
            for ((check, lanes), tags) in checks[..padded].iter_mut().zip(&*lanes).zip(&*tags) {
                let others = lanes & lanes.wrapping_sub(1) | tags >> OVERFLOW_SHIFT;
                *check = if *check != 0 { others } else { 0 };
            }
            for (eight, first) in checks[..padded].chunks_exact(8).zip((0..).step_by(8)) {
                if eight.iter().fold(0, |any, others| any | others) == 0 {
                    continue;
                }
                for (packet, others) in (first..).zip(eight) {
                    hits[left % BURST] = packet;
                    left += usize::from(*others != 0);
                }
            }
        }
        let mut checks = Checks {
            form: &self.form,
            words,
            table: &self.table,
            columns,
            best,
            list: checks,
            count: 0,
        };
        for packet in &hits[..left] {
            let packet = usize::from(*packet) % BURST;
            let (number, group) = (segments[packet], groups[packet] as usize);
            checks.push::<MERGED>(packet, number, group, lanes[packet]);
            if !overflows(tags[packet]) {
                continue;
            }
            // The home group has overflowed into other groups.
            let (segment, tag) = (self.table.segment(number), tag(hashes[packet]));
            let mut group = group;
            for _ in 1..segment.tags.len() {
                group = segment.next(group, tag);
                let mut lanes = candidates(segment.tags[group], tag);
                if MERGED {
                    let bytes = windows.map(|(column, shift)| column[packet] >> shift & 0xff);
                    let class = self.form.classes.of(checks.best[packet]);
                    lanes &= segment.hints[group].allow(bytes, class);
                }
                checks.push::<MERGED>(packet, number, group, lanes);
                if !overflows(segment.tags[group]) {
                    break;
                }
            }
        }
        checks.run::<MERGED>();
    }

    /// Finds the segment, the home group and its tags for each hash.
    #[inline(always)]
    fn find_home_groups(
        &self,
        hashes: &[u64],
        segments: &mut [u16; BURST],
        groups: &mut [u32; BURST],
        tags: &mut [u64; BURST],
    ) {
        let groups = &mut groups[..hashes.len()];
        if let Some(segment) = self.table.only_segment() {
            segments.fill(0);
            for (group, hash) in groups.iter_mut().zip(hashes) {
                *group = segment.home_group(*hash) as u32;
            }
            for (tags, group) in tags.iter_mut().zip(groups) {
                *tags = segment.tags[*group as usize];
            }
            return;
        }
        for ((group, number), hash) in groups.iter_mut().zip(&mut *segments).zip(hashes) {
            *number = self.table.segment_number(*hash);
            let segment = self.table.segment(*number);
            *group = segment.home_group(*hash) as u32;
            prefetch(&segment.tags, *group as usize);
        }
        for ((tags, number), group) in tags.iter_mut().zip(segments).zip(groups) {
            *tags = self.table.segment(*number).tags[*group as usize];
        }
    }
}

/// The number of words of entries that fit the second-level cache: 512 KiB.
const NEAR: usize = 1 << 16;

/// The number of entries that are prefetched before the first of them is compared.
const CHECKS: usize = 2 * BURST;

/// Temporary results of a search for each packet; they are not valid after the search of one tuple.
#[repr(align(64))]
pub(in super::super) struct Scratch {
    hashes: [u64; BURST],
    segments: [u16; BURST],
    groups: [u32; BURST],
    tags: [u64; BURST],
    lanes: [u64; BURST],
    hits: [u8; BURST],
    checks: [u64; CHECKS],
}

impl Scratch {
    /// Returns scratch memory with arbitrary content.
    #[inline(always)]
    pub(in super::super) fn new() -> Scratch {
        Scratch {
            hashes: [0; BURST],
            segments: [0; BURST],
            groups: [0; BURST],
            tags: [0; BURST],
            lanes: [0; BURST],
            hits: [0; BURST],
            checks: [0; CHECKS],
        }
    }
}

/// Entries that may match their packets, with their prefetches in progress.
struct Checks<'a> {
    form: &'a Form,
    words: &'a [Word],
    table: &'a Table,
    /// The words of the packets, by column.
    columns: [&'a [u64; BURST]; COLUMNS],
    best: &'a mut [u64; BURST],
    /// The entries to compare.
    ///
    /// ```text
    ///  63          32 31    24 23      8 7      0
    /// | first word   |   0    | segment  | packet |    first word: its index in the segment
    /// ```
    list: &'a mut [u64; CHECKS],
    count: usize,
}

impl Checks<'_> {
    /// Adds the entries of these lanes of a group.
    #[inline(always)]
    fn push<const MERGED: bool>(&mut self, packet: usize, segment: u16, group: usize, mut lanes: u64) {
        if self.count > CHECKS - LANES {
            self.run::<MERGED>();
        }
        let stride = self.words.len() + 1;
        let entries = &self.table.segment(segment).entries;
        while lanes != 0 {
            let at = (group * LANES + lane(lanes)) * stride;
            prefetch(entries, at);
            // The entry may begin at the end of a cache line.
            prefetch(entries, at + stride - 1);
            self.list[self.count % CHECKS] = packet as u64 | u64::from(segment) << 8 | (at as u64) << 32;
            self.count += 1;
            lanes &= lanes - 1;
        }
    }

    /// Compares every entry, and empties the list.
    #[inline(always)]
    fn run<const MERGED: bool>(&mut self) {
        let stride = self.words.len() + 1;
        for check in &self.list[..self.count] {
            let packet = (check & 0xff) as usize % BURST;
            let segment = self.table.segment((check >> 8) as u16);
            let entry = &segment.entries[(check >> 32) as usize..][..stride];
            let masks = if MERGED {
                self.form.mask(entry[0], self.words.len())
            } else {
                &[]
            };
            let mut difference = 0;
            for (index, (word, column)) in self.words.iter().zip(&self.columns).enumerate() {
                let mask = if MERGED { masks[index] } else { word.hashed };
                difference |= (column[packet] & mask) ^ entry[index + 1];
            }
            let rank = if difference == 0 { entry[0] } else { 0 };
            self.best[packet] = rank.max(self.best[packet]);
        }
        self.count = 0;
    }
}
