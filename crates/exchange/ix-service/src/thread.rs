//! The engine's thread: commands in, requests to switches out, timers, signatures.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use millrace_ix_store::{Leader, Role, SignedHead, SigningKey, Standing, Store, UnixMillis};
use millrace_types::{Duration, Time};
use parking_lot::RwLock;
use tokio::sync::{broadcast, watch};

use crate::clock::{Clock, Clocks, MachineClocks};
use crate::core::Core;
use crate::error::StartError;
use crate::event::{EventKind, ServiceEvent};
use crate::handle::{Command, Delivery, Handle};
use crate::now::Now;
use crate::output::{FabricRequest, Output};
use crate::snapshot::Snapshot;
use crate::verify::{Verifier, VerifyRequest};

/// The largest number of events by which a slow subscriber may be behind.
const EVENTS_LEN: usize = 4096;
/// The largest number of commands that run before a snapshot is published.
const COMMANDS_MAX: usize = 256;
/// The time between two signatures of the audit chain's head.
const SIGN_INTERVAL: Duration = Duration::from_secs(60);
/// The interval at which ends of validity are checked.
const EXPIRE_INTERVAL: Duration = Duration::from_secs(1);
/// The time between two removals of old answers and sessions.
const PRUNE_INTERVAL: Duration = Duration::from_secs(600);

/// The time after a dry run for which the plan of all switches is kept for the next one.
const PLANS_KEPT: std::time::Duration = std::time::Duration::from_secs(300);

/// The interval at which a shared database is asked who leads.
const STANDING_INTERVAL: Duration = Duration::from_millis(250);
/// The pause of a follower between two readings, as a multiple of the time of a reading.
const READ_PAUSE_FACTOR: u32 = 5;

/// The settings of a service.
#[derive(Debug)]
pub struct Settings {
    /// The settings of the engine.
    pub engine: millrace_ix_engine::Settings,
    /// True if every switch has the match extensions of Open vSwitch: masks on ports, TCP flags, fragments.
    pub extensions: bool,
    /// The key that signs the audit chain; without one, heads are not signed.
    pub audit_key: Option<SigningKey>,
}

/// A running exchange.
#[derive(Debug)]
pub struct Service {
    handle: Handle,
    /// The standing with which the thread has begun.
    standing: Standing,
    thread: JoinHandle<Box<dyn Store>>,
}

impl Service {
    /// Starts the thread. `fabric` is called in it for each request to a switch, and must not block. The engine leads or follows
    /// until the term of the store's standing changes.
    ///
    /// # Errors
    /// [`StartError`] if the database cannot be read, or if the thread cannot be started.
    pub fn start(
        store: Box<dyn Store>,
        settings: Settings,
        fabric: impl FnMut(FabricRequest) + Send + 'static,
    ) -> Result<Service, StartError> {
        Service::start_with_clocks(store, settings, Arc::new(MachineClocks::new()), fabric)
    }

    /// Starts like [`Service::start`], by other clocks than those of this machine.
    ///
    /// # Errors
    /// As [`Service::start`].
    pub fn start_with_clocks(
        mut store: Box<dyn Store>,
        settings: Settings,
        clocks: Arc<dyn Clocks>,
        fabric: impl FnMut(FabricRequest) + Send + 'static,
    ) -> Result<Service, StartError> {
        let clock = Clock::new(clocks, store.newest_time()?);
        // The newest signature is sent again after a start, because the engine may have ended before it was sent.
        let newest_head = store.newest_head().map_err(StartError::Store)?;
        let verifies = settings.engine.verification.is_some();
        let standing = store.standing();
        let core = match &standing.role {
            Role::Leads { .. } => Core::start(store, settings.engine, settings.extensions, clock.now())?,
            Role::Follows { leader, .. } => {
                let leader = leader.clone();
                Core::follow(store, settings.engine, settings.extensions, leader, clock.now())?
            }
        };
        let (commands, receiver) = mpsc::channel();
        let snapshot = Arc::new(RwLock::new(Arc::new(Snapshot::of(&core))));
        let (events, _) = broadcast::channel(EVENTS_LEN);
        let (heads, newest_head) = watch::channel(newest_head);
        let begun = standing.clone();
        let (standings, standing) = watch::channel(standing);
        // Without verification of changes, the thread reports nothing to the engine, and ends with the last handle.
        let (first, reports) = if verifies {
            (Verifier::default(), Some(commands.clone()))
        } else {
            (Verifier::of_plans(settings.extensions), None)
        };
        let verifier = start_verifier(first, reports)?;
        let handle = Handle::new(
            commands,
            clock.clone(),
            Arc::clone(&snapshot),
            events.clone(),
            (newest_head, standing),
            (verifier.clone(), verifies),
        );
        let audit_key = settings.audit_key;
        let worker = Worker {
            core,
            clock,
            commands: receiver,
            snapshot,
            events,
            fabric,
            audit_key,
            heads,
            standings,
            next_reading: Time::ZERO,
            verifier: verifies.then_some(verifier),
        };
        let thread = std::thread::Builder::new()
            .name("ix-engine".to_owned())
            .spawn(move || worker.run());
        Ok(Service {
            handle,
            standing: begun,
            thread: thread.map_err(StartError::Thread)?,
        })
    }

    /// Returns the handle.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Returns the standing with which the thread has begun to lead or to follow. The one of the handle may be later: another
    /// engine can take over at any time.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Ends the thread and waits for it. Returns its database, unless the thread panicked.
    pub fn stop(self) -> Option<Box<dyn Store>> {
        self.handle.stop();
        let store = self.thread.join();
        if store.is_err() {
            tracing::error!("the engine's thread panicked");
        }
        store.ok()
    }
}

struct Worker<F> {
    core: Core,
    clock: Clock,
    commands: mpsc::Receiver<Command>,
    snapshot: Arc<RwLock<Arc<Snapshot>>>,
    events: broadcast::Sender<Arc<ServiceEvent>>,
    fabric: F,
    audit_key: Option<SigningKey>,
    heads: watch::Sender<Option<SignedHead>>,
    standings: watch::Sender<Standing>,
    /// The earliest time at which a follower reads the database again.
    next_reading: Time,
    /// The verifier, if changes are verified.
    verifier: Option<mpsc::Sender<VerifyRequest>>,
}

/// Starts the thread that verifies changes, and that tells the effects of dry runs. It ends with the last sender of its requests.
fn start_verifier(
    mut verifier: Verifier,
    reports: Option<mpsc::Sender<Command>>,
) -> Result<mpsc::Sender<VerifyRequest>, StartError> {
    let (sender, requests) = mpsc::channel();
    let run = move || {
        loop {
            let request = match requests.recv_timeout(PLANS_KEPT) {
                Ok(request) => request,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    verifier.forget_plans();
                    continue;
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            };
            let (Some(event), Some(commands)) = (verifier.handle(request), &reports) else {
                continue;
            };
            let job = Command::Job(Box::new(move |core, now| {
                core.handle(event, now);
                None
            }));
            if commands.send(job).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new()
        .name("ix-verify".to_owned())
        .spawn(run);
    thread.map(|_| sender).map_err(StartError::Thread)
}

impl<F: FnMut(FabricRequest)> Worker<F> {
    fn run(mut self) -> Box<dyn Store> {
        let start = self.clock.now().time;
        let (mut sign_at, mut expire_at, mut prune_at) = (start + SIGN_INTERVAL, start, start);
        self.publish();
        loop {
            let now = self.clock.now().time;
            let shared = self.standings.borrow().shared;
            let timers = [sign_at, expire_at, prune_at]
                .into_iter()
                .chain(self.core.deadline().filter(|_| self.leads()))
                .chain(shared.then_some(now + STANDING_INTERVAL))
                .min()
                .unwrap_or(now);
            // A stalled journal is tried again at the next check of ends of validity.
            let first = match self.commands.recv_timeout(timers.since(now)) {
                Ok(command) => Some(command),
                Err(mpsc::RecvTimeoutError::Timeout) => None,
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            };
            let mut stops = false;
            let waiting = std::iter::from_fn(|| self.commands.try_recv().ok()).take(COMMANDS_MAX);
            let batch: Vec<Command> = first.into_iter().chain(waiting).collect();
            let mut deliveries = Vec::new();
            let (mut requests, mut askers) = (Vec::new(), Vec::new());
            for command in batch {
                match command {
                    Command::Order(request, asker) => {
                        requests.push(request);
                        askers.push(asker);
                    }
                    Command::Job(job) => deliveries.extend(job(&mut self.core, self.clock.now())),
                    Command::Stop => stops = true,
                }
            }
            let now = self.clock.now();
            if shared {
                self.check_standing(now);
            }
            if !requests.is_empty() {
                let results = self.core.order_all(requests, now);
                let answers = askers.into_iter().zip(results);
                deliveries.extend(
                    answers.map(|(asker, result)| Box::new(move || drop(asker.send(result))) as Delivery),
                );
            }
            if self.leads() {
                self.core.tick(now);
            }
            if now.time >= expire_at {
                self.report_jumps(now);
                if self.leads() {
                    self.core.expire(now);
                }
                expire_at = now.time + EXPIRE_INTERVAL;
            }
            if now.time >= sign_at {
                self.sign(now);
                sign_at = now.time + SIGN_INTERVAL;
            }
            if now.time >= prune_at {
                self.prune(now);
                prune_at = now.time + PRUNE_INTERVAL;
            }
            self.publish();
            for deliver in deliveries {
                deliver();
            }
            if stops {
                break;
            }
        }
        let now = self.clock.now();
        self.prune(now);
        self.sign(now);
        self.core.into_store()
    }

    /// Returns true if this engine writes and commands switches.
    fn leads(&self) -> bool {
        self.core.follows.is_none()
    }

    /// Asks the database who leads. A leader whose term has ended does nothing more, and a follower reads what is new.
    fn check_standing(&mut self, now: Now) {
        let standing = self.core.store_mut().standing();
        let ago = |silent: std::time::Duration| u64::try_from(silent.as_millis()).unwrap_or(u64::MAX);
        let since = standing
            .silent
            .map(|silent| UnixMillis(now.wall.0.saturating_sub(ago(silent))));
        self.core.note_silence(since, now);
        if standing.term != self.standings.borrow().term {
            if self.leads() {
                let leader = match &standing.role {
                    Role::Follows { leader, .. } => leader.clone(),
                    // The database has other contents than this engine in memory.
                    Role::Leads { .. } => Leader::default(),
                };
                self.core.step_down(leader);
            }
            self.standings.send_replace(standing);
            return;
        }
        let Role::Follows { leader, .. } = &standing.role else {
            return;
        };
        if self.core.follows.as_ref() != Some(leader) {
            self.core.step_down(leader.clone());
        }
        if standing.revision > self.core.revision && now.time >= self.next_reading {
            let read = self.core.read_again(now);
            let took = self.clock.now().time.since(now.time);
            self.next_reading = now.time + took * READ_PAUSE_FACTOR + STANDING_INTERVAL;
            if let Err(error) = read {
                tracing::warn!(%error, "the database is read again later");
            }
        }
    }

    /// Removes what is old from the database, and records the time, below which the next start does not begin.
    fn prune(&mut self, now: Now) {
        if !self.leads() {
            return;
        }
        let pruned = self.core.store_mut().prune(now.wall);
        self.core.note_write(pruned.as_ref().err(), now);
        if let Err(error) = pruned {
            tracing::warn!(%error, "old answers and sessions are not removed");
        }
    }

    /// Says that the system clock has jumped.
    fn report_jumps(&mut self, now: Now) {
        for jump in self.clock.take_jumps() {
            tracing::warn!("{jump}");
            let text = jump.to_string();
            let (switch, change) = (None, None);
            self.core.tell(EventKind::Notice { text, switch, change }, now);
        }
    }

    fn sign(&mut self, now: Now) {
        let Some(key) = self.audit_key.as_ref().filter(|_| self.leads()) else {
            return;
        };
        let signed = self.core.store_mut().sign_head(key, now.wall);
        self.core.note_write(signed.as_ref().err(), now);
        match signed {
            Ok(Some(head)) => {
                // The log is one of the places that the operator of the database may not reach: docs/audit-chain.md.
                tracing::info!("audit head {head}");
                self.heads.send_replace(Some(head));
            }
            Ok(None) => {}
            Err(error) => tracing::error!(%error, "the head of the audit chain is not signed"),
        }
    }

    /// Publishes a new snapshot before the events that it contains, and sends requests to switches.
    fn publish(&mut self) {
        let outputs = self.core.outputs();
        if self.core.changed || !outputs.is_empty() {
            self.core.changed = false;
            let snapshot = Arc::new(Snapshot::of(&self.core));
            *self.snapshot.write() = snapshot;
        }
        for output in outputs {
            match output {
                Output::Request(request) => (self.fabric)(request),
                Output::Verify(request) => {
                    // Without the thread, changes are rolled back when their verification is late.
                    let _ended = self.verifier.as_ref().map(|verifier| verifier.send(request));
                }
                Output::Event(event) => {
                    // Without subscribers, `send` fails, and the event is not needed.
                    let _nobody = self.events.send(Arc::new(event));
                }
            }
        }
    }
}
