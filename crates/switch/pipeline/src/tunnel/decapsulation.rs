//! The outcome of decapsulation.

use super::CompiledTunnel;
use crate::DropReason;

/// The result of the decapsulation of a packet from an underlay.
pub(crate) enum Decapsulation<'t> {
    /// The packet belongs to no tunnel: it is an ordinary packet of the underlay.
    Other,
    /// The packet is decapsulated. It arrives at the port of this tunnel, with this tunnel_id.
    Packet(&'t CompiledTunnel, u64),
    /// The packet is a train of UDP datagrams (UDP GSO) for the address and UDP port of a tunnel. The caller
    /// segments it and decapsulates each datagram.
    Train,
    /// The packet resolves or announces an address of the link (ARP or neighbour discovery): the control side
    /// handles it.
    Neighbour,
    /// The packet is addressed to us and is dropped.
    Drop(DropReason),
}
