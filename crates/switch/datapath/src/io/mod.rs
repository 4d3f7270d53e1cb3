//! Where packets come from and go to: one trait for each direction of a queue, and one for what can open
//! devices, so that the whole switch runs on DPDK, on pcap files or on memory alike.

mod af_packet;
mod bell;
#[cfg(feature = "dpdk")]
pub mod dpdk;
#[cfg(feature = "dpdk")]
mod dpdk_af_packet;
#[cfg(feature = "dpdk")]
mod dpdk_device;
mod heap;
mod kernel;
mod link;
mod memif;
mod memory;
mod modes;
#[cfg(feature = "dpdk")]
mod nodes;
mod pcap;
mod peer;
mod registry;
mod slot;
mod socket_file;
pub mod steer;
mod tap;
mod vhost;
mod vnic;

use core::fmt;
use std::path::PathBuf;
use std::time::Instant;

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_types::Mac;
use millrace_wire::Packet;
use millrace_wire::segment::Cut;
use thiserror::Error;

pub use heap::HeapBackend;
pub use memory::MemoryPeer;
pub use modes::{LinkModes, PortModes};
pub use registry::Registry;
pub use vnic::{SocketAccess, VnicKind, VnicSpec};

/// Up to [`BURST`] packets.
pub type Burst<P> = ArrayVec<P, BURST>;

/// A receive queue of a device. One worker owns it.
pub trait RxQueue<P>: Send {
    /// Appends received packets to `burst` until it is full or none is left, and never waits.
    fn rx_burst(&mut self, burst: &mut Burst<P>);

    /// Returns the time at which the queue has a packet without further input; a time in the past if it has one now.
    /// `None` for devices whose packets arrive from outside. A worker without work asks before it sleeps
    /// (docs/adr/0014-next-due.md).
    fn next_due(&mut self) -> Option<Instant> {
        None
    }
}

/// A transmit queue of a device. One worker owns it.
pub trait TxQueue<P>: Send {
    /// Sends packets from the front of `burst` and never waits. What the device does not take stays in
    /// `burst`, in order.
    fn tx_burst(&mut self, burst: &mut Burst<P>);

    /// How many of the packets that it has just left, of `left`, it will never take: the first ones. They are dropped.
    /// Only asked if it left some.
    fn refused(&self, left: usize) -> usize {
        let _ = left;
        0
    }

    /// Returns true if packets that it took are on their way still, so that some which another queue of the same
    /// device takes now might overtake them. What a device has taken has left; ports whose other end is one of our
    /// threads ask it.
    fn holds(&self) -> bool {
        false
    }

    /// Returns true if the device takes a packet that is to be cut as it is. Where not, its segments are sent in its
    /// place.
    fn takes_uncut(&mut self, packet: &P, cut: &Cut) -> bool {
        let _ = (packet, cut);
        false
    }
}

/// What a device is, as far as it says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// Its driver: `net_af_xdp`, `memory`.
    pub driver: String,
    /// Its MAC address.
    pub mac: Mac,
    /// Link speed in Mbit/s; `None` if the device does not know.
    pub speed_mbps: Option<u32>,
    /// True if the link is up.
    pub link_up: bool,
    /// How it can be, and is, connected.
    pub modes: PortModes,
    /// The longest payload of a frame in bytes.
    pub mtu: u16,
    /// NUMA node that the device is attached to, if known.
    pub numa_node: Option<u32>,
    /// Receive queues that are open.
    pub rx_queues: u16,
    /// By what the device spreads flows over them (`ip,tcp,udp`), if it does.
    pub rss: Option<String>,
    /// Which rules the device takes (`flows,marks`), if any: [`steer::Steers`].
    pub offload: Option<String>,
}

/// What a device counted since it was opened, beyond what workers count themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceStats {
    /// Packets that the device dropped because nobody fetched them in time.
    pub rx_missed: u64,
    /// Packets that arrived broken.
    pub rx_errors: u64,
    /// Packets that arrived when no buffer was free.
    pub rx_no_buffer: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
}

/// The control side's hold on an open device. Queues are with the workers.
pub trait Device: Send {
    /// What the device says of itself now.
    fn info(&self) -> DeviceInfo;

    /// What the device counted.
    fn stats(&self) -> DeviceStats;

    /// Brings the link up or down, where the device can.
    fn set_link(&mut self, up: bool);

    /// Returns true if packets come from it that are to be cut into segments ([`Packet::segment_size`]).
    fn gives_uncut(&self) -> bool {
        false
    }

    /// The part that takes rules, if there is one.
    fn steering(&mut self) -> Option<&mut dyn steer::Steering> {
        None
    }
}

/// A device that has just been opened: its queues go to workers.
pub struct Opened<P> {
    /// Receive queues, at least one, but for a logical port.
    pub rx: Vec<Box<dyn RxQueue<P>>>,
    /// Transmit queues, at least one. Workers that get none hand their packets to one that did.
    pub tx: Vec<Box<dyn TxQueue<P>>>,
    /// Dropped last, after the queues: closes the device.
    pub device: Box<dyn Device>,
}

/// Which device a port is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DeviceSpec {
    /// A NIC by PCI address: `0000:01:00.0`.
    Pci(String),
    /// A DPDK virtual device by its devargs: `net_af_xdp0,iface=veth1`.
    Vdev(String),
    /// Capture files: packets come from one and go to the other.
    Pcap {
        /// Replayed once, or again and again.
        rx: Option<PathBuf>,
        /// Created, or overwritten.
        tx: Option<PathBuf>,
        /// True if `rx` starts over at its end.
        repeat: bool,
    },
    /// One end of a patch: the two ports with the same link name are joined.
    Link(String),
    /// A tap device of the kernel, by the name of its interface.
    Tap(String),
    /// An interface that the kernel has, by its name.
    Kernel(String),
    /// A virtual machine, a container or a process, met at a socket.
    Vnic(VnicSpec),
    /// A device whose other end is held by a test in this process.
    Memory(String),
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceSpec::Pci(text) | DeviceSpec::Vdev(text) => f.write_str(text),
            DeviceSpec::Pcap { rx, tx, repeat } => {
                write!(f, "pcap:")?;
                let mut parts = Vec::new();
                parts.extend(rx.iter().map(|path| format!("rx={}", path.display())));
                parts.extend(tx.iter().map(|path| format!("tx={}", path.display())));
                parts.extend(repeat.then(|| "loop=true".to_owned()));
                f.write_str(&parts.join(","))
            }
            DeviceSpec::Link(name) => write!(f, "link:{name}"),
            DeviceSpec::Tap(name) => write!(f, "tap:{name}"),
            DeviceSpec::Kernel(name) => write!(f, "kernel:{name}"),
            DeviceSpec::Vnic(vnic) => write!(f, "{vnic}"),
            DeviceSpec::Memory(name) => write!(f, "memory:{name}"),
        }
    }
}

/// How to open a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceOptions {
    /// Wanted pairs of queues, at least 1; a device may give fewer.
    pub queues: u16,
    /// True if one queue is enough unless the device spreads flows over several by itself.
    pub only_if_spread: bool,
    /// Longest payload of a frame in bytes.
    pub mtu: u16,
}

impl DeviceOptions {
    /// One pair of queues, and the MTU of Ethernet.
    pub const PLAIN: DeviceOptions = DeviceOptions {
        queues: 1,
        only_if_spread: false,
        mtu: 1500,
    };
}

/// Why a device cannot be opened, and what to do about it.
#[derive(Debug, Error)]
pub enum OpenError {
    /// This process was built or started without what the device needs.
    #[error("{device}: {reason}. To fix it: {remedy}")]
    Unsupported {
        /// The device.
        device: String,
        /// What is missing.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// There is no such device.
    #[error("{device}: not found: {reason}. To fix it: {remedy}")]
    Missing {
        /// The device.
        device: String,
        /// What was looked for.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// Somebody else has it.
    #[error("{device}: in use: {reason}. To fix it: {remedy}")]
    Busy {
        /// The device.
        device: String,
        /// By whom, as far as known.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// The driver cannot; it says why and what to do.
    #[error("{source}")]
    Driver {
        /// The device.
        device: String,
        /// What the driver said.
        source: Box<dyn core::error::Error + Send + Sync>,
    },
    /// The device is there and refuses.
    #[error("{device}: cannot be opened: {reason}. To fix it: {remedy}")]
    Failed {
        /// The device.
        device: String,
        /// What it said.
        reason: String,
        /// What to do.
        remedy: String,
    },
}

/// Opens devices whose packets are all of one type.
pub trait Backend: Send + Sync + 'static {
    /// The packet buffer.
    type Packet: Packet + 'static;

    /// Whatever a worker's thread must hold while it runs.
    type Registration;

    /// A packet with these bytes; `None` when no buffer is free. Not for workers.
    fn packet(&self, bytes: &[u8]) -> Option<Self::Packet>;

    /// Opens a device.
    ///
    /// # Errors
    /// [`OpenError`], with a remedy.
    fn open(&self, spec: &DeviceSpec, options: DeviceOptions) -> Result<Opened<Self::Packet>, OpenError>;

    /// Called once on the thread of each worker, before its first burst.
    ///
    /// # Errors
    /// What to tell a person when the thread cannot become a worker.
    fn register_worker(&self) -> Result<Self::Registration, String>;

    /// Buffers: `(in use, in all)`, where buffers come from a pool.
    fn buffers(&self) -> Option<(usize, usize)>;
}
