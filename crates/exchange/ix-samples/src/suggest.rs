//! Suggested filters: the smallest set of rules that covers most of an attack and little of the traffic before it.
//!
//! The excess of a rule is the traffic that it matches now less the traffic that it matched before the
//! attack, both as rates. Candidates are the heavy header values of the window: source ports, destination
//! ports, TCP control bits, fragments, protocols, sources, and pairs of them. Rules are chosen greedily by
//! the excess that they add, among those that keep the share of the earlier traffic below its bound. If
//! several rules cover nearly as much, the rule with the least earlier traffic is chosen, and among equals the
//! most specific one.
//!
//! A rule drops its packets only if the usual traffic tells them from legitimate ones. If the usual traffic to the
//! target is not known, or the target had none, new legitimate traffic looks like an attack; and a rule that matches
//! a whole IP protocol also matches services that begin later. Such rules limit the rate.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use millrace_ix_model::{
    FilterAction, FilterMatch, FragmentMatch, IpProtocol, Ports, Prefix, Reason, TcpFlagsMatch, reason,
};
use millrace_wire::IpProto;
use serde::Serialize;

use crate::observation::total_bytes;
use crate::{Observation, matches};

/// The minimum share of the excess that the rules together must cover.
const COVERS: f64 = 0.9;
/// The covered share of the excess at which the search for further rules ends.
const ENOUGH: f64 = 0.97;
/// The largest share of the earlier traffic that the rules may cover together.
const COLLATERAL_MAX: f64 = 0.01;
/// The share of the excess that a rule must add.
const GAIN_MIN: f64 = 0.01;
/// The samples of the window that a rule must match: of fewer, the rate has an error of more than 62 %, and ordinary packets look
/// like a part of the attack.
const SAMPLES_MIN: usize = 10;
/// The share of the window's bytes that makes a header value a candidate.
const HEAVY: f64 = 0.01;
/// The maximum number of candidates of one type.
const CANDIDATES_MAX: usize = 48;
/// The maximum number of rules.
const RULES_MAX: usize = 32;
/// A rule that covers this share of the best rule's excess may replace the best rule.
const NEARLY: f64 = 0.97;
/// The smallest ratio of the traffic now to the traffic before that is an attack.
const ATTACK_RATIO: f64 = 1.5;

/// The share of the present rate to which a rule limits its packets if they may be legitimate: an attack loses half
/// of its rate, and its target keeps at least half of the traffic that it wants.
const LIMIT_SHARE: f64 = 0.5;

/// SYN without ACK: the mask of both bits, and SYN.
const SYN_ONLY: TcpFlagsMatch = TcpFlagsMatch {
    mask: 0x12,
    value: 0x02,
};

/// The observations of a period.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    pub observations: &'a [Observation],
    /// The duration of the period in seconds.
    pub seconds: f64,
}

/// A suggested rule.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Suggestion {
    /// The name of the rule. Equal matches have equal names.
    pub id: String,
    /// The packets that the rule matches.
    pub matching: FilterMatch,
    /// The treatment of these packets: drop, or a limit if they may be legitimate.
    pub action: FilterAction,
    /// The share of the excess that this rule covers and earlier rules do not cover, 0 to 1. If the usual traffic is not
    /// known, all traffic is the excess.
    pub covers: f64,
    /// The share of the earlier traffic to the target that the rule covers, 0 to 1; `None` if the target had no earlier
    /// traffic, or if that is not known.
    pub collateral: Option<f64>,
    pub why: Reason,
}

/// Returns the rules against an attack on `target`, the most effective first; none if the traffic is not much more than
/// before, or if no rules keep to the bounds. `before` is the usual traffic, and `None` if it is not known.
pub fn suggest(attack: Window<'_>, before: Option<Window<'_>>, target: Prefix) -> Vec<Suggestion> {
    let now = to_target(attack, target);
    let former = before.map(|before| to_target(before, target)).unwrap_or_default();
    let seconds_before = before.map_or(1.0, |before| before.seconds);
    let (rate_now, rate_before) = (rate(&now, attack.seconds), rate(&former, seconds_before));
    let excess = rate_now - rate_before;
    if now.is_empty() || rate_now < ATTACK_RATIO * rate_before {
        return Vec::new();
    }
    let mut state = Search {
        left_now: now,
        left_before: former,
        seconds: (attack.seconds.max(1.0), seconds_before.max(1.0)),
        excess,
        rate_before,
    };
    let mut collateral = 0.0;
    let mut covered = 0.0;
    let mut rules = Vec::new();
    while rules.len() < RULES_MAX && covered < ENOUGH {
        let Some(best) = state.best(target, COLLATERAL_MAX - collateral) else {
            break;
        };
        covered += best.covers;
        collateral += best.collateral.unwrap_or(0.0);
        state.remove(&best.matching);
        rules.push(best);
    }
    if covered < COVERS { Vec::new() } else { rules }
}

/// Returns the observations to a target.
fn to_target(window: Window<'_>, target: Prefix) -> Vec<Observation> {
    let observations = window.observations.iter().copied();
    observations
        .filter(|packet| target.contains(packet.destination))
        .collect()
}

/// Returns the rate of observations in bytes per second.
fn rate(observations: &[Observation], seconds: f64) -> f64 {
    total_bytes(observations) / seconds.max(1.0)
}

/// The search for rules, with the observations that no rule covers yet.
struct Search {
    left_now: Vec<Observation>,
    left_before: Vec<Observation>,
    /// The durations of both windows.
    seconds: (f64, f64),
    /// The excess of all traffic, in bytes per second.
    excess: f64,
    /// The earlier traffic, in bytes per second; 0 if there was none, or if it is not known.
    rate_before: f64,
}

impl Search {
    /// Returns the best rule whose share of the earlier traffic is at most `collateral_max`.
    fn best(&self, target: Prefix, collateral_max: f64) -> Option<Suggestion> {
        let total = total_bytes(&self.left_now);
        let window = |observations, seconds| Window {
            observations,
            seconds,
        };
        let destination = destination(
            window(&self.left_now, self.seconds.0),
            window(&self.left_before, self.seconds.1),
            target,
        );
        let measured: Vec<(FilterMatch, f64, f64, (f64, f64))> =
            candidates(&self.left_now, destination, total)
                .into_iter()
                .filter(|matching| has_samples(&self.left_now, matching))
                .map(|matching| {
                    let now = covered(&self.left_now, &matching) / self.seconds.0;
                    let before = covered(&self.left_before, &matching) / self.seconds.1;
                    let collateral = if self.rate_before > 0.0 {
                        before / self.rate_before
                    } else {
                        0.0
                    };
                    (matching, (now - before) / self.excess, collateral, (now, before))
                })
                .filter(|(_, gain, collateral, _)| *gain >= GAIN_MIN && *collateral <= collateral_max)
                .collect();
        let best = measured.iter().map(|(_, gain, ..)| *gain).fold(0.0, f64::max);
        let near = measured
            .into_iter()
            .filter(|(_, gain, ..)| *gain >= NEARLY * best);
        let (matching, covers, collateral, rates) =
            near.min_by(|(one, _, first, _), (other, _, second, _)| {
                let narrow = |matching: &FilterMatch| core::cmp::Reverse(specificity(matching));
                first
                    .total_cmp(second)
                    .then_with(|| narrow(one).cmp(&narrow(other)))
            })?;
        let has_usual = self.rate_before > 0.0;
        let action = if has_usual && specificity(&matching) > 1 {
            FilterAction::Drop
        } else {
            let kbps = (rates.0 * 8.0 / 1000.0 * LIMIT_SHARE).ceil();
            FilterAction::Shape {
                rate_kbps: (kbps as u32).max(1),
            }
        };
        Some(Suggestion {
            id: name(&matching),
            why: why(&matching, rates.0, has_usual.then_some(rates.1), covers),
            matching,
            action,
            covers,
            collateral: has_usual.then_some(collateral),
        })
    }

    fn remove(&mut self, matching: &FilterMatch) {
        self.left_now.retain(|packet| !matches(matching, packet));
        self.left_before.retain(|packet| !matches(matching, packet));
    }
}

/// Returns true if a rule matches enough samples.
fn has_samples(observations: &[Observation], matching: &FilterMatch) -> bool {
    let matched = observations.iter().filter(|packet| matches(matching, packet));
    matched.take(SAMPLES_MIN).count() == SAMPLES_MIN
}

fn covered(observations: &[Observation], matching: &FilterMatch) -> f64 {
    total_bytes(observations.iter().filter(|packet| matches(matching, packet)))
}

/// Returns the narrowest destination that has nearly all of the excess: one address, or the target.
fn destination(now: Window<'_>, before: Window<'_>, target: Prefix) -> Prefix {
    let mut by_address: HashMap<IpAddr, f64> = HashMap::new();
    for (window, sign) in [(now, 1.0), (before, -1.0)] {
        for packet in window.observations {
            *by_address.entry(packet.destination).or_default() += sign * packet.bytes / window.seconds;
        }
    }
    let excess = by_address.values().fold(0.0, |sum, rate| sum + rate);
    let heaviest = by_address
        .into_iter()
        .max_by(|one, other| one.1.total_cmp(&other.1));
    match heaviest {
        Some((address, rate)) if rate >= NEARLY * excess => Prefix::host(address),
        _ => target,
    }
}

/// A header value, or several, that rules can match.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
struct Signature {
    source: Option<(IpAddr, u8)>,
    protocol: Option<u8>,
    source_port: Option<u16>,
    destination_port: Option<u16>,
    is_later_fragment: bool,
    is_syn: bool,
}

impl Signature {
    fn matching(self, destination: Prefix) -> Option<FilterMatch> {
        let port = |port: Option<u16>| {
            let ports = port.map(|port| Ports {
                first: port,
                last: port,
            });
            ports.into_iter().collect()
        };
        let source = match self.source {
            None => None,
            Some((address, len)) => Some(Prefix::new(masked(address, len), len).ok()?),
        };
        Some(FilterMatch {
            source,
            protocol: self.protocol,
            source_ports: port(self.source_port),
            destination_ports: port(self.destination_port),
            fragment: self.is_later_fragment.then_some(FragmentMatch::Later),
            tcp_flags: self.is_syn.then_some(SYN_ONLY),
            ..FilterMatch::to(destination)
        })
    }
}

fn masked(address: IpAddr, len: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}

/// Returns the signatures of a packet. Each is a rule that would match the packet.
fn signatures(packet: &Observation) -> Vec<Signature> {
    let protocol = Signature {
        protocol: Some(packet.protocol),
        ..Signature::default()
    };
    let (host, network) = match packet.source {
        IpAddr::V4(_) => (32, 24),
        IpAddr::V6(_) => (128, 64),
    };
    let from = |len| Signature {
        source: Some((masked(packet.source, len), len)),
        ..protocol
    };
    let mut all = vec![protocol, from(host), from(network)];
    if packet.fragment & 2 != 0 {
        all.push(Signature {
            is_later_fragment: true,
            ..protocol
        });
        return all;
    }
    if IpProtocol(packet.protocol).has_ports() {
        let source_port = Signature {
            source_port: Some(packet.source_port),
            ..protocol
        };
        let destination_port = Signature {
            destination_port: Some(packet.destination_port),
            ..protocol
        };
        all.extend([
            source_port,
            destination_port,
            Signature {
                destination_port: Some(packet.destination_port),
                ..source_port
            },
            Signature {
                destination_port: Some(packet.destination_port),
                ..from(host)
            },
            Signature {
                destination_port: Some(packet.destination_port),
                ..from(network)
            },
        ]);
        if packet.protocol == IpProto::TCP.0 && packet.tcp_flags & SYN_ONLY.mask == SYN_ONLY.value {
            let syn = Signature {
                is_syn: true,
                ..protocol
            };
            all.extend([
                syn,
                Signature {
                    destination_port: Some(packet.destination_port),
                    ..syn
                },
            ]);
        }
    }
    all
}

/// Returns the rules that match a heavy part of the observations.
fn candidates(observations: &[Observation], destination: Prefix, total: f64) -> Vec<FilterMatch> {
    let mut weights: HashMap<Signature, f64> = HashMap::new();
    for packet in observations {
        for signature in signatures(packet) {
            *weights.entry(signature).or_default() += packet.bytes;
        }
    }
    // Keep the heaviest signatures of each type, so that source addresses do not crowd out the other types.
    let mut by_type: BTreeMap<u8, Vec<(f64, Signature)>> = BTreeMap::new();
    for (signature, weight) in weights {
        if weight >= HEAVY * total {
            by_type
                .entry(kind(&signature))
                .or_default()
                .push((weight, signature));
        }
    }
    let mut chosen = Vec::new();
    for list in by_type.values_mut() {
        list.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        chosen.extend(list.iter().take(CANDIDATES_MAX).map(|(_, signature)| *signature));
    }
    let rules = chosen.into_iter();
    rules
        .filter_map(|signature| signature.matching(destination))
        .collect()
}

/// Returns a number for the combination of header values that a signature has.
fn kind(signature: &Signature) -> u8 {
    u8::from(signature.source.is_some())
        | u8::from(signature.source_port.is_some()) << 1
        | u8::from(signature.destination_port.is_some()) << 2
        | u8::from(signature.is_later_fragment) << 3
        | u8::from(signature.is_syn) << 4
        | u8::from(signature.source.is_some_and(|(_, len)| len == 32 || len == 128)) << 5
}

/// Returns the number of conditions of a match. If two rules cover the same traffic, the rule with more
/// conditions is safer.
fn specificity(matching: &FilterMatch) -> u32 {
    let conditions = [
        matching.source.is_some(),
        matching.protocol.is_some(),
        !matching.source_ports.is_empty(),
        !matching.destination_ports.is_empty(),
        matching.fragment.is_some(),
        matching.tcp_flags.is_some(),
    ];
    conditions.into_iter().map(u32::from).sum()
}

/// Returns the name of a match. Equal matches have equal names.
fn name(matching: &FilterMatch) -> String {
    let mut parts = vec![matching.destination.to_string()];
    parts.extend(matching.source.map(|source| format!("from-{source}")));
    parts.extend(matching.protocol.map(|protocol| format!("proto-{protocol}")));
    let ports = |ports: &[Ports], side: &str| -> Option<String> {
        ports.first().map(|ports| format!("{side}-{}", ports.first))
    };
    parts.extend(ports(&matching.source_ports, "sport"));
    parts.extend(ports(&matching.destination_ports, "dport"));
    parts.extend(matching.fragment.map(|_| "fragments".to_owned()));
    parts.extend(matching.tcp_flags.map(|_| "syn".to_owned()));
    parts.join(",").replace('/', "_")
}

/// Returns the reason of a rule with its rate now and its usual rate in bytes per second. The English text also names the packets; pages in other languages show the
/// match next to the reason.
fn why(matching: &FilterMatch, now: f64, before: Option<f64>, covers: f64) -> Reason {
    let mut what = match (matching.protocol, matching.fragment, matching.tcp_flags) {
        (_, Some(_), _) => format!(
            "fragments after the first of {}",
            protocol_name(matching.protocol)
        ),
        (_, _, Some(_)) => "TCP packets that open connections (SYN without ACK)".to_owned(),
        (protocol, ..) => protocol_name(protocol),
    };
    if let Some(port) = matching.source_ports.first() {
        what += &format!(
            " from port {}{}",
            port.first,
            service_name(matching.protocol, port.first)
        );
    }
    if let Some(port) = matching.destination_ports.first() {
        what += &format!(" to port {}", port.first);
    }
    if let Some(source) = matching.source {
        what += &format!(" from {source}");
    }
    let share = format_args!("{:.0}", covers * 100.0);
    let mut why = match before {
        Some(before) => reason::suggestion_rates(bits(now), bits(before), share, matching.destination),
        None => reason::suggestion_without_usual(bits(now), share, matching.destination),
    };
    why.text = format!("{what}: {}", why.text);
    why
}

fn protocol_name(protocol: Option<u8>) -> String {
    protocol.map_or_else(|| "packets".to_owned(), |number| IpProtocol(number).to_string())
}

/// Returns the name of a service that reflection attacks use, in brackets; empty for other ports.
fn service_name(protocol: Option<u8>, port: u16) -> &'static str {
    match (protocol, port) {
        (Some(17), 19) => " (CHARGEN)",
        (Some(17), 53) => " (DNS)",
        (Some(17), 111) => " (portmapper)",
        (Some(17), 123) => " (NTP)",
        (Some(17), 137) => " (NetBIOS)",
        (Some(17), 161) => " (SNMP)",
        (Some(17), 389) => " (CLDAP)",
        (Some(17), 1900) => " (SSDP)",
        (Some(17), 3702) => " (WS-Discovery)",
        (Some(17), 11_211) => " (memcached)",
        _ => "",
    }
}

/// Formats a rate of bytes per second as a text in bit/s.
fn bits(bytes: f64) -> String {
    let bits = bytes.max(0.0) * 8.0;
    match bits {
        bits if bits >= 1e9 => format!("{:.1} Gbit/s", bits / 1e9),
        bits if bits >= 1e6 => format!("{:.1} Mbit/s", bits / 1e6),
        bits => format!("{:.0} kbit/s", bits / 1e3),
    }
}
