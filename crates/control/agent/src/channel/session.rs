//! One connection with a controller: a task around a socket.
//!
//! The task reads and decodes requests, and gives them to the control thread one batch at a time. It decodes
//! the next batch while the control thread executes the previous one. Replies and asynchronous messages come
//! back through the outbox. While the controller does not read its replies, the task takes no more requests;
//! the control thread never waits for the controller.

use core::sync::atomic::Ordering;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use millrace_datapath::io::Backend;
use millrace_listener::{Connection as Accepted, EstablishError};
use millrace_model as model;
use millrace_openflow::connection::{CloseReason, Connection, Event, Rejection, Settings};
use millrace_openflow::{HEADER_SIZE, Header, Message, MessageType};
use millrace_types::{Duration, Time};
use tokio::io::Interest;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::status::{ChannelEntry, ChannelState};
use super::stream::Stream;
use crate::control::{BridgeHandle, TaskError};
use crate::controllers::{AuxiliaryOf, ConnectionId, NewConnection, OutboxReader, PacketInLimit, outbox};
use crate::handlers::{self, PendingRequests, ReceivedRequest};

/// The maximum number of requests that are decoded ahead of the control thread.
const BACKLOG_LEN: usize = 4096;
/// The maximum size of the requests that are decoded ahead of the control thread, in bytes.
const BACKLOG_SIZE: usize = 4 << 20;
/// Size of the read buffer, in bytes.
const READ_SIZE: usize = 64 * 1024;
/// Time to send the last messages before a connection is closed.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(1);

/// The configuration of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionConfig {
    pub(super) settings: Settings,
    /// True if the switch opens the connection, as the configuration asks.
    pub(super) is_configured: bool,
    pub(super) limit: Option<PacketInLimit>,
    /// `None` for a main connection.
    pub(super) auxiliary: Option<AuxiliaryOf>,
}

/// Returns the protocol settings of a connection with this echo interval; 0 sends no echo requests.
pub(super) fn settings(echo_interval: model::EchoInterval) -> Settings {
    let seconds = u64::from(echo_interval.get());
    Settings {
        echo_interval: (seconds > 0).then(|| Duration::from_secs(seconds)),
        // The connection is closed if the peer stays silent for another interval after the echo request.
        echo_misses: 1,
        ..Settings::default()
    }
}

/// The reason why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionEnd {
    /// The protocol ended the connection.
    #[error(transparent)]
    Closed(#[from] CloseReason),
    /// The controller closed the connection.
    #[error("the controller closed the connection")]
    Eof,
    /// An error of the network ended the connection.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The connection is auxiliary, and its main connection is closed.
    #[error("the main connection is closed")]
    NoMain,
    /// The listener serves no more controllers.
    #[error(transparent)]
    TooMany(#[from] EstablishError),
    /// The bridge was removed.
    #[error("{0}")]
    Bridge(#[from] TaskError),
}

/// The outcome of a connection.
pub(super) struct SessionOutcome {
    pub(super) end: SessionEnd,
    /// True if the HELLO exchange was complete.
    pub(super) was_ready: bool,
}

/// Removes the connection from the control thread's list when it is dropped, no matter how the task ends.
struct Registration<B: Backend> {
    bridge: BridgeHandle<B>,
    id: ConnectionId,
}

impl<B: Backend> Drop for Registration<B> {
    fn drop(&mut self) {
        let (bridge, id) = (self.bridge.clone(), self.id);
        // Without a runtime, the process is ending and the bridge with it, so there is nothing to remove.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // The bridge may have been removed.
                let _removed = bridge
                    .call(move |bridge| handlers::disconnected(bridge, id))
                    .await;
            });
        }
    }
}

/// The time after which a connection is logged at INFO even if it only asks.
const ASKING_TIME: Duration = Duration::from_secs(2);

/// Logs that a controller is connected, and when dropped, that it is disconnected: at INFO if the switch opened the
/// connection, if the controller changes the switch, or stays; at DEBUG for a short connection that only asks, as a
/// command of ovs-ofctl that lists something.
struct ConnectionLog {
    bridge: String,
    controller: Arc<str>,
    /// The time at which the connection is announced; `None` if it has been.
    announced_at: Option<Instant>,
    /// The reason of the end; `None` if the task is aborted.
    end: Option<String>,
}

impl ConnectionLog {
    fn begin(bridge: &str, controller: &Arc<str>, is_configured: bool) -> ConnectionLog {
        let mut log = ConnectionLog {
            bridge: bridge.to_owned(),
            controller: Arc::clone(controller),
            announced_at: Some(Instant::now() + ASKING_TIME),
            end: None,
        };
        if is_configured {
            log.announce();
        } else {
            tracing::debug!(%bridge, %controller, "controller connected");
        }
        log
    }

    /// Logs the connection at INFO, once.
    fn announce(&mut self) {
        if self.announced_at.take().is_some() {
            let (bridge, controller) = (&self.bridge, &self.controller);
            tracing::info!(%bridge, %controller, "controller connected");
        }
    }
}

/// Returns true if a message changes nothing in the switch: it asks for something, or keeps the connection alive.
fn only_asks(message: &Message) -> bool {
    match message {
        Message::MultipartRequest(request) => !request.body.is_write(),
        Message::EchoRequest(_)
        | Message::EchoReply(_)
        | Message::FeaturesRequest
        | Message::GetConfigRequest
        | Message::BarrierRequest
        | Message::QueueGetConfigRequest(_)
        | Message::GetAsyncRequest => true,
        _ => false,
    }
}

impl Drop for ConnectionLog {
    fn drop(&mut self) {
        let (bridge, controller) = (&self.bridge, &self.controller);
        let reason = self.end.as_deref().unwrap_or("the switch closes the connection");
        match self.announced_at {
            None => tracing::info!(%bridge, %controller, %reason, "controller disconnected"),
            Some(_) => tracing::debug!(%bridge, %controller, %reason, "controller disconnected"),
        }
    }
}

struct Session<'a, B: Backend> {
    stream: Stream,
    bridge: BridgeHandle<B>,
    config: SessionConfig,
    line: &'a ChannelEntry,
    epoch: Instant,
    connection: Connection,
    backlog: VecDeque<ReceivedRequest>,
    backlog_size: usize,
    outbox: OutboxReader,
    /// `Some` until the HELLO exchange is complete.
    new: Option<NewConnection>,
    /// Notified when the controller is connected.
    ready: Option<oneshot::Sender<ConnectionId>>,
    registration: Option<Registration<B>>,
    /// `None` until the controller is connected, and for auxiliary connections.
    log: Option<ConnectionLog>,
    /// The count of an accepted connection: first as pending, then as established. `None` if the switch opened the
    /// connection.
    accepted: Option<Accepted>,
    /// The reason of the end, and the deadline for the last messages.
    closed: Option<(CloseReason, Instant)>,
    buffer: Vec<u8>,
    /// The address of the peer, for the log.
    address: Arc<str>,
}

/// Serves a controller until the connection ends. Notifies `ready` when the HELLO exchange is complete.
pub(super) async fn serve<B: Backend>(
    stream: Stream,
    bridge: BridgeHandle<B>,
    config: SessionConfig,
    line: &ChannelEntry,
    ready: Option<oneshot::Sender<ConnectionId>>,
    accepted: Option<Accepted>,
) -> SessionOutcome {
    stream.set_nodelay();
    let id = ConnectionId::next();
    let (sender, reader) = outbox();
    let address: Arc<str> = stream.peer_name().into();
    let new = NewConnection {
        id,
        address: Arc::clone(&address),
        is_configured: config.is_configured,
        auxiliary: config.auxiliary,
        outbox: sender,
        tally: Arc::clone(line.tally()),
        limit: config.limit,
    };
    let mut session = Session {
        stream,
        bridge,
        config,
        line,
        epoch: Instant::now(),
        connection: Connection::new(config.settings, Time::ZERO),
        backlog: VecDeque::new(),
        backlog_size: 0,
        outbox: reader,
        new: Some(new),
        ready,
        registration: None,
        log: None,
        accepted,
        closed: None,
        buffer: vec![0; READ_SIZE],
        address,
    };
    let end = match session.run(id).await {
        Err(end) => end,
        Ok(never) => match never {},
    };
    session.stream.close_notify();
    line.tally().set_role(None);
    if let Some(log) = &mut session.log {
        log.end = Some(end.to_string());
    }
    SessionOutcome {
        end,
        was_ready: session.registration.is_some(),
    }
}

impl<B: Backend> Session<'_, B> {
    fn now(&self) -> Time {
        let nanos = self.epoch.elapsed().as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Serves the connection until it ends. Returns the reason of the end.
    async fn run(&mut self, id: ConnectionId) -> Result<core::convert::Infallible, SessionEnd> {
        let mut remaining: Option<PendingRequests> = None;
        let mut running = None;
        loop {
            self.take_events().await?;
            let is_drained = self.connection.output().is_empty() && !self.stream.wants_write();
            if let Some((reason, _)) = self
                .closed
                .take_if(|(_, end)| is_drained || *end <= Instant::now())
            {
                return Err(reason.into());
            }
            let can_start = running.is_none() && self.closed.is_none() && !self.connection.is_congested();
            if can_start && (remaining.is_some() || !self.backlog.is_empty()) {
                let work = remaining.take().unwrap_or_else(|| self.take_backlog());
                let bridge = self.bridge.clone();
                running = Some(Box::pin(async move {
                    bridge
                        .call(move |bridge| handlers::execute(bridge, id, work))
                        .await
                }));
            }
            let deadline = match &self.closed {
                Some((_, end)) => Some(*end),
                // While the backlog is full, the socket is not read, so the controller must not count as
                // silent. If the controller does not read its replies, it has caused the full backlog, and
                // does count as silent.
                None if !self.has_room() && !self.connection.is_congested() => None,
                None => self
                    .connection
                    .deadline()
                    .map(|at| self.epoch + at.since(Time::ZERO)),
            };
            let announced_at = self.log.as_ref().and_then(|log| log.announced_at);
            let interest = self.interest();
            tokio::select! {
                done = async { match &mut running {
                    Some(running) => running.await,
                    None => core::future::pending().await,
                } } => {
                    running = None;
                    remaining = done?;
                    self.take_replies();
                }
                bytes = self.outbox.next(), if !self.connection.is_congested() => {
                    if let Some(bytes) = bytes {
                        self.send(&bytes);
                        self.take_replies();
                    }
                }
                ready = wait_for(&self.stream, interest) => {
                    let ready = ready?;
                    if ready.is_readable() {
                        self.read()?;
                    }
                    if ready.is_writable() {
                        self.write()?;
                    }
                }
                () = sleep_until(announced_at) => {
                    if let Some(log) = &mut self.log {
                        log.announce();
                    }
                }
                () = sleep_until(deadline) => {
                    // This task may be late, although bytes that wait in the socket arrived in time: read
                    // them before the timers run.
                    if self.closed.is_none() && self.connection.wants_input() && self.has_room() {
                        self.read()?;
                    }
                    let now = self.now();
                    self.connection.tick(now);
                }
            }
            self.write()?;
        }
    }

    fn take_backlog(&mut self) -> PendingRequests {
        self.backlog_size = 0;
        PendingRequests::new(core::mem::take(&mut self.backlog))
    }

    fn has_room(&self) -> bool {
        self.backlog.len() < BACKLOG_LEN && self.backlog_size < BACKLOG_SIZE
    }

    /// Returns the readiness of the socket to wait for.
    fn interest(&self) -> Option<Interest> {
        let reads = self.connection.wants_input() && self.has_room();
        let writes = !self.connection.output().is_empty() || self.stream.wants_write();
        match (reads, writes) {
            (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
            (true, false) => Some(Interest::READABLE),
            (false, true) => Some(Interest::WRITABLE),
            (false, false) => None,
        }
    }

    /// Handles the events of the protocol: requests go to the backlog while it has room.
    async fn take_events(&mut self) -> Result<(), SessionEnd> {
        // The end of the connection needs no room in the backlog.
        while (self.has_room() || self.connection.is_closed())
            && let Some(event) = self.connection.poll()
        {
            match event {
                Event::Ready => self.register().await?,
                Event::Request(request) => {
                    if let Some(log) = self.log.as_mut().filter(|_| !only_asks(&request.message)) {
                        log.announce();
                    }
                    self.enqueue(request.size, ReceivedRequest::Valid(request));
                }
                Event::Rejected(rejection) => {
                    self.log_rejected(&rejection);
                    self.enqueue(rejection.header.length, ReceivedRequest::Rejected(rejection));
                }
                Event::PeerError(error) => {
                    if let Some(suppressed) = self.line.admits_log() {
                        tracing::warn!(
                            bridge = %self.line.bridge(), controller = %self.address, code = %error.code, suppressed,
                            "the controller reports an error"
                        );
                    }
                }
                Event::Closed(reason) => {
                    self.closed = Some((reason, Instant::now() + CLOSING_TIMEOUT));
                }
            }
        }
        Ok(())
    }

    /// Adds a request of `size` bytes to the backlog.
    fn enqueue(&mut self, size: u16, request: ReceivedRequest) {
        self.line.tally().messages_in.fetch_add(1, Ordering::Relaxed);
        self.backlog_size += usize::from(size);
        self.backlog.push_back(request);
    }

    /// Adds the connection to the control thread's list, before its first request arrives there.
    async fn register(&mut self) -> Result<(), SessionEnd> {
        let Some(new) = self.new.take() else {
            return Ok(());
        };
        if let Some(accepted) = &self.accepted {
            accepted.establish()?;
        }
        let id = new.id;
        self.registration = Some(Registration {
            bridge: self.bridge.clone(),
            id,
        });
        let is_added = self
            .bridge
            .call(move |bridge| handlers::connected(bridge, new))
            .await?;
        if !is_added {
            return Err(SessionEnd::NoMain);
        }
        if let Some(ready) = self.ready.take() {
            // The receiver may have been dropped.
            let _dropped = ready.send(id);
        }
        self.line.set_error(None);
        self.line.set_state(ChannelState::Connected);
        // Auxiliary connections are opened and closed with their main connection (OpenFlow 1.3.5, section 6.3.5).
        if self.config.auxiliary.is_none() {
            let is_configured = self.config.is_configured;
            self.log = Some(ConnectionLog::begin(
                self.line.bridge(),
                &self.address,
                is_configured,
            ));
        }
        Ok(())
    }

    /// Logs a request that cannot be decoded. A request that would change the switch is logged at WARN,
    /// within the rate limit.
    fn log_rejected(&self, Rejection { header, error, .. }: &Rejection) {
        let (bridge, controller, xid) = (self.line.bridge(), &self.address, header.xid.0);
        let code = error.error_code();
        let request = match header.message_type() {
            Some(MessageType::FlowMod) => "flow_mod",
            Some(MessageType::GroupMod) => "group_mod",
            Some(MessageType::MeterMod) => "meter_mod",
            // A message of a bundle is inside an experimenter message (ONF extension 230).
            Some(MessageType::Experimenter) => "experimenter message",
            _ => {
                tracing::debug!(%bridge, %controller, xid, %code, reason = %error, "request refused");
                return;
            }
        };
        if let Some(suppressed) = self.line.admits_log() {
            tracing::warn!(%bridge, %controller, xid, %code, reason = %error, suppressed, "{request} refused");
        }
    }

    fn take_replies(&mut self) {
        while !self.connection.is_congested()
            && let Some(bytes) = self.outbox.try_next()
        {
            self.send(&bytes);
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        let count = count_messages(bytes);
        self.line.tally().messages_out.fetch_add(count, Ordering::Relaxed);
        self.connection.send_encoded(bytes);
    }

    fn read(&mut self) -> Result<(), SessionEnd> {
        match self.stream.try_read(&mut self.buffer) {
            Ok(0) => Err(SessionEnd::Eof),
            Ok(size) => {
                let now = self.now();
                self.connection.receive(&self.buffer[..size], now);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn write(&mut self) -> Result<(), SessionEnd> {
        while !self.connection.output().is_empty() {
            match self.stream.try_write(self.connection.output()) {
                Ok(size) => {
                    let now = self.now();
                    self.connection.wrote(size, now);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.stream.flush()?)
    }
}

async fn wait_for(stream: &Stream, interest: Option<Interest>) -> io::Result<tokio::io::Ready> {
    match interest {
        Some(interest) => stream.ready(interest).await,
        None => core::future::pending().await,
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => core::future::pending().await,
    }
}

/// Returns the number of OpenFlow messages in `bytes`, which contain only complete messages.
fn count_messages(mut bytes: &[u8]) -> u64 {
    let mut count = 0;
    while let Some(header) = Header::parse(bytes) {
        count += 1;
        let size = usize::from(header.length).max(HEADER_SIZE);
        bytes = bytes.get(size..).unwrap_or_default();
    }
    count
}
