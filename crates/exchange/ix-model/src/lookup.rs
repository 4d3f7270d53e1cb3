//! Lookups of orders in an exchange, answered from an index that is kept alongside the objects.
//!
//! Each order looks up the ends of a service, free numbers and contracted rates several times. If each lookup
//! scanned all objects, the time to import an exchange would be quadratic in the number of circuits. A
//! [`Draft`] therefore answers from the index of its exchange, corrected by its own changes;
//! [`Exchange::commit`] brings the index up to date with the objects that it writes.
//!
//! The collections of an exchange are public, so that a program may write them without an order. Each version
//! of a collection has a stamp, and the index has the stamps of the collections from which it was built. If
//! the stamps differ, the index is rebuilt.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::allocate::Taken;
use crate::exchange::{Draft, Exchange, Key, Object, ObjectId};
use crate::id::{ConfigId, ConnectionId, ServiceId, SwitchId};
use crate::index::{Contracts, Index, Stamps, adjust};
use crate::path::service_contracts;
use crate::service::{Config, Connection, PoolKind};

/// Builds the index of an exchange from all of its objects.
fn index_of(exchange: &Exchange) -> Index {
    let mut index = Index::default();
    for id in exchange.ids() {
        replace(&mut index, id, None, exchange.object(id).as_ref());
    }
    for id in exchange.services.keys() {
        renew_contracts(&mut index, *id, exchange);
    }
    index
}

/// Replaces an object in an index by its new version, except for the contracts. What stays the same is not written: each
/// write copies a part of the index.
fn replace(index: &mut Index, id: ObjectId, before: Option<&Object>, after: Option<&Object>) {
    let of = |object: Option<&Object>| object.into_iter().flat_map(numbers).collect::<Vec<_>>();
    let (numbers_before, numbers_after) = (of(before), of(after));
    if numbers_before != numbers_after {
        for (kind, number) in numbers_before {
            index.remove_number(kind, number);
        }
        for (kind, number) in numbers_after {
            index.add_number(kind, number);
        }
    }
    if let ObjectId::Config(id) = id {
        let (before, after) = (
            before.and_then(ConfigId::unwrap),
            after.and_then(ConfigId::unwrap),
        );
        let place = |config: &Config| (config.service, config.connection);
        if before.map(place) == after.map(place) {
            return;
        }
        if let Some(config) = before {
            index.remove_end(id, config);
        }
        if let Some(config) = after {
            index.add_end(id, config);
        }
    }
}

/// Replaces the contracts of a service by its contracts in `exchange`. The index already contains the ends of
/// `exchange`.
fn renew_contracts(index: &mut Index, id: ServiceId, exchange: &Exchange) {
    let ends = index.ends_of(id).filter_map(|end| exchange.configs.get(&end));
    let of_connection = |connection| exchange.connections.get(&connection).and_then(Connection::switch);
    let renewed = exchange
        .services
        .get(&id)
        .map(|service| service_contracts(service, ends, of_connection));
    index.set_contracts(id, renewed.unwrap_or_default());
}

/// Returns the numbers that an object uses.
fn numbers(object: &Object) -> impl Iterator<Item = (PoolKind, u32)> {
    let found = match object {
        Object::Switch(switch) => [Some((PoolKind::Group, switch.group.raw())), None, None],
        Object::Connection(connection) => [
            Some((PoolKind::ConnectionIndex, connection.index.raw())),
            connection.group.map(|group| (PoolKind::Group, group.raw())),
            None,
        ],
        Object::Service(service) => [
            Some((PoolKind::ServiceIndex, service.index.raw())),
            service.wire_id.map(|wire_id| (PoolKind::WireId, wire_id.raw())),
            None,
        ],
        Object::Config(config) => [
            Some((PoolKind::ConnectionIndex, config.index.raw())),
            Some((PoolKind::Meter, config.meter.raw())),
            config.group.map(|group| (PoolKind::Group, group.raw())),
        ],
        _ => [None; 3],
    };
    found.into_iter().flatten()
}

/// Returns the service whose contracts depend on a service or an end; `None` for other objects. `write`
/// handles connections, because several services may use one connection.
fn service_of(id: ObjectId, object: Option<&Object>) -> Option<ServiceId> {
    match (id, object) {
        (ObjectId::Service(id), _) => Some(id),
        (_, Some(Object::Config(config))) => Some(config.service),
        _ => None,
    }
}

impl Exchange {
    fn stamps(&self) -> Stamps {
        [
            self.switches.stamp(),
            self.connections.stamp(),
            self.services.stamp(),
            self.configs.stamp(),
        ]
    }

    /// Returns the index of this version.
    pub(crate) fn index(&self) -> Arc<Index> {
        let stamps = self.stamps();
        match self.index.get() {
            Some((of, index)) if of == stamps => index,
            _ => {
                let index = Arc::new(index_of(self));
                self.index.set(Some((stamps, Arc::clone(&index))));
                index
            }
        }
    }

    /// Writes objects, and updates the index if there is one. Each entry of `changed` has the identifier, the
    /// old object and the new object.
    pub(crate) fn write(&mut self, changed: Vec<(ObjectId, Option<Object>, Option<Object>)>) {
        let current = self.index.set(None).filter(|(of, _)| *of == self.stamps());
        let Some((_, mut shared)) = current else {
            for (id, _, after) in changed {
                self.put(id, after);
            }
            return;
        };
        let index = Arc::make_mut(&mut shared);
        let mut services = BTreeSet::new();
        for (id, before, after) in changed {
            replace(index, id, before.as_ref(), after.as_ref());
            services.extend(service_of(id, before.as_ref()));
            services.extend(service_of(id, after.as_ref()));
            if let ObjectId::Connection(id) = id {
                let configs = index.ends_on(id).filter_map(|end| self.configs.get(&end));
                services.extend(configs.map(|config| config.service));
            }
            self.put(id, after);
        }
        for id in services {
            renew_contracts(index, id, self);
        }
        self.index.set(Some((self.stamps(), shared)));
        // In the tests of this crate, every order checks the updated index.
        #[cfg(test)]
        assert_eq!(*self.index(), index_of(self));
    }
}

impl Draft<'_> {
    /// Returns the objects of `kept` that the draft did not change, and then all objects that it created or changed.
    fn corrected<K: Key>(&self, kept: Vec<K>) -> impl Iterator<Item = (K, &K::Object)> {
        let kept = kept
            .into_iter()
            .filter(|id| !self.changes().contains_key(&(*id).into()))
            .filter_map(|id| Some((id, id.stored(self.base())?)));
        kept.chain(self.changed::<K>())
    }

    /// Returns the ends of a service. Ends that the draft changed come last.
    pub(crate) fn ends_of(&self, service: ServiceId) -> impl Iterator<Item = (ConfigId, &Config)> {
        let kept = self.base().index().ends_of(service).collect();
        self.corrected(kept)
            .filter(move |(_, config)| config.service == service)
    }

    /// Returns the ends on a connection. Ends that the draft changed come last.
    pub(crate) fn ends_on(&self, connection: ConnectionId) -> impl Iterator<Item = (ConfigId, &Config)> {
        let index = self.base().index();
        let kept = index.ends_on(connection).collect();
        self.corrected(kept)
            .filter(move |(_, config)| config.connection == connection)
    }

    /// Returns the numbers of a pool that objects use.
    pub(crate) fn taken(&self, kind: PoolKind) -> Taken {
        let mut taken = self.base().index().taken(kind);
        let of_kind = |(other, number)| (other == kind).then_some(number);
        for (id, after) in self.changes() {
            let before = self.base().object(*id);
            let freed = before.iter().flat_map(numbers).filter_map(of_kind);
            freed.for_each(|number| taken.remove(number));
            let used = after.iter().flat_map(numbers).filter_map(of_kind);
            used.for_each(|number| taken.add(number));
        }
        taken
    }

    /// Returns the contracted rates of a service.
    pub(crate) fn contracts(&self, id: ServiceId) -> Contracts {
        let ends = self.ends_of(id).map(|(_, config)| config);
        let contracts = |service| service_contracts(service, ends, |connection| self.switch_of(connection));
        self.find(id).map(contracts).unwrap_or_default()
    }

    /// Returns the contracted rates of all services.
    pub(crate) fn total_contracts(&self) -> Contracts {
        let mut touched = BTreeSet::new();
        for (id, after) in self.changes() {
            touched.extend(service_of(*id, self.base().object(*id).as_ref()));
            touched.extend(service_of(*id, after.as_ref()));
            if let ObjectId::Connection(id) = id {
                touched.extend(self.ends_on(*id).map(|(_, config)| config.service));
            }
        }
        let index = self.base().index();
        let mut total = index.total().clone();
        for id in touched {
            adjust(&mut total, &index.contracts(id), &self.contracts(id));
        }
        total
    }

    /// Returns the switch of a connection.
    pub(crate) fn switch_of(&self, connection: ConnectionId) -> Option<SwitchId> {
        self.find(connection)?.switch()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::tests::{World, end, tag};

    #[test]
    fn an_index_is_kept_by_orders_and_made_anew_after_a_write_without_one() {
        let mut world = World::new();
        let service = world.circuit();
        for site in 0..2 {
            let (member, connection) = (world.members[site].clone(), world.connections[site][site]);
            world.apply(&member, end(service, connection, tag(None))).unwrap();
        }
        let index = world.exchange.index();
        assert_eq!(index.ends_of(service).count(), 2);
        assert!(
            Arc::ptr_eq(&index, &world.exchange.clone().index()),
            "a copy shares the index"
        );
        let end = index.ends_of(service).next().unwrap();
        world.exchange.configs.remove(&end);
        assert_eq!(*world.exchange.index(), index_of(&world.exchange));
        assert_eq!(world.exchange.ends(service).count(), 1);
        let text = serde_json::to_string(&world.exchange).unwrap();
        let again: Exchange = serde_json::from_str(&text).unwrap();
        assert_eq!(*again.index(), *world.exchange.index());
    }
}
