//! A port of a bridge: its configuration, its device, its state, and its description in OpenFlow.

use millrace_datapath::io::{DeviceInfo, LinkModes};
use millrace_model as model;
use millrace_openflow as openflow;
use millrace_openflow::PortFeatures;
use millrace_pipeline::{PortConfig, PortState};
use millrace_types::Time;

/// A port of a running bridge.
#[derive(Clone, Debug)]
pub struct PortStatus {
    /// The configuration.
    pub model: model::Port,
    /// The latest information from the device.
    pub info: DeviceInfo,
    /// The configuration bits, `OFPPC_*`: those of the configuration, with the changes of port_mod.
    pub config: PortConfig,
    /// The state bits, `OFPPS_*`.
    pub state: PortState,
    /// The time at which the port was added.
    pub since: Time,
}

impl PortStatus {
    /// Returns the description of the port (`ofp_port`; OpenFlow 1.3.5, section 7.2.1).
    pub(crate) fn describe(&self) -> openflow::Port {
        let modes = &self.info.modes;
        let features = |modes: LinkModes| PortFeatures::from_raw_truncated(modes.0);
        let kbps = |mbps: Option<u32>| mbps.unwrap_or(0).saturating_mul(1000);
        openflow::Port {
            number: self.model.number,
            mac: self.info.mac,
            name: self.model.name.to_string(),
            // The truncation removes NO_FLOOD, a bit of Millrace that OpenFlow 1.3 does not have.
            config: openflow::PortConfig::from_raw_truncated(self.config.0),
            state: openflow::PortState::from_raw_truncated(self.state.0),
            current: features(modes.current),
            advertised: features(modes.advertised),
            supported: features(modes.supported),
            peer: features(modes.peer),
            current_speed: kbps(self.info.speed_mbps),
            max_speed: kbps(modes.max_mbps),
        }
    }
}
