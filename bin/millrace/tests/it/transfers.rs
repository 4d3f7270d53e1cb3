//! `millrace send` and `millrace receive` as programs: over ssh, interrupted, from lists, to receivers that join late.

use crate::kill::{Program, path};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn millrace(config: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command.env("XDG_CONFIG_HOME", config).stdin(Stdio::null());
    command
}

/// Makes a directory with a file of this many bytes, and one to receive into.
fn directories(dir: &Path, bytes: usize) -> [std::path::PathBuf; 2] {
    let directories = ["from", "to"].map(|name| dir.join(name));
    for directory in &directories {
        fs::create_dir(directory).unwrap();
    }
    fs::write(directories[0].join("a b"), vec![7; bytes]).unwrap();
    directories
}

/// Writes a program in place of ssh, which runs the command on this machine, as a shell there would.
fn local_ssh(dir: &Path) -> std::path::PathBuf {
    let ssh = dir.join("ssh");
    fs::write(
        &ssh,
        "#!/bin/sh\ntest \"$1\" = user@localhost || exit 9\nshift\nexec sh -c \"$*\"\n",
    )
    .unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    ssh
}

#[test]
fn a_receiver_over_ssh_takes_the_first_free_port_of_a_range_and_names_one_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let [from, to] = directories(dir.path(), 1_000);
    let ssh = local_ssh(dir.path());
    let taken = UdpSocket::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let send = |ports: &str| {
        let to = format!("user@localhost:{}", path(&to));
        let output = millrace(dir.path())
            .args(["send", path(&from.join("a b")), &to, "--port", ports])
            .args(["--ssh", path(&ssh)])
            .args(["--remote-program", env!("CARGO_BIN_EXE_millrace")])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), text)
    };
    let (delivered, text) = send(&port.to_string());
    assert!(!delivered && text.contains("cannot listen at"), "{text}");
    let advice = format!("if UDP port {port} is in use there, give another port or a range with --port");
    assert!(text.contains(&advice), "{text}");
    let (delivered, text) = send(&format!("{port}:{}", port.saturating_add(20)));
    assert!(delivered, "{text}");
    assert_eq!(fs::read(to.join("a b")).unwrap(), vec![7; 1_000]);
}

#[test]
fn a_receiver_on_another_machine_is_started_over_ssh() {
    let dir = tempfile::tempdir().unwrap();
    let [from, to] = directories(dir.path(), 100_000);
    let ssh = local_ssh(dir.path());
    let output = millrace(dir.path())
        .args([
            "send",
            path(&from.join("a b")),
            &format!("user@localhost:{}", path(&to)),
        ])
        .args([
            "--ssh",
            path(&ssh),
            "--remote-program",
            env!("CARGO_BIN_EXE_millrace"),
            "--commit",
            "all",
        ])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(fs::read(to.join("a b")).unwrap(), vec![7; 100_000]);
    let output = millrace(dir.path())
        .args(["send", path(&from), "elsewhere:/in", "--ssh", path(&ssh)])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && text.contains("the receiver on elsewhere"),
        "{text}"
    );
}

#[test]
fn an_interrupted_sender_prints_the_command_that_goes_on_and_ends_with_status_6() {
    let dir = tempfile::tempdir().unwrap();
    let [from, to] = directories(dir.path(), 8 << 20);
    let own = dir.path().join("receiver.key");
    let receiver = Program::start(&[
        "receive",
        path(&to),
        "--listen",
        "127.0.0.1:0",
        "--identity",
        path(&own),
    ]);
    let ticket = receiver.wait_for("listening")["ticket"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut sender = millrace(dir.path())
        .args(["send", path(&from.join("a b")), &ticket, "--rate", "4Mbps"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = BufReader::new(sender.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("accepted") {
        line.clear();
        assert_ne!(text.read_line(&mut line).unwrap(), 0, "no `accepted`");
    }
    kill_process(Pid::from_child(&sender), Signal::INT).unwrap();
    let mut rest = String::new();
    text.read_to_string(&mut rest).unwrap();
    assert_eq!(sender.wait().unwrap().code(), Some(6), "{rest}");
    let command = format!(
        "to go on, run it again: millrace send '{}' {ticket} --rate 4Mbps",
        path(&from.join("a b"))
    );
    assert!(rest.contains(&command), "{rest}");
}

#[test]
fn sources_come_from_a_list_and_receivers_join_while_others_receive() {
    let dir = tempfile::tempdir().unwrap();
    let [from, to] = directories(dir.path(), 4 << 20);
    let late = dir.path().join("late");
    fs::create_dir(&late).unwrap();
    let count = millrace(dir.path())
        .args(["--json", "send", "-n", "--files-from", "-", "mr1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The prefix alone is a ticket that was cut.
    let refused = count.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(text.contains("too short for a ticket"), "{text}");
    let [first, second] = [&to, &late].map(|directory| {
        let own = directory.with_extension("key");
        Program::start(&[
            "receive",
            path(directory),
            "--once",
            "--listen",
            "127.0.0.1:0",
            "--identity",
            path(&own),
        ])
    });
    let tickets = [&first, &second].map(|receiver| {
        receiver.wait_for("listening")["ticket"]
            .as_str()
            .unwrap()
            .to_owned()
    });
    let list = dir.path().join("list");
    fs::write(&list, format!("{}\n", path(&from.join("a b")))).unwrap();
    let mut sender = millrace(dir.path())
        .args([
            "--json",
            "send",
            &tickets[0],
            "--files-from",
            path(&list),
            "--targets-from",
            "-",
            "--rate",
            "4Mbps",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let events = BufReader::new(sender.stdout.take().unwrap());
    let (mut joined, mut delivered) = (false, 0);
    for line in events.lines().map_while(Result::ok) {
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        if event["event"] == "progress" && event["verified"].as_u64() > Some(0) && !joined {
            // The rest takes the sender more than 7 s.
            joined = true;
            let input = sender.stdin.as_mut().unwrap();
            writeln!(input, "{}\nmr1{}", tickets[1], "x".repeat(200)).unwrap();
        }
        delivered += u32::from(event["outcome"] == "delivered");
    }
    // A line that names no receiver counts as one that got nothing.
    assert_eq!(sender.wait().unwrap().code(), Some(3));
    assert!(joined && delivered == 2);
    assert_eq!(
        fs::read(to.join("a b")).unwrap(),
        fs::read(late.join("a b")).unwrap()
    );
}

#[test]
fn a_receiver_with_another_key_is_refused_with_both_keys() {
    let dir = tempfile::tempdir().unwrap();
    let [from, to] = directories(dir.path(), 10);
    let receiver = Program::start(&[
        "receive",
        path(&to),
        "--listen",
        "127.0.0.1:0",
        "--identity",
        path(&dir.path().join("own")),
    ]);
    let listening = receiver.wait_for("listening");
    let presented = listening["key"].as_str().unwrap();
    let other = Program::start(&[
        "receive",
        path(&to),
        "--listen",
        "127.0.0.1:0",
        "--identity",
        path(&dir.path().join("other")),
    ]);
    let expected = other.wait_for("listening")["key"].as_str().unwrap().to_owned();
    let address = listening["address"].as_str().unwrap();
    let output = millrace(dir.path())
        .args(["send", path(&from), &format!("{expected}@{address}")])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.contains(presented) && text.contains(&expected), "{text}");
    assert!(!text.contains("run it again"), "{text}");
    let listed = millrace(dir.path())
        .args(["courier", "ls", &format!("millrace://{expected}@{address}/")])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&listed.stderr);
    assert!(text.contains(presented), "{text}");
}

#[test]
fn only_old_files_of_transfers_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let inbox = dir.path().join("in");
    fs::create_dir(&inbox).unwrap();
    for name in ["kept", ".millrace-1234", ".millrace-1234.journal"] {
        fs::write(inbox.join(name), name).unwrap();
    }
    let clean = |options: &[&str]| {
        let output = millrace(dir.path())
            .args(["courier", "clean", path(&inbox)])
            .args(options)
            .output()
            .unwrap();
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(clean(&[]).contains("removed 0 files"));
    std::thread::sleep(Duration::from_millis(20));
    assert!(clean(&["--age", "1ms", "-n"]).contains("found 2 files"));
    assert_eq!(fs::read_dir(&inbox).unwrap().count(), 3);
    assert!(clean(&["--age", "1ms"]).contains("removed 2 files"));
    assert!(inbox.join("kept").exists());
}

#[test]
fn what_cannot_be_received_or_sent_is_refused_before_a_ticket() {
    let dir = tempfile::tempdir().unwrap();
    let [from, _] = directories(dir.path(), 10);
    let output = millrace(dir.path())
        .args(["receive", "/proc/self"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty(), "{text}");
    assert!(text.contains("no file can be made in /proc/self"), "{text}");
    let output = millrace(dir.path())
        .args(["send", path(&from), "-", "127.0.0.1:9"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && text.contains("is no source"),
        "{text}"
    );
}

#[test]
fn a_list_without_any_receiver_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let [from, _] = directories(dir.path(), 1);
    let list = dir.path().join("list");
    fs::write(&list, format!("mr1{}\n", "x".repeat(200))).unwrap();
    let output = millrace(dir.path())
        .args(["send", path(&from), "--targets-from", path(&list)])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.contains("not a target: mr1xxx"), "{text}");
}

#[test]
fn a_receiver_that_is_interrupted_before_any_transfer_ends_with_status_6() {
    let dir = tempfile::tempdir().unwrap();
    let [_, to] = directories(dir.path(), 1);
    let own = dir.path().join("receiver.key");
    let mut receiver = Program::start(&[
        "receive",
        path(&to),
        "--once",
        "--listen",
        "127.0.0.1:0",
        "--identity",
        path(&own),
    ]);
    let key = receiver.wait_for("listening")["key"].as_str().unwrap().to_owned();
    assert_eq!(receiver.interrupt(), Some(6));
    // A daemon that does not answer.
    let daemon = UdpSocket::bind("127.0.0.1:0").unwrap();
    daemon.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let from = format!("millrace://{key}@{}/out/", daemon.local_addr().unwrap());
    let mut receiver = Program::start(&["receive", path(&to), "--from", &from, "--identity", path(&own)]);
    daemon.recv_from(&mut [0; 2_000]).unwrap();
    assert_eq!(receiver.interrupt(), Some(6));
}

#[test]
fn a_sender_that_waits_for_its_first_target_can_be_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    let [from, _] = directories(dir.path(), 1);
    let mut sender = millrace(dir.path())
        .args(["send", path(&from), "--targets-from", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A line that is no target is reported: the sender reads the list.
    let mut input = sender.stdin.take().unwrap();
    writeln!(input, "mr1{}", "x".repeat(200)).unwrap();
    let mut line = String::new();
    let mut text = BufReader::new(sender.stderr.take().unwrap());
    assert_ne!(text.read_line(&mut line).unwrap(), 0);
    kill_process(Pid::from_child(&sender), Signal::INT).unwrap();
    assert_eq!(sender.wait().unwrap().code(), Some(6));
    drop(input);
}
