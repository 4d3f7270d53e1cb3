//! Two connected interfaces, and functions that send and receive.

use core::num::NonZeroU16;
use std::process::Command;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use millrace_af_packet::{Receiver, Sender, open};
use millrace_wire::virtio_net::Accepted;
use millrace_wire::{Frame, FramePool};
use nix::sched::{CloneFlags, unshare};

/// The longest time that the kernel may take for work in the background.
pub(crate) const BOUND: Duration = Duration::from_secs(60);
pub(crate) const MTU: usize = 1500;
pub(crate) const ACCEPTED: Accepted = Accepted {
    tcpv4: true,
    tcpv6: true,
    udp: true,
    frame_size: usize::MAX,
    mtu: MTU,
};

pub(crate) type Burst = ArrayVec<Frame, 64>;
pub(crate) type Pair = (Receiver, Sender);

pub(crate) fn ip(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status().unwrap();
    assert!(status.success(), "ip {words}");
}

/// Moves this thread into a namespace with two connected interfaces, v0 and v1, that are up. Returns false if that is
/// not permitted.
pub(crate) fn in_own_namespace() -> bool {
    if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET) {
        eprintln!("SKIPPED: a network namespace needs root ({errno})");
        return false;
    }
    make_veth();
    true
}

pub(crate) fn make_veth() {
    ip("link add v0 type veth peer name v1");
    for interface in ["v0", "v1"] {
        // The kernel's own packets (router solicitations) would mix with the test's.
        let quiet = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
        let _ = std::fs::write(quiet, "1");
        ip(&format!("link set {interface} up"));
    }
}

pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < BOUND, "not in {BOUND:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn one(interface: &str) -> Pair {
    open(interface, 1).unwrap().pop().unwrap()
}

/// Returns a pool whose buffers are as short as those of DPDK.
pub(crate) fn pool() -> FramePool {
    FramePool::new(256, 2048)
}

/// Receives until `len` frames have arrived.
pub(crate) fn receive(receiver: &mut Receiver, pool: &FramePool, len: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    wait_for("the frames come", || {
        let mut burst = Burst::new();
        let received = receiver.receive(&mut burst, &ACCEPTED, |len, burst: &mut Burst| {
            burst.extend((0..len).map_while(|_| pool.take(&[])));
        });
        assert_eq!((received.dropped, received.missed), (0, 0));
        assert_eq!(received.frames, burst.len());
        frames.extend(burst);
        frames.len() >= len
    });
    frames
}

pub(crate) fn send(sender: &mut Sender, frames: impl IntoIterator<Item = Frame>) {
    let mut burst: Burst = frames.into_iter().collect();
    wait_for("the frames go", || {
        assert_eq!(sender.send(&mut burst, MTU).dropped, 0);
        burst.is_empty()
    });
}

/// Returns an Ethernet frame with the tags and an IPv4 packet, whose TCP segment or UDP datagram has this data.
pub(crate) fn frame(tags: &[[u8; 4]], protocol: u8, ports: u16, data: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(tags.iter().flatten());
    frame.extend([8, 0]);
    let header_size = if protocol == 6 { 20 } else { 8 };
    let size = (header_size + data.len()) as u16;
    let mut ip = vec![0x45, 0];
    ip.extend((size + 20).to_be_bytes());
    ip.extend([0, 7, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let checksum = millrace_wire::checksum::internet(&ip).to_be_bytes();
    ip[10..12].copy_from_slice(&checksum);
    frame.extend(ip);
    frame.extend(ports.to_be_bytes());
    frame.extend([0x10, 0x02]);
    match protocol {
        6 => frame.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0]),
        _ => {
            frame.extend(size.to_be_bytes());
            frame.extend([0, 0]);
        }
    }
    frame.extend(data);
    frame
}

/// Returns a GSO packet.
pub(crate) fn long(bytes: &[u8], segment_size: u16) -> Frame {
    // The packet has several segments, like an mbuf chain.
    Frame::segmented(bytes, 2048).to_gso(NonZeroU16::new(segment_size).unwrap())
}
