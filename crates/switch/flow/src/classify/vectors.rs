//! Bit vectors: up to 1,024 rules with any masks, compared all at once.
//!
//! *Bit vectors* (Lakshman and Stiliadis, "High-speed policy-based packet forwarding using efficient multi-dimensional
//! range matching", SIGCOMM 1998): the key is divided into pieces. Each value of each piece has a vector with one bit
//! for each rule that this value matches. The conjunction of the vectors of all pieces is the set of rules that match
//! the packet. The rules are sorted, so the first of the set is the best.
//!
//! The vectors of a 5-tuple fit, or nearly fit, the first-level cache. [`Vectors64`] has 64 rules and pieces
//! of eight bits, [`Vectors512`] has 512 rules (one cache line) and pieces of four bits, and [`Vectors1024`]
//! has 1,024 rules and pieces of four bits.
//!
//! A lookup takes the same time for all packets and all rules, so no traffic can slow it down.

use super::BURST;
use super::columns::{Burst, Columns};

/// Bit vectors for up to 64 rules.
pub(super) type Vectors64 = Vectors<1, 256>;

/// Bit vectors for up to 512 rules.
pub(super) type Vectors512 = Vectors<8, 16>;

/// Bit vectors for up to 1,024 rules.
pub(super) type Vectors1024 = Vectors<16, 16>;

/// One column of a rule: the position of the column in a burst, the mask, and the key.
pub(super) type Compare = (u8, u64, u64);

/// A set of rules, one bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Vector<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> Vector<WORDS> {
    /// The maximum number of rules.
    const CAPACITY: usize = 64 * WORDS;

    /// Returns the set of the first `len` rules.
    fn first(len: usize) -> Self {
        Vector(core::array::from_fn(|word| {
            let bits = len.saturating_sub(word * 64).min(64);
            u64::MAX.checked_shr(64 - bits as u32).unwrap_or(0)
        }))
    }

    /// Inserts a bit before the one at `at`.
    fn insert(&mut self, at: usize, is_suited: bool) {
        let (first, bit) = (at / 64, at % 64);
        for word in (first + 1..WORDS).rev() {
            self.0[word] = self.0[word] << 1 | self.0[word - 1] >> 63;
        }
        let before = (1 << bit) - 1;
        let word = &mut self.0[first];
        *word = *word & before | u64::from(is_suited) << bit | (*word & !before) << 1;
    }

    /// Removes the bit at `at`.
    fn remove(&mut self, at: usize) {
        let (first, bit) = (at / 64, at % 64);
        let before = (1 << bit) - 1;
        let word = &mut self.0[first];
        *word = *word & before | *word >> 1 & !before;
        for word in first + 1..WORDS {
            self.0[word - 1] |= self.0[word] << 63;
            self.0[word] >>= 1;
        }
    }

    /// Removes the rules that are not in `other`.
    #[inline(always)]
    fn and(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word &= other;
        }
    }

    /// Returns the index of the first rule in the set; at least [`Vector::CAPACITY`] if the set is empty.
    #[inline(always)]
    fn lowest(&self) -> usize {
        let some = self
            .0
            .iter()
            .zip(0..)
            .fold(0_u32, |some, (word, at)| some | u32::from(*word != 0) << at);
        let word = some.trailing_zeros() as usize;
        word * 64 + self.0[word % WORDS].trailing_zeros() as usize
    }
}

/// A piece of a column, with one vector for each of its values, in whole cache lines.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Piece<const WORDS: usize, const VALUES: usize> {
    vectors: [Vector<WORDS>; VALUES],
    shift: u8,
}

impl<const WORDS: usize, const VALUES: usize> Piece<WORDS, VALUES> {
    /// Returns the rules that match the piece of a packet's word.
    #[inline(always)]
    fn matching(&self, word: u64) -> &Vector<WORDS> {
        &self.vectors[(word >> (self.shift & 63)) as usize % VALUES]
    }
}

/// A column that some rule compares.
#[derive(Clone, Debug)]
struct Column<const WORDS: usize, const VALUES: usize> {
    /// The column's position in a burst.
    position: u8,
    /// The bits that all rules compare with the same value, and that value.
    mask: u64,
    key: u64,
    /// The pieces with bits that only some rules compare, or that rules compare with different values.
    pieces: Vec<Piece<WORDS, VALUES>>,
}

/// Returns mask and key of a rule for a column.
fn mask_and_key(compares: &[Compare], position: u8) -> (u64, u64) {
    let compare = compares.iter().find(|(column, ..)| *column == position);
    compare.map_or((0, 0), |(_, mask, key)| (*mask, *key))
}

/// The result of a search for each packet, in whole cache lines.
#[repr(align(64))]
struct Found<const WORDS: usize>([Vector<WORDS>; BURST]);

/// Bit vectors of rules that the caller stores, sorted by rank, highest first.
#[derive(Clone, Debug)]
pub(super) struct Vectors<const WORDS: usize, const VALUES: usize> {
    columns: Vec<Column<WORDS, VALUES>>,
    ranks: Vec<u64>,
}

impl<const WORDS: usize, const VALUES: usize> Vectors<WORDS, VALUES> {
    /// The maximum number of rules.
    pub(super) const CAPACITY: usize = Vector::<WORDS>::CAPACITY;

    /// The number of bits of a piece.
    const PIECE: u32 = VALUES.ilog2();

    /// Returns the shift of each piece of a word in which `mask` has a bit.
    fn shifts(mask: u64) -> impl Iterator<Item = u8> {
        let all = (0..u64::BITS as u8).step_by(Self::PIECE as usize);
        all.filter(move |shift| mask >> shift & (VALUES as u64 - 1) != 0)
    }

    /// Returns the number of pieces of a key in which `mask` has a bit.
    pub(super) fn pieces(mask: &Columns) -> usize {
        mask.0.iter().map(|word| Self::shifts(*word).count()).sum()
    }

    /// Returns bit vectors for these rules, at most [`Vectors::CAPACITY`].
    pub(super) fn new<'a>(rules: impl Iterator<Item = (&'a [Compare], u64)> + Clone) -> Self {
        let mut columns: Vec<Column<WORDS, VALUES>> = Vec::new();
        for (position, mask, key) in rules.clone().flat_map(|(compares, _)| compares) {
            if columns.iter().all(|column| column.position != *position) {
                columns.push(Column {
                    position: *position,
                    mask: *mask,
                    key: *key,
                    pieces: Vec::new(),
                });
            }
        }
        for column in &mut columns {
            for (compares, _) in rules.clone() {
                let (mask, key) = mask_and_key(compares, column.position);
                column.mask &= mask & !(column.key ^ key);
            }
            column.key &= column.mask;
        }
        let mut vectors = Vectors {
            columns,
            ranks: Vec::new(),
        };
        for (at, (compares, rank)) in rules.enumerate() {
            vectors.insert(at, compares, rank);
        }
        vectors
    }

    /// Returns true if the rule can be added: it shares the common bits of all rules, and there is capacity.
    pub(super) fn suits(&self, compares: &[Compare]) -> bool {
        let fits = |column: &Column<WORDS, VALUES>| {
            let (mask, key) = mask_and_key(compares, column.position);
            column.mask & !mask == 0 && key & column.mask == column.key
        };
        let is_known =
            |(position, ..): &Compare| self.columns.iter().any(|column| column.position == *position);
        self.ranks.len() < Self::CAPACITY && self.columns.iter().all(fits) && compares.iter().all(is_known)
    }

    /// Adds a rule that [`Vectors::suits`] accepts before the one at `at`.
    pub(super) fn insert(&mut self, at: usize, compares: &[Compare], rank: u64) {
        for column in &mut self.columns {
            let (mask, key) = mask_and_key(compares, column.position);
            for shift in Self::shifts(mask & !column.mask) {
                if column.pieces.iter().all(|piece| piece.shift != shift) {
                    // The existing rules match every value of the new piece.
                    let vectors = [Vector::first(self.ranks.len()); VALUES];
                    column.pieces.push(Piece { vectors, shift });
                }
            }
            for piece in &mut column.pieces {
                let of = |word: u64| (word >> piece.shift) as usize % VALUES;
                for (value, vector) in piece.vectors.iter_mut().enumerate() {
                    vector.insert(at, value & of(mask) == of(key));
                }
            }
        }
        self.ranks.insert(at, rank);
    }

    /// Removes the rule at `at`.
    pub(super) fn remove(&mut self, at: usize) {
        let pieces = self.columns.iter_mut().flat_map(|column| &mut column.pieces);
        for vector in pieces.flat_map(|piece| &mut piece.vectors) {
            vector.remove(at);
        }
        self.ranks.remove(at);
    }

    /// Raises `best` of each of the first `len` packets to the highest rank of a matching rule.
    #[inline(always)]
    pub(super) fn search(&self, burst: &Burst, len: usize, best: &mut [u64; BURST]) {
        let mut found = Found([Vector::first(self.ranks.len()); BURST]);
        let found = &mut found.0[..len];
        let mut differences = [0; BURST];
        for column in &self.columns {
            let words = &burst[usize::from(column.position)];
            for (difference, word) in differences.iter_mut().zip(words) {
                *difference |= (word & column.mask) ^ column.key;
            }
            let (fours, rest) = column.pieces.as_chunks::<4>();
            for (found, word) in found.iter_mut().zip(words) {
                // The set is written back as a whole, so that it stays in one register.
                let mut all = *found;
                for four in fours {
                    four.iter().for_each(|piece| all.and(piece.matching(*word)));
                }
                rest.iter().for_each(|piece| all.and(piece.matching(*word)));
                *found = all;
            }
        }
        for ((found, difference), best) in found.iter().zip(&differences).zip(best) {
            let rank = self.ranks.get(found.lowest()).copied().unwrap_or(0);
            *best = (*best).max(if *difference == 0 { rank } else { 0 });
        }
    }

    /// Returns the size in bytes of the heap memory in use.
    pub(super) fn heap_size(&self) -> usize {
        let pieces: usize = self.columns.iter().map(|column| column.pieces.capacity()).sum();
        self.columns.capacity() * size_of::<Column<WORDS, VALUES>>()
            + pieces * size_of::<Piece<WORDS, VALUES>>()
            + self.ranks.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bits of the vector's first `len` rules, in order.
    fn list<const WORDS: usize>(vector: &Vector<WORDS>, len: usize) -> Vec<bool> {
        (0..len)
            .map(|at| vector.0[at / 64] >> (at % 64) & 1 != 0)
            .collect()
    }

    fn rules_come_and_go<const WORDS: usize>() {
        let (mut vector, mut expected) = (Vector::<WORDS>::first(0), Vec::new());
        let mut number = 1_usize;
        for step in 0..3000 {
            number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(step) >> 1;
            let grows = expected.len() < Vector::<WORDS>::CAPACITY && (step < 400 || number & 64 == 0);
            if grows {
                let (at, suited) = (number % (expected.len() + 1), number & 32 != 0);
                vector.insert(at, suited);
                expected.insert(at, suited);
            } else if !expected.is_empty() {
                let at = number % expected.len();
                vector.remove(at);
                expected.remove(at);
            }
            assert_eq!(list(&vector, expected.len()), expected, "step {step}");
            let lowest = expected.iter().position(|suited| *suited);
            let found = Some(vector.lowest()).filter(|at| *at < Vector::<WORDS>::CAPACITY);
            assert_eq!(found, lowest);
        }
    }

    #[test]
    fn rules_come_and_go_anywhere_in_a_vector() {
        rules_come_and_go::<1>();
        rules_come_and_go::<8>();
    }

    #[test]
    fn a_full_vector_and_an_empty_one() {
        assert_eq!(Vector::first(512).0, [u64::MAX; 8]);
        assert_eq!(Vector::first(65).0, [u64::MAX, 1, 0]);
        assert!(Vector::<8>::first(0).lowest() >= 512);
        assert!(Vector::<1>::first(0).lowest() >= 64);
    }
}
