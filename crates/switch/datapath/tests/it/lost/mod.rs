//! What was dropped, for tests that say so when they fail.

use millrace_pipeline::{Control, DropReason};

/// Packets dropped by all workers, by the name of the reason, where there are any.
pub(crate) fn lost(control: &Control) -> Vec<(&'static str, u64)> {
    let counts = DropReason::ALL.map(|reason| (reason.name(), control.drops(reason)));
    counts.into_iter().filter(|(_, count)| *count != 0).collect()
}
