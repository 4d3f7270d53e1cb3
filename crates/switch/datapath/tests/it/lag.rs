//! LAGs on running workers: flows stay on one member and move when it leaves, and link protocols stay outside the LAG.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_datapath::io::{DeviceOptions, DeviceSpec, HeapBackend, MemoryPeer};
use millrace_datapath::{Bridge, BridgeSetup, Datapath, Idle, LagRole, Spread, Workers};
use millrace_flow::{Action, Field, Instructions, Match};
use millrace_pipeline::{Control, ControlConfig, DropReason, FlowMod, FlowModCommand, Port};
use millrace_types::{Mac, PortNo, Priority, TableId, Time};
use millrace_wire::{Builder, Frame};

const BOUND: Duration = Duration::from_secs(60);
const HOST: PortNo = PortNo::from_raw(1);
const LAG: PortNo = PortNo::from_raw(5);
const MEMBERS: [PortNo; 2] = [PortNo::from_raw(11), PortNo::from_raw(12)];

struct TestBed {
    bridge: Bridge<HeapBackend>,
    host: MemoryPeer<Frame>,
    members: Vec<MemoryPeer<Frame>>,
    control: Control,
    _datapath: Datapath<HeapBackend>,
}

impl TestBed {
    /// Returns a bridge that passes packets between a host and a LAG of two members.
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
        for (from, to) in [(HOST, LAG), (LAG, HOST)] {
            control.set_port(Port::new(from), &mut ops);
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
        let spec = |name: &str| DeviceSpec::Memory(name.to_owned());
        bridge
            .add_port(HOST, &spec("host"), DeviceOptions::PLAIN)
            .unwrap();
        bridge.add_lag(LAG).unwrap();
        for member in MEMBERS {
            let name = format!("m{member}");
            bridge
                .add_member(LAG, member, &spec(&name), DeviceOptions::PLAIN)
                .unwrap();
        }
        let peer = |name: &str| datapath.backend().memory(name);
        TestBed {
            host: peer("host"),
            members: MEMBERS.iter().map(|member| peer(&format!("m{member}"))).collect(),
            bridge,
            control,
            _datapath: datapath,
        }
    }

    /// Lets these members carry packets, and no others.
    fn carry(&mut self, carrying: &[PortNo]) {
        let roles = MEMBERS.map(|number| LagRole {
            number,
            collects: carrying.contains(&number),
            distributes: carrying.contains(&number),
            takes_lldp: true,
        });
        self.bridge.set_lag(LAG, &roles);
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.control.drops(reason)
    }

    fn until(&self, what: impl Fn(&TestBed) -> bool) {
        let deadline = Instant::now() + BOUND;
        while !what(self) {
            assert!(Instant::now() < deadline, "not within {BOUND:?}");
            std::thread::yield_now();
        }
    }
}

/// Returns packet `number` of a flow.
fn packet(flow: u16, number: u32) -> Vec<u8> {
    Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]))
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(flow, 9)
        .payload(&number.to_be_bytes())
        .build()
}

fn lacpdu() -> Vec<u8> {
    let mut frame = vec![0; 124];
    frame[..14].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 2, 2, 0, 0, 0, 0, 9, 0x88, 0x09]);
    frame[14] = 1;
    frame
}

#[test]
fn a_flow_stays_on_one_member_in_order_and_moves_when_that_member_leaves() {
    for workers in [1, 3] {
        let mut bed = TestBed::new(workers);
        bed.carry(&MEMBERS);
        let mut next = BTreeMap::<u16, u32>::new();
        for carrying in [&MEMBERS[..], &MEMBERS[1..], &MEMBERS[..], &MEMBERS[..1]] {
            bed.carry(carrying);
            let before = next.clone();
            for _ in 0..30 {
                for flow in 0..32 {
                    let number = next.entry(flow).or_default();
                    assert!(bed.host.send(&packet(flow, *number)));
                    *number += 1;
                }
            }
            let mut seen = before;
            let mut members_of = BTreeMap::<u16, Vec<usize>>::new();
            let deadline = Instant::now() + BOUND;
            while seen != next {
                assert!(
                    Instant::now() < deadline,
                    "a packet was lost: {seen:?} of {next:?}"
                );
                for (at, member) in bed.members.iter().enumerate() {
                    let Some(got) = member.receive() else { continue };
                    let bytes = got.bytes();
                    let flow = u16::from_be_bytes([bytes[34], bytes[35]]);
                    let number = u32::from_be_bytes(bytes[42..46].try_into().unwrap());
                    let expected = seen.entry(flow).or_default();
                    assert_eq!(number, *expected, "flow {flow} is in order");
                    *expected += 1;
                    let members = members_of.entry(flow).or_default();
                    if members.last() != Some(&at) {
                        members.push(at);
                    }
                }
            }
            let used: std::collections::BTreeSet<usize> = members_of.values().flatten().copied().collect();
            assert_eq!(
                used.len(),
                carrying.len(),
                "all members that distribute have flows"
            );
            // A flow of a working member may still move to one that joined; no flow moves back.
            assert!(
                members_of.values().all(|members| members.len() <= 2),
                "{members_of:?}"
            );
        }
        bed.carry(&[]);
        assert!(bed.host.send(&packet(1, 0)));
        bed.until(|bed| bed.dropped(DropReason::LagNotDistributing) == 1);
        let stats = bed.bridge.port_stats(LAG).unwrap();
        assert_eq!((stats.tx_packets, stats.tx_dropped), (4 * 30 * 32, 1));
    }
}

#[test]
fn packets_of_any_collecting_member_arrive_at_the_lag_and_those_of_others_are_dropped() {
    let mut bed = TestBed::new(1);
    bed.carry(&MEMBERS[..1]);
    assert!(bed.members[1].send(&packet(1, 0)));
    bed.until(|bed| bed.dropped(DropReason::LagNotCollecting) == 1);
    assert!(bed.members[0].send(&packet(1, 1)));
    assert_eq!(bed.host.receive_within(BOUND), Some(packet(1, 1)));
    bed.carry(&MEMBERS);
    assert!(bed.members[1].send(&packet(1, 2)));
    assert_eq!(bed.host.receive_within(BOUND), Some(packet(1, 2)));
    let received = |port| bed.bridge.port_stats(port).unwrap().rx_packets;
    assert_eq!(
        (received(LAG), received(MEMBERS[0]), received(MEMBERS[1])),
        (3, 1, 2)
    );
}

#[test]
fn frames_of_link_protocols_come_with_the_number_of_their_member_and_a_flood_of_them_is_bounded() {
    let mut bed = TestBed::new(1);
    bed.carry(&MEMBERS[..1]);
    let mut lldp = lacpdu();
    lldp[5] = 0x0e;
    lldp[12..14].copy_from_slice(&[0x88, 0xcc]);
    for frame in [lacpdu(), lldp] {
        assert!(bed.members[1].send(&frame));
        bed.until(|bed| {
            bed.bridge
                .next_oam()
                .is_some_and(|(port, _, got)| port == MEMBERS[1] && got.bytes() == frame)
        });
    }
    for _ in 0..1000 {
        assert!(bed.members[1].send(&lacpdu()));
    }
    // At most two intervals begin meanwhile.
    bed.until(|bed| bed.dropped(DropReason::LinkProtocolLimit) >= 800);
    assert!(bed.members[0].send(&packet(1, 1)));
    assert_eq!(
        bed.host.receive_within(BOUND),
        Some(packet(1, 1)),
        "nothing else came through"
    );
}

#[test]
fn the_control_side_sends_by_a_member_that_does_not_distribute_and_members_can_go() {
    let mut bed = TestBed::new(2);
    bed.carry(&MEMBERS[..1]);
    bed.bridge.send(MEMBERS[1], &lacpdu()).unwrap();
    assert_eq!(bed.members[1].receive_within(BOUND), Some(lacpdu()));
    let before = bed.bridge.port_stats(LAG).unwrap();
    assert_eq!(before.tx_packets, 1);
    bed.carry(&[]);
    assert!(bed.bridge.remove_port(MEMBERS[1]));
    assert_eq!(
        bed.bridge.port_stats(LAG).unwrap(),
        before,
        "counters of a LAG do not go back"
    );
    assert!(bed.bridge.remove_port(LAG));
    assert!(
        bed.bridge.port_stats(MEMBERS[0]).is_none(),
        "a LAG goes with its members"
    );
}
