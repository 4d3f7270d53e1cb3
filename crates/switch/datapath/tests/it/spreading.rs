//! Several workers share what one queue brings: whatever moves between them while packets flow, none is lost and no
//! flow is torn apart.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::lost::lost;
use millrace_datapath::io::{DeviceOptions, DeviceSpec, HeapBackend, MemoryPeer};
use millrace_datapath::service::{Outlet, Polled, Service};
use millrace_datapath::spread::BUCKETS;
use millrace_datapath::{Bridge, BridgeSetup, Datapath, Idle, Spread, Workers};
use millrace_flow::{Action, Field, Instructions, Match};
use millrace_pipeline::{Control, ControlConfig, FlowMod, FlowModCommand, Op, Port};
use millrace_types::{PortNo, Priority, TableId, Time};
use millrace_wire::{Frame, Packet};

const BOUND: Duration = Duration::from_secs(30);
const OPTIONS: DeviceOptions = DeviceOptions::PLAIN;

/// Ports 1 to `sources`, all of which send to port 99.
struct Rig {
    bridge: Bridge<HeapBackend>,
    control: Control,
    sources: Vec<MemoryPeer<Frame>>,
    sink: MemoryPeer<Frame>,
    datapath: Datapath<HeapBackend>,
}

impl Rig {
    fn new(workers: usize, sources: u32, spread: Spread) -> Rig {
        let workers = Workers {
            cores: vec![None; workers],
            idle: Idle::Adaptive,
            spread,
        };
        let datapath = Datapath::start(Arc::new(HeapBackend::new()), &workers).unwrap();
        let mut control = Control::new(ControlConfig {
            tables: 1,
            ..ControlConfig::default()
        });
        let counters = (0..=datapath.workers_len()).map(|_| control.counters()).collect();
        let setup = BridgeSetup {
            forwarding: [control.forwarding(), control.forwarding()],
            counters,
        };
        let mut bridge = datapath.bridge(setup).unwrap();
        let mut ops: Vec<Op> = Vec::new();
        let mut open = |raw: u32, bridge: &mut Bridge<HeapBackend>| {
            let number = PortNo::ordinary(raw).unwrap();
            control.set_port(Port::new(number), &mut ops);
            bridge.publish(&mut ops);
            let spec = DeviceSpec::Memory(format!("m{raw}"));
            bridge.add_port(number, &spec, OPTIONS).unwrap();
            datapath.backend().memory(&format!("m{raw}"))
        };
        let peers: Vec<_> = (1..=sources).map(|raw| open(raw, &mut bridge)).collect();
        let sink = open(99, &mut bridge);
        for raw in 1..=sources {
            let match_ = Match::exact(&[(Field::InPort, u128::from(raw))]).unwrap();
            let mut request = FlowMod::new(FlowModCommand::Add, TableId(0), Priority(1), match_);
            request.instructions = Instructions::apply([Action::output(PortNo::ordinary(99).unwrap())]);
            control.flow_mod(request, Time::ZERO, &mut ops).unwrap();
        }
        bridge.publish(&mut ops);
        Rig {
            bridge,
            control,
            sources: peers,
            sink,
            datapath,
        }
    }
}

/// Returns a UDP packet of a flow, from a source, with a number.
fn packet(source: u8, flow: u32, number: u32) -> Vec<u8> {
    let mut frame = vec![0u8; 60];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    frame[26..30].copy_from_slice(&[10, source, (flow >> 8) as u8, flow as u8]);
    frame[30..34].copy_from_slice(&[10, 255, 0, 1]);
    frame[34..38].copy_from_slice(&[0x10, 0, 0x20, 0]);
    frame[42] = source;
    frame[43..47].copy_from_slice(&flow.to_be_bytes());
    frame[47..51].copy_from_slice(&number.to_be_bytes());
    frame
}

fn told(frame: &Frame) -> (usize, usize, u32) {
    let bytes = frame.head();
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    (usize::from(bytes[42]), number(43) as usize, number(47))
}

/// Random numbers that are the same each time: the high bits of Marsaglia's xorshift, whose low bits are too simple.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let scaled = (self.0 >> 32) * bound as u64;
        (scaled >> 32) as usize
    }
}

/// Sends numbered packets of many flows while `disturb` is called again and again, and asserts that all of them arrive,
/// those of each flow in order.
fn send_and_check(
    rig: &Rig,
    flows: usize,
    packets: usize,
    mut disturb: impl FnMut(&Rig, usize, &mut Random),
) {
    /// Packets on their way: fewer than any queue holds, so that nothing has to be dropped.
    const WINDOW: usize = 1500;
    let mut random = Random(0x1234_5678_9abc_def1);
    let mut sent = vec![vec![0_u32; flows]; rig.sources.len()];
    let mut seen = sent.clone();
    let (mut sent_len, mut seen_len) = (0, 0);
    let deadline = Instant::now() + BOUND;
    while seen_len < packets {
        assert!(
            Instant::now() < deadline,
            "{seen_len} of {sent_len} came: {:?}",
            lost(&rig.control)
        );
        for _ in 0..random.below(100) {
            if sent_len < packets && sent_len - seen_len < WINDOW {
                let (source, flow) = (random.below(sent.len()), random.below(flows));
                let next = &mut sent[source][flow];
                assert!(rig.sources[source].send(&packet(source as u8, flow as u32, *next)));
                *next += 1;
                sent_len += 1;
            }
        }
        while let Some(frame) = rig.sink.receive() {
            let (source, flow, number) = told(&frame);
            assert_eq!(number, seen[source][flow], "flow {flow} of port {source}");
            seen[source][flow] += 1;
            seen_len += 1;
        }
        disturb(rig, seen_len, &mut random);
    }
    assert_eq!(sent, seen);
    assert_eq!(lost(&rig.control), []);
}

#[test]
fn random_rebalancing_loses_nothing_and_keeps_the_order_of_each_flow() {
    for (workers, sources) in [(2, 1), (4, 1), (3, 3), (8, 2)] {
        let rig = Rig::new(workers, sources, Spread::Always);
        let mut asked = 0;
        send_and_check(&rig, 300, 60_000, |rig, _, random| {
            let port = PortNo::ordinary(1 + random.below(sources as usize) as u32).unwrap();
            // From single buckets to all of them at once.
            let len = [1, 10, 300, BUCKETS][random.below(4)];
            let moves: Vec<_> = (0..len)
                .map(|_| (random.below(BUCKETS) as u16, random.below(workers) as u16))
                .collect();
            asked += usize::from(rig.bridge.move_buckets(port, 0, &moves));
        });
        let moved: u64 = (1..=sources)
            .flat_map(|port| rig.bridge.spread(PortNo::ordinary(port).unwrap()))
            .map(|stats| stats.moved)
            .sum();
        assert!(
            asked > 20 && moved > 1000,
            "{workers} workers: {asked} wishes, {moved} moves"
        );
    }
}

#[test]
fn one_flow_stays_in_order_while_its_bucket_goes_round() {
    let rig = Rig::new(3, 1, Spread::Always);
    let port = PortNo::ordinary(1).unwrap();
    let mut turn = 0;
    send_and_check(&rig, 1, 60_000, |rig, _, _| {
        let moves: Vec<_> = (0..BUCKETS as u16).map(|bucket| (bucket, turn % 3)).collect();
        turn += u16::from(rig.bridge.move_buckets(port, 0, &moves));
    });
    let [stats] = &rig.bridge.spread(port)[..] else {
        panic!()
    };
    assert!(stats.moved > 10 * BUCKETS as u64, "{stats:?}");
}

#[test]
fn all_workers_work_on_what_one_queue_brings() {
    let rig = Rig::new(4, 1, Spread::Always);
    send_and_check(&rig, 1000, 40_000, |_, _, _| {});
    let stats = rig.datapath.worker_stats();
    for worker in &stats {
        let share = worker.packets as f64 / 40_000.0;
        assert!((0.15..0.35).contains(&share), "{stats:#?}");
    }
    let given: u64 = stats.iter().map(|worker| worker.given).sum();
    assert!((26_000..34_000).contains(&given));
}

#[test]
fn packets_stay_where_they_arrive_until_there_is_a_reason() {
    for spread in [Spread::Off, Spread::Auto] {
        let rig = Rig::new(3, 1, spread);
        send_and_check(&rig, 100, 5_000, |_, _, _| {});
        assert!(rig.datapath.worker_stats().iter().all(|worker| worker.given == 0));
    }
}

#[test]
fn one_worker_has_nobody_to_share_with() {
    let rig = Rig::new(1, 1, Spread::Always);
    let port = PortNo::ordinary(1).unwrap();
    send_and_check(&rig, 100, 5_000, |_, _, _| {});
    assert_eq!(rig.bridge.spread(port), []);
    assert!(!rig.bridge.move_buckets(port, 0, &[(0, 0)]));
}

#[test]
fn a_full_ring_drops_under_its_name_and_the_rest_stays_in_order() {
    let rig = Rig::new(2, 1, Spread::Always);
    let port = PortNo::ordinary(1).unwrap();
    let mut seen = vec![None; 50];
    let (mut sent, mut received, mut numbers) = (0_u64, 0_u64, vec![0_u32; 50]);
    let deadline = Instant::now() + BOUND;
    let mut random = Random(42);
    // Nobody waits for anything: queues overflow wherever they do.
    while sent < 200_000 {
        assert!(Instant::now() < deadline);
        let flow = random.below(50);
        if rig.sources[0].send(&packet(0, flow as u32, numbers[flow])) {
            sent += 1;
            numbers[flow] += 1;
        }
        if sent % 64 == 0 {
            let moves = [(random.below(BUCKETS) as u16, random.below(2) as u16)];
            rig.bridge.move_buckets(port, 0, &moves);
        }
        if sent % 5000 == 0 {
            received += drain(&rig, &mut seen);
        }
    }
    loop {
        received += drain(&rig, &mut seen);
        let dropped: u64 = lost(&rig.control).iter().map(|(_, count)| count).sum();
        if received + dropped == sent {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "{received} and {:?} of {sent}",
            lost(&rig.control)
        );
    }
}

/// Keeps a worker from its work, as a neighbour on its core would.
struct Neighbour;

impl Service<Frame> for Neighbour {
    fn poll(&mut self, _: Time, _: &mut dyn Outlet<Frame>) -> Polled {
        std::thread::sleep(Duration::from_millis(5));
        Polled::default()
    }
}

#[test]
fn a_worker_that_is_kept_from_its_core_loses_its_flows() {
    let mut rig = Rig::new(2, 1, Spread::Always);
    let port = PortNo::ordinary(1).unwrap();
    let of_port = |rig: &Rig| rig.bridge.spread(port).remove(0);
    let home = of_port(&rig).worker;
    assert_ne!(of_port(&rig).buckets[1 - home], 0);
    rig.bridge.add_service(1 - home, Box::new(Neighbour));
    let (mut seen, mut numbers) = (vec![None; 50], vec![0_u32; 50]);
    let deadline = Instant::now() + BOUND;
    let mut random = Random(42);
    while of_port(&rig).buckets[1 - home] != 0 {
        assert!(Instant::now() < deadline, "{:?}", of_port(&rig));
        for _ in 0..1000 {
            let flow = random.below(50);
            if rig.sources[0].send(&packet(0, flow as u32, numbers[flow])) {
                numbers[flow] += 1;
            }
        }
        drain(&rig, &mut seen);
    }
}

fn drain(rig: &Rig, seen: &mut [Option<u32>]) -> u64 {
    let mut count = 0;
    while let Some(frame) = rig.sink.receive() {
        let (_, flow, number) = told(&frame);
        assert!(seen[flow].is_none_or(|last| last < number), "flow {flow}");
        seen[flow] = Some(number);
        count += 1;
    }
    count
}

#[test]
fn a_port_goes_while_its_buckets_move() {
    let mut rig = Rig::new(3, 2, Spread::Always);
    let port = PortNo::ordinary(2).unwrap();
    for round in 0..20_u16 {
        for number in 0..200 {
            rig.sources[1].send(&packet(1, number % 40, number));
        }
        let moves: Vec<_> = (0..BUCKETS as u16)
            .map(|bucket| (bucket, (bucket + round) % 3))
            .collect();
        rig.bridge.move_buckets(port, 0, &moves);
        assert!(rig.bridge.remove_port(port));
        rig.bridge
            .add_port(port, &DeviceSpec::Memory("m2".to_owned()), OPTIONS)
            .unwrap();
    }
    while rig.sink.receive_within(Duration::from_millis(5)).is_some() {}
    send_and_check(&Rig::new(2, 1, Spread::Always), 10, 1_000, |_, _, _| {});
}

/// Returns an Ethernet frame with one label.
fn labelled(label: u32, number: u32) -> Vec<u8> {
    let mut frame = vec![0u8; 60];
    frame[12..14].copy_from_slice(&[0x88, 0x47]);
    frame[14..18].copy_from_slice(&(label << 12 | 0x140).to_be_bytes());
    frame[43..47].copy_from_slice(&label.to_be_bytes());
    frame[47..51].copy_from_slice(&number.to_be_bytes());
    frame
}

#[test]
fn a_device_that_takes_rules_spreads_labels_over_its_queues() {
    let mut rig = Rig::new(4, 1, Spread::Off);
    let port = PortNo::ordinary(1).unwrap();
    rig.bridge.remove_port(port);
    // A device of its own, as one keeps its number of queues.
    let four = DeviceOptions { queues: 4, ..OPTIONS };
    rig.bridge
        .add_port(port, &DeviceSpec::Memory("nic".to_owned()), four)
        .unwrap();
    let nic = rig.datapath.backend().memory("nic");
    assert_eq!(rig.bridge.device_info(port).unwrap().rx_queues, 4);
    let mut seen = [0_u32; 16];
    for number in 0..200 {
        for label in 0..16 {
            assert!(nic.send(&labelled(label, number)));
        }
        for _ in 0..16 {
            let got = rig.sink.receive_within(BOUND).expect("nothing is lost");
            let label = u32::from_be_bytes(got[43..47].try_into().unwrap()) as usize;
            assert_eq!(got[47..51], seen[label].to_be_bytes(), "label {label}");
            seen[label] += 1;
        }
    }
    for worker in rig.datapath.worker_stats() {
        assert_eq!((worker.packets, worker.given), (800, 0));
    }
}

#[test]
fn marks_change_nothing_but_who_looks_into_the_packet() {
    let mut rig = Rig::new(3, 1, Spread::Always);
    let port = PortNo::ordinary(1).unwrap();
    let mut numbers = [0_u32; 100];
    let without = shares_of_rounds(&rig, &mut numbers);
    let rules: Vec<_> = (0..100)
        .map(|flow| rig.bridge.mark_flow(port, &packet(0, flow, 0)).unwrap())
        .collect();
    assert_eq!(
        without,
        shares_of_rounds(&rig, &mut numbers),
        "each flow has its bucket"
    );
    // Rules go while packets of their flows are on their way.
    for rule in rules {
        send_round(&rig, &mut numbers);
        assert!(rig.bridge.unmark_flow(port, rule));
        assert!(!rig.bridge.unmark_flow(port, rule));
        receive_round(&rig, &numbers);
    }
    assert_eq!(without, shares_of_rounds(&rig, &mut numbers), "and keeps it");
}

/// Sends a packet of each flow.
fn send_round(rig: &Rig, numbers: &mut [u32]) {
    for (flow, number) in (0..).zip(numbers) {
        assert!(rig.sources[0].send(&packet(0, flow, *number)));
        *number += 1;
    }
}

fn receive_round(rig: &Rig, numbers: &[u32]) {
    for _ in numbers {
        let got = rig.sink.receive_within(BOUND).expect("nothing is lost");
        let flow = u32::from_be_bytes(got[43..47].try_into().unwrap()) as usize;
        assert_eq!(got[47..51], (numbers[flow] - 1).to_be_bytes(), "flow {flow}");
    }
}

/// What each worker processes of ten rounds.
fn shares_of_rounds(rig: &Rig, numbers: &mut [u32]) -> Vec<u64> {
    let processed = || {
        rig.datapath
            .worker_stats()
            .iter()
            .map(|stats| stats.packets)
            .collect::<Vec<_>>()
    };
    let settled = |total: u64| {
        let deadline = Instant::now() + BOUND;
        while processed().iter().sum::<u64>() != total {
            assert!(Instant::now() < deadline, "{:?} of {total}", processed());
        }
        processed()
    };
    let sent = |numbers: &[u32]| numbers.iter().map(|number| u64::from(*number)).sum();
    let before = settled(sent(numbers));
    for _ in 0..10 {
        send_round(rig, numbers);
        receive_round(rig, numbers);
    }
    let after = settled(sent(numbers));
    after
        .iter()
        .zip(before)
        .map(|(after, before)| after - before)
        .collect()
}

#[test]
fn a_wrong_mark_is_no_worse_than_a_wrong_worker() {
    let rig = Rig::new(2, 1, Spread::Always);
    for number in 0..100 {
        let mut frame = Frame::new(&packet(0, 1, number));
        frame.set_mark(number.wrapping_mul(0x9e37_79b9));
        assert!(rig.sources[0].send_packet(frame));
    }
    for _ in 0..100 {
        assert!(rig.sink.receive_within(BOUND).is_some());
    }
    assert_eq!(lost(&rig.control), []);
}

#[test]
fn where_no_rule_can_be_made_the_caller_hears_it() {
    let port = PortNo::ordinary(1).unwrap();
    let mut rig = Rig::new(2, 1, Spread::Always);
    assert!(rig.bridge.mark_flow(port, &labelled(1, 0)).is_err());
    assert!(
        rig.bridge
            .mark_flow(PortNo::ordinary(50).unwrap(), &packet(0, 1, 0))
            .is_err()
    );
    assert!(
        Rig::new(1, 1, Spread::Always)
            .bridge
            .mark_flow(port, &packet(0, 1, 0))
            .is_err()
    );
}
