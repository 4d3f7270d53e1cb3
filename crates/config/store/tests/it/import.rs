//! Import of the configuration file while, and after, its content awaits confirmation.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use millrace_model::{Bridge, Config};
use millrace_store::{FileImport, Note, Operation, Proposal, RevisionNo, Store, UnixTime};

const NOW: UnixTime = UnixTime(1_700_000_000);

fn with_bridge(name: &str) -> Config {
    Config {
        bridges: vec![Bridge::new(name.parse().unwrap())],
        ..Config::default()
    }
}

/// Commits the content of an edited file, to be confirmed within a minute, and ends as in a crash.
fn apply_and_crash(directory: &std::path::Path, file: &Config) {
    let store = Store::open(directory, NOW).unwrap();
    store.import(&with_bridge("br0"), Note::default(), NOW).unwrap();
    let proposal = Proposal {
        expected: None,
        config: file.clone(),
        note: Note::default(),
    };
    store.commit_confirm(proposal, NOW.plus(60), NOW).unwrap();
}

#[test]
fn a_restart_within_the_time_to_confirm_confirms_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = with_bridge("br1");
    apply_and_crash(directory.path(), &file);
    let store = Store::open(directory.path(), NOW.plus(1)).unwrap();
    assert!(!store.has_imported(&file).unwrap());
    let imported = store.import(&file, Note::default(), NOW.plus(1)).unwrap();
    assert!(
        matches!(&imported, FileImport::Committed(revision) if revision.number == RevisionNo(2)),
        "{imported:?}"
    );
    assert_eq!(store.head().pending.unwrap().deadline, NOW.plus(60));
    drop(store);
    let store = Store::open(directory.path(), NOW.plus(59)).unwrap();
    assert_eq!(store.head().pending.unwrap().deadline, NOW.plus(60));
    let back = store.tick(NOW.plus(60)).unwrap().unwrap();
    assert_eq!(back.operation, Operation::Expired { to: RevisionNo(1) });
    let again = store.import(&file, Note::default(), NOW.plus(61)).unwrap();
    assert_eq!(again, FileImport::Unchanged(back));
    assert_eq!(*store.head().config, with_bridge("br0"));
}

#[test]
fn a_file_whose_content_was_rolled_back_is_not_imported_by_the_next_start() {
    for is_cancelled in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let file = with_bridge("br1");
        apply_and_crash(directory.path(), &file);
        let later = NOW.plus(if is_cancelled { 1 } else { 60 });
        let store = Store::open(directory.path(), later).unwrap();
        if is_cancelled {
            store.cancel(None, Note::default(), later).unwrap();
        }
        let back = store.head().revision.clone();
        assert_eq!(back.number, RevisionNo(3));
        assert!(store.has_imported(&file).unwrap());
        let imported = store.import(&file, Note::default(), later).unwrap();
        assert_eq!(imported, FileImport::RolledBack(back));
        assert_eq!(*store.head().config, with_bridge("br0"));
        // It stays so after other changes. A file with other content is imported.
        let proposal = Proposal {
            expected: None,
            config: with_bridge("br2"),
            note: Note::default(),
        };
        store.commit(proposal, later).unwrap();
        let again = store.import(&file, Note::default(), later).unwrap();
        assert!(matches!(again, FileImport::Unchanged(_)), "{again:?}");
        let other = store.import(&with_bridge("br3"), Note::default(), later).unwrap();
        assert!(matches!(other, FileImport::Committed(_)), "{other:?}");
    }
}
