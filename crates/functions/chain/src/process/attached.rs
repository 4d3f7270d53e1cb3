//! Attached functions: the operator starts the process, which connects to a socket of the switch and gets its window there
//! ([`millrace_nf::attach`] has the protocol).
//!
//! The control side polls the socket; no call blocks. A connection waits here until the lane can take the function: a process
//! that attaches again gets a new window, once the lane has taken all packets out of the old one.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use arrayvec::ArrayVec;
use millrace_datapath::io::{Burst, SocketAccess, SocketFile};
use millrace_flow::classify::BURST;
use millrace_nf::attach::AttachMessage;
use millrace_nf::shm::BurstKind;
use millrace_nf::{Access, Effects, Kind, Setup, ShunnedFlow, Verdict};
use millrace_types::{Duration, Time};
use millrace_wire::Packet;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};

use super::memory::MappedRange;
use super::watch::Process;
use super::window::{Isolated, Window};
use crate::hop::Remote;
use crate::in_flight::InFlight;
use crate::plan::Class;

/// The flows that an attached function can shun at a time.
const SHUNS: usize = 65_536;
/// Maximum number of connections that wait for an instance.
const WAITING_MAX: usize = 64;
/// Time within which a process must send its hello.
const HELLO_TIME: Duration = Duration::from_secs(2);
/// Maximum number of stored lists of counter names.
const LISTS_MAX: usize = 256;

/// The kind of all attached functions. A process names its counters when it attaches.
pub(crate) static ATTACHED: Kind = Kind {
    name: "attached",
    about: "a function in a process that the operator starts",
    settings: &[(
        "export",
        "target of the function's messages: file:PATH, unix:PATH or udp:ADDRESS:PORT",
    )],
    reads: Access::ALL,
    writes: Access::ALL,
    keeps_flows: true,
    shuns: SHUNS,
    outbox: (64, 32 * 1024),
    report: 4096,
    ..Kind::DEFAULT
};

/// A process that has connected.
struct Waiting {
    socket: OwnedFd,
    pid: u32,
    uid: u32,
    since: Time,
    hello: Option<Hello>,
}

/// The first message of a process.
#[derive(Default)]
struct Hello {
    /// The instance that the process asks for; `None` for any.
    instance: Option<u32>,
    /// The names of its counters.
    counters: Vec<String>,
}

/// The socket of one hop.
pub(crate) struct AttachPoint {
    path: PathBuf,
    listener: OwnedFd,
    waiting: Mutex<Vec<Waiting>>,
    _file: SocketFile,
}

/// The sockets of all hops. A hop that replaces another one uses the socket of the old hop.
static POINTS: Mutex<BTreeMap<PathBuf, Weak<AttachPoint>>> = Mutex::new(BTreeMap::new());

impl AttachPoint {
    /// Listens at a path, or returns the socket that listens there.
    ///
    /// # Errors
    /// A message with the next step.
    pub(crate) fn open(path: &Path) -> Result<Arc<AttachPoint>, String> {
        let mut points = POINTS.lock();
        if let Some(point) = points.get(path).and_then(Weak::upgrade) {
            return Ok(point);
        }
        let access = SocketAccess {
            owner: None,
            group: None,
            mode: 0o600,
        };
        let made = SocketFile::make(path, &access, || Ok(listener(path)));
        let (file, listener) = made.map_err(|error| error.to_string())?;
        let listener = listener.map_err(|error| format!("{}: {error}", path.display()))?;
        let point = Arc::new(AttachPoint {
            path: path.to_owned(),
            listener,
            waiting: Mutex::default(),
            _file: file,
        });
        points.retain(|_, point| point.strong_count() != 0);
        points.insert(path.to_owned(), Arc::downgrade(&point));
        Ok(point)
    }

    /// Returns the path of the socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts connections and reads their hellos. `attached` holds the process id of each instance; `None` if no
    /// process is attached as this instance.
    pub(crate) fn poll(&self, now: Time, attached: &[Option<u32>]) {
        let mut waiting = self.waiting.lock();
        while let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC) {
            let Ok(peer) = getsockopt(&socket, PeerCredentials) else {
                continue;
            };
            // The number of a process in another PID namespace is 0.
            let (pid, uid) = (peer.pid().unsigned_abs(), peer.uid());
            let own = rustix::process::geteuid().as_raw();
            if uid != own && uid != 0 {
                refuse(&socket, "expected root or the user of the switch".to_owned());
                continue;
            }
            let mut process = Waiting {
                socket,
                pid,
                uid,
                since: now,
                hello: None,
            };
            // A hello that was sent at once is read at once: the process then makes no room for others.
            if process.is_welcome(now, attached) {
                waiting.push(process);
                make_room(&mut waiting);
            }
        }
        waiting.retain_mut(|process| process.is_welcome(now, attached));
    }

    /// Removes a waiting process that may become an instance, and returns it.
    fn take(&self, instance: u32) -> Option<Waiting> {
        let mut waiting = self.waiting.lock();
        let at = waiting.iter().position(|process| process.suits(instance))?;
        Some(waiting.remove(at))
    }

    /// Returns true if a process that may become an instance waits.
    pub(crate) fn has_process_for(&self, instance: u32) -> bool {
        self.waiting.lock().iter().any(|process| process.suits(instance))
    }

    /// Attaches a waiting process as an instance, if there is one. `setup` gets the counters that the process
    /// names.
    ///
    /// # Errors
    /// The kernel's error, or the reason why the process cannot run in this class.
    pub(crate) fn attach<P: Packet>(
        &self,
        instance: u32,
        class: Class,
        setup: &mut Setup,
    ) -> io::Result<Option<(Isolated<P>, Arc<Process>)>> {
        let Some(waiting) = self.take(instance) else {
            return Ok(None);
        };
        let names = waiting.hello.unwrap_or_default().counters;
        if setup
            .counters
            .read()
            .iter()
            .map(|(name, _)| *name)
            .ne(names.iter().map(String::as_str))
        {
            setup.counters = millrace_nf::Counters::new(interned(&names));
        }
        let attached = give_window(waiting.socket, waiting.pid, instance, class, setup);
        if attached.is_ok() {
            tracing::info!(socket = %self.path.display(), pid = waiting.pid, uid = waiting.uid, instance, "function attached");
        }
        attached.map(Some)
    }
}

impl Waiting {
    /// Returns true if the process may become an instance.
    fn suits(&self, instance: u32) -> bool {
        let hello = self.hello.as_ref();
        hello.is_some_and(|hello| hello.instance.is_none_or(|wanted| wanted == instance))
    }

    /// Reads the hello of a process. Returns false if the process is refused, has ended, or has sent no hello within
    /// [`HELLO_TIME`].
    fn is_welcome(&mut self, now: Time, attached: &[Option<u32>]) -> bool {
        match AttachMessage::receive(&self.socket) {
            Ok(None) => {}
            Ok(Some((AttachMessage::Hello { instance, counters }, _))) if self.hello.is_none() => {
                self.hello = Some(Hello { instance, counters });
            }
            Ok(Some(_)) | Err(Errno::PROTO) => {
                refuse(
                    &self.socket,
                    "expected a hello of this version of Millrace".to_owned(),
                );
                return false;
            }
            Err(_) => return false,
        }
        let Some(Hello { instance: wanted, .. }) = &self.hello else {
            return now.since(self.since) < HELLO_TIME;
        };
        let len = attached.len();
        let reason = match wanted.map(|wanted| attached.get(wanted as usize).copied()) {
            Some(None) => Some(match len.checked_sub(1) {
                Some(last) => format!("the hop has {len} instances: expected one from 0 to {last}"),
                None => "the hop has no instances while it is drained: expected a hop that works".to_owned(),
            }),
            Some(Some(Some(pid))) => Some(format!("process {pid} is attached as this instance")),
            None if attached.iter().all(Option::is_some) => {
                Some(format!("all {len} instances of the hop are attached"))
            }
            Some(Some(None)) | None => None,
        };
        let is_refused = reason.is_some();
        if let Some(reason) = reason {
            refuse(&self.socket, reason);
        }
        !is_refused
    }
}

/// Refuses a process if more than [`WAITING_MAX`] wait: the one that has waited longest of those without a hello, or the
/// newest if all have sent one.
fn make_room(waiting: &mut Vec<Waiting>) {
    if waiting.len() <= WAITING_MAX {
        return;
    }
    let silent = waiting.iter().position(|process| process.hello.is_none());
    let refused = waiting.remove(silent.unwrap_or(waiting.len() - 1));
    refuse(
        &refused.socket,
        format!("{WAITING_MAX} other processes wait for this hop: end some of them"),
    );
}

fn refuse(socket: &OwnedFd, reason: String) {
    // A process that does not read its answer loses it.
    let _is_sent = AttachMessage::Refused(reason).send(socket, None);
}

fn listener(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, 16)?;
    Ok(socket)
}

/// Interns a list of names, which is never freed. There are few different lists: one for each program that attaches.
/// Once [`LISTS_MAX`] lists are stored, a new list is replaced by an empty one.
fn interned(names: &[String]) -> &'static [&'static str] {
    static LISTS: Mutex<Vec<&'static [&'static str]>> = Mutex::new(Vec::new());
    let mut lists = LISTS.lock();
    let same = |list: &&&'static [&'static str]| list.iter().eq(names.iter());
    if let Some(list) = lists.iter().find(same) {
        return list;
    }
    if lists.len() == LISTS_MAX {
        return &[];
    }
    let names: Vec<&'static str> = names.iter().map(|name| &*name.clone().leak()).collect();
    let list: &'static [&'static str] = names.leak();
    lists.push(list);
    list
}

/// Creates a window, passes it to a process, and returns both ends of the window.
fn give_window<P: Packet>(
    socket: OwnedFd,
    pid: u32,
    instance: u32,
    class: Class,
    setup: &Setup,
) -> io::Result<(Isolated<P>, Arc<Process>)> {
    let window = Window::create::<P>(class)?;
    let watched = socket.try_clone()?;
    let process = Process::attached(pid, socket, window.shared.is_some());
    let process = Arc::new(process.inspect_err(|error| refuse(&watched, error.to_string()))?);
    for MappedRange { start, end, offset } in window.shared.iter().flatten() {
        let path = format!("/proc/self/map_files/{start:x}-{end:x}");
        let file = std::fs::File::options().read(true).write(true).open(path)?;
        let part = AttachMessage::Memory {
            address: *start,
            size: end - start,
            offset: *offset,
        };
        part.send(&watched, Some(file.as_fd()))?;
    }
    AttachMessage::Window { instance }.send(&watched, Some(window.file.as_fd()))?;
    let thread = std::thread::Builder::new().name("nf-attached".to_owned());
    thread.spawn({
        let process = Arc::clone(&process);
        move || wait(&watched, &process)
    })?;
    Ok((Isolated::new(window, Arc::clone(&process), setup), process))
}

/// Waits until a process closes its connection, and for class `ring` until it ends.
fn wait(socket: &OwnedFd, process: &Arc<Process>) {
    while matches!(
        poll(&mut [PollFd::new(socket, PollFlags::IN)], None),
        Err(Errno::INTR)
    ) {}
    process.is_closed.store(true, Ordering::Release);
    tracing::info!(pid = process.pid(), "function detached");
    process.wait_for_end();
    process.is_dead.store(true, Ordering::Release);
}

/// Returns the reason why an instance without a process is down.
pub(crate) fn unattached(path: &Path) -> String {
    format!("no process is attached to {}", path.display())
}

/// An instance to which no process has been attached. It is down, so it gets no packets.
pub(crate) struct Unattached<P> {
    path: PathBuf,
    held: InFlight<P>,
}

impl<P> Unattached<P> {
    pub(crate) fn new(path: &Path) -> Unattached<P> {
        Unattached {
            path: path.to_owned(),
            held: InFlight::new(),
        }
    }
}

impl<P: Packet> Remote<P> for Unattached<P> {
    fn give(&mut self, _: BurstKind, _: u8, _: &mut Burst<P>) {}

    fn copies(&self) -> bool {
        false
    }

    fn expect(&self, _: usize) {}

    fn expect_done(&self) {}

    fn ready(&mut self) -> Option<BurstKind> {
        None
    }

    fn take(&mut self, _: &mut Burst<P>, _: &mut ArrayVec<Verdict, BURST>) -> Option<BurstKind> {
        None
    }

    fn reclaim(&mut self, burst: &mut Burst<P>) -> Option<BurstKind> {
        let kind = self.held.first_kind()?;
        self.held.take(BURST, burst);
        Some(kind)
    }

    fn hold(&mut self, kind: BurstKind, burst: &mut Burst<P>) {
        self.held.push(kind, burst);
    }

    fn has_effects(&self) -> bool {
        false
    }

    fn collect(&mut self, _: usize, _: &mut Effects) {}

    fn shun_ended(&mut self, _: &ShunnedFlow) {}

    fn show(&mut self, _: BurstKind, _: u8, _: &[P], _: u64) -> u64 {
        0
    }

    fn answered(&mut self) -> usize {
        0
    }

    fn verdicts(&mut self, _: usize, _: &mut ArrayVec<Verdict, BURST>) -> usize {
        0
    }

    fn forget(&mut self, _: usize) {}

    fn is_gone(&self) -> bool {
        true
    }

    fn in_flight(&self) -> usize {
        self.held.len()
    }

    fn is_alive(&mut self, _: Time) -> bool {
        false
    }

    fn has_begun(&self) -> bool {
        false
    }

    fn value(&self) -> [u64; 2] {
        [0; 2]
    }

    fn failure(&self) -> String {
        unattached(&self.path)
    }
}
