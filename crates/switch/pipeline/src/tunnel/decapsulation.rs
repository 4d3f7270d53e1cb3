//! The outcome of decapsulation.

use super::CompiledTunnel;
use crate::DropReason;

/// The result of the decapsulation of a packet from an underlay.
pub(crate) enum Decapsulation<'t> {
    /// The packet belongs to no tunnel: it is an ordinary packet of the underlay.
    Other,
    /// The packet is decapsulated. It arrives at the port of this tunnel, with this tunnel_id.
    Packet(&'t CompiledTunnel, u64),
    /// The packet is a train of datagrams with the port of a tunnel, each of which is decapsulated by itself.
    Train,
    /// The packet asks for, or announces, an address of the link: for the control side.
    Neighbour,
    /// The packet is addressed to us and is dropped.
    Drop(DropReason),
}
