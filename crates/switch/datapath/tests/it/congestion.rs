//! Full devices and inboxes of a worker that is run step by step: which packets wait, and which are dropped and counted.

use std::sync::Arc;

use millrace_datapath::io::{DeviceOptions, DeviceSpec, HeapBackend, MemoryPeer};
use millrace_datapath::{Bridge, BridgeSetup, Datapath, Stepper};
use millrace_flow::{Action, Instructions, Match};
use millrace_pipeline::{Control, ControlConfig, DropReason, FlowMod, FlowModCommand, Op, Port};
use millrace_types::{PortNo, Priority, TableId, Time};
use millrace_wire::Frame;

/// Number of packets that the device of a port holds in each direction.
const DEVICE: u32 = 4096;

/// A bridge whose ports 1 and 2 send to port 3.
struct TestBed {
    // Dropped first: a bridge that is dropped waits for its workers.
    stepper: Stepper<Frame>,
    bridge: Bridge<HeapBackend>,
    control: Control,
    backend: Arc<HeapBackend>,
    _datapath: Datapath<HeapBackend>,
}

fn port(raw: u32) -> PortNo {
    PortNo::ordinary(raw).unwrap()
}

impl TestBed {
    fn new() -> TestBed {
        let backend = Arc::new(HeapBackend::with_pool(4 * DEVICE as usize, 128));
        let (datapath, mut stepper) = Datapath::stepped(Arc::clone(&backend));
        let mut control = Control::new(ControlConfig::default());
        let setup = BridgeSetup {
            forwarding: [control.forwarding(), control.forwarding()],
            counters: vec![control.counters(), control.counters()],
        };
        let mut ops: Vec<Op> = Vec::new();
        let bridge = stepper.serve(|| {
            let mut bridge = datapath.bridge(setup).unwrap();
            for raw in 1..=3 {
                control.set_port(Port::new(port(raw)), &mut ops);
                bridge.publish(&mut ops);
                let device = DeviceSpec::Memory(format!("m{raw}"));
                bridge.add_port(port(raw), &device, DeviceOptions::PLAIN).unwrap();
            }
            let mut entry = FlowMod::new(FlowModCommand::Add, TableId(0), Priority(1), Match::any());
            entry.instructions = Instructions::apply([Action::output(port(3))]);
            control.flow_mod(entry, Time::ZERO, &mut ops).unwrap();
            bridge.publish(&mut ops);
            bridge
        });
        TestBed {
            stepper,
            bridge,
            control,
            backend,
            _datapath: datapath,
        }
    }

    fn peer(&self, raw: u32) -> MemoryPeer<Frame> {
        self.backend.memory(&format!("m{raw}"))
    }

    /// Runs a round. Returns the number of packets processed.
    fn step(&mut self) -> usize {
        self.stepper.forward_round(Time::from_nanos(1))
    }

    fn set_backpressure(&mut self, raw: u32) {
        let TestBed { stepper, bridge, .. } = self;
        stepper.serve(|| {
            assert!(bridge.set_backpressure(port(raw), true));
            // `set_sampling` waits for the worker, which has executed earlier commands by then.
            bridge.set_sampling(None);
        });
    }
}

fn frame(source: u8, number: u32) -> Vec<u8> {
    let mut frame = vec![source; 60];
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

#[test]
fn a_worker_has_received_until_the_last_round_that_left_no_packet_in_a_queue() {
    let mut bed = TestBed::new();
    let at = Time::from_millis;
    bed.stepper.forward_round(at(1));
    assert_eq!(bed.bridge.received_until(), at(1));
    // More than one burst.
    for _ in 0..100 {
        assert!(bed.peer(1).send(&[7; 60]));
    }
    bed.stepper.forward_round(at(2));
    assert_eq!(bed.bridge.received_until(), at(1));
    bed.stepper.forward_round(at(3));
    assert_eq!(bed.bridge.received_until(), at(3));
}

#[test]
fn with_backpressure_no_packet_is_lost_and_no_port_is_left_out_if_several_send_to_a_full_one() {
    let mut testbed = TestBed::new();
    testbed.set_backpressure(1);
    testbed.set_backpressure(2);
    let (one, two, sink) = (testbed.peer(1), testbed.peer(2), testbed.peer(3));
    let mut sent = [0_u32; 2];
    let mut seen = sent;
    let mut refill = |most: [u32; 2]| {
        for (source, peer) in [&one, &two].into_iter().enumerate() {
            for _ in 0..most[source] {
                sent[source] += u32::from(peer.send(&frame(source as u8, sent[source])));
            }
        }
        sent
    };
    let mut receive = |most: usize| {
        for packet in core::iter::from_fn(|| sink.receive()).take(most) {
            let bytes = packet.bytes();
            let source = usize::from(bytes[0]);
            let number = u32::from_be_bytes(bytes[14..18].try_into().unwrap());
            assert_eq!(number, seen[source], "packets of port {}", source + 1);
            seen[source] += 1;
        }
        seen
    };
    let received =
        |testbed: &TestBed| [1, 2].map(|raw| testbed.bridge.port_stats(port(raw)).unwrap().rx_packets);
    // The device becomes full between two rounds, or by packets that wait for the end of the round: port 1 is polled
    // first in one of two runs. At last it stays full.
    for burst_sizes in [[64, 64], [31, 64], [31, 64], [DEVICE, DEVICE]] {
        for _ in 0..200 {
            receive(usize::MAX);
            testbed.step();
        }
        let full = DEVICE + refill([0, 0]).iter().sum::<u32>();
        while refill(burst_sizes).iter().sum::<u32>() < full + 1_000 {
            testbed.step();
        }
        while testbed.step() != 0 {}
        assert_eq!(testbed.control.drops(DropReason::TransmitFull), 0);
    }
    let before = received(&testbed);
    for _ in 0..1_000 {
        receive(10);
        testbed.step();
        refill([10, 10]);
    }
    let after = received(&testbed);
    let [one_more, two_more] = [0, 1].map(|at| after[at] - before[at]);
    assert!(one_more + two_more > 9_000, "{one_more} and {two_more}");
    assert!(one_more.abs_diff(two_more) <= 128, "{one_more} and {two_more}");
    let sent = refill([0, 0]);
    for _ in 0..1_000 {
        receive(usize::MAX);
        testbed.step();
    }
    assert_eq!(receive(0), sent);
    assert_eq!(testbed.control.drops(DropReason::TransmitFull), 0);
    assert_eq!(testbed.bridge.port_stats(port(3)).unwrap().tx_dropped, 0);
}

#[test]
fn a_packet_out_that_finds_the_inbox_full_counts_as_dropped_by_its_port() {
    let mut testbed = TestBed::new();
    let actions = [Action::output(port(2))];
    let dropped = |testbed: &TestBed| testbed.bridge.port_stats(port(2)).unwrap().tx_dropped;
    let mut sent = 0;
    while dropped(&testbed) == 0 && sent < 10_000 {
        testbed
            .bridge
            .packet_out(PortNo::CONTROLLER, &actions, &[7; 60])
            .unwrap();
        sent += 1;
        assert_eq!(dropped(&testbed), testbed.control.drops(DropReason::TransmitFull));
    }
    assert_eq!(dropped(&testbed), 1);
    testbed.step();
    let peer = testbed.peer(2);
    assert_eq!(core::iter::from_fn(|| peer.receive()).count(), sent - 1);
}
