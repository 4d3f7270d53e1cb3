//! The control thread of a `nic:` port: it connects to the device, maps its memory, configures it, and connects again.

use core::sync::atomic::{AtomicBool, Ordering};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millrace_nic::connection::{Received, receive};
use millrace_nic::driver::{Commands, Driver, Receiver, Violation};
use millrace_nic::memory::{Memory, MemoryError};
use millrace_nic::{BUCKETS, Command, CommandCompletion, Config, HashKeys, Status};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;
use thiserror::Error;

use super::moves::bucket_commands;
use super::offload::Installer;
use super::state::Nic;
use crate::io::OpenError;
use crate::io::memif::{ConnectedRing, RingMailbox};
use crate::io::peer::failed;
use crate::offload::DeviceDrops;

/// Interval between attempts to connect.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(200);
/// Time within which a device must pass its memory and complete its first commands.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which completions of commands are polled.
const COMMAND_INTERVAL: Duration = Duration::from_micros(50);
/// Interval at which fences, and ends of moves, are looked for.
const FENCE_INTERVAL: Duration = Duration::from_millis(1);
/// Time within which packets from before a move have left their workers. Then the queues go on.
const MOVE_TIMEOUT: Duration = Duration::from_millis(500);
/// The maximum number of operations between two looks at the connection.
const OPERATIONS_BATCH: usize = 256;
/// Interval at which drop counters are read. An idle timeout of a second needs several reads a second.
const COUNT_INTERVAL: Duration = Duration::from_millis(200);
/// The number of drop counters that are read between two looks at changes of drops.
const COUNTS_BATCH: usize = 32;

/// The reason why a connection ended.
#[derive(Debug, Error)]
enum EndReason {
    #[error("the port is closed")]
    Stopped,
    #[error("the device closed the connection")]
    Closed,
    #[error("the device has not answered for {} s", CONNECT_TIMEOUT.as_secs())]
    TooSlow,
    #[error("the device has not ended drops in time")]
    TooLate,
    #[error("the device sent something other than its memory")]
    Other,
    #[error("the device refuses a command with {0:?}")]
    Refused(Status),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Violation(#[from] Violation),
}

impl From<Status> for EndReason {
    fn from(status: Status) -> EndReason {
        EndReason::Refused(status)
    }
}

/// A client, which connects until it is dropped.
pub(super) struct Client {
    nic: Arc<Nic>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    pub(super) fn start(path: &Path, nic: &Arc<Nic>) -> Result<Client, OpenError> {
        let stop = Arc::new(AtomicBool::new(false));
        let client = ClientThread {
            path: path.to_owned(),
            nic: Arc::clone(nic),
            stop: Arc::clone(&stop),
            // The key must be a secret of this process: whoever knows it can prepare flows of one bucket.
            config: Config::new(HashKeys::new(RandomState::new().hash_one(0))),
        };
        let thread = std::thread::Builder::new()
            .name("nic".to_owned())
            .spawn(move || client.run())
            .map_err(|error| failed(&nic.name, &error))?;
        Ok(Client {
            nic: Arc::clone(nic),
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.nic.wake.wake();
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

/// The part of a connected device that this thread has.
struct Control {
    commands: Commands,
    spare: Vec<Receiver>,
    installer: Installer,
    /// The drops, if the device counts them, and the time at which their counters are read next.
    drops: Option<Arc<DeviceDrops>>,
    next_count: Instant,
    /// The queue of each bucket.
    queues: Vec<u8>,
    /// Number of queues that buckets may have.
    queues_len: usize,
    /// True if the table of the switch and the buckets agree.
    follows: bool,
    /// The buckets' queues after the move that is under way, and its begin.
    moving: Option<(Vec<u8>, Instant)>,
}

/// Returns the queue of each bucket, evenly over a number of queues.
fn even_buckets(queues: usize) -> Vec<u8> {
    (0..BUCKETS)
        .map(|bucket| (bucket % queues.max(1)) as u8)
        .collect()
}

struct ClientThread {
    path: PathBuf,
    nic: Arc<Nic>,
    stop: Arc<AtomicBool>,
    config: Config,
}

impl ClientThread {
    fn run(&self) {
        while !self.stop.load(Ordering::Acquire) {
            if let Ok(socket) = self.connect() {
                let end = self.session(&socket);
                self.disconnect();
                match end {
                    Err(EndReason::Stopped) => {}
                    Err(EndReason::Closed) => {
                        tracing::info!(device = %self.nic.name, "nic: device disconnected");
                    }
                    Err(end) => self.nic.close_log.log(&self.nic.name, &end),
                    Ok(()) => {}
                }
            }
            self.wait(None, RECONNECT_INTERVAL);
            self.collect();
        }
        self.collect();
    }

    fn connect(&self) -> rustix::io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(&self.path)?)?;
        Ok(socket)
    }

    /// Waits until the socket is readable, the thread is woken, or the time is over.
    fn wait(&self, socket: Option<&OwnedFd>, bound: Duration) {
        let timeout = Timespec {
            tv_sec: bound.as_secs() as i64,
            tv_nsec: i64::from(bound.subsec_nanos()),
        };
        let mut files = vec![PollFd::new(&*self.nic.wake, PollFlags::IN)];
        files.extend(socket.map(|socket| PollFd::new(socket, PollFlags::IN)));
        // An interrupted wait only ends early.
        let _interrupted = poll(&mut files, Some(&timeout));
        self.nic.wake.clear();
    }

    fn collect(&self) {
        self.nic.rx.iter().for_each(RingMailbox::collect);
        self.nic.tx.collect();
    }

    fn disconnect(&self) {
        self.nic.is_connected.store(false, Ordering::Release);
        self.nic.set_drops(None);
        *self.nic.memory.lock() = None;
        self.nic.rx.iter().for_each(|mailbox| mailbox.post(None));
        self.nic.tx.post(None);
    }

    /// Handles a connection until it ends.
    fn session(&self, socket: &OwnedFd) -> Result<(), EndReason> {
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let file = loop {
            match receive(socket) {
                Received::Memory(file) => break file,
                Received::Closed => return Err(EndReason::Closed),
                Received::Other => return Err(EndReason::Other),
                Received::Nothing => {
                    self.wait(Some(socket), deadline.saturating_duration_since(Instant::now()));
                }
            }
            self.check(deadline)?;
        };
        let Driver {
            mut commands,
            receivers,
            senders,
            memory,
        } = Driver::start(Memory::open(file)?, &self.config)?;
        let connection = 1 + self.nic.connections.fetch_add(1, Ordering::Relaxed);
        let queues = receivers.len().min(self.nic.rx.len());
        let table = self.nic.table.get();
        if let Some(table) = table {
            table.set_queues(queues);
        }
        let buckets = table.map_or_else(|| even_buckets(queues), |table| table.queues());
        self.set_buckets(&mut commands, &buckets, deadline)?;
        // Operations for an earlier connection are of no use to this one.
        while self.nic.operations.pop().is_some() {}
        let mut receivers = receivers.into_iter();
        for (mailbox, ring) in self.nic.rx.iter().zip(&mut receivers) {
            mailbox.post(Some(ConnectedRing { ring, connection }));
        }
        let sender = senders.into_iter().next();
        self.nic
            .tx
            .post(sender.map(|ring| ConnectedRing { ring, connection }));
        self.nic.queues_in_use.store(queues as u16, Ordering::Relaxed);
        let capabilities = memory.layout().capabilities;
        // The kernel names the user of the device, so the device cannot name another one.
        let is_same_user = socket_peercred(socket).is_ok_and(|peer| peer.uid == geteuid());
        self.nic.is_same_user.store(is_same_user, Ordering::Relaxed);
        self.nic.entries.store(capabilities.rows(), Ordering::Relaxed);
        let drops = (capabilities.drops != 0).then(|| {
            let wake = Arc::clone(&self.nic.wake);
            Arc::new(DeviceDrops::new(capabilities.drops as usize, move || wake.wake()))
        });
        self.nic.set_drops(drops.clone());
        let mut control = Control {
            commands,
            // Fences come to all queues, so those without a worker are read here.
            spare: receivers.collect(),
            installer: Installer::new(&self.config, capabilities.row_bits),
            drops,
            next_count: Instant::now() + COUNT_INTERVAL,
            queues: buckets,
            queues_len: queues,
            follows: table.is_some(),
            moving: None,
        };
        *self.nic.memory.lock() = Some(memory.clone());
        self.nic.is_connected.store(true, Ordering::Release);
        tracing::info!(device = %self.nic.name, queues, "nic: device connected");
        let outcome = self.watch(socket, connection, &mut control);
        self.nic.moves.give_up();
        memory.write_register("CONTROL", 0, 0);
        outcome
    }

    /// Fails if the port is closed, the bridge's thread has given the device up, or the time is over.
    fn check(&self, deadline: Instant) -> Result<(), EndReason> {
        if self.stop.load(Ordering::Acquire) {
            Err(EndReason::Stopped)
        } else if self.nic.drops().is_some_and(|drops| drops.is_over()) {
            Err(EndReason::TooLate)
        } else if Instant::now() >= deadline {
            Err(EndReason::TooSlow)
        } else {
            Ok(())
        }
    }

    /// Gives all buckets their queues.
    fn set_buckets(
        &self,
        commands: &mut Commands,
        queues: &[u8],
        deadline: Instant,
    ) -> Result<(), EndReason> {
        let wanted = bucket_commands(queues, None);
        let completions = self.execute(commands, &wanted, deadline)?;
        let mut statuses = completions.into_iter().map(|completion| completion.status);
        match statuses.find(|status| *status != Status::Ok) {
            Some(status) => Err(EndReason::Refused(status)),
            None => Ok(()),
        }
    }

    /// Begins the move that the switch asks for, or ends one.
    fn move_buckets(&self, control: &mut Control) -> Result<(), EndReason> {
        let Some(table) = self.nic.table.get() else {
            return Ok(());
        };
        if !core::mem::replace(&mut control.follows, true) {
            // The table came after the device, whose buckets are even.
            table.set_queues(control.queues_len);
        }
        let moves = &self.nic.moves;
        if let Some((queues, since)) = &control.moving {
            let is_late = since.elapsed() >= MOVE_TIMEOUT;
            if !moves.has_settled() && !is_late {
                return Ok(());
            }
            if is_late {
                tracing::warn!(device = %self.nic.name, "nic: a worker stalls, or a fence is lost: a move of buckets may reorder packets");
                moves.give_up();
            }
            table.complete(Some(queues));
            control.queues.clone_from(queues);
            control.moving = None;
        }
        let Some(wanted) = table.wanted_queues() else {
            return Ok(());
        };
        if wanted == control.queues {
            table.complete(Some(&wanted));
            return Ok(());
        }
        let fence = self.nic.fences.next();
        moves.begin(fence, &control.queues, &wanted);
        let commands = bucket_commands(&wanted, Some(fence));
        let completions = self.execute(&mut control.commands, &commands, Instant::now() + CONNECT_TIMEOUT)?;
        match completions
            .iter()
            .all(|completion| completion.status == Status::Ok)
        {
            true => control.moving = Some((wanted, Instant::now())),
            // A queue has no room for the fence: all stays as it is, and the balancer asks again.
            false => {
                moves.give_up();
                table.complete(None);
            }
        }
        Ok(())
    }

    /// Executes commands in order, as many at a time as the ring holds. Returns their completions.
    fn execute(
        &self,
        commands: &mut Commands,
        wanted: &[Command],
        deadline: Instant,
    ) -> Result<Vec<CommandCompletion>, EndReason> {
        let (mut submitted, mut completions) = (0, Vec::with_capacity(wanted.len()));
        while completions.len() < wanted.len() {
            while wanted
                .get(submitted)
                .is_some_and(|command| commands.submit(command))
            {
                submitted += 1;
            }
            match commands.poll()? {
                Some(completion) => completions.push(completion),
                None => {
                    self.check(deadline)?;
                    std::thread::sleep(COMMAND_INTERVAL);
                }
            }
        }
        Ok(completions)
    }

    /// Executes changes of drops, and reads drop counters that are due.
    fn run_drops(&self, control: &mut Control) -> Result<(), EndReason> {
        let Some(drops) = &control.drops else {
            return Ok(());
        };
        if drops.is_over() {
            return Err(EndReason::TooLate);
        }
        let (installer, commands) = (&mut control.installer, &mut control.commands);
        let mut execute = |wanted: &[Command]| {
            let deadline = Instant::now() + CONNECT_TIMEOUT;
            self.execute(commands, wanted, deadline)
        };
        installer.run_drops(drops, &mut execute)?;
        if Instant::now() < control.next_count {
            return Ok(());
        }
        for slots in installer.dropping().chunks(COUNTS_BATCH) {
            installer.read_drops(drops, slots, &mut execute)?;
            installer.run_drops(drops, &mut execute)?;
        }
        control.next_count = Instant::now() + COUNT_INTERVAL;
        Ok(())
    }

    /// Waits until the device closes the connection, a worker finds a violation, or the port is closed.
    fn watch(&self, socket: &OwnedFd, connection: u64, control: &mut Control) -> Result<(), EndReason> {
        loop {
            if self.stop.load(Ordering::Acquire) {
                return Err(EndReason::Stopped);
            }
            while let Some((number, violation)) = self.nic.violations.pop() {
                if number == connection {
                    return Err(violation.into());
                }
            }
            match receive(socket) {
                Received::Nothing => {}
                Received::Closed => return Err(EndReason::Closed),
                Received::Memory(_) | Received::Other => return Err(EndReason::Other),
            }
            let has_changes = control.drops.as_ref().is_some_and(|drops| drops.is_waiting());
            let is_pending = !self.nic.operations.is_empty() || has_changes;
            if !is_pending {
                let bound = match control.installer.is_waiting() || control.moving.is_some() {
                    true => FENCE_INTERVAL,
                    false => RECONNECT_INTERVAL,
                };
                self.wait(Some(socket), bound);
            }
            for receiver in &mut control.spare {
                // Frames for a queue without a worker are lost.
                receiver.receive(|_| true)?;
            }
            self.move_buckets(control)?;
            self.run_drops(control)?;
            let commands = &mut control.commands;
            let batch = (OPERATIONS_BATCH, Instant::now());
            control
                .installer
                .run(&self.nic, control.drops.as_deref(), batch, |wanted| {
                    self.execute(commands, wanted, Instant::now() + CONNECT_TIMEOUT)
                })?;
            self.collect();
        }
    }
}
