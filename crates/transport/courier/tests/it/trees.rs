//! Trees of files from directory to directory.

use crate::testbed::{send_all_of, send_with};
use millrace_courier::files::Store;
use millrace_courier::identity::Identity;
use millrace_courier::local::{LocalSource, LocalStore, PlaceOptions, ScanOptions};
use millrace_courier::{Event, Outcome, SendOptions};
use millrace_types::BitRate;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::memory::content;
use crate::testbed::{ReceiverSpec, ReceiverThread};

/// Makes a tree with small, large, empty and sparse files, directories and a link.
fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("deep/empty")).unwrap();
    for index in 0..300 {
        fs::write(
            root.join(format!("deep/small-{index}")),
            content(index * 7, index as u64 + 1),
        )
        .unwrap();
    }
    fs::write(root.join("large"), content(3 << 20 | 77, 5)).unwrap();
    fs::write(root.join("name with ü and '"), b"x").unwrap();
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    symlink("large", root.join("link")).unwrap();
}

/// Returns each path below a directory with its content.
pub(crate) fn tree(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut stack) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(directory) = stack.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let kind = path.symlink_metadata().unwrap().file_type();
            let name = path.strip_prefix(root).unwrap().to_owned();
            if kind.is_dir() {
                found.insert(name, b"directory".to_vec());
                stack.push(path);
            } else if kind.is_symlink() {
                found.insert(
                    name,
                    fs::read_link(&path)
                        .unwrap()
                        .into_os_string()
                        .into_encoded_bytes(),
                );
            } else {
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn store(directory: &Path) -> impl Store + use<> {
    LocalStore::new(directory, PlaceOptions::default())
}

#[test]
fn the_same_files_can_be_sent_again_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir(&to).unwrap();
    fs::write(&from, content(5_000, 1)).unwrap();
    let spec = ReceiverSpec {
        once: false,
        ..ReceiverSpec::default()
    };
    let receiver = ReceiverThread::start(store(&to), spec);
    let identity = Identity::generate().unwrap();
    for time in 0..10 {
        let mut source = LocalSource::scan(std::slice::from_ref(&from), &ScanOptions::default()).unwrap();
        let targets = vec![receiver.target("a")];
        let (outcomes, events) = send_all_of(&mut source, &identity, targets, SendOptions::default());
        assert_eq!(outcomes, [Outcome::Delivered], "{time}: {events:?}");
    }
    receiver.stop();
}

#[test]
fn a_tree_arrives_identical_and_nothing_else_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir(&to).unwrap();
    make_tree(&from);
    let receiver = ReceiverThread::start(store(&to), ReceiverSpec::default());
    let mut source = LocalSource::scan(&[from.join("")], &ScanOptions::default()).unwrap();
    let identity = Identity::generate().unwrap();
    let (outcomes, events) = send_all_of(
        &mut source,
        &identity,
        vec![receiver.target("a")],
        SendOptions::default(),
    );
    assert_eq!(outcomes, [Outcome::Delivered], "{events:?}");
    receiver.join();
    assert!(
        tree(&from) == tree(&to),
        "{:?}\n{:?}",
        tree(&from).keys(),
        tree(&to).keys()
    );
}

#[test]
fn a_transfer_goes_on_in_a_new_receiver_with_what_is_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir(&to).unwrap();
    fs::create_dir(&from).unwrap();
    fs::write(from.join("large"), content(24 << 20, 5)).unwrap();
    let identity = Identity::generate().unwrap();
    let spec = || ReceiverSpec {
        once: false,
        ..ReceiverSpec::default()
    };
    let receiver = ReceiverThread::start(store(&to), spec());
    let targets = vec![receiver.target("a")];
    let (mut source, from_path) = (
        LocalSource::scan(&[from.join("")], &ScanOptions::default()).unwrap(),
        from.clone(),
    );
    let slow = SendOptions {
        rate: Some(BitRate::from_bps(40_000_000)),
        ..SendOptions::default()
    };
    let mut receiver = Some(receiver);
    // The receiver stops once a part is durable: its journal exists and verified extents were reported.
    let (outcomes, _) = send_with(&mut source, &identity, targets, slow, |event| {
        if matches!(event, Event::Progress { verified, .. } if *verified >= 4 << 20) {
            receiver.take().map(ReceiverThread::stop);
        }
    });
    assert!(
        matches!(&outcomes[..], [Outcome::Resumable { .. }]),
        "{outcomes:?}"
    );
    assert!(
        !to.join("large").exists(),
        "no file has its name before it is verified"
    );
    let receiver = ReceiverThread::start(store(&to), ReceiverSpec::default());
    let mut source = LocalSource::scan(&[from_path.join("")], &ScanOptions::default()).unwrap();
    let (outcomes, events) = send_all_of(
        &mut source,
        &identity,
        vec![receiver.target("a")],
        SendOptions::default(),
    );
    assert_eq!(outcomes, [Outcome::Delivered], "{events:?}");
    let present = events.iter().find_map(|event| match event {
        Event::Accepted { present, .. } => Some(*present),
        _ => None,
    });
    assert!(present.is_some_and(|bytes| bytes > 0), "{events:?}");
    receiver.join();
    assert!(tree(&from) == tree(&to));
}

#[test]
fn a_transfer_whose_file_gets_no_name_is_not_delivered_and_goes_on_later() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir(&to).unwrap();
    fs::create_dir(&from).unwrap();
    fs::write(from.join("large"), content(2 << 20, 5)).unwrap();
    fs::write(from.join("small"), content(100, 6)).unwrap();
    let identity = Identity::generate().unwrap();
    let scan = || LocalSource::scan(&[from.join("")], &ScanOptions::default()).unwrap();
    let receiver = ReceiverThread::start(store(&to), ReceiverSpec::default());
    let (target, options) = (receiver.target("a"), SendOptions::default());
    let (outcomes, events) = send_with(&mut scan(), &identity, vec![target], options, |event| {
        if matches!(event, Event::Accepted { .. }) {
            // A directory takes the name of a file before the sender sends any of it.
            fs::create_dir_all(to.join("large")).unwrap();
        }
    });
    assert!(
        matches!(&outcomes[..], [Outcome::Resumable { reason }] if reason.contains("1 files, links or directories")),
        "{outcomes:?}: {events:?}"
    );
    receiver
        .wait_for(|event| matches!(event, Event::File { problem: Some(text), .. } if text.contains("large")));
    assert!(matches!(&receiver.join()[..], [Outcome::Resumable { .. }]));
    fs::remove_dir(to.join("large")).unwrap();
    let receiver = ReceiverThread::start(store(&to), ReceiverSpec::default());
    let target = receiver.target("a");
    let (outcomes, events) = send_all_of(&mut scan(), &identity, vec![target], SendOptions::default());
    assert_eq!(outcomes, [Outcome::Delivered], "{events:?}");
    let all = |event: &Event| matches!(event, Event::Accepted { present, bytes, .. } if present == bytes);
    assert!(events.iter().any(all), "the journal stayed: {events:?}");
    receiver.join();
    assert!(tree(&from) == tree(&to));
}

#[test]
fn both_ends_say_that_only_one_of_them_preserves_owners_and_attributes() {
    let bed = tempfile::tempdir().unwrap();
    let from = bed.path().join("from");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("file"), content(1_000, 1)).unwrap();
    for (sends, sets, expected) in [
        (true, false, Some("only the sender has --preserve")),
        (false, true, Some("only the receiver has --preserve")),
        (false, false, None),
        (true, true, None),
    ] {
        let to = bed.path().join(format!("to-{sends}-{sets}"));
        fs::create_dir(&to).unwrap();
        let options = PlaceOptions {
            preserve: sets,
            ..PlaceOptions::default()
        };
        let receiver = ReceiverThread::start(LocalStore::new(&to, options), ReceiverSpec::default());
        let options = ScanOptions {
            preserve: sends,
            ..ScanOptions::default()
        };
        let mut source = LocalSource::scan(&[from.join("")], &options).unwrap();
        let identity = Identity::generate().unwrap();
        let target = receiver.target("a");
        let (outcomes, events) = send_all_of(&mut source, &identity, vec![target], SendOptions::default());
        assert_eq!(outcomes, [Outcome::Delivered], "{events:?}");
        let received = std::cell::RefCell::new(Vec::new());
        receiver.wait_for(|event| {
            received.borrow_mut().push(event.clone());
            matches!(event, Event::Done { .. })
        });
        receiver.join();
        for (end, events) in [("sender", &events), ("receiver", &*received.borrow())] {
            let notices: Vec<&str> = events
                .iter()
                .filter_map(|event| match event {
                    Event::Notice { text, .. } => Some(text.as_str()),
                    _ => None,
                })
                .collect();
            assert_eq!(
                notices.len(),
                usize::from(expected.is_some()),
                "{end}: {notices:?}"
            );
            assert!(
                notices.iter().all(|text| text.contains(expected.unwrap())),
                "{end}: {notices:?}"
            );
        }
    }
}
