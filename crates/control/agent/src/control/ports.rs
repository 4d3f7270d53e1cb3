//! The ports of a bridge: opened, changed, closed, and watched for their links.

use std::path::Path;

use millrace_datapath::AddPortError;
use millrace_datapath::io::{Backend, DeviceInfo, DeviceOptions, DeviceSpec, Opened};
use millrace_model as model;
use millrace_pipeline::{Port, PortConfig, PortState, VidSet, VlanMode};
use millrace_types::{PortNo, Time};
use thiserror::Error;

use super::BridgeControl;
use super::qos::{plan_of, policer_of};
use super::tunnels::is_logical;
use super::vnics::vnic_spec;
use crate::handlers::{self, PortChange};

/// A port that is there.
#[derive(Clone, Debug)]
pub struct PortStatus {
    /// As configured.
    pub model: model::Port,
    /// What its device said last.
    pub info: DeviceInfo,
    /// `OFPPC_*`: as configured, and changed since by port_mod.
    pub config: PortConfig,
    /// `OFPPS_*`.
    pub state: PortState,
    /// When it was added.
    pub since: Time,
}

/// Why a port is not there although it is wanted.
#[derive(Debug, Error)]
#[error("port {name}: {source}")]
pub struct PortProblem {
    /// Its name.
    pub name: String,
    /// Why, and what to do.
    pub source: AddPortError,
}

impl<B: Backend> BridgeControl<B> {
    /// Opens a port and tells the controllers.
    ///
    /// # Errors
    /// [`PortProblem`].
    pub fn add_port(&mut self, wanted: &model::Port) -> Result<(), PortProblem> {
        let number = wanted.number;
        // The pipeline first: a packet must not come from a port that it does not know.
        let config = config_of(wanted);
        self.set_pipeline_port(number, config, PortState::default(), vlan_of(wanted));
        if !is_logical(wanted) {
            self.open_port(wanted)?;
        }
        self.port_is_open(wanted, config);
        Ok(())
    }

    /// Opens the device of a port that the pipeline knows already, or forgets the port.
    fn open_port(&mut self, wanted: &model::Port) -> Result<(), PortProblem> {
        self.open_device(wanted).map_err(|source| {
            self.tables.remove_port(wanted.number, &mut self.ops);
            self.publish();
            PortProblem {
                name: wanted.name.to_string(),
                source,
            }
        })
    }

    /// Opens the device of a port that the pipeline knows.
    pub(super) fn open_device(&mut self, wanted: &model::Port) -> Result<(), AddPortError> {
        let number = wanted.number;
        let options = DeviceOptions {
            queues: wanted
                .queues
                .map_or(self.datapath.workers_len(), millrace_model::QueueCount::get),
            only_if_spread: wanted.queues.is_none(),
            mtu: wanted.mtu.get(),
        };
        let spec = spec_of(self.config.name.as_str(), wanted);
        self.datapath.add_port(number, &spec, options)?;
        self.datapath.schedule(number, &plan_of(wanted));
        if let Some(plan) = policer_of(wanted) {
            self.datapath.police(number, Some(&plan));
        }
        if wanted.backpressure {
            self.datapath.hold(number, true);
        }
        Ok(())
    }

    /// Adds a logical port, whose device is open, and tells the controllers.
    ///
    /// # Errors
    /// [`PortProblem`].
    pub(super) fn attach_port(
        &mut self,
        wanted: &model::Port,
        opened: Opened<B::Packet>,
    ) -> Result<(), PortProblem> {
        let (number, config) = (wanted.number, config_of(wanted));
        self.set_pipeline_port(number, config, PortState::default(), vlan_of(wanted));
        if let Err(source) = self.datapath.attach_port(number, opened) {
            return Err(PortProblem {
                name: wanted.name.to_string(),
                source,
            });
        }
        self.port_is_open(wanted, config);
        Ok(())
    }

    fn port_is_open(&mut self, wanted: &model::Port, config: PortConfig) {
        let number = wanted.number;
        if config.has(PortConfig::DOWN) {
            self.datapath.set_link(number, false);
        }
        let Some(info) = self.info_of(wanted) else {
            return;
        };
        let state = state_of(&info);
        self.set_pipeline_port(number, config, state, vlan_of(wanted));
        let since = self.datapath.now();
        tracing::info!(bridge = %self.config.name, port = %wanted.name, %number, driver = %info.driver, "port added");
        let status = PortStatus {
            model: wanted.clone(),
            info,
            config,
            state,
            since,
        };
        handlers::port_status(self, PortChange::Add, &status);
        self.ports.insert(number, status);
        // The other end of a link comes up with this one, and tunnels find their underlay.
        self.tend_tunnels(since);
        self.look_at_links();
    }

    /// Closes a port and tells the controllers. Flow entries that name it stay, as OpenFlow wants.
    pub fn remove_port(&mut self, number: PortNo) {
        let Some(status) = self.ports.remove(&number) else {
            return;
        };
        self.baselines.remove(&number);
        self.tables.remove_port(number, &mut self.ops);
        self.publish();
        self.datapath.remove_port(number);
        self.tend_tunnels(self.datapath.now());
        tracing::info!(bridge = %self.config.name, port = %status.model.name, %number, "port removed");
        handlers::port_status(self, PortChange::Delete, &status);
    }

    /// Changes what can be changed while a port runs: its administrative bits, its VLANs, its queues,
    /// rates and policer, and whether it is held back.
    pub fn change_port(&mut self, wanted: &model::Port) {
        let number = wanted.number;
        let Some(status) = self.ports.get_mut(&number) else {
            return;
        };
        let config = config_of(wanted);
        let vlans_changed = vlan_of(&status.model) != vlan_of(wanted);
        let plan = plan_of(wanted);
        let queues_changed = plan_of(&status.model) != plan;
        let policer = policer_of(wanted);
        let policer_changed = policer_of(&status.model) != policer;
        let backpressure_changed = status.model.backpressure != wanted.backpressure;
        status.model = wanted.clone();
        if queues_changed {
            self.datapath.schedule(number, &plan);
        }
        if policer_changed {
            self.datapath.police(number, policer.as_ref());
        }
        if backpressure_changed {
            self.datapath.hold(number, wanted.backpressure);
        }
        if status.config != config || vlans_changed {
            self.configure_port(number, config);
        }
    }

    /// Sets the administrative bits of a port, as port_mod does, and tells the controllers. Returns whether
    /// there is such a port.
    pub fn configure_port(&mut self, number: PortNo, config: PortConfig) -> bool {
        let Some(status) = self.ports.get_mut(&number) else {
            return false;
        };
        let was_down = status.config.has(PortConfig::DOWN);
        status.config = config;
        let status = status.clone();
        self.set_pipeline_port(number, config, status.state, vlan_of(&status.model));
        let is_down = config.has(PortConfig::DOWN);
        if was_down != is_down {
            self.datapath.set_link(number, !is_down);
        }
        handlers::port_status(self, PortChange::Modify, &status);
        true
    }

    /// Notices links that went down or came up.
    pub(super) fn look_at_links(&mut self) {
        let numbers: Vec<PortNo> = self.ports.keys().copied().collect();
        for number in numbers {
            let Some(info) = self
                .ports
                .get(&number)
                .and_then(|status| self.info_of(&status.model))
            else {
                continue;
            };
            let Some(status) = self.ports.get_mut(&number).filter(|status| status.info != info) else {
                continue;
            };
            let (state, config) = (state_of(&info), status.config);
            let changed = status.state != state;
            status.info = info;
            status.state = state;
            if changed {
                let status = status.clone();
                tracing::info!(bridge = %self.config.name, port = %status.model.name, up = status.info.link_up, "link");
                self.set_pipeline_port(number, config, state, vlan_of(&status.model));
                handlers::port_status(self, PortChange::Modify, &status);
            }
        }
    }

    fn set_pipeline_port(&mut self, number: PortNo, config: PortConfig, state: PortState, vlan: VlanMode) {
        self.tables.set_port(
            Port {
                number,
                config,
                state,
                vlan,
            },
            &mut self.ops,
        );
        self.publish();
    }
}

fn state_of(info: &DeviceInfo) -> PortState {
    if info.link_up {
        PortState::LIVE
    } else {
        PortState::LINK_DOWN
    }
}

fn config_of(port: &model::Port) -> PortConfig {
    let bits = [
        (port.down, PortConfig::DOWN),
        (port.no_recv, PortConfig::NO_RECV),
        (port.no_fwd, PortConfig::NO_FWD),
        (port.no_packet_in, PortConfig::NO_PACKET_IN),
        (port.no_flood, PortConfig::NO_FLOOD),
    ];
    bits.into_iter()
        .filter(|(set, _)| *set)
        .fold(PortConfig::default(), |all, (_, bit)| all | bit)
}

fn vlan_of(port: &model::Port) -> VlanMode {
    let set =
        |vids: &[millrace_types::Vid]| Some(std::sync::Arc::new(vids.iter().copied().collect::<VidSet>()));
    match port.vlan_mode() {
        model::VlanMode::TrunkAll => VlanMode::Trunk {
            native: None,
            allowed: None,
        },
        model::VlanMode::Trunk(tagged) => VlanMode::Trunk {
            native: None,
            allowed: set(tagged),
        },
        model::VlanMode::Access(vid) => VlanMode::Access(vid),
        model::VlanMode::Native { untagged, tagged } => {
            let all: Vec<_> = tagged.iter().copied().chain([untagged]).collect();
            VlanMode::Trunk {
                native: Some(untagged),
                allowed: set(&all),
            }
        }
    }
}

/// A memory device has no name in the configuration: that of its port, in its bridge, tells it from others.
fn spec_of(bridge: &str, port: &model::Port) -> DeviceSpec {
    match &port.device {
        model::Device::Pci(_) => DeviceSpec::Pci(port.device.to_string()),
        model::Device::Vdev(_) => DeviceSpec::Vdev(port.device.to_string()),
        model::Device::Pcap(files) => DeviceSpec::Pcap {
            rx: files.rx().map(Path::to_owned),
            tx: files.tx().map(Path::to_owned),
            repeat: files.repeat(),
        },
        model::Device::Link(name) => DeviceSpec::Link(name.to_string()),
        model::Device::Tap(name) => DeviceSpec::Tap(name.to_string()),
        model::Device::Kernel(name) => DeviceSpec::Kernel(name.to_string()),
        model::Device::Vnic(vnic) => DeviceSpec::Vnic(vnic_spec(vnic)),
        // A tunnel has no device, and is never opened; that of a chain comes with it.
        model::Device::Memory
        | model::Device::Tunnel(_)
        | model::Device::Nsh(_)
        | model::Device::Chain(_) => DeviceSpec::Memory(format!("{bridge}/{}", port.name)),
    }
}
