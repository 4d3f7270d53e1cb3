//! The device of a port that classifies packets: its registers, and the entries that the switch has in it.

use serde::{Deserialize, Serialize};

/// A register of a device, or two that are the halves of one number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct NicRegister {
    /// The name as in docs/nic-interface.md; one of an array has its number behind it: `TPID[0]`.
    pub name: String,
    /// The offset in bytes, of the lower half.
    pub offset: u64,
    /// The value; `null` for registers that are only written.
    pub value: Option<u64>,
    /// The value in words.
    pub meaning: String,
}

/// An entry that the switch has in a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct NicEntry {
    /// The slot, whose number is in the mark.
    pub slot: u32,
    /// The mark of the packets.
    pub mark: u32,
    /// The use of the mark: `dispatch` (none), `verify` or `trust`.
    pub level: String,
    /// True if the device drops the packets.
    pub dropped: bool,
    /// The packets in a second, over about two seconds.
    pub packets_per_second: f64,
    /// The packets that the entry matches, in the syntax of flows.
    #[serde(rename = "match")]
    pub matching: String,
}
