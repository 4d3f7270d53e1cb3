//! Functions of class `isolated` in a running switch. They have the same effect as inline functions. When a process is killed,
//! hangs or violates the protocol, packets are lost only if the policy of the hop says so.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::switch::environment;
use crate::testbed::kills::{back_within, hops, kill_at_random};
use crate::testbed::order::{keep_order, packets};
use crate::testbed::{BOUND, TestBed, frame};
use millrace_builtin::CATALOGUE;
use millrace_chain::{Class, Exporter, HopPlan, HopState, UserIds};
use millrace_datapath::io::{Backend as _, HeapBackend, MemoryPeer};
use millrace_nf::Settings;
use millrace_wire::Frame;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn start(lanes: u16, hops: Vec<HopPlan>) -> (TestBed, MemoryPeer<Frame>, MemoryPeer<Frame>) {
    TestBed::environment(environment(CATALOGUE, lanes), lanes, hops)
}

fn isolated(name: &str, function: &str, settings: &[&str]) -> HopPlan {
    HopPlan {
        class: Class::Isolated,
        settings: Settings::parse(settings).unwrap(),
        ..HopPlan::new(name, function)
    }
}

/// Waits until a packet passes, which shows that the processes are up.
fn wait_until_up(one: &MemoryPeer<Frame>, two: &MemoryPeer<Frame>) {
    assert!(one.send(&frame(0, 0)));
    two.receive_within(BOUND).expect("a packet passes");
}

#[test]
fn a_process_does_to_packets_what_the_same_function_does_inline() {
    let nat = ["outside=203.0.113.1"];
    let hops = vec![
        isolated("fw", "firewall", &["rule=allow udp port 2000"]),
        isolated("swap", "macswap", &[]),
        isolated("nat", "nat44", &nat),
    ];
    let inline = hops.iter().map(|hop| HopPlan {
        class: Class::Inline,
        ..hop.clone()
    });
    let (mut testbed, one, two) = start(1, hops.clone());
    let (_other, three, four) = start(1, inline.collect());
    for number in 0..200_u32 {
        let bytes = frame((number % 7) as u16, number);
        assert!(one.send(&bytes) && three.send(&bytes));
        let received = two.receive_within(BOUND).unwrap();
        assert_eq!(received, four.receive_within(BOUND).unwrap());
        assert_ne!(received, bytes);
        // The reply is translated back.
        let back = crate::testbed::answer(&received);
        assert!(two.send(&back) && four.send(&back));
        let received = one.receive_within(BOUND).unwrap();
        assert_eq!(received, three.receive_within(BOUND).unwrap());
    }
    testbed.wait("counters of the process", |testbed| {
        let stats = testbed.chain.stats();
        stats.hops[0].counters.contains(&("known", 200 + 193)) && stats.hops[1].counters == [("swapped", 400)]
    });
    let hop = &testbed.chain.stats().hops[2];
    assert_eq!((hop.packets, hop.next, hop.depth), (400, 400, 0));
    // Both chains have the same seed, from which `nat44` chooses ports. The arguments, which every user can read, do not contain the seed.
    for pid in testbed.chain.processes() {
        let arguments = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        let has = |option| arguments.split('\0').any(|argument| argument.starts_with(option));
        assert!(has("--window") && !has("--seed"), "{arguments}");
    }
}

#[test]
fn order_is_kept_through_processes_and_edits_wait_for_what_is_on_its_way() {
    let hops = vec![
        isolated("a", "macswap", &[]),
        HopPlan::new("b", "macswap"),
        isolated("c", "macswap", &[]),
    ];
    let (mut testbed, one, two) = start(2, hops);
    wait_until_up(&one, &two);
    let edits = keep_order(&mut testbed, [&one, &two], packets(50_000), 4_000);
    assert!(edits >= 5);
}

#[test]
fn processes_killed_at_random_under_load_come_back_and_cost_no_buffer_and_nothing_of_another_chain() {
    let backend = Arc::new(HeapBackend::new());
    let (memory, buffers) = (Arc::clone(&backend), Arc::clone(&backend));
    let memory = move |name: &str| memory.memory(name);
    let (mut testbed, one, two) = TestBed::on(
        backend,
        &memory,
        environment(CATALOGUE, 1),
        1,
        hops(Class::Isolated),
    );
    let longest = kill_at_random(
        &mut testbed,
        [&one, &two],
        &memory,
        environment(CATALOGUE, 1),
        Class::Isolated,
        sigkill,
    );
    testbed.wait("the buffers to come back", |_| {
        buffers.buffers().is_some_and(|buffers| buffers.used == 0)
    });
    assert!(longest < back_within(), "{longest:?}");
}

fn sigkill(pid: u32) {
    kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
}

#[test]
fn a_process_that_hangs_is_found_by_its_heartbeat_and_replaced() {
    let (mut testbed, one, two) = start(1, vec![isolated("a", "macswap", &[])]);
    wait_until_up(&one, &two);
    let pid = testbed.chain.processes().next().unwrap();
    kill(Pid::from_raw(pid as i32), Signal::SIGSTOP).unwrap();
    assert!(one.send(&frame(0, 1)));
    testbed.wait("the hop to be down", |testbed| {
        testbed.chain.tick(testbed.bridge.now());
        testbed.chain.stats().hops[0].state == HopState::Down
    });
    testbed.wait("the hop to be up", |testbed| {
        testbed.chain.tick(testbed.bridge.now());
        let hop = testbed.chain.stats().hops.remove(0);
        hop.state == HopState::Up && hop.restarts == 1
    });
    assert_ne!(testbed.chain.processes().next(), Some(pid));
    testbed.settle();
    wait_until_up(&one, &two);
    assert_eq!(testbed.chain.stats().hops[0].lost, 1, "it fails closed");
}

#[test]
fn a_process_has_no_rights_and_no_files() {
    let (testbed, one, two) = start(1, vec![isolated("a", "macswap", &[])]);
    wait_until_up(&one, &two);
    let pid = testbed.chain.processes().next().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = |key: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(key))
            .unwrap()
            .trim()
            .to_owned()
    };
    assert_eq!(line("NoNewPrivs:"), "1");
    if nix::unistd::Uid::effective().is_root() {
        let user: Vec<u32> = line("Uid:").split('\t').map(|id| id.parse().unwrap()).collect();
        let range = UserIds::DEFAULT.first..UserIds::DEFAULT.first + UserIds::DEFAULT.len;
        assert!(range.contains(&user[0]) && user == [user[0]; 4], "{user:?}");
        assert_eq!(line("CapEff:"), "0000000000000000");
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        assert!(open <= 3, "{open} files");
    }
    drop(testbed);
    let deadline = Instant::now() + BOUND;
    while std::path::Path::new(&format!("/proc/{pid}")).exists() {
        assert!(Instant::now() < deadline, "it outlives the chain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the niceness of a process (field 19 of `/proc/PID/stat`, proc(5)).
fn niceness(process: &str) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, after) = stat.rsplit_once(") ").unwrap();
    after.split(' ').nth(16).unwrap().parse().unwrap()
}

#[test]
fn a_weight_is_a_share_of_a_core_that_processes_fight_for() {
    // Each step of niceness is a factor of 1.25 (sched(7)): 49 is three steps less; 195 is three steps more and
    // needs root.
    for (weight, steps) in [(100, 0), (49, 3), (195, -3)] {
        let mut hop = isolated("a", "macswap", &[]);
        hop.weight = weight;
        let (testbed, one, two) = start(1, vec![hop]);
        wait_until_up(&one, &two);
        let pid = testbed.chain.processes().next().unwrap();
        let own = niceness("self");
        let may = steps >= 0 || nix::unistd::Uid::effective().is_root();
        let wanted = if may { (own + steps).clamp(-20, 19) } else { own };
        assert_eq!(niceness(&pid.to_string()), wanted, "weight {weight}");
    }
}

/// Returns whether `bytes` contain `part`.
fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn what_a_process_exports_reaches_the_target_and_what_it_reports_the_statistics() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("copies.pcapng");
    let export = format!("export=file:{}", file.display());
    let hops = vec![
        isolated("tap", "tap", &[&export]),
        isolated("monitor", "monitor", &[]),
    ];
    let (mut testbed, one, two) = start(1, hops);
    let mut exporter = Exporter::new("edge");
    exporter.export(&testbed.chain);
    let sent: Vec<Vec<u8>> = (0..100).map(|number| frame(number as u16 % 3, number)).collect();
    for frame in &sent {
        assert!(one.send(frame));
        assert_eq!(two.receive_within(BOUND).as_ref(), Some(frame));
    }
    testbed.wait("all copies in the file", |_| {
        let bytes = std::fs::read(&file).unwrap_or_default();
        sent.iter().all(|frame| contains(&bytes, frame))
    });
    testbed.wait("a report with the sender", |testbed| {
        let stats = testbed.chain.stats();
        stats.hops[0].counters.contains(&("missed", 0)) && stats.hops[1].report.contains("10.0.0.1")
    });
}
