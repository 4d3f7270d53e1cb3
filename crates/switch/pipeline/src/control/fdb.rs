//! The MAC table (FDB) of the control side: learning, moving, ageing and flushing, within bounds.
//!
//! Senders of packets decide which addresses are learned, so the table is bounded, and a full table removes an address
//! of the port that has the most: a flood of invented addresses on one port replaces only addresses of that port.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashTable;
use millrace_types::{Duration, PortNo, Time};

use crate::fdb::Fdb;
use crate::{FdbEntry, FdbKey, Learn, Op};

/// The configuration of the MAC table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FdbConfig {
    /// Maximum number of addresses.
    pub max_entries: u32,
    /// Time after which an address without packets is removed (IEEE 802.1Q-2018, table 8-6: 10 s to 1,000,000 s, by
    /// default 300 s).
    pub ageing: Duration,
}

impl Default for FdbConfig {
    fn default() -> FdbConfig {
        FdbConfig {
            max_entries: 8192,
            ageing: Duration::from_secs(300),
        }
    }
}

/// Number of addresses that are compared to find one to evict.
const CANDIDATES: usize = 32;

#[derive(Debug)]
pub(super) struct FdbControl {
    config: FdbConfig,
    /// Indices of `list`, by address.
    pub(super) index: HashTable<usize>,
    seed: u64,
    /// The entries, in no order.
    pub(super) list: Vec<Arc<FdbEntry>>,
    /// The static entries, which are not in `list`.
    fixed: BTreeMap<FdbKey, Arc<FdbEntry>>,
    /// Number of addresses of each port that has any.
    per_port: Vec<(PortNo, u32)>,
    /// The ageing cursor: the index of `list` at which the next scan for idle entries continues.
    ageing_cursor: usize,
    /// The index of `list` at which the next search for an entry to evict begins.
    eviction_cursor: usize,
}

impl FdbControl {
    pub(super) fn new(config: FdbConfig, seed: u64) -> FdbControl {
        FdbControl {
            config,
            index: HashTable::new(),
            seed,
            list: Vec::new(),
            fixed: BTreeMap::new(),
            per_port: Vec::new(),
            ageing_cursor: 0,
            eviction_cursor: 0,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<FdbEntry>> {
        self.list.iter().chain(self.fixed.values())
    }

    /// Learns the port of an address. Evicts an address if the table is full.
    pub(super) fn learn(&mut self, learn: Learn, now: Time, ops: &mut Vec<Op>) {
        let key = FdbKey {
            vid: learn.vid,
            mac: learn.mac,
        };
        if learn.mac.is_multicast() || self.config.max_entries == 0 || self.fixed.contains_key(&key) {
            return;
        }
        match self.position(key) {
            Some(at) if self.list[at].port == learn.port => return,
            Some(at) => self.remove_at(at),
            None if self.list.len() >= self.config.max_entries as usize => {
                if let Some(at) = self.eviction_candidate() {
                    ops.push(Op::Forget(self.list[at].key));
                    self.remove_at(at);
                }
            }
            None => {}
        }
        let entry = Arc::new(FdbEntry::new(key, learn.port, now));
        let (seed, list) = (self.seed, &self.list);
        let rehash = |at: &usize| Fdb::hash(seed, list[*at].key);
        self.index.insert_unique(Fdb::hash(seed, key), list.len(), rehash);
        self.list.push(Arc::clone(&entry));
        match self.per_port.iter_mut().find(|(port, _)| *port == learn.port) {
            Some((_, len)) => *len += 1,
            None => self.per_port.push((learn.port, 1)),
        }
        ops.push(Op::Learn(entry));
    }

    /// Sets a static entry, which replaces a learned one.
    pub(super) fn fix(&mut self, key: FdbKey, port: PortNo, now: Time, ops: &mut Vec<Op>) {
        if self.fixed.get(&key).is_some_and(|held| held.port == port) {
            return;
        }
        if let Some(at) = self.position(key) {
            self.remove_at(at);
        }
        let entry = Arc::new(FdbEntry::new_static(key, port, now));
        self.fixed.insert(key, Arc::clone(&entry));
        ops.push(Op::Learn(entry));
    }

    /// Removes the static entries that `is_selected` selects.
    pub(super) fn release(&mut self, is_selected: impl Fn(&FdbEntry) -> bool, ops: &mut Vec<Op>) {
        self.fixed.retain(|key, entry| {
            let stays = !is_selected(entry);
            if !stays {
                ops.push(Op::Forget(*key));
            }
            stays
        });
    }

    pub(super) fn position(&self, key: FdbKey) -> Option<usize> {
        let is_it = |at: &usize| self.list[*at].key == key;
        self.index.find(Fdb::hash(self.seed, key), is_it).copied()
    }

    /// Returns the index of the entry that was idle for longest, among some entries of the port with the most
    /// addresses. Each call begins where the previous one ended: a new entry takes the index of the evicted one, so a search
    /// that always began at the same index would find only new entries.
    fn eviction_candidate(&mut self) -> Option<usize> {
        let (crowded, _) = *self.per_port.iter().max_by_key(|(_, len)| *len)?;
        let len = self.list.len();
        let start = self.eviction_cursor;
        let around = (0..len).map(|i| (start + i) % len);
        let mut oldest: Option<(Time, usize)> = None;
        for at in around
            .filter(|at| self.list[*at].port == crowded)
            .take(CANDIDATES)
        {
            let seen = self.list[at].last_seen();
            if oldest.is_none_or(|(least, _)| seen < least) {
                oldest = Some((seen, at));
            }
            self.eviction_cursor = at + 1;
        }
        oldest.map(|(_, at)| at)
    }

    /// Removes the entry at this index of `list`, which exists; the last entry takes its index.
    fn remove_at(&mut self, at: usize) {
        let last = self.list.len() - 1;
        for (index, becomes) in [(at, None), (last, Some(at))] {
            let hash = Fdb::hash(self.seed, self.list[index].key);
            if let Ok(mut held) = self.index.find_entry(hash, |held| *held == index) {
                match becomes {
                    Some(at) => *held.get_mut() = at,
                    None => drop(held.remove()),
                }
            }
        }
        let entry = self.list.swap_remove(at);
        if let Some(at) = self.per_port.iter().position(|(port, _)| *port == entry.port) {
            self.per_port[at].1 -= 1;
            if self.per_port[at].1 == 0 {
                self.per_port.swap_remove(at);
            }
        }
    }

    /// Removes the addresses that `is_selected` selects. Returns their number.
    pub(super) fn forget(&mut self, is_selected: impl Fn(&FdbEntry) -> bool, ops: &mut Vec<Op>) -> usize {
        let before = self.list.len();
        let mut at = 0;
        while let Some(entry) = self.list.get(at) {
            if is_selected(entry) {
                ops.push(Op::Forget(entry.key));
                self.remove_at(at);
            } else {
                at += 1;
            }
        }
        before - self.list.len()
    }

    pub(super) fn age(&mut self, now: Time, budget: usize, ops: &mut Vec<Op>) {
        for _ in 0..budget.min(self.list.len()) {
            if self.ageing_cursor >= self.list.len() {
                self.ageing_cursor = 0;
            }
            let Some(entry) = self.list.get(self.ageing_cursor) else {
                return;
            };
            if now.since(entry.last_seen()) >= self.config.ageing {
                ops.push(Op::Forget(entry.key));
                self.remove_at(self.ageing_cursor);
            } else {
                self.ageing_cursor += 1;
            }
        }
    }

    pub(super) fn set_config(&mut self, config: FdbConfig, ops: &mut Vec<Op>) {
        self.config = config;
        while self.list.len() > config.max_entries as usize {
            let Some(at) = self.eviction_candidate() else {
                return;
            };
            ops.push(Op::Forget(self.list[at].key));
            self.remove_at(at);
        }
    }

    /// Removes all learned addresses.
    pub(super) fn flush(&mut self, ops: &mut Vec<Op>) {
        ops.push(Op::FlushFdb);
        ops.extend(self.fixed.values().map(|entry| Op::Learn(Arc::clone(entry))));
        self.index.clear();
        self.list.clear();
        self.per_port.clear();
        (self.ageing_cursor, self.eviction_cursor) = (0, 0);
    }
}
