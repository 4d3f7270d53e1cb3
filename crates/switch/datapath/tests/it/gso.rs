//! GSO packets in running workers: they pass through the switch unsegmented, and destinations that do not take them
//! get the segments that the sender would have sent.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use core::num::NonZeroU16;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_datapath::io::{
    Backend, Burst, Device, DeviceInfo, DeviceOptions, DeviceSpec, DeviceStats, HeapBackend, MemoryPeer,
    TxQueue,
};
use millrace_datapath::schedule::{PortPlan, QueuePlan};
use millrace_datapath::{Bridge, BridgeSetup, Datapath, Idle, Spread, Workers};
use millrace_flow::{Action, Field, Instructions, Match, SetField};
use millrace_pipeline::{
    ColorAction, Control, ControlConfig, DropReason, FlowMod, FlowModCommand, Marks, Op, PolicerPlan,
    PolicerRates, Port,
};
use millrace_types::{BitRate, Mac, PortNo, Priority, QueueId, TableId, Time};
use millrace_wire::segment::GsoLayout;
use millrace_wire::{Builder, Frame, Packet, tcp};

const BOUND: Duration = Duration::from_secs(60);
const SEGMENT_SIZE: u16 = 1448;

/// A memory device with a virtual machine behind it, which takes and sends GSO packets.
struct Guest {
    device: Box<dyn Device>,
}

impl Device for Guest {
    fn info(&self) -> DeviceInfo {
        self.device.info()
    }

    fn stats(&self) -> DeviceStats {
        self.device.stats()
    }

    fn set_link(&mut self, up: bool) {
        self.device.set_link(up);
    }

    fn delivers_gso(&self) -> bool {
        true
    }
}

struct TakesUncut(Box<dyn TxQueue<Frame>>);

impl TxQueue<Frame> for TakesUncut {
    fn tx_burst(&mut self, burst: &mut Burst<Frame>) {
        self.0.tx_burst(burst);
    }

    fn takes_gso(&mut self, _: &Frame, _: &GsoLayout) -> bool {
        true
    }
}

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

    fn announce(&mut self, raw: u32) {
        self.control.set_port(Port::new(port(raw)), &mut self.ops);
        self.bridge.publish(&mut self.ops);
    }

    fn add(&mut self, raw: u32, spec: &DeviceSpec) {
        self.announce(raw);
        self.bridge
            .add_port(port(raw), spec, DeviceOptions::PLAIN)
            .unwrap();
    }

    fn port(&mut self, raw: u32) -> MemoryPeer<Frame> {
        let name = format!("m{raw}");
        self.add(raw, &DeviceSpec::Memory(name.clone()));
        self.datapath.backend().memory(&name)
    }

    /// Returns a port that sends and takes GSO packets.
    fn guest(&mut self, raw: u32) -> MemoryPeer<Frame> {
        let name = format!("m{raw}");
        self.announce(raw);
        let backend = self.datapath.backend();
        let spec = DeviceSpec::Memory(name.clone());
        let mut opened = backend.open(&spec, DeviceOptions::PLAIN).unwrap();
        opened.device = Box::new(Guest {
            device: opened.device,
        });
        opened.tx = opened
            .tx
            .into_iter()
            .map(|queue| Box::new(TakesUncut(queue)) as Box<dyn TxQueue<Frame>>)
            .collect();
        let peer = backend.memory(&name);
        self.bridge.attach_port(port(raw), opened).unwrap();
        peer
    }

    fn apply(&mut self, from: u32, actions: &[Action]) {
        let fields = [
            (Field::InPort, from.into()),
            (Field::EthType, 0x800),
            (Field::IpProto, 6),
        ];
        let from = Match::exact(&fields).unwrap();
        let mut request = FlowMod::new(FlowModCommand::Add, TableId(0), Priority(1), from);
        request.instructions = Instructions::apply(actions.to_vec());
        self.control.flow_mod(request, Time::ZERO, &mut self.ops).unwrap();
        self.bridge.publish(&mut self.ops);
    }
}

/// Returns a packet with `size` bytes of data, which depend on their positions in the stream.
fn packet(seq: u32, size: usize) -> Frame {
    let data: Vec<u8> = (0..size).map(|at| (seq as usize + at) as u8).collect();
    let bytes = Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]))
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .tcp(tcp::Repr {
            src: 1000,
            dst: 80,
            seq,
            flags: tcp::flags::ACK,
            ..tcp::Repr::default()
        })
        .payload(&data)
        .build();
    Frame::new(&bytes)
}

fn long(seq: u32, size: usize) -> Frame {
    packet(seq, size).to_gso(NonZeroU16::new(SEGMENT_SIZE).unwrap())
}

/// Returns the next packet that is sent.
fn next(peer: &MemoryPeer<Frame>) -> Frame {
    let deadline = Instant::now() + BOUND;
    loop {
        if let Some(packet) = peer.receive() {
            return packet;
        }
        assert!(Instant::now() < deadline, "nothing comes");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Receives the segments of this many packets of 10,000 bytes of data each, in order.
fn receive_segments(peer: &MemoryPeer<Frame>, packets: u32) -> u64 {
    let mut count = 0;
    for number in 0..packets {
        let whole = long(number * 10_000, 10_000);
        let gso = GsoLayout::of(&whole).unwrap();
        for segment in 0..gso.count() {
            let got = next(peer);
            // All these packets have the same identification.
            assert_eq!(
                got,
                gso.segment(&whole, segment).unwrap(),
                "packet {number}, segment {segment}"
            );
            count += 1;
        }
    }
    assert!(peer.receive().is_none());
    count
}

/// Waits until counters have these values: a worker counts packets after it has sent them.
fn wait_for_counts<T: PartialEq + core::fmt::Debug>(expected: &T, mut read: impl FnMut() -> T) {
    let deadline = Instant::now() + BOUND;
    loop {
        let counts = read();
        if counts == *expected {
            return;
        }
        assert!(Instant::now() < deadline, "{counts:?}: expected {expected:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn send(peer: &MemoryPeer<Frame>, packets: u32) {
    for number in 0..packets {
        assert!(peer.send_packet(long(number * 10_000, 10_000)));
    }
}

#[test]
fn a_wire_gets_segments_and_counts_them_whenever_its_port_was_made() {
    for workers in [1, 2, 3] {
        let mut testbed = TestBed::new(workers);
        let before = testbed.port(1);
        let guest = testbed.guest(2);
        let after = testbed.port(3);
        for (number, wire) in [(1, before), (3, after)] {
            testbed.apply(2, &[Action::output(port(number))]);
            send(&guest, 500);
            let count = receive_segments(&wire, 500);
            wait_for_counts(&(count, 0, 500 * 10_000 + count * 54), || {
                let stats = testbed.bridge.port_stats(port(number)).unwrap();
                (stats.tx_packets, stats.tx_dropped, stats.tx_bytes)
            });
        }
        wait_for_counts(&1000, || testbed.bridge.port_stats(port(2)).unwrap().rx_packets);
    }
}

#[test]
fn another_guest_gets_them_whole_with_what_the_tables_changed() {
    let mut testbed = TestBed::new(2);
    let (one, two) = (testbed.guest(1), testbed.guest(2));
    let set = Action::SetField(SetField::new(Field::TcpDst, 8080).unwrap());
    testbed.apply(1, &[set, Action::output(port(2))]);
    send(&one, 100);
    for number in 0..100 {
        let got = next(&two);
        assert_eq!(got.len(), 10_054);
        assert_eq!(got.segment_size().map(NonZeroU16::get), Some(SEGMENT_SIZE));
        assert_eq!(got.bytes()[36..38], 8080_u16.to_be_bytes());
        assert_eq!(got.bytes()[38..42], (number * 10_000_u32).to_be_bytes());
    }
}

#[test]
fn copies_are_cut_where_they_leave_and_only_there() {
    let mut testbed = TestBed::new(2);
    let (one, two, wire) = (testbed.guest(1), testbed.guest(2), testbed.port(3));
    testbed.apply(1, &[Action::output(port(3)), Action::output(port(2))]);
    send(&one, 50);
    receive_segments(&wire, 50);
    for _ in 0..50 {
        assert_eq!(next(&two).len(), 10_054);
    }
}

#[test]
fn a_patch_carries_them_whole_to_where_they_leave() {
    let mut testbed = TestBed::new(2);
    let (guest, wire) = (testbed.guest(1), testbed.port(2));
    testbed.add(3, &DeviceSpec::Link("patch".to_owned()));
    testbed.add(4, &DeviceSpec::Link("patch".to_owned()));
    testbed.apply(1, &[Action::output(port(3))]);
    testbed.apply(4, &[Action::output(port(2))]);
    send(&guest, 200);
    receive_segments(&wire, 200);
    wait_for_counts(&200, || testbed.bridge.port_stats(port(3)).unwrap().tx_packets);
}

#[test]
fn a_scheduler_has_segments_wait() {
    let mut testbed = TestBed::new(2);
    let (guest, wire) = (testbed.guest(1), testbed.port(2));
    let plan = PortPlan {
        queues: vec![QueuePlan::new(QueueId(7))],
        ..PortPlan::default()
    };
    assert!(testbed.bridge.schedule(port(2), &plan));
    testbed.apply(1, &[Action::SetQueue(QueueId(7)), Action::output(port(2))]);
    // The queue holds more segments than these.
    send(&guest, 40);
    let count = receive_segments(&wire, 40);
    wait_for_counts(&(count, 0), || {
        let queues = testbed.bridge.queues(port(2));
        let queue = queues.iter().find(|queue| queue.id == QueueId(7)).unwrap();
        let dropped = testbed.control.drops(DropReason::QueueFull);
        (queue.stats.tx_packets, dropped)
    });
}

#[test]
fn a_policer_measures_segments() {
    let mut testbed = TestBed::new(2);
    let guest = testbed.guest(1);
    let wire = testbed.port(2);
    // A packet of 10,000 bytes would never conform.
    let plan = PolicerPlan {
        rates: PolicerRates::SingleRate {
            cir: BitRate::from_bps(8_000),
            cbs: 3_100,
            ebs: 0,
        },
        color_aware: false,
        overhead: 0,
        color_actions: [
            ColorAction::Pass(Marks::default()),
            ColorAction::Drop,
            ColorAction::Drop,
        ],
    };
    assert!(testbed.bridge.police(port(1), Some(&plan)));
    testbed.apply(1, &[Action::output(port(2))]);
    // Commands are executed in order: adding a port returns after the policer was set.
    testbed.port(3);
    send(&guest, 1);
    let whole = long(0, 10_000);
    let gso = GsoLayout::of(&whole).unwrap();
    for segment in 0..2 {
        assert_eq!(next(&wire), gso.segment(&whole, segment).unwrap());
    }
    let deadline = Instant::now() + BOUND;
    while testbed.bridge.policed(port(1)).unwrap()[2].packets != 5 {
        assert!(Instant::now() < deadline, "{:?}", testbed.bridge.policed(port(1)));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_controller_gets_segments() {
    let mut testbed = TestBed::new(2);
    let guest = testbed.guest(1);
    testbed.apply(1, &[Action::output(PortNo::CONTROLLER)]);
    send(&guest, 1);
    let whole = long(0, 10_000);
    let gso = GsoLayout::of(&whole).unwrap();
    let deadline = Instant::now() + BOUND;
    for segment in 0..gso.count() {
        let got = loop {
            if let Some((_, packet)) = testbed.bridge.next_packet_in() {
                break packet;
            }
            assert!(Instant::now() < deadline, "no packet-in");
        };
        assert_eq!(got, gso.segment(&whole, segment).unwrap());
    }
}
