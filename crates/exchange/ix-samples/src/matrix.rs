//! The peering matrix: who exchanges traffic with whom, and between whom packets of BGP sessions are sampled.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use millrace_ix_model::{AccountId, ServiceId, Timestamp};
use serde::Serialize;

use crate::Ends;
use crate::parties::Parties;
use crate::rates::Rate;

/// The largest number of combinations of service and ends with a BGP session.
const SESSIONS_MAX: usize = 262_144;
/// The time for which a BGP session counts as seen after its newest sampled packet. One packet in a thousand is sampled, and an
/// idle session sends two in a minute.
const SEEN_FOR: Duration = Duration::from_secs(4 * 86_400);

/// The traffic and the BGP sessions from one account to another in a service.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Pair {
    pub from: AccountId,
    pub to: AccountId,
    pub service: ServiceId,
    /// The rate over the last half minute, in bit/s.
    pub bits_per_s: f64,
    /// The part of the rate that is IPv6, in bit/s; the rest is IPv4.
    pub ipv6_bits_per_s: f64,
    /// The time of the newest sampled packet of a BGP session (TCP port 179); `None` if there was none in the last four days.
    pub bgp_seen: Option<Timestamp>,
}

/// The times of the newest packets of BGP sessions, by service and ends.
#[derive(Debug, Default)]
pub(crate) struct Sessions(HashMap<Ends, Timestamp>);

impl Sessions {
    /// Remembers the time of a packet of a BGP session. Sessions that are not seen any more make room for new ones.
    pub(crate) fn see(&mut self, ends: Ends, at: Timestamp) {
        if self.0.len() >= SESSIONS_MAX && !self.0.contains_key(&ends) {
            self.0.retain(|_, seen| at.since(*seen) < SEEN_FOR);
            if self.0.len() >= SESSIONS_MAX {
                return;
            }
        }
        self.0.insert(ends, at);
    }

    /// Returns the sessions that are seen, with the times of their newest packets.
    pub(crate) fn seen(&self, now: Timestamp) -> impl Iterator<Item = (Ends, Timestamp)> + '_ {
        let seen = self.0.iter().filter(move |(_, at)| now.since(**at) < SEEN_FOR);
        seen.map(|(ends, at)| (*ends, *at))
    }
}

/// Returns the pairs of accounts with traffic or a session, ordered by accounts and service.
pub(crate) fn pairs(
    parties: &Parties,
    rates: impl Iterator<Item = (Ends, Rate)>,
    sessions: impl Iterator<Item = (Ends, Timestamp)>,
) -> Vec<Pair> {
    let key = |ends: Ends| {
        let account_of = |end| parties.ends.get(&(ends.service, end)).copied();
        let service = *parties.services.get(&ends.service)?;
        Some((
            account_of(ends.ingress_end)?,
            account_of(ends.egress_end)?,
            service,
        ))
    };
    let empty = |(from, to, service)| Pair {
        from,
        to,
        service,
        bits_per_s: 0.0,
        ipv6_bits_per_s: 0.0,
        bgp_seen: None,
    };
    let mut pairs: BTreeMap<_, Pair> = BTreeMap::new();
    for (ends, rate) in rates {
        if let Some(key) = key(ends) {
            let pair = pairs.entry(key).or_insert_with(|| empty(key));
            pair.bits_per_s += rate.bits_per_s;
            pair.ipv6_bits_per_s += rate.ipv6_bits_per_s;
        }
    }
    for (ends, at) in sessions {
        if let Some(key) = key(ends) {
            let pair = pairs.entry(key).or_insert_with(|| empty(key));
            pair.bgp_seen = pair.bgp_seen.max(Some(at));
        }
    }
    pairs.into_values().collect()
}
