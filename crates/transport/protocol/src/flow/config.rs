//! The initial configuration of a flow.

use millrace_types::Duration;

use crate::congestion::Controller;
use crate::extent::Layout;
use crate::ranges::RangeSet;

/// The initial configuration of a flow.
pub struct FlowConfig {
    /// The session's address space.
    pub layout: Layout,
    /// Extents that the receiver has.
    pub have: RangeSet,
    /// The extent to begin with.
    pub start: u64,
    /// Bytes of payload of a full packet at the start; a multiple of 16.
    pub payload: u16,
    /// The largest IP packet that the interface sends to the receiver, in bytes. Probes of the path MTU try
    /// sizes up to it.
    pub mtu: u16,
    /// Bytes of IP and UDP headers.
    pub headers: u16,
    /// The round-trip time of the control channel's handshake, if it is known.
    pub initial_rtt: Option<Duration>,
    /// Bytes that may be sent before the first feedback.
    pub credit: u64,
    /// The congestion control.
    pub controller: Box<dyn Controller>,
    /// Seeds the packet numbers that are skipped.
    pub seed: u64,
}
