//! An exchange with a circuit between two members: their rates from samples of the switch, and an attack from
//! one member on the other.

use std::collections::BTreeSet;
use std::net::IpAddr;

use millrace_ix_model::{
    AccountId, AccountKind, Actor, ConnectionId, ConnectionKind, EndRole, Exchange, FilterAction,
    FilterOrigin, FilterState, Key, Operation, PortId, Prefix, ServiceId, ServiceKind, SwitchPort, TagType,
    Timestamp, VlanId, VlanRequest,
};
use millrace_ix_plan::layout::Metadata;
use millrace_ix_samples::{Collector, Ends, Family, Observation, Suggestion, Totalled};
use millrace_sflow::{Datagram, DropCode, FlowSample, MillraceRecord, Output, Sample};
use millrace_types::{Dpid, Mac, PortNo, split_mix};
use millrace_wire::Builder;

const START: u64 = 1_795_470_000;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_secs(START + seconds)
}

struct World {
    exchange: Exchange,
    /// The accounts of the attacker and of the victim, with their connections.
    members: Vec<(AccountId, ConnectionId)>,
    service: ServiceId,
    random: u64,
    collector: Collector,
}

impl World {
    fn create<K: Key>(&mut self, operation: Operation) -> K {
        let applied = self.exchange.apply(&Actor::system(), at(0), operation).unwrap();
        applied.first().unwrap()
    }

    /// Returns an exchange with a circuit between two members.
    fn new() -> World {
        let mut world = World {
            exchange: Exchange::default(),
            members: Vec::new(),
            service: ServiceId(0),
            random: 1,
            collector: Collector::new(1),
        };
        let site = world.create(Operation::CreateSite {
            name: "site".to_owned(),
        });
        let switch = world.create(Operation::CreateSwitch {
            name: "switch".to_owned(),
            site,
            dpid: Dpid(1),
            ports: (1..=4)
                .map(|port| SwitchPort {
                    number: PortNo::from_raw(port),
                    speed_mbps: 10_000,
                })
                .collect(),
        });
        for (number, name) in [(1, "attacker"), (2, "victim")] {
            let account = world.create(Operation::CreateAccount {
                name: name.to_owned(),
                kind: AccountKind::Member,
                parent: None,
                asns: BTreeSet::new(),
                discoverable: true,
                as_set: None,
                external_ref: None,
            });
            let connection = world.create(Operation::CreateConnection {
                account: Some(account),
                name: name.to_owned(),
                kind: ConnectionKind::Standalone,
                ports: vec![PortId {
                    switch,
                    port: PortNo::from_raw(number),
                }],
                external_ref: None,
            });
            world.members.push((account, connection));
        }
        let (owner, peer) = (world.members[0].0, world.members[1].0);
        world.service = world.create(Operation::CreateService {
            account: Some(owner),
            kind: ServiceKind::P2pVc,
            name: "circuit".to_owned(),
            peer: Some(peer),
            policy: None,
            networks: Vec::new(),
            external_ref: None,
        });
        for (_, connection) in world.members.clone() {
            let operation = Operation::ConfigureEnd {
                service: world.service,
                connection,
                vlan: VlanRequest::Dot1q {
                    vlan: Some(VlanId::new(100).unwrap()),
                    ethertype: TagType::CTag,
                },
                capacity_mbps: None,
                role: EndRole::Root,
                asns: BTreeSet::new(),
                external_ref: None,
            };
            world.exchange.apply(&Actor::system(), at(0), operation).unwrap();
        }
        world
    }

    /// Returns the indices of the ends of the members, as packets carry them.
    fn ends(&self) -> [u32; 2] {
        [0, 1].map(|member| {
            let connection = self.members[member].1;
            let mut configs = self.exchange.configs.values();
            let config = configs.find(|config| config.connection == connection);
            config.unwrap().index.raw()
        })
    }

    fn below(&mut self, limit: u64) -> u64 {
        split_mix::next(&mut self.random) % limit
    }

    /// Takes a sample of a UDP packet of `size` bytes from the attacker to the victim.
    fn packet(&mut self, seconds: u64, ports: (u16, u16), size: usize, drop_reason: &str) {
        self.packet_to([192, 0, 2, 80], seconds, ports, size, drop_reason);
    }

    /// Takes a sample of a packet to another address of the victim.
    fn packet_to(
        &mut self,
        destination: [u8; 4],
        seconds: u64,
        ports: (u16, u16),
        size: usize,
        drop_reason: &str,
    ) {
        let source = self.below(1 << 24).to_be_bytes();
        let header = Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]))
            .ipv4([10, source[5], source[6], source[7]], destination)
            .udp(ports.0, ports.1)
            .payload(&vec![0; size - 42])
            .build();
        let [ingress_end, egress_end] = self.ends();
        let metadata = Metadata {
            service: self.exchange.services[&self.service].index.raw(),
            by_trunk: false,
            ingress_end,
            egress_end,
        };
        let sample = FlowSample {
            sequence: 1,
            source: 1,
            rate: 1000,
            pool: 1000,
            drops: 0,
            input: 1,
            output: if drop_reason.is_empty() {
                Output::Interface(2)
            } else {
                Output::Dropped(DropCode::ACL)
            },
            frame_size: header.len() as u32,
            header: header[..header.len().min(128)].to_vec(),
            switch: None,
            millrace: Some(MillraceRecord {
                metadata: metadata.word(),
                cookie: 0,
                drop_reason: drop_reason.to_owned(),
            }),
        };
        let datagram = Datagram {
            agent: [192, 0, 2, 1].into(),
            sub_agent: 0,
            sequence: 1,
            uptime_ms: 1,
            samples: vec![Sample::Flow(sample)],
            skipped: 0,
        };
        self.collector.take(&datagram, at(seconds));
    }

    /// Takes the samples of a second of ordinary traffic: 8 Mbit/s.
    fn ordinary(&mut self, second: u64) {
        for _ in 0..2 {
            let port = 1024 + self.below(60_000) as u16;
            self.packet(second, (port, 443), 500, "");
        }
    }
}

#[test]
fn rates_belong_to_the_members_whose_ends_the_packets_use() {
    let mut world = World::new();
    for second in 0..30 {
        world.ordinary(second);
    }
    // The slot that begins now is empty.
    let now = at(30);
    let (attacker, victim) = (world.members[0].0, world.members[1].0);
    let traffic = world.collector.traffic(&world.exchange, victim, now);
    assert_eq!(
        (traffic.outgoing.len(), traffic.samples, traffic.seconds),
        (0, 50, 25)
    );
    let peer = &traffic.incoming[0];
    assert_eq!((peer.peer, peer.service), (Some(attacker), world.service));
    // 50 samples of 1,000 packets of 500 bytes in 25 s.
    assert_eq!((peer.bits_per_s, peer.packets_per_s), (8_000_000.0, 2_000.0));
    assert!((peer.relative_error - 1.96 / 50_f64.sqrt()).abs() < 1e-9);
    let other = world.collector.traffic(&world.exchange, attacker, now);
    assert_eq!((other.incoming.len(), other.outgoing[0].peer), (0, Some(victim)));
    let connections = world.collector.connections(&world.exchange, now);
    assert_eq!(connections[&world.members[0].1], [8_000_000.0, 0.0]);
    assert_eq!(connections[&world.members[1].1], [0.0, 8_000_000.0]);
    // Half a minute later nothing is left.
    let later = world.collector.traffic(&world.exchange, victim, at(90));
    assert_eq!((later.incoming, later.top), (Vec::new(), Vec::new()));
}

#[test]
fn the_matrix_has_both_directions_and_families_apart_and_the_bgp_session_of_the_last_four_days() {
    let mut world = World::new();
    let [attacker_end, victim_end] = world.ends();
    let service = world.exchange.services[&world.service].index.raw();
    let packet =
        |ingress_end, egress_end, seconds, address: &str, ports: (u16, u16), tcp_flags| Observation {
            at: at(seconds),
            ends: Ends {
                service,
                ingress_end,
                egress_end,
            },
            packets: 1_000.0,
            bytes: 1_000_000.0,
            is_dropped: false,
            source: address.parse().unwrap(),
            destination: address.parse().unwrap(),
            protocol: 6,
            source_port: ports.0,
            destination_port: ports.1,
            icmp: (0, 0),
            tcp_flags,
            fragment: 0,
            dscp: 0,
        };
    // The control bits of TCP.
    let (syn, rst_ack, psh_ack) = (0x02, 0x14, 0x18);
    for second in 0..25 {
        let v6 = packet(
            attacker_end,
            victim_end,
            second,
            "2001:db8::1",
            (443, 5000),
            psh_ack,
        );
        let v4 = packet(
            attacker_end,
            victim_end,
            second,
            "192.0.2.1",
            (443, 5000),
            psh_ack,
        );
        for observation in [v6, v4, v4, v4] {
            world.collector.observe(observation);
        }
    }
    // Attempts to connect, answers to them, a packet that a filter drops, and another port are no session.
    let refused = packet(attacker_end, victim_end, 25, "192.0.2.1", (5000, 179), syn);
    let reset = packet(victim_end, attacker_end, 25, "192.0.2.1", (179, 5000), rst_ack);
    let other = packet(victim_end, attacker_end, 25, "192.0.2.1", (443, 1179), psh_ack);
    let dropped = Observation {
        is_dropped: true,
        ..packet(attacker_end, victim_end, 25, "192.0.2.1", (5000, 179), psh_ack)
    };
    for observation in [refused, reset, other, dropped] {
        world.collector.observe(observation);
    }
    let (attacker, victim) = (world.members[0].0, world.members[1].0);
    let pairs = world.collector.matrix(&world.exchange, at(25));
    let ends: Vec<_> = pairs
        .iter()
        .map(|pair| (pair.from, pair.to, pair.service))
        .collect();
    assert_eq!(
        ends,
        [
            (attacker, victim, world.service),
            (victim, attacker, world.service)
        ]
    );
    assert!(pairs.iter().all(|pair| pair.bgp_seen.is_none()), "{pairs:?}");
    let share = pairs[0].ipv6_bits_per_s / pairs[0].bits_per_s;
    assert!((share - 0.25).abs() < 0.02, "{pairs:?}");
    assert!(pairs[1].ipv6_bits_per_s.abs() < 1.0, "{pairs:?}");
    let keepalive = packet(victim_end, attacker_end, 26, "2001:db8::1", (179, 5000), psh_ack);
    world.collector.observe(keepalive);
    let seen = |seconds| {
        let pairs = world.collector.matrix(&world.exchange, at(seconds));
        let back = pairs.into_iter().find(|pair| pair.from == victim);
        back.and_then(|pair| pair.bgp_seen)
    };
    assert_eq!(seen(26), Some(at(26)));
    assert_eq!(
        seen(26 + 4 * 86_400 - 1),
        Some(at(26)),
        "a session without traffic is still there"
    );
    assert_eq!(seen(26 + 4 * 86_400), None);
}

#[test]
fn totals_since_the_last_reading_are_by_connection_ip_version_and_peer_without_dropped_packets() {
    let mut world = World::new();
    for second in 0..10 {
        world.ordinary(second);
    }
    world.packet(10, (53, 4242), 1400, "acl");
    let [(attacker, from), (victim, to)] = world.members[..] else {
        panic!("two members");
    };
    // 20 samples of 1,000 packets of 500 bytes.
    let bytes = 10_000_000.0;
    let expected = Totalled {
        connections: [
            ((from, Family::Ipv4), [bytes, 0.0]),
            ((to, Family::Ipv4), [0.0, bytes]),
        ]
        .into(),
        peers: [((attacker, victim), bytes)].into(),
    };
    assert_eq!(world.collector.take_totals(&world.exchange), expected);
    assert_eq!(
        world.collector.take_totals(&world.exchange),
        Totalled::default(),
        "each packet counts once"
    );
}

#[test]
fn the_heaviest_flows_of_a_member_are_listed_and_nobody_elses() {
    let mut world = World::new();
    for second in 0..30 {
        world.ordinary(second);
        for _ in 0..8 {
            world.packet(second, (53, 4242), 1400, "");
        }
    }
    let (attacker, victim) = (world.members[0].0, world.members[1].0);
    let top = world.collector.traffic(&world.exchange, victim, at(29)).top;
    assert_eq!((top.len(), top[0].source_port), (15, 53));
    assert_eq!(world.collector.traffic(&world.exchange, attacker, at(29)).top, []);
}

#[test]
fn an_attack_is_told_from_the_traffic_before_it_also_after_many_minutes() {
    let mut world = World::new();
    let target: Prefix = "192.0.2.80/32".parse().unwrap();
    let (attacker, victim) = (world.members[0].0, world.members[1].0);
    for second in 0..600 {
        world.ordinary(second);
    }
    let calm = world
        .collector
        .attack(&world.exchange, victim, target, at(600))
        .unwrap();
    assert_eq!(calm.suggestions, []);
    // 15 minutes of reflected NTP; a filter drops the second half.
    for second in 600..1500 {
        world.ordinary(second);
        let reason = if second < 1050 { "" } else { "no_output" };
        for _ in 0..20 {
            let port = 1024 + world.below(60_000) as u16;
            world.packet(second, (123, port), 482, reason);
        }
        if second == 615 || second == 1499 {
            let found = world
                .collector
                .attack(&world.exchange, victim, target, at(second))
                .unwrap();
            let usual = found.usual_bits_per_s.unwrap();
            assert!(found.bits_per_s > 3.0 * usual, "{second}: {found:?}");
            assert!((usual / 8e6 - 1.0).abs() < 0.2, "{usual}");
            let passed = found.bits_per_s - found.dropped_bits_per_s;
            assert_eq!(second == 1499, passed < 1.5 * usual, "{second}: {passed}");
            let rule = &found.suggestions[0];
            assert_eq!(
                (found.suggestions.len(), rule.matching.source_ports[0].first),
                (1, 123)
            );
            assert_eq!(rule.action, FilterAction::Drop);
            assert!(rule.covers > 0.9 && rule.collateral.unwrap() < 0.01, "{rule:?}");
            assert_eq!(found.by_peer[0].label, attacker.to_string());
            assert_eq!(found.by_protocol[0].label, "UDP");
        }
    }
    let found = world
        .collector
        .attack(&world.exchange, victim, target, at(1499))
        .unwrap();
    let dropped = found
        .minutes
        .iter()
        .filter(|minute| minute.dropped_bits_per_s > Some(0.0))
        .count();
    assert!((7..=9).contains(&dropped), "{dropped} minutes with drops");
    let ours = world.collector.targets(&world.exchange, victim, at(1499));
    assert_eq!(ours[0].destination.to_string(), "192.0.2.80");
    assert!(
        world
            .collector
            .attack(&world.exchange, attacker, target, at(1499))
            .is_none()
    );
}

#[test]
fn the_usual_rate_is_unknown_until_the_traffic_of_the_end_was_seen_for_some_time() {
    let mut world = World::new();
    let target: Prefix = "192.0.2.80/32".parse().unwrap();
    let victim = world.members[1].0;
    let read = |world: &World, second| {
        let collector = &world.collector;
        let found = collector
            .attack(&world.exchange, victim, target, at(second))
            .unwrap();
        let targets = collector.targets(&world.exchange, victim, at(second));
        assert_eq!(
            targets[0].usual_bits_per_s.is_some(),
            found.usual_bits_per_s.is_some()
        );
        found
    };
    // An engine that starts while 1 Gbit/s passes.
    for second in 0..400 {
        for _ in 0..250 {
            world.packet(second, (123, 443), 500, "");
        }
        if second == 30 || second == 200 {
            let found = read(&world, second);
            assert!(found.bits_per_s > 9e8, "{}", found.bits_per_s);
            assert_eq!(found.usual_bits_per_s, None);
            let drops = |rule: &&Suggestion| rule.action == FilterAction::Drop || rule.collateral.is_some();
            assert_eq!(
                found.suggestions.iter().find(drops),
                None,
                "nobody knows what is usual"
            );
        }
    }
    let found = read(&world, 399);
    assert!((found.usual_bits_per_s.unwrap() / 1e9 - 1.0).abs() < 0.05);
    assert_eq!(found.suggestions, []);
}

#[test]
fn a_destination_without_former_traffic_has_a_usual_rate_of_zero_where_the_end_has_a_history() {
    let mut world = World::new();
    let victim = world.members[1].0;
    for second in 0..400 {
        world.ordinary(second);
    }
    let new = [192, 0, 2, 81];
    for _ in 0..100 {
        world.packet_to(new, 400, (123, 443), 500, "");
    }
    let targets = world.collector.targets(&world.exchange, victim, at(401));
    let found = targets
        .iter()
        .find(|target| target.destination == IpAddr::from(new));
    assert_eq!(found.unwrap().usual_bits_per_s, Some(0.0));
}

#[test]
fn the_rate_of_a_minute_that_is_not_over_is_that_of_its_part_so_far() {
    let mut world = World::new();
    let target: Prefix = "192.0.2.80/32".parse().unwrap();
    let victim = world.members[1].0;
    // The traffic starts at the beginning of a minute.
    for second in 0..186 {
        world.ordinary(second);
    }
    let found = world
        .collector
        .attack(&world.exchange, victim, target, at(186))
        .unwrap();
    let [.., before, last] = &found.minutes[..] else {
        panic!("{:?}", found.minutes);
    };
    assert_eq!(last.at, at(180));
    let ratio = last.passed_bits_per_s.unwrap() / before.passed_bits_per_s.unwrap();
    assert!((ratio - 1.0).abs() < 0.05, "{ratio}");
}

#[test]
fn minutes_before_the_first_sample_are_unknown_and_minutes_without_packets_are_zero() {
    let mut world = World::new();
    let target: Prefix = "192.0.2.81/32".parse().unwrap();
    let victim = world.members[1].0;
    for second in 0..200 {
        world.ordinary(second);
    }
    world.packet_to([192, 0, 2, 81], 200, (123, 443), 500, "");
    let found = world
        .collector
        .attack(&world.exchange, victim, target, at(200))
        .unwrap();
    let passed: Vec<_> = found
        .minutes
        .iter()
        .map(|minute| minute.passed_bits_per_s)
        .collect();
    let [unknown @ .., before_3, before_2, before_1, now] = &passed[..] else {
        panic!("{passed:?}")
    };
    assert!(unknown.iter().all(Option::is_none), "{passed:?}");
    assert_eq!([*before_3, *before_2, *before_1], [Some(0.0); 3]);
    assert!(*now > Some(0.0));
}

#[test]
fn a_rule_that_a_filter_implements_is_not_suggested_again() {
    let mut world = World::new();
    let target: Prefix = "192.0.2.80/32".parse().unwrap();
    let victim = world.members[1].0;
    for second in 0..660 {
        world.ordinary(second);
        for _ in 0..if second < 600 { 0 } else { 20 } {
            let port = 1024 + world.below(60_000) as u16;
            world.packet(second, (123, port), 482, "");
        }
    }
    let read = |world: &World| {
        let found = world.collector.attack(&world.exchange, victim, target, at(660));
        found.unwrap().suggestions
    };
    let [rule] = &read(&world)[..] else {
        panic!("{:?}", read(&world))
    };
    let order = |action: FilterAction| Operation::CreateFilter {
        account: Some(victim),
        matching: rule.matching.clone(),
        alternatives: Vec::new(),
        peers: BTreeSet::new(),
        action,
        origin: FilterOrigin::Page,
        rank: 100,
        order: String::new(),
        state: FilterState::Active,
        valid_until: Some(at(1_000)),
        comment: None,
        external_ref: None,
        exempt_until: None,
    };
    let (count, drop) = (order(FilterAction::Count), order(FilterAction::Drop));
    world.exchange.apply(&Actor::system(), at(660), count).unwrap();
    assert_eq!(read(&world).len(), 1, "a filter that counts stops nothing");
    world.exchange.apply(&Actor::system(), at(660), drop).unwrap();
    assert_eq!(read(&world), []);
    let late = world
        .collector
        .attack(&world.exchange, victim, target, at(661))
        .unwrap();
    assert_eq!(late.suggestions, []);
}
