//! The state of a flow, its counters and the decision about it.

/// The decision about a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlowVerdict {
    /// Packets of the flow are inspected.
    #[default]
    None,
    /// A pass rule matched: its packets are forwarded without inspection.
    Pass,
    /// Packets of the flow are dropped.
    Drop,
    /// Packets of the flow are forwarded without inspection, and its connection is not tracked.
    Bypass,
}

/// Packets and bytes of one direction of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirectionCounters {
    pub packets: u64,
    /// Bytes of the frames with their link headers; for packets in tunnels and for those that were reassembled from fragments,
    /// from the IP header on.
    pub bytes: u64,
    /// Smallest and largest TTL or hop limit of the packets that were seen; 0 without one.
    pub min_ttl: u8,
    pub max_ttl: u8,
}

impl DirectionCounters {
    /// Counts a packet.
    pub(crate) fn count(&mut self, size: u64, ttl: u8) {
        self.min_ttl = match self.packets {
            0 => ttl,
            _ => self.min_ttl.min(ttl),
        };
        self.max_ttl = self.max_ttl.max(ttl);
        self.packets += 1;
        self.bytes += size;
    }
}

/// The state of a flow as rules test it (`flow:established`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlowState {
    /// Packets of one direction only; for TCP, the handshake is not complete.
    #[default]
    New,
    /// Packets of both directions; for TCP, the handshake is complete.
    Established,
    /// The TCP connection ended.
    Closed,
}
