//! Answers of `ovs-appctl` about the tunnels that the machine routes: `tnl/ports/show`, `ovs/route/show` and `tnl/neigh/show`
//! (Open vSwitch, "Connecting VMs Using Tunnels (Userspace)").

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::state::{HostRoute, HostState, State};

/// Returns the answer to `tnl/ports/show`: the number of a listener is the lowest OpenFlow number of its tunnels.
pub(crate) fn ports(state: &State) -> String {
    let mut listeners: BTreeMap<&str, (u32, usize)> = BTreeMap::new();
    let ports = state.bridges.values().flat_map(|bridge| bridge.ports.values());
    for (port, tunnel) in ports.filter_map(|port| Some((port, port.tunnel.as_ref()?))) {
        let (number, count) = listeners.entry(&tunnel.listener).or_insert((port.number, 0));
        *number = port.number.min(*number);
        *count += 1;
    }
    let mut text = String::from("Listening ports:\n");
    for (name, (number, count)) in listeners {
        let _infallible = writeln!(text, "{name} ({number}) ref_cnt={count}");
    }
    text
}

/// Returns the answer to `ovs/route/show`.
pub fn routes(host: &HostState) -> String {
    let mut routes: Vec<&HostRoute> = host.routes.iter().collect();
    routes.sort_by_key(|route| (core::cmp::Reverse(priority(route)), route.address));
    let mut text = String::from("Route Table:\n");
    for route in routes {
        let HostRoute {
            address,
            prefix_len,
            interface,
            ..
        } = route;
        let _infallible = write!(text, "Cached: {address}/{prefix_len} dev {interface}");
        if let Some(gateway) = route.gateway {
            let _infallible = write!(text, " GW {gateway}");
        }
        if let Some(source) = route.source {
            let _infallible = write!(text, " SRC {source}");
        }
        text.push_str(if route.is_local { " local\n" } else { "\n" });
    }
    text
}

/// Returns the priority that Open vSwitch gives a route: the length of its prefix as that of an address of IPv6, and more for
/// addresses of the machine.
fn priority(route: &HostRoute) -> u16 {
    let mapped = if route.address.is_ipv4() { 96 } else { 0 };
    let local = if route.is_local { 64 } else { 0 };
    u16::from(route.prefix_len) + mapped + local
}

/// Returns the answer to `tnl/neigh/show`.
pub fn neighbours(host: &HostState) -> String {
    let mut text = format!("{:<46}{:<20}Bridge\n{}\n", "IP", "MAC", "=".repeat(74));
    for (address, mac, interface) in &host.neighbours {
        let _infallible = writeln!(text, "{:<46}{mac:<20}{interface}", address.to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{BridgeState, PortState, TunnelState};

    #[test]
    fn the_answers_are_those_of_open_vswitch() {
        let route =
            |address: &str, prefix_len, interface: &str, gateway: &str, source: &str, is_local| HostRoute {
                address: address.parse().unwrap(),
                prefix_len,
                interface: interface.to_owned(),
                gateway: gateway.parse().ok(),
                source: source.parse().ok(),
                is_local,
            };
        let host = HostState {
            routes: vec![
                route("0.0.0.0", 0, "br-phy", "172.31.1.9", "172.31.1.1", false),
                route("fd31::", 64, "br-phy", "", "fd31::1", false),
                route("172.31.1.0", 24, "br-phy", "", "172.31.1.1", false),
                route("172.31.1.1", 32, "br-phy", "", "172.31.1.1", true),
                route("127.0.0.0", 8, "lo", "", "127.0.0.1", true),
                route("fd31::1", 128, "br-phy", "", "fd31::1", true),
            ],
            neighbours: vec![(
                "172.31.1.2".parse().unwrap(),
                "36:d7:24:31:d7:1a".to_owned(),
                "br-phy".to_owned(),
            )],
        };
        assert_eq!(
            routes(&host),
            "Route Table:\n\
             Cached: 172.31.1.1/32 dev br-phy SRC 172.31.1.1 local\n\
             Cached: fd31::1/128 dev br-phy SRC fd31::1 local\n\
             Cached: 127.0.0.0/8 dev lo SRC 127.0.0.1 local\n\
             Cached: 172.31.1.0/24 dev br-phy SRC 172.31.1.1\n\
             Cached: 0.0.0.0/0 dev br-phy GW 172.31.1.9 SRC 172.31.1.1\n\
             Cached: fd31::/64 dev br-phy SRC fd31::1\n"
        );
        assert_eq!(
            neighbours(&host),
            "IP                                            MAC                 Bridge\n\
             ==========================================================================\n\
             172.31.1.2                                    36:d7:24:31:d7:1a   br-phy\n"
        );
    }

    #[test]
    fn tunnels_of_one_kind_and_port_listen_together() {
        let port = |number, listener: &str| PortState {
            number,
            tunnel: Some(TunnelState {
                listener: listener.to_owned(),
                ..TunnelState::default()
            }),
            ..PortState::default()
        };
        let ports = [
            ("a", port(7, "vxlan_sys_4789")),
            ("b", port(3, "vxlan_sys_4789")),
            ("c", port(4, "gre_sys")),
            ("d", PortState::default()),
        ];
        let bridge = BridgeState {
            ports: ports.map(|(name, port)| (name.to_owned(), port)).into(),
            ..BridgeState::default()
        };
        let state = State {
            bridges: [("br-int".to_owned(), bridge)].into(),
            ..State::default()
        };
        assert_eq!(
            super::ports(&state),
            "Listening ports:\ngre_sys (4) ref_cnt=1\nvxlan_sys_4789 (3) ref_cnt=2\n"
        );
    }
}
