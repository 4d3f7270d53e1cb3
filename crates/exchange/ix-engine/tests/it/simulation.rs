//! Random worlds: orders, kills of the engine at any action, cut connections, empty switches, refusals. `make
//! exchange-check` runs the long form (`MILLRACE_EXCHANGE_LONG=1`).

use std::collections::BTreeMap;

use millrace_ix_engine::Phase;
use millrace_types::Duration;

use crate::fabric::Random;
use crate::world::World;

/// Runs one world; returns the phases in which the engine was killed.
fn world(seed: u64, kills: u32) -> Vec<Phase> {
    let mut world = World::new(3, seed);
    let mut random = Random::new(seed ^ 0x5eed);
    world.run(Duration::from_secs(1));
    for _ in 0..kills {
        for _ in 0..1 + random.below(6) {
            let circuit = random.below(12) as u32;
            let first = 1 + random.below(3) as u32;
            let second = 1 + (first + random.below(2) as u32) % 3;
            let ends = [first.min(second), first.max(second)];
            let ends = if ends[0] == ends[1] { [1, 2] } else { ends };
            world.order(circuit, Some(ends).filter(|_| random.chance(75)));
            world.run(random.millis(0, 120));
        }
        match random.below(8) {
            0 => world.cut(1 + random.below(3) as u32),
            1 => {
                let number = 1 + random.below(3) as u32;
                // An entry that sends into a wire is refused at the flip, one that receives from it before.
                let key = if random.chance(50) {
                    (0, random.below(24) as u32)
                } else {
                    (1, 1 + random.below(14) as u32)
                };
                world.switches.get_mut(&number).unwrap().refuses = vec![key];
            }
            2 => {
                world
                    .switches
                    .get_mut(&(1 + random.below(3) as u32))
                    .unwrap()
                    .broken_dumps = 2;
            }
            _ => {}
        }
        world.kill_after = Some(random.below(25));
        world.run(random.millis(0, 900));
        if world.kill_after.take().is_some() {
            world.kill();
        }
        for switch in world.switches.values_mut() {
            switch.refuses.clear();
        }
    }
    world.run(Duration::from_secs(10));
    assert!(
        world.is_settled(),
        "seed {seed}: {:#?}",
        world.engine.changes().collect::<Vec<_>>()
    );
    world.run(Duration::from_secs(61));
    let now = world.now;
    let leaked: Vec<_> = world
        .store
        .resting
        .iter()
        .filter(|(_, until)| until.is_none_or(|until| until > now))
        .collect();
    assert!(
        leaked.is_empty(),
        "seed {seed}: the wire ids {leaked:?} are never free again"
    );
    world.killed_in
}

#[test]
fn an_engine_killed_at_any_point_makes_the_switches_equal_to_the_plan_and_loses_no_frame_and_no_number() {
    let long = std::env::var_os("MILLRACE_EXCHANGE_LONG").is_some();
    let (worlds, least) = if long { (2000, 100) } else { (200, 20) };
    let mut killed = BTreeMap::new();
    for seed in 1..=worlds {
        for phase in world(seed, 5) {
            *killed.entry(phase).or_insert(0) += 1;
        }
    }
    for phase in [
        Phase::Accepted,
        Phase::Planned,
        Phase::Staged,
        Phase::Flipped,
        Phase::Drained,
    ] {
        let count = killed.get(&phase).copied().unwrap_or(0);
        assert!(
            count >= least,
            "the engine was killed {count} times in {phase:?}: {killed:?}"
        );
    }
    println!("killed {} times: {killed:?}", worlds * 5);
}
