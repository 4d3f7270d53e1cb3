//! Ports, as controllers see and change them.

use millrace_datapath::io::{Backend, LinkModes};
use millrace_openflow::multipart::port_stats::PortStats;
use millrace_openflow::{
    ErrorCode, Message, Port, PortConfig, PortFeatures, PortMod, PortReason, PortState, PortStatus as Report,
};
use millrace_pipeline as pipeline;
use millrace_types::{Mac, PortNo};

use super::{encoded, error_code, session};
use crate::control::{BridgeControl, PortStatus};

/// What happened to a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortChange {
    /// It is new.
    Add,
    /// It is gone.
    Delete,
    /// It is different.
    Modify,
}

/// Tells the controllers that want to hear of it what happened to a port.
pub fn port_status<B: Backend>(bridge: &mut BridgeControl<B>, change: PortChange, status: &PortStatus) {
    let reason = match change {
        PortChange::Add => PortReason::Add,
        PortChange::Delete => PortReason::Delete,
        PortChange::Modify => PortReason::Modify,
    };
    let message = Message::PortStatus(Report {
        reason,
        port: describe(status),
    });
    if let Some(bytes) = encoded(&message) {
        session::report(bridge, &bytes, |connected| {
            connected.peer.wants_port_status(reason)
        });
    }
}

/// Returns a port as OpenFlow describes it.
pub(super) fn describe(status: &PortStatus) -> Port {
    let modes = &status.info.modes;
    let features = |modes: LinkModes| PortFeatures::from_raw_truncated(modes.0);
    let kbps = |mbps: Option<u32>| mbps.unwrap_or(0).saturating_mul(1000);
    Port {
        number: status.model.number,
        mac: status.info.mac,
        name: status.model.name.to_string(),
        // NO_FLOOD is a bit of ours that 1.3 does not have.
        config: PortConfig::from_raw_truncated(status.config.0),
        state: PortState::from_raw_truncated(status.state.0),
        current: features(modes.current),
        advertised: features(modes.advertised),
        supported: features(modes.supported),
        peer: features(modes.peer),
        current_speed: kbps(status.info.speed_mbps),
        max_speed: kbps(modes.max_mbps),
    }
}

/// What a port counted.
pub(super) fn stats<B: Backend>(bridge: &BridgeControl<B>, status: &PortStatus) -> PortStats {
    let port = status.model.number;
    let counted = bridge.port_stats(port);
    let device = bridge.device_stats(port);
    PortStats {
        port,
        rx_packets: counted.rx_packets,
        tx_packets: counted.tx_packets,
        rx_bytes: counted.rx_bytes,
        tx_bytes: counted.tx_bytes,
        rx_dropped: device.rx_missed.saturating_add(device.rx_no_buffer),
        tx_dropped: counted.tx_dropped,
        rx_errors: device.rx_errors,
        tx_errors: device.tx_errors,
        rx_frame_errors: PortStats::UNSUPPORTED,
        rx_over_errors: PortStats::UNSUPPORTED,
        rx_crc_errors: PortStats::UNSUPPORTED,
        collisions: PortStats::UNSUPPORTED,
        duration: bridge.datapath.now().since(status.since),
    }
}

/// Returns the ports that a request means: one, or all for [`PortNo::ANY`].
pub(super) fn selected<B: Backend>(bridge: &BridgeControl<B>, port: PortNo) -> Option<Vec<&PortStatus>> {
    if port == PortNo::ANY {
        Some(bridge.ports.values().collect())
    } else {
        bridge.ports.get(&port).map(|status| vec![status])
    }
}

/// Changes a port.
pub(super) fn port_mod<B: Backend>(bridge: &mut BridgeControl<B>, asked: &PortMod) -> Result<(), ErrorCode> {
    if let Some(config) = change(bridge, asked)? {
        bridge.configure_port(asked.number, config);
    }
    Ok(())
}

/// Changes a port in the tables only. Returns its configuration if that is another now: the device is still to
/// be told.
pub(super) fn change<B: Backend>(
    bridge: &mut BridgeControl<B>,
    asked: &PortMod,
) -> Result<Option<pipeline::PortConfig>, ErrorCode> {
    let status = bridge
        .ports
        .get(&asked.number)
        .ok_or(ErrorCode::OFPPMFC_BAD_PORT)?;
    // A controller that learned of the port before its device gave an address may say zero.
    if asked.mac != status.info.mac && asked.mac != Mac::ZERO {
        return Err(ErrorCode::OFPPMFC_BAD_HW_ADDR);
    }
    let was = status.config;
    let bits = |config: PortConfig| pipeline::PortConfig(config.raw());
    let config = bridge
        .tables
        .port_mod(
            asked.number,
            bits(asked.config),
            bits(asked.mask),
            &mut bridge.ops,
        )
        .map_err(|error| error_code(error.code()))?
        .config;
    Ok((config != was).then_some(config))
}
