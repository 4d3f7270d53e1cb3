//! The first stage: the link header, the checks of the IP header, and packets that are not routed.
//!
//! The order is that of Linux, so that both name the same error of a packet with several.

use core::net::{Ipv4Addr, Ipv6Addr};

use millrace_pipeline::DropReason;
use millrace_types::{Mac, Vid};
use millrace_wire::checksum::Sum;
use millrace_wire::{EtherType, IpProto, Packet, ethernet, ipv4, ipv6};

use crate::acl::{Acl, AclAction};
use crate::class::{self, PuntClass};
use crate::forward::{Meta, Pass, RouteOutput, Verdict};
use crate::icmp::IcmpError;
use crate::interface::Interface;
use crate::link::LINK_MAX;
use crate::observe::{AclSide, Observer, RouteStep};
use crate::options::{self, HopByHopError};

/// The longest payload of an 802.3 frame; larger values are EtherTypes (IEEE 802.3, section 3.2.6).
const LENGTH_MAX: u16 = 1500;
/// LLC header of ISO network protocols: DSAP and SSAP 0xfe, unnumbered information.
const LLC_ISO: [u8; 3] = [0xfe, 0xfe, 0x03];
/// The network layer protocol of IS-IS (ISO 10589, section 9).
const NLPID_ISIS: u8 = 0x83;
/// The first bits of IPv4-mapped IPv6 addresses, which are never on the wire (RFC 4291, section 2.5.5.2).
const MAPPED: u128 = 0xffff;

impl<P: Packet, S: RouteOutput<P>, O: Observer> Pass<'_, P, S, O> {
    /// Checks a frame, cuts padding off, and writes what is known of it.
    #[inline]
    pub(crate) fn admit(&mut self, packet: &mut P, meta: &mut Meta) {
        *meta = Meta::UNKNOWN;
        if let Some(vrf) = self.arrival.own_vrf {
            return self.admit_own(packet, meta, vrf);
        }
        let head = packet.head();
        let Some(header) = head.first_chunk::<{ ethernet::SIZE }>() else {
            return;
        };
        let [d0, d1, d2, d3, d4, d5, .., k0, k1] = *header;
        let dst = Mac([d0, d1, d2, d3, d4, d5]);
        let mut kind = u16::from_be_bytes([k0, k1]);
        let mut vid = Vid::default();
        if EtherType(kind).is_vlan()
            && let Some([t0, t1, k0, k1]) = head.get(ethernet::SIZE..LINK_MAX)
        {
            vid = Vid::from_tci(u16::from_be_bytes([*t0, *t1]));
            kind = u16::from_be_bytes([*k0, *k1]);
            meta.l3 = LINK_MAX as u8;
        }
        let interface = match self.arrival.interface {
            Some(index) => self.state.interface(index),
            None => self.state.interface_in(self.arrival.bridge, vid),
        };
        let Some(interface) = interface.filter(|interface| interface.is_up) else {
            meta.verdict = Verdict::Drop(DropReason::RouteNoInterface);
            return;
        };
        meta.interface = interface.index;
        meta.is_group_frame = dst.is_multicast();
        if !meta.is_group_frame && !interface.has_mac(dst) {
            meta.verdict = Verdict::Drop(DropReason::RouteOtherHost);
            return;
        }
        meta.vrf = interface.vrf;
        if let Some(counters) = self.counters(interface)
            && !self.arrival.is_again
        {
            counters.rx_packets.add(1);
            counters.rx_bytes.add(packet.len() as u64);
        }
        self.observer.note(|| RouteStep::Received {
            interface: interface.name.clone(),
            vrf: interface.vrf,
        });
        meta.verdict = match EtherType(kind) {
            EtherType::IPV4 => self.check4(packet, interface, meta),
            EtherType::IPV6 => {
                meta.is_v6 = true;
                self.check6(packet, interface, meta)
            }
            _ => match link_class(packet.head().get(meta.l3()..).unwrap_or_default(), kind) {
                Some(class) => Verdict::Punt(class),
                None => Verdict::Drop(DropReason::RouteEtherType),
            },
        };
    }

    /// Writes what is known of a packet of this machine, which its bridge has encapsulated.
    #[inline(never)]
    fn admit_own(&mut self, packet: &P, meta: &mut Meta, vrf: u16) {
        let ip = packet.head().get(ethernet::SIZE..).unwrap_or_default();
        let address = |at: usize| ip.get(at..);
        let destination = match ip.first().map(|first| first >> 4) {
            Some(4) => address(16)
                .and_then(<[u8]>::first_chunk::<4>)
                .map(|octets| u128::from(u32::from_be_bytes(*octets))),
            Some(6) => address(24)
                .and_then(<[u8]>::first_chunk::<16>)
                .map(|octets| u128::from_be_bytes(*octets)),
            _ => None,
        };
        let (Some(destination), Some(first)) = (destination, ip.first()) else {
            meta.verdict = Verdict::Drop(DropReason::RouteMalformed);
            return;
        };
        meta.is_own = true;
        meta.is_v6 = first >> 4 == 6;
        meta.vrf = vrf;
        meta.destination = destination;
        meta.header_size = match meta.is_v6 {
            true => ipv6::SIZE as u8,
            false => (first & 15) * 4,
        };
        meta.verdict = Verdict::Route;
        self.observer.note(|| RouteStep::Own { vrf });
    }

    #[inline]
    fn check4(&mut self, packet: &mut P, interface: &Interface, meta: &mut Meta) -> Verdict {
        let ip = packet.head().get(meta.l3()..).unwrap_or_default();
        let Some(header) = ip.first_chunk::<{ ipv4::MIN_SIZE }>() else {
            return Verdict::Drop(DropReason::RouteMalformed);
        };
        let header_size = usize::from(header[0] & 15) * 4;
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let Some(whole) = ip.get(..header_size) else {
            return Verdict::Drop(DropReason::RouteMalformed);
        };
        if header[0] >> 4 != 4 || header_size < ipv4::MIN_SIZE {
            return Verdict::Drop(DropReason::RouteMalformed);
        }
        // The size of most headers is known when this is compiled, which leaves no loop.
        let sum = match header_size {
            ipv4::MIN_SIZE => Sum::of(header),
            _ => Sum::of(whole),
        };
        if sum.folded() != u16::MAX {
            return Verdict::Drop(DropReason::RouteChecksum);
        }
        if total < header_size || total > packet.len() - meta.l3() {
            return Verdict::Drop(DropReason::RouteMalformed);
        }
        let address = |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
        let (src, dst) = (address(12), address(16));
        meta.header_size = header_size as u8;
        meta.destination = u128::from(dst.to_bits());
        if header_size > ipv4::MIN_SIZE {
            match options::check(&whole[ipv4::MIN_SIZE..]) {
                Err(at) => {
                    let error = IcmpError::ParameterProblem {
                        pointer: u32::from(at),
                    };
                    return Verdict::Refuse(DropReason::RouteOptions, error);
                }
                Ok(found) if found.has_source_route => return Verdict::Drop(DropReason::RouteOptions),
                Ok(found) => {
                    meta.record_route = found.record_route.map_or(0, |at| at as u8);
                    meta.has_options = true;
                }
            }
        }
        if packet.len() > meta.l3() + total {
            // Padding of the link.
            packet.truncate(meta.l3() + total);
        }
        if src.is_multicast() || src.is_broadcast() || src.is_loopback() {
            return Verdict::Drop(DropReason::RouteMartianSource);
        }
        let is_broadcast = dst.is_broadcast() || interface.is_broadcast(dst);
        // A host without an address asks by broadcast (RFC 2131, section 4.1).
        if src.octets()[0] == 0 && !(is_broadcast && src.is_unspecified()) {
            return Verdict::Drop(DropReason::RouteMartianSource);
        }
        if self.state.vrf(meta.vrf).is_some_and(|vrf| vrf.is_own(src)) {
            return Verdict::Drop(DropReason::RouteMartianSource);
        }
        if dst.octets()[0] == 0 || dst.is_loopback() {
            return Verdict::Drop(DropReason::RouteMartianDestination);
        }
        if !self.permits(packet, interface.acl_in.as_deref(), AclSide::In) {
            return Verdict::Drop(DropReason::RouteAclIn);
        }
        match () {
            () if dst.is_multicast() && dst.octets()[..3] != [224, 0, 0] => {
                Verdict::Drop(DropReason::RouteMulticast)
            }
            () if dst.is_multicast() || is_broadcast => Verdict::Kernel,
            () => Verdict::Route,
        }
    }

    #[inline]
    fn check6(&mut self, packet: &mut P, interface: &Interface, meta: &mut Meta) -> Verdict {
        let ip = packet.head().get(meta.l3()..).unwrap_or_default();
        let Some((header, payload)) = ip.split_first_chunk::<{ ipv6::SIZE }>() else {
            return Verdict::Drop(DropReason::RouteMalformed);
        };
        let total = ipv6::SIZE + usize::from(u16::from_be_bytes([header[4], header[5]]));
        if header[0] >> 4 != 6 || total > packet.len() - meta.l3() {
            return Verdict::Drop(DropReason::RouteMalformed);
        }
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&header[at..at + 16]);
            Ipv6Addr::from(octets)
        };
        let (src, dst) = (address(8), address(24));
        meta.header_size = ipv6::SIZE as u8;
        meta.destination = dst.to_bits();
        let proto = IpProto(header[6]);
        let is_discovery = proto == IpProto::ICMPV6 && class::is_neighbour_discovery(payload);
        if src.is_multicast() || src.is_loopback() || src.to_bits() >> 32 == MAPPED {
            return Verdict::Drop(DropReason::RouteMartianSource);
        }
        if dst.is_loopback() || dst.is_unspecified() {
            return Verdict::Drop(DropReason::RouteMartianDestination);
        }
        if proto == IpProto::HOP_BY_HOP {
            meta.has_options = true;
            match options::check_hop_by_hop(payload, dst.is_multicast()) {
                Ok(()) => {}
                Err(HopByHopError::Silent) => return Verdict::Drop(DropReason::RouteOptions),
                Err(HopByHopError::Unknown(pointer)) => {
                    let error = IcmpError::ParameterProblem { pointer };
                    return Verdict::Refuse(DropReason::RouteOptions, error);
                }
            }
        }
        if packet.len() > meta.l3() + total {
            packet.truncate(meta.l3() + total);
        }
        // Neighbour discovery passes every list, as ARP does: without it there is no neighbour to permit.
        if !is_discovery && !self.permits(packet, interface.acl_in.as_deref(), AclSide::In) {
            return Verdict::Drop(DropReason::RouteAclIn);
        }
        if dst.is_multicast() {
            // The scope of a group (RFC 4291, section 2.7).
            return match dst.octets()[1] & 15 {
                2 => Verdict::Kernel,
                _ => Verdict::Drop(DropReason::RouteMulticast),
            };
        }
        match src.is_unspecified() {
            // Only a host that asks if its address is in use has none (RFC 4862, section 5.4.2).
            true => Verdict::Drop(DropReason::RouteMartianSource),
            false => Verdict::Route,
        }
    }

    /// Returns true if an access list permits a packet, or if there is none.
    #[inline]
    pub(crate) fn permits(&mut self, packet: &P, acl: Option<&Acl>, side: AclSide) -> bool {
        let Some(acl) = acl else { return true };
        let permits = acl.decide(packet) == AclAction::Permit;
        self.observer.note(|| RouteStep::Acl { side, permits });
        permits
    }
}

/// Returns the class of a frame that is not IP, if the kernel takes it. `bytes` follow the link header.
fn link_class(bytes: &[u8], kind: u16) -> Option<PuntClass> {
    match EtherType(kind) {
        EtherType::ARP => Some(PuntClass::Neighbours),
        _ if kind <= LENGTH_MAX && bytes.starts_with(&LLC_ISO) && bytes.get(3) == Some(&NLPID_ISIS) => {
            Some(PuntClass::IsIs)
        }
        _ => None,
    }
}
