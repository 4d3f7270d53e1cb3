//! An exchange in memory: the model without database and switches. Orders are carried out at once.
//!
//! Tests of this crate and of the page run on it. The audit chain has no hashes here, and the plan of a dry run
//! counts one entry for each created or changed end at its switch.

mod conditions;
mod confirm;
mod demo;
mod mailbox;
mod observed;
mod route_servers;
mod series;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use millrace_ix_filter::FoundRoute;
use millrace_ix_model::state::Realisation;
use millrace_ix_model::{
    AccountId, Actor, Applied, ConfigId, Drafted, Exchange, FilterId, FilterMatch, ObjectId, Operation,
    PortId, Prefix, Quarantine, ServiceId, ServiceKind, SwitchId, Timestamp,
};
use millrace_ix_samples::{Pair, Traffic};
use millrace_ix_service::{EntryCounts, OrderError, OrderRequest, Ordered, Unconfirmed};
use millrace_ix_store::{AuditEntry, IdempotencyKey, Revision};
use tokio::sync::broadcast;

pub use demo::{PASSWORD, demo};
pub use mailbox::Mailbox;
pub use route_servers::RouteServerReads;

use crate::observed::{Attack, FilterCounter, Load, Quarantined, SampleReceiver, Session, Target, Verdict};
use crate::route_servers::{RouteServer, RouteServerStatus};
use crate::series::Series;
use crate::service::{
    AuditRecord, ChangeRecord, Event, ExchangeService, Reply, Snapshot, StepRecord, SwitchHealth, SwitchState,
};
use crate::translate::concerned_by_port;

/// An exchange in memory.
pub struct FakeExchange {
    state: Mutex<State>,
    events: broadcast::Sender<Arc<Event>>,
}

#[derive(Default)]
struct State {
    exchange: Exchange,
    revision: u64,
    revisions: BTreeMap<ObjectId, u64>,
    realisations: BTreeMap<ServiceId, Realisation>,
    switches: BTreeMap<SwitchId, SwitchHealth>,
    quarantine: BTreeMap<ConfigId, Quarantined>,
    changes: Vec<ChangeRecord>,
    audit: Vec<AuditRecord>,
    answers: BTreeMap<IdempotencyKey, (String, Ordered)>,
    /// The answers to other requests, by scope and key.
    texts: BTreeMap<(String, String), String>,
    unconfirmed: BTreeMap<u64, Unconfirmed>,
    /// The text in the last step of each change that was confirmed or reverted, by change.
    decisions: BTreeMap<u64, String>,
    unavailable: bool,
    /// True if the audit chain takes no entry.
    audit_unavailable: bool,
    /// The lag of the engine's clock behind the system's clock, as after a jump of the system's clock.
    behind: Duration,
    /// The time by which the engine's clock is ahead of the system's clock.
    ahead: Duration,
    /// The operation that is executed before the next order of an IP address, as if another user were faster.
    interloper: Option<Operation>,
    /// The result of reading the route server.
    reads: RouteServerReads,
    snapshot: Arc<Snapshot>,
    /// The exchange of the previous snapshot.
    before: Arc<Exchange>,
}

fn now() -> Timestamp {
    Timestamp::from(SystemTime::now())
}

impl FakeExchange {
    /// Returns an exchange whose services are in place and whose switches are in sync.
    pub fn new(exchange: Exchange) -> Arc<FakeExchange> {
        let mut state = State {
            exchange,
            ..State::default()
        };
        let quarantined: Vec<ConfigId> = state.quarantined().collect();
        for config in quarantined {
            state.report(now(), config, false);
            state.quarantine.insert(
                config,
                Quarantined {
                    seen: true,
                    ..Quarantined::default()
                },
            );
        }
        state.settle();
        state.publish();
        Arc::new(FakeExchange {
            state: Mutex::new(state),
            events: broadcast::Sender::new(4096),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, kind: &'static str, objects: Vec<ObjectId>, change: Option<u64>) {
        let before = Arc::clone(&self.state().before);
        // Without a subscriber, `send` fails, and the event is not needed.
        let _ = self.events.send(Arc::new(Event {
            kind,
            objects,
            change,
            before,
        }));
    }

    /// Sets the state of a switch and of its ports.
    pub fn set_switch(&self, switch: SwitchId, state: SwitchState, ports_down: &[u32]) {
        let mut inner = self.state();
        let before = Arc::clone(&inner.snapshot);
        if let Some(health) = inner.switches.get_mut(&switch) {
            health.state = state;
            health.since = Some(now());
            health.ports_down = Some(ports_down.iter().copied().collect());
        }
        inner.publish();
        let after = Arc::clone(&inner.snapshot);
        drop(inner);
        self.tell("switch", vec![switch.into()], None);
        // Like the engine, sends an event for each port of a connection or trunk whose link state has changed.
        let of_connections = after.exchange.connections.values();
        let of_connections = of_connections.flat_map(|connection| connection.ports.iter());
        let of_trunks = after.exchange.trunks.values().flat_map(|trunk| trunk.ends.iter());
        let used: BTreeSet<PortId> = of_connections.chain(of_trunks).copied().collect();
        let is_other = |port: &PortId| port.switch == switch && before.is_up(*port) != after.is_up(*port);
        for port in used.into_iter().filter(is_other) {
            self.tell("switch", concerned_by_port(&after.exchange, port), None);
        }
    }

    /// Adds a change that waits for a switch, or completes all changes that wait.
    pub fn set_stuck_change(&self, stuck: bool) {
        let mut state = self.state();
        if stuck {
            let id = state.changes.len() as u64 + 1;
            let change = ChangeRecord {
                id,
                operation: "set_rate".to_owned(),
                actor: "us-0".to_owned(),
                objects: state
                    .exchange
                    .services
                    .keys()
                    .take(1)
                    .map(|id| ObjectId::from(*id))
                    .collect(),
                state: "staged".to_owned(),
                accepted_at: now(),
                updated_at: now(),
                waiting_for: state.exchange.switches.keys().copied().take(1).collect(),
                error: Some("OFPMMFC_OUT_OF_METERS: the switch has no free meter".to_owned()),
            };
            state.changes.push(change);
        } else {
            for change in state.changes.iter_mut().filter(|change| change.state == "staged") {
                change.state = "cleaned".to_owned();
                change.waiting_for.clear();
                change.error = None;
            }
        }
        let change = state.changes.len() as u64;
        let objects = state
            .exchange
            .services
            .keys()
            .take(1)
            .map(|id| ObjectId::from(*id))
            .collect();
        drop(state);
        self.tell("change", objects, Some(change));
    }

    /// Adds an entry to the audit chain.
    fn note(state: &mut State, note: AuditEntry) {
        let serial = state.audit.len() as u64 + 1;
        state.audit.push(AuditRecord {
            serial,
            time: now(),
            actor: note.actor,
            action: note.action,
            object: note.object,
            detail: note.detail,
            hash: format!("{serial:064x}"),
        });
    }

    fn execute(&self, order: OrderRequest) -> Result<Ordered, OrderError> {
        let OrderRequest {
            operations,
            actor,
            options,
        } = order;
        let mut state = self.state();
        if state.unavailable {
            let reason = "the database does not answer".to_owned();
            return Err(OrderError::Unavailable(reason));
        }
        if let Some((key, hash)) = &options.idempotency
            && let Some((stored, ordered)) = state.answers.get(key)
        {
            return if stored == hash {
                Ok(ordered.clone())
            } else {
                Err(OrderError::KeyReused)
            };
        }
        if let Some((object, expected)) = options.if_match {
            let found = Revision(state.snapshot.revision_of(object));
            if found != expected {
                return Err(OrderError::Stale {
                    object,
                    expected,
                    found: Some(found),
                });
            }
        }
        if matches!(operations.first(), Some(Operation::AddIp { .. }))
            && let Some(before) = state.interloper.take()
        {
            let now = state.now();
            state.exchange.apply(&Actor::system(), now, before)?;
            state.publish();
        }
        let down = BTreeSet::new();
        let drafted = state
            .exchange
            .draft_all(&actor, state.now(), operations.iter().cloned(), &down)?;
        let Drafted { after, applied, .. } = drafted;
        let mut ordered = Ordered {
            change: None,
            revision: Revision(state.revision),
            entries: plan(&after, &applied),
            applied,
            deletions: Vec::new(),
            problems: Vec::new(),
            effects: Vec::new(),
            preview: None,
            repeated: false,
            after: Arc::new(after),
        };
        if options.dry_run {
            return Ok(ordered);
        }
        let applied = &ordered.applied;
        let operation = operations
            .first()
            .map(|operation| crate::render::word(&operation.kind()))
            .unwrap_or_default();
        let objects: Vec<ObjectId> = applied
            .created
            .iter()
            .chain(&applied.changed)
            .chain(&applied.deleted)
            .copied()
            .collect();
        let change = state.changes.len() as u64 + 1;
        if let Some(within) = options.confirm_within {
            let waiting = confirm::waiting(&state.exchange, &operations, within)?;
            state.unconfirmed.insert(change, waiting);
        }
        state.exchange = Exchange::clone(&ordered.after);
        state.revision += 1;
        for object in &objects {
            let revision = state.revision;
            state.revisions.insert(*object, revision);
        }
        state.changes.push(ChangeRecord {
            id: change,
            operation: operation.clone(),
            actor: actor.user.map(|user| user.to_string()).unwrap_or_default(),
            objects: objects.clone(),
            state: "cleaned".to_owned(),
            accepted_at: now(),
            updated_at: now(),
            waiting_for: Vec::new(),
            error: None,
        });
        let object = objects.first().map(ToString::to_string).unwrap_or_default();
        let note = AuditEntry {
            actor: actor.user.map(|user| user.to_string()).unwrap_or_default(),
            action: operation,
            object,
            detail: serde_json::json!({ "change": change }),
        };
        FakeExchange::note(&mut state, note);
        (ordered.change, ordered.revision) = (Some(change), Revision(state.revision));
        if let Some((key, hash)) = options.idempotency {
            state.answers.insert(key, (hash, ordered.clone()));
        }
        state.settle();
        state.publish();
        drop(state);
        self.tell("object", objects, Some(change));
        Ok(ordered)
    }
}

/// Returns one entry for each created or changed end, at its switch.
fn plan(exchange: &Exchange, applied: &Applied) -> BTreeMap<SwitchId, EntryCounts> {
    let mut plan: BTreeMap<SwitchId, EntryCounts> = BTreeMap::new();
    let switch_of = |object: &ObjectId| match object {
        ObjectId::Config(id) => {
            let connection = exchange.connections.get(&exchange.configs.get(id)?.connection)?;
            connection.switch()
        }
        _ => None,
    };
    for switch in applied.created.iter().filter_map(switch_of) {
        plan.entry(switch).or_default().added += 1;
    }
    for switch in applied.changed.iter().filter_map(switch_of) {
        plan.entry(switch).or_default().changed += 1;
    }
    plan
}

impl State {
    /// Returns the time of the engine's clock.
    fn now(&self) -> Timestamp {
        let behind = u64::try_from(self.behind.as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis(now().millis().saturating_sub(behind)).after(self.ahead)
    }

    fn quarantined(&self) -> impl Iterator<Item = ConfigId> {
        let all = self.exchange.configs.iter();
        all.filter(|(_, config)| matches!(config.quarantine, Quarantine::Running { .. }))
            .map(|(id, _)| *id)
    }

    fn report(&mut self, now: Timestamp, config: ConfigId, clean: bool) {
        // The end exists: the caller has just read it, so the operation cannot fail.
        let _ = self.exchange.apply(
            &Actor::system(),
            now,
            Operation::ReportQuarantine { config, clean },
        );
        self.revision += 1;
        self.revisions.insert(config.into(), self.revision);
    }

    /// Carries out orders: services with enough ends are in place, and new switches are in sync.
    fn settle(&mut self) {
        for (id, service) in &self.exchange.services {
            let ends = self.exchange.ends(*id).count();
            let needed = if service.kind == ServiceKind::P2pVc { 2 } else { 1 };
            let realisation = if ends < needed {
                Realisation::Planned
            } else {
                Realisation::InPlace {
                    generation: service.generation,
                }
            };
            self.realisations.insert(*id, realisation);
        }
        for id in self.exchange.switches.keys() {
            self.switches.entry(*id).or_insert_with(|| SwitchHealth {
                state: SwitchState::InSync,
                since: Some(now()),
                error: None,
                entries: 37 * self.exchange.services.len(),
                ports_down: Some(BTreeSet::new()),
            });
        }
    }

    fn publish(&mut self) {
        let mut snapshot = Snapshot::new(Arc::new(self.exchange.clone()), self.revision);
        // An object that no order has written has the first revision.
        snapshot.revisions = self
            .exchange
            .ids()
            .map(|id| (id, self.revisions.get(&id).copied().unwrap_or(1)))
            .collect();
        snapshot.realisations = self.realisations.clone();
        snapshot.switches = self.switches.clone();
        snapshot.quarantine = Arc::new(self.quarantine.clone());
        snapshot.unwritable = self.unavailable.then(|| "database or disk is full".to_owned());
        self.before = Arc::clone(&self.snapshot.exchange);
        self.snapshot = Arc::new(snapshot);
    }
}

/// Returns a reply that is ready at once.
fn reply<'a, T: Send + 'a>(value: Result<T, OrderError>) -> Reply<'a, T> {
    Box::pin(std::future::ready(value))
}

impl ExchangeService for FakeExchange {
    fn now(&self) -> Timestamp {
        self.state().now()
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.state().snapshot)
    }

    fn order(&self, order: OrderRequest) -> Reply<'_, Ordered> {
        reply(self.execute(order))
    }

    fn changes(&self, before: Option<u64>, limit: usize) -> Reply<'_, Vec<ChangeRecord>> {
        let state = self.state();
        let older = state
            .changes
            .iter()
            .rev()
            .filter(|change| before.is_none_or(|before| change.id < before));
        reply(Ok(older.take(limit).cloned().collect()))
    }

    fn change(&self, id: u64) -> Reply<'_, Option<(ChangeRecord, Vec<StepRecord>)>> {
        let state = self.state();
        let found = state.changes.iter().find(|change| change.id == id).cloned();
        let decision = state.decisions.get(&id).cloned();
        let steps = |change: ChangeRecord| {
            let states = ["accepted", "planned", "staged", "flipped", "drained", "cleaned"];
            let step = |state: &str, detail| StepRecord {
                state: state.to_owned(),
                at: change.accepted_at,
                detail,
            };
            let mut steps: Vec<StepRecord> = states.iter().map(|state| step(state, None)).collect();
            steps.extend(decision.map(|decision| step("cleaned", Some(decision))));
            (change, steps)
        };
        reply(Ok(found.map(steps)))
    }

    fn changes_open(&self) -> BTreeSet<u64> {
        let state = self.state();
        let is_open = |change: &&ChangeRecord| !matches!(change.state.as_str(), "cleaned" | "rolled_back");
        state
            .changes
            .iter()
            .filter(is_open)
            .map(|change| change.id)
            .collect()
    }

    fn unconfirmed(&self) -> Arc<BTreeMap<u64, Unconfirmed>> {
        Arc::new(self.state().unconfirmed.clone())
    }

    fn confirm(&self, change: u64, actor: Actor) -> Reply<'_, ()> {
        reply(self.confirm_change(change, &actor))
    }

    fn revert(&self, change: u64, actor: Actor) -> Reply<'_, Option<u64>> {
        reply(self.revert_change(change, actor))
    }

    fn audit(&self, before: Option<u64>, limit: usize) -> Reply<'_, Vec<AuditRecord>> {
        let state = self.state();
        let older = state
            .audit
            .iter()
            .rev()
            .filter(|entry| before.is_none_or(|before| entry.serial < before));
        reply(Ok(older.take(limit).cloned().collect()))
    }

    fn record(&self, note: AuditEntry) -> Reply<'_, ()> {
        let mut state = self.state();
        if state.audit_unavailable {
            let reason = "the database cannot be written".to_owned();
            return reply(Err(OrderError::Unavailable(reason)));
        }
        FakeExchange::note(&mut state, note);
        reply(Ok(()))
    }

    fn answer(&self, scope: String, key: String) -> Reply<'_, Option<String>> {
        reply(Ok(self.state().texts.get(&(scope, key)).cloned()))
    }

    fn put_answer(&self, scope: String, key: String, text: String) -> Reply<'_, ()> {
        self.state().texts.insert((scope, key), text);
        reply(Ok(()))
    }

    fn subscribe(&self) -> broadcast::Receiver<Arc<Event>> {
        self.events.subscribe()
    }

    fn check_filter(
        &self,
        account: AccountId,
        matching: &FilterMatch,
        _peers: &BTreeSet<AccountId>,
    ) -> Verdict {
        observed::verdict(&self.state().exchange, account, matching)
    }

    fn filter_counters(&self) -> BTreeMap<FilterId, FilterCounter> {
        observed::counters(&self.state().exchange)
    }

    fn loads(&self) -> BTreeMap<ObjectId, Load> {
        observed::loads(&self.state().exchange)
    }

    fn sample_receiver(&self) -> Option<SampleReceiver> {
        Some(SampleReceiver {
            samples: 10_000,
            malformed: 2,
            refused: 3,
        })
    }

    fn series(&self) -> Option<&dyn Series> {
        Some(self)
    }

    fn traffic(&self, account: AccountId) -> Option<Traffic> {
        observed::traffic(&self.state().exchange, account)
    }

    fn lookup(&self, prefix: Prefix) -> Option<Vec<FoundRoute>> {
        Some(observed::lookup(&self.state().exchange, prefix))
    }

    fn matrix(&self) -> Option<Vec<Pair>> {
        Some(observed::matrix(&self.state().exchange))
    }

    fn targets(&self, account: AccountId) -> Vec<Target> {
        observed::targets(&self.state().exchange, account)
    }

    fn attack(&self, account: AccountId, target: Prefix) -> Option<Attack> {
        observed::attack(&self.state().exchange, account, target)
    }

    fn bgp_sessions(&self) -> Vec<Session> {
        observed::sessions(&self.state().exchange)
    }

    fn route_server_status(&self, server: &RouteServer) -> RouteServerStatus {
        route_servers::status(self.state().reads, server)
    }
}
