//! Orders, journal and engine as one state machine, without thread and clock.
//!
//! Actions of the engine wait in a queue. Those that must be durable are written in one transaction before the next
//! action runs; while the database refuses it, the queue waits and orders are refused.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use millrace_ix_engine::{
    Action, Content, Engine, Event, Mode, Order, Resume, Scope, Settings, SwitchStatus,
};
use millrace_ix_model::{Applied, ConfigId, Exchange, NumberHold, ObjectId, SwitchId, Timestamp};
use millrace_ix_store::{AuditEntry, Leader, Revision, Store, StoreError, Transaction, UnixMillis};
use millrace_types::{Mac, Time};

use crate::decision::AllUnconfirmed;
use crate::drift::DriftFindings;
use crate::error::OrderError;
use crate::event::EventKind;
use crate::fabric::{Entry, Fabric, FabricKey};
use crate::links::PortStates;
use crate::now::Now;
use crate::open::OpenChange;
use crate::output::Output;
use crate::phases::{Phases, Planner};
use crate::probe::Probes;
use crate::quarantine::Checklists;
use crate::revisions::Revisions;
use crate::rows;
use crate::verify::VerifyRequest;

/// The entries of a switch after a commit; `None` for an entry that it removes.
type Confirmed = Vec<(FabricKey, Option<Entry>)>;

/// The name of the setting that stores an operator's decision to adopt content of switches.
pub(crate) const ADOPTED: &str = "adopted";

/// An exchange: model, plan, engine, database.
pub struct Core {
    pub(crate) store: Box<dyn Store>,
    pub(crate) exchange: Arc<Exchange>,
    /// The exchange before the newest transaction.
    pub(crate) before: Arc<Exchange>,
    pub(crate) planner: Planner,
    /// The time for which the switches are planned: it decides which addresses and filters are valid.
    pub(crate) planned_at: Timestamp,
    pub(crate) revision: Revision,
    pub(crate) revisions: Revisions,
    pub(crate) engine: Engine<Fabric>,
    pub(crate) ports: Arc<PortStates>,
    pub(crate) checklists: Arc<Checklists>,
    /// The time from which the frames of each connected switch have reached the engine.
    pub(crate) observed: BTreeMap<SwitchId, Timestamp>,
    pub(crate) probes: Probes,
    /// The drift of switches that comparisons have found.
    pub(crate) drift_findings: Arc<DriftFindings>,
    /// The time of the next ARP requests to ends in quarantine.
    pub(crate) next_question: Time,
    /// The newest MAC address of each end that the switches admit.
    pub(crate) announced: BTreeMap<ConfigId, Mac>,
    /// The announcements of MAC addresses with their times.
    pub(crate) announcements: Vec<(Time, ConfigId, Mac)>,
    /// The changes that are accepted and not complete, by number.
    pub(crate) open: BTreeMap<u64, OpenChange>,
    /// The changes that are undone unless somebody confirms them.
    pub(crate) unconfirmed: Arc<AllUnconfirmed>,
    pub(crate) next_change: u64,
    /// The number of the newest event for subscribers.
    pub(crate) serial: u64,
    /// The actions of the engine that have not run yet.
    pub(crate) queue: VecDeque<Action<Fabric>>,
    /// The reason why the queue of actions waits for the database.
    pub(crate) stalled: Option<String>,
    /// The reason why the last write to the database failed; `None` if it succeeded.
    pub(crate) unwritable: Option<String>,
    /// The engine that leads, if this one only reads the database.
    pub(crate) follows: Option<Leader>,
    /// The time since which the database has not answered.
    pub(crate) silent_since: Option<UnixMillis>,
    pub(crate) outputs: Vec<Output>,
    /// The commit that each switch has not confirmed: its number and the entries after it.
    pub(crate) sent: BTreeMap<u32, (u64, Confirmed)>,
    /// The entries that each switch has confirmed since its listing was asked for.
    pub(crate) during_dump: BTreeMap<u32, Confirmed>,
    /// True until the snapshot has been taken after a change.
    pub(crate) changed: bool,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("revision", &self.revision)
            .field("open", &self.open.len())
            .finish_non_exhaustive()
    }
}

impl Core {
    /// Returns a core that has read nothing.
    pub(crate) fn empty(store: Box<dyn Store>, settings: Settings, extensions: bool, now: Now) -> Core {
        let exchange = Arc::new(Exchange::default());
        Core {
            store,
            unconfirmed: Arc::default(),
            planner: Planner { extensions },
            planned_at: now.timestamp(),
            before: Arc::clone(&exchange),
            exchange,
            revision: Revision(0),
            revisions: Revisions::default(),
            engine: Engine::new(settings, BTreeMap::new(), 0, false),
            ports: Arc::default(),
            checklists: Arc::default(),
            observed: BTreeMap::new(),
            probes: Probes::default(),
            drift_findings: Arc::default(),
            next_question: now.time,
            announced: BTreeMap::new(),
            announcements: Vec::new(),
            open: BTreeMap::new(),
            next_change: 1,
            serial: 0,
            queue: VecDeque::new(),
            stalled: None,
            unwritable: None,
            follows: None,
            silent_since: None,
            outputs: Vec::new(),
            sent: BTreeMap::new(),
            during_dump: BTreeMap::new(),
            changed: true,
        }
    }

    /// Returns a transaction that writes the objects of `applied` and the pools.
    pub(crate) fn transaction(&self, after: &Exchange, applied: &Applied) -> Transaction {
        let written = applied.created.iter().chain(&applied.changed);
        let mut puts: Vec<_> = written
            .filter_map(|id| after.object(*id).map(|object| rows::row(*id, &object)))
            .collect();
        if after.pools != self.exchange.pools || after.last_id != self.exchange.last_id {
            puts.push(rows::pools(after));
        }
        let deletes = applied.deleted.iter().map(|id| rows::key(*id)).collect();
        Transaction {
            puts,
            deletes,
            ..Transaction::default()
        }
    }

    /// Writes a transaction and notes the revision of its objects.
    pub(crate) fn commit(&mut self, transaction: &Transaction, now: Now) -> Result<(), StoreError> {
        let result = self.store.commit(transaction, now.wall);
        self.note_write(result.as_ref().err(), now);
        self.note_revision(transaction, result?.revision);
        Ok(())
    }

    /// Notes the outcome of a write to the database, and tells subscribers when writes begin to fail or succeed again. A
    /// broken constraint is a fault of the transaction, not of the database.
    pub(crate) fn note_write(&mut self, error: Option<&StoreError>, now: Now) {
        let reason = match error {
            Some(StoreError::Constraint { .. }) => None,
            other => other.map(ToString::to_string),
        };
        if reason.is_some() != self.unwritable.is_some() {
            let is_read_only = reason.is_some() || self.engine.mode() != Mode::Normal;
            self.tell(
                EventKind::Mode {
                    read_only: is_read_only,
                },
                now,
            );
        }
        if reason != self.unwritable {
            self.changed = true;
            self.unwritable = reason;
        }
    }

    /// Notes the revision of the objects that a transaction has written.
    pub(crate) fn note_revision(&mut self, transaction: &Transaction, revision: Revision) {
        self.revision = revision;
        self.changed = true;
        for row in &transaction.puts {
            // The row of the pools is no object.
            if let Some(id) = ObjectId::new(&row.kind, row.id) {
                self.revisions.set(id, revision);
            }
        }
        for (kind, number) in &transaction.deletes {
            if let Some(id) = ObjectId::new(kind, *number) {
                self.revisions.remove(id);
            }
        }
    }

    /// Passes an event of the fabric to the engine.
    pub fn handle(&mut self, event: Event<Fabric>, now: Now) {
        let switch = match &event {
            Event::Connected { switch, .. } | Event::Disconnected { switch, .. } => Some(SwitchId(*switch)),
            _ => None,
        };
        let ended = match &event {
            Event::Disconnected { switch, session } if self.engine.is_session(*switch, *session) => {
                Some(SwitchId(*switch))
            }
            _ => None,
        };
        if let Event::Connected { switch, .. } = &event {
            // A connection may replace another one whose end was not reported.
            self.stop_observing(SwitchId(*switch));
            self.observed.insert(SwitchId(*switch), now.timestamp());
        }
        let is_dump = matches!(event, Event::Dumped { .. });
        self.mirror(&event);
        let actions = self.engine.handle(event, now.time);
        self.queue.extend(actions);
        if is_dump && self.engine.is_adopted() {
            self.note_kept(self.carried_by_kept(), now);
        }
        if let Some(switch) = ended {
            self.stop_observing(switch);
            self.forget_ports(switch, now);
        }
        if let Some(switch) = switch {
            self.tell(EventKind::Switch { switch }, now);
        }
        self.drain(now);
        self.note_mended(now);
    }

    /// Writes an entry to the audit chain.
    ///
    /// # Errors
    /// [`OrderError::Unavailable`] if the database cannot be written.
    pub fn record(&mut self, entry: AuditEntry, now: Now) -> Result<(), OrderError> {
        let transaction = Transaction {
            audit: vec![entry],
            ..Transaction::default()
        };
        self.commit(&transaction, now)
            .map_err(|error| OrderError::from_store(&error))
    }

    /// Runs the timers of the engine that are due, and repeats writes that the database refused.
    pub fn tick(&mut self, now: Now) {
        if self
            .engine
            .deadline()
            .is_some_and(|deadline| deadline <= now.time)
        {
            let actions = self.engine.handle(Event::Tick, now.time);
            self.queue.extend(actions);
        }
        self.drain(now);
    }

    /// Returns the requests and events since the last call.
    pub fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// Returns the time of the next [`Core::tick`].
    pub fn deadline(&self) -> Option<Time> {
        self.engine.deadline()
    }

    /// Returns the exchange.
    pub fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// Returns the content that each switch should have when no change is under way.
    pub fn plan(&self) -> BTreeMap<u32, Content<Fabric>> {
        self.planner.plan(&self.exchange, self.planned_at)
    }

    /// Returns the engine.
    pub fn engine(&self) -> &Engine<Fabric> {
        &self.engine
    }

    /// Returns the database.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Returns the database for writes by a job of the engine's thread.
    pub fn store_mut(&mut self) -> &mut dyn Store {
        &mut *self.store
    }

    /// Ends the engine and returns its database. Simulations also use it to kill an engine.
    pub fn into_store(self) -> Box<dyn Store> {
        self.store
    }

    /// Returns the state of each switch, by its identifier.
    pub(crate) fn switches(&self) -> BTreeMap<SwitchId, SwitchStatus> {
        self.engine
            .switches()
            .map(|(number, status)| (SwitchId(number), status))
            .collect()
    }

    /// Reports new switches to the engine, and switches that do not return: retired ones, and those that no longer
    /// belong to the exchange.
    pub(crate) fn add_switches(&mut self, now: Now) {
        let exchange = Arc::clone(&self.exchange);
        let added = exchange
            .switches
            .keys()
            .map(|SwitchId(number)| Event::Added(*number));
        let mut events: Vec<Event<Fabric>> = added.collect();
        let numbers = self.engine.switches().map(|(number, _)| number);
        let all: BTreeSet<u32> = exchange.switches.keys().map(|id| id.0).chain(numbers).collect();
        for switch in all {
            let found = exchange.switches.get(&SwitchId(switch));
            let is_retired = found.is_none_or(|switch| switch.retired);
            if is_retired != self.engine.is_retired(switch) {
                events.push(Event::Retired { switch, is_retired });
                if is_retired && self.engine.settings().verification.is_some() {
                    self.outputs.push(Output::Verify(VerifyRequest::Gone { switch }));
                }
            }
        }
        for event in events {
            let actions = self.engine.handle(event, now.time);
            self.queue.extend(actions);
        }
    }

    /// Plans an open change, and submits it to the engine. The plan starts from the exchange without this
    /// change and later open changes.
    pub(crate) fn submit(&mut self, id: u64, resume: Resume, now: Now) {
        let mut before = Exchange::clone(&self.exchange);
        for change in self.open.range(id..).rev().map(|(_, change)| change) {
            before.commit(change.undo.clone());
        }
        // Validities that begin or end with a later change have not done so before it.
        let mut later = self.open.range(id + 1..).map(|(_, change)| change);
        let next = later.find_map(|change| change.validity);
        let now_after = next.map_or(self.planned_at, |(then, _)| then);
        let Some(change) = self.open.get_mut(&id) else {
            return;
        };
        let then = change.validity.map_or(now_after, |(then, _)| then);
        let mut after = before.clone();
        after.commit(change.redo.clone());
        let phases = self.planner.phases((&before, then), (&after, now_after));
        change.has_entries = phases.iter().any(|phase| !phase.is_empty());
        change.relate((&before, then), (&after, now_after));
        let change = change.clone();
        let order = self.engine_order(id, &change, phases);
        let actions = self.engine.handle(Event::Accepted(order, resume), now.time);
        self.queue.extend(actions);
    }

    /// Converts a change into an order for the engine. Earlier changes are among the open ones.
    pub(crate) fn engine_order(
        &self,
        id: u64,
        change: &OpenChange,
        [stage, flip, clean]: Phases,
    ) -> Order<Fabric> {
        let earlier = self.open.range(..id).map(|(_, earlier)| earlier);
        let followed =
            earlier.filter(|earlier| earlier.is_pending() && change.concerns.follow(&earlier.concerns));
        // Only the verification asks for it.
        let scope = match self.engine.settings().verification {
            Some(_) => change.concerns.scope([&self.before, &self.exchange]),
            None => Scope::default(),
        };
        Order {
            change: id,
            revision: change.revision,
            objects: change.objects(),
            references: change.references.clone(),
            follows: followed.flat_map(OpenChange::objects).collect(),
            scope,
            stage,
            flip,
            clean,
        }
    }

    /// Returns the released numbers that switches may still use and that belong to no open change.
    pub(crate) fn orphans(&self) -> Vec<(millrace_ix_model::PoolKind, u32)> {
        let held: BTreeSet<_> = self
            .open
            .values()
            .flat_map(|change| change.frees.iter().chain(&change.takes))
            .copied()
            .collect();
        let pools = self.exchange.pools.iter();
        let waiting = pools.flat_map(|(kind, pool)| {
            let numbers = pool
                .released
                .iter()
                .filter(|(_, rest)| **rest == NumberHold::InSwitches);
            numbers.map(|(number, _)| (*kind, *number))
        });
        waiting.filter(|number| !held.contains(number)).collect()
    }
}
