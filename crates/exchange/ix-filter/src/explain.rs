//! The filter that applies to a packet, and the reasons why the others do not.

use core::net::IpAddr;

use millrace_ix_model::{
    AccountId, Exchange, FilterId, FilterMatch, FilterState, FragmentMatch, Ports, Timestamp,
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
    /// True if the filter means the packet.
    pub matches: bool,
    /// True for the one filter that decides.
    pub applies: bool,
    /// The reason in words.
    pub why: String,
}

/// Returns the first field that does not match, with the reason; `None` if the packet matches.
fn mismatch(matching: &FilterMatch, packet: &Packet) -> Option<String> {
    let has_header = packet.fragment != FragmentMatch::Later;
    if !matching.destination.contains(packet.destination) {
        return Some(format!(
            "{} is not in {}",
            packet.destination, matching.destination
        ));
    }
    if let Some(source) = matching.source
        && !source.contains(packet.source)
    {
        return Some(format!("the source {} is not in {source}", packet.source));
    }
    if let Some(protocol) = matching.protocol
        && protocol != packet.protocol
    {
        return Some(format!("protocol {}: expected {protocol}", packet.protocol));
    }
    let ports = [
        ("source port", &matching.source_ports, packet.source_port),
        (
            "destination port",
            &matching.destination_ports,
            packet.destination_port,
        ),
    ];
    for (name, ranges, port) in ports {
        let within = |range: &Ports| (range.first..=range.last).contains(&port);
        if !ranges.is_empty() && !has_header {
            return Some(format!("a fragment after the first has no {name}"));
        }
        if !ranges.is_empty() && !ranges.iter().any(within) {
            return Some(format!("{name} {port} is not meant"));
        }
    }
    let octets = [
        ("ICMP type", matching.icmp_type, packet.icmp_type),
        ("ICMP code", matching.icmp_code, packet.icmp_code),
    ];
    for (name, expected, value) in octets {
        match expected {
            Some(_) if !has_header => return Some(format!("a fragment after the first has no {name}")),
            Some(expected) if expected != value => {
                return Some(format!("{name} {value}: expected {expected}"));
            }
            _ => {}
        }
    }
    if let Some(flags) = matching.tcp_flags
        && (!has_header || packet.tcp_flags & flags.mask != flags.value)
    {
        return Some(format!("TCP flags {:#x} are not meant", packet.tcp_flags));
    }
    if let Some(fragment) = matching.fragment {
        let is_meant = match fragment {
            FragmentMatch::Any => packet.fragment != FragmentMatch::Not,
            other => packet.fragment == other,
        };
        if !is_meant {
            return Some("another part of a fragmented packet is meant".to_owned());
        }
    }
    match matching.dscp {
        Some(dscp) if dscp != packet.dscp => Some(format!("DSCP {}: expected {dscp}", packet.dscp)),
        _ => None,
    }
}

/// Returns true if a filter's match means the packet.
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
        let mismatches: Vec<Option<String>> = filter
            .matches()
            .map(|matching| mismatch(matching, packet))
            .collect();
        let matches = !is_foreign && mismatches.iter().any(Option::is_none);
        let applies = matches && !decided;
        let why = if is_foreign {
            "the packet does not come from a peer that the filter names".to_owned()
        } else if applies {
            "the first filter that means the packet".to_owned()
        } else if matches {
            "an earlier filter applies".to_owned()
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
