//! Single cases: switches that reconnect, foreign entries, unresponsive switches, refusals, an old database.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use millrace_ix_engine::{
    Action, Engine, Event, ForeignPolicy, Mode, Notice, Order, Phase, Resolution, Resume, Scope, Settings,
    SyncState,
};
use millrace_types::{Duration, Time};

use crate::fabric::{MARKER, ModelSwitch, Toy};
use crate::world::World;

const SECOND: Duration = Duration::from_secs(1);

/// Returns a world with 20 circuits in place between two switches.
fn in_place() -> World {
    let mut world = World::new(2, 7);
    for circuit in 1..=20 {
        world.order(circuit, Some([1, 2]));
    }
    world.run(3 * SECOND);
    assert!(world.is_settled());
    world
}

fn switch(world: &mut World, number: u32) -> &mut ModelSwitch {
    world.switches.get_mut(&number).unwrap()
}

/// Returns the state of switch 1 and the number of its foreign entries.
fn state_and_foreign(world: &World) -> (SyncState, usize) {
    let mut switches = world.engine.switches();
    let (_, status) = switches.find(|(number, _)| *number == 1).unwrap();
    (status.state, status.foreign)
}

#[test]
fn changes_of_a_moment_share_one_bundle_for_each_switch() {
    let mut world = World::new(2, 1);
    world.run(SECOND);
    for circuit in (1..=60).filter(|circuit| circuit % 5 != 0) {
        world.order(circuit, Some([1, 2]));
    }
    world.run(SECOND);
    assert!(world.is_settled());
    // In the phases stage and flip, the first order has a bundle of its own, and the other orders share one.
    assert!(
        world.switches[&1].commits <= 8,
        "{} commits",
        world.switches[&1].commits
    );
}

#[test]
fn a_switch_that_comes_back_empty_gets_all_entries_in_one_commit() {
    let mut world = in_place();
    world.wipe(1);
    let commits = world.switches[&1].commits;
    world.run(5 * SECOND);
    assert!(world.is_settled());
    assert_eq!(world.switches[&1].commits, commits + 1);
}

#[test]
fn a_switch_that_comes_back_empty_and_refuses_two_entries_gets_all_others() {
    let mut world = in_place();
    world.wipe(1);
    let refused = [(0, 6), (0, 22)];
    switch(&mut world, 1).refuses = refused.to_vec();
    world.run(10 * SECOND);
    let intended = world.engine.intended(1).unwrap();
    let missing = intended
        .keys()
        .filter(|key| !world.switches[&1].content.contains_key(*key));
    assert_eq!(missing.copied().collect::<Vec<_>>(), refused);
    for key in refused {
        let is_named = world.notices.iter().any(
            |notice| matches!(notice, Notice::Stuck { switch: 1, change: None, reason } if reason.contains(&format!("{key:?}"))),
        );
        assert!(is_named, "{key:?}: {:?}", world.notices);
    }
    switch(&mut world, 1).refuses.clear();
    world.run(61 * SECOND);
    assert!(world.is_settled());
}

#[test]
fn a_switch_that_comes_back_with_old_rules_gets_the_difference_and_keeps_its_counters() {
    let mut world = in_place();
    let old = world.switches[&1].content.clone();
    for circuit in 1..=5 {
        world.order(circuit, None);
    }
    world.run(3 * SECOND);
    world.harmed.push(1);
    world.cut(1);
    switch(&mut world, 1).content = old;
    let before = world.switches[&1].writes.clone();
    world.run(5 * SECOND);
    assert!(world.is_settled());
    for circuit in 6..=20 {
        let key = (0, circuit * 2);
        assert_eq!(
            world.switches[&1].writes[&key], before[&key],
            "circuit {circuit} was written again"
        );
    }
}

#[test]
fn foreign_entries_are_reported_and_removed() {
    let mut world = in_place();
    let writes = world.switches[&1].writes.clone();
    for number in 0..100 {
        switch(&mut world, 1).content.insert((5, number), (false, 1));
    }
    let session = world.switches[&1].session.unwrap();
    world.handle(Event::ForeignChange { switch: 1, session });
    world.run(5 * SECOND);
    assert!(world.is_settled());
    let reported = world.notices.iter().any(|notice| {
        matches!(notice, Notice::Foreign { switch: 1, entries, removed: true } if entries.len() == 100)
    });
    assert!(reported);
    assert_eq!(
        state_and_foreign(&world),
        (SyncState::Known { differing: 0 }, 0),
        "removed entries are not counted until the next dump"
    );
    for (key, count) in writes.into_iter().filter(|(key, _)| *key != MARKER) {
        assert_eq!(
            world.switches[&1].writes[&key], count,
            "{key:?} was right and was written again"
        );
    }
}

#[test]
fn foreign_entries_are_left_under_the_policy_leave() {
    let mut world = World::with(
        2,
        1,
        Settings {
            foreign: ForeignPolicy::Leave,
            ..Settings::default()
        },
    );
    switch(&mut world, 1).content.insert((5, 1), (false, 1));
    switch(&mut world, 1).content.insert((1, 99), (true, 1));
    world.order(1, Some([1, 2]));
    world.run(3 * SECOND);
    let content = &world.switches[&1].content;
    assert!(content.contains_key(&(5, 1)), "an entry of others");
    assert!(
        !content.contains_key(&(1, 99)),
        "an entry of our own that the plan does not have"
    );
    assert_eq!(state_and_foreign(&world), (SyncState::Known { differing: 0 }, 1));
}

#[test]
fn a_switch_in_mid_bundle_at_the_cut_is_in_sync_again() {
    for applied in 0..8 {
        let mut world = World::new(2, applied);
        world.run(SECOND);
        world.order(1, Some([1, 2]));
        world.cut(2);
        world.run(5 * SECOND);
        assert!(world.is_settled());
    }
}

#[test]
fn a_dump_that_breaks_off_deletes_nothing() {
    let mut world = in_place();
    world.cut(1);
    switch(&mut world, 1).broken_dumps = 3;
    switch(&mut world, 1).content.insert((5, 1), (false, 1));
    let commits = world.switches[&1].commits;
    world.run(2 * SECOND);
    assert_eq!(world.switches[&1].commits, commits);
    world.run(5 * SECOND);
    assert!(world.is_settled());
}

#[test]
fn a_deaf_switch_delays_only_the_changes_that_touch_it() {
    let mut world = World::new(3, 3);
    world.run(SECOND);
    switch(&mut world, 3).deaf = true;
    let waits = world.order(1, Some([1, 3]));
    let goes = world.order(2, Some([1, 2]));
    world.run(2 * SECOND);
    assert_eq!(world.store.changes[&goes].journal.last(), Some(&Phase::Cleaned));
    // No switch is flipped alone: switch 1 does not send into a wire that switch 3 does not take yet.
    assert_eq!(world.store.changes[&waits].journal.last(), Some(&Phase::Planned));
    assert!(!world.switches[&1].content.contains_key(&(0, 2)));
    world.run(30 * SECOND);
    assert!(world.notices.contains(&Notice::Waiting {
        change: waits,
        switches: vec![3]
    }));
    switch(&mut world, 3).deaf = false;
    world.run(2 * SECOND);
    assert!(world.is_settled());
}

#[test]
fn a_change_of_the_same_circuit_waits_for_the_one_before_it() {
    let mut world = World::new(3, 3);
    world.run(SECOND);
    switch(&mut world, 2).deaf = true;
    world.order(1, Some([1, 2]));
    let second = world.order(1, Some([1, 3]));
    world.run(2 * SECOND);
    assert_eq!(world.store.changes[&second].journal, [Phase::Accepted]);
    switch(&mut world, 2).deaf = false;
    world.run(2 * SECOND);
    assert!(world.is_settled());
}

#[test]
fn a_refused_change_is_undone_with_those_that_build_on_it_and_no_others() {
    let mut world = World::new(3, 3);
    world.run(SECOND);
    switch(&mut world, 2).refuses = vec![(1, 1)];
    let refused = world.order(1, Some([1, 2]));
    let builds_on = world.order(1, Some([1, 3]));
    let other = world.order(2, Some([1, 2]));
    world.run(5 * SECOND);
    let last = |id| world.store.changes[&id].journal.last().copied();
    assert_eq!(last(refused), Some(Phase::RolledBack));
    assert_eq!(last(builds_on), Some(Phase::RolledBack));
    assert_eq!(last(other), Some(Phase::Cleaned));
    assert!(
        world.is_settled() && world.store.circuits.contains_key(&2) && !world.store.circuits.contains_key(&1)
    );
}

#[test]
fn a_change_that_only_shares_an_entry_with_a_refused_one_is_planned_again() {
    let mut world = World::new(2, 3);
    world.run(SECOND);
    switch(&mut world, 2).refuses = vec![(1, 1)];
    // Circuits whose numbers are multiples of 5 share an entry.
    let refused = world.order(5, Some([1, 2]));
    let shares = world.order(10, Some([1, 2]));
    world.run(5 * SECOND);
    let last = |id| world.store.changes[&id].journal.last().copied();
    assert_eq!(
        (last(refused), last(shares)),
        (Some(Phase::RolledBack), Some(Phase::Cleaned))
    );
    assert!(world.is_settled());
}

#[test]
fn a_refused_flip_is_taken_back_without_the_loss_of_a_frame_and_the_change_is_undone() {
    // The other switch may have flipped, or not yet: the world checks every frame.
    for (refusing, key) in [(1, (0, 2)), (2, (0, 3))] {
        let mut world = in_place();
        let before = world.store.circuits.clone();
        switch(&mut world, refusing).refuses = vec![key];
        let change = world.order(1, Some([1, 2]));
        let builds_on = world.order(1, Some([1, 2]));
        world.run(3 * SECOND);
        let journal = |id| &world.store.changes[&id].journal;
        assert_eq!(
            *journal(change),
            [Phase::Accepted, Phase::Planned, Phase::Staged, Phase::RolledBack]
        );
        assert_eq!(*journal(builds_on), [Phase::Accepted, Phase::RolledBack]);
        assert!(world.is_settled() && world.store.circuits == before);
        switch(&mut world, refusing).refuses.clear();
        let again = world.order(1, Some([1, 2]));
        world.run(3 * SECOND);
        assert_eq!(world.store.changes[&again].journal.last(), Some(&Phase::Cleaned));
        assert!(world.is_settled());
    }
}

#[test]
fn a_refused_flip_waits_for_the_frames_of_the_switches_that_had_flipped() {
    let mut world = in_place();
    world.handle(Event::Delay {
        switch: 2,
        delay: Duration::from_millis(700),
    });
    switch(&mut world, 2).refuses = vec![(0, 3)];
    let change = world.order(1, Some([1, 2]));
    world.run(Duration::from_millis(1300));
    let phase = |world: &World| {
        let mut changes = world.engine.changes();
        changes
            .find(|status| status.change == change)
            .map(|status| status.phase)
    };
    assert_eq!(phase(&world), Some(Phase::Reverting));
    world.run(SECOND);
    assert_eq!(
        world.store.changes[&change].journal.last(),
        Some(&Phase::RolledBack)
    );
    assert!(world.is_settled());
}

#[test]
fn a_refused_removal_is_tried_again_until_it_succeeds() {
    let mut world = in_place();
    switch(&mut world, 1).refuses_removal = vec![(0, 2)];
    let change = world.order(1, None);
    world.run(3 * SECOND);
    assert_eq!(world.store.changes[&change].journal.last(), Some(&Phase::Staged));
    assert!(world.notices.iter().any(|notice| matches!(
        notice,
        Notice::Stuck {
            switch: 1,
            change: Some(_),
            ..
        }
    )));
    let other = world.order(30, Some([1, 2]));
    world.run(2 * SECOND);
    assert_eq!(
        world.store.changes[&other].journal.last(),
        Some(&Phase::Cleaned),
        "others go on"
    );
    switch(&mut world, 1).refuses_removal.clear();
    world.run(20 * SECOND);
    assert!(world.is_settled());
}

#[test]
fn a_drain_takes_at_least_twice_the_measured_delay() {
    let mut world = in_place();
    world.handle(Event::Delay {
        switch: 2,
        delay: Duration::from_millis(700),
    });
    let change = world.order(1, Some([1, 2]));
    world.run(Duration::from_millis(1300));
    assert_eq!(world.store.changes[&change].journal.last(), Some(&Phase::Flipped));
    world.run(SECOND);
    assert!(world.is_settled());
}

#[test]
fn an_old_database_changes_nothing_until_an_operator_decides() {
    for resolution in [Resolution::Adopt, Resolution::Enforce] {
        let mut world = World::new(2, 5);
        world.order(1, Some([1, 2]));
        world.run(3 * SECOND);
        let yesterday = world.store.clone();
        world.order(2, Some([1, 2]));
        world.run(3 * SECOND);
        world.store = yesterday;
        let content = world.switches[&1].content.clone();
        let commits = world.switches[&1].commits;
        world.kill();
        world.run(100 * SECOND);
        assert!(matches!(
            world.engine.mode(),
            Mode::ReadOnly {
                theirs: 2,
                ours: 1,
                ..
            }
        ));
        assert_eq!(
            (&world.switches[&1].content, world.switches[&1].commits),
            (&content, commits)
        );
        world.harmed = vec![1, 2];
        world.handle(Event::Resolved(resolution));
        world.run(3 * SECOND);
        let member_stays = world.switches[&1].content.contains_key(&(0, 4));
        assert_eq!(member_stays, resolution == Resolution::Adopt);
        assert_eq!(world.engine.mode(), Mode::Normal);
    }
}

#[test]
fn a_foreign_change_leads_to_one_dump_a_second_at_most() {
    let mut world = in_place();
    let session = world.switches[&1].session.unwrap();
    for _ in 0..1000 {
        world.handle(Event::ForeignChange { switch: 1, session });
        world.run(Duration::from_millis(1));
    }
    let (_, status) = world.engine.switches().next().unwrap();
    assert!(status.last_dump.is_some());
    world.run(2 * SECOND);
    assert!(world.is_settled());
}

/// Returns an engine with a switch that is known to be empty.
fn known(now: Time) -> Engine<Toy> {
    let plan = BTreeMap::from([(1, BTreeMap::new())]);
    let mut engine: Engine<Toy> = Engine::new(Settings::default(), plan, 0, false);
    engine.handle(
        Event::Connected {
            switch: 1,
            session: 1,
        },
        now,
    );
    engine.handle(dumped(&[]), now);
    engine
}

fn dumped(keys: &[(u8, u32)]) -> Event<Toy> {
    Event::Dumped {
        switch: 1,
        session: 1,
        content: Ok(keys.iter().map(|key| (*key, (true, 1))).collect()),
    }
}

/// Begins a dump two seconds later, as the engine does after a change by another controller.
fn begin_dump(engine: &mut Engine<Toy>, now: &mut Time) {
    let foreign = Event::ForeignChange {
        switch: 1,
        session: 1,
    };
    engine.handle(foreign, *now);
    *now = *now + 2 * SECOND;
    let actions = engine.handle(Event::Tick, *now);
    assert!(matches!(actions[..], [Action::Dump { .. }]), "{actions:?}");
}

#[test]
fn a_dump_during_which_others_change_entries_is_followed_by_another() {
    let mut now = Time::from_secs(1);
    let mut engine = known(now);
    begin_dump(&mut engine, &mut now);
    let foreign = Event::ForeignChange {
        switch: 1,
        session: 1,
    };
    engine.handle(foreign, now);
    // The change happened after the dump had read its table.
    engine.handle(dumped(&[]), now);
    assert_eq!(engine.deadline(), Some(now + SECOND));
    let actions = engine.handle(Event::Tick, now + SECOND);
    assert!(matches!(actions[..], [Action::Dump { .. }]), "{actions:?}");
}

#[test]
fn a_dump_during_which_a_commit_happens_in_part_confirms_nothing() {
    let mut now = Time::from_secs(1);
    let mut engine = known(now);
    let entry = |key: (u8, u32)| BTreeMap::from([(1, BTreeMap::from([(key, (None, Some((true, 1))))]))]);
    let order = Order {
        change: 1,
        revision: 1,
        objects: BTreeSet::new(),
        references: BTreeSet::new(),
        follows: BTreeSet::new(),
        scope: Scope::default(),
        stage: entry((1, 1)),
        flip: entry((0, 2)),
        clean: BTreeMap::new(),
    };
    let actions = engine.handle(Event::Accepted(order, Resume::Start), now);
    let commit = actions.iter().find_map(|action| match action {
        Action::Commit { commit, .. } => Some(*commit),
        _ => None,
    });
    begin_dump(&mut engine, &mut now);
    let refused = Event::Refused {
        switch: 1,
        session: 1,
        commit: commit.unwrap(),
        reason: "OFPFMFC_TABLE_FULL".to_owned(),
        partly: true,
    };
    let actions = engine.handle(refused, now);
    assert!(matches!(actions[..], [Action::RollBack { .. }]), "{actions:?}");
    // The entry is in the switch, so the change is not undone yet. The next dump shows this.
    let actions = engine.handle(dumped(&[(1, 1)]), now);
    assert!(matches!(actions[..], [Action::Dump { .. }]), "{actions:?}");
    let actions = engine.handle(dumped(&[(1, 1)]), now);
    let [
        ..,
        Action::Commit {
            modifications,
            commit,
            ..
        },
    ] = &actions[..]
    else {
        panic!("{actions:?}")
    };
    assert!(
        modifications
            .iter()
            .any(|change| change.key == (1, 1) && change.to.is_none())
    );
    let committed = Event::Committed {
        switch: 1,
        session: 1,
        commit: *commit,
    };
    let actions = engine.handle(committed, now);
    assert!(actions.iter().any(|action| matches!(action, Action::Release(1))));
}

#[test]
fn a_listing_of_100_000_entries_is_compared_and_mended_at_once() {
    let entry = |number: u32| ((1, number), (true, 1));
    let plan = BTreeMap::from([(1, (0..100_000).map(entry).collect::<BTreeMap<_, _>>())]);
    let mut have = plan[&1].clone();
    have.retain(|(_, number), _| number % 1000 != 0);
    have.extend((0..100).map(|number| ((5, number), (false, 1))));
    let mut engine: Engine<Toy> = Engine::new(Settings::default(), plan, 0, false);
    let now = Time::from_secs(1);
    engine.handle(
        Event::Connected {
            switch: 1,
            session: 1,
        },
        now,
    );
    let started = Instant::now();
    let actions = engine.handle(
        Event::Dumped {
            switch: 1,
            session: 1,
            content: Ok(have),
        },
        now,
    );
    let took = started.elapsed();
    let [.., Action::Commit { modifications, .. }] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(
        modifications.len(),
        100 + 100 + 1,
        "what is missing, what is foreign, and the marker"
    );
    println!("100,000 entries compared in {took:?}");
    // A comparison of each entry with each other one would take minutes, also on a machine that does nothing else.
    assert!(took < Duration::from_secs(60), "{took:?}");
}
