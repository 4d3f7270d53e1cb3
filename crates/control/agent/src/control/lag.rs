//! A LAG of a bridge: the machines of `l2ctl`, and what the data plane does.

use std::collections::BTreeMap;

use millrace_datapath::LagRole;
use millrace_datapath::io::{DeviceInfo, PortModes};
use millrace_l2ctl::lacp::{self, LagNumber, Mbps, MemberSettings};
use millrace_model::{self as model, LagFallback, LagMode, LagRate};
use millrace_types::{PortNo, Time};

/// A LAG whose port is open.
pub(super) struct RunningLag {
    pub(super) model: model::Lag,
    pub(super) machine: lacp::Lag,
    /// The members whose devices are open.
    pub(super) members: BTreeMap<PortNo, RunningMember>,
    /// The roles of the members in the data plane now.
    pub(super) roles: Vec<LagRole>,
}

/// A member of a LAG whose device is open.
pub(super) struct RunningMember {
    pub(super) model: model::LagMember,
    pub(super) info: DeviceInfo,
    /// The time at which the member began to distribute, or ceased to.
    pub(super) since: Time,
}

impl RunningLag {
    pub(super) fn new(bridge: &model::Bridge, port: &model::Port, wanted: &model::Lag) -> RunningLag {
        RunningLag {
            model: wanted.clone(),
            machine: lacp::Lag::new(settings_of(bridge, port, wanted), &[]),
            members: BTreeMap::new(),
            roles: Vec::new(),
        }
    }

    /// Gives the machines the members whose devices are open.
    pub(super) fn update_members(&mut self) {
        let members: Vec<MemberSettings> = self
            .members
            .values()
            .filter_map(|member| {
                Some(MemberSettings {
                    port: lacp_number(member.model.number)?,
                    priority: member.model.priority.get(),
                    mac: member.info.mac,
                })
            })
            .collect();
        self.machine.set_members(&members);
    }

    /// Tells the machines the links of the members; a LAG that is administratively down has none.
    pub(super) fn update_links(&mut self, is_down: bool, now: Time) {
        for (number, member) in &self.members {
            let link = (member.info.link_up && !is_down).then(|| Mbps(member.info.speed_mbps.unwrap_or(0)));
            if let Some(port) = lacp_number(*number) {
                self.machine.set_link(port, link, now);
            }
        }
    }

    /// Returns what the data plane has to do.
    pub(super) fn wanted_roles(&self, takes_lldp: bool) -> Vec<LagRole> {
        let role = |number: &PortNo| {
            let port = lacp_number(*number)?;
            Some(LagRole {
                number: *number,
                collects: self.machine.collects(port),
                distributes: self.machine.distributes(port),
                takes_lldp,
            })
        };
        self.members.keys().filter_map(role).collect()
    }

    /// Returns the properties of the LAG as those of a device: its speed is the sum of the members that distribute.
    pub(super) fn info(&self, bridge: &model::Bridge, port: &model::Port) -> DeviceInfo {
        let distributing = || {
            let roles = self.roles.iter().filter(|role| role.distributes);
            roles.filter_map(|role| self.members.get(&role.number))
        };
        let speeds = distributing().filter_map(|member| member.info.speed_mbps);
        let speed = speeds.reduce(u32::saturating_add);
        DeviceInfo {
            driver: "lag".to_owned(),
            mac: self.model.mac_address(bridge),
            speed_mbps: speed,
            link_up: distributing().next().is_some(),
            modes: PortModes::default(),
            mtu: port.mtu.get(),
            numa_node: None,
            rx_queues: self.members.values().map(|member| member.info.rx_queues).sum(),
            rss: None,
            offload: None,
        }
    }

    /// Returns the problem of members that can never carry packets together, if there is one.
    pub(super) fn speed_problem(&self) -> Option<String> {
        let mut with_speed = self
            .members
            .values()
            .filter(|member| member.info.link_up)
            .filter_map(|member| Some((&member.model.name, member.info.speed_mbps?)));
        let (first, speed) = with_speed.next()?;
        let (other, different) = with_speed.find(|(_, of)| *of != speed)?;
        Some(format!(
            "{first} has {speed} Mb/s and {other} has {different} Mb/s: members of different speed do not carry packets \
             together. To fix it: give all members the same speed, or remove one of the two"
        ))
    }
}

/// Returns the number of a member in LACPDUs; the configuration refuses others.
pub(super) fn lacp_number(member: PortNo) -> Option<u16> {
    u16::try_from(member.raw()).ok()
}

/// Returns the settings of the machines.
pub(super) fn settings_of(bridge: &model::Bridge, port: &model::Port, wanted: &model::Lag) -> lacp::Settings {
    let number = u16::try_from(port.number.raw()).ok().and_then(LagNumber::new);
    lacp::Settings {
        // Only a LAG without LACP may have a port number above the largest number of a LAG, which says nothing there.
        number: number.unwrap_or(LagNumber::FIRST),
        system_priority: wanted.system_priority.get(),
        system: wanted.system_address(bridge),
        mode: match wanted.mode {
            LagMode::Active => lacp::Mode::Active,
            LagMode::Passive => lacp::Mode::Passive,
            LagMode::On => lacp::Mode::Static,
        },
        rate: match wanted.rate {
            LagRate::Slow => lacp::Rate::Slow,
            LagRate::Fast => lacp::Rate::Fast,
        },
        min_links: wanted.min_links.get().into(),
        fallback: match wanted.fallback {
            LagFallback::None => lacp::Fallback::None,
            LagFallback::Individual => lacp::Fallback::Individual,
        },
    }
}
