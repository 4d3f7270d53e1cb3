//! All tunnels of a bridge, found by port and by envelope.

use core::net::IpAddr;
use std::collections::HashMap;
use std::sync::Arc;

use millrace_types::{Mac, PortNo};
use millrace_wire::tunnel::{Ends, Envelope, Outer, TunnelKind};

use super::{Ready, Tunnel, TunnelCounts, TunnelKey};

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
}

/// The tunnels of a bridge.
#[derive(Clone, Debug, Default)]
pub struct Tunnels {
    ready: Vec<Ready>,
    /// The place of each in `ready`, in order of ports.
    by_port: Vec<(PortNo, usize)>,
    ends: HashMap<End, usize>,
    underlays: Vec<Underlay>,
}

/// As they were given: what follows from it is the same then.
impl PartialEq for Tunnels {
    fn eq(&self, other: &Tunnels) -> bool {
        let both = || self.ready.iter().zip(&other.ready);
        self.ready.len() == other.ready.len()
            && both()
                .all(|(one, other)| one.tunnel == other.tunnel && Arc::ptr_eq(&one.counts, &other.counts))
    }
}

impl Tunnels {
    /// These tunnels, with what they count. Of two for the same packets, the later gets them.
    pub fn new(tunnels: impl IntoIterator<Item = (Tunnel, Arc<TunnelCounts>)>) -> Tunnels {
        let mut table = Tunnels::default();
        for (tunnel, counts) in tunnels {
            table.add(tunnel, counts);
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
        let at = self
            .underlays
            .iter()
            .position(|held| held.port == tunnel.underlay);
        let at = at.unwrap_or_else(|| {
            self.underlays.push(Underlay {
                port: tunnel.underlay,
                mac: tunnel.local_mac,
                locals: Vec::new(),
                udp_ports: Vec::new(),
            });
            self.underlays.len() - 1
        });
        if let Some(underlay) = self.underlays.get_mut(at) {
            if !underlay.locals.contains(&tunnel.local) {
                underlay.locals.push(tunnel.local);
            }
            let meaning = (tunnel.udp_port, tunnel.kind);
            if tunnel.kind.udp_port().is_some() && !underlay.udp_ports.contains(&meaning) {
                underlay.udp_ports.push(meaning);
            }
        }
        self.by_port.push((tunnel.port, self.ready.len()));
        self.ready.push(Ready {
            tunnel,
            envelope,
            counts,
        });
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// The tunnels.
    pub fn iter(&self) -> impl Iterator<Item = &Tunnel> {
        self.ready.iter().map(|ready| &ready.tunnel)
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

    /// The tunnel that an envelope belongs to.
    pub(crate) fn of_envelope(&self, underlay: PortNo, outer: &Outer) -> Option<&Ready> {
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
        self.ready.get(*at)
    }
}
