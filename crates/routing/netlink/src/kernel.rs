//! The reader of a namespace: a thread that turns notifications and dumps of the kernel into events.
//!
//! ```text
//!  kernel --notifications, dumps--> socket --[reader thread]--> batches of events --> RIB
//!     ^                                            ^                                   |
//!     |                                            +---- dumps asked for -----------+  |
//!     +---- neighbours ---- [request thread] <-------- actions of the RIB ----------+--+
//! ```

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::time::{Duration, Instant};

use millrace_rib::event::{Change, Dump, Source};
use millrace_rib::{Action, Event, Netns};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::dumps::Dumps;
use crate::message::Requests;
use crate::namespace::{Identity, Namespace, NamespaceError};
use crate::outbox::{ConsumerGone, Outbox};
use crate::requests::Requester;
use crate::settings;
use crate::socket::{DATAGRAM_SIZE, RECEIVE_BUFFER_SIZE, Received, Socket};
use crate::status::{Shared, Status};
use crate::translate::{Origin, Translator};
use crate::wire::{Content, Message, Messages, kind, netconf};

/// The time between two checks that the namespace is still that of its name.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of datagrams that are read before commands are looked at.
const DATAGRAMS_MAX: usize = 1024;

/// The properties of a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Size of the receive buffer of the socket in bytes.
    pub receive_buffer_size: usize,
    /// True to keep the kernel from forwarding in the namespace (`net.*.conf.all.forwarding`), and to make the settings that
    /// go with it. In the namespace of this process, they are left as they are.
    pub keeps_from_forwarding: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            receive_buffer_size: RECEIVE_BUFFER_SIZE,
            keeps_from_forwarding: true,
        }
    }
}

/// The kernel of a namespace. Its threads end when this handle is dropped, as soon as the consumer has taken the batch that
/// waits, or has dropped its end of the channel.
pub struct Kernel {
    netns: Netns,
    dumps: Sender<Dump>,
    requester: Requester,
    control: Arc<Control>,
    status: Arc<Shared>,
}

/// The means by which the handle reaches the reader.
struct Control {
    wake: EventFd,
    stop: AtomicBool,
}

impl Kernel {
    /// Opens the sockets in a namespace, makes the settings of the kernel there, and starts the threads. The first event is
    /// [`Change::Opened`]; after it, the consumer asks for dumps. The last is [`Change::Closed`].
    ///
    /// # Errors
    /// Returns [`NamespaceError`], which has the next step.
    pub fn open(
        netns: Netns,
        namespace: &Namespace,
        settings: Settings,
        events: SyncSender<Vec<Event>>,
    ) -> Result<Kernel, NamespaceError> {
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
        let (dumps, commands) = channel();
        let identity = namespace.identity();
        let changes_settings = settings.keeps_from_forwarding && *namespace != Namespace::Own;
        let (hand_over, handed_over) = std::sync::mpsc::sync_channel(1);
        let reader = Reader {
            namespace: namespace.clone(),
            identity,
            changes_settings,
            commands,
            control: Arc::clone(&control),
            outbox: Outbox::new(netns, Source::Kernel, events),
            dumps: Dumps::default(),
            translator: Translator::default(),
            messages: 0,
            now: Instant::now(),
            status: Arc::clone(&status),
        };
        let begin = move || {
            let socket = Socket::open().map_err(|error| ("open a netlink socket", error))?;
            let requests = Socket::open().map_err(|error| ("open a netlink socket", error))?;
            if changes_settings {
                settings::apply().map_err(|error| {
                    (
                        "turn the kernel's forwarding off, for which /proc/sys must be writable",
                        error,
                    )
                })?;
            }
            socket
                .subscribe(settings.receive_buffer_size)
                .map_err(|error| ("subscribe to notifications", error))?;
            // The receiver waits for it.
            let _sent = hand_over.send(requests);
            Ok(socket)
        };
        let _thread = namespace.spawn(format!("netlink-{}", netns.0), begin, move |socket| {
            reader.run(&socket);
        })?;
        let requests = handed_over
            .recv()
            .map_err(|_| failed("open a netlink socket", io::Error::other("the thread ended")))?;
        let (requester, work) = Requester::new(requests, Arc::clone(&status));
        std::thread::Builder::new()
            .name(format!("neigh-{}", netns.0))
            .spawn(work)
            .map_err(|error| failed("start a thread", error))?;
        Ok(Kernel {
            netns,
            dumps,
            requester,
            control,
            status,
        })
    }

    /// Executes an action of the RIB. Actions for other namespaces are left to their handles.
    pub fn execute(&self, action: &Action) {
        match *action {
            Action::Manage {
                netns,
                ifindex,
                address,
                managed,
            } if netns == self.netns => self.requester.manage(ifindex, address, managed),
            Action::Probe {
                netns,
                ifindex,
                address,
            } if netns == self.netns => self.requester.probe(ifindex, address),
            Action::Dump { netns, dump } if netns == self.netns => {
                // A reader whose namespace is gone takes no requests.
                let _closed = self.dumps.send(dump);
                self.control.wake();
            }
            Action::Manage { .. } | Action::Probe { .. } | Action::Dump { .. } => {}
        }
    }

    /// Returns the state and the counters.
    pub fn status(&self) -> Status {
        self.status.read()
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.control.stop.store(true, Ordering::Release);
        self.control.wake();
    }
}

impl Control {
    fn wake(&self) {
        // The counter of the event only overflows if the reader is about to be woken anyway.
        let _full = self.wake.write(1);
    }
}

/// The reason why a reader ended.
enum End {
    /// The handle was dropped.
    Stopped,
    /// The namespace is gone, or another one has its name.
    NamespaceGone,
    /// The consumer took no more events.
    ConsumerGone,
    Failed(io::Error),
}

impl From<ConsumerGone> for End {
    fn from(_: ConsumerGone) -> End {
        End::ConsumerGone
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        End::Failed(error)
    }
}

struct Reader {
    namespace: Namespace,
    identity: Option<Identity>,
    changes_settings: bool,
    commands: Receiver<Dump>,
    control: Arc<Control>,
    outbox: Outbox,
    dumps: Dumps,
    translator: Translator,
    messages: u64,
    /// The time at which the reader last looked at the clock: before each read of many datagrams.
    now: Instant,
    status: Arc<Shared>,
}

impl Reader {
    fn run(mut self, socket: &Socket) {
        self.status.change(|status| status.is_open = true);
        let end = match self.serve(socket) {
            Err(end) => end,
            Ok(never) => match never {},
        };
        self.publish();
        self.status.change(|status| {
            status.is_open = false;
            match end {
                End::NamespaceGone => status.last_error = "the namespace is gone".to_owned(),
                End::Failed(error) => status.last_error = format!("the netlink socket: {error}"),
                End::Stopped | End::ConsumerGone => {}
            }
        });
        // Without a consumer there is nobody to tell.
        let _gone = self
            .outbox
            .push(Change::Closed)
            .and_then(|()| self.outbox.flush());
    }

    fn serve(&mut self, socket: &Socket) -> Result<core::convert::Infallible, End> {
        let mut buffer = vec![0; DATAGRAM_SIZE];
        let mut next_check = Instant::now() + CHECK_INTERVAL;
        self.outbox.push(Change::Opened)?;
        loop {
            while let Ok(dump) = self.commands.try_recv() {
                self.dumps.ask(dump);
            }
            if self.control.stop.load(Ordering::Acquire) {
                return Err(End::Stopped);
            }
            let now = Instant::now();
            self.now = now;
            if now >= next_check {
                if self.namespace.identity() != self.identity {
                    return Err(End::NamespaceGone);
                }
                next_check = now + CHECK_INTERVAL;
            }
            self.begin_dump(socket, now)?;
            if self.drain(socket, &mut buffer)? {
                self.outbox.flush()?;
                self.publish();
                let due = self.dumps.due(now).map_or(next_check, |due| due.min(next_check));
                self.wait(socket, due)?;
            }
        }
    }

    fn begin_dump(&mut self, socket: &Socket, now: Instant) -> Result<(), End> {
        let Some((dump, sequence)) = self.dumps.begin(now) else {
            return Ok(());
        };
        let mut request = Requests::default();
        request.dump(dump, sequence);
        self.outbox.push(Change::DumpBegins(dump))?;
        if let Err(error) = socket.send(request.bytes()) {
            self.status
                .change(|status| status.last_error = format!("the request for a dump: {error}"));
            let end = self.dumps.fail(now);
            self.finish(end)?;
        }
        Ok(())
    }

    /// Reads datagrams; returns true if none is left.
    fn drain(&mut self, socket: &Socket, buffer: &mut [u8]) -> Result<bool, End> {
        for _ in 0..DATAGRAMS_MAX {
            match socket.receive(buffer)? {
                Received::Datagram(size) => {
                    for message in Messages::new(buffer.get(..size).unwrap_or_default()) {
                        match message {
                            Ok(message) => self.read(&message)?,
                            Err(_) => self.translator.ignored.malformed += 1,
                        }
                    }
                }
                Received::Empty => return Ok(true),
                Received::Lost => {
                    self.dumps.spoil();
                    self.status.change(|status| status.overruns += 1);
                    self.outbox.push(Change::Lost)?;
                }
            }
        }
        Ok(false)
    }

    fn read(&mut self, message: &Message<'_>) -> Result<(), End> {
        self.messages += 1;
        let origin = if self.dumps.includes(message) {
            Origin::Dump
        } else {
            Origin::Notification
        };
        if let Ok(Some(change)) = self.translator.change(message, origin)
            && !self.dumps.is_outdated(&change, origin == Origin::Dump)
        {
            self.outbox.push(change)?;
        }
        // Of objects, only a flag matters here, so that their content is not decoded again.
        let content = match message.kind {
            kind::DONE | kind::ERROR | kind::NEW_NETCONF => message.content().unwrap_or(Content::Noop),
            _ => Content::Noop,
        };
        if let Content::Forwarding(forwarding) = content
            && forwarding.interface == netconf::ALL
            && forwarding.is_on == Some(true)
            && self.changes_settings
        {
            self.reset_forwarding();
        }
        let end = self.dumps.read(message, &content, self.now);
        self.finish(end)
    }

    /// Passes the end of a dump on.
    fn finish(&mut self, end: Option<Change>) -> Result<(), End> {
        let Some(end) = end else {
            return Ok(());
        };
        if matches!(end, Change::DumpFails(_)) {
            self.status.change(|status| status.failed_dumps += 1);
        }
        Ok(self.outbox.push(end)?)
    }

    fn reset_forwarding(&self) {
        let result = settings::keep_from_forwarding();
        self.status.change(|status| {
            status.forwarding_resets += 1;
            status.last_error = match result {
                Ok(()) => {
                    "a program turned the kernel's forwarding on (`ip forwarding` of FRR?); it is off again"
                        .to_owned()
                }
                Err(error) => format!("the kernel's forwarding is on and cannot be turned off: {error}"),
            };
        });
    }

    fn publish(&self) {
        self.status.change(|status| {
            status.messages = self.messages;
            status.ignored = self.translator.ignored;
        });
    }

    /// Waits for datagrams, commands, or a time.
    fn wait(&self, socket: &Socket, until: Instant) -> Result<(), End> {
        let left = until.saturating_duration_since(Instant::now());
        // Rounded up, so that the reader does not wake before the time.
        let timeout = PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX);
        let mut fds = [
            PollFd::new(socket.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.control.wake.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
        // The count of wakes does not matter, and there is none if the socket ended the wait.
        let _count = self.control.wake.read();
        Ok(())
    }
}
