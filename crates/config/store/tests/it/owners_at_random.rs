//! Random changes of several origins against a model that keeps each origin's objects apart: nobody changes what another
//! one owns, and the configuration is the union of what each wrote.

use std::collections::BTreeMap;

use millrace_model::{Bridge, Config, MacTableSize, ObjectName};
use millrace_store::{CommitError, Note, Origin, Proposal, RevisionNo, Store, UnixTime};
use proptest::prelude::*;

const NOW: UnixTime = UnixTime(1_700_000_000);
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Debug, Clone)]
enum Step {
    /// The origin writes bridges with sizes, or removes those without one.
    Write(usize, BTreeMap<usize, Option<u32>>),
    /// A write that is then confirmed, cancelled, or not confirmed in time.
    WriteToConfirm(usize, BTreeMap<usize, Option<u32>>, u8),
    /// A bridge is given to an origin.
    Own(usize, usize),
    /// People roll back to the revision that was the head this number of revisions ago.
    Rollback(u64),
}

/// Bridges by name, with size and owner.
type Union = BTreeMap<String, (u32, Origin)>;

fn origin(index: usize) -> Origin {
    [Origin::LOCAL, Origin::OVSDB, Origin::ETCD][index].clone()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let writes = || prop::collection::btree_map(0..NAMES.len(), prop::option::of(100..109_u32), 1..4);
    let step = prop_oneof![
        6 => (0..3_usize, writes()).prop_map(|(by, writes)| Step::Write(by, writes)),
        2 => (0..3_usize, writes(), 0..3_u8).prop_map(|(by, writes, end)| Step::WriteToConfirm(by, writes, end)),
        1 => (0..NAMES.len(), 0..3_usize).prop_map(|(name, to)| Step::Own(name, to)),
        2 => (0..6_u64).prop_map(Step::Rollback),
    ];
    prop::collection::vec(step, 1..30)
}

/// Returns the union after the writes of `by`; `None` if one of them touches an object of another origin.
fn written(union: &Union, by: &Origin, writes: &BTreeMap<usize, Option<u32>>) -> Option<Union> {
    let mut after = union.clone();
    for (index, size) in writes {
        let name = NAMES[*index];
        let before = union.get(name);
        match (before, size) {
            (Some((old, owner)), Some(size)) if owner != by && old != size => return None,
            (Some((_, owner)), None) if owner != by => return None,
            (_, None) => drop(after.remove(name)),
            (Some((_, owner)), Some(size)) => drop(after.insert(name.to_owned(), (*size, owner.clone()))),
            (None, Some(size)) => drop(after.insert(name.to_owned(), (*size, by.clone()))),
        }
    }
    Some(after)
}

/// Returns the union after a rollback of people to `then`.
fn rolled_back(now: &Union, then: &Union) -> Union {
    let is_local = |entry: &(u32, Origin)| entry.1.is_local();
    let mut after: Union = now
        .iter()
        .filter(|(_, entry)| !is_local(entry))
        .map(|(name, entry)| (name.clone(), entry.clone()))
        .collect();
    for (name, (size, owner)) in then {
        let restores = match now.get(name) {
            Some(entry) => is_local(entry),
            None => owner.is_local(),
        };
        if restores {
            after.insert(name.clone(), (*size, Origin::LOCAL));
        }
    }
    after
}

fn proposal(store: &Store, by: &Origin, writes: &BTreeMap<usize, Option<u32>>) -> Proposal {
    let head = store.head();
    let mut config = Config::clone(&head.config);
    for (index, size) in writes {
        let name = NAMES[*index];
        match size {
            None => config.bridges.retain(|bridge| bridge.name.as_str() != name),
            Some(size) => {
                if !config.bridges.iter().any(|bridge| bridge.name.as_str() == name) {
                    config.bridges.push(Bridge::new(name.parse().unwrap()));
                }
                let wanted = config
                    .bridges
                    .iter_mut()
                    .filter(|bridge| bridge.name.as_str() == name);
                wanted.for_each(|bridge| bridge.mac_table_size = MacTableSize::new(*size).unwrap());
            }
        }
    }
    Proposal {
        expected: Some(head.revision.number),
        config,
        note: Note::new("random", "").of(by.clone()),
    }
}

fn union_of(store: &Store) -> Union {
    let head = store.head();
    let entry = |bridge: &Bridge| {
        let name = bridge.name.to_string();
        let owner = head.owners.owner(&ObjectName::bridge(&name)).clone();
        (name, (bridge.mac_table_size.get(), owner))
    };
    head.config.bridges.iter().map(entry).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn nobody_changes_what_another_owns_and_the_union_is_what_each_wrote(steps in steps()) {
        let store = Store::in_memory(NOW).unwrap();
        let mut union = Union::new();
        let mut past: BTreeMap<u64, Union> = BTreeMap::new();
        past.insert(0, Union::new());
        for step in steps {
            match &step {
                Step::Write(by, writes) => {
                    let (by, given) = (origin(*by), writes);
                    let result = store.commit(proposal(&store, &by, given), NOW);
                    match written(&union, &by, given) {
                        Some(after) => { result.unwrap(); union = after; }
                        None => {
                            let is_refused = matches!(result, Err(CommitError::Owned { .. }));
                            prop_assert!(is_refused, "{step:?}");
                        }
                    }
                }
                Step::WriteToConfirm(by, writes, end) => {
                    let by = origin(*by);
                    let head = store.head().revision.number;
                    let result = store.commit_confirm(proposal(&store, &by, writes), NOW.plus(9), NOW);
                    let Some(after) = written(&union, &by, writes) else {
                        let is_refused = matches!(result, Err(CommitError::Owned { .. }));
                        prop_assert!(is_refused, "{step:?}");
                        continue;
                    };
                    if result.unwrap().number != head {
                        past.insert(store.head().revision.number.0, after.clone());
                        match end {
                            0 => { store.confirm(None, &Note::default(), NOW).unwrap(); union = after; }
                            1 => drop(store.cancel(None, Note::default(), NOW).unwrap()),
                            _ => drop(store.tick(NOW.plus(9)).unwrap().unwrap()),
                        }
                    }
                }
                Step::Own(name, to) => {
                    let (name, to) = (NAMES[*name], origin(*to));
                    let result = store.own(&[name.to_owned()], &to, Note::default(), NOW);
                    prop_assert_eq!(result.is_ok(), union.contains_key(name));
                    if let Some(entry) = union.get_mut(name) {
                        entry.1 = to;
                    }
                }
                Step::Rollback(ago) => {
                    let number = store.head().revision.number.0.saturating_sub(*ago);
                    match store.rollback(None, RevisionNo(number), Note::default(), NOW) {
                        Ok(_) => union = rolled_back(&union, &past[&number]),
                        Err(error) => {
                            let is_replaced = matches!(error, CommitError::Read(_));
                            prop_assert!(is_replaced, "{}", error);
                        }
                    }
                }
            }
            prop_assert_eq!(&union_of(&store), &union, "{:?}", step);
            past.insert(store.head().revision.number.0, union.clone());
        }
    }
}
