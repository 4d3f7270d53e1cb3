//! Longest-prefix match (LPM) of rules that differ in the prefix of one field, and are equal in all other fields.

use super::columns::{Burst, Columns, Projection};
use super::masks::MaskId;
use super::priorities::Priorities;
use super::trie::{Prefix, Trie};
use super::{BURST, PRIORITY_SHIFT};
use crate::field::Field;

/// A field that is matched by the longest prefix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum LpmField {
    /// `ipv4_src`, or `arp_spa` at the same position.
    Ipv4Src,
    /// `ipv4_dst`, or `arp_tpa` at the same position.
    Ipv4Dst,
    /// `ipv6_src`.
    Ipv6Src,
    /// `ipv6_dst`.
    Ipv6Dst,
}

impl LpmField {
    pub(super) const ALL: [LpmField; 4] = [
        LpmField::Ipv4Dst,
        LpmField::Ipv6Dst,
        LpmField::Ipv4Src,
        LpmField::Ipv6Src,
    ];

    /// Returns the field.
    pub(super) fn field(self) -> Field {
        match self {
            LpmField::Ipv4Src => Field::Ipv4Src,
            LpmField::Ipv4Dst => Field::Ipv4Dst,
            LpmField::Ipv6Src => Field::Ipv6Src,
            LpmField::Ipv6Dst => Field::Ipv6Dst,
        }
    }

    /// Returns the field's first column and, if it has one, its second.
    pub(super) fn columns(self) -> (usize, Option<usize>) {
        let field = self.field();
        let first = usize::from(field.position().word);
        (first, (field.bits() > u64::BITS).then_some(first + 1))
    }

    /// Returns the address, with its first bit in the highest bit.
    #[inline(always)]
    fn address(self, first: u64, second: u64) -> u128 {
        match self {
            LpmField::Ipv4Src => u128::from(first >> 32) << 96,
            LpmField::Ipv4Dst => u128::from(first & 0xffff_ffff) << 96,
            LpmField::Ipv6Src | LpmField::Ipv6Dst => u128::from(first) << 64 | u128::from(second),
        }
    }

    fn bits(self, columns: &Columns) -> u128 {
        let (first, second) = self.columns();
        self.address(columns.0[first], second.map_or(0, |second| columns.0[second]))
    }

    /// Returns these columns without the field.
    fn others(self, columns: &Columns) -> Columns {
        let mut others = *columns;
        let (first, second) = self.columns();
        match self {
            LpmField::Ipv4Src => others.0[first] &= 0xffff_ffff,
            LpmField::Ipv4Dst => others.0[first] &= !0xffff_ffff,
            LpmField::Ipv6Src | LpmField::Ipv6Dst => others.0[first] = 0,
        }
        if let Some(second) = second {
            others.0[second] = 0;
        }
        others
    }

    fn prefix(self, mask: &Columns, key: &Columns) -> Option<Prefix> {
        let mask = self.bits(mask);
        let len = mask.leading_ones();
        (mask.count_ones() == len).then(|| Prefix {
            bits: self.bits(key),
            len,
        })
    }
}

/// The properties that the rules of one [`LpmPart`] share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct LpmSpec {
    pub(super) lpm_field: LpmField,
    /// Mask and key of all other fields.
    mask: Columns,
    key: Columns,
}

impl LpmSpec {
    /// Returns the properties that a rule shares with rules that differ only in this field's prefix, and the
    /// length of the rule's prefix; `None` if the mask of the field is not a prefix.
    pub(super) fn of(lpm_field: LpmField, mask: &Columns, key: &Columns) -> Option<(LpmSpec, u32)> {
        let prefix = lpm_field.prefix(mask, key)?;
        let (mask, key) = (lpm_field.others(mask), lpm_field.others(key));
        Some((LpmSpec { lpm_field, mask, key }, prefix.len))
    }
}

/// Rules that are found by the longest prefix of one field, after a comparison of all other fields.
#[derive(Clone, Debug)]
pub(super) struct LpmPart {
    spec: LpmSpec,
    /// The positions of the field's columns in a burst.
    first: usize,
    second: usize,
    /// For each column of the other fields: position, mask, key.
    compares: Box<[(u8, u64, u64)]>,
    /// The ranks of the rules, by prefix.
    trie: Trie,
    /// For each prefix length, its mask and the priorities of its rules.
    lengths: Vec<(MaskId, Priorities)>,
}

impl LpmPart {
    /// Returns an empty set.
    pub(super) fn new(projection: &Projection, spec: LpmSpec) -> LpmPart {
        let position = |column: usize| projection.position(column);
        let (first, second) = spec.lpm_field.columns();
        let first = position(first).unwrap_or(0);
        let compare = |column| Some((position(column)? as u8, spec.mask.0[column], spec.key.0[column]));
        LpmPart {
            first,
            second: second.and_then(position).unwrap_or(first),
            compares: spec.mask.occupied().filter_map(compare).collect(),
            trie: Trie::new(),
            lengths: vec![(MaskId(u32::MAX), Priorities::default()); 129],
            spec,
        }
    }

    /// Returns the field.
    pub(super) fn field(&self) -> Field {
        self.spec.lpm_field.field()
    }

    /// Returns the number of rules.
    pub(super) fn len(&self) -> usize {
        self.trie.len()
    }

    /// Returns a rank with the highest priority of the rules, and no slot.
    pub(super) fn highest(&self) -> u64 {
        let highest = self.lengths.iter().filter_map(|(_, held)| held.highest()).max();
        highest.map_or(0, |priority| u64::from(priority) << PRIORITY_SHIFT)
    }

    /// Returns true if a rule may be inserted: it differs from the others in the prefix alone, its priority is not
    /// below that of a shorter prefix, and not above that of a longer one, because a lookup finds the longest prefix.
    pub(super) fn accepts(&self, mask: &Columns, key: &Columns, rank: u64) -> bool {
        let priority = (rank >> PRIORITY_SHIFT) as u16;
        match LpmSpec::of(self.spec.lpm_field, mask, key) {
            Some((spec, len)) if spec == self.spec => {
                let (shorter, longer) = self.lengths.split_at(len as usize);
                let mut shorter = shorter.iter().filter_map(|(_, held)| held.highest());
                let mut longer = longer[1..].iter().filter_map(|(_, held)| held.lowest());
                shorter.all(|highest| highest <= priority) && longer.all(|lowest| lowest >= priority)
            }
            _ => false,
        }
    }

    fn prefix(&self, mask: MaskId, key: &Columns) -> Option<Prefix> {
        let len = self.lengths.iter().position(|(held, _)| *held == mask)? as u32;
        let bits = self.spec.lpm_field.bits(key);
        Some(Prefix { bits, len })
    }

    /// Returns the rank of the rule with this mask and key.
    pub(super) fn rank(&self, mask: MaskId, key: &Columns) -> Option<u64> {
        if self.spec.lpm_field.others(key) != self.spec.key {
            return None;
        }
        self.trie.value(self.prefix(mask, key)?)
    }

    /// Adds a rule that [`LpmPart::accepts`] allows, or changes its rank.
    pub(super) fn insert(
        &mut self,
        projection: &Projection,
        mask: (MaskId, &Columns),
        key: &Columns,
        rank: u64,
    ) {
        // The position may be known only now: bursts have the second half of an address once some rule compares it.
        let second = self.spec.lpm_field.columns().1;
        if let Some(position) = second.and_then(|column| projection.position(column)) {
            self.second = position;
        }
        if let Some(prefix) = self.spec.lpm_field.prefix(mask.1, key) {
            let (held, priorities) = &mut self.lengths[prefix.len as usize];
            *held = mask.0;
            if let Some(old) = self.trie.value(prefix) {
                priorities.subtract(old);
            }
            priorities.add(rank);
            self.trie.insert(prefix, rank);
        }
    }

    /// Removes the rule with this mask and key.
    pub(super) fn remove(&mut self, mask: MaskId, key: &Columns) -> Option<u64> {
        let prefix = self.prefix(mask, key)?;
        let rank = self.trie.remove(prefix)?;
        let (held, priorities) = &mut self.lengths[prefix.len as usize];
        priorities.subtract(rank);
        if priorities.highest().is_none() {
            *held = MaskId(u32::MAX);
        }
        Some(rank)
    }

    /// Calls `visit` with each rule.
    pub(super) fn each(&self, mut visit: impl FnMut(MaskId, &Columns, u64)) {
        self.trie.each(|prefix, rank| {
            let mut key = self.spec.key;
            match self.spec.lpm_field.columns() {
                (column, None) => {
                    let shift = if self.spec.lpm_field == LpmField::Ipv4Src {
                        64
                    } else {
                        96
                    };
                    key.0[column] |= (prefix.bits >> shift) as u64;
                }
                (first, Some(second)) => {
                    key.0[first] = (prefix.bits >> 64) as u64;
                    key.0[second] = prefix.bits as u64;
                }
            }
            visit(self.lengths[prefix.len as usize].0, &key, rank);
        });
    }

    /// Raises `best` of each of the first `len` packets to the rank of the rule that it matches.
    #[inline(always)]
    pub(super) fn search(&self, burst: &Burst, len: usize, best: &mut [u64; BURST]) {
        let padded = len.next_multiple_of(8).min(BURST);
        let mut differences = [0; BURST];
        for (position, mask, key) in &self.compares {
            let column = &burst[usize::from(*position)];
            for (difference, word) in differences[..padded].iter_mut().zip(column) {
                *difference |= (word & mask) ^ key;
            }
        }
        let (first, second) = (&burst[self.first], &burst[self.second]);
        let (mut packets, mut addresses, mut left) = ([0u8; BURST], [0; BURST], 0);
        for packet in 0..len {
            packets[left % BURST] = packet as u8;
            addresses[left % BURST] = self.spec.lpm_field.address(first[packet], second[packet]);
            left += usize::from(differences[packet] == 0);
        }
        self.trie.search(&addresses, left, |number, rank| {
            let best = &mut best[usize::from(packets[number]) % BURST];
            *best = rank.max(*best);
        });
    }

    /// Returns the size in bytes of the heap memory in use.
    pub(super) fn heap_size(&self) -> usize {
        let priorities: usize = self.lengths.iter().map(|(_, held)| held.heap_size()).sum();
        self.compares.len() * size_of::<(u8, u64, u64)>()
            + self.lengths.capacity() * size_of::<(MaskId, Priorities)>()
            + priorities
            + self.trie.heap_size()
    }
}
