//! `ips` in processes: rules reach it, are replaced under load, and come back with a process that was killed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::switch::{environment, shared_memory};
use crate::testbed::{BOUND, TestBed, flow, frame, head, sequence};
use millrace_builtin::CATALOGUE;
use millrace_chain::{Class, Exporter, HopPlan, HopState, OnFailure};
use millrace_datapath::io::{Backend, HeapBackend, MemoryPeer};
use millrace_nf::Settings;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Packets in flight at a time.
const WINDOW: u32 = 64;
/// Rules that never match, so that a compilation takes time.
const OTHERS: u32 = 3000;

/// Writes rules that drop a flow, among many others.
fn write_rules(path: &Path, dropped: u16) {
    let port = 1000 + dropped;
    let mut text = format!("drop udp any {port} -> any any (msg:\"flow {dropped}\"; sid:{port};)\n");
    for sid in 1..=OTHERS {
        text += &format!(
            "alert udp any any -> any any (content:\"pattern {sid}\"; sid:{};)\n",
            sid + 10_000
        );
    }
    std::fs::write(path, text).unwrap();
}

fn hop(class: Class, rules: &Path, more: &[&str], on_failure: OnFailure) -> HopPlan {
    let rules = format!("rules={}", rules.display());
    let small = ["flows=1024", "memory_mib=33"];
    let settings = [rules.as_str()]
        .into_iter()
        .chain(small)
        .chain(more.iter().copied());
    HopPlan {
        class,
        on_failure,
        settings: Settings::parse(settings).unwrap(),
        ..HopPlan::new("ips", "ips")
    }
}

/// Ticks until all functions use the rules of this many compilations.
fn wait_for<B: Backend>(testbed: &mut TestBed<B>, compilations: u64) {
    testbed.wait("the rules are in use", |testbed| {
        testbed.chain.tick(testbed.bridge.now());
        is_loaded(testbed, compilations)
    });
}

fn is_loaded<B: Backend>(testbed: &mut TestBed<B>, compilations: u64) -> bool {
    let hop = testbed.chain.stats().hops.remove(0);
    let shared = hop.shared.unwrap();
    hop.state == HopState::Up
        && shared.compilations >= compilations
        && !shared.is_compiling
        && testbed.chain.is_settled()
}

/// Numbered packets of one flow, in order, with a bounded number in flight.
#[derive(Default)]
struct Load {
    sent: u32,
    /// The number after the last one that arrived.
    next: u32,
    came: u32,
}

impl Load {
    fn exchange<B: Backend>(&mut self, [one, two]: [&MemoryPeer<B::Packet>; 2], lost: u32) {
        while self.sent - self.came - lost < WINDOW && one.send(&frame(1, self.sent)) {
            self.sent += 1;
        }
        self.receive::<B>(two);
    }

    fn receive<B: Backend>(&mut self, two: &MemoryPeer<B::Packet>) {
        while let Some(packet) = two.receive() {
            let frame = head(&packet);
            assert_eq!(flow(&frame), 1);
            assert!(
                sequence(&frame) >= self.next,
                "{} before {}",
                sequence(&frame),
                self.next
            );
            self.next = sequence(&frame) + 1;
            self.came += 1;
        }
    }
}

/// Sends a packet of a flow that is dropped, and one of another flow; returns the flow that comes first.
fn first_to_come<B: Backend>([one, two]: [&MemoryPeer<B::Packet>; 2], dropped: u16, passed: u16) -> u16 {
    for number in [dropped, passed] {
        assert!(one.send(&frame(number, 7)));
    }
    flow(&two.receive_within(BOUND).unwrap())
}

/// Replaces the rules while packets flow. Returns the number of packets.
fn reload_under_load<B: Backend>(
    testbed: &mut TestBed<B>,
    peers: [&MemoryPeer<B::Packet>; 2],
    rules: &Path,
    mut export: impl FnMut(&TestBed<B>),
) -> u32 {
    wait_for(testbed, 1);
    assert_eq!(first_to_come::<B>(peers, 5, 1), 1);
    write_rules(rules, 6);
    assert!(testbed.chain.reload("ips"));
    let mut load = Load::default();
    let deadline = Instant::now() + BOUND;
    while !is_loaded(testbed, 2) {
        assert!(Instant::now() < deadline, "{:?}", testbed.chain.stats());
        if testbed.chain.tick(testbed.bridge.now()) {
            export(testbed);
        }
        load.exchange::<B>(peers, 0);
    }
    testbed.wait("all packets to come", |_| {
        load.receive::<B>(peers[1]);
        load.came == load.sent
    });
    assert_eq!(load.next, load.sent);
    assert_eq!(first_to_come::<B>(peers, 6, 1), 1, "the new rules are in use");
    assert_eq!(first_to_come::<B>(peers, 9, 1), 9);
    assert_eq!(flow(&peers[1].receive_within(BOUND).unwrap()), 1);
    load.sent
}

/// Kills the process under load, and waits until it is back with its rules. Returns the packets that were lost.
fn kill_under_load<B: Backend>(testbed: &mut TestBed<B>, peers: [&MemoryPeer<B::Packet>; 2]) -> u64 {
    wait_for(testbed, 1);
    let pid = testbed.chain.processes().next().unwrap();
    let mut load = Load::default();
    while load.sent < 1000 {
        load.exchange::<B>(peers, 0);
    }
    kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
    let deadline = Instant::now() + BOUND;
    let mut is_back = false;
    while !is_back {
        assert!(Instant::now() < deadline, "{:?}", testbed.chain.stats());
        testbed.chain.tick(testbed.bridge.now());
        // Packets that the hop drops do not count as in flight.
        let lost = lost(testbed).min(load.sent.saturating_sub(load.came).into());
        load.exchange::<B>(peers, lost as u32);
        is_back = testbed.chain.stats().hops[0].restarts == 1 && is_loaded(testbed, 1);
    }
    assert_ne!(testbed.chain.processes().next(), Some(pid));
    testbed.wait("each packet is forwarded or counted", |testbed| {
        testbed.chain.tick(testbed.bridge.now());
        load.receive::<B>(peers[1]);
        u64::from(load.came) + lost(testbed) == u64::from(load.sent)
    });
    assert_eq!(first_to_come::<B>(peers, 5, 1), 1, "the rules are back");
    lost(testbed) - 1
}

/// Returns the packets that the hop dropped, or its policy while it was down.
fn lost<B: Backend>(testbed: &mut TestBed<B>) -> u64 {
    let hop = testbed.chain.stats().hops.remove(0);
    hop.lost + hop.dropped + hop.shunned_dropped
}

fn on_heap(
    hop: HopPlan,
) -> (
    TestBed,
    MemoryPeer<millrace_wire::Frame>,
    MemoryPeer<millrace_wire::Frame>,
    Arc<HeapBackend>,
) {
    let backend = Arc::new(HeapBackend::new());
    let memory = Arc::clone(&backend);
    let buffers = Arc::clone(&backend);
    let environment = environment(CATALOGUE, 1);
    let (testbed, one, two) = TestBed::on(
        backend,
        move |name| memory.memory(name),
        environment,
        1,
        vec![hop],
    );
    (testbed, one, two, buffers)
}

fn rules_file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("test.rules");
    write_rules(&rules, 5);
    (folder, rules)
}

#[test]
fn rules_reach_an_isolated_process_and_are_replaced_under_load_without_loss() {
    let (folder, rules) = rules_file();
    let eve = folder.path().join("eve.json");
    let export = format!("export=file:{}", eve.display());
    let (mut testbed, one, two, _) = on_heap(hop(Class::Isolated, &rules, &[&export], OnFailure::Closed));
    let mut exporter = Exporter::new("edge");
    wait_for(&mut testbed, 1);
    exporter.export(&testbed.chain);
    let packets = reload_under_load(&mut testbed, [&one, &two], &rules, |testbed| {
        exporter.export(&testbed.chain);
    });
    assert!(packets > 100, "{packets}");
    // Messages of a process come out of its window, with the texts of rules that the control side has.
    testbed.wait("the alerts of both sets are written", |testbed| {
        testbed.chain.tick(testbed.bridge.now());
        let text = std::fs::read_to_string(&eve).unwrap_or_default();
        text.contains("\"signature_id\":1005") && text.contains("\"signature\":\"flow 6\"")
    });
    let text = std::fs::read_to_string(&eve).unwrap();
    assert!(
        !text.contains("\"timestamp\":\"1970"),
        "the clock of the process is the clock of the events"
    );
}

#[test]
fn rules_that_cannot_be_compiled_leave_those_of_the_process_in_use() {
    let (_folder, rules) = rules_file();
    let (mut testbed, one, two, _) = on_heap(hop(Class::Isolated, &rules, &[], OnFailure::Closed));
    wait_for(&mut testbed, 1);
    std::fs::write(&rules, "drop nonsense\n").unwrap();
    assert!(testbed.chain.reload("ips"));
    testbed.wait("the failure is known", |testbed| {
        testbed.chain.tick(testbed.bridge.now());
        !testbed.chain.stats().hops[0].failure.is_empty()
    });
    assert_eq!(testbed.chain.stats().hops[0].state, HopState::Up);
    assert_eq!(first_to_come::<HeapBackend>([&one, &two], 5, 1), 1);
}

#[test]
fn a_killed_process_that_fails_open_loses_no_packet_and_comes_back_with_its_rules() {
    let (_folder, rules) = rules_file();
    let hop = hop(Class::Isolated, &rules, &["profile=open"], OnFailure::Open);
    let (mut testbed, one, two, buffers) = on_heap(hop);
    assert_eq!(kill_under_load(&mut testbed, [&one, &two]), 0);
    no_buffer_is_missing(&mut testbed, &*buffers);
}

#[test]
fn a_killed_process_that_fails_closed_counts_each_packet_that_it_drops() {
    let (_folder, rules) = rules_file();
    let (mut testbed, one, two, buffers) = on_heap(hop(Class::Isolated, &rules, &[], OnFailure::Closed));
    assert!(
        kill_under_load(&mut testbed, [&one, &two]) > 0,
        "it was down for a while"
    );
    no_buffer_is_missing(&mut testbed, &*buffers);
}

fn no_buffer_is_missing<B: Backend>(testbed: &mut TestBed<B>, backend: &B) {
    testbed.wait("the buffers to come back", |_| {
        std::thread::sleep(Duration::from_millis(1));
        backend.buffers().is_some_and(|buffers| buffers.used == 0)
    });
}

#[test]
fn rules_reach_a_process_that_shares_packet_memory_and_survive_reload_and_kill() {
    // EAL starts once in a process, and the test counts all its buffers.
    millrace_testing::own_process!();
    let Some(backend) = shared_memory("inspection") else {
        return;
    };
    let (_folder, rules) = rules_file();
    let start = |hop: HopPlan| {
        let memory = |name: &str| backend.memory(name);
        TestBed::on(
            Arc::clone(&backend),
            memory,
            environment(CATALOGUE, 1),
            1,
            vec![hop],
        )
    };
    {
        let (mut testbed, one, two) = start(hop(Class::Ring, &rules, &[], OnFailure::Closed));
        assert!(reload_under_load(&mut testbed, [&one, &two], &rules, |_| {}) > 100);
    }
    write_rules(&rules, 5);
    for (policy, settings) in [(OnFailure::Open, &["profile=open"][..]), (OnFailure::Closed, &[])] {
        let (mut testbed, one, two) = start(hop(Class::Ring, &rules, settings, policy));
        let lost = kill_under_load(&mut testbed, [&one, &two]);
        assert_eq!(lost == 0, policy == OnFailure::Open, "{lost} packets lost");
        drop(testbed);
    }
    let deadline = Instant::now() + BOUND;
    while backend.buffers().is_some_and(|buffers| buffers.used != 0) {
        assert!(Instant::now() < deadline, "{:?}", backend.buffers());
        std::thread::sleep(Duration::from_millis(1));
    }
}
