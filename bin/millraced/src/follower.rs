//! The switch as the follower of an Open vSwitch database sees it.

use std::collections::BTreeMap;

use millrace_agent::BridgeControl;
use millrace_agent::control::TunnelRoute;
use millrace_agent::control::rstp::{BridgeId, PortState as TreePortState, Role};
use millrace_api::server::Live as _;
use millrace_api::view;
use millrace_datapath::io::Backend;
use millrace_model::{Device, RstpVersion};
use millrace_ovs::{
    BridgeState, ChannelState, HostRoute, HostState, LacpState, LagMemberState, LagState, MacState,
    MirrorState, Participant, PortState, State, TreeBridge, TreePort, TreeState, TreeTimes, TunnelEgress,
    TunnelState,
};
use millrace_ovs_follower::Switch;
use millrace_pipeline::{FdbKey, PortConfig, PortState as PortBits};
use millrace_rib::{NeighbourView, OwnPrefix};
use millrace_types::{Mac, PortNo, Vid};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use tokio::sync::watch;

use crate::live::{LiveSwitch, counters_of};

/// The number of routes that a command of `ovs-appctl` shows.
const HOST_ROUTES_MAX: usize = 65_536;

impl<B: Backend> Switch for LiveSwitch<B> {
    fn state(&self) -> State {
        let version = self.version();
        let dpdk = version.dpdk.filter(|dpdk| dpdk.used);
        let problems = self.switch().status().problems;
        let running = self.ask_all(running);
        let has_lags = running
            .iter()
            .any(|(_, bridge)| bridge.ports.iter().any(|port| port.is_lag));
        let mut lags: BTreeMap<String, Vec<view::Lag>> = BTreeMap::new();
        for lag in has_lags.then(|| self.lags()).into_iter().flatten() {
            lags.entry(lag.bridge.clone()).or_default().push(lag);
        }
        // The kernel is asked only for interfaces that a port has.
        let has_interfaces = has_lags
            || running
                .iter()
                .any(|(_, bridge)| bridge.ports.iter().any(|port| port.interface.is_some()));
        let interfaces = has_interfaces.then(interfaces).unwrap_or_default();
        let mut links: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for port in running.iter().flat_map(|(_, bridge)| &bridge.ports) {
            if let Some(link) = &port.link {
                links.entry(link.clone()).or_default().push(port.name.clone());
            }
        }
        let bridges = running.into_iter().map(|(name, running)| {
            let of_port = format!("bridge {name}, port ");
            let problems = problems.iter().filter_map(|problem| {
                let port = problem.object.strip_prefix(&of_port)?;
                // A member of a LAG is `PORT, member NAME`.
                let name = port.split_once(", member ").map_or(port, |(_, member)| member);
                Some((name.to_owned(), problem.reason.clone()))
            });
            let lags = lags.remove(&name).unwrap_or_default();
            let mut ports: BTreeMap<String, PortState> = BTreeMap::new();
            for port in running.ports {
                let mut state = port.state;
                state.peer = port.link.and_then(|link| {
                    let ends = links.get(&link)?;
                    ends.iter().find(|end| **end != port.name).cloned()
                });
                let interface = port.interface.and_then(|name| interfaces.get(&name));
                state.is_up &= interface.is_none_or(|interface| interface.is_up);
                state.ifindex = interface.and_then(|interface| interface.index);
                ports.insert(port.name, state);
            }
            for lag in &lags {
                let mtu = ports.get(&lag.port).map(|port| port.mtu).unwrap_or_default();
                let open = lag
                    .members
                    .iter()
                    .filter(|member| member.link != view::LinkState::Missing);
                let number = ports.get(&lag.port).map(|port| port.number).unwrap_or_default();
                ports.extend(open.map(|member| {
                    let state = PortState {
                        number,
                        ..member_state(member, mtu, &interfaces)
                    };
                    (member.name.clone(), state)
                }));
            }
            let channels = self.controllers(&name).unwrap_or_default();
            let state = BridgeState {
                dpid: running.dpid,
                tree: running.tree,
                ports,
                problems: problems.collect(),
                channels: channels.into_iter().map(channel).collect(),
                lags: lags
                    .iter()
                    .map(|lag| (lag.port.clone(), lag_state(lag, &interfaces)))
                    .collect(),
                mirrors: running.mirrors,
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

    fn macs(&self, bridge: &str) -> Option<Vec<MacState>> {
        let learned = self.ask(bridge, |control| {
            let now = control.datapath().now();
            let entries = control.tables().fdb().map(|entry| MacState {
                port: entry.port.raw(),
                vlan: entry.key.vid.raw(),
                mac: entry.key.mac.to_string(),
                age_s: now.since(entry.last_seen()).as_secs(),
                is_static: entry.is_static,
            });
            entries.collect()
        });
        learned.ok()
    }

    fn add_mac(&self, bridge: &str, port: &str, vlan: u16, mac: Mac) -> Result<(), String> {
        let vid = Vid::new(vlan).map_err(|error| error.to_string())?;
        let port = port.to_owned();
        let added = self.ask(bridge, move |control| {
            let mut ports = control.ports().iter();
            let number = ports
                .find(|(number, status)| {
                    status.model.name.as_str() == port || number.raw().to_string() == port
                })
                .map(|(number, _)| *number);
            number.is_some_and(|number| control.add_static_mac(FdbKey { vid, mac }, number))
        });
        match added {
            Ok(true) => Ok(()),
            Ok(false) => Err("no such port, or an address of the router".to_owned()),
            Err(_) => Err("no such bridge".to_owned()),
        }
    }

    fn remove_mac(&self, bridge: &str, vlan: u16, mac: Mac) -> Result<(), String> {
        let vid = Vid::new(vlan).map_err(|error| error.to_string())?;
        match self.ask(bridge, move |control| {
            control.remove_static_mac(FdbKey { vid, mac })
        }) {
            Ok(true) => Ok(()),
            Ok(false) => Err("could not find static mac entry".to_owned()),
            Err(_) => Err("no such bridge".to_owned()),
        }
    }

    fn host(&self) -> HostState {
        let (prefixes, neighbours) = self.switch().router().of_host(HOST_ROUTES_MAX);
        let route = |own: OwnPrefix| HostRoute {
            address: own.prefix.address(),
            prefix_len: own.prefix.len(),
            interface: own.route.link,
            gateway: own.gateway,
            source: own.route.source,
            is_local: own.is_local,
        };
        let neighbour = |held: NeighbourView| Some((held.address, held.mac?.to_string(), held.link));
        HostState {
            routes: prefixes.into_iter().map(route).collect(),
            neighbours: neighbours.into_iter().filter_map(neighbour).collect(),
        }
    }

    fn log_filter(&self) -> String {
        self.log().filter
    }

    fn set_log_level(&self, level: &str) {
        if let Err(error) = self.set_log(level) {
            tracing::warn!(%error, level, "the level of the log stays as it is");
        }
    }

    fn flush_macs(&self, bridge: &str) -> bool {
        millrace_api::server::Live::flush_macs(self, bridge, None, None).is_ok()
    }
}

/// The ports of a bridge that run, without what only the kernel knows of them.
struct Running {
    dpid: String,
    tree: Option<TreeState>,
    ports: Vec<RunningPort>,
    mirrors: BTreeMap<String, MirrorState>,
}

struct RunningPort {
    name: String,
    /// The interface of the kernel that is, or is behind, the device.
    interface: Option<String>,
    is_lag: bool,
    /// The link whose end the port is.
    link: Option<String>,
    state: PortState,
}

/// Reads the ports of a bridge: thousands of them, at each interval of the statistics.
fn running<B: Backend>(control: &mut BridgeControl<B>) -> Running {
    let control = &*control;
    let port = |(number, port): (&PortNo, &millrace_agent::control::PortStatus)| {
        let (rx, tx) = counters_of(control, *number);
        RunningPort {
            name: port.model.name.to_string(),
            interface: match &port.model.device {
                Device::Kernel(name) | Device::Tap(name) => Some(name.to_string()),
                _ => None,
            },
            is_lag: matches!(port.model.device, Device::Lag(_)),
            link: match &port.model.device {
                Device::Link(name) => Some(name.to_string()),
                _ => None,
            },
            state: PortState {
                number: number.raw(),
                kind: kind_of(&port.model.device),
                peer: None,
                mac: port.info.mac.to_string(),
                is_up: !port.config.has(PortConfig::DOWN),
                has_link: !port.state.has(PortBits::LINK_DOWN),
                speed: port.info.speed_mbps.map(|mbps| u64::from(mbps) * 1_000_000),
                mtu: port.info.mtu.into(),
                ifindex: None,
                driver: Some(port.info.driver.clone()),
                link_resets: 0,
                lacp_current: None,
                statistics: statistics(&rx, &tx),
                tunnel: control
                    .tunnel_route(*number)
                    .map(|route| tunnel_state(&port.model.device, route)),
            },
        }
    };
    let mirrors = control.config().mirrors.iter();
    let mirror = |mirror: &millrace_model::Mirror| {
        let count = control.mirror_count(&mirror.name);
        let state = MirrorState {
            packets: count.packets,
            bytes: count.bytes,
        };
        (mirror.name.to_string(), state)
    };
    Running {
        dpid: control.config().datapath_id().to_string(),
        tree: tree_of(control),
        ports: control.ports().iter().map(port).collect(),
        mirrors: mirrors.map(mirror).collect(),
    }
}

/// Returns the way of the packets of a routed tunnel.
fn tunnel_state(device: &Device, route: &TunnelRoute) -> TunnelState {
    let egress = route.egress.as_ref();
    let listener = match device {
        Device::Tunnel(tunnel) if tunnel.udp_port() == 0 => format!("{}_sys", tunnel.kind()),
        Device::Tunnel(tunnel) => format!("{}_sys_{}", tunnel.kind(), tunnel.udp_port()),
        _ => String::new(),
    };
    TunnelState {
        listener,
        egress: egress.map(|egress| TunnelEgress {
            interface: egress.interface.to_string(),
            has_carrier: egress.has_carrier,
        }),
        problem: route.problem.as_ref().map(ToString::to_string),
    }
}

/// Returns the type of a device in the words of Open vSwitch's datapath in user space.
fn kind_of(device: &Device) -> &'static str {
    match device {
        Device::Tap(_) => "tap",
        Device::Link(_) | Device::Memory => "patch",
        Device::Vnic(_) => "dpdkvhostuserclient",
        Device::Pci(_) | Device::Vdev(_) => "dpdk",
        Device::Tunnel(_) => "tunnel",
        _ => "system",
    }
}

/// Returns the part of a bridge in a spanning tree.
fn tree_of<B: Backend>(control: &BridgeControl<B>) -> Option<TreeState> {
    let settings = control.config().rstp.as_ref()?;
    let status = control.rstp_status()?;
    let now = control.datapath().now();
    let bridge = |id: BridgeId| TreeBridge {
        priority: id.priority,
        address: id.address.to_string(),
    };
    let port = |(number, port): (&PortNo, &millrace_agent::control::PortStatus)| {
        let (tree, times) = (control.rstp_port(*number)?, control.rstp_times(*number)?);
        let state = TreePort {
            id: tree.id.0,
            role: match tree.role {
                Role::Disabled => "disabled",
                Role::Root => "root",
                Role::Designated => "designated",
                Role::Alternate => "alternate",
                Role::Backup => "backup",
            },
            state: match tree.state {
                TreePortState::Discarding => "discarding",
                TreePortState::Learning => "learning",
                TreePortState::Forwarding => "forwarding",
            },
            path_cost: tree.path_cost,
            designated: bridge(tree.priority.designated_bridge),
            designated_port: tree.priority.designated_port.0,
            designated_path_cost: tree.priority.root_path_cost,
            sent: tree.counters.sent,
            received: tree.counters.received,
            discarded: tree.counters.discarded,
            state_s: now.since(times.state_since).as_secs(),
            uptime_s: now.since(times.added).as_secs(),
        };
        Some((port.model.name.to_string(), state))
    };
    Some(TreeState {
        is_stp: settings.version == RstpVersion::Stp,
        bridge: bridge(status.id),
        root: bridge(status.root),
        root_path_cost: status.root_path_cost,
        designated: bridge(status.priority.designated_bridge),
        designated_port: status.priority.designated_port.0,
        bridge_port: status.priority.bridge_port.0,
        root_times: TreeTimes {
            hello_s: status.times.hello_time / 256,
            max_age_s: status.times.max_age / 256,
            forward_delay_s: status.times.forward_delay / 256,
        },
        own_times: TreeTimes {
            hello_s: settings.hello_time_s.get().into(),
            max_age_s: settings.max_age_s.get().into(),
            forward_delay_s: settings.forward_delay_s.get().into(),
        },
        ports: control.ports().iter().filter_map(port).collect(),
    })
}

/// The state of an interface as the kernel knows it.
#[derive(Default)]
struct KernelInterface {
    is_up: bool,
    mac: String,
    index: Option<u32>,
}

/// Returns the interfaces of the kernel.
fn interfaces() -> BTreeMap<String, KernelInterface> {
    let mut found: BTreeMap<String, KernelInterface> = BTreeMap::new();
    // Without the list, ports are shown by their state in the switch alone.
    for one in getifaddrs().into_iter().flatten() {
        let interface = found.entry(one.interface_name).or_default();
        interface.is_up = one.flags.contains(InterfaceFlags::IFF_UP);
        // Each interface has an entry with its own address, and one for each IP address.
        let address = one.address;
        if let Some(link) = address.as_ref().and_then(|address| address.as_link_addr()) {
            interface.index = u32::try_from(link.ifindex()).ok();
            interface.mac = link
                .addr()
                .map(|bytes| Mac(bytes).to_string())
                .unwrap_or_default();
        }
    }
    found
}

/// Returns the name of the interface of a device.
fn interface_of(device: &str) -> Option<&str> {
    device
        .strip_prefix("kernel:")
        .or_else(|| device.strip_prefix("tap:"))
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn statistics(rx: &view::Counters, tx: &view::Counters) -> BTreeMap<&'static str, i64> {
    BTreeMap::from([
        ("rx_packets", number(rx.packets)),
        ("rx_bytes", number(rx.bytes)),
        ("rx_dropped", number(rx.drops)),
        ("rx_errors", number(rx.errors)),
        ("tx_packets", number(tx.packets)),
        ("tx_bytes", number(tx.bytes)),
        ("tx_dropped", number(tx.drops)),
        ("tx_errors", number(tx.errors)),
    ])
}

fn member_state(
    member: &view::LagMember,
    mtu: u32,
    interfaces: &BTreeMap<String, KernelInterface>,
) -> PortState {
    let interface = interface_of(&member.device).and_then(|name| interfaces.get(name));
    PortState {
        number: 0,
        kind: match interface_of(&member.device) {
            Some(_) => "system",
            None => "dpdk",
        },
        peer: None,
        mac: interface
            .map(|interface| interface.mac.clone())
            .unwrap_or_default(),
        is_up: interface.is_none_or(|interface| interface.is_up),
        has_link: member.link == view::LinkState::Up,
        speed: member.speed_bps,
        mtu,
        ifindex: interface.and_then(|interface| interface.index),
        driver: None,
        link_resets: 0,
        lacp_current: member.lacp.as_ref().map(|lacp| lacp.receive == "current"),
        statistics: statistics(&member.rx, &member.tx),
        tunnel: None,
    }
}

fn lag_state(lag: &view::Lag, interfaces: &BTreeMap<String, KernelInterface>) -> LagState {
    let member = |member: &view::LagMember| LagMemberState {
        name: member.name.clone(),
        mac: interface_of(&member.device)
            .and_then(|name| interfaces.get(name))
            .map(|interface| interface.mac.clone())
            .unwrap_or_default(),
        is_enabled: member.distributing,
        lacp: member.lacp.as_ref().map(|lacp| LacpState {
            receive: lacp.receive.clone(),
            is_selected: lacp.selected == "selected",
            actor: participant(&lacp.actor),
            partner: lacp.partner.as_ref().map(participant),
        }),
    };
    LagState {
        mode: lag.mode.clone(),
        is_fast: lag.rate == "fast",
        has_fallback: lag.fallback != "none",
        system: lag.system.clone(),
        system_priority: lag.system_priority,
        members: lag.members.iter().map(member).collect(),
    }
}

fn participant(side: &view::LacpParticipant) -> Participant {
    Participant {
        system: side.system.clone(),
        system_priority: side.system_priority,
        key: side.key,
        port: side.port,
        port_priority: side.port_priority,
        state: side.state.clone(),
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
