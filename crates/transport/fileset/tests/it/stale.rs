//! Journal records of bytes that are lost. The bytes of a new temporary file in their place never count as
//! those of the records.

use crate::support::{Report, carry, contents, noise, path, scan, snapshot};
use millrace_fileset::fs::FileSystem;
use millrace_fileset::fs::memory::MemoryFs;
use millrace_fileset::path::RelativePath;
use millrace_fileset::scan::Argument;
use millrace_fileset::sink::{SinkError, temporary_path};
use millrace_fileset::{ScanOptions, Sink, SinkOptions, Source, SourceOptions};
use std::sync::Arc;

/// Returns a tree of two files of six and four extents; `f` comes first.
fn two_files() -> MemoryFs {
    let from = MemoryFs::new();
    from.put(&path("f"), Some(&noise(1, 6 << 20))).unwrap();
    from.put(&path("g"), Some(&noise(2, 4 << 20))).unwrap();
    from
}

/// Returns the temporary file of `f`.
fn temporary_f(from: &MemoryFs) -> RelativePath {
    let sender = SinkOptions::default().sender;
    temporary_path(&scan(from, &contents(), ScanOptions::default()).0, 0, &sender)
}

/// Sends files, and kills the receiver once `until` holds.
fn send(
    from: &MemoryFs,
    to: &MemoryFs,
    arguments: &[Argument],
    until: impl Fn() -> bool,
) -> Result<(), SinkError> {
    let (manifest, paths) = scan(from, arguments, ScanOptions::default());
    let mut source = Source::new(
        from.clone(),
        Arc::clone(&manifest),
        paths,
        SourceOptions::default(),
    );
    let mut sink = Sink::open(to.clone(), manifest, SinkOptions::default())?;
    let mut kill = |_, _: &mut Vec<u8>| {
        if until() {
            to.kill_at(to.operations());
        }
    };
    carry(&mut source, &mut sink, 1, &mut kill, &mut Report::default())?;
    sink.close()
}

/// Returns true once a journal has records: the sync of one second comes after some extents, and before a file has its name.
fn has_records(to: &MemoryFs) -> bool {
    let names = to.names(&RelativePath::root()).unwrap();
    let journal = names.into_iter().find(|name| name.ends_with(b".journal"));
    journal.is_some_and(|name| to.metadata(&RelativePath::new(&name).unwrap()).unwrap().size > 100)
}

/// Sends both files until `f` has its name, and removes `f`. The journal records that `f` was committed.
fn commit_f_and_take_it_away(from: &MemoryFs) -> MemoryFs {
    let to = MemoryFs::new();
    let committed = || to.metadata(&path("f")).is_ok();
    assert!(send(from, &to, &contents(), committed).is_err());
    let to = to.restart();
    to.remove(&path("f")).unwrap();
    to
}

/// Sends files until `f` has a temporary file with few of its bytes.
fn begin_f(from: &MemoryFs, to: &MemoryFs, arguments: &[Argument]) -> MemoryFs {
    let temporary = temporary_f(from);
    assert!(to.metadata(&temporary).is_err());
    assert!(send(from, to, arguments, || to.metadata(&temporary).is_ok()).is_err());
    let to = to.restart();
    assert!(to.metadata(&temporary).is_ok());
    to
}

#[test]
fn a_file_that_is_taken_out_of_the_inbox_before_the_end_is_sent_again_as_a_whole() {
    let from = two_files();
    let to = commit_f_and_take_it_away(&from);
    let to = begin_f(&from, &to, &contents());
    send(&from, &to, &contents(), || false).unwrap();
    assert!(snapshot(&to) == snapshot(&from));
}

#[test]
fn a_temporary_file_of_another_set_does_not_have_what_the_journal_says() {
    let from = two_files();
    let to = commit_f_and_take_it_away(&from);
    let to = begin_f(&from, &to, &[only_f()]);
    send(&from, &to, &contents(), || false).unwrap();
    // The journal of the other set stays, since that one did not end.
    let mut found = snapshot(&to);
    found.retain(|name, _| !name.starts_with(".millrace-"));
    assert!(found == snapshot(&from));
}

#[test]
fn a_temporary_file_that_was_deleted_is_sent_again_as_a_whole() {
    let from = two_files();
    let temporary = temporary_f(&from);
    let to = MemoryFs::new();
    assert!(send(&from, &to, &contents(), || has_records(&to)).is_err());
    let to = to.restart();
    assert!(to.metadata(&path("f")).is_err());
    to.remove(&temporary).unwrap();
    let to = begin_f(&from, &to, &contents());
    send(&from, &to, &contents(), || false).unwrap();
    assert!(snapshot(&to) == snapshot(&from));
}

/// Returns the first file as the only source.
fn only_f() -> Argument {
    Argument {
        path: path("f"),
        name: Some(b"f".to_vec()),
    }
}

#[test]
fn a_file_that_was_replaced_by_other_bytes_of_its_size_is_sent_again() {
    let from = two_files();
    for delete_first in [true, false] {
        let to = MemoryFs::new();
        let committed = || to.metadata(&path("f")).is_ok();
        assert!(send(&from, &to, &contents(), committed).is_err());
        let to = to.restart();
        if delete_first {
            to.remove(&path("f")).unwrap();
        }
        to.put(&path("f"), Some(&noise(9, 6 << 20))).unwrap();
        send(&from, &to, &contents(), || false).unwrap();
        assert!(snapshot(&to) == snapshot(&from), "deleted first: {delete_first}");
    }
}

#[test]
fn records_do_not_hold_for_a_temporary_file_that_another_set_made_in_place_of_a_lost_one() {
    let from = two_files();
    let temporary = temporary_f(&from);
    let to = MemoryFs::new();
    assert!(send(&from, &to, &contents(), || has_records(&to)).is_err());
    let to = to.restart();
    to.remove(&temporary).unwrap();
    let to = begin_f(&from, &to, &[only_f()]);
    send(&from, &to, &contents(), || false).unwrap();
    let mut found = snapshot(&to);
    found.retain(|name, _| !name.starts_with(".millrace-"));
    assert!(found == snapshot(&from));
}

#[test]
fn the_journal_holds_for_a_temporary_file_that_is_still_the_same() {
    let from = two_files();
    let to = MemoryFs::new();
    assert!(send(&from, &to, &contents(), || has_records(&to)).is_err());
    let to = to.restart();
    let first_have = || {
        let (manifest, _) = scan(&from, &contents(), ScanOptions::default());
        let mut sink = Sink::open(to.clone(), manifest, SinkOptions::default()).unwrap();
        sink.poll_have().unwrap()
    };
    let have = first_have();
    assert!(have.is_some());
    // The test changes bytes without a change of the times. The same have-map shows that the receiver does
    // not read them.
    to.tamper(&temporary_f(&from), 0, &[0; 1 << 20]).unwrap();
    assert_eq!(first_have(), have);
}

#[test]
fn a_journal_whose_records_are_revoked_survives_a_loss_of_power_at_any_operation() {
    let from = two_files();
    let taken = commit_f_and_take_it_away(&from);
    let temporary = temporary_f(&from);
    let start = taken.operations();
    for operation in start..start + 12 {
        for seed in 0..4 {
            let to = taken.restart();
            to.kill_at(operation);
            if send(&from, &to, &contents(), || to.metadata(&temporary).is_ok()).is_ok() {
                continue;
            }
            let to = to.crash(operation * 4 + seed);
            let mut again = to.clone();
            if to.metadata(&temporary).is_err() && to.metadata(&path("f")).is_err() {
                again = begin_f(&from, &to, &contents());
            }
            send(&from, &again, &contents(), || false).unwrap();
            assert!(
                snapshot(&again) == snapshot(&from),
                "operation {operation}, seed {seed}"
            );
        }
    }
}

/// Writes bytes into all of an extent.
fn write_extent(sink: &mut Sink<MemoryFs>, extent: u64, bytes: &[u8]) {
    let (start, end) = sink.manifest().layout().bounds(extent);
    sink.write(start, &bytes[..(end - start) as usize]).unwrap();
}

#[test]
fn another_sender_does_not_write_into_a_file_whose_bytes_are_verified() {
    let (from, to) = (two_files(), MemoryFs::new());
    let (manifest, paths) = scan(&from, &contents(), ScanOptions::default());
    let mut source = Source::new(
        from.clone(),
        Arc::clone(&manifest),
        paths,
        SourceOptions::default(),
    );
    let open = |sender: u8| {
        let options = SinkOptions {
            sender: [sender; 32],
            ..SinkOptions::default()
        };
        Sink::open(to.clone(), Arc::clone(&manifest), options).unwrap()
    };
    let mut sink = open(1);
    let mut other = open(2);
    let mut tampered = false;
    // The first bytes of the second extent come after the first extent is verified.
    let mut tamper = |address: u64, _: &mut Vec<u8>| {
        if address > 4 << 20 && !tampered {
            tampered = true;
            other.start().unwrap();
            for extent in 0..4 {
                write_extent(&mut other, extent, &noise(77, 1 << 20));
            }
        }
    };
    carry(&mut source, &mut sink, 1, &mut tamper, &mut Report::default()).unwrap();
    assert!(tampered && sink.is_complete());
    sink.close().unwrap();
    let mut found = snapshot(&to);
    found.retain(|name, _| !name.starts_with(".millrace-"));
    assert!(found == snapshot(&from));
}

#[test]
fn one_sender_does_not_write_a_file_twice_at_once() {
    let (from, to) = (two_files(), MemoryFs::new());
    let open = |arguments: &[Argument], sender: u8| {
        let options = SinkOptions {
            sender: [sender; 32],
            ..SinkOptions::default()
        };
        let (manifest, _) = scan(&from, arguments, ScanOptions::default());
        let mut sink = Sink::open(to.clone(), manifest, options)?;
        sink.needed_space()?;
        Ok::<_, SinkError>(sink)
    };
    let mut sink = open(&contents(), 1).unwrap();
    assert!(
        matches!(open(&contents(), 1), Err(SinkError::InUse(_))),
        "the same set"
    );
    assert!(open(&contents(), 2).is_ok(), "another sender");
    let mut early = open(&[only_f()], 1).unwrap();
    sink.start().unwrap();
    write_extent(&mut sink, 0, &noise(1, 1 << 20));
    let error = open(&[only_f()], 1).unwrap_err();
    assert!(error.to_string().contains("writes f; try again"), "{error}");
    early.start().unwrap();
    let (start, _) = early.manifest().layout().bounds(0);
    assert!(matches!(
        early.write(start, &[0; 16_384]),
        Err(SinkError::InUse(_))
    ));
    drop((sink, early));
    assert!(open(&[only_f()], 1).is_ok());
}
