//! Tuples: rules that share some bits of their masks, in one hash table over those bits.
//!
//! A *tuple* (Srinivasan, Suri and Varghese, "Packet Classification using Tuple Space Search", SIGCOMM 1999) is a
//! mask; the rules with that mask form an exact match on the masked key. A *merged* tuple (Daly et al., "TupleMerge",
//! 2019) hashes fewer bits than its rules compare, so that rules with many masks share one table. A lookup
//! then searches fewer tables, but some rules have the same hash and are compared one after the other. The
//! plan keeps the number of rules with the same hash low ([`Tuple::collisions`]).

mod search;

pub(super) use search::Scratch;

use super::PRIORITY_SHIFT;
use super::columns::{COLUMNS, Columns, Projection};
use super::hash::{HashKeys, finish, term};
use super::masks::MaskId;
use super::priorities::Priorities;
use super::table::{EntryPosition, Hint, Table, WINDOWS};

/// Position of the mask number in the first word of an entry.
///
/// ```text
///  63      48 47         32 31    0
/// | priority | mask number | slot  |
/// ```
const MASK_SHIFT: u32 = 32;

/// One word of the keys in entries.
#[derive(Clone, Copy, Debug)]
struct Word {
    column: u8,
    /// The column's position in a burst.
    position: u8,
    /// The bits that are hashed.
    hashed: u64,
    keys: (u64, u64),
}

/// Eight bits of the key, which a lookup compares with a byte of a [`Hint`].
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// The index of the word.
    word: u8,
    shift: u8,
}

/// The mapping of priorities to 128 classes, so that a priority fits the byte of a hint.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Classes {
    base: u64,
    shift: u32,
}

impl Classes {
    /// Returns the finest classes for priorities from `lowest` to `highest`.
    pub(super) fn new(lowest: u16, highest: u16) -> Classes {
        let range = u32::from(highest.saturating_sub(lowest));
        Classes {
            base: lowest.into(),
            shift: PRIORITY_SHIFT + (u32::BITS - range.leading_zeros()).saturating_sub(7),
        }
    }

    /// Returns the class of a rank, 0 to 127; it does not decrease as the rank increases.
    #[inline(always)]
    fn of(self, rank: u64) -> u64 {
        (rank.saturating_sub(self.base << PRIORITY_SHIFT) >> self.shift).min(127)
    }
}

/// The layout of entries: the rank with the mask number, followed by the words of the key.
#[derive(Clone, Debug)]
struct Form {
    start: u64,
    words: Box<[Word]>,
    windows: [Window; WINDOWS],
    classes: Classes,
    /// The words of the rules' masks, mask after mask.
    masks: Vec<u64>,
}

impl Form {
    fn hash(&self, value: impl Fn(usize, &Word) -> u64) -> u64 {
        let words = self.words.iter().enumerate().filter(|(_, word)| word.hashed != 0);
        finish(words.fold(self.start, |sum, (index, word)| {
            sum.wrapping_add(term(value(index, word) & word.hashed, word.keys))
        }))
    }

    fn hash_of_key(&self, key: &Columns) -> u64 {
        self.hash(|_, word| key.0[usize::from(word.column)])
    }

    /// Returns the words of the mask of the entry with this rank.
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
        (self.hash(|index, _| entry[1 + index]), hint)
    }
}

/// Returns the mask number of an entry.
#[inline(always)]
const fn number(rank: u64) -> usize {
    (rank >> MASK_SHIFT & 0xffff) as usize
}

/// Returns the rank without the mask number.
const fn plain(rank: u64) -> u64 {
    rank & !(0xffff << MASK_SHIFT)
}

/// A hash table over the bits of one mask.
#[derive(Clone, Debug)]
pub(super) struct Tuple {
    /// The bits that are hashed.
    mask: Columns,
    /// True if rules may have masks other than `mask`.
    merged: bool,
    form: Form,
    /// The masks of the rules, and the number of rules of each.
    masks: Vec<(MaskId, u32)>,
    table: Table,
    priorities: Priorities,
}

/// The specification of a tuple.
#[derive(Clone, Debug)]
pub(super) struct TupleSpec {
    /// The bits that are hashed.
    pub(super) mask: Columns,
    /// Every bit that some rule may compare; equals `mask` if the tuple is not merged.
    pub(super) widest: Columns,
    /// True if rules may have masks other than `mask`.
    pub(super) merged: bool,
    /// Column and shift of the bits that distinguish rules with the same hash.
    pub(super) windows: [(usize, u32); WINDOWS],
    pub(super) classes: Classes,
}

impl TupleSpec {
    /// Returns a tuple for rules that all have this mask.
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
    /// Returns a tuple without rules.
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

    /// Returns the number of rules.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns a rank with the highest priority of the rules, and no slot.
    pub(super) fn highest(&self) -> u64 {
        self.priorities
            .highest()
            .map_or(0, |priority| u64::from(priority) << PRIORITY_SHIFT)
    }

    /// Returns true if the tuple may hold rules with masks other than its own.
    pub(super) fn is_merged(&self) -> bool {
        self.merged
    }

    /// Returns true if the tuple can hold a rule with this mask.
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

    /// Returns the number of rules outside of their home group.
    #[cfg(test)]
    pub(super) fn overflowed(&self) -> usize {
        self.table.overflowed(|entry| self.form.digest(entry))
    }

    /// Returns the number of rules with the same hash as this key.
    pub(super) fn collisions(&self, key: &Columns) -> usize {
        let mut collisions = 0;
        self.table.find(self.form.hash_of_key(key), |entry| {
            let same =
                |(word, held): (&Word, &u64)| (held ^ key.0[usize::from(word.column)]) & word.hashed == 0;
            collisions += usize::from(self.form.words.iter().zip(&entry[1..]).all(same));
            false
        });
        collisions
    }

    fn find(&self, mask: MaskId, key: &Columns) -> Option<(u64, EntryPosition, u64)> {
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

    /// Returns the rank of the rule with this mask and key.
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

    /// Adds a rule whose mask and key are not in the tuple.
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

    /// Calls `visit` with each rule.
    pub(super) fn each(&self, mut visit: impl FnMut(MaskId, &Columns, u64)) {
        self.table.each(|entry| {
            let mut key = Columns::default();
            for (word, held) in self.form.words.iter().zip(&entry[1..]) {
                key.0[usize::from(word.column)] = *held;
            }
            visit(self.masks[number(entry[0])].0, &key, plain(entry[0]));
        });
    }

    /// Returns the size in bytes of the heap memory in use.
    pub(super) fn heap_size(&self) -> usize {
        self.form.words.len() * size_of::<Word>()
            + self.masks.capacity() * size_of::<(MaskId, u32)>()
            + self.form.masks.capacity() * 8
            + self.table.heap_size()
            + self.priorities.heap_size()
    }
}
