//! The limits of tables, and the heaps by which full tables evict entries.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use millrace_flow::classify::Slot;
use millrace_types::{TableId, Time};

/// The treatment of one more entry in a full table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WhenFull {
    /// The entry is refused with `OFPFMFC_TABLE_FULL`.
    #[default]
    Refuse,
    /// The entry that would expire first is removed; a table without entries that have a time-out refuses the new one.
    Evict,
}

/// The largest number of entries of a table, and the treatment of further ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableLimit {
    /// Maximum number of entries in the table.
    pub max_entries: u32,
    /// The treatment of further entries.
    pub when_full: WhenFull,
}

/// The heaps, by table.
#[derive(Debug, Default)]
pub(super) struct Evictions(pub(super) BTreeMap<TableId, BinaryHeap<Reverse<(Time, Slot)>>>);
