//! The result of the observation of one packet, for packet samples.

use millrace_types::Cookie;

use crate::DropReason;

/// The way of a packet through the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ObservedPacket {
    /// The metadata behind the last table.
    pub metadata: u64,
    /// The cookie of the last entry that matched; `None` without one.
    pub cookie: Option<Cookie>,
    /// The reason of the last drop of the packet, or of a copy; `None` without one.
    pub drop_reason: Option<DropReason>,
}
