//! The index of an exchange: the ends of each service and connection, the numbers in use, and the contracted
//! rates. The module `lookup` builds the index from the objects of an exchange, and answers queries from it.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::allocate::Taken;
use crate::id::{ConfigId, ConnectionId, ServiceId, SwitchId};
use crate::persistent::{Numbered, PersistentMap};
use crate::service::{Config, PoolKind};

/// The contracted rates in Mbit/s, by (from, to): two switches that a trunk joins.
pub type Contracts = BTreeMap<(SwitchId, SwitchId), u64>;

/// The index of one version of an exchange. A copy shares most of the data.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Index {
    ends_of: PersistentMap<ServiceId, BTreeSet<ConfigId>>,
    ends_on: PersistentMap<ConnectionId, BTreeSet<ConfigId>>,
    /// The numbers in use; no pool is empty.
    taken: BTreeMap<PoolKind, Taken>,
    contracts: PersistentMap<ServiceId, Contracts>,
    /// The sum of the contracts of all services.
    total: Contracts,
}

impl Index {
    /// Returns the ends of a service.
    pub(crate) fn ends_of(&self, service: ServiceId) -> impl Iterator<Item = ConfigId> + '_ {
        self.ends_of.get(&service).into_iter().flatten().copied()
    }

    /// Returns the ends on a connection.
    pub(crate) fn ends_on(&self, connection: ConnectionId) -> impl Iterator<Item = ConfigId> + '_ {
        self.ends_on.get(&connection).into_iter().flatten().copied()
    }

    /// Returns the numbers of a pool that objects use.
    pub(crate) fn taken(&self, kind: PoolKind) -> Taken {
        self.taken.get(&kind).cloned().unwrap_or_default()
    }

    /// Returns the contracted rates of a service.
    pub(crate) fn contracts(&self, service: ServiceId) -> Contracts {
        self.contracts.get(&service).cloned().unwrap_or_default()
    }

    /// Returns the contracted rates of all services.
    pub(crate) fn total(&self) -> &Contracts {
        &self.total
    }

    /// Records the service, the connection and the numbers of an end.
    pub(crate) fn add_end(&mut self, id: ConfigId, config: &Config) {
        note(&mut self.ends_of, config.service, id);
        note(&mut self.ends_on, config.connection, id);
    }

    /// Removes what [`Index::add_end`] recorded.
    pub(crate) fn remove_end(&mut self, id: ConfigId, config: &Config) {
        forget(&mut self.ends_of, config.service, id);
        forget(&mut self.ends_on, config.connection, id);
    }

    /// Adds one use of a number.
    pub(crate) fn add_number(&mut self, kind: PoolKind, number: u32) {
        self.taken.entry(kind).or_default().add(number);
    }

    /// Removes one use of a number.
    pub(crate) fn remove_number(&mut self, kind: PoolKind, number: u32) {
        if let Some(pool) = self.taken.get_mut(&kind) {
            pool.remove(number);
            if pool.is_empty() {
                self.taken.remove(&kind);
            }
        }
    }

    /// Replaces the contracted rates of a service.
    pub(crate) fn set_contracts(&mut self, id: ServiceId, contracts: Contracts) {
        let before = self.contracts(id);
        if before == contracts {
            return;
        }
        adjust(&mut self.total, &before, &contracts);
        if contracts.is_empty() {
            self.contracts.remove(&id);
        } else {
            self.contracts.insert(id, contracts);
        }
    }
}

fn note<K: Numbered>(ends: &mut PersistentMap<K, BTreeSet<ConfigId>>, at: K, id: ConfigId) {
    match ends.get_mut(&at) {
        Some(found) => {
            found.insert(id);
        }
        None => {
            ends.insert(at, BTreeSet::from([id]));
        }
    }
}

fn forget<K: Numbered>(ends: &mut PersistentMap<K, BTreeSet<ConfigId>>, at: K, id: ConfigId) {
    let is_empty = ends.get_mut(&at).is_some_and(|found| {
        found.remove(&id);
        found.is_empty()
    });
    if is_empty {
        ends.remove(&at);
    }
}

/// Replaces the rates `before` by the rates `after` in a sum. The sum keeps no pair of switches without a
/// rate.
pub(crate) fn adjust(total: &mut Contracts, before: &Contracts, after: &Contracts) {
    for (pair, rate) in after {
        *total.entry(*pair).or_default() += rate;
    }
    for (pair, rate) in before {
        if let Some(sum) = total.get_mut(pair) {
            *sum = sum.saturating_sub(*rate);
            if *sum == 0 {
                total.remove(pair);
            }
        }
    }
}

/// The stamps of the collections from which an index was built.
pub(crate) type Stamps = [u64; 4];

/// The cache of an exchange's index. The cache is not part of the exchange's value, so that all caches
/// compare equal.
#[derive(Default)]
pub(crate) struct IndexCell(Mutex<Option<(Stamps, Arc<Index>)>>);

impl IndexCell {
    /// Returns the index, and the stamps of the collections from which it was built.
    pub(crate) fn get(&self) -> Option<(Stamps, Arc<Index>)> {
        self.0.lock().clone()
    }

    /// Replaces the index, and returns the previous index.
    pub(crate) fn set(&self, index: Option<(Stamps, Arc<Index>)>) -> Option<(Stamps, Arc<Index>)> {
        core::mem::replace(&mut *self.0.lock(), index)
    }
}

impl Clone for IndexCell {
    fn clone(&self) -> IndexCell {
        IndexCell(Mutex::new(self.get()))
    }
}

impl PartialEq for IndexCell {
    fn eq(&self, _: &IndexCell) -> bool {
        true
    }
}

impl Eq for IndexCell {}

impl fmt::Debug for IndexCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IndexCell")
    }
}
