//! Tunnels of a bridge on the control side: ports without a device, the table that workers get, and the questions and
//! answers by which neighbours on the underlays' links are found.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use millrace_datapath::PortStats;
use millrace_datapath::io::{Backend, DeviceInfo, PortModes};
use millrace_flow::Action;
use millrace_model as model;
use millrace_pipeline::{
    Logical, NshPath, NshPort, PortConfig, PortState, Tunnel, TunnelCounts, TunnelKey, Tunnels,
};
use millrace_types::{Mac, PortNo, Time};
use millrace_wire::icmpv6::{NEIGHBOR_ADVERT, NEIGHBOR_SOLICIT, NdRepr};
use millrace_wire::{Builder, Dscp, Ecn, EtherType, FlowLabel, IpProto, Packet, arp, ethernet, icmpv6, ipv6};

use super::neighbours::{Neighbours, Place};
use super::{BridgeControl, PortStatus};

/// The shortest frame that every link takes.
const FRAME_MIN: usize = 60;
/// An advertisement that answers, and replaces what was known (RFC 4861, section 4.4).
const SOLICITED_OVERRIDE: u32 = 0x6000_0000;

/// What is kept of all tunnels of a bridge.
#[derive(Default)]
pub(super) struct TunnelPorts {
    counts: BTreeMap<PortNo, Arc<TunnelCounts>>,
    neighbours: Neighbours,
}

/// The tunnel that a port is.
pub(super) fn tunnel_of(port: &model::Port) -> Option<&model::Tunnel> {
    match &port.device {
        model::Device::Tunnel(tunnel) => Some(tunnel),
        _ => None,
    }
}

/// Returns true if a port has no device of its own, and packets go by another one.
pub(super) fn is_logical(port: &model::Port) -> bool {
    port.device.underlay().is_some()
}

impl<B: Backend> BridgeControl<B> {
    /// What the workers counted at a port.
    pub(super) fn counted(&self, number: PortNo) -> PortStats {
        match self.tunnels.counts.get(&number) {
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

    /// What a port's device says of itself, or what a tunnel would if it had one.
    pub(super) fn info_of(&self, port: &model::Port) -> Option<DeviceInfo> {
        if !is_logical(port) {
            return self.datapath.device_info(port.number);
        }
        let underlay = self.underlay(port);
        let (driver, is_known) = match tunnel_of(port) {
            Some(tunnel) => {
                let place = underlay.map(|underlay| (underlay.model.number, tunnel.next_hop()));
                let is_known = place.is_some_and(|place| self.tunnels.neighbours.mac(&place).is_some());
                (tunnel.kind().to_string(), is_known)
            }
            None => ("nsh".to_owned(), true),
        };
        let is_up = underlay
            .is_some_and(|port| !port.config.has(PortConfig::DOWN) && !port.state.has(PortState::LINK_DOWN));
        Some(DeviceInfo {
            driver,
            mac: underlay.map_or(Mac::ZERO, |underlay| underlay.info.mac),
            speed_mbps: underlay.and_then(|underlay| underlay.info.speed_mbps),
            // A tunnel that leads nowhere is down, so that a fast failover group goes another way.
            link_up: is_up && is_known,
            modes: PortModes::default(),
            mtu: port.mtu.get(),
            numa_node: None,
            rx_queues: 0,
            rss: None,
            offload: None,
        })
    }

    fn underlay(&self, port: &model::Port) -> Option<&PortStatus> {
        let name = port.device.underlay()?;
        self.ports.values().find(|port| port.model.name == *name)
    }

    /// After something of the ports or the neighbours has changed, and from time to time: asks whom it has to ask, and
    /// gives workers the table as it should be now.
    pub(super) fn tend_tunnels(&mut self, now: Time) {
        let is_there = |status: &PortStatus| is_logical(&status.model);
        if self.tunnels.counts.is_empty() && !self.ports.values().any(is_there) {
            return;
        }
        let mut wanted: BTreeMap<Place, IpAddr> = BTreeMap::new();
        let mut table = Vec::new();
        let mut counts = BTreeMap::new();
        for (number, status) in &self.ports {
            if !is_logical(&status.model) {
                continue;
            }
            let counted = self.tunnels.counts.get(number).cloned().unwrap_or_default();
            counts.insert(*number, Arc::clone(&counted));
            let Some(underlay) = self.underlay(&status.model) else {
                continue;
            };
            if let Some(tunnel) = tunnel_of(&status.model) {
                let place = (underlay.model.number, tunnel.next_hop());
                wanted.insert(place, tunnel.local());
                let next_hop = self.tunnels.neighbours.mac(&place);
                table.push((Logical::from(ready(*number, tunnel, underlay, next_hop)), counted));
            } else if let model::Device::Nsh(nsh) = &status.model.device {
                table.push((Logical::from(nsh_port(*number, nsh, underlay)), counted));
            }
        }
        self.tunnels.counts = counts;
        self.tunnels.neighbours.want(&wanted);
        for ((underlay, target), local) in self.tunnels.neighbours.questions(now) {
            self.ask_for(underlay, target, local);
        }
        self.tables.set_tunnels(Tunnels::new(table), &mut self.ops);
    }

    /// Sends a question out of an underlay.
    fn ask_for(&mut self, underlay: PortNo, target: IpAddr, local: IpAddr) {
        let Some(mac) = self.ports.get(&underlay).map(|port| port.info.mac) else {
            return;
        };
        let frame = match (local, target) {
            (IpAddr::V4(local), IpAddr::V4(target)) => {
                let question = arp::Repr {
                    op: arp::REQUEST,
                    sha: mac,
                    spa: local,
                    tha: Mac::ZERO,
                    tpa: target,
                };
                Builder::ethernet(Mac([0xff; 6]), mac)
                    .arp(question)
                    .pad_to(FRAME_MIN)
                    .build()
            }
            (IpAddr::V6(local), IpAddr::V6(target)) => {
                let [.., b13, b14, b15] = target.octets();
                // The solicited-node address (RFC 4291, section 2.7.1).
                let group = Ipv6Addr::new(
                    0xff02,
                    0,
                    0,
                    0,
                    0,
                    1,
                    0xff00 | u16::from(b13),
                    u16::from_be_bytes([b14, b15]),
                );
                let question = NdRepr {
                    kind: NEIGHBOR_SOLICIT,
                    flags: 0,
                    target,
                    lla: Some(mac),
                };
                discovery(
                    Mac([0x33, 0x33, 0xff, b13, b14, b15]),
                    mac,
                    local,
                    group,
                    question,
                )
            }
            _ => return,
        };
        self.say(underlay, &frame);
    }

    fn say(&mut self, underlay: PortNo, frame: &[u8]) {
        // Without a buffer it is not said, and said again later.
        let _no_buffer = self
            .datapath
            .packet_out(PortNo::CONTROLLER, &[Action::output(underlay)], frame);
    }

    /// Takes a question or an answer that came in at an underlay.
    pub(super) fn neighbour(&mut self, underlay: PortNo, packet: &B::Packet) {
        let mut bytes = Vec::new();
        packet.copy_to(&mut bytes, usize::MAX);
        let Some(mac) = self.ports.get(&underlay).map(|port| port.info.mac) else {
            return;
        };
        let is_local = |address: IpAddr| {
            let tunnels = self.ports.values().filter_map(|port| tunnel_of(&port.model));
            let underlay = self.ports.get(&underlay);
            tunnels
                .filter(|tunnel| underlay.is_some_and(|port| port.model.name == *tunnel.underlay()))
                .any(|tunnel| tunnel.local() == address)
        };
        let Some(said) = read(&bytes).filter(|said| is_local(said.local)) else {
            return;
        };
        if let (true, IpAddr::V4(local), IpAddr::V4(other)) = (said.is_question, said.local, said.other) {
            let answer = arp::Repr {
                op: arp::REPLY,
                sha: mac,
                spa: local,
                tha: said.mac,
                tpa: other,
            };
            let frame = Builder::ethernet(said.mac, mac)
                .arp(answer)
                .pad_to(FRAME_MIN)
                .build();
            self.say(underlay, &frame);
        }
        if let (true, IpAddr::V6(local), IpAddr::V6(other)) = (said.is_question, said.local, said.other) {
            let answer = NdRepr {
                kind: NEIGHBOR_ADVERT,
                flags: SOLICITED_OVERRIDE,
                target: local,
                lla: Some(mac),
            };
            let frame = discovery(said.mac, mac, local, other, answer);
            self.say(underlay, &frame);
        }
        let now = self.datapath.now();
        if self
            .tunnels
            .neighbours
            .heard((underlay, said.other), said.mac, now)
        {
            tracing::info!(bridge = %self.config.name, %underlay, address = %said.other, mac = %said.mac, "neighbour");
            self.tend_tunnels(now);
            self.look_at_links();
        }
    }
}

/// What workers need to know of a tunnel.
fn ready(port: PortNo, tunnel: &model::Tunnel, underlay: &PortStatus, next_hop: Option<Mac>) -> Tunnel {
    Tunnel {
        port,
        kind: tunnel.kind(),
        local: tunnel.local(),
        remote: tunnel.remote(),
        key: match tunnel.key() {
            model::TunnelKey::None => TunnelKey::None,
            model::TunnelKey::Fixed(key) => TunnelKey::Fixed(key),
            model::TunnelKey::Flow => TunnelKey::Flow,
        },
        underlay: underlay.model.number,
        local_mac: underlay.info.mac,
        next_hop,
        udp_port: tunnel.udp_port(),
        ttl: tunnel.ttl(),
        dscp: tunnel.dscp(),
        checksum: tunnel.checksum(),
        mtu: underlay.model.mtu.get(),
    }
}

/// What workers need to know of a port of service paths.
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

fn discovery(dst_mac: Mac, src_mac: Mac, src: Ipv6Addr, dst: Ipv6Addr, what: NdRepr) -> Vec<u8> {
    let header = ipv6::Repr {
        src,
        dst,
        next_header: IpProto::ICMPV6,
        dscp: Dscp::default(),
        ecn: Ecn::default(),
        flow_label: FlowLabel::default(),
        // RFC 4861, section 7.1: from farther away it would have less.
        hop_limit: 255,
        // That of what is in it.
        payload_size: 0,
    };
    Builder::ethernet(dst_mac, src_mac)
        .ipv6_with(header)
        .neighbor(what)
        .build()
}

/// What a neighbour said.
struct Said {
    /// True if it asks for us; otherwise it answers us.
    is_question: bool,
    /// Our address.
    local: IpAddr,
    /// Its addresses.
    other: IpAddr,
    mac: Mac,
}

/// Reads ARP and neighbour discovery; `None` for anything else, and what RFC 826 and RFC 4861 call invalid.
fn read(frame: &[u8]) -> Option<Said> {
    let (header, rest) = frame.split_first_chunk::<{ ethernet::SIZE }>()?;
    let ether_type = EtherType(u16::from_be_bytes([header[12], header[13]]));
    if ether_type == EtherType::ARP {
        let said = arp::Repr::parse(&arp::View::new(rest).ok()?);
        return Some(Said {
            is_question: said.op == arp::REQUEST,
            local: said.tpa.into(),
            other: said.spa.into(),
            mac: said.sha,
        });
    }
    let ip = ipv6::View::new(rest)
        .ok()
        .filter(|_| ether_type == EtherType::IPV6)?;
    if ip.hop_limit() != 255 || ip.next_header() != IpProto::ICMPV6 {
        return None;
    }
    let message = icmpv6::View::new(ip.payload()).ok()?;
    let is_good = message.code() == 0 && message.checksum_is_right(&ip.pseudo());
    let said = NdRepr::parse(&message.neighbor().ok().filter(|_| is_good)?);
    let is_question = said.kind == NEIGHBOR_SOLICIT;
    let [.., s0, s1, s2, s3, s4, s5, _, _] = *header;
    // Who asks for duplicates of an address that it does not have yet has none.
    let sender = Some(ip.src()).filter(|src| !src.is_unspecified());
    Some(Said {
        is_question,
        local: if is_question { said.target } else { ip.dst() }.into(),
        other: if is_question { sender? } else { said.target }.into(),
        mac: said.lla.unwrap_or(Mac([s0, s1, s2, s3, s4, s5])),
    })
}
