//! Tables at rest.
//!
//! While entries come and go, a table's classifier puts them where they go fastest, and plans anew only after many of
//! them. When none has come or gone for a second, the table is told to make the best of what it has.

use millrace_types::{Duration, TableId, Time};

use super::Control;
use crate::Op;

/// A table that has been left alone for so long is at rest.
const REST: Duration = Duration::from_secs(1);

/// What was seen of a table. An empty one has nothing to settle.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rest {
    /// How often entries had come and gone.
    changes: u64,
    /// When that was first seen; `None` when the table is settled.
    since: Option<Time>,
}

impl Control {
    /// Has tables that have come to rest arranged for lookups. To be called now and then.
    pub fn settle(&mut self, now: Time, ops: &mut Vec<Op>) {
        for (number, (rest, table)) in self.rests.iter_mut().zip(&self.tables).enumerate() {
            if rest.changes != table.changes() {
                *rest = Rest {
                    changes: table.changes(),
                    since: Some(now),
                };
            } else if rest.since.is_some_and(|since| now.since(since) >= REST) {
                rest.since = None;
                ops.push(Op::Settle(TableId(number as u8)));
            }
        }
    }
}
