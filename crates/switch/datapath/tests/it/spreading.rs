//! Several workers share the packets of one queue: while buckets move and packets flow, no packet is lost and no flow
//! is reordered.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::lost::lost;
use millrace_datapath::io::{DeviceOptions, DeviceSpec, HeapBackend, MemoryPeer};
use millrace_datapath::service::{PollResult, Service, ServiceOutput};
use millrace_datapath::spread::{BUCKETS, BucketMove};
use millrace_datapath::{Bridge, BridgeSetup, Datapath, Idle, Spread, WorkerStats, Workers};
use millrace_flow::{Action, Field, Instructions, Match};
use millrace_pipeline::{Control, ControlConfig, FlowMod, FlowModCommand, Op, Port};
use millrace_types::{PortNo, Priority, TableId, Time};
use millrace_wire::{Frame, Mark, Packet};

const BOUND: Duration = Duration::from_secs(60);
const OPTIONS: DeviceOptions = DeviceOptions::PLAIN;

/// Returns the request that moves each bucket to its worker.
fn each_bucket(worker: impl Fn(u16) -> u16) -> Vec<BucketMove> {
    let move_of = |bucket| BucketMove {
        bucket,
        worker: worker(bucket),
    };
    (0..BUCKETS as u16).map(move_of).collect()
}

/// Ports 1 to `sources`, all of which send to port 99.
struct TestBed {
    bridge: Bridge<HeapBackend>,
    control: Control,
    sources: Vec<MemoryPeer<Frame>>,
    sink: MemoryPeer<Frame>,
    datapath: Datapath<HeapBackend>,
}

impl TestBed {
    fn new(workers: usize, sources: u32, spread: Spread) -> TestBed {
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
        TestBed {
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

fn origin(frame: &Frame) -> (usize, usize, u32) {
    let bytes = frame.head();
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    (usize::from(bytes[42]), number(43) as usize, number(47))
}

/// Pseudo-random numbers, the same at each run: the high bits of Marsaglia's xorshift, whose low bits are too regular.
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

/// Sends numbered packets of many flows while `disturb` is called repeatedly, and asserts that all of them arrive,
/// those of each flow in order.
fn send_and_check(
    testbed: &TestBed,
    flows: usize,
    packets: usize,
    mut disturb: impl FnMut(&TestBed, usize, &mut Random),
) {
    /// Maximum number of packets in flight: fewer than any queue holds, so that none has to be dropped.
    const WINDOW: usize = 1500;
    let mut random = Random(0x1234_5678_9abc_def1);
    let mut sent = vec![vec![0_u32; flows]; testbed.sources.len()];
    let mut seen = sent.clone();
    let (mut sent_len, mut seen_len) = (0, 0);
    let deadline = Instant::now() + BOUND;
    while seen_len < packets {
        assert!(
            Instant::now() < deadline,
            "{seen_len} of {sent_len} came: {:?}",
            lost(&testbed.control)
        );
        for _ in 0..random.below(100) {
            if sent_len < packets && sent_len - seen_len < WINDOW {
                let (source, flow) = (random.below(sent.len()), random.below(flows));
                let next = &mut sent[source][flow];
                assert!(testbed.sources[source].send(&packet(source as u8, flow as u32, *next)));
                *next += 1;
                sent_len += 1;
            }
        }
        while let Some(frame) = testbed.sink.receive() {
            let (source, flow, number) = origin(&frame);
            assert_eq!(number, seen[source][flow], "flow {flow} of port {source}");
            seen[source][flow] += 1;
            seen_len += 1;
        }
        disturb(testbed, seen_len, &mut random);
    }
    assert_eq!(sent, seen);
    assert_eq!(lost(&testbed.control), []);
}

#[test]
fn random_rebalancing_loses_nothing_and_keeps_the_order_of_each_flow() {
    for (workers, sources) in [(2, 1), (4, 1), (3, 3), (8, 2)] {
        let testbed = TestBed::new(workers, sources, Spread::Always);
        let mut asked = 0;
        send_and_check(&testbed, 300, 60_000, |testbed, _, random| {
            let port = PortNo::ordinary(1 + random.below(sources as usize) as u32).unwrap();
            // A step moves one bucket, several buckets, or all of them.
            let len = [1, 10, 300, BUCKETS][random.below(4)];
            let moves: Vec<_> = (0..len)
                .map(|_| BucketMove {
                    bucket: random.below(BUCKETS) as u16,
                    worker: random.below(workers) as u16,
                })
                .collect();
            asked += usize::from(testbed.bridge.move_buckets(port, 0, &moves));
        });
        // Packets that waited for their buckets count, too.
        stats_after(&testbed, 60_000);
        let moved: u64 = (1..=sources)
            .flat_map(|port| testbed.bridge.spread(PortNo::ordinary(port).unwrap()))
            .map(|stats| stats.moved)
            .sum();
        assert!(
            asked > 20 && moved > 1000,
            "{workers} workers: {asked} requests, {moved} moves"
        );
    }
}

#[test]
fn one_flow_stays_in_order_while_its_bucket_goes_round() {
    let testbed = TestBed::new(3, 1, Spread::Always);
    let port = PortNo::ordinary(1).unwrap();
    let mut turn = 0;
    send_and_check(&testbed, 1, 60_000, |testbed, _, _| {
        let moves = each_bucket(|_| turn % 3);
        turn += u16::from(testbed.bridge.move_buckets(port, 0, &moves));
    });
    let [stats] = &testbed.bridge.spread(port)[..] else {
        panic!()
    };
    assert!(stats.moved > 10 * BUCKETS as u64, "{stats:?}");
}

/// The shares themselves are not asserted: a worker that the machine keeps from its core looks full to the balancer,
/// which then moves buckets away from it.
#[test]
fn all_workers_work_on_what_one_queue_brings() {
    let testbed = TestBed::new(4, 1, Spread::Always);
    let [queue] = &testbed.bridge.spread(PortNo::ordinary(1).unwrap())[..] else {
        panic!("a port with one queue has one redirection table")
    };
    assert_eq!(queue.buckets, [BUCKETS / 4; 4], "before the first packet");
    send_and_check(&testbed, 1000, 40_000, |_, _, _| {});
    let stats = stats_after(&testbed, 40_000);
    // A bucket moves only away from a worker that has processed packets.
    assert!(stats.iter().all(|worker| worker.packets > 0), "{stats:#?}");
    let received_here = stats[queue.worker].packets;
    let handed_off: u64 = stats.iter().map(|worker| worker.handed_off).sum();
    assert_eq!(handed_off, 40_000 - received_here, "{stats:#?}");
    assert_eq!(handed_off, stats[queue.worker].handed_off, "{stats:#?}");
}

/// Returns the workers' counters once these sum up to `total` packets: a worker counts after the round that sends.
fn stats_after(testbed: &TestBed, total: u64) -> Vec<WorkerStats> {
    let deadline = Instant::now() + BOUND;
    loop {
        let stats = testbed.datapath.worker_stats();
        if stats.iter().map(|worker| worker.packets).sum::<u64>() == total {
            return stats;
        }
        assert!(Instant::now() < deadline, "{total} packets: {stats:#?}");
        std::thread::yield_now();
    }
}

#[test]
fn packets_stay_where_they_arrive_until_there_is_a_reason() {
    for spread in [Spread::Off, Spread::Auto] {
        let testbed = TestBed::new(3, 1, spread);
        send_and_check(&testbed, 100, 5_000, |_, _, _| {});
        assert!(
            testbed
                .datapath
                .worker_stats()
                .iter()
                .all(|worker| worker.handed_off == 0)
        );
    }
}

#[test]
fn one_worker_has_nobody_to_share_with() {
    let testbed = TestBed::new(1, 1, Spread::Always);
    let port = PortNo::ordinary(1).unwrap();
    send_and_check(&testbed, 100, 5_000, |_, _, _| {});
    assert_eq!(testbed.bridge.spread(port), []);
    assert!(!testbed.bridge.move_buckets(port, 0, &each_bucket(|_| 0)));
}

#[test]
fn a_full_ring_drops_under_its_name_and_the_rest_stays_in_order() {
    let testbed = TestBed::new(2, 1, Spread::Always);
    let port = PortNo::ordinary(1).unwrap();
    let mut seen = vec![None; 50];
    let (mut sent, mut received, mut numbers) = (0_u64, 0_u64, vec![0_u32; 50]);
    let deadline = Instant::now() + BOUND;
    let mut random = Random(42);
    // The sender does not wait for the switch, so that queues overflow.
    while sent < 200_000 {
        assert!(Instant::now() < deadline);
        let flow = random.below(50);
        if testbed.sources[0].send(&packet(0, flow as u32, numbers[flow])) {
            sent += 1;
            numbers[flow] += 1;
        }
        if sent % 64 == 0 {
            let moved = BucketMove {
                bucket: random.below(BUCKETS) as u16,
                worker: random.below(2) as u16,
            };
            testbed.bridge.move_buckets(port, 0, &[moved]);
        }
        if sent % 5000 == 0 {
            received += drain(&testbed, &mut seen);
        }
    }
    loop {
        received += drain(&testbed, &mut seen);
        let dropped: u64 = lost(&testbed.control).iter().map(|(_, count)| count).sum();
        if received + dropped == sent {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "{received} and {:?} of {sent}",
            lost(&testbed.control)
        );
    }
}

#[test]
fn a_device_that_takes_nothing_keeps_no_bucket_from_moving_and_no_worker_from_sleeping() {
    let testbed = TestBed::new(2, 1, Spread::Always);
    let port = PortNo::ordinary(1).unwrap();
    let deadline = Instant::now() + BOUND;
    let dropped = || {
        let sink = PortNo::ordinary(99).unwrap();
        testbed.bridge.port_stats(sink).unwrap().tx_dropped
    };
    let mut number = 0;
    while dropped() == 0 {
        assert!(Instant::now() < deadline, "the device is never full");
        testbed.sources[0].send(&packet(0, number % 40, number));
        number += 1;
    }
    // Nobody receives at port 99, whose packets worker 1 sends.
    for owner in [1, 0] {
        let buckets = || testbed.bridge.spread(port).remove(0).buckets;
        while buckets()[usize::from(owner)] != BUCKETS {
            assert!(Instant::now() < deadline, "{:?}", testbed.bridge.spread(port));
            testbed.bridge.move_buckets(port, 0, &each_bucket(|_| owner));
            std::thread::yield_now();
        }
    }
    let sleeps = || testbed.datapath.worker_stats()[1].sleeps;
    let before = sleeps();
    while sleeps() == before {
        assert!(Instant::now() < deadline, "worker 1 does not sleep");
        std::thread::yield_now();
    }
}

/// Keeps a worker from its work, as another process on its core would.
struct Neighbour;

impl Service<Frame> for Neighbour {
    fn poll(&mut self, _: Time, _: &mut dyn ServiceOutput<Frame>) -> PollResult {
        std::thread::sleep(Duration::from_millis(5));
        PollResult::default()
    }
}

#[test]
fn a_worker_that_is_kept_from_its_core_loses_its_flows() {
    let mut testbed = TestBed::new(2, 1, Spread::Always);
    let port = PortNo::ordinary(1).unwrap();
    let of_port = |testbed: &TestBed| testbed.bridge.spread(port).remove(0);
    let home = of_port(&testbed).worker;
    assert_ne!(of_port(&testbed).buckets[1 - home], 0);
    testbed.bridge.add_service(1 - home, Box::new(Neighbour));
    let (mut seen, mut numbers) = (vec![None; 50], vec![0_u32; 50]);
    let deadline = Instant::now() + BOUND;
    let mut random = Random(42);
    while of_port(&testbed).buckets[1 - home] != 0 {
        assert!(Instant::now() < deadline, "{:?}", of_port(&testbed));
        for _ in 0..1000 {
            let flow = random.below(50);
            if testbed.sources[0].send(&packet(0, flow as u32, numbers[flow])) {
                numbers[flow] += 1;
            }
        }
        drain(&testbed, &mut seen);
    }
}

fn drain(testbed: &TestBed, seen: &mut [Option<u32>]) -> u64 {
    let mut count = 0;
    while let Some(frame) = testbed.sink.receive() {
        let (_, flow, number) = origin(&frame);
        assert!(seen[flow].is_none_or(|last| last < number), "flow {flow}");
        seen[flow] = Some(number);
        count += 1;
    }
    count
}

#[test]
fn a_port_goes_while_its_buckets_move() {
    let mut testbed = TestBed::new(3, 2, Spread::Always);
    let port = PortNo::ordinary(2).unwrap();
    for round in 0..20_u16 {
        for number in 0..200 {
            testbed.sources[1].send(&packet(1, number % 40, number));
        }
        testbed
            .bridge
            .move_buckets(port, 0, &each_bucket(|bucket| (bucket + round) % 3));
        assert!(testbed.bridge.remove_port(port));
        testbed
            .bridge
            .add_port(port, &DeviceSpec::Memory("m2".to_owned()), OPTIONS)
            .unwrap();
    }
    while testbed.sink.receive_within(Duration::from_millis(5)).is_some() {}
    send_and_check(&TestBed::new(2, 1, Spread::Always), 10, 1_000, |_, _, _| {});
}

/// Returns an Ethernet frame with one MPLS label.
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
    let mut testbed = TestBed::new(4, 1, Spread::Off);
    let port = PortNo::ordinary(1).unwrap();
    testbed.bridge.remove_port(port);
    // The number of queues of a memory device does not change, so that this test needs a new one.
    let four = DeviceOptions { queues: 4, ..OPTIONS };
    testbed
        .bridge
        .add_port(port, &DeviceSpec::Memory("nic".to_owned()), four)
        .unwrap();
    let nic = testbed.datapath.backend().memory("nic");
    assert_eq!(testbed.bridge.device_info(port).unwrap().rx_queues, 4);
    let mut seen = [0_u32; 16];
    for number in 0..200 {
        for label in 0..16 {
            assert!(nic.send(&labelled(label, number)));
        }
        for _ in 0..16 {
            let got = testbed.sink.receive_within(BOUND).expect("nothing is lost");
            let label = u32::from_be_bytes(got[43..47].try_into().unwrap()) as usize;
            assert_eq!(got[47..51], seen[label].to_be_bytes(), "label {label}");
            seen[label] += 1;
        }
    }
    for worker in stats_after(&testbed, 3200) {
        assert_eq!((worker.packets, worker.handed_off), (800, 0));
    }
}

#[test]
fn a_wrong_mark_moves_no_packet_to_another_worker() {
    let testbed = TestBed::new(2, 1, Spread::Always);
    for number in 1..=100 {
        let mut frame = Frame::new(&packet(0, 1, number));
        frame.set_mark(Mark::new(number.wrapping_mul(0x9e37_79b9)).unwrap());
        assert!(testbed.sources[0].send_packet(frame));
    }
    // One flow has one worker, and its order.
    for number in 1..=100_u32 {
        let got = testbed.sink.receive_within(BOUND).expect("nothing is lost");
        assert_eq!(got[47..51], number.to_be_bytes());
    }
    let workers = stats_after(&testbed, 100)
        .into_iter()
        .filter(|stats| stats.packets > 0);
    assert_eq!(workers.count(), 1);
    assert_eq!(lost(&testbed.control), []);
}
