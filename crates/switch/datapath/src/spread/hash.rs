//! A keyed hash of the flow of a packet, by which packets are spread over workers.
//!
//! # Properties
//! * Packets of one flow have one hash. Only fields that are constant within a flow are hashed: no TTL, no traffic
//!   class, no length, no sequence number.
//! * Both directions of a flow have one hash, since the two ends (addresses, ports) are combined symmetrically.
//! * The innermost flow is hashed: VLAN tags of any number, PBB, MPLS, VXLAN, Geneve, GRE, GTP-U and IP in IP are
//!   parsed. NICs hash the outer headers of a tunnel only, and nothing of MPLS and PBB.
//! * An ICMP error has the hash of the flow of the packet that it quotes, so that it follows that flow.
//! * Fragments are hashed by addresses and protocol only, as later fragments have no ports. A flow with only some
//!   packets fragmented therefore has two hashes.
//! * Without the key, nobody can construct flows whose hashes collide.
//!
//! # Limits
//! MPLS does not name its payload. An IPv4 header is accepted if its version and its checksum are right, an IPv6
//! header if its version is right and its next header is a common one, an Ethernet header if its EtherType is known;
//! otherwise the labels are the flow. The decision must not depend on bytes that change within a flow, or it would
//! split the flow (RFC 4928, section 2). Only the tests of an IPv4 header's total length and checksum read
//! bytes that change within a flow. Both succeed for every IPv4 packet; the checksum test also succeeds by
//! chance for one in 65,536 packets without an IPv4 header.

use millrace_types::split_mix;
use millrace_wire::bytes::{be16, be32, be64};
use millrace_wire::checksum;

/// Maximum number of nested headers that are parsed, VLAN tags and MPLS labels not counted.
const LAYERS_MAX: usize = 12;
/// Maximum number of IPv6 extension headers that are skipped.
const EXTENSIONS_MAX: usize = 8;
/// Maximum number of labels that are skipped in search of the bottom of the stack.
const LABELS_MAX: usize = 16;

/// The hash of one switch, with its key.
#[derive(Clone, Debug)]
pub struct FlowHash {
    keys: [u64; 6],
}

/// The fields of the flow that are known so far; inner headers replace the fields of outer ones.
#[derive(Clone, Copy)]
struct FlowFields {
    /// The sum of the hashes of both ends, which does not depend on their order.
    ends: u64,
    /// The IP protocol or EtherType.
    kind: u16,
    /// The networks that the ends are in: VLANs, service instances, tunnels.
    network: u64,
}

/// The type of the next header, whose bytes are not validated yet.
#[derive(Clone, Copy)]
enum Layer {
    Ethernet,
    /// The header that an EtherType announces.
    EtherType(u16),
    /// The header that an IP protocol announces, with the two IP addresses.
    Transport {
        proto: u8,
        ends: [u64; 2],
    },
}

mod ether_type {
    pub(super) const IPV4: u16 = 0x0800;
    pub(super) const ARP: u16 = 0x0806;
    pub(super) const TRANSPARENT_ETHERNET: u16 = 0x6558;
    pub(super) const VLAN: u16 = 0x8100;
    pub(super) const IPV6: u16 = 0x86dd;
    pub(super) const MPLS: u16 = 0x8847;
    pub(super) const MPLS_UPSTREAM: u16 = 0x8848;
    pub(super) const SERVICE_VLAN: u16 = 0x88a8;
    pub(super) const PBB: u16 = 0x88e7;
    /// The EtherType that some switches put in front of an outer tag, before IEEE 802.1ad.
    pub(super) const OLD_SERVICE_VLAN: u16 = 0x9100;
}

mod proto {
    pub(super) const ICMPV4: u8 = 1;
    pub(super) const IPV4: u8 = 4;
    pub(super) const TCP: u8 = 6;
    pub(super) const UDP: u8 = 17;
    pub(super) const DCCP: u8 = 33;
    pub(super) const IPV6: u8 = 41;
    pub(super) const GRE: u8 = 47;
    pub(super) const ICMPV6: u8 = 58;
    pub(super) const SCTP: u8 = 132;
    pub(super) const UDP_LITE: u8 = 136;
}

/// UDP destination ports of tunnels.
mod port {
    pub(super) const GTP_U: u16 = 2152;
    pub(super) const VXLAN: u16 = 4789;
    pub(super) const GENEVE: u16 = 6081;
    pub(super) const MPLS: u16 = 6635;
    /// The default port of VXLAN in Linux.
    pub(super) const VXLAN_LINUX: u16 = 8472;

    pub(super) const TUNNELS: [u16; 5] = [GTP_U, VXLAN, GENEVE, MPLS, VXLAN_LINUX];
}

impl FlowHash {
    /// Returns a hash whose key is derived from a seed that only the switch knows.
    pub fn new(seed: u64) -> FlowHash {
        let mut state = seed;
        FlowHash {
            keys: core::array::from_fn(|_| split_mix::next(&mut state)),
        }
    }

    /// Returns the hash of a packet that begins with the bytes `head`. The high bits are mixed best.
    #[inline]
    pub fn of(&self, head: &[u8]) -> u64 {
        match self.of_common(head) {
            Some(hash) => hash,
            None => self.of_any(head),
        }
    }

    /// Returns the hash of the two outermost IP addresses of a packet. All packets between two addresses have
    /// the same hash, whatever their protocol: fragments, tunnelled packets, and packets that an ICMP error
    /// quotes, included. All packets without IP after their VLAN tags have one common hash.
    pub fn of_addresses(&self, head: &[u8]) -> u64 {
        let address_ends = || {
            let (mut kind, mut rest) = (be16(head.first_chunk::<14>()?, 12), &head[14..]);
            while matches!(
                kind,
                ether_type::VLAN | ether_type::SERVICE_VLAN | ether_type::OLD_SERVICE_VLAN
            ) {
                kind = be16(rest.first_chunk::<4>()?, 2);
                rest = &rest[4..];
            }
            let (ends, quoted) = self.addresses(kind, rest)?;
            let quoted = quoted.and_then(|(kind, packet)| self.addresses(kind, packet));
            let ends = quoted.map_or(ends, |(ends, _)| ends);
            Some(self.end(ends[0], 0).wrapping_add(self.end(ends[1], 0)))
        };
        self.finish(&FlowFields {
            ends: address_ends().unwrap_or_default(),
            kind: 0,
            network: 0,
        })
    }

    /// Returns the addresses of an IP packet, and the packet that it quotes if it is a whole ICMP error.
    fn addresses<'a>(&self, kind: u16, bytes: &'a [u8]) -> Option<([u64; 2], Option<Quoted<'a>>)> {
        match kind {
            ether_type::IPV4 => {
                let header = bytes.first_chunk::<20>()?;
                let message = bytes.get(usize::from(header[0] & 0xf) * 4..);
                let message = message.filter(|_| be16(header, 6) & FRAGMENT == 0);
                let quoted = message.and_then(|message| quoted(header[9], message));
                Some(([12, 16].map(|at| u64::from(be32(header, at))), quoted))
            }
            ether_type::IPV6 => {
                let header = bytes.first_chunk::<40>()?;
                Some((self.v6_ends(header), quoted(header[6], &bytes[40..])))
            }
            _ => None,
        }
    }

    /// Returns the addresses of an IPv6 header, hashed to 48 bits each, which is what [`Self::end`] takes.
    fn v6_ends(&self, header: &[u8; 40]) -> [u64; 2] {
        [8, 24].map(|at| {
            mix128(
                be64(header, at) ^ self.keys[2],
                be64(header, at + 8) ^ self.keys[3],
            ) >> 16
        })
    }

    /// Returns the upper half of the hash. A device may attach this mark to all packets of the flow, so that
    /// workers need not parse them.
    pub fn mark(&self, head: &[u8]) -> u32 {
        (self.of(head) >> 32) as u32
    }

    /// Returns the hash that a mark stands for; the lower half is 0.
    #[inline]
    pub(crate) fn of_mark(mark: u32) -> u64 {
        u64::from(mark) << 32
    }

    /// Returns the hash of a packet of the common case: Ethernet, IPv4 without options and not a fragment,
    /// TCP or UDP without a tunnel.
    #[inline(always)]
    fn of_common(&self, head: &[u8]) -> Option<u64> {
        let start = head.first_chunk::<38>()?;
        let protocol = start[23];
        let is_plain = be16(start, 12) == ether_type::IPV4
            && start[14] == 0x45
            && usize::from(be16(start, 16)) >= 24
            && be16(start, 20) & FRAGMENT == 0;
        let to = be16(start, 36);
        let has_ports = protocol == proto::TCP || protocol == proto::UDP && !port::TUNNELS.contains(&to);
        if !(is_plain && has_ports) {
            return None;
        }
        let from = be16(start, 34);
        let end = |at: usize, port: u16| self.end(u64::from(be32(start, at)), port);
        Some(self.finish(&FlowFields {
            ends: end(26, from).wrapping_add(end(30, to)),
            kind: protocol.into(),
            network: 0,
        }))
    }

    /// Returns the hash of any packet.
    #[inline(never)]
    fn of_any(&self, head: &[u8]) -> u64 {
        let mut found = FlowFields {
            ends: 0,
            kind: 0,
            network: 0,
        };
        let mut next = (Layer::Ethernet, head);
        for _ in 0..LAYERS_MAX {
            let (layer, bytes) = next;
            let payload = match layer {
                Layer::Ethernet => self.ethernet(bytes, &mut found),
                Layer::EtherType(kind) => self.ether_typed(kind, bytes, &mut found),
                Layer::Transport { proto, ends } => self.transport(proto, ends, bytes, &mut found),
            };
            match payload {
                Some(payload) => next = payload,
                None => break,
            }
        }
        self.finish(&found)
    }

    /// Returns the hash of one end of a flow. The hash is not linear in the arguments, so that an attacker
    /// cannot easily find two pairs of ends with equal sums.
    #[inline(always)]
    fn end(&self, address: u64, port: u16) -> u64 {
        mix128((address << 16 | u64::from(port)) ^ self.keys[0], self.keys[1])
    }

    #[inline(always)]
    fn finish(&self, found: &FlowFields) -> u64 {
        let ends = found.ends ^ u64::from(found.kind).wrapping_mul(self.keys[3]);
        mix128(ends ^ self.keys[4], found.network ^ self.keys[5])
    }

    fn ethernet<'a>(&self, bytes: &'a [u8], found: &mut FlowFields) -> Option<(Layer, &'a [u8])> {
        let header = bytes.first_chunk::<14>()?;
        let kind = be16(header, 12);
        found.ends = self.mac_ends(header, 0);
        found.kind = kind;
        Some((Layer::EtherType(kind), &bytes[14..]))
    }

    /// Returns the sum over both MAC addresses of an Ethernet header that begins at offset `at`.
    fn mac_ends<const N: usize>(&self, header: &[u8; N], at: usize) -> u64 {
        let mac = |at: usize| u64::from(be16(header, at)) << 32 | u64::from(be32(header, at + 2));
        self.end(mac(at), 0).wrapping_add(self.end(mac(at + 6), 0))
    }

    fn ether_typed<'a>(
        &self,
        kind: u16,
        bytes: &'a [u8],
        found: &mut FlowFields,
    ) -> Option<(Layer, &'a [u8])> {
        match kind {
            ether_type::VLAN | ether_type::SERVICE_VLAN | ether_type::OLD_SERVICE_VLAN => {
                self.tags(bytes, found)
            }
            ether_type::PBB => {
                let tag = bytes.first_chunk::<18>()?;
                found.network = join(found.network, be32(tag, 0) & 0x00ff_ffff);
                found.ends = self.mac_ends(tag, 4);
                let kind = be16(tag, 16);
                found.kind = kind;
                Some((Layer::EtherType(kind), &bytes[18..]))
            }
            ether_type::MPLS | ether_type::MPLS_UPSTREAM => self.mpls(bytes, found),
            ether_type::TRANSPARENT_ETHERNET => Some((Layer::Ethernet, bytes)),
            ether_type::IPV4 => self.ipv4(bytes, found),
            ether_type::IPV6 => self.ipv6(bytes, found),
            _ => None,
        }
    }

    /// Skips all VLAN tags. `bytes` begins after the first EtherType.
    fn tags<'a>(&self, bytes: &'a [u8], found: &mut FlowFields) -> Option<(Layer, &'a [u8])> {
        let mut rest = bytes;
        loop {
            let tag = rest.first_chunk::<4>()?;
            found.network = join(found.network, u32::from(be16(tag, 0) & 0x0fff));
            let kind = be16(tag, 2);
            found.kind = kind;
            rest = &rest[4..];
            if !matches!(
                kind,
                ether_type::VLAN | ether_type::SERVICE_VLAN | ether_type::OLD_SERVICE_VLAN
            ) {
                return Some((Layer::EtherType(kind), rest));
            }
        }
    }

    fn mpls<'a>(&self, bytes: &'a [u8], found: &mut FlowFields) -> Option<(Layer, &'a [u8])> {
        let (mut rest, mut labels) = (bytes, 0);
        for _ in 0..LABELS_MAX {
            let entry = be32(rest.first_chunk::<4>()?, 0);
            rest = &rest[4..];
            labels = join(labels, entry >> 12);
            // The bottom of the stack (RFC 3032, section 2.1).
            if entry & 0x100 != 0 {
                let payload = self.mpls_payload(rest);
                if payload.is_none() {
                    found.network = found.network.rotate_left(17) ^ labels;
                }
                return payload;
            }
        }
        found.network = found.network.rotate_left(17) ^ labels;
        None
    }

    /// Returns the payload below the bottom of a label stack, if it is recognized.
    fn mpls_payload<'a>(&self, bytes: &'a [u8]) -> Option<(Layer, &'a [u8])> {
        if is_ipv4(bytes) {
            return Some((Layer::EtherType(ether_type::IPV4), bytes));
        }
        if is_ipv6(bytes) {
            return Some((Layer::EtherType(ether_type::IPV6), bytes));
        }
        // A pseudowire, without and with a control word, whose first four bits are zero (RFC 4385, section 3).
        if is_ethernet(bytes) {
            return Some((Layer::Ethernet, bytes));
        }
        let framed = bytes.get(4..).filter(|_| bytes[0] >> 4 == 0)?;
        is_ethernet(framed).then_some((Layer::Ethernet, framed))
    }

    fn ipv4<'a>(&self, bytes: &'a [u8], found: &mut FlowFields) -> Option<(Layer, &'a [u8])> {
        let header = bytes.first_chunk::<20>()?;
        let size = usize::from(header[0] & 0xf) * 4;
        let total = usize::from(be16(header, 2));
        if header[0] >> 4 != 4 || size < 20 || total < size {
            return None;
        }
        let protocol = header[9];
        let addresses = [12, 16].map(|at| u64::from(be32(header, at)));
        self.set_addresses(protocol, addresses, found);
        if be16(header, 6) & FRAGMENT != 0 {
            return None;
        }
        // Bytes past the total length are padding of the frame.
        let end = total.min(bytes.len());
        let transport = Layer::Transport {
            proto: protocol,
            ends: addresses,
        };
        Some((transport, bytes.get(size..end)?))
    }

    fn ipv6<'a>(&self, bytes: &'a [u8], found: &mut FlowFields) -> Option<(Layer, &'a [u8])> {
        let header = bytes.first_chunk::<40>()?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let addresses = self.v6_ends(header);
        let end = (40 + usize::from(be16(header, 4))).min(bytes.len());
        let (mut protocol, mut rest) = (header[6], &bytes[40..end]);
        for _ in 0..EXTENSIONS_MAX {
            let size = match protocol {
                // Hop-by-hop options, routing, destination options (RFC 8200, section 4), mobility (RFC 6275, section
                // 6.1).
                0 | 43 | 60 | 135 => rest.get(1).map(|words| 8 + 8 * usize::from(*words)),
                // A fragment header ends the parsing, even of a first fragment: later fragments have only
                // addresses.
                44 => {
                    let inner = rest.first().copied().unwrap_or(protocol);
                    self.set_addresses(inner, addresses, found);
                    return None;
                }
                _ => {
                    self.set_addresses(protocol, addresses, found);
                    let transport = Layer::Transport {
                        proto: protocol,
                        ends: addresses,
                    };
                    return Some((transport, rest));
                }
            };
            let (Some(next), Some(size)) = (rest.first(), size) else {
                break;
            };
            protocol = *next;
            rest = rest.get(size..).unwrap_or(&[]);
        }
        self.set_addresses(protocol, addresses, found);
        None
    }

    fn set_addresses(&self, protocol: u8, [one, two]: [u64; 2], found: &mut FlowFields) {
        found.ends = self.end(one, 0).wrapping_add(self.end(two, 0));
        found.kind = protocol.into();
    }

    fn transport<'a>(
        &self,
        protocol: u8,
        [from, to]: [u64; 2],
        bytes: &'a [u8],
        found: &mut FlowFields,
    ) -> Option<(Layer, &'a [u8])> {
        match protocol {
            proto::TCP | proto::UDP | proto::SCTP | proto::DCCP | proto::UDP_LITE => {
                let ports = bytes.first_chunk::<4>()?;
                let (port_from, port_to) = (be16(ports, 0), be16(ports, 2));
                found.ends = self.end(from, port_from).wrapping_add(self.end(to, port_to));
                let payload = bytes.get(8..).filter(|_| protocol == proto::UDP)?;
                udp_payload(port_to, payload, found)
            }
            proto::IPV4 => Some((Layer::EtherType(ether_type::IPV4), bytes)),
            proto::IPV6 => Some((Layer::EtherType(ether_type::IPV6), bytes)),
            proto::GRE => gre_payload(bytes),
            proto::ICMPV4 | proto::ICMPV6 => {
                quoted(protocol, bytes).map(|(kind, packet)| (Layer::EtherType(kind), packet))
            }
            _ => None,
        }
    }
}

/// A packet that an ICMP error quotes, with its EtherType.
type Quoted<'a> = (u16, &'a [u8]);

/// Returns the packet that an ICMP message quotes, if it is an error (RFC 792; RFC 4443, section 2.1).
fn quoted(protocol: u8, message: &[u8]) -> Option<Quoted<'_>> {
    let header = message.first_chunk::<8>()?;
    let kind = match (protocol, header[0]) {
        (proto::ICMPV4, 3 | 4 | 5 | 11 | 12) => ether_type::IPV4,
        (proto::ICMPV6, 1..=4) => ether_type::IPV6,
        _ => return None,
    };
    Some((kind, &message[8..]))
}

/// The flag "more fragments" and the fragment offset (RFC 791, section 3.1).
const FRAGMENT: u16 = 0x3fff;

/// Returns the payload of a tunnel over UDP.
fn udp_payload<'a>(to: u16, payload: &'a [u8], found: &mut FlowFields) -> Option<(Layer, &'a [u8])> {
    match to {
        port::VXLAN | port::VXLAN_LINUX => {
            // RFC 7348, section 5: the flag I says that the network identifier is valid.
            let header = payload
                .first_chunk::<8>()
                .filter(|header| header[0] & 0x08 != 0)?;
            found.network = join(found.network, be32(header, 4) >> 8);
            Some((Layer::Ethernet, &payload[8..]))
        }
        port::GENEVE => {
            // RFC 8926, section 3.4: version, length of the options in words of four bytes, EtherType, network
            // identifier.
            let header = payload.first_chunk::<8>().filter(|header| header[0] >> 6 == 0)?;
            let inner = payload.get(8 + 4 * usize::from(header[0] & 0x3f)..)?;
            found.network = join(found.network, be32(header, 4) >> 8);
            Some((Layer::EtherType(be16(header, 2)), inner))
        }
        port::GTP_U => gtp_payload(payload),
        port::MPLS => Some((Layer::EtherType(ether_type::MPLS), payload)),
        _ => None,
    }
}

/// Returns the payload of GTP-U (3GPP TS 29.281, section 5): version 1, protocol type GTP, a G-PDU. The tunnel
/// endpoint identifier differs between the directions and is not hashed.
fn gtp_payload(payload: &[u8]) -> Option<(Layer, &[u8])> {
    let header = payload.first_chunk::<8>()?;
    if header[0] >> 4 != 3 || header[1] != 255 {
        return None;
    }
    let mut inner = &payload[8..];
    // Each of the three flags adds the fields of all three: sequence number, N-PDU number, next extension header.
    if header[0] & 7 != 0 {
        let mut kind = if header[0] & 4 == 0 { 0 } else { *inner.get(3)? };
        inner = inner.get(4..)?;
        for _ in 0..EXTENSIONS_MAX {
            if kind == 0 {
                break;
            }
            let size = 4 * usize::from(*inner.first()?);
            kind = *inner.get(size.checked_sub(1)?)?;
            inner = &inner[size..];
        }
    }
    match inner.first()? >> 4 {
        4 => Some((Layer::EtherType(ether_type::IPV4), inner)),
        6 => Some((Layer::EtherType(ether_type::IPV6), inner)),
        _ => None,
    }
}

/// Returns the payload of GRE (RFC 2784, section 2; RFC 2890, section 2): flags announce checksum, key and sequence
/// number. Routing is not supported.
fn gre_payload(bytes: &[u8]) -> Option<(Layer, &[u8])> {
    let header = bytes.first_chunk::<4>()?;
    let flags = be16(header, 0);
    if flags & 0x4007 != 0 {
        return None;
    }
    let words = [0x8000, 0x2000, 0x1000];
    let optional: usize = words.into_iter().map(|flag| usize::from(flags & flag != 0)).sum();
    let payload = bytes.get(4 + 4 * optional..)?;
    Some((Layer::EtherType(be16(header, 2)), payload))
}

fn is_ipv4(bytes: &[u8]) -> bool {
    let Some(&first) = bytes.first() else { return false };
    let size = usize::from(first & 0xf) * 4;
    let Some(header) = bytes.get(..size).filter(|_| first >> 4 == 4 && size >= 20) else {
        return false;
    };
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    total >= size && checksum::internet(header) == 0
}

/// Returns true if the bytes look like an IPv6 header. There is no checksum, and the length changes within a flow, so
/// the next header must be a common one.
fn is_ipv6(bytes: &[u8]) -> bool {
    let common = [
        0,
        proto::TCP,
        proto::UDP,
        43,
        44,
        proto::GRE,
        50,
        58,
        60,
        89,
        proto::SCTP,
    ];
    bytes
        .first_chunk::<40>()
        .is_some_and(|header| header[0] >> 4 == 6 && common.contains(&header[6]))
}

fn is_ethernet(bytes: &[u8]) -> bool {
    let Some(header) = bytes.first_chunk::<14>() else {
        return false;
    };
    let payload = &bytes[14..];
    match be16(header, 12) {
        ether_type::IPV4 => is_ipv4(payload),
        ether_type::IPV6 => is_ipv6(payload),
        ether_type::ARP
        | ether_type::VLAN
        | ether_type::SERVICE_VLAN
        | ether_type::OLD_SERVICE_VLAN
        | ether_type::PBB
        | ether_type::MPLS
        | ether_type::MPLS_UPSTREAM => true,
        _ => false,
    }
}

/// Adds a network number to those in `networks`. Number 0 in the outermost tag changes nothing: VLAN 0 means
/// no VLAN (IEEE 802.1Q-2018, section 9.6).
#[inline]
fn join(networks: u64, number: u32) -> u64 {
    networks
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(u64::from(number))
}

/// Returns the exclusive or of both halves of the product.
#[inline(always)]
fn mix128(one: u64, two: u64) -> u64 {
    let product = u128::from(one) * u128::from(two);
    product as u64 ^ (product >> 64) as u64
}
