//! An exchange in memory: the model without database and switches. Orders are carried out at once.
//!
//! Tests of this crate and of the page run on it. The audit chain has no hashes here, and the plan of a dry run counts
//! one entry for each changed object at each switch.

mod demo;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use millrace_ix_model::state::Realisation;
use millrace_ix_model::{Applied, Exchange, ObjectId, ServiceId, SwitchId, Timestamp};
use tokio::sync::broadcast;

pub use demo::{PASSWORD, demo};

use crate::routes::apply_all;
use crate::service::{
    AuditNote, AuditRecord, ChangeRecord, Event, ExchangeService, Order, Outcome, PlannedEntries, Reply,
    ServiceError, Snapshot, StepRecord, SwitchHealth, SwitchState,
};

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
    changes: Vec<ChangeRecord>,
    audit: Vec<AuditRecord>,
    answers: BTreeMap<String, (String, Outcome)>,
    unavailable: bool,
    snapshot: Arc<Snapshot>,
}

fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

impl FakeExchange {
    /// Returns an exchange whose services are in place and whose switches are in sync.
    pub fn new(exchange: Exchange) -> Arc<FakeExchange> {
        let mut state = State {
            exchange,
            ..State::default()
        };
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
        // Nobody may be listening.
        let _ = self.events.send(Arc::new(Event {
            kind,
            objects,
            change,
        }));
    }

    /// Sets the state of a switch and of its ports.
    pub fn set_switch(&self, switch: SwitchId, state: SwitchState, ports_down: &[u32]) {
        let mut inner = self.state();
        if let Some(health) = inner.switches.get_mut(&switch) {
            health.state = state;
            health.since = Some(now());
            health.ports_down = Some(ports_down.iter().copied().collect());
        }
        inner.publish();
        drop(inner);
        self.tell("switch", vec![switch.into()], None);
    }

    /// Makes orders fail as they do without a database.
    pub fn set_unavailable(&self, unavailable: bool) {
        self.state().unavailable = unavailable;
    }

    /// Adds an entry to the audit chain.
    fn note(state: &mut State, note: AuditNote) {
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

    fn execute(&self, order: Order) -> Result<Outcome, ServiceError> {
        let mut state = self.state();
        if state.unavailable {
            let reason = "the database does not answer".to_owned();
            return Err(ServiceError::Unavailable { reason });
        }
        if let Some((key, hash)) = &order.idempotency
            && let Some((stored, outcome)) = state.answers.get(key)
        {
            return if stored == hash {
                Ok(outcome.clone())
            } else {
                Err(ServiceError::KeyReused)
            };
        }
        if let Some((object, expected)) = order.expected {
            let found = state.snapshot.revision_of(object);
            if found != expected {
                return Err(ServiceError::Stale {
                    object,
                    expected,
                    found,
                });
            }
        }
        let mut exchange = state.exchange.clone();
        let applied = apply_all(&mut exchange, &order.actor, now(), &order.operations)?;
        let plan = plan(&exchange, &applied);
        if order.dry_run {
            return Ok(Outcome {
                change: None,
                applied,
                plan,
                preview: Some(Arc::new(exchange)),
            });
        }
        let operation = order
            .operations
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
        state.exchange = exchange;
        state.revision += 1;
        for object in &objects {
            let revision = state.revision;
            state.revisions.insert(*object, revision);
        }
        state.changes.push(ChangeRecord {
            id: change,
            operation: operation.clone(),
            actor: order.actor.user.map(|user| user.to_string()).unwrap_or_default(),
            objects: objects.clone(),
            state: "cleaned".to_owned(),
            accepted_at: now(),
            updated_at: now(),
            waiting_for: Vec::new(),
            error: None,
        });
        let object = objects.first().map(ToString::to_string).unwrap_or_default();
        let note = AuditNote {
            actor: order.actor.user.map(|user| user.to_string()).unwrap_or_default(),
            action: operation,
            object,
            detail: serde_json::json!({ "change": change }),
        };
        FakeExchange::note(&mut state, note);
        let outcome = Outcome {
            change: Some(change),
            applied,
            plan,
            preview: None,
        };
        if let Some((key, hash)) = order.idempotency {
            state.answers.insert(key, (hash, outcome.clone()));
        }
        state.settle();
        state.publish();
        drop(state);
        self.tell("object", objects, Some(change));
        Ok(outcome)
    }
}

/// Returns one entry for each object that is at a switch.
fn plan(exchange: &Exchange, applied: &Applied) -> BTreeMap<SwitchId, PlannedEntries> {
    let mut plan: BTreeMap<SwitchId, PlannedEntries> = BTreeMap::new();
    let switch_of = |object: &ObjectId| match object {
        ObjectId::Config(id) => {
            let connection = exchange.connections.get(&exchange.configs.get(id)?.connection)?;
            connection.ports.first().map(|port| port.switch)
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
    /// Carries out what is ordered: services come into place, deleted ones go.
    fn settle(&mut self) {
        for (id, service) in &self.exchange.services {
            let ends = self.exchange.ends(*id).count();
            let needed = if service.peer.is_some() || ends > 1 { 2 } else { 1 };
            let realisation = if ends < needed || ends < 2 {
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
                entries: 0,
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
        self.snapshot = Arc::new(snapshot);
    }
}

/// Returns a reply that is there already.
fn reply<'a, T: Send + 'a>(value: Result<T, ServiceError>) -> Reply<'a, T> {
    Box::pin(std::future::ready(value))
}

impl ExchangeService for FakeExchange {
    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.state().snapshot)
    }

    fn order(&self, order: Order) -> Reply<'_, Outcome> {
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
        let steps = |change: ChangeRecord| {
            let states = ["accepted", "planned", "staged", "flipped", "drained", "cleaned"];
            let steps = states.iter().map(|state| StepRecord {
                state: (*state).to_owned(),
                at: change.accepted_at,
                detail: None,
            });
            let steps = steps.collect();
            (change, steps)
        };
        reply(Ok(found.map(steps)))
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

    fn record(&self, note: AuditNote) -> Reply<'_, ()> {
        FakeExchange::note(&mut self.state(), note);
        reply(Ok(()))
    }

    fn subscribe(&self) -> broadcast::Receiver<Arc<Event>> {
        self.events.subscribe()
    }
}
