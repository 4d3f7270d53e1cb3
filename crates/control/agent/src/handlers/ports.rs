//! Ports: statistics and port_mod.

use millrace_datapath::io::Backend;
use millrace_openflow::multipart::port_stats::PortStats;
use millrace_openflow::{ErrorCode, PortConfig, PortMod};
use millrace_pipeline as pipeline;
use millrace_types::{Mac, PortNo};

use super::replies::error_code;
use crate::control::{BridgeControl, PortStatus};

/// Returns the counters of a port.
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

/// Returns the ports that a request selects: one port, or all ports for [`PortNo::ANY`]. Returns `None` if
/// the bridge has no such port.
pub(super) fn selected<B: Backend>(bridge: &BridgeControl<B>, port: PortNo) -> Option<Vec<&PortStatus>> {
    if port == PortNo::ANY {
        Some(bridge.ports.values().collect())
    } else {
        bridge.ports.get(&port).map(|status| vec![status])
    }
}

/// Executes a port_mod.
pub(super) fn port_mod<B: Backend>(bridge: &mut BridgeControl<B>, asked: &PortMod) -> Result<(), ErrorCode> {
    let config = change(bridge, asked)?;
    configure(bridge, asked.number, config);
    Ok(())
}

/// Configures a port's device as the tables are configured, if the device has another configuration.
pub(super) fn configure<B: Backend>(
    bridge: &mut BridgeControl<B>,
    port: PortNo,
    config: pipeline::PortConfig,
) {
    let held = bridge.ports.get(&port).map(|status| status.config);
    if held.is_some_and(|held| held != config) {
        bridge.configure_port(port, config);
    }
}

/// Applies a port_mod to the tables only. Returns the new configuration, which the caller gives to [`configure`].
pub(super) fn change<B: Backend>(
    bridge: &mut BridgeControl<B>,
    asked: &PortMod,
) -> Result<pipeline::PortConfig, ErrorCode> {
    let status = bridge
        .ports
        .get(&asked.number)
        .ok_or(ErrorCode::OFPPMFC_BAD_PORT)?;
    // A controller that saw the port before its device had an address may send zero.
    if asked.mac != status.info.mac && asked.mac != Mac::ZERO {
        return Err(ErrorCode::OFPPMFC_BAD_HW_ADDR);
    }
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
    Ok(config)
}
