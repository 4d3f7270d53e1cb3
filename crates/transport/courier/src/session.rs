//! Sessions for programs: a transfer in a separate thread, an iterator over its events, and a handle that
//! ends it.

use crate::access::Access;
use crate::event::{Event, Outcome};
use crate::files::{Source, Store};
use crate::identity::Identity;
use crate::inbox::{Command, Inbox, Outbox};
use crate::io::{DatagramIo, UdpIo};
use crate::receiver::{Fetch, FileDestination, ReceiveError, ReceiveOptions, ReceiverSpec};
use crate::sender::{SendError, SendOptions, SenderSpec, Target, bind_for};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use thiserror::Error;

/// A session that cannot start, or cannot continue for any peer.
#[derive(Debug, Error)]
pub enum SessionError {
    /// Sending failed.
    #[error(transparent)]
    Send(#[from] SendError),
    /// Receiving failed.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// The system gives no descriptor or no thread.
    #[error("the system gives no descriptor or thread for a session: {0}")]
    System(#[from] io::Error),
    /// The session's thread panicked.
    #[error("the thread of the session panicked; report this as a bug")]
    Panic,
}

/// A transfer that runs: sending to any number of receivers, or receiving from any number of senders.
///
/// The session is an iterator over its events, which ends with the transfer; [`Session::join`] then returns
/// the outcomes. Dropping the session ends the transfer. Received data are kept, and the same call resumes
/// the transfer.
///
/// ```
/// use millrace_courier::identity::Identity;
/// use millrace_courier::local::{LocalSource, LocalStore, PlaceOptions, ScanOptions};
/// use millrace_courier::{Event, Outcome, ReceiveOptions, SendOptions, Session, Target};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let dir = tempfile::tempdir()?;
/// std::fs::write(dir.path().join("a"), b"bytes")?;
/// std::fs::create_dir(dir.path().join("in"))?;
///
/// let store = LocalStore::new(&dir.path().join("in"), PlaceOptions::default());
/// let options = ReceiveOptions { listen: "127.0.0.1:0".parse()?, once: true, ..Default::default() };
/// let mut receiver = Session::receive(Box::new(store), Identity::generate()?, options)?;
/// let Some(Event::Listening { ticket, .. }) = receiver.next() else { return Err("no ticket".into()) };
///
/// let source = LocalSource::scan(&[dir.path().join("a")], &ScanOptions::default())?;
/// let targets = vec![Target::from_ticket(&ticket.parse()?)];
/// let sender = Session::send(Box::new(source), Identity::generate()?, targets, SendOptions::default())?;
/// for event in sender.events() {
///     println!("{event:?}");
/// }
/// assert_eq!(sender.join()?, [Outcome::Delivered]);
/// assert_eq!(receiver.join()?, [Outcome::Delivered]);
/// assert_eq!(std::fs::read(dir.path().join("in/a"))?, b"bytes");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Session {
    thread: Option<JoinHandle<Result<Vec<Outcome>, SessionError>>>,
    events: Receiver<Event>,
    ready: Arc<Readiness>,
    handle: SessionHandle,
}

/// Sends commands to a session from any thread.
#[derive(Clone, Debug)]
pub struct SessionHandle {
    outbox: Outbox,
}

impl SessionHandle {
    /// Ends the session. Received data are kept: outcomes that are not known yet are [`Outcome::Resumable`].
    pub fn cancel(&self) {
        self.outbox.send(Command::Stop);
    }

    /// Lets a receiving session begin no further transfer. It ends with the last transfer, or after this
    /// time.
    pub fn drain(&self, time: Duration) {
        self.outbox.send(Command::Drain(time));
    }

    /// Adds a receiver to a sending session. The receiver first gets the data that the others get now, and
    /// the earlier data afterwards.
    pub fn add_target(&self, target: Target) {
        self.outbox.send(Command::Add(target));
    }
}

impl Session {
    /// Sends the files of a source to all targets, from a UDP socket.
    ///
    /// # Errors
    /// If the system gives no socket, descriptor or thread.
    pub fn send(
        source: Box<dyn Source>,
        identity: Identity,
        targets: Vec<Target>,
        options: SendOptions,
    ) -> Result<Session, SessionError> {
        let io = bind_for(&targets)?;
        Session::send_over(Box::new(io), source, identity, targets, options)
    }

    /// Sends as [`Session::send`] does, over any backend.
    ///
    /// # Errors
    /// If the system gives no descriptor or thread.
    pub fn send_over(
        io: Box<dyn DatagramIo>,
        mut source: Box<dyn Source>,
        identity: Identity,
        targets: Vec<Target>,
        options: SendOptions,
    ) -> Result<Session, SessionError> {
        Session::start("send", move |inbox, events| {
            let identity = &identity;
            let spec = SenderSpec {
                io,
                identity,
                targets,
                options,
                shared_rate: None,
            };
            Ok(spec.run(&mut *source, None, inbox, events)?)
        })
    }

    /// Receives into a store, at a UDP socket.
    ///
    /// # Errors
    /// If the address cannot be used, or the system gives no descriptor or thread.
    pub fn receive(
        store: Box<dyn Store>,
        identity: Identity,
        options: ReceiveOptions,
    ) -> Result<Session, SessionError> {
        let address = options.listen;
        let io = UdpIo::bind(address).map_err(|error| ReceiveError::Listen { address, error })?;
        Session::receive_over(Box::new(io), store, identity, options)
    }

    /// Receives as [`Session::receive`] does, over any backend, at the backend's address.
    ///
    /// # Errors
    /// If the system gives no descriptor or thread.
    pub fn receive_over(
        io: Box<dyn DatagramIo>,
        store: Box<dyn Store>,
        identity: Identity,
        options: ReceiveOptions,
    ) -> Result<Session, SessionError> {
        Session::start("receive", move |inbox, events| {
            let spec = ReceiverSpec {
                io,
                identity: &identity,
                options,
                fetch: None,
            };
            Ok(spec.run(FileDestination::Store(&*store), None, inbox, events)?)
        })
    }

    /// Asks a daemon for the files at a path, and receives them.
    ///
    /// # Errors
    /// If the system gives no socket, descriptor or thread.
    pub fn fetch(
        store: Box<dyn Store>,
        identity: Identity,
        from: Target,
        path: Vec<u8>,
        mut options: ReceiveOptions,
    ) -> Result<Session, SessionError> {
        let io = Box::new(bind_for(std::slice::from_ref(&from))?);
        options.allow = vec![from.key];
        options.once = true;
        Session::start("fetch", move |inbox, events| {
            let spec = ReceiverSpec {
                io,
                identity: &identity,
                options,
                fetch: Some(Fetch { from, path }),
            };
            Ok(spec.run(FileDestination::Store(&*store), None, inbox, events)?)
        })
    }

    /// Serves many peers at once, as [`Access`] decides for each, at a UDP socket.
    ///
    /// # Errors
    /// If the address cannot be used, or the system gives no descriptor or thread.
    pub fn serve(
        access: Arc<dyn Access>,
        identity: Identity,
        options: ReceiveOptions,
    ) -> Result<Session, SessionError> {
        let address = options.listen;
        let io = UdpIo::bind_shared(address).map_err(|error| ReceiveError::Listen { address, error })?;
        Session::serve_over(Box::new(io), access, identity, options)
    }

    /// Serves as [`Session::serve`] does, over any backend. A backend that cannot be divided by peers serves
    /// no requests to read.
    ///
    /// # Errors
    /// If the system gives no descriptor or thread.
    pub fn serve_over(
        io: Box<dyn DatagramIo>,
        access: Arc<dyn Access>,
        identity: Identity,
        options: ReceiveOptions,
    ) -> Result<Session, SessionError> {
        Session::start("serve", move |inbox, events| {
            let spec = ReceiverSpec {
                io,
                identity: &identity,
                options,
                fetch: None,
            };
            Ok(spec.run(FileDestination::Access(&*access), None, inbox, events)?)
        })
    }

    fn start(
        name: &str,
        run: impl FnOnce(&Inbox, &mut dyn FnMut(Event)) -> Result<Vec<Outcome>, SessionError> + Send + 'static,
    ) -> Result<Session, SessionError> {
        let (outbox, inbox) = Inbox::new()?;
        let (sender, events) = channel();
        let ready = Arc::new(Readiness::new()?);
        let counter = Arc::clone(&ready);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            let mut on_event = |event| {
                // The event is counted before it is queued, so that a consumer never takes an event that is not counted.
                counter.add();
                let _ = sender.send(event);
            };
            let result = run(&inbox, &mut on_event);
            drop(sender);
            // The end counts as an event that is never removed, so that the descriptor stays readable.
            counter.add();
            result
        })?;
        Ok(Session {
            thread: Some(thread),
            events,
            ready,
            handle: SessionHandle { outbox },
        })
    }

    /// Returns a handle that ends the session, or adds receivers to it.
    pub fn handle(&self) -> SessionHandle {
        self.handle.clone()
    }

    /// Returns an iterator over the events. It waits for each event, and ends with the session.
    pub fn events(&self) -> impl Iterator<Item = Event> {
        std::iter::from_fn(|| {
            let event = self.events.recv().ok()?;
            self.ready.take();
            Some(event)
        })
    }

    /// Returns the next event, if one is queued.
    pub fn poll_event(&self) -> Option<Event> {
        let event = self.events.try_recv().ok()?;
        self.ready.take();
        Some(event)
    }

    /// Returns a descriptor that is readable while events are queued, and after the end.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.ready.descriptor.as_fd()
    }

    /// Returns true if the session's thread has ended: no further event will be queued.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end. Returns the outcome for each target, or for each admitted sender.
    ///
    /// # Errors
    /// If the transfer could not continue for any peer.
    pub fn join(mut self) -> Result<Vec<Outcome>, SessionError> {
        let thread = self.thread.take().ok_or(SessionError::Panic)?;
        thread.join().map_err(|_| SessionError::Panic)?
    }
}

/// A descriptor that is readable while events are queued. It is written for the first event and read after
/// the last one, not for each event: a transfer of many small files has many.
#[derive(Debug)]
struct Readiness {
    descriptor: EventFd,
    waiting: AtomicUsize,
}

impl Readiness {
    fn new() -> io::Result<Readiness> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Readiness {
            descriptor: EventFd::from_value_and_flags(0, flags)?,
            waiting: AtomicUsize::new(0),
        })
    }

    /// Counts an event that is queued.
    fn add(&self) {
        if self.waiting.fetch_add(1, Ordering::SeqCst) == 0 {
            let _ = self.descriptor.write(1);
        }
    }

    /// Counts an event that is removed.
    fn take(&self) {
        if self.waiting.fetch_sub(1, Ordering::SeqCst) == 1 {
            let _ = self.descriptor.read();
            // The read may have cleared the signal of an event that was queued meanwhile.
            if self.waiting.load(Ordering::SeqCst) > 0 {
                let _ = self.descriptor.write(1);
            }
        }
    }
}

impl Iterator for Session {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.events().next()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.handle.cancel();
            let _ = thread.join();
        }
    }
}
