//! Filters: packets to a member's addresses that the exchange drops, limits or counts.
//!
//! Ownership, the order of precedence and the translation of RTBH and Flowspec are not here (`ix-filter`).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::id::{AccountId, FilterId};
use crate::ip_protocol::IpProtocol;
use crate::prefix::Prefix;
use crate::reason::{self, Reason};
use crate::time::Timestamp;

/// A range of transport ports, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Ports {
    /// The first port.
    pub first: u16,
    /// The last port.
    pub last: u16,
}

/// The parts of fragmented packets that a filter matches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FragmentMatch {
    /// Whole packets only.
    Not,
    /// Every fragment.
    Any,
    /// First fragments.
    First,
    /// Fragments after the first, which have no ports.
    Later,
}

/// The TCP flags that a filter matches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct TcpFlagsMatch {
    /// The bits that are compared (RFC 9293, section 3.1; FIN is bit 0).
    pub mask: u16,
    /// Their values.
    pub value: u16,
}

/// The packets that a filter matches.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct FilterMatch {
    pub destination: Prefix,
    #[serde(default)]
    pub source: Option<Prefix>,
    /// The IP protocol.
    #[serde(default)]
    pub protocol: Option<u8>,
    /// Any of these source ports; every one if empty.
    #[serde(default)]
    pub source_ports: Vec<Ports>,
    /// Any of these destination ports; every one if empty.
    #[serde(default)]
    pub destination_ports: Vec<Ports>,
    #[serde(default)]
    pub icmp_type: Option<u8>,
    #[serde(default)]
    pub icmp_code: Option<u8>,
    /// The part of a fragmented packet.
    #[serde(default)]
    pub fragment: Option<FragmentMatch>,
    /// The bits of the TCP header.
    #[serde(default)]
    pub tcp_flags: Option<TcpFlagsMatch>,
    /// The differentiated services code point.
    #[serde(default)]
    pub dscp: Option<u8>,
}

impl FilterMatch {
    /// Returns a match of all packets to a destination.
    pub fn to(destination: Prefix) -> FilterMatch {
        FilterMatch {
            destination,
            source: None,
            protocol: None,
            source_ports: Vec::new(),
            destination_ports: Vec::new(),
            icmp_type: None,
            icmp_code: None,
            fragment: None,
            tcp_flags: None,
            dscp: None,
        }
    }

    /// Returns the first condition that no packet can meet, as (field, reason).
    pub fn contradiction(&self) -> Option<(&'static str, Reason)> {
        let ports = [
            ("source_ports", &self.source_ports),
            ("destination_ports", &self.destination_ports),
        ];
        for (field, ranges) in ports {
            if let Some(range) = ranges.iter().find(|range| range.first > range.last) {
                return Some((field, reason::ports_order(range.first, range.last)));
            }
            if !ranges.is_empty() && !self.protocol.is_some_and(|number| IpProtocol(number).has_ports()) {
                return Some((field, reason::ports_protocol()));
            }
            if !ranges.is_empty() && self.fragment == Some(FragmentMatch::Later) {
                return Some((field, reason::ports_of_fragments()));
            }
        }
        if let Some(source) = self.source
            && source.is_ipv6() != self.destination.is_ipv6()
        {
            return Some(("source", reason::families_differ()));
        }
        let icmp = if self.destination.is_ipv6() { 58 } else { 1 };
        if (self.icmp_type.is_some() || self.icmp_code.is_some()) && self.protocol != Some(icmp) {
            return Some(("icmp_type", reason::icmp_protocol(icmp, IpProtocol(icmp))));
        }
        if let Some(flags) = self.tcp_flags {
            if self.protocol != Some(6) {
                return Some(("tcp_flags", reason::tcp_flags_protocol()));
            }
            if flags.mask > 0xfff || flags.value & !flags.mask != 0 || flags.mask == 0 {
                return Some(("tcp_flags", reason::tcp_flags_mask()));
            }
        }
        if self.dscp.is_some_and(|dscp| dscp > 63) {
            return Some(("dscp", reason::dscp_range()));
        }
        None
    }
}

/// The treatment of a filter's packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum FilterAction {
    /// The packets are dropped.
    Drop,
    /// The packets pass up to a rate, so that the end of an attack is visible.
    Shape {
        /// The rate in kbit/s.
        rate_kbps: u32,
    },
    /// The packets pass and are counted.
    Count,
}

/// The source of a filter: an interface of the exchange, or a BGP route.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilterOrigin {
    /// A page of the portal.
    Page,
    Api,
    /// A route with a blackhole community or next hop.
    Rtbh,
    /// A Flowspec route.
    Flowspec,
}

/// The phase of a filter's life, from its draft to its end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "name")]
pub enum FilterState {
    /// The filter is stored, but neither checked nor installed.
    Draft,
    /// The owner is entitled to the filter, and the switches can implement it.
    Checked,
    /// The filter should be installed in the switches.
    Active,
    /// The filter ended at its time, or with its route.
    Expired,
    /// The filter was not accepted.
    Refused(Reason),
    /// The filter is removed from the switches and may become active again.
    Suspended(Reason),
}

/// A rule that drops or limits packets to a member at every ingress of the exchange.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Filter {
    /// The account that the packets are addressed to.
    pub account: AccountId,
    /// The packets.
    pub matching: FilterMatch,
    /// Further packets that the filter matches: a Flowspec rule may have several values in one component.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<FilterMatch>,
    /// Packets from these accounts only; from every account if empty.
    #[serde(default)]
    pub peers: BTreeSet<AccountId>,
    /// The treatment.
    pub action: FilterAction,
    /// The source of the filter.
    pub origin: FilterOrigin,
    /// The order among the filters of an account. If two filters match a packet, the filter with the lower
    /// rank applies. Filters of equal rank apply in the order of `order`, then of their identifiers. See
    /// [`filter_rank`].
    pub rank: u32,
    /// The sort key among filters of equal rank, compared byte by byte. Flowspec rules have the order of RFC
    /// 8955, section 5.1.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub order: String,
    pub state: FilterState,
    /// The end of validity; `None` if the filter lasts as long as its route.
    #[serde(default)]
    pub valid_until: Option<Timestamp>,
    /// The end of an operator's exception. The ownership of the destination is not checked until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exempt_until: Option<Timestamp>,
    /// The reason for the filter, in the words of its owner.
    #[serde(default)]
    pub comment: Option<String>,
    /// The reference of the orderer, unique in the account.
    #[serde(default)]
    pub external_ref: Option<String>,
}

impl Filter {
    /// Returns all matches of the filter, `matching` first.
    pub fn matches(&self) -> impl Iterator<Item = &FilterMatch> {
        core::iter::once(&self.matching).chain(&self.alternatives)
    }

    /// Returns the sort key among an account's filters. If two filters match a packet, the filter with the
    /// lower key applies.
    pub fn precedence(&self, id: FilterId) -> (u32, &str, FilterId) {
        (self.rank, &self.order, id)
    }
}

/// Returns the rank of a filter by its origin and action: drops and limits that people order come first, then
/// rules of BGP, then filters that only count.
pub const fn filter_rank(origin: FilterOrigin, action: FilterAction) -> u32 {
    match (origin, action) {
        (FilterOrigin::Rtbh | FilterOrigin::Flowspec, _) => 300,
        (_, FilterAction::Drop) => 100,
        (_, FilterAction::Shape { .. }) => 200,
        (_, FilterAction::Count) => 400,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contradiction(change: impl FnOnce(&mut FilterMatch)) -> Option<&'static str> {
        let mut matching = FilterMatch::to("192.0.2.1/32".parse().unwrap());
        change(&mut matching);
        matching.contradiction().map(|(field, _)| field)
    }

    #[test]
    fn what_no_packet_can_have_is_named_by_its_field() {
        let ports = |first, last| vec![Ports { first, last }];
        assert_eq!(contradiction(|_| ()), None);
        assert_eq!(
            contradiction(|m| m.source_ports = ports(1, 1)),
            Some("source_ports")
        );
        assert_eq!(
            contradiction(|m| (m.protocol, m.destination_ports) = (Some(17), ports(5, 4))),
            Some("destination_ports")
        );
        assert_eq!(
            contradiction(|m| (m.protocol, m.source_ports) = (Some(17), ports(123, 123))),
            None
        );
        assert_eq!(contradiction(|m| m.source = "::/0".parse().ok()), Some("source"));
        assert_eq!(contradiction(|m| m.icmp_type = Some(8)), Some("icmp_type"));
        assert_eq!(contradiction(|m| m.dscp = Some(64)), Some("dscp"));
        let flags = TcpFlagsMatch { mask: 2, value: 4 };
        assert_eq!(
            contradiction(|m| (m.protocol, m.tcp_flags) = (Some(6), Some(flags))),
            Some("tcp_flags")
        );
    }
}
