//! Transport headers of a packet.

use millrace_wire::{IpProto, icmpv4, sctp, tcp, udp};

use super::{IcmpHeader, Packet, TcpHeader, Undecoded};

/// Size of the header of ESP in bytes: security parameters index and sequence number (RFC 4303, section 2).
const ESP_SIZE: usize = 8;

/// Messages of ICMPv6 (RFC 4443).
const V6_PACKET_TOO_BIG: u8 = 2;
const V6_ECHO_REQUEST: u8 = 128;
const V6_ECHO_REPLY: u8 = 129;
/// First message type of multicast listener discovery: query (RFC 2710). The types of neighbour discovery
/// come after those of listener discovery.
const V6_LISTENER_DISCOVERY_FIRST: u8 = 130;
/// Message type of a report of multicast listener discovery, version 2 (RFC 3810).
const V6_LISTENER_REPORT_2: u8 = 143;
/// Last message type of neighbour discovery: redirect (RFC 4861).
const V6_NEIGHBOUR_DISCOVERY_LAST: u8 = 137;
/// Size of type, code and checksum.
const V6_CHECKSUM_END: usize = 4;
/// Bytes at the end of a discovery message that rules do not see.
const V6_DISCOVERY_TAIL: usize = 8;
/// "Fragmentation needed", a code of ICMP unreachable (RFC 1191).
const FRAGMENTATION_NEEDED: u8 = 4;

/// Decodes the transport header of a packet that is not a fragment.
pub(super) fn decode(packet: &mut Packet<'_>) -> Result<(), Undecoded> {
    let bytes = packet.ip_payload();
    let invalid = |_| Undecoded::InvalidTransport;
    match IpProto(packet.protocol) {
        IpProto::TCP => {
            let view = tcp::View::new(bytes).map_err(invalid)?;
            packet.ports = Some((view.src(), view.dst()));
            packet.tcp = Some(TcpHeader {
                seq: view.seq(),
                ack: view.ack(),
                flags: view.flags(),
                window: view.window(),
                urgent: view.urgent(),
                checksum: view.checksum(),
                options: view.options(),
            });
            packet.payload = view.payload();
        }
        IpProto::UDP => {
            let view = udp::View::new(bytes).map_err(invalid)?;
            packet.ports = Some((view.src(), view.dst()));
            packet.payload = view.payload();
        }
        IpProto::SCTP => {
            let view = sctp::View::new(bytes).map_err(invalid)?;
            packet.ports = Some((view.src(), view.dst()));
            packet.payload = view.payload();
        }
        IpProto::ICMPV4 if packet.src.is_ipv4() => {
            let view = icmpv4::View::new(bytes).map_err(invalid)?;
            packet.icmp = Some(icmp(view.kind(), view.code(), view.rest_of_header()));
            packet.payload = view.payload();
        }
        IpProto::ICMPV6 if packet.src.is_ipv6() => {
            // The first eight bytes have the same layout as in ICMP.
            let view = icmpv4::View::new(bytes).map_err(invalid)?;
            packet.icmp = Some(icmp6(view.kind(), view.code(), view.rest_of_header()));
            // Messages of listener and neighbour discovery have more fields after the checksum (RFC 2710,
            // section 3; RFC 4861, section 4). Suricata shows these fields to rules, but not the last bytes
            // of the message (observed).
            packet.payload = match view.kind() {
                V6_LISTENER_DISCOVERY_FIRST..=V6_NEIGHBOUR_DISCOVERY_LAST | V6_LISTENER_REPORT_2 => {
                    let end = bytes.len().saturating_sub(V6_DISCOVERY_TAIL);
                    bytes.get(V6_CHECKSUM_END..end).unwrap_or_default()
                }
                _ => view.payload(),
            };
        }
        IpProto::ESP => {
            packet.payload = bytes.get(ESP_SIZE..).ok_or(Undecoded::InvalidTransport)?;
        }
        _ => {}
    }
    Ok(())
}

fn icmp(kind: u8, code: u8, rest: [u8; 4]) -> IcmpHeader {
    let [a, b, c, d] = rest;
    // Echo, timestamp, information and address mask messages have an identifier (RFC 792, RFC 950).
    let has_id = matches!(kind, icmpv4::ECHO_REPLY | icmpv4::ECHO_REQUEST | 13..=18);
    let has_mtu = kind == icmpv4::UNREACHABLE && code == FRAGMENTATION_NEEDED;
    IcmpHeader {
        kind,
        code,
        id: has_id.then_some(u16::from_be_bytes([a, b])),
        seq: has_id.then_some(u16::from_be_bytes([c, d])),
        mtu: has_mtu.then_some(u32::from(u16::from_be_bytes([c, d]))),
    }
}

fn icmp6(kind: u8, code: u8, rest: [u8; 4]) -> IcmpHeader {
    let [a, b, c, d] = rest;
    let has_id = matches!(kind, V6_ECHO_REQUEST | V6_ECHO_REPLY);
    IcmpHeader {
        kind,
        code,
        id: has_id.then_some(u16::from_be_bytes([a, b])),
        seq: has_id.then_some(u16::from_be_bytes([c, d])),
        mtu: (kind == V6_PACKET_TOO_BIG).then_some(u32::from_be_bytes(rest)),
    }
}
