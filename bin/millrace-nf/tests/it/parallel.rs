//! Read-only functions in processes, which get each packet at the same time. Packets take the same route as in sequence, in order,
//! while the chain is edited and processes are killed. A function that writes although it declares `writes 0` changes no packet.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::path::Path;
use std::sync::Arc;

use crate::switch::{environment, shared_memory};
use crate::testbed::kills::{back_within, kill_at_random, readers};
use crate::testbed::order::{keep_order, packets};
use crate::testbed::{BOUND, TestBed, frame, sequence};
use millrace_builtin::CATALOGUE;
use millrace_chain::{Class, HopPlan, OnFailure};
use millrace_datapath::io::{Backend, HeapBackend, MemoryPeer};
use millrace_loader::LOADERS;
use millrace_nf::Settings;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn hop(class: Class, name: &str, function: &str, settings: &[&str]) -> HopPlan {
    HopPlan {
        class,
        settings: Settings::parse(settings).unwrap(),
        ..HopPlan::new(name, function)
    }
}

/// Returns a chain with parallel hops on a backend.
fn start<B: Backend>(
    backend: &Arc<B>,
    memory: impl Fn(&str) -> MemoryPeer<B::Packet>,
    hops: Vec<HopPlan>,
) -> (TestBed<B>, MemoryPeer<B::Packet>, MemoryPeer<B::Packet>) {
    let environment = environment(CATALOGUE.with_loaders(LOADERS), 1);
    let (mut testbed, one, two) = TestBed::on(Arc::clone(backend), memory, environment, 1, hops);
    let mut plan = testbed.chain.plan().clone();
    plan.parallel = true;
    testbed.edit(&plan);
    (testbed, one, two)
}

fn groups<B: Backend>(testbed: &mut TestBed<B>) -> Vec<Option<usize>> {
    let hops = testbed.chain.stats().hops;
    hops.iter().map(|hop| hop.parallel).collect()
}

fn a_drop_counts_where_it_would_have_fallen_and_hops_behind_it_never_had_the_packet<B: Backend>(
    backend: &Arc<B>,
    memory: impl Fn(&str) -> MemoryPeer<B::Packet>,
    class: Class,
) {
    let hops = vec![
        hop(class, "watch", "monitor", &[]),
        hop(class, "fw", "firewall", &["rule=allow udp port 2000"]),
        hop(class, "rate", "ratelimit", &["rate=100Gbps"]),
        hop(class, "swap", "macswap", &[]),
        hop(class, "again", "monitor", &[]),
    ];
    let (mut testbed, one, two) = start(backend, memory, hops);
    assert_eq!(groups(&mut testbed), [Some(1), Some(1), Some(1), None, None]);
    let mut forbidden = frame(0, 0);
    forbidden[37] += 1;
    for number in 0..50 {
        assert!(one.send(&forbidden));
        assert!(one.send(&frame((number % 7) as u16, number)));
        let received = two.receive_within(BOUND).expect("the processes are up");
        assert_eq!(sequence(&received), number);
        assert_eq!(received[..6], frame(0, 0)[6..12], "the hop behind them writes");
        assert!(two.send(&crate::testbed::answer(&received)));
        one.receive_within(BOUND).expect("and back");
    }
    testbed.wait("the last one to be dropped", |testbed| {
        testbed.chain.stats().hops[1].dropped == 50
    });
    let stats = testbed.chain.stats().hops;
    let counted = stats.iter().map(|hop| (hop.packets, hop.next, hop.depth));
    let wanted = [
        (150, 150, 0),
        (150, 100, 0),
        (100, 100, 0),
        (100, 100, 0),
        (100, 100, 0),
    ];
    assert_eq!(counted.collect::<Vec<_>>(), wanted);
    assert!(stats[0].latency_nanos.is_none_or(|nanos| nanos > 0.0));
    // The function behind the firewall has also seen the dropped packets.
    testbed.wait("the counters of the function", |testbed| {
        testbed.chain.tick(testbed.bridge.now());
        testbed.chain.stats().hops[2].counters.contains(&("passed", 150))
    });
    // After an edit, the hops process packets in sequence.
    let mut plan = testbed.chain.plan().clone();
    plan.parallel = false;
    testbed.edit(&plan);
    testbed.settle();
    assert_eq!(groups(&mut testbed), [None; 5]);
    assert!(one.send(&frame(0, 7)));
    assert_eq!(sequence(&two.receive_within(BOUND).unwrap()), 7);
}

fn in_order_through_edits<B: Backend>(
    backend: &Arc<B>,
    memory: impl Fn(&str) -> MemoryPeer<B::Packet>,
    class: Class,
) {
    let hops = vec![
        hop(class, "a", "monitor", &[]),
        hop(class, "b", "firewall", &["rule=allow udp"]),
        HopPlan::new("here", "macswap"),
        hop(class, "c", "monitor", &[]),
        hop(class, "d", "ratelimit", &["rate=100Gbps"]),
    ];
    let (mut testbed, one, two) = start(backend, memory, hops);
    let edits = keep_order(&mut testbed, [&one, &two], packets(50_000), 4_000);
    assert!(edits >= 5);
}

fn killed_at_random<B: Backend>(
    backend: &Arc<B>,
    memory: impl Fn(&str) -> MemoryPeer<B::Packet>,
    class: Class,
) {
    let (mut testbed, one, two) = start(backend, &memory, readers(class));
    assert_eq!(groups(&mut testbed), [Some(1), Some(1), Some(1), None]);
    let environment = environment(CATALOGUE, 1);
    let longest = kill_at_random(&mut testbed, [&one, &two], &memory, environment, class, |pid| {
        kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
    });
    testbed.wait("the buffers to come back", |_| {
        backend.buffers().is_some_and(|buffers| buffers.used == 0)
    });
    assert!(longest < back_within(), "{longest:?}");
}

#[test]
fn isolated_functions_that_read_together_decide_as_one_after_the_other() {
    let backend = Arc::new(HeapBackend::new());
    let memory = |name: &str| backend.memory(name);
    a_drop_counts_where_it_would_have_fallen_and_hops_behind_it_never_had_the_packet(
        &backend,
        memory,
        Class::Isolated,
    );
    in_order_through_edits(&backend, memory, Class::Isolated);
}

#[test]
fn isolated_functions_that_read_together_may_be_killed_at_random() {
    let backend = Arc::new(HeapBackend::new());
    let memory = |name: &str| backend.memory(name);
    killed_at_random(&backend, memory, Class::Isolated);
}

/// This is one test, because EAL starts only once in a process.
#[test]
fn ring_functions_that_read_together_decide_as_one_after_the_other_and_may_be_killed_at_random() {
    // The test counts all buffers of EAL.
    millrace_testing::own_process!();
    let Some(backend) = shared_memory("together") else {
        return;
    };
    let memory = |name: &str| backend.memory(name);
    a_drop_counts_where_it_would_have_fallen_and_hops_behind_it_never_had_the_packet(
        &backend,
        memory,
        Class::Ring,
    );
    in_order_through_edits(&backend, memory, Class::Ring);
    killed_at_random(&backend, memory, Class::Ring);
}

#[test]
fn an_isolated_function_that_says_that_it_only_reads_changes_no_packet() {
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/library/undeclared_writes.c");
    let undeclared = crate::library::library(dir.path(), &source);
    let hops = vec![
        hop(Class::Isolated, "undeclared", &undeclared, &[]),
        HopPlan {
            on_failure: OnFailure::Open,
            ..hop(Class::Isolated, "watch", "monitor", &[])
        },
    ];
    let backend = Arc::new(HeapBackend::new());
    let (mut testbed, one, two) = start(&backend, |name| backend.memory(name), hops);
    assert_eq!(groups(&mut testbed), [Some(1), Some(1)]);
    for number in [0, 1, 2] {
        assert!(one.send(&frame(0, number)));
    }
    for number in [0, 2] {
        assert_eq!(two.receive_within(BOUND).unwrap(), frame(0, number));
    }
    let stats = testbed.chain.stats().hops;
    assert_eq!((stats[0].dropped, stats[1].packets), (1, 2));
}
