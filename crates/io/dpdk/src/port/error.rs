//! What can go wrong with a port, one enum for each operation.

use std::path::PathBuf;

use crate::Errno;

/// Why a device cannot be attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// A port with this name is attached.
    #[error(
        "device {name} is attached already. Remedy: detach it first, or give a virtual device another number"
    )]
    Attached {
        /// The device.
        name: String,
    },
    /// No driver here has this name.
    #[error(
        "no driver is called {driver:?} (device {name}). Remedy: check the spelling (net_af_packet, net_af_xdp, \
         net_tap, net_pcap, net_null, net_ring, net_memif, net_vhost, net_virtio_user); drivers are in DPDK's \
         package librte-net-*"
    )]
    NoDriver {
        /// The device.
        name: String,
        /// Its name without the number.
        driver: String,
    },
    /// No PCI device has this address.
    #[error("no PCI device has the address {address}. Remedy: lspci -D lists what is there")]
    NoPciDevice {
        /// The address.
        address: String,
    },
    /// A PCI device is in the hands of the kernel.
    #[error(
        "PCI device {address} is bound to the kernel's driver {driver}, which does not hand it to DPDK. Remedy: dpdk-devbind.py --bind=vfio-pci \
         {address} (its network interface disappears), or use net_af_xdp over the interface instead"
    )]
    KernelDriver {
        /// The address.
        address: String,
        /// The kernel's driver; "none" where it has none.
        driver: String,
    },
    /// The network interface under a virtual device does not exist.
    #[error(
        "device {name}: there is no network interface {interface:?}. Remedy: ip link lists what is there"
    )]
    NoInterface {
        /// The device.
        name: String,
        /// The interface.
        interface: String,
    },
    /// A file under a virtual device cannot be read.
    #[error("device {name}: cannot read {}: {source}. Remedy: check the path and its permissions", .path.display())]
    File {
        /// The device.
        name: String,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A capture file without packets is to be replayed without end.
    #[error(
        "device {name}: there is no packet in {} that infinite_rx could repeat. Remedy: name a capture that has \
         packets, or leave infinite_rx out", .path.display()
    )]
    NothingToRepeat {
        /// The device.
        name: String,
        /// The file.
        path: PathBuf,
    },
    /// The process may not use the device.
    #[error(
        "device {name} needs permission: {detail}. Remedy: run as root, or grant CAP_NET_ADMIN, CAP_NET_RAW and \
         CAP_IPC_LOCK (and CAP_BPF for net_af_xdp)"
    )]
    Permission {
        /// The device.
        name: String,
        /// What DPDK logged.
        detail: String,
    },
    /// Somebody else uses the device.
    #[error("device {name} is in use: {detail}. Remedy: end the other program, or detach it there")]
    InUse {
        /// The device.
        name: String,
        /// What DPDK logged.
        detail: String,
    },
    /// The driver does not take the options.
    #[error(
        "device {name} does not take {devargs:?}: {detail}. Remedy: check its options and what they name; DPDK's guide \
         lists them under \"Network Interface Controller Drivers\""
    )]
    Options {
        /// The device.
        name: String,
        /// All of it.
        devargs: String,
        /// What DPDK logged.
        detail: String,
    },
    /// The driver did not make a network port.
    #[error(
        "device {name} is no network device. Remedy: name a network device (lspci -D, or a net_* virtual device)"
    )]
    NoPort {
        /// The device.
        name: String,
    },
    /// Anything else.
    #[error(
        "device {name} does not attach: {errno} ({detail}). Remedy: run with log level debug and see the lines of \
             target dpdk"
    )]
    Other {
        /// The device.
        name: String,
        /// What DPDK returned.
        errno: Errno,
        /// What it logged.
        detail: String,
    },
}

/// Why a port does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// It runs.
    #[error("port {port} runs already. Remedy: drop its queues and stop it first")]
    Running {
        /// The port.
        port: String,
    },
    /// The device has fewer queues, or none were asked for.
    #[error("port {port} cannot have {asked} {direction} queues. Remedy: ask for 1 to {max}")]
    Queues {
        /// The port.
        port: String,
        /// "receive" or "transmit".
        direction: &'static str,
        /// As asked for.
        asked: u16,
        /// What the device has.
        max: u16,
    },
    /// The device cannot carry packets of this length.
    #[error("port {port} cannot have an MTU of {asked} bytes. Remedy: ask for {min} to {max}")]
    Mtu {
        /// The port.
        port: String,
        /// As asked for.
        asked: u16,
        /// The least.
        min: u16,
        /// The most.
        max: u16,
    },
    /// The driver needs a pool whose memory is in one piece.
    #[error(
        "port {port} cannot use this mempool: its memory is in several pieces, and net_af_xdp shares it with the kernel \
         as one. Remedy: make the pool early, or give EAL more memory"
    )]
    PoolInPieces {
        /// The port.
        port: String,
    },
    /// A driver that starts only once could not be removed to be attached again.
    #[error(transparent)]
    Detach(PortError),
    /// A driver that starts only once could not be attached again.
    #[error(transparent)]
    Attach(AttachError),
    /// The driver refused.
    #[error("port {port} does not start, at \"{step}\": {detail}. Remedy: {}", remedy(.port, *.errno))]
    Device {
        /// The port.
        port: String,
        /// What was being done.
        step: &'static str,
        /// What the driver returned.
        errno: Errno,
        /// What it logged.
        detail: String,
    },
}

fn remedy(port: &str, errno: Errno) -> &'static str {
    use nix::errno::Errno as E;
    if port.starts_with("net_af_xdp") {
        // The driver gives the same number for all of these.
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

/// Why something else cannot be done to a port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// A worker still has a queue.
    #[error("port {port}: a worker still uses a queue of it. Remedy: take all its queues back first")]
    QueuesInUse {
        /// The port.
        port: String,
    },
    /// The driver refused, or cannot.
    #[error(
        "port {port}: cannot {action}: {errno}. Remedy: not every driver can; otherwise see the lines of target \
             dpdk in the log"
    )]
    Device {
        /// The port.
        port: String,
        /// What was asked of it.
        action: &'static str,
        /// What the driver returned.
        errno: Errno,
    },
}
