//! Packets to and from controllers.

use core::sync::atomic::Ordering;

use millrace_datapath::io::Backend;
use millrace_datapath::spread::FlowHash;
use millrace_flow::{Action, Field, Match};
use millrace_openflow::{ErrorCode, Message, PacketIn, PacketInReason, PacketOut};
use millrace_pipeline as pipeline;
use millrace_pipeline::DropReason;
use millrace_types::{BufferId, PortNo};
use millrace_wire::Packet;

use super::buffers::Held;
use super::{encoded, error_code};
use crate::channel::outbox_room;
use crate::control::BridgeControl;

/// `OFPCML_NO_BUFFER`: all of the packet.
const NO_BUFFER: u16 = 0xffff;
/// Size of an Ethernet header in bytes: what is shorter is no packet.
const MIN_PACKET_SIZE: usize = 14;

/// Hands a packet to the controllers that want packet-ins for this reason, within the limits.
pub fn packet_in<B: Backend>(
    bridge: &mut BridgeControl<B>,
    info: &pipeline::PacketInInfo,
    packet: &B::Packet,
) {
    let reason = match info.reason {
        pipeline::PacketInReason::NoMatch => PacketInReason::NoMatch,
        pipeline::PacketInReason::Action => PacketInReason::Action,
        pipeline::PacketInReason::InvalidTtl => PacketInReason::InvalidTtl,
    };
    let is_wanted = |peer: &millrace_openflow::Peer| peer.wants_packet_in(reason);
    if !bridge.channels.iter().any(|connected| is_wanted(&connected.peer)) {
        return;
    }
    let now = bridge.datapath.now();
    if !bridge.channels.admits_packet_in(&bridge.config, now) {
        bridge.datapath.count_drop(DropReason::PacketInLimit);
        return;
    }
    let mut bytes = Vec::new();
    packet.copy_to(&mut bytes, usize::MAX);
    let match_ = context(info);
    let mut buffer = BufferId::NONE;
    let mut limited = 0;
    let mut hash = None;
    // Buffers are beside the connections; both are parts of `channels`.
    let mut buffers = core::mem::take(&mut bridge.channels.buffers);
    for connected in bridge.channels.iter_mut() {
        if !is_wanted(&connected.peer) {
            continue;
        }
        if !connected.admits_packet_in(now) {
            limited += 1;
            continue;
        }
        let wanted = match reason {
            PacketInReason::InvalidTtl => connected.peer.switch_config.miss_send_len,
            _ => info.max_len,
        };
        let is_whole = wanted == NO_BUFFER || usize::from(wanted) >= bytes.len();
        if !is_whole && buffer == BufferId::NONE {
            buffer = buffers.hold(Held {
                in_port: info.in_port,
                bytes: bytes.clone(),
            });
        }
        let size = if is_whole {
            bytes.len()
        } else {
            usize::from(wanted)
        };
        let message = Message::PacketIn(PacketIn {
            buffer: if is_whole { BufferId::NONE } else { buffer },
            total_len: u16::try_from(bytes.len()).unwrap_or(u16::MAX),
            reason,
            table: info.table,
            cookie: info.cookie,
            match_: match_.clone(),
            data: bytes[..size].into(),
        });
        let hash = match connected.spreads_packet_ins() {
            true => *hash.get_or_insert_with(|| FlowHash::new(0).of(&bytes)),
            false => 0,
        };
        let (outbox, tally) = connected.packet_in_way(hash);
        if !encoded(&message).is_some_and(|message| outbox.offer(message, outbox_room::PACKET_IN)) {
            tally.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
    bridge.channels.buffers = buffers;
    for _ in 0..limited {
        bridge.datapath.count_drop(DropReason::PacketInLimit);
    }
}

/// What a packet-in says of where the packet was: fields that are zero are left out, and in_phy_port where
/// it is in_port (section 7.4.1).
fn context(info: &pipeline::PacketInInfo) -> Match {
    let in_port = u128::from(info.in_port.raw());
    let mut fields = vec![(Field::InPort, in_port)];
    let in_phy_port = u128::from(info.in_phy_port.raw());
    for (field, value, default) in [
        (Field::InPhyPort, in_phy_port, in_port),
        (Field::Metadata, u128::from(info.metadata), 0),
        (Field::TunnelId, u128::from(info.tunnel_id), 0),
    ] {
        if value != default && value != 0 {
            fields.push((field, value));
        }
    }
    // All four are legal with any value.
    Match::exact(&fields).unwrap_or_default()
}

/// Sends a packet.
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
    let bytes = if asked.buffer == BufferId::NONE {
        core::mem::take(&mut asked.data).into_vec()
    } else {
        bridge.channels.buffers.take(asked.buffer)?.bytes
    };
    if bytes.len() < MIN_PACKET_SIZE {
        return Err(ErrorCode::OFPBRC_BAD_PACKET);
    }
    send(bridge, asked.in_port, &asked.actions, &bytes);
    Ok(())
}

/// Sends a buffered packet through the tables, as a flow_mod asks that names a buffer.
pub(super) fn send_buffered<B: Backend>(
    bridge: &mut BridgeControl<B>,
    buffer: BufferId,
) -> Result<(), ErrorCode> {
    let held = bridge.channels.buffers.take(buffer)?;
    send(
        bridge,
        held.in_port,
        &[Action::output(PortNo::TABLE)],
        &held.bytes,
    );
    Ok(())
}

fn send<B: Backend>(bridge: &mut BridgeControl<B>, in_port: PortNo, actions: &[Action], bytes: &[u8]) {
    let needs_tables = |action: &Action| match action {
        Action::Output { port, .. } => *port == PortNo::TABLE,
        Action::Group(_) => true,
        _ => false,
    };
    if actions.iter().any(needs_tables) {
        // Entries and groups that were added before must be there for it.
        bridge.publish();
    }
    if bridge.datapath.packet_out(in_port, actions, bytes).is_none() {
        bridge.datapath.count_drop(DropReason::NoBuffer);
    }
}
