//! Rules that are compared with every packet.
//!
//! For a handful of rules, a compare costs less than a hash. The loop over the packets of a burst has no branch, so
//! that one instruction compares up to eight packets. For more rules, up to some hundred, bit vectors compare all
//! rules at once.

use super::BURST;
use super::columns::{Burst, Columns, Projection};
use super::masks::MaskId;
use super::vectors::{Compare, Vectors64, Vectors512, Vectors1024};

/// The number of packets that are compared at once.
const WIDE: usize = 8;

/// One rule.
#[derive(Clone, Debug)]
struct DirectRule {
    /// Priority and slot; see [`rank`](super::rank).
    rank: u64,
    mask: MaskId,
    key: Columns,
    compares: Box<[Compare]>,
}

/// The number of rules that a plan may leave for direct comparison, whatever their masks. Until the next plan
/// there may be up to [`IRREGULAR_MAX`] such rules, but at most [`ALIKE`] of each mask.
pub(super) const IRREGULAR: usize = 24;
const IRREGULAR_MAX: usize = 4 * IRREGULAR;
const ALIKE: usize = 8;

/// The number of rules that a plan may leave for direct comparison if bit vectors suit their masks.
pub(super) const MANY_PLANNED: usize = 448;
const MANY: usize = Vectors1024::CAPACITY;

/// The maximum number of key pieces that rules of bit vectors compare.
const PIECES_MAX: usize = 48;

/// The number of scalar rule compares that take as long as the search of a tuple.
const TUPLE: usize = 12;

/// The method of comparison; later variants suit more rules.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Method {
    Scalar,
    Vectors64,
    Vectors512,
    Vectors1024,
}

impl Method {
    /// Returns the fastest method for `rules` rules that compare these bits, and its cost in scalar rule compares.
    /// (docs/results/classifier.md has the measurements.)
    fn fastest(rules: usize, mask: &Columns) -> (Method, usize) {
        let pieces = Vectors512::pieces(mask);
        let vectors = [
            (
                Method::Vectors64,
                Vectors64::CAPACITY,
                Vectors64::pieces(mask) + 4,
            ),
            (Method::Vectors512, Vectors512::CAPACITY, pieces * 5 / 4 + 6),
            (Method::Vectors1024, Vectors1024::CAPACITY, pieces * 5 / 2 + 6),
        ];
        let vectors = vectors
            .into_iter()
            .filter(|(method, capacity, _)| {
                rules <= *capacity && (*method == Method::Vectors64 || pieces <= PIECES_MAX)
            })
            .map(|(method, _, cost)| (method, cost));
        vectors.fold((Method::Scalar, rules), |best, method| {
            if method.1 < best.1 { method } else { best }
        })
    }
}

/// Returns true if bit vectors suit many rules that compare these bits.
fn suits_vectors(mask: &Columns) -> bool {
    Vectors512::pieces(mask) <= PIECES_MAX
}

/// Returns the number of rules that a plan may leave for direct comparison if the rules compare these bits.
pub(super) fn planned(mask: &Columns) -> usize {
    if suits_vectors(mask) {
        MANY_PLANNED
    } else {
        IRREGULAR
    }
}

/// Returns the cost of a lookup in `rules` rules that compare these bits, as a number of tuple searches.
pub(super) fn weight(rules: usize, mask: &Columns) -> usize {
    (Method::fastest(rules, mask).1 + TUPLE / 2) / TUPLE
}

/// Some rules, sorted by rank, highest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Direct {
    lines: Vec<DirectRule>,
    vectors: Option<BitVectors>,
    /// Every bit that rules compare; bits of removed rules may remain.
    mask: Columns,
}

/// Bit vectors over all rules.
#[derive(Clone, Debug)]
enum BitVectors {
    Vectors64(Box<Vectors64>),
    Vectors512(Box<Vectors512>),
    Vectors1024(Box<Vectors1024>),
}

/// Calls the same method of each variant.
macro_rules! each {
    ($self:expr, $vectors:ident => $call:expr) => {
        match $self {
            BitVectors::Vectors64($vectors) => $call,
            BitVectors::Vectors512($vectors) => $call,
            BitVectors::Vectors1024($vectors) => $call,
        }
    };
}

impl Direct {
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns true if a plan may leave these rules, and one more rule of this mask, for direct comparison.
    pub(super) fn is_wanted(&self, mask: &Columns) -> bool {
        self.len() < planned(&self.mask.or(mask))
    }

    /// Returns true if a rule of this mask can be added before the next plan. `alike` rules have this mask
    /// already.
    pub(super) fn has_room(&self, mask: &Columns, alike: usize) -> bool {
        match suits_vectors(&self.mask.or(mask)) {
            true => self.len() < MANY,
            false => self.len() < IRREGULAR_MAX && alike < ALIKE,
        }
    }

    /// Returns true if there are more rules than any plan leaves, and a lookup takes twice as long.
    pub(super) fn is_overfull(&self) -> bool {
        self.len() > Vectors512::CAPACITY
    }

    /// Returns the cost of a lookup, as a number of tuple searches.
    pub(super) fn weight(&self) -> usize {
        weight(self.len(), &self.mask)
    }

    fn position(&self, mask: MaskId, key: &Columns) -> Option<usize> {
        self.lines
            .iter()
            .position(|line| line.mask == mask && line.key == *key)
    }

    /// Returns the rank of the rule with this mask and key.
    pub(super) fn rank(&self, mask: MaskId, key: &Columns) -> Option<u64> {
        self.position(mask, key).map(|at| self.lines[at].rank)
    }

    /// Adds a rule.
    pub(super) fn insert(
        &mut self,
        projection: &Projection,
        mask: (MaskId, &Columns),
        key: &Columns,
        rank: u64,
    ) {
        let compare = |column: usize| {
            let position = projection.position(column)? as u8;
            Some((position, mask.1.0[column], key.0[column]))
        };
        let line = DirectRule {
            rank,
            mask: mask.0,
            key: *key,
            compares: mask.1.occupied().filter_map(compare).collect(),
        };
        self.mask = self.mask.or(mask.1);
        self.put(line);
    }

    fn put(&mut self, line: DirectRule) {
        let at = self.lines.partition_point(|held| held.rank > line.rank);
        if let Some(vectors) = &mut self.vectors
            && each!(&*vectors, vectors => vectors.suits(&line.compares))
        {
            each!(vectors, vectors => vectors.insert(at, &line.compares, line.rank));
        } else {
            self.vectors = None;
        }
        self.lines.insert(at, line);
        self.choose();
    }

    /// Switches to the fastest method for these rules, unless the difference is just a few rules.
    fn choose(&mut self) {
        let (rules, method) = (self.lines.len(), self.method());
        let wanted = Method::fastest(rules, &self.mask).0;
        if wanted == method || wanted < method && Method::fastest(rules + rules / 3, &self.mask).0 >= method {
            return;
        }
        let rules = self.lines.iter().map(|line| (&*line.compares, line.rank));
        self.vectors = match wanted {
            Method::Scalar => None,
            Method::Vectors64 => Some(BitVectors::Vectors64(Box::new(Vectors64::new(rules)))),
            Method::Vectors512 => Some(BitVectors::Vectors512(Box::new(Vectors512::new(rules)))),
            Method::Vectors1024 => Some(BitVectors::Vectors1024(Box::new(Vectors1024::new(rules)))),
        };
    }

    /// Returns the method in use.
    fn method(&self) -> Method {
        match &self.vectors {
            None => Method::Scalar,
            Some(BitVectors::Vectors64(_)) => Method::Vectors64,
            Some(BitVectors::Vectors512(_)) => Method::Vectors512,
            Some(BitVectors::Vectors1024(_)) => Method::Vectors1024,
        }
    }

    fn take(&mut self, mask: MaskId, key: &Columns) -> Option<DirectRule> {
        let at = self.position(mask, key)?;
        let line = self.lines.remove(at);
        if let Some(vectors) = &mut self.vectors {
            each!(vectors, vectors => vectors.remove(at));
        }
        self.choose();
        Some(line)
    }

    /// Changes the rank of the rule with this mask and key.
    pub(super) fn replace(&mut self, mask: MaskId, key: &Columns, rank: u64) {
        if let Some(line) = self.take(mask, key) {
            self.put(DirectRule { rank, ..line });
        }
    }

    /// Removes the rule with this mask and key.
    pub(super) fn remove(&mut self, mask: MaskId, key: &Columns) -> Option<u64> {
        let line = self.take(mask, key)?;
        if self.lines.is_empty() {
            self.mask = Columns::default();
        }
        Some(line.rank)
    }

    /// Calls `visit` with each rule.
    pub(super) fn each(&self, mut visit: impl FnMut(MaskId, &Columns, u64)) {
        for line in &self.lines {
            visit(line.mask, &line.key, line.rank);
        }
    }

    /// Returns the highest rank.
    pub(super) fn highest(&self) -> u64 {
        self.lines.first().map_or(0, |line| line.rank)
    }

    /// Raises `best` of each of the first `len` packets to the highest rank of a matching rule.
    #[inline(always)]
    pub(super) fn search(&self, burst: &Burst, len: usize, best: &mut [u64; BURST]) {
        match &self.vectors {
            None => self.compare(burst, len, best),
            Some(vectors) => each!(vectors, vectors => vectors.search(burst, len, best)),
        }
    }

    /// Raises `best` by comparing one rule after the other.
    #[inline(always)]
    fn compare(&self, burst: &Burst, len: usize, best: &mut [u64; BURST]) {
        // The loops process whole registers; results beyond the burst are ignored. Each loop processes one column: for
        // a loop over several columns the compiler generates gather instructions.
        let len = len.next_multiple_of(WIDE).min(BURST);
        let best = &mut best[..len];
        let mut differences = [0; BURST];
        let differences = &mut differences[..len];
        for line in &self.lines {
            differences.fill(0);
            for (position, mask, key) in &line.compares {
                let column = &burst[usize::from(*position)];
                for (difference, word) in differences.iter_mut().zip(column) {
                    *difference |= (word & mask) ^ key;
                }
            }
            let rank = line.rank;
            for (best, difference) in best.iter_mut().zip(&*differences) {
                *best = (*best).max(if *difference == 0 { rank } else { 0 });
            }
        }
    }

    /// Returns the size in bytes of the heap memory in use.
    pub(super) fn heap_size(&self) -> usize {
        let compares: usize = self.lines.iter().map(|line| line.compares.len()).sum();
        let vectors = self.vectors.as_ref().map_or(
            0,
            |vectors| each!(vectors, vectors => size_of_val(&**vectors) + vectors.heap_size()),
        );
        self.lines.capacity() * size_of::<DirectRule>() + compares * size_of::<Compare>() + vectors
    }
}

#[cfg(test)]
mod tests {
    use super::super::columns::COLUMNS;
    use super::super::{PRIORITY_SHIFT, Slot, rank};
    use super::*;
    use millrace_types::split_mix::next as split_mix;

    /// Returns a rule on two columns with few values, so that packets hit; all rules have a few bits in common.
    fn rule(seed: &mut u64) -> (Columns, Columns) {
        let mut random = || split_mix(seed);
        let (mut mask, mut key) = (Columns::default(), Columns::default());
        mask.0[0] = 0xffff_ffff_0000_0000 << (random() % 32) | (random() & random() & random() & 0xff);
        mask.0[1] = 0xffff | ((random() & 1) * 0x00ff_0000);
        key.0[0] = ((random() & 3) << 62) & mask.0[0];
        key.0[1] = (0x0800 | ((random() & 1) << 16)) & mask.0[1];
        (mask, key)
    }

    fn projection() -> Projection {
        let mut key = crate::key::FlowKey::default();
        key.words_mut()[..2].fill(u64::MAX);
        let mut projection = Projection::default();
        projection.extend(&crate::key::FlowMask(key));
        projection
    }

    #[test]
    fn every_way_finds_what_one_by_one_finds_while_rules_come_and_go() {
        let (projection, mut seed) = (projection(), 5);
        let mut direct = Direct::default();
        let mut rules: Vec<(MaskId, Columns)> = Vec::new();
        let mut methods = std::collections::BTreeSet::new();
        let steps = if cfg!(miri) { 120 } else { 4000 };
        for step in 0..steps {
            if (step < steps / 3 && rules.len() < MANY) || split_mix(&mut seed) % 5 < 2 {
                let (mask, key) = rule(&mut seed);
                let id = MaskId(step);
                let rank = rank((split_mix(&mut seed) % 3000) as u16, Slot::new(step));
                direct.insert(&projection, (id, &mask), &key, rank);
                rules.push((id, key));
            } else if !rules.is_empty() {
                let at = split_mix(&mut seed) as usize % rules.len();
                let (id, key) = rules[at];
                let held = direct.rank(id, &key);
                if step % 2 == 0 {
                    let rank = held.unwrap() ^ (1 << PRIORITY_SHIFT);
                    direct.replace(id, &key, rank);
                    assert_eq!(direct.rank(id, &key), Some(rank));
                } else {
                    assert_eq!(direct.remove(id, &key), held);
                    rules.swap_remove(at);
                }
            }
            assert_eq!(direct.len(), rules.len());
            methods.insert(direct.method());
            if step % 16 != 0 {
                continue;
            }
            let mut burst = [[0; BURST]; COLUMNS];
            let [first, second, ..] = &mut burst;
            for (first, second) in first.iter_mut().zip(second) {
                let (_, key) = rule(&mut seed);
                *first = key.0[0] | (split_mix(&mut seed) & split_mix(&mut seed) & 0xff);
                *second = key.0[1] ^ u64::from(split_mix(&mut seed).is_multiple_of(16));
            }
            let len = 1 + split_mix(&mut seed) as usize % BURST;
            let start = [step as u64; BURST];
            let (mut found, mut expected) = (start, start);
            direct.search(&burst, len, &mut found);
            direct.compare(&burst, len, &mut expected);
            assert_eq!(
                found[..len],
                expected[..len],
                "{:?}, step {step}",
                direct.method()
            );
        }
        let all = [
            Method::Scalar,
            Method::Vectors64,
            Method::Vectors512,
            Method::Vectors1024,
        ];
        assert!(cfg!(miri) || methods.into_iter().eq(all));
    }
}
