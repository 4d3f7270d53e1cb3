//! The state that all tasks of routing share, and their clocks.

use std::sync::Arc;
use std::time::Instant;

use millrace_ix_filter::Shared;
use millrace_ix_service::Handle;
use millrace_types::Time;
use tokio::sync::Notify;

/// The parts of the process that all tasks of routing share: the engine, the authority, the clock of sessions, and the signal
/// that starts a comparison.
#[derive(Clone)]
pub(super) struct Routing {
    pub(super) handle: Handle,
    pub(super) shared: Shared,
    pub(super) start: Instant,
    pub(super) changed: Arc<Notify>,
}

impl Routing {
    /// Returns the time since the start of the process.
    pub(super) fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
