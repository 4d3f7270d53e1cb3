//! Commits, confirmations, rollbacks and watchers in one process.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::{Arc, Barrier};

use millrace_model::{Bridge, Config};
use millrace_store::{
    CommitError, ConfirmError, FileImport, Note, Operation, Proposal, ReadError, Retention, RevisionNo,
    Store, UnixTime,
};

const NOW: UnixTime = UnixTime(1_700_000_000);

fn store() -> Store {
    Store::in_memory(NOW).unwrap()
}

fn with_bridges(names: &[&str]) -> Config {
    let bridges = names
        .iter()
        .map(|name| Bridge::new(name.parse().unwrap()))
        .collect();
    Config {
        bridges,
        ..Config::default()
    }
}

fn proposal(expected: Option<u64>, names: &[&str]) -> Proposal {
    Proposal {
        expected: expected.map(RevisionNo),
        config: with_bridges(names),
        note: Note::new("alice", "because"),
    }
}

fn names(config: &Config) -> Vec<&str> {
    config.bridges.iter().map(|bridge| bridge.name.as_str()).collect()
}

#[test]
fn a_new_store_holds_the_empty_configuration_as_revision_zero() {
    let head = store().head();
    assert_eq!(head.revision.number, RevisionNo(0));
    assert_eq!(head.revision.operation, Operation::Initial);
    assert_eq!(*head.config, Config::default());
}

#[test]
fn a_commit_from_an_old_revision_is_refused_and_changes_nothing() {
    let store = store();
    store.commit(proposal(Some(0), &["br0"]), NOW).unwrap();
    let error = store.commit(proposal(Some(0), &["br1"]), NOW).unwrap_err();
    assert!(matches!(
        error,
        CommitError::Conflict {
            expected: RevisionNo(0),
            head: RevisionNo(1)
        }
    ));
    assert_eq!(names(&store.head().config), ["br0"]);
    store.commit(proposal(None, &["br2"]), NOW).unwrap();
    assert_eq!(names(&store.head().config), ["br2"]);
}

#[test]
fn an_illegal_configuration_is_refused_with_its_faults() {
    let store = store();
    let error = store.commit(proposal(None, &["br0", "br0"]), NOW).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("/bridge/1/name: bridge name br0 is already used"),
        "{error}"
    );
    assert_eq!(store.head().revision.number, RevisionNo(0));
}

#[test]
fn a_commit_without_change_makes_no_revision() {
    let store = store();
    let first = store.commit(proposal(None, &["br0"]), NOW).unwrap();
    let again = store.commit(proposal(Some(1), &["br0"]), NOW.plus(5)).unwrap();
    assert_eq!(first, again);
    assert_eq!(store.history(10).unwrap().len(), 2);
}

#[test]
fn a_dry_run_says_what_would_change_and_changes_nothing() {
    let store = store();
    let changes = store.dry_run(&proposal(Some(0), &["br0"]), false, NOW).unwrap();
    assert_eq!(
        changes
            .iter()
            .map(|change| change.path.as_str())
            .collect::<Vec<_>>(),
        ["/bridge/br0"]
    );
    assert!(matches!(
        store.dry_run(&proposal(Some(7), &["br0"]), false, NOW),
        Err(CommitError::Conflict { .. })
    ));
    assert!(matches!(
        store.dry_run(&proposal(None, &["a", "a"]), false, NOW),
        Err(CommitError::Invalid(_))
    ));
    assert_eq!(store.head().revision.number, RevisionNo(0));
}

#[test]
fn history_diff_and_rollback_go_by_revision_numbers() {
    let store = store();
    store.commit(proposal(None, &["br0"]), NOW).unwrap();
    store
        .commit(proposal(None, &["br0", "br1"]), NOW.plus(1))
        .unwrap();
    let back = store
        .rollback(
            Some(RevisionNo(2)),
            RevisionNo(1),
            Note::new("bob", "oops"),
            NOW.plus(2),
        )
        .unwrap();
    assert_eq!(
        (back.number, back.operation),
        (RevisionNo(3), Operation::Rollback { to: RevisionNo(1) })
    );
    assert_eq!(names(&store.head().config), ["br0"]);

    let history = store.history(2).unwrap();
    assert_eq!(
        history
            .iter()
            .map(|revision| revision.number.0)
            .collect::<Vec<_>>(),
        [3, 2]
    );
    assert_eq!(
        (history[0].author.as_str(), history[0].comment.as_str()),
        ("bob", "oops")
    );
    let changes = store.diff(RevisionNo(2), RevisionNo(3)).unwrap();
    assert_eq!(changes.len(), 1);
    assert!(
        changes[0].to_string().starts_with("- bridge br1"),
        "{}",
        changes[0]
    );

    let error = store
        .rollback(None, RevisionNo(9), Note::default(), NOW)
        .unwrap_err();
    assert!(matches!(
        error,
        CommitError::Read(ReadError::NoSuchRevision {
            wanted: RevisionNo(9),
            ..
        })
    ));
}

#[test]
fn an_unconfirmed_revision_is_taken_back_at_its_deadline_and_not_before() {
    let store = store();
    store.commit(proposal(None, &["br0"]), NOW).unwrap();
    store
        .commit_confirm(proposal(Some(1), &["br1"]), NOW.plus(60), NOW)
        .unwrap();
    assert_eq!(names(&store.head().config), ["br1"]);
    assert_eq!(store.head().pending.unwrap().deadline, NOW.plus(60));
    assert_eq!(store.tick(NOW.plus(59)).unwrap(), None);
    let back = store.tick(NOW.plus(60)).unwrap().unwrap();
    assert_eq!(
        (back.number, back.operation),
        (RevisionNo(3), Operation::Expired { to: RevisionNo(1) })
    );
    assert_eq!(names(&store.head().config), ["br0"]);
    assert_eq!(store.head().pending, None);
    assert_eq!(store.tick(NOW.plus(61)).unwrap(), None);
}

#[test]
fn a_clock_that_is_set_back_meanwhile_does_not_lengthen_the_time_to_confirm() {
    let store = store();
    store
        .commit_confirm(proposal(None, &["br0"]), NOW.plus(60), NOW)
        .unwrap();
    // This caller read the clock before the commit, and then waited for its lock.
    assert_eq!(store.tick(UnixTime(NOW.0 - 1)).unwrap(), None);
    assert_eq!(store.head().pending.unwrap().deadline, NOW.plus(60));
    let earlier = UnixTime(NOW.0 - 500);
    assert_eq!(store.tick(earlier).unwrap(), None);
    assert_eq!(store.head().pending.unwrap().deadline, earlier.plus(60));
    assert_eq!(store.tick(earlier.plus(59)).unwrap(), None);
    assert!(store.tick(earlier.plus(61)).unwrap().is_some());
    assert_eq!(*store.head().config, Config::default());
}

#[test]
fn a_confirmed_revision_stays() {
    let store = store();
    store
        .commit_confirm(proposal(None, &["br0"]), NOW.plus(60), NOW)
        .unwrap();
    assert!(matches!(
        store.confirm(Some(RevisionNo(9)), &Note::default(), NOW),
        Err(ConfirmError::OtherPending {
            pending: RevisionNo(1),
            ..
        })
    ));
    assert_eq!(
        store
            .confirm(Some(RevisionNo(1)), &Note::default(), NOW.plus(59))
            .unwrap()
            .number,
        RevisionNo(1)
    );
    assert_eq!(store.tick(NOW.plus(600)).unwrap(), None);
    assert_eq!(names(&store.head().config), ["br0"]);
    assert!(matches!(
        store.confirm(None, &Note::default(), NOW),
        Err(ConfirmError::NothingPending { .. })
    ));
}

#[test]
fn a_confirmation_that_comes_too_late_is_refused_and_the_content_is_taken_back() {
    let store = store();
    store
        .commit_confirm(proposal(None, &["br0"]), NOW.plus(60), NOW)
        .unwrap();
    assert!(matches!(
        store.confirm(None, &Note::default(), NOW.plus(60)),
        Err(ConfirmError::NothingPending { head: RevisionNo(2) })
    ));
    assert_eq!(*store.head().config, Config::default());
}

#[test]
fn while_a_revision_waits_other_commits_are_refused_and_it_can_be_cancelled() {
    let store = store();
    store
        .commit_confirm(proposal(None, &["br0"]), NOW.plus(60), NOW)
        .unwrap();
    assert!(matches!(
        store.commit(proposal(None, &["br1"]), NOW),
        Err(CommitError::Unconfirmed {
            revision: RevisionNo(1),
            ..
        })
    ));
    assert!(matches!(
        store.rollback(None, RevisionNo(0), Note::default(), NOW),
        Err(CommitError::Unconfirmed { .. })
    ));
    let back = store.cancel(None, Note::new("bob", "no"), NOW).unwrap();
    assert_eq!(back.operation, Operation::Cancelled { to: RevisionNo(0) });
    assert_eq!(*store.head().config, Config::default());
    store.commit(proposal(None, &["br1"]), NOW).unwrap();
}

#[test]
fn a_second_unconfirmed_revision_falls_back_to_where_the_first_began() {
    let store = store();
    store
        .commit_confirm(proposal(None, &["br0"]), NOW.plus(60), NOW)
        .unwrap();
    store
        .commit_confirm(proposal(Some(1), &["br0", "br1"]), NOW.plus(90), NOW.plus(30))
        .unwrap();
    assert_eq!(store.tick(NOW.plus(60)).unwrap(), None);
    // A commit of the same content only moves the deadline.
    store
        .commit_confirm(proposal(Some(2), &["br0", "br1"]), NOW.plus(120), NOW.plus(80))
        .unwrap();
    assert_eq!(store.tick(NOW.plus(90)).unwrap(), None);
    let back = store.tick(NOW.plus(120)).unwrap().unwrap();
    assert_eq!(
        (back.number, back.operation),
        (RevisionNo(3), Operation::Expired { to: RevisionNo(0) })
    );
    assert!(matches!(
        store.commit_confirm(proposal(None, &["br2"]), NOW, NOW),
        Err(CommitError::DeadlinePassed { .. })
    ));
}

#[test]
fn a_second_unconfirmed_commit_of_the_same_content_may_have_another_comment() {
    let store = store();
    let commented = |comment: &str| Proposal {
        note: Note::new("alice", comment),
        ..proposal(None, &["br0"])
    };
    let commit = |comment, seconds| {
        store
            .commit_confirm(commented(comment), NOW.plus(seconds), NOW)
            .unwrap()
    };
    assert_eq!(commit("first", 60).number, RevisionNo(1));
    for comment in ["first", ""] {
        assert_eq!(
            commit(comment, 90).number,
            RevisionNo(1),
            "only the deadline moves"
        );
    }
    let renamed = commit("second", 120);
    assert_eq!(
        (renamed.number, renamed.comment.as_str()),
        (RevisionNo(2), "second")
    );
    // The number of the revision is the pending one's, and its fallback that of the first.
    assert!(store.confirm(Some(RevisionNo(1)), &Note::default(), NOW).is_err());
    let back = store.tick(NOW.plus(120)).unwrap().unwrap();
    assert_eq!(back.operation, Operation::Expired { to: RevisionNo(0) });
}

#[test]
fn a_dry_run_accepts_what_a_commit_at_the_same_moment_accepts() {
    let store = store();
    store.commit(proposal(None, &["br0"]), NOW).unwrap();
    let deadline = NOW.plus(60);
    store
        .commit_confirm(proposal(None, &["br1"]), deadline, NOW)
        .unwrap();
    let next = proposal(None, &["br0", "br2"]);
    let before = store.dry_run(&next, false, NOW.plus(59)).unwrap_err();
    assert!(matches!(before, CommitError::Unconfirmed { .. }), "{before}");
    // `tick` has not been called, so the revision with br1 is still the head.
    let changes = store.dry_run(&next, false, deadline).unwrap();
    assert_eq!(changes.len(), 1, "br0 came back, so only br2 is new: {changes:?}");
    store.commit(next, deadline).unwrap();
}

#[test]
fn a_pending_revision_prevents_no_dry_run_of_a_change_that_is_to_be_confirmed() {
    let store = store();
    store
        .commit_confirm(proposal(None, &["br0"]), NOW.plus(60), NOW)
        .unwrap();
    let next = proposal(None, &["br0", "br1"]);
    assert_eq!(store.dry_run(&next, true, NOW).unwrap().len(), 1);
    store.commit_confirm(next, NOW.plus(60), NOW).unwrap();
}

#[test]
fn a_commit_after_the_deadline_sees_the_content_that_came_back() {
    let store = store();
    store
        .commit_confirm(proposal(None, &["br0"]), NOW.plus(60), NOW)
        .unwrap();
    let error = store
        .commit(proposal(Some(1), &["br1"]), NOW.plus(61))
        .unwrap_err();
    assert!(matches!(
        error,
        CommitError::Conflict {
            head: RevisionNo(2),
            ..
        }
    ));
}

#[test]
fn a_watcher_sees_the_newest_snapshot_and_can_list_what_it_missed() {
    let store = store();
    let mut watcher = store.watch();
    let seen = watcher.borrow_and_update().revision.number;
    for names in [&["a"][..], &["a", "b"], &["a", "b", "c"]] {
        store.commit(proposal(None, names), NOW).unwrap();
    }
    assert!(watcher.has_changed().unwrap());
    assert_eq!(watcher.borrow_and_update().revision.number, RevisionNo(3));
    let missed: Vec<u64> = store
        .since(seen)
        .unwrap()
        .iter()
        .map(|revision| revision.number.0)
        .collect();
    assert_eq!(missed, [1, 2, 3]);
    assert!(!watcher.has_changed().unwrap());
}

#[test]
fn a_watcher_also_sees_that_a_revision_was_confirmed() {
    let store = store();
    let mut watcher = store.watch();
    store
        .commit_confirm(proposal(None, &["br0"]), NOW.plus(60), NOW)
        .unwrap();
    assert!(watcher.borrow_and_update().pending.is_some());
    store.confirm(None, &Note::default(), NOW).unwrap();
    assert!(watcher.borrow_and_update().pending.is_none());
}

#[test]
fn the_file_is_imported_when_it_changed_and_only_then() {
    let directory = tempfile::tempdir().unwrap();
    let file = with_bridges(&["br0"]);
    {
        let store = Store::open(directory.path(), NOW).unwrap();
        assert!(matches!(
            store.import(&file, Note::default(), NOW).unwrap(),
            FileImport::Committed(_)
        ));
        store.commit(proposal(None, &["br0", "br1"]), NOW).unwrap();
    }
    let store = Store::open(directory.path(), NOW).unwrap();
    assert!(matches!(
        store.import(&file, Note::default(), NOW).unwrap(),
        FileImport::Unchanged(_)
    ));
    assert_eq!(names(&store.head().config), ["br0", "br1"]);
    let edited = with_bridges(&["br0", "br2"]);
    assert!(matches!(
        store.import(&edited, Note::default(), NOW).unwrap(),
        FileImport::Committed(_)
    ));
    assert_eq!(names(&store.head().config), ["br0", "br2"]);
}

#[test]
fn whether_the_file_would_be_imported_is_reported_before_it_is() {
    let store = store();
    let file = with_bridges(&["br0"]);
    assert!(!store.has_imported(&file).unwrap());
    store.import(&file, Note::default(), NOW).unwrap();
    store.commit(proposal(None, &["br1"]), NOW).unwrap();
    assert!(store.has_imported(&file).unwrap());
    assert!(!store.has_imported(&with_bridges(&["br1"])).unwrap());
    assert_eq!(names(&store.head().config), ["br1"]);
}

#[test]
fn a_start_from_an_earlier_revision_makes_a_new_one_and_ends_a_wait() {
    let store = store();
    let file = with_bridges(&["br0"]);
    store.import(&file, Note::default(), NOW).unwrap();
    store
        .commit_confirm(proposal(None, &["br1"]), NOW.plus(60), NOW)
        .unwrap();
    let revision = store.restart_from(RevisionNo(1), Note::default(), NOW).unwrap();
    assert_eq!(
        (revision.number, revision.operation),
        (RevisionNo(3), Operation::Rollback { to: RevisionNo(1) })
    );
    assert_eq!(names(&store.head().config), ["br0"]);
    assert_eq!(store.head().pending, None);
    assert!(store.has_imported(&file).unwrap());
    let again = store.restart_from(RevisionNo(1), Note::default(), NOW).unwrap();
    assert_eq!(again.number, RevisionNo(3), "the same content is no new revision");
    assert!(matches!(
        store.restart_from(RevisionNo(9), Note::default(), NOW),
        Err(CommitError::Read(ReadError::NoSuchRevision {
            newest: RevisionNo(3),
            ..
        }))
    ));
}

#[test]
fn the_history_is_bounded_and_says_what_it_still_holds() {
    let directory = tempfile::tempdir().unwrap();
    let retention = Retention {
        revisions: 5,
        ..Retention::default()
    };
    let store = Store::open_with(directory.path(), retention, NOW).unwrap();
    for round in 0..20 {
        store
            .commit(proposal(None, &[&format!("b{round}x")]), NOW)
            .unwrap();
    }
    let kept: Vec<u64> = store
        .history(100)
        .unwrap()
        .iter()
        .map(|revision| revision.number.0)
        .collect();
    assert_eq!(kept, [20, 19, 18, 17, 16]);
    let error = store.at(RevisionNo(3)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "revision 3 does not exist: the store holds 16 to 20"
    );
}

#[test]
fn the_history_is_bounded_in_bytes_but_keeps_what_a_confirmation_falls_back_to() {
    let directory = tempfile::tempdir().unwrap();
    let retention = Retention {
        bytes: 1,
        ..Retention::default()
    };
    let store = Store::open_with(directory.path(), retention, NOW).unwrap();
    store.commit(proposal(None, &["br0"]), NOW).unwrap();
    assert_eq!(store.history(100).unwrap().len(), 1);
    store
        .commit_confirm(proposal(None, &["br1"]), NOW.plus(9), NOW)
        .unwrap();
    store
        .commit_confirm(proposal(None, &["br2"]), NOW.plus(9), NOW)
        .unwrap();
    assert_eq!(store.history(100).unwrap().len(), 3);
    store.tick(NOW.plus(9)).unwrap().unwrap();
    assert_eq!(names(&store.head().config), ["br0"]);
    assert_eq!(store.history(100).unwrap().len(), 1);
}

#[test]
fn of_many_commits_from_one_revision_exactly_one_wins() {
    let store = store();
    for round in 0..20 {
        let barrier = Arc::new(Barrier::new(8));
        let winners: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|thread| {
                    let (store, barrier) = (store.clone(), barrier.clone());
                    scope.spawn(move || {
                        let mine = format!("b{round}-{thread}");
                        barrier.wait();
                        store.commit(proposal(Some(round), &[&mine]), NOW).is_ok()
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| usize::from(thread.join().unwrap()))
                .sum()
        });
        assert_eq!(winners, 1);
        assert_eq!(store.head().revision.number, RevisionNo(round + 1));
    }
}

#[test]
fn increments_by_read_and_commit_are_never_lost() {
    let store = store();
    store.commit(proposal(None, &["br0"]), NOW).unwrap();
    let (threads, each) = (4, 25);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..each {
                    loop {
                        let head = store.head();
                        let mut config = Config::clone(&head.config);
                        let size = config.bridges[0].mac_table_size.get() + 1;
                        config.bridges[0].mac_table_size = millrace_model::MacTableSize::new(size).unwrap();
                        let expected = Some(head.revision.number);
                        match store.commit(
                            Proposal {
                                expected,
                                config,
                                note: Note::default(),
                            },
                            NOW,
                        ) {
                            Ok(_) => break,
                            Err(CommitError::Conflict { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
        }
    });
    let head = store.head();
    assert_eq!(head.config.bridges[0].mac_table_size.get(), 8192 + threads * each);
    assert_eq!(head.revision.number.0, u64::from(1 + threads * each));
    // The published revisions equal the written ones, in the same order.
    for (index, revision) in store.since(RevisionNo(1)).unwrap().iter().enumerate() {
        let (_, config) = store.at(revision.number).unwrap();
        assert_eq!(config.bridges[0].mac_table_size.get(), 8193 + index as u32);
    }
}

#[test]
fn a_note_is_cut_to_its_length_and_holds_no_control_characters() {
    let store = store();
    let note = Note::new("a\u{7}b\n", &"x".repeat(5000));
    let revision = store
        .commit(
            Proposal {
                expected: None,
                config: with_bridges(&["br0"]),
                note,
            },
            NOW,
        )
        .unwrap();
    assert_eq!(revision.author, "a b");
    assert_eq!(revision.comment.len(), Note::COMMENT_MAX);
}
