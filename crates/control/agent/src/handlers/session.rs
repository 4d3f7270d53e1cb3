//! What concerns one controller: that it is there, its role, what it wants to hear.

use core::sync::atomic::Ordering;

use millrace_datapath::io::Backend;
use millrace_openflow::{
    Capabilities, ErrorCode, FragmentHandling, Message, PacketInReason, Peer, RoleMessage, SwitchConfig,
    SwitchFeatures,
};
use millrace_pipeline::FragmentMode;

use super::buffers::BUFFERS_LEN;
use crate::channel::{Connected, ConnectionId, Newcomer, outbox_room};
use crate::control::BridgeControl;

/// Takes a connection that has agreed on a version; false if it is auxiliary to one that is gone.
pub(crate) fn connected<B: Backend>(bridge: &mut BridgeControl<B>, newcomer: Newcomer) -> bool {
    if newcomer.auxiliary.is_none() {
        newcomer.tally.set_role(Some(Peer::default().role));
    }
    let is_taken = bridge.channels.add(newcomer, bridge.config.miss_send_len.get());
    peers_changed(bridge);
    is_taken
}

/// Forgets a connection.
pub(crate) fn disconnected<B: Backend>(bridge: &mut BridgeControl<B>, id: ConnectionId) {
    bridge.channels.remove(id);
    super::monitor::settle(bridge);
    peers_changed(bridge);
}

/// Draws the conclusions from who is connected and what they want.
fn peers_changed<B: Backend>(bridge: &mut BridgeControl<B>) {
    let wants_ttl = bridge
        .channels
        .iter()
        .any(|connected| connected.peer.wants_packet_in(PacketInReason::InvalidTtl));
    bridge
        .tables
        .set_invalid_ttl_to_controller(wants_ttl, &mut bridge.ops);
    bridge.update_standalone();
}

/// Sends a message that nobody asked for to those who want it.
pub(super) fn report<B: Backend>(
    bridge: &BridgeControl<B>,
    bytes: &[u8],
    is_wanted: impl Fn(&Connected) -> bool,
) {
    for connected in bridge.channels.iter().filter(|connected| is_wanted(connected)) {
        if !connected.outbox.offer(bytes.to_vec(), outbox_room::REPORT) {
            connected.tally.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Who this switch is, and which connection this is.
pub(super) fn features<B: Backend>(bridge: &BridgeControl<B>, id: ConnectionId) -> Message {
    Message::FeaturesReply(SwitchFeatures {
        dpid: bridge.config.datapath_id(),
        buffers: BUFFERS_LEN,
        tables: bridge.tables.config().tables,
        auxiliary_id: bridge.channels.auxiliary_id(id).0,
        capabilities: Capabilities::FLOW_STATS
            | Capabilities::TABLE_STATS
            | Capabilities::PORT_STATS
            | Capabilities::GROUP_STATS
            | Capabilities::IP_REASM,
    })
}

/// Decides a role request; a master before becomes a slave.
pub(super) fn role_request<B: Backend>(
    bridge: &mut BridgeControl<B>,
    id: ConnectionId,
    asked: RoleMessage,
) -> Result<RoleMessage, ErrorCode> {
    // Whichever of its connections a controller asks on, the role is that of all of them.
    let (id, current) = bridge
        .channels
        .connected(id)
        .map_or((id, Peer::default().role), |connected| {
            (connected.id, connected.peer.role)
        });
    let change = bridge
        .channels
        .roles
        .request(id, current, asked)
        .map_err(|_| ErrorCode::OFPRRFC_STALE)?;
    let roles = [
        (Some(id), change.role),
        (change.demoted, millrace_openflow::roles::Role::Slave),
    ];
    for (id, role) in roles {
        if let Some(connected) = id.and_then(|id| bridge.channels.connected(id)) {
            connected.peer.role = role;
            connected.tally.set_role(Some(role));
        }
    }
    peers_changed(bridge);
    Ok(change.reply)
}

/// Reads or changes what is configured of a controller. How much of a missed packet it gets is its own; what becomes of
/// fragments holds for the switch, and so for all of them.
pub(super) fn configure<B: Backend>(
    bridge: &mut BridgeControl<B>,
    id: ConnectionId,
    asked: &Message,
) -> Result<Option<Message>, ErrorCode> {
    let Some(connected) = bridge.channels.connected(id) else {
        return Ok(None);
    };
    let peer = &mut connected.peer;
    match asked {
        Message::GetConfigRequest => {
            let config = SwitchConfig {
                fragments: match bridge.tables.fragments() {
                    FragmentMode::Normal => FragmentHandling::Normal,
                    FragmentMode::Drop => FragmentHandling::Drop,
                    FragmentMode::Reassemble => FragmentHandling::Reassemble,
                },
                ..peer.switch_config
            };
            return Ok(Some(Message::GetConfigReply(config)));
        }
        Message::GetAsyncRequest => return Ok(Some(Message::GetAsyncReply(peer.async_config))),
        Message::SetConfig(config) => {
            peer.switch_config = *config;
            let mode = match config.fragments {
                FragmentHandling::Normal => FragmentMode::Normal,
                FragmentHandling::Drop => FragmentMode::Drop,
                FragmentHandling::Reassemble => FragmentMode::Reassemble,
            };
            bridge.tables.set_fragments(mode, &mut bridge.ops);
        }
        Message::SetAsync(config) => {
            peer.async_config = *config;
            peers_changed(bridge);
        }
        _ => {}
    }
    Ok(None)
}
