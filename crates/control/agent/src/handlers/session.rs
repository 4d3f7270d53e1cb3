//! Requests about one controller: connection and disconnection, features, role, settings.

use millrace_datapath::io::Backend;
use millrace_openflow::roles::Role;
use millrace_openflow::{
    Capabilities, ErrorCode, FragmentHandling, Message, PacketInReason, Peer, RoleMessage, SwitchConfig,
    SwitchFeatures,
};
use millrace_pipeline::FragmentMode;

use super::monitor::update_watched;
use crate::control::BridgeControl;
use crate::controllers::{BUFFERS_LEN, ConnectionId, NewConnection};

/// Adds a connection whose HELLO exchange is complete. Returns false if it is auxiliary to a main connection that is
/// closed.
pub(crate) fn connected<B: Backend>(bridge: &mut BridgeControl<B>, new: NewConnection) -> bool {
    if new.auxiliary.is_none() {
        new.tally.set_role(Some(Peer::default().role));
    }
    let is_added = bridge.controllers.add(new, bridge.config.miss_send_len.get());
    peers_changed(bridge);
    is_added
}

/// Removes a connection.
pub(crate) fn disconnected<B: Backend>(bridge: &mut BridgeControl<B>, id: ConnectionId) {
    let was_active = bridge.controllers.has_active();
    bridge.controllers.remove(id);
    if was_active && !bridge.controllers.has_active() {
        bridge.lost_controllers();
    }
    update_watched(bridge);
    peers_changed(bridge);
}

/// Updates the tables after a change of the connected controllers or of the asynchronous messages that they want.
fn peers_changed<B: Backend>(bridge: &mut BridgeControl<B>) {
    let wants_ttl = bridge
        .controllers
        .iter()
        .any(|connected| connected.peer.wants_packet_in(PacketInReason::InvalidTtl));
    bridge
        .tables
        .set_invalid_ttl_to_controller(wants_ttl, &mut bridge.ops);
    bridge.update_standalone();
}

/// Returns the reply to a features request.
pub(super) fn features<B: Backend>(bridge: &BridgeControl<B>, id: ConnectionId) -> Message {
    Message::FeaturesReply(SwitchFeatures {
        dpid: bridge.config.datapath_id(),
        buffers: BUFFERS_LEN,
        tables: bridge.tables.config().tables,
        auxiliary_id: bridge.controllers.auxiliary_id(id).0,
        capabilities: Capabilities::FLOW_STATS
            | Capabilities::TABLE_STATS
            | Capabilities::PORT_STATS
            | Capabilities::GROUP_STATS
            | Capabilities::QUEUE_STATS
            | Capabilities::IP_REASM,
    })
}

/// Executes a role request. If the controller becomes the master, the former master becomes a slave.
pub(super) fn role_request<B: Backend>(
    bridge: &mut BridgeControl<B>,
    id: ConnectionId,
    asked: RoleMessage,
) -> Result<RoleMessage, ErrorCode> {
    // All connections of a controller share its role (OpenFlow 1.3.5, section 6.3.5).
    let (id, current) = bridge
        .controllers
        .connected(id)
        .map_or((id, Peer::default().role), |connected| {
            (connected.id, connected.peer.role)
        });
    let change = bridge
        .controllers
        .roles
        .request(id, current, asked)
        .map_err(|_| ErrorCode::OFPRRFC_STALE)?;
    let roles = [(Some(id), change.role), (change.demoted, Role::Slave)];
    for (id, role) in roles {
        if let Some(connected) = id.and_then(|id| bridge.controllers.connected(id)) {
            connected.peer.role = role;
            connected.tally.set_role(Some(role));
        }
    }
    peers_changed(bridge);
    Ok(change.reply)
}

/// Executes a request that reads or sets the switch configuration or the masks of asynchronous messages. Each
/// controller has its own `miss_send_len`. All controllers share the handling of fragments. A slave cannot
/// set it, because a slave must not change the state of the switch (OpenFlow 1.3.5, section 6.3.4).
pub(super) fn configure<B: Backend>(
    bridge: &mut BridgeControl<B>,
    id: ConnectionId,
    asked: &Message,
) -> Result<Option<Message>, ErrorCode> {
    let Some(connected) = bridge.controllers.connected(id) else {
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
            if peer.role == Role::Slave {
                return Ok(None);
            }
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
