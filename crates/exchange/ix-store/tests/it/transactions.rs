//! Transactions: all or nothing, revisions, journal, retried requests, the epoch, a full disk.

use millrace_ix_store::{
    Answer, ChangeState, IdempotencyKey, JournalRecord, Revision, Session, Sqlite, Store as _, StoreError,
    Transaction, UnixMillis,
};
use serde_json::json;
use std::os::unix::fs::PermissionsExt as _;

use crate::{NOW, entry, object, puts, stores};

fn record(change: u64, state: ChangeState) -> JournalRecord {
    JournalRecord {
        change,
        state,
        at: NOW,
        detail: json!({"why": "test"}),
    }
}

#[test]
fn an_object_has_the_revision_of_the_transaction_that_wrote_it_last() {
    for mut store in stores() {
        let first = store
            .commit(
                &puts(vec![object("site", 1, json!({})), object("site", 2, json!({}))]),
                NOW,
            )
            .unwrap();
        let second = store
            .commit(&puts(vec![object("site", 2, json!({"name": "Makuhari"}))]), NOW)
            .unwrap();
        assert_eq!((first.revision, second.revision), (Revision(1), Revision(2)));
        let revisions: Vec<_> = store
            .load()
            .unwrap()
            .objects
            .iter()
            .map(|row| (row.id, row.revision.0))
            .collect();
        assert_eq!(revisions, [(1, 1), (2, 2)]);
    }
}

#[test]
fn a_refused_transaction_writes_nothing() {
    for mut store in stores() {
        let end = |id| object("nc", id, json!({"connection": "cn-1", "vlan": {"type": "port"}}));
        let transaction = Transaction {
            puts: vec![object("site", 1, json!({})), end(1), end(2)],
            journal: vec![record(1, ChangeState::Accepted)],
            audit: vec![entry("add_mac", json!({}))],
            ..Transaction::default()
        };
        assert!(matches!(
            store.commit(&transaction, NOW),
            Err(StoreError::Constraint { .. })
        ));
        let contents = store.load().unwrap();
        assert_eq!(
            (contents.objects.len(), contents.revision, contents.next_change),
            (0, Revision(0), 1)
        );
        assert!(store.audit(0, 10).unwrap().is_empty() && store.journal(1).unwrap().is_empty());
    }
}

#[test]
fn the_journal_tells_which_changes_are_not_finished() {
    for mut store in stores() {
        let journal = |records| Transaction {
            journal: records,
            ..Transaction::default()
        };
        store
            .commit(
                &journal(vec![
                    record(1, ChangeState::Accepted),
                    record(2, ChangeState::Accepted),
                ]),
                NOW,
            )
            .unwrap();
        store
            .commit(
                &journal(vec![
                    record(1, ChangeState::Planned),
                    record(2, ChangeState::Planned),
                ]),
                NOW,
            )
            .unwrap();
        store
            .commit(&journal(vec![record(2, ChangeState::RolledBack)]), NOW)
            .unwrap();
        let contents = store.load().unwrap();
        let open: Vec<_> = contents
            .open_changes
            .iter()
            .map(|change| (change.id, change.state))
            .collect();
        assert_eq!((open, contents.next_change), (vec![(1, ChangeState::Planned)], 3));
        let states: Vec<_> = store
            .journal(2)
            .unwrap()
            .iter()
            .map(|record| record.state)
            .collect();
        assert_eq!(
            states,
            [
                ChangeState::Accepted,
                ChangeState::Planned,
                ChangeState::RolledBack
            ]
        );
        let all: Vec<_> = store
            .changes(u64::MAX, 10)
            .unwrap()
            .iter()
            .map(|change| change.id)
            .collect();
        assert_eq!(all, [2, 1]);
    }
}

#[test]
fn a_journal_record_of_an_unknown_change_is_refused() {
    for mut store in stores() {
        let transaction = Transaction {
            journal: vec![record(7, ChangeState::Planned)],
            ..Transaction::default()
        };
        assert!(store.commit(&transaction, NOW).is_err());
    }
}

#[test]
fn an_answer_is_kept_for_24_hours_in_the_scope_of_its_account() {
    for mut store in stores() {
        let key = |scope: &str| IdempotencyKey {
            scope: scope.to_owned(),
            key: "k1".to_owned(),
        };
        let answer = Answer {
            request_hash: "00".to_owned(),
            body: json!({"id": "sv-1"}),
        };
        let transaction = Transaction {
            answers: vec![(key("ac-1"), answer.clone())],
            ..Transaction::default()
        };
        store.commit(&transaction, NOW).unwrap();
        let day = 24 * 3600 * 1000;
        let found = store.answer(&key("ac-1"), UnixMillis(NOW.0 + day - 1)).unwrap();
        assert_eq!(found.map(|stored| stored.answer), Some(answer));
        assert_eq!(store.answer(&key("ac-2"), NOW).unwrap(), None);
        assert_eq!(store.answer(&key("ac-1"), UnixMillis(NOW.0 + day)).unwrap(), None);
        let alone = Answer {
            request_hash: "01".to_owned(),
            body: json!("without a transaction"),
        };
        store.put_answer(&key("ac-2"), &alone, NOW).unwrap();
        let found = store.answer(&key("ac-2"), NOW).unwrap();
        assert_eq!(found.map(|stored| stored.answer), Some(alone));
    }
}

#[test]
fn a_session_ends_at_its_time() {
    for mut store in stores() {
        let session = Session {
            token_hash: "ab".to_owned(),
            expires: UnixMillis(5000),
            body: json!({"user": "us-1"}),
        };
        store.put_session(&session).unwrap();
        assert_eq!(store.session("ab", UnixMillis(4999)).unwrap(), Some(session));
        assert_eq!(store.session("ab", UnixMillis(5000)).unwrap(), None);
        store.delete_session("ab").unwrap();
        assert_eq!(store.session("ab", UnixMillis(0)).unwrap(), None);
    }
}

#[test]
fn an_engine_that_opened_the_file_earlier_cannot_write_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("exchange.db");
    let mut old = Sqlite::open(&path).unwrap();
    let mut new = Sqlite::open(&path).unwrap();
    let write = puts(vec![object("site", 1, json!({}))]);
    assert!(matches!(
        old.commit(&write, NOW),
        Err(StoreError::Fenced { found: 2, mine: 1 })
    ));
    let session = Session {
        token_hash: "ab".to_owned(),
        expires: UnixMillis(5000),
        body: json!({}),
    };
    let refused = [
        old.put_session(&session),
        old.delete_session("ab"),
        old.put_setting("name", Some(&json!(1))),
        old.put_credential("key", Some(b"value")),
        old.raise_revision(Revision(9)),
        old.raise_epoch(9).map(drop),
        old.prune(NOW),
    ];
    for result in refused {
        assert!(
            matches!(result, Err(StoreError::Fenced { found: 2, mine: 1 })),
            "{result:?}"
        );
    }
    new.commit(&write, NOW).unwrap();
    new.put_session(&session).unwrap();
    // The switches were led in a later epoch, as after the restore of an old database.
    assert_eq!(new.raise_epoch(7).unwrap(), 8);
    assert_eq!(new.raise_epoch(3).unwrap(), 9);
    new.commit(&puts(Vec::new()), NOW).unwrap();
    assert_eq!(new.load().unwrap().epoch, 9);
    for latest in [u64::MAX, i64::MAX as u64 - 1] {
        assert!(new.raise_epoch(latest).is_err());
    }
}

#[test]
fn the_file_belongs_to_its_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("exchange.db");
    let mut store = Sqlite::open(&path).unwrap();
    store
        .commit(&puts(vec![object("site", 1, json!({}))]), NOW)
        .unwrap();
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let file = file.unwrap();
        assert_eq!(
            file.metadata().unwrap().permissions().mode() & 0o777,
            0o600,
            "{:?}",
            file.path()
        );
    }
    drop(store);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(Sqlite::open(&path), Err(StoreError::Open { .. })));
}

#[test]
fn a_full_disk_refuses_writes_with_a_reason_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("exchange.db");
    let mut store = Sqlite::open(&path).unwrap();
    store.limit_pages(60).unwrap();
    let body = json!({"text": "x".repeat(3000)});
    let mut written = 0;
    let refused = loop {
        let transaction = Transaction {
            puts: vec![object("site", written + 1, body.clone())],
            audit: vec![entry("create_site", body.clone())],
            ..Transaction::default()
        };
        match store.commit(&transaction, NOW) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 1000, "the disk never fills");
    };
    assert!(matches!(refused, StoreError::Full), "{refused}");
    assert!(refused.to_string().contains("disk"));
    assert_eq!(store.load().unwrap().objects.len(), written as usize);
    assert_eq!(store.audit(0, 1000).unwrap().len(), written as usize);
    store.limit_pages(1000).unwrap();
    store
        .commit(&puts(vec![object("site", written + 1, body)]), NOW)
        .unwrap();
    store.check().unwrap();
}

#[test]
fn a_backup_has_the_contents_and_mode_0600() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Sqlite::open(&folder.path().join("exchange.db")).unwrap();
    store
        .commit(&puts(vec![object("site", 1, json!({"name": "Otemachi"}))]), NOW)
        .unwrap();
    let copy = folder.path().join("backup.db");
    store.back_up(&copy).unwrap();
    let copy = Sqlite::open(&copy).unwrap();
    assert_eq!(copy.load().unwrap().objects, store.load().unwrap().objects);
}

#[test]
fn settings_and_credentials_are_kept_by_name() {
    for mut store in stores() {
        store.put_setting("adopted", Some(&json!(true))).unwrap();
        assert_eq!(store.setting("adopted").unwrap(), Some(json!(true)));
        store.put_setting("adopted", None).unwrap();
        assert_eq!(store.setting("adopted").unwrap(), None);
        for key in ["password/us-1", "password/us_2", "totp/us-1"] {
            store.put_credential(key, Some(key.as_bytes())).unwrap();
        }
        assert_eq!(
            store.credential_keys("password/us").unwrap(),
            ["password/us-1", "password/us_2"]
        );
        store.put_credential("totp/us-1", None).unwrap();
        assert_eq!(store.credential("totp/us-1").unwrap(), None);
        assert_eq!(
            store.credential("password/us-1").unwrap().as_deref(),
            Some(b"password/us-1".as_slice())
        );
    }
}

#[test]
fn the_revision_is_raised_and_never_lowered() {
    for mut store in stores() {
        store.raise_revision(Revision(100)).unwrap();
        store.raise_revision(Revision(50)).unwrap();
        let committed = store
            .commit(&puts(vec![object("st", 1, json!({}))]), NOW)
            .unwrap();
        assert_eq!(committed.revision, Revision(101));
    }
}

#[test]
fn a_group_is_on_the_medium_as_a_whole_when_it_is_finished_and_not_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("exchange.db");
    let mut store = Sqlite::open(&path).unwrap();
    let on_medium = || {
        let contents = Sqlite::open_read_only(&path).unwrap().load().unwrap();
        contents.objects.iter().map(|row| row.id).collect::<Vec<_>>()
    };
    let end = |id| object("nc", id, json!({"connection": "cn-1", "vlan": {"type": "port"}}));
    store.begin().unwrap();
    let first = store.write(&puts(vec![end(1)]), NOW).unwrap();
    // The second end takes the port of the first, and is refused alone.
    let refused = store.write(&puts(vec![object("site", 8, json!({})), end(2)]), NOW);
    assert!(
        matches!(refused, Err(StoreError::Constraint { .. })),
        "{refused:?}"
    );
    let third = store
        .write(&puts(vec![object("site", 9, json!({}))]), NOW)
        .unwrap();
    assert_eq!((first.revision, third.revision), (Revision(1), Revision(2)));
    assert_eq!(on_medium(), [0; 0]);
    store.finish().unwrap();
    assert_eq!(on_medium(), [1, 9]);
    store.begin().unwrap();
    store
        .write(&puts(vec![object("site", 10, json!({}))]), NOW)
        .unwrap();
    store.abandon();
    assert_eq!(on_medium(), [1, 9]);
    assert!(store.finish().is_err(), "there is no group");
    assert!(
        store
            .write(&puts(vec![object("site", 10, json!({}))]), NOW)
            .is_err()
    );
    store
        .commit(&puts(vec![object("site", 11, json!({}))]), NOW)
        .unwrap();
    assert_eq!(on_medium(), [1, 9, 11]);
}

#[test]
fn a_group_that_fills_the_disk_leaves_nothing_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Sqlite::open(&folder.path().join("exchange.db")).unwrap();
    store
        .commit(&puts(vec![object("site", 1, json!({}))]), NOW)
        .unwrap();
    store.limit_pages(60).unwrap();
    let body = json!({"text": "x".repeat(3000)});
    store.begin().unwrap();
    let failed = (2..1000).find_map(|id| {
        let written = store.write(&puts(vec![object("site", id, body.clone())]), NOW);
        written.err()
    });
    assert!(matches!(failed, Some(StoreError::Full)), "{failed:?}");
    store.abandon();
    store.limit_pages(1000).unwrap();
    assert_eq!(store.load().unwrap().objects.len(), 1);
    store.commit(&puts(vec![object("site", 2, body)]), NOW).unwrap();
    store.check().unwrap();
}

#[test]
fn a_clock_that_was_ahead_is_forgotten_with_the_answers_of_its_time() {
    let far = UnixMillis(NOW.0 * 2);
    for mut store in stores() {
        store
            .commit(&puts(vec![object("site", 1, json!({}))]), NOW)
            .unwrap();
        let key = |key: &str| IdempotencyKey {
            scope: "us-1".to_owned(),
            key: key.to_owned(),
        };
        let answer = Answer {
            request_hash: "hash".to_owned(),
            body: json!({}),
        };
        store.put_answer(&key("before"), &answer, NOW).unwrap();
        store.put_answer(&key("ahead"), &answer, far).unwrap();
        store
            .commit(&puts(vec![object("site", 2, json!({}))]), far)
            .unwrap();
        assert_eq!(store.newest_time().unwrap(), far);
        let now = UnixMillis(NOW.0 + 1000);
        assert_eq!(
            store.reset_time(now, entry("reset_clock", json!({}))).unwrap(),
            far
        );
        assert_eq!(store.newest_time().unwrap(), now);
        assert!(store.answer(&key("ahead"), now).unwrap().is_none());
        assert!(store.answer(&key("before"), now).unwrap().is_some());
        assert_eq!(store.load().unwrap().objects.len(), 2, "what was ordered stays");
        let chain = store.audit(0, 10).unwrap();
        assert_eq!(chain.last().unwrap().body["action"], "reset_clock");
        assert_eq!(store.audit_before(u64::MAX, 1).unwrap(), chain[chain.len() - 1..]);
        millrace_ix_store::verify(&chain, &[], None).unwrap();
    }
}
