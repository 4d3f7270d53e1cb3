//! Schedulers in running workers: packets of scheduled ports keep their rate, their order and their counters,
//! whichever worker processes them, and while the settings change.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_datapath::io::{DeviceOptions, DeviceSpec, HeapBackend, MemoryPeer};
use millrace_datapath::schedule::{PortPlan, QueuePlan};
use millrace_datapath::{Bridge, BridgeSetup, CaptureFilter, Datapath, Direction, Idle, Spread, Workers};
use millrace_flow::{Action, Field, Instructions, Match};
use millrace_pipeline::{
    ColorAction, Control, ControlConfig, DropReason, FlowMod, FlowModCommand, Marks, Op, PolicerPlan,
    PolicerRates, Port,
};
use millrace_types::{BitRate, Pcp, PortNo, Priority, QueueId, TableId, Time};
use millrace_wire::{Frame, Packet};

const BOUND: Duration = Duration::from_secs(60);

struct TestBed {
    bridge: Bridge<HeapBackend>,
    control: Control,
    ops: Vec<Op>,
    datapath: Datapath<HeapBackend>,
}

fn port(raw: u32) -> PortNo {
    PortNo::ordinary(raw).unwrap()
}

impl TestBed {
    fn new(workers: usize) -> TestBed {
        let workers = Workers {
            cores: vec![None; workers],
            idle: Idle::Adaptive,
            spread: Spread::Off,
        };
        let datapath = Datapath::start(Arc::new(HeapBackend::new()), &workers).unwrap();
        let mut control = Control::new(ControlConfig::default());
        let counters = (0..=datapath.workers_len()).map(|_| control.counters()).collect();
        let setup = BridgeSetup {
            forwarding: [control.forwarding(), control.forwarding()],
            counters,
        };
        TestBed {
            bridge: datapath.bridge(setup).unwrap(),
            control,
            ops: Vec::new(),
            datapath,
        }
    }

    fn port(&mut self, raw: u32) -> MemoryPeer<Frame> {
        let name = format!("m{raw}");
        self.control.set_port(Port::new(port(raw)), &mut self.ops);
        self.bridge.publish(&mut self.ops);
        let spec = DeviceSpec::Memory(name.clone());
        self.bridge
            .add_port(port(raw), &spec, DeviceOptions::PLAIN)
            .unwrap();
        self.datapath.backend().memory(&name)
    }

    /// Adds an entry that sends packets from a port to another, through a queue.
    fn output(&mut self, from: u32, queue: u32, to: u32) {
        let from = Match::exact(&[(Field::InPort, u128::from(from))]).unwrap();
        let mut request = FlowMod::new(FlowModCommand::Add, TableId(0), Priority(1), from);
        request.instructions =
            Instructions::apply([Action::SetQueue(QueueId(queue)), Action::output(port(to))]);
        self.control.flow_mod(request, Time::ZERO, &mut self.ops).unwrap();
        self.bridge.publish(&mut self.ops);
    }
}

fn frame(source: u8, number: u32) -> Vec<u8> {
    let mut frame = vec![0u8; 1000];
    frame[5] = 1;
    frame[11] = source;
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

fn number(frame: &Frame) -> (u8, u32) {
    let bytes = frame.bytes();
    (bytes[11], u32::from_be_bytes(bytes[14..18].try_into().unwrap()))
}

#[test]
fn a_shaper_holds_its_rate_whichever_worker_brings_the_packets() {
    for workers in [1, 2] {
        let mut testbed = TestBed::new(workers);
        let (one, two, three) = (testbed.port(1), testbed.port(2), testbed.port(3));
        testbed.output(1, 1, 3);
        testbed.output(2, 2, 3);
        // 1,000 bytes take 200 microseconds.
        let plan = PortPlan {
            rate: Some(BitRate::from_bps(40_000_000)),
            queues: [1, 2].map(|id| QueuePlan::new(QueueId(id))).into(),
            ..PortPlan::default()
        };
        assert!(testbed.bridge.schedule(port(3), &plan));
        let began = Instant::now();
        let (mut sent, mut counts, mut next) = ([0, 0], [0_u32, 0], [0_u32, 0]);
        let (mut received, mut windows) = (0, 0);
        loop {
            if counts[0] + counts[1] >= 4_000 {
                let [one, two] = counts.map(f64::from);
                if (one / two - 1.0).abs() < 0.1 {
                    break;
                }
                // Packets of one source may be missing because its worker or this thread could not run.
                windows += 1;
                assert!(windows < 5, "equal queues: {counts:?}");
                counts = [0, 0];
            }
            assert!(began.elapsed() < BOUND, "{workers} workers: {counts:?}");
            // The sources send in turn, so that the queues are equal if this thread stops here. They send slightly
            // more than may leave, so that only the scheduler's queues are full.
            let mut sends = true;
            while sends {
                sends = false;
                for (i, peer) in [&one, &two].into_iter().enumerate() {
                    if sent[i] < next[i] + 1_500 && peer.send(&frame(i as u8, sent[i])) {
                        sent[i] += 1;
                        sends = true;
                    }
                }
            }
            while let Some(frame) = three.receive() {
                let (source, number) = number(&frame);
                let i = usize::from(source);
                assert!(number >= next[i], "the order within a queue is kept");
                next[i] = number + 1;
                counts[i] += 1;
                received += 1;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        let nanos = began.elapsed().as_nanos() as f64;
        let rate = f64::from(received) * 8_000.0 / nanos * 1e9;
        // The port exceeds its rate only by a burst of a millisecond and the packets that arrived between two
        // polls.
        assert!(rate < 44_000_000.0, "{workers} workers: {rate} bit/s");
        let queues = testbed.bridge.queues(port(3));
        assert_eq!(
            queues.iter().map(|queue| queue.id.0).collect::<Vec<_>>(),
            [0, 1, 2]
        );
        assert_eq!(queues[0].stats.tx_packets, 0);
        assert!(queues[1].stats.tx_packets >= u64::from(counts[0]));
        assert_eq!(queues[1].stats.tx_bytes, 1000 * queues[1].stats.tx_packets);
    }
}

#[test]
fn queues_come_change_and_go_while_packets_flow_and_none_is_lost() {
    let mut testbed = TestBed::new(2);
    let (one, two) = (testbed.port(1), testbed.port(2));
    testbed.output(1, 1, 2);
    let queue = |rate| QueuePlan {
        max_rate: rate,
        packets_max: 5_000,
        ..QueuePlan::new(QueueId(1))
    };
    let plans = [
        vec![queue(BitRate::from_bps(20_000_000).into())],
        vec![queue(None), QueuePlan::new(QueueId(9))],
        vec![],
        vec![queue(BitRate::from_bps(400_000_000).into())],
        vec![],
    ];
    let (mut sent, mut came) = (0, 0);
    let deadline = Instant::now() + BOUND;
    for (round, queues) in plans.into_iter().cycle().take(20).enumerate() {
        let plan = PortPlan {
            queues,
            ..PortPlan::default()
        };
        let before: u64 = testbed
            .bridge
            .queues(port(2))
            .iter()
            .map(|queue| queue.stats.tx_packets)
            .sum();
        assert!(testbed.bridge.schedule(port(2), &plan));
        let queues = testbed.bridge.queues(port(2));
        assert_eq!(
            queues.len(),
            if plan.queues.is_empty() {
                0
            } else {
                plan.queues.len() + 1
            }
        );
        if !plan.queues.is_empty() && round % 5 == 1 {
            let now: u64 = queues.iter().map(|queue| queue.stats.tx_packets).sum();
            assert!(now >= before, "a change forgets nothing");
        }
        let until = sent + 100;
        while sent < until {
            assert!(one.send(&frame(0, sent)));
            sent += 1;
        }
        while came < sent {
            assert!(Instant::now() < deadline, "round {round}: {came} of {sent}");
            match two.receive() {
                Some(frame) => {
                    assert_eq!(number(&frame), (0, came), "round {round}");
                    came += 1;
                }
                None => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }
    assert!(
        !testbed.bridge.schedule(port(7), &PortPlan::default()),
        "no such port"
    );
}

#[test]
fn what_comes_too_fast_is_dropped_by_name_or_marked_and_counted_by_color() {
    let mut testbed = TestBed::new(2);
    let (one, two) = (testbed.port(1), testbed.port(2));
    testbed.output(1, 0, 2);
    let marks = Marks {
        pcp: Pcp::new(3).ok(),
        ..Marks::default()
    };
    let rates = PolicerRates::SingleRate {
        cir: BitRate::from_bps(1_000),
        cbs: 2_100,
        ebs: 1_100,
    };
    let plan = PolicerPlan {
        rates,
        color_aware: false,
        overhead: 24,
        color_actions: [
            ColorAction::Pass(Marks::default()),
            ColorAction::Pass(marks),
            ColorAction::Drop,
        ],
    };
    assert!(testbed.bridge.police(port(1), Some(&plan)) && !testbed.bridge.police(port(9), None));
    // The packets are tagged, so that the policer can change their priority.
    let tagged = |number| {
        let mut bytes = frame(1, number);
        bytes[12..16].copy_from_slice(&[0x81, 0, 0, 7]);
        bytes[16..20].copy_from_slice(&number.to_be_bytes());
        bytes
    };
    for number in 0..5 {
        assert!(one.send(&tagged(number)));
    }
    let came: Vec<Vec<u8>> = (0..3).map(|_| two.receive_within(BOUND).unwrap()).collect();
    assert_eq!(
        came.iter().map(|frame| frame[14]).collect::<Vec<_>>(),
        [0, 0, 3 << 5]
    );
    let deadline = Instant::now() + BOUND;
    let counts = |testbed: &TestBed| {
        testbed
            .bridge
            .policed(port(1))
            .map(|counts| counts.map(|count| count.packets))
    };
    while counts(&testbed) != Some([2, 1, 2]) {
        assert!(Instant::now() < deadline, "{:?}", counts(&testbed));
    }
    assert_eq!(testbed.control.drops(DropReason::Policer), 2);
    // A new rate keeps the counters; without a policer, all packets pass.
    assert!(testbed.bridge.police(port(1), Some(&plan)));
    assert_eq!(counts(&testbed), Some([2, 1, 2]));
    assert!(testbed.bridge.police(port(1), None));
    assert_eq!(counts(&testbed), None);
    for number in 0..50 {
        assert!(one.send(&tagged(number)));
        assert!(two.receive_within(BOUND).is_some());
    }
}

#[test]
fn a_packet_out_waits_in_the_queue_that_it_asks_for() {
    let mut testbed = TestBed::new(2);
    let (_one, two) = (testbed.port(1), testbed.port(2));
    let plan = PortPlan {
        queues: vec![QueuePlan::new(QueueId(4))],
        ..PortPlan::default()
    };
    testbed.bridge.schedule(port(2), &plan);
    let actions = [Action::SetQueue(QueueId(4)), Action::output(port(2))];
    let bytes = frame(9, 9);
    testbed
        .bridge
        .packet_out(PortNo::CONTROLLER, &actions, &bytes)
        .unwrap();
    assert_eq!(two.receive_within(BOUND), Some(bytes));
    let counts: Vec<u64> = testbed
        .bridge
        .queues(port(2))
        .iter()
        .map(|queue| queue.stats.tx_packets)
        .collect();
    assert_eq!(counts, [0, 1]);
    assert_eq!(two.receive().map(|frame| frame.len()), None);
}

#[test]
fn a_capture_has_a_sent_packet_once_whichever_worker_brings_it() {
    let mut testbed = TestBed::new(2);
    let (one, two, three) = (testbed.port(1), testbed.port(2), testbed.port(3));
    testbed.output(1, 1, 3);
    testbed.output(2, 1, 3);
    testbed.bridge.set_captures([(0, CaptureFilter::default())]);
    for round in 0..2 {
        if round == 1 {
            let plan = PortPlan {
                queues: vec![QueuePlan::new(QueueId(1))],
                ..PortPlan::default()
            };
            assert!(testbed.bridge.schedule(port(3), &plan));
        }
        for peer in [&one, &two] {
            assert!(peer.send(&frame(1, round)));
            assert!(three.receive_within(BOUND).is_some());
        }
        // A packet is recorded before it leaves.
        let captured: Vec<_> = std::iter::from_fn(|| testbed.bridge.next_captured()).collect();
        let count = |direction| {
            captured
                .iter()
                .filter(|packet| packet.direction == direction)
                .count()
        };
        assert_eq!(
            (count(Direction::Rx), count(Direction::Tx)),
            (2, 2),
            "round {round}"
        );
    }
}
