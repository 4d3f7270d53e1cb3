//! Failures of the database: a full disk, and an old copy of the file with switches that have newer entries.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use millrace_ix_engine::{Mode, Phase, Resolution};
use millrace_ix_model::state::CommercialState;
use millrace_ix_model::{Actor, PoolKind, ServiceId};
use millrace_ix_service::{EventKind, OrderError, OrderOptions};
use millrace_ix_store::{ChangeState, Sqlite};
use millrace_types::Duration;
use serde_json::json;

use crate::world::{World, is_marker};
use millrace_ix_service::simulation::Medium;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_full_disk_refuses_orders_with_the_reason_and_sends_nothing_that_the_journal_does_not_hold() {
    let (store, medium) = Medium::over(Sqlite::in_memory().unwrap());
    let mut world = World::with(Box::new(store));
    let (first, _) = world.circuit("first", [(0, 100), (2, 100)]);
    // The disk fills while the change is between two states.
    medium.is_full.store(true, Ordering::SeqCst);
    let commits: Vec<u32> = world.switches.values().map(|switch| switch.commits).collect();
    world.run(5 * SECOND);
    let after: Vec<u32> = world.switches.values().map(|switch| switch.commits).collect();
    assert!(
        after
            .iter()
            .zip(&commits)
            .all(|(after, before)| after - before <= 1),
        "the stage only: {after:?}"
    );
    let operations = world.circuit_operations("second", [(1, 100), (3, 100)]);
    let refused = world.try_order(&operations, &OrderOptions::default());
    assert!(
        matches!(&refused, Err(OrderError::Unavailable(reason)) if reason.contains("disk")),
        "{refused:?}"
    );
    assert!(!world.is_settled());
    let snapshot = millrace_ix_service::Snapshot::of(world.core());
    assert!(snapshot.unwritable.unwrap().contains("disk"));
    medium.is_full.store(false, Ordering::SeqCst);
    let now = world.now();
    world.core().tick(now);
    world.deliver();
    world.run(5 * SECOND);
    assert!(world.is_settled() && world.services() == [first]);
    let snapshot = millrace_ix_service::Snapshot::of(world.core());
    assert_eq!(snapshot.unwritable, None, "a write has succeeded since");
    world.try_order(&operations, &OrderOptions::default()).unwrap();
    world.run(5 * SECOND);
    assert!(world.is_settled());
}

#[test]
fn a_group_of_orders_that_cannot_be_written_leaves_everything_as_it_was() {
    let (store, medium) = Medium::over(Sqlite::in_memory().unwrap());
    let mut world = World::with(Box::new(store));
    let (service, _) = world.circuit("first", [(0, 100), (2, 100)]);
    world.run(5 * SECOND);
    let before = world.core().exchange().clone();
    let revisions = millrace_ix_service::Snapshot::of(world.core()).revisions;
    let events = world.events.len();
    let orders = |world: &World| {
        [
            (
                world.circuit_operations("second", [(1, 101), (3, 101)]),
                OrderOptions::default(),
            ),
            (
                vec![json!({"operation": "rename_service", "service": service, "name": "xy"})],
                OrderOptions::default(),
            ),
            (
                world.circuit_operations("third", [(1, 102), (3, 102)]),
                OrderOptions::default(),
            ),
        ]
    };
    medium.is_full.store(true, Ordering::SeqCst);
    let group = orders(&world);
    let refused = world.order_all(&group);
    assert!(
        refused.len() == 3
            && refused
                .iter()
                .all(|result| matches!(result, Err(OrderError::Unavailable(_)))),
        "{refused:?}"
    );
    assert_eq!(*world.core().exchange(), before);
    assert_eq!(
        millrace_ix_service::Snapshot::of(world.core()).revisions,
        revisions
    );
    let told: Vec<_> = world
        .events
        .iter()
        .skip(events)
        .map(|event| &event.kind)
        .collect();
    assert_eq!(
        told,
        [&EventKind::Mode { read_only: true }],
        "the database refuses writes"
    );
    assert!(world.is_settled());
    medium.is_full.store(false, Ordering::SeqCst);
    let done = world.order_all(&group);
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    world.run(5 * SECOND);
    assert!(world.is_settled() && world.services().len() == 3);
    let exchange = world.core().exchange().clone();
    let store = world.kill(false);
    world.start(store);
    assert_eq!(*world.core().exchange(), exchange);
}

/// Returns the numbers of a circuit.
fn numbers(world: &mut World, service: ServiceId) -> BTreeSet<(PoolKind, u32)> {
    let exchange = world.core().exchange();
    let found = &exchange.services[&service];
    let mut numbers = BTreeSet::from([(PoolKind::ServiceIndex, found.index.raw())]);
    numbers.extend(found.wire_id.map(|wire| (PoolKind::WireId, wire.raw())));
    numbers.extend(
        exchange
            .ends(service)
            .map(|(_, end)| (PoolKind::Meter, end.meter.raw())),
    );
    numbers
}

#[test]
fn yesterdays_database_deletes_nothing_before_an_operators_word() {
    for resolution in [Resolution::Adopt, Resolution::Enforce] {
        let folder = tempfile::tempdir().unwrap();
        let (today, yesterday) = (folder.path().join("today.db"), folder.path().join("yesterday.db"));
        let mut world = World::with(Box::new(Sqlite::open(&today).unwrap()));
        world.circuit("old", [(0, 100), (2, 100)]);
        world.run(3 * SECOND);
        Sqlite::open_read_only(&today)
            .unwrap()
            .back_up(&yesterday)
            .unwrap();
        let (new, _) = world.circuit("new", [(1, 100), (3, 100)]);
        world.run(3 * SECOND);
        assert!(world.is_settled());
        let new = numbers(&mut world, new);
        drop(world.kill(false));
        let contents: Vec<_> = world
            .switches
            .values()
            .map(|switch| switch.content.clone())
            .collect();
        let commits: Vec<u32> = world.switches.values().map(|switch| switch.commits).collect();
        world.start(Box::new(Sqlite::open(&yesterday).unwrap()));
        world.run(200 * SECOND);
        assert!(matches!(world.core().engine().mode(), Mode::ReadOnly { .. }));
        assert_eq!(
            world
                .switches
                .values()
                .map(|switch| switch.content.clone())
                .collect::<Vec<_>>(),
            contents
        );
        // The ends are in the other order: the first meter is at the other switch.
        let operations = world.circuit_operations("another", [(3, 200), (1, 200)]);
        let refused = world.try_order(&operations, &OrderOptions::default());
        assert!(
            matches!(&refused, Err(OrderError::ReadOnly(reason)) if reason.contains("adopt")),
            "{refused:?}"
        );
        let now = world.now();
        world.core().resolve(resolution, &Actor::system(), now).unwrap();
        world.deliver();
        world.run(3 * SECOND);
        let is_deleted = world
            .switches
            .values()
            .zip(&contents)
            .any(|(switch, before)| before.keys().any(|key| !switch.content.contains_key(key)));
        assert_eq!(is_deleted, resolution == Resolution::Enforce);
        assert_eq!(world.is_settled(), resolution == Resolution::Enforce);
        // The exchange accepts orders again, and asks no question after a restart.
        let another = world.try_order(&operations, &OrderOptions::default()).unwrap();
        let another = numbers(&mut world, another.applied.first().unwrap());
        assert!(another.is_disjoint(&new), "{resolution:?}");
        world.run(3 * SECOND);
        let store = world.kill(false);
        world.start(store);
        world.run(3 * SECOND);
        assert_eq!(world.core().engine().mode(), Mode::Normal);
        if resolution == Resolution::Adopt {
            for (switch, kept) in world.switches.values().zip(&contents) {
                let is_kept = |(key, entry)| is_marker(key) || switch.content.get(key) == Some(entry);
                assert!(kept.iter().all(is_kept), "an adopted path has changed");
            }
            assert!(!world.numbers_in_switches().is_empty());
            // A later decision for the database removes the path, and its numbers are free after their rest.
            let now = world.now();
            world
                .core()
                .resolve(Resolution::Enforce, &Actor::system(), now)
                .unwrap();
            world.deliver();
            world.run(3 * SECOND);
            assert!(world.is_settled());
            assert_eq!(world.numbers_in_switches(), [""; 0]);
        }
        let now = world.now();
        let again = world.core().resolve(Resolution::Enforce, &Actor::system(), now);
        assert!(matches!(again, Err(OrderError::Refused(_))), "{again:?}");
        assert!(
            world
                .switches
                .values()
                .zip(commits)
                .all(|(switch, before)| switch.commits > before)
        );
    }
}

#[test]
fn a_service_is_in_place_although_a_later_change_of_it_is_refused() {
    let mut world = World::new();
    let (service, ordered) = world.circuit("first", [(0, 100), (2, 100)]);
    let end = *world.core().exchange().configs.keys().next().unwrap();
    let connection = world.connections()[1];
    let moved = world.order(&[
        json!({"operation": "move_end", "config": end, "connection": connection,
        "vlan": {"type": "dot1q", "vlan": 100}}),
    ]);
    let until = world.time + 5 * SECOND;
    let is_open = |world: &mut World, id| {
        world
            .core()
            .engine()
            .changes()
            .any(|change| Some(change.change) == id)
    };
    while is_open(&mut world, ordered.change) {
        assert!(world.step(until));
    }
    // The first change is complete, and the second one is refused.
    assert!(is_open(&mut world, moved.change));
    world
        .switches
        .values_mut()
        .for_each(|switch| switch.is_full = true);
    world.run(3 * SECOND);
    world
        .switches
        .values_mut()
        .for_each(|switch| switch.is_full = false);
    world.run(3 * SECOND);
    let records = world.core().store().changes(u64::MAX, 10).unwrap();
    let refused = records
        .iter()
        .find(|record| Some(record.id) == moved.change)
        .unwrap();
    assert_eq!(refused.state, ChangeState::RolledBack);
    assert!(world.is_settled());
    let state = world.core().exchange().services[&service].state;
    assert_eq!(state, CommercialState::Production);
}

#[test]
fn two_changes_of_one_object_are_undone_together() {
    let mut world = World::new();
    let (service, _) = world.circuit("first", [(0, 100), (2, 100)]);
    world.run(3 * SECOND);
    let before = world.core().exchange().services[&service].clone();
    let end = *world.core().exchange().configs.keys().next().unwrap();
    world
        .switches
        .values_mut()
        .for_each(|switch| switch.is_full = true);
    for (connection, vlan) in [(1, 100), (0, 101)] {
        let connection = world.connections()[connection];
        world.order(&[
            json!({"operation": "move_end", "config": end, "connection": connection,
            "vlan": {"type": "dot1q", "vlan": vlan}}),
        ]);
    }
    world.run(3 * SECOND);
    assert!(world.is_settled());
    assert_eq!(world.core().exchange().services[&service], before);
    let records = world.core().store().changes(u64::MAX, 2).unwrap();
    assert!(
        records
            .iter()
            .all(|record| record.state == ChangeState::RolledBack),
        "{records:?}"
    );
}

#[test]
fn a_new_circuit_is_rolled_back_if_a_switch_has_no_room_for_its_last_entries() {
    let mut world = World::new();
    let (kept, _) = world.circuit("first", [(0, 100), (2, 100)]);
    world.run(3 * SECOND);
    assert!(world.is_settled());
    let before = world.core().exchange().clone();
    let (_, ordered) = world.circuit("second", [(1, 100), (3, 100)]);
    let is_staged = |world: &mut World| {
        let mut changes = world.core().engine().changes();
        changes.any(|change| Some(change.change) == ordered.change && change.phase == Phase::Staged)
    };
    let until = world.time + 10 * SECOND;
    while !is_staged(&mut world) {
        assert!(world.step(until));
    }
    // Both switches have the entries that no frame reaches yet; one has no room for the ingress entries.
    world.switches.values_mut().next_back().unwrap().is_full = true;
    world.run(5 * SECOND);
    let records = world.core().store().changes(u64::MAX, 1).unwrap();
    assert_eq!(records[0].state, ChangeState::RolledBack, "{records:?}");
    let journal = world.core().store().journal(records[0].id).unwrap();
    assert!(
        journal.last().unwrap().detail["reason"]
            .as_str()
            .unwrap()
            .contains("TABLE_FULL"),
        "{journal:?}"
    );
    assert!(world.is_settled());
    assert_eq!(world.core().exchange().services, before.services);
    assert_eq!(world.services(), [kept]);
}
