//! Kills of the core at any step, with the real model, planner and database. `make exchange-check` runs the long form.

use std::collections::{BTreeMap, BTreeSet};

use millrace_ix_engine::Phase;
use millrace_ix_model::{ObjectId, ServiceId, SwitchId};
use millrace_ix_service::{FabricKey, OrderOptions};
use millrace_ix_store::{ChangeState, Store, verify};
use millrace_types::Duration;
use serde_json::{Value, json};

use crate::world::{World, is_marker};

/// A random number generator (xorshift64*; Vigna, 2016).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

/// The phases in which a change can be under way.
const PHASES: [Phase; 5] = [
    Phase::Accepted,
    Phase::Planned,
    Phase::Staged,
    Phase::Flipped,
    Phase::Drained,
];

/// Returns the operations of a random order.
fn operations(world: &mut World, random: &mut Random, number: u64, kept: ServiceId) -> Vec<Value> {
    let mut services = world.services();
    services.retain(|service| *service != kept);
    let pick =
        |random: &mut Random, services: &[ServiceId]| services[random.below(services.len() as u64) as usize];
    match random.below(6) {
        0 if services.len() > 2 => {
            let target: ObjectId = pick(random, &services).into();
            vec![json!({"operation": "delete", "target": target})]
        }
        1 | 2 if !services.is_empty() => {
            let service = pick(random, &services);
            let config = world.core().exchange().ends(service).next().map(|(id, _)| id);
            let connections = world.connections();
            let connection = connections[random.below(4) as usize];
            let vlan = 2 + random.below(4000);
            match config {
                Some(config) => vec![
                    json!({"operation": "move_end", "config": config, "connection": connection,
                    "vlan": {"type": "dot1q", "vlan": vlan}}),
                ],
                None => Vec::new(),
            }
        }
        _ => {
            let ends =
                [random.below(4), random.below(4)].map(|end| (end as usize, 2 + random.below(4000) as u16));
            world.circuit_operations(&format!("circuit {number}"), ends)
        }
    }
}

/// Checks the audit chain of the database.
fn check(store: &dyn Store) {
    let records = store.audit(0, usize::MAX).unwrap();
    assert_eq!(verify(&records, &[], None).unwrap().len, records.len() as u64);
}

/// Runs one world; returns how often it was killed in each state of a change.
fn world(seed: u64, kills: u64, killed: &mut BTreeMap<ChangeState, u32>) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut world = World::new();
    // No order changes this circuit, so its entries are never written again.
    let entries = |world: &World| -> BTreeSet<(SwitchId, FabricKey)> {
        let switches = world.switches.iter();
        switches
            .flat_map(|(id, switch)| switch.content.keys().map(|key| (*id, key.clone())))
            .collect()
    };
    let before = entries(&world);
    let (kept, _) = world.circuit("kept", [(0, 4094), (2, 4094)]);
    world.run(Duration::from_secs(2));
    let mut entries: Vec<_> = entries(&world).difference(&before).cloned().collect();
    entries.retain(|(_, key)| !is_marker(key));
    let writes = |world: &World| -> u32 {
        entries
            .iter()
            .map(|(id, key)| world.switches[id].writes[key])
            .sum()
    };
    assert!(entries.len() > 10 && writes(&world) == entries.len() as u32);
    for kill in 0..kills {
        let mut number = 0;
        for _ in 0..1 + random.below(4) {
            // Half of the orders arrive together. The model may refuse one: a VLAN in use, a service that is being deleted.
            let group = (0..1 + random.below(2) * random.below(4)).map(|_| {
                number += 1;
                let operations = operations(&mut world, &mut random, kill * 20 + number, kept);
                (operations, OrderOptions::default())
            });
            let group: Vec<_> = group.collect();
            let _ = world.order_all(&group);
            let until = world.time + Duration::from_millis(random.below(40));
            while world.step(until) {}
        }
        // The core is killed in a randomly drawn state, if a change reaches it.
        let wanted = PHASES[random.below(5) as usize];
        for _ in 0..random.below(80) {
            if world
                .core()
                .engine()
                .changes()
                .any(|change| change.phase == wanted)
            {
                break;
            }
            let until = world.time + Duration::from_millis(200);
            world.step(until);
        }
        let applied = random.below(2) == 0;
        let store = world.kill(applied);
        for change in store.load().unwrap().open_changes {
            *killed.entry(change.state).or_default() += 1;
        }
        check(&*store);
        world.start(store);
    }
    world.run(Duration::from_secs(10));
    assert!(
        world.is_settled(),
        "seed {seed}: {:?}",
        world.core().engine().changes().collect::<Vec<_>>()
    );
    assert!(
        world.numbers_in_switches().is_empty(),
        "seed {seed}: {:?}",
        world.numbers_in_switches()
    );
    assert!(world.services().contains(&kept));
    let rewritten = writes(&world) - entries.len() as u32;
    assert_eq!(
        rewritten, 0,
        "seed {seed}: entries of the circuit that nobody changed"
    );
    let store = world.kill(false);
    check(&*store);
}

#[test]
fn a_core_killed_at_any_step_makes_the_switches_equal_to_the_plan_and_leaks_no_number() {
    let long = std::env::var_os("MILLRACE_EXCHANGE_LONG").is_some();
    let (worlds, least) = if long { (250, 100) } else { (10, 1) };
    let mut killed = BTreeMap::new();
    for seed in 1..=worlds {
        world(seed, 5, &mut killed);
    }
    println!("killed {} times: {killed:?}", worlds * 5);
    use ChangeState::{Accepted, Drained, Flipped, Planned, Staged};
    for state in [Accepted, Planned, Staged, Flipped, Drained] {
        let count = killed.get(&state).copied().unwrap_or(0);
        assert!(count >= least, "killed {count} times in {state}: {killed:?}");
    }
}
