//! Changes that depend on earlier ones: the removal of old entries delays nobody, and a rollback forgets no earlier writer.

use std::collections::{BTreeMap, BTreeSet};

use millrace_ix_engine::{Action, Engine, Event, Order, Phase, Resume, Scope, Settings};
use millrace_types::{Duration, Time};

use crate::fabric::Toy;
use crate::world::World;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_switch_that_dies_before_its_old_entries_are_removed_delays_no_later_change() {
    let mut world = World::new(4, 3);
    world.order(1, Some([1, 2]));
    world.run(3 * SECOND);
    let away = world.order(1, Some([1, 3]));
    let last = |world: &World, id| world.store.changes[&id].journal.last().copied();
    while last(&world, away) != Some(Phase::Flipped) {
        world.run(Duration::from_millis(1));
    }
    world.switches.get_mut(&2).unwrap().deaf = true;
    let again = world.order(1, Some([3, 4]));
    world.run(2 * SECOND);
    assert_eq!(last(&world, away), Some(Phase::Drained));
    for _ in 0..2 {
        world.run(5 * SECOND);
        // The later change stays open until the first one ends: a restart plans them one after the other.
        assert_eq!(last(&world, again), Some(Phase::Drained));
        assert!(world.switches[&4].content.contains_key(&(0, 3)));
        let waits: Vec<_> = world.engine.changes().map(|change| change.changes).collect();
        assert_eq!(waits, [vec![], vec![away]]);
        world.kill();
    }
    world.switches.get_mut(&2).unwrap().deaf = false;
    world.run(5 * SECOND);
    assert!(world.is_settled());
}

/// Returns an order that adds an entry of table 1 at a switch.
fn adding(change: u64, objects: &[&str], switch: u32, number: u32) -> Order<Toy> {
    Order {
        change,
        revision: change,
        objects: objects.iter().map(ToString::to_string).collect(),
        references: BTreeSet::new(),
        follows: BTreeSet::new(),
        scope: Scope::default(),
        stage: BTreeMap::from([(switch, BTreeMap::from([((1, number), (None, Some((true, 1))))]))]),
        flip: BTreeMap::new(),
        clean: BTreeMap::new(),
    }
}

#[test]
fn an_order_behind_a_rolled_back_one_still_waits_for_the_change_before_that() {
    let now = Time::from_secs(1);
    let plan = BTreeMap::from([(1, BTreeMap::new()), (2, BTreeMap::new())]);
    let mut engine: Engine<Toy> = Engine::new(Settings::default(), plan, 0, false);
    let (switch, session) = (1, 1);
    engine.handle(Event::Connected { switch, session }, now);
    let content = Ok(BTreeMap::new());
    engine.handle(
        Event::Dumped {
            switch,
            session,
            content,
        },
        now,
    );
    // Switch 2 is not connected: change 2 waits for it.
    let actions = engine.handle(Event::Accepted(adding(1, &["x"], 1, 1), Resume::Start), now);
    let commit = actions.iter().find_map(|action| match action {
        Action::Commit { commit, .. } => Some(*commit),
        _ => None,
    });
    engine.handle(Event::Accepted(adding(2, &["y"], 2, 2), Resume::Start), now);
    engine.handle(Event::Accepted(adding(3, &["x", "y"], 1, 3), Resume::Start), now);
    let refused = Event::Refused {
        switch,
        session,
        commit: commit.unwrap(),
        reason: "OFPFMFC_TABLE_FULL".to_owned(),
        partly: false,
    };
    let actions = engine.handle(refused, now);
    assert!(
        matches!(&actions[0], Action::RollBack { changes, .. } if *changes == [3, 1]),
        "{actions:?}"
    );
    engine.handle(Event::Accepted(adding(4, &["y"], 1, 4), Resume::Start), now);
    let last = engine.changes().last().unwrap();
    assert_eq!(
        (last.change, last.phase, last.changes),
        (4, Phase::Accepted, vec![2])
    );
}
