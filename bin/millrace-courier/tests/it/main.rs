//! The program as a user starts it: over a veth pair, each end a DPDK device (`net_af_packet`), and what it refuses.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, unshare};

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_millrace-courier"))
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

/// Returns a command over a device with an address, with an identity of its own.
fn over(interface: &str, address: &str, folder: &Path) -> (String, String) {
    let number = interface.trim_start_matches('v');
    let via = format!("net_af_packet{number},iface={interface},address={address}");
    (via, folder.join(interface).display().to_string())
}

#[test]
fn files_pass_between_two_devices_of_dpdk() {
    if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET) {
        eprintln!("SKIPPED: a veth pair in a network namespace needs root ({errno})");
        return;
    }
    ip("link add v0 type veth peer name v1");
    for interface in ["v0", "v1"] {
        // The kernel's own packets are not part of this.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"), "1");
        ip(&format!("link set {interface} up"));
    }
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (folder.path().join("data"), folder.path().join("in"));
    std::fs::create_dir(&source).unwrap();
    std::fs::create_dir(&target).unwrap();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at ^ at >> 7) as u8).collect();
    std::fs::write(source.join("large"), &bytes).unwrap();
    std::fs::write(source.join("small"), b"small").unwrap();

    let (via, identity) = over("v1", "192.0.2.2/24", folder.path());
    let mut receiver = program()
        .args([
            "--json",
            "receive",
            "--once",
            "--via",
            &via,
            "--identity",
            &identity,
        ])
        .arg(&target)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(receiver.stdout.take().unwrap()).lines();
    let listening = lines.next().unwrap().unwrap();
    let ticket = listening.split('"').find(|word| word.starts_with("mr1")).unwrap();
    let (via, identity) = over("v0", "192.0.2.1/24", folder.path());
    let sender = program()
        .args(["send", "--via", &via, "--identity", &identity])
        .arg(format!("{}/", source.display()))
        .arg(ticket)
        .output()
        .unwrap();
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    let received = receiver.wait().unwrap();
    assert!(
        sender.status.success() && received.success(),
        "{sender:?}, {rest:?}"
    );
    assert!(std::fs::read(target.join("large")).unwrap() == bytes);
    assert_eq!(std::fs::read(target.join("small")).unwrap(), b"small");
}

#[test]
fn a_device_that_does_not_exist_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let identity = folder.path().join("identity");
    let output = program()
        .args(["receive", "--via", "net_none0,address=192.0.2.1/24", "--identity"])
        .args([&identity, &folder.path().to_owned()])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains("net_none0"), "{text}");
}

#[test]
fn the_man_page_has_both_commands() {
    let output = program().arg("--man").output().unwrap();
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(
        page.contains("Receive files into a directory") && page.contains("net_virtio_user0"),
        "{page}"
    );
}
