//! The observation of one packet, for packet samples: its state, and its result.

use millrace_types::Cookie;

use crate::DropReason;

/// The result of the observation of one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ObservedPacket {
    /// The metadata after the last table.
    pub metadata: u64,
    /// The cookie of the last entry that matched; `None` without one.
    pub cookie: Option<Cookie>,
    /// The reason of the last drop of the packet, or of a copy; `None` without one.
    pub drop_reason: Option<DropReason>,
}

/// The state of the observation of one packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation {
    /// The observed packets of the burst, one bit each: one packet, or all packets if the burst arrived as
    /// one packet. Zero if nothing is observed, or if the packet has left the burst.
    pub(super) packets: u64,
    /// True while the egress calls and the drops belong to the observed packet.
    pub(super) is_noting: bool,
    pub(super) found: ObservedPacket,
}

impl Observation {
    pub(super) const NONE: Observation = Observation {
        packets: 0,
        is_noting: false,
        found: ObservedPacket {
            metadata: 0,
            cookie: None,
            drop_reason: None,
        },
    };

    /// Returns the index in the burst of the first observed packet, if there is one.
    #[inline(always)]
    pub(super) fn index(&self) -> Option<usize> {
        (self.packets != 0).then(|| self.packets.trailing_zeros() as usize)
    }

    /// Returns true if packet `i` of the burst is observed.
    #[inline(always)]
    pub(super) fn has(&self, i: usize) -> bool {
        self.packets >> i & 1 != 0
    }
}
