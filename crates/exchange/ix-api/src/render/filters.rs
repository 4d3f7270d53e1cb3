//! Converts filters, and traffic to a destination, into values of the API.

use millrace_ix_model::{
    Filter, FilterAction, FilterId, FilterMatch, FilterOrigin, FilterState, IpProtocol, OperationKind, Ports,
};

use super::{ViewContext, word};
use crate::observed;
use crate::view;

impl ViewContext<'_> {
    pub(crate) fn filter(&self, id: FilterId, filter: &Filter) -> view::Filter {
        let (state, reason) = match &filter.state {
            FilterState::Draft => ("draft", None),
            FilterState::Checked => ("checked", None),
            FilterState::Active => ("active", None),
            FilterState::Expired => ("expired", None),
            FilterState::Refused(reason) => ("refused", Some(reason)),
            FilterState::Suspended(reason) => ("suspended", Some(reason)),
        };
        let reason = reason.map(|reason| self.names().reason(reason.clone()));
        // A refused filter does nothing. If it comes from a BGP route, the rule is shown as its peer has announced it.
        let is_refused = matches!(filter.state, FilterState::Refused(_));
        let (action, rate_kbps) = if is_refused {
            ("none", None)
        } else {
            action(filter.action)
        };
        let announced = filter
            .comment
            .clone()
            .filter(|_| is_refused && is_of_route(filter.origin));
        view::Filter {
            id: id.to_string(),
            account: self.account_name(filter.account),
            matching: announced.unwrap_or_else(|| matching(&filter.matching)),
            destination: filter.matching.destination.to_string(),
            peers: filter
                .peers
                .iter()
                .map(|peer| self.account_name(*peer).name)
                .collect(),
            action: action.to_owned(),
            rate_kbps,
            origin: word(&filter.origin),
            state: state.to_owned(),
            coded: reason
                .as_ref()
                .map(|reason| view::coded(&reason.coded))
                .unwrap_or_default(),
            reason: reason.map(|reason| reason.text),
            comment: filter.comment.clone(),
            counter: self.counters.get(&id).map(|counter| view::Counter {
                packets: counter.packets,
                bytes: counter.bytes,
                packets_per_s: counter.packets_per_s,
                bits_per_s: counter.bits_per_s,
            }),
            order: (!is_of_route(filter.origin)).then(|| view::NewFilter {
                account: Some(filter.account.to_string()),
                peers: filter.peers.iter().map(ToString::to_string).collect(),
                comment: filter.comment.clone(),
                ..new_filter(&filter.matching, filter.action)
            }),
            expires: filter.valid_until.map(|time| time.to_string()),
            revision: self.snapshot.revision_of(id.into()),
            can: self.can(id, &[OperationKind::WriteFilter]),
        }
    }

    pub(crate) fn traffic(&self, attack: &observed::Attack) -> view::Traffic {
        let share = |by: &str, share: &observed::Share| view::Share {
            label: match share.label.parse() {
                Ok(peer) if by == "peer" => self
                    .peer_name(peer, None)
                    .map_or_else(|| "?".to_owned(), |peer| peer.name),
                _ => share.label.clone(),
            },
            bits_per_s: share.bits_per_s,
        };
        let minute = |minute: &observed::Minute| view::Minute {
            at: minute.at.to_string(),
            passed_bps: minute.passed_bps,
            dropped_bps: minute.dropped_bps,
        };
        view::Traffic {
            target: target(&attack.target),
            dropped_bits_per_s: attack.dropped_bits_per_s,
            packets_per_s: attack.packets_per_s,
            error_percent: attack.error_percent,
            minutes: attack.minutes.iter().map(minute).collect(),
            breakdown: attack
                .breakdown
                .iter()
                .map(|(by, shares)| view::Breakdown {
                    by: (*by).to_owned(),
                    shares: shares.iter().map(|found| share(by, found)).collect(),
                })
                .collect(),
            suggestions: attack.suggestions.iter().map(suggestion).collect(),
        }
    }
}

/// Returns true for filters that come from BGP routes.
fn is_of_route(origin: FilterOrigin) -> bool {
    match origin {
        FilterOrigin::Page | FilterOrigin::Api => false,
        FilterOrigin::Rtbh | FilterOrigin::Flowspec => true,
    }
}

pub(crate) fn target(target: &observed::Target) -> view::Target {
    view::Target {
        prefix: target.prefix.to_string(),
        bits_per_s: target.bits_per_s,
        usual_bits_per_s: target.usual_bits_per_s,
    }
}

fn action(action: FilterAction) -> (&'static str, Option<u32>) {
    match action {
        FilterAction::Drop => ("drop", None),
        FilterAction::Shape { rate_kbps } => ("shape", Some(rate_kbps)),
        FilterAction::Count => ("count", None),
    }
}

/// Returns the order that creates a filter with this match and this action.
pub(crate) fn new_filter(found: &FilterMatch, treatment: FilterAction) -> view::NewFilter {
    let ranges = |ports: &[Ports]| {
        let range = |ports: &Ports| view::PortRange {
            first: ports.first,
            last: ports.last,
        };
        ports.iter().map(range).collect()
    };
    let (action, rate_kbps) = action(treatment);
    view::NewFilter {
        destination: found.destination.to_string(),
        source: found.source.map(|source| source.to_string()),
        protocol: found.protocol,
        source_ports: ranges(&found.source_ports),
        destination_ports: ranges(&found.destination_ports),
        icmp_type: found.icmp_type,
        icmp_code: found.icmp_code,
        fragment: found.fragment.map(|fragment| word(&fragment)),
        tcp_flags: found.tcp_flags.map(|flags| view::TcpFlags {
            mask: flags.mask,
            value: flags.value,
        }),
        dscp: found.dscp,
        action: action.to_owned(),
        rate_kbps,
        ..view::NewFilter::default()
    }
}

fn suggestion(suggestion: &observed::Suggestion) -> view::Suggestion {
    view::Suggestion {
        matching: matching(&suggestion.matching),
        order: new_filter(&suggestion.matching, suggestion.action),
        covers: suggestion.covers,
        collateral: suggestion.collateral,
        why: suggestion.why.text.clone(),
        coded: view::coded(&suggestion.why.coded),
    }
}

/// Describes the packets that a filter matches, in the terms of network engineers.
pub(crate) fn matching(found: &FilterMatch) -> String {
    let ports = |ports: &[Ports]| {
        let one = |ports: &Ports| {
            if ports.first == ports.last {
                ports.first.to_string()
            } else {
                format!("{}-{}", ports.first, ports.last)
            }
        };
        ports.iter().map(one).collect::<Vec<_>>().join(",")
    };
    let mut words = vec![format!("to {}", found.destination)];
    if let Some(source) = found.source {
        words.push(format!("from {source}"));
    }
    if let Some(protocol) = found.protocol {
        words.push(IpProtocol(protocol).to_string());
    }
    if !found.source_ports.is_empty() {
        words.push(format!("source port {}", ports(&found.source_ports)));
    }
    if !found.destination_ports.is_empty() {
        words.push(format!("port {}", ports(&found.destination_ports)));
    }
    if let Some(kind) = found.icmp_type {
        words.push(format!("type {kind}"));
    }
    if let Some(flags) = found.tcp_flags {
        words.push(format!("tcp flags {:#05x}/{:#05x}", flags.value, flags.mask));
    }
    if let Some(dscp) = found.dscp {
        words.push(format!("dscp {dscp}"));
    }
    if let Some(fragment) = found.fragment {
        words.push(format!("fragment {}", word(&fragment)));
    }
    words.join(", ")
}
