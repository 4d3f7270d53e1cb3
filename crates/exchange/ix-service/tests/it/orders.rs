//! Single orders: states of services, revisions, refusals, stale readers, a refusing switch, a full disk.

use millrace_ix_model::state::CommercialState;
use millrace_ix_service::{EventKind, OrderError, OrderOptions, Snapshot};
use millrace_ix_store::{ChangeState, Revision};
use millrace_types::Duration;
use serde_json::json;

use crate::world::World;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_circuit_over_two_sites_comes_into_production_and_goes_again() {
    let mut world = World::new();
    let empty: Vec<usize> = world
        .switches
        .values()
        .map(|switch| switch.content.len())
        .collect();
    let (service, ordered) = world.circuit("ab", [(0, 100), (2, 200)]);
    assert_eq!(ordered.entries.len(), 2, "entries at both sites");
    world.run(SECOND);
    assert!(world.is_settled());
    let snapshot = Snapshot::of(world.core());
    assert_eq!(
        snapshot.shown(service).unwrap().state,
        CommercialState::Production
    );
    let journal: Vec<_> = world.core().store().journal(ordered.change.unwrap()).unwrap();
    let states: Vec<_> = journal.iter().map(|record| record.state).collect();
    let all = [
        ChangeState::Accepted,
        ChangeState::Planned,
        ChangeState::Staged,
        ChangeState::Flipped,
        ChangeState::Drained,
        ChangeState::Cleaned,
    ];
    assert_eq!(states, all);
    world.delete(service);
    world.run(SECOND);
    assert!(world.is_settled() && world.services().is_empty());
    let after: Vec<usize> = world
        .switches
        .values()
        .map(|switch| switch.content.len())
        .collect();
    assert!(
        after
            .iter()
            .zip(empty)
            .all(|(after, before)| *after <= before + 1),
        "only the marker is new"
    );
    assert!(world.numbers_in_switches().is_empty());
}

#[test]
fn a_change_of_rate_touches_only_its_own_meter() {
    let mut world = World::new();
    let (_, _) = world.circuit("ab", [(0, 100), (2, 200)]);
    world.circuit("cd", [(1, 100), (3, 200)]);
    world.run(SECOND);
    let writes: u32 = world
        .switches
        .values()
        .flat_map(|switch| switch.writes.values())
        .sum();
    let config = *world.core().exchange().configs.keys().next().unwrap();
    world.order(&[json!({"operation": "set_rate", "config": config, "capacity_mbps": 300})]);
    world.run(SECOND);
    assert!(world.is_settled());
    let after: u32 = world
        .switches
        .values()
        .flat_map(|switch| switch.writes.values())
        .sum();
    assert!(
        after - writes <= 2,
        "the meter and the marker: {}",
        after - writes
    );
}

#[test]
fn a_reader_with_an_old_revision_is_refused() {
    let mut world = World::new();
    let (service, ordered) = world.circuit("ab", [(0, 100), (2, 200)]);
    world.run(SECOND);
    let rename = [json!({"operation": "rename_service", "service": service, "name": "xy"})];
    let options = |revision| OrderOptions {
        if_match: Some((service.into(), revision)),
        ..OrderOptions::default()
    };
    // The report that the service is in production has changed its revision in the meantime.
    let refused = world.try_order(&rename, &options(ordered.revision));
    let Err(OrderError::Stale {
        found: Some(found), ..
    }) = refused
    else {
        panic!("{refused:?}")
    };
    world.try_order(&rename, &options(found)).unwrap();
    assert!(matches!(
        world.try_order(&rename, &options(Revision(1))),
        Err(OrderError::Stale { .. })
    ));
}

#[test]
fn a_dry_run_tells_the_entries_and_changes_nothing() {
    let mut world = World::new();
    let operations = world.circuit_operations("ab", [(0, 100), (2, 200)]);
    let before = world.core().exchange().clone();
    let dry = world
        .try_order(
            &operations,
            &OrderOptions {
                dry_run: true,
                ..OrderOptions::default()
            },
        )
        .unwrap();
    assert!(dry.change.is_none() && dry.entries.values().all(|counts| counts.added > 0));
    assert_eq!(*world.core().exchange(), before);
    let (_, real) = world.circuit("ab", [(0, 100), (2, 200)]);
    assert_eq!(
        (real.entries, real.applied.created.len()),
        (dry.entries, dry.applied.created.len())
    );
}

#[test]
fn an_order_that_fails_at_its_last_operation_leaves_nothing() {
    let mut world = World::new();
    let before = world.core().exchange().clone();
    let mut operations = world.circuit_operations("ab", [(0, 100), (2, 200)]);
    operations.push(json!({"operation": "create_site", "name": "Otemachi"}));
    assert!(matches!(
        world.try_order(&operations, &OrderOptions::default()),
        Err(OrderError::Refused(_))
    ));
    assert_eq!(*world.core().exchange(), before);
}

#[test]
fn a_change_that_a_switch_refuses_is_undone_and_its_numbers_are_used_again() {
    let mut world = World::new();
    let id = *world.switches.keys().next().unwrap();
    world.switches.get_mut(&id).unwrap().is_full = true;
    let (_, ordered) = world.circuit("ab", [(0, 100), (2, 200)]);
    world.run(2 * SECOND);
    let change = ordered.change.unwrap();
    let journal = world.core().store().journal(change).unwrap();
    let last = journal.last().unwrap();
    assert_eq!(last.state, ChangeState::RolledBack);
    assert!(
        last.detail["reason"]
            .as_str()
            .unwrap()
            .contains("OFPFMFC_TABLE_FULL")
    );
    assert!(world.services().is_empty() && world.is_settled());
    assert!(world.numbers_in_switches().is_empty());
    world.switches.get_mut(&id).unwrap().is_full = false;
    world.run(61 * SECOND);
    let (service, _) = world.circuit("ab", [(0, 100), (2, 200)]);
    world.run(SECOND);
    assert!(world.is_settled());
    let wire = world.core().exchange().services[&service].wire_id.unwrap().raw();
    assert_eq!(wire, 4096, "the number of the undone change");
}

#[test]
fn a_move_that_finds_a_full_table_is_undone_and_the_circuit_forwards_as_before() {
    let mut world = World::new();
    let (service, _) = world.circuit("ab", [(0, 100), (2, 200)]);
    world.run(3 * SECOND);
    let before = world.core().exchange().clone();
    // The circuit forwards already: the move replaces entries at both ends.
    let end = before.ends(service).next().unwrap().0;
    let connection = world.connections()[1];
    let moved = [
        json!({"operation": "move_end", "config": end, "connection": connection,
            "vlan": {"type": "dot1q", "vlan": 300}}),
    ];
    let change = world.order(&moved).change.unwrap();
    let journal = |world: &mut World| world.core().store().journal(change).unwrap();
    while journal(&mut world).last().unwrap().state != ChangeState::Staged {
        let until = world.time + SECOND;
        assert!(world.step(until));
    }
    // The move adds entries at the switch of the moved end, and changes one at the other.
    let switch = *world.switches.keys().next().unwrap();
    world.switches.get_mut(&switch).unwrap().is_full = true;
    world.run(3 * SECOND);
    let last = journal(&mut world).pop().unwrap();
    assert_eq!(last.state, ChangeState::RolledBack);
    let reason = last.detail["reason"].as_str().unwrap();
    assert!(reason.contains("OFPFMFC_TABLE_FULL"), "{reason}");
    let after = world.core().exchange().clone();
    assert_eq!(after.configs[&end].connection, before.configs[&end].connection);
    assert_eq!(after.configs[&end].vlan, before.configs[&end].vlan);
    let snapshot = Snapshot::of(world.core());
    assert_eq!(
        snapshot.shown(service).unwrap().state,
        CommercialState::Production
    );
    assert!(world.is_settled() && snapshot.stuck.is_empty());
    // With room, the same order succeeds.
    world.switches.get_mut(&switch).unwrap().is_full = false;
    let again = world.order(&moved).change.unwrap();
    world.run(3 * SECOND);
    let last = world.core().store().journal(again).unwrap().pop().unwrap();
    assert_eq!(last.state, ChangeState::Cleaned);
    assert!(world.is_settled());
}

#[test]
fn a_deaf_switch_delays_only_the_circuits_that_end_there() {
    let mut world = World::new();
    let id = *world.switches.keys().nth(1).unwrap();
    world.switches.get_mut(&id).unwrap().is_deaf = true;
    let (across, _) = world.circuit("ab", [(0, 100), (2, 200)]);
    let (local, _) = world.circuit("cd", [(0, 101), (1, 201)]);
    world.run(2 * SECOND);
    let snapshot = Snapshot::of(world.core());
    assert_eq!(snapshot.shown(local).unwrap().state, CommercialState::Production);
    let shown = snapshot.shown(across).unwrap();
    assert_eq!(
        (shown.state, shown.status[0].tag),
        (CommercialState::Allocated, "installing")
    );
    world.switches.get_mut(&id).unwrap().is_deaf = false;
    world.run(2 * SECOND);
    assert!(world.is_settled());
}

#[test]
fn the_events_of_an_object_that_is_gone_have_the_exchange_that_had_it() {
    let mut world = World::new();
    let (service, _) = world.circuit("first", [(0, 100), (2, 100)]);
    world.run(Duration::from_secs(3));
    world.delete(service);
    world.events.clear();
    world.run(Duration::from_secs(3));
    assert!(world.services().is_empty());
    let of_service = world.events.iter().filter(|event| match &event.kind {
        EventKind::Object { id, deleted, .. } => *deleted && *id == service.into(),
        EventKind::Change { state, objects, .. } => {
            *state == ChangeState::Cleaned && objects.contains(&service.into())
        }
        _ => false,
    });
    let of_service: Vec<_> = of_service.collect();
    assert_eq!(of_service.len(), 2);
    assert!(
        of_service
            .iter()
            .all(|event| event.before.services.contains_key(&service))
    );
}
