//! The sFlow datagrams of the demonstration's switches: traffic between the members, the counters of trunks, and an NTP, DNS
//! and CLDAP amplification against an address of Aoba Networks. As in a switch, an active filter that matches a packet of the
//! attack drops it, and counts it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millrace_ix_model::{
    AccountId, Config, Exchange, Filter, FilterAction, FilterId, FilterState, ServiceKind, SwitchId,
    Timestamp,
};
use millrace_ix_plan::layout::Metadata;
use millrace_ix_samples::{Observation, Shared, matches};
use millrace_sflow::{
    CounterSample, Datagram, DropCode, FlowSample, InterfaceCounters, MillraceRecord, OpenFlowPort, Output,
    Sample,
};
use millrace_types::{Mac, split_mix};
use millrace_wire::{Builder, tcp};

use crate::counters::{Count, FilterCounters};

/// The parts of the attack: source port and rate in bit/s.
const VECTORS: [(u16, u64); 3] = [(123, 6_400_000_000), (53, 1_900_000_000), (389, 350_000_000)];
/// The networks of the hosts that reflect each part.
const REFLECTORS: [u8; 4] = [45, 91, 133, 179];
/// The address under attack, and its usual rate in bit/s.
const VICTIM: (Ipv4Addr, u64) = (Ipv4Addr::new(203, 0, 113, 7), 240_000_000);
/// Another address of the same member.
const NEIGHBOUR: (Ipv4Addr, u64) = (Ipv4Addr::new(203, 0, 113, 20), 91_000_000);
/// The rate of the heaviest pair of members, in bit/s.
const HEAVIEST: u64 = 800_000_000;
/// The time between two samples of a pair of members, and between two readings of counters, in seconds.
const PAIR_SECS: u64 = 5;
const COUNTERS_SECS: u64 = 30;
/// The size of the sampled frames.
const SIZE: u64 = 1000;
/// The time before the start of a script in which it is measured, and that of the attack, in seconds.
const MEASURED: u64 = 25 * 60;
const ATTACKED: u64 = 12 * 60;

/// The traffic up to some time.
#[derive(Debug)]
pub struct Script {
    /// The newest second whose samples were sent.
    sent: u64,
    /// The first second with traffic between members, and that of the attack.
    pairs_since: u64,
    attack_since: Option<u64>,
    random: u64,
    counts: BTreeMap<FilterId, Count>,
}

/// The packets of a sample, all alike.
struct Packets {
    source: IpAddr,
    destination: IpAddr,
    ports: (u16, u16),
    /// True for TCP, and false for UDP.
    is_tcp: bool,
    /// The number of packets.
    count: u64,
}

impl Packets {
    fn frame(&self) -> Vec<u8> {
        let head = Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]));
        let head = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => head.ipv4(source, destination),
            (IpAddr::V6(source), IpAddr::V6(destination)) => head.ipv6(source, destination),
            _ => head,
        };
        let body = if self.is_tcp {
            head.tcp(tcp::Repr {
                src: self.ports.0,
                dst: self.ports.1,
                flags: tcp::flags::ACK,
                ..tcp::Repr::default()
            })
        } else {
            head.udp(self.ports.0, self.ports.1)
        };
        body.pad_to(SIZE as usize).build()
    }
}

/// Returns the number of packets of [`SIZE`] bytes in some seconds at a rate in bit/s.
const fn packets(bits_per_s: u64, seconds: u64) -> u64 {
    bits_per_s * seconds / 8 / SIZE
}

fn active(exchange: &Exchange, account: AccountId) -> impl Iterator<Item = (FilterId, &Filter)> {
    let own = exchange.filters.iter().filter(move |(_, filter)| {
        filter.account == account
            && filter.state == FilterState::Active
            && filter.action != FilterAction::Count
    });
    own.map(|(id, filter)| (*id, filter))
}

impl Script {
    /// Returns the traffic between members of the last half minute before `now` and from then on.
    pub fn quiet(now: Timestamp) -> Script {
        let now = now.millis() / 1000;
        Script {
            sent: now - 2 * COUNTERS_SECS,
            pairs_since: 0,
            attack_since: None,
            random: 1,
            counts: BTreeMap::new(),
        }
    }

    /// Returns the same traffic beside an attack that has begun twelve minutes before `now`.
    pub fn attack(now: Timestamp) -> Script {
        let quiet = Script::quiet(now);
        let now = now.millis() / 1000;
        Script {
            sent: now - MEASURED,
            pairs_since: quiet.sent,
            attack_since: Some(now - ATTACKED),
            ..quiet
        }
    }

    /// Sends what the switches send until a time.
    pub(super) fn run(
        &mut self,
        samples: &Shared,
        counters: &FilterCounters,
        exchange: &Exchange,
        until: Timestamp,
    ) {
        while self.sent < until.millis() / 1000 {
            self.sent += 1;
            let found = self.second(exchange);
            let datagram = Datagram {
                agent: [192, 0, 2, 1].into(),
                sub_agent: 0,
                sequence: self.sent as u32,
                // The agent has started with the script's first day.
                uptime_ms: (self.sent % 86_400) as u32 * 1000,
                samples: found,
                skipped: 0,
            };
            let at = Timestamp::from_secs(self.sent);
            samples.take(&datagram, at);
            let switch = exchange.switches.keys().next().copied().unwrap_or(SwitchId(0));
            self.counts
                .retain(|filter, _| exchange.filters.contains_key(filter));
            counters.record(switch, at, &self.counts);
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        split_mix::next(&mut self.random) % limit
    }

    /// Returns the samples of a second.
    fn second(&mut self, exchange: &Exchange) -> Vec<Sample> {
        let mut all = Vec::new();
        if self.sent >= self.pairs_since && self.sent.is_multiple_of(PAIR_SECS) {
            self.pairs(exchange, &mut all);
        }
        if self.sent.is_multiple_of(COUNTERS_SECS) {
            self.trunks(exchange, &mut all);
        }
        if let Some(since) = self.attack_since {
            self.victim(exchange, since, &mut all);
        }
        all
    }

    /// Adds the samples between members: a quarter of each rate is IPv6. Members of a peering LAN have BGP sessions.
    fn pairs(&mut self, exchange: &Exchange, all: &mut Vec<Sample>) {
        let ends: Vec<&Config> = exchange.configs.values().filter(|end| !end.shut_down).collect();
        let mut number = 0;
        for from in &ends {
            for to in ends
                .iter()
                .filter(|to| to.service == from.service && to.account != from.account)
            {
                number += 1;
                let quarter = packets(HEAVIEST / number / 4, PAIR_SECS);
                let v4 = Packets {
                    source: Ipv4Addr::new(192, 0, 2, number as u8).into(),
                    destination: Ipv4Addr::new(198, 18, 0, number as u8).into(),
                    ports: (443, 40_000),
                    is_tcp: true,
                    count: 3 * quarter,
                };
                let v6 = Packets {
                    source: Ipv6Addr::from(0x2001_0db8_0001_u128 << 80 | u128::from(number)).into(),
                    destination: Ipv6Addr::from(0x2001_0db8_0002_u128 << 80 | u128::from(number)).into(),
                    count: quarter,
                    ..v4
                };
                let is_lan = exchange
                    .services
                    .get(&from.service)
                    .is_some_and(|service| service.kind == ServiceKind::ExchangeLan);
                let bgp = is_lan.then_some(Packets {
                    ports: (179, 40_000),
                    count: 0,
                    ..v4
                });
                for packets in [Some(v4), Some(v6), bgp].into_iter().flatten() {
                    all.extend(self.sample(exchange, from, to, &packets));
                }
            }
        }
    }

    /// Adds the counters of the ports at the first ends of trunks. The dearer a trunk, the less it carries.
    fn trunks(&self, exchange: &Exchange, all: &mut Vec<Sample>) {
        for trunk in exchange.trunks.values().filter(|trunk| !trunk.drained) {
            let [end, _] = trunk.ends;
            let Some(switch) = exchange.switches.get(&end.switch) else {
                continue;
            };
            let octets = |bits_per_s: u64| bits_per_s / u64::from(trunk.cost) / 8 * (self.sent % 86_400);
            all.push(Sample::Counters(CounterSample {
                sequence: self.sent as u32,
                source: end.port.raw(),
                counters: Some(InterfaceCounters {
                    in_octets: octets(24_000_000_000),
                    out_octets: octets(31_000_000_000),
                    ..InterfaceCounters::default()
                }),
                ethernet: None,
                openflow: Some(OpenFlowPort {
                    dpid: switch.dpid.0,
                    number: end.port.raw(),
                }),
                name: None,
            }));
        }
    }

    /// Adds the traffic to the addresses of Aoba Networks, with the attack from its start.
    fn victim(&mut self, exchange: &Exchange, since: u64, all: &mut Vec<Sample>) {
        let is_lan = |end: &&Config| {
            let service = exchange.services.get(&end.service);
            service.is_some_and(|service| service.kind == ServiceKind::ExchangeLan)
        };
        let ends: Vec<&Config> = exchange.configs.values().filter(is_lan).collect();
        let is_victim = |end: &&&Config| {
            let account = exchange.accounts.get(&end.account);
            account.is_some_and(|account| account.asns.contains(&64_500))
        };
        let Some(to) = ends.iter().find(is_victim) else {
            return;
        };
        let from: Vec<&&Config> = ends.iter().filter(|end| end.account != to.account).collect();
        let Some(usual_from) = from.first() else {
            return;
        };
        for (destination, rate) in [VICTIM, NEIGHBOUR] {
            let usual = Packets {
                source: Ipv4Addr::new(198, 18, 1, self.below(200) as u8).into(),
                destination: destination.into(),
                ports: (1024 + self.below(60_000) as u16, 443),
                // Half of it is QUIC.
                is_tcp: self.sent.is_multiple_of(2),
                count: packets(rate, 1),
            };
            all.extend(self.sample(exchange, usual_from, to, &usual));
        }
        if self.sent < since {
            return;
        }
        for (port, rate) in VECTORS {
            let reflector = self.below(REFLECTORS.len() as u64) as usize;
            let attack = Packets {
                source: Ipv4Addr::new(REFLECTORS[reflector], 0, 0, 7).into(),
                destination: VICTIM.0.into(),
                ports: (port, 40_000 + reflector as u16),
                is_tcp: false,
                count: packets(rate, 1),
            };
            let from = from[self.below(from.len() as u64) as usize];
            all.extend(self.sample(exchange, from, to, &attack));
        }
    }

    /// Returns the sample of packets from one end to another. A filter of the receiver that matches them drops and counts them.
    fn sample(
        &mut self,
        exchange: &Exchange,
        from: &Config,
        to: &Config,
        packets: &Packets,
    ) -> Option<Sample> {
        let header = packets.frame();
        let mut sample = FlowSample {
            sequence: self.sent as u32,
            source: 1,
            rate: packets.count as u32,
            pool: packets.count as u32,
            drops: 0,
            input: 1,
            output: Output::Interface(2),
            frame_size: SIZE as u32,
            header: header.into_iter().take(128).collect(),
            switch: None,
            millrace: Some(MillraceRecord {
                metadata: Metadata {
                    service: exchange.services.get(&from.service)?.index.raw(),
                    by_trunk: false,
                    ingress_end: from.index.raw(),
                    egress_end: to.index.raw(),
                }
                .word(),
                ..MillraceRecord::default()
            }),
        };
        let observed = Observation::of(&sample, Timestamp::from_secs(self.sent))?;
        let dropping = active(exchange, to.account)
            .find(|(_, filter)| filter.matches().any(|matching| matches(matching, &observed)));
        if let Some((id, _)) = dropping {
            sample.output = Output::Dropped(DropCode::ACL);
            let (packets_counted, bytes) = self.counts.entry(id).or_default();
            *packets_counted += packets.count;
            *bytes += packets.count * SIZE;
        }
        Some(Sample::Flow(sample))
    }
}
