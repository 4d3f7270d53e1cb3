//! A socket that we serve: its file, the thread that hears clients, and the interfaces behind it.
//!
//! Clients cost little and hold up nobody: one that has not connected within [`PATIENCE`] goes, of those that have not even
//! chosen an interface there are at most [`STRANGERS_MAX`], and each says a few messages before the others are heard.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millrace_memif::region::{Regions, UnsealedPolicy};
use millrace_memif::ring::Rings;
use millrace_memif::server::{Limits, Session, Step};
use millrace_memif::{Connection, ConnectionError, Message, MessageError, Name};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};

use super::interface::Interface;
use crate::io::peer::{Wake, failed};
use crate::io::socket_file::SocketFile;
use crate::io::{OpenError, vnic::SocketAccess};

/// How long a client may take to connect.
const PATIENCE: Duration = Duration::from_secs(5);
/// Clients that have not chosen an interface.
const STRANGERS_MAX: usize = 16;
/// Messages of one client before the others are heard.
const MESSAGES_MAX: usize = 8;
/// How often to look at what changes without an event, while there is such a thing.
const TICK: Duration = Duration::from_millis(250);
/// What we call ourselves.
pub(super) const PROGRAM: &str = "millrace";

type Interfaces = Mutex<BTreeMap<u32, Arc<Interface>>>;

struct Shared {
    interfaces: Interfaces,
    wake: Arc<Wake>,
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
        let wake = Arc::new(Wake::new().map_err(|error| failed(&device, &error))?);
        let shared = Arc::new(Shared {
            interfaces: Mutex::default(),
            wake,
            stop: AtomicBool::new(false),
            unsealed,
        });
        let thread = std::thread::Builder::new().name("memif".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                Host {
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

    pub(super) fn wake(&self) -> Arc<Wake> {
        Arc::clone(&self.shared.wake)
    }

    /// From now on clients may choose this interface.
    pub(super) fn add(&self, interface: &Arc<Interface>) -> Result<(), OpenError> {
        let mut interfaces = lock(&self.shared.interfaces);
        if interfaces.contains_key(&interface.id) {
            return Err(OpenError::Busy {
                device: interface.name.clone(),
                reason: format!("another port is interface {} of {}", interface.id, self.path),
                remedy: "give each port of a socket an id of its own".to_owned(),
            });
        }
        interfaces.insert(interface.id, Arc::clone(interface));
        Ok(())
    }

    /// The port goes: its client is told.
    pub(super) fn remove(&self, interface: &Arc<Interface>) {
        lock(&self.shared.interfaces).remove(&interface.id);
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

fn lock(interfaces: &Interfaces) -> std::sync::MutexGuard<'_, BTreeMap<u32, Arc<Interface>>> {
    interfaces.lock().unwrap_or_else(PoisonError::into_inner)
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
    line: Connection,
    session: Session<OwnedFd>,
    since: Instant,
    interface: Option<Arc<Interface>>,
    /// What it shares, once it is connected.
    memory: Option<Arc<Regions>>,
}

/// Why a client goes.
enum End {
    /// By itself.
    Left,
    /// We say so.
    Sent(String),
    /// The port or the switch goes.
    Closed,
}

impl From<MessageError> for End {
    fn from(refusal: MessageError) -> End {
        End::Sent(refusal.to_string())
    }
}

impl From<ConnectionError> for End {
    fn from(error: ConnectionError) -> End {
        match error {
            ConnectionError::Closed => End::Left,
            error => End::Sent(error.to_string()),
        }
    }
}

/// What the thread has.
struct Host {
    listener: OwnedFd,
    shared: Arc<Shared>,
    peers: Vec<Peer>,
}

impl Host {
    fn run(mut self) {
        // Whether workers may still have something of a connection that is over.
        let mut is_untidy = false;
        loop {
            let (is_called, heard) = self.wait(is_untidy);
            self.shared.wake.clear();
            if self.shared.stop.load(Ordering::Acquire) {
                break;
            }
            let interfaces: Vec<Arc<Interface>> = lock(&self.shared.interfaces).values().cloned().collect();
            for interface in &interfaces {
                interface.collect();
                interface.bell.attend(&interface.id.to_string());
            }
            is_untidy = false;
            for at in (0..self.peers.len()).rev() {
                let is_heard = heard.get(at).copied().unwrap_or(false);
                if let Err(end) = self.attend(at, is_heard, &interfaces) {
                    is_untidy |= self.dismiss(at, end);
                }
            }
            if is_called {
                self.accept();
            }
        }
        while !self.peers.is_empty() {
            self.dismiss(0, End::Closed);
        }
    }

    /// Waits for something to do. Whether somebody calls, and which clients say something.
    fn wait(&self, is_untidy: bool) -> (bool, Vec<bool>) {
        let ticks = |peer: &Peer| match &peer.memory {
            None => true,
            Some(memory) => memory.can_shrink(),
        };
        let timeout = (is_untidy || self.peers.iter().any(ticks)).then(|| Timespec {
            tv_sec: 0,
            tv_nsec: TICK.as_nanos() as i64,
        });
        let mut files = vec![
            PollFd::new(&self.listener, PollFlags::IN),
            PollFd::new(&*self.shared.wake, PollFlags::IN),
        ];
        files.extend(
            self.peers
                .iter()
                .map(|peer| PollFd::new(&peer.line, PollFlags::IN)),
        );
        // An interrupted wait is a short one.
        if poll(&mut files, timeout.as_ref()).is_err() {
            return (false, Vec::new());
        }
        let mut ready = files.iter().map(|file| !file.revents().is_empty());
        let is_called = ready.next().unwrap_or(false);
        (is_called, ready.skip(1).collect())
    }

    fn accept(&mut self) {
        for _ in 0..STRANGERS_MAX {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                Err(rustix::io::Errno::AGAIN) => return,
                Err(error) => {
                    tracing::warn!(%error, "memif: a client cannot be let in");
                    // Whoever calls goes on to; so that this is not all that happens.
                    std::thread::sleep(TICK);
                    return;
                }
            };
            let line = Connection::new(socket);
            let limits = lock(&self.shared.interfaces)
                .values()
                .map(|interface| interface.limits())
                .reduce(|a, b| Limits {
                    to_server: a.to_server.max(b.to_server),
                    to_client: a.to_client.max(b.to_client),
                });
            let Some(limits) = limits else { return };
            if line
                .send(&Session::<OwnedFd>::hello(PROGRAM, limits), None)
                .is_err()
            {
                continue;
            }
            // The one that said nothing for longest makes place.
            let mut strangers = (0..self.peers.len()).filter(|at| self.peers[*at].interface.is_none());
            if let Some(oldest) = strangers.next()
                && strangers.count() + 1 >= STRANGERS_MAX
            {
                self.dismiss(oldest, MessageError::TooMany.into());
            }
            self.peers.push(Peer {
                line,
                session: Session::default(),
                since: Instant::now(),
                interface: None,
                memory: None,
            });
        }
    }

    /// Hears a client, and looks whether it may stay.
    fn attend(&mut self, at: usize, is_heard: bool, interfaces: &[Arc<Interface>]) -> Result<(), End> {
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
                return Err(End::Closed);
            }
            if let Some(memory) = &peer.memory {
                if let Some(lie) = interface.lie() {
                    return Err(End::Sent(lie.to_string()));
                }
                memory.check()?;
            }
        }
        if !peer.session.is_connected() && peer.since.elapsed() > PATIENCE {
            return Err(MessageError::TooSlow.into());
        }
        if is_heard {
            for _ in 0..MESSAGES_MAX {
                if !peer.hear(interfaces, &taken, self.shared.unsealed)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Ends a client's connection. Returns whether it was connected.
    fn dismiss(&mut self, at: usize, end: End) -> bool {
        let peer = self.peers.remove(at);
        let was_connected = peer.memory.is_some();
        if was_connected && let Some(interface) = &peer.interface {
            interface.disconnect();
            tracing::info!(device = %interface.name, "memif: the peer is gone");
        }
        // Whoever does not listen is not told.
        match end {
            End::Left => {}
            End::Closed => {
                let _deaf = peer.line.send(&Message::disconnect(&"the port is closed"), None);
            }
            End::Sent(reason) => {
                let _deaf = peer.line.send(&Message::disconnect(&reason), None);
                match &peer.interface {
                    Some(interface) => interface.tell(&reason),
                    None => tracing::debug!(%reason, "memif: a stranger was sent away"),
                }
            }
        }
        was_connected
    }
}

impl Peer {
    /// Hears one message. Returns whether there was one.
    fn hear(
        &mut self,
        interfaces: &[Arc<Interface>],
        taken: &[u32],
        unsealed: UnsealedPolicy,
    ) -> Result<bool, End> {
        let Some((message, file)) = self.line.receive()? else {
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
            Step::Gone => return Err(End::Left),
            Step::Reply(reply) => self.line.send(&reply, None)?,
            Step::Connect(offer) => {
                let Some(interface) = &self.interface else {
                    return Err(End::Left);
                };
                let program = offer.program;
                let (rings, interrupts) = Rings::open(*offer, unsealed)?;
                let connected = Message::Connected {
                    name: Name::new(&interface.name),
                };
                self.line.send(&connected, None)?;
                self.memory = Some(Arc::clone(&rings.memory));
                tracing::info!(device = %interface.name, %program, queues = rings.receivers.len(), "memif: a peer is there");
                interface.connect(rings, interrupts.into_iter().next());
            }
        }
        Ok(true)
    }
}

impl AsFd for Peer {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.line.as_fd()
    }
}
