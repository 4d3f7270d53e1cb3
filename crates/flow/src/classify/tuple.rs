//! Rules that share some bits of their masks, in one hash table over those bits.
//!
//! A *tuple* (Srinivasan, Suri and Varghese 1999) is a mask; the rules with that mask are an exact match on
//! the masked key. A *merged* tuple (Daly et al., TupleMerge, 2019) hashes by fewer bits than its rules
//! look at, so that rules with many masks share one table: fewer tables to search, and some rules that
//! fall together and are compared one after the other. Whoever fills a merged tuple sees to it that few
//! do ([`Tuple::crowd`]).

use super::columns::{Burst, Columns, Projection};
use super::hash::{HashKeys, term};
use super::masks::MaskId;
use super::priorities::Priorities;
use super::table::{LANES, Table, candidates, lane, overflows, tag};
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

/// A hash table over the bits of one mask.
///
/// An entry is its rank, with the number of its mask in it, and then the words of its key.
#[derive(Clone, Debug)]
pub(super) struct Tuple {
    /// The bits that are hashed.
    mask: Columns,
    /// Whether rules may have other masks than this one.
    merged: bool,
    start: u64,
    words: Box<[Word]>,
    /// The masks of the rules, and how many rules have each.
    masks: Vec<(MaskId, u32)>,
    /// The words of those masks.
    mask_words: Vec<u64>,
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
        Tuple {
            mask: spec.mask,
            merged: spec.merged,
            start: keys.start,
            masks: Vec::new(),
            mask_words: Vec::new(),
            table: Table::new(words.len() + 1),
            priorities: Priorities::default(),
            words,
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
        let held = |column: usize| self.words.iter().any(|word| usize::from(word.column) == column);
        self.mask.is_subset_of(mask) && mask.occupied().all(held)
    }

    fn hash(&self, key: &Columns) -> u64 {
        let hashed = self.words.iter().filter(|word| word.hashed != 0);
        hashed.fold(self.start, |sum, word| {
            sum.wrapping_add(term(key.0[usize::from(word.column)] & word.hashed, word.keys))
        })
    }

    fn number(&self, mask: MaskId) -> Option<u64> {
        let at = self
            .masks
            .iter()
            .position(|(held, rules)| *held == mask && *rules > 0);
        at.map(|number| number as u64)
    }

    /// How many rules fall together with this key.
    pub(super) fn crowd(&self, key: &Columns) -> usize {
        let mut crowd = 0;
        self.table.find(self.hash(key), |entry| {
            let same =
                |(word, held): (&Word, &u64)| (held ^ key.0[usize::from(word.column)]) & word.hashed == 0;
            crowd += usize::from(self.words.iter().zip(&entry[1..]).all(same));
            false
        });
        crowd
    }

    fn at(&self, mask: MaskId, key: &Columns) -> Option<(u64, super::table::At, u64)> {
        let number = self.number(mask)?;
        let hash = self.hash(key);
        let mut rank = 0;
        let at = self.table.find(hash, |entry| {
            rank = entry[0];
            rank >> MASK_SHIFT & 0xffff == number
                && self
                    .words
                    .iter()
                    .zip(&entry[1..])
                    .all(|(word, held)| *held == key.0[usize::from(word.column)])
        })?;
        Some((hash, at, rank & !(0xffff << MASK_SHIFT)))
    }

    /// The rank of the rule with this mask and key.
    pub(super) fn rank(&self, mask: MaskId, key: &Columns) -> Option<u64> {
        self.at(mask, key).map(|(_, _, rank)| rank)
    }

    /// Changes the rank of the rule with this mask and key.
    pub(super) fn replace(&mut self, mask: MaskId, key: &Columns, rank: u64) {
        if let Some((_, at, old)) = self.at(mask, key) {
            let first = &mut self.table.entry_mut(at)[0];
            *first = *first & 0xffff << MASK_SHIFT | rank;
            self.priorities.subtract(old);
            self.priorities.add(rank);
        }
    }

    /// Adds a rule whose mask and key it does not hold yet.
    pub(super) fn insert(&mut self, mask: (MaskId, &Columns), key: &Columns, rank: u64) {
        let number = match self.number(mask.0) {
            Some(number) => number as usize,
            None => self.new_number(mask),
        };
        self.masks[number].1 += 1;
        let hash = self.hash(key);
        let mut entry = [0; super::columns::COLUMNS + 1];
        entry[0] = rank | (number as u64) << MASK_SHIFT;
        for (held, word) in entry[1..].iter_mut().zip(&self.words) {
            *held = key.0[usize::from(word.column)];
        }
        let (words, start) = (&self.words, self.start);
        self.table.insert(hash, &entry[..=words.len()], |entry| {
            entry_hash(words, start, entry)
        });
        self.priorities.add(rank);
    }

    fn new_number(&mut self, (mask, columns): (MaskId, &Columns)) -> usize {
        let words = self.words.iter().map(|word| columns.0[usize::from(word.column)]);
        let len = self.words.len();
        match self.masks.iter().position(|(_, rules)| *rules == 0) {
            Some(free) => {
                self.masks[free] = (mask, 0);
                self.mask_words[free * len..][..len]
                    .iter_mut()
                    .zip(words)
                    .for_each(|(held, word)| *held = word);
                free
            }
            None => {
                self.masks.push((mask, 0));
                self.mask_words.extend(words);
                self.masks.len() - 1
            }
        }
    }

    /// Removes the rule with this mask and key.
    pub(super) fn remove(&mut self, mask: MaskId, key: &Columns) -> Option<u64> {
        let number = self.number(mask)?;
        let (hash, at, rank) = self.at(mask, key)?;
        let (words, start) = (&self.words, self.start);
        self.table
            .remove(hash, at, |entry| entry_hash(words, start, entry));
        self.masks[number as usize].1 -= 1;
        self.priorities.subtract(rank);
        Some(rank)
    }

    /// Visits each rule.
    pub(super) fn each(&self, mut visit: impl FnMut(MaskId, &Columns, u64)) {
        self.table.each(|entry| {
            let mut key = Columns::default();
            for (word, held) in self.words.iter().zip(&entry[1..]) {
                key.0[usize::from(word.column)] = *held;
            }
            let number = (entry[0] >> MASK_SHIFT & 0xffff) as usize;
            visit(self.masks[number].0, &key, entry[0] & !(0xffff << MASK_SHIFT));
        });
    }

    /// Raises `best` of each of the first `len` packets to the highest rank of a matching rule.
    #[inline(always)]
    pub(super) fn search(&self, burst: &Burst, len: usize, best: &mut [u64; BURST]) {
        match (self.merged, self.words.len()) {
            (false, 1) => self.search_words::<1, false>(burst, len, best),
            (false, 2) => self.search_words::<2, false>(burst, len, best),
            (false, 3) => self.search_words::<3, false>(burst, len, best),
            (false, _) => self.search_words::<0, false>(burst, len, best),
            (true, 1) => self.search_words::<1, true>(burst, len, best),
            (true, 2) => self.search_words::<2, true>(burst, len, best),
            (true, 3) => self.search_words::<3, true>(burst, len, best),
            (true, _) => self.search_words::<0, true>(burst, len, best),
        }
    }

    /// [`Tuple::search`] for `WORDS` words, or for any number if that is zero.
    #[inline(always)]
    fn search_words<const WORDS: usize, const MERGED: bool>(
        &self,
        burst: &Burst,
        len: usize,
        best: &mut [u64; BURST],
    ) {
        let words = &self.words[..if WORDS == 0 { self.words.len() } else { WORDS }];
        let stride = words.len() + 1;
        // Whole registers; what lies beyond the burst is never looked at.
        let padded = len.next_multiple_of(8).min(BURST);
        let mut hashes = [self.start; BURST];
        for word in words.iter().filter(|word| word.hashed != 0) {
            let column = &burst[usize::from(word.position)];
            for (hash, value) in hashes[..padded].iter_mut().zip(column) {
                *hash = hash.wrapping_add(term(value & word.hashed, word.keys));
            }
        }
        if self.table.is_large() {
            for hash in &hashes[..len] {
                self.table.segment(*hash).prefetch_tags(*hash);
            }
        }
        let (mut hits, mut lanes, mut count) = ([0u8; BURST], [0u64; BURST], 0);
        for (packet, hash) in hashes[..len].iter().enumerate() {
            let segment = self.table.segment(*hash);
            let group = segment.home(*hash);
            let tags = segment.tags[group];
            let found = candidates(tags, tag(*hash));
            segment.prefetch_entry(group, found, stride);
            hits[count % BURST] = packet as u8;
            lanes[count % BURST] = found;
            count += usize::from(found != 0 || overflows(tags));
        }
        for (packet, lanes) in hits[..count].iter().zip(&lanes) {
            let packet = usize::from(*packet) % BURST;
            let hash = hashes[packet];
            let segment = self.table.segment(hash);
            let (mut group, mut lanes) = (segment.home(hash), *lanes);
            let mut visited = 1;
            'packet: loop {
                while lanes != 0 {
                    let entry = &segment.entries[(group * LANES + lane(lanes)) * stride..][..stride];
                    let number = if MERGED {
                        (entry[0] >> MASK_SHIFT & 0xffff) as usize
                    } else {
                        0
                    };
                    let masks = &self.mask_words[number * words.len()..][..words.len()];
                    let mut difference = 0;
                    for i in 0..words.len() {
                        let value = burst[usize::from(words[i].position)][packet];
                        difference |= (value & masks[i]) ^ entry[i + 1];
                    }
                    if difference == 0 {
                        best[packet] = best[packet].max(entry[0]);
                        if !MERGED {
                            break 'packet;
                        }
                    }
                    lanes &= lanes - 1;
                }
                if !overflows(segment.tags[group]) || visited == segment.tags.len() {
                    break;
                }
                group = segment.next(group, tag(hash));
                lanes = candidates(segment.tags[group], tag(hash));
                visited += 1;
            }
        }
    }

    /// Bytes of heap in use.
    pub(super) fn heap_size(&self) -> usize {
        self.words.len() * size_of::<Word>()
            + self.masks.capacity() * size_of::<(MaskId, u32)>()
            + self.mask_words.capacity() * 8
            + self.table.heap_size()
            + self.priorities.heap_size()
    }
}

fn entry_hash(words: &[Word], start: u64, entry: &[u64]) -> u64 {
    let hashed = words.iter().zip(&entry[1..]).filter(|(word, _)| word.hashed != 0);
    hashed.fold(start, |sum, (word, held)| {
        sum.wrapping_add(term(held & word.hashed, word.keys))
    })
}
