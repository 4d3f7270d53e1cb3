//! LLDP of a bridge: its configuration becomes that of the agent in `l2ctl`, whose frames leave and arrive like those of OAM.

use std::collections::{BTreeMap, BTreeSet};

use millrace_datapath::io::Backend;
use millrace_l2ctl::lldp::{
    Agent, Aggregation, Capabilities, ChassisId, Counters, Lldpdu, ManagementAddress, Neighbour, PortId,
    PortSettings, Settings,
};
use millrace_model::{self as model, PortLldp};
use millrace_pipeline::{PortConfig, PortState};
use millrace_types::{Duration, Mac, PortNo, Time};

use super::bridge::BridgeControl;
use super::lldp_changes::LldpChanges;
use crate::observe::Observation;
use crate::port::PortStatus;

/// Size of an Ethernet header with a VLAN tag and of the check sequence, in bytes.
const FRAME_OVERHEAD: u16 = 22;
/// The time for which a bridge waits at most until workers have sent its last LLDPDUs.
const FAREWELL_TIME_MAX: Duration = Duration::from_millis(100);
const FAREWELL_POLL: Duration = Duration::from_millis(1);
/// The file of the kernel with the host name.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// The LLDP state of a port.
#[derive(Clone, Debug)]
pub struct LldpStatus<'a> {
    /// The neighbours, each with the rest of its time to live.
    pub neighbours: Vec<(&'a Neighbour, Duration)>,
    /// The counters of the port.
    pub counters: Counters,
}

impl<B: Backend> BridgeControl<B> {
    /// Changes the LLDP agent until it matches the configuration and the links of the running ports.
    pub(super) fn configure_lldp(&mut self) {
        let now = self.datapath.now();
        let Some(wanted) = &self.config.lldp else {
            if let Some(agent) = &mut self.lldp {
                agent.shut_down();
                self.run_lldp();
                self.lldp = None;
            }
            return;
        };
        let chassis = ChassisId::Mac(self.config.address());
        let settings = settings_of(wanted, chassis);
        let ports = self.lldp_ports();
        let agent = self.lldp.get_or_insert_with(|| Agent::new(settings.clone()));
        agent.set_settings(settings, now);
        let gone: Vec<PortNo> = agent.ports().filter(|port| !ports.contains_key(port)).collect();
        for port in gone {
            agent.remove_port(port);
        }
        for (number, (settings, is_up)) in ports {
            agent.set_port(number, settings, now);
            agent.set_link(number, is_up, now);
        }
        self.run_lldp();
    }

    /// Returns the settings and the link state of each port with LLDP: a LAG has one for each member.
    fn lldp_ports(&self) -> BTreeMap<PortNo, (PortSettings, bool)> {
        let mut ports = BTreeMap::new();
        for (number, status) in self.ports.iter().filter(|(_, status)| has_lldp(&status.model)) {
            let is_enabled = !status.config.has(PortConfig::DOWN);
            let Some(lag) = self.lags.get(number) else {
                let is_up = is_enabled && !status.state.has(PortState::LINK_DOWN);
                ports.insert(*number, (port_settings_of(status), is_up));
                continue;
            };
            for (member, running) in &lag.members {
                let settings = PortSettings {
                    mac: running.info.mac,
                    id: PortId::InterfaceName(running.model.name.to_string()),
                    description: running.model.device.to_string(),
                    aggregation: Some(Aggregation {
                        is_capable: true,
                        is_enabled: true,
                        port_id: number.raw(),
                    }),
                    max_frame_size: Some(running.info.mtu.saturating_add(FRAME_OVERHEAD)),
                    ..port_settings_of(status)
                };
                ports.insert(*member, (settings, is_enabled && running.info.link_up));
            }
        }
        ports
    }

    /// Returns true if the control thread takes the LLDPDUs that a port receives.
    pub(super) fn receives_lldp(&self, port: &model::Port) -> bool {
        self.config.lldp.is_some() && matches!(port.lldp, PortLldp::Both | PortLldp::Receive)
    }

    /// Handles an LLDPDU that arrived at `time`.
    pub(super) fn receive_lldp(&mut self, port: PortNo, time: Time, frame: &[u8]) {
        if let Some(agent) = &mut self.lldp {
            agent.receive(port, frame, time);
        }
    }

    /// Sends the LLDPDUs that are due, and forgets neighbours that have expired. Returns the number of LLDPDUs.
    pub(super) fn run_lldp(&mut self) -> u64 {
        let now = self.datapath.now();
        let is_due = |agent: &&mut Agent| agent.deadline().is_some_and(|deadline| now >= deadline);
        let Some(agent) = self.lldp.as_mut().filter(is_due) else {
            return 0;
        };
        let frames = agent.poll(now);
        for transmit in &frames {
            if self.member_name(transmit.port).is_some() {
                let _no_buffer = self.datapath.send(transmit.port, &transmit.frame);
            } else {
                self.send_frame(transmit.port, &transmit.frame);
            }
        }
        frames.len() as u64
    }

    /// Tells the neighbours of a port that it goes away, while it can still send.
    pub(super) fn shut_down_lldp(&mut self, port: PortNo) {
        if let Some(agent) = &mut self.lldp {
            agent.remove_port(port);
            self.send_farewells();
        }
    }

    /// Tells the neighbours of all ports that the bridge goes away.
    pub(super) fn shut_down_all_lldp(&mut self) {
        if let Some(agent) = &mut self.lldp {
            agent.shut_down();
            self.send_farewells();
        }
    }

    /// Sends the frames that are due, and waits until the workers have sent them: the ports are about to close.
    fn send_farewells(&mut self) {
        let sent = |control: &Self| -> u64 {
            control
                .ports
                .keys()
                .map(|port| control.port_stats(*port).tx_packets)
                .sum()
        };
        let expected = sent(self) + self.run_lldp();
        let bound = self.datapath.now() + FAREWELL_TIME_MAX;
        while sent(self) < expected && self.datapath.now() < bound {
            std::thread::sleep(FAREWELL_POLL);
        }
    }

    /// Reports the ports whose neighbours changed since the last call.
    pub(super) fn report_lldp(&mut self) {
        let Some(agent) = &self.lldp else {
            self.lldp_changes = LldpChanges::default();
            return;
        };
        if self.observer.is_none() || agent.changes() == self.lldp_changes.counted {
            return;
        }
        let now = self.datapath.now();
        let mut seen: BTreeMap<PortNo, Vec<(Mac, Lldpdu)>> = BTreeMap::new();
        for (port, known) in agent.neighbours() {
            seen.entry(port).or_default().push((known.mac, known.pdu.clone()));
        }
        let numbers: BTreeSet<PortNo> = seen
            .keys()
            .chain(self.lldp_changes.seen.keys())
            .copied()
            .collect();
        for number in numbers {
            if seen.get(&number) == self.lldp_changes.seen.get(&number) {
                continue;
            }
            let (port, member) = match self.member_name(number) {
                Some((port, member)) => (port, Some(member)),
                None => match self.ports.get(&number) {
                    Some(status) => (&status.model.name, None),
                    None => continue,
                },
            };
            let of_port = agent.neighbours().filter(|(of, _)| *of == number);
            self.report(&Observation::Lldp {
                bridge: self.config.name.as_str(),
                port: port.as_str(),
                member: member.map(model::PortName::as_str),
                neighbours: of_port
                    .map(|(_, known)| (known, known.expires.since(now)))
                    .collect(),
            });
        }
        let counted = agent.changes();
        self.lldp_changes = LldpChanges { counted, seen };
    }

    /// Returns the LLDP state of a port; `None` if it has no LLDP.
    pub fn lldp_status(&self, port: PortNo) -> Option<LldpStatus<'_>> {
        let agent = self.lldp.as_ref()?;
        let counters = agent.counters(port)?;
        let now = self.datapath.now();
        let of_port = agent.neighbours().filter(|(of, _)| *of == port);
        Some(LldpStatus {
            neighbours: of_port
                .map(|(_, known)| (known, known.expires.since(now)))
                .collect(),
            counters,
        })
    }
}

fn has_lldp(port: &model::Port) -> bool {
    port.lldp != PortLldp::Off
}

fn settings_of(wanted: &model::Lldp, chassis: ChassisId) -> Settings {
    let host_name = || {
        let name = std::fs::read_to_string(HOST_NAME).unwrap_or_default();
        name.trim().to_owned()
    };
    let address = |address: &std::net::IpAddr| ManagementAddress {
        address: *address,
        if_index: None,
    };
    Settings {
        chassis,
        system_name: wanted
            .system_name
            .as_ref()
            .map_or_else(host_name, ToString::to_string),
        system_description: wanted.system_description.to_string(),
        capabilities: (Capabilities::BRIDGE, Capabilities::BRIDGE),
        addresses: wanted.management.iter().map(address).collect(),
        interval_s: wanted.interval_s.get(),
        hold: wanted.hold.get(),
    }
}

fn port_settings_of(status: &PortStatus) -> PortSettings {
    let port = &status.model;
    PortSettings {
        mac: status.info.mac,
        id: PortId::InterfaceName(port.name.to_string()),
        description: port.device.to_string(),
        sends: matches!(port.lldp, PortLldp::Both | PortLldp::Send),
        receives: matches!(port.lldp, PortLldp::Both | PortLldp::Receive),
        port_vlan: match port.vlan_mode() {
            model::VlanMode::TrunkAll | model::VlanMode::Trunk(_) | model::VlanMode::Tunnel { .. } => None,
            model::VlanMode::Access(vlan)
            | model::VlanMode::NativeTagged { native: vlan, .. }
            | model::VlanMode::Native { untagged: vlan, .. } => Some(vlan.raw()),
        },
        vlans: Vec::new(),
        aggregation: None,
        max_frame_size: Some(status.info.mtu.saturating_add(FRAME_OVERHEAD)),
    }
}
