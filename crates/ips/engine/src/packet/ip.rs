//! IP headers of a packet.

use millrace_wire::ipv6::FragmentHeader;
use millrace_wire::{Fragment, IpProto, ipv4, ipv6};

use super::{IpHeader, IpVersion, Packet, Undecoded, ipv4_options};

impl Packet<'_> {
    /// Returns true if the header requests a source route, by IPv4 options or by the deprecated IPv6 routing
    /// header of type 0 (RFC 5095).
    pub fn has_source_route(&self) -> bool {
        const LOOSE: u8 = 131;
        const STRICT: u8 = 137;
        match self.ip.version {
            IpVersion::V4 => ipv4_options(self.ip.options).any(|kind| matches!(kind, LOOSE | STRICT)),
            IpVersion::V6 => has_routing_type_0(&self.ip),
        }
    }
}

/// Decodes the IP header at the packet's offset. `version` is the expected IP version, if it is known. The
/// transport header and the payload are left empty.
pub(super) fn decode<'a>(
    packet: &mut Packet<'a>,
    frame: &'a [u8],
    version: Option<IpVersion>,
) -> Result<(), Undecoded> {
    let bytes = frame.get(packet.ip_offset..).unwrap_or_default();
    let found = match bytes.first().map(|byte| byte >> 4) {
        Some(4) => IpVersion::V4,
        Some(6) => IpVersion::V6,
        _ => return Err(Undecoded::InvalidIp),
    };
    if version.is_some_and(|version| version != found) {
        return Err(Undecoded::InvalidIp);
    }
    match found {
        IpVersion::V4 => decode_v4(packet, bytes),
        IpVersion::V6 => decode_v6(packet, bytes),
    }
}

#[inline]
fn decode_v4<'a>(packet: &mut Packet<'a>, bytes: &'a [u8]) -> Result<(), Undecoded> {
    let view = ipv4::View::new(bytes).map_err(|_| Undecoded::InvalidIp)?;
    let header_size = view.header_size();
    packet.ip = IpHeader {
        version: IpVersion::V4,
        bytes: &bytes[..header_size + view.payload().len()],
        header_size,
        ttl: view.ttl(),
        tos: bytes[1],
        id: view.ident().into(),
        dont_fragment: view.dont_fragment(),
        more_fragments: view.more_fragments(),
        reserved_bit: bytes[6] & 0x80 != 0,
        fragment_offset: view.fragment_offset() << 3,
        options: view.options(),
        fragment_header: None,
    };
    packet.is_fragment = view.more_fragments() || view.fragment_offset() != 0;
    (packet.src, packet.dst) = (view.src().into(), view.dst().into());
    packet.protocol = view.proto().0;
    Ok(())
}

fn decode_v6<'a>(packet: &mut Packet<'a>, bytes: &'a [u8]) -> Result<(), Undecoded> {
    let view = ipv6::View::new(bytes).map_err(|_| Undecoded::InvalidIp)?;
    let walk = view.walk();
    let fragment = match walk.headers.contains(ipv6::ExtHeaders::FRAG) {
        true => FragmentHeader::find(view.next_header(), view.payload()),
        false => None,
    };
    let size = match fragment {
        Some(header) if walk.fragment != Fragment::Whole => header.at + FragmentHeader::SIZE,
        _ => walk.size,
    };
    let header_size = ipv6::SIZE + size;
    packet.ip = IpHeader {
        version: IpVersion::V6,
        bytes: &bytes[..ipv6::SIZE + view.payload().len()],
        header_size,
        ttl: view.hop_limit(),
        tos: view.dscp().raw() << 2 | view.ecn().raw(),
        id: fragment.map_or(0, |header| header.ident),
        dont_fragment: false,
        more_fragments: fragment.is_some_and(|header| header.more_fragments),
        reserved_bit: false,
        fragment_offset: fragment.map_or(0, |header| header.offset),
        options: &view.payload()[..size],
        fragment_header: fragment,
    };
    packet.is_fragment = walk.fragment != Fragment::Whole;
    packet.protocol = match walk.fragment {
        Fragment::Whole => walk.proto.0,
        _ => IpProto::FRAGMENT.0,
    };
    (packet.src, packet.dst) = (view.src().into(), view.dst().into());
    Ok(())
}

/// Returns true if an IPv6 packet has a routing header of type 0 with segments left.
pub(super) fn has_routing_type_0(ip: &IpHeader<'_>) -> bool {
    let Some(fixed) = ip.bytes.first_chunk::<{ ipv6::SIZE }>() else {
        return false;
    };
    let (mut proto, mut rest) = (IpProto(fixed[6]), ip.options);
    while let Some([next, size, kind, left]) = rest.first_chunk() {
        let size = match proto {
            IpProto::ROUTING if *kind == 0 && *left > 0 => return true,
            IpProto::HOP_BY_HOP | IpProto::DEST_OPTIONS | IpProto::ROUTING => (usize::from(*size) + 1) * 8,
            IpProto::AH => (usize::from(*size) + 2) * 4,
            IpProto::FRAGMENT => FragmentHeader::SIZE,
            _ => return false,
        };
        proto = IpProto(*next);
        rest = rest.get(size..).unwrap_or_default();
    }
    false
}
