//! The interface to the running switch.

use millrace_ovs::State;
use tokio::sync::watch;

/// The running switch.
pub trait Switch: Send + Sync + 'static {
    /// Reads the state of the switch. May block.
    fn state(&self) -> State;

    /// Returns the revision of the store that the switch applied last, and its changes.
    fn applied(&self) -> watch::Receiver<Option<u64>>;
}
