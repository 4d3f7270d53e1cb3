//! The interface to the running switch.

use millrace_ovs::{MacState, State};
use tokio::sync::watch;

/// The running switch.
pub trait Switch: Send + Sync + 'static {
    /// Reads the state of the switch. May block.
    fn state(&self) -> State;

    /// Returns the revision of the store that the switch applied last, and its changes.
    fn applied(&self) -> watch::Receiver<Option<u64>>;

    /// Returns the MAC addresses that a bridge learned; `None` if there is no such bridge. May block.
    fn macs(&self, bridge: &str) -> Option<Vec<MacState>>;

    /// Forgets the MAC addresses that a bridge learned. Returns false if there is no such bridge. May block.
    fn flush_macs(&self, bridge: &str) -> bool;
}
