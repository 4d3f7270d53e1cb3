//! Running workers on memory devices: packets go to the ports that the tables select, while ports and tables change.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::lost::lost;
use millrace_datapath::io::{Backend, DeviceOptions, DeviceSpec, HeapBackend, MemoryPeer};
use millrace_datapath::{Bridge, BridgeSetup, Datapath, Idle, Spread, Workers};
use millrace_flow::{Action, Field, Instructions, Match};
use millrace_pipeline::{Control, ControlConfig, FlowMod, FlowModCommand, Op, Port};
use millrace_types::{PortNo, Priority, TableId, Time};
use millrace_wire::Frame;

const BOUND: Duration = Duration::from_secs(60);
const OPTIONS: DeviceOptions = DeviceOptions::PLAIN;

struct TestBed {
    bridge: Bridge<HeapBackend>,
    control: Control,
    ops: Vec<Op>,
    datapath: Datapath<HeapBackend>,
}

impl TestBed {
    fn new(workers: usize) -> TestBed {
        let workers = Workers {
            cores: vec![None; workers],
            idle: Idle::Adaptive,
            spread: Spread::Auto,
        };
        let datapath = Datapath::start(Arc::new(HeapBackend::new()), &workers).unwrap();
        let mut control = Control::new(ControlConfig {
            tables: 4,
            ..ControlConfig::default()
        });
        let counters = (0..=datapath.workers_len()).map(|_| control.counters()).collect();
        let setup = BridgeSetup {
            forwarding: [control.forwarding(), control.forwarding()],
            counters,
        };
        let bridge = datapath.bridge(setup).unwrap();
        TestBed {
            bridge,
            control,
            ops: Vec::new(),
            datapath,
        }
    }

    fn port(&mut self, raw: u32) -> MemoryPeer<Frame> {
        let number = PortNo::ordinary(raw).unwrap();
        let name = format!("m{raw}");
        self.control.set_port(Port::new(number), &mut self.ops);
        self.bridge.publish(&mut self.ops);
        self.bridge
            .add_port(number, &DeviceSpec::Memory(name.clone()), OPTIONS)
            .unwrap();
        self.datapath.backend().memory(&name)
    }

    fn flow(&mut self, in_port: Option<u32>, instructions: Instructions) {
        let fields: Vec<_> = in_port
            .iter()
            .map(|port| (Field::InPort, u128::from(*port)))
            .collect();
        let mut request = FlowMod::new(
            FlowModCommand::Add,
            TableId(0),
            Priority(1),
            Match::exact(&fields).unwrap(),
        );
        request.instructions = instructions;
        self.control.flow_mod(request, Time::ZERO, &mut self.ops).unwrap();
        self.bridge.publish(&mut self.ops);
    }

    fn output(&mut self, from: u32, to: u32) {
        let to = PortNo::ordinary(to).unwrap();
        self.flow(Some(from), Instructions::apply([Action::output(to)]));
    }
}

fn frame(source: u8, target: u8) -> Vec<u8> {
    let mut frame = vec![0u8; 60];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, target]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, source]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

#[test]
fn a_packet_goes_out_of_the_port_that_its_entry_names() {
    let mut testbed = TestBed::new(1);
    let (one, two) = (testbed.port(1), testbed.port(2));
    testbed.output(1, 2);
    assert!(one.send(&frame(1, 2)));
    assert_eq!(two.receive_within(BOUND), Some(frame(1, 2)));
    let (sent, received) = (PortNo::ordinary(2).unwrap(), PortNo::ordinary(1).unwrap());
    assert_eq!(testbed.bridge.port_stats(received).unwrap().rx_packets, 1);
    let deadline = Instant::now() + BOUND;
    while testbed.bridge.port_stats(sent).unwrap().tx_bytes != 60 {
        assert!(Instant::now() < deadline);
    }
}

#[test]
fn order_within_a_flow_is_kept_when_another_worker_sends() {
    let mut testbed = TestBed::new(3);
    let (one, two) = (testbed.port(1), testbed.port(2));
    testbed.output(1, 2);
    for round in 0..50u32 {
        for i in 0..40u32 {
            let mut bytes = frame(1, 2);
            bytes[20..24].copy_from_slice(&(round * 40 + i).to_be_bytes());
            assert!(one.send(&bytes));
        }
        for i in 0..40u32 {
            let got = two.receive_within(BOUND).expect("nothing is lost");
            assert_eq!(got[20..24], (round * 40 + i).to_be_bytes());
        }
    }
}

/// Sends frames from port 1 to port 2, whose peer receives nothing, until the device of port 1 is full or `most` were
/// sent. Returns the number sent.
fn overload(testbed: &TestBed, one: &MemoryPeer<Frame>, most: u32) -> u32 {
    let dropped = |testbed: &TestBed| {
        testbed
            .bridge
            .port_stats(PortNo::ordinary(2).unwrap())
            .unwrap()
            .tx_dropped
    };
    let deadline = Instant::now() + BOUND;
    let mut sent = 0;
    while sent < most && dropped(testbed) == 0 && Instant::now() < deadline {
        let mut bytes = frame(1, 2);
        bytes[20..24].copy_from_slice(&sent.to_be_bytes());
        if one.send(&bytes) {
            sent += 1;
        } else if sent >= 2 * DEVICE {
            // Both devices are full.
            break;
        }
    }
    sent
}

/// Capacity of one direction of a memory device in packets.
const DEVICE: u32 = 4096;

#[test]
fn with_backpressure_packets_wait_where_they_come_from_and_none_is_lost() {
    let mut testbed = TestBed::new(1);
    let (one, two) = (testbed.port(1), testbed.port(2));
    testbed.output(1, 2);
    assert!(
        testbed
            .bridge
            .set_backpressure(PortNo::ordinary(1).unwrap(), true)
    );
    let sent = overload(&testbed, &one, 4 * DEVICE);
    assert!(sent >= 2 * DEVICE, "{sent}");
    for i in 0..sent {
        let got = two.receive_within(BOUND).expect("nothing is lost");
        assert_eq!(got[20..24], i.to_be_bytes());
    }
    // Without backpressure, packets for which there is no room are dropped.
    assert!(
        testbed
            .bridge
            .set_backpressure(PortNo::ordinary(1).unwrap(), false)
    );
    let sent = overload(&testbed, &one, 4 * DEVICE);
    let deadline = Instant::now() + BOUND;
    while testbed
        .bridge
        .port_stats(PortNo::ordinary(2).unwrap())
        .unwrap()
        .tx_dropped
        == 0
    {
        assert!(Instant::now() < deadline, "{sent} sent");
    }
}

#[test]
fn normal_floods_then_learns() {
    let mut testbed = TestBed::new(2);
    let ports = [testbed.port(1), testbed.port(2), testbed.port(3)];
    testbed.flow(None, Instructions::apply([Action::output(PortNo::NORMAL)]));
    assert!(ports[0].send(&frame(1, 2)));
    assert_eq!(ports[1].receive_within(BOUND), Some(frame(1, 2)));
    assert_eq!(ports[2].receive_within(BOUND), Some(frame(1, 2)));
    let deadline = Instant::now() + BOUND;
    let learn = loop {
        if let Some(learn) = testbed.bridge.next_learn() {
            break learn;
        }
        assert!(Instant::now() < deadline);
    };
    testbed
        .control
        .learn(learn, testbed.bridge.now(), &mut testbed.ops);
    testbed.bridge.publish(&mut testbed.ops);
    assert!(ports[1].send(&frame(2, 1)));
    assert_eq!(ports[0].receive_within(BOUND), Some(frame(2, 1)));
    assert!(ports[2].receive().is_none(), "the destination is known: no flood");
}

#[test]
fn a_port_is_taken_away_and_comes_back_while_traffic_flows() {
    let mut testbed = TestBed::new(2);
    let one = testbed.port(1);
    testbed.output(1, 2);
    let number = PortNo::ordinary(2).unwrap();
    for _ in 0..20 {
        let two = testbed.port(2);
        for _ in 0..100 {
            assert!(one.send(&frame(1, 2)));
        }
        assert!(
            two.receive_within(BOUND).is_some(),
            "{:?} {:?}",
            lost(&testbed.control),
            testbed.datapath.worker_stats()
        );
        testbed.control.remove_port(number, &mut testbed.ops);
        testbed.bridge.publish(&mut testbed.ops);
        assert!(testbed.bridge.remove_port(number));
        while two.receive().is_some() {}
    }
    drop(testbed.bridge);
    // Packets that were in flight when a port was removed have been freed.
    let deadline = Instant::now() + BOUND;
    while one.receive().is_some() || testbed.datapath.backend().buffers().unwrap().used > 4096 {
        assert!(Instant::now() < deadline);
    }
}

#[test]
fn a_packet_out_reaches_its_port_and_a_packet_in_the_control_side() {
    let mut testbed = TestBed::new(1);
    let (one, _two) = (testbed.port(1), testbed.port(2));
    let actions = [Action::output(PortNo::ordinary(1).unwrap())];
    testbed
        .bridge
        .packet_out(PortNo::CONTROLLER, &actions, &frame(9, 1))
        .unwrap();
    assert_eq!(one.receive_within(BOUND), Some(frame(9, 1)));
    testbed.flow(None, Instructions::apply([Action::output(PortNo::CONTROLLER)]));
    assert!(one.send(&frame(1, 9)));
    let deadline = Instant::now() + BOUND;
    let (info, packet) = loop {
        if let Some(event) = testbed.bridge.next_packet_in() {
            break event;
        }
        assert!(Instant::now() < deadline);
    };
    assert_eq!((info.in_port.raw(), packet.bytes()), (1, &frame(1, 9)[..]));
}

#[test]
fn a_device_is_opened_once() {
    let mut testbed = TestBed::new(1);
    let _one = testbed.port(1);
    let again = testbed.bridge.add_port(
        PortNo::ordinary(5).unwrap(),
        &DeviceSpec::Memory("m1".into()),
        OPTIONS,
    );
    assert!(again.unwrap_err().to_string().contains("in use"));
    let nic = testbed.bridge.add_port(
        PortNo::ordinary(6).unwrap(),
        &DeviceSpec::Pci("0000:01:00.0".into()),
        OPTIONS,
    );
    assert!(nic.unwrap_err().to_string().contains("--no-dpdk"));
}

#[test]
fn links_join_two_ports_and_capture_files_are_replayed_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("a.pcap"), folder.path().join("b.pcap"));
    let mut testbed = TestBed::new(1);
    let one = testbed.port(1);
    for raw in [2, 3, 4] {
        testbed
            .control
            .set_port(Port::new(PortNo::ordinary(raw).unwrap()), &mut testbed.ops);
    }
    testbed.bridge.publish(&mut testbed.ops);
    for raw in [2, 3] {
        testbed
            .bridge
            .add_port(
                PortNo::ordinary(raw).unwrap(),
                &DeviceSpec::Link("l".into()),
                OPTIONS,
            )
            .unwrap();
    }
    let record = |tx: &std::path::Path, rx: Option<&std::path::Path>| DeviceSpec::Pcap {
        rx: rx.map(Into::into),
        tx: Some(tx.into()),
        repeat: false,
    };
    let four = PortNo::ordinary(4).unwrap();
    testbed
        .bridge
        .add_port(four, &record(&first, None), OPTIONS)
        .unwrap();
    testbed.output(1, 2);
    testbed.output(3, 4);
    for i in 0..10 {
        assert!(one.send(&frame(i, 2)));
    }
    let deadline = Instant::now() + BOUND;
    while testbed.bridge.port_stats(four).unwrap().tx_packets < 10 {
        assert!(Instant::now() < deadline);
    }
    testbed.bridge.remove_port(four);
    testbed.output(4, 1);
    testbed
        .bridge
        .add_port(four, &record(&second, Some(&first)), OPTIONS)
        .unwrap();
    for i in 0..10 {
        assert_eq!(one.receive_within(BOUND), Some(frame(i, 2)));
    }
}
