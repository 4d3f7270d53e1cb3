//! The state of a bridge as it is captured, and as it is read from a file.

use std::sync::Arc;

use millrace_openflow::multipart::table_features::TableFeatures;
use millrace_pipeline::{EntryCount, FlowEntry, FlowMod, Group, Meter};
use millrace_types::{Dpid, Duration, Time};

/// The state of a bridge at one time. Entries are shared with the bridge.
#[derive(Default)]
pub(crate) struct Captured {
    pub(super) bridge: String,
    pub(super) dpid: Dpid,
    pub(super) tables: u8,
    /// The time of the capture on the workers' clock.
    pub(super) at: Time,
    /// The features of all tables, if a controller set any.
    pub(super) features: Vec<TableFeatures>,
    pub(super) meters: Vec<(Meter, Counted)>,
    pub(super) groups: Vec<(Group, Counted)>,
    pub(super) flows: Vec<(Arc<FlowEntry>, EntryCount)>,
}

/// The age and the counters of an item at the time of the save.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Counted {
    pub(super) age: Duration,
    /// The time since the latest packet, or since the addition if there was none.
    pub(super) idle: Duration,
    pub(super) count: EntryCount,
    /// The counters of the bands of a meter, or of the buckets of a group.
    pub(super) parts: Vec<EntryCount>,
}

/// The contents of a file.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) bridge: String,
    pub(super) dpid: Dpid,
    pub(super) tables: u8,
    pub(super) saved_unix_nanos: u64,
    pub(super) features: Vec<TableFeatures>,
    pub(super) meters: Vec<(Meter, Counted)>,
    pub(super) groups: Vec<(Group, Counted)>,
    pub(super) flows: Vec<(FlowMod, Counted)>,
}
