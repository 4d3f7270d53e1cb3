//! Hash tables of rules that share some bits, searched in the order of their highest priorities; used by tuple space
//! search and TupleMerge.
//!
//! Layout: `hashbrown` finds the head of a chain by one-byte tags (sixteen with one SSE2 compare) and a 32-bit hash.
//! Chains are indices into one array of rules, highest rank first, and each rule is compared in full. The hash is that
//! of the library (pair-multiply-shift, one multiplication a word). A packet visits all tables before the next packet
//! begins; there is no prefetch.

use hashbrown::HashTable;

use crate::rule::{Packet, Priorities, Rule5};

/// The index of no node.
const NONE: u32 = u32::MAX;

/// A head of a chain: the rules whose masked keys have this hash.
struct Head {
    hash: u32,
    first: u32,
}

struct Node {
    rule: Rule5,
    next: u32,
}

pub(crate) struct Table {
    pub(crate) mask: Packet,
    heads: HashTable<Head>,
    priorities: Priorities,
}

/// A table's position in the search order.
struct SearchStep {
    limit: u64,
    mask: Packet,
    table: u32,
}

#[derive(Default)]
pub(crate) struct Tables {
    tables: Vec<Table>,
    /// The tables that have rules, highest limit first.
    order: Vec<SearchStep>,
    by_mask: HashTable<u32>,
    nodes: Vec<Node>,
    free: Vec<u32>,
}

/// Random numbers; in a switch they would be secret.
const SEEDS: [u64; 5] = [
    0x8f2d_6a1b_90e3_c475,
    0x1c69_b3f7_a5e2_4d81,
    0xd1b5_4a32_d192_ed03,
    0x6c62_272e_07bb_0142,
    0xa076_1d64_78bd_642f,
];

#[inline(always)]
fn hash(key: Packet) -> u32 {
    let term = |word: u64, a: u64, b: u64| {
        a.wrapping_add(word >> 32)
            .wrapping_mul(b.wrapping_add(word & 0xffff_ffff))
    };
    let sum = SEEDS[0]
        .wrapping_add(term(key[0], SEEDS[1], SEEDS[2]))
        .wrapping_add(term(key[1], SEEDS[3], SEEDS[4]));
    ((sum ^ sum >> 32).wrapping_mul(0x9fb2_1c65_1e98_df25) >> 32) as u32
}

/// Returns the hash for the table: the low bits are the position, the high bits the tag.
#[inline(always)]
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

#[inline(always)]
fn and(key: Packet, mask: Packet) -> Packet {
    [key[0] & mask[0], key[1] & mask[1]]
}

/// Returns true if `of` contains every bit of `mask`.
pub(crate) fn is_subset(mask: Packet, of: Packet) -> bool {
    and(mask, of) == mask
}

impl Tables {
    /// Returns the highest rank of a matching rule, or `best`, the result of an earlier search, if that is
    /// higher.
    #[inline(always)]
    pub(crate) fn lookup(&self, packet: Packet, mut best: u64) -> u64 {
        for place in &self.order {
            if best >= place.limit {
                break;
            }
            let hash = hash(and(packet, place.mask));
            let heads = &self.tables[place.table as usize].heads;
            if let Some(head) = heads.find(spread(hash), |head| head.hash == hash) {
                let mut at = head.first;
                while let Some(node) = self.nodes.get(at as usize) {
                    if node.rule.rank <= best {
                        break;
                    }
                    if node.rule.matches(packet) {
                        best = node.rule.rank;
                        break;
                    }
                    at = node.next;
                }
            }
        }
        best
    }

    /// Returns the number of tables with rules.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns the tables in search order.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (u32, Packet)> {
        self.order.iter().map(|place| (place.table, place.mask))
    }

    /// Returns the table with this mask.
    pub(crate) fn find(&self, mask: Packet) -> Option<u32> {
        self.by_mask
            .find(spread(hash(mask)), |table| {
                self.tables[*table as usize].mask == mask
            })
            .copied()
    }

    /// Returns the table with this mask, and creates it if there is none.
    pub(crate) fn find_or_make(&mut self, mask: Packet) -> u32 {
        if let Some(found) = self.find(mask) {
            return found;
        }
        let table = self.tables.len() as u32;
        self.tables.push(Table {
            mask,
            heads: HashTable::new(),
            priorities: Priorities::default(),
        });
        let tables = &self.tables;
        self.by_mask.insert_unique(spread(hash(mask)), table, |table| {
            spread(hash(tables[*table as usize].mask))
        });
        table
    }

    pub(crate) fn insert(&mut self, table: u32, rule: &Rule5) {
        let node = self.free.pop().unwrap_or(self.nodes.len() as u32);
        if node as usize == self.nodes.len() {
            self.nodes.push(Node {
                rule: *rule,
                next: NONE,
            });
        }
        let held = &mut self.tables[table as usize];
        let hash = hash(and(rule.key, held.mask));
        let entry = held
            .heads
            .entry(spread(hash), |head| head.hash == hash, |head| spread(head.hash));
        let head = entry.or_insert(Head { hash, first: NONE }).into_mut();
        // The rule goes after the last rule of higher rank.
        let (mut last, mut next) = (NONE, head.first);
        while next != NONE && self.nodes[next as usize].rule.rank > rule.rank {
            (last, next) = (next, self.nodes[next as usize].next);
        }
        self.nodes[node as usize] = Node { rule: *rule, next };
        if last == NONE {
            head.first = node;
        } else {
            self.nodes[last as usize].next = node;
        }
        held.priorities.add(rule);
        self.place(table);
    }

    pub(crate) fn remove(&mut self, table: u32, rule: &Rule5) -> bool {
        let held = &mut self.tables[table as usize];
        let hash = hash(and(rule.key, held.mask));
        let Ok(mut entry) = held.heads.find_entry(spread(hash), |head| head.hash == hash) else {
            return false;
        };
        let (mut last, mut at) = (NONE, entry.get().first);
        while at != NONE && self.nodes[at as usize].rule != *rule {
            (last, at) = (at, self.nodes[at as usize].next);
        }
        if at == NONE {
            return false;
        }
        let next = self.nodes[at as usize].next;
        if last != NONE {
            self.nodes[last as usize].next = next;
        } else if next != NONE {
            entry.get_mut().first = next;
        } else {
            entry.remove();
        }
        self.free.push(at);
        held.priorities.remove(rule);
        self.place(table);
        true
    }

    /// Returns the rules of a table with the same hash as `rule`.
    pub(crate) fn together(&self, table: u32, rule: &Rule5) -> Vec<Rule5> {
        let held = &self.tables[table as usize];
        let hash = hash(and(rule.key, held.mask));
        let head = held.heads.find(spread(hash), |head| head.hash == hash);
        head.map_or(Vec::new(), |head| self.chain(head.first))
    }

    /// Returns all rules of a table.
    pub(crate) fn rules(&self, table: u32) -> Vec<Rule5> {
        let heads = self.tables[table as usize].heads.iter();
        heads.flat_map(|head| self.chain(head.first)).collect()
    }

    fn chain(&self, first: u32) -> Vec<Rule5> {
        let node = |at: u32| self.nodes.get(at as usize);
        let nodes = std::iter::successors(node(first), |held| node(held.next));
        nodes.map(|node| node.rule).collect()
    }

    /// Moves a table to the position of its highest priority.
    fn place(&mut self, table: u32) {
        let held = &self.tables[table as usize];
        let limit = held.priorities.limit();
        let at = self.order.iter().position(|place| place.table == table);
        if at.map(|at| self.order[at].limit) == limit {
            return;
        }
        if let Some(at) = at {
            self.order.remove(at);
        }
        if let Some(limit) = limit {
            let at = self.order.partition_point(|place| place.limit >= limit);
            let mask = held.mask;
            self.order.insert(at, SearchStep { limit, mask, table });
        }
    }

    pub(crate) fn heap_size(&self) -> usize {
        let each = |table: &Table| table.heads.allocation_size() + table.priorities.heap_size();
        self.tables.iter().map(each).sum::<usize>()
            + self.tables.capacity() * size_of::<Table>()
            + self.order.capacity() * size_of::<SearchStep>()
            + self.by_mask.allocation_size()
            + self.nodes.capacity() * size_of::<Node>()
            + self.free.capacity() * 4
    }
}
