//! Offload: the use that a port makes of a device that classifies packets.

use crate::choice::OffloadMode;
use crate::number::{OffloadEntries, OffloadOperations};
use crate::section::{deserialize, section};

section! {
    /// The use of the entries of a device that classifies packets: `nic:PATH`, and devices of DPDK that take rules with marks.
    /// The device marks packets of heavy flows, and workers find the actions of marked packets without a lookup. Flow entries,
    /// counters and timeouts stay as they are. See docs/smart-nic.md.
    pub struct PortOffload (live) {
        required {}
        optional {
            /// The trust in marks.
            pub mode: OffloadMode = OffloadMode::Auto,
            /// The maximum number of entries. Unset, nine tenths of what the device has room for.
            pub entries: Option<OffloadEntries> = None,
            /// The maximum number of entries added and removed per second.
            pub operations_per_second: OffloadOperations = OffloadOperations::DEFAULT,
            /// Lets a trusted device drop packets that flow entries without actions drop. Such entries count them up to a
            /// second later; sFlow, captures and traces do not see them.
            pub drops: bool = false,
        }
    }
}

deserialize!(PortOffload);
