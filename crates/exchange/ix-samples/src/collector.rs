//! The collector: it turns datagrams into observations, and observations into sums, sketches and windows, in
//! bounded memory.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;

use millrace_ix_model::{AccountId, ConnectionId, Exchange, Prefix, Timestamp, TrunkId};
use millrace_sflow::{Datagram, Sample};

use crate::analysis::{Attack, analyse};
use crate::history::History;
use crate::matrix::{Pair, Sessions, pairs};
use crate::minutes::Minutes;
use crate::parties::{Parties, Treated};
use crate::random::Random;
use crate::rates::{PeerRate, Rates, TargetRate, TopFlow, Traffic, Traits, relative_error};
use crate::sketch::SpaceSaving;
use crate::totals::{Totalled, Totals};
use crate::trunks::PortRates;
use crate::{Ends, Observation, Window};

/// The largest number of recent observations in the ring: 16 MB.
const RECENT_MAX: usize = 131_072;
/// The largest number of ends with a history of their traffic before an attack. Full histories of all ends
/// take 250 MB.
const BEFORE_ENDS_MAX: usize = 256;
/// The idle time after which the history of an end may be replaced by the history of another end, in
/// milliseconds. It is long, so that ends do not evict each other before their usual traffic is known.
const IDLE_MS: u64 = 600_000;
/// The age at which an observation counts as traffic before an attack, in milliseconds.
const BEFORE_AGE_MS: u64 = 120_000;
/// The window in which the collector searches for an attack, in milliseconds.
const ATTACK_MS: u64 = 30_000;
/// The number of counters of the sketch of flows.
const FLOWS_MAX: usize = 8_192;
/// The largest number of destinations with rates by minute.
const DESTINATIONS_MAX: usize = 4_096;
/// The largest number of top flows, and of targets, of an account.
const TOP_LEN: usize = 15;
/// The duration of a window of the sketch of flows, in milliseconds.
const FLOWS_MS: u64 = 30_000;
/// The time by which an observation may be older than the previous one, in milliseconds. After a larger step back
/// of the clock, the present traffic is measured again.
const STEP_BACK_MS: u64 = 5_000;
/// The largest number of sFlow sources with a count of lost samples.
const SOURCES_MAX: usize = 65_536;
/// A flow to an end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct FlowId {
    ends: Ends,
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    source_port: u16,
    destination_port: u16,
}

/// The sums, sketches and windows of an exchange.
#[derive(Debug)]
pub struct Collector {
    rates: Rates,
    recent: VecDeque<Observation>,
    before: HashMap<(u32, u32), History>,
    flows: SpaceSaving<FlowId>,
    former_flows: SpaceSaving<FlowId>,
    flows_since: Timestamp,
    destinations: SpaceSaving<(u32, IpAddr)>,
    minutes: HashMap<(u32, IpAddr), Minutes>,
    /// The last value of the drop counter and the number of lost samples, by (agent, sub-agent, source).
    lost: BTreeMap<(IpAddr, u32, u32), (u32, u64)>,
    samples: u64,
    /// The time of the first observation; `None` before it.
    since: Option<Timestamp>,
    /// True if rates by minute of a destination were removed, because there were too many destinations.
    evicts_minutes: bool,
    ports: PortRates,
    sessions: Sessions,
    totals: Totals,
    random: Random,
}

impl Collector {
    /// Returns a collector without traffic. `seed` chooses the observations that are kept as traffic before an attack.
    pub fn new(seed: u64) -> Collector {
        Collector {
            rates: Rates::default(),
            recent: VecDeque::new(),
            before: HashMap::new(),
            flows: SpaceSaving::new(FLOWS_MAX),
            former_flows: SpaceSaving::new(1),
            flows_since: Timestamp::from_millis(0),
            destinations: SpaceSaving::new(DESTINATIONS_MAX),
            minutes: HashMap::new(),
            lost: BTreeMap::new(),
            samples: 0,
            since: None,
            evicts_minutes: false,
            ports: PortRates::default(),
            sessions: Sessions::default(),
            totals: Totals::default(),
            random: Random(seed),
        }
    }

    /// Processes a datagram of a switch.
    pub fn take(&mut self, datagram: &Datagram, now: Timestamp) {
        for sample in &datagram.samples {
            if let Sample::Counters(counters) = sample {
                self.ports.take(counters, datagram.uptime_ms, now);
            }
            let Sample::Flow(flow) = sample else { continue };
            self.count_lost((datagram.agent, datagram.sub_agent, flow.source), flow.drops);
            self.samples += 1;
            if let Some(observation) = Observation::of(flow, now) {
                self.observe(observation);
            }
        }
    }

    /// Adds the growth of a switch's counter of lost samples, which wraps at 32 bits and restarts with the
    /// switch.
    fn count_lost(&mut self, source: (IpAddr, u32, u32), drops: u32) {
        if self.lost.len() >= SOURCES_MAX && !self.lost.contains_key(&source) {
            return;
        }
        let (last, sum) = self.lost.entry(source).or_insert((drops, 0));
        let growth = drops.wrapping_sub(*last);
        // A counter that went back has restarted.
        *sum += u64::from(if growth > u32::MAX / 2 { drops } else { growth });
        *last = drops;
    }

    /// Processes an observation. Observations arrive in the order of time, unless the clock steps back.
    pub fn observe(&mut self, observation: Observation) {
        let at = observation.at;
        self.since = Some(self.since.map_or(at, |since| since.min(at)));
        let newest = self.recent.back().map_or(at, |newest| newest.at);
        if newest.millis().saturating_sub(at.millis()) > STEP_BACK_MS {
            self.forget_present(at);
        }
        self.rates.add(
            observation.ends,
            at,
            (observation.bytes, observation.packets),
            Traits {
                is_dropped: observation.is_dropped,
                is_ipv6: observation.destination.is_ipv6(),
            },
        );
        if observation.is_bgp() {
            self.sessions.see(observation.ends, at);
        }
        self.totals.add(&observation);
        if at.millis().saturating_sub(self.flows_since.millis()) >= FLOWS_MS {
            self.former_flows = core::mem::replace(&mut self.flows, SpaceSaving::new(FLOWS_MAX));
            self.flows_since = at;
        }
        let flow = FlowId {
            ends: observation.ends,
            source: observation.source,
            destination: observation.destination,
            protocol: observation.protocol,
            source_port: observation.source_port,
            destination_port: observation.destination_port,
        };
        self.flows.add(flow, observation.bytes as u64);
        let destination = (observation.ends.egress_end, observation.destination);
        if let Some(evicted) = self.destinations.add(destination, observation.bytes as u64) {
            self.minutes.remove(&evicted);
            self.evicts_minutes = true;
        }
        // Without evictions, a destination that is new here had no traffic since the first observation.
        let known_since = match self.since {
            Some(since) if !self.evicts_minutes => since,
            _ => at,
        };
        self.minutes
            .entry(destination)
            .or_insert_with(|| Minutes::new(at, known_since))
            .add(at, observation.bytes, observation.is_dropped);
        self.recent.push_back(observation);
        while self.recent.len() > RECENT_MAX
            || self
                .recent
                .front()
                .is_some_and(|oldest| at.millis().saturating_sub(oldest.at.millis()) > BEFORE_AGE_MS)
        {
            if let Some(oldest) = self.recent.pop_front() {
                self.keep(oldest);
            }
        }
    }

    /// Forgets the traffic of the last minutes, whose times are in the future now. The histories of ends stay.
    fn forget_present(&mut self, now: Timestamp) {
        self.rates.clear();
        self.recent.clear();
        self.flows = SpaceSaving::new(FLOWS_MAX);
        self.former_flows = SpaceSaving::new(1);
        self.flows_since = now;
    }

    /// Adds an observation to the history of its end. If too many ends have a history, the history of the end
    /// that is idle longest is removed. If no end is idle, the new end gets no history.
    fn keep(&mut self, observation: Observation) {
        let end = (observation.ends.service, observation.ends.egress_end);
        if self.before.len() >= BEFORE_ENDS_MAX && !self.before.contains_key(&end) {
            let idle = self.before.iter();
            let idle = idle.map(|(end, history)| (history.idle_ms(observation.at), *end));
            match idle.max() {
                Some((idle_ms, idlest)) if idle_ms >= IDLE_MS => self.before.remove(&idlest),
                _ => return,
            };
        }
        let history = self
            .before
            .entry(end)
            .or_insert_with(|| History::new(observation.at));
        history.take(observation, &mut self.random);
    }

    /// Returns the rates of connections over the last half minute: [towards the exchange, from it], in bit/s. Packets that
    /// switches drop count towards the exchange only.
    pub fn connections(&self, exchange: &Exchange, now: Timestamp) -> BTreeMap<ConnectionId, [f64; 2]> {
        let ends = exchange.configs.values().filter_map(|config| {
            let service = exchange.services.get(&config.service)?;
            Some(((service.index.raw(), config.index.raw()), config.connection))
        });
        let ends: HashMap<(u32, u32), ConnectionId> = ends.collect();
        let mut rates: BTreeMap<ConnectionId, [f64; 2]> = BTreeMap::new();
        for (end, rate) in self.rates.read(now) {
            if let Some(connection) = ends.get(&(end.service, end.ingress_end)) {
                rates.entry(*connection).or_default()[0] += rate.bits_per_s;
            }
            if let Some(connection) = ends.get(&(end.service, end.egress_end)) {
                rates.entry(*connection).or_default()[1] += rate.bits_per_s - rate.dropped_bits_per_s;
            }
        }
        rates
    }

    /// Returns the rates of trunks in bit/s: [from the first end to the second, back]. A trunk whose switches send no
    /// counters of its ports is absent.
    pub fn trunks(&self, exchange: &Exchange, now: Timestamp) -> BTreeMap<TrunkId, [f64; 2]> {
        self.ports.trunks(exchange, now).collect()
    }

    /// Returns the traffic since the last call, and forgets it.
    pub fn take_totals(&mut self, exchange: &Exchange) -> Totalled {
        core::mem::take(&mut self.totals).of(exchange)
    }

    /// Returns the traffic of an account.
    pub fn traffic(&self, exchange: &Exchange, account: AccountId, now: Timestamp) -> Traffic {
        let parties = Parties::of(exchange);
        let (mut incoming, mut outgoing, mut samples) = (Vec::new(), Vec::new(), 0);
        for (ends, rate) in self.rates.read(now) {
            let Some(service) = parties.services.get(&ends.service) else {
                continue;
            };
            let account_of = |end| parties.ends.get(&(ends.service, end)).copied();
            let (from, to) = (account_of(ends.ingress_end), account_of(ends.egress_end));
            let with = |peer| PeerRate {
                peer,
                service: *service,
                bits_per_s: rate.bits_per_s,
                ipv6_bits_per_s: rate.ipv6_bits_per_s,
                packets_per_s: rate.packets_per_s,
                dropped_bits_per_s: rate.dropped_bits_per_s,
                relative_error: relative_error(rate.samples.into()),
            };
            if to == Some(account) {
                incoming.push(with(from));
            }
            if from == Some(account) {
                outgoing.push(with(to));
            }
            if to == Some(account) || from == Some(account) {
                samples += u64::from(rate.samples);
            }
        }
        for list in [&mut incoming, &mut outgoing] {
            list.sort_by(|one, other| other.bits_per_s.total_cmp(&one.bits_per_s));
        }
        Traffic {
            seconds: Rates::seconds(now).round() as u32,
            incoming,
            outgoing,
            top: self.top(&parties, account, now),
            samples,
            lost: self.lost.values().map(|(_, sum)| sum).sum(),
        }
    }

    /// Returns the traffic and the BGP sessions between the accounts of the exchange, ordered by accounts and service.
    pub fn matrix(&self, exchange: &Exchange, now: Timestamp) -> Vec<Pair> {
        pairs(
            &Parties::of(exchange),
            self.rates.read(now),
            self.sessions.seen(now),
        )
    }

    /// Returns the heaviest flows to an account, over both windows of the sketch.
    fn top(&self, parties: &Parties, account: AccountId, now: Timestamp) -> Vec<TopFlow> {
        let current = now.millis().saturating_sub(self.flows_since.millis());
        if current > 2 * FLOWS_MS {
            return Vec::new();
        }
        let seconds = (current + FLOWS_MS) as f64 / 1000.0;
        let mut bytes: HashMap<FlowId, u64> = HashMap::new();
        for sketch in [&self.flows, &self.former_flows] {
            for (flow, counter) in sketch.heaviest() {
                let to = parties.ends.get(&(flow.ends.service, flow.ends.egress_end));
                if to == Some(&account) {
                    *bytes.entry(flow).or_default() += counter.weight - counter.error;
                }
            }
        }
        let mut flows: Vec<(FlowId, u64)> = bytes.into_iter().collect();
        flows.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(&other.0)));
        let flow = |(flow, bytes): (FlowId, u64)| TopFlow {
            source: flow.source,
            destination: flow.destination,
            protocol: flow.protocol,
            source_port: flow.source_port,
            destination_port: flow.destination_port,
            bits_per_s: bytes as f64 * 8.0 / seconds,
        };
        flows.into_iter().take(TOP_LEN).map(flow).collect()
    }

    /// Returns the heaviest destinations of an account, by their rate over the last half minute less their
    /// usual rate, if it is known.
    pub fn targets(&self, exchange: &Exchange, account: AccountId, now: Timestamp) -> Vec<TargetRate> {
        let parties = Parties::of(exchange);
        let is_own = |ends: Ends| parties.ends.get(&(ends.service, ends.egress_end)) == Some(&account);
        let mut targets: HashMap<IpAddr, (Present, f64)> = HashMap::new();
        let (seconds, recent) = self.attack_window(now);
        for observation in recent.filter(|observation| is_own(observation.ends)) {
            let (present, _) = targets.entry(observation.destination).or_default();
            present.add(observation, self.is_known(observation.ends));
        }
        for history in self.histories(|end| parties.ends.get(&end) == Some(&account)) {
            for observation in history.observations() {
                if let Some((_, before)) = targets.get_mut(&observation.destination) {
                    *before += observation.bytes * 8.0 / history.seconds();
                }
            }
        }
        let rate = |(destination, (present, before)): (IpAddr, (Present, f64))| TargetRate {
            destination,
            bits_per_s: present.bytes * 8.0 / seconds,
            usual_bits_per_s: present.is_known().then_some(before),
        };
        let mut targets: Vec<TargetRate> = targets.into_iter().map(rate).collect();
        let excess = |target: &TargetRate| target.bits_per_s - target.usual_bits_per_s.unwrap_or(0.0);
        targets.sort_by(|one, other| excess(other).total_cmp(&excess(one)));
        targets.truncate(TOP_LEN);
        targets
    }

    /// Returns true if the usual traffic of the end by which packets leave is known from its history.
    fn is_known(&self, ends: Ends) -> bool {
        let history = self.before.get(&(ends.service, ends.egress_end));
        history.is_some_and(History::is_known)
    }

    /// Returns the histories of the ends that `is_own` selects, without histories of zero duration.
    fn histories(&self, is_own: impl Fn((u32, u32)) -> bool) -> impl Iterator<Item = &History> {
        let own = self.before.iter().filter(move |(end, _)| is_own(**end));
        own.map(|(_, history)| history)
            .filter(|history| history.seconds() > 0.0)
    }

    /// Returns the duration in seconds and the observations of the window for the search for an attack. At
    /// high rates the ring may hold less than the window.
    fn attack_window(&self, now: Timestamp) -> (f64, impl Iterator<Item = &Observation>) {
        let age = move |observation: &Observation| now.millis().saturating_sub(observation.at.millis());
        let oldest = self.recent.front().map_or(0, age).min(ATTACK_MS);
        let recent = self.recent.iter().rev();
        let recent = recent.take_while(move |observation| age(observation) < ATTACK_MS);
        ((oldest as f64 / 1000.0).max(1.0), recent)
    }

    /// Returns the traffic to a target of an account, and suggested rules; `None` without a sample in the last half minute.
    pub fn attack(
        &self,
        exchange: &Exchange,
        account: AccountId,
        target: Prefix,
        now: Timestamp,
    ) -> Option<Attack> {
        self.gather(Parties::of(exchange), account, target, now)
            .attack(&Treated::of(exchange, account, now))
    }

    /// Copies the data about the traffic to a target of an account.
    pub(crate) fn gather(
        &self,
        parties: Parties,
        account: AccountId,
        target: Prefix,
        now: Timestamp,
    ) -> Gathered {
        let is_own = |observation: &Observation| {
            let ends = observation.ends;
            parties.ends.get(&(ends.service, ends.egress_end)) == Some(&account)
        };
        let (current_seconds, recent) = self.attack_window(now);
        let current: Vec<Observation> = recent
            .filter(|observation| target.contains(observation.destination) && is_own(observation))
            .copied()
            .collect();
        let mut present = Present::default();
        for observation in &current {
            present.add(observation, self.is_known(observation.ends));
        }
        let own_ends: BTreeSet<(u32, u32)> = parties
            .ends
            .iter()
            .filter(|(_, owner)| **owner == account)
            .map(|(end, _)| *end)
            .collect();
        // Histories represent different durations. Each observation is therefore scaled to the traffic of one
        // second.
        let mut before = Vec::new();
        for history in self.histories(|end| own_ends.contains(&end)) {
            let known = history.observations();
            let known = known.filter(|observation| target.contains(observation.destination));
            before.extend(known.map(|observation| Observation {
                bytes: observation.bytes / history.seconds(),
                packets: observation.packets / history.seconds(),
                ..observation
            }));
        }
        let own_egress: BTreeSet<u32> = own_ends.iter().map(|(_, egress)| *egress).collect();
        let minutes = self
            .minutes
            .iter()
            .filter(|((egress, address), _)| own_egress.contains(egress) && target.contains(*address))
            .map(|(_, minutes)| minutes.clone())
            .collect();
        Gathered {
            current,
            current_seconds,
            before: present.is_known().then_some(before),
            minutes,
            parties,
            target,
            now,
        }
    }

    /// Returns the number of samples so far.
    pub fn samples(&self) -> u64 {
        self.samples
    }
}

/// The present traffic to a destination.
#[derive(Clone, Copy, Default)]
struct Present {
    bytes: f64,
    /// The bytes that leave by ends with known usual traffic.
    known: f64,
}

impl Present {
    fn add(&mut self, observation: &Observation, is_known: bool) {
        self.bytes += observation.bytes;
        self.known += if is_known { observation.bytes } else { 0.0 };
    }

    /// Returns true if the usual traffic to the destination is known: most of the traffic leaves by ends with
    /// known usual traffic.
    fn is_known(&self) -> bool {
        self.known * 2.0 > self.bytes
    }
}

/// A copy of the data about the traffic to a target of an account. The search for rules takes seconds, and
/// works on this copy instead of the collector.
pub(crate) struct Gathered {
    current: Vec<Observation>,
    current_seconds: f64,
    /// The usual traffic of one second; `None` if it is not known.
    before: Option<Vec<Observation>>,
    minutes: Vec<Minutes>,
    parties: Parties,
    target: Prefix,
    now: Timestamp,
}

impl Gathered {
    /// Returns the traffic and suggested rules; `None` without a sample in the last half minute. Packets that a filter
    /// of the account already treats give no reason for a further rule.
    pub(crate) fn attack(&self, treated: &Treated) -> Option<Attack> {
        let current = Window {
            observations: &self.current,
            seconds: self.current_seconds,
        };
        let before = self.before.as_ref().map(|observations| Window {
            observations,
            seconds: 1.0,
        });
        let account_of = |ends: &Ends| self.parties.ends.get(&(ends.service, ends.ingress_end)).copied();
        let is_treated = |packet: &Observation| treated.contains(packet, account_of(&packet.ends));
        analyse(
            current,
            before,
            self.target,
            self.minutes.iter(),
            self.now,
            account_of,
            is_treated,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a packet to the end of a service, `seconds` after the start.
    fn packet(egress_end: u32, seconds: u64) -> Observation {
        Observation {
            at: Timestamp::from_secs(1_795_470_000 + seconds),
            ends: Ends {
                service: 7,
                ingress_end: 1,
                egress_end,
            },
            packets: 1_000.0,
            bytes: 500_000.0,
            is_dropped: false,
            source: IpAddr::from([198, 51, 100, 7]),
            destination: IpAddr::from([192, 0, 2, 80]),
            protocol: 17,
            source_port: 53,
            destination_port: 4242,
            icmp: (0, 0),
            tcp_flags: 0,
            fragment: 0,
            dscp: 0,
        }
    }

    #[test]
    fn a_clock_that_steps_back_leaves_the_rates_as_they_are() {
        let mut collector = Collector::new(1);
        let ends = packet(1, 0).ends;
        // 500,000 bytes a second are 4 Mbit/s, for ten minutes before the step and one after it.
        for second in (3_600..4_200).chain(600..660) {
            collector.observe(packet(1, second));
        }
        let now = packet(1, 660).at;
        let rates: Vec<_> = collector.rates.read(now).collect();
        assert_eq!(rates.len(), 1);
        assert_eq!(rates[0].0, ends);
        assert!((rates[0].1.bits_per_s / 4e6 - 1.0).abs() < 0.1, "{rates:?}");
        let (seconds, recent) = collector.attack_window(now);
        assert_eq!((seconds, recent.count()), (30.0, 29));
        assert!(collector.is_known(ends), "the usual traffic is still known");
        let (_, minutes) = collector.minutes.iter().next().unwrap();
        let last: Vec<_> = minutes
            .until(now)
            .map(|(_, bytes)| bytes.map(|[passed, _]| passed as u32))
            .collect();
        assert_eq!(last[58..], [Some(30_000_000), Some(0)], "{last:?}");
    }

    #[test]
    fn ends_that_fall_silent_leave_their_histories_to_others() {
        let mut collector = Collector::new(1);
        for second in 0..300 {
            for egress in 0..BEFORE_ENDS_MAX as u32 {
                collector.observe(packet(egress, second));
            }
        }
        let is_known = |collector: &Collector, egress| collector.is_known(packet(egress, 0).ends);
        assert!(is_known(&collector, 0));
        // 44 further ends; the others are silent from now on.
        for second in 300..2_000 {
            for egress in 256..300 {
                collector.observe(packet(egress, second));
            }
            assert!(collector.before.len() <= BEFORE_ENDS_MAX);
            if second == 600 {
                assert!(!is_known(&collector, 256), "nobody is idle for long");
            }
        }
        assert!((256..300).all(|egress| is_known(&collector, egress)));
        let others = (0..256).filter(|egress| is_known(&collector, *egress));
        assert_eq!(others.count(), BEFORE_ENDS_MAX - 44);
    }
}
