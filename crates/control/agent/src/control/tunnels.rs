//! Logical ports of a bridge: tunnels and NSH ports. This module builds the workers' table of logical ports,
//! and resolves the MAC addresses of tunnels' next hops.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use millrace_datapath::PortStats;
use millrace_datapath::io::{Backend, DeviceInfo, PortModes};
use millrace_flow::Action;
use millrace_model as model;
use millrace_pipeline::{Logical, NshPath, NshPort, PortConfig, PortState, Tunnel, TunnelKey, Tunnels};
use millrace_router::UNDERLAY_MAC;
use millrace_types::{Mac, PortNo, Time};
use millrace_wire::Packet;

use super::bridge::BridgeControl;
use super::neighbour_frames;
use super::neighbours::LinkAddress;
use crate::observe::Observation;
use crate::port::PortStatus;

/// Returns the tunnel of a port; `None` for a port of another type.
fn tunnel_of(port: &model::Port) -> Option<&model::Tunnel> {
    match &port.device {
        model::Device::Tunnel(tunnel) => Some(tunnel),
        _ => None,
    }
}

/// Returns true if routes carry the packets of a tunnel.
fn is_routed(tunnel: &model::Tunnel) -> bool {
    match tunnel.underlay() {
        model::Underlay::Vrf(_) | model::Underlay::Host => true,
        model::Underlay::Port(_) => false,
    }
}

/// Returns the unspecified address of the family of an address.
fn unspecified_like(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Returns true if a port has no device: another port, the underlay, or a VRF sends its packets.
pub(super) fn is_logical(port: &model::Port) -> bool {
    port.device.is_logical()
}

/// Returns the key of a tunnel in the form that workers use.
pub(crate) fn tunnel_key(tunnel: &model::Tunnel) -> TunnelKey {
    match tunnel.key() {
        model::TunnelKey::None => TunnelKey::None,
        model::TunnelKey::Fixed(key) => TunnelKey::Fixed(key),
        model::TunnelKey::Flow => TunnelKey::Flow,
    }
}

/// The carrier of the packets of a tunnel.
struct Carrier {
    port: PortNo,
    /// The local IP address; none while the routes do not say it.
    local: Option<IpAddr>,
    /// The local MAC address.
    mac: Mac,
    /// The MAC address of the next hop; none while there is no way.
    next_hop: Option<Mac>,
    /// The longest IP packet in bytes.
    mtu: u16,
}

impl<B: Backend> BridgeControl<B> {
    /// Returns the workers' counters of a port.
    pub(super) fn counted(&self, number: PortNo) -> PortStats {
        match self.tunnel_counts.get(&number) {
            None => self.datapath.port_stats(number).unwrap_or_default(),
            Some(counts) => {
                let counted = counts.read();
                PortStats {
                    rx_packets: counted.rx_packets,
                    rx_bytes: counted.rx_bytes,
                    tx_packets: counted.tx_packets,
                    tx_bytes: counted.tx_bytes,
                    ..PortStats::default()
                }
            }
        }
    }

    /// Returns the information of a port's device; for a logical port, information in the same form.
    pub(super) fn info_of(&self, port: &model::Port) -> Option<DeviceInfo> {
        if let Some(lag) = self.lags.get(&port.number) {
            return Some(lag.info(&self.config, port));
        }
        if !is_logical(port) {
            return self.datapath.device_info(port.number);
        }
        if let Some(tunnel) = tunnel_of(port)
            && is_routed(tunnel)
        {
            let carrier = self.vrf_carrier(port.number);
            let is_up = carrier.is_some_and(|carrier| carrier.next_hop.is_some());
            return Some(logical_info(
                port,
                tunnel.kind().to_string(),
                (UNDERLAY_MAC, None),
                is_up,
            ));
        }
        let underlay = self.underlay(port);
        let (driver, is_resolved) = match tunnel_of(port) {
            Some(tunnel) => {
                let next_hop = underlay.map(|underlay| (underlay.model.number, tunnel.next_hop()));
                let is_resolved = next_hop.is_some_and(|next_hop| self.neighbours.mac(&next_hop).is_some());
                (tunnel.kind().to_string(), is_resolved)
            }
            None => ("nsh".to_owned(), true),
        };
        let is_up = underlay
            .is_some_and(|port| !port.config.has(PortConfig::DOWN) && !port.state.has(PortState::LINK_DOWN));
        let mac = underlay.map_or(Mac::ZERO, |underlay| underlay.info.mac);
        let speed_mbps = underlay.and_then(|underlay| underlay.info.speed_mbps);
        // A tunnel whose next hop is not resolved is down, so that fast failover groups use another bucket.
        Some(logical_info(
            port,
            driver,
            (mac, speed_mbps),
            is_up && is_resolved,
        ))
    }

    /// Returns what carries a tunnel over a VRF, once the router has said it.
    fn vrf_carrier(&self, number: PortNo) -> Option<Carrier> {
        let held = self.router.as_ref()?;
        let route = held.tunnel_routes.get(&number)?;
        Some(Carrier {
            port: *held.underlays.get(&route.vrf)?,
            local: route.local,
            mac: UNDERLAY_MAC,
            next_hop: route.mtu.map(|_| UNDERLAY_MAC),
            mtu: route.mtu.unwrap_or_default(),
        })
    }

    fn underlay(&self, port: &model::Port) -> Option<&PortStatus> {
        let name = port.device.underlay()?;
        self.ports.values().find(|port| port.model.name == *name)
    }

    /// Sends the requests for neighbours that are due, and gives the workers the current table of logical ports. Called
    /// when ports or neighbours changed, and periodically.
    pub(super) fn update_tunnels(&mut self, now: Time) {
        if self.tunnel_counts.is_empty() && self.logical.is_empty() {
            return;
        }
        let mut wanted: BTreeMap<LinkAddress, IpAddr> = BTreeMap::new();
        let mut table = Vec::new();
        let mut counts = BTreeMap::new();
        let logical = self.logical.iter();
        for (number, status) in logical.filter_map(|number| self.ports.get_key_value(number)) {
            let counted = self.tunnel_counts.get(number).cloned().unwrap_or_default();
            counts.insert(*number, Arc::clone(&counted));
            if let Some(tunnel) = tunnel_of(&status.model)
                && is_routed(tunnel)
                && let Some(carrier) = self.vrf_carrier(*number)
            {
                table.push((Logical::from(tunnel_port(*number, tunnel, &carrier)), counted));
                continue;
            }
            let Some(underlay) = self.underlay(&status.model) else {
                continue;
            };
            if let Some(tunnel) = tunnel_of(&status.model) {
                let next_hop = (underlay.model.number, tunnel.next_hop());
                // The model gives tunnels over a port a local address.
                if let Some(local) = tunnel.local() {
                    wanted.insert(next_hop, local);
                }
                let carrier = Carrier {
                    port: underlay.model.number,
                    local: tunnel.local(),
                    mac: underlay.info.mac,
                    next_hop: self.neighbours.mac(&next_hop),
                    mtu: underlay.model.mtu.get(),
                };
                table.push((Logical::from(tunnel_port(*number, tunnel, &carrier)), counted));
            } else if let model::Device::Nsh(nsh) = &status.model.device {
                table.push((Logical::from(nsh_port(*number, nsh, underlay)), counted));
            }
        }
        self.tunnel_counts = counts;
        self.neighbours.set_wanted(&wanted);
        for ((underlay, target), local) in self.neighbours.due_requests(now) {
            let mac = self.ports.get(&underlay).map(|port| port.info.mac);
            if let Some(frame) = mac.and_then(|mac| neighbour_frames::request(mac, local, target)) {
                self.send_frame(underlay, &frame);
            }
        }
        self.tables.set_tunnels(Tunnels::new(table), &mut self.ops);
        self.report_neighbours();
    }

    /// Reports the neighbours whose MAC address changed to the observer.
    fn report_neighbours(&mut self) {
        for ((underlay, address), mac) in self.neighbours.take_changes() {
            let port = self.ports.get(&underlay).map(|port| port.model.name.as_str());
            // With a port, the observer forgets its neighbours.
            if let Some(port) = port {
                self.report(&Observation::Neighbour {
                    bridge: self.config.name.as_str(),
                    port,
                    address,
                    mac,
                });
            }
        }
    }

    /// Sends a frame out of a port.
    pub(super) fn send_frame(&mut self, port: PortNo, frame: &[u8]) {
        // Without a packet buffer the frame is dropped: requests are repeated by both sides.
        let _no_buffer = self
            .datapath
            .packet_out(PortNo::CONTROLLER, &[Action::output(port)], frame);
    }

    /// Handles a frame of ARP or neighbour discovery that an underlay received. Returns true if a neighbour's MAC
    /// address is new: links of tunnels may have changed.
    pub(super) fn receive_neighbour_frame(&mut self, underlay: PortNo, packet: &B::Packet) -> bool {
        let mut bytes = Vec::new();
        packet.copy_to(&mut bytes, usize::MAX);
        let Some(mac) = self.ports.get(&underlay).map(|port| port.info.mac) else {
            return false;
        };
        let is_local = |address: IpAddr| {
            let tunnels = self.ports.values().filter_map(|port| tunnel_of(&port.model));
            let underlay = self.ports.get(&underlay);
            tunnels
                .filter(|tunnel| {
                    let name = underlay.map(|port| &port.model.name);
                    matches!(tunnel.underlay(), model::Underlay::Port(port) if Some(port) == name)
                })
                .any(|tunnel| tunnel.local() == Some(address))
        };
        let Some(message) = neighbour_frames::parse(&bytes).filter(|message| is_local(message.local)) else {
            return false;
        };
        if message.is_request
            && let Some(frame) = neighbour_frames::answer(mac, &message)
        {
            self.send_frame(underlay, &frame);
        }
        let now = self.datapath.now();
        let address = (underlay, message.remote);
        if !self.neighbours.confirm(address, message.mac, now) {
            return false;
        }
        tracing::info!(
            bridge = %self.config.name, %underlay, address = %message.remote, mac = %message.mac, "neighbour"
        );
        self.update_tunnels(now);
        true
    }
}

/// Returns the information of a logical port in the form of that of a device: its driver, and its MAC address and speed.
fn logical_info(
    port: &model::Port,
    driver: String,
    (mac, speed_mbps): (Mac, Option<u32>),
    link_up: bool,
) -> DeviceInfo {
    DeviceInfo {
        driver,
        mac,
        speed_mbps,
        link_up,
        modes: PortModes::default(),
        mtu: port.mtu.get(),
        numa_node: None,
        rx_queues: 0,
        rss: None,
        offload: None,
    }
}

/// Returns a tunnel in the form that workers use.
fn tunnel_port(port: PortNo, tunnel: &model::Tunnel, carrier: &Carrier) -> Tunnel {
    Tunnel {
        port,
        kind: tunnel.kind(),
        // Without a local address there is no way, and without a way no packet is encapsulated.
        local: carrier.local.unwrap_or(unspecified_like(tunnel.remote())),
        remote: tunnel.remote(),
        key: tunnel_key(tunnel),
        underlay: carrier.port,
        local_mac: carrier.mac,
        next_hop: carrier.next_hop,
        udp_port: tunnel.udp_port(),
        ttl: tunnel.ttl(),
        dscp: tunnel.dscp(),
        checksum: tunnel.checksum(),
        mtu: carrier.mtu,
    }
}

/// Returns a port of service function paths (RFC 8300) in the form that workers use.
fn nsh_port(port: PortNo, nsh: &model::Nsh, underlay: &PortStatus) -> NshPort {
    let path = |path: Option<model::NshPath>| match path {
        None => NshPath::None,
        Some(model::NshPath::Fixed(path)) => NshPath::Fixed(path),
        Some(model::NshPath::Flow) => NshPath::Flow,
    };
    NshPort {
        port,
        underlay: underlay.model.number,
        local_mac: underlay.info.mac,
        remote: nsh.remote(),
        takes: path(nsh.takes()),
        sends: path(nsh.sends()),
        ttl: nsh.ttl(),
        context: nsh.context(),
        mtu: underlay.model.mtu.get(),
    }
}
