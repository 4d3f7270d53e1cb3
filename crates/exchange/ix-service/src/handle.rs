//! The handle of the engine's thread.

use std::sync::{Arc, mpsc};

use millrace_ix_engine::{Event, Resolution, Session as EngineSession};
use millrace_ix_model::{Actor, Operation, SwitchId, Timestamp};
use millrace_ix_store::{
    AuditEntry, AuditRecord, ChangeRecord, JournalRecord, Session, SignedHead, Standing, Store, UnixMillis,
};
use millrace_ix_verify::Finding as Violation;
use millrace_types::{Cookie, PortNo};
use parking_lot::RwLock;
use tokio::sync::{broadcast, oneshot, watch};

use crate::clock::{Clock, ClockStatus};
use crate::core::Core;
use crate::drift::SwitchDrift;
use crate::error::OrderError;
use crate::event::ServiceEvent;
use crate::fabric::Fabric;
use crate::links::PortReport;
use crate::now::Now;
use crate::order::{ApplyOptions, OrderOptions, OrderRequest, Ordered};
use crate::snapshot::Snapshot;
use crate::text::Document;
use crate::verify::VerifyRequest;

/// The delivery of a job's answer.
pub(crate) type Delivery = Box<dyn FnOnce() + Send>;

/// A job that the engine's thread does. The thread publishes the snapshot that contains the job's effect before it delivers
/// the answer, so that a client that has an answer finds its order in the next snapshot.
type Job = Box<dyn FnOnce(&mut Core, Now) -> Option<Delivery> + Send>;

/// A command to the engine's thread.
pub(crate) enum Command {
    /// Executes an order. Orders that wait at the same time become durable together.
    Order(OrderRequest, oneshot::Sender<Result<Ordered, OrderError>>),
    /// Runs a job.
    Job(Job),
    /// Ends the thread.
    Stop,
}

/// Access to an exchange that runs in its own thread. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
    clock: Clock,
    snapshot: Arc<RwLock<Arc<Snapshot>>>,
    events: broadcast::Sender<Arc<ServiceEvent>>,
    newest_head: watch::Receiver<Option<SignedHead>>,
    standing: watch::Receiver<Standing>,
    /// The verifier, which also tells the effects of dry runs.
    verifier: mpsc::Sender<VerifyRequest>,
    /// True if changes are verified.
    verifies: bool,
}

/// The answer to a job that has not been done yet.
struct Pending<T>(oneshot::Receiver<T>);

impl<T> Pending<T> {
    async fn wait(self) -> Result<T, OrderError> {
        self.0.await.map_err(|_| OrderError::Stopped)
    }

    fn block(self) -> Result<T, OrderError> {
        self.0.blocking_recv().map_err(|_| OrderError::Stopped)
    }
}

impl Handle {
    pub(crate) fn new(
        commands: mpsc::Sender<Command>,
        clock: Clock,
        snapshot: Arc<RwLock<Arc<Snapshot>>>,
        events: broadcast::Sender<Arc<ServiceEvent>>,
        (newest_head, standing): (watch::Receiver<Option<SignedHead>>, watch::Receiver<Standing>),
        (verifier, verifies): (mpsc::Sender<VerifyRequest>, bool),
    ) -> Handle {
        Handle {
            commands,
            clock,
            snapshot,
            events,
            newest_head,
            standing,
            verifier,
            verifies,
        }
    }

    /// Fills in the effects of a dry run.
    async fn with_effects(&self, mut ordered: Ordered) -> Ordered {
        let Some(preview) = ordered.preview.take() else {
            return ordered;
        };
        let (sender, receiver) = oneshot::channel();
        // Without the verifier's thread the sender is dropped, and there are no effects.
        let _ended = self.verifier.send(VerifyRequest::Effects(preview, sender));
        ordered.effects = receiver.await.unwrap_or_default();
        ordered
    }

    /// Verifies everything that the switches report, against the exchange without changes that have not flipped. Returns the
    /// violations; `None` if changes are not verified.
    pub async fn verify(&self) -> Option<Vec<Violation>> {
        if !self.verifies {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        let asked = self.call(move |core, _| core.ask_about_all(sender)).wait();
        asked.await.ok()?;
        receiver.await.ok()
    }

    /// Returns the time of the engine's clock, which follows the system clock and never runs backwards. The
    /// engine compares ends of validity with this time, so callers that set an end of validity must use it,
    /// too.
    pub fn now(&self) -> Timestamp {
        self.clock.now().timestamp()
    }

    /// Returns the state of the engine's clock, with the jumps of the system clock.
    pub fn clock(&self) -> ClockStatus {
        self.clock.status()
    }

    /// Returns the newest view of the exchange.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read())
    }

    /// Returns a receiver of the events from now on. A receiver that is more than 4,096 events behind gets an
    /// error, and must read the snapshot again.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<ServiceEvent>> {
        self.events.subscribe()
    }

    fn call<T: Send + 'static>(&self, job: impl FnOnce(&mut Core, Now) -> T + Send + 'static) -> Pending<T> {
        let (sender, receiver) = oneshot::channel();
        // Without the thread the sender is dropped, and the caller gets `Stopped`.
        let _ended = self.commands.send(Command::Job(Box::new(move |core, now| {
            let result = job(core, now);
            Some(Box::new(move || drop(sender.send(result))) as Delivery)
        })));
        Pending(receiver)
    }

    fn start_order(
        &self,
        operations: Vec<Operation>,
        actor: Actor,
        options: OrderOptions,
    ) -> Pending<Result<Ordered, OrderError>> {
        let (sender, receiver) = oneshot::channel();
        let request = OrderRequest {
            operations,
            actor,
            options,
        };
        // Without the thread the sender is dropped, and the caller gets `Stopped`.
        let _ended = self.commands.send(Command::Order(request, sender));
        Pending(receiver)
    }

    /// Executes operations as one change, all or nothing; returns when the change is durable, before switches have it. An
    /// identifier with the number 0 in a later operation (`sv-0`) stands for the newest object of that type that the same
    /// order created.
    ///
    /// # Errors
    /// [`OrderError`]; nothing has changed.
    pub async fn order(
        &self,
        operations: Vec<Operation>,
        actor: Actor,
        options: OrderOptions,
    ) -> Result<Ordered, OrderError> {
        let ordered = self.start_order(operations, actor, options).wait().await??;
        Ok(self.with_effects(ordered).await)
    }

    /// Orders as [`Handle::order`] does, for a caller outside of an asynchronous runtime.
    ///
    /// # Errors
    /// [`OrderError`]; nothing has changed.
    pub fn order_blocking(
        &self,
        operations: Vec<Operation>,
        actor: Actor,
        options: OrderOptions,
    ) -> Result<Ordered, OrderError> {
        self.start_order(operations, actor, options).block()?
    }

    /// Changes the exchange to match a document, as one change, all or nothing.
    ///
    /// # Errors
    /// [`OrderError`]; nothing has changed.
    pub async fn apply(
        &self,
        document: Document,
        how: ApplyOptions,
        actor: Actor,
        options: OrderOptions,
    ) -> Result<Ordered, OrderError> {
        let ordered = self
            .call(move |core, now| core.apply(document, how, &actor, &options, now))
            .wait()
            .await??;
        Ok(self.with_effects(ordered).await)
    }

    /// Confirms a change, which is then not undone.
    ///
    /// # Errors
    /// [`OrderError`] if the change does not wait for a confirmation, or the actor may not undo it.
    pub async fn confirm(&self, change: u64, actor: Actor) -> Result<(), OrderError> {
        self.call(move |core, now| core.confirm(change, &actor, now))
            .wait()
            .await?
    }

    /// Undoes a change that waits for its confirmation.
    ///
    /// # Errors
    /// As [`Handle::confirm`].
    pub async fn revert(&self, change: u64, actor: Actor) -> Result<Ordered, OrderError> {
        self.call(move |core, now| core.revert(change, &actor, now))
            .wait()
            .await?
    }

    /// Decides what happens with content of switches that is newer than the database.
    ///
    /// # Errors
    /// [`OrderError`] if the actor is no operator or there is nothing to decide.
    pub async fn resolve(&self, resolution: Resolution, actor: Actor) -> Result<(), OrderError> {
        self.call(move |core, now| core.resolve(resolution, &actor, now))
            .wait()
            .await?
    }

    /// Returns the entries of a switch that differ from the plan now, of which at most `limit` are named.
    ///
    /// # Errors
    /// [`OrderError::Stopped`] if the engine has ended.
    pub async fn drift(&self, switch: SwitchId, limit: usize) -> Result<SwitchDrift, OrderError> {
        self.call(move |core, _| core.drift(switch, limit)).wait().await
    }

    /// Raises the epoch of the engine above one that a switch knows, and returns it.
    ///
    /// # Errors
    /// [`OrderError::Unavailable`] if another engine has opened the database since, or the database cannot be written.
    pub async fn raise_epoch(&self, latest: u64) -> Result<u64, OrderError> {
        let raised = self.call(move |core, _| core.store_mut().raise_epoch(latest));
        raised
            .wait()
            .await?
            .map_err(|error| OrderError::from_store(&error))
    }

    /// Writes an entry to the audit chain: a login, an export, a read of another account's data.
    ///
    /// # Errors
    /// [`OrderError::Unavailable`] if the database cannot be written; then the act must not happen.
    pub async fn record(&self, entry: AuditEntry) -> Result<(), OrderError> {
        self.call(move |core, now| core.record(entry, now)).wait().await?
    }

    /// Runs `read` on the database, in the engine's thread. `read` must be short.
    ///
    /// # Errors
    /// [`OrderError::Unavailable`] if the database fails.
    pub async fn store<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut dyn Store, UnixMillis) -> Result<T, millrace_ix_store::StoreError> + Send + 'static,
    ) -> Result<T, OrderError> {
        let done = self
            .call(move |core, now| read(core.store_mut(), now.wall))
            .wait()
            .await?;
        done.map_err(|error| OrderError::from_store(&error))
    }

    /// Runs the work as [`Handle::store`] does, for a caller outside of an asynchronous runtime.
    ///
    /// # Errors
    /// As [`Handle::store`].
    pub fn store_blocking<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut dyn Store, UnixMillis) -> Result<T, millrace_ix_store::StoreError> + Send + 'static,
    ) -> Result<T, OrderError> {
        let done = self
            .call(move |core, now| read(core.store_mut(), now.wall))
            .block()?;
        done.map_err(|error| OrderError::from_store(&error))
    }

    /// Returns up to `limit` changes with numbers below `before`, newest first.
    ///
    /// # Errors
    /// [`OrderError::Unavailable`] if the database fails.
    pub async fn changes(&self, before: u64, limit: usize) -> Result<Vec<ChangeRecord>, OrderError> {
        self.store(move |store, _| store.changes(before, limit)).await
    }

    /// Returns the journal of a change, oldest record first.
    ///
    /// # Errors
    /// [`OrderError::Unavailable`] if the database fails.
    pub async fn journal(&self, change: u64) -> Result<Vec<JournalRecord>, OrderError> {
        self.store(move |store, _| store.journal(change)).await
    }

    /// Returns up to `limit` entries of the audit chain that follow number `after`.
    ///
    /// # Errors
    /// [`OrderError::Unavailable`] if the database fails.
    pub async fn audit(&self, after: u64, limit: usize) -> Result<Vec<AuditRecord>, OrderError> {
        self.store(move |store, _| store.audit(after, limit)).await
    }

    /// Returns up to `limit` entries of the audit chain below number `before`, newest first.
    ///
    /// # Errors
    /// [`OrderError::Unavailable`] if the database fails.
    pub async fn audit_before(&self, before: u64, limit: usize) -> Result<Vec<AuditRecord>, OrderError> {
        self.store(move |store, _| store.audit_before(before, limit))
            .await
    }

    /// Returns the signatures of the audit chain.
    ///
    /// # Errors
    /// [`OrderError::Unavailable`] if the database fails.
    pub async fn signed_heads(&self) -> Result<Vec<SignedHead>, OrderError> {
        self.store(|store, _| store.signed_heads()).await
    }

    /// Returns a receiver of the newest signature of the audit chain; `None` if there is none.
    pub fn newest_head(&self) -> watch::Receiver<Option<SignedHead>> {
        self.newest_head.clone()
    }

    /// Returns a receiver of this engine's part among the engines of the database. A new term ends the service's work: the
    /// caller starts another one with the same store.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// Stores a session.
    ///
    /// # Errors
    /// [`OrderError::Unavailable`] if the database fails.
    pub async fn put_session(&self, session: Session) -> Result<(), OrderError> {
        self.store(move |store, _| store.put_session(&session)).await
    }

    /// Returns a session that has not expired.
    ///
    /// # Errors
    /// [`OrderError::Unavailable`] if the database fails.
    pub async fn session(&self, token_hash: String) -> Result<Option<Session>, OrderError> {
        self.store(move |store, now| store.session(&token_hash, now))
            .await
    }

    /// Deletes a session.
    ///
    /// # Errors
    /// [`OrderError::Unavailable`] if the database fails.
    pub async fn delete_session(&self, token_hash: String) -> Result<(), OrderError> {
        self.store(move |store, _| store.delete_session(&token_hash))
            .await
    }

    /// Returns the handle by which the connections of switches report to the engine.
    pub fn fabric(&self) -> FabricHandle {
        FabricHandle {
            commands: self.commands.clone(),
        }
    }

    /// Ends the thread after it has run the commands that were sent before. The thread then signs the head of
    /// the audit chain.
    pub fn stop(&self) {
        let _ended = self.commands.send(Command::Stop);
    }
}

/// The handle by which connections of switches report to the engine.
#[derive(Clone, Debug)]
pub struct FabricHandle {
    commands: mpsc::Sender<Command>,
}

impl FabricHandle {
    /// Passes the ports of a switch from a complete listing to the engine.
    pub fn ports(&self, switch: SwitchId, session: EngineSession, reports: Vec<PortReport>) {
        let _ended = self.commands.send(Command::Job(Box::new(move |core, now| {
            core.ports_listed(switch.0, session, &reports, now);
            None
        })));
    }

    /// Passes to the engine a packet that an entry with this cookie has sent to the controller.
    pub fn packet_in(&self, switch: SwitchId, session: EngineSession, cookie: Cookie, frame: Vec<u8>) {
        let _ended = self.commands.send(Command::Job(Box::new(move |core, now| {
            core.packet_in(switch.0, session, cookie, &frame, now);
            None
        })));
    }

    /// Passes the new state of a port to the engine; `None` for a port that was removed.
    pub fn port(&self, switch: SwitchId, session: EngineSession, number: PortNo, report: Option<PortReport>) {
        let _ended = self.commands.send(Command::Job(Box::new(move |core, now| {
            core.port_changed(switch.0, session, number, report, now);
            None
        })));
    }

    /// Passes an event to the engine.
    pub fn event(&self, event: Event<Fabric>) {
        let _ended = self.commands.send(Command::Job(Box::new(move |core, now| {
            core.handle(event, now);
            None
        })));
    }
}
