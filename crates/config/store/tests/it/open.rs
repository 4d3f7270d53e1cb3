//! Opening of a store: a second time, after a deadline, in an unsuitable directory, and with damaged files.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;

use millrace_model::{Bridge, Config, ObjectName};
use millrace_store::{
    CommitError, FILE_NAME, FileImport, Note, OpenError, Operation, Origin, Proposal, RevisionNo, Store,
    UnixTime,
};

const NOW: UnixTime = UnixTime(1_700_000_000);

fn proposal(name: &str) -> Proposal {
    let mut config = Config::default();
    config.bridges.push(Bridge::new(name.parse().unwrap()));
    Proposal {
        expected: None,
        config,
        note: Note::new("alice", ""),
    }
}

#[test]
fn what_was_committed_is_there_when_the_store_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("made/on/the/way");
    let revision = Store::open(&path, NOW)
        .unwrap()
        .commit(proposal("br0"), NOW)
        .unwrap();
    let store = Store::open(&path, NOW).unwrap();
    assert_eq!(store.head().revision, revision);
    assert_eq!(*store.head().config, proposal("br0").config);
    assert_eq!(
        fs::read_dir(&path).unwrap().count(),
        1,
        "only the store, no draft of it"
    );
}

#[test]
fn a_pending_confirmation_survives_a_restart_with_the_rest_of_its_time() {
    let directory = tempfile::tempdir().unwrap();
    Store::open(directory.path(), NOW)
        .unwrap()
        .commit_confirm(proposal("br0"), NOW.plus(60), NOW)
        .unwrap();

    let store = Store::open(directory.path(), NOW.plus(59)).unwrap();
    assert_eq!(store.head().revision.number, RevisionNo(1));
    assert_eq!(store.head().pending.unwrap().deadline, NOW.plus(60));
    drop(store);

    let store = Store::open(directory.path(), NOW.plus(61)).unwrap();
    assert_eq!(
        store.head().revision.operation,
        Operation::Expired { to: RevisionNo(0) }
    );
    assert_eq!(*store.head().config, Config::default());
    drop(store);

    let store = Store::open(directory.path(), NOW.plus(99)).unwrap();
    assert_eq!(store.head().revision.number, RevisionNo(2));
}

#[test]
fn a_clock_that_was_set_back_does_not_lengthen_the_time_to_confirm() {
    let directory = tempfile::tempdir().unwrap();
    Store::open(directory.path(), NOW)
        .unwrap()
        .commit_confirm(proposal("br0"), NOW.plus(60), NOW)
        .unwrap();
    let earlier = UnixTime(NOW.0 - 86_400);
    let store = Store::open(directory.path(), earlier).unwrap();
    assert_eq!(store.head().pending.unwrap().deadline, earlier.plus(60));
    assert!(store.tick(earlier.plus(60)).unwrap().is_some());
}

#[test]
fn an_unchanged_file_is_not_imported_again_by_the_next_version() {
    use redb::ReadableTable as _;
    const META: redb::TableDefinition<'_, &str, &[u8]> = redb::TableDefinition::new("meta");
    let directory = tempfile::tempdir().unwrap();
    let file = proposal("br0").config;
    let store = Store::open(directory.path(), NOW).unwrap();
    store.import(&file, Note::default(), NOW).unwrap();
    store.commit(proposal("br1"), NOW).unwrap();
    drop(store);
    // Versions up to 0.1.0 stored their own name as the software of each bridge.
    let database = redb::Database::open(directory.path().join("store.redb")).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let mut meta = transaction.open_table(META).unwrap();
        let stored = meta.get("file").unwrap().unwrap().value().to_vec();
        let mut stored: serde_json::Value = serde_json::from_slice(&stored).unwrap();
        stored["bridge"][0]["description"]["software"] = "Millrace 0.0.9".into();
        meta.insert("file", stored.to_string().as_bytes()).unwrap();
    }
    transaction.commit().unwrap();
    drop(database);
    let store = Store::open(directory.path(), NOW).unwrap();
    assert!(matches!(
        store.import(&file, Note::default(), NOW).unwrap(),
        FileImport::Unchanged(_)
    ));
    assert_eq!(store.head().config.bridges[0].name.as_str(), "br1");
}

#[test]
fn a_revision_that_this_version_would_not_accept_can_be_read_and_corrected() {
    const CONFIGS: redb::TableDefinition<'_, u64, &[u8]> = redb::TableDefinition::new("configs");
    let directory = tempfile::tempdir().unwrap();
    Store::open(directory.path(), NOW)
        .unwrap()
        .commit(proposal("br0"), NOW)
        .unwrap();
    // An earlier version accepted two bridges with one name.
    let database = redb::Database::open(directory.path().join(FILE_NAME)).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let mut stored = proposal("br0").config.to_json();
        let bridge = stored["bridge"][0].clone();
        stored["bridge"].as_array_mut().unwrap().push(bridge);
        let mut configs = transaction.open_table(CONFIGS).unwrap();
        configs.insert(1, stored.to_string().as_bytes()).unwrap();
    }
    transaction.commit().unwrap();
    drop(database);
    let store = Store::open(directory.path(), NOW).unwrap();
    assert_eq!(store.head().config.bridges.len(), 2);
    store.commit(proposal("br0"), NOW).unwrap();
    assert_eq!(store.head().config.bridges.len(), 1);
    let refused = store.rollback(None, RevisionNo(1), Note::default(), NOW);
    assert!(matches!(refused, Err(CommitError::Invalid(_))), "{refused:?}");
}

#[test]
fn a_store_in_use_is_refused_by_name_and_free_again_when_it_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), NOW).unwrap();
    let error = Store::open(directory.path(), NOW).unwrap_err();
    assert!(matches!(error, OpenError::Locked { .. }));
    assert!(
        error
            .to_string()
            .contains("store.redb: in use by another process"),
        "{error}"
    );
    drop(store);
    Store::open(directory.path(), NOW).unwrap();
}

#[test]
fn of_many_that_make_a_store_at_once_one_gets_it_and_none_finds_it_broken() {
    for _ in 0..10 {
        let directory = tempfile::tempdir().unwrap();
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| Store::open(directory.path(), NOW)))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let refused = results.iter().filter_map(|result| result.as_ref().err());
        for error in refused {
            assert!(matches!(error, OpenError::Locked { .. }), "{error}");
        }
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_refused_with_a_next_step() {
    // This directory cannot be created, even by root.
    let error = Store::open(std::path::Path::new("/sys/millrace"), NOW).unwrap_err();
    assert!(matches!(error, OpenError::Permission { .. }), "{error}");
    assert!(error.to_string().contains("state_dir"), "{error}");
}

#[test]
fn a_file_that_is_no_store_is_refused_and_left_as_it_is() {
    for content in [&b""[..], b"not a store", &[0; 8192]] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        fs::write(&path, content).unwrap();
        let error = Store::open(directory.path(), NOW).unwrap_err();
        assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
        assert!(error.to_string().contains("restore it from a backup"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), content);
    }
}

#[test]
fn a_store_of_a_newer_version_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    Store::open(directory.path(), NOW).unwrap();
    {
        let database = redb::Database::open(directory.path().join(FILE_NAME)).unwrap();
        let transaction = database.begin_write().unwrap();
        let meta: redb::TableDefinition<'_, &str, &[u8]> = redb::TableDefinition::new("meta");
        transaction
            .open_table(meta)
            .unwrap()
            .insert("schema", &b"3"[..])
            .unwrap();
        transaction.commit().unwrap();
    }
    let error = Store::open(directory.path(), NOW).unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::Newer {
                found: 3,
                known: 2,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn what_a_crash_left_of_a_store_in_the_making_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let draft = directory.path().join("store.draft-999999999");
    fs::write(&draft, [0; 5000]).unwrap();
    Store::open(directory.path(), NOW).unwrap();
    assert!(!draft.exists());
}

#[test]
fn a_damaged_store_is_refused_or_read_but_never_a_panic() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), NOW).unwrap();
    for round in 0..30_u64 {
        // People own a bridge, and a machine another one.
        let (origin, own) = match round % 3 {
            0 => (Origin::LOCAL, "l"),
            _ => (Origin::ETCD, "e"),
        };
        let mut given = proposal(&format!("{own}{round}x"));
        let others = store.head().config.bridges.clone().into_iter();
        let others = others.filter(|bridge| !bridge.name.as_str().starts_with(own));
        given.config.bridges.extend(others);
        given.note = given.note.of(origin).external(round);
        store.commit(given, NOW).unwrap();
    }
    assert_eq!(store.history(100).unwrap().len(), 21);
    drop(store);
    let path = directory.path().join(FILE_NAME);
    let sound = fs::read(&path).unwrap();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut refused = 0;
    for _ in 0..200 {
        let mut damaged = sound.clone();
        for _ in 0..4 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // The damage is at the start of the file, which holds the data. The rest is reserved space.
            let at = random as usize % damaged.len().min(200_000);
            damaged[at] ^= (random >> 32) as u8 | 1;
        }
        fs::write(&path, &damaged).unwrap();
        match Store::open(directory.path(), NOW) {
            Err(error) => {
                assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
                refused += 1;
            }
            Ok(store) => {
                for number in 0..=30 {
                    let _ = store.at(RevisionNo(number));
                }
                let _ = store.history(100);
            }
        }
    }
    assert!(refused > 0);
}

#[test]
fn the_store_is_for_its_owner_alone_and_not_in_a_directory_that_others_write_to() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
    let chmod = |path: &std::path::Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let outer = tempfile::tempdir().unwrap();
    let directory = outer.path().join("made/state");
    drop(Store::open(&directory, UnixTime(1)).unwrap());
    let files: Vec<_> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    assert_eq!((files.len(), mode(&directory)), (1, 0o700));
    assert_eq!(mode(&files[0]), 0o600);
    // An earlier version created the directory and the file with these modes.
    chmod(&directory, 0o755);
    chmod(&files[0], 0o644);
    drop(Store::open(&directory, UnixTime(2)).unwrap());
    assert_eq!((mode(&directory), mode(&files[0])), (0o755, 0o600));
    for open in [0o775, 0o777, 0o702] {
        chmod(&directory, open);
        let refused = Store::open(&directory, UnixTime(3)).unwrap_err().to_string();
        assert!(refused.contains("chmod go-w"), "{open:o}: {refused}");
    }
    chmod(&directory, 0o1777);
    assert!(Store::open(&directory, UnixTime(3)).is_ok());
}

/// A store that the version of 2026-11-28 wrote, with schema 1: revisions 1 (import), 2 (commit), 3 (rollback) and 4,
/// which waits for its confirmation until `NOW + 63`.
const SCHEMA_1: &[u8] = include_bytes!("../data/schema-1.redb");

fn schema_of(directory: &std::path::Path) -> String {
    use redb::ReadableDatabase as _;
    const META: redb::TableDefinition<'_, &str, &[u8]> = redb::TableDefinition::new("meta");
    let database = redb::Database::open(directory.join(FILE_NAME)).unwrap();
    let table = database.begin_read().unwrap().open_table(META).unwrap();
    let value = table.get("schema").unwrap().unwrap();
    String::from_utf8(value.value().to_vec()).unwrap()
}

#[test]
fn a_store_of_before_owners_is_read_whole_and_belongs_to_people() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join(FILE_NAME), SCHEMA_1).unwrap();
    let store = Store::open(directory.path(), NOW.plus(10)).unwrap();
    let history = store.history(10).unwrap();
    let found: Vec<_> = history
        .iter()
        .map(|revision| (revision.number.0, revision.operation, revision.author.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            (4, Operation::Commit, "alice"),
            (3, Operation::Rollback { to: RevisionNo(1) }, "bob"),
            (2, Operation::Commit, "alice"),
            (1, Operation::Commit, "millraced"),
            (0, Operation::Initial, ""),
        ]
    );
    assert!(
        history
            .iter()
            .all(|revision| revision.origin.is_local() && revision.replaces.is_none())
    );
    let head = store.head();
    assert!(head.owners.is_all_local() && head.externals.is_empty());
    assert_eq!(head.pending.unwrap().deadline, NOW.plus(63));
    assert!(matches!(
        store
            .import(&proposal("br0").config, Note::default(), NOW.plus(10))
            .unwrap(),
        FileImport::Unchanged(_)
    ));
    let back = store.tick(NOW.plus(63)).unwrap().unwrap();
    assert_eq!(back.operation, Operation::Expired { to: RevisionNo(3) });
    drop(store);
    // An earlier version can open the store again until a machine changes it.
    assert_eq!(schema_of(directory.path()), "1");
    let store = Store::open(directory.path(), NOW.plus(70)).unwrap();
    let mut config = proposal("br0").config;
    config.bridges.push(Bridge::new("br-int".parse().unwrap()));
    let of_machine = Proposal {
        expected: None,
        config,
        note: Note::new("neutron", "").of(Origin::OVSDB).external(7),
    };
    store.commit(of_machine, NOW.plus(70)).unwrap();
    drop(store);
    assert_eq!(schema_of(directory.path()), "2");
    let store = Store::open(directory.path(), NOW.plus(71)).unwrap();
    let head = store.head();
    assert_eq!(head.owners.owner(&ObjectName::bridge("br-int")), &Origin::OVSDB);
    assert_eq!(head.owners.owner(&ObjectName::bridge("br0")), &Origin::LOCAL);
    assert_eq!(
        (head.revision.external, head.externals.get(&Origin::OVSDB)),
        (Some(7), Some(&7))
    );
    assert_eq!(store.history(10).unwrap().len(), 7);
}
