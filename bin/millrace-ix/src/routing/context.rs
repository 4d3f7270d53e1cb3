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

#[cfg(test)]
impl Routing {
    /// Returns the state of a process that started `age` ago, with an empty database. The caller stops the handle.
    #[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    pub(super) fn in_memory(shared: Shared, age: std::time::Duration) -> Routing {
        let settings = millrace_ix_service::Settings {
            engine: millrace_ix_engine::Settings::default(),
            extensions: false,
            audit_key: None,
        };
        let store = Box::new(millrace_ix_store::Sqlite::in_memory().unwrap());
        let service = millrace_ix_service::Service::start(store, settings, drop).unwrap();
        Routing {
            handle: service.handle(),
            shared,
            start: Instant::now().checked_sub(age).unwrap(),
            changed: Arc::default(),
        }
    }
}
