//! Announcements of new MAC addresses to the other members of a peering LAN: after the switches admit their frames, never
//! before.

use millrace_ix_model::{ConfigId, SwitchId, Timestamp};
use serde_json::json;

use crate::world::World;

const OLD: [u8; 6] = [2, 0, 0, 0, 0, 1];
const NEW: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// The number of times that an address is announced.
const TIMES: usize = 3;
/// Seconds in which a change that no switch delays has flipped.
const QUICK: u32 = 5;

fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Returns the world of [`World::lan`], in which each end has a MAC address and an IPv4 address, and the end whose router
/// is replaced.
fn two_routers() -> (World, ConfigId) {
    let mut world = World::lan();
    let ends: Vec<ConfigId> = world.core().exchange().configs.keys().copied().collect();
    world.order(&[
        json!({"operation": "add_mac", "config": ends[0], "address": text(OLD)}),
        json!({"operation": "add_ip", "config": ends[0], "address": "192.0.2.1"}),
        json!({"operation": "add_mac", "config": ends[1], "address": "02:00:00:00:00:99"}),
        json!({"operation": "add_ip", "config": ends[1], "address": "192.0.2.2"}),
    ]);
    world.run_and_expire(QUICK);
    assert!(world.is_settled());
    assert_eq!(
        announced(&world, OLD),
        0,
        "the first address of an end is not announced"
    );
    (world, ends[0])
}

/// Returns the number of announcements of a MAC address so far.
fn announced(world: &World, mac: [u8; 6]) -> usize {
    let frames = world.frames.iter();
    frames.filter(|(.., frame)| frame[6..12] == mac).count()
}

fn switches(world: &World) -> Vec<SwitchId> {
    world.switches.keys().copied().collect()
}

fn hear(world: &mut World, switch: SwitchId, is_deaf: bool) {
    world.switches.get_mut(&switch).unwrap().is_deaf = is_deaf;
}

#[test]
fn a_new_mac_address_is_announced_when_every_switch_uses_its_entries() {
    for number in 0..2 {
        let (mut world, end) = two_routers();
        let switch = switches(&world)[number];
        hear(&mut world, switch, true);
        world.order(&[json!({"operation": "add_mac", "config": end, "address": text(NEW)})]);
        world.run_and_expire(QUICK);
        assert_eq!(announced(&world, NEW), 0, "{switch} has not confirmed the change");
        hear(&mut world, switch, false);
        world.run_and_expire(QUICK);
        assert!(world.is_settled());
        assert_eq!(announced(&world, NEW), TIMES);
        assert_eq!(announced(&world, OLD), 0);
    }
}

#[test]
fn a_new_mac_address_whose_change_is_rolled_back_is_not_announced() {
    for number in 0..2 {
        let (mut world, end) = two_routers();
        let switch = switches(&world)[number];
        world.switches.get_mut(&switch).unwrap().is_full = true;
        world.order(&[json!({"operation": "add_mac", "config": end, "address": text(NEW)})]);
        world.run_and_expire(4 * QUICK);
        let macs = world.core().exchange().macs.values();
        assert_eq!(macs.count(), 2, "{switch} refuses the change");
        assert!(world.is_settled());
        assert_eq!([OLD, NEW].map(|mac| announced(&world, mac)), [0, 0]);
    }
}

#[test]
fn an_address_that_becomes_valid_later_is_announced_when_the_switches_admit_it() {
    let (mut world, end) = two_routers();
    let from = Timestamp::from_millis(world.now().wall.0 + 3000);
    world.order(&[json!({"operation": "add_mac", "config": end, "address": text(NEW), "valid_from": from})]);
    world.run(millrace_types::Duration::from_secs(1));
    for switch in switches(&world) {
        hear(&mut world, switch, true);
    }
    world.run_and_expire(2 * QUICK);
    assert_eq!(
        announced(&world, NEW),
        0,
        "its time has come, and no switch admits it"
    );
    for switch in switches(&world) {
        hear(&mut world, switch, false);
    }
    world.run_and_expire(QUICK);
    assert_eq!(announced(&world, NEW), TIMES);
}

#[test]
fn an_engine_that_restarts_before_the_flip_announces_the_address_after_it() {
    let (mut world, end) = two_routers();
    let switch = switches(&world)[0];
    hear(&mut world, switch, true);
    world.order(&[json!({"operation": "add_mac", "config": end, "address": text(NEW)})]);
    world.run_and_expire(QUICK);
    let store = world.kill(false);
    world.start(store);
    world.run_and_expire(QUICK);
    assert_eq!(announced(&world, NEW), 0);
    hear(&mut world, switch, false);
    world.run_and_expire(2 * QUICK);
    assert_eq!(announced(&world, NEW), TIMES);
}

#[test]
fn an_address_in_use_is_not_announced_again_when_the_end_or_the_policy_changes() {
    let (mut world, end) = two_routers();
    world.order(&[json!({"operation": "add_mac", "config": end, "address": text(NEW)})]);
    world.run_and_expire(QUICK);
    assert_eq!(announced(&world, NEW), TIMES);
    let policy = *world.core().exchange().policies.keys().next().unwrap();
    let changes = [
        json!({"operation": "add_ip", "config": end, "address": "192.0.2.3"}),
        json!({"operation": "update_policy", "id": policy, "policy": {"name": "lan",
            "ethertypes": [0x0800, 0x0806, 0x86dd, 0x8847], "macs_max": 4, "broadcast_pps": 50, "multicast_pps": 50,
            "arp": "unicast", "quarantine_secs": 0}}),
    ];
    for change in changes {
        let switch = switches(&world)[0];
        hear(&mut world, switch, true);
        world.order(&[change]);
        world.run_and_expire(QUICK);
        hear(&mut world, switch, false);
        world.run_and_expire(QUICK);
        assert!(world.is_settled());
    }
    assert_eq!([OLD, NEW].map(|mac| announced(&world, mac)), [0, TIMES]);
}
