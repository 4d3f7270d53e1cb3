//! Re-optimisation of idle tables.
//!
//! While entries are added and removed, the classifier of a table inserts them where that is fastest, and rebuilds its
//! structures only after many changes. A table without changes for a second is rebuilt for lookups.

use millrace_types::{Duration, TableId, Time};

use super::Control;
use crate::Op;

/// Time without changes after which a table is optimized.
const IDLE_TIME: Duration = Duration::from_secs(1);

/// The idle state of a table. An empty table needs no optimization.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IdleTable {
    /// The table's number of additions and removals at the latest call.
    changes: u64,
    /// The time at which that number was first seen; `None` once the table is optimized.
    since: Option<Time>,
}

impl Control {
    /// Emits [`Op::Optimize`] for the tables that are idle. Called periodically.
    pub fn optimize_idle_tables(&mut self, now: Time, ops: &mut Vec<Op>) {
        for (number, (idle, table)) in self.idle_tables.iter_mut().zip(&self.tables).enumerate() {
            if idle.changes != table.changes() {
                *idle = IdleTable {
                    changes: table.changes(),
                    since: Some(now),
                };
            } else if idle.since.is_some_and(|since| now.since(since) >= IDLE_TIME) {
                idle.since = None;
                ops.push(Op::Optimize(TableId(number as u8)));
            }
        }
    }
}
