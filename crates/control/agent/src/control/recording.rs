//! A consistent list of all flow entries, made in steps between which the control thread serves its channels.
//!
//! A step reads some entries, in the order of their slots. Entries that change until the last step are read once more in
//! it, so that the list holds the entries of one moment: that of the last step. Counters are those of the step.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_pipeline::{Cursor, EntryCount, FlowEntry, Op};

/// An entry and its counters; `None` is a slot without entry.
pub(crate) type Recorded = Option<(Arc<FlowEntry>, EntryCount)>;

/// The list so far.
#[derive(Debug, Default)]
pub(super) struct Recording {
    /// By the index of the slot.
    pub(super) entries: Vec<Recorded>,
    /// The position of the next step; `None` at the end.
    pub(super) next: Option<Cursor>,
    /// The indices of slots that have changed since the first step.
    pub(super) changed: BTreeSet<usize>,
}

impl Recording {
    /// Returns an empty list.
    pub(super) fn begin() -> Recording {
        Recording {
            next: Some(Cursor::default()),
            ..Recording::default()
        }
    }

    /// Notes the changes that are published.
    pub(super) fn note(&mut self, ops: &[Op]) {
        for op in ops {
            match op {
                Op::Insert { slot, .. } | Op::Replace { slot, .. } | Op::Remove { slot } => {
                    self.changed.insert(slot.index());
                }
                Op::Clear => *self = Recording::begin(),
                _ => {}
            }
        }
    }
}
