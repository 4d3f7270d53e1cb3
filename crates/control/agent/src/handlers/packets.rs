//! Packets from controllers: packet_out, and buffered packets that a flow_mod names.

use millrace_datapath::io::Backend;
use millrace_flow::Action;
use millrace_openflow::{ErrorCode, PacketOut};
use millrace_pipeline::{DropReason, Origin};
use millrace_types::{BufferId, PortNo};

use super::replies::error_code;
use crate::control::BridgeControl;
use crate::controllers::BufferedPacket;

/// Size of the shortest packet, an Ethernet header, in bytes.
const MIN_PACKET_SIZE: usize = 14;

/// Executes a packet_out.
pub(super) fn packet_out<B: Backend>(
    bridge: &mut BridgeControl<B>,
    asked: &mut PacketOut,
) -> Result<(), ErrorCode> {
    if asked.in_port.is_ordinary() && !bridge.ports.contains_key(&asked.in_port) {
        return Err(ErrorCode::OFPBRC_BAD_PORT);
    }
    bridge
        .tables
        .check_packet_out(&asked.actions)
        .map_err(|error| error_code(error.code()))?;
    let BufferedPacket { origin, bytes } = if asked.buffer == BufferId::NONE {
        BufferedPacket {
            origin: asked.in_port.into(),
            bytes: core::mem::take(&mut asked.data).into_vec(),
        }
    } else {
        bridge.controllers.buffers.take(asked.buffer)?
    };
    if bytes.len() < MIN_PACKET_SIZE {
        return Err(ErrorCode::OFPBRC_BAD_PACKET);
    }
    // A message may name another ingress port than the port of the buffered packet. The packet then has no
    // tunnel.
    let origin = if origin.in_port == asked.in_port {
        origin
    } else {
        asked.in_port.into()
    };
    send(bridge, origin, &asked.actions, &bytes);
    Ok(())
}

/// Sends a buffered packet through the tables, for a flow_mod that names its buffer (OpenFlow 1.3.5, section 7.3.4.1).
pub(super) fn send_buffered<B: Backend>(
    bridge: &mut BridgeControl<B>,
    buffer: BufferId,
) -> Result<(), ErrorCode> {
    let packet = bridge.controllers.buffers.take(buffer)?;
    send(
        bridge,
        packet.origin,
        &[Action::output(PortNo::TABLE)],
        &packet.bytes,
    );
    Ok(())
}

fn send<B: Backend>(bridge: &mut BridgeControl<B>, origin: Origin, actions: &[Action], bytes: &[u8]) {
    let needs_tables = |action: &Action| match action {
        Action::Output { port, .. } => *port == PortNo::TABLE,
        Action::Group(_) => true,
        _ => false,
    };
    if actions.iter().any(needs_tables) {
        // Publish first, so that the packet is processed with all entries and groups added before it.
        bridge.publish();
    }
    if bridge.datapath.packet_out(origin, actions, bytes).is_none() {
        bridge.datapath.count_drops(DropReason::NoBuffer, 1);
    }
}
