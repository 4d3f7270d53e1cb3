//! Devices, the sources and sinks of packets: one trait for each direction of a queue, and one for backends
//! that open devices. With these traits the whole switch runs on DPDK, on pcap files or on memory alike.

mod af_packet;
mod allocate;
mod buckets;
mod changes;
#[cfg(feature = "dpdk")]
pub mod dpdk;
#[cfg(feature = "dpdk")]
mod dpdk_af_packet;
#[cfg(feature = "dpdk")]
mod dpdk_device;
#[cfg_attr(
    not(any(feature = "dpdk", test)),
    allow(dead_code, reason = "only devices of DPDK have rules")
)]
mod flow_entries;
mod heap;
mod kernel;
mod link;
mod link_watch;
mod memif;
mod memory;
mod modes;
mod nic;
#[cfg(feature = "dpdk")]
mod nodes;
mod notifier;
mod owner;
mod pcap;
mod peer;
mod registry;
mod ring_slot;
mod socket_file;
pub mod steer;
mod tap;
mod vhost;
mod vnic;
pub mod wan;

use core::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use arrayvec::ArrayVec;
use millrace_flow::classify::BURST;
use millrace_nic::reading::Reading;
use millrace_pipeline::MarkColumn;
use millrace_types::Mac;
use millrace_wire::Packet;
use millrace_wire::segment::GsoLayout;
use thiserror::Error;

use crate::offload::Offload;

pub use buckets::BucketTable;
pub use changes::ChangeReporter;
pub(crate) use changes::ChangedPorts;
pub use heap::HeapBackend;
pub use memory::MemoryPeer;
pub use modes::{LinkModes, PortModes};
pub use owner::kernel_interface;
pub use registry::Registry;
pub use socket_file::SocketFile;
pub use vnic::{SocketAccess, VnicKind, VnicSpec};

/// A burst: up to [`BURST`] packets.
pub type Burst<P> = ArrayVec<P, BURST>;

/// A receive queue of a device. One worker owns it.
pub trait RxQueue<P>: Send {
    /// Appends received packets to `burst` until `burst` is full or no packet is left. Never waits.
    fn rx_burst(&mut self, burst: &mut Burst<P>);

    /// Returns the time at which the queue has a packet without further input; a past time if it has one now.
    /// Returns `None` for devices whose packets arrive from outside. A worker without work calls this before
    /// it sleeps (docs/adr/0014-next-due.md).
    fn next_due(&mut self) -> Option<Instant> {
        None
    }

    /// Returns true if [`Self::settled`] is to be called.
    fn has_fences(&self) -> bool {
        false
    }

    /// Notes that all packets that the queue has delivered so far have left the worker: no packet of another worker can overtake
    /// them. Called after rounds of workers that share a port with others.
    fn settled(&mut self) {}

    /// Has the queue keep the marks and hashes of its packets for [`Self::marks`], or not.
    fn keep_marks(&mut self, is_kept: bool) {
        let _ = is_kept;
    }

    /// Returns the marks and hashes of the packets of the last burst, if the queue keeps them.
    fn marks(&self) -> Option<&MarkColumn> {
        None
    }

    /// Returns the source of the device's packets, for a thread that sleeps until one arrives.
    fn input(&mut self) -> Input {
        Input::Polled
    }
}

/// The source of the packets of a receive queue.
#[derive(Debug)]
pub enum Input {
    /// Only [`RxQueue::rx_burst`] finds packets.
    Polled,
    /// The descriptor is readable when packets have arrived. It is a duplicate: ask for it again before each wait.
    Descriptor(OwnedFd),
    /// No packet arrives until the device is attached again, which a thread of the device does.
    Detached,
}

/// A transmit queue of a device. One worker owns it.
pub trait TxQueue<P>: Send {
    /// Sends packets from the front of `burst`. Packets that the device does not take stay in `burst`, in order. Never
    /// waits.
    fn tx_burst(&mut self, burst: &mut Burst<P>);

    /// Returns the number of packets that the device will never take. They are the first of the `left`
    /// packets that the last [`Self::tx_burst`] left in the burst, and the caller drops them. Called only if
    /// `left` is not zero.
    fn refused(&self, left: usize) -> usize {
        let _ = left;
        0
    }

    /// Returns true if packets that the queue took have not left yet, so that packets of another queue of the
    /// same device might overtake them. Devices return false, because their packets have left once they are
    /// taken. Ports with a thread of the switch at the other end override this.
    fn has_in_flight(&self) -> bool {
        false
    }

    /// Returns true if the device takes a GSO packet unsegmented. Otherwise the caller sends its segments.
    fn takes_gso(&mut self, packet: &P, gso: &GsoLayout) -> bool {
        let _ = (packet, gso);
        false
    }

    /// Exchanges the diversion of this queue, or of the one behind it, with the one that is given. Returns false if there is
    /// no diverting queue, and then changes nothing.
    fn exchange_diversion(&mut self, diversion: &mut Option<Box<dyn Diversion<P>>>) -> bool {
        let _ = diversion;
        false
    }
}

/// Takes packets that a port sends before its device gets them ([`Bridge::divert`](crate::Bridge::divert)). Like all code of a
/// worker it takes no lock, allocates nothing in steady state, logs nothing and never waits.
pub trait Diversion<P>: Send {
    /// Takes its packets out of `burst`, moves those for the device to `device`, which is empty, and leaves in `burst` those
    /// that it has no room for now, each in order.
    fn divert(&mut self, burst: &mut Burst<P>, device: &mut Burst<P>);

    /// Returns true if it would take a packet.
    fn takes(&mut self, packet: &P) -> bool;

    /// Returns true if packets that it took are still on their way, as [`TxQueue::has_in_flight`].
    fn has_in_flight(&self) -> bool;
}

/// The properties of a device, as far as it reports them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// The name of the driver: `net_af_xdp`, `memory`.
    pub driver: String,
    /// The MAC address of the device.
    pub mac: Mac,
    /// Link speed in Mbit/s; `None` if unknown.
    pub speed_mbps: Option<u32>,
    /// True if the link is up.
    pub link_up: bool,
    /// The link modes that the device supports and uses.
    pub modes: PortModes,
    /// The MTU: the longest payload of a frame in bytes.
    pub mtu: u16,
    /// The NUMA node that the device is attached to; `None` if unknown.
    pub numa_node: Option<u32>,
    /// Number of open receive queues.
    pub rx_queues: u16,
    /// The headers by which the device spreads flows over its receive queues (`ip,tcp,udp`); `None` without
    /// spreading.
    pub rss: Option<String>,
    /// The types of rules that the device accepts (`flows,marks`), if any: [`steer::Steers`].
    pub offload: Option<String>,
}

/// The counters of a device since it was opened, beyond those of the workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceStats {
    /// Packets that the device dropped because no worker fetched them in time.
    pub rx_missed: u64,
    /// Packets that arrived damaged.
    pub rx_errors: u64,
    /// Packets that arrived when no buffer was free.
    pub rx_no_buffer: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
}

/// The control side's handle of an open device. The workers have its queues.
pub trait Device: Send {
    /// Returns the properties of the device now.
    fn info(&self) -> DeviceInfo;

    /// Returns the counters of the device.
    fn stats(&self) -> DeviceStats;

    /// Has the device report when its properties may have changed ([`Device::info`]). Returns false if it cannot: the caller
    /// looks at it regularly then.
    fn report_changes(&mut self, reporter: &ChangeReporter) -> bool {
        let _ = reporter;
        false
    }

    /// Sets the link up or down, if the device can.
    fn set_link(&mut self, up: bool);

    /// Sets the MAC address of the device, now and whenever it is made again; `None` leaves it as it is from now on.
    ///
    /// # Errors
    /// The device has an address of its own, or the error of the kernel: the address is set when the device is made again.
    fn set_mac(&mut self, mac: Option<Mac>) -> io::Result<()> {
        match mac {
            Some(_) => Err(io::ErrorKind::Unsupported.into()),
            None => Ok(()),
        }
    }

    /// Returns true if the device delivers GSO packets ([`Packet::segment_size`]).
    fn delivers_gso(&self) -> bool {
        false
    }

    /// Returns the number of received frames that were dropped because they did not fit the checksum or the segmentation
    /// that their sender left to the switch, or were longer than the MTU. [`Device::stats`] counts them as errors, too.
    fn refused_frames(&self) -> u64 {
        0
    }

    /// Returns what an operator can do about refused frames.
    fn refusal_remedy(&self) -> String {
        String::new()
    }

    /// Has the device dispatch by a table of buckets, and move buckets as the table is asked to. Returns false if the device does
    /// not dispatch; workers then hand packets to each other. Called before the workers get the queues.
    fn follow(&mut self, table: &Arc<dyn BucketTable>) -> bool {
        let _ = table;
        false
    }

    /// Returns the interface for entries that mark packets, if the device has any.
    fn offload(&mut self) -> Option<&mut dyn Offload> {
        None
    }

    /// Returns the registers of the device, if it has any that people know; none while it is away.
    fn registers(&self) -> Option<Vec<Reading>> {
        None
    }

    /// Returns the interface for rules, if the device takes any.
    fn steering(&mut self) -> Option<&mut dyn steer::Steering> {
        None
    }
}

/// A device that has just been opened. Its queues go to workers.
pub struct Opened<P> {
    /// Receive queues, at least one, except for a logical port.
    pub rx: Vec<Box<dyn RxQueue<P>>>,
    /// Transmit queues, at least one. Workers without a queue forward their packets to a worker with one.
    pub tx: Vec<Box<dyn TxQueue<P>>>,
    /// The device, which closes when this handle is dropped, after the queues.
    pub device: Box<dyn Device>,
}

/// The type and address of a device.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DeviceSpec {
    /// A NIC, by PCI address: `0000:01:00.0`.
    Pci(String),
    /// A DPDK virtual device, by its devargs: `net_af_xdp0,iface=veth1`.
    Vdev(String),
    /// Capture files: packets are received from one and sent to the other.
    Pcap {
        /// The file that is replayed, once or repeatedly.
        rx: Option<PathBuf>,
        /// The file that is created or overwritten.
        tx: Option<PathBuf>,
        /// True if `rx` starts over at its end.
        repeat: bool,
    },
    /// One end of a patch: the two ports with the same link name are joined.
    Link(String),
    /// One end of an emulated path.
    Wan {
        /// The name of the path.
        name: String,
        /// 0 for end a, 1 for end b.
        end: usize,
    },
    /// A tap device of the kernel, by the name of its interface.
    Tap(String),
    /// The shadow of an L3 interface: a tap device in the network namespace of a VRF.
    Shadow(ShadowSpec),
    /// An existing interface of the kernel, by its name.
    Kernel(String),
    /// A NIC that classifies and dispatches packets, by the socket of its process.
    Nic(PathBuf),
    /// The virtual NIC of a virtual machine, a container or a process, by its socket.
    Vnic(VnicSpec),
    /// A device with its other end in this process, for tests.
    Memory(String),
}

/// The properties of a shadow interface.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ShadowSpec {
    /// The file of the network namespace: `/run/netns/blue`; `None` for that of this process.
    pub namespace: Option<PathBuf>,
    /// The name of the interface, 1 to 15 bytes.
    pub name: String,
    /// The MAC address of the router on the link.
    pub mac: Mac,
}

impl fmt::Display for ShadowSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shadow:{}", self.name)?;
        match &self.namespace {
            Some(path) => write!(f, "@{}", path.display()),
            None => Ok(()),
        }
    }
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
            DeviceSpec::Wan { name, end } => {
                write!(f, "wan:{name},{}", if *end == 0 { "a" } else { "b" })
            }
            DeviceSpec::Tap(name) => write!(f, "tap:{name}"),
            DeviceSpec::Shadow(shadow) => write!(f, "{shadow}"),
            DeviceSpec::Kernel(name) => write!(f, "kernel:{name}"),
            DeviceSpec::Nic(path) => write!(f, "nic:{}", path.display()),
            DeviceSpec::Vnic(vnic) => write!(f, "{vnic}"),
            DeviceSpec::Memory(name) => write!(f, "memory:{name}"),
        }
    }
}

/// The options for opening a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceOptions {
    /// The wanted number of queue pairs, at least 1; a device may provide fewer.
    pub queues: u16,
    /// True to open one queue only, unless the device itself spreads flows over several.
    pub only_if_spread: bool,
    /// The MTU: the longest payload of a frame in bytes.
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

/// The reason why a device cannot be opened, and the next step.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The process was built or started without a part that the device needs.
    #[error("{device}: {reason}. To fix it: {next_step}")]
    Unsupported {
        device: String,
        /// The missing part.
        reason: String,
        next_step: String,
    },
    /// There is no such device.
    #[error("{device}: not found: {reason}. To fix it: {next_step}")]
    Missing {
        device: String,
        /// The name or path that was looked up.
        reason: String,
        next_step: String,
    },
    /// Another user has the device.
    #[error("{device}: in use: {reason}. To fix it: {next_step}")]
    Busy {
        device: String,
        /// The other user, as far as known.
        reason: String,
        next_step: String,
    },
    /// The driver cannot open the device; the driver's error has the reason and the next step.
    #[error("{source}")]
    Driver {
        device: String,
        /// The error of the driver.
        source: Box<dyn core::error::Error + Send + Sync>,
    },
    /// The device exists, but cannot be opened.
    #[error("{device}: cannot be opened: {reason}. To fix it: {next_step}")]
    Failed {
        device: String,
        /// The error.
        reason: String,
        next_step: String,
    },
}

/// Opens devices that all have the same packet type.
pub trait Backend: Send + Sync + 'static {
    /// The packet buffer.
    type Packet: Packet + 'static;

    /// The value that a worker's thread holds while it runs.
    type Registration;

    /// Returns a packet with these bytes, or `None` if no buffer is free. Not for workers.
    fn packet(&self, bytes: &[u8]) -> Option<Self::Packet>;

    /// Returns the emulated paths whose ends this backend opens as [`DeviceSpec::Wan`].
    fn wans(&self) -> &Arc<wan::Wans>;

    /// Opens a device.
    ///
    /// # Errors
    /// Returns [`OpenError`], which has the next step.
    fn open(&self, spec: &DeviceSpec, options: DeviceOptions) -> Result<Opened<Self::Packet>, OpenError>;

    /// Registers the calling thread, a worker's, before its first burst.
    ///
    /// # Errors
    /// Returns the reason, for people, if the thread cannot become a worker.
    fn register_worker(&self) -> Result<Self::Registration, String>;

    /// Returns the numbers of the pool's buffers; `None` without a pool.
    fn buffers(&self) -> Option<BufferCounts>;
}

/// The numbers of buffers of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferCounts {
    pub used: usize,
    /// Those that are free, and those in use.
    pub all: usize,
}
