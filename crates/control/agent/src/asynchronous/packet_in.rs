//! packet_in (OpenFlow 1.3.5, section 7.4.1).

use core::iter::{RepeatN, repeat_n};
use core::sync::atomic::Ordering;

use millrace_datapath::spread::FlowHash;
use millrace_flow::{Field, Match};
use millrace_model as model;
use millrace_openflow::{Message, PacketIn, PacketInReason};
use millrace_pipeline::{self as pipeline, DropReason};
use millrace_types::{BufferId, Time};
use millrace_wire::Packet;

use super::send::encoded;
use crate::controllers::{BufferedPacket, Controllers, outbox_limit};

/// `OFPCML_NO_BUFFER`: the whole packet is sent.
const NO_BUFFER: u16 = 0xffff;

/// Sends a packet to the controllers that want packet-ins for this reason, within the limits of the bridge and of each
/// controller. Returns the reason of each packet-in that is dropped.
pub(crate) fn packet_in(
    controllers: &mut Controllers,
    config: &model::Bridge,
    now: Time,
    info: &pipeline::PacketInInfo,
    packet: &impl Packet,
) -> RepeatN<DropReason> {
    if !takes_packet_in(controllers, info.reason) {
        return repeat_n(DropReason::NoController, 1);
    }
    if !controllers.admits_packet_in(config, now) {
        return repeat_n(DropReason::PacketInLimit, 1);
    }
    let reason = openflow(info.reason);
    let mut bytes = Vec::new();
    packet.copy_to(&mut bytes, usize::MAX);
    let match_ = context(info);
    let mut buffer = BufferId::NONE;
    let mut limited = 0;
    let mut hash = None;
    // The buffers and the connections are borrowed at the same time; both belong to `controllers`.
    let mut buffers = core::mem::take(&mut controllers.buffers);
    for connected in controllers.iter_mut() {
        if !connected.peer.wants_packet_in(reason) {
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
            buffer = buffers.insert(BufferedPacket {
                origin: pipeline::Origin {
                    in_port: info.in_port,
                    in_phy_port: info.in_phy_port,
                    tunnel_id: info.tunnel_id,
                    metadata: 0,
                },
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
        let (outbox, tally) = connected.packet_in_connection(hash);
        if !encoded(&message).is_some_and(|message| outbox.offer(message, outbox_limit::PACKET_IN)) {
            tally.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
    controllers.buffers = buffers;
    repeat_n(DropReason::PacketInLimit, limited)
}

/// Returns true if a connected controller takes packet-ins for this reason: its role and its asynchronous configuration
/// decide.
pub(crate) fn takes_packet_in(controllers: &Controllers, reason: pipeline::PacketInReason) -> bool {
    let reason = openflow(reason);
    controllers
        .iter()
        .any(|connected| connected.peer.wants_packet_in(reason))
}

/// Returns the reason in messages.
fn openflow(reason: pipeline::PacketInReason) -> PacketInReason {
    match reason {
        pipeline::PacketInReason::NoMatch => PacketInReason::NoMatch,
        pipeline::PacketInReason::Action => PacketInReason::Action,
        pipeline::PacketInReason::InvalidTtl => PacketInReason::InvalidTtl,
    }
}

/// Returns the pipeline fields of a packet-in. Fields that are zero are left out, and so is in_phy_port if it equals
/// in_port (OpenFlow 1.3.5, section 7.4.1).
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
    // Every value of these four fields is valid.
    Match::exact(&fields).unwrap_or_default()
}
