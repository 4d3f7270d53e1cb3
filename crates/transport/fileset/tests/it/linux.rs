//! Scans and transfers of real files.

use crate::support::{Report, carry, noise, snapshot};
use millrace_fileset::entry::Owner;
use millrace_fileset::fs::{Access, FileSystem, Root};
use millrace_fileset::path::RelativePath;
use millrace_fileset::scan::{ScanItem, SkipReason, resolve_arguments};
use millrace_fileset::{Scan, ScanOptions, Sink, SinkOptions, Source, SourceOptions};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

fn send(paths: &[String], to: &Path, options: SinkOptions) -> (Report, Vec<(String, SkipReason)>) {
    let root = || Root::open("/").unwrap();
    let arguments = resolve_arguments(paths).unwrap();
    let scan_options = ScanOptions {
        preserve: options.preserve,
        ..ScanOptions::default()
    };
    let mut scan = Scan::new(&root(), &arguments, scan_options).unwrap();
    let mut skipped = Vec::new();
    while let Some(item) = scan.next_item(&root()).unwrap() {
        if let ScanItem::Skipped { path, reason } = item {
            skipped.push((path.to_string(), reason));
        }
    }
    let (manifest, bases) = scan.finish().unwrap();
    let manifest = Arc::new(manifest);
    let mut source = Source::new(root(), Arc::clone(&manifest), bases, SourceOptions::default());
    let mut sink = Sink::open(Root::open(to).unwrap(), manifest, options).unwrap();
    let mut report = Report::default();
    carry(&mut source, &mut sink, 1, &mut |_, _| {}, &mut report).unwrap();
    assert_eq!(sink.root(), source.root());
    sink.close().unwrap();
    (report, skipped)
}

#[test]
fn a_tree_arrives_with_modes_times_links_and_holes() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("data"), directory.path().join("in"));
    fs::create_dir_all(from.join("sub")).unwrap();
    fs::create_dir(&to).unwrap();
    fs::write(from.join("file"), noise(1, 3_000_000)).unwrap();
    fs::write(from.join("sub/\u{fc}ml\u{e4}ut \n"), b"odd name").unwrap();
    fs::set_permissions(from.join("file"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::hard_link(from.join("file"), from.join("hard")).unwrap();
    symlink("/etc/passwd", from.join("sub/link")).unwrap();
    let sparse = fs::File::create(from.join("sparse")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    sparse.write_all_at(&noise(2, 10_000), 500 << 20).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, from.join("pipe"), 0o600.into()).unwrap();
    let options = SinkOptions {
        modes: true,
        times: true,
        ..SinkOptions::default()
    };
    let (_, skipped) = send(&[format!("{}", from.display())], &to, options);
    assert_eq!(skipped, [("data/pipe".to_owned(), SkipReason::Special)]);
    let before = fs::metadata(&from).unwrap();
    fs::remove_file(from.join("pipe")).unwrap();
    let arrived = to.join("data");
    assert_eq!(
        snapshot(&Root::open(&arrived).unwrap()),
        snapshot(&Root::open(&from).unwrap())
    );
    let (a, b) = (
        fs::metadata(from.join("file")).unwrap(),
        fs::metadata(arrived.join("file")).unwrap(),
    );
    assert_eq!(
        (a.mode(), a.mtime(), a.mtime_nsec()),
        (b.mode(), b.mtime(), b.mtime_nsec())
    );
    assert_eq!(
        b.ino(),
        fs::metadata(arrived.join("hard")).unwrap().ino(),
        "a hard link is one file"
    );
    assert!(
        fs::metadata(arrived.join("sparse")).unwrap().blocks() < 2_000,
        "holes are kept"
    );
    let (a, b) = (before, fs::metadata(&arrived).unwrap());
    assert_eq!(
        (a.mtime(), a.mtime_nsec()),
        (b.mtime(), b.mtime_nsec()),
        "also of directories"
    );
}

#[test]
fn a_file_gets_set_id_bits_only_with_its_owner() {
    let directory = tempfile::tempdir().unwrap();
    let from = directory.path().join("program");
    fs::write(&from, b"#!/bin/sh").unwrap();
    fs::set_permissions(&from, fs::Permissions::from_mode(0o6755)).unwrap();
    for (preserve, mode) in [(false, 0o755), (true, 0o6755)] {
        let to = directory.path().join(format!("in{preserve}"));
        fs::create_dir(&to).unwrap();
        let options = SinkOptions {
            modes: true,
            preserve,
            ..SinkOptions::default()
        };
        send(&[format!("{}", from.display())], &to, options);
        let arrived = fs::metadata(to.join("program")).unwrap();
        assert_eq!(arrived.mode() & 0o7777, mode, "with the owner: {preserve}");
    }
}

/// Returns the permission bits of a path.
fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn without_options_nothing_new_is_wider_than_its_source_and_a_replaced_file_keeps_its_mode() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("d"), directory.path().join("in"));
    fs::create_dir_all(from.join("closed")).unwrap();
    fs::create_dir(&to).unwrap();
    for (name, mode) in [
        ("secret", 0o600),
        ("program", 0o755),
        ("fixed", 0o444),
        ("closed/a", 0o640),
    ] {
        fs::write(from.join(name), name).unwrap();
        fs::set_permissions(from.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(from.join("closed"), fs::Permissions::from_mode(0o500)).unwrap();
    let source = [format!("{}", from.display())];
    for round in 0..2 {
        send(&source, &to, SinkOptions::default());
        let modes = ["secret", "program", "fixed", "closed", "closed/a"].map(|name| {
            let (from, to) = (mode(&from.join(name)), mode(&to.join("d").join(name)));
            (name, to & !from, to & from & 0o700 == from & 0o700)
        });
        for (name, wider, is_usable) in modes {
            assert_eq!((wider, is_usable), (0, true), "{name}, round {round}");
        }
    }
    fs::set_permissions(to.join("d/program"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(from.join("program"), "a newer program").unwrap();
    send(&source, &to, SinkOptions::default());
    assert_eq!(fs::read(to.join("d/program")).unwrap(), b"a newer program");
    assert_eq!(mode(&to.join("d/program")), 0o700, "as before");
}

#[test]
fn symlinks_have_the_time_and_the_owner_of_the_source_and_lead_nowhere_outside() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("d"), directory.path().join("in"));
    fs::create_dir_all(from.join("sub")).unwrap();
    fs::create_dir(&to).unwrap();
    symlink("../sub", from.join("sub/link")).unwrap();
    let path = |text: &str| RelativePath::new(text.as_bytes()).unwrap();
    let time = millrace_fileset::entry::Timestamp {
        seconds: 1_000_000_000,
        nanoseconds: 5,
    };
    let owner = rustix::process::geteuid()
        .is_root()
        .then_some(Owner { user: 12, group: 34 });
    let root = Root::open(&from).unwrap();
    root.set_link(&path("sub/link"), owner, Some(time)).unwrap();
    let options = SinkOptions {
        modes: true,
        times: true,
        preserve: true,
        symlinks_within: Some(0),
        ..SinkOptions::default()
    };
    // The second time, the link is there already.
    for _ in 0..2 {
        send(&[format!("{}", from.display())], &to, options);
        let arrived = Root::open(&to).unwrap().metadata(&path("d/sub/link")).unwrap();
        assert_eq!(arrived.modified, time);
        assert_eq!(arrived.owner, root.metadata(&path("sub/link")).unwrap().owner);
    }
    symlink("/etc", from.join("planted")).unwrap();
    let arguments = resolve_arguments(&[&from]).unwrap();
    let mut scan = Scan::new(&Root::open("/").unwrap(), &arguments, ScanOptions::default()).unwrap();
    while scan.next_item(&Root::open("/").unwrap()).unwrap().is_some() {}
    let manifest = Arc::new(scan.finish().unwrap().0);
    let error = Sink::open(Root::open(&to).unwrap(), manifest, options).unwrap_err();
    assert!(
        error.to_string().contains("the symlink d/planted leads out"),
        "{error}"
    );
}

#[test]
fn a_file_with_the_size_and_time_of_the_source_is_compared_and_not_sent_again() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("file"), directory.path().join("in"));
    fs::create_dir(&to).unwrap();
    fs::write(&from, noise(1, 3_000_000)).unwrap();
    let options = SinkOptions {
        times: true,
        ..SinkOptions::default()
    };
    let source = [format!("{}", from.display())];
    assert_eq!(send(&source, &to, options).0.sent, 3_000_000);
    assert_eq!(send(&source, &to, options).0.sent, 0);
    // A change that leaves size and time as they were is found, because the bytes are compared.
    let arrived = to.join("file");
    let modified = fs::metadata(&arrived).unwrap().modified().unwrap();
    let file = fs::OpenOptions::new().write(true).open(&arrived).unwrap();
    file.write_all_at(&[0x55; 90], 1_500_000).unwrap();
    file.set_modified(modified).unwrap();
    assert_eq!(send(&source, &to, options).0.sent, 1 << 20);
    assert_eq!(fs::read(&arrived).unwrap(), fs::read(&from).unwrap());
}

#[test]
fn a_stream_is_refused_by_name_before_anything_is_sent() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    use std::os::fd::AsRawFd;
    // As `<(command)` in a shell.
    let substituted = std::path::PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
    for path in [&pipe, &substituted] {
        let error = resolve_arguments(&[path]).unwrap_err().to_string();
        assert!(error.contains("write its bytes into a file first"), "{error}");
    }
    drop(writer);
    let link = directory.path().join("link");
    symlink("/dev/null", &link).unwrap();
    assert!(
        resolve_arguments(&[&link]).is_ok(),
        "a symlink is sent as a symlink"
    );
}

#[test]
fn a_trailing_slash_sends_the_contents() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("data"), directory.path().join("in"));
    fs::create_dir(&from).unwrap();
    fs::create_dir(&to).unwrap();
    fs::write(from.join("x"), b"1").unwrap();
    send(&[format!("{}/", from.display())], &to, SinkOptions::default());
    assert_eq!(fs::read(to.join("x")).unwrap(), b"1");
    send(
        &[
            format!("{}", from.join("x").display()),
            format!("{}", from.display()),
        ],
        &to,
        SinkOptions::default(),
    );
    assert_eq!(fs::read(to.join("data/x")).unwrap(), b"1");
    let twice = [
        format!("{}/", from.display()),
        format!("{}", from.join("x").display()),
    ];
    let arguments = resolve_arguments(&twice).unwrap();
    let error = Scan::new(&Root::open("/").unwrap(), &arguments, ScanOptions::default()).unwrap_err();
    assert!(error.to_string().contains("would both become x"), "{error}");
}

#[test]
fn nothing_outside_the_root_is_reached_through_a_symlink() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to, outside) = (
        directory.path().join("d"),
        directory.path().join("in"),
        directory.path().join("out"),
    );
    for path in [&from, &to, &outside] {
        fs::create_dir(path).unwrap();
    }
    fs::write(from.join("x"), b"1").unwrap();
    symlink(&outside, to.join("d")).unwrap();
    let root = Root::open(&to).unwrap();
    let path = |text: &str| RelativePath::new(text.as_bytes()).unwrap();
    assert!(root.open(&path("d/x"), Access::New(0o644)).is_err());
    assert!(root.create_directory(&path("d/y"), 0o755).is_err());
    assert!(root.symlink(b"/", &path("d/z")).is_err());
    fs::write(to.join("file"), b"").unwrap();
    assert!(root.rename(&path("file"), &path("d/file")).is_err());
    assert!(root.hard_link(&path("file"), &path("d/file")).is_err());
    fs::write(outside.join("kept"), b"").unwrap();
    assert!(root.remove(&path("d/kept")).is_err());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    let arguments = resolve_arguments(&[&from]).unwrap();
    let mut scan = Scan::new(&Root::open("/").unwrap(), &arguments, ScanOptions::default()).unwrap();
    while scan.next_item(&Root::open("/").unwrap()).unwrap().is_some() {}
    let manifest = Arc::new(scan.finish().unwrap().0);
    let error = Sink::open(root, manifest, SinkOptions::default()).unwrap_err();
    assert!(error.to_string().contains("is no directory"), "{error}");
    // A file under a symlink's name replaces the link, not its target.
    fs::write(from.join("x"), b"new").unwrap();
    fs::write(outside.join("x"), b"old").unwrap();
    fs::remove_file(to.join("d")).unwrap();
    symlink(outside.join("x"), to.join("x")).unwrap();
    send(
        &[format!("{}/", from.display())],
        &to,
        SinkOptions {
            delta: true,
            ..SinkOptions::default()
        },
    );
    assert_eq!(fs::read(outside.join("x")).unwrap(), b"old");
    assert!(!fs::symlink_metadata(to.join("x")).unwrap().is_symlink());
}

#[test]
fn a_rename_to_a_new_name_replaces_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::open(directory.path()).unwrap();
    let path = |text: &str| RelativePath::new(text.as_bytes()).unwrap();
    for name in ["one", "two", "sub"] {
        match name {
            "sub" => fs::create_dir(directory.path().join(name)).unwrap(),
            _ => fs::write(directory.path().join(name), name).unwrap(),
        }
    }
    symlink("nowhere", directory.path().join("link")).unwrap();
    for taken in ["two", "sub", "link"] {
        let error = root.rename_new(&path("one"), &path(taken)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists, "{taken}");
    }
    assert_eq!(fs::read(directory.path().join("two")).unwrap(), b"two");
    root.rename_new(&path("one"), &path("sub/three")).unwrap();
    assert_eq!(fs::read(directory.path().join("sub/three")).unwrap(), b"one");
    assert!(!directory.path().join("one").exists());
}
