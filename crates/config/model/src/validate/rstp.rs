//! Constraints of RSTP.

use super::checks::Checks;
use super::walk::{bridges, ports};
use crate::choice::RstpVersion;
use crate::config::Config;
use crate::error::Path;
use crate::port::Port;
use crate::rstp::Rstp;

/// The largest port number in a BPDU (IEEE 802.1D-2004, section 9.2.7).
const NUMBER_MAX: u32 = 4095;
const BRIDGE_PRIORITY_STEP: u16 = 4096;
const PORT_PRIORITY_STEP: u8 = 16;

impl Checks {
    /// Checks the RSTP settings of all bridges.
    pub(super) fn rstp(&mut self, config: &Config) {
        for (bridge, path) in bridges(config) {
            if let Some(rstp) = &bridge.rstp {
                self.rstp_times(rstp, &path.key("rstp"));
            }
            for (port, path) in ports(bridge, &path) {
                self.port_rstp(bridge.rstp.is_some(), port, &path);
            }
        }
    }

    fn rstp_times(&mut self, rstp: &Rstp, path: &Path) {
        // IEEE 802.1D-1998 has priorities of 16 bits, IEEE 802.1D-2004 (section 9.2.5) of four.
        let has_steps = rstp.version == RstpVersion::Rstp;
        if has_steps && !rstp.priority.get().is_multiple_of(BRIDGE_PRIORITY_STEP) {
            let message = format!(
                "{} is not a multiple of {BRIDGE_PRIORITY_STEP}: expected one",
                rstp.priority
            );
            self.conflict(path.key("priority"), message);
        }
        // IEEE 802.1D-2004, section 17.14.
        let least = 2 * (rstp.hello_time_s.get() + 1);
        let most = 2 * (rstp.forward_delay_s.get() - 1);
        if !(least..=most).contains(&rstp.max_age_s.get()) {
            let message = format!(
                "{} does not fit hello_time_s {} and forward_delay_s {}: expected {least} to {most}",
                rstp.max_age_s, rstp.hello_time_s, rstp.forward_delay_s
            );
            self.conflict(path.key("max_age_s"), message);
        }
    }

    fn port_rstp(&mut self, bridge_has_rstp: bool, port: &Port, path: &Path) {
        let is_enabled = port.rstp.as_ref().is_none_or(|rstp| rstp.enabled);
        if bridge_has_rstp && is_enabled && port.number.raw() > NUMBER_MAX {
            let message = format!(
                "{} does not fit into a BPDU: expected at most {NUMBER_MAX}, or `rstp = {{ enabled = false }}`",
                port.number
            );
            self.conflict(path.key("number"), message);
        }
        let Some(rstp) = &port.rstp else {
            return;
        };
        if !bridge_has_rstp {
            let message = "the bridge has no `rstp`, so that no port has RSTP: expected `rstp` in the bridge, or no `rstp` at \
                           the port";
            self.conflict(path.key("rstp"), message.to_owned());
        }
        if rstp.priority.get() % PORT_PRIORITY_STEP != 0 {
            let message = format!(
                "{} is not a multiple of {PORT_PRIORITY_STEP}: expected one",
                rstp.priority
            );
            self.conflict(path.key("rstp").key("priority"), message);
        }
    }
}
