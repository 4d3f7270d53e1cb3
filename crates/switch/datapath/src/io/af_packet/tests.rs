//! Tests of a port at one end of a veth, whose other end belongs to the test. They need root; without it they
//! print a message and are skipped.

use std::fs::read_link;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_af_packet::{Receiver, Sender};
use millrace_wire::virtio_net::Accepted;
use millrace_wire::{Frame, FramePool};
use nix::sched::{CloneFlags, unshare};

use super::interface::Interface;
use super::queue::Rx;
use crate::io::allocate::Empty;
use crate::io::kernel;
use crate::io::owner::Owned;
use crate::io::{Backend, Burst, DeviceOptions, DeviceSpec, HeapBackend, OpenError, Opened, RxQueue as _};

const BOUND: Duration = Duration::from_secs(60);

fn ip(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status().unwrap();
    assert!(status.success(), "ip {words}");
}

fn in_own_namespace() -> bool {
    if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET) {
        eprintln!("SKIPPED: a network namespace needs root ({errno})");
        return false;
    }
    make_veth();
    true
}

fn make_veth() {
    ip("link add v0 type veth peer name v1");
    for interface in ["v0", "v1"] {
        let quiet = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
        let _ = std::fs::write(quiet, "1");
        ip(&format!("link set {interface} up"));
    }
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + BOUND;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn open(backend: &HeapBackend, name: &str) -> Result<Opened<Frame>, OpenError> {
    backend.open(&DeviceSpec::Kernel(name.to_owned()), DeviceOptions::PLAIN)
}

fn far_end() -> (Receiver, Sender) {
    millrace_af_packet::open("v1", 1).unwrap().pop().unwrap()
}

fn received(receiver: &mut Receiver) -> usize {
    let accepted = Accepted {
        tcpv4: true,
        tcpv6: true,
        udp: true,
        frame_size: 9000,
        mtu: 1500,
    };
    let mut burst = Burst::new();
    let pool = FramePool::new(64, 2048);
    let empty = |len: usize, burst: &mut Burst<Frame>| burst.extend((0..len).map_while(|_| pool.take(&[])));
    receiver.receive(&mut burst, &accepted, empty).frames
}

/// Sends packets both ways, and asserts that each side receives them.
fn talk(port: &mut Opened<Frame>) {
    wait_for("the link is up", || port.device.info().link_up);
    let (mut receiver, mut sender) = far_end();
    for round in 0..50_u8 {
        let mut burst: Burst<Frame> = [Frame::new(&[round; 60])].into_iter().collect();
        wait_for("the switch sends", || {
            port.tx[0].tx_burst(&mut burst);
            burst.is_empty()
        });
        wait_for("the peer receives", || received(&mut receiver) == 1);
        let mut burst: Burst<Frame> = [Frame::new(&[round; 100])].into_iter().collect();
        sender.send(&mut burst, 1500);
        let mut came: Burst<Frame> = Burst::new();
        wait_for("the switch receives", || {
            port.rx[0].rx_burst(&mut came);
            !came.is_empty()
        });
        assert_eq!(came[0].bytes(), [round; 100]);
    }
}

#[test]
fn an_interface_that_is_deleted_and_made_again_is_found_again_and_its_link_says_so() {
    if !in_own_namespace() {
        return;
    }
    let backend = HeapBackend::new();
    let mut port = open(&backend, "v0").unwrap();
    for _ in 0..3 {
        talk(&mut port);
        ip("link del v0");
        wait_for("the link is down", || !port.device.info().link_up);
        // Packets that are sent while there is no interface are dropped, not kept.
        let mut burst: Burst<Frame> = [Frame::new(&[1; 60])].into_iter().collect();
        wait_for("the queue is detached", || {
            port.tx[0].tx_burst(&mut burst);
            !burst.is_empty() && port.tx[0].refused(1) == 1
        });
        port.rx[0].rx_burst(&mut Burst::new());
        make_veth();
    }
    talk(&mut port);
}

#[test]
fn the_link_follows_the_interface_and_its_peer() {
    if !in_own_namespace() {
        return;
    }
    let backend = HeapBackend::new();
    ip("link set v0 down");
    let mut port = open(&backend, "v0").unwrap();
    assert!(!port.device.info().link_up);
    ip("link set v0 up");
    talk(&mut port);
    ip("link set v1 down");
    wait_for("there is no carrier", || !port.device.info().link_up);
    ip("link set v1 up");
    talk(&mut port);
    ip("link set v0 mtu 1400");
    wait_for("the MTU is the interface's", || port.device.info().mtu == 1400);
    ip("link set v0 address 02:00:00:00:00:77");
    assert_eq!(port.device.info().mac.0, [2, 0, 0, 0, 0, 0x77]);
}

/// A process in a network namespace of its own.
struct FarNamespace(Child);

impl FarNamespace {
    fn start() -> FarNamespace {
        let mut command = Command::new("unshare");
        let process = command.args(["--net", "cat"]).stdin(Stdio::piped()).spawn();
        let far = FarNamespace(process.unwrap());
        let (here, there) = ("/proc/thread-self/ns/net", format!("/proc/{}/ns/net", far.0.id()));
        let here = read_link(here).unwrap();
        wait_for("the process is in its namespace", || {
            read_link(&there).is_ok_and(|there| there != here)
        });
        far
    }

    fn ip(&self, words: &str) {
        let id = self.0.id().to_string();
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", id.as_str(), "ip"]);
        let status = command.args(words.split(' ')).status().unwrap();
        assert!(status.success(), "ip {words}, in the other namespace");
    }
}

impl Drop for FarNamespace {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

/// The kernel unbinds packet sockets for ever when their interface leaves the namespace, and keeps its index. The thread of a
/// port that is late finds the interface as it was.
#[test]
fn an_interface_that_left_the_namespace_and_returned_before_anybody_looked_is_attached_again() {
    if !in_own_namespace() {
        return;
    }
    // `ip` takes the number of a thread, too.
    let (far, here) = (FarNamespace::start(), nix::unistd::gettid());
    let interface = Arc::new(Interface::new("v0", 1, Owned::default()).unwrap());
    interface.attach_first().unwrap();
    let before = kernel::state("v0").unwrap();
    ip(&format!("link set v0 netns {}", far.0.id()));
    far.ip(&format!("link set v0 netns {here}"));
    ip("link set v0 up");
    assert_eq!(kernel::state("v0").unwrap().index, before.index);
    assert!(interface.follow());
    let pool = FramePool::new(64, 2048);
    let empty: Empty<Frame> = Arc::new(move |len, burst: &mut Burst<Frame>| {
        burst.extend((0..len).map_while(|_| pool.take(&[])));
    });
    let mut rx = Rx::new(interface, 0, empty);
    let (_receiver, mut sender) = far_end();
    let mut burst: Burst<Frame> = [Frame::new(&[5; 100])].into_iter().collect();
    sender.send(&mut burst, 1500);
    wait_for("the switch receives", || {
        rx.rx_burst(&mut burst);
        !burst.is_empty()
    });
}

#[test]
fn an_interface_that_is_renamed_is_left_and_the_one_that_has_its_name_is_attached() {
    if !in_own_namespace() {
        return;
    }
    let backend = HeapBackend::new();
    let mut port = open(&backend, "v0").unwrap();
    talk(&mut port);
    ip("link set v0 down");
    ip("link set v0 name w0");
    wait_for("the link is down", || !port.device.info().link_up);
    ip("link add v0 type veth peer name w1");
    ip("link set v0 up");
    ip("link set w1 up");
    wait_for("the other one is attached", || port.device.info().link_up);
    ip("link set v0 name x0");
    wait_for("the name is gone", || !port.device.info().link_up);
    ip("link set w0 name v0");
    ip("link set v0 up");
    talk(&mut port);
}

#[test]
fn the_owner_of_an_interface_is_that_of_the_one_that_takes_its_place() {
    if !in_own_namespace() {
        return;
    }
    let backend = HeapBackend::new();
    let mut port = open(&backend, "v0").unwrap();
    ip("link del v0");
    wait_for("the link is down", || !port.device.info().link_up);
    make_veth();
    talk(&mut port);
    let error = open(&backend, "v0").err().unwrap();
    assert!(matches!(error, OpenError::Busy { .. }), "{error}");
    drop(port);
    open(&backend, "v0").unwrap();
}

/// Returns true if the kernel's last announcement is that the interface has a carrier. A question about one interface would make
/// the kernel announce its state.
fn is_announced_up(interface: &str) -> bool {
    let output = Command::new("ip").args(["-o", "link"]).output();
    let list = String::from_utf8(output.unwrap().stdout).unwrap();
    let mut lines = list.lines();
    let line = lines.find(|line| line.contains(&format!(" {interface}@")));
    line.unwrap().contains("state UP")
}

/// The kernel announces a loss of the carrier at once if the interface and its peer have different numbers
/// (net/core/link_watch.c); otherwise a second after the loss before. Numbers in two namespaces may be equal.
#[test]
fn a_lost_carrier_is_seen_before_the_kernel_announces_it() {
    if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET) {
        eprintln!("SKIPPED: a network namespace needs root ({errno})");
        return;
    }
    let far = FarNamespace::start();
    let id = far.0.id();
    ip(&format!(
        "link add v0 index 77 type veth peer name v1 index 77 netns {id}"
    ));
    ip("link set v0 up");
    far.ip("link set v1 up");
    let port = open(&HeapBackend::new(), "v0").unwrap();
    wait_for("the kernel announces a loss late", || {
        wait_for("the link is up", || port.device.info().link_up);
        // The kernel announces the first loss by itself.
        far.ip("link set v1 down");
        wait_for("the loss is announced", || !is_announced_up("v0"));
        far.ip("link set v1 up");
        wait_for("the link is up", || port.device.info().link_up);
        far.ip("link set v1 down");
        let is_late = is_announced_up("v0");
        assert!(!port.device.info().link_up, "seen at the first look");
        far.ip("link set v1 up");
        is_late
    });
}

#[test]
fn what_the_kernel_drops_is_counted() {
    if !in_own_namespace() {
        return;
    }
    let backend = HeapBackend::new();
    let mut port = open(&backend, "v0").unwrap();
    let (_, mut sender) = far_end();
    for _ in 0..80 {
        let mut burst: Burst<Frame> = (0..64).map(|_| Frame::new(&[1; 60])).collect();
        wait_for("the peer sends the packets", || {
            sender.send(&mut burst, 1500);
            burst.is_empty()
        });
    }
    wait_for("the drops are counted", || {
        port.device.stats().rx_missed == 80 * 64 - 4096
    });
    let mut burst: Burst<Frame> = [Frame::new(&[1; 1515])].into_iter().collect();
    port.tx[0].tx_burst(&mut burst);
    assert!(burst.is_empty());
    assert_eq!(port.device.stats().tx_errors, 1);
}

#[test]
fn an_interface_that_is_not_there_is_refused_with_the_next_step() {
    if !in_own_namespace() {
        return;
    }
    let error = open(&HeapBackend::new(), "nowhere").err().unwrap();
    assert!(matches!(error, OpenError::Missing { .. }));
    let text = error.to_string();
    assert!(
        text.contains("no interface `nowhere`") && text.contains("ip -br link"),
        "{text}"
    );
}
