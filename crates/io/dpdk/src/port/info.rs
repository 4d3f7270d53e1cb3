//! Properties, capabilities and counters of ports.

use std::ffi::CStr;

use millrace_dpdk_sys as sys;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use super::attach::Device;
use super::{PortError, PortId};

/// The properties and capabilities of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// DPDK's port number.
    pub id: PortId,
    /// The PCI address, or the name of the virtual device.
    pub name: String,
    /// The name of the poll-mode driver.
    pub driver: String,
    /// The MAC address.
    pub mac: [u8; 6],
    /// The nearest NUMA node, if the device has one.
    pub socket: Option<u16>,
    /// The largest number of receive queues.
    pub max_rx_queues: u16,
    /// The largest number of transmit queues.
    pub max_tx_queues: u16,
    /// The smallest MTU in bytes.
    pub min_mtu: u16,
    /// The largest MTU in bytes.
    pub max_mtu: u16,
    /// The largest received frame in bytes; 0 if the driver does not report it.
    pub max_frame: u32,
    /// True if the device can spread flows over receive queues (RSS).
    pub rss: bool,
    /// The headers that RSS hashes, such as `ip`, `tcp`, `mpls`; empty without RSS.
    pub rss_by: Vec<&'static str>,
    /// True if a received frame may occupy several buffers.
    pub rx_scatter: bool,
    /// True if the device sends packets of several segments without copying.
    pub tx_multi_segs: bool,
    /// The index of the kernel interface under the device, if there is one.
    pub interface_index: Option<u32>,
    /// The supported speeds in Mbit/s, ascending; empty if the driver does not report them.
    pub speeds: Vec<u32>,
}

/// Bits of RTE_ETH_RSS_*, and the names of the headers.
const RSS: [(u64, &str); 9] = [
    (sys::SHIM_RSS_IP, "ip"),
    (sys::SHIM_RSS_TCP, "tcp"),
    (sys::SHIM_RSS_UDP, "udp"),
    (sys::SHIM_RSS_SCTP, "sctp"),
    (sys::SHIM_RSS_TUNNEL, "tunnel"),
    (sys::SHIM_RSS_GTPU, "gtpu"),
    (sys::SHIM_RSS_MPLS, "mpls"),
    (sys::SHIM_RSS_L2, "l2"),
    (sys::SHIM_RSS_INNERMOST, "innermost"),
];

/// Bits of rte_eth_dev_info.speed_capa (RTE_ETH_LINK_SPEED_*), and their speeds in Mbit/s.
const SPEEDS: [(u32, u32); 15] = [
    (1 << 1, 10),
    (1 << 2, 10),
    (1 << 3, 100),
    (1 << 4, 100),
    (1 << 5, 1_000),
    (1 << 6, 2_500),
    (1 << 7, 5_000),
    (1 << 8, 10_000),
    (1 << 9, 20_000),
    (1 << 10, 25_000),
    (1 << 11, 40_000),
    (1 << 12, 50_000),
    (1 << 13, 56_000),
    (1 << 14, 100_000),
    (1 << 15, 200_000),
];

impl PortInfo {
    pub(super) fn read(device: &Device) -> Result<Self, PortError> {
        let id = device.id();
        let refused = |errno| PortError::Device {
            port: device.name().to_owned(),
            action: "describe it",
            errno,
        };
        let raw = device.info().map_err(refused)?;
        let mut mac = [0; 6];
        // SAFETY: the number is that of the attached device, or one that DPDK refuses;
        // six bytes are writable.
        device.check("read its address", unsafe {
            sys::shim_mac(id.0, mac.as_mut_ptr())
        })?;
        // SAFETY: the number is that of the attached device, or one that DPDK refuses.
        let socket = unsafe { sys::rte_eth_dev_socket_id(id.0) };
        let mut speeds: Vec<u32> = SPEEDS
            .iter()
            .filter(|(bit, _)| raw.speed_capa & bit != 0)
            .map(|s| s.1)
            .collect();
        speeds.dedup();
        Ok(Self {
            id,
            name: device.name().to_owned(),
            driver: driver_name(&raw),
            mac,
            socket: u16::try_from(socket).ok(),
            max_rx_queues: raw.max_rx_queues,
            max_tx_queues: raw.max_tx_queues,
            min_mtu: raw.min_mtu,
            max_mtu: max_mtu(&raw),
            max_frame: raw.max_rx_pktlen,
            rss: raw.rss_types != 0,
            rss_by: RSS
                .iter()
                .filter(|(bits, _)| raw.rss_asked & bits != 0)
                .map(|(_, name)| *name)
                .collect(),
            rx_scatter: raw.rx_scatter != 0,
            tx_multi_segs: raw.tx_multi_segs != 0,
            interface_index: Some(raw.if_index).filter(|&index| index != 0),
            speeds,
        })
    }
}

/// Difference between frame size and MTU in bytes, unless the driver reports another: Ethernet header and FCS.
pub(super) const FRAME_OVERHEAD: u16 = 18;

/// Returns the largest MTU, which drivers limit in two fields.
pub(super) fn max_mtu(raw: &sys::shim_port_info) -> u16 {
    let named = if raw.max_mtu == 0 { u16::MAX } else { raw.max_mtu };
    let overhead = match raw.max_rx_pktlen.checked_sub(u32::from(named)) {
        Some(overhead) if overhead > 0 && named != u16::MAX => overhead,
        _ => u32::from(FRAME_OVERHEAD),
    };
    let carried = raw.max_rx_pktlen.saturating_sub(overhead);
    if raw.max_rx_pktlen == 0 {
        named
    } else {
        named.min(u16::try_from(carried).unwrap_or(u16::MAX))
    }
}

/// Returns the name of the poll-mode driver; empty if the driver has none.
pub(super) fn driver_name(raw: &sys::shim_port_info) -> String {
    if raw.driver_name.is_null() {
        return String::new();
    }
    // SAFETY: the name is a constant of the driver, which stays loaded, and is zero-terminated.
    unsafe { CStr::from_ptr(raw.driver_name) }
        .to_string_lossy()
        .into_owned()
}

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// True if the link is up.
    pub up: bool,
    /// The speed in Mbit/s, if the driver knows it.
    pub speed: Option<u32>,
    /// True for full duplex.
    pub full_duplex: bool,
    /// True if the speed was negotiated.
    pub autoneg: bool,
}

impl Link {
    pub(super) fn read(device: &Device) -> Result<Self, PortError> {
        let link = Self::of_driver(device)?;
        Ok(Self {
            up: link.up && device.kernel_interface().is_none_or(is_running),
            ..link
        })
    }

    pub(super) fn of_driver(device: &Device) -> Result<Self, PortError> {
        let mut raw = sys::shim_link::default();
        // SAFETY: the number is that of the attached device, or one that DPDK refuses;
        // `raw` is writable.
        device.check("read the link", unsafe {
            sys::shim_link(device.id().0, &raw mut raw)
        })?;
        Ok(Self {
            up: raw.up != 0,
            speed: Some(raw.speed).filter(|&speed| speed != 0 && speed != u32::MAX),
            full_duplex: raw.full_duplex != 0,
            autoneg: raw.autoneg != 0,
        })
    }
}

/// Returns true if a kernel interface of this thread's network namespace is up and has a carrier, or if its state
/// cannot be read. The drivers that use such an interface always report a link that is up.
fn is_running(interface: &str) -> bool {
    let both = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
    let Ok(mut addresses) = getifaddrs() else {
        return true;
    };
    addresses.any(|address| address.interface_name == interface && address.flags.contains(both))
}

/// The counters of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PortStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets that arrived while all receive descriptors were full.
    pub rx_missed: u64,
    /// Packets that arrived with errors.
    pub rx_errors: u64,
    /// Packets that could not be sent, by the device or by [`crate::TxQueue`].
    pub tx_errors: u64,
    /// The number of times that the receive pool was empty.
    pub rx_no_mbuf: u64,
}

impl PortStats {
    pub(super) fn read(device: &Device) -> Result<Self, PortError> {
        let mut raw = sys::shim_stats::default();
        // SAFETY: the number is that of the attached device, or one that DPDK refuses;
        // `raw` is writable.
        device.check("read the counters", unsafe {
            sys::shim_stats(device.id().0, &raw mut raw)
        })?;
        Ok(Self {
            rx_packets: raw.rx_packets,
            tx_packets: raw.tx_packets,
            rx_bytes: raw.rx_bytes,
            tx_bytes: raw.tx_bytes,
            rx_missed: raw.rx_missed,
            rx_errors: raw.rx_errors,
            tx_errors: raw.tx_errors + device.dropped(),
            rx_no_mbuf: raw.rx_no_mbuf,
        })
    }
}
