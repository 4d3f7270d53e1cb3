//! The tunnels of a bridge, found by port and by outer headers.

use core::net::IpAddr;
use std::collections::HashMap;
use std::sync::Arc;

use millrace_types::{Mac, PortNo, ServicePath};
use millrace_wire::tunnel::{Outer, OuterFields, OuterHeaders, TunnelKind};

use super::{CompiledTunnel, Encapsulation, Logical, NshPath, NshPort, Tunnel, TunnelCounts, TunnelKey};

/// The fields of outer headers that identify a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct End {
    underlay: PortNo,
    kind: TunnelKind,
    udp_port: u16,
    local: IpAddr,
    remote: IpAddr,
    key: TunnelKey,
}

/// A port that is the underlay of tunnels.
#[derive(Clone, Debug)]
struct Underlay {
    port: PortNo,
    mac: Mac,
    /// The local addresses of tunnels over this port.
    locals: Vec<IpAddr>,
    /// The UDP destination ports of tunnels, zero for GRE, and their encapsulations.
    udp_ports: Vec<(u16, TunnelKind)>,
    /// True if the underlay receives packets with network service headers.
    has_paths: bool,
}

/// The tunnels of a bridge.
#[derive(Clone, Debug, Default)]
pub struct Tunnels {
    compiled: Vec<CompiledTunnel>,
    /// The ports in ascending order, each with its index in `compiled`.
    by_port: Vec<(PortNo, usize)>,
    ends: HashMap<End, usize>,
    /// The indices in `compiled` of the ports of service paths, by underlay and accepted path.
    paths: HashMap<(PortNo, NshPath), usize>,
    underlays: Vec<Underlay>,
}

/// Compares only the tunnels and the identity of their counters: all other fields follow from these.
impl PartialEq for Tunnels {
    fn eq(&self, other: &Tunnels) -> bool {
        let both = || self.compiled.iter().zip(&other.compiled);
        self.compiled.len() == other.compiled.len()
            && both().all(|(one, other)| {
                one.encapsulation == other.encapsulation && Arc::ptr_eq(&one.counts, &other.counts)
            })
    }
}

impl Tunnels {
    /// Returns the table of these ports, with their counters. If two ports select the same packets, the later port
    /// receives them.
    pub fn new<L: Into<Logical>>(ports: impl IntoIterator<Item = (L, Arc<TunnelCounts>)>) -> Tunnels {
        let mut table = Tunnels::default();
        for (port, counts) in ports {
            match port.into() {
                Logical::Tunnel(tunnel) => table.add(tunnel, counts),
                Logical::Nsh(port) => table.add_nsh(port, counts),
            }
        }
        table.by_port.sort_unstable();
        table
    }

    fn add(&mut self, tunnel: Tunnel, counts: Arc<TunnelCounts>) {
        let envelope = tunnel.next_hop.and_then(|next_hop| {
            OuterHeaders::new(&OuterFields {
                kind: tunnel.kind,
                src_mac: tunnel.local_mac,
                dst_mac: next_hop,
                local: tunnel.local,
                remote: tunnel.remote,
                udp_port: tunnel.udp_port,
                has_key: tunnel.key != TunnelKey::None,
                ttl: tunnel.ttl,
                checksum: tunnel.checksum,
            })
        });
        let udp_port = tunnel.kind.udp_port().map_or(0, |_| tunnel.udp_port);
        let end = End {
            underlay: tunnel.underlay,
            kind: tunnel.kind,
            udp_port,
            local: tunnel.local,
            remote: tunnel.remote,
            key: tunnel.key,
        };
        self.ends.insert(end, self.compiled.len());
        let underlay = self.underlay_mut(tunnel.underlay, tunnel.local_mac);
        if !underlay.locals.contains(&tunnel.local) {
            underlay.locals.push(tunnel.local);
        }
        let meaning = (udp_port, tunnel.kind);
        if !underlay.udp_ports.contains(&meaning) {
            underlay.udp_ports.push(meaning);
        }
        let (port, underlay) = (tunnel.port, tunnel.underlay);
        self.push(port, underlay, Encapsulation::Ip(tunnel, envelope), counts);
    }

    fn add_nsh(&mut self, port: NshPort, counts: Arc<TunnelCounts>) {
        self.underlay_mut(port.underlay, port.local_mac).has_paths = true;
        if port.takes != NshPath::None {
            self.paths
                .insert((port.underlay, port.takes), self.compiled.len());
        }
        self.push(port.port, port.underlay, Encapsulation::Nsh(port), counts);
    }

    fn push(
        &mut self,
        port: PortNo,
        underlay: PortNo,
        encapsulation: Encapsulation,
        counts: Arc<TunnelCounts>,
    ) {
        self.by_port.push((port, self.compiled.len()));
        self.compiled.push(CompiledTunnel {
            port,
            underlay,
            encapsulation,
            counts,
        });
    }

    /// Returns the underlay with this number; adds it first if the table has none.
    fn underlay_mut(&mut self, port: PortNo, mac: Mac) -> &mut Underlay {
        let at = self.underlays.iter().position(|held| held.port == port);
        let at = at.unwrap_or_else(|| {
            self.underlays.push(Underlay {
                port,
                mac,
                locals: Vec::new(),
                udp_ports: Vec::new(),
                has_paths: false,
            });
            self.underlays.len() - 1
        });
        &mut self.underlays[at]
    }

    /// Returns true if there is no tunnel.
    pub fn is_empty(&self) -> bool {
        self.compiled.is_empty()
    }

    /// Returns the tunnel of a logical port.
    #[inline]
    pub(crate) fn find(&self, port: PortNo) -> Option<&CompiledTunnel> {
        let at = self.by_port.binary_search_by_key(&port, |(port, _)| *port).ok()?;
        self.compiled.get(self.by_port.get(at)?.1)
    }

    /// Returns true if a port is the underlay of a logical port.
    #[inline]
    pub(crate) fn has_underlay(&self, port: PortNo) -> bool {
        self.underlays.iter().any(|held| held.port == port)
    }

    fn underlay(&self, port: PortNo) -> Option<&Underlay> {
        self.underlays.iter().find(|held| held.port == port)
    }

    /// Returns the UDP destination ports of tunnels at an underlay, zero for GRE.
    pub(crate) fn udp_ports(&self, underlay: PortNo) -> &[(u16, TunnelKind)] {
        self.underlay(underlay).map_or(&[], |held| &held.udp_ports)
    }

    /// Returns true if an address is local at an underlay.
    pub(crate) fn is_local(&self, underlay: PortNo, address: IpAddr) -> bool {
        self.underlay(underlay)
            .is_some_and(|held| held.locals.contains(&address))
    }

    /// Returns true if a frame with this destination address is for the switch itself at an underlay: unicast to the
    /// underlay's address, or multicast.
    pub(crate) fn is_ours(&self, underlay: PortNo, dst: Mac) -> bool {
        self.underlay(underlay)
            .is_some_and(|held| held.mac == dst || dst.is_multicast())
    }

    /// Returns true if an underlay receives packets with network service headers.
    #[inline]
    pub(crate) fn has_paths(&self, underlay: PortNo) -> bool {
        self.underlay(underlay).is_some_and(|held| held.has_paths)
    }

    /// Returns the port that accepts packets at this index of a service path.
    pub(crate) fn of_path(&self, underlay: PortNo, path: ServicePath) -> Option<&CompiledTunnel> {
        let at = self
            .paths
            .get(&(underlay, NshPath::Fixed(path)))
            .or_else(|| self.paths.get(&(underlay, NshPath::Flow)))?;
        self.compiled.get(*at)
    }

    /// Returns the tunnel to which outer headers belong, and the local MAC address on its underlay's link.
    pub(crate) fn of_envelope(&self, underlay: PortNo, outer: &Outer) -> Option<(&CompiledTunnel, Mac)> {
        let key = outer.key.map_or(TunnelKey::None, TunnelKey::Fixed);
        let end = End {
            underlay,
            kind: outer.kind,
            udp_port: outer.udp_port,
            local: outer.dst,
            remote: outer.src,
            key,
        };
        let any = End {
            key: TunnelKey::Flow,
            ..end
        };
        let at = self.ends.get(&end).or_else(|| self.ends.get(&any))?;
        Some((self.compiled.get(*at)?, self.underlay(underlay)?.mac))
    }
}
