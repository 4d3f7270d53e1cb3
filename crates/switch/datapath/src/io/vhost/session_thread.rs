//! The thread of a port. It serves one driver at a time, and waits for the next driver after a disconnection.
//!
//! If the switch serves the socket, other drivers wait until the first one has disconnected. They replace the
//! first one if it does not start its rings within [some time](super::peer). If the switch connects to a
//! socket, it reconnects.
//!
//! ```text
//!              accept or connect                rings started: link up
//!   no peer ----------------------> connected <-----------------------> link up
//!      ^                                |                                  |
//!      +------ closed, violation, or idle while another driver waits ------+
//! ```

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millrace_vhost::MessageError;
use millrace_vhost::memory::UnsealedPolicy;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
};

use super::interface::Interface;
use super::peer::{EndReason, Peer};
use crate::io::OpenError;
use crate::io::peer::failed;
use crate::io::socket_file::SocketFile;
use crate::io::vnic::VnicSpec;

/// Interval between attempts to connect.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(500);
/// Interval of checks for changes that cause no event, while such changes are possible.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

const SOCKET_FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// The source of connections.
enum Source {
    /// The switch serves the socket, and drivers connect to it.
    Listen(OwnedFd),
    /// The switch connects to a socket that the driver serves.
    Connect(PathBuf),
}

/// The thread, which runs until this is dropped.
pub(super) struct SessionThread {
    stop: Arc<AtomicBool>,
    interface: Arc<Interface>,
    thread: Option<JoinHandle<()>>,
    _file: Option<SocketFile>,
}

impl SessionThread {
    pub(super) fn start(
        spec: &VnicSpec,
        interface: &Arc<Interface>,
        unsealed: UnsealedPolicy,
    ) -> Result<SessionThread, OpenError> {
        let (source, file) = match &spec.access {
            None => (Source::Connect(spec.path.clone()), None),
            Some(access) => {
                let (file, listener) = SocketFile::make(&spec.path, access, || {
                    listener(&spec.path).map_err(|error| failed(spec, &error))
                })?;
                (Source::Listen(listener), Some(file))
            }
        };
        let stop = Arc::new(AtomicBool::new(false));
        let session_loop = SessionLoop {
            source,
            interface: Arc::clone(interface),
            unsealed,
            stop: Arc::clone(&stop),
        };
        let thread = std::thread::Builder::new()
            .name("vhost".to_owned())
            .spawn(move || session_loop.run())
            .map_err(|error| failed(spec, &error))?;
        Ok(SessionThread {
            stop,
            interface: Arc::clone(interface),
            thread: Some(thread),
            _file: file,
        })
    }
}

impl Drop for SessionThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.interface.wake.wake();
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
        self.interface.close();
    }
}

fn listener(path: &Path) -> rustix::io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SOCKET_FLAGS, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, 16)?;
    Ok(socket)
}

fn connected(path: &Path) -> rustix::io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SOCKET_FLAGS, None)?;
    // Connecting does not wait until the peer accepts.
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// The state of the thread.
struct SessionLoop {
    source: Source,
    interface: Arc<Interface>,
    unsealed: UnsealedPolicy,
    stop: Arc<AtomicBool>,
}

/// The events that a wait returns.
#[derive(Default)]
struct Events {
    /// The driver has sent something, or has disconnected.
    is_readable: bool,
    /// Another driver wants to connect.
    has_new_peer: bool,
}

impl SessionLoop {
    fn run(&self) {
        let interface = &*self.interface;
        let mut peer = None;
        while !self.stop.load(Ordering::Acquire) {
            interface.ensure_notifier_threads();
            let Some(some) = &mut peer else {
                peer = self.wait_for_peer();
                continue;
            };
            let events = self.wait(Some(some));
            interface.wake.clear();
            if let Err(end) = self.serve(some, &events) {
                peer = None;
                self.log_end(&end);
            }
        }
    }

    /// Waits for a driver or a wake-up, or connects to a driver.
    fn wait_for_peer(&self) -> Option<Peer<'_>> {
        let socket = match &self.source {
            Source::Listen(listener) => {
                if !self.wait(None).has_new_peer {
                    self.interface.wake.clear();
                    return None;
                }
                accept_with(listener, SOCKET_FLAGS)
            }
            Source::Connect(path) => connected(path),
        };
        match socket {
            Ok(socket) => {
                tracing::debug!(device = %self.interface.name, "vhost: peer connected");
                return Some(Peer::new(socket, &self.interface, self.unsealed));
            }
            Err(Errno::AGAIN) if matches!(self.source, Source::Listen(_)) => {}
            Err(error) => {
                tracing::trace!(device = %self.interface.name, %error, "vhost: no driver at the socket");
                self.pause();
            }
        }
        None
    }

    /// Logs the end of a connection, and waits before the next one if the switch connects.
    fn log_end(&self, end: &EndReason) {
        match end {
            EndReason::PeerClosed => {
                tracing::debug!(device = %self.interface.name, "vhost: peer disconnected");
            }
            EndReason::Rejected(reason) => self.interface.log_closed(reason),
        }
        if matches!(self.source, Source::Connect(_)) {
            self.pause();
        }
    }

    fn serve(&self, peer: &mut Peer<'_>, events: &Events) -> Result<(), EndReason> {
        peer.check()?;
        if events.is_readable {
            peer.receive()?;
        }
        if events.has_new_peer && peer.replaceable_at().is_some_and(|at| at <= Instant::now()) {
            return Err(MessageError::Idle.into());
        }
        Ok(())
    }

    /// Waits for [`RECONNECT_INTERVAL`], or until the thread is to end.
    fn pause(&self) {
        let until = Instant::now() + RECONNECT_INTERVAL;
        while !self.stop.load(Ordering::Acquire) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let mut fds = [PollFd::new(&self.interface.wake, PollFlags::IN)];
            let _interrupted = poll(&mut fds, Some(&timespec(left)));
            self.interface.wake.clear();
            self.interface.ensure_notifier_threads();
        }
    }

    /// Waits for events.
    fn wait(&self, peer: Option<&Peer<'_>>) -> Events {
        let now = Instant::now();
        let replaceable_at = peer.and_then(Peer::replaceable_at);
        let may_accept = peer.is_none() || replaceable_at.is_some_and(|at| at <= now);
        let listener = match &self.source {
            Source::Listen(listener) if may_accept => Some(listener.as_fd()),
            _ => None,
        };
        let check = peer.is_some_and(Peer::needs_checks).then_some(CHECK_INTERVAL);
        let replaceable = replaceable_at.filter(|_| !may_accept).map(|at| at - now);
        let timeout = check.into_iter().chain(replaceable).min().map(timespec);
        let wake = self.interface.wake.as_fd();
        let of_peer = peer.map(AsFd::as_fd);
        let mut fds: Vec<PollFd<'_>> = [Some(wake), of_peer, listener]
            .into_iter()
            .flatten()
            .map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN))
            .collect();
        // An interrupted wait only ends early.
        if poll(&mut fds, timeout.as_ref()).is_err() {
            return Events::default();
        }
        let mut ready = fds.iter().skip(1).map(|file| !file.revents().is_empty());
        Events {
            is_readable: peer.is_some() && ready.next().unwrap_or(false),
            has_new_peer: listener.is_some() && ready.next().unwrap_or(false),
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs() as i64,
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
