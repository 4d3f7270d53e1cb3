//! Hostile functions in processes of both classes. Each function corrupts its own memory, which includes the window that it shares
//! with the switch. At worst its hop goes down repeatedly. Another chain loses no packet, packets of the hop follow its failure
//! policy, and every buffer is returned.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crate::switch::{environment, shared_memory};
use crate::testbed::kills::Bystander;
use crate::testbed::{BOUND, TestBed, frame};
use millrace_builtin::CATALOGUE;
use millrace_chain::{Class, HopPlan, OnFailure};
use millrace_datapath::io::{Backend, HeapBackend, MemoryPeer};
use millrace_loader::LOADERS;
use millrace_nf::Settings;

/// The modes of `hostile.c`, each with the number of restarts after which its test ends.
const HARM: [(&str, u64); 8] = [
    ("wild", 3),
    ("flood", 3),
    ("back", 2),
    ("lengths", 3),
    ("highest", 3),
    ("all", 3),
    ("hang", 1),
    ("spy", 0),
];

fn hostile(class: Class, mode: &str) -> HopPlan {
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/library/hostile.c");
    // The file is loaded again with each restart.
    let dir = dir.keep();
    HopPlan {
        class,
        on_failure: OnFailure::Open,
        settings: Settings::parse([format!("mode={mode}")]).unwrap(),
        ..HopPlan::new("hostile", &crate::library::library(&dir, &source))
    }
}

fn suffer<B: Backend>(backend: &Arc<B>, memory: impl Fn(&str) -> MemoryPeer<B::Packet>, class: Class) {
    for (mode, times) in HARM {
        let before = backend.buffers();
        let hops = vec![hostile(class, mode), HopPlan::new("swap", "macswap")];
        let (mut testbed, one, two) = TestBed::on(
            Arc::clone(backend),
            &memory,
            environment(CATALOGUE.with_loaders(LOADERS), 1),
            1,
            hops,
        );
        let mut beside = Bystander::<B>::new(
            &mut testbed,
            &memory,
            environment(CATALOGUE.with_loaders(LOADERS), 1),
            class,
        );
        let (mut sent, mut received, began) = (0_u32, 0_u32, Instant::now());
        let is_done = |testbed: &mut TestBed<B>| {
            let hop = testbed.chain.stats().hops.remove(0);
            match times {
                // The mode without restarts (`spy`) has no visible effect.
                0 => hop.counters[0].1 > 2000,
                // The switch drops packets for which the function reports an impossible size; then the hop may stay up.
                times => hop.restarts >= times || hop.dropped > 2000,
            }
        };
        while !is_done(&mut testbed) {
            for _ in 0..16 {
                sent += u32::from(one.send(&frame((sent % 8) as u16, sent)));
            }
            while two.receive().is_some() {
                received += 1;
            }
            beside.exchange();
            testbed.chain.tick(testbed.bridge.now());
            assert!(began.elapsed() < 3 * BOUND, "{mode}: {:?}", testbed.chain.stats());
        }
        let hop = testbed.chain.stats().hops.remove(0);
        eprintln!(
            "{class:?}, {mode}: {:?}, {} of {sent} came",
            hop.failure, received
        );
        assert!(received > 0 || hop.dropped > 2000, "{mode}: {hop:?}");
        match (times, class) {
            (0, Class::Isolated) => {
                assert_eq!(hop.counters[1], ("seen", 0), "the function read other memory");
            }
            (0, _) => {}
            _ => assert!(!hop.failure.is_empty() || hop.dropped > 2000, "{mode}: {hop:?}"),
        }
        testbed.wait("the other chain's packets", |testbed| {
            testbed.chain.tick(testbed.bridge.now());
            beside.take(usize::MAX);
            beside.is_complete()
        });
        // The restarted function may misbehave again on packets that it received after its restart.
        testbed.wait("the buffers to come back", |testbed| {
            testbed.chain.tick(testbed.bridge.now());
            while two.receive().is_some() {}
            backend.buffers() == before
        });
        let path = hop.function.strip_prefix("library:").unwrap().to_owned();
        drop((beside, testbed));
        let _gone = std::fs::remove_dir_all(Path::new(&path).parent().unwrap());
    }
}

#[test]
fn a_hostile_isolated_function_affects_only_its_own_hop_and_sees_no_other_packet() {
    let backend = Arc::new(HeapBackend::new());
    let memory = Arc::clone(&backend);
    suffer(&backend, move |name| memory.memory(name), Class::Isolated);
}

/// A function of class `ring` is trusted with the bytes of all packets, and with nothing else.
#[test]
fn a_hostile_ring_function_can_corrupt_packets_and_costs_no_buffer() {
    // The function writes to all memory of EAL.
    millrace_testing::own_process!();
    let Some(backend) = shared_memory("hostile") else {
        return;
    };
    let memory = Arc::clone(&backend);
    suffer(&backend, move |name| memory.memory(name), Class::Ring);
}
