//! The counters of a flow, and the limit of its rate.

/// The limit of a flow's rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// The controller: the path, or a rate that the user set.
    Network,
    /// The receiver's credit: its disk.
    Peer,
    /// Pieces that are not read and sealed yet.
    Source,
    /// Everything is sent.
    Nothing,
}

/// Counters of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowStats {
    /// Packets sent.
    pub sent: u64,
    /// Packets acknowledged.
    pub acked: u64,
    /// Packets declared lost.
    pub lost: u64,
    /// Packets acknowledged after they were declared lost.
    pub spurious: u64,
    /// Probes of a silent path.
    pub probes: u64,
    /// Times that the breaker tripped.
    pub breaks: u64,
    /// Probes of the path MTU that were lost; they do not count as lost packets.
    pub mtu_probes_lost: u64,
    /// Feedback packets that arrived.
    pub feedback: u64,
}
