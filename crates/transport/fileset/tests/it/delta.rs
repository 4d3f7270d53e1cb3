//! Resume, delta transfer and repair use one mechanism: the receiver offers bytes that it has by their
//! digests.

use crate::support::{Report, carry, contents, noise, path, scan, snapshot, transfer, tree};
use millrace_fileset::fs::memory::MemoryFs;
use millrace_fileset::fs::{Access, FileSystem};
use millrace_fileset::{ScanOptions, Sink, SinkEvent, SinkOptions, Source, SourceOptions};
use std::sync::Arc;

fn delta() -> SinkOptions {
    SinkOptions {
        delta: true,
        ..SinkOptions::default()
    }
}

#[test]
fn nothing_is_sent_twice_to_a_receiver_that_has_it() {
    let (from, to) = (tree(), MemoryFs::new());
    assert!(transfer(&from, &to, SinkOptions::default(), 1).unwrap().sent > 2 << 20);
    let again = transfer(&from, &to, delta(), 2).unwrap();
    assert_eq!(again.sent, 0);
    assert!(
        again
            .events
            .iter()
            .any(|event| matches!(event, SinkEvent::Unchanged(_)))
    );
    assert_eq!(snapshot(&to), snapshot(&from));
}

#[test]
fn only_changed_extents_of_a_file_are_sent() {
    let (from, to) = (MemoryFs::new(), MemoryFs::new());
    from.put(&path("log"), Some(&noise(1, 6 << 20))).unwrap();
    transfer(&from, &to, SinkOptions::default(), 1).unwrap();
    // An append, and a write in place.
    let file = from.open(&path("log"), Access::Write).unwrap();
    from.write_at(&file, 6 << 20, &noise(2, 1_000)).unwrap();
    from.write_at(&file, 2 << 20, b"changed").unwrap();
    let report = transfer(&from, &to, delta(), 2).unwrap();
    assert_eq!(report.sent, (1 << 20) + 1_000);
    assert_eq!(snapshot(&to), snapshot(&from));
    // A file that shrank counts as changed, although all its bytes are there.
    from.set_size(&file, 3 << 20).unwrap();
    assert_eq!(transfer(&from, &to, delta(), 3).unwrap().sent, 0);
    assert_eq!(snapshot(&to), snapshot(&from));
}

#[test]
fn an_older_version_of_another_size_takes_space_beside_the_new_one() {
    let (from, to) = (MemoryFs::new(), MemoryFs::new());
    from.put(&path("log"), Some(&noise(1, 3 << 20))).unwrap();
    from.put(&path("same"), Some(&noise(2, 1 << 20))).unwrap();
    transfer(&from, &to, SinkOptions::default(), 1).unwrap();
    let file = from.open(&path("log"), Access::Write).unwrap();
    from.write_at(&file, 3 << 20, &noise(3, 1_000)).unwrap();
    let (manifest, _) = scan(&from, &contents(), ScanOptions::default());
    let mut sink = Sink::open(to, manifest, delta()).unwrap();
    assert_eq!(sink.needed_space().unwrap(), (3 << 20) + 1_000);
}

#[test]
fn old_bytes_in_a_hole_do_not_survive() {
    let (from, to) = (MemoryFs::new(), MemoryFs::new());
    to.put(&path("sparse"), Some(&noise(1, 1 << 20))).unwrap();
    let file = from.open(&path("sparse"), Access::New(0o644)).unwrap();
    from.write_at(&file, 0, &noise(1, 4_096)).unwrap();
    from.set_size(&file, 1 << 20).unwrap();
    transfer(&from, &to, delta(), 1).unwrap();
    assert_eq!(snapshot(&to), snapshot(&from));
}

#[test]
fn a_file_that_must_not_be_replaced_is_named() {
    let (from, to) = (tree(), MemoryFs::new());
    to.put(&path("big"), Some(b"mine")).unwrap();
    let options = SinkOptions {
        overwrite: false,
        ..SinkOptions::default()
    };
    let (_, error) = transfer(&from, &to, options, 1).unwrap_err();
    assert!(error.to_string().starts_with("big exists"), "{error}");
    let (from, to) = (tree(), MemoryFs::new());
    to.put(&path("big"), None).unwrap();
    let (_, error) = transfer(&from, &to, SinkOptions::default(), 1).unwrap_err();
    assert!(error.to_string().contains("is a directory"), "{error}");
}

#[test]
fn an_entry_that_appears_during_the_transfer_is_replaced_only_if_that_is_allowed() {
    for overwrite in [false, true] {
        let (from, to) = (tree(), MemoryFs::new());
        let (manifest, paths) = scan(&from, &contents(), ScanOptions::default());
        let mut source = Source::new(
            from.clone(),
            Arc::clone(&manifest),
            paths,
            SourceOptions::default(),
        );
        let options = SinkOptions {
            overwrite,
            ..SinkOptions::default()
        };
        let mut sink = Sink::open(to.clone(), manifest, options).unwrap();
        // A file, a symlink and a hard link of the set; the directory `a` is made when the set starts.
        let taken = [path("a/deep/small03"), path("a/link"), path("hard")];
        let mut appear = |_, _: &mut Vec<u8>| {
            for path in taken.iter().filter(|path| to.metadata(path).is_err()) {
                to.put(path, Some(b"mine")).unwrap();
            }
        };
        let mut report = Report::default();
        carry(&mut source, &mut sink, 1, &mut appear, &mut report).unwrap();
        if overwrite {
            assert_eq!(
                (sink.failed(), snapshot(&to).len()),
                (0, snapshot(&from).len() + 1),
                "and the journal"
            );
            continue;
        }
        assert_eq!(sink.failed(), 3, "{:?}", report.events);
        for name in &taken {
            let mut bytes = [0; 10];
            let file = to.open(name, Access::Read).unwrap();
            let len = to.read_at(&file, 0, &mut bytes).unwrap();
            assert_eq!(&bytes[..len], b"mine", "{name}");
        }
        let named = |event: &SinkEvent| matches!(event, SinkEvent::Failed { path, reason } if path.as_bytes() == b"a/deep/small03" && reason.contains("with this name exists"));
        assert!(report.events.iter().any(named), "{:?}", report.events);
    }
}
