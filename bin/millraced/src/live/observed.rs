//! Changes of the running switch as values of the journal that front ends follow.

use std::sync::Arc;

use super::lldp;
use millrace_agent::control::PortStatus;
use millrace_agent::{Observation, Observer};
use millrace_api::server::Journal;
use millrace_api::view::{
    AdminState, Link, LinkState, LldpState, PortState, RouterNeighbour, StateKind, TunnelNeighbour,
};
use millrace_pipeline::{PortConfig, PortState as StateBits};

/// Returns an observer that publishes to `journal`.
pub(crate) fn observer(journal: Journal) -> Observer {
    Arc::new(move |observation| match observation {
        Observation::Port { bridge, status } => {
            let key = format!("{bridge}/{}", status.model.name);
            journal.publish(StateKind::Ports, &key, &port(bridge, status));
            journal.publish(StateKind::Links, &key, &link(bridge, status));
        }
        Observation::PortGone { bridge, port } => {
            let key = format!("{bridge}/{port}");
            journal.remove(StateKind::Ports, &key);
            journal.remove(StateKind::Links, &key);
            journal.remove(StateKind::Lldp, &key);
            journal.remove_all(&format!("{key}/"));
        }
        Observation::Member {
            bridge,
            port,
            member,
            info,
            distributes,
        } => {
            let link = Link {
                bridge: (*bridge).to_owned(),
                port: (*member).to_owned(),
                lag: Some((*port).to_owned()),
                link: match info.link_up {
                    true => LinkState::Up,
                    false => LinkState::Down,
                },
                live: *distributes,
                damped: false,
                speed_bps: info.speed_mbps.map(|mbps| u64::from(mbps) * 1_000_000),
            };
            journal.publish(StateKind::Links, &format!("{bridge}/{port}/{member}"), &link);
        }
        Observation::MemberGone { bridge, port, member } => {
            let key = format!("{bridge}/{port}/{member}");
            journal.remove(StateKind::Links, &key);
            journal.remove(StateKind::Lldp, &key);
        }
        Observation::Neighbour {
            bridge,
            port,
            address,
            mac,
        } => {
            let key = format!("{bridge}/{port}/{address}");
            let neighbour = mac.map(|mac| TunnelNeighbour {
                bridge: (*bridge).to_owned(),
                port: (*port).to_owned(),
                address: address.to_string(),
                mac: mac.to_string(),
            });
            journal.keep(StateKind::Neighbours, &key, neighbour.as_ref());
        }
        Observation::RouterNeighbour {
            vrf,
            interface,
            address,
            mac,
        } => {
            // No name of a bridge has a colon.
            let key = format!("vrf:{vrf}/{interface}/{address}");
            let neighbour = mac.map(|mac| RouterNeighbour {
                vrf: (*vrf).to_owned(),
                interface: (*interface).to_owned(),
                address: address.to_string(),
                mac: mac.to_string(),
            });
            journal.keep(StateKind::Neighbours, &key, neighbour.as_ref());
        }
        Observation::Lldp {
            bridge,
            port,
            member,
            neighbours,
        } => {
            let key = match member {
                Some(member) => format!("{bridge}/{port}/{member}"),
                None => format!("{bridge}/{port}"),
            };
            if neighbours.is_empty() {
                return journal.remove(StateKind::Lldp, &key);
            }
            let state = LldpState {
                bridge: (*bridge).to_owned(),
                port: member.unwrap_or(port).to_owned(),
                lag: member.map(|_| (*port).to_owned()),
                neighbours: neighbours
                    .iter()
                    .map(|(neighbour, left)| lldp::neighbour(neighbour, *left))
                    .collect(),
            };
            journal.publish(StateKind::Lldp, &key, &state);
        }
        // Front ends ask for the channels when they need them.
        Observation::Channels { .. } => {}
        Observation::BridgeGone { bridge } => journal.remove_all(&format!("{bridge}/")),
    })
}

fn port(bridge: &str, status: &PortStatus) -> PortState {
    PortState {
        bridge: bridge.to_owned(),
        port: status.model.name.to_string(),
        number: status.model.number.raw(),
        device: status.model.device.to_string(),
        driver: status.info.driver.clone(),
        mac: status.info.mac.to_string(),
        mtu: status.info.mtu.into(),
        admin: match status.config.has(PortConfig::DOWN) {
            true => AdminState::Down,
            false => AdminState::Up,
        },
    }
}

fn link(bridge: &str, status: &PortStatus) -> Link {
    let state = status.state;
    Link {
        bridge: bridge.to_owned(),
        port: status.model.name.to_string(),
        lag: None,
        link: match state.has(StateBits::LINK_DOWN) {
            true => LinkState::Down,
            false => LinkState::Up,
        },
        live: !state.has(StateBits::NOT_LIVE | StateBits::LINK_DOWN),
        damped: state.has(StateBits::BLOCKED),
        speed_bps: status.info.speed_mbps.map(|mbps| u64::from(mbps) * 1_000_000),
    }
}
