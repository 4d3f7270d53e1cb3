//! One owner for each object; revisions of machines; their retention.

use millrace_model::{Bridge, Config, MacTableSize, ObjectName};
use millrace_store::{
    CommitError, FileImport, Note, Operation, Origin, Proposal, ReadError, Retention, RevisionNo, Store,
    UnixTime,
};

const NOW: UnixTime = UnixTime(1_700_000_000);

fn store() -> Store {
    Store::in_memory(NOW).unwrap()
}

/// Returns a bridge that differs from others of the same name by `size`.
fn bridge(name: &str, size: u32) -> Bridge {
    let mut bridge = Bridge::new(name.parse().unwrap());
    bridge.mac_table_size = MacTableSize::new(100 + size).unwrap();
    bridge
}

/// Returns a change of the head by `origin`: the bridges `put`, and without the bridges `removed`.
fn change(store: &Store, origin: &Origin, put: &[Bridge], removed: &[&str]) -> Proposal {
    let head = store.head();
    let mut config = Config::clone(&head.config);
    let is_touched =
        |name: &str| removed.contains(&name) || put.iter().any(|bridge| bridge.name.as_str() == name);
    config.bridges.retain(|bridge| !is_touched(bridge.name.as_str()));
    config.bridges.extend(put.iter().cloned());
    Proposal {
        expected: Some(head.revision.number),
        config,
        note: Note::new("tester", "").of(origin.clone()),
    }
}

fn commit(store: &Store, origin: &Origin, put: &[Bridge], removed: &[&str]) -> RevisionNo {
    store
        .commit(change(store, origin, put, removed), NOW)
        .unwrap()
        .number
}

fn owner(store: &Store, name: &str) -> String {
    store.head().owners.owner(&ObjectName::bridge(name)).to_string()
}

fn numbers(store: &Store) -> Vec<u64> {
    store
        .history(100)
        .unwrap()
        .iter()
        .map(|revision| revision.number.0)
        .collect()
}

#[test]
fn an_object_belongs_to_the_origin_that_made_it_and_no_other_may_write_it() {
    let store = store();
    commit(&store, &Origin::LOCAL, &[bridge("br0", 1)], &[]);
    commit(&store, &Origin::OVSDB, &[bridge("br-int", 100)], &[]);
    assert_eq!(
        (owner(&store, "br0"), owner(&store, "br-int")),
        ("local".into(), "ovsdb".into())
    );
    let before = store.head();
    for (by, put, removed, message) in [
        (
            Origin::LOCAL,
            vec![bridge("br-int", 200)],
            vec![],
            "bridge br-int belongs to ovsdb: use ovs-vsctl, or `millrace own br-int --local` to take it over",
        ),
        (
            Origin::LOCAL,
            vec![],
            vec!["br-int"],
            "bridge br-int belongs to ovsdb: use ovs-vsctl, or `millrace own br-int --local` to take it over",
        ),
        (
            Origin::OVSDB,
            vec![],
            vec!["br0"],
            "bridge br0 belongs to local: `millrace own br0 --origin ovsdb` gives it to ovsdb",
        ),
        (
            Origin::ETCD,
            vec![bridge("br-int", 200), bridge("br9", 100)],
            vec![],
            "bridge br-int belongs to ovsdb: `millrace own br-int --origin etcd` gives it to etcd",
        ),
    ] {
        let proposal = change(&store, &by, &put, &removed);
        let dry = store.dry_run(&proposal, false, NOW).unwrap_err();
        let refused = store.commit(proposal.clone(), NOW).unwrap_err();
        let to_confirm = store.commit_confirm(proposal, NOW.plus(9), NOW).unwrap_err();
        for error in [dry, refused, to_confirm] {
            assert!(matches!(error, CommitError::Owned { .. }), "{error}");
            assert_eq!(error.to_string(), message);
        }
        assert_eq!(store.head(), before, "nothing changed");
    }
    // The settings of the machine belong to people.
    let mut proposal = change(&store, &Origin::ETCD, &[], &[]);
    proposal.config.system.keep_flows = true;
    let error = store.commit(proposal, NOW).unwrap_err().to_string();
    assert!(error.starts_with("system belongs to local"), "{error}");
}

#[test]
fn an_object_changes_hands_by_a_revision_and_stays_as_it_is() {
    let store = store();
    commit(&store, &Origin::OVSDB, &[bridge("br0", 1)], &[]);
    let config = store.head().config.clone();
    let taken = store
        .own(
            &["br0".to_owned()],
            &Origin::LOCAL,
            Note::new("alice", "mine"),
            NOW,
        )
        .unwrap();
    assert_eq!(
        (taken.number.0, taken.operation, taken.author.as_str()),
        (2, Operation::Own, "alice")
    );
    assert_eq!(
        (owner(&store, "br0"), &store.head().config),
        ("local".into(), &config)
    );
    let again = store
        .own(&["br0".to_owned()], &Origin::LOCAL, Note::default(), NOW)
        .unwrap();
    assert_eq!(again.number, taken.number, "nothing changes hands");
    assert!(
        store
            .commit(change(&store, &Origin::OVSDB, &[bridge("br0", 7)], &[]), NOW)
            .is_err()
    );
    commit(&store, &Origin::LOCAL, &[bridge("br0", 200)], &[]);
    let error = store
        .own(&["br9".to_owned()], &Origin::LOCAL, Note::default(), NOW)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("no object `br9`: expected one of api, bridge/br0"),
        "{error}"
    );
    store
        .commit_confirm(
            change(&store, &Origin::LOCAL, &[bridge("br1", 1)], &[]),
            NOW.plus(9),
            NOW,
        )
        .unwrap();
    assert!(matches!(
        store.own(&["br0".to_owned()], &Origin::OVSDB, Note::default(), NOW),
        Err(CommitError::Unconfirmed { .. })
    ));
}

#[test]
fn owners_survive_a_restart_and_a_rollback_of_an_unconfirmed_change() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), NOW).unwrap();
    commit(
        &store,
        &Origin::OVSDB,
        &[bridge("br-int", 100), bridge("br-ex", 100)],
        &[],
    );
    let proposal = change(&store, &Origin::OVSDB, &[bridge("br-new", 100)], &["br-ex"]);
    store.commit_confirm(proposal, NOW.plus(60), NOW).unwrap();
    assert_eq!(
        (owner(&store, "br-new"), owner(&store, "br-ex")),
        ("ovsdb".into(), "local".into())
    );
    drop(store);
    let store = Store::open(directory.path(), NOW.plus(61)).unwrap();
    assert!(matches!(
        store.head().revision.operation,
        Operation::Expired { .. }
    ));
    for name in ["br-int", "br-ex"] {
        assert_eq!(owner(&store, name), "ovsdb", "{name}");
    }
    assert_eq!(store.head().config.bridges.len(), 2);
}

#[test]
fn a_rollback_leaves_alone_what_others_own_and_says_so() {
    let store = store();
    let first = commit(&store, &Origin::LOCAL, &[bridge("br0", 1)], &[]);
    commit(
        &store,
        &Origin::OVSDB,
        &[bridge("br-int", 1), bridge("br-old", 1)],
        &[],
    );
    let second = commit(&store, &Origin::LOCAL, &[bridge("br0", 2)], &[]);
    commit(&store, &Origin::OVSDB, &[bridge("br-int", 2)], &["br-old"]);
    let (_, left) = store.restored(second, &Origin::LOCAL).unwrap();
    let text: Vec<String> = left.iter().map(ToString::to_string).collect();
    assert_eq!(
        text,
        [
            "bridge br-int belongs to ovsdb and stays as it is",
            "bridge br-old belongs to ovsdb and stays as it is"
        ]
    );
    store.rollback(None, first, Note::default(), NOW).unwrap();
    let head = store.head();
    assert_eq!(head.config.bridge("br0").unwrap().mac_table_size.get(), 101);
    assert_eq!(head.config.bridge("br-int").unwrap().mac_table_size.get(), 102);
    assert!(head.config.bridge("br-old").is_none(), "its owner removed it");
    assert_eq!(owner(&store, "br-int"), "ovsdb");
}

#[test]
fn a_configuration_file_leaves_alone_what_others_own() {
    let store = store();
    let file = |size| Config {
        bridges: vec![bridge("br0", size)],
        ..Config::default()
    };
    store.import(&file(1), Note::default(), NOW).unwrap();
    commit(&store, &Origin::OVSDB, &[bridge("br-int", 1)], &[]);
    assert!(store.has_imported(&file(1)).unwrap());
    let (_, left) = store.of_file(&file(2)).unwrap();
    assert_eq!(left.len(), 1);
    assert!(matches!(
        store.import(&file(2), Note::default(), NOW).unwrap(),
        FileImport::Committed(_)
    ));
    let head = store.head();
    assert_eq!(head.config.bridges, [bridge("br0", 2), bridge("br-int", 1)]);
    store.restart_from(RevisionNo(1), Note::default(), NOW).unwrap();
    assert_eq!(
        store.head().config.bridges,
        [bridge("br0", 1), bridge("br-int", 1)]
    );
    // A whole configuration by another way is told the same.
    let (whole, left) = store.head().with_others(&file(3), &Origin::LOCAL).unwrap();
    assert_eq!((whole.bridges.len(), left.len()), (2, 1));
}

#[test]
fn revisions_of_one_machine_replace_each_other_until_somebody_else_commits() {
    let store = store();
    commit(&store, &Origin::LOCAL, &[bridge("br0", 1)], &[]);
    let mut watcher = store.watch();
    for size in 1..=50 {
        commit(&store, &Origin::OVSDB, &[bridge("br-int", size)], &[]);
    }
    assert_eq!(numbers(&store), [51, 1, 0]);
    let head = store.head();
    assert_eq!(
        (head.revision.replaces, head.revision.origin.as_str()),
        (Some(RevisionNo(2)), "ovsdb")
    );
    assert!(watcher.has_changed().unwrap() && watcher.borrow_and_update().revision.number.0 == 51);
    let error = store.at(RevisionNo(20)).unwrap_err();
    assert!(matches!(error, ReadError::NoSuchRevision { .. }));
    assert!(
        error
            .to_string()
            .contains("a later one of the same origin replaced it"),
        "{error}"
    );
    commit(&store, &Origin::ETCD, &[bridge("br-e", 1)], &[]);
    commit(&store, &Origin::OVSDB, &[bridge("br-int", 1)], &[]);
    commit(&store, &Origin::OVSDB, &[bridge("br-int", 2)], &[]);
    commit(&store, &Origin::LOCAL, &[bridge("br0", 2)], &[]);
    commit(&store, &Origin::LOCAL, &[bridge("br0", 3)], &[]);
    assert_eq!(numbers(&store), [56, 55, 54, 52, 51, 1, 0]);
}

#[test]
fn a_machine_replaces_no_revision_that_waits_or_that_another_one_falls_back_to() {
    let store = store();
    commit(&store, &Origin::OVSDB, &[bridge("br-int", 1)], &[]);
    let proposal = change(&store, &Origin::OVSDB, &[bridge("br-int", 2)], &[]);
    store.commit_confirm(proposal, NOW.plus(60), NOW).unwrap();
    assert_eq!(numbers(&store), [2, 1, 0]);
    let proposal = change(&store, &Origin::OVSDB, &[bridge("br-int", 3)], &[]);
    assert!(matches!(
        store.commit(proposal, NOW),
        Err(CommitError::Unconfirmed { .. })
    ));
    store.confirm(None, &Note::default(), NOW).unwrap();
    commit(&store, &Origin::OVSDB, &[bridge("br-int", 3)], &[]);
    assert_eq!(numbers(&store), [3, 1, 0]);
}

#[test]
fn machines_displace_no_revision_of_people_from_the_history() {
    let directory = tempfile::tempdir().unwrap();
    let retention = Retention {
        revisions: 5,
        machine_revisions: 3,
        ..Retention::default()
    };
    let store = Store::open_with(directory.path(), retention, NOW).unwrap();
    for size in 1..=4 {
        commit(&store, &Origin::LOCAL, &[bridge("br0", size)], &[]);
    }
    for size in 1..=20 {
        commit(&store, &Origin::OVSDB, &[bridge("br-int", size)], &[]);
        commit(&store, &Origin::ETCD, &[bridge("br-e", size)], &[]);
    }
    assert_eq!(numbers(&store), [44, 43, 42, 4, 3, 2, 1, 0]);
    commit(&store, &Origin::LOCAL, &[bridge("br0", 5)], &[]);
    assert_eq!(
        numbers(&store),
        [45, 44, 43, 42, 4, 3, 2, 1],
        "the oldest of people is removed"
    );
}

#[test]
fn an_external_number_is_kept_although_nothing_changes() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), NOW).unwrap();
    let with = |store: &Store, number, size| {
        let mut proposal = change(store, &Origin::ETCD, &[bridge("br-e", size)], &[]);
        proposal.note = proposal.note.external(number);
        store.commit(proposal, NOW).unwrap()
    };
    let known = |store: &Store| store.head().externals.get(&Origin::ETCD).copied();
    assert_eq!(with(&store, 7, 1).external, Some(7));
    let same = with(&store, 9, 1);
    assert_eq!((same.number.0, known(&store)), (1, Some(9)));
    with(&store, 8, 1);
    assert_eq!(known(&store), Some(9), "the highest counts");
    commit(&store, &Origin::LOCAL, &[bridge("br0", 1)], &[]);
    drop(store);
    let store = Store::open(directory.path(), NOW).unwrap();
    assert_eq!(known(&store), Some(9));
}
