//! The gate before the flip: of changes that concern the same parts, one is verified and flips at a time; others do not wait.

use std::collections::{BTreeMap, BTreeSet};

use millrace_ix_engine::{Action, Engine, Event, Order, Phase, Resume, Scope, Settings};
use millrace_types::{Duration, Time};

use crate::fabric::Toy;

const NOW: Time = Time::from_secs(1);

/// Returns an order with an entry to stage and one to flip, whose verification reads the same parts as its flip alters.
fn order(change: u64, number: u32, parts: &[&str]) -> Order<Toy> {
    let entry =
        |table: u8| BTreeMap::from([(1, BTreeMap::from([((table, number), (None, Some((true, 1))))]))]);
    let parts: BTreeSet<String> = parts.iter().map(ToString::to_string).collect();
    Order {
        change,
        revision: change,
        objects: BTreeSet::new(),
        references: BTreeSet::new(),
        follows: BTreeSet::new(),
        scope: Scope {
            reads: parts.clone(),
            alters: parts,
        },
        stage: entry(1),
        flip: entry(0),
        clean: BTreeMap::new(),
    }
}

/// An engine with one switch, which confirms every commit.
struct World(Engine<Toy>);

impl World {
    fn new() -> World {
        let settings = Settings {
            verification: Some(Duration::from_secs(10)),
            coalesce: Duration::ZERO,
            ..Settings::default()
        };
        let mut engine = Engine::new(settings, BTreeMap::from([(1, BTreeMap::new())]), 0, false);
        let (switch, session) = (1, 1);
        engine.handle(Event::Connected { switch, session }, NOW);
        let content = Ok(BTreeMap::new());
        let dumped = Event::Dumped {
            switch,
            session,
            content,
        };
        engine.handle(dumped, NOW);
        World(engine)
    }

    /// Handles an event, and confirms the commits that follow. Returns the changes whose verification is asked for, and those
    /// that flip.
    fn handle(&mut self, event: Event<Toy>) -> (Vec<u64>, Vec<u64>) {
        let (mut asked, mut flipped) = (Vec::new(), Vec::new());
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for action in self.0.handle(event, NOW) {
                match action {
                    Action::Verify { change, .. } => asked.push(change),
                    Action::Journal {
                        change,
                        phase: Phase::Flipped,
                    } => flipped.push(change),
                    Action::Commit {
                        switch,
                        session,
                        commit,
                        ..
                    } => events.push(Event::Committed {
                        switch,
                        session,
                        commit,
                    }),
                    _ => {}
                }
            }
        }
        (asked, flipped)
    }

    fn accept(&mut self, order: Order<Toy>) -> (Vec<u64>, Vec<u64>) {
        self.handle(Event::Accepted(order, Resume::Start))
    }

    fn verified(&mut self, change: u64) -> (Vec<u64>, Vec<u64>) {
        self.handle(Event::Verified {
            change,
            result: Ok(()),
        })
    }
}

#[test]
fn of_two_changes_of_the_same_parts_the_later_one_is_verified_after_the_flip_of_the_earlier_one() {
    let mut world = World::new();
    assert_eq!(world.accept(order(1, 1, &["lan"])), (vec![1], vec![]));
    assert_eq!(world.accept(order(2, 2, &["lan", "port"])), (vec![], vec![]));
    // A change of other parts does not wait, but one of the parts of the waiting one goes on, too.
    assert_eq!(world.accept(order(3, 3, &["path"])), (vec![3], vec![]));
    assert_eq!(world.accept(order(4, 4, &["port"])), (vec![4], vec![]));
    assert_eq!(world.verified(3), (vec![], vec![3]));
    assert_eq!(
        world.verified(1),
        (vec![], vec![1]),
        "the fourth one concerns the port"
    );
    assert_eq!(world.verified(4), (vec![2], vec![4]));
    assert_eq!(world.verified(2), (vec![], vec![2]));
}

#[test]
fn a_change_whose_predecessor_in_the_gate_is_refused_is_verified_then() {
    let mut world = World::new();
    assert_eq!(world.accept(order(1, 1, &["lan"])), (vec![1], vec![]));
    assert_eq!(world.accept(order(2, 2, &["lan"])), (vec![], vec![]));
    let refused = Event::Verified {
        change: 1,
        result: Err("V1".to_owned()),
    };
    assert_eq!(world.handle(refused), (vec![2], vec![]));
    assert_eq!(world.verified(2), (vec![], vec![2]));
}

#[test]
fn a_change_that_follows_a_rolled_back_one_is_planned_again_and_not_undone() {
    let mut world = World::new();
    let mut first = order(1, 1, &["lan"]);
    first.objects.insert("nc-1".to_owned());
    let mut second = order(2, 2, &["filters"]);
    second.follows.insert("nc-1".to_owned());
    assert_eq!(world.accept(first), (vec![1], vec![]));
    assert_eq!(world.accept(second), (vec![], vec![]), "it has not begun");
    let refused = Event::Verified {
        change: 1,
        result: Err("V1".to_owned()),
    };
    let actions = world.0.handle(refused, NOW);
    let undone = actions.iter().find_map(|action| match action {
        Action::RollBack { changes, .. } => Some(changes.clone()),
        _ => None,
    });
    assert_eq!(undone, Some(vec![1]));
    assert!(
        actions.iter().any(|action| matches!(action, Action::Replan(2))),
        "{actions:?}"
    );
}
