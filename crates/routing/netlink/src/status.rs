//! The state of a source of routes, for metrics and for people.

use parking_lot::Mutex;

use crate::translate::Ignored;

/// The counters of a source since it was opened, and its state.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// True while the socket is open and the namespace is there; of FPM, while the listener is open.
    pub is_open: bool,
    /// Number of messages read.
    pub messages: u64,
    /// Number of times at which the kernel dropped notifications because the receive buffer was full.
    pub overruns: u64,
    /// Number of dumps that ended incomplete.
    pub failed_dumps: u64,
    /// Number of sessions of FPM that were accepted.
    pub sessions: u64,
    /// Number of times at which somebody turned the kernel's forwarding on, and it was turned off again.
    pub forwarding_resets: u64,
    /// Number of requests that the kernel refused.
    pub refused_requests: u64,
    /// Number of probes that were dropped because too many waited.
    pub dropped_probes: u64,
    /// Messages that changed nothing, by reason.
    pub ignored: Ignored,
    /// The last error, for people; empty if there was none.
    pub last_error: String,
}

/// A status that threads share.
#[derive(Debug, Default)]
pub(crate) struct Shared(Mutex<Status>);

impl Shared {
    pub(crate) fn read(&self) -> Status {
        self.0.lock().clone()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.0.lock());
    }
}
