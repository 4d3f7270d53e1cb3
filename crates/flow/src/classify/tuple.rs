//! Rules that share some bits of their masks, in one hash table over those bits.
//!
//! A *tuple* (Srinivasan, Suri and Varghese 1999) is a mask; the rules with that mask are an exact match on
//! the masked key. A *merged* tuple (Daly et al., TupleMerge, 2019) hashes by fewer bits than its rules
//! look at, so that rules with many masks share one table: fewer tables to search, and some rules that
//! fall together and are compared one after the other. Whoever fills a merged tuple sees to it that few
//! do ([`Tuple::crowd`]).

use super::columns::{Burst, COLUMNS, Columns, Projection};
use super::hash::{HashKeys, finish, term};
use super::masks::MaskId;
use super::priorities::Priorities;
use super::simd::prefetch;
use super::table::{At, Hint, LANES, Table, WINDOWS, candidates, lane, overflows, tag};
use super::{BURST, PRIORITY_SHIFT};

/// Where a rule's number among the masks of its tuple stands in the first word of an entry, between
/// priority and slot.
const MASK_SHIFT: u32 = 32;

/// One word of the key that entries hold.
#[derive(Clone, Copy, Debug)]
struct Word {
    column: u8,
    /// Position in a burst.
    position: u8,
    /// The bits that are hashed.
    hashed: u64,
    keys: (u64, u64),
}

/// Eight bits of the key: the byte of a [`Hint`] that a packet is compared with.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// Which word.
    word: u8,
    shift: u8,
}

/// Priorities in 128 classes, so that a priority fits the byte of a hint.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Classes {
    base: u64,
    shift: u32,
}

impl Classes {
    /// The finest classes for priorities from `lowest` to `highest`.
    pub(super) fn new(lowest: u16, highest: u16) -> Classes {
        let range = u32::from(highest.saturating_sub(lowest));
        Classes {
            base: lowest.into(),
            shift: PRIORITY_SHIFT + (u32::BITS - range.leading_zeros()).saturating_sub(7),
        }
    }

    /// The class of a rank: not lower than that of any lower rank.
    #[inline(always)]
    fn of(self, rank: u64) -> u64 {
        (rank.saturating_sub(self.base << PRIORITY_SHIFT) >> self.shift).min(127)
    }
}

/// How entries are made: the rank, with the number of its mask in it, and then the words of the key.
#[derive(Clone, Debug)]
struct Form {
    start: u64,
    words: Box<[Word]>,
    windows: [Window; WINDOWS],
    classes: Classes,
    /// The words of the masks of the rules, mask after mask.
    masks: Vec<u64>,
}

impl Form {
    fn hash(&self, value: impl Fn(usize, &Word) -> u64) -> u64 {
        let words = self.words.iter().enumerate().filter(|(_, word)| word.hashed != 0);
        finish(words.fold(self.start, |sum, (place, word)| {
            sum.wrapping_add(term(value(place, word) & word.hashed, word.keys))
        }))
    }

    fn hash_of_key(&self, key: &Columns) -> u64 {
        self.hash(|_, word| key.0[usize::from(word.column)])
    }

    /// The words of the mask of an entry.
    #[inline(always)]
    fn mask(&self, rank: u64, words: usize) -> &[u64] {
        &self.masks[number(rank) * words..][..words]
    }

    fn digest(&self, entry: &[u64]) -> (u64, Hint) {
        let mask = self.mask(entry[0], self.words.len());
        let byte = |words: &[u64], window: &Window| (words[usize::from(window.word)] >> window.shift) as u8;
        let hint = Hint {
            values: self.windows.map(|window| byte(&entry[1..], &window)),
            masks: self.windows.map(|window| byte(mask, &window)),
            class: self.classes.of(entry[0]) as u8,
        };
        (self.hash(|place, _| entry[1 + place]), hint)
    }
}

/// The number, in its tuple, of the mask of an entry.
#[inline(always)]
const fn number(rank: u64) -> usize {
    (rank >> MASK_SHIFT & 0xffff) as usize
}

/// The rank without the number of the mask.
const fn plain(rank: u64) -> u64 {
    rank & !(0xffff << MASK_SHIFT)
}

/// A hash table over the bits of one mask.
#[derive(Clone, Debug)]
pub(super) struct Tuple {
    /// The bits that are hashed.
    mask: Columns,
    /// Whether rules may have other masks than this one.
    merged: bool,
    form: Form,
    /// The masks of the rules, and how many rules have each.
    masks: Vec<(MaskId, u32)>,
    table: Table,
    priorities: Priorities,
}

/// What a tuple is for.
#[derive(Clone, Debug)]
pub(super) struct TupleSpec {
    /// The bits that are hashed.
    pub(super) mask: Columns,
    /// Every bit that some rule may look at; the same if the tuple is not merged.
    pub(super) widest: Columns,
    /// Whether rules may have other masks than `mask`.
    pub(super) merged: bool,
    /// Column and shift of bits that tell apart rules which fall together.
    pub(super) windows: [(usize, u32); WINDOWS],
    pub(super) classes: Classes,
}

impl TupleSpec {
    /// A tuple for rules that all have this mask.
    pub(super) fn single(mask: Columns) -> TupleSpec {
        TupleSpec {
            mask,
            widest: mask,
            merged: false,
            windows: [(0, 0); WINDOWS],
            classes: Classes::default(),
        }
    }
}

impl Tuple {
    /// No rule.
    pub(super) fn new(keys: &HashKeys, projection: &Projection, spec: &TupleSpec) -> Tuple {
        let word = |column: usize| {
            Some(Word {
                column: column as u8,
                position: projection.position(column)? as u8,
                hashed: spec.mask.0[column],
                keys: keys.columns[column],
            })
        };
        let words: Box<[Word]> = spec.widest.occupied().filter_map(word).collect();
        let windows = spec.windows.map(|(column, shift)| {
            let word = words.iter().position(|word| usize::from(word.column) == column);
            Window {
                word: word.unwrap_or(0) as u8,
                shift: shift as u8,
            }
        });
        Tuple {
            mask: spec.mask,
            merged: spec.merged,
            masks: Vec::new(),
            table: Table::new(words.len() + 1, spec.merged),
            priorities: Priorities::default(),
            form: Form {
                start: keys.start,
                words,
                windows,
                classes: spec.classes,
                masks: Vec::new(),
            },
        }
    }

    /// Number of rules.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// The priority of the highest rule.
    pub(super) fn highest(&self) -> u64 {
        self.priorities
            .highest()
            .map_or(0, |priority| u64::from(priority) << PRIORITY_SHIFT)
    }

    /// Whether it may hold rules with other masks than its own.
    pub(super) fn is_merged(&self) -> bool {
        self.merged
    }

    /// Whether a rule with this mask may be inserted.
    pub(super) fn accepts(&self, mask: &Columns) -> bool {
        if !self.merged || self.masks.len() >= usize::from(u16::MAX) {
            return self.mask == *mask;
        }
        let held = |column: usize| {
            self.form
                .words
                .iter()
                .any(|word| usize::from(word.column) == column)
        };
        self.mask.is_subset_of(mask) && mask.occupied().all(held)
    }

    fn number(&self, mask: MaskId) -> Option<usize> {
        self.masks
            .iter()
            .position(|(held, rules)| *held == mask && *rules > 0)
    }

    /// How many rules are not in the group where a search for them begins.
    #[cfg(test)]
    pub(super) fn displaced(&self) -> usize {
        self.table.displaced(|entry| self.form.digest(entry))
    }

    /// How many rules fall together with this key.
    pub(super) fn crowd(&self, key: &Columns) -> usize {
        let mut crowd = 0;
        self.table.find(self.form.hash_of_key(key), |entry| {
            let same =
                |(word, held): (&Word, &u64)| (held ^ key.0[usize::from(word.column)]) & word.hashed == 0;
            crowd += usize::from(self.form.words.iter().zip(&entry[1..]).all(same));
            false
        });
        crowd
    }

    fn find(&self, mask: MaskId, key: &Columns) -> Option<(u64, At, u64)> {
        let wanted = self.number(mask)?;
        let hash = self.form.hash_of_key(key);
        let mut rank = 0;
        let at = self.table.find(hash, |entry| {
            rank = entry[0];
            let same = |(word, held): (&Word, &u64)| *held == key.0[usize::from(word.column)];
            number(rank) == wanted && self.form.words.iter().zip(&entry[1..]).all(same)
        })?;
        Some((hash, at, rank))
    }

    /// The rank of the rule with this mask and key.
    pub(super) fn rank(&self, mask: MaskId, key: &Columns) -> Option<u64> {
        self.find(mask, key).map(|(_, _, rank)| plain(rank))
    }

    /// Changes the rank of the rule with this mask and key.
    pub(super) fn replace(&mut self, mask: MaskId, key: &Columns, rank: u64) {
        if let Some((_, at, old)) = self.find(mask, key) {
            let class = self.form.classes.of(rank) as u8;
            self.table.set_first(at, rank | (old ^ plain(old)), class);
            self.priorities.subtract(old);
            self.priorities.add(rank);
        }
    }

    /// Adds a rule whose mask and key it does not hold yet.
    pub(super) fn insert(&mut self, mask: (MaskId, &Columns), key: &Columns, rank: u64) {
        let number = match self.number(mask.0) {
            Some(number) => number,
            None => self.new_number(mask),
        };
        self.masks[number].1 += 1;
        let mut entry = [0; COLUMNS + 1];
        entry[0] = rank | (number as u64) << MASK_SHIFT;
        for (held, word) in entry[1..].iter_mut().zip(&self.form.words) {
            *held = key.0[usize::from(word.column)];
        }
        let form = &self.form;
        self.table
            .insert(&entry[..=form.words.len()], |entry| form.digest(entry));
        self.priorities.add(rank);
    }

    fn new_number(&mut self, (mask, columns): (MaskId, &Columns)) -> usize {
        let words = self
            .form
            .words
            .iter()
            .map(|word| columns.0[usize::from(word.column)]);
        let len = self.form.words.len();
        match self.masks.iter().position(|(_, rules)| *rules == 0) {
            Some(free) => {
                self.masks[free] = (mask, 0);
                let held = self.form.masks[free * len..][..len].iter_mut();
                held.zip(words).for_each(|(held, word)| *held = word);
                free
            }
            None => {
                self.masks.push((mask, 0));
                self.form.masks.extend(words);
                self.masks.len() - 1
            }
        }
    }

    /// Removes the rule with this mask and key.
    pub(super) fn remove(&mut self, mask: MaskId, key: &Columns) -> Option<u64> {
        let (hash, at, rank) = self.find(mask, key)?;
        let form = &self.form;
        self.table.remove(hash, at, |entry| form.digest(entry));
        self.masks[number(rank)].1 -= 1;
        self.priorities.subtract(rank);
        Some(plain(rank))
    }

    /// Visits each rule.
    pub(super) fn each(&self, mut visit: impl FnMut(MaskId, &Columns, u64)) {
        self.table.each(|entry| {
            let mut key = Columns::default();
            for (word, held) in self.form.words.iter().zip(&entry[1..]) {
                key.0[usize::from(word.column)] = *held;
            }
            visit(self.masks[number(entry[0])].0, &key, plain(entry[0]));
        });
    }

    /// Raises `best` of each of the first `len` packets to the highest rank of a matching rule.
    #[inline(always)]
    pub(super) fn search(&self, burst: &Burst, len: usize, best: &mut [u64; BURST], scratch: &mut Scratch) {
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

    /// [`Tuple::search`] for `WORDS` words, or for any number if that is zero.
    ///
    /// Each step goes over all packets that are left by the step before, and has no branch that a packet
    /// decides: a branch guessed wrong costs more than a step.
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
        // Whole registers; what lies beyond the burst is never looked at.
        let padded = len.next_multiple_of(8).min(BURST);
        hashes[..padded].fill(self.form.start);
        for (word, column) in words.iter().zip(&columns).filter(|(word, _)| word.hashed != 0) {
            for (hash, value) in hashes[..padded].iter_mut().zip(*column) {
                *hash = hash.wrapping_add(term(value & word.hashed, word.keys));
            }
        }
        hashes[..padded].iter_mut().for_each(|hash| *hash = finish(*hash));
        self.home(&hashes[..len], segments, groups, tags);
        for ((lanes, tags), hash) in lanes[..padded].iter_mut().zip(&*tags).zip(&*hashes) {
            *lanes = candidates(*tags, tag(*hash));
        }
        let mut left = 0;
        for packet in 0..len {
            hits[left % BURST] = packet as u8;
            left += usize::from(lanes[packet] != 0 || overflows(tags[packet]));
        }
        let windows = self.form.windows.map(|window| {
            let word = usize::from(window.word) % COLUMNS;
            (columns[word], u32::from(window.shift) % u64::BITS)
        });
        if MERGED {
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
            // The home group sent entries on to other groups.
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

    /// Segment, home group and the tags of that for each hash.
    #[inline(always)]
    fn home(
        &self,
        hashes: &[u64],
        segments: &mut [u16; BURST],
        groups: &mut [u32; BURST],
        tags: &mut [u64; BURST],
    ) {
        let groups = &mut groups[..hashes.len()];
        if let Some(segment) = self.table.only_segment() {
            segments.fill(0);
            for ((group, tags), hash) in groups.iter_mut().zip(tags).zip(hashes) {
                *group = segment.home(*hash) as u32;
                *tags = segment.tags[*group as usize];
            }
            return;
        }
        for ((group, number), hash) in groups.iter_mut().zip(&mut *segments).zip(hashes) {
            *number = self.table.segment_number(*hash);
            let segment = self.table.segment(*number);
            *group = segment.home(*hash) as u32;
            prefetch(&segment.tags, *group as usize);
        }
        for ((tags, number), group) in tags.iter_mut().zip(segments).zip(groups) {
            *tags = self.table.segment(*number).tags[*group as usize];
        }
    }

    /// Bytes of heap in use.
    pub(super) fn heap_size(&self) -> usize {
        self.form.words.len() * size_of::<Word>()
            + self.masks.capacity() * size_of::<(MaskId, u32)>()
            + self.form.masks.capacity() * 8
            + self.table.heap_size()
            + self.priorities.heap_size()
    }
}

/// How many entries are brought near before the first of them is compared.
const CHECKS: usize = 2 * BURST;

/// What a search writes down for each packet; nothing in it outlasts the search of one tuple.
pub(super) struct Scratch {
    hashes: [u64; BURST],
    segments: [u16; BURST],
    groups: [u32; BURST],
    tags: [u64; BURST],
    lanes: [u64; BURST],
    hits: [u8; BURST],
    checks: [u64; CHECKS],
}

impl Scratch {
    /// Some place.
    #[inline(always)]
    pub(super) fn new() -> Scratch {
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

/// Entries that may match their packets, being brought near.
struct Checks<'a> {
    form: &'a Form,
    words: &'a [Word],
    table: &'a Table,
    /// The packets' words.
    columns: [&'a [u64; BURST]; COLUMNS],
    best: &'a mut [u64; BURST],
    /// For each entry the packet (8 bits), the segment (16 bits, from bit 8) and the index of its first word
    /// in the segment (from bit 32).
    list: &'a mut [u64; CHECKS],
    count: usize,
}

impl Checks<'_> {
    /// Adds these lanes of a group.
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

    /// Compares them all, and forgets them.
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
            for (place, (word, column)) in self.words.iter().zip(&self.columns).enumerate() {
                let mask = if MERGED { masks[place] } else { word.hashed };
                difference |= (column[packet] & mask) ^ entry[place + 1];
            }
            let rank = if difference == 0 { entry[0] } else { 0 };
            self.best[packet] = rank.max(self.best[packet]);
        }
        self.count = 0;
    }
}
