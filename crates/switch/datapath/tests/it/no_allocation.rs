//! A worker in steady state allocates nothing: counted by the allocator itself.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millrace_datapath::io::{DeviceOptions, DeviceSpec, HeapBackend};
use millrace_datapath::schedule::{PortPlan, QueuePlan};
use millrace_datapath::{BridgeSetup, Datapath, Idle, SamplingPlan, Spread, Workers};
use millrace_flow::{Action, Field, Instructions, Match, SetField};
use millrace_pipeline::{Control, ControlConfig, FlowMod, FlowModCommand, Port};
use millrace_types::{BitRate, PortNo, Priority, QueueId, TableId, Time};
use millrace_wire::{EtherType, Packet};

/// Allocations and releases by threads named `worker-*`.
static IN_WORKERS: AtomicU64 = AtomicU64::new(0);

/// True in the process in which the test counts; false while other tests of this program run.
static COUNTS: AtomicBool = AtomicBool::new(false);

thread_local! {
    static IS_WORKER: Cell<Option<bool>> = const { Cell::new(None) };
}

struct Counting;

impl Counting {
    fn count() {
        if !COUNTS.load(Ordering::Relaxed) {
            return;
        }
        // `Thread::name` may allocate, which the allocator must not do, so the kernel gives the name.
        let is_worker = IS_WORKER.try_with(|known| {
            known.get().unwrap_or_else(|| {
                known.set(Some(false));
                let mut name = [0u8; 16];
                // SAFETY: the kernel writes at most 16 bytes, the size of the array.
                let outcome = unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
                let is_worker = outcome == 0 && name.starts_with(b"worker-");
                // A new thread has its parent's name until its own is set. The result is therefore stored
                // only for workers.
                known.set(is_worker.then_some(true));
                is_worker
            })
        });
        if is_worker == Ok(true) {
            IN_WORKERS.fetch_add(1, Ordering::Relaxed);
        }
    }
}

// SAFETY: every call goes to the system's allocator; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::count();
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Counting::count();
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_worker_in_steady_state_neither_allocates_nor_frees() {
    // Workers of other tests would count, too.
    millrace_testing::own_process!();
    COUNTS.store(true, Ordering::Relaxed);
    let workers = Workers {
        cores: vec![None],
        idle: Idle::Adaptive,
        spread: Spread::Auto,
    };
    let datapath = Datapath::start(Arc::new(HeapBackend::new()), &workers).unwrap();
    let mut control = Control::new(ControlConfig {
        tables: 4,
        ..ControlConfig::default()
    });
    let counters = vec![control.counters(), control.counters()];
    let setup = BridgeSetup {
        forwarding: [control.forwarding(), control.forwarding()],
        counters,
    };
    let mut bridge = datapath.bridge(setup).unwrap();
    let mut ops = Vec::new();
    let options = DeviceOptions::PLAIN;
    for raw in [1, 2, 3] {
        let number = PortNo::ordinary(raw).unwrap();
        control.set_port(Port::new(number), &mut ops);
        bridge.publish(&mut ops);
        bridge
            .add_port(number, &DeviceSpec::Memory(format!("m{raw}")), options)
            .unwrap();
    }
    // Packets of one port are scheduled.
    let urgent = QueuePlan {
        min_rate: Some(BitRate::from_bps(1_000_000)),
        max_rate: Some(BitRate::from_bps(10_000_000_000)),
        ..QueuePlan::new(QueueId(1))
    };
    let plan = PortPlan {
        rate: Some(BitRate::from_bps(10_000_000_000)),
        queues: vec![urgent],
        ..PortPlan::default()
    };
    assert!(bridge.schedule(PortNo::ordinary(2).unwrap(), &plan));
    // Packets are sampled; nobody takes the samples, so that their queue is full, too.
    let sampling = SamplingPlan {
        header_size: 128,
        rates: vec![(PortNo::ordinary(1).unwrap(), 2)],
        discards_per_second: 100_000,
        seed: 1,
    };
    assert_eq!(bridge.set_sampling(Some(&sampling)), []);
    // Two tables, tags pushed, fields set, two outputs (a clone), and a packet_in.
    let mut first = FlowMod::new(FlowModCommand::Add, TableId(0), Priority(1), Match::any());
    first.instructions = Instructions {
        apply_actions: Some(Box::new([
            Action::PushVlan(EtherType::VLAN),
            Action::SetField(SetField::new(Field::VlanVid, 0x1064).unwrap()),
        ])),
        goto_table: Some(TableId(1)),
        ..Instructions::default()
    };
    let vlan = Match::exact(&[(Field::VlanVid, 0x1064)]).unwrap();
    let mut second = FlowMod::new(FlowModCommand::Add, TableId(1), Priority(1), vlan);
    second.instructions = Instructions::apply([
        Action::SetQueue(QueueId(1)),
        Action::output(PortNo::ordinary(2).unwrap()),
        Action::output(PortNo::ordinary(3).unwrap()),
        Action::output(PortNo::CONTROLLER),
    ]);
    for request in [first, second] {
        control.flow_mod(request, Time::ZERO, &mut ops).unwrap();
    }
    bridge.publish(&mut ops);
    let peers = [1, 2, 3].map(|raw| datapath.backend().memory(&format!("m{raw}")));
    let mut frame = [0u8; 60];
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    let exchange = |packets: usize| {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut came = 0;
        for _ in 0..packets {
            assert!(peers[0].send(&frame));
            while came < 3 {
                for peer in &peers[1..] {
                    while let Some(packet) = peer.receive() {
                        assert_eq!(packet.len(), 64);
                        came += 1;
                    }
                }
                while bridge.next_packet_in().is_some() {
                    came += 1;
                }
                assert!(Instant::now() < deadline);
            }
            came = 0;
        }
    };
    exchange(100);
    let before = IN_WORKERS.load(Ordering::Relaxed);
    exchange(2_000);
    let after = IN_WORKERS.load(Ordering::Relaxed);
    let queues = bridge.queues(PortNo::ordinary(2).unwrap());
    let counts: Vec<_> = queues
        .iter()
        .map(|queue| (queue.id.0, queue.stats.tx_packets))
        .collect();
    assert_eq!(counts, [(0, 0), (1, 2_100)]);
    assert_eq!(after - before, 0, "a worker allocated or freed");
    assert!(bridge.next_sample().is_some());
    assert!(before > 0, "the allocator sees workers: starting one allocates");
}
