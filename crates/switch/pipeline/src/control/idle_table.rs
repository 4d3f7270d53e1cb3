//! Detection of idle tables, which are optimized for lookups.
//!
//! While entries are added and removed, the classifier of a table inserts them where that is fastest, and rebuilds its
//! structures only after many changes. A table without changes for a second is rebuilt for lookups.

use millrace_types::{Duration, Time};

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

impl IdleTable {
    /// Returns true if the table is due for optimization. `changes` is its number of additions and removals.
    pub(super) fn is_due(&mut self, changes: u64, now: Time) -> bool {
        if self.changes != changes {
            *self = IdleTable {
                changes,
                since: Some(now),
            };
            return false;
        }
        let is_due = self.since.is_some_and(|since| now.since(since) >= IDLE_TIME);
        if is_due {
            self.since = None;
        }
        is_due
    }
}
