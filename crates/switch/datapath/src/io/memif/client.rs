//! A socket that a peer serves: the thread that connects to it, again and again.

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
use crate::io::peer::{Wake, failed};

/// How often a server is looked for.
const SEARCH: Duration = Duration::from_millis(500);
/// How long a server may take to let us in.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often to look at what changes without an event, while there is such a thing.
const TICK: Duration = Duration::from_millis(250);

/// Why there is no connection any more.
#[derive(Debug, Error)]
enum End {
    #[error("the port is closed")]
    Stopped,
    #[error("the peer went")]
    Left,
    #[error("{0}")]
    Sent(String),
    #[error(transparent)]
    System(#[from] rustix::io::Errno),
}

impl From<ConnectionError> for End {
    fn from(error: ConnectionError) -> End {
        match error {
            ConnectionError::Closed => End::Left,
            error => End::Sent(error.to_string()),
        }
    }
}

/// Connects until this is dropped.
pub(super) struct Client {
    stop: Arc<AtomicBool>,
    wake: Arc<Wake>,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    pub(super) fn start(
        path: &Path,
        interface: &Arc<Interface>,
        wake: Arc<Wake>,
    ) -> Result<Client, OpenError> {
        let stop = Arc::new(AtomicBool::new(false));
        let guest = Guest {
            path: path.to_owned(),
            interface: Arc::clone(interface),
            wake: Arc::clone(&wake),
            stop: Arc::clone(&stop),
        };
        let thread = std::thread::Builder::new()
            .name("memif".to_owned())
            .spawn(move || guest.run())
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

/// What the thread has.
struct Guest {
    path: PathBuf,
    interface: Arc<Interface>,
    wake: Arc<Wake>,
    stop: Arc<AtomicBool>,
}

/// What is shared with a server, until it is connected.
struct Shared {
    rings: Rings,
    file: OwnedFd,
    /// By which we wake the server.
    bell: OwnedFd,
    /// By which it would wake us; we poll.
    idle: OwnedFd,
}

impl Guest {
    fn run(&self) {
        while !self.stop.load(Ordering::Acquire) {
            let line = match self.call() {
                Ok(line) => line,
                Err(error) => {
                    tracing::trace!(device = %self.interface.name, %error, "memif: nobody is there");
                    self.sleep();
                    continue;
                }
            };
            let end = self.visit(&line);
            if self.interface.is_connected() {
                self.interface.disconnect();
                tracing::info!(device = %self.interface.name, "memif: the peer is gone");
            }
            if let Err(end) = end {
                match &end {
                    End::Left => {}
                    End::Stopped => {
                        let _deaf = line.send(&Message::disconnect(&end), None);
                    }
                    End::Sent(_) | End::System(_) => {
                        let _deaf = line.send(&Message::disconnect(&end), None);
                        self.interface.tell(&end);
                    }
                }
            }
            drop(line);
            self.sleep();
        }
        self.interface.collect();
    }

    /// A while, or until we end.
    fn sleep(&self) {
        let until = Instant::now() + SEARCH;
        while !self.stop.load(Ordering::Acquire) && Instant::now() < until {
            self.wait(None, Some(until - Instant::now()));
            self.interface.collect();
        }
    }

    /// Waits for a message, or to be woken.
    fn wait(&self, line: Option<&Connection>, bound: Option<Duration>) {
        let timeout = bound.map(|bound| Timespec {
            tv_sec: bound.as_secs() as i64,
            tv_nsec: i64::from(bound.subsec_nanos()),
        });
        let mut files = vec![PollFd::new(&*self.wake, PollFlags::IN)];
        files.extend(line.map(|line| PollFd::new(line, PollFlags::IN)));
        // An interrupted wait is a short one.
        let _interrupted = poll(&mut files, timeout.as_ref());
        self.wake.clear();
    }

    fn call(&self) -> rustix::io::Result<Connection> {
        // Connecting does not wait for anybody to accept, unless too many wait already.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(&self.path)?)?;
        Ok(Connection::new(socket))
    }

    /// From the first word to the last.
    fn visit(&self, line: &Connection) -> Result<(), End> {
        let interface = &self.interface;
        let mut session = Session::new(interface.id, PROGRAM, &interface.name, interface.wish());
        let since = Instant::now();
        let mut shared = None;
        loop {
            if self.stop.load(Ordering::Acquire) {
                return Err(End::Stopped);
            }
            if session.is_connected() {
                if let Some(lie) = interface.lie() {
                    return Err(End::Sent(lie.to_string()));
                }
            } else if since.elapsed() > PATIENCE {
                return Err(End::Sent(MessageError::TooSlow.to_string()));
            }
            interface.collect();
            interface.bell.attend(&interface.id.to_string());
            let Some((message, _file)) = line.receive()? else {
                let bound = (!session.is_connected()).then_some(TICK);
                self.wait(Some(line), bound);
                continue;
            };
            if let Message::Disconnect { reason, .. } = message {
                tracing::debug!(device = %interface.name, %reason, "memif: the server sends us away");
            }
            match session
                .receive(&message)
                .map_err(|refusal| End::Sent(refusal.to_string()))?
            {
                Step::Gone => return Err(End::Left),
                Step::Begin(layout, message) => {
                    let (rings, file) = Rings::create(&layout)?;
                    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
                    shared = Some(Shared {
                        rings,
                        file,
                        bell: eventfd(0, flags)?,
                        idle: eventfd(0, flags)?,
                    });
                    line.send(&message, None)?;
                }
                Step::Send(message, with) => {
                    let file = shared.as_ref().and_then(|shared| match with {
                        Attachment::Nothing => None,
                        Attachment::Memory => Some(shared.file.as_fd()),
                        Attachment::Interrupt(Direction::ToServer, 0) => Some(shared.bell.as_fd()),
                        Attachment::Interrupt(..) => Some(shared.idle.as_fd()),
                    });
                    line.send(&message, file)?;
                }
                Step::Connected(name) => {
                    if let Some(mut shared) = shared.take() {
                        for receiver in &mut shared.rings.receivers {
                            receiver.begin();
                        }
                        tracing::info!(device = %interface.name, peer = %name, "memif: a peer is there");
                        interface.connect(shared.rings, Some(shared.bell));
                    }
                }
            }
        }
    }
}
