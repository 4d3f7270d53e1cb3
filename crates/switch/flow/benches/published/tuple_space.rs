//! Tuple space search (Srinivasan, Suri and Varghese, SIGCOMM 1999) as in Open vSwitch's classifier (Pfaff et al.,
//! NSDI 2015): a hash table for each mask, searched in the order of their highest priorities until no remaining table
//! can win.
//!
//! Staged lookup and the tries of address prefixes are not implemented; Open vSwitch has them chiefly so that cached
//! megaflows match fewer bits.

use crate::rule::{Packet, PublishedClassifier, Rule5};
use crate::tables::Tables;

pub(crate) struct TupleSpace(Tables);

impl TupleSpace {
    pub(crate) fn new(rules: &[Rule5]) -> TupleSpace {
        let mut made = TupleSpace(Tables::default());
        for rule in rules {
            made.insert(rule);
        }
        made
    }
}

impl PublishedClassifier for TupleSpace {
    #[inline(always)]
    fn lookup(&self, packet: Packet) -> u64 {
        self.0.lookup(packet, 0)
    }

    fn heap_size(&self) -> usize {
        self.0.heap_size()
    }

    fn structure(&self) -> String {
        format!("{} tuples", self.0.len())
    }

    fn insert(&mut self, rule: &Rule5) -> bool {
        let table = self.0.find_or_make(rule.mask);
        self.0.insert(table, rule);
        true
    }

    fn remove(&mut self, rule: &Rule5) -> bool {
        let table = self.0.find(rule.mask);
        table.is_some_and(|table| self.0.remove(table, rule))
    }
}
