//! The last stages: TTL, MTU, the new link header; packets for the kernel; ICMP errors.

use core::net::IpAddr;

use millrace_fib::{NextHop, NextHopKind};
use millrace_pipeline::DropReason;
use millrace_types::Mac;
use millrace_wire::checksum::Change;
use millrace_wire::segment::GsoLayout;
use millrace_wire::{EtherType, Fragment, IpProto, Packet, ethernet, ipv4, ipv6};

use crate::class::PuntClass;
use crate::forward::{Arrival, Meta, Pass, RouteOutput, Waiting};
use crate::fragment::{Fragmented, fragment};
use crate::glean::Glean;
use crate::icmp::{self, IcmpError};
use crate::interface::Interface;
use crate::link;
use crate::observe::{AclSide, Observer, RouteStep};
use crate::options;
use crate::tunnel::{UNDERLAY_MAC, UnderlayPort};

impl<P: Packet, S: RouteOutput<P>, O: Observer> Pass<'_, P, S, O> {
    /// Sends a packet to a neighbour.
    #[inline]
    pub(crate) fn send_to_next_hop(&mut self, mut packet: P, meta: &Meta, hop: &NextHop) {
        let Some(interface) = self.state.interface(hop.interface()).filter(|out| out.is_up) else {
            return self.refuse(packet, meta, DropReason::RouteInterfaceDown, IcmpError::NoRoute);
        };
        if meta.is_group_frame {
            return self.drop(packet, meta.interface, DropReason::RouteBroadcast);
        }
        if !meta.is_v6 && !hop.has_gateway() && interface.is_broadcast((meta.destination as u32).into()) {
            return self.drop(packet, meta.interface, DropReason::RouteBroadcast);
        }
        let l3 = meta.l3();
        let ttl = byte(packet.head(), l3 + ttl_at(meta));
        if ttl <= 1 && !meta.is_own {
            return self.refuse(packet, meta, DropReason::RouteTtl, IcmpError::TimeExceeded);
        }
        if meta.is_v6 {
            let is_of_link = |address: Option<IpAddr>| matches!(address, Some(IpAddr::V6(address)) if address.is_unicast_link_local());
            if is_of_link(Some(meta.destination())) {
                return self.drop(packet, meta.interface, DropReason::RouteScope);
            }
            let ip = packet.head().get(l3..).unwrap_or_default();
            if is_of_link(source_of(ip, true)) && interface.index != meta.interface {
                return self.refuse(packet, meta, DropReason::RouteScope, IcmpError::BeyondScope);
            }
        }
        let mtu = hop.mtu().min(interface.mtu);
        let is_long = ip_size(&packet, l3) > usize::from(mtu);
        if is_long && (meta.is_v6 || dont_fragment(packet.head(), l3)) {
            return self.refuse(packet, meta, DropReason::RouteMtu, IcmpError::TooBig { mtu });
        }
        if !meta.is_own && !self.permits(&packet, interface.acl_out.as_deref(), AclSide::Out) {
            return self.drop(packet, meta.interface, DropReason::RouteAclOut);
        }
        if hop.kind() != NextHopKind::Forward {
            let neighbour = hop.gateway().unwrap_or_else(|| meta.destination());
            return self.wait(packet, meta, interface, neighbour);
        }
        hop.mark_used();
        if !meta.is_own {
            self.observer.note(|| RouteStep::TimeToLive {
                before: ttl,
                after: ttl - 1,
            });
            lower_ttl(packet.head_mut(), meta);
        }
        if meta.record_route != 0 {
            record_route(packet.head_mut(), meta, interface);
        }
        let (macs, kind) = ((hop.destination(), hop.source()), ether_type(meta.is_v6));
        let Ok(l3) = link::write(&mut packet, l3, macs, interface.vid, kind) else {
            return self.drop(packet, meta.interface, DropReason::NoHeadroom);
        };
        match is_long {
            false => self.send(interface, packet),
            true => self.send_fragments(packet, l3, meta, interface, mtu),
        }
    }

    /// Keeps a packet until its next hop is known, if the class of such packets is within its rate.
    #[cold]
    fn wait(&mut self, packet: P, meta: &Meta, interface: &Interface, neighbour: IpAddr) {
        let glean = Glean {
            interface: interface.index,
            neighbour,
        };
        let class = PuntClass::Glean as usize;
        let rate = self.state.rates.punt[class];
        if !self.router.punt[class].passes(rate, self.now) {
            if let Some(counters) = self.counters(interface) {
                counters.punt_limited[class].add(1);
            }
            return self.drop(packet, meta.interface, DropReason::RoutePuntLimit);
        }
        if let Some(counters) = self.counters(interface) {
            counters.punted[class].add(1);
        }
        self.observer.note(|| RouteStep::Waits {
            interface: interface.name.clone(),
            neighbour,
        });
        let waiting = Waiting {
            arrival: Arrival {
                interface: Some(meta.interface),
                is_again: true,
                ..self.arrival
            },
            glean,
            vrf: meta.vrf,
            destination: meta.destination(),
        };
        if let Err(packet) = self.out.wait(waiting, packet) {
            self.drop(packet, meta.interface, DropReason::RouteNeighbour);
        }
    }

    /// Puts a frame into the VLAN of an interface.
    #[inline]
    fn send(&mut self, interface: &Interface, frame: P) {
        if let Some(counters) = self.counters(interface) {
            counters.tx_packets.add(1);
            counters.tx_bytes.add(frame.len() as u64);
        }
        self.observer.note(|| {
            let mut bytes = Vec::new();
            frame.copy_to(&mut bytes, usize::MAX);
            RouteStep::Sent {
                interface: interface.name.clone(),
                frame: bytes,
            }
        });
        self.out.send(interface, frame);
    }

    /// Sends a packet, which has its new link header, in fragments.
    #[cold]
    fn send_fragments(&mut self, packet: P, l3: usize, meta: &Meta, interface: &Interface, mtu: u16) {
        self.observer.note(|| RouteStep::Fragmented { mtu });
        let layout = GsoLayout::of(&packet);
        let segments = layout.as_ref().map_or(1, GsoLayout::count);
        let mut outcome = Fragmented::All;
        for number in 0..segments {
            let segment = layout.as_ref().map(|layout| layout.segment(&packet, number));
            let whole = match &segment {
                None => &packet,
                Some(Some(segment)) => segment,
                Some(None) => {
                    outcome = Fragmented::NoBuffer;
                    break;
                }
            };
            let (header_size, mtu) = (usize::from(meta.header_size), usize::from(mtu));
            outcome = fragment(whole, l3, header_size, mtu, |fragment| {
                if let Some(counters) = self.counters(interface) {
                    counters.fragments.add(1);
                }
                self.send(interface, fragment);
            });
        }
        match outcome {
            Fragmented::All => drop(packet),
            Fragmented::NoBuffer => self.drop(packet, meta.interface, DropReason::NoBuffer),
            Fragmented::TooSmall => self.drop(packet, meta.interface, DropReason::RouteMtu),
        }
    }

    /// Hands an IP packet for this machine to the tunnel that it belongs to, or to the kernel.
    pub(crate) fn send_to_kernel(&mut self, mut packet: P, meta: &Meta) {
        let mut meta = *meta;
        if let Some(tunnels) = self.state.vrf(meta.vrf).and_then(|vrf| vrf.tunnels.as_deref())
            && !meta.is_own
        {
            link::untag(&mut packet, meta.l3());
            meta.l3 = ethernet::SIZE as u8;
            if let Some(to) = tunnels.port_of(&packet) {
                return self.send_to_tunnel(packet, to);
            }
        }
        let meta = &meta;
        let ip = packet.head().get(meta.l3()..).unwrap_or_default();
        let (proto, at, is_later) = match meta.is_v6 {
            false => {
                let offset = u16::from_be_bytes([byte(ip, 6), byte(ip, 7)]) & ipv4::FRAGMENT_OFFSET;
                (IpProto(byte(ip, 9)), usize::from(meta.header_size), offset != 0)
            }
            true => {
                let walk = ipv6::walk(IpProto(byte(ip, 6)), ip.get(ipv6::SIZE..).unwrap_or_default());
                (
                    walk.proto,
                    ipv6::SIZE + walk.size,
                    walk.fragment == Fragment::Later,
                )
            }
        };
        let transport = ip.get(at..).filter(|_| !is_later).unwrap_or_default();
        let class = PuntClass::of(proto, transport, meta.has_options);
        self.punt(packet, meta, class);
    }

    /// Hands an encapsulated packet to the bridge that decapsulates it.
    fn send_to_tunnel(&mut self, mut packet: P, to: UnderlayPort) {
        self.observer.note(|| RouteStep::Tunnel { port: to.port });
        if let Some(macs) = packet.head_mut().first_chunk_mut::<12>() {
            macs[..6].copy_from_slice(&UNDERLAY_MAC.0);
            macs[6..].copy_from_slice(&UNDERLAY_MAC.0);
        }
        self.out.decapsulate(to, packet);
    }

    /// Hands a frame to the kernel, if its class is within its rate.
    pub(crate) fn punt(&mut self, mut packet: P, meta: &Meta, class: PuntClass) {
        let Some(interface) = self.state.interface(meta.interface) else {
            return self.drop(packet, meta.interface, DropReason::RouteNoInterface);
        };
        let rate = self.state.rates.punt[class as usize];
        if !self.router.punt[class as usize].passes(rate, self.now) {
            if let Some(counters) = self.counters(interface) {
                counters.punt_limited[class as usize].add(1);
            }
            return self.drop(packet, meta.interface, DropReason::RoutePuntLimit);
        }
        if let Some(counters) = self.counters(interface) {
            counters.punted[class as usize].add(1);
        }
        self.observer.note(|| RouteStep::Punted {
            interface: interface.name.clone(),
            class,
        });
        link::untag(&mut packet, meta.l3());
        self.out.punt(interface, class, packet);
    }

    /// Drops a packet, and tells its sender why, if it may be told.
    #[cold]
    pub(crate) fn refuse(&mut self, packet: P, meta: &Meta, reason: DropReason, error: IcmpError) {
        let sender = sender_of(packet.head());
        match self.make_error(packet, meta, error) {
            Err(packet) => {
                self.observer.note(|| RouteStep::NoError(error));
                self.drop(packet, meta.interface, reason);
            }
            Ok(answer) => {
                self.count_drop(meta.interface, reason);
                self.out.dropped(reason, None);
                if let Some(answer) = answer {
                    self.send_error(answer, meta, sender);
                }
            }
        }
    }

    /// Makes an ICMP error of the packet that it is about, which begins at the IP header. Returns `Ok(None)` if the packet
    /// was lost for lack of buffers.
    ///
    /// # Errors
    /// The packet, if no error may be sent about it now.
    fn make_error(&mut self, packet: P, meta: &Meta, error: IcmpError) -> Result<Option<P>, P> {
        let ip = packet.head().get(meta.l3()..).unwrap_or_default();
        let may_answer = match meta.is_v6 {
            false => !meta.is_group_frame && icmp::may_answer4(ip, usize::from(meta.header_size)),
            true => icmp::may_answer6(ip, error, meta.is_group_frame),
        };
        let Some(interface) = self.state.interface(meta.interface).filter(|_| may_answer) else {
            return Err(packet);
        };
        let source = match source_of(ip, meta.is_v6) {
            Some(IpAddr::V4(to)) => interface.source4(to).map(IpAddr::V4),
            Some(IpAddr::V6(to)) => interface.source6(to).map(IpAddr::V6),
            None => None,
        };
        let Some(source) = source else {
            return Err(packet);
        };
        let class = error.class() as usize;
        let rate = self.state.rates.errors[class];
        if !self.router.errors[class].passes(rate, self.now) {
            if let Some(counters) = self.counters(interface) {
                counters.errors_limited[class].add(1);
            }
            return Err(packet);
        }
        if let Some(counters) = self.counters(interface) {
            counters.errors[class].add(1);
        }
        self.observer.note(|| RouteStep::Error { error, source });
        Ok(match source {
            IpAddr::V4(source) => icmp::make4(packet, meta.l3(), error, source),
            IpAddr::V6(source) => icmp::make6(packet, meta.l3(), error, source),
        })
    }

    /// Sends an ICMP error, which begins at its IP header, by the route to its destination. The addresses of a link have no
    /// route of their own: the error goes back to the host that sent the frame.
    fn send_error(&mut self, mut answer: P, about: &Meta, sender: Mac) {
        let destination = match about.is_v6 {
            false => answer
                .head()
                .get(16..20)
                .map(|bytes| bytes.iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte))),
            true => answer
                .head()
                .get(24..40)
                .map(|bytes| bytes.iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte))),
        };
        let (Some(destination), Some(vrf)) = (destination, self.state.vrf(about.vrf)) else {
            return;
        };
        let mut meta = Meta {
            destination,
            l3: 0,
            header_size: if about.is_v6 { ipv6::SIZE } else { ipv4::MIN_SIZE } as u8,
            is_group_frame: false,
            ..*about
        };
        let kind = ether_type(meta.is_v6);
        if matches!(meta.destination(), IpAddr::V6(address) if address.is_unicast_link_local()) {
            if let Some(interface) = self.state.interface(about.interface)
                && link::write(&mut answer, 0, (sender, interface.mac), interface.vid, kind).is_ok()
            {
                self.send(interface, answer);
            }
            return;
        }
        meta.group = match about.is_v6 {
            false => vrf.fib.lookup_v4(destination as u32),
            true => vrf.fib.lookup_v6(destination),
        };
        let Some(hop) = self.member(&answer, &meta) else {
            return;
        };
        let Some(interface) = self.state.interface(hop.interface()).filter(|out| out.is_up) else {
            return;
        };
        match hop.kind() {
            NextHopKind::Forward => {
                hop.mark_used();
                let macs = (hop.destination(), hop.source());
                if link::write(&mut answer, 0, macs, interface.vid, kind).is_ok() {
                    self.send(interface, answer);
                }
            }
            // The next error about a packet of the same sender finds the address.
            NextHopKind::Glean => self.out.probe(Glean {
                interface: interface.index,
                neighbour: hop.gateway().unwrap_or_else(|| meta.destination()),
            }),
            _ => {}
        }
    }
}

fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or_default()
}

#[inline]
fn ether_type(is_v6: bool) -> EtherType {
    if is_v6 { EtherType::IPV6 } else { EtherType::IPV4 }
}

/// Returns the offset in the IP header of the TTL or hop limit.
#[inline]
fn ttl_at(meta: &Meta) -> usize {
    if meta.is_v6 { 7 } else { 8 }
}

/// Returns the source address of a frame.
fn sender_of(frame: &[u8]) -> Mac {
    let octets = frame.get(6..).and_then(<[u8]>::first_chunk::<6>);
    octets.map_or(Mac::ZERO, |octets| Mac(*octets))
}

/// Returns the source of an IP packet.
fn source_of(ip: &[u8], is_v6: bool) -> Option<IpAddr> {
    match is_v6 {
        false => ip
            .get(12..)?
            .first_chunk::<4>()
            .map(|octets| IpAddr::from(*octets)),
        true => ip
            .get(8..)?
            .first_chunk::<16>()
            .map(|octets| IpAddr::from(*octets)),
    }
}

/// Returns the size of an IP packet in bytes; of a GSO packet, that of its largest segment.
#[inline]
fn ip_size<P: Packet>(packet: &P, l3: usize) -> usize {
    match packet.segment_size() {
        None => packet.len() - l3,
        Some(_) => GsoLayout::of(packet).map_or(packet.len() - l3, |layout| layout.packet_size()),
    }
}

#[inline]
fn dont_fragment(head: &[u8], l3: usize) -> bool {
    byte(head, l3 + 6) & (ipv4::DONT_FRAGMENT >> 8) as u8 != 0
}

/// Lowers the TTL, which is above 1, and updates the checksum of IPv4.
#[inline]
fn lower_ttl(head: &mut [u8], meta: &Meta) {
    let l3 = meta.l3();
    if meta.is_v6 {
        if let Some(hop_limit) = head.get_mut(l3 + 7) {
            *hop_limit -= 1;
        }
        return;
    }
    let Some(ip) = head
        .get_mut(l3..)
        .and_then(<[u8]>::first_chunk_mut::<{ ipv4::MIN_SIZE }>)
    else {
        return;
    };
    let before = u16::from_be_bytes([ip[8], ip[9]]);
    ip[8] -= 1;
    let change = Change::of16(before, u16::from_be_bytes([ip[8], ip[9]]));
    let checksum = change.apply(u16::from_be_bytes([ip[10], ip[11]]));
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// Writes the address of the egress interface into the record of the route.
#[cold]
fn record_route(head: &mut [u8], meta: &Meta, interface: &Interface) {
    let end = meta.l3() + usize::from(meta.header_size);
    let (Some(own), Some(header)) = (interface.ipv4.first(), head.get_mut(meta.l3()..end)) else {
        return;
    };
    options::record(header, usize::from(meta.record_route), own.address);
    header[10..12].fill(0);
    let checksum = millrace_wire::checksum::internet(header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}
