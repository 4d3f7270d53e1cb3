//! Begin and end of validity: entries are added and removed at these times, without an order.

use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use millrace_ix_model::{Actor, FilterState};
use millrace_ix_service::{Core, Now, OrderOptions, Service, Settings};
use millrace_ix_store::{Sqlite, UnixMillis};
use millrace_types::{Duration, Time};
use serde_json::json;

use crate::world::{World, operation};

const SECOND: Duration = Duration::from_secs(1);

fn entries_with(world: &World, text: &str) -> usize {
    let contents = world.switches.values().flat_map(|switch| &switch.content);
    contents
        .filter(|entry| format!("{entry:?}").contains(text))
        .count()
}

#[test]
fn a_mac_address_comes_and_goes_at_its_time() {
    let mut world = World::lan();
    let config = *world.core().exchange().configs.keys().next().unwrap();
    let at = |world: &World, secs: u64| {
        millrace_ix_model::Timestamp::from_millis(world.now().wall.0 + secs * 1000)
    };
    let (from, until) = (at(&world, 10), at(&world, 20));
    world.order(&[
        json!({"operation": "add_mac", "config": config, "address": "02:00:00:00:00:77",
        "valid_from": from, "valid_until": until}),
    ]);
    // The entries of switches contain the address as a decimal number.
    let address = format!("{}", 0x0200_0000_0077_u64);
    world.run_and_expire(3);
    assert_eq!(entries_with(&world, &address), 0, "before its time");
    world.run_and_expire(10);
    assert!(
        world.is_settled() && entries_with(&world, &address) > 0,
        "in its time"
    );
    world.run_and_expire(12);
    assert!(
        world.is_settled() && entries_with(&world, &address) == 0,
        "after its time"
    );
    assert!(world.core().exchange().macs.is_empty());
    assert!(
        world
            .core()
            .store()
            .audit(0, 100)
            .unwrap()
            .iter()
            .any(|record| record.body["action"] == "expire")
    );
}

#[test]
fn a_restart_after_the_end_of_an_address_removes_its_entries() {
    let mut world = World::lan();
    let config = *world.core().exchange().configs.keys().next().unwrap();
    let until = millrace_ix_model::Timestamp::from_millis(world.now().wall.0 + 5000);
    world.order(&[json!({"operation": "add_mac", "config": config, "address": "02:00:00:00:00:78", "valid_until": until})]);
    world.run(2 * SECOND);
    let address = format!("{}", 0x0200_0000_0078_u64);
    assert!(entries_with(&world, &address) > 0);
    let store = world.kill(false);
    world.time = world.time + 20 * SECOND;
    world.start(store);
    world.run_and_expire(3);
    assert!(world.is_settled() && entries_with(&world, &address) == 0);
}

#[test]
fn an_engine_whose_clock_is_two_days_behind_keeps_the_addresses_of_a_lan() {
    let mut world = World::lan();
    let ends: Vec<_> = world.core().exchange().configs.keys().copied().collect();
    let until = millrace_ix_model::Timestamp::from_millis(world.now().wall.0 + 3_600_000);
    world.order(&[
        json!({"operation": "add_mac", "config": ends[0], "address": "02:00:00:00:00:79"}),
        json!({"operation": "add_mac", "config": ends[1], "address": "02:00:00:00:00:7a", "valid_until": until}),
        json!({"operation": "add_ip", "config": ends[0], "address": "192.0.2.1"}),
    ]);
    world.run(2 * SECOND);
    assert!(world.is_settled());
    let before: Vec<_> = world
        .switches
        .values()
        .map(|switch| switch.content.clone())
        .collect();
    let store = world.kill(false);
    world.behind = 2 * 86_400_000;
    world.start(store);
    world.run_and_expire(3);
    assert!(world.is_settled());
    let after: Vec<_> = world
        .switches
        .values()
        .map(|switch| switch.content.clone())
        .collect();
    let markerless = |contents: &[millrace_ix_engine::Content<millrace_ix_service::Fabric>]| -> Vec<Vec<_>> {
        let keys = |content: &millrace_ix_engine::Content<millrace_ix_service::Fabric>| {
            content
                .keys()
                .filter(|key| !crate::world::is_marker(key))
                .cloned()
                .collect()
        };
        contents.iter().map(keys).collect()
    };
    assert_eq!(markerless(&after), markerless(&before));
}

#[test]
fn a_start_behind_the_database_is_said_and_ends_the_filters_whose_time_is_over() {
    let system = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let ahead = 2 * 86_400_000;
    let wall = |millis: u64| UnixMillis(system.as_millis() as u64 + ahead + millis);
    let now = |millis: u64| Now {
        time: Time::from_nanos(millis * 1_000_000),
        wall: wall(millis),
    };
    // Yesterday's engine had the right time; today's starts before NTP.
    let store = Box::new(Sqlite::in_memory().unwrap());
    let mut core = Core::start(store, millrace_ix_engine::Settings::default(), false, now(0)).unwrap();
    let filter = |destination: &str, until: u64| {
        json!({"operation": "create_filter", "account": "ac-0", "matching": {"destination": destination},
            "action": {"type": "drop"}, "origin": "page", "state": {"name": "active"},
            "valid_until": millrace_ix_model::Timestamp::from_millis(wall(until).0)})
    };
    let operations = [
        json!({"operation": "create_account", "name": "A", "kind": "member"}),
        filter("203.0.113.7/32", 1_000),
        filter("203.0.113.8/32", 3_600_000),
    ];
    let operations = operations.into_iter().map(operation).collect();
    core.order(operations, &Actor::system(), &OrderOptions::default(), now(0))
        .unwrap();
    core.store_mut().prune(wall(5_000)).unwrap();
    let mut store = core.into_store();
    assert_eq!(store.newest_time().unwrap(), wall(5_000));
    store.prune(wall(0)).unwrap();
    assert_eq!(
        store.newest_time().unwrap(),
        wall(5_000),
        "the newest time never goes back"
    );
    let settings = Settings {
        engine: millrace_ix_engine::Settings::default(),
        extensions: false,
        audit_key: None,
    };
    let service = Service::start(store, settings, drop).unwrap();
    let handle = service.handle();
    assert!(handle.now().millis() >= wall(5_000).0);
    let states = || -> Vec<FilterState> {
        let snapshot = handle.snapshot();
        snapshot
            .exchange
            .filters
            .values()
            .map(|filter| filter.state.clone())
            .collect()
    };
    let deadline = Instant::now() + std::time::Duration::from_secs(60);
    while states() != [FilterState::Expired, FilterState::Active] {
        assert!(Instant::now() < deadline, "{:?}", states());
        std::thread::yield_now();
    }
    let clock = handle.clock();
    assert_eq!(clock.jumps.len(), 1);
    assert!(clock.jumps[0].is_start && clock.jumps[0].millis <= -(ahead as i64));
    assert!(clock.ahead_millis > ahead - 60_000);
    service.stop();
}

#[test]
fn entries_that_are_over_leave_the_switches_while_the_database_cannot_be_written() {
    let (store, medium) = millrace_ix_service::simulation::Medium::over(Sqlite::in_memory().unwrap());
    let mut world = World::lan_with(Box::new(store));
    let config = *world.core().exchange().configs.keys().next().unwrap();
    let until = millrace_ix_model::Timestamp::from_millis(world.now().wall.0 + 10_000);
    world.order(&[json!({"operation": "add_mac", "config": config, "address": "02:00:00:00:00:77", "valid_until": until})]);
    world.run_and_expire(3);
    let address = format!("{}", 0x0200_0000_0077_u64);
    assert!(
        world.is_settled() && entries_with(&world, &address) > 0,
        "in its time"
    );
    medium.is_full.store(true, Ordering::SeqCst);
    world.run_and_expire(5);
    assert!(entries_with(&world, &address) > 0, "it is not over yet");
    world.run_and_expire(8);
    assert_eq!(entries_with(&world, &address), 0, "after its time");
    assert!(
        !world.core().exchange().macs.is_empty(),
        "the object waits for the database"
    );
    // A reconciliation does not bring it back.
    world.run_and_expire(70);
    assert_eq!(entries_with(&world, &address), 0);
    medium.is_full.store(false, Ordering::SeqCst);
    world.run_and_expire(5);
    assert!(world.is_settled() && world.core().exchange().macs.is_empty());
    assert_eq!(entries_with(&world, &address), 0);
}
