//! A tap device: a kernel interface by which the machine itself, or a container, is connected to a bridge.
//!
//! A system call for each frame is expensive, and a system call for each poll even more so. Two threads
//! therefore make these calls, one for each direction, and workers see two queues in memory. An empty poll
//! costs a worker one read of a counter, while the threads sleep in the kernel. Works with any packet buffer,
//! with and without DPDK.

use core::cell::Cell;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, Thread};

use crossbeam_queue::ArrayQueue;
use millrace_types::Mac;
use millrace_wire::Packet;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::allocate::Allocate;
use super::kernel;
use super::{
    Burst, Device, DeviceInfo, DeviceOptions, DeviceSpec, DeviceStats, OpenError, Opened, PortModes, RxQueue,
    TxQueue,
};

/// Capacity of each direction in packets.
const QUEUE_LEN: usize = 1024;
/// The longest frame that is read, in bytes: the kernel's limit of the MTU, and a header.
const FRAME_SIZE: usize = 65_536;

struct Pipes<P> {
    to_switch: ArrayQueue<P>,
    from_switch: ArrayQueue<P>,
    /// True if the device is closed: the threads end.
    stop: AtomicBool,
    /// Wakes the thread that reads.
    stopped: EventFd,
    /// True if the interface was deleted.
    is_deleted: AtomicBool,
    missed: AtomicU64,
    no_buffer: AtomicU64,
    tx_errors: AtomicU64,
}

struct Rx<P>(Arc<Pipes<P>>);

struct Tx<P> {
    pipes: Arc<Pipes<P>>,
    writer: Thread,
}

struct Tap<P> {
    name: String,
    mtu: u16,
    /// The last known MAC address; an interface in another network namespace cannot be queried.
    mac: Cell<Mac>,
    pipes: Arc<Pipes<P>>,
    threads: Vec<JoinHandle<()>>,
}

/// Creates the interface and starts its threads.
///
/// # Errors
/// Returns [`OpenError`], which has the next step.
pub(super) fn open<P: Packet + 'static>(
    spec: &DeviceSpec,
    name: &str,
    options: DeviceOptions,
    allocate: &Allocate<P>,
) -> Result<Opened<P>, OpenError> {
    let file = kernel::create(name).map_err(|error| refused(spec, name, &error))?;
    let failed = |error: std::io::Error| OpenError::Failed {
        device: spec.to_string(),
        reason: error.to_string(),
        next_step: "read the kernel's messages: ip -d link show, dmesg".to_owned(),
    };
    kernel::set_mtu(name, options.mtu).map_err(failed)?;
    let pipes = Arc::new(Pipes {
        to_switch: ArrayQueue::new(QUEUE_LEN),
        from_switch: ArrayQueue::new(QUEUE_LEN),
        stop: AtomicBool::new(false),
        stopped: EventFd::from_flags(EfdFlags::EFD_CLOEXEC).map_err(|error| failed(error.into()))?,
        is_deleted: AtomicBool::new(false),
        missed: AtomicU64::new(0),
        no_buffer: AtomicU64::new(0),
        tx_errors: AtomicU64::new(0),
    });
    let mut tap = Tap {
        name: name.to_owned(),
        mtu: options.mtu,
        mac: Cell::new(Mac::ZERO),
        pipes: Arc::clone(&pipes),
        threads: Vec::new(),
    };
    let writing = file.try_clone().map_err(failed)?;
    let reader = std::thread::Builder::new().name(format!("rx-{name}")).spawn({
        let (pipes, allocate) = (Arc::clone(&pipes), Arc::clone(allocate));
        move || read(file, &pipes, &allocate)
    });
    tap.threads.push(reader.map_err(failed)?);
    let writer = std::thread::Builder::new().name(format!("tx-{name}")).spawn({
        let pipes = Arc::clone(&pipes);
        move || write(writing, &pipes)
    });
    let writer = writer.map_err(failed)?;
    let waker = writer.thread().clone();
    tap.threads.push(writer);
    Ok(Opened {
        rx: vec![Box::new(Rx(Arc::clone(&pipes)))],
        tx: vec![Box::new(Tx { pipes, writer: waker })],
        device: Box::new(tap),
    })
}

fn refused(spec: &DeviceSpec, name: &str, error: &std::io::Error) -> OpenError {
    let device = spec.to_string();
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EINVAL | libc::EEXIST) => OpenError::Busy {
            device,
            reason: format!("the kernel refuses a tap device of this name: {error}"),
            next_step: format!("see its user (ip -d link show {name}), or choose another name"),
        },
        Some(libc::EPERM | libc::EACCES) => OpenError::Failed {
            device,
            reason: format!("{error}: this process may not create interfaces"),
            next_step: format!(
                "start millraced with CAP_NET_ADMIN, or create the interface for it: \
                 ip tuntap add dev {name} mode tap user USER"
            ),
        },
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => OpenError::Unsupported {
            device,
            reason: format!("/dev/net/tun: {error}"),
            next_step: "load the kernel's module: modprobe tun; give a container the device /dev/net/tun"
                .to_owned(),
        },
        _ => OpenError::Failed {
            device,
            reason: error.to_string(),
            next_step: "read the kernel's messages: dmesg".to_owned(),
        },
    }
}

/// The body of the reading thread: reads frames from the kernel.
fn read<P: Packet>(mut file: File, pipes: &Pipes<P>, allocate: &Allocate<P>) {
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
    if !pipes.stop.load(Ordering::Acquire) {
        pipes.is_deleted.store(true, Ordering::Release);
    }
}

/// The body of the writing thread: writes frames to the kernel.
fn write<P: Packet>(mut file: File, pipes: &Pipes<P>) {
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
        // A tap device takes a frame at once or not at all: an interface that is down refuses it.
        if file.write(&bytes).is_err() {
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

impl<P: Send> Device for Tap<P> {
    fn info(&self) -> DeviceInfo {
        let state = kernel::state(&self.name).ok();
        if let Some(state) = state {
            self.mac.set(Mac(state.mac));
        }
        // An interface that was moved to a container cannot be queried, and counts as up.
        let is_running = state.is_none_or(|state| state.is_running);
        DeviceInfo {
            driver: "tap".to_owned(),
            mac: self.mac.get(),
            speed_mbps: None,
            link_up: is_running && !self.pipes.is_deleted.load(Ordering::Acquire),
            modes: PortModes::default(),
            mtu: self.mtu,
            numa_node: None,
            rx_queues: 1,
            rss: None,
            offload: None,
        }
    }

    fn stats(&self) -> DeviceStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DeviceStats {
            rx_missed: read(&self.pipes.missed),
            rx_errors: 0,
            rx_no_buffer: read(&self.pipes.no_buffer),
            tx_errors: read(&self.pipes.tx_errors),
        }
    }

    /// Does nothing: the owner of the interface's addresses sets it up or down.
    fn set_link(&mut self, _up: bool) {}
}

impl<P> Drop for Tap<P> {
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
