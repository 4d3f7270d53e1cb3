//! The FPM listener: a thread that accepts zebra's connection in the namespace of a VRF, and turns its messages into events.
//!
//! zebra connects and sends all routes and nexthop objects, and then the changes; it waits while its connection is full. It has
//! no sessions to compare, so that the newest connection is the one that counts: a connection that replaces another is the end
//! of the other one. FRR 8.4.4 marks no end of its replay, and takes no answers.

mod frames;
mod replacement;

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;

use millrace_rib::event::{Change, Source};
use millrace_rib::{Event, Netns};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{setsockopt, sockopt};

use crate::namespace::{Namespace, NamespaceError};
use crate::outbox::{ConsumerGone, Outbox};
use crate::status::{Shared, Status};
use crate::translate::{Origin, Translator};
use crate::wire::{self, Content, Messages};

pub use frames::{Frames, ProtocolViolation};

/// A listener for zebra. It closes when this handle is dropped, as soon as the consumer has taken the batch that waits, or has
/// dropped its end of the channel.
pub struct Fpm {
    local: SocketAddr,
    control: Arc<Control>,
    status: Arc<Shared>,
}

struct Control {
    wake: EventFd,
    stop: AtomicBool,
}

impl Fpm {
    /// Opens a listener at `address` in a namespace. [`Change::Opened`] tells that zebra has connected, [`Change::Closed`] that
    /// the connection ended.
    ///
    /// # Errors
    /// Returns [`NamespaceError`], which names the address if it is taken.
    pub fn open(
        netns: Netns,
        namespace: &Namespace,
        address: SocketAddr,
        events: SyncSender<Vec<Event>>,
    ) -> Result<Fpm, NamespaceError> {
        let failed = |doing, source| NamespaceError::Failed {
            namespace: namespace.clone(),
            doing,
            source,
        };
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|errno| failed("create an event descriptor", errno.into()))?;
        let control = Arc::new(Control {
            wake,
            stop: AtomicBool::new(false),
        });
        let status = Arc::new(Shared::default());
        let (hand_over, handed_over) = std::sync::mpsc::sync_channel(1);
        let begin = move || {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
            let open = || {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok((listener.local_addr()?, listener))
            };
            let (local, listener) = open().map_err(|error| ("listen for FPM", named(error)))?;
            // The receiver waits for it.
            let _sent = hand_over.send(local);
            Ok(listener)
        };
        let server = Server {
            control: Arc::clone(&control),
            outbox: Outbox::new(netns, Source::Fpm, events),
            translator: Translator::default(),
            messages: 0,
            session: None,
            status: Arc::clone(&status),
        };
        let _thread = namespace.spawn(format!("fpm-{}", netns.0), begin, move |listener| {
            server.run(&listener);
        })?;
        let local = handed_over
            .recv()
            .map_err(|_| failed("listen for FPM", io::Error::other("the thread ended")))?;
        Ok(Fpm {
            local,
            control,
            status,
        })
    }

    /// Returns the address of the listener: with the port that the kernel chose if port 0 was asked for.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the state and the counters.
    pub fn status(&self) -> Status {
        self.status.read()
    }
}

impl Drop for Fpm {
    fn drop(&mut self) {
        self.control.stop.store(true, Ordering::Release);
        // The counter of the event only overflows if the thread is about to be woken anyway.
        let _full = self.control.wake.write(1);
    }
}

struct Session {
    stream: TcpStream,
    frames: Frames,
}

struct Server {
    control: Arc<Control>,
    outbox: Outbox,
    translator: Translator,
    messages: u64,
    session: Option<Session>,
    status: Arc<Shared>,
}

/// The reason why a session ended.
enum End {
    /// The consumer took no more events.
    ConsumerGone,
    /// zebra closed the connection.
    Closed,
    Failed(String),
}

impl From<ConsumerGone> for End {
    fn from(_: ConsumerGone) -> End {
        End::ConsumerGone
    }
}

impl Server {
    fn run(mut self, listener: &TcpListener) {
        self.status.change(|status| status.is_open = true);
        while !self.control.stop.load(Ordering::Acquire) {
            if self.turn(listener).is_err() {
                break;
            }
        }
        // If the consumer is gone, there is nobody to tell.
        let _gone = self.close("");
        self.status.change(|status| status.is_open = false);
    }

    /// Waits, and does what there is to do.
    fn turn(&mut self, listener: &TcpListener) -> Result<(), ConsumerGone> {
        let (has_caller, has_bytes) = self.wait(listener);
        if has_bytes {
            match self.read() {
                Ok(()) => {}
                Err(End::ConsumerGone) => return Err(ConsumerGone),
                Err(End::Closed) => self.close("")?,
                Err(End::Failed(error)) => self.close(&error)?,
            }
            self.outbox.flush()?;
            let (messages, ignored) = (self.messages, self.translator.ignored);
            self.status.change(|status| {
                status.messages = messages;
                status.ignored = ignored;
            });
        }
        if has_caller {
            self.accept(listener)?;
        }
        Ok(())
    }

    /// Waits for a connection, for bytes of the session, or for the end; returns which of the first two are there.
    fn wait(&self, listener: &TcpListener) -> (bool, bool) {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let session: Option<BorrowedFd<'_>> = self.session.as_ref().map(|session| session.stream.as_fd());
        let mut fds = vec![readable(self.control.wake.as_fd()), readable(listener.as_fd())];
        fds.extend(session.map(readable));
        // An interrupted wait only ends early.
        let _interrupted = poll(&mut fds, PollTimeout::NONE);
        let is_ready = |at: usize| fds.get(at).and_then(PollFd::any).unwrap_or(false);
        (is_ready(1), is_ready(2))
    }

    fn accept(&mut self, listener: &TcpListener) -> Result<(), ConsumerGone> {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => {
                self.status
                    .change(|status| status.last_error = format!("accept a connection: {error}"));
                return Ok(());
            }
        };
        // A peer on another machine that vanished is noticed in the end.
        let prepared = setsockopt(&stream, sockopt::KeepAlive, &true)
            .map_err(io::Error::from)
            .and_then(|()| stream.set_nonblocking(true));
        if let Err(error) = prepared {
            self.status
                .change(|status| status.last_error = format!("accept a connection: {error}"));
            return Ok(());
        }
        self.close("another connection replaced it")?;
        self.session = Some(Session {
            stream,
            frames: Frames::default(),
        });
        self.status.change(|status| status.sessions += 1);
        self.outbox.push(Change::Opened)?;
        self.outbox.flush()
    }

    /// Ends the session, if there is one.
    fn close(&mut self, error: &str) -> Result<(), ConsumerGone> {
        if self.session.take().is_none() {
            return Ok(());
        }
        if !error.is_empty() {
            self.status
                .change(|status| status.last_error = format!("the session of zebra ended: {error}"));
        }
        self.outbox.push(Change::Closed)?;
        self.outbox.flush()
    }

    /// Reads once from the session. zebra's bytes that wait longer are read in the next turns, between which a new connection
    /// and the end have their chance.
    fn read(&mut self) -> Result<(), End> {
        let Some(session) = &mut self.session else {
            return Ok(());
        };
        match session.stream.read(session.frames.room()) {
            Ok(0) => return Err(End::Closed),
            Ok(size) => session.frames.fill(size),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                return Ok(());
            }
            Err(error) => return Err(End::Failed(error.to_string())),
        }
        while let Some(payload) = session.frames.next() {
            let payload = payload.map_err(|violation| End::Failed(violation.to_string()))?;
            self.messages += read_frame(payload, &mut self.translator, |change| self.outbox.push(change))?;
        }
        Ok(())
    }
}

/// Passes the changes of a frame on; returns the number of its messages.
///
/// # Errors
/// Returns the error of `push`.
pub fn read_frame<E>(
    payload: &[u8],
    translator: &mut Translator,
    mut push: impl FnMut(Change) -> Result<(), E>,
) -> Result<u64, E> {
    let mut count = 0;
    let mut messages = Messages::new(payload);
    while let Some(message) = messages.next() {
        count += 1;
        let Ok(message) = message else {
            translator.ignored.malformed += 1;
            break;
        };
        if let Ok(Content::Route(wire::Change::Removed, removed)) = message.content()
            && replacement::follows(&removed, &messages)
        {
            continue;
        }
        if let Ok(Some(change)) = translator.change(&message, Origin::Fpm) {
            push(change)?;
        }
    }
    Ok(count)
}
