//! Changes that are undone unless somebody confirms them in time.

use std::collections::BTreeSet;
use std::time::Duration as StdDuration;

use millrace_ix_model::{Actor, Role, TrunkId};
use millrace_ix_service::{EventKind, OrderError, OrderOptions};
use millrace_types::Duration;
use serde_json::{Value, json};

use crate::world::World;

const SECOND: Duration = Duration::from_secs(1);

fn within(secs: u64) -> OrderOptions {
    OrderOptions {
        confirm_within: Some(StdDuration::from_secs(secs)),
        ..OrderOptions::default()
    }
}

/// Returns a world with a second trunk, and a circuit over the first one.
fn two_trunks() -> (World, TrunkId) {
    let mut world = World::new();
    let ids: Vec<_> = world.core().exchange().switches.keys().copied().collect();
    let ports = json!([1, 2, 100, 101].map(|number| json!({"number": number, "speed_mbps": 10000})));
    world.order(&[
        json!({"operation": "set_ports", "switch": ids[0], "ports": ports}),
        json!({"operation": "set_ports", "switch": ids[1], "ports": ports}),
    ]);
    world.order(&[json!({
        "operation": "create_trunk", "name": "t2", "kind": "vxlan", "ends": [format!("{}:101", ids[0]), format!("{}:101", ids[1])],
        "cost": 20, "capacity_mbps": 10000, "mtu": 1700,
    })]);
    let operations = world.circuit_operations("c", [(0, 10), (2, 10)]);
    world.order(&operations);
    world.run(2 * SECOND);
    assert!(world.is_settled());
    let trunk = *world.core().exchange().trunks.keys().next().unwrap();
    (world, trunk)
}

fn drain(trunk: TrunkId, drained: bool) -> Value {
    json!({"operation": "drain_trunk", "trunk": trunk, "drained": drained})
}

/// Runs for some seconds, and handles expired validity times after each.
fn run(world: &mut World, secs: u32) {
    for _ in 0..secs {
        world.run(SECOND);
        let now = world.now();
        world.core().expire(now);
        world.deliver();
    }
    world.run(SECOND / 2);
}

fn is_drained(world: &mut World, trunk: TrunkId) -> bool {
    world.core().exchange().trunks[&trunk].drained
}

fn reasons(world: &mut World, change: u64) -> Vec<String> {
    let journal = world.core().store().journal(change).unwrap();
    let reasons = journal
        .iter()
        .filter_map(|record| record.detail["reason"].as_str());
    reasons.map(str::to_owned).collect()
}

#[test]
fn a_drain_that_nobody_confirms_is_undone_at_its_time() {
    let (mut world, trunk) = two_trunks();
    let before = world.core().plan();
    let change = world
        .try_order(&[drain(trunk, true)], &within(60))
        .unwrap()
        .change
        .unwrap();
    run(&mut world, 58);
    assert!(is_drained(&mut world, trunk) && world.is_settled());
    assert!(world.core().plan() != before, "the drain moves the circuit");
    run(&mut world, 3);
    assert!(!is_drained(&mut world, trunk) && world.is_settled());
    assert!(world.core().plan() == before, "the circuit is where it was");
    let told = world.events.iter().any(|event| {
        matches!(&event.kind, EventKind::Notice { text, change: Some(about), .. }
            if *about == change && text.contains("not confirmed in time"))
    });
    assert!(told, "those who listen are told");
    assert_eq!(
        reasons(&mut world, change),
        [format!("system has undone it by change {}", change + 1)]
    );
    let audit = world.core().store().audit(0, 1000).unwrap();
    assert_eq!(audit.last().unwrap().body["action"], "revert");
    // No order is undone twice.
    let newest = world.core().store().changes(u64::MAX >> 1, 1).unwrap()[0].id;
    run(&mut world, 120);
    assert_eq!(
        world.core().store().changes(u64::MAX >> 1, 1).unwrap()[0].id,
        newest
    );
}

#[test]
fn a_confirmed_change_stays_and_one_that_is_undone_by_hand_goes_at_once() {
    let (mut world, trunk) = two_trunks();
    let change = world
        .try_order(&[drain(trunk, true)], &within(60))
        .unwrap()
        .change
        .unwrap();
    run(&mut world, 10);
    let now = world.now();
    world.core().confirm(change, &Actor::system(), now).unwrap();
    run(&mut world, 120);
    assert!(is_drained(&mut world, trunk) && world.is_settled());
    assert_eq!(reasons(&mut world, change), ["system has confirmed it"]);
    let now = world.now();
    let again = world.core().confirm(change, &Actor::system(), now).unwrap_err();
    assert!(again.to_string().contains("does not wait"), "{again}");
    let back = world
        .try_order(&[drain(trunk, false)], &within(60))
        .unwrap()
        .change
        .unwrap();
    let now = world.now();
    world.core().revert(back, &Actor::system(), now).unwrap();
    assert!(is_drained(&mut world, trunk), "it is as before the order");
    run(&mut world, 120);
    assert!(is_drained(&mut world, trunk) && world.is_settled());
}

#[test]
fn a_restart_of_the_engine_forgets_no_confirmation() {
    let (mut world, trunk) = two_trunks();
    world.try_order(&[drain(trunk, true)], &within(60)).unwrap();
    run(&mut world, 5);
    let store = world.kill(true);
    world.start(store);
    run(&mut world, 40);
    assert!(is_drained(&mut world, trunk));
    let store = world.kill(true);
    // The time passes while no engine runs.
    world.time = world.time + 60 * SECOND;
    world.start(store);
    assert!(is_drained(&mut world, trunk));
    run(&mut world, 3);
    assert!(!is_drained(&mut world, trunk) && world.is_settled());
}

#[test]
fn nobody_else_changes_the_objects_of_a_change_that_waits() {
    let (mut world, trunk) = two_trunks();
    let change = world
        .try_order(&[drain(trunk, true)], &within(60))
        .unwrap()
        .change
        .unwrap();
    let error = world
        .try_order(&[drain(trunk, false)], &OrderOptions::default())
        .unwrap_err();
    assert!(error.to_string().contains(&format!("change {change}")), "{error}");
    let operations = world.circuit_operations("d", [(1, 20), (3, 20)]);
    world.order(&operations);
    let member = Actor {
        user: None,
        account: world.core().exchange().accounts.keys().next().copied(),
        roles: BTreeSet::from([Role::MemberAdmin]),
        proven_asns: BTreeSet::new(),
    };
    let now = world.now();
    assert!(
        world.core().confirm(change, &member, now).is_err(),
        "a member decides about no trunk"
    );
    assert!(world.core().revert(change, &member, now).is_err());
    world.core().confirm(change, &Actor::system(), now).unwrap();
    world.order(&[drain(trunk, false)]);
}

#[test]
fn only_what_can_be_undone_at_any_time_waits_for_a_confirmation() {
    let (mut world, trunk) = two_trunks();
    let config = *world.core().exchange().configs.keys().next().unwrap();
    let refused = |world: &mut World, operations: &[Value], secs: u64| {
        let error = world.try_order(operations, &within(secs)).unwrap_err();
        match error {
            OrderError::Refused(refusal) => assert_eq!(refusal.field.as_deref(), Some("confirm_within")),
            other => panic!("{other}"),
        }
    };
    let site = json!({"operation": "create_site", "name": "X"});
    refused(&mut world, &[site], 60);
    refused(
        &mut world,
        &[json!({"operation": "set_rate", "config": config, "capacity_mbps": 5})],
        60,
    );
    refused(&mut world, &[drain(trunk, true)], 0);
    refused(&mut world, &[drain(trunk, true)], 86_401);
    refused(&mut world, &[drain(trunk, true), drain(trunk, false)], 60);
    let shut = json!({"operation": "shut_down", "config": config, "shut_down": true});
    world.try_order(&[shut], &within(5)).unwrap();
    run(&mut world, 8);
    assert!(!world.core().exchange().configs[&config].shut_down && world.is_settled());
}
