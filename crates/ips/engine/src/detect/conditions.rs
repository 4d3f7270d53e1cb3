//! Conditions on one packet and its flow: header, flow state, header fields.

use core::net::IpAddr;

use millrace_ips_rules::address::Value;
use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::{Comparison, NumberField};
use millrace_ips_rules::options::protocols::ProtocolOf;
use millrace_ips_rules::variables::Ranges;

use super::program::{
    BitMode, Endpoint, PacketTest, ProtocolOfFlow, Rule, ScoreTest, Side, compare, compare_all,
};
use crate::app::AppProtocol;
use crate::flow::{Direction, Flow, FlowState};
use crate::packet::{IpVersion, Packet};

/// Returns true if a number is in sorted, disjoint ranges.
fn is_in(ranges: &[(u128, u128)], number: u128) -> bool {
    let after = ranges.partition_point(|(first, _)| *first <= number);
    after > 0 && number <= ranges[after - 1].1
}

/// Returns true if a flow satisfies a condition on its protocol. `app` is the protocol of the direction of the packet, or of the
/// transaction.
pub(super) fn protocol(test: &ProtocolOfFlow, app: Option<AppProtocol>, flow: Option<&Flow>) -> bool {
    let of_side = |side| flow.and_then(|flow| flow.app.detected_in(side));
    let carries_dns = flow.is_some_and(|flow| flow.app.carries_dns);
    let takes = |app| test.takes(app, carries_dns);
    match test.of {
        ProtocolOf::Packet => takes(app),
        ProtocolOf::Client => takes(of_side(Direction::ToServer)),
        ProtocolOf::Server => takes(of_side(Direction::ToClient)),
        ProtocolOf::Either => {
            let sides = Direction::BOTH.map(of_side);
            match test.is_negated {
                true => sides.into_iter().all(takes),
                false => sides.into_iter().any(takes),
            }
        }
        ProtocolOf::Flow => takes(flow.and_then(|flow| flow.app.detected())),
        ProtocolOf::Original => takes(flow.and_then(|flow| flow.app.original_protocol)),
    }
}

/// Returns true if an address is in a set.
pub(super) fn has_address(ranges: &Ranges, address: IpAddr) -> bool {
    match address.to_space_and_number() {
        (0, number) => is_in(ranges.first(), number),
        (_, number) => is_in(ranges.second(), number),
    }
}

/// Returns true if the ports of a packet are those of the ends of a rule.
fn are_ports((source, destination): (&Endpoint, &Endpoint), ports: Option<(u16, u16)>) -> bool {
    let is_port = |end: &Endpoint, port: u16| {
        end.ports
            .as_ref()
            .is_none_or(|ranges| is_in(ranges.first(), u128::from(port)))
    };
    match ports {
        Some(ports) => is_port(source, ports.0) && is_port(destination, ports.1),
        // A packet without ports does not match a rule with ports.
        None => source.ports.is_none() && destination.ports.is_none(),
    }
}

/// Returns true if the addresses of a packet are those of the ends of a rule.
fn are_addresses((source, destination): (&Endpoint, &Endpoint), packet: (IpAddr, IpAddr)) -> bool {
    let is_address = |end: &Endpoint, address: IpAddr| {
        let ranges = end.addresses.as_ref();
        ranges.is_none_or(|ranges| has_address(ranges, address))
    };
    is_address(source, packet.0) && is_address(destination, packet.1)
}

/// Returns true if the packet has the protocol and the endpoints of the rule.
pub(super) fn header(rule: &Rule, packet: &Packet<'_>) -> bool {
    if !rule.protocol.ip.is_empty() && !rule.protocol.ip.contains(&packet.protocol) {
        return false;
    }
    let version = match packet.ip.version {
        IpVersion::V4 => 4,
        IpVersion::V6 => 6,
    };
    if rule.protocol.version.is_some_and(|asked| asked != version) {
        return false;
    }
    // Ports differ more often than addresses, and are compared faster.
    let ends = (&rule.source, &rule.destination);
    let is_forward = are_ports(ends, packet.ports) && are_addresses(ends, (packet.src, packet.dst));
    is_forward
        || rule.is_bidirectional
            && are_ports(
                ends,
                packet.ports.map(|(source, destination)| (destination, source)),
            )
            && are_addresses(ends, (packet.dst, packet.src))
}

/// Returns true if the flow is in the state that the rule requires.
pub(super) fn flow(rule: &Rule, packet: &Packet<'_>, flow: Option<&Flow>, direction: Direction) -> bool {
    let test = &rule.flow;
    if test
        .is_reassembled
        .is_some_and(|asked| asked != packet.is_reassembled)
    {
        return false;
    }
    if !test.is_needed {
        return true;
    }
    let Some(flow) = flow else { return false };
    let is_established = flow.state != FlowState::New && !packet.ends_handshake;
    test.is_established.is_none_or(|asked| asked == is_established)
        && test.direction.is_none_or(|asked| asked == direction)
}

/// Returns true if the packet satisfies a condition.
pub(super) fn packet(test: &PacketTest, packet: &Packet<'_>, flow: Option<&Flow>) -> bool {
    match test {
        PacketTest::Number(field, comparison) => {
            number(*field, packet).is_some_and(|number| compare(*comparison, number))
        }
        PacketTest::TcpFlags { mode, bits, ignored } => packet.tcp.is_some_and(|tcp| {
            // Only the eight flags of the octet count; the reserved bits above them are not flags.
            let flags = tcp.flags & 0xff & !ignored;
            has_bits(*mode, flags, *bits)
        }),
        PacketTest::FragBits { mode, bits } => {
            let ip = &packet.ip;
            let present = [
                (ip.reserved_bit, 4),
                (ip.dont_fragment, 2),
                (ip.more_fragments, 1),
            ];
            let present = present
                .into_iter()
                .filter(|(is_set, _)| *is_set)
                .fold(0, |all, (_, bit)| all | bit);
            // The bits are those of IPv4.
            ip.version == IpVersion::V4 && has_bits(*mode, present, u16::from(*bits))
        }
        PacketTest::Checksum {
            version,
            protocol,
            is_right,
        } => packet.ip.version == *version && packet.checksum(*protocol) == Some(*is_right),
        PacketTest::IpProtocol(comparison) => compare(*comparison, u64::from(packet.protocol)),
        PacketTest::SameIp => packet.src == packet.dst,
        PacketTest::Rpc {
            program,
            version,
            procedure,
        } => rpc(packet).is_some_and(|call| {
            call[0] == *program
                && version.is_none_or(|version| version == call[1])
                && procedure.is_none_or(|procedure| procedure == call[2])
        }),
        PacketTest::Vlan { comparison, index } => {
            let tags = packet
                .vlans
                .get(..usize::from(packet.vlan_len))
                .unwrap_or_default();
            let mut ids = [0; 3];
            for (id, tag) in ids.iter_mut().zip(tags) {
                *id = u64::from(*tag);
            }
            compare_all(*comparison, *index, &ids[..tags.len()])
        }
        PacketTest::IpOption(kind) => {
            let is_it = |found: u8| kind.is_none_or(|kind| kind == found);
            packet.ip.version == IpVersion::V4 && has_option(packet.ip.options, is_it)
        }
        PacketTest::FlowCounter {
            field,
            side,
            comparison,
        } => flow.is_some_and(|flow| flow_counter(*field, *side, *comparison, flow)),
        PacketTest::Event(event) => packet.events.has(*event),
        PacketTest::Reputation(test) => {
            let holds = |address: IpAddr| {
                let score = test.table.score(address, test.category);
                match test.score {
                    ScoreTest::IsSet(is_set) => score.is_some() == is_set,
                    ScoreTest::Compares(comparison) => {
                        score.is_some_and(|score| compare(comparison, u64::from(score)))
                    }
                }
            };
            test.side.holds(packet.src, packet.dst, holds)
        }
        PacketTest::Country(test) => test.side.holds(packet.src, packet.dst, |address| {
            let country = test.table.of(address);
            country.is_some_and(|country| test.countries.contains(&country) != test.is_negated)
        }),
        PacketTest::StreamSize { side, comparison } => {
            flow.is_some_and(|flow| stream_size(*side, *comparison, flow))
        }
    }
}

fn has_bits(mode: BitMode, present: u16, bits: u16) -> bool {
    match mode {
        BitMode::Exact => present == bits,
        BitMode::All => present & bits == bits,
        BitMode::Any => present & bits != 0,
        BitMode::None => present & bits == 0,
    }
}

/// Returns true if an option of an IPv4 header has a type that is asked for; those without a size are options, too.
fn has_option(options: &[u8], is_it: impl Fn(u8) -> bool) -> bool {
    let mut rest = options;
    loop {
        match rest {
            [] => return false,
            [kind, ..] if is_it(*kind) => return true,
            [0, ..] | [_] => return false,
            [1, tail @ ..] => rest = tail,
            [_, size, ..] => match rest.get(usize::from((*size).max(2))..) {
                Some(tail) => rest = tail,
                None => return false,
            },
        }
    }
}

fn flow_counter(field: NumberField, side: Side, comparison: Comparison, flow: &Flow) -> bool {
    if field == NumberField::FlowAge {
        let age = flow.last.nanos().saturating_sub(flow.start.nanos()) / 1_000_000_000;
        return compare(comparison, age);
    }
    let is_packets = matches!(
        field,
        NumberField::FlowPackets | NumberField::FlowPacketsToClient | NumberField::FlowPacketsToServer
    );
    let is_true = |direction: Direction| {
        let counters = &flow.counters[direction.index()];
        compare(
            comparison,
            if is_packets {
                counters.packets
            } else {
                counters.bytes
            },
        )
    };
    match side {
        Side::Client => is_true(Direction::ToServer),
        Side::Server => is_true(Direction::ToClient),
        Side::Both => is_true(Direction::ToServer) && is_true(Direction::ToClient),
        Side::Either => is_true(Direction::ToServer) || is_true(Direction::ToClient),
    }
}

fn stream_size(side: Side, comparison: Comparison, flow: &Flow) -> bool {
    let Some(session) = &flow.tcp else { return false };
    let is_true = |direction| {
        let sent = session.stream(direction).map_or(0, crate::tcp::Stream::sent);
        compare(comparison, sent)
    };
    match side {
        Side::Client => is_true(Direction::ToServer),
        Side::Server => is_true(Direction::ToClient),
        Side::Both => is_true(Direction::ToServer) && is_true(Direction::ToClient),
        Side::Either => is_true(Direction::ToServer) || is_true(Direction::ToClient),
    }
}

/// Returns program, version and procedure of the call of RPC with which a payload begins (RFC 5531, section 9).
fn rpc(packet: &Packet<'_>) -> Option<[u32; 3]> {
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    const VERSION: u32 = 2;
    // In a stream, the size of the message is in front.
    let base = match packet.protocol {
        TCP => 4,
        UDP => 0,
        _ => return None,
    };
    let word = |at: usize| {
        let bytes = packet.payload.get(base + at..)?.first_chunk()?;
        Some(u32::from_be_bytes(*bytes))
    };
    let is_call = word(4)? == 0 && word(8)? == VERSION;
    is_call.then_some([word(12)?, word(16)?, word(20)?])
}

/// Returns a number of the packet, or `None` if the packet does not have it.
fn number(field: NumberField, packet: &Packet<'_>) -> Option<u64> {
    match field {
        NumberField::Dsize => {
            let is_known = !packet.hides_payload() || packet.payload.is_empty();
            is_known.then_some(packet.payload.len() as u64)
        }
        NumberField::Ttl => Some(u64::from(packet.ip.ttl)),
        NumberField::Tos => Some(u64::from(packet.ip.tos)),
        NumberField::IpId => Some(u64::from(packet.ip.id)),
        NumberField::FragOffset => Some(u64::from(packet.ip.fragment_offset / 8)),
        NumberField::IcmpType => packet.icmp.map(|icmp| u64::from(icmp.kind)),
        NumberField::IcmpCode => packet.icmp.map(|icmp| u64::from(icmp.code)),
        NumberField::IcmpId => packet.icmp?.id.map(u64::from),
        NumberField::IcmpSeq => packet.icmp?.seq.map(u64::from),
        NumberField::TcpSeq => packet.tcp.map(|tcp| u64::from(tcp.seq)),
        NumberField::TcpAck => packet.tcp.map(|tcp| u64::from(tcp.ack)),
        NumberField::TcpWindow => packet.tcp.map(|tcp| u64::from(tcp.window)),
        NumberField::TcpMss => packet.tcp.and_then(|tcp| maximum_segment_size(tcp.options)),
        NumberField::TcpWindowScale => packet.tcp.and_then(|tcp| window_scale(tcp.options)),
        NumberField::Icmpv6Mtu => {
            let is_v6 = packet.ip.version == IpVersion::V6;
            packet.icmp.filter(|_| is_v6)?.mtu.map(u64::from)
        }
        NumberField::IgmpType => igmp(packet)?.first().map(|kind| u64::from(*kind)),
        NumberField::VlanLayers => Some(u64::from(packet.vlan_len)),
        // The compiler makes no packet conditions from other fields.
        _ => None,
    }
}

/// Returns the window scale of TCP options (RFC 7323, section 2.2).
fn window_scale(mut options: &[u8]) -> Option<u64> {
    loop {
        match options {
            [1, rest @ ..] => options = rest,
            [3, 3, scale, ..] => return Some(u64::from(*scale)),
            [0, ..] | [] | [_] => return None,
            [_, size, ..] => options = options.get(usize::from((*size).max(2))..)?,
        }
    }
}

/// Returns the header of an IGMP message: eight bytes, twelve of a query of version 3 (RFC 3376, section 4.1).
fn igmp<'a>(packet: &Packet<'a>) -> Option<&'a [u8]> {
    const IGMP: u8 = 2;
    const QUERY: u8 = 0x11;
    let message = packet.ip_payload();
    let size = if message.first() == Some(&QUERY) && message.len() >= 12 {
        12
    } else {
        8
    };
    let is_first = packet.protocol == IGMP && packet.ip.fragment_offset == 0;
    message.get(..size).filter(|_| is_first)
}

/// Returns the bytes of a buffer of a packet: a header or an address.
pub(super) fn buffer<'a>(buffer: Buffer, packet: &Packet<'a>, address: &'a mut [u8; 16]) -> Option<&'a [u8]> {
    const ICMP: u8 = 1;
    const ICMPV6: u8 = 58;
    const UDP: u8 = 17;
    let header = packet.ip.bytes.get(..packet.ip.header_size);
    let transport = || {
        let payload = packet.ip_payload();
        payload
            .len()
            .checked_sub(packet.payload.len())
            .and_then(|size| payload.get(..size))
    };
    match buffer {
        Buffer::Ipv4Header => header.filter(|_| packet.ip.version == IpVersion::V4),
        Buffer::Ipv6Header => header.filter(|_| packet.ip.version == IpVersion::V6),
        Buffer::TcpHeader => packet.tcp.and_then(|_| transport()),
        Buffer::UdpHeader => transport().filter(|_| packet.protocol == UDP && packet.ports.is_some()),
        Buffer::Icmpv4Header => transport().filter(|_| packet.protocol == ICMP && packet.icmp.is_some()),
        Buffer::Icmpv6Header => transport().filter(|_| packet.protocol == ICMPV6 && packet.icmp.is_some()),
        Buffer::IgmpHeader => igmp(packet),
        Buffer::IpSource | Buffer::IpDestination => {
            let found = if buffer == Buffer::IpSource {
                packet.src
            } else {
                packet.dst
            };
            Some(match found {
                IpAddr::V4(found) => {
                    address[..4].copy_from_slice(&found.octets());
                    &address[..4]
                }
                IpAddr::V6(found) => {
                    *address = found.octets();
                    &address[..]
                }
            })
        }
        _ => None,
    }
}

/// Returns the maximum segment size of TCP options (RFC 9293, section 3.1).
fn maximum_segment_size(mut options: &[u8]) -> Option<u64> {
    loop {
        match options {
            [1, rest @ ..] => options = rest,
            [2, 4, high, low, ..] => return Some(u64::from(u16::from_be_bytes([*high, *low]))),
            [0, ..] | [] | [_] => return None,
            [_, size, ..] => options = options.get(usize::from((*size).max(2))..)?,
        }
    }
}
