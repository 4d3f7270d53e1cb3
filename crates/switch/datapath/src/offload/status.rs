//! Settings of the offload of a port, and its state for people.

use millrace_flow::FlowMask;
use millrace_offload::{InstalledEntry, PlannerCounts};
use millrace_pipeline::MarkLevel;

/// The use of a device that an operator asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OffloadMode {
    /// The most that the device deserves, while it saves time.
    #[default]
    Auto,
    /// Marks are not used.
    Dispatch,
    /// Marks are used, and each is compared.
    Verify,
    /// Marks are used, and one in 1,024 is compared.
    Trust,
}

/// The settings of the offload of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffloadSettings {
    pub mode: OffloadMode,
    /// The maximum number of entries; `None` for all that the device holds.
    pub entries: Option<u32>,
    /// The maximum number of operations per second.
    pub operations_per_second: u32,
    /// True if the device may drop packets that the tables drop.
    pub drops: bool,
}

/// The reason why a port has its level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffloadBy {
    /// The device is away, or has no entries.
    Device,
    /// The mode of the configuration.
    Operator,
    /// The mode auto, and the place of the device in the trusted base.
    Auto,
    /// The governor: marks save no time.
    Governor,
    /// A mark was wrong.
    Audit,
    /// A setting of the port or of its bridge, with its name ([`MarkObstacle`](millrace_pipeline::MarkObstacle), `policer`, or
    /// `spread` while workers hand packets of the port to each other).
    Obstacle(&'static str),
}

/// The state of the offload of a port.
#[derive(Clone, PartialEq, Debug)]
pub struct OffloadStatus {
    pub settings: OffloadSettings,
    pub level: MarkLevel,
    pub by: OffloadBy,
    /// True once a mark was wrong.
    pub is_distrusted: bool,
    pub planner: PlannerCounts,
    /// Operations in the last second.
    pub operations_per_second: u64,
    /// Packets that the port received since the device connected.
    pub packets: u64,
    /// Those with a mark, as far as marks were looked at.
    pub marked: u64,
    /// Packets whose mark replaced the lookup.
    pub used: u64,
    pub verified: u64,
    pub mismatches: u64,
    /// Packets whose mark names no slot.
    pub unknown: u64,
    pub samples_lost: u64,
    /// Sampled packets that get no entry, by reason.
    pub unsuitable: Vec<(&'static str, u64)>,
    /// Flows whose packets the device drops.
    pub drops: usize,
    /// Packets that the device dropped, which are not among the others.
    pub dropped: u64,
    /// Drops that the device refused.
    pub drops_refused: u64,
    /// Nanoseconds that marks saved for a packet in the last trial.
    pub saved_nanos: Option<f64>,
}

/// The mark of packets with a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MarkedKey {
    /// The index of the slot.
    pub slot: u32,
    pub mark: u32,
    /// The level of the port.
    pub level: MarkLevel,
    /// True if the device drops such packets.
    pub is_dropped: bool,
}

/// The entries that the device of a port has.
#[derive(Clone, PartialEq, Debug)]
pub struct OffloadEntries {
    /// The level of the port.
    pub level: MarkLevel,
    /// The bits that entries compare.
    pub mask: FlowMask,
    /// By slot; `true` if the device drops the packets.
    pub entries: Vec<(InstalledEntry, bool)>,
}
