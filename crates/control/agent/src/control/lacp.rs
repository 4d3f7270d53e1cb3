//! LAGs of a bridge: opens the devices of their members, runs the machines of `l2ctl`, and tells the data plane at once
//! which members carry packets.

use std::collections::BTreeSet;

use millrace_datapath::LagRole;
use millrace_datapath::io::{Backend, DeviceInfo, DeviceOptions};
use millrace_l2ctl::lacp::{self, Counters};
pub use millrace_l2ctl::lacp::{Churn as LacpChurn, Mux, Participant, Receive, Selected};
use millrace_model as model;
use millrace_pipeline::PortConfig;
use millrace_types::{Duration, PortNo, Time};

use super::bridge::BridgeControl;
use super::devices::device_spec;
use super::lag::{RunningLag, RunningMember, lacp_number, settings_of};
use crate::observe::Observation;
use crate::problem::Problem;

/// The state of a LAG.
#[derive(Clone, Debug)]
pub struct LagStatus<'a> {
    /// The configuration.
    pub model: &'a model::Lag,
    /// The settings of LACP: system, priority, and number.
    pub settings: lacp::Settings,
    /// True if a member distributes.
    pub is_up: bool,
    /// The members, in the order of the configuration.
    pub members: Vec<LagMemberStatus<'a>>,
}

/// The state of a member of a LAG.
#[derive(Clone, Debug)]
pub struct LagMemberStatus<'a> {
    /// The configuration.
    pub model: &'a model::LagMember,
    /// The device; `None` if it is not open.
    pub info: Option<&'a DeviceInfo>,
    /// The machines; `None` if the device is not open.
    pub lacp: Option<lacp::MemberStatus>,
    /// The time since the member began to distribute, or ceased to.
    pub since: Option<Duration>,
}

impl LagMemberStatus<'_> {
    /// Returns the counters of LACP.
    pub fn counters(&self) -> Counters {
        self.lacp.map(|lacp| lacp.counters).unwrap_or_default()
    }
}

impl<B: Backend> BridgeControl<B> {
    /// Adds the LAG of a port that the pipeline knows, with those of its members whose devices open.
    pub(super) fn open_lag(
        &mut self,
        port: &model::Port,
        wanted: &model::Lag,
    ) -> Result<(), millrace_datapath::AddPortError> {
        self.datapath.add_lag(port.number)?;
        let lag = RunningLag::new(&self.config, port, wanted);
        self.lags.insert(port.number, lag);
        // `apply_lags` reports the members that do not open.
        let _problems = self.apply_lag(port);
        Ok(())
    }

    /// Removes the members of a LAG and the LAG, whose port is about to close.
    pub(super) fn close_lag(&mut self, port: PortNo) {
        let members: Vec<PortNo> = self
            .lags
            .get(&port)
            .into_iter()
            .flat_map(|lag| lag.members.keys().copied())
            .collect();
        self.close_members(port, &members);
        self.lags.remove(&port);
    }

    /// Closes members of running LAGs that `wanted` does not have, so that their devices are free for others.
    pub(crate) fn close_obsolete_members(&mut self, wanted: &model::Bridge) {
        let mut obsolete = Vec::new();
        for (number, lag) in &self.lags {
            let stays = |member: &model::LagMember| {
                let port = wanted.ports.iter().find(|port| port.number == *number);
                let lag = port.and_then(|port| wanted.lag_of(port));
                lag.is_some_and(|lag| lag.members.iter().any(|wanted| !needs_new_device(member, wanted)))
            };
            let gone = lag.members.iter().filter(|(_, member)| !stays(&member.model));
            obsolete.push((*number, gone.map(|(number, _)| *number).collect::<Vec<_>>()));
        }
        for (lag, members) in obsolete {
            self.close_members(lag, &members);
        }
    }

    fn close_members(&mut self, port: PortNo, members: &[PortNo]) {
        if members.is_empty() {
            return;
        }
        let now = self.datapath.now();
        for member in members {
            self.shut_down_lldp(*member);
        }
        let Some(lag) = self.lags.get_mut(&port) else {
            return;
        };
        // The partner moves its flows before the device closes.
        let mut farewell = lag.machine.clone();
        let frames = farewell.shut_down(now);
        let mut names = Vec::new();
        for member in members {
            names.extend(lag.members.remove(member).map(|running| running.model.name));
            let of_member = frames
                .iter()
                .filter(|frame| PortNo::from_raw(frame.port.into()) == *member);
            for frame in of_member {
                let _no_buffer = self.datapath.send(*member, &frame.frame);
            }
        }
        lag.update_members();
        self.run_lag(port);
        for member in members {
            self.datapath.remove_port(*member);
        }
        if let Some(status) = self.ports.get(&port) {
            for member in &names {
                self.report(&Observation::MemberGone {
                    bridge: self.config.name.as_str(),
                    port: status.model.name.as_str(),
                    member: member.as_str(),
                });
            }
        }
        self.poll_links();
    }

    /// Makes the LAGs equal to the configuration, as far as their devices open. Returns the problems.
    pub(crate) fn apply_lags(&mut self) -> Vec<Problem> {
        let ports: Vec<model::Port> = self
            .ports
            .values()
            .filter(|status| self.lags.contains_key(&status.model.number))
            .map(|status| status.model.clone())
            .collect();
        let mut problems = Vec::new();
        for port in &ports {
            problems.extend(self.apply_lag(port));
        }
        if !ports.is_empty() {
            self.configure_lldp();
            self.poll_links();
        }
        problems
    }

    fn apply_lag(&mut self, port: &model::Port) -> Vec<Problem> {
        let now = self.datapath.now();
        let Some(wanted) = self.config.lag_of(port).cloned() else {
            return Vec::new();
        };
        let settings = settings_of(&self.config, port, &wanted);
        let Some(lag) = self.lags.get_mut(&port.number) else {
            return Vec::new();
        };
        lag.model = wanted.clone();
        lag.machine.set_settings(settings, now);
        let mut problems = Vec::new();
        for member in &wanted.members {
            if let Some(running) = lag.members.get_mut(&member.number) {
                running.model = member.clone();
                continue;
            }
            let options = DeviceOptions {
                queues: member
                    .queues
                    .map_or(self.datapath.workers_len(), model::QueueCount::get),
                only_if_spread: member.queues.is_none(),
                mtu: port.mtu.get(),
            };
            let spec = device_spec(self.config.name.as_str(), member.name.as_str(), &member.device);
            if let Err(error) = self
                .datapath
                .add_member(port.number, member.number, &spec, options)
            {
                problems.push(Problem::new(
                    format!("port {}, member {}", port.name, member.name),
                    error,
                ));
                continue;
            }
            if let Some(info) = self.datapath.device_info(member.number) {
                tracing::info!(bridge = %self.config.name, lag = %wanted.name, member = %member.name, driver = %info.driver, "member added");
                let running = RunningMember {
                    model: member.clone(),
                    info,
                    since: now,
                };
                lag.members.insert(member.number, running);
            }
        }
        lag.update_members();
        let of_speed = lag.speed_problem();
        problems.extend(of_speed.map(|reason| Problem::new(format!("port {}", port.name), reason)));
        let is_down = self
            .ports
            .get(&port.number)
            .is_some_and(|status| status.config.has(PortConfig::DOWN));
        lag.update_links(is_down, now);
        self.run_lag(port.number);
        problems
    }

    /// Reads the links of the members that may have changed, and runs the machines of the LAGs.
    pub(super) fn poll_lags(&mut self, may_have_changed: &BTreeSet<PortNo>) {
        let now = self.datapath.now();
        let numbers: Vec<PortNo> = self.lags.keys().copied().collect();
        for number in numbers {
            let is_down = self
                .ports
                .get(&number)
                .is_some_and(|status| status.config.has(PortConfig::DOWN));
            let Some(lag) = self.lags.get_mut(&number) else {
                continue;
            };
            let (mut has_changed, mut has_new_mac) = (false, false);
            for (number, member) in &mut lag.members {
                if !may_have_changed.contains(number) {
                    continue;
                }
                let Some(info) = self
                    .datapath
                    .device_info(*number)
                    .filter(|info| *info != member.info)
                else {
                    continue;
                };
                if info.link_up != member.info.link_up {
                    tracing::info!(bridge = %self.config.name, lag = %lag.model.name, member = %member.model.name, up = info.link_up, "link of a member");
                }
                has_new_mac |= info.mac != member.info.mac;
                has_changed = true;
                member.info = info;
            }
            if has_new_mac {
                lag.update_members();
            }
            lag.update_links(is_down, now);
            self.run_lag(number);
            if has_changed {
                self.configure_lldp();
                self.report_members(number);
            }
        }
    }

    /// Handles a frame of a slow protocol that a member received at `time`.
    pub(super) fn receive_slow_protocol(&mut self, member: PortNo, time: Time, frame: &[u8]) {
        let lag = self
            .lags
            .iter_mut()
            .find(|(_, lag)| lag.members.contains_key(&member));
        let (Some((number, lag)), Some(port)) = (lag, lacp_number(member)) else {
            return;
        };
        lag.machine.receive(port, frame, time);
        let number = *number;
        if self.run_lag(number) {
            self.poll_links();
        }
    }

    /// Runs the machines that are due.
    pub(super) fn run_lacp(&mut self) {
        let now = self.datapath.now();
        let is_due = |lag: &RunningLag| lag.machine.deadline().is_some_and(|deadline| now >= deadline);
        let due: Vec<PortNo> = self
            .lags
            .iter()
            .filter(|(_, lag)| is_due(lag))
            .map(|(number, _)| *number)
            .collect();
        let mut has_changed = false;
        for number in due {
            has_changed |= self.run_lag(number);
        }
        if has_changed {
            self.poll_links();
        }
    }

    /// Returns the time at which the machines of a LAG are due.
    pub(super) fn lacp_deadline(&self) -> Option<Time> {
        self.lags.values().filter_map(|lag| lag.machine.deadline()).min()
    }

    /// Runs the machines of a LAG, and carries out what they decide: the data plane changes before the LACPDU leaves by
    /// which a partner learns of it. Returns true if the members that carry packets changed.
    fn run_lag(&mut self, number: PortNo) -> bool {
        let now = self.datapath.now();
        let takes_lldp = self
            .ports
            .get(&number)
            .is_some_and(|status| self.receives_lldp(&status.model));
        let Some(lag) = self.lags.get_mut(&number) else {
            return false;
        };
        let frames = lag.machine.poll(now);
        let roles = lag.wanted_roles(takes_lldp);
        let has_changed = roles != lag.roles;
        if has_changed {
            self.datapath.set_lag(number, &roles);
            let before = core::mem::replace(&mut lag.roles, roles.clone());
            for role in &roles {
                let did = |role: &LagRole| (role.collects, role.distributes);
                let old = before.iter().find(|old| old.number == role.number);
                let Some(member) = lag.members.get_mut(&role.number) else {
                    continue;
                };
                if old.map(did).unwrap_or_default() != did(role) {
                    member.since = now;
                    tracing::info!(
                        bridge = %self.config.name, lag = %lag.model.name, member = %member.model.name,
                        collects = role.collects, distributes = role.distributes, "member of a LAG"
                    );
                }
            }
        }
        for transmit in frames {
            // Without a packet buffer the LACPDU is lost: the next follows within the interval.
            let _no_buffer = self
                .datapath
                .send(PortNo::from_raw(transmit.port.into()), &transmit.frame);
        }
        if has_changed {
            self.report_members(number);
        }
        has_changed
    }

    /// Reports the members of a LAG to the observer.
    pub(super) fn report_members(&self, number: PortNo) {
        let (Some(lag), Some(status)) = (self.lags.get(&number), self.ports.get(&number)) else {
            return;
        };
        for (number, member) in &lag.members {
            let role = lag.roles.iter().find(|role| role.number == *number);
            self.report(&Observation::Member {
                bridge: self.config.name.as_str(),
                port: status.model.name.as_str(),
                member: member.model.name.as_str(),
                info: &member.info,
                distributes: role.is_some_and(|role| role.distributes),
            });
        }
    }

    /// Tells the partners of all LAGs that the bridge goes away.
    pub(super) fn shut_down_lags(&mut self) {
        let now = self.datapath.now();
        let frames: Vec<_> = self
            .lags
            .values_mut()
            .flat_map(|lag| lag.machine.shut_down(now))
            .collect();
        for transmit in frames {
            let _no_buffer = self
                .datapath
                .send(PortNo::from_raw(transmit.port.into()), &transmit.frame);
        }
    }

    /// Returns the state of the LAG behind a port; `None` if the port is no LAG.
    pub fn lag_status(&self, port: PortNo) -> Option<LagStatus<'_>> {
        let lag = self.lags.get(&port)?;
        let now = self.datapath.now();
        let machines = lag.machine.status(now);
        let member = |model| {
            let model: &model::LagMember = model;
            let running = lag.members.get(&model.number);
            let lacp = machines
                .iter()
                .find(|status| Some(status.port) == lacp_number(model.number));
            LagMemberStatus {
                model,
                info: running.map(|running| &running.info),
                lacp: lacp.copied().filter(|_| running.is_some()),
                since: running.map(|running| now.since(running.since)),
            }
        };
        Some(LagStatus {
            model: &lag.model,
            settings: *lag.machine.settings(),
            is_up: lag.roles.iter().any(|role| role.distributes),
            members: lag.model.members.iter().map(member).collect(),
        })
    }

    /// Returns the open members of all LAGs: the number, the name of the LAG's port, and the name of the member.
    pub fn members(&self) -> impl Iterator<Item = (PortNo, &model::PortName, &model::PortName)> {
        self.lags.iter().flat_map(|(port, lag)| {
            let port = self.ports.get(port).map(|status| &status.model.name);
            let members = lag.members.iter();
            members.filter_map(move |(number, member)| Some((*number, port?, &member.model.name)))
        })
    }

    /// Returns the name of the LAG's port and of the member with this number; `None` if it is no member.
    pub fn member_name(&self, number: PortNo) -> Option<(&model::PortName, &model::PortName)> {
        let mut members = self.members();
        members.find_map(|(of, port, member)| (of == number).then_some((port, member)))
    }
}

/// Returns true if a device must be opened again for the new configuration of a member.
fn needs_new_device(running: &model::LagMember, wanted: &model::LagMember) -> bool {
    running.name != wanted.name
        || running.number != wanted.number
        || running.device != wanted.device
        || running.queues != wanted.queues
}
