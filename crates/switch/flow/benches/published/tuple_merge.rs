//! TupleMerge (Daly, Bruschi, Linguaglossa, Pontarelli, Rossi, Tollet, Torng and Yourtchenko, "TupleMerge: fast
//! software packet processing for online packet classification", ToN 2019), its online form.
//!
//! A rule goes to the first table, in search order, whose mask is part of the rule's mask. A new table gets
//! the rule's mask in a *relaxed* form. If one address prefix is more than 4 bits shorter than the other, the
//! mask leaves out the shorter address and its port. Other prefixes lose 4 bits at a length of 32, 3 bits
//! above 24, 2 bits above 16, and 1 bit above 8. If more than ten rules then have the same hash, the table is
//! split. The new mask has all bits that these rules share. It also has half of the other bits of one field:
//! the field in which the rules' masks differ most. Every rule of the table whose mask contains the new mask
//! moves to the table of the new mask.
//!
//! Masks that are not prefixes need no special treatment, because the algorithm compares submasks.

use crate::rule::{ADDRESSES, FIELDS, Packet, PublishedClassifier, Rule5, field_bits};
use crate::tables::{Tables, is_subset};

/// The maximum number of rules with equal hashes.
const COLLISIONS_MAX: usize = 10;

/// The maximum difference of the two prefix lengths at which a relaxed mask keeps both addresses.
const LENGTHS_APART_MAX: u32 = 4;

#[derive(Default)]
pub(crate) struct TupleMerge(Tables);

impl TupleMerge {
    pub(crate) fn new(rules: &[Rule5]) -> TupleMerge {
        let mut made = TupleMerge::default();
        for rule in rules {
            made.insert(rule);
        }
        made
    }

    /// Returns the highest rank of a matching rule, or `best`, the result of an earlier search, if that is
    /// higher.
    #[inline(always)]
    pub(crate) fn lookup_from(&self, packet: Packet, best: u64) -> u64 {
        self.0.lookup(packet, best)
    }

    /// Splits a table if too many of its rules have the hash of `rule`.
    fn split(&mut self, table: u32, rule: &Rule5) {
        let together = self.0.together(table, rule);
        if together.len() <= COLLISIONS_MAX {
            return;
        }
        let masks = together.iter().map(Rule5::field_mask);
        let (mut all, mut any) = ([u64::MAX; 2], [0; 2]);
        for mask in masks {
            for word in 0..2 {
                all[word] &= mask[word];
                any[word] |= mask[word];
            }
        }
        let apart = |field: usize| {
            let (word, bits) = field_bits(field);
            (any[word] & !all[word] & bits, word)
        };
        let widest = (0..FIELDS).map(apart).max_by_key(|(bits, _)| bits.count_ones());
        if let Some((bits, word)) = widest {
            all[word] |= upper_half(bits);
        }
        let target = self.0.find_or_make(all);
        if target == table {
            return;
        }
        for moved in self.0.rules(table) {
            if is_subset(all, moved.field_mask()) {
                self.0.remove(table, &moved);
                self.0.insert(target, &moved);
            }
        }
    }
}

/// Returns the upper half of the bits, rounded down.
fn upper_half(bits: u64) -> u64 {
    let mut half = bits;
    for _ in 0..bits.count_ones().div_ceil(2) {
        half &= half.wrapping_sub(1);
    }
    half
}

/// Returns the relaxed mask for a new table.
fn relax(mut mask: Packet) -> Packet {
    let lengths = ADDRESSES.map(|field| {
        let (_, bits) = field_bits(field);
        ((mask[0] & bits) << bits.leading_zeros()).leading_ones()
    });
    for side in ADDRESSES {
        let (mine, other) = (lengths[side], lengths[1 - side]);
        let keep = match mine {
            _ if mine + LENGTHS_APART_MAX < other => 0,
            32 => 28,
            25.. => mine - 3,
            17.. => mine - 2,
            9.. => mine - 1,
            _ => mine,
        };
        let (_, bits) = field_bits(side);
        let kept = !(u64::MAX >> 32 >> keep) << 32 >> bits.leading_zeros();
        mask[0] &= !bits | kept;
        if mine + LENGTHS_APART_MAX < other {
            let (word, port) = field_bits(2 + side);
            mask[word] &= !port;
        }
    }
    mask
}

impl PublishedClassifier for TupleMerge {
    #[inline(always)]
    fn lookup(&self, packet: Packet) -> u64 {
        self.0.lookup(packet, 0)
    }

    fn heap_size(&self) -> usize {
        self.0.heap_size()
    }

    fn structure(&self) -> String {
        format!("{} tables", self.0.len())
    }

    fn insert(&mut self, rule: &Rule5) -> bool {
        let own = rule.field_mask();
        let accepts = self.0.in_order().find(|(_, mask)| is_subset(*mask, own));
        if let Some((table, _)) = accepts {
            self.0.insert(table, rule);
            self.split(table, rule);
        } else {
            let table = self.0.find_or_make(relax(own));
            self.0.insert(table, rule);
        }
        true
    }

    fn remove(&mut self, rule: &Rule5) -> bool {
        let own = rule.field_mask();
        let accept = self.0.in_order().filter(|(_, mask)| is_subset(*mask, own));
        let tables: Vec<u32> = accept.map(|(table, _)| table).collect();
        tables.into_iter().any(|table| self.0.remove(table, rule))
    }
}
