//! IP headers of a packet.

use millrace_wire::ipv6::FragmentHeader;
use millrace_wire::{Fragment, IpProto, ipv4, ipv6};

use super::{Context, IpHeader, IpVersion, Network, Packet, Undecoded};

/// Decodes the IP header; transport and payload are left empty.
pub(super) fn decode<'a>(
    frame: &'a [u8],
    network: Network,
    context: Context,
) -> Result<Packet<'a>, Undecoded> {
    let bytes = frame.get(network.offset..).unwrap_or_default();
    let found = match bytes.first().map(|byte| byte >> 4) {
        Some(4) => IpVersion::V4,
        Some(6) => IpVersion::V6,
        _ => return Err(Undecoded::InvalidIp),
    };
    if network.version.is_some_and(|version| version != found) {
        return Err(Undecoded::InvalidIp);
    }
    let mut packet = match found {
        IpVersion::V4 => decode_v4(bytes, context)?,
        IpVersion::V6 => decode_v6(bytes, context)?,
    };
    packet.ip_offset = network.offset;
    packet.vlans = network.vlans.ids;
    packet.vlan_len = network.vlans.len;
    Ok(packet)
}

fn decode_v4(bytes: &[u8], context: Context) -> Result<Packet<'_>, Undecoded> {
    let view = ipv4::View::new(bytes).map_err(|_| Undecoded::InvalidIp)?;
    let header_size = view.header_size();
    let ip = IpHeader {
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
    let is_fragment = ip.more_fragments || ip.fragment_offset != 0;
    let (src, dst) = (view.src().into(), view.dst().into());
    Ok(packet(ip, src, dst, view.proto(), is_fragment, context))
}

fn decode_v6(bytes: &[u8], context: Context) -> Result<Packet<'_>, Undecoded> {
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
    let ip = IpHeader {
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
    let (is_fragment, protocol) = match walk.fragment {
        Fragment::Whole => (false, walk.proto),
        _ => (true, IpProto::FRAGMENT),
    };
    let (src, dst) = (view.src().into(), view.dst().into());
    Ok(packet(ip, src, dst, protocol, is_fragment, context))
}

/// Returns true if there is a routing header of type 0 with segments left.
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

fn packet(
    ip: IpHeader<'_>,
    src: core::net::IpAddr,
    dst: core::net::IpAddr,
    protocol: IpProto,
    is_fragment: bool,
    context: Context,
) -> Packet<'_> {
    Packet {
        number: context.number,
        time: context.time,
        vlans: [0; 3],
        vlan_len: 0,
        src,
        dst,
        ip,
        ip_offset: 0,
        protocol: protocol.0,
        ports: None,
        tcp: None,
        icmp: None,
        payload: &[],
        is_reassembled: context.is_reassembled,
        is_tunnel: context.is_tunnel,
        is_encrypted: false,
        is_unordered: false,
        is_fragment,
        is_pseudo: false,
        tunnel_depth: context.tunnel_depth,
    }
}
