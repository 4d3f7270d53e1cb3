//! The MAC table (FDB) of the control side: learning, moving, ageing and flushing, within bounds.
//!
//! Senders of packets decide which addresses are learned, so the table is bounded, and a full table removes an address
//! of the port that has the most: a flood of invented addresses on one port replaces only addresses of that port.

use std::sync::Arc;

use hashbrown::HashTable;
use millrace_types::{Duration, PortNo, Time};

use super::Control;
use crate::fdb::Fdb;
use crate::{FdbEntry, FdbKey, Learn, Op};

/// The configuration of the MAC table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FdbConfig {
    /// Addresses that fit.
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

/// Addresses that are compared to find one to evict.
const CANDIDATES: usize = 32;

#[derive(Debug)]
pub(super) struct FdbControl {
    config: FdbConfig,
    /// Indices of `list`, by address.
    index: HashTable<usize>,
    seed: u64,
    /// The entries, in no order.
    list: Vec<Arc<FdbEntry>>,
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
            per_port: Vec::new(),
            ageing_cursor: 0,
            eviction_cursor: 0,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<FdbEntry>> {
        self.list.iter()
    }

    fn learn(&mut self, learn: Learn, now: Time, ops: &mut Vec<Op>) {
        let key = FdbKey {
            vid: learn.vid,
            mac: learn.mac,
        };
        if learn.mac.is_multicast() || self.config.max_entries == 0 {
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

    fn position(&self, key: FdbKey) -> Option<usize> {
        let is_it = |at: &usize| self.list[*at].key == key;
        self.index.find(Fdb::hash(self.seed, key), is_it).copied()
    }

    /// Returns the longest idle of some entries of the port with the most. Each call begins behind the previous one: a
    /// new entry takes the index of the evicted one, so a search that always began at the same index would find only
    /// new entries.
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

    pub(super) fn forget_port(&mut self, port: PortNo, ops: &mut Vec<Op>) {
        let mut at = 0;
        while let Some(entry) = self.list.get(at) {
            if entry.port == port {
                ops.push(Op::Forget(entry.key));
                self.remove_at(at);
            } else {
                at += 1;
            }
        }
    }

    fn age(&mut self, now: Time, budget: usize, ops: &mut Vec<Op>) {
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

    fn set_config(&mut self, config: FdbConfig, ops: &mut Vec<Op>) {
        self.config = config;
        while self.list.len() > config.max_entries as usize {
            let Some(at) = self.eviction_candidate() else {
                return;
            };
            ops.push(Op::Forget(self.list[at].key));
            self.remove_at(at);
        }
    }

    fn flush(&mut self) {
        self.index.clear();
        self.list.clear();
        self.per_port.clear();
        (self.ageing_cursor, self.eviction_cursor) = (0, 0);
    }
}

impl Control {
    /// Learns the port of an address, or that it has moved: an [`Egress::learn`](crate::Egress::learn) of a worker.
    pub fn learn(&mut self, learn: Learn, now: Time, ops: &mut Vec<Op>) {
        if self.ports.port(learn.port).is_some() {
            self.fdb.learn(learn, now, ops);
        }
    }

    /// Removes addresses that were idle for the ageing time. Visits at most `budget` entries, from the ageing cursor
    /// on.
    pub fn age_fdb(&mut self, now: Time, budget: usize, ops: &mut Vec<Op>) {
        self.fdb.age(now, budget, ops);
    }

    /// Sets the configuration of the MAC table. Addresses that no longer fit are removed.
    pub fn set_fdb_config(&mut self, config: FdbConfig, ops: &mut Vec<Op>) {
        self.config.fdb = config;
        self.fdb.set_config(config, ops);
    }

    /// Removes all addresses.
    pub fn flush_fdb(&mut self, ops: &mut Vec<Op>) {
        self.fdb.flush();
        ops.push(Op::FlushFdb);
    }

    /// Returns all addresses, in no order.
    pub fn fdb(&self) -> impl Iterator<Item = &Arc<FdbEntry>> {
        self.fdb.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::super::ControlConfig;
    use super::*;
    use crate::{Forwarding, Port};
    use millrace_types::{Mac, Vid};

    struct Bridge {
        control: Control,
        forwarding: Forwarding,
        ops: Vec<Op>,
    }

    impl Bridge {
        fn new(max_entries: u32) -> Bridge {
            let config = ControlConfig {
                fdb: FdbConfig {
                    max_entries,
                    ..FdbConfig::default()
                },
                ..ControlConfig::default()
            };
            let mut control = Control::new(config);
            let mut ops = Vec::new();
            for port in 1..=3 {
                control.set_port(Port::new(PortNo::from_raw(port)), &mut ops);
            }
            let forwarding = control.forwarding();
            Bridge {
                control,
                forwarding,
                ops: Vec::new(),
            }
        }

        fn learn(&mut self, mac: u64, port: u32, at: u64) {
            let learn = Learn {
                vid: Vid::default(),
                mac: Mac::from_u64(mac),
                port: PortNo::from_raw(port),
            };
            self.control.learn(learn, Time::from_secs(at), &mut self.ops);
            self.sync();
        }

        fn sync(&mut self) {
            self.ops.drain(..).for_each(|op| self.forwarding.apply(&op));
            assert_eq!(self.forwarding.fdb_len(), self.control.fdb().count());
            let fdb = &self.control.fdb;
            assert_eq!(fdb.index.len(), fdb.list.len());
            assert!((0..fdb.list.len()).all(|at| fdb.position(fdb.list[at].key) == Some(at)));
        }

        fn port_of(&self, mac: u64) -> Option<u32> {
            let key = FdbKey {
                vid: Vid::default(),
                mac: Mac::from_u64(mac),
            };
            self.forwarding.fdb().lookup(key).map(|entry| entry.port.raw())
        }
    }

    #[test]
    fn an_address_that_moves_is_found_at_its_new_port() {
        let mut bridge = Bridge::new(10);
        bridge.learn(2, 1, 0);
        bridge.learn(2, 3, 1);
        assert_eq!(bridge.port_of(2), Some(3));
    }

    #[test]
    fn an_idle_address_is_removed_after_the_ageing_time() {
        let mut bridge = Bridge::new(10);
        bridge.learn(2, 1, 0);
        bridge.learn(4, 1, 200);
        bridge.control.age_fdb(Time::from_secs(299), 10, &mut bridge.ops);
        bridge.sync();
        assert_eq!(bridge.port_of(2), Some(1));
        bridge.control.age_fdb(Time::from_secs(300), 10, &mut bridge.ops);
        bridge.sync();
        assert_eq!((bridge.port_of(2), bridge.port_of(4)), (None, Some(1)));
    }

    #[test]
    fn a_flood_of_addresses_on_one_port_does_not_push_out_those_of_another() {
        let mut bridge = Bridge::new(100);
        for mac in 0..5 {
            bridge.learn(0x1000 + mac * 2, 2, 0);
        }
        for mac in 0..1000 {
            bridge.learn(0x10_0000 + mac * 2, 1, mac);
        }
        assert_eq!(bridge.forwarding.fdb_len(), 100);
        assert!((0..5).all(|mac| bridge.port_of(0x1000 + mac * 2) == Some(2)));
        assert_eq!(bridge.port_of(0x10_0000 + 999 * 2), Some(1));
    }

    #[test]
    fn a_full_table_evicts_idle_addresses_and_not_those_that_it_has_just_learned() {
        let mut bridge = Bridge::new(1000);
        for mac in 0..1000 {
            bridge.learn(0x1000 + mac * 2, 1, 0);
        }
        for mac in 0..500 {
            bridge.learn(0x10_0000 + mac * 2, 1, 1 + mac);
        }
        let known = (0..500).filter(|mac| bridge.port_of(0x10_0000 + mac * 2) == Some(1));
        assert_eq!(known.count(), 500);
    }

    #[test]
    fn the_addresses_of_a_removed_port_are_removed() {
        let mut bridge = Bridge::new(10);
        bridge.learn(2, 1, 0);
        bridge.learn(4, 2, 0);
        bridge.control.remove_port(PortNo::from_raw(1), &mut bridge.ops);
        bridge.sync();
        assert_eq!((bridge.port_of(2), bridge.port_of(4)), (None, Some(2)));
        bridge.learn(6, 1, 0);
        assert_eq!(bridge.port_of(6), None, "a removed port has no addresses");
    }
}
