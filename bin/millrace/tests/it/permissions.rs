//! Transfers as users without root's rights: read-only directories, directories of other users, and what cannot be read.

use crate::kill::path;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The user and group `nobody`.
const NOBODY: u32 = 65_534;

/// A directory that another user reaches, with a copy of the program.
struct Bed {
    directory: tempfile::TempDir,
}

impl Bed {
    /// Makes the directory; `None` without root, who alone becomes another user.
    fn new() -> Option<Bed> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let bed = Bed { directory };
        fs::set_permissions(bed.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_millrace"), bed.path("millrace")).unwrap();
        for name in ["in", "config", "other"] {
            fs::create_dir(bed.path(name)).unwrap();
            chown(bed.path(name), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        Some(bed)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the program as `nobody` runs it.
    fn as_nobody(&self) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(self.path("millrace"));
        command
    }

    /// Receives as `nobody` what root sends; returns the exit status and the messages of both ends.
    fn transfer(&self, source: &Path, options: &[&str]) -> [(Option<i32>, String); 2] {
        let mut sender = Command::new(self.path("millrace"));
        sender.env("XDG_CONFIG_HOME", self.path("sender"));
        self.transfer_by(sender, source, options)
    }

    /// Receives as `nobody` what a program sends; returns the exit status and the messages of both ends.
    fn transfer_by(
        &self,
        mut sender: Command,
        source: &Path,
        options: &[&str],
    ) -> [(Option<i32>, String); 2] {
        let mut receiver = self
            .as_nobody()
            .args([
                "--json",
                "receive",
                path(&self.path("in")),
                "--once",
                "--listen",
                "127.0.0.1:0",
            ])
            .args(options)
            .env("XDG_CONFIG_HOME", self.path("config"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut events = BufReader::new(receiver.stdout.take().unwrap());
        let mut line = String::new();
        events.read_line(&mut line).unwrap();
        let listening: Value = serde_json::from_str(&line).unwrap_or_default();
        let ticket = listening["ticket"].as_str().unwrap_or_default().to_owned();
        let sender = sender
            .args(["send", path(source), &ticket])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let mut received = String::new();
        std::io::Read::read_to_string(&mut events, &mut received).unwrap();
        let status = receiver.wait().unwrap().code();
        let Output {
            status: sent, stderr, ..
        } = sender;
        [
            (sent.code(), String::from_utf8_lossy(&stderr).into_owned()),
            (status, received),
        ]
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn a_transfer_into_read_only_directories_can_be_repeated_and_leaves_them_read_only() {
    let Some(bed) = Bed::new() else { return };
    let from = bed.path("data");
    fs::create_dir_all(from.join("fixed/deep")).unwrap();
    for name in ["fixed/a", "fixed/deep/b"] {
        fs::write(from.join(name), "first").unwrap();
        fs::set_permissions(from.join(name), fs::Permissions::from_mode(0o444)).unwrap();
    }
    for name in ["fixed/deep", "fixed"] {
        fs::set_permissions(from.join(name), fs::Permissions::from_mode(0o555)).unwrap();
    }
    for (round, options) in [&["--modes-and-times"][..], &["--modes-and-times"], &[]]
        .iter()
        .enumerate()
    {
        let text = format!("round {round}");
        fs::write(from.join("fixed/deep/b"), &text).unwrap();
        let [(sent, message), (received, events)] = bed.transfer(&from, options);
        assert_eq!((sent, received), (Some(0), Some(0)), "{message} {events}");
        let arrived = bed.path("in/data/fixed/deep");
        assert_eq!(fs::read_to_string(arrived.join("b")).unwrap(), text);
        assert_eq!(
            [mode(&arrived), mode(&bed.path("in/data/fixed"))],
            [0o555; 2],
            "{text}"
        );
    }
}

#[test]
fn a_directory_of_another_user_fails_by_name_and_everything_else_is_in_place() {
    let Some(bed) = Bed::new() else { return };
    let from = bed.path("data");
    for directory in ["foreign", "closed", "own"] {
        fs::create_dir_all(from.join(directory)).unwrap();
        fs::write(from.join(directory).join("file"), vec![7; 3 << 20]).unwrap();
        fs::create_dir_all(bed.path("in/data").join(directory)).unwrap();
    }
    for (name, mode) in [
        ("in/data", 0o755),
        ("in/data/foreign", 0o755),
        ("in/data/closed", 0o700),
        ("in/data/own", 0o755),
    ] {
        let owner = if name.ends_with("own") || name == "in/data" {
            NOBODY
        } else {
            0
        };
        chown(bed.path(name), Some(owner), Some(owner)).unwrap();
        fs::set_permissions(bed.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let [(sent, message), (received, events)] = bed.transfer(&from, &[]);
    assert_eq!((sent, received), (Some(6), Some(6)), "{message} {events}");
    assert_eq!(fs::read(bed.path("in/data/own/file")).unwrap(), vec![7; 3 << 20]);
    for name in ["data/foreign/file", "data/closed/file"] {
        let is_named = events.lines().any(|line| {
            let event: Value = serde_json::from_str(line).unwrap_or_default();
            event["event"] == "file" && event["path"] == name && !event["problem"].is_null()
        });
        assert!(is_named, "{name}: {events}");
    }
    assert!(
        !events.contains("file: data/foreign/file: "),
        "a path comes once: {events}"
    );
}

#[test]
fn what_cannot_be_read_is_named_once_in_a_line() {
    let Some(bed) = Bed::new() else { return };
    let from = bed.path("data");
    fs::create_dir_all(from.join("closed")).unwrap();
    for name in ["ok", "open", "closed/file"] {
        fs::write(from.join(name), name).unwrap();
    }
    for (name, mode) in [("ok", 0o600), ("open", 0o644), ("closed", 0o700)] {
        fs::set_permissions(from.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut sender = bed.as_nobody();
    sender.env("XDG_CONFIG_HOME", bed.path("other"));
    let [(sent, message), (received, events)] = bed.transfer_by(sender, &from, &[]);
    // The receiver has all that was announced to it.
    assert_eq!((sent, received), (Some(5), Some(0)), "{message} {events}");
    assert_eq!(fs::read_to_string(bed.path("in/data/open")).unwrap(), "open");
    let lines: Vec<&str> = message
        .lines()
        .filter(|line| line.starts_with("not sent: "))
        .collect();
    assert_eq!(lines.len(), 2, "{message}");
    for name in ["data/closed", "data/ok"] {
        let named: Vec<_> = lines.iter().filter(|line| line.contains(name)).collect();
        let [line] = named[..] else {
            panic!("{name}: {message}");
        };
        let reason = line.strip_prefix(&format!("not sent: {name}: "));
        let reason = reason.unwrap_or_else(|| panic!("{line}"));
        assert!(!reason.contains(name) && !reason.contains(':'), "{line}");
    }
}
