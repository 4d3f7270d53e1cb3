//! The connections of switches: one task for each, which carries the engine's requests out and reports events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail};
use millrace_controller::driver::{self, Config, Handle as Connection, RoleRefused, Session};
use millrace_controller::{Applied, CommitError, DumpFilter, Event as SwitchEvent};
use millrace_flow::{Action, Match};
use millrace_ix_api::counters::FilterCounters;
use millrace_ix_engine::Event;
use millrace_ix_model::{FilterId, FilterState, ObjectId, SwitchId, Timestamp};
use millrace_ix_plan::layout::{CookieFields, CookieKind, PROTECT};
use millrace_ix_service::{EventKind, FabricHandle, FabricRequest, Handle, PortReport};
use millrace_ix_store::Role;
use millrace_openflow::flow_monitor::{FlowMonitorFlags, FlowMonitorRequest, FlowUpdate};
use millrace_openflow::{Message, PacketOut, Port, PortConfig, PortReason, PortState, RequestedRole};
use millrace_types::{BufferId, Cookie, Dpid, Duration, PortNo, TableId};
use parking_lot::Mutex;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

use crate::settings::OpenFlow;
use crate::{admission, messages};

/// The pause before a session with an unknown datapath id is closed, so that the switch does not connect in a loop.
const UNKNOWN_PAUSE: Duration = Duration::from_secs(1);
/// The time for which a switch may be silent on its present connection before another connection replaces it.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time between two readings of the counters of filters.
const COUNTING_INTERVAL: Duration = Duration::from_secs(5);

/// The present connection of a switch.
#[derive(Debug)]
struct Present {
    /// The number of the connection.
    number: u64,
    /// The address of the switch.
    address: String,
    connection: Connection,
    /// The sender of requests to the task of the connection.
    sender: mpsc::UnboundedSender<FabricRequest>,
}

/// The present connections of switches.
type Connected = BTreeMap<SwitchId, Present>;

/// The senders of requests to connected switches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Switches {
    connected: Arc<Mutex<Connected>>,
    sessions: Arc<AtomicU64>,
    /// The epoch of the engine, which is the generation_id of its election as master.
    epoch: Arc<AtomicU64>,
    /// The switches that have accepted this engine as master.
    led: Arc<Mutex<BTreeSet<SwitchId>>>,
    /// The counters of filters, which the API shows; set before switches connect.
    pub(crate) counters: FilterCounters,
}

impl Switches {
    /// Passes a request of the engine to the task of its switch. A request for an older connection is dropped: the engine
    /// knows that this connection has ended.
    pub(crate) fn request(&self, request: FabricRequest) {
        let (switch, session) = match &request {
            FabricRequest::Dump { switch, session }
            | FabricRequest::Commit { switch, session, .. }
            | FabricRequest::PacketOut { switch, session, .. } => (*switch, *session),
        };
        let connected = self.connected.lock();
        if let Some(present) = connected.get(&switch)
            && present.number == session
        {
            let _ended = present.sender.send(request);
        }
    }

    /// Returns the present connections of switches.
    pub(crate) fn connections(&self) -> Vec<(SwitchId, Connection)> {
        let connected = self.connected.lock();
        let all = connected.iter();
        all.map(|(switch, present)| (*switch, present.connection.clone()))
            .collect()
    }

    /// Listens on all addresses of the settings, and keeps the connections of switches without using them, because another engine
    /// leads. A switch that is connected comes again at once when this engine leads, and one that is not may wait for seconds.
    pub(crate) async fn hold(&self, settings: &OpenFlow, handle: &Handle) -> Result<()> {
        for mut listener in listeners(settings).await? {
            let standing = handle.standing();
            tokio::spawn(async move {
                while let Some(mut session) = listener.accept().await {
                    let epoch = match standing.borrow().role {
                        Role::Leads { epoch } | Role::Follows { epoch, .. } => epoch,
                    };
                    tokio::spawn(async move {
                        // A slave gets no packets, and the switch refuses what it would change.
                        if let Err(error) = session.handle.set_role(RequestedRole::Slave, epoch).await {
                            tracing::debug!(dpid = %session.features.dpid, %error, "the switch refuses the role of a slave");
                        }
                        while session.events.next().await.is_some() {}
                    });
                }
            });
        }
        Ok(())
    }

    /// Listens on all addresses of the settings.
    pub(crate) async fn listen(&self, settings: &OpenFlow, epoch: u64, handle: &Handle) -> Result<()> {
        self.epoch.fetch_max(epoch, Ordering::Relaxed);
        for mut listener in listeners(settings).await? {
            let (switches, handle) = (self.clone(), handle.clone());
            let certificates = settings.certificates.clone();
            tokio::spawn(async move {
                while let Some(session) = listener.accept().await {
                    let (switches, handle) = (switches.clone(), handle.clone());
                    let certificates = certificates.clone();
                    tokio::spawn(async move { switches.serve(session, &handle, &certificates).await });
                }
            });
        }
        Ok(())
    }

    /// Serves a connection until it ends.
    async fn serve(&self, session: Session, handle: &Handle, certificates: &BTreeMap<String, String>) {
        let dpid = session.features.dpid;
        let found = handle
            .snapshot()
            .exchange
            .switches
            .iter()
            .find(|(_, switch)| switch.dpid == dpid)
            .map(|(id, _)| *id);
        let Some(switch) = found else {
            tracing::warn!(%dpid, "no switch of the exchange has this datapath id: add it with create_switch");
            tokio::time::sleep(UNKNOWN_PAUSE).await;
            return session.handle.close().await;
        };
        let address = session.peer.address.clone();
        let certificate = session.peer.certificate.as_deref();
        if let Err(reason) = admission::check(handle, switch, dpid, certificate, certificates).await {
            tracing::error!(%switch, %dpid, address, "{reason}");
            tokio::time::sleep(UNKNOWN_PAUSE).await;
            return session.handle.close().await;
        }
        if let Err(error) = session.establish() {
            tracing::error!(%dpid, %error, "the switch cannot be served");
            return session.handle.close().await;
        }
        if let Err(error) = self.become_master(&session.handle, switch, handle).await {
            tracing::error!(%switch, error = format!("{error:#}"), "the switch does not accept this engine as master");
            tokio::time::sleep(UNKNOWN_PAUSE).await;
            return session.handle.close().await;
        }
        let number = 1 + self.sessions.fetch_add(1, Ordering::Relaxed);
        let (sender, requests) = mpsc::unbounded_channel();
        let present = Present {
            number,
            address,
            connection: session.handle.clone(),
            sender,
        };
        if !self.take_over(switch, present).await {
            tokio::time::sleep(UNKNOWN_PAUSE).await;
            return session.handle.close().await;
        }
        monitor(&session.handle).await;
        let closing = session.handle.clone();
        tracing::info!(%switch, %dpid, address = session.peer.address, "connected");
        let counting = tokio::spawn(count_filters(
            session.handle.clone(),
            switch,
            handle.clone(),
            self.counters.clone(),
        ));
        let fabric = handle.fabric();
        fabric.event(Event::Connected {
            switch: switch.0,
            session: number,
        });
        tokio::select! {
            () = run(session, switch, number, requests, &fabric) => {}
            () = is_replaced(handle, switch, dpid) => {
                tracing::warn!(%switch, %dpid, "the switch has another datapath id now: this connection is closed");
                closing.close().await;
            }
        }
        counting.abort();
        fabric.event(Event::Disconnected {
            switch: switch.0,
            session: number,
        });
        let mut connected = self.connected.lock();
        if connected
            .get(&switch)
            .is_some_and(|present| present.number == number)
        {
            connected.remove(&switch);
        }
    }

    /// Makes a connection the present one of its switch, and returns true. Returns false if the switch answers on its present
    /// connection: then somebody else pretends to be the switch, or two switches have one datapath id.
    async fn take_over(&self, switch: SwitchId, new: Present) -> bool {
        let connected = || self.connected.lock();
        loop {
            let old = connected().get(&switch).map(|present| {
                (
                    present.number,
                    present.address.clone(),
                    present.connection.clone(),
                )
            });
            if let Some((_, address, connection)) = &old
                && connection.is_alive(PATIENCE).await
            {
                tracing::warn!(
                    %switch, address = new.address, present = address,
                    "a second connection with the datapath id of this switch is refused, because the switch answers on its \
                     present one: expected one switch with this datapath id, and one listener that it connects to"
                );
                return false;
            }
            let mut connected = connected();
            // Another connection may have taken the switch over meanwhile.
            if connected.get(&switch).map(|present| present.number)
                != old.as_ref().map(|(number, ..)| *number)
            {
                continue;
            }
            if let Some((_, address, _)) = &old {
                tracing::warn!(%switch, address = new.address, silent = address, "a new connection replaces one that does not answer");
            }
            connected.insert(switch, new);
            return true;
        }
    }
}

/// Binds all addresses of the settings.
async fn listeners(settings: &OpenFlow) -> Result<Vec<driver::Listener>> {
    let mut listeners = Vec::new();
    for target in settings.targets()? {
        let name = target.to_string();
        let config = Config {
            tls: settings.tls(),
            ..Config::new(target)
        };
        let listener = driver::listen(config).await;
        listeners.push(listener.with_context(|| format!("openflow.listen {name}"))?);
        tracing::info!("switches connect to {name}");
    }
    Ok(listeners)
}

impl Switches {
    /// Makes this engine the master of a switch.
    ///
    /// If the switch knows a later generation_id, an engine with a newer database was its master, for example before a
    /// backup was restored. This engine then raises its epoch above that generation_id, if it still owns the database. If
    /// the switch has accepted this engine before, another engine is its master now, and the call fails.
    async fn become_master(&self, connection: &Connection, switch: SwitchId, handle: &Handle) -> Result<()> {
        let led = || self.led.lock();
        let epoch = self.epoch.load(Ordering::Relaxed);
        match connection.set_role(RequestedRole::Master, epoch).await {
            Err(RoleRefused::Stale) => {}
            outcome => {
                outcome?;
                led().insert(switch);
                return Ok(());
            }
        }
        if led().contains(&switch) {
            bail!(
                "another controller has become its master: expected no other engine. Does one run with a copy of this \
                 database?"
            );
        }
        let latest = connection
            .set_role(RequestedRole::NoChange, epoch)
            .await?
            .generation_id;
        let raised = handle.raise_epoch(latest).await.context(
            "the switch knows a later generation_id, and the epoch of the database cannot be raised above it",
        )?;
        self.epoch.fetch_max(raised, Ordering::Relaxed);
        tracing::warn!(
            %switch, epoch, latest, raised,
            "the switch was led with a newer database: the epoch is raised"
        );
        connection.set_role(RequestedRole::Master, raised).await?;
        led().insert(switch);
        Ok(())
    }
}

/// Returns when a switch of the exchange gets another datapath id, because another switch replaces it.
async fn is_replaced(handle: &Handle, switch: SwitchId, dpid: Dpid) {
    // The subscription begins before the first look, so that no change is missed.
    let mut events = handle.subscribe();
    loop {
        let snapshot = handle.snapshot();
        let found = snapshot.exchange.switches.get(&switch);
        if found.is_some_and(|found| found.dpid != dpid) {
            return;
        }
        loop {
            match events.recv().await {
                Ok(event) => {
                    let is_own = matches!(
                        event.kind,
                        EventKind::Object { id: ObjectId::Switch(changed), .. } if changed == switch
                    );
                    if is_own {
                        break;
                    }
                }
                Err(RecvError::Lagged(_)) => break,
                Err(RecvError::Closed) => return std::future::pending().await,
            }
        }
    }
}

/// Requests reports of changes by other controllers. A switch without flow monitors is only reconciled every
/// minute.
async fn monitor(connection: &Connection) {
    let request = FlowMonitorRequest {
        id: 1,
        flags: FlowMonitorFlags::ADD | FlowMonitorFlags::DELETE | FlowMonitorFlags::MODIFY,
        out_port: PortNo::ANY,
        table: TableId::ALL,
        match_: Match::any(),
    };
    if let Err(error) = connection.monitor(&[request]).await {
        tracing::info!(%error, "no flow monitor");
    }
}

async fn run(
    session: Session,
    switch: SwitchId,
    number: u64,
    mut requests: mpsc::UnboundedReceiver<FabricRequest>,
    fabric: &FabricHandle,
) {
    let Session {
        handle, mut events, ..
    } = session;
    let mut closed = handle.clone();
    let ended = closed.closed();
    tokio::pin!(ended);
    loop {
        tokio::select! {
            reason = &mut ended => {
                tracing::warn!(%switch, %reason, "disconnected");
                return;
            }
            request = requests.recv() => match request {
                // Operations of a connection run in the order of their submission, so each request can have a
                // separate task.
                Some(request) => {
                    let (handle, fabric) = (handle.clone(), fabric.clone());
                    tokio::spawn(async move { carry_out(request, &handle, &fabric).await });
                }
                // A newer connection of the switch now receives the engine's requests.
                None => return handle.close().await,
            },
            event = events.next() => match event {
                Some(SwitchEvent::PortStatus(status)) => {
                    let report = (status.reason != PortReason::Delete).then(|| report(&status.port));
                    fabric.port(switch, number, status.port.number, report);
                }
                Some(SwitchEvent::PortsListed(ports)) => {
                    fabric.ports(switch, number, ports.iter().map(report).collect());
                }
                Some(SwitchEvent::PacketIn(packet)) => {
                    fabric.packet_in(switch, number, packet.cookie, packet.data.into_vec());
                }
                Some(event) if is_foreign(&event) => fabric.event(Event::ForeignChange { switch: switch.0, session: number }),
                Some(_) => {}
                None => return,
            },
        }
    }
}

/// Reads the counters of a switch's filters every [`COUNTING_INTERVAL`] while the exchange has active ones.
async fn count_filters(connection: Connection, switch: SwitchId, handle: Handle, counters: FilterCounters) {
    let listing = DumpFilter {
        table: PROTECT,
        cookie: Cookie(0),
        cookie_mask: 0,
    };
    loop {
        tokio::time::sleep(COUNTING_INTERVAL).await;
        let snapshot = handle.snapshot();
        let mut filters = snapshot.exchange.filters.values();
        if !filters.any(|filter| filter.state == FilterState::Active) {
            counters.record(switch, now(), &BTreeMap::new());
            continue;
        }
        // An incomplete dump is ignored. The counters are read again after the interval.
        let Ok(dump) = connection.dump(listing).await else {
            continue;
        };
        let mut seen: BTreeMap<FilterId, (u64, u64)> = BTreeMap::new();
        for flow in &dump.flows {
            let fields =
                CookieFields::from_cookie(flow.cookie).filter(|fields| fields.kind == CookieKind::Filter);
            if let Some(fields) = fields {
                let count = seen.entry(FilterId(fields.object)).or_default();
                *count = (
                    count.0.saturating_add(flow.packets),
                    count.1.saturating_add(flow.bytes),
                );
            }
        }
        counters.record(switch, now(), &seen);
    }
}

fn now() -> Timestamp {
    Timestamp::from(std::time::SystemTime::now())
}

/// Returns the state of a port in the engine's type.
fn report(port: &Port) -> PortReport {
    let no_link = [PortState::LINK_DOWN, PortState::BLOCKED];
    PortReport {
        number: port.number,
        link: !port.config.contains(PortConfig::PORT_DOWN)
            && no_link.iter().all(|flag| !port.state.contains(*flag)),
        live: port.state.contains(PortState::LIVE),
    }
}

/// Returns true if an event reports a change of entries by another controller, or the possible loss of such a
/// report. Changes by this connection arrive in abbreviated form.
fn is_foreign(event: &SwitchEvent) -> bool {
    match event {
        SwitchEvent::FlowUpdates(updates) => {
            updates.iter().any(|update| matches!(update, FlowUpdate::Full(_)))
        }
        SwitchEvent::Lost(lost) => lost.state > 0,
        _ => false,
    }
}

async fn carry_out(request: FabricRequest, connection: &Connection, fabric: &FabricHandle) {
    match request {
        FabricRequest::Dump { switch, session } => {
            let dump = connection.dump(DumpFilter::ALL).await;
            let content = dump.map(messages::content).map_err(|error| error.to_string());
            if let Ok(content) = &content {
                let counts = messages::entry_counts(content);
                tracing::debug!(%switch, flows = counts.flows, groups = counts.groups, meters = counts.meters, "listed");
            }
            fabric.event(Event::Dumped {
                switch: switch.0,
                session,
                content,
            });
        }
        FabricRequest::PacketOut {
            switch, port, frame, ..
        } => {
            let message = Message::PacketOut(PacketOut {
                buffer: BufferId::NONE,
                in_port: PortNo::CONTROLLER,
                actions: [Action::output(port)].into(),
                data: frame.into_boxed_slice(),
            });
            if let Err(error) = connection.send(message).await {
                tracing::debug!(%switch, %error, "a packet_out is dropped");
            }
        }
        FabricRequest::Commit {
            switch,
            session,
            commit,
            modifications,
        } => {
            let messages = match messages::messages(modifications) {
                Ok(messages) => messages,
                Err(error) => {
                    let reason = error.to_string();
                    return fabric.event(Event::Refused {
                        switch: switch.0,
                        session,
                        commit,
                        reason,
                        partly: false,
                    });
                }
            };
            tracing::debug!(%switch, commit, messages = messages.len(), "commit");
            match connection.commit(messages).await {
                Ok(()) => fabric.event(Event::Committed {
                    switch: switch.0,
                    session,
                    commit,
                }),
                // The end of the connection is reported by its own event.
                Err(CommitError::Closed { .. }) => {}
                Err(error) => {
                    let partly = match &error {
                        CommitError::Refused { applied, .. } | CommitError::TooLong { applied, .. } => {
                            *applied != Applied::Nothing
                        }
                        _ => false,
                    };
                    let reason = error.to_string();
                    fabric.event(Event::Refused {
                        switch: switch.0,
                        session,
                        commit,
                        reason,
                        partly,
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
