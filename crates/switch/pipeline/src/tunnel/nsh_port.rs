//! Ports of service function paths (RFC 8300).

use millrace_types::{Mac, PortNo, ServicePath};
use millrace_wire::nsh::CONTEXT_SIZE;

/// The packets of service paths that a port takes, or the header of packets that it sends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NshPath {
    /// No packets.
    None,
    /// Packets at this index of a path.
    Fixed(ServicePath),
    /// All packets: the tunnel_id holds time to live, path and index, of 6, 24 and 8 bits.
    Flow,
}

/// A logical port at which service paths begin, end, or continue in another switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NshPort {
    /// The number of the port.
    pub port: PortNo,
    pub underlay: PortNo,
    /// The local MAC address on the underlay's link.
    pub local_mac: Mac,
    /// The MAC address of the other switch.
    pub remote: Mac,
    /// The packets that come in at this port.
    pub takes: NshPath,
    /// The header of packets that leave by it.
    pub sends: NshPath,
    /// The time to live of packets whose tunnel_id has none: 1 to 63.
    pub ttl: u8,
    /// The metadata of fixed length; `None` for none.
    pub context: Option<[u8; CONTEXT_SIZE]>,
    /// The most bytes that the underlay takes behind an Ethernet header.
    pub mtu: u16,
}
