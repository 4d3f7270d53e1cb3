//! Operations on the ports of a bridge: open, change, close, and poll the links.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_datapath::io::{Backend, DeviceOptions, Opened};
use millrace_datapath::{AddPortError, Bridge};
use millrace_model as model;
use millrace_pipeline::{DropReason, Port, PortConfig, PortState, ServicePort, VidSet, VlanMode};
use millrace_types::{PortNo, Time};
use millrace_wire::EtherType;
use thiserror::Error;

use super::bridge::BridgeControl;
use super::devices::device_spec;
use super::oam::link_state;
use super::qos::{offload_of, plan_of, policer_of};
use super::tunnels::is_logical;
use crate::asynchronous::{PortChange, port_status};
use crate::observe::Observation;
use crate::port::PortStatus;

/// The number of ticks in which each port is looked at although its device reported nothing: 5 s.
const LOOK_PARTS: usize = 100;
/// The number of ticks in which the refused frames of each port are counted: 1 s.
const REFUSED_PARTS: usize = 20;

/// The reason why a configured port does not run.
#[derive(Debug, Error)]
#[error("port {name}: {source}")]
pub struct PortProblem {
    /// The name of the port.
    pub name: String,
    /// The reason and the next step.
    pub source: AddPortError,
}

impl<B: Backend> BridgeControl<B> {
    /// Opens a port and reports it to the controllers.
    ///
    /// # Errors
    /// [`PortProblem`].
    pub(crate) fn add_port(&mut self, wanted: &model::Port) -> Result<(), PortProblem> {
        let number = wanted.number;
        // The pipeline knows the port before a packet can arrive from it.
        let config = config_of(wanted);
        self.set_pipeline_port(number, config, PortState::default(), vlan_of(wanted));
        if !is_logical(wanted) {
            self.open_port(wanted)?;
        }
        self.port_is_open(wanted, config);
        Ok(())
    }

    /// Opens the device of a port that the pipeline knows; removes the port from the pipeline if that fails.
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
        if let Some(lag) = self.config.lag_of(wanted).cloned() {
            self.open_lag(wanted, &lag)?;
            self.apply_qos(wanted);
            return Ok(());
        }
        let options = DeviceOptions {
            queues: wanted
                .queues
                .map_or(self.datapath.workers_len(), millrace_model::QueueCount::get),
            only_if_spread: wanted.queues.is_none(),
            mtu: wanted.mtu.get(),
        };
        let spec = device_spec(self.config.name.as_str(), wanted.name.as_str(), &wanted.device);
        self.datapath.add_port(number, &spec, options)?;
        if wanted.mac.is_some() {
            self.set_mac(wanted);
        }
        self.apply_qos(wanted);
        Ok(())
    }

    /// Sets the MAC address of the device of a port.
    fn set_mac(&mut self, wanted: &model::Port) {
        let mac = wanted.mac.map(model::UnicastMac::get);
        if let Err(error) = self.datapath.set_mac(wanted.number, mac) {
            // An interface that was moved to another network namespace has the address when it is made again.
            tracing::warn!(bridge = %self.config.name, port = %wanted.name, %error, "its MAC address is not set");
        }
    }

    /// Gives a port that was opened its queues, policer, backpressure and offload.
    fn apply_qos(&mut self, wanted: &model::Port) {
        self.datapath.schedule(wanted.number, &plan_of(wanted));
        if let Some(plan) = policer_of(wanted) {
            self.datapath.police(wanted.number, Some(&plan));
        }
        if wanted.backpressure {
            set_backpressure(&mut self.datapath, &self.config.name, wanted);
        }
        self.datapath.set_offload(wanted.number, offload_of(wanted));
    }

    /// Adds a port of a chain, and reports it to the controllers. The device of the port is already open.
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

    /// Completes a port whose device is open: reads its link, stores its status, and reports it to the controllers.
    fn port_is_open(&mut self, wanted: &model::Port, config: PortConfig) {
        let number = wanted.number;
        if config.has(PortConfig::DOWN) {
            self.datapath.set_link(number, false);
        }
        let Some(info) = self.info_of(wanted) else {
            return;
        };
        let state = self.state_of(number, wanted, &info);
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
        self.announce(PortChange::Add, &status);
        self.ports.insert(number, status);
        if is_logical(wanted) {
            self.logical.insert(number);
        }
        // A link reports its changes, and refuses no frames.
        if !matches!(wanted.device, model::Device::Link(_)) {
            self.looked_at.insert(number);
        }
        self.configure_oam();
        self.configure_sflow();
        // Tunnels find their underlay.
        self.update_tunnels(since);
        self.poll_links();
    }

    /// Closes a port and reports it to the controllers. Flow entries that name it stay (OpenFlow 1.3.5, section 6.4).
    pub(crate) fn remove_port(&mut self, number: PortNo) {
        self.close_lag(number);
        let Some(status) = self.ports.remove(&number) else {
            return;
        };
        self.logical.remove(&number);
        self.looked_at.remove(&number);
        self.router_is_behind = true;
        self.baselines.remove(&number);
        self.refused.remove(&number);
        self.shut_down_lldp(number);
        self.tables.remove_port(number, &mut self.ops);
        self.publish();
        self.datapath.remove_port(number);
        self.configure_oam();
        self.configure_sflow();
        self.update_tunnels(self.datapath.now());
        tracing::info!(bridge = %self.config.name, port = %status.model.name, %number, "port removed");
        self.announce(PortChange::Delete, &status);
    }

    /// Changes the settings of a running port: its administrative bits, VLANs, queues, rates, policer and backpressure.
    pub(crate) fn change_port(&mut self, wanted: &model::Port) {
        let number = wanted.number;
        // A revision changes few ports. What follows looks at all of them.
        let Some(status) = self
            .ports
            .get_mut(&number)
            .filter(|status| status.model != *wanted)
        else {
            return;
        };
        // Bits that the new configuration changes get the configured value. The other bits keep the values
        // that a controller set by port_mod.
        let old = config_of(&status.model);
        let changed = old ^ config_of(wanted);
        let config = (status.config | changed) ^ (old & changed);
        let vlans_changed = vlan_of(&status.model) != vlan_of(wanted);
        let plan = plan_of(wanted);
        let queues_changed = plan_of(&status.model) != plan;
        let policer = policer_of(wanted);
        let policer_changed = policer_of(&status.model) != policer;
        let mac_changed = status.model.mac != wanted.mac;
        let backpressure_changed = status.model.backpressure != wanted.backpressure;
        status.model = wanted.clone();
        self.recheck.insert(number);
        if queues_changed {
            self.datapath.schedule(number, &plan);
        }
        if policer_changed {
            self.datapath.police(number, policer.as_ref());
        }
        if backpressure_changed {
            set_backpressure(&mut self.datapath, &self.config.name, wanted);
        }
        self.datapath.set_offload(number, offload_of(wanted));
        if status.config != config || vlans_changed {
            self.configure_port(number, config);
        }
        if mac_changed {
            self.set_mac(wanted);
        }
        self.configure_oam();
        self.configure_sflow();
        self.poll_links();
    }

    /// Sets the administrative bits of a port, as port_mod does, and reports the port to the controllers. Returns true if
    /// the bridge has such a port.
    pub(crate) fn configure_port(&mut self, number: PortNo, config: PortConfig) -> bool {
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
        self.announce(PortChange::Modify, &status);
        self.configure_rstp();
        self.configure_lldp();
        true
    }

    /// Reports a port to the controllers and to the observer.
    fn announce(&self, change: PortChange, status: &PortStatus) {
        port_status(&self.controllers, change, status);
        let bridge = self.config.name.as_str();
        self.report(&match change {
            PortChange::Add | PortChange::Modify => Observation::Port { bridge, status },
            PortChange::Delete => Observation::PortGone {
                bridge,
                port: status.model.name.as_str(),
            },
        });
    }

    /// Computes the state of a port anew after a protocol changed it, and reports it to the controllers.
    pub(super) fn update_port_state(&mut self, number: PortNo) {
        let Some(status) = self.ports.get(&number) else {
            return;
        };
        let (model, info, config) = (status.model.clone(), status.info.clone(), status.config);
        let state = self.state_of(number, &model, &info);
        let Some(status) = self.ports.get_mut(&number).filter(|status| status.state != state) else {
            return;
        };
        status.state = state;
        let status = status.clone();
        self.set_pipeline_port(number, config, state, vlan_of(&model));
        self.announce(PortChange::Modify, &status);
    }

    /// Looks at a part of the ports, whose devices have reported nothing, too, but for links.
    pub(super) fn look_at_some_links(&mut self) {
        let part = self.looks.next(&self.looked_at, LOOK_PARTS);
        self.recheck.extend(part);
        self.poll_links();
    }

    /// Looks at the devices that may have changed, and reports ports whose link or description changed to the controllers.
    pub(super) fn poll_links(&mut self) {
        let mut numbers: BTreeSet<PortNo> = self.datapath.take_changed();
        numbers.append(&mut self.recheck);
        self.poll_lags(&numbers);
        // The state of these depends on more than a device.
        numbers.extend(self.lags.keys());
        numbers.extend(self.oam.monitors.keys());
        numbers.extend(&self.logical);
        let mut has_changed = false;
        for number in numbers {
            let Some(status) = self.ports.get(&number) else {
                continue;
            };
            let Some(info) = self.info_of(&status.model) else {
                continue;
            };
            // OAM changes the state of a monitored port without a change of its device, and the end of
            // monitoring changes it once more.
            let is_as_device = status.state == link_state(info.link_up);
            if status.info == info && is_as_device && !self.oam.monitors(number) {
                continue;
            }
            let model = status.model.clone();
            let state = self.state_of(number, &model, &info);
            let Some(status) = self.ports.get_mut(&number) else {
                continue;
            };
            let config = status.config;
            let before = status.describe();
            let changed = status.state != state;
            status.info = info;
            status.state = state;
            if !changed && status.describe() == before {
                continue;
            }
            has_changed = true;
            let status = status.clone();
            if changed {
                let live = !state.has(PortState::NOT_LIVE | PortState::LINK_DOWN);
                let damped = state.has(PortState::BLOCKED);
                tracing::info!(bridge = %self.config.name, port = %status.model.name, up = status.info.link_up, live, damped, "link");
                self.set_pipeline_port(number, config, state, vlan_of(&status.model));
            }
            self.announce(PortChange::Modify, &status);
        }
        if has_changed {
            self.configure_rstp();
            self.configure_lldp();
        }
        if core::mem::take(&mut self.router_is_behind) {
            self.tell_links();
        }
    }

    /// Counts the frames that the devices of a part of the ports refused as drops, and logs them with a remedy.
    pub(super) fn count_refused_frames(&mut self, now: Time) {
        for number in &self.refused_looks.next(&self.looked_at, REFUSED_PARTS) {
            let Some(status) = self.ports.get(number) else {
                continue;
            };
            let total = self.datapath.refused_frames(*number);
            let counted = self.refused.entry(*number).or_default();
            let new = counted.advance(total);
            if new == 0 {
                continue;
            }
            self.datapath.count_drops(DropReason::BadOffload, new);
            if let Some(frames) = counted.admit_log(now) {
                let remedy = self.datapath.refusal_remedy(*number);
                tracing::warn!(
                    bridge = %self.config.name, port = %status.model.name, frames, reason = %DropReason::BadOffload, remedy,
                    "received frames were dropped: they do not fit the offloads of their sender"
                );
            }
        }
    }

    fn set_pipeline_port(&mut self, number: PortNo, config: PortConfig, state: PortState, vlan: VlanMode) {
        self.router_is_behind = true;
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

/// Switches backpressure of a port on or off. Warns if it may not cover all packets of the port.
fn set_backpressure<B: Backend>(datapath: &mut Bridge<B>, bridge: &model::BridgeName, wanted: &model::Port) {
    datapath.set_backpressure(wanted.number, wanted.backpressure);
    let workers = datapath.workers_len();
    if wanted.backpressure && workers > 1 {
        tracing::warn!(
            %bridge, port = %wanted.name, workers,
            "backpressure covers only output ports with a transmit queue for each worker, and no packets that a \
             worker hands off: other packets may be dropped. To fix it: set workers = 1"
        );
    }
}

fn config_of(port: &model::Port) -> PortConfig {
    let bits = [
        (port.down, PortConfig::DOWN),
        (port.no_recv, PortConfig::NO_RECV),
        (port.no_fwd, PortConfig::NO_FWD),
        (port.no_packet_in, PortConfig::NO_PACKET_IN),
        (port.no_flood, PortConfig::NO_FLOOD),
        (port.protected, PortConfig::PROTECTED),
    ];
    bits.into_iter()
        .filter(|(set, _)| *set)
        .fold(PortConfig::default(), |all, (_, bit)| all | bit)
}

fn vlan_of(port: &model::Port) -> VlanMode {
    let set = |vids: &[millrace_types::Vid]| Some(Arc::new(vids.iter().copied().collect::<VidSet>()));
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
        model::VlanMode::Tunnel { service, customer } => VlanMode::Tunnel(Arc::new(ServicePort {
            service,
            tag_type: match customer.service_tag {
                model::ServiceTag::Dot1ad => EtherType::QINQ,
                model::ServiceTag::Dot1q => EtherType::VLAN,
            },
            customer: Some(customer.customer_vlans.iter().copied().collect())
                .filter(|set| *set != VidSet::EMPTY),
        })),
        model::VlanMode::NativeTagged { native, others } => VlanMode::NativeTagged {
            native,
            allowed: match others {
                [] => None,
                others => Some(Arc::new(others.iter().copied().chain([native]).collect())),
            },
        },
        model::VlanMode::Native { untagged, tagged } => {
            let all: Vec<_> = tagged.iter().copied().chain([untagged]).collect();
            VlanMode::Trunk {
                native: Some(untagged),
                allowed: set(&all),
            }
        }
    }
}
