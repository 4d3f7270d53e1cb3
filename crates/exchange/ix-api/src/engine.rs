//! The engine as this crate uses it: a snapshot to read from, orders, the journal, the audit chain, events, and what the engine
//! observes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use millrace_ix_filter::{FoundRoute, SessionKind, SessionStatus, Validity, Verdict};
use millrace_ix_model::{
    AccountId, Actor, FilterId, FilterMatch, ObjectId, Prefix, SwitchId, Timestamp, reason,
};
use millrace_ix_samples::{Pair, Shared, Traffic};
use millrace_ix_service::{
    Handle, OrderError, OrderRequest, Ordered, ServiceEvent, SwitchDrift, Unconfirmed,
};
use millrace_ix_store::{Answer, AuditEntry, AuditRecord, ChangeRecord, IdempotencyKey, JournalRecord};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::broadcast;

use crate::counters::FilterCounters;
use crate::observed::{Attack, FilterCounter, Load, SampleReceiver, Target};
use crate::route_servers::{RouteServer, RouteServerStatus, RouteServers};
use crate::samples;
use crate::series::Recorded;
use crate::service::{Event, Snapshot, SwitchHealth, SwitchState};
use crate::session::{CredentialError, CredentialStore, Stored};
use crate::translate::{switch_state, translate};

/// The greatest number that SQLite compares as an integer.
const NO_BOUND: u64 = i64::MAX as u64;

/// An exchange that runs in this process.
pub struct Engine {
    handle: Handle,
    filters: Option<millrace_ix_filter::Shared>,
    events: broadcast::Sender<Arc<Event>>,
    /// The latest snapshot of this crate, and the service's snapshot from which it was made.
    cached: Mutex<Option<(Arc<millrace_ix_service::Snapshot>, Arc<Snapshot>)>>,
    /// The state of each switch, and the time at which the switch entered it.
    since: Mutex<BTreeMap<SwitchId, (SwitchState, Timestamp)>>,
    /// The sFlow data of the switches; unset if sFlow is not received.
    samples: OnceLock<Shared>,
    /// The time series; unset if the exchange keeps none.
    series: OnceLock<Recorded>,
    /// The statuses of the route servers; unset if they are not read.
    route_servers: OnceLock<RouteServers>,
    /// The counters of filters, which the tasks of the switches write.
    counters: FilterCounters,
}

impl Engine {
    /// Returns the engine behind a handle. The caller must be in a tokio runtime, where a task forwards the
    /// events.
    pub fn new(handle: Handle) -> Arc<Engine> {
        Engine::with_filters(handle, None, FilterCounters::default())
    }

    /// Returns the engine behind a handle. `filters` decides which account may filter an address. The tasks
    /// of the switches write the counters.
    pub fn with_filters(
        handle: Handle,
        filters: Option<millrace_ix_filter::Shared>,
        counters: FilterCounters,
    ) -> Arc<Engine> {
        let engine = Arc::new(Engine {
            events: broadcast::Sender::new(4096),
            cached: Mutex::new(None),
            since: Mutex::new(BTreeMap::new()),
            samples: OnceLock::new(),
            series: OnceLock::new(),
            route_servers: OnceLock::new(),
            counters,
            handle,
            filters,
        });
        let receiver = engine.handle.subscribe();
        tokio::spawn(forward(Arc::downgrade(&engine), receiver));
        engine
    }

    /// Sets the source of sFlow data: rates of connections, and traffic under attack. Only the first call has
    /// an effect.
    pub fn set_samples(&self, samples: Shared) {
        // The process has one sFlow collector for its whole life.
        let _later = self.samples.set(samples);
    }

    /// Sets the time series. Only the first call has an effect.
    pub fn set_series(&self, series: millrace_ix_series::Shared) {
        // The process has one store of series for its whole life.
        let _later = self.series.set(Recorded::new(series, self.handle.clone()));
    }

    /// Sets the source of the statuses of route servers. Only the first call has an effect.
    pub fn set_route_servers(&self, route_servers: RouteServers) {
        // The tasks that write the statuses run until the process ends.
        let _later = self.route_servers.set(route_servers);
    }

    /// Returns the state of a switch. `ports_down` are its ports without a link, if they are known from an earlier snapshot.
    fn health(
        &self,
        snapshot: &millrace_ix_service::Snapshot,
        id: SwitchId,
        status: &millrace_ix_engine::SwitchStatus,
        ports_down: Option<BTreeSet<u32>>,
    ) -> SwitchHealth {
        let (state, error) = switch_state(status, snapshot.mode);
        let mut since = self.since.lock();
        let entry = since.entry(id).or_insert_with(|| (state, self.now()));
        if entry.0 != state {
            *entry = (state, self.now());
        }
        let read = || {
            let of_switch = snapshot.ports.iter().filter(|(port, _)| port.switch == id);
            let down = of_switch.filter(|(_, found)| !found.is_up());
            down.map(|(port, _)| port.port.raw()).collect()
        };
        SwitchHealth {
            state,
            since: Some(entry.1),
            error,
            entries: status.entries,
            ports_down: (state != SwitchState::Unreachable).then(|| ports_down.unwrap_or_else(read)),
        }
    }
}

/// Forwards events until the engine ends.
async fn forward(engine: std::sync::Weak<Engine>, mut receiver: broadcast::Receiver<Arc<ServiceEvent>>) {
    loop {
        let event = receiver.recv().await;
        let Some(engine) = engine.upgrade() else {
            return;
        };
        let exchange = || Arc::clone(&engine.handle.snapshot().exchange);
        let event = match event {
            Ok(event) => translate(&event, &exchange()),
            Err(broadcast::error::RecvError::Lagged(missed)) => {
                tracing::warn!(missed, "events of the engine were missed");
                Event {
                    kind: "object",
                    objects: exchange().ids().collect(),
                    change: None,
                    before: exchange(),
                }
            }
            Err(broadcast::error::RecvError::Closed) => return,
        };
        // Without a subscriber, `send` fails, and nobody needs the event.
        let _ = engine.events.send(Arc::new(event));
    }
}

fn now() -> Timestamp {
    Timestamp::from(SystemTime::now())
}

impl Engine {
    /// Returns the time of the engine's clock. Jumps of the system's clock do not affect it.
    pub fn now(&self) -> Timestamp {
        self.handle.now()
    }

    /// Returns the verdict on a filter of an account, for frames of all members or of `peers`. An engine without routes permits
    /// no filter.
    pub fn check_filter(
        &self,
        account: AccountId,
        matching: &FilterMatch,
        peers: &BTreeSet<AccountId>,
    ) -> Verdict {
        let Some(filters) = &self.filters else {
            return Verdict {
                reason: Some(reason::ownership_unchecked()),
                ..Verdict::default()
            };
        };
        let exchange = &self.handle.snapshot().exchange;
        filters.check(exchange, account, matching, peers, self.now())
    }

    /// Returns the live routes of route servers to a prefix, at most 100; `None` if the engine has no BGP sessions. Those that a
    /// member announces to the exchange itself, for example for its filters, are nobody else's business.
    pub fn lookup(&self, prefix: Prefix) -> Option<Vec<FoundRoute>> {
        let filters = self.filters.as_ref()?;
        let exchange = &self.handle.snapshot().exchange;
        Some(filters.lookup(exchange, SessionKind::RouteServer, prefix, self.now()))
    }

    /// Returns the routes that route servers have accepted from a member with some addresses as next hop.
    pub fn routes_of(&self, account: AccountId, addresses: &BTreeSet<IpAddr>) -> Vec<FoundRoute> {
        let exchange = &self.handle.snapshot().exchange;
        let filters = self.filters.as_ref();
        filters.map_or_else(Vec::new, |filters| {
            filters.routes_of(exchange, account, addresses, self.now())
        })
    }

    /// Returns the states of prefixes with their origins by RPKI and in the registry, in the order of the prefixes; nothing is
    /// known without BGP sessions.
    pub fn route_states(
        &self,
        account: AccountId,
        routes: &[(Prefix, Option<u32>)],
    ) -> Vec<(Option<Validity>, Option<bool>)> {
        self.filters.as_ref().map_or_else(
            || vec![(None, None); routes.len()],
            |filters| filters.states(account, routes, self.now()),
        )
    }

    /// Returns the counters of active filters, as far as they are known.
    pub fn filter_counters(&self) -> BTreeMap<FilterId, FilterCounter> {
        self.counters.sums()
    }

    /// Returns the BGP sessions.
    pub fn bgp_sessions(&self) -> Vec<SessionStatus> {
        let sessions = self.filters.as_ref().map(millrace_ix_filter::Shared::sessions);
        sessions.unwrap_or_default()
    }

    /// Returns the latest status of a route server.
    pub fn route_server_status(&self, server: &RouteServer) -> RouteServerStatus {
        let statuses = self.route_servers.get();
        statuses
            .map(|statuses| statuses.status(&server.fqdn))
            .unwrap_or_default()
    }

    /// Queries the routes and registry objects of an account again, and checks its filters again.
    pub fn recheck_filters(&self, account: AccountId) {
        if let Some(filters) = &self.filters {
            filters.recheck(account);
        }
    }

    /// Returns the present rates of connections and trunks, as far as they are measured.
    pub fn loads(&self) -> BTreeMap<ObjectId, Load> {
        let found = self.handle.snapshot();
        let loads = self
            .samples
            .get()
            .map(|shared| samples::loads(shared, &found.exchange, now()));
        loads.unwrap_or_default()
    }

    /// Returns the counters of the sFlow receiver; `None` without one.
    pub fn sample_receiver(&self) -> Option<SampleReceiver> {
        self.samples.get().map(samples::receiver)
    }

    /// Returns the traffic of an account by peer and service over the last half minute; `None` if nothing is sampled.
    pub fn traffic(&self, account: AccountId) -> Option<Traffic> {
        let found = self.handle.snapshot();
        let samples = self.samples.get()?;
        Some(samples.traffic(&found.exchange, account, now()))
    }

    /// Returns the traffic and the BGP sessions between accounts over the last half minute; `None` if nothing is sampled.
    pub fn matrix(&self) -> Option<Vec<Pair>> {
        let found = self.handle.snapshot();
        Some(self.samples.get()?.matrix(&found.exchange, now()))
    }

    /// Returns the destinations of an account in descending order of their excess.
    pub fn targets(&self, account: AccountId) -> Vec<Target> {
        let found = self.handle.snapshot();
        let targets = self
            .samples
            .get()
            .map(|shared| samples::targets(shared, &found.exchange, account, now()));
        targets.unwrap_or_default()
    }

    /// Returns the traffic to a destination of an account; `None` if it is not measured.
    pub fn attack(&self, account: AccountId, target: Prefix) -> Option<Attack> {
        let found = self.handle.snapshot();
        samples::attack(self.samples.get()?, &found.exchange, account, target, now())
    }

    /// Returns the time series; `None` if the exchange keeps none.
    pub(crate) fn series(&self) -> Option<&Recorded> {
        self.series.get()
    }

    /// Returns the newest snapshot.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        let found = self.handle.snapshot();
        let mut cached = self.cached.lock();
        // The service makes a new snapshot also for changes without an event, such as checklists of
        // quarantines.
        if let Some((of, snapshot)) = &*cached
            && Arc::ptr_eq(of, &found)
        {
            return Arc::clone(snapshot);
        }
        let before = cached.as_ref().map(|(_, snapshot)| &**snapshot);
        let mut snapshot = Snapshot::of_engine(Arc::clone(&found), before);
        // There are thousands of ports, and most snapshots have the same states of them.
        let same_ports = cached
            .as_ref()
            .filter(|(of, _)| Arc::ptr_eq(&of.ports, &found.ports));
        let ports_down = |id: &SwitchId| same_ports?.1.switches.get(id)?.ports_down.clone();
        snapshot.switches = found
            .switches
            .iter()
            .map(|(id, status)| (*id, self.health(&found, *id, status, ports_down(id))))
            .collect();
        let snapshot = Arc::new(snapshot);
        *cached = Some((found, Arc::clone(&snapshot)));
        snapshot
    }

    /// Returns the entries of a switch that differ from the plan now, of which at most `limit` are named.
    ///
    /// # Errors
    /// [`OrderError::Stopped`] if the engine has ended.
    pub async fn drift(&self, switch: SwitchId, limit: usize) -> Result<SwitchDrift, OrderError> {
        self.handle.drift(switch, limit).await
    }

    /// Executes an order.
    ///
    /// # Errors
    /// [`OrderError`]; nothing has changed.
    pub async fn order(&self, order: OrderRequest) -> Result<Ordered, OrderError> {
        let began = Instant::now();
        let ordered = self
            .handle
            .order(order.operations, order.actor, order.options)
            .await?;
        tracing::debug!(change = ordered.change, elapsed = ?began.elapsed(), "order");
        Ok(ordered)
    }

    /// Returns up to `limit` changes below `before`, newest first.
    ///
    /// # Errors
    /// [`OrderError::Unavailable`] if the database fails.
    pub async fn changes(&self, before: Option<u64>, limit: usize) -> Result<Vec<ChangeRecord>, OrderError> {
        self.handle.changes(before.unwrap_or(NO_BOUND), limit).await
    }

    /// Returns one change with its steps.
    ///
    /// # Errors
    /// [`OrderError::Unavailable`] if the database fails.
    pub async fn change(&self, id: u64) -> Result<Option<(ChangeRecord, Vec<JournalRecord>)>, OrderError> {
        let Some(before) = id.checked_add(1).filter(|before| *before < NO_BOUND) else {
            return Ok(None);
        };
        let found = self.handle.changes(before, 1).await?.into_iter().next();
        let Some(record) = found.filter(|record| record.id == id) else {
            return Ok(None);
        };
        Ok(Some((record, self.handle.journal(id).await?)))
    }

    /// Returns the numbers of the changes under way.
    pub fn changes_open(&self) -> BTreeSet<u64> {
        self.handle.snapshot().change_objects.keys().copied().collect()
    }

    /// Returns the switches that a change waits for.
    pub(crate) fn waits_for(&self, change: u64) -> Vec<SwitchId> {
        let snapshot = self.handle.snapshot();
        let found = snapshot.changes.iter().find(|open| open.change == change);
        let switches = found.map(|open| open.switches.iter().map(|id| SwitchId(*id)).collect());
        switches.unwrap_or_default()
    }

    /// Returns the error of the switch that refuses the present step of a change.
    pub(crate) fn refusal_of(&self, change: u64) -> Option<String> {
        self.handle.snapshot().stuck.get(&change).cloned()
    }

    /// Returns the changes that are undone unless somebody confirms them.
    pub fn unconfirmed(&self) -> Arc<BTreeMap<u64, Unconfirmed>> {
        Arc::clone(&self.handle.snapshot().unconfirmed)
    }

    /// Confirms a change, which then stays.
    ///
    /// # Errors
    /// [`OrderError`] if the change does not wait for a confirmation, or the actor may not undo it.
    pub async fn confirm(&self, change: u64, actor: Actor) -> Result<(), OrderError> {
        self.handle.confirm(change, actor).await
    }

    /// Undoes a change that waits for its confirmation. Returns the number of the change that undoes it.
    ///
    /// # Errors
    /// As [`Engine::confirm`].
    pub async fn revert(&self, change: u64, actor: Actor) -> Result<Option<u64>, OrderError> {
        let undone = self.handle.revert(change, actor).await?;
        Ok(undone.change)
    }

    /// Returns up to `limit` entries of the audit chain below `before`, newest first.
    ///
    /// # Errors
    /// [`OrderError::Unavailable`] if the database fails.
    pub async fn audit(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditRecord>, OrderError> {
        self.handle.audit_before(before.unwrap_or(u64::MAX), limit).await
    }

    /// Adds an entry to the audit chain.
    ///
    /// # Errors
    /// [`OrderError::Unavailable`] if the database cannot be written; then the act must not happen.
    pub async fn record(&self, entry: AuditEntry) -> Result<(), OrderError> {
        self.handle.record(entry).await
    }

    /// Returns the text that [`Engine::put_answer`] stored under a scope and key in the last 24 hours.
    ///
    /// # Errors
    /// [`OrderError::Unavailable`] if the database fails.
    pub async fn answer(&self, scope: String, key: String) -> Result<Option<String>, OrderError> {
        let key = IdempotencyKey { scope, key };
        let found = self.handle.store(move |store, now| store.answer(&key, now)).await;
        let body = found?.map(|stored| stored.answer.body);
        Ok(body.and_then(|body| body.as_str().map(str::to_owned)))
    }

    /// Stores a text under a scope and key for 24 hours.
    ///
    /// # Errors
    /// [`OrderError::Unavailable`] if the database cannot be written.
    pub async fn put_answer(&self, scope: String, key: String, text: String) -> Result<(), OrderError> {
        let key = IdempotencyKey { scope, key };
        let answer = Answer {
            request_hash: String::new(),
            body: Value::String(text),
        };
        let stored = self
            .handle
            .store(move |store, now| store.put_answer(&key, &answer, now));
        stored.await
    }

    /// Returns the events from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Event>> {
        self.events.subscribe()
    }
}

/// The store for credentials in the engine's database.
pub struct EngineCredentials(Handle);

impl EngineCredentials {
    /// Returns the credential store behind a handle.
    pub fn new(handle: Handle) -> EngineCredentials {
        EngineCredentials(handle)
    }

    /// Runs a job on the database.
    fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut dyn millrace_ix_store::Store) -> Result<T, millrace_ix_store::StoreError>
        + Send
        + 'static,
    ) -> Stored<'_, T> {
        Box::pin(async move {
            let done = self.0.store(move |store, _| job(store)).await;
            done.map_err(|error| CredentialError {
                reason: error.to_string(),
                follows: matches!(error, OrderError::Follows(_)).then(|| error.to_string()),
            })
        })
    }
}

impl CredentialStore for EngineCredentials {
    fn load<'a>(&'a self, key: &'a str) -> Stored<'a, Option<Vec<u8>>> {
        let key = key.to_owned();
        self.run(move |store| store.credential(&key))
    }

    fn save<'a>(&'a self, key: &'a str, value: Option<&'a [u8]>) -> Stored<'a, ()> {
        let (key, value) = (key.to_owned(), value.map(<[u8]>::to_vec));
        self.run(move |store| store.put_credential(&key, value.as_deref()))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Stored<'a, Vec<(String, Vec<u8>)>> {
        let prefix = prefix.to_owned();
        self.run(move |store| {
            let mut found = Vec::new();
            for key in store.credential_keys(&prefix)? {
                if let Some(value) = store.credential(&key)? {
                    found.push((key, value));
                }
            }
            Ok(found)
        })
    }
}
