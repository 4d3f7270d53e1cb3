//! The router in two bridges of one worker, which the test runs round by round.
//!
//! ```text
//!  bridge 0: port 1 (VLANs 0 and 10), port 2 (VLAN 10)   v0 in VLAN 0, v10 in VLAN 10
//!  bridge 1: port 1 (VLAN 20), port 2 (VLAN 20)          v20 in VLAN 20
//! ```

use std::sync::Arc;

use millrace_datapath::io::{Backend, DeviceOptions, DeviceSpec, HeapBackend, MemoryPeer};
use millrace_datapath::{Bridge, BridgeSetup, Datapath, Stepper};
use millrace_fib::{NextHopKind, Prefix};
use millrace_flow::{Action, Instructions, Match};
use millrace_pipeline::{
    Control, ControlConfig, Counters, DropReason, FdbKey, FlowMod, FlowModCommand, Learn, Op, Port,
    PortConfig, Standalone, TunnelKey, VlanMode,
};
use millrace_router::{
    Address4, Change, EgressMode, Interface, RouterHandle, TunnelEnd, TunnelEnds, UNDERLAY_MAC, UnderlayPort,
};
use millrace_types::{Duration, Mac, PortNo, Priority, TableId, Time, TunnelKind, Vid};
use millrace_wire::{Builder, Frame, arp};

use crate::harness::{SEED, TestBed, datagram, hop, host_mac, interface, link, router_mac, vid};

/// The router's port in each bridge.
const ROUTER: PortNo = PortNo::from_raw(100);
/// The port of interface v20.
const V20: PortNo = PortNo::from_raw(120);

/// The control side of a bridge.
struct Side {
    control: Control,
    bridge: Bridge<HeapBackend>,
    /// Those of the worker.
    counters: Arc<Counters>,
}

impl Side {
    fn change(&mut self, change: impl FnOnce(&mut Control, &mut Vec<Op>)) {
        let mut ops = Vec::new();
        change(&mut self.control, &mut ops);
        self.bridge.publish(&mut ops);
        self.bridge.catch_up();
    }

    fn learn(&mut self, vid: Vid, mac: Mac, port: u32) {
        let port = PortNo::from_raw(port);
        self.change(|control, ops| control.learn(Learn { vid, mac, port }, Time::ZERO, ops));
    }
}

struct Lab {
    /// Dropped before the bridges, which wait for it.
    stepper: Option<Stepper<Frame>>,
    sides: Vec<Side>,
    handle: RouterHandle<Frame>,
    bed: TestBed,
    backend: Arc<HeapBackend>,
    _datapath: Datapath<HeapBackend>,
    now: Time,
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stepper = None;
    }
}

impl Lab {
    fn new(standalone: Standalone) -> Lab {
        let backend = Arc::new(HeapBackend::new());
        let (datapath, mut stepper) = Datapath::stepped(Arc::clone(&backend));
        let bed = TestBed::new();
        let mut handle = RouterHandle::new(1, SEED, &bed.writer.next_hops());
        let mut changes = vec![Change::Vrf(0, Some(bed.readers[0].clone()))];
        changes.extend((0..3).map(|index| Change::Interface(interface(index).into())));
        handle.change(&mut changes);
        let access = VlanMode::Access;
        let vlans = [
            [VlanMode::default(), access(vid(10))],
            [access(vid(20)), access(vid(20))],
        ];
        let sides = stepper.serve(|| {
            let with_vlans = vlans.into_iter().zip(0_u16..);
            let side = |(vlans, index): ([VlanMode; 2], u16)| {
                let mut control = Control::new(ControlConfig::default());
                let counters = control.counters();
                let setup = BridgeSetup {
                    forwarding: [control.forwarding(), control.forwarding()],
                    counters: vec![Arc::clone(&counters), control.counters()],
                };
                let mut bridge = datapath.bridge(setup).unwrap();
                let mut ops = Vec::new();
                control.set_standalone(standalone, &mut ops);
                for (vlan, raw) in vlans.into_iter().zip(1..) {
                    let number = PortNo::from_raw(raw);
                    control.set_port(
                        Port {
                            vlan,
                            ..Port::new(number)
                        },
                        &mut ops,
                    );
                    bridge.publish(&mut ops);
                    let device = DeviceSpec::Memory(format!("b{index}p{raw}"));
                    bridge.add_port(number, &device, DeviceOptions::PLAIN).unwrap();
                }
                Side {
                    control,
                    bridge,
                    counters,
                }
            };
            with_vlans.map(side).collect()
        });
        let mut lab = Lab {
            stepper: Some(stepper),
            sides,
            handle,
            bed,
            backend,
            _datapath: datapath,
            now: Time::from_secs(1),
        };
        lab.serve(|lab| {
            for index in 0..2 {
                lab.attach(index);
            }
        });
        lab
    }

    /// Calls `work`, while the worker executes commands.
    fn serve<R>(&mut self, work: impl FnOnce(&mut Lab) -> R) -> R {
        let mut stepper = self.stepper.take().unwrap();
        let result = stepper.serve(|| {
            let result = work(self);
            // The answer to this command comes after all commands before it.
            self.sides
                .iter_mut()
                .for_each(|side| side.bridge.set_captures([]));
            result
        });
        self.stepper = Some(stepper);
        result
    }

    /// Attaches the router to a bridge as the agent does.
    fn attach(&mut self, index: u16) {
        let vlan = self.handle.vlan_mode(index);
        let keys: Vec<FdbKey> = (0..3)
            .map(interface)
            .filter(|interface| interface.bridge == index)
            .map(|interface| FdbKey {
                vid: interface.vid,
                mac: interface.mac,
            })
            .collect();
        let side = &mut self.sides[usize::from(index)];
        side.change(|control, ops| {
            control.set_port(
                Port {
                    vlan,
                    ..Port::new(ROUTER)
                },
                ops,
            );
            for key in keys {
                control.set_static_fdb(key, ROUTER, Time::ZERO, ops);
            }
        });
        self.handle.attach(index, &mut side.bridge, ROUTER).unwrap();
    }

    /// Opens the kernel's interface of an interface, and returns its far end.
    fn shadow(&mut self, index: u16) -> MemoryPeer<Frame> {
        let name = format!("shadow{index}");
        let opened = self
            .backend
            .open(&DeviceSpec::Memory(name.clone()), DeviceOptions::PLAIN)
            .unwrap();
        assert!(self.handle.add_shadow(index, opened));
        self.backend.memory(&name)
    }

    fn peer(&self, index: u16, port: u32) -> MemoryPeer<Frame> {
        self.backend.memory(&format!("b{index}p{port}"))
    }

    /// Runs the worker until all packets have left.
    fn run(&mut self) {
        for _ in 0..6 {
            self.now = self.now + Duration::from_millis(1);
            self.stepper.as_mut().unwrap().forward_round(self.now);
        }
    }

    /// Sends a frame to a port, and returns the frames that the ports of a bridge sent.
    fn pass(&mut self, from: (u16, u32), frame: &[u8], to: (u16, u32)) -> Vec<Vec<u8>> {
        assert!(self.peer(from.0, from.1).send(frame));
        self.run();
        received(&self.peer(to.0, to.1))
    }

    /// Returns all drops of all bridges, for the message of a failure.
    fn all_drops(&self) -> Vec<(DropReason, u64)> {
        let all = DropReason::ALL
            .into_iter()
            .flat_map(|reason| [0, 1].map(|index| (reason, self.drops(index, reason))));
        all.filter(|(_, packets)| *packets != 0).collect()
    }

    fn drops(&self, index: usize, reason: DropReason) -> u64 {
        self.sides[index].counters.drops.read(reason)
    }
}

fn received(peer: &MemoryPeer<Frame>) -> Vec<Vec<u8>> {
    core::iter::from_fn(|| peer.receive())
        .map(|frame| frame.bytes().to_vec())
        .collect()
}

/// Returns the frame of a routed IPv4 packet without tag.
fn routed(frame: &[u8], index: u16, number: u8) -> Vec<u8> {
    let mut expected = frame.to_vec();
    expected[..6].copy_from_slice(&host_mac(index, number).0);
    expected[6..12].copy_from_slice(&router_mac(index).0);
    expected[22] -= 1;
    crate::harness::fix_checksum(&mut expected, 14);
    expected
}

fn request(index: u16) -> Vec<u8> {
    let address = |last| {
        let mut octets = interface(index).ipv4[0].address.octets();
        octets[3] = last;
        octets.into()
    };
    let request = arp::Repr {
        op: arp::REQUEST,
        sha: host_mac(index, 2),
        spa: address(2),
        tha: Mac::ZERO,
        tpa: address(1),
    };
    Builder::ethernet(Mac::BROADCAST, host_mac(index, 2))
        .arp(request)
        .build()
}

#[test]
fn a_bridge_without_controller_routes_between_its_vlans_and_to_other_bridges() {
    let mut lab = Lab::new(Standalone::All);
    lab.sides[0].learn(vid(10), host_mac(1, 2), 2);
    lab.sides[1].learn(vid(20), host_mac(2, 3), 2);
    let frame = datagram("10.0.10.2", 64, 30);
    assert_eq!(lab.pass((0, 1), &frame, (0, 2)), [routed(&frame, 1, 2)]);
    let frame = datagram("10.0.20.3", 64, 30);
    let sent = lab.pass((0, 1), &frame, (1, 2));
    assert_eq!(sent, [routed(&frame, 2, 3)], "{:?}", lab.all_drops());
    let unknown = datagram("10.0.20.2", 64, 30);
    assert_eq!(
        lab.pass((0, 1), &unknown, (1, 1)),
        [routed(&unknown, 2, 2)],
        "flooded in its VLAN"
    );
    assert_eq!(received(&lab.peer(1, 2)).len(), 1);
    let stats = lab.handle.stats(0).unwrap();
    assert_eq!((stats.rx_packets, stats.tx_packets), (3, 0));
    assert_eq!(lab.handle.stats(2).unwrap().tx_packets, 2);
}

#[test]
fn no_host_moves_the_address_of_the_router() {
    let mut lab = Lab::new(Standalone::All);
    lab.sides[0].learn(vid(10), host_mac(1, 2), 2);
    let mut forged = datagram("10.0.10.2", 64, 30);
    forged[..6].copy_from_slice(&Mac::BROADCAST.0);
    forged[6..12].copy_from_slice(&router_mac(0).0);
    lab.pass((0, 1), &forged, (0, 2));
    assert!(
        lab.sides[0]
            .bridge
            .next_learn()
            .is_none_or(|learn| learn.mac != router_mac(0))
    );
    let frame = datagram("10.0.10.2", 64, 30);
    assert_eq!(lab.pass((0, 1), &frame, (0, 2)), [routed(&frame, 1, 2)]);
}

#[test]
fn the_kernel_hears_its_vlan_and_speaks_in_it() {
    let mut lab = Lab::new(Standalone::All);
    let (v0, v10) = (lab.shadow(0), lab.shadow(1));
    assert!(lab.peer(0, 1).send(&request(0)));
    assert!(lab.peer(0, 2).send(&request(1)));
    lab.run();
    assert_eq!(
        (received(&v0), received(&v10)),
        (vec![request(0)], vec![request(1)])
    );
    received(&lab.peer(0, 1));
    received(&lab.peer(0, 2));
    let mut reply = request(1);
    reply[..6].copy_from_slice(&Mac::BROADCAST.0);
    reply[6..12].copy_from_slice(&router_mac(1).0);
    assert!(v10.send(&reply));
    lab.run();
    assert_eq!(received(&lab.peer(0, 2)), [reply.clone()]);
    reply.splice(12..12, [0x81, 0, 0, 10]);
    assert_eq!(received(&lab.peer(0, 1)), [reply], "tagged for the trunk");
    let ping = link(0).ipv4([10, 0, 0, 2], [10, 0, 10, 1]).udp(1, 2).build();
    assert!(lab.peer(0, 1).send(&ping));
    lab.run();
    assert_eq!(
        received(&v0),
        [ping],
        "where it arrived, whichever interface has the address"
    );
    lab.handle.remove_shadow(0);
    lab.run();
    assert_eq!(lab.handle.collect(), 0);
    assert!(lab.peer(0, 1).send(&request(0)));
    lab.run();
    assert_eq!(lab.drops(0, DropReason::RoutePuntFull), 1);
}

#[test]
fn three_packets_wait_for_a_neighbour_and_leave_in_order_when_it_answers() {
    let mut lab = Lab::new(Standalone::All);
    let frames: Vec<Vec<u8>> = (1..=4).map(|size| datagram("10.0.10.77", 64, size)).collect();
    for frame in &frames {
        assert!(lab.peer(0, 1).send(frame));
    }
    lab.run();
    let glean = lab.handle.next_glean().unwrap();
    assert_eq!(
        (glean.interface, glean.neighbour),
        (1, "10.0.10.77".parse().unwrap())
    );
    assert!(lab.handle.next_glean().is_none(), "the kernel is asked once");
    assert_eq!(lab.drops(0, DropReason::RouteNeighbour), 1);
    lab.sides[0].learn(vid(10), host_mac(1, 77), 2);
    lab.bed
        .route_in(0, Prefix::host(glean.neighbour), &[hop(1, 77, None)]);
    lab.run();
    let expected: Vec<Vec<u8>> = frames[..3].iter().map(|frame| routed(frame, 1, 77)).collect();
    assert_eq!(received(&lab.peer(0, 2)), expected);
    assert_eq!(lab.handle.stats(0).unwrap().rx_packets, 4, "each is counted once");
}

#[test]
fn the_sender_is_told_after_three_seconds_that_a_neighbour_does_not_answer() {
    let mut lab = Lab::new(Standalone::All);
    lab.sides[0].learn(vid(0), host_mac(0, 2), 1);
    assert!(lab.peer(0, 1).send(&datagram("10.0.10.78", 64, 30)));
    lab.run();
    assert!(received(&lab.peer(0, 1)).is_empty());
    lab.now = lab.now + Duration::from_secs(3);
    lab.run();
    let told = received(&lab.peer(0, 1));
    assert_eq!((told.len(), &told[0][34..36]), (1, &[3, 1][..]));
    assert_eq!(lab.drops(0, DropReason::RouteNeighbour), 1);
}

/// Adds an entry that outputs packets of a port.
fn entry(side: &mut Side, in_port: PortNo, out: PortNo) {
    let match_ = Match::exact(&[(millrace_flow::Field::InPort, u128::from(in_port.raw()))]).unwrap();
    let mut entry = FlowMod::new(FlowModCommand::Add, TableId(0), Priority(1), match_);
    entry.instructions = Instructions::apply([Action::output(out)]);
    side.change(|control, ops| {
        control.flow_mod(entry, Time::ZERO, ops).unwrap();
    });
}

#[test]
fn a_controller_lends_packets_to_an_interface_and_gets_routed_ones_in_its_tables() {
    let mut lab = Lab::new(Standalone::Off);
    let numbered = Interface {
        egress: EgressMode::Tables(V20),
        ..interface(2)
    };
    lab.handle.change(&mut vec![Change::Interface(numbered.into())]);
    let frame = datagram("10.0.20.2", 64, 30);
    assert!(
        lab.pass((0, 1), &frame, (1, 1)).is_empty(),
        "the tables have no entry"
    );
    entry(&mut lab.sides[0], PortNo::from_raw(1), PortNo::NORMAL);
    lab.serve(|lab| {
        let side = &mut lab.sides[1];
        side.change(|control, ops| {
            let port = Port {
                config: PortConfig::NO_FLOOD,
                ..Port::new(V20)
            };
            control.set_port(port, ops);
        });
        lab.handle.attach_number(1, &mut side.bridge, V20, 2).unwrap();
    });
    entry(&mut lab.sides[1], V20, PortNo::from_raw(2));
    let mut expected = routed(&frame, 2, 2);
    expected.splice(12..12, [0x81, 0, 0, 20]);
    assert_eq!(
        lab.pass((0, 1), &frame, (1, 2)),
        [expected],
        "as the tables say, with the tag of the VLAN"
    );
    entry(&mut lab.sides[1], PortNo::from_raw(1), V20);
    lab.sides[0].learn(vid(10), host_mac(1, 2), 2);
    let lent = Builder::ethernet(router_mac(2), host_mac(2, 2));
    let lent = lent.ipv4([10, 0, 20, 2], [10, 0, 10, 2]).udp(1, 2).build();
    assert_eq!(lab.pass((1, 1), &lent, (0, 2)), [routed(&lent, 1, 2)]);
    assert_eq!(lab.handle.stats(2).unwrap().rx_packets, 1);
}

#[test]
fn a_bridge_without_router_keeps_its_packets_and_gets_the_router_back() {
    let mut lab = Lab::new(Standalone::All);
    let _v0 = lab.shadow(0);
    lab.sides[0].learn(vid(10), host_mac(1, 2), 2);
    lab.serve(|lab| {
        let side = &mut lab.sides[0];
        side.change(|control, ops| control.remove_port(ROUTER, ops));
        lab.handle.detach(0, &mut side.bridge);
    });
    let frame = datagram("10.0.10.2", 64, 30);
    assert!(lab.pass((0, 1), &frame, (0, 2)).is_empty());
    lab.serve(|lab| lab.attach(0));
    assert_eq!(lab.pass((0, 1), &frame, (0, 2)), [routed(&frame, 1, 2)]);
    let frame = Builder::ethernet(router_mac(2), host_mac(2, 2));
    let frame = frame.ipv4([10, 0, 20, 2], [10, 0, 10, 2]).udp(1, 2).build();
    assert_eq!(lab.pass((1, 1), &frame, (0, 2)), [routed(&frame, 1, 2)]);
}

#[test]
fn a_change_of_addresses_takes_effect_at_once() {
    let mut lab = Lab::new(Standalone::All);
    lab.sides[0].learn(vid(0), host_mac(0, 2), 1);
    let frame = datagram("203.0.113.1", 64, 30);
    let source = |frames: Vec<Vec<u8>>| frames[0][26..30].to_vec();
    assert_eq!(source(lab.pass((0, 1), &frame, (0, 1))), [10, 0, 0, 1]);
    let renumbered = Interface {
        ipv4: vec![Address4 {
            address: [10, 0, 0, 5].into(),
            prefix_len: 24,
        }],
        ..interface(0)
    };
    lab.handle.change(&mut vec![Change::Interface(renumbered.into())]);
    lab.handle.grace_period();
    assert_eq!(source(lab.pass((0, 1), &frame, (0, 1))), [10, 0, 0, 5]);
    assert_eq!(
        lab.bed
            .routes
            .iter()
            .filter(|(_, hop)| hop.kind == NextHopKind::Local)
            .count(),
        6
    );
}

/// The index of a passive interface, in bridge 0, and its port there; the underlay port of tunnels of bridge 1.
const PASSIVE: u16 = 3;
const TAP: PortNo = PortNo::from_raw(2);
const UNDERLAY: PortNo = PortNo::from_raw(130);

/// A lab whose port 2 of bridge 0 has a tap with the addresses of [`interface`] 3, which carries a tunnel of bridge 1.
fn with_tap() -> Lab {
    let mut lab = Lab::new(Standalone::Off);
    let passive = Interface {
        vrf: 0,
        vid: vid(0),
        egress: EgressMode::Kernel(TAP),
        ..interface(PASSIVE)
    };
    let end = TunnelEnd {
        kind: TunnelKind::Vxlan,
        udp_port: 4789,
        local: [192, 0, 2, 1].into(),
        remote: [192, 0, 2, 2].into(),
        key: TunnelKey::Fixed(42),
    };
    let port = UnderlayPort {
        bridge: 1,
        port: UNDERLAY,
    };
    lab.handle.change(&mut vec![
        Change::Interface(passive.into()),
        Change::Tunnels(0, TunnelEnds::new([(end, port)]).into()),
    ]);
    lab.bed.route("192.0.2.2/32", &[hop(PASSIVE, 2, None)]);
    lab.serve(|lab| {
        let side = &mut lab.sides[1];
        side.change(|control, ops| control.set_port(Port::new(UNDERLAY), ops));
        lab.handle
            .attach_underlay(1, &mut side.bridge, UNDERLAY, 0)
            .unwrap();
        let side = &mut lab.sides[0];
        lab.handle.divert(0, &mut side.bridge, TAP, PASSIVE).unwrap();
    });
    entry(&mut lab.sides[0], PortNo::from_raw(1), TAP);
    entry(&mut lab.sides[0], TAP, PortNo::from_raw(1));
    entry(&mut lab.sides[1], UNDERLAY, PortNo::from_raw(1));
    entry(&mut lab.sides[1], PortNo::from_raw(1), UNDERLAY);
    lab
}

fn vxlan(macs: [Mac; 2], addresses: [[u8; 4]; 2]) -> Vec<u8> {
    let mut payload = vec![8, 0, 0, 0];
    payload.extend((42_u32 << 8).to_be_bytes());
    payload.extend([5; 60]);
    let header = Builder::ethernet(macs[0], macs[1]).ipv4(addresses[0], addresses[1]);
    header.udp(50_000, 4789).payload(&payload).build()
}

#[test]
fn a_tap_device_gets_all_packets_but_those_of_tunnels_for_its_own_address() {
    let mut lab = with_tap();
    let (near, far) = ([192, 0, 2, 1], [192, 0, 2, 2]);
    let (tap, host) = (router_mac(PASSIVE), host_mac(PASSIVE, 2));
    let of_tunnel = vxlan([tap, host], [far, near]);
    let mut expected = of_tunnel.clone();
    expected[..6].copy_from_slice(&UNDERLAY_MAC.0);
    expected[6..12].copy_from_slice(&UNDERLAY_MAC.0);
    assert_eq!(
        lab.pass((0, 1), &of_tunnel, (1, 1)),
        [expected],
        "{:?}",
        lab.all_drops()
    );
    assert!(received(&lab.peer(0, 2)).is_empty());
    // For another address of the link, of the network, and of another program: the kernel decides.
    let ssh = Builder::ethernet(tap, host).ipv4(far, near);
    for frame in [
        vxlan([Mac::BROADCAST, host], [far, near]),
        vxlan([host_mac(PASSIVE, 3), host], [far, near]),
        vxlan([tap, host], [far, [192, 0, 2, 3]]),
        ssh.udp(50_000, 22).payload(&[1; 30]).build(),
        request(0),
    ] {
        assert_eq!(lab.pass((0, 1), &frame, (0, 2)), [&*frame]);
    }
    assert!(received(&lab.peer(1, 1)).is_empty());

    // Without the diversion the kernel gets all, as from a bridge without tunnels.
    lab.serve(|lab| {
        let side = &mut lab.sides[0];
        lab.handle.end_diversion(&mut side.bridge, TAP);
    });
    assert_eq!(lab.pass((0, 1), &of_tunnel, (0, 2)), [of_tunnel]);
}

#[test]
fn a_tunnels_packet_enters_the_bridge_of_its_route_as_if_the_kernel_had_sent_it() {
    let mut lab = with_tap();
    let sent = vxlan([UNDERLAY_MAC; 2], [[192, 0, 2, 1], [192, 0, 2, 2]]);
    let mut expected = sent.clone();
    expected[..6].copy_from_slice(&host_mac(PASSIVE, 2).0);
    expected[6..12].copy_from_slice(&router_mac(PASSIVE).0);
    assert_eq!(
        lab.pass((1, 1), &sent, (0, 1)),
        [expected],
        "{:?}",
        lab.all_drops()
    );
    // The router itself receives nothing at a passive interface.
    assert!(
        lab.handle
            .state()
            .interface_in(0, vid(0))
            .is_some_and(|held| held.index == 0)
    );
    let VlanMode::Trunk { allowed, .. } = lab.handle.vlan_mode(0) else {
        panic!("a trunk");
    };
    assert!(!allowed.unwrap().contains(vid(30)));
}
