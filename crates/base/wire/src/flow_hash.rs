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
//! * Hardware computes the same hash (docs/nic-interface.md): it reads the first 128 bytes ([`WINDOW_SIZE`]), and takes 24 steps
//!   ([`STEPS_MAX`]) of one header each. What lies beyond is not hashed.
//!
//! # Limits
//! MPLS does not name its payload. An IPv4 header is accepted if its version and its checksum are right, an IPv6
//! header if its version is right and its next header is a common one, an Ethernet header if its EtherType is known;
//! otherwise the labels are the flow. The decision must not depend on bytes that change within a flow, or it would
//! split the flow (RFC 4928, section 2). Only the tests of an IPv4 header's total length and checksum read
//! bytes that change within a flow. Both succeed for every IPv4 packet; the checksum test also succeeds by
//! chance for one in 65,536 packets without an IPv4 header.

use millrace_types::split_mix;

use self::number::{ether_type, port, proto};
use crate::bytes::{be16, be32, be64};
use crate::checksum;
use crate::ethernet;

mod number;

/// Number of bytes at the front of a packet that are read.
pub const WINDOW_SIZE: usize = 128;
/// Maximum number of headers that are parsed: Ethernet, a tag, SNAP, PBB, a label, IP, an extension header, a transport header,
/// GRE, the header of a tunnel over UDP and each extension header of GTP-U count one each.
pub const STEPS_MAX: usize = 24;
/// Number of bits by which the networks so far are rotated when another joins them.
pub const NETWORK_ROTATION: u32 = 21;
/// Number of keys.
pub const KEYS: usize = 6;

/// The hash of one switch, with its key.
#[derive(Clone, Debug)]
pub struct FlowHash {
    keys: [u64; KEYS],
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
    /// Number of headers that may still be parsed.
    steps: usize,
}

impl FlowFields {
    const NONE: FlowFields = FlowFields {
        ends: 0,
        kind: 0,
        network: 0,
        steps: STEPS_MAX,
    };

    /// Counts a header; returns `None` if it is one too many.
    #[inline]
    fn step(&mut self) -> Option<()> {
        self.steps = self.steps.checked_sub(1)?;
        Some(())
    }
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

impl FlowHash {
    /// Returns a hash whose key is derived from a seed that only the switch knows.
    pub fn new(seed: u64) -> FlowHash {
        let mut state = seed;
        FlowHash {
            keys: core::array::from_fn(|_| split_mix::next(&mut state)),
        }
    }

    /// Returns the keys, for a device that computes the same hash.
    pub const fn keys(&self) -> [u64; KEYS] {
        self.keys
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
            ..FlowFields::NONE
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
            ..FlowFields::NONE
        }))
    }

    /// Returns the hash of any packet.
    #[inline(never)]
    fn of_any(&self, head: &[u8]) -> u64 {
        let mut found = FlowFields::NONE;
        let mut next = Some((Layer::Ethernet, head.get(..WINDOW_SIZE).unwrap_or(head)));
        while let Some((layer, bytes)) = next {
            // Each of these counts at least one step, or ends the walk.
            next = match layer {
                Layer::Ethernet => self.ethernet(bytes, &mut found),
                Layer::EtherType(kind) => self.ether_typed(kind, bytes, &mut found),
                Layer::Transport { proto, ends } => self.transport(proto, ends, bytes, &mut found),
            };
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
        found.step()?;
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
            0..ether_type::MIN => {
                // A length, which is no field of the flow.
                found.kind = crate::EtherType::NOT_ETH_TYPE.0;
                let kind = ethernet::snap(bytes)?.0;
                found.step()?;
                found.kind = kind;
                Some((Layer::EtherType(kind), &bytes[ethernet::SNAP_SIZE..]))
            }
            ether_type::PBB => {
                found.step()?;
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
            found.step()?;
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

    /// Walks a label stack. Its labels are the network of the flow, unless its payload is recognized.
    fn mpls<'a>(&self, bytes: &'a [u8], found: &mut FlowFields) -> Option<(Layer, &'a [u8])> {
        let outside = found.network;
        let mut rest = bytes;
        loop {
            found.step()?;
            let entry = be32(rest.first_chunk::<4>()?, 0);
            rest = &rest[4..];
            found.network = join(found.network, entry >> 12);
            // The bottom of the stack (RFC 3032, section 2.1).
            if entry & 0x100 != 0 {
                let payload = self.mpls_payload(rest)?;
                found.network = outside;
                return Some(payload);
            }
        }
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
        found.step()?;
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
        found.step()?;
        let header = bytes.first_chunk::<40>()?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let addresses = self.v6_ends(header);
        let end = (40 + usize::from(be16(header, 4))).min(bytes.len());
        let (mut protocol, mut rest) = (header[6], &bytes[40..end]);
        self.set_addresses(protocol, addresses, found);
        // Hop-by-hop options, routing, fragment and destination options (RFC 8200, section 4), authentication (RFC 4302,
        // section 2.2).
        while matches!(protocol, 0 | 43 | 44 | 51 | 60) {
            found.step()?;
            let header = rest.first_chunk::<8>()?;
            let size = match protocol {
                44 => 8,
                51 => 8 + 4 * usize::from(header[1]),
                _ => 8 + 8 * usize::from(header[1]),
            };
            rest = rest.get(size..)?;
            found.kind = header[0].into();
            if protocol == 44 {
                // A fragment header ends the parsing, even of a first fragment: later fragments have only addresses.
                return None;
            }
            protocol = header[0];
        }
        let transport = Layer::Transport {
            proto: protocol,
            ends: addresses,
        };
        Some((transport, rest))
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
                found.step()?;
                let ports = bytes.first_chunk::<4>()?;
                let (port_from, port_to) = (be16(ports, 0), be16(ports, 2));
                found.ends = self.end(from, port_from).wrapping_add(self.end(to, port_to));
                let payload = bytes.get(8..).filter(|_| protocol == proto::UDP)?;
                udp_payload(port_to, payload, found)
            }
            proto::IPV4 => Some((Layer::EtherType(ether_type::IPV4), bytes)),
            proto::IPV6 => Some((Layer::EtherType(ether_type::IPV6), bytes)),
            proto::GRE => {
                found.step()?;
                gre_payload(bytes)
            }
            proto::ICMPV4 | proto::ICMPV6 => {
                found.step()?;
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
            found.step()?;
            let header = payload
                .first_chunk::<8>()
                .filter(|header| header[0] & 0x08 != 0)?;
            found.network = join(found.network, be32(header, 4) >> 8);
            Some((Layer::Ethernet, &payload[8..]))
        }
        port::GENEVE => {
            // RFC 8926, section 3.4: version, length of the options in words of four bytes, EtherType, network
            // identifier.
            found.step()?;
            let header = payload.first_chunk::<8>().filter(|header| header[0] >> 6 == 0)?;
            let inner = payload.get(8 + 4 * usize::from(header[0] & 0x3f)..)?;
            found.network = join(found.network, be32(header, 4) >> 8);
            Some((Layer::EtherType(be16(header, 2)), inner))
        }
        port::GTP_U => gtp_payload(payload, found),
        port::MPLS => Some((Layer::EtherType(ether_type::MPLS), payload)),
        _ => None,
    }
}

/// Returns the payload of GTP-U (3GPP TS 29.281, section 5): version 1, protocol type GTP, a G-PDU. The tunnel
/// endpoint identifier differs between the directions and is not hashed.
fn gtp_payload<'a>(payload: &'a [u8], found: &mut FlowFields) -> Option<(Layer, &'a [u8])> {
    found.step()?;
    let header = payload.first_chunk::<8>()?;
    if header[0] >> 4 != 3 || header[1] != 255 {
        return None;
    }
    let mut inner = &payload[8..];
    // Each of the three flags adds the fields of all three: sequence number, N-PDU number, next extension header.
    if header[0] & 7 != 0 {
        let mut kind = if header[0] & 4 == 0 { 0 } else { *inner.get(3)? };
        inner = inner.get(4..)?;
        while kind != 0 {
            found.step()?;
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

/// Adds a network number of up to 24 bits to those in `networks`. Number 0 in the outermost tag changes nothing: VLAN 0
/// means no VLAN (IEEE 802.1Q-2018, section 9.6). The rotation keeps up to three tags or labels apart; hardware takes one
/// step for it, and the keyed product of [`FlowHash::finish`] mixes the result.
#[inline]
const fn join(networks: u64, number: u32) -> u64 {
    networks.rotate_left(NETWORK_ROTATION) ^ number as u64
}

/// Returns the exclusive or of both halves of the product.
#[inline(always)]
fn mix128(one: u64, two: u64) -> u64 {
    let product = u128::from(one) * u128::from(two);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests;
