//! A fleet in a model of etcd: masters and nodes that stop at any place, and go on with what they knew.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod model;

use millrace_fleet::{Keyspace, Outcome, Rollout, State, Step, waves};
use proptest::prelude::*;

use model::{Event, World};

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        (0..2_usize).prop_map(Event::Campaign),
        (0..2_usize).prop_map(Event::Prepare),
        (0..2_usize).prop_map(Event::Send),
        Just(Event::LeaseEnds),
        (0..4_usize).prop_map(Event::Look),
        (0..4_usize).prop_map(Event::Take),
        (0..4_usize, any::<bool>()).prop_map(|(node, is_good)| Event::End(node, is_good)),
        (0..40_u64).prop_map(Event::Pass),
    ];
    prop::collection::vec(event, 0..400)
}

fn world() -> World {
    let keys = Keyspace::new("/m/");
    let nodes: Vec<String> = (0..4).map(|number| format!("sw{number}")).collect();
    let mut world = World::new(keys, &nodes);
    world.submit(&Rollout {
        schema: 1,
        id: "r1".to_owned(),
        author: String::new(),
        comment: String::new(),
        created: 0,
        confirm_within: 60,
        document_schema: 1,
        hold: false,
        state: State::Running,
        wave: 0,
        waves: waves(&nodes, 1, 2),
        reason: None,
        undoes: None,
    });
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    // Masters and nodes stop anywhere, and whatever is delivered late: no node goes back, no epoch writes after a newer one, and when the
    // faults are over, the roll-out ends: all nodes run the new documents, or all that could go back run the old ones.
    #[test]
    fn no_node_goes_back_and_every_rollout_ends(events in events()) {
        let mut world = world();
        for event in events {
            world.step(event);
        }
        world.check();
        world.calm();
        world.check();
        let rollout = world.rollout();
        prop_assert!(rollout.state.is_over(), "{rollout:?}");
        for (place, node) in rollout.places().zip(&world.nodes) {
            let wanted: &[&str] = match (rollout.state, place.step) {
                (State::Done, _) => &["next"],
                // It failed on the way back, too, and the record says so.
                (_, Step::NotBack) => &["first", "next"],
                _ => &["first"],
            };
            prop_assert!(wanted.contains(&node.content.as_str()), "{place:?} {}: {rollout:?}", node.content);
        }
    }
}

#[test]
fn without_faults_a_rollout_is_done() {
    let mut world = world();
    world.calm();
    assert_eq!(world.rollout().state, State::Done);
    assert!(world.nodes.iter().all(|node| node.content == "next"));
    assert!(world.nodes.iter().all(|node| {
        node.record
            .as_ref()
            .is_some_and(|record| record.outcome == Outcome::Applied)
    }));
}
