//! The observations of the exchange in memory: a member under attack, loads, counters, BGP sessions.
//!
//! The attack is an NTP and DNS amplification against one address of Aoba Networks. A filter that covers
//! packets of the attack moves their rate from passed to dropped, so that a test can see the effect of an
//! order.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use millrace_ix_filter::{FoundRoute, SessionKind, Validity};
use millrace_ix_model::{
    AccountId, Exchange, Filter, FilterAction, FilterId, FilterMatch, FilterState, FragmentMatch, ObjectId,
    Ports, Prefix, ServiceId, ServiceKind, Timestamp, reason,
};
use millrace_ix_samples::{Pair, PeerRate, TopFlow, Traffic};

use super::now;
use crate::observed::{Attack, FilterCounter, Load, Minute, Session, Share, Suggestion, Target, Verdict};

/// The parts of the attack: label, source port, rate in bit/s.
const VECTORS: [(&str, u16, u64); 3] = [
    ("udp 123 (NTP)", 123, 6_400_000_000),
    ("udp 53 (DNS)", 53, 1_900_000_000),
    ("udp 389 (CLDAP)", 389, 350_000_000),
];
/// The usual rate of traffic to the destination, in bit/s.
const USUAL: u64 = 240_000_000;
/// The number of minutes in the chart.
const MINUTES: u64 = 60;
/// The time since the start of the attack, in minutes.
const SINCE: u64 = 12;

/// Returns the account and the address that are under attack in the exchange in memory.
fn victim(exchange: &Exchange) -> Option<(AccountId, Prefix)> {
    let account = exchange
        .accounts
        .iter()
        .find(|(_, account)| account.asns.contains(&64500))?;
    Some((*account.0, "203.0.113.7/32".parse().ok()?))
}

fn active(exchange: &Exchange, account: AccountId) -> impl Iterator<Item = (FilterId, &Filter)> {
    let all = exchange.filters.iter().map(|(id, filter)| (*id, filter));
    all.filter(move |(_, filter)| filter.account == account && filter.state == FilterState::Active)
}

fn covers(filter: &Filter, target: Prefix, port: u16) -> bool {
    let matching = &filter.matching;
    let ports = &matching.source_ports;
    filter.action != FilterAction::Count
        && matching.destination.contains(target.address())
        && matching.protocol.is_none_or(|protocol| protocol == 17)
        && matching.destination_ports.is_empty()
        && matching.source.is_none()
        && matching.fragment != Some(FragmentMatch::Later)
        && (ports.is_empty()
            || ports
                .iter()
                .any(|range| (range.first..=range.last).contains(&port)))
}

/// Returns the rate that filters drop, and the rate that passes, in bit/s.
fn rates(exchange: &Exchange, account: AccountId, target: Prefix) -> (u64, u64) {
    let (mut dropped, mut passed) = (0, USUAL);
    for (_, port, rate) in VECTORS {
        if active(exchange, account).any(|(_, filter)| covers(filter, target, port)) {
            dropped += rate;
        } else {
            passed += rate;
        }
    }
    (dropped, passed)
}

pub(super) fn targets(exchange: &Exchange, account: AccountId) -> Vec<Target> {
    match victim(exchange) {
        Some((victim, prefix)) if victim == account => vec![
            Target {
                prefix,
                bits_per_s: {
                    let (dropped, passed) = rates(exchange, account, prefix);
                    dropped + passed
                },
                usual_bits_per_s: Some(USUAL),
            },
            Target {
                prefix: Prefix::host(IpAddr::from([203, 0, 113, 20])),
                bits_per_s: 91_000_000,
                usual_bits_per_s: Some(88_000_000),
            },
        ],
        _ => Vec::new(),
    }
}

/// Returns a valid route to the prefix of the account under attack, an invalid one to another prefix, and one that a member announces
/// only to the exchange.
pub(super) fn lookup(exchange: &Exchange, asked: Prefix) -> Vec<FoundRoute> {
    let all = [
        (
            "203.0.113.0/24",
            64_500,
            Validity::Valid,
            true,
            SessionKind::RouteServer,
        ),
        (
            "198.18.0.0/15",
            64_502,
            Validity::Invalid,
            false,
            SessionKind::RouteServer,
        ),
        (
            "203.0.113.128/25",
            64_500,
            Validity::Valid,
            true,
            SessionKind::Member,
        ),
    ];
    let routes = all
        .into_iter()
        .filter_map(|(prefix, asn, validity, irr, session)| {
            let prefix: Prefix = prefix.parse().ok()?;
            let mut accounts = exchange.accounts.iter();
            let account = accounts.find(|(_, account)| account.asns.contains(&asn))?.0;
            prefix.contains(asked.address()).then(|| FoundRoute {
                prefix,
                peer: IpAddr::from([198, 51, 100, 250]),
                session,
                account: Some(*account),
                as_path: asn.to_string(),
                origin: Some(asn),
                rpki: Some(validity),
                irr: Some(irr),
            })
        });
    routes.collect()
}

/// Returns the traffic between members of each service, and a BGP session between those of peering LANs.
pub(super) fn matrix(exchange: &Exchange) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (account, _) in exchange.accounts.iter() {
        let Some(found) = traffic(exchange, *account) else {
            continue;
        };
        pairs.extend(found.outgoing.iter().filter_map(|rate| {
            let service = exchange.services.get(&rate.service)?;
            Some(Pair {
                from: *account,
                to: rate.peer?,
                service: rate.service,
                bits_per_s: rate.bits_per_s,
                ipv6_bits_per_s: rate.ipv6_bits_per_s,
                bgp_seen: (service.kind == ServiceKind::ExchangeLan).then(super::now),
            })
        }));
    }
    pairs
}

/// Returns the traffic between an account and each other account with an end of the same service. The traffic
/// of the account under attack includes the attack.
pub(super) fn traffic(exchange: &Exchange, account: AccountId) -> Option<Traffic> {
    let own: BTreeSet<_> = exchange
        .configs
        .values()
        .filter(|config| config.account == account)
        .map(|config| config.service)
        .collect();
    let others = exchange
        .configs
        .values()
        .filter(|config| config.account != account && own.contains(&config.service) && !config.shut_down);
    let ends: BTreeSet<_> = others.map(|config| (config.service, config.account)).collect();
    let rate = |(number, (service, peer)): (usize, (ServiceId, AccountId)), scale: f64| PeerRate {
        peer: Some(peer),
        service,
        bits_per_s: scale * 1.0e9 / (number + 1) as f64,
        ipv6_bits_per_s: scale * 0.25e9 / (number + 1) as f64,
        packets_per_s: scale * 1.0e5 / (number + 1) as f64,
        dropped_bits_per_s: 0.0,
        relative_error: 0.05 * (number + 1) as f64,
    };
    let mut incoming: Vec<PeerRate> = ends
        .iter()
        .copied()
        .enumerate()
        .map(|end| rate(end, 1.0))
        .collect();
    let outgoing = ends
        .iter()
        .copied()
        .enumerate()
        .map(|end| rate(end, 0.4))
        .collect();
    let mut top = Vec::new();
    if let (Some((victim, prefix)), Some(first)) = (victim(exchange), incoming.first_mut())
        && victim == account
    {
        let (dropped, passed) = rates(exchange, account, prefix);
        first.bits_per_s += (dropped + passed) as f64;
        first.dropped_bits_per_s = dropped as f64;
        top = VECTORS
            .iter()
            .map(|(_, port, rate)| TopFlow {
                source: IpAddr::from([198, 51, 100, 9]),
                destination: prefix.address(),
                protocol: 17,
                source_port: *port,
                destination_port: 44_321,
                bits_per_s: *rate as f64,
            })
            .collect();
    }
    Some(Traffic {
        seconds: 30,
        incoming,
        outgoing,
        top,
        samples: 4_096,
        lost: 0,
    })
}

pub(super) fn attack(exchange: &Exchange, account: AccountId, target: Prefix) -> Option<Attack> {
    let target = targets(exchange, account)
        .into_iter()
        .find(|found| found.prefix == target)?;
    let prefix = target.prefix;
    let usual = target.usual_bits_per_s.unwrap_or_default();
    let is_attacked = victim(exchange)?.1 == prefix;
    let (dropped, passed) = if is_attacked {
        rates(exchange, account, prefix)
    } else {
        (0, target.bits_per_s)
    };
    let all: u64 = VECTORS.iter().map(|(_, _, rate)| rate).sum();
    let newest = now();
    let minutes = (0..MINUTES).map(|number| {
        let ago = MINUTES - 1 - number;
        let at = Timestamp::from_millis(newest.millis().saturating_sub(ago * 60_000) / 60_000 * 60_000);
        let wave = usual / 20 * (number % 5);
        let (passed_bps, dropped_bps) = match ago {
            0 => (passed, dropped),
            ago if ago < SINCE && is_attacked => (USUAL + all - all / 14 * (ago % 4), 0),
            _ => (usual.saturating_sub(wave), 0),
        };
        Minute {
            at,
            passed_bps: Some(passed_bps),
            dropped_bps: Some(dropped_bps),
        }
    });
    let share = |(label, bits_per_s): (&str, u64)| Share {
        label: label.to_owned(),
        bits_per_s,
    };
    let peers = exchange
        .accounts
        .values()
        .filter(|other| other.asns.iter().any(|asn| *asn != 64500));
    let mut by_peer: Vec<Share> = peers
        .zip([5_100_000_000, 2_300_000_000, 900_000_000])
        .map(|(peer, rate)| share((&peer.name, rate)))
        .collect();
    by_peer.sort_by_key(|share| std::cmp::Reverse(share.bits_per_s));
    let breakdown = vec![
        (
            "protocol",
            [("UDP", all), ("TCP", USUAL - 20_000_000), ("ICMP", 20_000_000)]
                .map(share)
                .to_vec(),
        ),
        (
            "port",
            VECTORS.map(|(label, _, rate)| share((label, rate))).to_vec(),
        ),
        ("peer", by_peer),
        (
            "source_as",
            [
                ("AS64610", 2_100_000_000),
                ("AS64622", 1_700_000_000),
                ("AS64701", 800_000_000),
            ]
            .map(share)
            .to_vec(),
        ),
        (
            "fragment",
            [("whole", all - 1_200_000_000), ("later", 1_200_000_000)]
                .map(share)
                .to_vec(),
        ),
        (
            "size",
            [("1024-1500", all - 500_000_000), ("64-127", 500_000_000)]
                .map(share)
                .to_vec(),
        ),
    ];
    let suggestions = VECTORS.iter().filter(|(_, port, _)| {
        is_attacked && !active(exchange, account).any(|(_, filter)| covers(filter, prefix, *port))
    });
    Some(Attack {
        dropped_bits_per_s: dropped,
        packets_per_s: (passed + dropped) / 8 / 900,
        error_percent: 2.1,
        minutes: minutes.collect(),
        breakdown: if is_attacked { breakdown } else { Vec::new() },
        suggestions: suggestions
            .map(|(label, port, rate)| suggestion(prefix, label, *port, *rate, all))
            .collect(),
        target,
    })
}

fn suggestion(target: Prefix, label: &str, port: u16, rate: u64, all: u64) -> Suggestion {
    let mut matching = FilterMatch::to(target);
    matching.protocol = Some(17);
    matching.source_ports = vec![Ports {
        first: port,
        last: port,
    }];
    Suggestion {
        matching,
        action: FilterAction::Drop,
        covers: rate as f64 / all as f64,
        collateral: Some(0.002),
        why: {
            let mbps = |rate: u64| format!("{}.{} Mbit/s", rate / 1_000_000, rate / 100_000 % 10);
            let mut why = reason::suggestion_rates(mbps(rate), mbps(4_000_000), 100 * rate / all, target);
            why.text = format!("{label}: {}", why.text);
            why
        },
    }
}

pub(super) fn counters(exchange: &Exchange) -> BTreeMap<FilterId, FilterCounter> {
    let mut counters = BTreeMap::new();
    let Some((account, target)) = victim(exchange) else {
        return counters;
    };
    for (id, filter) in active(exchange, account) {
        let rate = VECTORS
            .iter()
            .filter(|(_, port, _)| covers(filter, target, *port))
            .map(|(_, _, rate)| rate);
        let bits_per_s: u64 = rate.sum();
        counters.insert(
            id,
            FilterCounter {
                packets: bits_per_s / 3_600 * 90,
                bytes: bits_per_s / 8 * 90,
                packets_per_s: bits_per_s / 8 / 450,
                bits_per_s,
            },
        );
    }
    counters
}

pub(super) fn loads(exchange: &Exchange) -> BTreeMap<ObjectId, Load> {
    let mut loads = BTreeMap::new();
    for (number, id) in (0_u64..).zip(exchange.connections.keys()) {
        let load = Load {
            in_bps: 310_000_000 + number * 170_000_000,
            out_bps: 480_000_000 + number * 90_000_000,
        };
        loads.insert(ObjectId::from(*id), load);
    }
    for (id, trunk) in &exchange.trunks {
        let load = Load {
            in_bps: if trunk.drained {
                0
            } else {
                31_000_000_000 / u64::from(trunk.cost)
            },
            out_bps: if trunk.drained {
                0
            } else {
                24_000_000_000 / u64::from(trunk.cost)
            },
        };
        loads.insert(ObjectId::from(*id), load);
    }
    loads
}

/// Returns the verdict on a filter: destinations of Aoba Networks are allowed, all others lack a route object.
pub(super) fn verdict(exchange: &Exchange, account: AccountId, matching: &FilterMatch) -> Verdict {
    let own: Vec<Prefix> = ["203.0.113.0/24", "2001:db8:100::/40"]
        .iter()
        .filter_map(|text| text.parse().ok())
        .collect();
    let destination = matching.destination;
    let is_victim = victim(exchange).is_some_and(|(victim, _)| victim == account);
    let inside =
        |prefix: &Prefix| prefix.contains(destination.address()) && prefix.len() <= destination.len();
    if is_victim && own.iter().any(inside) {
        return Verdict {
            allowed: true,
            evidence: vec!["ROA 203.0.113.0/24-24 AS64500".to_owned()],
            ..Verdict::default()
        };
    }
    let asn = exchange
        .accounts
        .get(&account)
        .and_then(|account| account.asns.first().copied());
    let asn = asn.map_or_else(|| account.to_string(), |asn| format!("AS{asn}"));
    Verdict {
        reason: Some(reason::no_object("route", destination, &asn)),
        missing: Some(reason::missing_object("route", destination, &asn)),
        ..Verdict::default()
    }
}

pub(super) fn sessions(exchange: &Exchange) -> Vec<Session> {
    let since = Timestamp::from_millis(now().millis().saturating_sub(86_400_000));
    let route_server = Session {
        peer: IpAddr::from([198, 51, 100, 254]),
        asn: 64999,
        kind: "route_server",
        account: None,
        state: "established",
        since,
        routes: 184_211,
        flowspec: 0,
        last_error: None,
    };
    let members = exchange
        .accounts
        .iter()
        .filter(|(_, account)| account.asns.contains(&64500));
    let member = members.map(|(id, _)| Session {
        peer: IpAddr::from([198, 51, 100, 10]),
        asn: 64500,
        kind: "member",
        account: Some(*id),
        flowspec: 2,
        routes: 3,
        ..route_server.clone()
    });
    let mut all: Vec<Session> = member.collect();
    all.push(route_server);
    all
}
