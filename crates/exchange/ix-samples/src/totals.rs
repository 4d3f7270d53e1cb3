//! The sampled traffic between two readings, by connection, IP version and peer: the source of time series.

use std::collections::{BTreeMap, HashMap};

use millrace_ix_model::{AccountId, ConnectionId, Exchange};

use crate::{Ends, Observation};

/// The largest number of combinations of service, ends and IP version.
const KEYS_MAX: usize = 131_072;

/// A version of IP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// The bytes that passed, by ends and IP version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals(HashMap<(Ends, Family), f64>);

/// The bytes that passed between two readings. Each is an estimate from samples.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Totalled {
    /// The bytes of connections by IP version: [towards the exchange, from it].
    pub connections: BTreeMap<(ConnectionId, Family), [f64; 2]>,
    /// The bytes from one account to another one.
    pub peers: BTreeMap<(AccountId, AccountId), f64>,
}

impl Totals {
    /// Adds a packet, unless a switch dropped it.
    pub(crate) fn add(&mut self, packet: &Observation) {
        let family = if packet.source.is_ipv4() {
            Family::Ipv4
        } else {
            Family::Ipv6
        };
        let key = (packet.ends, family);
        if packet.is_dropped || self.0.len() >= KEYS_MAX && !self.0.contains_key(&key) {
            return;
        }
        *self.0.entry(key).or_default() += packet.bytes;
    }

    /// Returns the bytes by the objects of an exchange. Those of ends that it does not have are left out.
    pub(crate) fn of(self, exchange: &Exchange) -> Totalled {
        let ends = exchange.configs.values().filter_map(|config| {
            let service = exchange.services.get(&config.service)?;
            let key = (service.index.raw(), config.index.raw());
            Some((key, (config.connection, config.account)))
        });
        let ends: HashMap<(u32, u32), (ConnectionId, AccountId)> = ends.collect();
        let mut totalled = Totalled::default();
        for ((of, family), bytes) in self.0 {
            let [from, to] = [of.ingress_end, of.egress_end].map(|end| ends.get(&(of.service, end)).copied());
            for (direction, end) in [from, to].into_iter().enumerate() {
                if let Some((connection, _)) = end {
                    totalled.connections.entry((connection, family)).or_default()[direction] += bytes;
                }
            }
            if let (Some((_, from)), Some((_, to))) = (from, to) {
                *totalled.peers.entry((from, to)).or_default() += bytes;
            }
        }
        totalled
    }
}
