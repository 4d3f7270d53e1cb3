//! All tunnels of a bridge, found by port and by envelope.

use core::net::IpAddr;
use std::collections::HashMap;
use std::sync::Arc;

use millrace_types::{Mac, PortNo, ServicePath};
use millrace_wire::tunnel::{Ends, Envelope, Outer, TunnelKind};

use super::{Logical, NshPath, NshPort, Ready, Tunnel, TunnelCounts, TunnelKey, Way};

/// Where an envelope goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct End {
    underlay: PortNo,
    kind: TunnelKind,
    udp_port: u16,
    local: IpAddr,
    remote: IpAddr,
    key: TunnelKey,
}

/// A port under tunnels.
#[derive(Clone, Debug)]
struct Underlay {
    port: PortNo,
    mac: Mac,
    /// Our addresses there.
    locals: Vec<IpAddr>,
    /// Destination ports of UDP, and what they mean.
    udp_ports: Vec<(u16, TunnelKind)>,
    /// Whether packets come with network service headers.
    has_paths: bool,
}

/// The tunnels of a bridge.
#[derive(Clone, Debug, Default)]
pub struct Tunnels {
    ready: Vec<Ready>,
    /// The place of each in `ready`, in order of ports.
    by_port: Vec<(PortNo, usize)>,
    ends: HashMap<End, usize>,
    /// By underlay and place on a service path, or any.
    paths: HashMap<(PortNo, NshPath), usize>,
    underlays: Vec<Underlay>,
}

/// As they were given: what follows from it is the same then.
impl PartialEq for Tunnels {
    fn eq(&self, other: &Tunnels) -> bool {
        let both = || self.ready.iter().zip(&other.ready);
        self.ready.len() == other.ready.len()
            && both().all(|(one, other)| one.way == other.way && Arc::ptr_eq(&one.counts, &other.counts))
    }
}

impl Tunnels {
    /// These ports, with what they count. Of two for the same packets, the later gets them.
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
            Envelope::new(&Ends {
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
        let end = End {
            underlay: tunnel.underlay,
            kind: tunnel.kind,
            udp_port: tunnel.kind.udp_port().map_or(0, |_| tunnel.udp_port),
            local: tunnel.local,
            remote: tunnel.remote,
            key: tunnel.key,
        };
        self.ends.insert(end, self.ready.len());
        let underlay = self.underlay_mut(tunnel.underlay, tunnel.local_mac);
        if !underlay.locals.contains(&tunnel.local) {
            underlay.locals.push(tunnel.local);
        }
        let meaning = (tunnel.udp_port, tunnel.kind);
        if tunnel.kind.udp_port().is_some() && !underlay.udp_ports.contains(&meaning) {
            underlay.udp_ports.push(meaning);
        }
        let (port, underlay) = (tunnel.port, tunnel.underlay);
        self.push(port, underlay, Way::Ip(tunnel, envelope), counts);
    }

    fn add_nsh(&mut self, port: NshPort, counts: Arc<TunnelCounts>) {
        self.underlay_mut(port.underlay, port.local_mac).has_paths = true;
        if port.takes != NshPath::None {
            self.paths.insert((port.underlay, port.takes), self.ready.len());
        }
        self.push(port.port, port.underlay, Way::Nsh(port), counts);
    }

    fn push(&mut self, port: PortNo, underlay: PortNo, way: Way, counts: Arc<TunnelCounts>) {
        self.by_port.push((port, self.ready.len()));
        self.ready.push(Ready {
            port,
            underlay,
            way,
            counts,
        });
    }

    /// The port under tunnels, which is added if it is not there.
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

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// The tunnel behind a logical port.
    #[inline]
    pub(crate) fn find(&self, port: PortNo) -> Option<&Ready> {
        let at = self.by_port.binary_search_by_key(&port, |(port, _)| *port).ok()?;
        self.ready.get(self.by_port.get(at)?.1)
    }

    /// Whether envelopes come in at a port.
    #[inline]
    pub(crate) fn has_underlay(&self, port: PortNo) -> bool {
        self.underlays.iter().any(|held| held.port == port)
    }

    fn underlay(&self, port: PortNo) -> Option<&Underlay> {
        self.underlays.iter().find(|held| held.port == port)
    }

    /// Destination ports of UDP that mean a tunnel at an underlay.
    pub(crate) fn udp_ports(&self, underlay: PortNo) -> &[(u16, TunnelKind)] {
        self.underlay(underlay).map_or(&[], |held| &held.udp_ports)
    }

    /// Whether an address is ours at an underlay.
    pub(crate) fn is_local(&self, underlay: PortNo, address: IpAddr) -> bool {
        self.underlay(underlay)
            .is_some_and(|held| held.locals.contains(&address))
    }

    /// Whether a frame with this destination is for us at an underlay.
    pub(crate) fn is_ours(&self, underlay: PortNo, dst: Mac) -> bool {
        self.underlay(underlay)
            .is_some_and(|held| held.mac == dst || dst.is_multicast())
    }

    /// Whether packets with network service headers come in at a port.
    #[inline]
    pub(crate) fn has_paths(&self, underlay: PortNo) -> bool {
        self.underlay(underlay).is_some_and(|held| held.has_paths)
    }

    /// The port that takes what is at this place on a service path.
    pub(crate) fn of_path(&self, underlay: PortNo, path: ServicePath) -> Option<&Ready> {
        let at = self
            .paths
            .get(&(underlay, NshPath::Fixed(path)))
            .or_else(|| self.paths.get(&(underlay, NshPath::Flow)))?;
        self.ready.get(*at)
    }

    /// The tunnel that an envelope belongs to, and our address on its underlay's link.
    pub(crate) fn of_envelope(&self, underlay: PortNo, outer: &Outer) -> Option<(&Ready, Mac)> {
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
        Some((self.ready.get(*at)?, self.underlay(underlay)?.mac))
    }
}
