//! LLDP of ports, from the agent's values to those of REST.

use millrace_agent::control::{LldpNeighbour as Neighbour, LldpStatus};
use millrace_api::view;
use millrace_types::Duration;

/// Returns the state of LLDP of a port.
pub(super) fn view(status: &LldpStatus<'_>) -> view::Lldp {
    let counters = status.counters;
    view::Lldp {
        neighbours: status
            .neighbours
            .iter()
            .map(|(known, left)| neighbour(known, *left))
            .collect(),
        rx_frames: counters.received,
        rx_discarded: counters.discarded,
        rx_too_many_neighbours: counters.too_many_neighbours,
        rx_unread_tlvs: counters.unread_tlvs,
        aged_out: counters.aged_out,
        tx_frames: counters.sent,
    }
}

/// Returns a neighbour, whose information is valid for `left`.
pub(super) fn neighbour(neighbour: &Neighbour, left: Duration) -> view::LldpNeighbour {
    let pdu = &neighbour.pdu;
    let enabled = pdu.capabilities.map(|(_, enabled)| enabled).unwrap_or_default();
    view::LldpNeighbour {
        mac: neighbour.mac.to_string(),
        chassis: pdu.chassis.to_string(),
        port: pdu.port.to_string(),
        port_description: pdu.port_description.clone(),
        system_name: pdu.system_name.clone(),
        system_description: pdu.system_description.clone(),
        capabilities: enabled.names().map(str::to_owned).collect(),
        management: pdu
            .addresses
            .iter()
            .map(|known| known.address.to_string())
            .collect(),
        port_vlan: pdu.port_vlan,
        max_frame_size: pdu.max_frame_size,
        expires_in_s: left.as_secs(),
    }
}
