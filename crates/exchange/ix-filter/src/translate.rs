//! Translation of flow specifications to filters. The translation is exact, or the rule is refused.
//!
//! A rule becomes several matches, which together match the same packets: OpenFlow has one value, one prefix or one mask
//! for each field, and a component may have several values.
//!
//! Fragments after the first have no ports, flags or ICMP types. Open vSwitch's data model, which the
//! switches follow, gives those fields the value 0 there. A match on the value 0 therefore also has to
//! exclude these fragments.

use core::ops::RangeInclusive;

use millrace_bgp::flowspec::{
    BitmaskField, BitmaskOperator, Component, NumericField, NumericOperator, matches_bits, ranges,
};
use millrace_bgp::{Afi, Attributes, FlowRule, TrafficAction};
use millrace_ix_model::{FilterAction, FilterMatch, FragmentMatch, Ports, Reason, TcpFlagsMatch, reason};

use crate::prefix;
use crate::tcp_flags;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// The largest number of matches of one rule.
const MATCHES_MAX: usize = 2_000;
/// The largest number of ranges of ports in all matches of one rule: each needs at least one of the 20,000 entries that
/// an account may have.
const RANGES_MAX: usize = 20_000;
/// The largest number of operators of a component. A rule can carry 2,000. The cost of a translation grows
/// with the square of their number, and a peer may announce a thousand rules.
const OPERATORS_MAX: usize = 256;

/// The filter into which a rule is translated.
#[derive(Clone, PartialEq, Debug)]
pub struct Translated {
    /// Matches that together match the packets of the rule; at least one.
    pub matches: Vec<FilterMatch>,
    pub action: FilterAction,
}

/// The reason why a rule cannot be translated to a filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Untranslatable(pub Reason);

/// Translates a rule, with the actions in its attributes, to a filter.
///
/// # Errors
/// [`Untranslatable`] with the component or action that switches do not support.
pub fn translate(
    rule: &FlowRule,
    attributes: &Attributes,
    extensions: bool,
) -> Result<Translated, Untranslatable> {
    let action = action(attributes)?;
    let mut parts = Parts::new(rule.afi());
    for component in rule.components() {
        parts.take(&component, extensions)?;
    }
    let matches = parts.matches(extensions)?;
    Ok(Translated { matches, action })
}

fn refuse<T>(reason: Reason) -> Result<T, Untranslatable> {
    Err(Untranslatable(reason))
}

/// Returns the action of the communities (RFC 8955, section 7). Without an action, packets pass and are
/// counted.
pub(crate) fn action(attributes: &Attributes) -> Result<FilterAction, Untranslatable> {
    let mut result = None;
    let mut continues = false;
    if attributes.redirects_ipv6 {
        return refuse(reason::flowspec_redirect());
    }
    for community in &attributes.extended {
        let Some(action) = community.traffic_action() else {
            continue;
        };
        let chosen = match action {
            TrafficAction::Redirect => {
                return refuse(reason::flowspec_redirect());
            }
            TrafficAction::Mark(dscp) => {
                return refuse(reason::flowspec_mark(dscp));
            }
            TrafficAction::Action { continues: set, .. } => {
                continues |= set;
                continue;
            }
            TrafficAction::RateBytes(rate) | TrafficAction::RatePackets(rate) if rate.is_nan() => {
                return refuse(reason::flowspec_rate_nan());
            }
            // A negative rate is treated as 0 (RFC 8955, section 7.1).
            TrafficAction::RateBytes(rate) | TrafficAction::RatePackets(rate) if rate <= 0.0 => {
                FilterAction::Drop
            }
            TrafficAction::RatePackets(rate) => {
                return refuse(reason::flowspec_packets(rate));
            }
            TrafficAction::RateBytes(rate) => {
                let kbps = f64::from(rate) * 8.0 / 1000.0;
                if kbps < 1.0 {
                    return refuse(reason::flowspec_rate_low(rate));
                }
                // An infinite rate, or a rate above the range of meters, limits nothing.
                if kbps >= f64::from(u32::MAX) {
                    FilterAction::Count
                } else {
                    FilterAction::Shape {
                        rate_kbps: kbps as u32,
                    }
                }
            }
        };
        result = Some(match (result, chosen) {
            (None, chosen) => chosen,
            // The lowest of several rates applies (RFC 8955, section 7.7 leaves it open).
            (Some(FilterAction::Drop), _) | (_, FilterAction::Drop) => FilterAction::Drop,
            (Some(FilterAction::Count), other) | (Some(other), FilterAction::Count) => other,
            (Some(FilterAction::Shape { rate_kbps: one }), FilterAction::Shape { rate_kbps: other }) => {
                FilterAction::Shape {
                    rate_kbps: one.min(other),
                }
            }
        });
    }
    let result = result.unwrap_or(FilterAction::Count);
    if continues && result != FilterAction::Drop {
        return refuse(reason::flowspec_not_terminal());
    }
    Ok(result)
}

type Ranges = Vec<RangeInclusive<u64>>;

/// The components of a rule as sets of values.
struct Parts {
    afi: Afi,
    base: Option<FilterMatch>,
    source: Option<millrace_ix_model::Prefix>,
    protocols: Ranges,
    ports: Option<Ranges>,
    destination_ports: Option<Ranges>,
    source_ports: Option<Ranges>,
    icmp_types: Option<Ranges>,
    icmp_codes: Option<Ranges>,
    dscps: Ranges,
    tcp_flags: Option<Vec<TcpFlagsMatch>>,
    /// True for each type of packet that matches: whole packets, first fragments, later fragments.
    fragments: [bool; 3],
}

const PROTOCOLS: RangeInclusive<u64> = 0..=255;
const DSCPS: RangeInclusive<u64> = 0..=63;
const ALL_PORTS: RangeInclusive<u64> = 0..=65_535;
const ALL_OCTETS: RangeInclusive<u64> = 0..=255;

impl Parts {
    fn new(afi: Afi) -> Parts {
        Parts {
            afi,
            base: None,
            source: None,
            protocols: vec![PROTOCOLS],
            ports: None,
            destination_ports: None,
            source_ports: None,
            icmp_types: None,
            icmp_codes: None,
            dscps: vec![DSCPS],
            tcp_flags: None,
            fragments: [true; 3],
        }
    }

    fn take(&mut self, component: &Component, extensions: bool) -> Result<(), Untranslatable> {
        let count = match component {
            Component::Destination(_) | Component::Source(_) => 0,
            Component::Numeric(_, operators) => operators.len(),
            Component::Bitmask(_, operators) => operators.len(),
        };
        if count > OPERATORS_MAX {
            return refuse(reason::flowspec_operators(
                component.number(),
                count,
                OPERATORS_MAX,
            ));
        }
        match component {
            Component::Destination(pattern) | Component::Source(pattern) => {
                let Some(prefix) = pattern.prefix().and_then(prefix) else {
                    return refuse(reason::flowspec_offset(component));
                };
                if matches!(component, Component::Destination(_)) {
                    self.base = Some(FilterMatch::to(prefix));
                } else {
                    self.source = Some(prefix).filter(|prefix| !prefix.is_empty());
                }
            }
            Component::Numeric(field, operators) => self.numeric(*field, operators, component)?,
            Component::Bitmask(BitmaskField::TcpFlags, operators) => {
                if !extensions {
                    return refuse(reason::tcp_flags_unsupported());
                }
                self.tcp_flags = Some(tcp_flags::pairs(operators).map_err(Untranslatable)?);
            }
            Component::Bitmask(BitmaskField::Fragment, operators) => {
                self.fragments = fragments(operators, self.afi)?;
                if !extensions && self.fragments != [true; 3] && self.fragments != [false; 3] {
                    return refuse(reason::fragments_unsupported());
                }
            }
        }
        Ok(())
    }

    fn numeric(
        &mut self,
        field: NumericField,
        operators: &[NumericOperator],
        component: &Component,
    ) -> Result<(), Untranslatable> {
        match field {
            NumericField::Protocol => self.protocols = ranges(operators, *PROTOCOLS.end()),
            NumericField::Port => self.ports = Some(ranges(operators, *ALL_PORTS.end())),
            NumericField::DestinationPort => {
                self.destination_ports = Some(ranges(operators, *ALL_PORTS.end()))
            }
            NumericField::SourcePort => self.source_ports = Some(ranges(operators, *ALL_PORTS.end())),
            NumericField::IcmpType => self.icmp_types = Some(ranges(operators, *ALL_OCTETS.end())),
            NumericField::IcmpCode => self.icmp_codes = Some(ranges(operators, *ALL_OCTETS.end())),
            NumericField::Dscp => self.dscps = ranges(operators, *DSCPS.end()),
            NumericField::PacketLength => {
                return refuse(reason::flowspec_length(component));
            }
            NumericField::FlowLabel => {
                return refuse(reason::flowspec_flow_label(component));
            }
        }
        Ok(())
    }

    fn matches(self, extensions: bool) -> Result<Vec<FilterMatch>, Untranslatable> {
        let Some(mut base) = self.base.clone() else {
            return refuse(reason::flowspec_destination());
        };
        base.source = self.source;
        let mut matches = Vec::new();
        let mut ranges = 0;
        for transport in self.transports()? {
            for dscp in values(&self.dscps, &DSCPS) {
                for fragment in transport.fragments(self.fragments, extensions)? {
                    ranges += transport.ranges();
                    if ranges > RANGES_MAX {
                        return refuse(reason::filter_entries_full(RANGES_MAX));
                    }
                    let mut one = base.clone();
                    transport.write(&mut one);
                    one.dscp = dscp.map(|value| value as u8);
                    one.fragment = fragment;
                    matches.push(one);
                    if matches.len() > MATCHES_MAX {
                        return refuse(reason::flowspec_matches(MATCHES_MAX));
                    }
                }
            }
        }
        if matches.is_empty() {
            return refuse(reason::flowspec_contradiction());
        }
        Ok(matches)
    }

    /// Returns the combinations of protocol, ports, flags and ICMP.
    fn transports(&self) -> Result<Vec<Transport>, Untranslatable> {
        let has_ports =
            self.ports.is_some() || self.destination_ports.is_some() || self.source_ports.is_some();
        let has_icmp = self.icmp_types.is_some() || self.icmp_codes.is_some();
        let icmp = match self.afi {
            Afi::Ipv4 => ICMP,
            Afi::Ipv6 => ICMPV6,
        };
        if !has_ports && !has_icmp && self.tcp_flags.is_none() {
            let protocols = values(&self.protocols, &PROTOCOLS).into_iter();
            let transports = protocols.map(|protocol| Transport {
                protocol: protocol.map(|value| value as u8),
                ..Transport::default()
            });
            return Ok(transports.collect());
        }
        let within = |protocol: u8| {
            let number = u64::from(protocol);
            self.protocols.iter().any(|range| range.contains(&number))
        };
        let mut transports = Vec::new();
        for protocol in [TCP, UDP, icmp] {
            let is_icmp = protocol == icmp;
            if !within(protocol) || (has_ports && is_icmp) || (has_icmp && !is_icmp) {
                continue;
            }
            if self.tcp_flags.is_some() && protocol != TCP {
                continue;
            }
            let mut one = Transport {
                protocol: Some(protocol),
                needs_header: true,
                ..Transport::default()
            };
            if is_icmp {
                transports.extend(self.icmp(&one)?);
                continue;
            }
            one.source_ports = self.source_ports.clone();
            one.destination_ports = self.destination_ports.clone();
            let with_ports = match &self.ports {
                None => vec![one],
                // The component "port" matches the source port or the destination port. A packet may match by
                // both.
                Some(ports) => {
                    let mut by_source = one.clone();
                    by_source.source_ports = Some(intersection(ports, one.source_ports.as_ref()));
                    let mut by_destination = one.clone();
                    by_destination.destination_ports =
                        Some(intersection(ports, one.destination_ports.as_ref()));
                    vec![by_source, by_destination]
                }
            };
            for one in with_ports {
                let flags = match &self.tcp_flags {
                    Some(pairs) => pairs.iter().copied().map(Some).collect(),
                    None => vec![None],
                };
                transports.extend(flags.into_iter().map(|tcp_flags| Transport {
                    tcp_flags,
                    ..one.clone()
                }));
            }
        }
        // An empty set of ports matches no packet.
        transports.retain(|one| {
            let has_member = |ports: &Option<Ranges>| ports.as_ref().is_none_or(|ranges| !ranges.is_empty());
            has_member(&one.source_ports) && has_member(&one.destination_ports)
        });
        Ok(transports)
    }

    fn icmp(&self, base: &Transport) -> Result<Vec<Transport>, Untranslatable> {
        let list = |set: &Option<Ranges>| {
            set.as_ref()
                .map_or(vec![None], |ranges| values(ranges, &ALL_OCTETS))
        };
        let (types, codes) = (list(&self.icmp_types), list(&self.icmp_codes));
        if types.len() * codes.len() > MATCHES_MAX {
            return refuse(reason::flowspec_matches(MATCHES_MAX));
        }
        let mut transports = Vec::new();
        for icmp_type in types {
            for icmp_code in &codes {
                transports.push(Transport {
                    icmp_type: icmp_type.map(|value| value as u8),
                    icmp_code: icmp_code.map(|value| value as u8),
                    ..base.clone()
                });
            }
        }
        Ok(transports)
    }
}

/// One combination of protocol, ports, flags and ICMP.
#[derive(Clone, Default)]
struct Transport {
    protocol: Option<u8>,
    source_ports: Option<Ranges>,
    destination_ports: Option<Ranges>,
    icmp_type: Option<u8>,
    icmp_code: Option<u8>,
    tcp_flags: Option<TcpFlagsMatch>,
    /// True if the packet must have the header of its transport protocol, so that it is not a later fragment.
    needs_header: bool,
}

impl Transport {
    /// Returns the least number of entries that the ranges of ports need.
    fn ranges(&self) -> usize {
        let len = |set: &Option<Ranges>| set.as_ref().map_or(1, Vec::len);
        len(&self.source_ports) * len(&self.destination_ports)
    }

    fn write(&self, filter: &mut FilterMatch) {
        filter.protocol = self.protocol;
        let ports = |set: &Option<Ranges>| match set {
            Some(ranges) if *ranges != [ALL_PORTS] => ranges
                .iter()
                .map(|range| Ports {
                    first: *range.start() as u16,
                    last: *range.end() as u16,
                })
                .collect(),
            _ => Vec::new(),
        };
        filter.source_ports = ports(&self.source_ports);
        filter.destination_ports = ports(&self.destination_ports);
        filter.icmp_type = self.icmp_type;
        filter.icmp_code = self.icmp_code;
        filter.tcp_flags = self.tcp_flags.filter(|flags| flags.mask != 0);
    }

    /// Returns true if a later fragment would match. Its transport fields are 0.
    fn matches_zeros(&self) -> bool {
        let has_zero = |set: &Option<Ranges>| {
            set.as_ref()
                .is_none_or(|ranges| ranges.iter().any(|range| *range.start() == 0))
        };
        has_zero(&self.source_ports)
            && has_zero(&self.destination_ports)
            && self.icmp_type.is_none_or(|value| value == 0)
            && self.icmp_code.is_none_or(|value| value == 0)
            && self.tcp_flags.is_none_or(|flags| flags.value == 0)
    }

    /// Returns the types of packets (whole, first fragment, later fragment) that match, one for each entry.
    fn fragments(
        &self,
        [whole, first, later]: [bool; 3],
        extensions: bool,
    ) -> Result<Vec<Option<FragmentMatch>>, Untranslatable> {
        let later = later && !self.needs_header;
        // A match that requires a value other than 0 already excludes later fragments.
        if self.needs_header && whole && first && !self.matches_zeros() {
            return Ok(vec![None]);
        }
        let list = match (whole, first, later) {
            (true, true, true) => return Ok(vec![None]),
            (false, false, false) => return Ok(Vec::new()),
            (false, true, true) => vec![FragmentMatch::Any],
            (true, true, false) => vec![FragmentMatch::Not, FragmentMatch::First],
            (true, false, true) => vec![FragmentMatch::Not, FragmentMatch::Later],
            (true, false, false) => vec![FragmentMatch::Not],
            (false, true, false) => vec![FragmentMatch::First],
            (false, false, true) => vec![FragmentMatch::Later],
        };
        if !extensions {
            return refuse(reason::flowspec_zero());
        }
        Ok(list.into_iter().map(Some).collect())
    }
}

fn intersection(ones: &Ranges, others: Option<&Ranges>) -> Ranges {
    let Some(others) = others else {
        return ones.clone();
    };
    let mut common = Vec::new();
    for one in ones {
        for other in others {
            let (start, end) = (*one.start().max(other.start()), *one.end().min(other.end()));
            if start <= end {
                common.push(start..=end);
            }
        }
    }
    common.sort_unstable_by_key(|range| (*range.start(), *range.end()));
    common
}

/// Returns each value of the ranges. Returns a single `None` if the ranges contain all values of the field.
fn values(ranges: &Ranges, all: &RangeInclusive<u64>) -> Vec<Option<u64>> {
    if let [only] = &ranges[..]
        && only == all
    {
        return vec![None];
    }
    ranges.iter().cloned().flatten().map(Some).collect()
}

/// Returns true or false for whole packets, first fragments and later fragments: the value of the expression.
fn fragments(operators: &[BitmaskOperator], afi: Afi) -> Result<[bool; 3], Untranslatable> {
    const DF: u64 = 1;
    const IS_FRAGMENT: u64 = 2;
    const FIRST: u64 = 4;
    const LAST: u64 = 8;
    // IPv6 has no "don't fragment" bit; the rule's DF bit is ignored (RFC 8956, section 3.6).
    let dont_fragment: &[u64] = if afi == Afi::Ipv6 { &[0] } else { &[0, DF] };
    let operators: Vec<BitmaskOperator> = operators
        .iter()
        .map(|operator| BitmaskOperator {
            value: if afi == Afi::Ipv6 {
                operator.value & !DF
            } else {
                operator.value
            },
            ..*operator
        })
        .collect();
    let outcome = |states: &[u64]| {
        let mut outcomes = states
            .iter()
            .flat_map(|state| dont_fragment.iter().map(move |df| state | df))
            .map(|bits| matches_bits(&operators, bits));
        let first = outcomes.next();
        if outcomes.all(|outcome| Some(outcome) == first) {
            first
        } else {
            None
        }
    };
    let states: [&[u64]; 3] = [&[0], &[FIRST], &[IS_FRAGMENT, IS_FRAGMENT | LAST]];
    match states.map(outcome) {
        [Some(whole), Some(first), Some(later)] => Ok([whole, first, later]),
        _ => refuse(reason::flowspec_fragment_bits()),
    }
}
