//! Ports of service function paths (RFC 8300).

use millrace_types::{Mac, PortNo, ServicePath};
use millrace_wire::nsh::CONTEXT_SIZE;

/// The service paths of the packets that a port receives, or the path in the header of packets that it sends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NshPath {
    /// No packets.
    None,
    /// Packets at this index of a path.
    Fixed(ServicePath),
    /// Packets of all paths: the tunnel_id holds time to live (6 bits), path (24 bits) and index (8 bits).
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
    /// The packets that arrive at this port.
    pub takes: NshPath,
    /// The header of packets that leave by this port.
    pub sends: NshPath,
    /// The time to live of packets with a tunnel_id that contains none: 1 to 63.
    pub ttl: u8,
    /// The metadata of fixed length; `None`: the header has none.
    pub context: Option<[u8; CONTEXT_SIZE]>,
    /// The maximum number of bytes that the underlay sends after an Ethernet header.
    pub mtu: u16,
}
