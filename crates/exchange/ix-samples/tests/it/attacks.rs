//! Attacks with known packets, and the rules that are suggested: they cover 90 % of the attack and 1 % of the good traffic.
//!
//! The test alone knows which packets belong to the attack; the rules are judged on packets that the suggestion has
//! not seen.

use std::net::{IpAddr, Ipv4Addr};

use millrace_ix_model::{FilterAction, Prefix, Timestamp};
use millrace_ix_samples::{Ends, Observation, Suggestion, Window, matches, suggest};
use millrace_types::split_mix;

/// The sampling rate: one packet of this many is sampled.
const RATE: f64 = 1000.0;

struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        split_mix::next(&mut self.0) % limit
    }

    fn address(&mut self) -> IpAddr {
        Ipv4Addr::from(0x0100_0000 + self.below(0xd000_0000) as u32).into()
    }

    fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

fn victim() -> IpAddr {
    Ipv4Addr::new(192, 0, 2, 80).into()
}

fn packet(source: IpAddr, destination: IpAddr, protocol: u8, ports: (u16, u16), size: u64) -> Observation {
    Observation {
        at: Timestamp::from_secs(0),
        ends: Ends {
            service: 7,
            ingress_end: 1,
            egress_end: 2,
        },
        packets: RATE,
        bytes: RATE * size as f64,
        is_dropped: false,
        source,
        destination,
        protocol,
        source_port: ports.0,
        destination_port: ports.1,
        icmp: (0, 0),
        tcp_flags: if protocol == 6 { 0x10 } else { 0 },
        fragment: 0,
        dscp: 0,
    }
}

/// Returns a packet of ordinary traffic to a web server and its neighbours: mostly uploads and requests over TCP and QUIC, with
/// SYNs, answers of DNS and of NTP, and a few fragments.
fn good(dice: &mut Dice) -> Observation {
    let client = 1024 + dice.below(60_000) as u16;
    let source = dice.address();
    let neighbour = Ipv4Addr::new(192, 0, 2, dice.below(256) as u8).into();
    let destination = if dice.below(10) < 6 { victim() } else { neighbour };
    match dice.below(1000) {
        0..640 => {
            let size = dice.one_of(&[60, 120, 580, 1500, 1500]);
            packet(
                source,
                destination,
                6,
                (client, dice.one_of(&[443, 443, 443, 80])),
                size,
            )
        }
        640..700 => Observation {
            tcp_flags: 0x02,
            ..packet(source, destination, 6, (client, 443), 60)
        },
        700..960 => {
            let size = dice.one_of(&[80, 1250, 1250]);
            packet(source, destination, 17, (client, 443), size)
        }
        960..975 => packet(source, destination, 17, (53, client), 150),
        975..980 => packet(source, destination, 17, (123, 123), 76),
        980..982 => Observation {
            fragment: 3,
            ..packet(source, destination, 17, (0, 0), 800)
        },
        982..990 => packet(source, destination, 1, (0, 0), 84),
        // Downloads of the server itself.
        _ => packet(source, destination, 6, (443, client), 1500),
    }
}

/// Returns a packet of an attack by name.
fn bad(attack: &str, dice: &mut Dice) -> Observation {
    let target = dice.below(60_000) as u16 + 1024;
    let reflector = dice.address();
    let reflected = |port, size| packet(reflector, victim(), 17, (port, target), size);
    match attack {
        "dns" => match dice.below(3) {
            0 => Observation {
                fragment: 1,
                ..reflected(53, 1500)
            },
            1 => Observation {
                fragment: 3,
                ..packet(reflector, victim(), 17, (0, 0), 1500)
            },
            _ => reflected(53, 1300),
        },
        "ntp" => reflected(123, 482),
        "cldap" => reflected(389, 1490),
        "memcached" => match dice.below(5) {
            0 => Observation {
                fragment: 1,
                ..reflected(11_211, 1500)
            },
            _ => Observation {
                fragment: 3,
                ..packet(reflector, victim(), 17, (0, 0), 1500)
            },
        },
        "syn" => Observation {
            tcp_flags: 0x02,
            ..packet(reflector, victim(), 6, (target, dice.one_of(&[80, 443])), 60)
        },
        "carpet" => {
            let destination = Ipv4Addr::new(192, 0, 2, dice.below(256) as u8).into();
            packet(
                reflector,
                destination,
                17,
                (dice.one_of(&[1900, 3702]), target),
                350,
            )
        }
        "http" => {
            let few = Ipv4Addr::new(198, 51, 100, 1 + dice.below(12) as u8).into();
            packet(few, victim(), 6, (target, 443), 580)
        }
        _ => {
            let one = dice.one_of(&["ntp", "ntp", "syn", "cldap", "http"]);
            bad(one, dice)
        }
    }
}

/// Returns good traffic, and attack traffic with `strength` times as many bytes.
fn traffic(attack: &str, seed: u64, strength: f64) -> (Vec<Observation>, Vec<Observation>) {
    let mut dice = Dice(seed);
    let good: Vec<_> = (0..1_500).map(|_| good(&mut dice)).collect();
    let wanted = strength * good.iter().map(|packet| packet.bytes).sum::<f64>();
    let (mut attackers, mut bytes) = (Vec::new(), 0.0);
    while bytes < wanted {
        let packet = bad(attack, &mut dice);
        bytes += packet.bytes;
        attackers.push(packet);
    }
    (good, attackers)
}

/// Returns the ratio of attack bytes to good bytes. It is lower for small packets, because there are many.
fn strength(attack: &str) -> f64 {
    if attack == "syn" { 1.0 } else { 4.0 }
}

fn window(observations: &[Observation]) -> Window<'_> {
    Window {
        observations,
        seconds: 30.0,
    }
}

fn share(packets: &[Observation], rules: &[Suggestion]) -> f64 {
    let is_meant = |packet: &&Observation| rules.iter().any(|rule| matches(&rule.matching, packet));
    let sum = |bytes: f64, packet: &Observation| bytes + packet.bytes;
    let all = packets.iter().fold(0.0, sum);
    packets.iter().filter(is_meant).fold(0.0, sum) / all
}

fn rules(attack: &str, seed: u64, target: &str) -> Vec<Suggestion> {
    let (before, _) = traffic(attack, seed + 1000, 0.0);
    let (mut now, attackers) = traffic(attack, seed, strength(attack));
    now.extend(attackers);
    suggest(window(&now), Some(window(&before)), target.parse().unwrap())
}

/// Checks the suggested rules for an attack on packets from which they were not made.
#[track_caller]
fn covers(attack: &str, target: &str, most: usize) -> Vec<Suggestion> {
    let mut last = Vec::new();
    for seed in 0..3 {
        let rules = rules(attack, seed, target);
        let (good, attackers) = traffic(attack, seed + 77, strength(attack));
        let (covered, collateral) = (share(&attackers, &rules), share(&good, &rules));
        let words: Vec<&str> = rules.iter().map(|rule| rule.why.text.as_str()).collect();
        eprintln!(
            "{attack}, seed {seed}: {:.1} % of the attack, {:.2} % of good bytes, {} rules",
            covered * 100.0,
            collateral * 100.0,
            rules.len()
        );
        assert!(covered >= 0.9, "{attack}: {covered} {words:#?}");
        assert!(collateral <= 0.01, "{attack}: {collateral} {words:#?}");
        assert!(rules.len() <= most, "{attack}: {words:#?}");
        last = rules;
    }
    last
}

#[test]
fn reflected_dns_is_covered_with_its_fragments() {
    let rules = covers("dns", "192.0.2.80/32", 3);
    assert!(rules.iter().any(|rule| rule.why.text.contains("DNS")));
    assert!(rules.iter().any(|rule| rule.why.text.contains("fragments")));
}

#[test]
fn reflected_ntp_is_covered_by_its_source_port() {
    let rules = covers("ntp", "192.0.2.80/32", 1);
    assert_eq!(rules[0].matching.source_ports[0].first, 123);
}

#[test]
fn reflected_cldap_is_covered_by_its_source_port() {
    let rules = covers("cldap", "192.0.2.80/32", 1);
    assert_eq!(rules[0].matching.source_ports[0].first, 389);
}

#[test]
fn memcached_is_covered_with_its_fragments() {
    let rules = covers("memcached", "192.0.2.0/24", 2);
    assert_eq!(
        rules[0].matching.destination,
        Prefix::host(victim()),
        "the target is narrowed"
    );
}

#[test]
fn a_syn_flood_is_covered_without_established_connections() {
    let rules = covers("syn", "192.0.2.80/32", 2);
    assert!(rules.iter().all(|rule| rule.matching.tcp_flags.is_some()));
}

#[test]
fn carpet_bombing_of_a_prefix_is_covered_for_the_whole_prefix() {
    let rules = covers("carpet", "192.0.2.0/24", 2);
    assert!(
        rules
            .iter()
            .all(|rule| rule.matching.destination.to_string() == "192.0.2.0/24")
    );
}

#[test]
fn a_flood_of_requests_from_few_is_covered_by_its_sources() {
    let rules = covers("http", "192.0.2.80/32", 13);
    assert!(rules.iter().all(|rule| rule.matching.source.is_some()));
}

#[test]
fn a_mixed_attack_is_covered_by_several_rules() {
    let rules = covers("mixed", "192.0.2.80/32", 18);
    assert!(rules.len() >= 3);
}

#[test]
fn ordinary_traffic_and_a_busy_hour_need_no_rules() {
    for (seed, strength) in [(1, 1), (2, 1), (3, 1)] {
        let (before, _) = traffic("dns", seed, 0.0);
        let (now, _) = traffic("dns", seed + 9, 0.0);
        let now = now.repeat(strength);
        let rules = suggest(
            window(&now),
            Some(window(&before)),
            "192.0.2.0/24".parse().unwrap(),
        );
        assert_eq!(rules, []);
    }
    // The traffic is three times that before and of the same kind, so no rule can tell them apart.
    let (before, _) = traffic("dns", 5, 0.0);
    let busy = before.repeat(3);
    let rules = suggest(
        window(&busy),
        Some(window(&before)),
        "192.0.2.80/32".parse().unwrap(),
    );
    assert_eq!(rules, []);
}

#[test]
fn every_rule_says_why_and_has_a_match_that_switches_take() {
    for rule in rules("mixed", 3, "192.0.2.80/32") {
        assert_eq!(rule.matching.contradiction(), None);
        assert!(
            rule.why.text.contains("% of the excess to 192.0.2.80/32"),
            "{}",
            rule.why
        );
        assert!(rule.covers > 0.0 && rule.collateral.unwrap() <= 0.01);
    }
}

/// Returns packets of a new service over UDP: many clients, one port.
fn new_service(destination: IpAddr) -> Vec<Observation> {
    let mut dice = Dice(4);
    let mut one = || {
        let client = 1024 + dice.below(60_000) as u16;
        packet(dice.address(), destination, 17, (client, 443), 1_250)
    };
    (0..1_000).map(|_| one()).collect()
}

#[test]
fn without_usual_traffic_a_rule_limits_and_says_that_the_packets_may_be_legitimate() {
    let now = new_service(victim());
    // The usual traffic is not known, or the target had none.
    let neighbour = new_service(Ipv4Addr::new(192, 0, 2, 81).into());
    for before in [None, Some(window(&[])), Some(window(&neighbour))] {
        let rules = suggest(window(&now), before, "192.0.2.80/32".parse().unwrap());
        assert!(!rules.is_empty());
        for rule in rules {
            // 1,000 packets in 30 s, each of which stands for 1,000 packets of 1,250 bytes, are 333 Mbit/s.
            let FilterAction::Shape { rate_kbps } = rule.action else {
                panic!("{rule:?}")
            };
            assert!((160_000..=170_000).contains(&rate_kbps), "{rule:?}");
            assert_eq!(rule.collateral, None, "a share of nothing is not 0 %");
            let text = rule.why.text;
            assert!(text.contains("the usual traffic is not known"), "{text}");
        }
    }
}

#[test]
fn a_rule_for_a_whole_protocol_limits_also_if_the_usual_traffic_had_none_of_it() {
    let mut dice = Dice(6);
    let before: Vec<_> = (0..1_000)
        .map(|_| packet(dice.address(), victim(), 6, (1024, 443), 1_000))
        .collect();
    let flood = (0..6_000).map(|_| {
        let ports = (dice.below(65_536) as u16, dice.below(65_536) as u16);
        packet(dice.address(), victim(), 17, ports, 1_000)
    });
    let now: Vec<_> = before.iter().copied().chain(flood.collect::<Vec<_>>()).collect();
    let rules = suggest(
        window(&now),
        Some(window(&before)),
        "192.0.2.80/32".parse().unwrap(),
    );
    assert_eq!(rules.len(), 1, "{rules:#?}");
    assert_eq!(
        (rules[0].matching.protocol, rules[0].collateral),
        (Some(17), Some(0.0))
    );
    assert!(
        matches!(rules[0].action, FilterAction::Shape { .. }),
        "{rules:#?}"
    );
    let share = rules[0].collateral.unwrap();
    assert!(share.is_sign_positive(), "-0 % is no share");
}

#[test]
fn ordinary_packets_among_the_first_samples_of_an_attack_become_no_rules() {
    for seed in 0..20 {
        let (before, _) = traffic("ntp", seed + 1000, 0.0);
        // Half a second of an attack: some dozens of samples, of which a few are of ordinary traffic.
        let (good, attackers) = traffic("ntp", seed, strength("ntp"));
        let now: Vec<_> = attackers
            .iter()
            .take(60)
            .chain(good.iter().take(12))
            .copied()
            .collect();
        let rules = suggest(
            Window {
                observations: &now,
                seconds: 1.0,
            },
            Some(window(&before)),
            "192.0.2.80/32".parse().unwrap(),
        );
        for rule in rules {
            assert_eq!(
                rule.matching.source_ports.first().map(|ports| ports.first),
                Some(123),
                "{rule:?}"
            );
        }
    }
}
