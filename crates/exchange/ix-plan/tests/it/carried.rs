//! The numbers that are read back from a plan are those of the exchange.

use std::collections::BTreeSet;

use millrace_ix_model::{Exchange, PoolKind};
use millrace_ix_plan::{Carried, Settings, plan};

use crate::lan_world::lan;
use crate::world::{NOW, random_circuits};

/// Returns the numbers of all objects.
fn allocated(exchange: &Exchange) -> BTreeSet<(PoolKind, u32)> {
    let mut numbers = BTreeSet::new();
    for service in exchange.services.values() {
        numbers.insert((PoolKind::ServiceIndex, service.index.raw()));
        numbers.extend(service.wire_id.map(|wire| (PoolKind::WireId, wire.raw())));
    }
    for config in exchange.configs.values() {
        numbers.insert((PoolKind::ConnectionIndex, config.index.raw()));
        numbers.insert((PoolKind::Meter, config.meter.raw()));
        numbers.extend(config.group.map(|group| (PoolKind::Group, group.raw())));
    }
    let groups = exchange.connections.values().filter_map(|found| found.group);
    let groups = groups.chain(exchange.switches.values().map(|switch| switch.group));
    numbers.extend(groups.map(|group| (PoolKind::Group, group.raw())));
    numbers
}

#[test]
fn all_numbers_of_an_exchange_and_no_others_are_read_back_from_its_entries() {
    let settings = Settings {
        now: NOW,
        extensions: false,
    };
    for seed in 0..40 {
        let is_circuits = seed % 2 == 0;
        let exchange = if is_circuits {
            random_circuits(seed, None).exchange
        } else {
            lan(seed, 8, None, 50).0.exchange
        };
        let mut carried = Carried::default();
        let plan = plan(&exchange, &settings);
        for (id, entry) in plan.switches.values().flatten() {
            carried.add(id, entry);
        }
        let allocated = allocated(&exchange);
        let phantoms: Vec<_> = carried.numbers.difference(&allocated).collect();
        assert!(phantoms.is_empty(), "{seed}: {phantoms:?}");
        // A service with one end, a switch without trunks and an end without a rate have numbers that no entry needs.
        for service in exchange
            .services
            .iter()
            .filter(|(id, _)| exchange.ends(**id).count() > 1)
        {
            let (id, service) = service;
            assert!(
                carried
                    .numbers
                    .contains(&(PoolKind::ServiceIndex, service.index.raw())),
                "{seed}"
            );
            if let Some(wire) = service.wire_id {
                assert!(
                    carried.numbers.contains(&(PoolKind::WireId, wire.raw())),
                    "{seed}"
                );
            }
            for (config, end) in exchange.ends(*id) {
                assert!(
                    carried
                        .numbers
                        .contains(&(PoolKind::ConnectionIndex, end.index.raw())),
                    "{seed}"
                );
                assert!(carried.last_id >= config.0);
            }
        }
        assert!(carried.last_id <= exchange.last_id);
    }
}
