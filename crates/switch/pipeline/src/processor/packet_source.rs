//! A packet to send, owned or to be copied.

use millrace_wire::Packet;

/// A packet to send: the packet itself, or a reference from which a copy is made.
pub(crate) enum PacketSource<'p, P> {
    Move(P),
    Copy(&'p P),
}

impl<P: Packet> PacketSource<'_, P> {
    pub(crate) fn packet(&self) -> &P {
        match self {
            PacketSource::Move(packet) => packet,
            PacketSource::Copy(packet) => packet,
        }
    }

    /// Returns the packet or a copy; `None` when no buffer is free.
    pub(crate) fn take(self) -> Option<P> {
        match self {
            PacketSource::Move(packet) => Some(packet),
            PacketSource::Copy(packet) => packet.try_clone(),
        }
    }
}
