//! The switch as the follower of an Open vSwitch database sees it.

use std::collections::BTreeMap;

use millrace_api::server::Live as _;
use millrace_api::view;
use millrace_datapath::io::Backend;
use millrace_ovs::{BridgeState, ChannelState, PortState, State};
use millrace_ovs_follower::Switch;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use tokio::sync::watch;

use crate::live::LiveSwitch;

impl<B: Backend> Switch for LiveSwitch<B> {
    fn state(&self) -> State {
        let version = self.version();
        let dpdk = version.dpdk.filter(|dpdk| dpdk.used);
        let flags = interface_flags();
        let problems = self.switch().status().problems;
        let bridges = self.bridges().into_iter().map(|bridge| {
            let name = bridge.name;
            let ports = self.ports(&name).unwrap_or_default();
            let running = ports.iter().filter(|port| port.link != view::LinkState::Missing);
            let of_port = format!("bridge {name}, port ");
            let problems = problems.iter().filter_map(|problem| {
                let port = problem.object.strip_prefix(&of_port)?;
                Some((port.to_owned(), problem.reason.clone()))
            });
            let channels = self.controllers(&name).unwrap_or_default();
            let state = BridgeState {
                dpid: bridge.dpid,
                ports: running
                    .map(|port| (port.name.clone(), port_state(port, &flags)))
                    .collect(),
                problems: problems.collect(),
                channels: channels.into_iter().map(channel).collect(),
            };
            (name, state)
        });
        State {
            version: version.version,
            has_dpdk: dpdk.is_some(),
            dpdk_version: dpdk.map(|dpdk| format!("DPDK {}", dpdk.version)),
            bridges: bridges.collect(),
        }
    }

    fn applied(&self) -> watch::Receiver<Option<u64>> {
        self.switch().applied()
    }
}

/// Returns the flags of the interfaces of the kernel.
fn interface_flags() -> BTreeMap<String, InterfaceFlags> {
    // Without the list, ports are shown by their state in the switch alone.
    getifaddrs()
        .map(|list| list.map(|one| (one.interface_name, one.flags)).collect())
        .unwrap_or_default()
}

fn port_state(port: &view::Port, flags: &BTreeMap<String, InterfaceFlags>) -> PortState {
    let interface = port
        .device
        .strip_prefix("kernel:")
        .or_else(|| port.device.strip_prefix("tap:"));
    let flags = interface.and_then(|name| flags.get(name));
    let is_up = flags.is_none_or(|flags| flags.contains(InterfaceFlags::IFF_UP));
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    PortState {
        mac: port.mac.clone(),
        is_up: is_up && port.admin == view::AdminState::Up,
        has_link: port.link == view::LinkState::Up,
        speed: port.speed_bps,
        mtu: u32::try_from(port.mtu).unwrap_or(u32::MAX),
        ifindex: interface.and_then(|name| if_nametoindex(name).ok()),
        driver: port.driver.clone(),
        link_resets: 0,
        statistics: BTreeMap::from([
            ("rx_packets", number(port.rx.packets)),
            ("rx_bytes", number(port.rx.bytes)),
            ("rx_dropped", number(port.rx.drops)),
            ("rx_errors", number(port.rx.errors)),
            ("tx_packets", number(port.tx.packets)),
            ("tx_bytes", number(port.tx.bytes)),
            ("tx_dropped", number(port.tx.drops)),
            ("tx_errors", number(port.tx.errors)),
        ]),
    }
}

fn channel(controller: view::Controller) -> ChannelState {
    let is_connected = controller.state == view::ControllerState::Connected;
    ChannelState {
        target: controller.target,
        is_connected,
        role: controller.role.map(|role| match role {
            view::Role::Equal => "other",
            view::Role::Master => "master",
            view::Role::Slave => "slave",
        }),
        state: match controller.state {
            view::ControllerState::Connected => "ACTIVE",
            view::ControllerState::Listening => "IDLE",
            view::ControllerState::Connecting | view::ControllerState::Handshake => "CONNECTING",
            view::ControllerState::Backoff => "BACKOFF",
        },
        since_s: controller.since_seconds as u64,
        last_error: controller.last_error.filter(|_| !is_connected),
    }
}
