//! Functions in processes that share the memory of packets: nothing is copied, and every buffer stays the switch's.
//! Needs root, as the files behind DPDK's memory are opened by `/proc/PID/map_files`; says so and passes otherwise.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "../../../crates/chain/tests/rig/mod.rs"]
mod rig;

use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_chain::{Around, Class, HopPlan, HopState};
use millrace_datapath::io::Backend;
use millrace_datapath::io::dpdk::DpdkBackend;
use millrace_dpdk::eal::HugePages;
use millrace_dpdk::{Eal, EalConfig};
use millrace_functions::CATALOGUE;
use millrace_nf::Settings;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rig::{BOUND, Rig, frame, sequence};

fn ring(name: &str, function: &str, settings: &[&str]) -> HopPlan {
    HopPlan {
        class: Class::Ring,
        settings: Settings::parse(settings).unwrap(),
        ..HopPlan::new(name, function)
    }
}

/// One test, as EAL starts once in a process.
#[test]
fn ring_functions_rewrite_packets_in_place_in_order_and_a_killed_one_costs_no_buffer() {
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("not run: it needs root");
        return;
    }
    let eal = Eal::init(&EalConfig {
        file_prefix: format!("ring-{}", std::process::id()),
        memory_mib: 128,
        huge_pages: HugePages::Off,
        ..EalConfig::default()
    })
    .unwrap();
    let backend = Arc::new(DpdkBackend::new(eal, 8191).unwrap());
    let around = Around {
        catalogue: CATALOGUE,
        workers: 1,
        seed: 1,
        zero_unix_millis: 0,
        program: env!("CARGO_BIN_EXE_millrace-nf").into(),
    };
    let hops = vec![
        ring("fw", "firewall", &["rule=allow udp"]),
        ring("swap", "macswap", &[]),
        HopPlan::new("here", "macswap"),
        ring("nat", "nat44", &["outside=203.0.113.1"]),
    ];
    let memory = Arc::clone(&backend);
    let (mut rig, one, two) = Rig::on(backend, |name| memory.memory(name), around, 1, hops);
    let total = memory.buffers().unwrap();
    assert!(one.send(&frame(0, 0)));
    let first = two.receive_within(BOUND).expect("the processes are up");
    assert_eq!(first[..12], frame(0, 0)[..12], "swapped twice");
    assert_eq!(first[26..30], [203, 0, 113, 1]);
    assert!(two.send(&rig::answer(&first)));
    let back = one.receive_within(BOUND).unwrap();
    assert_eq!(back[30..34], [10, 0, 0, 1], "the answer finds its way");

    let (mut sent, mut received) = (0_u32, 0_u32);
    const PACKETS: u32 = 30_000;
    while received < PACKETS {
        while sent < PACKETS && sent - received < 500 {
            sent += u32::from(one.send(&frame(0, sent)));
        }
        let frame = two.receive_within(BOUND).expect("a packet");
        assert_eq!(sequence(&frame), received);
        received += 1;
    }

    let times: u32 = std::env::var("MILLRACE_KILLS").map_or(12, |times| times.parse().unwrap());
    let mut longest = Duration::ZERO;
    for round in 0..times {
        let victim = [0, 1, 3][round as usize % 3];
        let before = rig.chain.stats().hops[victim].restarts;
        let pids: Vec<u32> = rig.chain.processes().collect();
        let mut restarted = None;
        let killed = Instant::now();
        kill(Pid::from_raw(pids[round as usize % 3] as i32), Signal::SIGKILL).unwrap();
        loop {
            for _ in 0..32 {
                sent += u32::from(one.send(&frame((sent % 8) as u16, sent)));
            }
            let mut passed = false;
            while two.receive().is_some() {
                passed = true;
            }
            rig.chain.tick(rig.bridge.now());
            let hop = rig.chain.stats().hops.remove(victim);
            if hop.restarts > before {
                restarted.get_or_insert(killed.elapsed());
            }
            if passed && hop.restarts > before && hop.state == HopState::Up {
                break;
            }
            assert!(killed.elapsed() < BOUND, "round {round}: {hop:?}");
        }
        longest = longest.max(killed.elapsed());
        // However often that happens: a kill is no fault of the function. A machine that is busy with other tests takes its
        // time to begin a process, so that this counts where kills were asked for.
        let bound = Duration::from_secs(2);
        assert!(
            longest < bound || std::env::var_os("MILLRACE_KILLS").is_none(),
            "round {round}: {longest:?}, begun again after {restarted:?}: {:?}",
            rig.chain.stats().hops[victim]
        );
    }
    eprintln!("{times} kills; back after {longest:?} at most");
    rig.wait("the buffers to come back", |_| {
        while two.receive().is_some() {}
        memory
            .buffers()
            .is_some_and(|(used, all)| used == 0 && all == total.1)
    });
}
