//! The ends of tunnels that a VRF carries: which packets to this machine belong to a tunnel, and the port of the bridge that
//! decapsulates them.
//!
//! ```text
//!  bridge: output to a tunnel --> encapsulated --> underlay port --ring--> routed in the VRF, as packets of this machine
//!  VRF: packet to this machine, of a tunnel ------> underlay port of the tunnel's bridge ------> decapsulated --> tables
//! ```
//! Frames between the router and an underlay port have [`UNDERLAY_MAC`] as both addresses.

use core::net::IpAddr;
use std::collections::HashMap;

use millrace_pipeline::TunnelKey;
use millrace_types::{Mac, PortNo};
use millrace_wire::Packet;
use millrace_wire::tunnel::{Outer, TunnelKind};

use crate::glean::Glean;

/// Both MAC addresses of frames between the router and an underlay port; no such frame is ever on a link.
pub const UNDERLAY_MAC: Mac = Mac([0x02, 0, 0, 0, 0, 0]);

/// The underlay port of a bridge: the index of the bridge in the router, and the number of the port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnderlayPort {
    pub bridge: u16,
    pub port: PortNo,
}

/// The local end of a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TunnelEnd {
    pub kind: TunnelKind,
    /// The UDP destination port; zero for GRE.
    pub udp_port: u16,
    pub local: IpAddr,
    pub remote: IpAddr,
    pub key: TunnelKey,
}

/// The tunnels of a VRF.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TunnelEnds {
    ports: HashMap<TunnelEnd, UnderlayPort>,
    locals: Vec<IpAddr>,
    udp_ports: Vec<(u16, TunnelKind)>,
}

impl TunnelEnds {
    /// Returns the table of these tunnels.
    pub fn new(tunnels: impl IntoIterator<Item = (TunnelEnd, UnderlayPort)>) -> TunnelEnds {
        let mut ends = TunnelEnds::default();
        for (end, port) in tunnels {
            if !ends.locals.contains(&end.local) {
                ends.locals.push(end.local);
            }
            let meaning = (end.udp_port, end.kind);
            if !ends.udp_ports.contains(&meaning) {
                ends.udp_ports.push(meaning);
            }
            ends.ports.insert(end, port);
        }
        ends
    }

    /// Returns true if there is no tunnel.
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// Returns the port that decapsulates a frame without tag; `None` if the frame is of no kind of tunnel at its local address.
    /// A frame of an unknown sender or key goes to a port with such tunnels, which drops it under the name that says so.
    pub(crate) fn port_of<P: Packet>(&self, frame: &P) -> Option<UnderlayPort> {
        let is_local = |address| self.locals.contains(&address);
        let found = Outer::find(frame.head(), frame.len(), &self.udp_ports, is_local)?;
        let Ok(outer) = found else {
            return self.ports.values().next().copied();
        };
        let end = TunnelEnd {
            kind: outer.kind,
            udp_port: outer.udp_port,
            local: outer.dst,
            remote: outer.src,
            key: outer.key.map_or(TunnelKey::None, TunnelKey::Fixed),
        };
        let any = TunnelEnd {
            key: TunnelKey::Flow,
            ..end
        };
        let exact = self.ports.get(&end).or_else(|| self.ports.get(&any));
        let similar = || {
            let mut ports = self.ports.iter();
            ports
                .find(|(held, _)| (held.kind, held.local) == (end.kind, end.local))
                .map(|(_, port)| port)
        };
        exact.or_else(similar).copied()
    }
}

/// The way to the remote end of a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TunnelPath {
    /// The VRF has no route to it, or no interface of the route is up.
    None,
    /// The MAC address of the next hop is not known: this interface of the router is to ask for this address.
    Unresolved(Glean),
    /// Packets reach the next hop. The IP packet is at most this long, in bytes, on all members of the route's group.
    There { mtu: u16 },
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_wire::{Builder, Frame};

    const PORT: UnderlayPort = UnderlayPort {
        bridge: 1,
        port: PortNo::from_raw(100),
    };
    const OTHER: UnderlayPort = UnderlayPort {
        bridge: 2,
        port: PortNo::from_raw(100),
    };

    fn end(key: TunnelKey) -> TunnelEnd {
        TunnelEnd {
            kind: TunnelKind::Vxlan,
            udp_port: 4789,
            local: [10, 0, 0, 1].into(),
            remote: [10, 0, 0, 2].into(),
            key,
        }
    }

    fn frame(src: [u8; 4], dst: [u8; 4], udp_port: u16, vni: u32) -> Frame {
        let mut payload = vec![8, 0, 0, 0];
        payload.extend((vni << 8).to_be_bytes());
        payload.extend([0; 60]);
        let builder = Builder::ethernet(UNDERLAY_MAC, UNDERLAY_MAC).ipv4(src, dst);
        Frame::new(&builder.udp(50_000, udp_port).payload(&payload).build())
    }

    #[test]
    fn packets_of_a_tunnel_go_to_its_bridge_and_others_to_the_kernel() {
        let (near, far) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let ends = TunnelEnds::new([(end(TunnelKey::Fixed(42)), PORT), (end(TunnelKey::Flow), OTHER)]);
        assert_eq!(ends.port_of(&frame(far, near, 4789, 42)), Some(PORT));
        assert_eq!(ends.port_of(&frame(far, near, 4789, 43)), Some(OTHER));
        // A sender that is no end of a tunnel: a port with tunnels names the drop.
        assert!(ends.port_of(&frame([10, 0, 0, 9], near, 4789, 42)).is_some());
        assert_eq!(ends.port_of(&frame(far, near, 53, 42)), None);
        assert_eq!(ends.port_of(&frame(far, [10, 0, 0, 3], 4789, 42)), None);
        assert!(TunnelEnds::default().is_empty() && !ends.is_empty());
    }
}
