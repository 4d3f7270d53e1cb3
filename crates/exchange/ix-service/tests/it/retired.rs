//! Switches that do not return: an operator retires them, and nothing waits for them any more.

use millrace_ix_model::{PortId, SwitchId};
use millrace_types::Duration;
use serde_json::json;

use crate::world::World;

const SECOND: Duration = Duration::from_secs(1);

/// Returns a world with a circuit over two switches, of which the second is gone for good, and an order that deletes the circuit.
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
