//! One connection: events of the session, cycles beside it, and what is written.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_model::{Ovsdb, OvsdbTarget};
use millrace_ovs::{Context, DATABASE, LOCK, MONITORED, Numbers, State, Translation, Written, translate};
use millrace_ovsdb::{Event, Outcome, Session, Settings, TransactionId};
use millrace_store::{Origin, Store};
use millrace_types::Time;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::connection::{Stream, connect};
use crate::cycle::{self, Commit, Cycle};
use crate::status::{Phase, Shared};
use crate::switch::Switch;
use crate::unixctl::Unixctl;

const SETTINGS: Settings = Settings {
    database: DATABASE,
    lock: LOCK,
    monitored: MONITORED,
    // A bridge with 60,000 ports in one transaction fits.
    message_size_max: 64 << 20,
    replica_size_max: 256 << 20,
    probe_interval: Duration::from_secs(5),
};

/// The longest time in which a server takes what was sent to it.
const WRITE_TIME: Duration = Duration::from_secs(10);

/// The pause before a desired state that waits for the store is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// The longest time for which changes of links are collected.
const COLLECT: Duration = Duration::from_millis(50);

/// The interval of statistics before the rows are known.
const FIRST_INTERVAL: Duration = Duration::from_secs(5);

/// The context of a connection.
pub(crate) struct Following<'a> {
    pub(crate) settings: &'a Ovsdb,
    pub(crate) store: &'a Store,
    pub(crate) switch: &'a Arc<dyn Switch>,
    pub(crate) shared: &'a Shared,
    pub(crate) woken: &'a Notify,
    pub(crate) numbers: &'a mut Numbers,
    /// The socket of `ovs-appctl`, from the first lock on; it stays while the server is away.
    pub(crate) unixctl: &'a mut Option<Unixctl>,
}

/// The end of a connection.
pub(crate) struct End {
    pub(crate) reason: String,
    pub(crate) was_synchronised: bool,
}

/// The work of a connection.
struct Work {
    /// The rows may ask for something else than before.
    is_asked: bool,
    /// The state of the switch may have changed.
    is_stale: bool,
    /// The time before which a state is not read.
    not_before: Instant,
    /// The desired state that the store has, before rows were taken out.
    reached: Option<Arc<Translation>>,
    /// The place of the rows.
    placed: Option<Arc<Translation>>,
    cycle: Option<(JoinHandle<Cycle>, Arc<Translation>)>,
    transaction: Option<(TransactionId, i64)>,
    written: Written,
    /// The state that was written last.
    state: State,
    /// The interval at which all of the state is read, counters included; apart from that, it is read when it changes.
    interval: Duration,
    next_statistics: Instant,
    /// True if the next state brings counters.
    counters_are_due: bool,
    /// The time at which a desired state that waits is tried again.
    retry: Option<Instant>,
}

impl Following<'_> {
    /// Follows the database until the connection ends.
    pub(crate) async fn run(mut self, target: &OvsdbTarget) -> End {
        let mut was_synchronised = false;
        let reason = match connect(target, self.settings.tls.as_ref()).await {
            Ok(stream) => self.follow(stream, &mut was_synchronised).await,
            Err(error) => format!("cannot connect to {target}: {error}"),
        };
        End {
            reason,
            was_synchronised,
        }
    }

    async fn follow(&mut self, stream: Box<dyn Stream>, was_synchronised: &mut bool) -> String {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let epoch = Instant::now();
        let now = || Time::ZERO + epoch.elapsed();
        let mut session = Session::new(SETTINGS, now());
        let mut buffer = vec![0; 1 << 16];
        let mut head = self.store.watch();
        let mut work = Work::new(epoch);
        self.shared.change(|status| status.connections += 1);
        loop {
            let output = session.take_output();
            if !output.is_empty() {
                match tokio::time::timeout(WRITE_TIME, writer.write_all(&output)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => return format!("the connection failed: {error}"),
                    Err(_) => return format!("the server took nothing for {} s", WRITE_TIME.as_secs()),
                }
            }
            let deadline = work.deadline().min(epoch + (session.timeout().since(Time::ZERO)));
            tokio::select! {
                biased;
                read = reader.read(&mut buffer) => match read {
                    Ok(0) => return "the server closed the connection".to_owned(),
                    Ok(size) => {
                        if let Err(violation) = session.receive(buffer.get(..size).unwrap_or_default(), now()) {
                            return violation.to_string();
                        }
                    }
                    Err(error) => return format!("the connection failed: {error}"),
                },
                ended = work.ended() => match ended {
                    Some(cycle) => self.written(&mut work, cycle, &mut session),
                    None => return "a cycle failed".to_owned(),
                },
                () = std::future::ready(()), if work.is_due(&session) => self.begin(&mut work, &session),
                changed = head.changed() => {
                    if changed.is_err() {
                        return "the store is closed".to_owned();
                    }
                    if head.borrow_and_update().revision.origin != Origin::OVSDB {
                        work.reached = None;
                        work.is_asked = true;
                    }
                }
                () = self.woken.notified() => work.stale_soon(),
                () = tokio::time::sleep_until(deadline.into()) => {
                    work.timers();
                    if let Err(violation) = session.handle_timeout(now()) {
                        return violation.to_string();
                    }
                }
            }
            while let Some(event) = session.next_event() {
                if let Some(end) = self.event(event, &mut work, &session) {
                    return end;
                }
            }
            *was_synchronised |= session.is_synchronised();
        }
    }

    /// Opens the socket of `ovs-appctl`, which finds nobody without it.
    fn open_unixctl(&self) -> Option<Unixctl> {
        let run_dir = std::path::Path::new(self.settings.run_dir.as_str());
        Unixctl::open(run_dir, Arc::clone(self.switch))
            .inspect_err(|reason| tracing::warn!(reason, "ovs-appctl does not reach this switch"))
            .ok()
    }

    /// Handles an event. Returns the reason if it ends the connection.
    fn event(&mut self, event: Event, work: &mut Work, session: &Session) -> Option<String> {
        match event {
            Event::Synchronised | Event::Changed => work.is_asked = true,
            Event::Lock { is_owned: true } => {
                tracing::info!("the lock {LOCK} of the database is owned: its bridges are made");
                work.is_asked = true;
                work.written.forget();
                work.placed = None;
                if self.unixctl.is_none() {
                    *self.unixctl = self.open_unixctl();
                }
            }
            Event::Lock { is_owned: false } => {
                *self.unixctl = None;
                return Some(format!("another process took the lock {LOCK} of the database"));
            }
            Event::Transaction { id, outcome } => {
                let sent = work.transaction.take_if(|(sent, _)| *sent == id);
                match outcome {
                    Outcome::Committed => self.shared.change(|status| {
                        status.transactions += 1;
                        status.cur_cfg = sent.map(|(_, number)| number).or(status.cur_cfg);
                    }),
                    // The content of the database is not known any more: everything is read and written again.
                    Outcome::Refused(error) => {
                        return Some(format!("the server refused a transaction: {error}"));
                    }
                }
            }
        }
        self.shared
            .phase(match session.owns_lock() && session.is_synchronised() {
                true => Phase::Following,
                false if session.is_synchronised() => Phase::WaitingForLock,
                false => Phase::Connecting,
            });
        None
    }

    /// Begins a cycle, or reads the state if the rows ask for nothing else than before.
    fn begin(&mut self, work: &mut Work, session: &Session) {
        let replica = session.replica();
        let mut context = Context {
            run_dir: Some(self.settings.run_dir.as_str()),
            numbers: self.numbers,
        };
        let wanted = match (work.is_asked, &work.reached) {
            (false, Some(reached)) => Arc::clone(reached),
            _ => Arc::new(translate(replica, &mut context)),
        };
        work.is_asked = false;
        self.shared.change(|status| {
            status.rows = replica.len();
            status.memory = replica.size();
            status.next_cfg = Some(wanted.next_cfg);
        });
        if wanted.root.is_none() {
            work.is_stale = false;
            self.shared.change(|status| {
                status.waits_for =
                    Some("the database is empty: expected `ovs-vsctl --no-wait init`".to_owned());
            });
            return;
        }
        let is_reached = work.reached.as_ref() == Some(&wanted);
        if is_reached && !work.is_stale {
            return;
        }
        work.is_stale = false;
        let (store, switch) = (self.store.clone(), Arc::clone(self.switch));
        let placed = work.placed.clone().filter(|_| is_reached);
        let runtime = tokio::runtime::Handle::current();
        let asked = Arc::clone(&wanted);
        let run_dir = self.settings.run_dir.clone();
        let task = tokio::task::spawn_blocking(move || match placed {
            Some(translation) => Cycle {
                translation,
                state: switch.state(),
                commit: Commit::Done,
            },
            None => {
                // Bridges report it if their sockets cannot be made.
                let _made = std::fs::create_dir_all(run_dir.as_str());
                cycle::run(&store, &switch, &wanted, &runtime)
            }
        });
        work.cycle = Some((task, asked));
    }

    /// Writes the result of a cycle.
    fn written(&mut self, work: &mut Work, (cycle, asked): (Cycle, Arc<Translation>), session: &mut Session) {
        let Cycle {
            translation,
            mut state,
            commit,
        } = cycle;
        let is_placed = work
            .placed
            .as_ref()
            .is_some_and(|placed| Arc::ptr_eq(placed, &translation));
        if !is_placed {
            self.shared.faults(&translation.faults);
        }
        let waits_for = match commit {
            Commit::Done => {
                work.reached = Some(asked);
                None
            }
            Commit::Refused(reason) => {
                tracing::warn!(
                    reason,
                    "the desired state of the database is refused as a whole: the bridges stay as they are"
                );
                work.reached = Some(asked);
                Some(reason)
            }
            Commit::Waits(reason) => {
                work.retry = Some(Instant::now() + RETRY);
                self.shared.change(|status| status.waits_for = Some(reason));
                return;
            }
        };
        self.shared.change(|status| status.waits_for = waits_for);
        work.set_interval(Duration::from_millis(translation.statistics_interval_ms));
        work.settle_state(&mut state);
        if is_placed && work.state == state {
            // The rows have this state already: at rest, a cycle with thousands of ports compares and does no more.
            return;
        }
        if is_placed && translation.wants_other_addresses(&state) {
            work.reached = None;
            work.is_asked = true;
        }
        for bridge in &translation.rows {
            let ports = state.bridges.get(&bridge.name).map(|state| &state.ports);
            for interface in bridge.ports.iter().flat_map(|port| &port.interfaces) {
                let is_port = ports.is_some_and(|ports| ports.contains_key(&interface.name));
                self.numbers
                    .note(bridge.uuid, interface.uuid, is_port && interface.number.is_some());
            }
        }
        let before = is_placed.then_some(&work.state);
        let operations = work
            .written
            .changes(&translation, &state, before, &session.schema().version);
        if !operations.is_empty() && session.owns_lock() {
            work.transaction = Some((session.transact(&operations), translation.next_cfg));
        }
        work.state = state;
        work.placed = Some(translation);
    }
}

impl Work {
    fn new(now: Instant) -> Work {
        Work {
            is_asked: false,
            is_stale: false,
            not_before: now,
            reached: None,
            placed: None,
            cycle: None,
            transaction: None,
            written: Written::default(),
            state: State::default(),
            interval: FIRST_INTERVAL,
            next_statistics: now + FIRST_INTERVAL,
            counters_are_due: true,
            retry: None,
        }
    }

    /// Waits for the cycle that runs; for ever if none does.
    async fn ended(&mut self) -> Option<(Cycle, Arc<Translation>)> {
        let Some((task, _)) = &mut self.cycle else {
            return std::future::pending().await;
        };
        let ended = task.await;
        let (_, asked) = self.cycle.take()?;
        Some((ended.ok()?, asked))
    }

    fn is_due(&self, session: &Session) -> bool {
        let has_work = self.is_asked || (self.is_stale && Instant::now() >= self.not_before);
        has_work
            && self.cycle.is_none()
            && self.transaction.is_none()
            && session.owns_lock()
            && session.is_synchronised()
    }

    fn stale_soon(&mut self) {
        if !self.is_stale {
            self.is_stale = true;
            self.not_before = Instant::now() + COLLECT;
        }
    }

    fn deadline(&self) -> Instant {
        let collected = self.not_before;
        let stale = (self.is_stale && collected > Instant::now()).then_some(collected);
        [Some(self.next_statistics), self.retry, stale]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(self.next_statistics)
    }

    /// Handles the timers that are due.
    fn timers(&mut self) {
        let now = Instant::now();
        if self.retry.take_if(|retry| *retry <= now).is_some() {
            self.is_asked = true;
            self.reached = None;
        }
        if now >= self.next_statistics {
            self.next_statistics = now + self.interval;
            self.counters_are_due = true;
            self.is_stale = true;
        }
    }

    /// Sets the interval of statistics.
    fn set_interval(&mut self, interval: Duration) {
        if self.interval != interval {
            self.interval = interval;
            self.next_statistics = self.next_statistics.min(Instant::now() + interval);
        }
    }

    /// Brings a state into the form that is written: counters and times as they were until their interval is over, so that
    /// a change of a row does not write all counters.
    fn settle_state(&mut self, state: &mut State) {
        let is_due = std::mem::take(&mut self.counters_are_due);
        for (name, bridge) in &mut state.bridges {
            let before = self.state.bridges.get(name);
            for (port_name, port) in &mut bridge.ports {
                let Some(before) = before.and_then(|before| before.ports.get(port_name)) else {
                    continue;
                };
                port.link_resets = before.link_resets + u64::from(before.has_link != port.has_link);
                if !is_due {
                    port.statistics.clone_from(&before.statistics);
                }
            }
            let trees = (
                bridge.tree.as_mut(),
                before.and_then(|before| before.tree.as_ref()),
            );
            if let ((Some(tree), Some(before)), false) = (trees, is_due) {
                for (name, port) in &mut tree.ports {
                    let same = before.ports.get(name).filter(|old| old.state == port.state);
                    if let Some(same) = same {
                        (port.sent, port.received) = (same.sent, same.received);
                        (port.state_s, port.uptime_s) = (same.state_s, same.uptime_s);
                    }
                }
            }
            for channel in &mut bridge.channels {
                let same = before.and_then(|before| {
                    before
                        .channels
                        .iter()
                        .find(|old| (&old.target, old.state) == (&channel.target, channel.state))
                });
                if let Some(same) = same.filter(|_| !is_due) {
                    channel.since_s = same.since_s;
                }
            }
        }
    }
}
