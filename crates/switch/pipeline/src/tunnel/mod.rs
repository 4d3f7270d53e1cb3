//! Logical ports: what goes out of one goes, in an envelope or behind a network service header, out of another port, its
//! *underlay*; and what comes in at an underlay in one of ours comes in at a logical port (section 4.4).
//!
//! Both happen in the worker, within the burst, in the packet's own buffer. The control side makes the table of
//! tunnels with all that does not depend on a packet, the addresses of next hops among it, and replaces it whole.

mod encap;
mod nsh;
mod table;

use core::net::IpAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use millrace_types::{Mac, PortNo};
use millrace_wire::tunnel::TunnelKind;

pub(crate) use encap::{Taken, enclose, take_out};
pub use nsh::{NshPath, NshPort};
pub use table::Tunnels;

/// Which packets of a kind, between two addresses, belong to a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TunnelKey {
    /// Those without a key: of GRE; and of MPLS over UDP, which knows none.
    None,
    /// Those with this key.
    Fixed(u32),
    /// All: the key is the packet's tunnel_id.
    Flow,
}

/// A logical port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tunnel {
    /// Its number.
    pub port: PortNo,
    /// How packets are put in.
    pub kind: TunnelKind,
    /// Our address.
    pub local: IpAddr,
    /// The address of the other end.
    pub remote: IpAddr,
    /// Which packets are its own.
    pub key: TunnelKey,
    /// The port by which they come and go.
    pub underlay: PortNo,
    /// Our address on the underlay's link.
    pub local_mac: Mac,
    /// The next hop's; `None` while it is not known, and packets are dropped.
    pub next_hop: Option<Mac>,
    /// The destination port of UDP.
    pub udp_port: u16,
    /// Time to live of the outside.
    pub ttl: u8,
    /// The service class of the outside; `None` is that of the inside.
    pub dscp: Option<u8>,
    /// Whether a checksum over the whole packet is made.
    pub checksum: bool,
    /// The longest IP packet that the underlay takes, in bytes.
    pub mtu: u16,
}

/// What went through a logical port; workers share it.
#[derive(Debug, Default)]
pub struct TunnelCounts {
    rx_packets: AtomicU64,
    rx_bytes: AtomicU64,
    tx_packets: AtomicU64,
    tx_bytes: AtomicU64,
}

/// [`TunnelCounts`] as they were when they were read. Bytes are those of the packets inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TunnelStat {
    /// Packets that came in.
    pub rx_packets: u64,
    /// Bytes that came in.
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

    /// What they are now.
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
    /// Packets go in IP packets.
    Tunnel(Tunnel),
    /// Packets go behind a network service header.
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

/// How packets go.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Way {
    /// The envelope is `None` while there is no next hop.
    Ip(Tunnel, Option<millrace_wire::tunnel::Envelope>),
    Nsh(NshPort),
}

/// A logical port as workers use it.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    pub(crate) port: PortNo,
    pub(crate) underlay: PortNo,
    pub(crate) way: Way,
    pub(crate) counts: Arc<TunnelCounts>,
}
