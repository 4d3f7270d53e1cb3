//! The thread of a port: it has one driver at a time, hears it, and looks for the next when it is gone.
//!
//! Who serves the socket has others wait until the first is gone, unless that one takes up no packets for [a
//! while](super::peer). Who connects does so again and again.

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
use super::peer::{End, Peer};
use crate::io::OpenError;
use crate::io::peer::failed;
use crate::io::socket_file::SocketFile;
use crate::io::vnic::VnicSpec;

/// How often a driver's socket is looked for.
const SEARCH: Duration = Duration::from_millis(500);
/// How often to look at what changes without an event, while there is such a thing.
const TICK: Duration = Duration::from_millis(250);

const SOCKET_FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// Where drivers come from.
enum Source {
    /// They connect to us.
    Served(OwnedFd),
    /// We connect to them.
    Sought(PathBuf),
}

/// Speaks until this is dropped.
pub(super) struct Speaker {
    stop: Arc<AtomicBool>,
    interface: Arc<Interface>,
    thread: Option<JoinHandle<()>>,
    _file: Option<SocketFile>,
}

impl Speaker {
    pub(super) fn start(
        spec: &VnicSpec,
        interface: &Arc<Interface>,
        unsealed: UnsealedPolicy,
    ) -> Result<Speaker, OpenError> {
        let (source, file) = match &spec.access {
            None => (Source::Sought(spec.path.clone()), None),
            Some(access) => {
                let (file, listener) = SocketFile::make(&spec.path, access, || {
                    listener(&spec.path).map_err(|error| failed(spec, &error))
                })?;
                (Source::Served(listener), Some(file))
            }
        };
        let stop = Arc::new(AtomicBool::new(false));
        let speech = Speech {
            source,
            interface: Arc::clone(interface),
            unsealed,
            stop: Arc::clone(&stop),
        };
        let thread = std::thread::Builder::new()
            .name("vhost".to_owned())
            .spawn(move || speech.run())
            .map_err(|error| failed(spec, &error))?;
        Ok(Speaker {
            stop,
            interface: Arc::clone(interface),
            thread: Some(thread),
            _file: file,
        })
    }
}

impl Drop for Speaker {
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

fn called(path: &Path) -> rustix::io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SOCKET_FLAGS, None)?;
    // It does not wait for anybody to accept.
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// What the thread has.
struct Speech {
    source: Source,
    interface: Arc<Interface>,
    unsealed: UnsealedPolicy,
    stop: Arc<AtomicBool>,
}

/// What there is to do.
#[derive(Default)]
struct Events {
    /// The driver says something, or goes.
    is_heard: bool,
    /// Another one is there.
    is_called: bool,
}

impl Speech {
    fn run(&self) {
        let interface = &*self.interface;
        let mut peer = None;
        while !self.stop.load(Ordering::Acquire) {
            interface.attend();
            let Some(some) = &mut peer else {
                peer = self.meet();
                continue;
            };
            let events = self.wait(Some(some));
            interface.wake.clear();
            if let Err(end) = self.attend(some, &events) {
                peer = None;
                self.part(&end);
            }
        }
    }

    /// Waits for a driver, or for whatever else happens.
    fn meet(&self) -> Option<Peer<'_>> {
        let socket = match &self.source {
            Source::Served(listener) => {
                if !self.wait(None).is_called {
                    self.interface.wake.clear();
                    return None;
                }
                accept_with(listener, SOCKET_FLAGS)
            }
            Source::Sought(path) => called(path),
        };
        match socket {
            Ok(socket) => {
                tracing::debug!(device = %self.interface.name, "vhost: a peer is there");
                return Some(Peer::new(socket, &self.interface, self.unsealed));
            }
            Err(Errno::AGAIN) if matches!(self.source, Source::Served(_)) => {}
            Err(error) => {
                tracing::trace!(device = %self.interface.name, %error, "vhost: nobody is there");
                self.rest();
            }
        }
        None
    }

    /// What a connection's end means.
    fn part(&self, end: &End) {
        match end {
            End::Left => tracing::debug!(device = %self.interface.name, "vhost: the peer is gone"),
            End::Sent(reason) => self.interface.tell(reason),
        }
        if matches!(self.source, Source::Sought(_)) {
            self.rest();
        }
    }

    fn attend(&self, peer: &mut Peer<'_>, events: &Events) -> Result<(), End> {
        peer.check()?;
        if events.is_heard {
            peer.hear()?;
        }
        if events.is_called && peer.yields_at().is_some_and(|at| at <= Instant::now()) {
            return Err(MessageError::Idle.into());
        }
        Ok(())
    }

    /// A while, or until we end.
    fn rest(&self) {
        let until = Instant::now() + SEARCH;
        while !self.stop.load(Ordering::Acquire) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let mut fds = [PollFd::new(&self.interface.wake, PollFlags::IN)];
            let _interrupted = poll(&mut fds, Some(&timespec(left)));
            self.interface.wake.clear();
            self.interface.attend();
        }
    }

    /// Waits for something to do.
    fn wait(&self, peer: Option<&Peer<'_>>) -> Events {
        let now = Instant::now();
        let yields_at = peer.and_then(Peer::yields_at);
        let may_call = peer.is_none() || yields_at.is_some_and(|at| at <= now);
        let listener = match &self.source {
            Source::Served(listener) if may_call => Some(listener.as_fd()),
            _ => None,
        };
        let ticks = peer.is_some_and(Peer::ticks).then_some(TICK);
        let yields = yields_at.filter(|_| !may_call).map(|at| at - now);
        let timeout = ticks.into_iter().chain(yields).min().map(timespec);
        let wake = self.interface.wake.as_fd();
        let of_peer = peer.map(AsFd::as_fd);
        let mut fds: Vec<PollFd<'_>> = [Some(wake), of_peer, listener]
            .into_iter()
            .flatten()
            .map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN))
            .collect();
        // An interrupted wait is a short one.
        if poll(&mut fds, timeout.as_ref()).is_err() {
            return Events::default();
        }
        let mut ready = fds.iter().skip(1).map(|file| !file.revents().is_empty());
        Events {
            is_heard: peer.is_some() && ready.next().unwrap_or(false),
            is_called: listener.is_some() && ready.next().unwrap_or(false),
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs() as i64,
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
