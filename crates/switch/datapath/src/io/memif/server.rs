//! A socket that the switch serves: its file, the thread that handles clients, and the socket's interfaces.
//!
//! Clients cost little and do not delay each other: a client that has not connected within
//! [`CONNECT_TIMEOUT`] is closed, at most [`UNASSIGNED_MAX`] clients have not yet chosen an interface, and
//! the thread handles only a few messages of one client before it handles the next client.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millrace_memif::region::{Regions, UnsealedPolicy};
use millrace_memif::ring::Rings;
use millrace_memif::server::{Limits, Session, Step};
use millrace_memif::{Connection, ConnectionError, Message, MessageError, Name};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};

use super::interface::Interface;
use crate::io::peer::{WakeEvent, failed};
use crate::io::socket_file::SocketFile;
use crate::io::{OpenError, vnic::SocketAccess};

/// Time within which a client must complete the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of clients that have not chosen an interface.
const UNASSIGNED_MAX: usize = 16;
/// Maximum number of messages of one client before other clients are handled.
const MESSAGES_MAX: usize = 8;
/// Interval of checks for changes that cause no event, while such changes are possible.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// The name of this program in messages.
pub(super) const PROGRAM: &str = "millrace";

type Interfaces = Mutex<BTreeMap<u32, Arc<Interface>>>;

struct Shared {
    interfaces: Interfaces,
    wake: Arc<WakeEvent>,
    stop: AtomicBool,
    unsealed: UnsealedPolicy,
}

/// A socket that is served until this is dropped.
pub(super) struct Server {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    path: String,
    _file: SocketFile,
}

impl Server {
    pub(super) fn start(
        path: &Path,
        access: &SocketAccess,
        unsealed: UnsealedPolicy,
    ) -> Result<Server, OpenError> {
        let device = path.display().to_string();
        let (file, listener) = SocketFile::make(path, access, || {
            listener(path).map_err(|error| failed(&device, &error))
        })?;
        let wake = Arc::new(WakeEvent::new().map_err(|error| failed(&device, &error))?);
        let shared = Arc::new(Shared {
            interfaces: Mutex::default(),
            wake,
            stop: AtomicBool::new(false),
            unsealed,
        });
        let thread = std::thread::Builder::new().name("memif".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                ServerThread {
                    listener,
                    shared,
                    peers: Vec::new(),
                }
                .run();
            }
        });
        Ok(Server {
            shared,
            thread: Some(thread.map_err(|error| failed(&device, &error))?),
            path: device,
            _file: file,
        })
    }

    pub(super) fn wake(&self) -> Arc<WakeEvent> {
        Arc::clone(&self.shared.wake)
    }

    /// Adds an interface, which clients may choose from now on.
    pub(super) fn add(&self, interface: &Arc<Interface>) -> Result<(), OpenError> {
        let mut interfaces = self.shared.interfaces.lock();
        if interfaces.contains_key(&interface.id) {
            return Err(OpenError::Busy {
                device: interface.name.clone(),
                reason: format!("another port is interface {} of {}", interface.id, self.path),
                next_step: "give each port of a socket an id of its own".to_owned(),
            });
        }
        interfaces.insert(interface.id, Arc::clone(interface));
        Ok(())
    }

    /// Removes an interface, and closes the connection of its client.
    pub(super) fn remove(&self, interface: &Arc<Interface>) {
        self.shared.interfaces.lock().remove(&interface.id);
        self.shared.wake.wake();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake.wake();
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

fn listener(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, 64)?;
    Ok(socket)
}

/// A client.
struct Peer {
    connection: Connection,
    session: Session<OwnedFd>,
    since: Instant,
    interface: Option<Arc<Interface>>,
    /// The memory that the client shares, once it is connected.
    memory: Option<Arc<Regions>>,
}

/// The reason why a client's connection ends.
enum EndReason {
    /// The client has closed it.
    PeerClosed,
    /// The server closes it, with this reason.
    Rejected(String),
    /// The port is removed, or the switch ends.
    Closed,
}

impl From<MessageError> for EndReason {
    fn from(error: MessageError) -> EndReason {
        EndReason::Rejected(error.to_string())
    }
}

impl From<ConnectionError> for EndReason {
    fn from(error: ConnectionError) -> EndReason {
        match error {
            ConnectionError::Closed => EndReason::PeerClosed,
            error => EndReason::Rejected(error.to_string()),
        }
    }
}

/// The state of the server's thread.
struct ServerThread {
    listener: OwnedFd,
    shared: Arc<Shared>,
    peers: Vec<Peer>,
}

impl ServerThread {
    fn run(mut self) {
        // True if workers may still have rings of a connection that is closed.
        let mut has_retired = false;
        loop {
            let (has_client, readable) = self.wait(has_retired);
            self.shared.wake.clear();
            if self.shared.stop.load(Ordering::Acquire) {
                break;
            }
            let interfaces: Vec<Arc<Interface>> = self.shared.interfaces.lock().values().cloned().collect();
            for interface in &interfaces {
                interface.collect();
                interface.notifier.ensure_thread(&interface.id.to_string());
            }
            has_retired = false;
            for at in (0..self.peers.len()).rev() {
                let is_readable = readable.get(at).copied().unwrap_or(false);
                if let Err(end) = self.serve(at, is_readable, &interfaces) {
                    has_retired |= self.close(at, end);
                }
            }
            if has_client {
                self.accept();
            }
        }
        while !self.peers.is_empty() {
            self.close(0, EndReason::Closed);
        }
    }

    /// Waits for events. Returns true if a client wants to connect, and true for each client that has sent
    /// something.
    fn wait(&self, has_retired: bool) -> (bool, Vec<bool>) {
        let needs_checks = |peer: &Peer| match &peer.memory {
            None => true,
            Some(memory) => memory.can_shrink(),
        };
        let timeout = (has_retired || self.peers.iter().any(needs_checks)).then(|| Timespec {
            tv_sec: 0,
            tv_nsec: CHECK_INTERVAL.as_nanos() as i64,
        });
        let mut files = vec![
            PollFd::new(&self.listener, PollFlags::IN),
            PollFd::new(&*self.shared.wake, PollFlags::IN),
        ];
        files.extend(
            self.peers
                .iter()
                .map(|peer| PollFd::new(&peer.connection, PollFlags::IN)),
        );
        // An interrupted wait only ends early.
        if poll(&mut files, timeout.as_ref()).is_err() {
            return (false, Vec::new());
        }
        let mut ready = files.iter().map(|file| !file.revents().is_empty());
        let has_client = ready.next().unwrap_or(false);
        (has_client, ready.skip(1).collect())
    }

    fn accept(&mut self) {
        for _ in 0..UNASSIGNED_MAX {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                Err(rustix::io::Errno::AGAIN) => return,
                Err(error) => {
                    tracing::warn!(%error, "memif: a client cannot be accepted");
                    // Clients that keep connecting must not keep the thread busy.
                    std::thread::sleep(CHECK_INTERVAL);
                    return;
                }
            };
            let connection = Connection::new(socket);
            let limits = self
                .shared
                .interfaces
                .lock()
                .values()
                .map(|interface| interface.limits())
                .reduce(|a, b| Limits {
                    to_server: a.to_server.max(b.to_server),
                    to_client: a.to_client.max(b.to_client),
                });
            let Some(limits) = limits else { return };
            if connection
                .send(&Session::<OwnedFd>::hello(PROGRAM, limits), None)
                .is_err()
            {
                continue;
            }
            // The oldest client without an interface is closed to make room.
            let mut unassigned = (0..self.peers.len()).filter(|at| self.peers[*at].interface.is_none());
            if let Some(oldest) = unassigned.next()
                && unassigned.count() + 1 >= UNASSIGNED_MAX
            {
                self.close(oldest, MessageError::TooMany.into());
            }
            self.peers.push(Peer {
                connection,
                session: Session::default(),
                since: Instant::now(),
                interface: None,
                memory: None,
            });
        }
    }

    /// Handles the messages of a client. Returns the reason if its connection must end.
    fn serve(
        &mut self,
        at: usize,
        is_readable: bool,
        interfaces: &[Arc<Interface>],
    ) -> Result<(), EndReason> {
        let taken: Vec<u32> = self
            .peers
            .iter()
            .filter_map(|peer| peer.interface.as_ref().map(|interface| interface.id))
            .collect();
        let Some(peer) = self.peers.get_mut(at) else {
            return Ok(());
        };
        if let Some(interface) = &peer.interface {
            if !interfaces.iter().any(|known| Arc::ptr_eq(known, interface)) {
                return Err(EndReason::Closed);
            }
            if let Some(memory) = &peer.memory {
                if let Some(violation) = interface.violation() {
                    return Err(EndReason::Rejected(violation.to_string()));
                }
                memory.check()?;
            }
        }
        if !peer.session.is_connected() && peer.since.elapsed() > CONNECT_TIMEOUT {
            return Err(MessageError::TooSlow.into());
        }
        if is_readable {
            for _ in 0..MESSAGES_MAX {
                if !peer.receive(interfaces, &taken, self.shared.unsealed)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Ends a client's connection. Returns true if it was connected.
    fn close(&mut self, at: usize, end: EndReason) -> bool {
        let peer = self.peers.remove(at);
        let was_connected = peer.memory.is_some();
        if was_connected && let Some(interface) = &peer.interface {
            interface.disconnect();
            tracing::info!(device = %interface.name, "memif: peer disconnected");
        }
        // A peer that does not read its socket does not get the message.
        match end {
            EndReason::PeerClosed => {}
            EndReason::Closed => {
                let _not_reading = peer
                    .connection
                    .send(&Message::disconnect(&"the port is closed"), None);
            }
            EndReason::Rejected(reason) => {
                let _not_reading = peer.connection.send(&Message::disconnect(&reason), None);
                match &peer.interface {
                    Some(interface) => interface.log_closed(&reason),
                    None => {
                        tracing::debug!(%reason, "memif: closed a client that had not chosen an interface");
                    }
                }
            }
        }
        was_connected
    }
}

impl Peer {
    /// Handles one message. Returns false if there was none.
    fn receive(
        &mut self,
        interfaces: &[Arc<Interface>],
        taken: &[u32],
        unsealed: UnsealedPolicy,
    ) -> Result<bool, EndReason> {
        let Some((message, file)) = self.connection.receive()? else {
            return Ok(false);
        };
        let mut chosen = None;
        let step = self.session.receive(&message, file, |id| {
            let interface = interfaces.iter().find(|interface| interface.id == id);
            let interface = interface.ok_or(MessageError::NoInterface { id })?;
            if taken.contains(&id) {
                return Err(MessageError::Taken { id });
            }
            chosen = Some(Arc::clone(interface));
            Ok(interface.limits())
        })?;
        if chosen.is_some() {
            self.interface = chosen;
        }
        match step {
            Step::Closed => return Err(EndReason::PeerClosed),
            Step::Reply(reply) => self.connection.send(&reply, None)?,
            Step::Connect(offer) => {
                let Some(interface) = &self.interface else {
                    debug_assert!(false, "a session chooses an interface before it connects");
                    return Err(EndReason::PeerClosed);
                };
                let program = offer.program;
                let (rings, interrupts) = Rings::open(*offer, unsealed)?;
                let connected = Message::Connected {
                    name: Name::new(&interface.name),
                };
                self.connection.send(&connected, None)?;
                self.memory = Some(Arc::clone(&rings.memory));
                tracing::info!(device = %interface.name, %program, queues = rings.receivers.len(), "memif: peer connected");
                interface.connect(rings, interrupts.into_iter().next());
            }
        }
        Ok(true)
    }
}

impl AsFd for Peer {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
