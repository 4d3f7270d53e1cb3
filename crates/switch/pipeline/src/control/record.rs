//! Records of flow entries: the entries in the tables, and removed entries that workers may still use.

use std::sync::Arc;

use millrace_flow::classify::Slot;
use millrace_types::{Duration, TableId, Time};

use super::request::RemovedReason;
use super::wheel::Tick;
use crate::FlowEntry;

/// A flow entry, and the tick of its timer.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) entry: Arc<FlowEntry>,
    pub(super) timer: Tick,
    /// The table of the entry, readable without touching the entry's memory.
    pub(super) table: TableId,
    pub(super) refers: bool,
}

/// A removed entry that workers may still use.
#[derive(Debug)]
pub(super) struct RemovedEntry {
    pub(super) slot: Slot,
    pub(super) entry: Arc<FlowEntry>,
    /// The reason that is reported; `None` if no controller is notified.
    pub(super) reason: Option<RemovedReason>,
    pub(super) at: Time,
}

/// Returns the time at which the entry expires if no packet matches it; `None` without time-outs.
pub(super) fn expiry_time(entry: &FlowEntry, last_used: Time) -> Option<Time> {
    let created = entry.created();
    let hard = (entry.hard_timeout() > 0).then(|| created + seconds(entry.hard_timeout()));
    let idle = (entry.idle_timeout() > 0).then(|| created.max(last_used) + seconds(entry.idle_timeout()));
    match (hard, idle) {
        (Some(hard), Some(idle)) => Some(hard.min(idle)),
        (hard, idle) => hard.or(idle),
    }
}

/// Returns a time-out of a flow entry as a duration.
pub(super) fn seconds(seconds: u16) -> Duration {
    Duration::from_secs(u64::from(seconds))
}
