//! TupleMerge (Daly, Bruschi, Linguaglossa, Pontarelli, Rossi, Tollet, Torng and Yourtchenko, "TupleMerge: fast
//! software packet processing for online packet classification", ToN 2019), its online form.
//!
//! A rule goes to the first table, in search order, whose mask is part of its own. A new table for a rule *relaxes*
//! its mask: an address shorter than the other by more than 4 bits is left out, with its port; of the others 4, 3, 2
//! or 1 bits are left out at lengths of 32, above 24, 16 and 8. If more than ten rules then have the same hash, the
//! table is split: of the fields that those rules do not share whole, the one that differs most gets half of the
//! difference, and every rule of the table that has those bits moves to a table with that mask.
//!
//! Masks that are not prefixes need no special treatment, because the algorithm compares submasks.

use crate::rule::{ADDRESSES, FIELDS, Packet, PublishedClassifier, Rule5, field_bits};
use crate::tables::{Tables, is_subset};

/// The maximum number of rules with equal hashes.
const COLLISIONS_MAX: usize = 10;

/// The maximum difference of the address lengths for both to be used.
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

    /// Continues a search with the result `best`.
    #[inline(always)]
    pub(crate) fn lookup_from(&self, packet: Packet, best: u64) -> u64 {
        self.0.lookup(packet, best)
    }

    /// Moves rules of a table in which too many have the hash of `rule`.
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
