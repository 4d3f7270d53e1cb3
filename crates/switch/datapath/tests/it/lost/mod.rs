//! Dropped packets, for the messages of failed assertions.

use millrace_pipeline::{Control, DropReason};

/// Returns the number of packets that all workers dropped, by the name of the reason, without zeros.
pub(crate) fn lost(control: &Control) -> Vec<(&'static str, u64)> {
    let counts = DropReason::ALL.map(|reason| (reason.name(), control.drops(reason)));
    counts.into_iter().filter(|(_, count)| *count != 0).collect()
}
