//! Sources and stores of real directories.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use super::*;
use crate::files::{Source as _, Store as _};
use std::io;

const SENDER: PublicKey = PublicKey::new([7; 32]);

#[test]
fn a_source_that_is_not_there_is_named_by_its_whole_path() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let error = LocalSource::scan(std::slice::from_ref(&missing), &ScanOptions::default()).err();
    let text = error.unwrap().to_string();
    assert!(text.starts_with(missing.to_str().unwrap()), "{text}");
}

#[test]
fn files_that_do_not_fit_are_refused_before_a_byte_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    assert!(check_space(dir.path(), 0).is_ok());
    let refused = check_space(dir.path(), u64::MAX).unwrap_err();
    assert_eq!(refused.code, RefuseCode::Files);
    assert!(refused.to_string().contains("make room"), "{refused}");
}

#[test]
fn a_refused_transfer_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    for path in ["set/new", "in/set"] {
        std::fs::create_dir_all(dir.path().join(path)).unwrap();
    }
    for path in ["set/a", "in/set/a"] {
        std::fs::write(dir.path().join(path), path).unwrap();
    }
    let source = LocalSource::scan(&[dir.path().join("set")], &ScanOptions::default()).unwrap();
    let options = PlaceOptions {
        keep_existing: true,
        ..PlaceOptions::default()
    };
    let store = LocalStore::new(&dir.path().join("in"), options);
    assert!(
        store
            .open(SENDER, source.manifest(), Requests::default())
            .is_err()
    );
    let names = |path: &str| -> Vec<_> {
        let entries = std::fs::read_dir(dir.path().join(path)).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    };
    assert_eq!(
        (names("in"), names("in/set")),
        (vec!["set".into()], vec!["a".into()])
    );
}

#[test]
fn a_session_that_ends_before_it_starts_leaves_no_directory_and_no_journal() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a"), "a").unwrap();
    std::fs::create_dir(dir.path().join("in")).unwrap();
    let source = LocalSource::scan(&[dir.path().join("a")], &ScanOptions::default()).unwrap();
    let path = RelativePath::new(b"of/2026").unwrap();
    let store = LocalStore::below(&dir.path().join("in"), path, PlaceOptions::default());
    let open = || {
        store
            .open(SENDER, source.manifest(), Requests::default())
            .unwrap()
    };
    let count = |path: &str| std::fs::read_dir(dir.path().join(path)).unwrap().count();
    let sink = open();
    assert_eq!(count("in/of/2026"), 1, "the journal");
    drop(sink);
    assert_eq!(count("in"), 0);
    // Directories that existed before stay, and so do the directories of a session that started.
    std::fs::create_dir(dir.path().join("in/of")).unwrap();
    drop(open());
    assert_eq!(count("in/of"), 0);
    let mut sink = open();
    sink.start().unwrap();
    drop(sink);
    assert_eq!(count("in/of/2026"), 1);
}

#[test]
fn a_file_needs_space_until_it_has_its_temporary_file() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("in")).unwrap();
    std::fs::write(dir.path().join("a"), vec![7; 300_000]).unwrap();
    let source = LocalSource::scan(&[dir.path().join("a")], &ScanOptions::default()).unwrap();
    let mut reader = ManifestReader::new(ManifestLimits::default());
    reader.feed(source.manifest()).unwrap();
    let manifest = Arc::new(reader.finish().unwrap());
    let options = SinkOptions {
        sender: *SENDER.bytes(),
        ..SinkOptions::default()
    };
    let needed = || {
        let fs = Root::open(dir.path().join("in")).unwrap();
        let mut sink = Sink::open(fs, Arc::clone(&manifest), options).unwrap();
        sink.needed_space().unwrap()
    };
    assert_eq!(needed(), 300_000);
    let store = LocalStore::new(&dir.path().join("in"), PlaceOptions::default());
    let mut sink = store
        .open(SENDER, source.manifest(), Requests::default())
        .unwrap();
    sink.start().unwrap();
    sink.write(0, &[7; 16_384]).unwrap();
    sink.flush().unwrap();
    drop(sink);
    assert_eq!(needed(), 0);
}

#[test]
fn a_sender_learns_why_a_receiver_cannot_write_and_what_to_do() {
    let error = |name: &[u8], code| {
        let error = SinkError::Io {
            path: RelativePath::new(name).unwrap(),
            error: io::Error::from_raw_os_error(code),
        };
        not_written(error).to_string()
    };
    let full = error(b".millrace-0123", 28);
    assert!(
        full.starts_with("the receiver's disk is full (a temporary file: "),
        "{full}"
    );
    assert!(full.contains("make room"), "{full}");
    let read_only = error(b".millrace-0123.journal", 30);
    assert!(
        read_only.contains("may not write to its directory"),
        "{read_only}"
    );
    let other = error(b"a/b", 5);
    assert!(other.starts_with("the receiver cannot write a/b: "), "{other}");
}

#[test]
fn a_store_for_one_name_takes_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    for path in ["from/report", "in"] {
        std::fs::create_dir_all(dir.path().join(path)).unwrap();
    }
    for path in ["from/.bashrc", "from/report/page", "from/report.pdf"] {
        std::fs::write(dir.path().join(path), path).unwrap();
    }
    let store = LocalStore::new(&dir.path().join("in"), PlaceOptions::default()).only(b"report");
    let open = |names: &[&str]| {
        let paths: Vec<_> = names
            .iter()
            .map(|name| dir.path().join("from").join(name))
            .collect();
        let source = LocalSource::scan(&paths, &ScanOptions::default()).unwrap();
        let opened = store.open(SENDER, source.manifest(), Requests::default());
        opened.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(open(&["report"]), Ok(()));
    for names in [&[".bashrc"][..], &["report", ".bashrc"], &["report.pdf"]] {
        let error = open(names).unwrap_err();
        assert!(error.contains("report was asked for"), "{error}");
    }
}
