//! The changes of flow entries, for flow monitors. They are recorded only while there is a monitor.

use std::sync::Arc;

use super::request::RemovedReason;
use crate::FlowEntry;

/// The change of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeKind {
    /// The entry was added, or replaced one with the same match and priority.
    Added,
    /// The instructions of the entry were replaced.
    Modified,
    /// The entry was removed.
    Removed(RemovedReason),
}

/// A change of one entry.
#[derive(Clone, Debug)]
pub struct EntryChange {
    /// The change.
    pub kind: ChangeKind,
    /// True if the entry was added and replaced no other one.
    pub is_new: bool,
    /// The entry after the change; for a removed entry, before it.
    pub entry: Arc<FlowEntry>,
}
