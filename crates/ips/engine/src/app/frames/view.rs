//! A frame as detection and events see it.

use millrace_ips_rules::buffers::Buffer;

use crate::flow::Direction;

/// A frame, as alerts show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameView {
    /// Number of the frame in its direction of the flow, from 1, among those that rules or events ask for.
    pub id: u64,
    pub kind: Buffer,
    pub direction: Direction,
    /// Offset in the stream of the first byte; `None` in a datagram.
    pub begin: Option<u64>,
    /// Size in bytes; `None` while it is not known.
    pub size: Option<u64>,
    /// True if all bytes have come.
    pub is_complete: bool,
}
