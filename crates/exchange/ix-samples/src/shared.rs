//! The collector that a receiving thread feeds and the API reads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_ix_model::{AccountId, ConnectionId, Exchange, Prefix, Timestamp, TrunkId};
use millrace_sflow::Datagram;
use parking_lot::Mutex;

use crate::parties::{Parties, Treated};
use crate::{Attack, Collector, Pair, TargetRate, Totalled, Traffic};

/// The time between two revisions while samples arrive, in milliseconds.
const REVISION_MS: u64 = 5_000;

struct State {
    collector: Mutex<Collector>,
    /// The revision: a number that grows every 5 s while samples arrive.
    revision: AtomicU64,
    revised_at: AtomicU64,
    /// The time of the newest datagram in milliseconds; 0 before the first one.
    heard_at: AtomicU64,
    malformed: AtomicU64,
    refused: AtomicU64,
}

/// A collector that several threads use. Reading it locks it for some milliseconds at most; samples wait in the socket
/// meanwhile.
#[derive(Clone)]
pub struct Shared(Arc<State>);

impl Shared {
    /// Returns a collector without traffic.
    pub fn new(seed: u64) -> Shared {
        Shared(Arc::new(State {
            collector: Mutex::new(Collector::new(seed)),
            revision: AtomicU64::new(0),
            revised_at: AtomicU64::new(0),
            heard_at: AtomicU64::new(0),
            malformed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }))
    }

    /// Adds the samples of a datagram.
    pub fn take(&self, datagram: &Datagram, now: Timestamp) {
        self.0.collector.lock().take(datagram, now);
        self.0.heard_at.store(now.millis(), Ordering::Relaxed);
        // The difference is negative after the clock stepped back.
        let since = now.millis().abs_diff(self.0.revised_at.load(Ordering::Relaxed));
        if since >= REVISION_MS {
            self.0.revised_at.store(now.millis(), Ordering::Relaxed);
            self.0.revision.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a UDP packet from a switch that is no valid sFlow datagram.
    pub(crate) fn count_malformed(&self) {
        self.0.malformed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a datagram from an address that is not a switch of the exchange.
    pub(crate) fn count_refused(&self) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of UDP packets from switches that were no valid sFlow datagrams.
    pub fn malformed(&self) -> u64 {
        self.0.malformed.load(Ordering::Relaxed)
    }

    /// Returns the number of packets from addresses that are not those of switches.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    /// Returns the time of the newest datagram of a switch; `None` before the first one.
    pub fn heard_at(&self) -> Option<Timestamp> {
        let millis = self.0.heard_at.load(Ordering::Relaxed);
        (millis > 0).then(|| Timestamp::from_millis(millis))
    }

    /// Returns the number of samples so far.
    pub fn samples(&self) -> u64 {
        self.0.collector.lock().samples()
    }

    /// Returns a number that grows every 5 s while samples arrive.
    pub fn revision(&self) -> u64 {
        self.0.revision.load(Ordering::Relaxed)
    }

    /// Returns the rates of connections: [towards the exchange, from it], in bit/s.
    pub fn connections(&self, exchange: &Exchange, now: Timestamp) -> BTreeMap<ConnectionId, [f64; 2]> {
        self.0.collector.lock().connections(exchange, now)
    }

    /// Returns the rates of trunks: [from the first end to the second, back], in bit/s.
    pub fn trunks(&self, exchange: &Exchange, now: Timestamp) -> BTreeMap<TrunkId, [f64; 2]> {
        self.0.collector.lock().trunks(exchange, now)
    }

    /// Returns the traffic since the last call, and forgets it.
    pub fn take_totals(&self, exchange: &Exchange) -> Totalled {
        self.0.collector.lock().take_totals(exchange)
    }

    /// Returns the traffic of an account.
    pub fn traffic(&self, exchange: &Exchange, account: AccountId, now: Timestamp) -> Traffic {
        self.0.collector.lock().traffic(exchange, account, now)
    }

    /// Returns the traffic and the BGP sessions between the accounts of the exchange.
    pub fn matrix(&self, exchange: &Exchange, now: Timestamp) -> Vec<Pair> {
        self.0.collector.lock().matrix(exchange, now)
    }

    /// Returns the destinations of an account by their excess, the greatest first.
    pub fn targets(&self, exchange: &Exchange, account: AccountId, now: Timestamp) -> Vec<TargetRate> {
        self.0.collector.lock().targets(exchange, account, now)
    }

    /// Returns the traffic to a target of an account, and suggested rules; `None` without a sample in the last half minute.
    pub fn attack(
        &self,
        exchange: &Exchange,
        account: AccountId,
        target: Prefix,
        now: Timestamp,
    ) -> Option<Attack> {
        let parties = Parties::of(exchange);
        // The search for rules runs without the lock, so that samples are taken meanwhile.
        let gathered = self.0.collector.lock().gather(parties, account, target, now);
        gathered.attack(&Treated::of(exchange, account, now))
    }
}
