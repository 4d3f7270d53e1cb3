//! The filter that applies to a packet, and the reasons why the others do not.

use core::net::IpAddr;

use millrace_ix_model::{
    AccountId, Exchange, FilterId, FilterMatch, FilterState, FragmentMatch, IpProtocol, Ports, Reason,
    Timestamp, reason,
};

/// A packet as filters see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    pub source: IpAddr,
    pub destination: IpAddr,
    /// The IP protocol.
    pub protocol: u8,
    /// The source port of TCP, UDP or SCTP.
    pub source_port: u16,
    pub destination_port: u16,
    pub icmp_type: u8,
    pub icmp_code: u8,
    /// The part of a fragmented packet: [`FragmentMatch::Not`], [`FragmentMatch::First`] or [`FragmentMatch::Later`].
    pub fragment: FragmentMatch,
    pub tcp_flags: u16,
    /// The differentiated services code point.
    pub dscp: u8,
    /// The account that sends it into the exchange.
    pub from: Option<AccountId>,
}

/// One filter in the order in which switches apply them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    pub filter: FilterId,
    /// True if the packet matches the filter.
    pub matches: bool,
    /// True if this filter decides about the packet.
    pub applies: bool,
    pub why: Reason,
}

/// A function that returns the reason for a mismatch between the packet's value and the expected value.
type Compared = fn(u8, u8) -> Reason;

/// Returns the first field that does not match, with the reason; `None` if the packet matches.
fn mismatch(matching: &FilterMatch, packet: &Packet) -> Option<Reason> {
    let has_header = packet.fragment != FragmentMatch::Later;
    if !matching.destination.contains(packet.destination) {
        return Some(reason::packet_destination(
            packet.destination,
            matching.destination,
        ));
    }
    if let Some(source) = matching.source
        && !source.contains(packet.source)
    {
        return Some(reason::packet_source(packet.source, source));
    }
    if let Some(protocol) = matching.protocol
        && protocol != packet.protocol
    {
        return Some(reason::packet_protocol(
            IpProtocol(packet.protocol),
            IpProtocol(protocol),
        ));
    }
    let ports = [
        (
            &matching.source_ports,
            packet.source_port,
            reason::packet_source_port(packet.source_port),
        ),
        (
            &matching.destination_ports,
            packet.destination_port,
            reason::packet_destination_port(packet.destination_port),
        ),
    ];
    for (ranges, port, reason) in ports {
        let within = |range: &Ports| (range.first..=range.last).contains(&port);
        if !ranges.is_empty() && !has_header {
            return Some(reason::packet_without_ports());
        }
        if !ranges.is_empty() && !ranges.iter().any(within) {
            return Some(reason);
        }
    }
    let octets = [
        (
            matching.icmp_type,
            packet.icmp_type,
            reason::packet_icmp_type as Compared,
        ),
        (matching.icmp_code, packet.icmp_code, reason::packet_icmp_code),
    ];
    for (expected, value, differs) in octets {
        match expected {
            Some(_) if !has_header => return Some(reason::packet_without_icmp()),
            Some(expected) if expected != value => {
                return Some(differs(value, expected));
            }
            _ => {}
        }
    }
    if let Some(flags) = matching.tcp_flags
        && (!has_header || packet.tcp_flags & flags.mask != flags.value)
    {
        return Some(reason::packet_tcp_flags(format_args!("{:#x}", packet.tcp_flags)));
    }
    if let Some(fragment) = matching.fragment {
        let is_meant = match fragment {
            FragmentMatch::Any => packet.fragment != FragmentMatch::Not,
            other => packet.fragment == other,
        };
        if !is_meant {
            return Some(reason::packet_fragment());
        }
    }
    match matching.dscp {
        Some(dscp) if dscp != packet.dscp => Some(reason::packet_dscp(packet.dscp, dscp)),
        _ => None,
    }
}

/// Returns true if the packet satisfies a filter's match.
pub fn matches(matching: &FilterMatch, packet: &Packet) -> bool {
    mismatch(matching, packet).is_none()
}

/// Returns the active filters of the account that receives a packet, in their order, with the reason why each does or does not
/// apply.
pub fn explain(exchange: &Exchange, account: AccountId, packet: &Packet, now: Timestamp) -> Vec<Step> {
    let mut filters: Vec<_> = exchange
        .filters
        .iter()
        .filter(|(_, filter)| filter.account == account && filter.state == FilterState::Active)
        .filter(|(_, filter)| filter.valid_until.is_none_or(|end| end > now))
        .collect();
    filters.sort_by(|one, other| one.1.precedence(*one.0).cmp(&other.1.precedence(*other.0)));
    let mut decided = false;
    let mut steps = Vec::new();
    for (id, filter) in filters {
        let is_foreign =
            !filter.peers.is_empty() && !packet.from.is_some_and(|from| filter.peers.contains(&from));
        let mismatches: Vec<Option<Reason>> = filter
            .matches()
            .map(|matching| mismatch(matching, packet))
            .collect();
        let matches = !is_foreign && mismatches.iter().any(Option::is_none);
        let applies = matches && !decided;
        let why = if is_foreign {
            reason::packet_of_another_peer()
        } else if applies {
            reason::filter_decides()
        } else if matches {
            reason::filter_after_another()
        } else {
            mismatches.into_iter().flatten().next().unwrap_or_default()
        };
        decided |= matches;
        steps.push(Step {
            filter: *id,
            matches,
            applies,
            why,
        });
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_explained_by_their_names() {
        let mut packet = Packet {
            source: [198, 51, 100, 7].into(),
            destination: [192, 0, 2, 1].into(),
            protocol: 17,
            source_port: 0,
            destination_port: 0,
            icmp_type: 0,
            icmp_code: 0,
            fragment: FragmentMatch::Not,
            tcp_flags: 0,
            dscp: 0,
            from: None,
        };
        let mut matching = FilterMatch::to("192.0.2.0/24".parse().unwrap());
        matching.protocol = Some(6);
        let text = |packet: &Packet| mismatch(&matching, packet).unwrap().text;
        assert_eq!(text(&packet), "UDP: expected TCP");
        packet.protocol = 200;
        assert_eq!(text(&packet), "protocol 200: expected TCP");
    }
}
