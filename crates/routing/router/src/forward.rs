//! The forwarding of one burst.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayVec;
use millrace_fib::{GroupId, NextHop, NextHopKind};
use millrace_flow::classify::BURST;
use millrace_pipeline::DropReason;
use millrace_types::Time;
use millrace_wire::{IpProto, Packet, ethernet, ipv4, ipv6};

use crate::class::PuntClass;
use crate::glean::Glean;
use crate::hash::NextHopHash;
use crate::icmp::{ErrorClass, IcmpError};
use crate::interface::Interface;
use crate::limit::Bucket;
use crate::observe::{NoObserver, Observer, RouteStep};
use crate::state::RouterState;
use crate::tunnel::UnderlayPort;

/// The origin of the packets of a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// The index of the bridge.
    pub bridge: u16,
    /// The index of the interface; `None` if the VLAN of each frame says it.
    pub interface: Option<u16>,
    /// The index of the VRF of packets of this machine, which no interface received.
    pub own_vrf: Option<u16>,
    /// True for packets that have waited, and were counted when they arrived.
    pub is_again: bool,
}

impl Arrival {
    /// Returns the arrival of frames at the router of a bridge, whose VLANs say the interface.
    pub const fn of_bridge(bridge: u16) -> Arrival {
        Arrival {
            bridge,
            interface: None,
            own_vrf: None,
            is_again: false,
        }
    }

    /// Returns the arrival of packets that this machine sends by the routes of a VRF.
    pub const fn of_vrf(bridge: u16, vrf: u16) -> Arrival {
        Arrival {
            own_vrf: Some(vrf),
            ..Arrival::of_bridge(bridge)
        }
    }
}

/// A packet that waits: its origin and its destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    pub arrival: Arrival,
    pub glean: Glean,
    /// The index of the VRF.
    pub vrf: u16,
    pub destination: IpAddr,
}

/// The destination of packets. Implementations must neither block nor allocate, because workers call them.
pub trait RouteOutput<P> {
    /// Sends a frame into the VLAN of an interface. The frame has the tag of the VLAN; VLAN 0 has none.
    fn send(&mut self, interface: &Interface, frame: P);

    /// Hands a frame, without tag, to the kernel's interface of the same name.
    fn punt(&mut self, interface: &Interface, class: PuntClass, frame: P);

    /// Keeps a frame, as it arrived, until the neighbour's MAC address is known, and asks the kernel for it. The frame
    /// then passes [`Router::forward`] again. Returns the frame if too many wait.
    ///
    /// # Errors
    /// The frame.
    fn wait(&mut self, waiting: Waiting, frame: P) -> Result<(), P>;

    /// Hands a frame to the underlay port of its tunnel.
    fn decapsulate(&mut self, to: UnderlayPort, frame: P);

    /// Asks the kernel for a neighbour.
    fn probe(&mut self, glean: Glean);

    /// Counts a drop. The packet itself is `None` if its buffer has become an ICMP error.
    fn dropped(&mut self, reason: DropReason, packet: Option<P>);
}

/// The decision of the first stage about a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The route of its destination decides.
    Route,
    /// It is for this machine.
    Kernel,
    /// The kernel gets the frame, which is not an IP packet.
    Punt(PuntClass),
    /// It is dropped, and its sender is told.
    Refuse(DropReason, IcmpError),
    /// It is dropped.
    Drop(DropReason),
}

/// A packet between its arrival and its departure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta {
    pub(crate) verdict: Verdict,
    /// The destination: an IPv4 address in the low bits, or an IPv6 address.
    pub(crate) destination: u128,
    pub(crate) group: GroupId,
    pub(crate) interface: u16,
    pub(crate) vrf: u16,
    /// The offset of the IP header in bytes.
    pub(crate) l3: u8,
    /// The size of the IP header in bytes, with the options of IPv4.
    pub(crate) header_size: u8,
    /// The offset in the IPv4 header of a record of the route that has room; zero for none.
    pub(crate) record_route: u8,
    pub(crate) is_v6: bool,
    /// True if the frame is for a group of hosts: such a frame is not forwarded, and its sender gets no errors.
    pub(crate) is_group_frame: bool,
    /// True if the header has options that a router looks at.
    pub(crate) has_options: bool,
    /// True for a packet of this machine: it is not received, so its TTL stays, and no access list is asked.
    pub(crate) is_own: bool,
}

impl Meta {
    pub(crate) const UNKNOWN: Meta = Meta {
        verdict: Verdict::Drop(DropReason::TooShort),
        destination: 0,
        group: GroupId::NONE,
        interface: u16::MAX,
        vrf: u16::MAX,
        l3: ethernet::SIZE as u8,
        header_size: 0,
        record_route: 0,
        is_v6: false,
        is_group_frame: false,
        has_options: false,
        is_own: false,
    };

    pub(crate) fn l3(&self) -> usize {
        usize::from(self.l3)
    }

    pub(crate) fn destination(&self) -> IpAddr {
        match self.is_v6 {
            true => IpAddr::V6(Ipv6Addr::from_bits(self.destination)),
            false => IpAddr::V4(Ipv4Addr::from_bits(self.destination as u32)),
        }
    }
}

/// The router of one worker: the state that it alone writes. It allocates nothing after [`Router::new`].
#[derive(Debug)]
pub struct Router {
    /// The number of the worker, by which it finds its counters; `None` counts nothing.
    pub(crate) worker: Option<usize>,
    pub(crate) hash: NextHopHash,
    /// By [`PuntClass`].
    pub(crate) punt: [Bucket; PuntClass::COUNT],
    /// By [`ErrorClass`].
    pub(crate) errors: [Bucket; ErrorClass::COUNT],
    /// The findings of the first stage about each packet of a burst.
    metas: Vec<Meta>,
}

impl Router {
    /// Returns the router of a worker. All workers of a router need the same `seed`, or a flow that moves to another worker
    /// would take another next hop.
    pub fn new(worker: usize, seed: u64) -> Router {
        Router {
            worker: Some(worker),
            ..Router::uncounted(seed)
        }
    }

    pub(crate) fn uncounted(seed: u64) -> Router {
        Router {
            worker: None,
            hash: NextHopHash::new(seed),
            punt: Default::default(),
            errors: Default::default(),
            metas: vec![Meta::UNKNOWN; BURST],
        }
    }

    /// Forwards a burst, in order, and leaves it empty.
    #[inline]
    pub fn forward<P: Packet, S: RouteOutput<P>>(
        &mut self,
        state: &RouterState,
        arrival: Arrival,
        burst: &mut ArrayVec<P, BURST>,
        now: Time,
        out: &mut S,
    ) {
        self.forward_observed(state, arrival, burst, now, out, &mut NoObserver);
    }

    pub(crate) fn forward_observed<P: Packet, S: RouteOutput<P>, O: Observer>(
        &mut self,
        state: &RouterState,
        arrival: Arrival,
        burst: &mut ArrayVec<P, BURST>,
        now: Time,
        out: &mut S,
        observer: &mut O,
    ) {
        // Written in place: a value that is moved right after it was written in parts waits for the writes.
        let mut memory = core::mem::take(&mut self.metas);
        let metas = memory.get_mut(..burst.len()).unwrap_or_default();
        let mut pass = Pass {
            router: self,
            state,
            arrival,
            now,
            out,
            observer,
            packet: core::marker::PhantomData,
        };
        for (packet, meta) in burst.iter_mut().zip(&mut *metas) {
            pass.admit(packet, meta);
        }
        pass.look_up(metas);
        // The loads of one packet's next hop depend on each other; those of all packets do not.
        let mut hops: [Option<&NextHop>; BURST] = [None; BURST];
        for ((packet, meta), hop) in burst.iter().zip(&*metas).zip(&mut hops) {
            *hop = pass.member(packet, meta);
        }
        for ((packet, meta), hop) in burst.drain(..).zip(&*metas).zip(&hops) {
            match meta.verdict {
                Verdict::Route => pass.route(packet, meta, *hop),
                _ => pass.refrain(packet, meta),
            }
        }
        self.metas = memory;
    }

    /// Returns true if a packet that waited would not wait any longer.
    pub fn is_resolved(&self, state: &RouterState, waiting: &Waiting) -> bool {
        let Some(vrf) = state.vrf(waiting.vrf) else {
            return true;
        };
        let group = match waiting.destination {
            IpAddr::V4(address) => vrf.fib.lookup_v4(address.to_bits()),
            IpAddr::V6(address) => vrf.fib.lookup_v6(address.to_bits()),
        };
        let member = live_member(state, group, || 0);
        member.is_none_or(|hop| hop.kind() != NextHopKind::Glean)
    }

    /// Sends "host unreachable" about a frame that waited for a neighbour in vain (RFC 1812, section 4.3.3.1), and drops
    /// it.
    pub fn give_up<P: Packet, S: RouteOutput<P>>(
        &mut self,
        state: &RouterState,
        arrival: Arrival,
        mut packet: P,
        now: Time,
        out: &mut S,
    ) {
        let mut pass = Pass {
            router: self,
            state,
            arrival,
            now,
            out,
            observer: &mut NoObserver,
            packet: core::marker::PhantomData,
        };
        let mut meta = Meta::UNKNOWN;
        pass.admit(&mut packet, &mut meta);
        if meta.verdict == Verdict::Route {
            meta.verdict = Verdict::Refuse(DropReason::RouteNeighbour, IcmpError::HostUnreachable);
        }
        pass.refrain(packet, &meta);
    }
}

/// The context of one burst.
pub(crate) struct Pass<'a, P, S, O> {
    pub(crate) router: &'a mut Router,
    pub(crate) state: &'a RouterState,
    pub(crate) arrival: Arrival,
    pub(crate) now: Time,
    pub(crate) out: &'a mut S,
    pub(crate) observer: &'a mut O,
    pub(crate) packet: core::marker::PhantomData<P>,
}

impl<'a, P: Packet, S: RouteOutput<P>, O: Observer> Pass<'a, P, S, O> {
    /// Finds the groups of the destinations: one lookup for all packets of one VRF and family.
    fn look_up(&mut self, metas: &mut [Meta]) {
        let mut rest = metas;
        while let Some(first) = rest.first() {
            let vrf = first.vrf;
            let len = rest.iter().position(|meta| meta.vrf != vrf).unwrap_or(rest.len());
            let (run, others) = rest.split_at_mut(len);
            if let Some(vrf) = self.state.vrf(vrf) {
                look_up_run(&vrf.fib, run);
            }
            rest = others;
        }
    }

    /// Executes the decision of the first stage about a packet that is not routed.
    #[cold]
    fn refrain(&mut self, packet: P, meta: &Meta) {
        match meta.verdict {
            Verdict::Kernel => self.send_to_kernel(packet, meta),
            Verdict::Punt(class) => self.punt(packet, meta, class),
            Verdict::Refuse(reason, error) => self.refuse(packet, meta, reason, error),
            Verdict::Drop(reason) => self.drop(packet, meta.interface, reason),
            // `forward_observed` and `give_up` keep these.
            Verdict::Route => self.drop(packet, meta.interface, DropReason::RouteNone),
        }
    }

    /// Sends a packet where the next hop of its group says.
    #[inline]
    fn route(&mut self, packet: P, meta: &Meta, hop: Option<&NextHop>) {
        let group = (!meta.group.is_none()).then(|| meta.group.number());
        self.observer.note(|| RouteStep::Route {
            destination: meta.destination(),
            group,
        });
        let Some(hop) = hop else {
            return self.refuse(packet, meta, DropReason::RouteNone, IcmpError::NoRoute);
        };
        self.observer.note(|| RouteStep::NextHop(hop.spec()));
        match hop.kind() {
            NextHopKind::NoRoute => self.refuse(packet, meta, DropReason::RouteNone, IcmpError::NoRoute),
            NextHopKind::Forward | NextHopKind::Glean => self.send_to_next_hop(packet, meta, hop),
            NextHopKind::Local => self.send_to_kernel(packet, meta),
            NextHopKind::Blackhole => self.drop(packet, meta.interface, DropReason::RouteBlackhole),
            NextHopKind::Unreachable => {
                // Linux calls both "no route" in IPv6.
                let error = match meta.is_v6 {
                    true => IcmpError::NoRoute,
                    false => IcmpError::HostUnreachable,
                };
                self.refuse(packet, meta, DropReason::RouteUnreachable, error);
            }
            NextHopKind::Prohibit => {
                self.refuse(packet, meta, DropReason::RouteProhibited, IcmpError::Prohibited);
            }
        }
    }

    /// Returns the next hop of a packet: one that is live, if the group of its route has any.
    #[inline]
    pub(crate) fn member(&self, packet: &P, meta: &Meta) -> Option<&'a NextHop> {
        live_member(self.state, meta.group, || self.flow_hash(packet, meta))
    }

    /// Returns the hash of the flow of a packet.
    fn flow_hash(&self, packet: &P, meta: &Meta) -> u64 {
        let ip = packet.head().get(meta.l3()..).unwrap_or_default();
        if meta.is_v6 {
            return self.flow_hash6(ip);
        }
        let Some(header) = ip.first_chunk::<{ ipv4::MIN_SIZE }>() else {
            return 0;
        };
        let is_fragment =
            u16::from_be_bytes([header[6], header[7]]) & (ipv4::MORE_FRAGMENTS | ipv4::FRAGMENT_OFFSET) != 0;
        let ports = match has_ports(IpProto(header[9])) && !is_fragment {
            true => word(ip, usize::from(meta.header_size)),
            false => 0,
        };
        self.router
            .hash
            .of4(word(header, 12), word(header, 16), header[9], ports)
    }

    fn flow_hash6(&self, ip: &[u8]) -> u64 {
        let Some((header, payload)) = ip.split_first_chunk::<{ ipv6::SIZE }>() else {
            return 0;
        };
        let walk = ipv6::walk(IpProto(header[6]), payload);
        let is_whole = walk.fragment == millrace_wire::Fragment::Whole;
        let ports = match has_ports(walk.proto) && is_whole {
            true => word(payload, walk.size),
            false => 0,
        };
        let address = |at: usize| {
            u128::from(word(header, at)) << 96
                | u128::from(word(header, at + 4)) << 64
                | u128::from(word(header, at + 8)) << 32
                | u128::from(word(header, at + 12))
        };
        self.router.hash.of6(address(8), address(24), walk.proto.0, ports)
    }

    /// Counts a drop of a packet that arrived at an interface, and drops it.
    pub(crate) fn drop(&mut self, packet: P, interface: u16, reason: DropReason) {
        self.count_drop(interface, reason);
        self.out.dropped(reason, Some(packet));
    }

    pub(crate) fn count_drop(&mut self, interface: u16, reason: DropReason) {
        self.observer.note(|| RouteStep::Dropped(reason));
        if let Some(interface) = self.state.interface(interface)
            && let Some(counters) = self.counters(interface)
        {
            counters.drops.add(reason, 1);
        }
    }

    /// Returns this worker's counters of an interface.
    #[inline]
    pub(crate) fn counters<'i>(&self, interface: &'i Interface) -> Option<&'i crate::InterfaceCounters> {
        interface.counters.get(self.router.worker?)
    }
}

/// Returns the next hop of a flow: one that is live, if the group has any.
#[inline]
fn live_member(state: &RouterState, group: GroupId, hash: impl FnOnce() -> u64) -> Option<&NextHop> {
    state
        .next_hops()
        .live_member(group, hash, |hop| match hop.kind() {
            NextHopKind::Forward => state
                .interface(hop.interface())
                .is_some_and(|interface| interface.is_up),
            NextHopKind::Glean => false,
            _ => true,
        })
}

/// Finds the groups of packets of one VRF.
fn look_up_run(fib: &millrace_fib::Fib, metas: &mut [Meta]) {
    let mut groups = [GroupId::NONE; BURST];
    let v4: ArrayVec<u32, BURST> = metas
        .iter()
        .filter(|meta| !meta.is_v6)
        .map(|meta| meta.destination as u32)
        .collect();
    if !v4.is_empty() {
        fib.lookup_v4_burst(&v4, &mut groups[..v4.len()]);
        let of_v4 = metas.iter_mut().filter(|meta| !meta.is_v6);
        of_v4.zip(&groups).for_each(|(meta, group)| meta.group = *group);
    }
    if v4.len() < metas.len() {
        let v6: ArrayVec<u128, BURST> = metas
            .iter()
            .filter(|meta| meta.is_v6)
            .map(|meta| meta.destination)
            .collect();
        fib.lookup_v6_burst(&v6, &mut groups[..v6.len()]);
        let of_v6 = metas.iter_mut().filter(|meta| meta.is_v6);
        of_v6.zip(&groups).for_each(|(meta, group)| meta.group = *group);
    }
}

/// Returns true for transport protocols whose header begins with two ports.
#[inline]
fn has_ports(proto: IpProto) -> bool {
    /// RFC 3828.
    const UDP_LITE: IpProto = IpProto(136);
    matches!(proto, IpProto::TCP | IpProto::UDP | IpProto::SCTP | UDP_LITE)
}

/// Returns four bytes as a number; zero beyond the end.
#[inline]
fn word(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk::<4>);
    bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
}
