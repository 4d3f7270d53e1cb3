//! Resume, delta and repair are one thing: bytes that are there already are offered by their digests.

use crate::support::{noise, path, snapshot, transfer, tree};
use millrace_fileset::fs::memory::MemoryFs;
use millrace_fileset::fs::{Access, FileSystem};
use millrace_fileset::{SinkEvent, SinkOptions};

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
    // A file that shrank is not unchanged, though all its bytes are there.
    from.set_size(&file, 3 << 20).unwrap();
    assert_eq!(transfer(&from, &to, delta(), 3).unwrap().sent, 0);
    assert_eq!(snapshot(&to), snapshot(&from));
}

#[test]
fn old_bytes_in_a_hole_do_not_survive() {
    let (from, to) = (MemoryFs::new(), MemoryFs::new());
    to.put(&path("sparse"), Some(&noise(1, 1 << 20))).unwrap();
    let file = from.open(&path("sparse"), Access::Create).unwrap();
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
