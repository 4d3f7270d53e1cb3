//! Packet samples of a worker that is run step by step: their content, and the numbers that collectors
//! compute with.

use std::sync::Arc;

use millrace_datapath::io::{
    Backend, Device, DeviceInfo, DeviceOptions, DeviceSpec, DeviceStats, HeapBackend, MemoryPeer,
};
use millrace_datapath::schedule::{PortPlan, QueuePlan};
use millrace_datapath::{Bridge, BridgeSetup, Datapath, SampleOutcome, SampledPacket, SamplingPlan, Stepper};
use millrace_flow::{Action, Field, Instructions, Match, SetField, WriteMetadata};
use millrace_pipeline::{
    ColorAction, Control, ControlConfig, DropReason, FlowCachePolicy, FlowMod, FlowModCommand, Op,
    PolicerPlan, PolicerRates, Port,
};
use millrace_types::{BitRate, Cookie, Mac, PortNo, Priority, QueueId, TableId, Time};
use millrace_wire::{Builder, EtherType, Frame, Packet, tcp};

/// A bridge with ports 1, 2 and 3.
struct TestBed {
    // Dropped first: a bridge that is dropped waits for its workers.
    stepper: Stepper<Frame>,
    bridge: Bridge<HeapBackend>,
    control: Control,
    ops: Vec<Op>,
    backend: Arc<HeapBackend>,
    _datapath: Datapath<HeapBackend>,
    now: Time,
}

fn port(raw: u32) -> PortNo {
    PortNo::ordinary(raw).unwrap()
}

fn plan(rates: &[(u32, u32)], seed: u64) -> SamplingPlan {
    SamplingPlan {
        header_size: 128,
        rates: rates.iter().map(|(raw, rate)| (port(*raw), *rate)).collect(),
        discards_per_second: 0,
        seed,
    }
}

/// Returns a frame with this number after its header.
fn frame(number: u32) -> Vec<u8> {
    let mut frame = vec![0x5a; 200];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

impl TestBed {
    fn new() -> TestBed {
        TestBed::with(FlowCachePolicy::default())
    }

    fn with(flow_cache: FlowCachePolicy) -> TestBed {
        let backend = Arc::new(HeapBackend::new());
        let (datapath, mut stepper) = Datapath::stepped(Arc::clone(&backend));
        let mut control = Control::new(ControlConfig {
            tables: 4,
            flow_cache,
            ..ControlConfig::default()
        });
        let setup = BridgeSetup {
            forwarding: [control.forwarding(), control.forwarding()],
            counters: vec![control.counters(), control.counters()],
        };
        let mut ops = Vec::new();
        let bridge = stepper.serve(|| {
            let mut bridge = datapath.bridge(setup).unwrap();
            for raw in 1..=3 {
                control.set_port(Port::new(port(raw)), &mut ops);
                bridge.publish(&mut ops);
                let device = DeviceSpec::Memory(format!("m{raw}"));
                bridge.add_port(port(raw), &device, DeviceOptions::PLAIN).unwrap();
            }
            bridge
        });
        TestBed {
            stepper,
            bridge,
            control,
            ops,
            backend,
            _datapath: datapath,
            now: Time::from_nanos(1),
        }
    }

    /// Adds an entry with a cookie to a table.
    fn flow(&mut self, table: u8, matching: &str, cookie: u64, instructions: Instructions) {
        let mut request = FlowMod::new(
            FlowModCommand::Add,
            TableId(table),
            Priority(1),
            matching.parse::<Match>().unwrap(),
        );
        request.cookie = Cookie(cookie);
        request.instructions = instructions;
        self.control.flow_mod(request, self.now, &mut self.ops).unwrap();
        self.bridge.publish(&mut self.ops);
    }

    fn output(&mut self, from: u32, to: u32) {
        let actions = Instructions::apply([Action::output(port(to))]);
        self.flow(0, &format!("in_port={from}"), 7, actions);
    }

    /// Sets the plan. Returns the number of packets that the former plan counted after its last sample.
    fn sampling(&mut self, plan: Option<&SamplingPlan>) -> u64 {
        let TestBed { stepper, bridge, .. } = self;
        let remainders = stepper.serve(|| bridge.set_sampling(plan));
        remainders.iter().map(|remainder| remainder.pool).sum()
    }

    fn peer(&self, raw: u32) -> MemoryPeer<Frame> {
        self.backend.memory(&format!("m{raw}"))
    }

    /// Sends frames to a port, and runs the worker until they are processed. Frames that leave are removed and returned.
    fn run(&mut self, from: u32, numbers: core::ops::Range<u32>) -> Vec<u32> {
        let (input, outputs) = (self.peer(from), [self.peer(1), self.peer(2), self.peer(3)]);
        let mut left = Vec::new();
        for number in numbers {
            assert!(input.send(&frame(number)));
            if number % 40 == 39 {
                self.step(&outputs, &mut left);
            }
        }
        self.step(&outputs, &mut left);
        left
    }

    fn step(&mut self, outputs: &[MemoryPeer<Frame>], left: &mut Vec<u32>) {
        while self.stepper.forward_round(self.now) > 0 {
            for output in outputs {
                while let Some(packet) = output.receive() {
                    let at = packet.len() - 186;
                    left.push(u32::from_be_bytes(packet.bytes()[at..at + 4].try_into().unwrap()));
                }
            }
        }
    }

    fn samples(&self) -> Vec<SampledPacket> {
        core::iter::from_fn(|| self.bridge.next_sample()).collect()
    }
}

#[test]
fn a_sample_has_the_packet_as_it_came_in_and_where_it_went() {
    let mut testbed = TestBed::new();
    let tag = [
        Action::PushVlan(EtherType::VLAN),
        Action::SetField(SetField::new(Field::VlanVid, 0x1064).unwrap()),
        Action::output(port(2)),
    ];
    let first = Instructions {
        write_metadata: Some(WriteMetadata {
            value: 0x77 << 8,
            mask: 0xff << 8,
        }),
        goto_table: Some(TableId(1)),
        ..Instructions::default()
    };
    testbed.flow(0, "in_port=1", 1, first);
    testbed.flow(1, "metadata=0x7700/0xff00", 0x4d, Instructions::apply(tag));
    let both = [Action::output(port(1)), Action::output(port(2))];
    testbed.flow(0, "in_port=3", 2, Instructions::apply(both));
    testbed.flow(
        0,
        "in_port=2",
        3,
        Instructions::apply([Action::output(PortNo::CONTROLLER)]),
    );
    testbed.sampling(Some(&plan(&[(1, 1), (2, 1), (3, 1)], 1)));
    for from in 1..=3 {
        testbed.run(from, from..from + 1);
    }
    let samples = testbed.samples();
    let seen: Vec<_> = samples
        .iter()
        .map(|sample| (sample.port.raw(), sample.outcome, sample.metadata, sample.cookie))
        .collect();
    let sent = SampleOutcome::Sent {
        port: port(2),
        tci: Some(100),
    };
    assert_eq!(
        seen,
        [
            (1, sent, 0x7700, Some(Cookie(0x4d))),
            (2, SampleOutcome::Taken, 0, Some(Cookie(3))),
            (3, SampleOutcome::Copied(2), 0, Some(Cookie(2))),
        ]
    );
    for (number, sample) in (1..).zip(&samples) {
        assert_eq!(sample.header.bytes(), &frame(number)[..128]);
        assert_eq!(
            (sample.size, sample.tci, sample.pool, sample.lost),
            (200, None, 1, 0)
        );
    }
    assert_eq!(testbed.bridge.next_packet_in().unwrap().1.len(), 200);
}

#[test]
fn dropped_packets_are_sampled_with_the_reason_wherever_they_are_dropped() {
    let mut testbed = TestBed::new();
    testbed.output(1, 2);
    testbed.flow(0, "in_port=2", 9, Instructions::default());
    testbed.sampling(Some(&plan(&[(1, 1), (2, 1), (3, 1)], 1)));
    let dropped = |reason, port| SampleOutcome::Dropped { reason, port };
    testbed.run(2, 0..1);
    testbed.run(3, 0..1);
    let reasons: Vec<_> = testbed.samples().iter().map(|sample| sample.outcome).collect();
    assert_eq!(
        reasons,
        [
            dropped(DropReason::NoOutput, None),
            dropped(DropReason::TableMiss, None)
        ]
    );
    // No one takes the frames of port 2, until its queue and its buffer are full.
    let input = testbed.peer(1);
    for number in 0..100_000 {
        assert!(input.send(&frame(number)));
        testbed.stepper.forward_round(testbed.now);
        let samples = testbed.samples();
        let full = dropped(DropReason::TransmitFull, Some(port(2)));
        if samples.iter().any(|sample| sample.outcome == full) {
            break;
        }
        assert!(number < 99_999, "the queue of port 2 is never full");
    }
    // A policer that passes nothing.
    let red = PolicerPlan {
        rates: PolicerRates::SingleRate {
            cir: BitRate::from_bps(8),
            cbs: 64,
            ebs: 0,
        },
        color_aware: false,
        overhead: 0,
        color_actions: [ColorAction::Drop; 3],
    };
    let TestBed { stepper, bridge, .. } = &mut testbed;
    assert!(stepper.serve(|| {
        let is_policed = bridge.police(port(3), Some(&red));
        // `set_sampling` waits for the worker, which has executed earlier commands by then.
        bridge.set_sampling(Some(&plan(&[(3, 1)], 2)));
        is_policed
    }));
    testbed.samples();
    testbed.run(3, 0..5);
    let samples = testbed.samples();
    assert_eq!(samples.len(), 5);
    assert!(
        samples
            .iter()
            .all(|sample| sample.outcome == dropped(DropReason::Policer, None))
    );
}

/// A memory device that announces GSO packets.
struct Guest(Box<dyn Device>);

impl Device for Guest {
    fn info(&self) -> DeviceInfo {
        self.0.info()
    }

    fn stats(&self) -> DeviceStats {
        self.0.stats()
    }

    fn set_link(&mut self, up: bool) {
        self.0.set_link(up);
    }

    fn delivers_gso(&self) -> bool {
        true
    }
}

#[test]
fn packets_that_find_a_queue_full_are_sampled_and_reported_as_dropped_also_where_gso_packets_may_come() {
    let mut testbed = TestBed::new();
    let actions = [Action::SetQueue(QueueId(1)), Action::output(port(2))];
    testbed.flow(0, "in_port=1", 7, Instructions::apply(actions));
    let one_packet = PortPlan {
        queues: vec![QueuePlan {
            packets_max: 1,
            ..QueuePlan::new(QueueId(1))
        }],
        ..PortPlan::default()
    };
    let long = Builder::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 1]))
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .tcp(tcp::Repr::default())
        .payload(&[7; 5_000])
        .build();
    let long = Frame::new(&long).to_gso(1_000.try_into().unwrap());
    let backend = Arc::clone(&testbed.backend);
    let TestBed { stepper, bridge, .. } = &mut testbed;
    stepper.serve(|| {
        let spec = DeviceSpec::Memory("guest".to_owned());
        let mut opened = backend.open(&spec, DeviceOptions::PLAIN).unwrap();
        opened.device = Box::new(Guest(opened.device));
        bridge.attach_port(port(4), opened).unwrap();
        assert!(bridge.schedule(port(2), &one_packet));
    });
    let full = SampleOutcome::Dropped {
        reason: DropReason::QueueFull,
        port: Some(port(2)),
    };
    let sent = SampleOutcome::Sent {
        port: port(2),
        tci: None,
    };
    // With samples, packets leave one by one; without, in bursts.
    for (rates, outcomes) in [(&[(1, 1)][..], &[sent, full, full][..]), (&[], &[])] {
        let mut wanted = plan(rates, 1);
        wanted.discards_per_second = 100;
        testbed.sampling(Some(&wanted));
        let before = testbed.control.drops(DropReason::QueueFull);
        let input = testbed.peer(1);
        assert!(input.send(&frame(0)) && input.send(&frame(1)));
        assert!(input.send_packet(long.clone()));
        testbed.stepper.forward_round(testbed.now);
        let seen: Vec<_> = testbed.samples().iter().map(|sample| sample.outcome).collect();
        assert_eq!(seen, outcomes);
        let discards: Vec<_> = core::iter::from_fn(|| testbed.bridge.next_discard())
            .map(|discard| (discard.reason, discard.out_port, discard.size))
            .collect();
        let dropped = |size| (DropReason::QueueFull, Some(port(2)), size);
        assert_eq!(discards, [200, 1_054, 1_054, 1_054, 1_054, 1_054].map(dropped));
        assert_eq!(testbed.control.drops(DropReason::QueueFull) - before, 6);
    }
}

#[test]
fn every_packet_is_counted_once_in_the_pool_while_the_plan_changes_and_the_queue_overflows() {
    let mut testbed = TestBed::new();
    testbed.output(1, 2);
    let (mut pool, mut sampled, mut lost, mut left) = (0, 0, 0, Vec::new());
    for (round, rate) in [1_u32, 7, 100, 1, 3].into_iter().enumerate() {
        pool += testbed.sampling(Some(&plan(&[(1, rate)], round as u64)));
        let from = round as u32 * 6_000;
        left.extend(testbed.run(1, from..from + 6_000));
        // The queue holds 4,096.
        for sample in testbed.samples() {
            assert_eq!(sample.rate, rate);
            pool += sample.pool;
            lost += sample.lost;
            sampled += 1;
        }
        if rate == 1 {
            left.extend(testbed.run(1, from..from + 1));
            let last = testbed.samples();
            pool += last[0].pool;
            lost += last[0].lost;
            sampled += 1;
            assert_eq!(last[0].lost, 6_000 - 4_096);
            left.pop();
        }
    }
    pool += testbed.sampling(None);
    assert_eq!(pool, 30_002, "each packet is in one pool");
    assert_eq!(lost, 2 * (6_000 - 4_096));
    assert!(sampled > 2 * 4_096);
    assert_eq!(
        left,
        (0..30_000).collect::<Vec<_>>(),
        "no packet is lost, and none overtakes another"
    );
    testbed.run(1, 0..100);
    assert!(testbed.samples().is_empty(), "sampling has ended");
}

#[test]
fn estimates_lie_in_their_interval_of_confidence_in_93_of_100_runs() {
    const PACKETS: u32 = 4_000;
    let mut testbed = TestBed::new();
    testbed.output(1, 2);
    let mut inside = 0;
    for seed in 0..100 {
        testbed.sampling(Some(&plan(&[(1, 40)], seed)));
        testbed.run(1, 0..PACKETS);
        let found = testbed.samples().len() as f64;
        let error = 1.96 * (1.0 / found).sqrt();
        inside += u32::from((found * 40.0 / f64::from(PACKETS) - 1.0).abs() <= error);
    }
    eprintln!("{inside} of 100 estimates lie in their interval");
    assert!(inside >= 93, "{inside} of 100");
}

#[test]
fn records_of_dropped_packets_are_limited_by_second_and_those_left_out_are_counted() {
    let mut testbed = TestBed::new();
    testbed.flow(0, "in_port=1", 9, Instructions::default());
    let mut wanted = plan(&[], 1);
    wanted.discards_per_second = 10;
    testbed.sampling(Some(&wanted));
    let drops = testbed.run(1, 0..100);
    assert!(drops.is_empty());
    let discards =
        |testbed: &TestBed| -> Vec<_> { core::iter::from_fn(|| testbed.bridge.next_discard()).collect() };
    let first = discards(&testbed);
    assert_eq!(first.len(), 10);
    for (number, discard) in (0..).zip(&first) {
        assert_eq!(
            (discard.in_port, discard.out_port, discard.reason, discard.lost),
            (Some(port(1)), None, DropReason::NoOutput, 0)
        );
        assert_eq!(
            (discard.header.bytes(), discard.size),
            (&frame(number)[..128], 200)
        );
    }
    testbed.now = Time::from_secs(2);
    testbed.run(1, 0..1);
    assert_eq!(discards(&testbed)[0].lost, 90);
}

/// The number of kinds of packets in [`kinds`].
const KINDS: u16 = 11;

/// Returns a packet of a kind, with a number at its end.
fn packet_of(kind: u16, number: u32) -> Vec<u8> {
    let mut payload = [0x5a; 40];
    payload[36..].copy_from_slice(&number.to_be_bytes());
    Builder::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 1]))
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(5000, 1000 + kind)
        .payload(&payload)
        .build()
}

/// Returns a bridge whose entries treat each kind of packet from port 1 in a different way.
fn kinds(flow_cache: FlowCachePolicy) -> TestBed {
    let mut testbed = TestBed::with(flow_cache);
    let apply = |actions: &[Action]| Instructions::apply(actions.to_vec());
    let output = |raw| Action::output(port(raw));
    let to_table_1 = |metadata| Instructions {
        write_metadata: Some(WriteMetadata {
            value: metadata,
            mask: 0xff,
        }),
        goto_table: Some(TableId(1)),
        ..Instructions::default()
    };
    let address = SetField::new(Field::EthDst, 0x0200_0000_0007).unwrap();
    let tag = [
        Action::PushVlan(EtherType::VLAN),
        Action::SetField(SetField::new(Field::VlanVid, 0x1064).unwrap()),
        output(2),
    ];
    let entries = [
        apply(&[output(2)]),
        apply(&[output(3)]),
        apply(&[Action::SetField(address), output(2)]),
        Instructions::default(),
        apply(&[output(2), output(3)]),
        apply(&[Action::output(PortNo::CONTROLLER)]),
        to_table_1(6),
        to_table_1(7),
        apply(&[output(1)]),
        apply(&[Action::output(PortNo::NORMAL)]),
    ];
    for (kind, instructions) in (0..).zip(entries) {
        let matching = format!("udp,udp_dst={}", 1000 + kind);
        testbed.flow(0, &matching, 0x100 + kind, instructions);
    }
    testbed.flow(1, "metadata=6/0xff", 0x206, apply(&tag));
    testbed.flow(1, "metadata=7/0xff", 0x207, Instructions::default());
    testbed
}

type Way = (SampleOutcome, u64, Option<Cookie>);

fn way(sample: &SampledPacket) -> Way {
    (sample.outcome, sample.metadata, sample.cookie)
}

/// Returns the kind and the number of a packet that left by a port, whether it has a tag or not.
fn identity(packet: &[u8]) -> (u16, u32) {
    let tag = packet.len() - 82;
    let kind = u16::from_be_bytes([packet[tag + 36], packet[tag + 37]]) - 1000;
    let number = packet.last_chunk::<4>().unwrap();
    (kind, u32::from_be_bytes(*number))
}

#[test]
fn a_packet_sampled_amid_others_has_the_way_that_it_has_alone() {
    for flow_cache in [FlowCachePolicy::Off, FlowCachePolicy::Always] {
        each_sample_has_the_way_of_its_kind(flow_cache);
    }
}

fn each_sample_has_the_way_of_its_kind(flow_cache: FlowCachePolicy) {
    let mut testbed = kinds(flow_cache);
    let [input, left, right] = [testbed.peer(1), testbed.peer(2), testbed.peer(3)];
    // Each kind of packet passes alone, first through the tables and then by its cached traversal.
    testbed.sampling(Some(&plan(&[(1, 1)], 1)));
    let mut alone: Vec<Way> = Vec::new();
    for _ in 0..4 {
        alone.clear();
        for kind in 0..KINDS {
            assert!(input.send(&packet_of(kind, 0)));
            while testbed.stepper.forward_round(testbed.now) > 0 {}
            alone.push(way(&testbed.samples()[0]));
        }
    }
    assert_eq!(alone[4].0, SampleOutcome::Copied(2));
    assert_eq!(alone[6].1, 6);
    assert_eq!(alone[10].2, None, "no entry matches this kind");

    let mixes: [&[u16]; 6] = [
        &[0],
        &[0, 1],
        &[0, 1, 2, 3],
        &[6, 7, 0],
        &[4, 5, 9],
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
    ];
    let (mut number, mut sampled) = (0, 0);
    for (seed, rate) in [1, 2, 5, 40].into_iter().enumerate() {
        testbed.sampling(Some(&plan(&[(1, rate)], seed as u64)));
        for mix in mixes {
            let mut last = [[0; KINDS as usize]; 2];
            for round in 0..20 {
                if round % 4 == 3 {
                    // Cached traversals of the table become invalid, and are cached again one after the
                    // other.
                    testbed.flow(0, "udp,udp_dst=9999", number.into(), Instructions::default());
                }
                for at in 0..60_usize {
                    number += 1;
                    assert!(input.send(&packet_of(mix[at * at % mix.len()], number)));
                }
                while testbed.stepper.forward_round(testbed.now) > 0 {}
                for sample in testbed.samples() {
                    let (kind, _) = identity(sample.header.bytes());
                    assert_eq!(
                        way(&sample),
                        alone[usize::from(kind)],
                        "kind {kind} of {mix:?}, 1 of {rate}"
                    );
                    sampled += 1;
                }
                while testbed.bridge.next_packet_in().is_some() {}
                for (output, last) in [&left, &right].into_iter().zip(&mut last) {
                    while let Some(packet) = output.receive() {
                        let (kind, number) = identity(packet.bytes());
                        let before = core::mem::replace(&mut last[usize::from(kind)], number);
                        assert!(before < number || number == 0, "{number} behind {before}");
                    }
                }
            }
        }
    }
    assert!(sampled > 7_200 * 17 / 10, "{sampled}");
}
