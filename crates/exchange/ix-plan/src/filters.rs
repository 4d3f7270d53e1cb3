//! Filters: table 5. A rule is bound to the end by which a frame leaves, so that it affects only traffic to
//! its owner. Every switch has the rule, so that a frame is dropped where it enters the exchange.
//!
//! OpenFlow 1.3 matches ports exactly or not at all, and has no fields for fragments and TCP flags. With the
//! extensions of Open vSwitch, a range of ports needs at most 30 masks. Without the extensions, a filter with
//! a range of more than [`EXACT_PORTS_MAX`] ports, with fragments or with flags is left out and reported as a
//! problem; it is never approximated.

mod scope;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use millrace_flow::Field;
use millrace_ix_model::{
    AccountId, Exchange, Filter, FilterAction, FilterId, FilterMatch, FilterState, FragmentMatch, Ports,
    Prefix, Reason, SwitchId, reason,
};

pub(crate) use self::scope::FilterScope;
use crate::builder::{Builder, FlowBuilder};
use crate::entry::Matching;
use crate::lan::{IPV4, IPV6};
use crate::layout::{CookieFields, CookieKind, EGRESS, Metadata, PROTECT, filter_meter};
use crate::service::{Settings, has_entries};

/// The largest number of ports in a range that is written as exact ports, without masks.
pub const EXACT_PORTS_MAX: u32 = 64;
/// The largest number of entries of all filters of one account, for one end and in one switch.
pub(crate) const ENTRIES_MAX: usize = 20_000;
/// The highest priority of a filter.
const FIRST_PRIORITY: u16 = 60_000;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// The filters of one account that have a priority, by destination. Two filters can overlap only if their
/// destinations overlap.
#[derive(Default)]
struct Placed(BTreeMap<Prefix, Vec<(Vec<Matching>, u16)>>);

impl Placed {
    /// Returns the level of a filter, 0 for the highest priority: the first level below all earlier filters
    /// that it overlaps. Filters with destinations that do not overlap `destination` do not change the level.
    fn level(&self, destination: Prefix, matchings: &[Matching]) -> u16 {
        let wider = (0..destination.len()).filter_map(|len| self.0.get(&destination.truncated(len)));
        let within = self
            .0
            .range(destination..)
            .take_while(|(other, _)| destination.covers(**other))
            .map(|(_, placed)| placed);
        let overlapping = wider.chain(within).flatten().filter(|(others, _)| {
            others
                .iter()
                .any(|other| matchings.iter().any(|matching| matching.overlaps(other)))
        });
        overlapping.map(|(_, level)| level + 1).max().unwrap_or(0)
    }
}

/// Adds the active filters in a scope.
pub(crate) fn plan_filters(
    exchange: &Exchange,
    scope: &FilterScope,
    settings: &Settings,
    builder: &mut Builder,
) {
    let mut by_account: BTreeMap<AccountId, Vec<(FilterId, &Filter)>> = BTreeMap::new();
    for (id, filter) in &exchange.filters {
        if scope.contains(filter) && is_planned(filter, settings) {
            by_account.entry(filter.account).or_default().push((*id, filter));
        }
    }
    let mut ends = EndIndexes::default();
    for (account, mut filters) in by_account {
        filters.sort_by(|(one, a), (other, b)| a.precedence(*one).cmp(&b.precedence(*other)));
        plan_account(exchange, account, &filters, settings, &mut ends, builder);
    }
}

/// Returns true if a filter should be in the switches.
pub(crate) fn is_planned(filter: &Filter, settings: &Settings) -> bool {
    filter.state == FilterState::Active && filter.valid_until.is_none_or(|end| end > settings.now)
}

/// The indexes of the ends of accounts, found once for each account.
#[derive(Default)]
struct EndIndexes(BTreeMap<AccountId, Vec<u32>>);

impl EndIndexes {
    /// Returns the indexes of the ends of an account without duplicates.
    fn of(&mut self, exchange: &Exchange, account: AccountId) -> &[u32] {
        self.0.entry(account).or_insert_with(|| {
            let configs = exchange.configs.values();
            let own = configs.filter(|config| config.account == account && has_entries(exchange, config));
            let indexes: BTreeSet<u32> = own.map(|config| config.index.raw()).collect();
            indexes.into_iter().collect()
        })
    }
}

/// Returns the indexes of the ends whose frames a filter matches; `None` stands for every end.
fn sources_of(filter: &Filter, exchange: &Exchange, ends: &mut EndIndexes) -> Vec<Option<u32>> {
    if filter.peers.is_empty() {
        return vec![None];
    }
    let of_peer = |peer: &AccountId| ends.of(exchange, *peer).to_vec();
    let found: BTreeSet<u32> = filter.peers.iter().flat_map(of_peer).collect();
    found.into_iter().map(Some).collect()
}

/// A filter with the data for its entries. It has one entry for each match, victim and source.
struct PlannedFilter<'a> {
    id: FilterId,
    action: FilterAction,
    matchings: &'a [Matching],
    /// The indexes of the ends that the filter protects.
    victims: &'a [u32],
    sources: &'a [Option<u32>],
    priority: u16,
}

impl PlannedFilter<'_> {
    /// Adds the entries, and the meter if there is one, to a switch.
    fn add_to(&self, switch: SwitchId, builder: &mut Builder) {
        let meter = match self.action {
            FilterAction::Shape { rate_kbps } => {
                let meter = filter_meter(self.id);
                builder.rate_meter(switch, meter, rate_kbps);
                Some(meter)
            }
            FilterAction::Drop | FilterAction::Count => None,
        };
        for matching in self.matchings {
            for victim in self.victims {
                for source in self.sources {
                    let line = self.line(matching, *victim, *source);
                    let line = match self.action {
                        FilterAction::Drop => line,
                        FilterAction::Count | FilterAction::Shape { .. } => {
                            meter.into_iter().fold(line, FlowBuilder::meter).goto(EGRESS)
                        }
                    };
                    builder.flow(switch, line);
                }
            }
        }
    }

    /// Returns an entry without instructions, for frames from a source to a victim.
    fn line(&self, matching: &Matching, victim: u32, source: Option<u32>) -> FlowBuilder {
        let fields = Metadata {
            ingress_end: source.unwrap_or(0),
            egress_end: victim,
            ..Metadata::default()
        };
        let ingress = if source.is_some() {
            Metadata::INGRESS_END
        } else {
            0
        };
        let matching =
            matching
                .clone()
                .masked(Field::Metadata, fields.word(), Metadata::EGRESS_END | ingress);
        let cookie = CookieFields {
            kind: CookieKind::Filter,
            object: self.id.0,
            generation: 0,
        };
        // The engine removes filters at their end. A timeout of the switch would end active ones, too.
        FlowBuilder::new(PROTECT, self.priority, matching, cookie)
    }
}

/// Plans the filters of an account. A filter that would exceed [`ENTRIES_MAX`] becomes a problem.
fn plan_account(
    exchange: &Exchange,
    account: AccountId,
    filters: &[(FilterId, &Filter)],
    settings: &Settings,
    ends: &mut EndIndexes,
    builder: &mut Builder,
) {
    let victims = ends.of(exchange, account).to_vec();
    let mut placed = Placed::default();
    let mut entries = 0;
    for (id, filter) in filters {
        let matchings = match expand_all(filter, settings.extensions) {
            Ok(matchings) => matchings,
            Err(reason) => {
                builder.problem(*id, reason.text);
                continue;
            }
        };
        let sources = sources_of(filter, exchange, ends);
        let copies = sources.len();
        if entries + matchings.len() * copies > ENTRIES_MAX {
            let message = format!(
                "the account's filters need more than {ENTRIES_MAX} entries: use prefixes and exact ports"
            );
            builder.problem(*id, message);
            continue;
        }
        entries += matchings.len() * copies;
        let destination = filter.matching.destination;
        let level = placed.level(destination, &matchings);
        let planned = PlannedFilter {
            id: *id,
            action: filter.action,
            matchings: &matchings,
            victims: &victims,
            sources: &sources,
            priority: FIRST_PRIORITY - level,
        };
        for switch in exchange.switches.keys() {
            planned.add_to(*switch, builder);
        }
        placed.0.entry(destination).or_default().push((matchings, level));
    }
}

/// Returns the matches of a filter without duplicates. The matches of its alternatives may overlap, and have
/// the same action.
fn expand_all(filter: &Filter, extensions: bool) -> Result<Vec<Matching>, Reason> {
    let mut all = BTreeSet::new();
    for matching in filter.matches() {
        all.extend(expand(matching, extensions)?);
    }
    Ok(all.into_iter().collect())
}

/// Returns the number of entries that a match needs in one switch.
///
/// # Errors
/// The reason why switches cannot implement the match.
pub fn filter_entries(filter: &FilterMatch, extensions: bool) -> Result<usize, Reason> {
    Expansion::of(filter, extensions).map(|expansion| expansion.len())
}

/// Returns the matches of a filter's packets, or the reason why switches cannot implement them.
pub(crate) fn expand(filter: &FilterMatch, extensions: bool) -> Result<Vec<Matching>, Reason> {
    Expansion::of(filter, extensions).map(Expansion::matchings)
}

/// The matches of a filter's packets: the product of a common part and the masks of ports.
struct Expansion {
    base: Matching,
    /// The fields of the ports that the filter names, each with its masks.
    ports: Vec<(Field, Vec<(u16, u16)>)>,
    /// True if the filter needs a transport header, and does not say which fragments it matches. Later fragments have no
    /// such header, and zeros in its fields: a match of only zeros is therefore limited to other packets.
    excludes_later: bool,
}

impl Expansion {
    fn of(filter: &FilterMatch, extensions: bool) -> Result<Expansion, Reason> {
        if let Some((_, reason)) = filter.contradiction() {
            return Err(reason);
        }
        let is_ipv6 = filter.destination.is_ipv6();
        let mut base = Matching::any().with(Field::EthType, if is_ipv6 { IPV6 } else { IPV4 });
        base = with_prefix(base, filter.destination, [Field::Ipv4Dst, Field::Ipv6Dst]);
        if let Some(source) = filter.source {
            base = with_prefix(base, source, [Field::Ipv4Src, Field::Ipv6Src]);
        }
        if let Some(protocol) = filter.protocol {
            base = base.with(Field::IpProto, protocol);
        }
        if let Some(dscp) = filter.dscp {
            base = base.with(Field::IpDscp, dscp);
        }
        let icmp = if is_ipv6 {
            [Field::Icmpv6Type, Field::Icmpv6Code]
        } else {
            [Field::Icmpv4Type, Field::Icmpv4Code]
        };
        for (field, value) in icmp.into_iter().zip([filter.icmp_type, filter.icmp_code]) {
            base = value
                .into_iter()
                .fold(base, |base, value| base.with(field, value));
        }
        let has_ports = !filter.source_ports.is_empty() || !filter.destination_ports.is_empty();
        let has_octets = filter.icmp_type.is_some() || filter.icmp_code.is_some();
        let needs_header = has_ports || has_octets || filter.tcp_flags.is_some();
        if let Some(fragment) = filter.fragment {
            if !extensions {
                return Err(reason::fragments_unsupported());
            }
            let fragment = match fragment {
                FragmentMatch::Any if needs_header => FragmentMatch::First,
                fragment => fragment,
            };
            base = with_fragment(base, fragment);
        }
        if let Some(flags) = filter.tcp_flags {
            if !extensions {
                return Err(reason::tcp_flags_unsupported());
            }
            base = base.masked(Field::TcpFlags, flags.value, flags.mask);
        }
        let fields = match filter.protocol {
            Some(TCP) => [Field::TcpSrc, Field::TcpDst],
            Some(UDP) => [Field::UdpSrc, Field::UdpDst],
            _ => [Field::SctpSrc, Field::SctpDst],
        };
        let mut ports = Vec::new();
        for (field, ranges) in fields
            .into_iter()
            .zip([&filter.source_ports, &filter.destination_ports])
        {
            if !ranges.is_empty() {
                ports.push((field, port_masks(ranges, extensions)?));
            }
        }
        let is_zero = |octet: Option<u8>| octet.is_none_or(|value| value == 0);
        let expansion = Expansion {
            base,
            ports,
            excludes_later: needs_header
                && filter.fragment.is_none()
                && is_zero(filter.icmp_type)
                && is_zero(filter.icmp_code)
                && filter.tcp_flags.is_none_or(|flags| flags.value == 0),
        };
        if expansion.has_zeros() && !extensions {
            return Err(reason::flowspec_zero());
        }
        if expansion.len() > ENTRIES_MAX {
            return Err(reason::ports_entries(ENTRIES_MAX));
        }
        Ok(expansion)
    }

    /// Returns true if one of the matches would also match later fragments. The masks of a field do not overlap, so that at
    /// most one match has only zeros.
    fn has_zeros(&self) -> bool {
        let has_zero = |masks: &[(u16, u16)]| masks.iter().any(|(value, _)| *value == 0);
        self.excludes_later && self.ports.iter().all(|(_, masks)| has_zero(masks))
    }

    fn len(&self) -> usize {
        let masks: usize = self.ports.iter().map(|(_, masks)| masks.len()).product();
        masks + usize::from(self.has_zeros())
    }

    fn matchings(self) -> Vec<Matching> {
        let mut matchings = vec![(self.base, true)];
        for (field, masks) in self.ports {
            let with_ports = |(matching, is_zero): &(Matching, bool)| {
                let (matching, is_zero) = (matching.clone(), *is_zero);
                let masks = masks.iter();
                masks.map(move |(value, mask)| {
                    let matching = matching.clone().masked(field, *value, *mask);
                    (matching, is_zero && *value == 0)
                })
            };
            matchings = matchings.iter().flat_map(with_ports).collect();
        }
        let limited = |(matching, is_zero): (Matching, bool)| {
            if !is_zero || !self.excludes_later {
                return vec![matching];
            }
            [FragmentMatch::Not, FragmentMatch::First]
                .map(|fragment| with_fragment(matching.clone(), fragment))
                .to_vec()
        };
        matchings.into_iter().flat_map(limited).collect()
    }
}

fn with_fragment(matching: Matching, fragment: FragmentMatch) -> Matching {
    // The bits of ip_frag: 1 is any fragment, 2 is a later one.
    let (value, mask) = match fragment {
        FragmentMatch::Not => (0u8, 3u8),
        FragmentMatch::Any => (1, 1),
        FragmentMatch::First => (1, 3),
        FragmentMatch::Later => (3, 3),
    };
    matching.masked(Field::IpFrag, value, mask)
}

fn with_prefix(matching: Matching, prefix: Prefix, [v4, v6]: [Field; 2]) -> Matching {
    let shift = |bits: u32| bits - u32::from(prefix.len());
    match prefix.address() {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(shift(32)).unwrap_or(0);
            matching.masked(v4, address.to_bits(), mask)
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(shift(128)).unwrap_or(0);
            matching.masked(v6, address.to_bits(), mask)
        }
    }
}

/// Returns values and masks that match exactly the ports of any of the ranges, each port once.
fn port_masks(ranges: &[Ports], extensions: bool) -> Result<Vec<(u16, u16)>, Reason> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    let mut merged: Vec<Ports> = Vec::new();
    for range in sorted {
        match merged.last_mut() {
            Some(last) if u32::from(range.first) <= u32::from(last.last) + 1 => {
                last.last = last.last.max(range.last);
            }
            _ => merged.push(range),
        }
    }
    let mut masks = Vec::new();
    for Ports { first, last } in merged {
        let count = u32::from(last) - u32::from(first) + 1;
        if !extensions {
            if count > EXACT_PORTS_MAX {
                return Err(reason::ports_exact(first, last, count, EXACT_PORTS_MAX));
            }
            masks.extend((first..=last).map(|port| (port, u16::MAX)));
            continue;
        }
        let (mut at, end) = (u32::from(first), u32::from(last));
        while at <= end {
            // The largest block that begins here and ends within the range.
            let aligned = if at == 0 { 16 } else { at.trailing_zeros().min(16) };
            let fits = (end - at + 1).ilog2();
            let bits = aligned.min(fits);
            masks.push((at as u16, (u32::from(u16::MAX) << bits) as u16));
            at += 1 << bits;
        }
    }
    Ok(masks)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Destinations within 10.0.0.0/8 that often overlap.
    fn destination() -> impl Strategy<Value = Prefix> {
        (0u8..4, 0u8..4, prop::sample::select(vec![8u8, 14, 16, 24, 32])).prop_map(|(second, third, len)| {
            let host = Prefix::host(IpAddr::from([10, second, third, 1]));
            host.truncated(len)
        })
    }

    proptest! {
        #[test]
        fn the_level_of_a_filter_is_that_of_a_comparison_with_all_earlier_ones(
            filters in prop::collection::vec((destination(), prop::option::of(0u8..3)), 1..40),
        ) {
            let (mut placed, mut all) = (Placed::default(), Vec::<(Matching, u16)>::new());
            for (destination, protocol) in filters {
                let matching = FilterMatch { protocol, ..FilterMatch::to(destination) };
                let matchings = expand(&matching, true).unwrap();
                let level = placed.level(destination, &matchings);
                let slow = all
                    .iter()
                    .filter(|(other, _)| other.overlaps(&matchings[0]))
                    .map(|(_, level)| level + 1)
                    .max();
                prop_assert_eq!(level, slow.unwrap_or(0));
                all.push((matchings[0].clone(), level));
                placed.0.entry(destination).or_default().push((matchings, level));
            }
        }

        #[test]
        fn the_masks_of_ranges_are_exactly_their_ports(
            ends in prop::collection::vec((any::<u16>(), any::<u16>()), 1..4), port in any::<u16>(),
        ) {
            let ranges: Vec<_> = ends.iter().map(|(a, b)| Ports { first: *a.min(b), last: *a.max(b) }).collect();
            let masks = port_masks(&ranges, true).unwrap();
            prop_assert!(masks.len() <= 30 * ranges.len());
            for port in ranges.iter().flat_map(|range| [range.first, range.last, port]) {
                let wanted = ranges.iter().any(|range| (range.first..=range.last).contains(&port));
                let hits = masks.iter().filter(|(value, mask)| port & mask == *value).count();
                prop_assert_eq!(hits, usize::from(wanted), "{}", port);
            }
        }
    }

    #[test]
    fn the_worst_range_has_thirty_masks_and_all_ports_one() {
        let range = |first, last| port_masks(&[Ports { first, last }], true).unwrap().len();
        assert_eq!(range(1, 65_534), 30);
        assert_eq!(range(0, 65_535), 1);
    }

    #[test]
    fn what_the_switches_cannot_match_is_refused_in_words() {
        let mut filter = FilterMatch::to("192.0.2.1/32".parse().unwrap());
        filter.protocol = Some(17);
        filter.source_ports = vec![Ports { first: 0, last: 64 }];
        let refused = |filter: &FilterMatch| expand(filter, false).unwrap_err();
        assert!(refused(&filter).text.contains("single ports"));
        filter.source_ports = vec![Ports { first: 1, last: 64 }];
        assert_eq!(expand(&filter, false).unwrap().len(), 64);
        filter.source_ports.clear();
        filter.fragment = Some(FragmentMatch::Later);
        assert!(refused(&filter).text.contains("fragments"));
        assert_eq!(expand(&filter, true).unwrap().len(), 1);
    }

    #[test]
    fn a_match_of_zeros_is_limited_to_packets_with_a_transport_header() {
        let mut filter = FilterMatch::to("192.0.2.1/32".parse().unwrap());
        filter.protocol = Some(17);
        filter.destination_ports = vec![Ports { first: 0, last: 63 }];
        let refused = expand(&filter, false).unwrap_err();
        assert!(refused.text.contains("leave 0 out"), "{}", refused.text);
        let fragments = |filter: &FilterMatch| -> Vec<_> {
            let matchings = expand(filter, true).unwrap();
            assert_eq!(filter_entries(filter, true).unwrap(), matchings.len());
            matchings
                .iter()
                .map(|matching| matching.field(Field::IpFrag))
                .collect()
        };
        let (whole, first) = (Some((0, None)), Some((1, None)));
        assert_eq!(fragments(&filter), [whole, first]);
        // A source port above 0 excludes later fragments.
        filter.source_ports = vec![Ports { first: 53, last: 53 }];
        assert_eq!(fragments(&filter), [None]);
        assert_eq!(expand(&filter, false).unwrap().len(), 64);
        // A block with both ports 0, and three other ones.
        filter.source_ports = vec![Ports { first: 0, last: 2 }];
        filter.destination_ports = vec![Ports { first: 0, last: 4 }];
        assert_eq!(fragments(&filter), [whole, first, None, None, None]);
        filter.fragment = Some(FragmentMatch::Any);
        assert_eq!(fragments(&filter), [first; 4]);
        let echo_reply = FilterMatch {
            protocol: Some(1),
            icmp_type: Some(0),
            ..FilterMatch::to("192.0.2.1/32".parse().unwrap())
        };
        assert_eq!(fragments(&echo_reply), [whole, first]);
        assert!(expand(&echo_reply, false).is_err());
        let echo = FilterMatch {
            icmp_type: Some(8),
            icmp_code: Some(0),
            ..echo_reply
        };
        assert_eq!(fragments(&echo), [None]);
    }

    #[test]
    fn every_match_of_an_expanded_filter_is_valid() {
        let mut filter = FilterMatch::to("2001:db8::/32".parse().unwrap());
        filter.source = "::/0".parse().ok();
        filter.protocol = Some(6);
        filter.source_ports = vec![Ports { first: 5, last: 900 }];
        filter.destination_ports = vec![Ports { first: 80, last: 80 }];
        filter.dscp = Some(5);
        filter.fragment = Some(FragmentMatch::Not);
        for matching in expand(&filter, true).unwrap() {
            matching.to_match().unwrap();
        }
    }
}
