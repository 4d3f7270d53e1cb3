//! Parts of a classifier: structures that each hold some of the rules.

use core::fmt;

use super::BURST;
use super::columns::{Burst, Columns, Projection};
use super::direct::Direct;
use super::lpm::LpmPart;
use super::masks::MaskId;
use super::tuple::{Scratch, Tuple};
use crate::field::Field;

/// A structure with some of the rules.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Direct(Direct),
    Lpm(Box<LpmPart>),
    Tuple(Box<Tuple>),
}

/// Calls the same method for each type of part.
macro_rules! each_kind {
    ($self:ident, $part:ident => $call:expr) => {
        match $self {
            Part::Direct($part) => $call,
            Part::Lpm($part) => $call,
            Part::Tuple($part) => $call,
        }
    };
}

impl Part {
    /// Returns the number of rules.
    pub(super) fn len(&self) -> usize {
        each_kind!(self, part => part.len())
    }

    /// Returns a rank that has the highest rule's priority and is at most that rule's rank.
    pub(super) fn highest(&self) -> u64 {
        each_kind!(self, part => part.highest())
    }

    /// Returns true if the part suits a rule that it does not hold, and fewer than `collisions_max` of its rules have
    /// the same hash.
    pub(super) fn accepts(&self, mask: &Columns, key: &Columns, rank: u64, collisions_max: usize) -> bool {
        match self {
            Part::Direct(_) => false,
            Part::Lpm(part) => part.accepts(mask, key, rank),
            Part::Tuple(part) => {
                part.accepts(mask) && (!part.is_merged() || part.collisions(key) < collisions_max)
            }
        }
    }

    /// Returns the rank of the rule with this mask and key.
    pub(super) fn rank(&self, mask: MaskId, key: &Columns) -> Option<u64> {
        each_kind!(self, part => part.rank(mask, key))
    }

    /// Changes the rank of a rule in the part.
    pub(super) fn replace(
        &mut self,
        projection: &Projection,
        mask: (MaskId, &Columns),
        key: &Columns,
        rank: u64,
    ) {
        match self {
            Part::Direct(part) => part.replace(mask.0, key, rank),
            Part::Lpm(part) => part.insert(projection, mask, key, rank),
            Part::Tuple(part) => part.replace(mask.0, key, rank),
        }
    }

    /// Adds a rule that is not in the part.
    pub(super) fn insert(
        &mut self,
        projection: &Projection,
        mask: (MaskId, &Columns),
        key: &Columns,
        rank: u64,
    ) {
        match self {
            Part::Direct(part) => part.insert(projection, mask, key, rank),
            Part::Lpm(part) => part.insert(projection, mask, key, rank),
            Part::Tuple(part) => part.insert(mask, key, rank),
        }
    }

    /// Removes the rule with this mask and key, and returns its rank.
    pub(super) fn remove(&mut self, mask: MaskId, key: &Columns) -> Option<u64> {
        each_kind!(self, part => part.remove(mask, key))
    }

    /// Calls `visit` with mask, key and rank of each rule.
    pub(super) fn each(&self, visit: impl FnMut(MaskId, &Columns, u64)) {
        each_kind!(self, part => part.each(visit));
    }

    /// Raises `best` of each of the first `len` packets to the highest rank of a matching rule, with the vector
    /// instructions of the caller's compilation. `scratch` is reused between parts.
    #[inline(always)]
    pub(super) fn search_inlined(
        &self,
        burst: &Burst,
        len: usize,
        best: &mut [u64; BURST],
        scratch: Option<&mut Scratch>,
    ) {
        let mut own;
        match self {
            Part::Direct(part) => part.search(burst, len, best),
            Part::Lpm(part) => part.search(burst, len, best),
            Part::Tuple(part) => {
                let scratch = match scratch {
                    Some(scratch) => scratch,
                    None => {
                        own = Scratch::new();
                        &mut own
                    }
                };
                part.search(burst, len, best, scratch);
            }
        }
    }

    /// Returns the size in bytes of the heap memory in use.
    pub(super) fn heap_size(&self) -> usize {
        each_kind!(self, part => part.heap_size())
    }
}

/// The structure in use, which `millrace show tables` prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Every rule matches everything, or there is no rule.
    Constant,
    /// Every rule is compared with every packet.
    Direct {
        /// The number of rules.
        rules: usize,
    },
    /// All rules have one mask.
    ExactHash,
    /// All rules differ in the prefix of one field.
    LongestPrefix { field: Field },
    /// Hash tables; some rules may be found by prefix or compared directly.
    Tuples {
        /// The number of hash tables.
        tuples: usize,
        /// The number of hash tables with rules of different masks.
        merged: usize,
        /// The number of tries.
        prefixes: usize,
        /// The number of rules that are compared directly.
        direct: usize,
    },
}

impl Kind {
    /// Returns the type of a classifier with these parts.
    pub(super) fn of<'a>(parts: impl Iterator<Item = &'a Part>) -> Kind {
        let (mut tuples, mut merged, mut prefixes, mut direct) = (0, 0, 0, 0);
        let mut lpm_field = Field::Ipv4Dst;
        for part in parts {
            match part {
                Part::Direct(part) => direct += part.len(),
                Part::Lpm(part) => {
                    prefixes += 1;
                    lpm_field = part.field();
                }
                Part::Tuple(part) => {
                    tuples += 1;
                    merged += usize::from(part.is_merged());
                }
            }
        }
        match (tuples, merged, prefixes, direct) {
            (0, _, 0, 0) => Kind::Constant,
            (0, _, 0, rules) => Kind::Direct { rules },
            (0, _, 1, 0) => Kind::LongestPrefix { field: lpm_field },
            (1, 0, 0, 0) => Kind::ExactHash,
            _ => Kind::Tuples {
                tuples,
                merged,
                prefixes,
                direct,
            },
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Constant => write!(f, "constant"),
            Kind::Direct { rules } => write!(f, "direct({rules})"),
            Kind::ExactHash => write!(f, "exact hash"),
            Kind::LongestPrefix { field } => write!(f, "lpm({field})"),
            Kind::Tuples {
                tuples,
                merged,
                prefixes,
                direct,
            } => {
                write!(f, "tuples({tuples}")?;
                for (count, name) in [(merged, "merged"), (prefixes, "lpm"), (direct, "direct")] {
                    if *count > 0 {
                        write!(f, ", {count} {name}")?;
                    }
                }
                write!(f, ")")
            }
        }
    }
}
