//! Constraints of LLDP.

use super::checks::Checks;
use super::walk::{bridges, ports};
use crate::choice::PortLldp;
use crate::config::Config;

/// Management addresses that neighbours read at most.
const ADDRESSES_MAX: usize = 8;

impl Checks {
    /// Checks the LLDP settings of all bridges.
    pub(super) fn lldp(&mut self, config: &Config) {
        for (bridge, path) in bridges(config) {
            if let Some(lldp) = &bridge.lldp {
                let count = lldp.management.len();
                if count > ADDRESSES_MAX {
                    let message = format!("{count} addresses: expected at most {ADDRESSES_MAX}");
                    self.conflict(path.key("lldp").key("management"), message);
                }
                continue;
            }
            for (port, path) in ports(bridge, &path) {
                if port.lldp != PortLldp::Both {
                    let message = "the bridge has no `lldp`, so that no port has LLDP: expected `lldp` in the bridge, or no \
                                   `lldp` at the port";
                    self.conflict(path.key("lldp"), message.to_owned());
                }
            }
        }
    }
}
