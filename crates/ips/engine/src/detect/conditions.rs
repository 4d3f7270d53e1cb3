//! Conditions on one packet and its flow: header, flow state, header fields.

use core::net::IpAddr;

use millrace_ips_rules::address::Value;
use millrace_ips_rules::options::number::{Comparison, NumberField};
use millrace_ips_rules::variables::Ranges;

use super::program::{BitMode, Endpoint, PacketTest, Rule, Side, compare};
use crate::flow::{Direction, Flow, FlowState};
use crate::packet::{IpVersion, Packet};

/// Returns true if a number is in sorted, disjoint ranges.
fn is_in(ranges: &[(u128, u128)], number: u128) -> bool {
    let after = ranges.partition_point(|(first, _)| *first <= number);
    after > 0 && number <= ranges[after - 1].1
}

/// Returns true if an address is in a set.
pub(super) fn has_address(ranges: &Ranges, address: IpAddr) -> bool {
    match address.to_space_and_number() {
        (0, number) => is_in(ranges.first(), number),
        (_, number) => is_in(ranges.second(), number),
    }
}

fn is_end(end: &Endpoint, address: IpAddr, port: Option<u16>) -> bool {
    if let Some(ranges) = &end.addresses
        && !has_address(ranges, address)
    {
        return false;
    }
    match (&end.ports, port) {
        (None, _) => true,
        (Some(ranges), Some(port)) => is_in(ranges.first(), u128::from(port)),
        // A packet without ports does not match a rule with ports.
        (Some(_), None) => false,
    }
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
    let (source_port, destination_port) = match packet.ports {
        Some((source, destination)) => (Some(source), Some(destination)),
        None => (None, None),
    };
    let is_forward = is_end(&rule.source, packet.src, source_port)
        && is_end(&rule.destination, packet.dst, destination_port);
    is_forward
        || rule.is_bidirectional
            && is_end(&rule.source, packet.dst, destination_port)
            && is_end(&rule.destination, packet.src, source_port)
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
    test.is_established
        .is_none_or(|asked| asked == (flow.state != FlowState::New))
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
        PacketTest::IpProtocol(comparison) => compare(*comparison, u64::from(packet.protocol)),
        PacketTest::SameIp => packet.src == packet.dst,
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
        // The compiler makes no packet conditions from these fields.
        NumberField::Bsize
        | NumberField::Urilen
        | NumberField::FileSize
        | NumberField::CertChainLen
        | NumberField::DnsOpcode => None,
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
