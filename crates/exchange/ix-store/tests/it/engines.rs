//! Several engines on one PostgreSQL server: one leads at a time, and an engine that does not lead any more writes nothing.

use std::time::{Duration, Instant};

use millrace_ix_store::{
    ChangeState, JournalRecord, Leader, Postgres, Revision, Role, SigningKey, Sqlite, Store as _, StoreError,
};
use millrace_testing::{postgres_database, postgres_sql};
use serde_json::json;

use crate::{NOW, engine, entry, object, puts};

/// A bound far above the time of any step of these tests.
const BOUND: Duration = Duration::from_secs(60);

/// Waits until the standing of an engine is as expected.
fn wait(store: &mut Postgres, what: &str, is_right: impl Fn(&millrace_ix_store::Standing) -> bool) {
    let start = Instant::now();
    loop {
        let standing = store.standing();
        if is_right(&standing) {
            return;
        }
        assert!(start.elapsed() < BOUND, "{what}: {standing:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn site(id: u32) -> millrace_ix_store::Transaction {
    millrace_ix_store::Transaction {
        audit: vec![entry("create_site", json!({}))],
        ..puts(vec![object("site", id, json!({"name": "Otemachi"}))])
    }
}

#[test]
fn the_second_engine_reads_and_refuses_writes_by_the_name_of_the_first_until_that_ends() {
    let Some(database) = postgres_database() else {
        return;
    };
    let mut first = engine(&database, "ix-1");
    let mut second = engine(&database, "ix-2");
    first.commit(&site(1), NOW).unwrap();
    let leader = Leader {
        name: "ix-1".to_owned(),
        address: "https://ix-1.example".to_owned(),
    };
    assert_eq!(
        second.standing().role,
        Role::Follows {
            leader: leader.clone(),
            epoch: 1
        }
    );
    assert_eq!(second.load().unwrap().objects, first.load().unwrap().objects);
    wait(&mut second, "the follower knows the revision", |standing| {
        standing.revision == Revision(1)
    });
    let refused = second.commit(&site(2), NOW).unwrap_err();
    assert!(
        matches!(&refused, StoreError::Follows { leader: found } if *found == leader),
        "{refused:?}"
    );
    assert!(
        refused.to_string().contains("ix-1 (https://ix-1.example)"),
        "{refused}"
    );
    assert!(matches!(
        second.put_setting("a", None),
        Err(StoreError::Follows { .. })
    ));
    let term = second.standing().term;
    // An engine that ends in order lets the other one lead without the silence of a lease.
    drop(first);
    let ended = Instant::now();
    wait(&mut second, "the second engine leads", |standing| {
        standing.epoch() == Some(2)
    });
    assert_ne!(second.standing().term, term);
    println!("leads after {:?}", ended.elapsed());
    second.load().unwrap();
    second.commit(&site(2), NOW).unwrap();
}

#[test]
fn a_leader_that_is_silent_is_followed_by_another_one_whose_epoch_is_greater() {
    let Some(database) = postgres_database() else {
        return;
    };
    drop(engine(&database, "ix-1"));
    // The process of this holder was killed: it never beats again.
    postgres_sql(
        &database,
        "UPDATE lease SET holder = 'killed', name = 'ix-0', released = false",
    );
    let mut store = engine(&database, "ix-1");
    assert!(matches!(&store.standing().role, Role::Follows { leader, .. } if leader.name == "ix-0"));
    wait(&mut store, "the silent leader is replaced", |standing| {
        standing.epoch() == Some(2)
    });
}

#[test]
fn a_leader_whose_lease_was_taken_follows_and_its_writes_are_refused_before_it_knows() {
    let Some(database) = postgres_database() else {
        return;
    };
    let mut old = engine(&database, "ix-1");
    old.commit(&site(1), NOW).unwrap();
    old.begin().unwrap();
    old.write(&site(2), NOW).unwrap();
    old.finish().unwrap();
    // Another engine has begun to lead while this one was stopped.
    postgres_sql(
        &database,
        "UPDATE lease SET holder = 'other', name = 'ix-2', beat = beat + 1; UPDATE engine SET epoch = epoch + 1",
    );
    let refused = old.commit(&site(3), NOW).unwrap_err();
    // The lease may have told it already.
    assert!(
        matches!(
            refused,
            StoreError::Fenced { found: 2, mine: 1 } | StoreError::Follows { .. }
        ),
        "{refused:?}"
    );
    wait(
        &mut old,
        "the old leader follows",
        |standing| matches!(&standing.role, Role::Follows { leader, .. } if leader.name == "ix-2"),
    );
    assert!(matches!(
        old.commit(&site(3), NOW),
        Err(StoreError::Follows { .. })
    ));
    assert_eq!(
        postgres_sql(&database, "SELECT string_agg(id::text, ',') FROM object"),
        "1,2"
    );
}

#[test]
fn a_lost_connection_fails_one_write_and_is_made_again() {
    let Some(database) = postgres_database() else {
        return;
    };
    let mut store = engine(&database, "ix-1");
    store.commit(&site(1), NOW).unwrap();
    let term = store.standing().term;
    store.begin().unwrap();
    store.write(&site(2), NOW).unwrap();
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE 'millrace-ix%'";
    assert_ne!(postgres_sql(&database, end), "0");
    let lost = store.finish().unwrap_err();
    assert!(matches!(lost, StoreError::Away(_)), "{lost:?}");
    wait(&mut store, "the database answers again", |standing| {
        standing.silent.is_none()
    });
    // Nothing of the group was written, so that the engine's memory is right.
    let standing = store.standing();
    assert_eq!((standing.term, standing.epoch()), (term, Some(1)));
    store.commit(&site(3), NOW).unwrap();
    assert_eq!(store.load().unwrap().revision, Revision(2));
}

#[test]
fn a_leader_that_was_cut_off_while_another_one_took_over_follows_before_it_reads() {
    let Some(database) = postgres_database() else {
        return;
    };
    let mut old = engine(&database, "ix-1");
    old.commit(&site(1), NOW).unwrap();
    let term = old.standing().term;
    // The other engine has written, so that the contents are other ones, too.
    postgres_sql(
        &database,
        "UPDATE lease SET holder = 'other', name = 'ix-2', beat = beat + 1;
         UPDATE engine SET epoch = epoch + 1, revision = revision + 1;
         SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name LIKE 'millrace-ix%'",
    );
    let begin = Instant::now();
    loop {
        let standing = old.standing();
        if matches!(standing.role, Role::Follows { .. }) {
            break;
        }
        assert_eq!(standing.term, term, "this engine never leads again: {standing:?}");
        assert!(begin.elapsed() < BOUND);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_database_that_has_other_contents_after_a_pause_is_read_again_before_it_is_written() {
    let Some(database) = postgres_database() else {
        return;
    };
    let mut store = engine(&database, "ix-1");
    store.commit(&site(1), NOW).unwrap();
    let term = store.standing().term;
    // A commit whose answer was lost, or a backup of this engine's own time: the lease and the epoch are the same.
    postgres_sql(&database, "UPDATE engine SET revision = 7");
    let refused = store.commit(&site(2), NOW).unwrap_err();
    assert!(refused.to_string().contains("read again"), "{refused}");
    assert_ne!(store.standing().term, term);
    assert_eq!(store.load().unwrap().revision, Revision(7));
    assert_eq!(store.commit(&site(2), NOW).unwrap().revision, Revision(8));
}

#[test]
fn the_file_of_an_engine_is_copied_as_it_is_into_an_empty_database_and_no_other() {
    let Some(database) = postgres_database() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut file = Sqlite::open(&folder.path().join("exchange.db")).unwrap();
    let address = |id, end: &str| object("mc", id, json!({"config": end, "address": "02:00:00:00:00:01"}));
    let record = |state| JournalRecord {
        change: 1,
        state,
        at: NOW,
        detail: json!({"text": "caf\u{e9}\u{1}"}),
    };
    let transaction = millrace_ix_store::Transaction {
        puts: vec![
            object(
                "nc",
                1,
                json!({"connection": "cn-1", "service": "sv-1", "vlan": {"type": "port"}}),
            ),
            object("cn", 1, json!({"ports": [{"switch": "sw-1", "port": 1}]})),
            address(1, "nc-1"),
        ],
        journal: vec![record(ChangeState::Accepted), record(ChangeState::Planned)],
        ..site(7)
    };
    file.commit(&transaction, NOW).unwrap();
    let key = SigningKey::from_pkcs8(&SigningKey::generate().unwrap()).unwrap();
    file.sign_head(&key, NOW).unwrap();
    file.put_credential("totp/us-1", Some(&[0, 255, 7])).unwrap();
    file.put_setting("adopted", Some(&json!(true))).unwrap();
    file.raise_epoch(40).unwrap();

    let mut store = engine(&database, "ix-1");
    store.copy_from(&file).unwrap();
    assert!(
        store.standing().epoch().is_some_and(|epoch| epoch > 41),
        "{:?}",
        store.standing()
    );
    let (old, new) = (file.load().unwrap(), store.load().unwrap());
    assert_eq!(
        (old.objects, old.open_changes, old.revision, old.next_change),
        (new.objects, new.open_changes, new.revision, new.next_change)
    );
    assert_eq!(file.audit(0, 10).unwrap(), store.audit(0, 10).unwrap());
    assert_eq!(file.signed_heads().unwrap(), store.signed_heads().unwrap());
    assert_eq!(file.journal(1).unwrap(), store.journal(1).unwrap());
    assert_eq!(store.credential("totp/us-1").unwrap(), Some(vec![0, 255, 7]));
    assert_eq!(store.setting("adopted").unwrap(), Some(json!(true)));
    assert_eq!(store.newest_time().unwrap(), NOW);
    // The constraints know the copied objects, and the chain goes on.
    let taken = puts(vec![object(
        "cn",
        2,
        json!({"ports": [{"switch": "sw-1", "port": 1}]}),
    )]);
    assert!(matches!(
        store.commit(&taken, NOW),
        Err(StoreError::Constraint { .. })
    ));
    store.commit(&site(8), NOW).unwrap();
    millrace_ix_store::verify(&store.audit(0, 10).unwrap(), &store.signed_heads().unwrap(), None).unwrap();
    assert!(store.copy_from(&file).unwrap_err().to_string().contains("empty"));
}

#[test]
fn the_server_refuses_changes_of_the_audit_chain_and_the_journal() {
    let Some(database) = postgres_database() else {
        return;
    };
    let mut store = engine(&database, "ix-1");
    store.commit(&site(1), NOW).unwrap();
    for statement in [
        "DELETE FROM audit",
        "UPDATE audit SET hash = ''",
        "TRUNCATE audit",
        "TRUNCATE journal",
        "UPDATE object SET id = 9",
    ] {
        let tried = format!(
            "CREATE TEMP TABLE outcome (text TEXT);
             DO $$ BEGIN {statement}; INSERT INTO outcome VALUES ('done');
             EXCEPTION WHEN integrity_constraint_violation THEN INSERT INTO outcome VALUES ('refused'); END $$;
             SELECT text FROM outcome"
        );
        assert_eq!(postgres_sql(&database, &tried), "refused", "{statement}");
    }
    assert_eq!(store.audit(0, 10).unwrap().len(), 1);
}

#[test]
fn a_database_that_may_lose_what_is_acknowledged_is_refused() {
    let Some(database) = postgres_database() else {
        return;
    };
    postgres_sql(
        &database,
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); END $$",
    );
    let settings = millrace_ix_store::PostgresSettings {
        connection: database,
        password: None,
        ca_certificate: None,
        name: "ix-1".to_owned(),
        address: String::new(),
    };
    let refused = Postgres::open(settings.clone()).unwrap_err();
    assert!(refused.to_string().contains("synchronous_commit"), "{refused}");
    for (connection, word) in [
        ("host=db.example dbname=ix", "postgres_ca_certificate"),
        ("dbname=ix", "expected a host"),
        ("host=/run/none dbname=ix", "does not answer"),
        ("hots=/run", "hots"),
    ] {
        let connection = connection.to_owned();
        let refused = Postgres::open(millrace_ix_store::PostgresSettings {
            connection,
            ..settings.clone()
        })
        .unwrap_err();
        assert!(refused.to_string().contains(word), "{refused}");
    }
    let name = String::new();
    assert!(Postgres::open(millrace_ix_store::PostgresSettings { name, ..settings }).is_err());
}
