//! Kernel interfaces as ports: a veth pair in a network namespace of this program, which the kernel removes
//! with it. The tests need root; without it they print a line and pass.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

use std::process::Command;
use std::time::{Duration, Instant};

use crate::eal_once::eal;
use arrayvec::ArrayVec;
use millrace_dpdk::{
    AttachError, Mbuf, Mempool, MempoolConfig, Port, PortConfig, Queues, RxQueue, TxQueue, mempool,
};
use nix::sched::{CloneFlags, unshare};

/// The longest time that the kernel may take for work in the background.
const BOUND: Duration = Duration::from_secs(60);

/// Moves this thread into a namespace with two connected interfaces, v0 and v1. Returns false if that is not
/// permitted.
fn in_own_namespace(mtu: u16) -> bool {
    if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET) {
        eprintln!("SKIPPED: a network namespace needs root ({errno})");
        return false;
    }
    let mtu = mtu.to_string();
    ip(&[
        "link", "add", "v0", "mtu", &mtu, "type", "veth", "peer", "name", "v1", "mtu", &mtu,
    ]);
    for interface in ["v0", "v1"] {
        // The kernel's own packets (router solicitations) would mix with the test's.
        let quiet = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
        let _ = std::fs::write(quiet, "1");
        ip(&["link", "set", interface, "up"]);
    }
    for interface in ["v0", "v1"] {
        wait_for("the interfaces are up", || state(interface).contains("state UP"));
    }
    true
}

/// Waits until the condition holds. The kernel propagates a link state in the background, and delays it by up to a
/// second while many links change.
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < BOUND, "not in {BOUND:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn state(interface: &str) -> String {
    let output = Command::new("ip")
        .args(["-o", "link", "show", interface])
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn ip(arguments: &[&str]) {
    let status = Command::new("ip").args(arguments).status().unwrap();
    assert!(status.success(), "ip {arguments:?}");
}

struct End {
    port: Port,
    rx: RxQueue,
    tx: TxQueue,
}

fn start(mut port: Port, config: &PortConfig, pool: Mempool) -> End {
    let Queues { mut rx, mut tx } = port.start(config, pool).unwrap();
    End {
        port,
        rx: rx.remove(0),
        tx: tx.remove(0),
    }
}

fn attach(devargs: &str) -> Port {
    Port::attach(eal(), &devargs.parse().unwrap()).unwrap()
}

fn bytes(packet: &Mbuf) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}

/// Returns a broadcast frame of this size with an EtherType that the kernel ignores.
fn frame(size: usize, seed: u8) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame.extend((frame.len()..size).map(|index| (index as u8).wrapping_mul(7).wrapping_add(seed)));
    frame
}

/// Sends the frames, and returns those with our EtherType that arrive at the other end.
fn carry(from: &mut End, to: &mut End, pool: Mempool, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut burst = ArrayVec::<Mbuf, 32>::new();
    for frame in frames {
        burst.push(pool.packet(frame).unwrap());
    }
    let start = Instant::now();
    let mut arrived = Vec::new();
    let mut received = ArrayVec::<Mbuf, 32>::new();
    while arrived.len() < frames.len() && start.elapsed() < BOUND {
        from.tx.tx_burst(&mut burst);
        to.rx.rx_burst(&mut received);
        arrived.extend(
            received
                .drain(..)
                .map(|packet| bytes(&packet))
                .filter(|bytes| bytes[6..12] == [2, 0, 0, 0, 0, 1]),
        );
    }
    arrived
}

/// Does the same as [`carry`], up to three times: the kernel may drop the first frames while it brings the
/// link up, and a driver tries a frame again only with the next one.
fn carry_again(from: &mut End, to: &mut End, pool: Mempool, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut tries = (0..3).map(|_| carry(from, to, pool, frames));
    tries.find(|arrived| !arrived.is_empty()).unwrap_or_default()
}

#[test]
fn frames_pass_between_two_af_packet_ports() {
    if !in_own_namespace(1500) {
        return;
    }
    let pool = Mempool::new(eal(), &MempoolConfig::new("packet", 4095)).unwrap();
    let mut a = start(attach("net_af_packet0,iface=v0"), &PortConfig::default(), pool);
    let mut b = start(attach("net_af_packet1,iface=v1"), &PortConfig::default(), pool);
    assert!(a.port.link().unwrap().up);
    assert!(a.port.info().unwrap().interface_index.is_some());
    let frames: Vec<Vec<u8>> = [60, 64, 512, 1514].iter().map(|&size| frame(size, 3)).collect();
    assert_eq!(carry(&mut a, &mut b, pool, &frames), frames);
    assert_eq!(carry(&mut b, &mut a, pool, &frames), frames);
}

/// Stops and starts one end, then removes and recreates it, with traffic each time.
fn comes_back(driver: &str, pool: Mempool) {
    let mut b = start(
        attach(&format!("{driver}11,iface=v1")),
        &PortConfig::default(),
        pool,
    );
    let devargs = format!("{driver}10,iface=v0");
    let mut port = attach(&devargs);
    for round in 0..4 {
        let mut a = start(port, &PortConfig::default(), pool);
        let frames = [frame(100, round)];
        assert_eq!(
            carry_again(&mut a, &mut b, pool, &frames),
            frames,
            "round {round}"
        );
        assert_eq!(
            carry_again(&mut b, &mut a, pool, &frames),
            frames,
            "round {round}"
        );
        let End {
            port: stopping,
            rx,
            tx,
        } = a;
        drop((rx, tx));
        port = stopping;
        if round % 2 == 0 {
            port.stop().unwrap();
        } else {
            port.detach().unwrap();
            port = attach(&devargs);
        }
    }
}

#[test]
fn an_af_packet_port_comes_back() {
    if in_own_namespace(1500) {
        comes_back(
            "net_af_packet",
            Mempool::new(eal(), &MempoolConfig::new("afpagain", 4095)).unwrap(),
        );
    }
}

#[test]
fn an_af_xdp_port_comes_back() {
    if in_own_namespace(1500) {
        comes_back(
            "net_af_xdp",
            Mempool::new(eal(), &MempoolConfig::new("xdpagain", 16_383)).unwrap(),
        );
    }
}

#[test]
fn the_link_is_the_interfaces() {
    if !in_own_namespace(1500) {
        return;
    }
    let pool = Mempool::new(eal(), &MempoolConfig::new("link", 4095)).unwrap();
    let a = start(attach("net_af_packet40,iface=v0"), &PortConfig::default(), pool);
    let is_up = || a.port.link().unwrap().up;
    assert!(is_up());
    ip(&["link", "set", "v1", "down"]);
    wait_for("the link is down with its other end", || !is_up());
    ip(&["link", "set", "v1", "up"]);
    wait_for("the link is up again", is_up);
    ip(&["link", "del", "v0"]);
    wait_for("the link is down without its interface", || !is_up());
}

#[test]
fn jumbo_frames_pass_between_af_packet_ports_with_large_frames() {
    if !in_own_namespace(9586) {
        return;
    }
    let config = MempoolConfig {
        data_room: 16384 + mempool::HEADROOM,
        ..MempoolConfig::new("bigroom", 1023)
    };
    let large = Mempool::new(eal(), &config).unwrap();
    let small = Mempool::new(eal(), &MempoolConfig::new("smallroom", 1023)).unwrap();
    let options = "blocksz=16384,framesz=16384,framecnt=64";
    // The MTU is that of the interface. The driver itself accepts no more than 1,500.
    let config = PortConfig::default();
    let mut a = start(
        attach(&format!("net_af_packet20,iface=v0,{options}")),
        &config,
        large,
    );
    let mut b = start(
        attach(&format!("net_af_packet21,iface=v1,{options}")),
        &config,
        large,
    );
    let frames = vec![frame(9600, 1)];
    assert_eq!(carry(&mut a, &mut b, large, &frames), frames, "in one segment");
    assert_eq!(
        carry(&mut a, &mut b, small, &frames),
        frames,
        "in several segments"
    );
    assert_eq!(a.port.stats().unwrap().tx_errors, 0);
}

#[test]
fn frames_pass_between_two_af_xdp_ports() {
    if !in_own_namespace(1500) {
        return;
    }
    let pool = Mempool::new(eal(), &MempoolConfig::new("xdp", 8191)).unwrap();
    let port = match Port::attach(eal(), &"net_af_xdp0,iface=v0".parse().unwrap()) {
        Ok(port) => port,
        Err(error @ (AttachError::NoDriver { .. } | AttachError::Permission { .. })) => {
            eprintln!("SKIPPED: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let mut a = start(port, &PortConfig::default(), pool);
    let mut b = start(attach("net_af_xdp1,iface=v1"), &PortConfig::default(), pool);
    let frames: Vec<Vec<u8>> = [60, 64, 512, 1514].iter().map(|&size| frame(size, 5)).collect();
    assert_eq!(carry(&mut a, &mut b, pool, &frames), frames);
    assert_eq!(carry(&mut b, &mut a, pool, &frames), frames);
}

/// Returns the frame that arrives when one with these tags is sent.
fn carry_tags(driver: &str, tags: &[u8], pool: Mempool) -> (Vec<u8>, Vec<u8>) {
    let mut a = start(
        attach(&format!("{driver}30,iface=v0")),
        &PortConfig::default(),
        pool,
    );
    let mut b = start(
        attach(&format!("{driver}31,iface=v1")),
        &PortConfig::default(),
        pool,
    );
    let mut tagged = frame(80, 2);
    tagged.splice(12..12, tags.iter().copied());
    let arrived = carry_again(&mut a, &mut b, pool, std::slice::from_ref(&tagged)).pop();
    (tagged, arrived.unwrap())
}

#[test]
fn af_packet_keeps_tags_but_not_the_type_of_a_service_tag() {
    if !in_own_namespace(1500) {
        return;
    }
    let pool = Mempool::new(eal(), &MempoolConfig::new("tags", 4095)).unwrap();
    for tags in [&[0x81, 0, 0x20, 5][..], &[0x81, 0, 0, 7, 0x81, 0, 0, 9]] {
        let (sent, arrived) = carry_tags("net_af_packet", tags, pool);
        assert_eq!(arrived, sent);
    }
    // The kernel strips the outer tag, and the driver restores the tag as 802.1Q: a limit of the driver that README.md
    // states. If this assertion fails, the driver was fixed.
    let (sent, arrived) = carry_tags("net_af_packet", &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 9], pool);
    assert_eq!(arrived[12..14], [0x81, 0]);
    assert_eq!(arrived[14..], sent[14..]);
}

#[test]
fn af_xdp_keeps_every_tag() {
    if !in_own_namespace(1500) {
        return;
    }
    let pool = Mempool::new(eal(), &MempoolConfig::new("xdptags", 16_383)).unwrap();
    for tags in [
        &[0x81, 0, 0x20, 5][..],
        &[0x88, 0xa8, 0x20, 5],
        &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 9],
    ] {
        let (sent, arrived) = carry_tags("net_af_xdp", tags, pool);
        assert_eq!(arrived, sent);
    }
}
