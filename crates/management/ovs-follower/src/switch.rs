//! The interface to the running switch.

use millrace_ovs::{HostState, MacState, State};
use millrace_types::Mac;
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

    /// Adds a MAC address that stays until it is removed. VLAN 0 is that of untagged packets. May block.
    ///
    /// # Errors
    /// The error for `ovs-appctl`: there is no such bridge or port.
    fn add_mac(&self, bridge: &str, port: &str, vlan: u16, mac: Mac) -> Result<(), String>;

    /// Removes a MAC address that was added. May block.
    ///
    /// # Errors
    /// The error for `ovs-appctl`: there is no such bridge or address.
    fn remove_mac(&self, bridge: &str, vlan: u16, mac: Mac) -> Result<(), String>;

    /// Returns the routes and neighbours by which the machine sends tunnels. May block.
    fn host(&self) -> HostState;

    /// Returns the filter of the log: a level, and those of single targets.
    fn log_filter(&self) -> String;

    /// Sets the level of the log.
    fn set_log_level(&self, level: &str);
}
