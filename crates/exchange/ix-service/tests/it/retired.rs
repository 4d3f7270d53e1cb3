//! Switches that do not return: an operator retires them, and nothing waits for them any more.

use millrace_ix_model::{Actor, PortId, SwitchId};
use millrace_ix_service::text::{Document, document};
use millrace_ix_service::{ApplyOptions, OrderOptions};
use millrace_types::Duration;
use serde_json::json;

use crate::world::World;

const SECOND: Duration = Duration::from_secs(1);

/// Returns a world with a circuit over two switches, the second of which is permanently gone, and an order that
/// deletes the circuit.
fn world_with_a_dead_switch() -> (World, SwitchId) {
    let mut world = World::new();
    let (circuit, _) = world.circuit("circuit", [(0, 100), (2, 200)]);
    world.run(3 * SECOND);
    assert!(world.is_settled());
    let dead = *world.switches.keys().nth(1).unwrap();
    world.disconnect(dead);
    world.delete(circuit);
    world.run(20 * SECOND);
    assert_eq!(
        world.core().engine().changes().count(),
        1,
        "the change waits for the switch"
    );
    assert_eq!(world.services().len(), 1);
    (world, dead)
}

fn retire(world: &mut World, switch: SwitchId, retired: bool) {
    world.order(&[json!({"operation": "retire_switch", "switch": switch, "retired": retired})]);
    world.run(3 * SECOND);
}

#[test]
fn no_change_waits_for_a_retired_switch_and_everything_at_it_can_be_deleted() {
    let (mut world, dead) = world_with_a_dead_switch();
    retire(&mut world, dead, true);
    assert_eq!(world.core().engine().changes().count(), 0);
    assert_eq!(world.services(), []);
    // After a restart, too.
    let store = world.kill(false);
    world.start(store);
    let (circuit, _) = world.circuit("another", [(0, 100), (2, 200)]);
    world.run(3 * SECOND);
    assert_eq!(world.core().engine().changes().count(), 0);
    world.delete(circuit);
    world.run(3 * SECOND);
    let exchange = world.core().exchange().clone();
    let at_it = |port: &PortId| port.switch == dead;
    for (id, connection) in &exchange.connections {
        if connection.ports.iter().any(at_it) {
            world.delete(*id);
        }
    }
    for (id, trunk) in &exchange.trunks {
        if trunk.ends.iter().any(at_it) {
            world.delete(*id);
        }
    }
    world.delete(dead);
    world.run(3 * SECOND);
    assert_eq!(world.core().engine().changes().count(), 0);
    assert!(!world.core().exchange().switches.contains_key(&dead));
    world.switches.remove(&dead);
    assert!(world.is_settled());
}

#[test]
fn a_retired_switch_that_returns_gets_the_plan_and_is_waited_for_again() {
    let (mut world, dead) = world_with_a_dead_switch();
    retire(&mut world, dead, true);
    world.connect_again(dead);
    world.run(3 * SECOND);
    assert!(world.is_settled(), "its old entries are gone");
    retire(&mut world, dead, false);
    world.disconnect(dead);
    world.circuit("another", [(0, 100), (2, 200)]);
    world.run(20 * SECOND);
    assert_eq!(world.core().engine().changes().count(), 1);
}

#[test]
fn circuits_avoid_a_retired_switch_although_its_neighbours_see_no_failure() {
    let mut world = World::new();
    let (one, _) = world.ids();
    let (circuit, _) = world.circuit("circuit", [(0, 100), (2, 200)]);
    let third = world.third_switch();
    world.run(3 * SECOND);
    world.list_ports();
    let via = |world: &mut World, circuit| world.core().exchange().services[&circuit].via.clone();
    // The direct trunk fails, and returns: the circuit stays at its second path.
    world.report(one, 100, false, false);
    world.run(3 * SECOND);
    world.report(one, 100, true, true);
    world.run(3 * SECOND);
    assert_eq!(via(&mut world, circuit), [third]);
    world.disconnect(third);
    retire(&mut world, third, true);
    assert_eq!(via(&mut world, circuit), []);
    let (new, _) = world.circuit("new", [(1, 100), (3, 200)]);
    world.run(3 * SECOND);
    assert_eq!(via(&mut world, new), []);
    assert_eq!(world.core().engine().changes().count(), 0);
}

#[test]
fn a_change_with_a_switch_that_was_added_and_deleted_meanwhile_ends_after_a_restart() {
    let mut world = World::new();
    let (one, _) = world.ids();
    let ports = json!([1, 2, 100, 101].map(|number| json!({"number": number, "speed_mbps": 10000})));
    world.order(&[json!({"operation": "set_ports", "switch": one, "ports": ports})]);
    world.run(3 * SECOND);
    world.disconnect(one);
    // One change adds a switch and a trunk.
    let mut text = serde_json::to_value(document(world.core().exchange())).unwrap();
    let mut switch = text["switch"][0].clone();
    (switch["name"], switch["dpid"]) = (json!("sai-1"), json!("0000000000000009"));
    let mut trunk = text["trunk"][0].clone();
    (trunk["name"], trunk["ends"]) = (json!("t9"), json!(["ote-1:101", "sai-1:100"]));
    text["switch"].as_array_mut().unwrap().push(switch);
    text["trunk"].as_array_mut().unwrap().push(trunk);
    let text: Document = serde_json::from_value(text).unwrap();
    let now = world.now();
    let options = OrderOptions::default();
    let ordered = world
        .core()
        .apply(text, ApplyOptions::default(), &Actor::system(), &options, now)
        .unwrap();
    assert!(ordered.change.is_some());
    world.deliver();
    let exchange = world.core().exchange().clone();
    let mut trunks = exchange.trunks.iter();
    let (trunk, _) = trunks.find(|(_, trunk)| trunk.name == "t9").unwrap();
    world.delete(*trunk);
    world.delete(*exchange.switches.keys().last().unwrap());
    let store = world.kill(false);
    world.start(store);
    world.connect_again(one);
    world.run(20 * SECOND);
    assert_eq!(world.core().engine().changes().count(), 0);
}
