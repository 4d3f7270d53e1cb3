//! Begin and end of validity: entries are added and removed at these times, without an order.

use millrace_types::Duration;
use serde_json::json;

use crate::world::World;

const SECOND: Duration = Duration::from_secs(1);

/// Returns a world with a peering LAN that has an end at each site.
fn lan() -> World {
    let mut world = World::new();
    let policy = json!({"name": "lan", "ethertypes": [0x0800, 0x0806, 0x86dd], "macs_max": 4, "broadcast_pps": 100,
        "multicast_pps": 100, "arp": "unicast", "quarantine_secs": 0});
    let created = world.order(&[json!({"operation": "create_policy", "policy": policy})]);
    let policy = created.applied.created[0];
    let account = *world.core().exchange().accounts.keys().next().unwrap();
    let connections = world.connections();
    let end = |connection: usize, vlan: u16| {
        json!({"operation": "configure_end", "service": "sv-0", "connection": connections[connection],
            "vlan": {"type": "dot1q", "vlan": vlan}})
    };
    world.order(&[
        json!({"operation": "create_service", "account": account, "kind": "exchange_lan", "name": "lan", "policy": policy,
            "networks": ["192.0.2.0/24"]}),
        end(0, 10),
        end(2, 10),
    ]);
    let waive = |config| json!({"operation": "waive_quarantine", "config": config, "reason": "a test"});
    let ends: Vec<_> = world.core().exchange().configs.keys().map(waive).collect();
    world.order(&ends);
    world.run(2 * SECOND);
    assert!(world.is_settled());
    world
}

/// Runs for some seconds, and handles expired validity times after each.
fn run(world: &mut World, secs: u32) {
    for _ in 0..secs {
        world.run(SECOND);
        let now = world.now();
        world.core().expire(now);
        world.deliver();
    }
    world.run(SECOND);
}

fn entries_with(world: &World, text: &str) -> usize {
    let contents = world.switches.values().flat_map(|switch| &switch.content);
    contents
        .filter(|entry| format!("{entry:?}").contains(text))
        .count()
}

#[test]
fn a_mac_address_comes_and_goes_at_its_time() {
    let mut world = lan();
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
    run(&mut world, 3);
    assert_eq!(entries_with(&world, &address), 0, "before its time");
    run(&mut world, 10);
    assert!(
        world.is_settled() && entries_with(&world, &address) > 0,
        "in its time"
    );
    run(&mut world, 12);
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
    let mut world = lan();
    let config = *world.core().exchange().configs.keys().next().unwrap();
    let until = millrace_ix_model::Timestamp::from_millis(world.now().wall.0 + 5000);
    world.order(&[json!({"operation": "add_mac", "config": config, "address": "02:00:00:00:00:78", "valid_until": until})]);
    world.run(2 * SECOND);
    let address = format!("{}", 0x0200_0000_0078_u64);
    assert!(entries_with(&world, &address) > 0);
    let store = world.kill(false);
    world.time = world.time + 20 * SECOND;
    world.start(store);
    run(&mut world, 3);
    assert!(world.is_settled() && entries_with(&world, &address) == 0);
}
