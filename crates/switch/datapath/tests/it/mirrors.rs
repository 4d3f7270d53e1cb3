//! Mirrors on running workers: of LAGs, to LAGs, of packets that the control side sends, and changes under traffic.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_datapath::io::{DeviceOptions, DeviceSpec, HeapBackend, MemoryPeer};
use millrace_datapath::{Bridge, BridgeSetup, Datapath, Idle, LagRole, Spread, Workers};
use millrace_flow::{Action, Field, Instructions, Match};
use millrace_pipeline::{
    Control, ControlConfig, FlowMod, FlowModCommand, Mirror, MirrorOutput, Mirrors, Op, Port,
};
use millrace_types::{Mac, PortNo, Priority, TableId, Time};
use millrace_wire::{Builder, Frame};

const BOUND: Duration = Duration::from_secs(60);
const HOST: PortNo = PortNo::from_raw(1);
const OTHER: PortNo = PortNo::from_raw(2);
const MONITOR: PortNo = PortNo::from_raw(3);
const LAG: PortNo = PortNo::from_raw(5);
const MEMBERS: [PortNo; 2] = [PortNo::from_raw(11), PortNo::from_raw(12)];

struct TestBed {
    bridge: Bridge<HeapBackend>,
    control: Control,
    datapath: Datapath<HeapBackend>,
}

impl TestBed {
    /// Returns a bridge that passes packets from HOST to a LAG, and from OTHER and the LAG to HOST.
    fn new(workers: usize) -> TestBed {
        let workers = Workers {
            cores: vec![None; workers],
            idle: Idle::Adaptive,
            spread: Spread::Auto,
        };
        let datapath = Datapath::start(Arc::new(HeapBackend::new()), &workers).unwrap();
        let mut control = Control::new(ControlConfig::default());
        let mut ops = Vec::new();
        let counters = (0..=datapath.workers_len()).map(|_| control.counters()).collect();
        let mut bridge = datapath
            .bridge(BridgeSetup {
                forwarding: [control.forwarding(), control.forwarding()],
                counters,
            })
            .unwrap();
        for port in [HOST, OTHER, MONITOR, LAG] {
            control.set_port(Port::new(port), &mut ops);
        }
        for (from, to) in [(HOST, LAG), (LAG, HOST), (OTHER, HOST)] {
            let mut request = FlowMod::new(
                FlowModCommand::Add,
                TableId(0),
                Priority(1),
                Match::exact(&[(Field::InPort, from.raw().into())]).unwrap(),
            );
            request.instructions = Instructions::apply([Action::output(to)]);
            control.flow_mod(request, Time::ZERO, &mut ops).unwrap();
        }
        bridge.publish(&mut ops);
        for port in [HOST, OTHER, MONITOR] {
            let spec = DeviceSpec::Memory(format!("p{port}"));
            bridge.add_port(port, &spec, DeviceOptions::PLAIN).unwrap();
        }
        bridge.add_lag(LAG).unwrap();
        for member in MEMBERS {
            let spec = DeviceSpec::Memory(format!("p{member}"));
            bridge
                .add_member(LAG, member, &spec, DeviceOptions::PLAIN)
                .unwrap();
        }
        let roles = MEMBERS.map(|number| LagRole {
            number,
            collects: true,
            distributes: true,
            takes_lldp: true,
        });
        bridge.set_lag(LAG, &roles);
        TestBed {
            bridge,
            control,
            datapath,
        }
    }

    fn peer(&self, port: PortNo) -> MemoryPeer<Frame> {
        self.datapath.backend().memory(&format!("p{port}"))
    }

    /// Sets the only mirror.
    fn mirror(&mut self, received: &[PortNo], sent: &[PortNo], output: PortNo) -> Mirror {
        let mirror = Mirror {
            received: received.to_vec(),
            sent: sent.to_vec(),
            vlans: None,
            output: MirrorOutput::Port(output),
            snaplen: None,
            counters: Arc::default(),
        };
        self.set(vec![mirror.clone()]);
        mirror
    }

    fn set(&mut self, mirrors: Vec<Mirror>) {
        let mut ops: Vec<Op> = Vec::new();
        self.control.set_mirrors(Mirrors::new(mirrors), &mut ops);
        self.bridge.publish(&mut ops);
    }
}

/// Returns packet `number`, each of another flow.
fn packet(number: u16) -> Frame {
    let bytes = Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]))
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(number, 9)
        .payload(b"packet")
        .build();
    Frame::new(&bytes)
}

/// Sends packet `number`, as soon as the device has room.
fn send(peer: &MemoryPeer<Frame>, number: u16) {
    let deadline = Instant::now() + BOUND;
    while !peer.send(packet(number).bytes()) {
        assert!(Instant::now() < deadline, "no room within {BOUND:?}");
        std::thread::yield_now();
    }
}

/// Receives from the peers until they have `count` packets in all, and returns the packets as bytes, sorted.
fn receive(peers: &[&MemoryPeer<Frame>], count: usize) -> Vec<Vec<u8>> {
    let deadline = Instant::now() + BOUND;
    let mut found = Vec::new();
    while found.len() < count {
        assert!(
            Instant::now() < deadline,
            "{} of {count} within {BOUND:?}",
            found.len()
        );
        let more = peers.iter().filter_map(|peer| peer.receive());
        let before = found.len();
        found.extend(more.map(|frame: Frame| frame.bytes().to_vec()));
        if found.len() == before {
            std::thread::yield_now();
        }
    }
    found.sort();
    found
}

fn packets(count: u16) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = (0..count).map(|number| packet(number).bytes().to_vec()).collect();
    all.sort();
    all
}

const COUNT: u16 = 500;

#[test]
fn a_packet_of_a_lag_is_copied_once_whichever_member_and_worker_handle_it() {
    for workers in [1, 3] {
        let mut bed = TestBed::new(workers);
        let mirror = bed.mirror(&[LAG], &[LAG], MONITOR);
        let (host, monitor) = (bed.peer(HOST), bed.peer(MONITOR));
        let members = MEMBERS.map(|member| bed.peer(member));
        for number in 0..COUNT {
            send(&host, number);
        }
        let sent = receive(&[&members[0], &members[1]], COUNT.into());
        assert_eq!(sent, packets(COUNT), "{workers} workers");
        assert_eq!(receive(&[&monitor], COUNT.into()), packets(COUNT));
        for number in 0..COUNT {
            send(&members[usize::from(number % 2)], number);
        }
        assert_eq!(receive(&[&host], COUNT.into()), packets(COUNT));
        assert_eq!(receive(&[&monitor], COUNT.into()), packets(COUNT));
        assert!(monitor.receive().is_none());
        let count = mirror.counters.read();
        assert_eq!((count.packets, count.lost), (2 * u64::from(COUNT), 0));
    }
}

#[test]
fn copies_leave_by_the_members_of_a_lag() {
    let mut bed = TestBed::new(2);
    bed.mirror(&[OTHER], &[], LAG);
    let members = MEMBERS.map(|member| bed.peer(member));
    for number in 0..COUNT {
        send(&bed.peer(OTHER), number);
    }
    let copies = receive(&[&members[0], &members[1]], COUNT.into());
    assert_eq!(copies, packets(COUNT));
    assert_eq!(receive(&[&bed.peer(HOST)], COUNT.into()), packets(COUNT));
}

#[test]
fn packets_of_the_control_side_are_copied_where_they_leave() {
    let mut bed = TestBed::new(2);
    bed.mirror(&[], &[HOST, LAG], MONITOR);
    let monitor = bed.peer(MONITOR);
    let output = [Action::output(HOST)];
    bed.bridge
        .packet_out(PortNo::CONTROLLER, &output, packet(1).bytes())
        .unwrap();
    assert_eq!(receive(&[&monitor], 1), [packet(1).bytes()]);
    // A frame of a link protocol, of a member.
    bed.bridge.send(MEMBERS[1], packet(2).bytes()).unwrap();
    assert_eq!(receive(&[&monitor], 1), [packet(2).bytes()]);
    assert_eq!(receive(&[&bed.peer(MEMBERS[1])], 1), [packet(2).bytes()]);
}

#[test]
fn mirrors_come_and_go_under_traffic_and_other_packets_lose_nothing() {
    let mut bed = TestBed::new(2);
    let (other, host, monitor) = (bed.peer(OTHER), bed.peer(HOST), bed.peer(MONITOR));
    let mut arrived = Vec::new();
    let mut copies = 0;
    for round in 0..40_u16 {
        match round % 4 {
            0 => drop(bed.mirror(&[OTHER], &[], MONITOR)),
            1 => drop(bed.mirror(&[], &[HOST], MONITOR)),
            2 => drop(bed.mirror(&[OTHER], &[HOST], MONITOR)),
            _ => bed.set(Vec::new()),
        }
        for number in 0..50 {
            send(&other, round * 50 + number);
        }
        arrived.extend(receive(&[&host], 50));
        if round % 4 != 3 {
            copies += receive(&[&monitor], 50).len();
        }
    }
    arrived.sort();
    assert_eq!(arrived, packets(2000));
    assert_eq!(copies, 1500);
    assert!(monitor.receive().is_none());
}

#[test]
fn a_monitor_that_takes_nothing_loses_copies_and_nobody_else_does() {
    let mut bed = TestBed::new(1);
    let mirror = bed.mirror(&[OTHER], &[], MONITOR);
    let (other, host) = (bed.peer(OTHER), bed.peer(HOST));
    // Nobody receives from the monitor's device, whose queue is full in the end.
    let mut sent = 0;
    let deadline = Instant::now() + BOUND;
    while mirror.counters.read().lost == 0 {
        assert!(Instant::now() < deadline, "{:?}", mirror.counters.read());
        for number in 0..100 {
            send(&other, number);
        }
        sent += 100;
        assert_eq!(receive(&[&host], 100).len(), 100);
    }
    assert_eq!(mirror.counters.read().packets, sent);
}
