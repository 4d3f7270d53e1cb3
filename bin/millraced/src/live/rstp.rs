//! RSTP of ports, from the agent's values to those of REST.

use millrace_agent::control::BridgeControl;
use millrace_agent::control::rstp::{PortState, Role};
use millrace_api::view;
use millrace_datapath::io::Backend;
use millrace_types::PortNo;

/// Returns the state of RSTP of a port; `None` if it takes no part.
pub(super) fn view<B: Backend>(control: &BridgeControl<B>, number: PortNo) -> Option<view::RstpPort> {
    let port = control.rstp_port(number)?;
    let bridge = control.rstp_status()?;
    let role = match port.role {
        Role::Disabled => "disabled",
        Role::Root => "root",
        Role::Designated => "designated",
        Role::Alternate => "alternate",
        Role::Backup => "backup",
    };
    let state = match port.state {
        PortState::Discarding => "discarding",
        PortState::Learning => "learning",
        PortState::Forwarding => "forwarding",
    };
    Some(view::RstpPort {
        role: role.to_owned(),
        state: state.to_owned(),
        path_cost: port.path_cost,
        edge: port.is_edge,
        sends: if port.sends_rstp { "rstp" } else { "stp" }.to_owned(),
        bpdu_guarded: port.is_guarded,
        root_guarded: port.is_root_inconsistent,
        bridge: bridge.id.to_string(),
        root: bridge.root.to_string(),
        root_path_cost: bridge.root_path_cost,
        designated_bridge: port.priority.designated_bridge.to_string(),
        designated_port: port.priority.designated_port.number(),
        rx_bpdus: port.counters.received,
        rx_discarded: port.counters.discarded,
        tx_bpdus: port.counters.sent,
        forward_transitions: port.counters.forward_transitions,
        topology_changes: port.counters.topology_changes,
    })
}
