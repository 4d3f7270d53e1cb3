//! Rules that share some bits of their masks, in one hash table over those bits.
//!
//! A *tuple* (Srinivasan, Suri and Varghese 1999) is a mask; the rules with that mask are an exact match on
//! the masked key. A *merged* tuple (Daly et al., TupleMerge, 2019) hashes by fewer bits than its rules
//! look at, so that rules with many masks share one table: fewer tables to search, and some rules that
//! fall together and are compared one after the other. Whoever fills a merged tuple sees to it that few
//! do ([`Tuple::crowd`]).

mod search;

pub(super) use search::Scratch;

use super::PRIORITY_SHIFT;
use super::columns::{COLUMNS, Columns, Projection};
use super::hash::{HashKeys, finish, term};
use super::masks::MaskId;
use super::priorities::Priorities;
use super::table::{At, Hint, Table, WINDOWS};

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

    /// Bytes of heap in use.
    pub(super) fn heap_size(&self) -> usize {
        self.form.words.len() * size_of::<Word>()
            + self.masks.capacity() * size_of::<(MaskId, u32)>()
            + self.form.masks.capacity() * 8
            + self.table.heap_size()
            + self.priorities.heap_size()
    }
}
