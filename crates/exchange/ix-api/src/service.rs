//! The engine as this crate uses it: a snapshot to read from, orders, the journal, the audit chain, events.
//!
//! [`ExchangeService`] is a trait. Tests can therefore run the whole API over an exchange in memory, and this
//! crate depends on neither the database nor the switches.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use millrace_ix_engine::Mode;
use millrace_ix_filter::FoundRoute;
use millrace_ix_model::state::Realisation;
use millrace_ix_model::{
    AccountId, Actor, ConfigId, Exchange, FilterId, FilterMatch, ObjectId, PortId, Prefix, ServiceId,
    SwitchId, Timestamp, reason,
};
use millrace_ix_samples::{Pair, Traffic};
use millrace_ix_service::{OrderError, OrderRequest, Ordered, Unconfirmed};
use millrace_ix_store::AuditEntry;
use tokio::sync::broadcast;

use crate::index::Index;
use crate::observed::{Attack, FilterCounter, Load, Quarantined, SampleReceiver, Session, Target, Verdict};
use crate::route_servers::{RouteServer, RouteServerStatus};
use crate::series::Series;

/// The state of a switch relative to the plan, as the fabric page shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwitchState {
    /// The switch has the entries of the plan. Foreign entries that the engine keeps do not count.
    InSync,
    /// Changes are being sent to the switch, or its content is not known yet.
    Syncing,
    /// The switch differs from the plan, and the engine sends nothing until an operator decides which side is
    /// right.
    Drifted,
    /// The switch is not connected.
    Unreachable,
}

impl SwitchState {
    /// Returns the name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            SwitchState::InSync => "in_sync",
            SwitchState::Syncing => "syncing",
            SwitchState::Drifted => "drifted",
            SwitchState::Unreachable => "unreachable",
        }
    }
}

/// The engine's knowledge about a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchHealth {
    pub state: SwitchState,
    /// The time at which the switch entered this state, if known.
    pub since: Option<Timestamp>,
    /// A note about the state in words, such as the number of foreign entries that the engine keeps.
    pub error: Option<String>,
    /// The number of flow entries that the plan has for it.
    pub entries: usize,
    /// The ports without a link; `None` while they are not known.
    pub ports_down: Option<BTreeSet<u32>>,
}

/// The exchange at one revision, with the engine's knowledge of its state in the switches.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// The objects.
    pub exchange: Arc<Exchange>,
    pub revision: u64,
    /// The revision at which each object was last written. Objects that are not listed have the snapshot's
    /// revision.
    pub(crate) revisions: BTreeMap<ObjectId, u64>,
    /// The state of each service in the switches. A service that is not listed is planned.
    pub(crate) realisations: BTreeMap<ServiceId, Realisation>,
    /// The state of each switch. The state of a switch that is not listed is unknown.
    pub switches: BTreeMap<SwitchId, SwitchHealth>,
    /// Why the database cannot be written, so that the engine accepts no orders; `None` if it can.
    pub unwritable: Option<String>,
    /// The time since which the database has not answered: what an engine that follows shows is as old. `None` if it answers.
    pub silent_since: Option<Timestamp>,
    /// The checklists of the ends in quarantine.
    pub quarantine: Arc<BTreeMap<ConfigId, Quarantined>>,
    /// The engine's snapshot. If present, it replaces `revisions` and `realisations`, whose values are then
    /// looked up on demand. To collect them for 10,000 services at every event would cost more than all
    /// requests.
    source: Option<Arc<millrace_ix_service::Snapshot>>,
    index: Arc<OnceLock<Index>>,
}

/// Returns why the engine accepts no orders, as far as its database is concerned.
fn unwritable(source: &millrace_ix_service::Snapshot) -> Option<String> {
    let follows = |leader: &millrace_ix_store::Leader| {
        format!("this engine follows {leader}: it shows the exchange, and accepts nothing")
    };
    let silent = || "the database does not answer".to_owned();
    let found = source
        .follows
        .as_ref()
        .map(follows)
        .or_else(|| source.unwritable.clone());
    found.or_else(|| source.silent_since.map(|_| silent()))
}

impl Snapshot {
    /// Returns a snapshot.
    pub fn new(exchange: Arc<Exchange>, revision: u64) -> Snapshot {
        Snapshot {
            exchange,
            revision,
            ..Snapshot::default()
        }
    }

    /// Returns the engine's snapshot for the API. The index of `before` is reused and updated.
    pub(crate) fn of_engine(
        source: Arc<millrace_ix_service::Snapshot>,
        before: Option<&Snapshot>,
    ) -> Snapshot {
        let index = match before {
            Some(before) if Arc::ptr_eq(&before.exchange, &source.exchange) => Arc::clone(&before.index),
            Some(before) if let Some(index) = before.index.get() => {
                Arc::new(index.updated(&before.exchange, &source.exchange).into())
            }
            _ => Arc::default(),
        };
        Snapshot {
            exchange: Arc::clone(&source.exchange),
            revision: source.revision.0,
            unwritable: unwritable(&source),
            silent_since: source.silent_since.map(|since| Timestamp::from_millis(since.0)),
            quarantine: Arc::clone(&source.quarantine),
            index,
            source: Some(source),
            ..Snapshot::default()
        }
    }

    /// Returns the revision at which an object was last written.
    pub fn revision_of(&self, object: ObjectId) -> u64 {
        let found = match &self.source {
            Some(source) => source.revisions.get(&object).map(|revision| revision.0),
            None => self.revisions.get(&object).copied(),
        };
        found.unwrap_or(self.revision)
    }

    /// Returns the realisation of a service in the switches.
    pub(crate) fn realisation(&self, service: ServiceId) -> Realisation {
        match &self.source {
            Some(source) => source.realisation(service),
            None => self
                .realisations
                .get(&service)
                .cloned()
                .unwrap_or(Realisation::Planned),
        }
    }

    /// Returns true if a port has a link; `None` if that is not known.
    pub fn is_up(&self, port: PortId) -> Option<bool> {
        let health = self.switches.get(&port.switch)?;
        if health.state == SwitchState::Unreachable {
            return None;
        }
        health
            .ports_down
            .as_ref()
            .map(|down| !down.contains(&port.port.raw()))
    }

    /// Returns the switch whose entries are newer than the database, so that the engine sends nothing until an operator
    /// decides; `None` while the engine writes.
    pub fn read_only(&self) -> Option<SwitchId> {
        match self.source.as_ref().map(|source| source.mode) {
            Some(Mode::ReadOnly { switch, .. }) => Some(SwitchId(switch)),
            Some(Mode::Normal) => None,
            None => {
                let mut switches = self.switches.iter();
                let drifted = switches.find(|(_, health)| health.state == SwitchState::Drifted);
                drifted.map(|(id, _)| *id)
            }
        }
    }

    pub(crate) fn index(&self) -> &Index {
        self.index.get_or_init(|| Index::of(&self.exchange))
    }
}

/// A change in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeRecord {
    /// The number.
    pub id: u64,
    /// The operation as a word.
    pub operation: String,
    /// The actor's name in the journal.
    pub actor: String,
    /// The objects concerned.
    pub objects: Vec<ObjectId>,
    /// The state as a word.
    pub state: String,
    /// The time of the order.
    pub accepted_at: Timestamp,
    /// The time of the last step.
    pub updated_at: Timestamp,
    /// The switches that have not answered.
    pub waiting_for: Vec<SwitchId>,
    /// The error of a switch, or the reason of a rollback.
    pub error: Option<String>,
}

/// A step of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepRecord {
    /// The state as a word.
    pub state: String,
    pub at: Timestamp,
    /// Details in words.
    pub detail: Option<String>,
}

/// An entry of the audit chain.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditRecord {
    /// The position in the chain.
    pub serial: u64,
    pub time: Timestamp,
    pub actor: String,
    /// The act.
    pub action: String,
    /// The object, or empty.
    pub object: String,
    /// Further facts.
    pub detail: serde_json::Value,
    /// The hash of the entry, in hexadecimal.
    pub hash: String,
}

/// A notification from the engine, such as a changed object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The kind as a word: `object`, `change`, `switch`, `notice`, `mode`.
    pub kind: &'static str,
    /// The objects concerned.
    pub objects: Vec<ObjectId>,
    /// The change concerned.
    pub change: Option<u64>,
    /// The exchange before the transaction, which decides who may know of a deleted object.
    pub before: Arc<Exchange>,
}

/// The future that a call returns if it may wait.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, OrderError>> + Send + 'a>>;

/// The engine.
pub trait ExchangeService: Send + Sync {
    /// Returns the time of the engine's clock. Jumps of the system's clock do not affect it.
    fn now(&self) -> Timestamp;
    /// Returns the newest snapshot.
    fn snapshot(&self) -> Arc<Snapshot>;
    /// Executes an order.
    fn order(&self, order: OrderRequest) -> Reply<'_, Ordered>;
    /// Returns up to `limit` changes below `before`, newest first.
    fn changes(&self, before: Option<u64>, limit: usize) -> Reply<'_, Vec<ChangeRecord>>;
    /// Returns one change with its steps.
    fn change(&self, id: u64) -> Reply<'_, Option<(ChangeRecord, Vec<StepRecord>)>>;
    /// Returns the numbers of the changes under way.
    fn changes_open(&self) -> BTreeSet<u64>;
    /// Returns the changes that are undone unless somebody confirms them.
    fn unconfirmed(&self) -> Arc<BTreeMap<u64, Unconfirmed>>;
    /// Confirms a change, which then stays.
    fn confirm(&self, change: u64, actor: Actor) -> Reply<'_, ()>;
    /// Undoes a change that waits for its confirmation. Returns the number of the change that undoes it.
    fn revert(&self, change: u64, actor: Actor) -> Reply<'_, Option<u64>>;
    /// Returns up to `limit` entries of the audit chain below `before`, newest first.
    fn audit(&self, before: Option<u64>, limit: usize) -> Reply<'_, Vec<AuditRecord>>;
    /// Adds an entry to the audit chain.
    fn record(&self, entry: AuditEntry) -> Reply<'_, ()>;
    /// Returns the text that [`put_answer`](ExchangeService::put_answer) stored under a scope and key in the last
    /// 24 hours.
    fn answer(&self, scope: String, key: String) -> Reply<'_, Option<String>>;
    /// Stores a text under a scope and key for 24 hours.
    fn put_answer(&self, scope: String, key: String, text: String) -> Reply<'_, ()>;
    /// Returns the events from now on.
    fn subscribe(&self) -> broadcast::Receiver<Arc<Event>>;
    /// Returns the verdict on a filter of an account, for frames of all members or of `peers`. An engine
    /// without routes permits no filter.
    fn check_filter(
        &self,
        _account: AccountId,
        _matching: &FilterMatch,
        _peers: &BTreeSet<AccountId>,
    ) -> Verdict {
        Verdict {
            reason: Some(reason::ownership_unchecked()),
            ..Verdict::default()
        }
    }
    /// Queries the routes and registry objects of an account again, and checks its filters again.
    fn recheck_filters(&self, _account: AccountId) {}
    /// Returns the counters of active filters, as far as they are known.
    fn filter_counters(&self) -> BTreeMap<FilterId, FilterCounter> {
        BTreeMap::new()
    }
    /// Returns the present rates of connections and trunks, as far as they are measured.
    fn loads(&self) -> BTreeMap<ObjectId, Load> {
        BTreeMap::new()
    }
    /// Returns the counters of the sFlow receiver; `None` without one.
    fn sample_receiver(&self) -> Option<SampleReceiver> {
        None
    }
    /// Returns the traffic of an account by peer and service over the last half minute; `None` if nothing is sampled.
    fn traffic(&self, _account: AccountId) -> Option<Traffic> {
        None
    }
    /// Returns the traffic and the BGP sessions between accounts over the last half minute; `None` if nothing is sampled.
    fn matrix(&self) -> Option<Vec<Pair>> {
        None
    }
    /// Returns the destinations of an account in descending order of their excess.
    fn targets(&self, _account: AccountId) -> Vec<Target> {
        Vec::new()
    }
    /// Returns the traffic to a destination of an account; `None` if it is not measured.
    fn attack(&self, _account: AccountId, _target: Prefix) -> Option<Attack> {
        None
    }
    /// Returns the time series; `None` if the exchange keeps none.
    fn series(&self) -> Option<&dyn Series> {
        None
    }
    /// Returns the BGP sessions.
    fn bgp_sessions(&self) -> Vec<Session> {
        Vec::new()
    }
    /// Returns the live routes to a prefix, at most 100; `None` if the engine has no BGP sessions.
    fn lookup(&self, _prefix: Prefix) -> Option<Vec<FoundRoute>> {
        None
    }
    /// Returns the latest status of a route server.
    fn route_server_status(&self, _server: &RouteServer) -> RouteServerStatus {
        RouteServerStatus::default()
    }
}
