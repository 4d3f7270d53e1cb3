//! Tests of a tap device that another program deletes. They need root; without it they print a message and are skipped.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use millrace_types::Mac;
use millrace_wire::Frame;
use nix::sched::{CloneFlags, unshare};

use crate::io::{Backend, Burst, DeviceOptions, DeviceSpec, HeapBackend, Opened};

const BOUND: Duration = Duration::from_secs(60);

fn ip(words: &str) -> bool {
    let mut command = Command::new("ip");
    // Commands are repeated until the interface is there.
    let command = command.args(words.split(' ')).stderr(Stdio::null());
    command.status().unwrap().success()
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + BOUND;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn opened() -> Option<Opened<Frame>> {
    if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET) {
        eprintln!("SKIPPED: a network namespace needs root ({errno})");
        return None;
    }
    let options = DeviceOptions {
        mtu: 1400,
        ..DeviceOptions::PLAIN
    };
    let spec = DeviceSpec::Tap("t0".to_owned());
    Some(HeapBackend::new().open(&spec, options).unwrap())
}

/// Asserts that the kernel and the switch receive frames of each other.
fn talk(port: &mut Opened<Frame>) {
    wait_for("the interface is there", || ip("link set t0 up mtu 1400"));
    wait_for("the link is up", || port.device.info().link_up);
    let (_receiver, mut sender) = millrace_af_packet::open("t0", 1).unwrap().pop().unwrap();
    let mut burst: Burst<Frame> = [Frame::new(&[7; 60])].into_iter().collect();
    sender.send(&mut burst, 1400);
    let mut came: Burst<Frame> = Burst::new();
    // The kernel announces itself on the new interface, too.
    wait_for("the switch receives", || {
        port.rx[0].rx_burst(&mut came);
        came.drain(..).any(|frame| frame.bytes() == [7; 60])
    });
    let before = received();
    burst.push(Frame::new(&[9; 60]));
    port.tx[0].tx_burst(&mut burst);
    wait_for("the kernel receives", || received() > before);
}

/// Returns the number of packets that the kernel received from the switch.
fn received() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with("t0:"))
        .unwrap();
    line.split_whitespace().nth(2).unwrap().parse().unwrap()
}

#[test]
fn a_mac_address_is_set_while_frames_pass_and_again_when_the_device_is_made_again() {
    let Some(mut port) = opened() else { return };
    talk(&mut port);
    for last in [1, 2] {
        let mac = Mac([0x02, 0, 0, 0, 0, last]);
        port.device.set_mac(Some(mac)).unwrap();
        assert_eq!(port.device.info().mac, mac);
        talk(&mut port);
        assert!(ip("link del t0"));
        talk(&mut port);
        assert_eq!(port.device.info().mac, mac);
    }
    port.device.set_mac(None).unwrap();
    let before = port.device.info().mac;
    assert_eq!(
        before,
        Mac([0x02, 0, 0, 0, 0, 2]),
        "the address stays until the device is made again"
    );
    assert!(ip("link del t0"));
    talk(&mut port);
    assert_ne!(port.device.info().mac, before);
}

#[test]
fn a_tap_device_that_is_deleted_is_made_again_and_carries_frames() {
    let Some(mut port) = opened() else { return };
    for _ in 0..3 {
        talk(&mut port);
        assert!(ip("link del t0"));
        wait_for("the link is down, or up again", || {
            !port.device.info().link_up
                || std::fs::read_to_string("/proc/thread-self/net/dev")
                    .unwrap()
                    .contains("t0:")
        });
    }
    talk(&mut port);
}

/// A process in a network namespace of its own.
struct Container(Child);

impl Container {
    fn start() -> Container {
        let mut command = Command::new("unshare");
        let process = command
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let path = format!("/proc/{}/ns/net", process.id());
        let here = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        wait_for("the process is in its namespace", || {
            std::fs::read_link(&path).is_ok_and(|there| there != here)
        });
        Container(process)
    }

    fn end(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_tap_device_whose_container_ends_is_made_again_here_and_one_whose_name_is_taken_when_it_is_free() {
    let Some(mut port) = opened() else { return };
    talk(&mut port);
    let container = Container::start();
    assert!(ip(&format!("link set t0 netns {}", container.0.id())));
    wait_for("it cannot be asked, and counts as up", || {
        port.device.info().link_up
    });
    container.end();
    talk(&mut port);
    // Another interface takes the name at once.
    let script = "ip link set t0 down && ip link set t0 name t1 && ip link add t0 type veth peer name t2 && ip link del t1";
    let status = Command::new("sh").args(["-c", script]).status().unwrap();
    assert!(status.success());
    wait_for("the link is down", || !port.device.info().link_up);
    assert!(ip("link del t0"));
    talk(&mut port);
}
