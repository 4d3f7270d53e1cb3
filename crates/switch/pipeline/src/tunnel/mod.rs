//! Logical ports (OpenFlow 1.3.5, section 4.4). A packet that is sent to a logical port is encapsulated, or gets a
//! network service header, and leaves through another port, the *underlay*. An encapsulated packet that the
//! underlay receives is decapsulated and enters at the logical port.
//!
//! The worker encapsulates and decapsulates within the burst, in the buffer of the packet. The control side makes
//! the table of tunnels, with everything that does not depend on a packet, such as the addresses of next hops, and
//! replaces it as a whole.

mod decapsulation;
mod encap;
mod nsh;
mod nsh_port;
mod table;

use core::net::IpAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use millrace_types::{Mac, PortNo};
use millrace_wire::tunnel::TunnelKind;

pub(crate) use decapsulation::Decapsulation;
pub(crate) use encap::{decapsulate, encapsulate};
pub use nsh_port::{NshPath, NshPort};
pub use table::Tunnels;

/// The key by which packets between the two addresses of a tunnel belong to the tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TunnelKey {
    /// Packets without a key: GRE without its key field, and MPLS over UDP, which has no key field.
    None,
    /// Packets with this key.
    Fixed(u32),
    /// All packets: the key is the tunnel_id of the packet.
    Flow,
}

/// A logical port with encapsulation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tunnel {
    /// The number of the port.
    pub port: PortNo,
    /// The encapsulation.
    pub kind: TunnelKind,
    /// The local address.
    pub local: IpAddr,
    /// The remote address.
    pub remote: IpAddr,
    /// The key of the packets that belong to the tunnel.
    pub key: TunnelKey,
    pub underlay: PortNo,
    /// The local MAC address on the underlay's link.
    pub local_mac: Mac,
    /// The MAC address of the next hop; `None` while it is not known, and packets are dropped.
    pub next_hop: Option<Mac>,
    /// The UDP destination port.
    pub udp_port: u16,
    /// The time to live of the outer header.
    pub ttl: u8,
    /// The DSCP of the outer header; `None` copies that of the inner one.
    pub dscp: Option<u8>,
    /// True if the outer header has a checksum over the whole packet.
    pub checksum: bool,
    /// The size of the largest IP packet that the underlay carries, in bytes.
    pub mtu: u16,
}

/// The counters of a logical port; workers share them.
#[derive(Debug, Default)]
pub struct TunnelCounts {
    rx_packets: AtomicU64,
    rx_bytes: AtomicU64,
    tx_packets: AtomicU64,
    tx_bytes: AtomicU64,
}

/// The values of [`TunnelCounts`] at one time. Bytes are those of inner packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TunnelStat {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets that went out.
    pub tx_packets: u64,
    /// Bytes that went out.
    pub tx_bytes: u64,
}

impl TunnelCounts {
    pub(crate) fn received(&self, packets: usize, bytes: usize) {
        self.rx_packets.fetch_add(packets as u64, Ordering::Relaxed);
        self.rx_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.tx_packets.fetch_add(1, Ordering::Relaxed);
        self.tx_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the current values.
    pub fn read(&self) -> TunnelStat {
        TunnelStat {
            rx_packets: self.rx_packets.load(Ordering::Relaxed),
            rx_bytes: self.rx_bytes.load(Ordering::Relaxed),
            tx_packets: self.tx_packets.load(Ordering::Relaxed),
            tx_bytes: self.tx_bytes.load(Ordering::Relaxed),
        }
    }
}

/// A logical port of either kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Logical {
    /// Packets are encapsulated in IP.
    Tunnel(Tunnel),
    /// Packets get a network service header.
    Nsh(NshPort),
}

impl From<Tunnel> for Logical {
    fn from(tunnel: Tunnel) -> Logical {
        Logical::Tunnel(tunnel)
    }
}

impl From<NshPort> for Logical {
    fn from(port: NshPort) -> Logical {
        Logical::Nsh(port)
    }
}

/// The encapsulation of packets at a logical port.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Encapsulation {
    /// The tunnel and its precomputed outer headers; `None` while the MAC address of the next hop is unknown.
    Ip(Tunnel, Option<millrace_wire::tunnel::OuterHeaders>),
    Nsh(NshPort),
}

/// A logical port as workers use it.
#[derive(Clone, Debug)]
pub(crate) struct CompiledTunnel {
    pub(crate) port: PortNo,
    pub(crate) underlay: PortNo,
    pub(crate) encapsulation: Encapsulation,
    pub(crate) counts: Arc<TunnelCounts>,
}

impl CompiledTunnel {
    /// Returns true if the packets of several networks share the tunnel, each with its own key.
    pub(crate) fn carries_networks(&self) -> bool {
        matches!(&self.encapsulation, Encapsulation::Ip(tunnel, _) if tunnel.key == TunnelKey::Flow)
    }
}
