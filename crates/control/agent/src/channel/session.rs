//! One connection with a controller: a task around a socket.
//!
//! The task reads, decodes, and hands requests to the control thread, a batch at a time; while that works,
//! the next batch is decoded. Replies and reports come back through the outbox. When the controller does not
//! read, no more of its requests are taken; the control thread never waits for it.

use core::sync::atomic::Ordering;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use millrace_datapath::io::Backend;
use millrace_openflow::connection::{CloseReason, Connection, Event, Request, Settings};
use millrace_openflow::{DecodeError, HEADER_SIZE, Header, MessageType};
use millrace_types::{Duration, Time};
use tokio::io::Interest;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::admission::{Established, Pending, TooManyControllers};
use super::outbox::{OutboxReader, outbox};
use super::status::{BoardLine, ChannelState};
use super::stream::Stream;
use super::{AuxiliaryPlace, ConnectionId, Newcomer, PacketInLimit};
use crate::control::{BridgeHandle, TaskError};
use crate::handlers::{self, Work};

/// Requests that are decoded ahead of the control thread.
const BACKLOG_LEN: usize = 4096;
/// Size of requests that are decoded ahead of the control thread in bytes.
const BACKLOG_SIZE: usize = 4 << 20;
/// Bytes that one read may bring.
const READ_SIZE: usize = 64 * 1024;
/// How long the last words to a controller may take.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(1);

/// How a connection is to be served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) settings: Settings,
    pub(super) is_configured: bool,
    pub(super) limit: Option<PacketInLimit>,
    /// `None` for a main connection.
    pub(super) auxiliary: Option<AuxiliaryPlace>,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionEnd {
    /// The protocol ended it.
    #[error(transparent)]
    Closed(#[from] CloseReason),
    /// The controller closed it.
    #[error("the controller closed the connection")]
    Eof,
    /// The network ended it.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is auxiliary to one that is gone.
    #[error("the main connection is gone")]
    NoMain,
    /// The listener serves no more controllers.
    #[error(transparent)]
    TooMany(#[from] TooManyControllers),
    /// The bridge is gone.
    #[error("{0}")]
    Bridge(#[from] TaskError),
}

/// How a connection went.
pub(super) struct Report {
    pub(super) end: SessionEnd,
    /// True if versions were agreed on.
    pub(super) was_ready: bool,
}

/// Takes the connection from the control thread's list when the task ends, however it ends.
struct Registration<B: Backend> {
    bridge: BridgeHandle<B>,
    id: ConnectionId,
}

impl<B: Backend> Drop for Registration<B> {
    fn drop(&mut self) {
        let (bridge, id) = (self.bridge.clone(), self.id);
        // Without a runtime the process is ending, and the bridge with it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // The bridge may be gone.
                let _gone = bridge
                    .call(move |bridge| handlers::disconnected(bridge, id))
                    .await;
            });
        }
    }
}

/// Logs that a controller is connected, and when dropped, that it is disconnected.
struct Presence {
    bridge: String,
    controller: Arc<str>,
    /// The reason; `None` if the task is aborted.
    end: Option<String>,
}

impl Presence {
    fn begin(bridge: &str, controller: &Arc<str>) -> Presence {
        tracing::info!(%bridge, %controller, "controller connected");
        Presence {
            bridge: bridge.to_owned(),
            controller: Arc::clone(controller),
            end: None,
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let (bridge, controller) = (&self.bridge, &self.controller);
        let reason = self.end.as_deref().unwrap_or("the switch closes the connection");
        tracing::info!(%bridge, %controller, %reason, "controller disconnected");
    }
}

struct Session<'a, B: Backend> {
    stream: Stream,
    bridge: BridgeHandle<B>,
    terms: Terms,
    line: &'a BoardLine,
    epoch: Instant,
    connection: Connection,
    backlog: VecDeque<Request>,
    backlog_size: usize,
    outbox: OutboxReader,
    newcomer: Option<Newcomer>,
    /// Who wants to know that the controller is connected.
    herald: Option<oneshot::Sender<ConnectionId>>,
    registration: Option<Registration<B>>,
    /// `None` until the controller is connected, and for auxiliary connections.
    presence: Option<Presence>,
    /// Of a connection that a listener accepted: its place among those without HELLO, and then among controllers.
    pending: Option<Pending>,
    _established: Option<Established>,
    /// Why it is over, and until when the last words may take.
    closed: Option<(CloseReason, Instant)>,
    buffer: Vec<u8>,
    /// The address of the peer, for the log.
    address: Arc<str>,
}

/// Serves a controller until the connection ends; tells `herald` when it has begun.
pub(super) async fn serve<B: Backend>(
    stream: Stream,
    bridge: BridgeHandle<B>,
    terms: Terms,
    line: &BoardLine,
    herald: Option<oneshot::Sender<ConnectionId>>,
    pending: Option<Pending>,
) -> Report {
    stream.send_at_once();
    let id = ConnectionId::next();
    let (sender, reader) = outbox();
    let address: Arc<str> = stream.peer_name().into();
    let newcomer = Newcomer {
        id,
        address: Arc::clone(&address),
        is_configured: terms.is_configured,
        auxiliary: terms.auxiliary,
        outbox: sender,
        tally: Arc::clone(line.tally()),
        limit: terms.limit,
    };
    let mut session = Session {
        stream,
        bridge,
        terms,
        line,
        epoch: Instant::now(),
        connection: Connection::new(terms.settings, Time::ZERO),
        backlog: VecDeque::new(),
        backlog_size: 0,
        outbox: reader,
        newcomer: Some(newcomer),
        herald,
        registration: None,
        presence: None,
        pending,
        _established: None,
        closed: None,
        buffer: vec![0; READ_SIZE],
        address,
    };
    let end = match session.run(id).await {
        Err(end) => end,
        Ok(never) => match never {},
    };
    session.stream.say_goodbye();
    line.tally().set_role(None);
    if let Some(presence) = &mut session.presence {
        presence.end = Some(end.to_string());
    }
    Report {
        end,
        was_ready: session.registration.is_some(),
    }
}

impl<B: Backend> Session<'_, B> {
    fn now(&self) -> Time {
        let nanos = self.epoch.elapsed().as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    async fn run(&mut self, id: ConnectionId) -> Result<core::convert::Infallible, SessionEnd> {
        let mut rest: Option<Work> = None;
        let mut running = None;
        loop {
            self.take_events().await?;
            let is_said = self.connection.output().is_empty() && !self.stream.wants_write();
            if let Some((reason, _)) = self.closed.take_if(|(_, end)| is_said || *end <= Instant::now()) {
                return Err(reason.into());
            }
            let can_start = running.is_none() && self.closed.is_none() && !self.connection.is_congested();
            if can_start && (rest.is_some() || !self.backlog.is_empty()) {
                let work = rest.take().unwrap_or_else(|| self.take_backlog());
                let bridge = self.bridge.clone();
                running = Some(Box::pin(async move {
                    bridge
                        .call(move |bridge| handlers::execute(bridge, id, work))
                        .await
                }));
            }
            let deadline = match &self.closed {
                Some((_, end)) => Some(*end),
                // What the controller says is not heard while its requests wait: it is not silent.
                None if !self.has_room() => None,
                None => self
                    .connection
                    .deadline()
                    .map(|at| self.epoch + at.since(Time::ZERO)),
            };
            let interest = self.interest();
            tokio::select! {
                done = async { match &mut running {
                    Some(running) => running.await,
                    None => core::future::pending().await,
                } } => {
                    running = None;
                    rest = done?;
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
                () = sleep_until(deadline) => {
                    // This task may be late: what waits at the socket was said in time.
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

    fn take_backlog(&mut self) -> Work {
        self.backlog_size = 0;
        Work::new(core::mem::take(&mut self.backlog))
    }

    fn has_room(&self) -> bool {
        self.backlog.len() < BACKLOG_LEN && self.backlog_size < BACKLOG_SIZE
    }

    /// What to wait for at the socket.
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

    async fn take_events(&mut self) -> Result<(), SessionEnd> {
        while self.has_room()
            && let Some(event) = self.connection.poll()
        {
            match event {
                Event::Ready => self.register().await?,
                Event::Request(request) => {
                    self.line.tally().messages_in.fetch_add(1, Ordering::Relaxed);
                    self.backlog_size += usize::from(request.size);
                    self.backlog.push_back(request);
                }
                Event::Rejected { header, error } => {
                    self.line.tally().messages_in.fetch_add(1, Ordering::Relaxed);
                    self.log_rejected(header, &error);
                }
                Event::PeerError(error) => {
                    tracing::warn!(
                        bridge = %self.line.bridge(), controller = %self.address, code = %error.code,
                        "the controller reports an error"
                    );
                }
                Event::Closed(reason) => {
                    self.closed = Some((reason, Instant::now() + CLOSING_TIMEOUT));
                }
            }
        }
        Ok(())
    }

    /// Makes the connection known to the control thread, before its first request gets there.
    async fn register(&mut self) -> Result<(), SessionEnd> {
        let Some(newcomer) = self.newcomer.take() else {
            return Ok(());
        };
        if let Some(pending) = self.pending.take() {
            self._established = Some(pending.establish()?);
        }
        let id = newcomer.id;
        self.registration = Some(Registration {
            bridge: self.bridge.clone(),
            id,
        });
        let is_taken = self
            .bridge
            .call(move |bridge| handlers::connected(bridge, newcomer))
            .await?;
        if !is_taken {
            return Err(SessionEnd::NoMain);
        }
        if let Some(herald) = self.herald.take() {
            // Nobody may want to know any more.
            let _unheard = herald.send(id);
        }
        self.line.set_error(None);
        self.line.set_state(ChannelState::Connected);
        // Auxiliary connections come and go with their main connection (OpenFlow 1.3.5, section 6.3.5).
        if self.terms.auxiliary.is_none() {
            self.presence = Some(Presence::begin(self.line.bridge(), &self.address));
        }
        Ok(())
    }

    /// Logs a request that cannot be decoded: one that would change the switch at WARN, as often as the limit admits.
    fn log_rejected(&self, header: Header, error: &DecodeError) {
        let (bridge, controller, xid) = (self.line.bridge(), &self.address, header.xid.0);
        let code = error.error_code();
        let request = match header.message_type() {
            Some(MessageType::FlowMod) => "flow_mod",
            Some(MessageType::GroupMod) => "group_mod",
            Some(MessageType::MeterMod) => "meter_mod",
            // A message of a bundle comes in one of the ONF's (extension 230).
            Some(MessageType::Experimenter) => "experimenter message",
            _ => {
                tracing::debug!(%bridge, %controller, xid, %code, reason = %error, "request refused");
                return;
            }
        };
        if let Some(suppressed) = self.line.admits_refusal() {
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

/// How many messages these bytes, which are whole messages, are.
fn count_messages(mut bytes: &[u8]) -> u64 {
    let mut count = 0;
    while let Some(header) = Header::parse(bytes) {
        count += 1;
        let size = usize::from(header.length).max(HEADER_SIZE);
        bytes = bytes.get(size..).unwrap_or_default();
    }
    count
}
