//! The queues between a tap device's file and the workers, with the two threads that make the system calls.
//!
//! Other programs may delete the interface (`ip link del`, the end of the network namespace that it was moved to). The file is
//! then of no interface for ever. The thread that reads asks for another file until there is one.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use millrace_wire::Packet;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use parking_lot::Mutex;

use crate::io::allocate::Allocate;
use crate::io::{Burst, DeviceStats, RxQueue, TxQueue};

/// Capacity of each direction in packets.
const QUEUE_LEN: usize = 1024;
/// The longest frame that is read, in bytes: the kernel's limit of the MTU, and a header.
const FRAME_SIZE: usize = 65_536;
/// The time between two attempts to make a deleted interface again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Makes an interface again that another program deleted, and is told of it.
pub(super) trait Remake: Send {
    /// Makes the interface again.
    ///
    /// # Errors
    /// Returns the error of the kernel; the call is repeated after [`RETRY_INTERVAL`].
    fn remake(&self) -> io::Result<File>;

    /// Is called when the interface was deleted, and when it is there again.
    fn changed(&self);
}

struct Pipes<P> {
    to_switch: ArrayQueue<P>,
    from_switch: ArrayQueue<P>,
    /// True if the device is closed: the threads end.
    stop: AtomicBool,
    /// Wakes the thread that reads.
    stopped: EventFd,
    /// True if the interface was deleted, and is not there again.
    is_deleted: AtomicBool,
    /// The file of the interface, for the thread that writes.
    file: Mutex<Arc<File>>,
    missed: AtomicU64,
    no_buffer: AtomicU64,
    tx_errors: AtomicU64,
}

pub(super) struct Rx<P>(Arc<Pipes<P>>);

pub(super) struct Tx<P> {
    pipes: Arc<Pipes<P>>,
    writer: Thread,
}

/// The threads of an open file. They end when this is dropped.
pub(super) struct Connection<P> {
    pipes: Arc<Pipes<P>>,
    threads: Vec<JoinHandle<()>>,
}

impl<P: Packet + 'static> Connection<P> {
    /// Starts the threads of a file of a tap device; returns the queues, too. Without `remake`, a deleted interface stays away.
    ///
    /// # Errors
    /// Returns the error of the system: a thread or a descriptor too many.
    pub(super) fn start(
        file: File,
        name: &str,
        allocate: &Allocate<P>,
        remake: Option<Box<dyn Remake>>,
    ) -> io::Result<(Connection<P>, Rx<P>, Tx<P>)> {
        let file = Arc::new(file);
        let pipes = Arc::new(Pipes {
            to_switch: ArrayQueue::new(QUEUE_LEN),
            from_switch: ArrayQueue::new(QUEUE_LEN),
            stop: AtomicBool::new(false),
            stopped: EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?,
            is_deleted: AtomicBool::new(false),
            file: Mutex::new(Arc::clone(&file)),
            missed: AtomicU64::new(0),
            no_buffer: AtomicU64::new(0),
            tx_errors: AtomicU64::new(0),
        });
        let mut connection = Connection {
            pipes: Arc::clone(&pipes),
            threads: Vec::new(),
        };
        let reader = std::thread::Builder::new().name(format!("rx-{name}")).spawn({
            let (pipes, allocate) = (Arc::clone(&pipes), Arc::clone(allocate));
            let name = name.to_owned();
            move || follow(file, &name, &pipes, &allocate, remake.as_deref())
        });
        connection.threads.push(reader?);
        let writer = std::thread::Builder::new().name(format!("tx-{name}")).spawn({
            let pipes = Arc::clone(&pipes);
            move || write(&pipes)
        });
        let writer = writer?;
        let waker = writer.thread().clone();
        connection.threads.push(writer);
        let transmit = Tx {
            pipes: Arc::clone(&pipes),
            writer: waker,
        };
        Ok((connection, Rx(pipes), transmit))
    }
}

impl<P> Connection<P> {
    /// Returns true if another program deleted the interface, and it is not there again.
    pub(super) fn is_deleted(&self) -> bool {
        self.pipes.is_deleted.load(Ordering::Acquire)
    }

    pub(super) fn stats(&self) -> DeviceStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DeviceStats {
            rx_missed: read(&self.pipes.missed),
            rx_errors: 0,
            rx_no_buffer: read(&self.pipes.no_buffer),
            tx_errors: read(&self.pipes.tx_errors),
        }
    }
}

impl<P> Drop for Connection<P> {
    fn drop(&mut self) {
        self.pipes.stop.store(true, Ordering::Release);
        // The event stays readable until the end, so nothing is lost if the thread does not wait now.
        let _full = self.pipes.stopped.write(1);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let _panicked = thread.join();
        }
    }
}

/// The body of the reading thread: reads frames of the interface, and of those that take its place.
fn follow<P: Packet>(
    mut file: Arc<File>,
    name: &str,
    pipes: &Pipes<P>,
    allocate: &Allocate<P>,
    remake: Option<&dyn Remake>,
) {
    loop {
        read(&file, pipes, allocate);
        if pipes.stop.load(Ordering::Acquire) {
            return;
        }
        pipes.is_deleted.store(true, Ordering::Release);
        let Some(remake) = remake else { return };
        tracing::warn!(
            interface = name,
            "another program deleted the tap device: it is made again"
        );
        remake.changed();
        let Some(made) = made_again(name, pipes, remake) else {
            return;
        };
        file = Arc::new(made);
        *pipes.file.lock() = Arc::clone(&file);
        pipes.is_deleted.store(false, Ordering::Release);
        remake.changed();
    }
}

/// Returns the file of the interface that is made again; `None` if the device is closed before there is one.
fn made_again<P>(name: &str, pipes: &Pipes<P>, remake: &dyn Remake) -> Option<File> {
    let mut told = String::new();
    while !pipes.stop.load(Ordering::Acquire) {
        match remake.remake() {
            Ok(file) => return Some(file),
            Err(error) => {
                let text = error.to_string();
                if text != told {
                    tracing::warn!(interface = name, %error, "the tap device cannot be made again yet; it is tried each second");
                    told = text;
                }
            }
        }
        let mut stopped = [PollFd::new(pipes.stopped.as_fd(), PollFlags::POLLIN)];
        let longest = PollTimeout::try_from(RETRY_INTERVAL).unwrap_or(PollTimeout::MAX);
        // An interrupted wait only ends early.
        let _interrupted = poll(&mut stopped, longest);
    }
    None
}

/// Reads frames from the kernel until the device is closed or the interface deleted.
fn read<P: Packet>(mut file: &File, pipes: &Pipes<P>, allocate: &Allocate<P>) {
    let mut bytes = vec![0; FRAME_SIZE];
    while !pipes.stop.load(Ordering::Acquire) {
        match file.read(&mut bytes) {
            Ok(0) => break,
            Ok(size) => match allocate(&bytes[..size]) {
                None => count(&pipes.no_buffer),
                Some(packet) => {
                    if pipes.to_switch.push(packet).is_err() {
                        count(&pipes.missed);
                    }
                }
            },
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let mut fds = [
                    PollFd::new(file.as_fd(), PollFlags::POLLIN),
                    PollFd::new(pipes.stopped.as_fd(), PollFlags::POLLIN),
                ];
                // An interrupted wait only ends early.
                let _interrupted = poll(&mut fds, PollTimeout::NONE);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
}

/// The body of the writing thread: writes frames to the kernel.
fn write<P: Packet>(pipes: &Pipes<P>) {
    let mut bytes = Vec::with_capacity(FRAME_SIZE);
    while !pipes.stop.load(Ordering::Acquire) {
        let Some(packet) = pipes.from_switch.pop() else {
            // The worker unparks this thread after it has pushed a packet, and `drop` after it has set `stop`.
            std::thread::park();
            continue;
        };
        bytes.clear();
        packet.copy_to(&mut bytes, FRAME_SIZE);
        drop(packet);
        // A tap device takes a frame at once or not at all: an interface that is down or deleted refuses it.
        let written = (&**pipes.file.lock()).write(&bytes);
        if written.is_err() {
            count(&pipes.tx_errors);
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl<P: Send> RxQueue<P> for Rx<P> {
    fn rx_burst(&mut self, burst: &mut Burst<P>) {
        while !burst.is_full()
            && let Some(packet) = self.0.to_switch.pop()
        {
            burst.push(packet);
        }
    }
}

impl<P: Send> TxQueue<P> for Tx<P> {
    fn tx_burst(&mut self, burst: &mut Burst<P>) {
        let queue = &self.pipes.from_switch;
        let room = queue.capacity() - queue.len();
        for packet in burst.drain(..room.min(burst.len())) {
            // There is room, because no other queue pushes packets here.
            let _refused = queue.push(packet);
        }
        self.writer.unpark();
    }
}
