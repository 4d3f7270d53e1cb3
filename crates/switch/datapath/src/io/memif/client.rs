//! Clients of sockets that a peer serves: the thread that connects to a socket, and reconnects.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millrace_memif::client::{Attachment, Session, Step};
use millrace_memif::ring::Rings;
use millrace_memif::{Connection, ConnectionError, Direction, Message, MessageError};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use thiserror::Error;

use super::interface::Interface;
use super::server::PROGRAM;
use crate::io::OpenError;
use crate::io::peer::{WakeEvent, failed};

/// Interval between attempts to connect.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(500);
/// Time within which a server must complete the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of checks for changes that cause no event, while such changes are possible.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The reason why a connection ended.
#[derive(Debug, Error)]
enum EndReason {
    #[error("the port is closed")]
    Stopped,
    #[error("the peer closed the connection")]
    PeerClosed,
    #[error("{0}")]
    Rejected(String),
    #[error(transparent)]
    System(#[from] rustix::io::Errno),
}

impl From<ConnectionError> for EndReason {
    fn from(error: ConnectionError) -> EndReason {
        match error {
            ConnectionError::Closed => EndReason::PeerClosed,
            error => EndReason::Rejected(error.to_string()),
        }
    }
}

/// A client, which connects until it is dropped.
pub(super) struct Client {
    stop: Arc<AtomicBool>,
    wake: Arc<WakeEvent>,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    pub(super) fn start(
        path: &Path,
        interface: &Arc<Interface>,
        wake: Arc<WakeEvent>,
    ) -> Result<Client, OpenError> {
        let stop = Arc::new(AtomicBool::new(false));
        let client = ClientThread {
            path: path.to_owned(),
            interface: Arc::clone(interface),
            wake: Arc::clone(&wake),
            stop: Arc::clone(&stop),
        };
        let thread = std::thread::Builder::new()
            .name("memif".to_owned())
            .spawn(move || client.run())
            .map_err(|error| failed(&interface.name, &error))?;
        Ok(Client {
            stop,
            wake,
            thread: Some(thread),
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.wake.wake();
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

/// The state of the client's thread.
struct ClientThread {
    path: PathBuf,
    interface: Arc<Interface>,
    wake: Arc<WakeEvent>,
    stop: Arc<AtomicBool>,
}

/// The memory and eventfds that a client shares with a server, until the connection is established.
struct SharedRings {
    rings: Rings,
    memory: OwnedFd,
    /// The eventfd by which the switch notifies the server.
    notifier: OwnedFd,
    /// The eventfd by which the server would notify the switch; the switch polls instead.
    unused: OwnedFd,
}

impl ClientThread {
    fn run(&self) {
        while !self.stop.load(Ordering::Acquire) {
            let connection = match self.connect() {
                Ok(connection) => connection,
                Err(error) => {
                    tracing::trace!(device = %self.interface.name, %error, "memif: no server at the socket");
                    self.sleep();
                    continue;
                }
            };
            let end = self.run_session(&connection);
            if self.interface.is_connected() {
                self.interface.disconnect();
                tracing::info!(device = %self.interface.name, "memif: peer disconnected");
            }
            if let Err(end) = end {
                match &end {
                    EndReason::PeerClosed => {}
                    EndReason::Stopped => {
                        let _not_reading = connection.send(&Message::disconnect(&end), None);
                    }
                    EndReason::Rejected(_) | EndReason::System(_) => {
                        let _not_reading = connection.send(&Message::disconnect(&end), None);
                        self.interface.log_closed(&end);
                    }
                }
            }
            drop(connection);
            self.sleep();
        }
        self.interface.collect();
    }

    /// Waits for [`RECONNECT_INTERVAL`], or until the client is dropped.
    fn sleep(&self) {
        let until = Instant::now() + RECONNECT_INTERVAL;
        while !self.stop.load(Ordering::Acquire) && Instant::now() < until {
            self.wait(None, Some(until - Instant::now()));
            self.interface.collect();
        }
    }

    /// Waits for a message, or for a wake-up.
    fn wait(&self, connection: Option<&Connection>, bound: Option<Duration>) {
        let timeout = bound.map(|bound| Timespec {
            tv_sec: bound.as_secs() as i64,
            tv_nsec: i64::from(bound.subsec_nanos()),
        });
        let mut files = vec![PollFd::new(&*self.wake, PollFlags::IN)];
        files.extend(connection.map(|connection| PollFd::new(connection, PollFlags::IN)));
        // An interrupted wait only ends early.
        let _interrupted = poll(&mut files, timeout.as_ref());
        self.wake.clear();
    }

    fn connect(&self) -> rustix::io::Result<Connection> {
        // Connecting does not wait until the peer accepts, unless the peer's backlog is full.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(&self.path)?)?;
        Ok(Connection::new(socket))
    }

    /// Handles a connection from the first message to the last, and returns the reason why it ended.
    fn run_session(&self, connection: &Connection) -> Result<(), EndReason> {
        let interface = &self.interface;
        let mut session = Session::new(interface.id, PROGRAM, &interface.name, interface.client_config());
        let since = Instant::now();
        let mut shared = None;
        loop {
            if self.stop.load(Ordering::Acquire) {
                return Err(EndReason::Stopped);
            }
            if session.is_connected() {
                if let Some(violation) = interface.violation() {
                    return Err(EndReason::Rejected(violation.to_string()));
                }
            } else if since.elapsed() > CONNECT_TIMEOUT {
                return Err(EndReason::Rejected(MessageError::TooSlow.to_string()));
            }
            interface.collect();
            interface.notifier.ensure_thread(&interface.id.to_string());
            let Some((message, _file)) = connection.receive()? else {
                let bound = (!session.is_connected()).then_some(CHECK_INTERVAL);
                self.wait(Some(connection), bound);
                continue;
            };
            if let Message::Disconnect { reason, .. } = message {
                tracing::debug!(device = %interface.name, %reason, "memif: the server closed the connection");
            }
            match session
                .receive(&message)
                .map_err(|error| EndReason::Rejected(error.to_string()))?
            {
                Step::Closed => return Err(EndReason::PeerClosed),
                Step::Begin(layout, message) => {
                    let (rings, memory) = Rings::create(&layout)?;
                    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
                    shared = Some(SharedRings {
                        rings,
                        memory,
                        notifier: eventfd(0, flags)?,
                        unused: eventfd(0, flags)?,
                    });
                    connection.send(&message, None)?;
                }
                Step::Send(message, with) => {
                    let file = shared.as_ref().and_then(|shared| match with {
                        Attachment::Nothing => None,
                        Attachment::Memory => Some(shared.memory.as_fd()),
                        Attachment::Interrupt(Direction::ToServer, 0) => Some(shared.notifier.as_fd()),
                        Attachment::Interrupt(..) => Some(shared.unused.as_fd()),
                    });
                    connection.send(&message, file)?;
                }
                Step::Connected(name) => {
                    if let Some(mut shared) = shared.take() {
                        for receiver in &mut shared.rings.receivers {
                            receiver.begin();
                        }
                        tracing::info!(device = %interface.name, peer = %name, "memif: peer connected");
                        interface.connect(shared.rings, Some(shared.notifier));
                    }
                }
            }
        }
    }
}
