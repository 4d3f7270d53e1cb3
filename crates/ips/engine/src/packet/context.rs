//! Facts about a packet that its bytes do not contain.

use millrace_types::Time;

use super::events::PacketEvents;

/// Facts about a packet that its bytes do not contain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context {
    /// Number of the frame.
    pub(crate) number: u64,
    /// Time of the frame.
    pub(crate) time: Time,
    /// Number of tunnels around the packet.
    pub(crate) tunnel_depth: u8,
    /// True if the bytes are a packet that was reassembled from fragments.
    pub(crate) is_reassembled: bool,
    /// Number of reassembled packets that contain this packet.
    pub(crate) reassemblies: u8,
    pub(crate) is_tunnel: bool,
    /// True if checksums are compared.
    pub(crate) compares_checksums: bool,
    /// Events of the headers before the IP header.
    pub(crate) events: PacketEvents,
}

impl Context {
    /// Returns the facts about a packet that is read again for a record, in this many tunnels.
    pub(super) const fn of_record(tunnel_depth: u8) -> Context {
        Context {
            number: 0,
            time: Time::ZERO,
            tunnel_depth,
            is_reassembled: false,
            reassemblies: 0,
            is_tunnel: false,
            compares_checksums: false,
            events: PacketEvents::NONE,
        }
    }
}
