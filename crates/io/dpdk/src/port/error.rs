//! The errors of ports, one enum for each operation.

use std::path::PathBuf;

use crate::Errno;

/// The error of attaching a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// A port with this name is already attached.
    #[error(
        "device {name} is attached already. To fix it: detach it first, or give a virtual device another number"
    )]
    Attached {
        /// The device.
        name: String,
    },
    /// No driver has this name.
    #[error(
        "no driver is called {driver:?} (device {name}). To fix it: check the spelling (net_af_packet, net_af_xdp, \
         net_tap, net_pcap, net_null, net_ring, net_memif, net_vhost, net_virtio_user); drivers are in DPDK's \
         package librte-net-*"
    )]
    NoDriver {
        /// The device.
        name: String,
        /// The name without its number.
        driver: String,
    },
    /// No PCI device has this address.
    #[error("no PCI device has the address {address}. To fix it: lspci -D lists what is there")]
    NoPciDevice { address: String },
    /// A kernel driver is bound to the PCI device.
    #[error(
        "PCI device {address} is bound to the kernel's driver {driver}, which does not hand it to DPDK. To fix it: dpdk-devbind.py --bind=vfio-pci \
         {address} (its network interface disappears), or use net_af_xdp over the interface instead"
    )]
    KernelDriver {
        address: String,
        /// The kernel driver, or "none".
        driver: String,
    },
    /// The kernel interface that a virtual device would use does not exist.
    #[error(
        "device {name}: there is no network interface {interface:?}. To fix it: ip link lists what is there"
    )]
    NoInterface {
        /// The device.
        name: String,
        interface: String,
    },
    /// A file that a virtual device would replay cannot be read.
    #[error("device {name}: cannot read {}: {source}. To fix it: check the path and its permissions", .path.display())]
    File {
        /// The device.
        name: String,
        path: PathBuf,
        /// The error of the system call.
        source: std::io::Error,
    },
    /// A capture file without packets cannot be replayed endlessly.
    #[error(
        "device {name}: there is no packet in {} that infinite_rx could repeat. To fix it: name a capture that has \
         packets, or leave infinite_rx out", .path.display()
    )]
    EmptyCapture {
        /// The device.
        name: String,
        path: PathBuf,
    },
    /// The process lacks permission for the device.
    #[error(
        "device {name} needs permission: {detail}. To fix it: run as root, or grant CAP_NET_ADMIN, CAP_NET_RAW and \
         CAP_IPC_LOCK (and CAP_BPF for net_af_xdp)"
    )]
    Permission {
        /// The device.
        name: String,
        /// The messages that DPDK logged.
        detail: String,
    },
    /// Another program uses the device.
    #[error("device {name} is in use: {detail}. To fix it: end the other program, or detach it there")]
    InUse {
        /// The device.
        name: String,
        /// The messages that DPDK logged.
        detail: String,
    },
    /// The driver rejects the options.
    #[error(
        "device {name} does not take {devargs:?}: {detail}. To fix it: check its options and what they name; DPDK's guide \
         lists them under \"Network Interface Controller Drivers\""
    )]
    Options {
        /// The device.
        name: String,
        /// The whole devargs.
        devargs: String,
        /// The messages that DPDK logged.
        detail: String,
    },
    /// The driver did not make a network port.
    #[error(
        "device {name} is no network device. To fix it: name a network device (lspci -D, or a net_* virtual device)"
    )]
    NoPort {
        /// The device.
        name: String,
    },
    /// Any other failure.
    #[error(
        "device {name} does not attach: {errno} ({detail}). To fix it: run with log level debug and see the lines of \
             target dpdk"
    )]
    Other {
        /// The device.
        name: String,
        /// The error that DPDK returned.
        errno: Errno,
        /// The messages that DPDK logged.
        detail: String,
    },
}

/// The error of starting a port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The port is already running.
    #[error("port {port} runs already. To fix it: drop its queues and stop it first")]
    Running { port: String },
    /// A flow rule of an earlier start exists.
    #[error("port {port} cannot start while it has flow rules. To fix it: destroy its flow rules first")]
    FlowRules { port: String },
    /// More queues were requested than the device has, or none.
    #[error("port {port} cannot have {asked} {direction} queues. To fix it: ask for 1 to {max}")]
    Queues {
        port: String,
        /// "receive" or "transmit".
        direction: &'static str,
        /// The requested number.
        asked: u16,
        /// The largest number that the device supports.
        max: u16,
    },
    /// The device does not support this MTU.
    #[error("port {port} cannot have an MTU of {asked} bytes. To fix it: ask for {min} to {max}")]
    Mtu {
        port: String,
        /// The requested MTU.
        asked: u16,
        /// The smallest supported MTU.
        min: u16,
        /// The largest supported MTU.
        max: u16,
    },
    /// The driver requires a pool with contiguous memory.
    #[error(
        "port {port} cannot use this mempool: its memory is in several pieces, and net_af_xdp shares it with the kernel \
         as one. To fix it: make the pool early, or give EAL more memory"
    )]
    PoolNotContiguous { port: String },
    /// The driver can start a device only once, and detaching the device before the second start failed.
    #[error(transparent)]
    Detach(PortError),
    /// The driver can start a device only once, and attaching the device again before the second start failed.
    #[error(transparent)]
    Attach(AttachError),
    /// The driver failed.
    #[error("port {port} does not start, at \"{step}\": {detail}. To fix it: {}", next_step(.port, *.errno))]
    Device {
        port: String,
        /// The step that failed.
        step: &'static str,
        /// The error that the driver returned.
        errno: Errno,
        /// The messages that the driver logged.
        detail: String,
    },
}

fn next_step(port: &str, errno: Errno) -> &'static str {
    use nix::errno::Errno as E;
    if port.starts_with("net_af_xdp") {
        // The driver returns the same error for each of these causes.
        "see that the interface has no other XDP program or socket (ip link show), and that the mempool has 2,048 free \
         buffers for each queue; or use net_af_packet"
    } else if errno.is(E::ENOMEM) {
        "give EAL more memory, or the mempool more buffers or a larger data room"
    } else if errno.is(E::EBUSY) {
        "end the program that uses the device"
    } else if errno.is(E::EPERM) || errno.is(E::EACCES) {
        "run as root"
    } else {
        "run with log level debug and see the lines of target dpdk"
    }
}

/// The error of any other operation on a port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// A worker still holds a queue.
    #[error("port {port}: a worker still uses a queue of it. To fix it: take all its queues back first")]
    QueuesInUse { port: String },
    /// A flow rule exists, and no queue.
    #[error("port {port} has flow rules. To fix it: destroy its flow rules first")]
    FlowRules { port: String },
    /// The driver failed, or does not support the operation.
    #[error(
        "port {port}: cannot {action}: {errno}. To fix it: not every driver can; otherwise see the lines of target \
             dpdk in the log"
    )]
    Device {
        port: String,
        /// The operation.
        action: &'static str,
        /// The error that the driver returned.
        errno: Errno,
    },
}
