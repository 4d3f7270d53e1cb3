//! Functions of class `ring`, which share packet memory: no byte is copied, and the switch keeps every buffer. The test needs
//! root, because a process opens DPDK's memory by `/proc/PID/map_files`; it says so and passes otherwise.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::switch::{environment, shared_memory};
use crate::testbed::kills::{back_within, hops, kill_at_random};
use crate::testbed::order::{keep_order, packets};
use crate::testbed::{BOUND, TestBed, frame};
use millrace_builtin::CATALOGUE;
use millrace_chain::{Class, HopPlan};
use millrace_datapath::io::dpdk::DpdkBackend;
use millrace_datapath::io::{Backend as _, DeviceOptions, DeviceSpec};
use millrace_nf::Settings;
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn ring(name: &str, function: &str, settings: &[&str]) -> HopPlan {
    HopPlan {
        class: Class::Ring,
        settings: Settings::parse(settings).unwrap(),
        ..HopPlan::new(name, function)
    }
}

#[test]
fn ring_functions_rewrite_packets_in_place_in_order_and_a_killed_one_costs_no_buffer() {
    // EAL starts once in a process, and the test counts all its buffers.
    millrace_testing::own_process!();
    let Some(backend) = shared_memory("ring") else {
        return;
    };
    rewritten_in_place(&backend);
    no_buffer_is_missing(&backend);
    in_order_through_edits(&backend);
    no_buffer_is_missing(&backend);
    killed_at_random(&backend);
    no_buffer_is_missing(&backend);
    beside_a_packet_socket(&backend);
}

/// Runs functions alongside a port whose driver maps the rings of a packet socket, which another process cannot map.
fn beside_a_packet_socket(backend: &Arc<DpdkBackend>) {
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    for words in [
        "link add v0 type veth peer name v1",
        "link set v0 up",
        "link set v1 up",
    ] {
        let status = Command::new("ip").args(words.split(' ')).status().unwrap();
        assert!(status.success(), "ip {words}");
    }
    let device = DeviceSpec::Vdev("net_af_packet0,iface=v0".to_owned());
    let _port = backend.open(&device, DeviceOptions::PLAIN).unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(
        maps.lines()
            .any(|line| line.contains("rw-s") && line.contains("socket:[")),
        "{maps}"
    );
    rewritten_in_place(backend);
}

fn no_buffer_is_missing(backend: &DpdkBackend) {
    let deadline = Instant::now() + BOUND;
    loop {
        let buffers = backend.buffers().unwrap();
        if buffers.used == 0 && buffers.all == 8191 {
            return;
        }
        assert!(Instant::now() < deadline, "{buffers:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn rewritten_in_place(backend: &Arc<DpdkBackend>) {
    let hops = vec![
        ring("fw", "firewall", &["rule=allow udp"]),
        ring("swap", "macswap", &[]),
        HopPlan::new("here", "macswap"),
        ring("nat", "nat44", &["outside=203.0.113.1"]),
    ];
    let memory = |name: &str| backend.memory(name);
    let (_rig, one, two) = TestBed::on(Arc::clone(backend), memory, environment(CATALOGUE, 1), 1, hops);
    assert!(one.send(&frame(0, 0)));
    let first = two.receive_within(BOUND).expect("the processes are up");
    assert_eq!(first[..12], frame(0, 0)[..12], "swapped twice");
    assert_eq!(first[26..30], [203, 0, 113, 1]);
    assert!(two.send(&crate::testbed::answer(&first)));
    let back = one.receive_within(BOUND).unwrap();
    assert_eq!(back[30..34], [10, 0, 0, 1], "the answer finds its way");
}

fn in_order_through_edits(backend: &Arc<DpdkBackend>) {
    let hops = vec![
        ring("a", "macswap", &[]),
        HopPlan::new("here", "macswap"),
        ring("b", "macswap", &[]),
    ];
    let memory = |name: &str| backend.memory(name);
    let (mut testbed, one, two) =
        TestBed::on(Arc::clone(backend), memory, environment(CATALOGUE, 1), 1, hops);
    let edits = keep_order(&mut testbed, [&one, &two], packets(50_000), 4_000);
    assert!(edits >= 5);
}

fn killed_at_random(backend: &Arc<DpdkBackend>) {
    let memory = |name: &str| backend.memory(name);
    let (mut testbed, one, two) = TestBed::on(
        Arc::clone(backend),
        memory,
        environment(CATALOGUE, 1),
        1,
        hops(Class::Ring),
    );
    let longest = kill_at_random(
        &mut testbed,
        [&one, &two],
        memory,
        environment(CATALOGUE, 1),
        Class::Ring,
        |pid| {
            kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
        },
    );
    assert!(longest < back_within(), "{longest:?}");
}
