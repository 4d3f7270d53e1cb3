//! The journal of a transaction: how to undo each change since its beginning.

use std::sync::Arc;

use millrace_flow::classify::Slot;
use millrace_types::{GroupId, MeterId};

use super::groups::GroupRecord;
use super::meters::MeterRecord;
use super::record::Record;
use crate::{FlowEntry, Port};

/// The reverse of one change.
#[derive(Debug)]
pub(super) enum Undo {
    /// Entries were added at `len` consecutive slots: a bundle of a million adds needs one record.
    Added { first: Slot, len: u32 },
    /// An entry was replaced; this is the former one.
    Replaced(Slot, Arc<FlowEntry>),
    /// An entry was removed.
    Removed(Slot, Record),
    /// A port was changed; this is the former state.
    Port(Box<Port>),
    /// A group was added (`None`), or changed or removed (the former state).
    Group(GroupId, Option<Box<GroupRecord>>),
    /// A meter was added (`None`), or changed or removed (the former state).
    Meter(MeterId, Option<Box<MeterRecord>>),
}

/// The changes since the beginning of the transaction.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) undo: Vec<Undo>,
    /// The lengths of these lists at the beginning of the transaction.
    pub(super) ops_len: usize,
    pub(super) removed_len: usize,
    pub(super) removed_counters_len: usize,
    pub(super) changes_len: usize,
}
