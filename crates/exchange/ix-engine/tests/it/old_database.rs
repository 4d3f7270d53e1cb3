//! Switches with content that the database does not know: an operator adopts it, and enforces the database later.

use std::collections::{BTreeMap, BTreeSet};

use millrace_ix_engine::{
    Action, Engine, Event, ForeignPolicy, Mode, Modification, Order, Resolution, Resume, Scope, Settings,
};
use millrace_types::Time;

use crate::fabric::{Key, MARKER, Toy, Value};

const NOW: Time = Time::from_secs(1);

fn engine(settings: Settings, adopted: bool) -> Engine<Toy> {
    let plan = BTreeMap::from([(1, BTreeMap::from([((1, 5), (true, 1))])), (2, BTreeMap::new())]);
    Engine::new(settings, plan, 5, adopted)
}

/// Connects a switch with some entries; returns the actions after the dump.
fn connect(engine: &mut Engine<Toy>, switch: u32, entries: &[(Key, Value)]) -> Vec<Action<Toy>> {
    let session = u64::from(switch);
    engine.handle(Event::Connected { switch, session }, NOW);
    dump(engine, switch, entries)
}

fn dump(engine: &mut Engine<Toy>, switch: u32, entries: &[(Key, Value)]) -> Vec<Action<Toy>> {
    let (session, content) = (u64::from(switch), Ok(entries.iter().copied().collect()));
    let dumped = Event::Dumped {
        switch,
        session,
        content,
    };
    engine.handle(dumped, NOW)
}

/// Returns a change that adds an entry to a switch.
fn addition(change: u64, switch: u32, key: Key, value: Value) -> Order<Toy> {
    Order {
        change,
        revision: 5 + change,
        objects: BTreeSet::new(),
        references: BTreeSet::new(),
        follows: BTreeSet::new(),
        scope: Scope::default(),
        stage: BTreeMap::from([(switch, BTreeMap::from([(key, (None, Some(value)))]))]),
        flip: BTreeMap::new(),
        clean: BTreeMap::new(),
    }
}

/// Returns the number of the commit among actions, and its modifications without the marker.
fn commit(actions: &[Action<Toy>]) -> (u64, Vec<Modification<Key, Value>>) {
    let found = actions.iter().find_map(|action| match action {
        Action::Commit {
            commit,
            modifications,
            ..
        } => Some((*commit, modifications.clone())),
        _ => None,
    });
    let (number, mut modifications) = found.unwrap_or_else(|| panic!("no commit in {actions:?}"));
    modifications.retain(|change| change.key != MARKER);
    (number, modifications)
}

fn change(key: Key, from: Option<Value>, to: Option<Value>) -> Modification<Key, Value> {
    Modification { key, from, to }
}

#[test]
fn the_removal_of_an_own_entry_is_done_although_unknown_entries_are_left() {
    let leave = Settings {
        foreign: ForeignPolicy::Leave,
        ..Settings::default()
    };
    // A meter or a group has no cookie that identifies its owner.
    for (settings, adopted, value) in [(Settings::default(), true, (true, 1)), (leave, false, (false, 1))] {
        let mut engine = engine(settings, adopted);
        let removal = Order {
            stage: BTreeMap::new(),
            clean: BTreeMap::from([(1, BTreeMap::from([((1, 5), (Some(value), None))]))]),
            ..addition(1, 1, (1, 5), value)
        };
        engine.handle(Event::Accepted(removal, Resume::Clean), NOW);
        let actions = connect(&mut engine, 1, &[((1, 5), value), ((1, 77), (false, 1))]);
        let (_, modifications) = commit(&actions);
        assert_eq!(modifications, [change((1, 5), Some(value), None)]);
    }
}

#[test]
fn an_order_for_a_number_that_an_unknown_entry_has_modifies_that_entry() {
    let mut engine = engine(Settings::default(), true);
    connect(&mut engine, 2, &[((1, 7), (true, 1))]);
    let order = addition(1, 2, (1, 7), (true, 2));
    let actions = engine.handle(Event::Accepted(order, Resume::Start), NOW);
    let (_, modifications) = commit(&actions);
    assert_eq!(
        modifications,
        [change((1, 7), Some((true, 1)), Some((true, 2)))],
        "not an addition, which the switch would refuse"
    );
}

#[test]
fn enforce_after_adopt_removes_what_the_database_does_not_know() {
    let mut engine = engine(Settings::default(), true);
    let is_swept = |actions: &[Action<Toy>]| actions.iter().any(|action| matches!(action, Action::Swept));
    let first = connect(&mut engine, 1, &[((1, 5), (true, 1))]);
    let second = connect(&mut engine, 2, &[((1, 7), (true, 1))]);
    assert!(!is_swept(&first) && !is_swept(&second) && engine.is_adopted());
    assert_eq!(engine.kept(2), Some(&BTreeMap::from([((1, 7), (true, 1))])));
    let actions = engine.handle(Event::Resolved(Resolution::Enforce), NOW);
    let (number, modifications) = commit(&actions);
    assert_eq!(modifications, [change((1, 7), Some((true, 1)), None)]);
    assert!(!is_swept(&actions) && !engine.is_adopted());
    let committed = Event::Committed {
        switch: 2,
        session: 2,
        commit: number,
    };
    assert!(is_swept(&engine.handle(committed, NOW)));
}

#[test]
fn a_switch_that_connects_late_is_protected_however_far_the_revision_has_come() {
    let mut engine = engine(Settings::default(), false);
    connect(&mut engine, 1, &[((1, 5), (true, 1))]);
    let order = addition(50, 1, (1, 6), (true, 1));
    let actions = engine.handle(Event::Accepted(order, Resume::Start), NOW);
    let (number, _) = commit(&actions);
    let committed = Event::Committed {
        switch: 1,
        session: 1,
        commit: number,
    };
    engine.handle(committed, NOW);
    // The marker of a switch that follows this engine is the engine's own.
    let own = [((1, 5), (true, 1)), ((1, 6), (true, 1)), (MARKER, (true, 55))];
    connect(&mut engine, 1, &own);
    assert_eq!(engine.mode(), Mode::Normal);
    connect(&mut engine, 2, &[((1, 7), (true, 1)), (MARKER, (true, 8))]);
    let read_only = Mode::ReadOnly {
        switch: 2,
        theirs: 8,
        ours: 5,
    };
    assert_eq!(engine.mode(), read_only);
    // Switch 3 has an earlier marker: the decision concerns the latest one.
    engine.handle(Event::Added(3), NOW);
    connect(&mut engine, 3, &[(MARKER, (true, 7))]);
    assert_eq!(engine.mode(), read_only);
    engine.handle(Event::Resolved(Resolution::Enforce), NOW);
    dump(&mut engine, 3, &[(MARKER, (true, 7))]);
    assert_eq!(engine.mode(), Mode::Normal);
}
