//! Constraints of LAGs: names, numbers and devices of members, and the port of each LAG.

use std::collections::HashSet;

use millrace_types::PortNo;

use super::checks::{Checks, Unique};
use super::walk::{bridges, lags, members, ports};
use crate::bridge::Bridge;
use crate::choice::LagMode;
use crate::config::Config;
use crate::device::Device;
use crate::error::Path;
use crate::lag::Lag;
use crate::name::LagName;
use crate::port::Port;

/// The number of members that a LAG has at most.
const MEMBERS_MAX: usize = 16;
/// The largest number of a member: LACPDUs have 16 bits (IEEE 802.1AX-2014, section 6.4.2.3).
const MEMBER_NUMBER_MAX: u32 = 65_535;
/// The largest number of a port that is a LAG with LACP: the number is a part of the key of its members.
const LAG_NUMBER_MAX: u32 = 1023;

impl Checks {
    /// Checks the LAGs of all bridges. References are checked only if `is_complete`: without the items that did not
    /// decode, they might lead nowhere.
    pub(super) fn lags(&mut self, config: &Config, is_complete: bool) {
        for (bridge, path) in bridges(config) {
            let mut names = Unique::new("LAG name");
            for (lag, path) in lags(bridge, &path) {
                names.check(&lag.name, &lag.name, path.key("name"), &mut self.issues);
                if is_complete {
                    self.lag(lag, bridge, &path);
                }
            }
            let mut used = HashSet::new();
            for (port, path) in ports(bridge, &path) {
                if let Device::Lag(name) = &port.device {
                    self.lag_port(port, name, bridge, &path, is_complete);
                    if !used.insert(name) {
                        let message =
                            format!("another port has the LAG `{name}`: expected one port for each LAG");
                        self.conflict(path.key("device"), message);
                    }
                }
            }
        }
    }

    /// Checks that the names and numbers of members are unique among the ports of their bridge.
    pub(super) fn lag_members(
        &mut self,
        bridge: &Bridge,
        path: &Path,
        names: &mut Unique<String>,
        numbers: &mut Unique<PortNo>,
    ) {
        for (lag, path) in lags(bridge, path) {
            for (member, path) in members(lag, &path) {
                names.check(
                    member.name.to_string(),
                    &member.name,
                    path.key("name"),
                    &mut self.issues,
                );
                numbers.check(
                    member.number,
                    &member.number,
                    path.key("number"),
                    &mut self.issues,
                );
                if member.number.raw() > MEMBER_NUMBER_MAX {
                    let message = format!(
                        "{} does not fit into an LACPDU: expected at most {MEMBER_NUMBER_MAX}",
                        member.number
                    );
                    self.conflict(path.key("number"), message);
                }
                let reason = match &member.device {
                    Device::Tunnel(_) | Device::Nsh(_) => "a tunnel has no link of its own",
                    Device::Lag(_) => "a LAG has no LAGs as members",
                    _ => continue,
                };
                let message = format!("{reason}: expected a device such as a NIC or kernel:INTERFACE");
                self.conflict(path.key("device"), message);
            }
        }
    }

    fn lag(&mut self, lag: &Lag, bridge: &Bridge, path: &Path) {
        let count = lag.members.len();
        if count == 0 || count > MEMBERS_MAX {
            let message = format!("{count} members: expected 1 to {MEMBERS_MAX}");
            self.conflict(path.key("member"), message);
        } else if usize::from(lag.min_links.get()) > count {
            let message = format!(
                "{} is more than the LAG has members, {count}: it would always be down; expected at most that",
                lag.min_links
            );
            self.conflict(path.key("min_links"), message);
        }
        let has_port = bridge
            .devices()
            .any(|(_, device)| matches!(device, Device::Lag(name) if *name == lag.name));
        if !has_port {
            let message = format!(
                "no port has this LAG: expected a [[bridge.port]] with the device lag:{}",
                lag.name
            );
            self.conflict(path.key("name"), message);
        }
    }

    fn lag_port(&mut self, port: &Port, name: &LagName, bridge: &Bridge, path: &Path, is_complete: bool) {
        match bridge.lag_of(port) {
            None if is_complete => {
                let message =
                    format!("the bridge has no LAG `{name}`: expected a [[bridge.lag]] with this name");
                self.conflict(path.key("device"), message);
            }
            Some(lag) if lag.mode != LagMode::On && port.number.raw() > LAG_NUMBER_MAX => {
                let message = format!(
                    "{} is no number of a LAG with LACP, whose keys it is a part of: expected at most {LAG_NUMBER_MAX}, or \
                     `mode = \"on\"`",
                    port.number
                );
                self.conflict(path.key("number"), message);
            }
            _ => {}
        }
        if port.queues.is_some() {
            let message = "the members have the queues of a LAG: expected `queues` at its members";
            self.conflict(path.key("queues"), message.to_owned());
        }
        for (key, is_given) in [
            ("queue", !port.egress_queues.is_empty()),
            ("rate", port.rate.is_some()),
        ] {
            if is_given {
                let message = format!(
                    "`{key}` schedules the packets of one device, and a LAG has several: expected none, or rates of flows \
                     by meters"
                );
                self.conflict(path.key(key), message);
            }
        }
    }
}
