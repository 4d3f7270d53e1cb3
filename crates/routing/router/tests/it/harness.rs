//! A router in memory with four interfaces in two VRFs, and an output that records every call.
//!
//! ```text
//!  VRF 0: v0  VLAN 0,  10.0.0.1/24,   2001:db8::1/64,    MTU 1500
//!         v10 VLAN 10, 10.0.10.1/24,  2001:db8:10::1/64, MTU 1400
//!         v20 VLAN 20, 10.0.20.1/24,  2001:db8:20::1/64, MTU 1500, bridge 1
//!  VRF 1: v30 VLAN 30, 10.0.10.1/24
//! ```

#![allow(unreachable_pub, reason = "shared by the other files")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayVec;
use millrace_datapath::publish::Replica;
use millrace_fib::{Fib, FibId, GroupId, NextHopId, NextHopKind, NextHopSpec, Prefix, Writer};
use millrace_pipeline::DropReason;
use millrace_router::{
    Address4, Address6, Arrival, Change, EgressMode, Glean, Interface, InterfaceCounters, InterfaceStats,
    PuntClass, RouteOutput, Router, RouterState, UnderlayPort, Waiting,
};
use millrace_types::{Mac, Time, Vid};
use millrace_wire::{Builder, Frame};

pub const SEED: u64 = 7;

/// A call of the output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    Sent(u16, Vec<u8>),
    Punted(u16, PuntClass, Vec<u8>),
    Waits(Glean, Vec<u8>),
    Probe(Glean),
    Decapsulated(UnderlayPort, Vec<u8>),
    Dropped(DropReason),
}

#[derive(Default)]
pub struct Recorder {
    pub events: Vec<Event>,
    /// True if no packet may wait.
    pub is_full: bool,
}

impl RouteOutput<Frame> for Recorder {
    fn send(&mut self, interface: &Interface, frame: Frame) {
        self.events
            .push(Event::Sent(interface.index, frame.bytes().to_vec()));
    }

    fn punt(&mut self, interface: &Interface, class: PuntClass, frame: Frame) {
        let frame = frame.bytes().to_vec();
        self.events.push(Event::Punted(interface.index, class, frame));
    }

    fn wait(&mut self, waiting: Waiting, frame: Frame) -> Result<(), Frame> {
        if self.is_full {
            return Err(frame);
        }
        self.events
            .push(Event::Waits(waiting.glean, frame.bytes().to_vec()));
        Ok(())
    }

    fn decapsulate(&mut self, to: UnderlayPort, frame: Frame) {
        self.events.push(Event::Decapsulated(to, frame.bytes().to_vec()));
    }

    fn probe(&mut self, glean: Glean) {
        self.events.push(Event::Probe(glean));
    }

    fn dropped(&mut self, reason: DropReason, _: Option<Frame>) {
        self.events.push(Event::Dropped(reason));
    }
}

pub fn router_mac(index: u16) -> Mac {
    Mac([2, 0, 0, 0, 1, index as u8])
}

/// Returns the MAC address of host `number` behind an interface.
pub fn host_mac(index: u16, number: u8) -> Mac {
    Mac([2, 0, 0, 1, index as u8, number])
}

pub fn vid(raw: u16) -> Vid {
    Vid::new(raw).unwrap()
}

pub fn interface(index: u16) -> Interface {
    let (vlan, bridge, vrf, mtu) = [
        (0, 0, 0, 1500),
        (10, 0, 0, 1400),
        (20, 1, 0, 1500),
        (30, 0, 1, 1500),
    ][usize::from(index)];
    let octet = if index == 3 { 10 } else { vlan };
    Interface {
        index,
        name: format!("v{vlan}").into(),
        vrf,
        bridge,
        vid: vid(vlan),
        mac: router_mac(index),
        other_macs: Vec::new(),
        mtu,
        is_up: true,
        ipv4: vec![Address4 {
            address: Ipv4Addr::new(10, 0, octet as u8, 1),
            prefix_len: 24,
        }],
        ipv6: vec![Address6 {
            address: format!("2001:db8:{octet}::1").parse().unwrap(),
            prefix_len: 64,
        }],
        acl_in: None,
        acl_out: None,
        egress: EgressMode::Straight,
        counters: InterfaceCounters::for_workers(1),
    }
}

pub struct TestBed {
    pub writer: Writer,
    pub fibs: [FibId; 2],
    pub readers: [Fib; 2],
    pub state: RouterState,
    pub router: Router,
    pub out: Recorder,
    pub now: Time,
    /// Every route, for models.
    pub routes: Vec<(Prefix, NextHopSpec)>,
}

impl TestBed {
    /// Returns the router with the routes that the kernel has by itself, hosts .2 and .3 of each subnet, and no others.
    pub fn new() -> TestBed {
        let mut writer = Writer::new();
        let mut state = RouterState::new(writer.next_hops());
        let made = [0, 1].map(|index| {
            let (id, fib) = writer.add_fib();
            state.apply(&Change::Vrf(index, Some(fib.clone())));
            (id, fib)
        });
        let fibs = [made[0].0, made[1].0];
        let readers = made.map(|(_, fib)| fib);
        let mut bed = TestBed {
            writer,
            fibs,
            readers,
            state,
            router: Router::new(0, SEED),
            out: Recorder::default(),
            now: Time::from_secs(1),
            routes: Vec::new(),
        };
        for index in 0..4 {
            bed.set(interface(index));
            let held = interface(index);
            let own = [IpAddr::V4(held.ipv4[0].address), IpAddr::V6(held.ipv6[0].address)];
            for (address, len) in own.into_iter().zip([24, 64]) {
                let local = NextHopSpec {
                    interface: index,
                    ..NextHopSpec::without_interface(NextHopKind::Local)
                };
                bed.route_in(usize::from(held.vrf), Prefix::host(address), &[local]);
                let connected = NextHopSpec {
                    kind: NextHopKind::Glean,
                    ..hop(index, 0, None)
                };
                bed.route_in(
                    usize::from(held.vrf),
                    Prefix::new(address, len).unwrap(),
                    &[connected],
                );
                for number in [2, 3] {
                    let host = Prefix::host(neighbour(address, number));
                    bed.route_in(usize::from(held.vrf), host, &[hop(index, number, None)]);
                }
            }
        }
        bed
    }

    pub fn set(&mut self, interface: Interface) {
        self.state.apply(&Change::Interface(interface.into()));
    }

    /// Adds a route of VRF 0 by its text, with next hops.
    pub fn route(&mut self, prefix: &str, hops: &[NextHopSpec]) -> (GroupId, Vec<NextHopId>) {
        self.route_in(0, prefix.parse().unwrap(), hops)
    }

    pub fn route_in(
        &mut self,
        vrf: usize,
        prefix: Prefix,
        hops: &[NextHopSpec],
    ) -> (GroupId, Vec<NextHopId>) {
        let ids: Vec<NextHopId> = hops
            .iter()
            .map(|spec| self.writer.add_next_hop(spec).unwrap())
            .collect();
        let members: Vec<(NextHopId, u32)> = ids.iter().map(|id| (*id, 1)).collect();
        let group = self.writer.add_group(&members).unwrap();
        self.writer.insert(self.fibs[vrf], &prefix, group).unwrap();
        if vrf == 0 {
            self.routes.push((prefix, hops[0]));
        }
        (group, ids)
    }

    /// Returns the events of frames that arrive at the router port of bridge 0.
    pub fn receive(&mut self, frames: &[Vec<u8>]) -> Vec<Event> {
        self.receive_frames(frames.iter().map(|frame| Frame::new(frame)).collect())
    }

    pub fn receive_frames(&mut self, frames: Vec<Frame>) -> Vec<Event> {
        let arrival = Arrival::of_bridge(0);
        let mut frames = frames.into_iter().peekable();
        while frames.peek().is_some() {
            let mut burst: ArrayVec<Frame, 64> = frames.by_ref().take(64).collect();
            self.router
                .forward(&self.state, arrival, &mut burst, self.now, &mut self.out);
            assert!(burst.is_empty());
        }
        core::mem::take(&mut self.out.events)
    }

    pub fn one(&mut self, frame: &[u8]) -> Vec<Event> {
        self.receive(&[frame.to_vec()])
    }

    /// Returns the counters of an interface.
    pub fn stats(&self, index: u16) -> InterfaceStats {
        InterfaceStats::of(&self.state.interface(index).unwrap().counters)
    }
}

/// Returns the address of a host in the subnet of a router's address.
pub fn neighbour(own: IpAddr, number: u8) -> IpAddr {
    match own {
        IpAddr::V4(own) => IpAddr::V4(Ipv4Addr::from_bits(own.to_bits() & !0xff | u32::from(number))),
        IpAddr::V6(own) => IpAddr::V6(Ipv6Addr::from_bits(own.to_bits() & !0xff | u128::from(number))),
    }
}

/// Returns the next hop of host `number` behind an interface.
pub fn hop(index: u16, number: u8, gateway: Option<&str>) -> NextHopSpec {
    NextHopSpec {
        kind: NextHopKind::Forward,
        interface: index,
        gateway: gateway.map(|gateway| gateway.parse().unwrap()),
        destination: host_mac(index, number),
        source: router_mac(index),
        mtu: interface(index).mtu,
    }
}

/// Returns the link header of a frame from host 2 of an interface to the router.
pub fn link<'a>(index: u16) -> Builder<'a> {
    let builder = Builder::ethernet(router_mac(index), host_mac(index, 2));
    match interface(index).vid.raw() {
        0 => builder,
        vlan => builder.vlan(vlan, 3),
    }
}

/// Returns a datagram from host 2 of interface v0.
pub fn datagram(dst: &str, ttl: u8, size: usize) -> Vec<u8> {
    let mut frame = match dst.parse().unwrap() {
        IpAddr::V4(dst) => link(0).ipv4([10, 0, 0, 2], dst),
        IpAddr::V6(dst) => link(0).ipv6("2001:db8:0::2".parse::<Ipv6Addr>().unwrap(), dst),
    }
    .udp(1000, 2000)
    .payload(&vec![7; size])
    .build();
    let is_v4 = frame[12..14] == [8, 0];
    let at = if is_v4 { 22 } else { 21 };
    frame[at] = ttl;
    if is_v4 {
        fix_checksum(&mut frame, 14);
    }
    frame
}

/// Sets the checksum of the IPv4 header at an offset.
pub fn fix_checksum(frame: &mut [u8], at: usize) {
    let end = at + usize::from(frame[at] & 15) * 4;
    frame[at + 10..at + 12].fill(0);
    let checksum = millrace_wire::checksum::internet(&frame[at..end]);
    frame[at + 10..at + 12].copy_from_slice(&checksum.to_be_bytes());
}
