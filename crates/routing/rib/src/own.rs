//! Routes as this machine uses them for packets of its own: the link by which a packet leaves, and its source address.

use std::collections::BTreeSet;
use std::net::IpAddr;

use millrace_fib::{Family, Prefix};

use crate::event::{Link, LinkKind, Netns, RouteKind};
use crate::hops::AdjacencyKey;
use crate::namespace::LinkRecord;
use crate::rib::{Rib, VrfId};
use crate::routes::{Entry, Record};

/// The route of a packet of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnRoute {
    /// The name of the link by which the packet leaves: of a group of next hops, that of the first live one.
    pub link: String,
    /// True if the link is up and has a carrier.
    pub is_up: bool,
    /// True if the link is an interface of the router in the VRF.
    pub is_interface: bool,
    /// The address that the packet has as source if its sender asks for none: the preferred one of the route, or else one of
    /// the link. `None` if neither has any.
    pub source: Option<IpAddr>,
}

/// A route as the machine uses it for packets of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnPrefix {
    pub prefix: Prefix,
    /// True if packets do not leave the machine.
    pub is_local: bool,
    pub gateway: Option<IpAddr>,
    pub route: OwnRoute,
}

impl Rib {
    /// Returns the route of a packet of this machine to an address; `None` if there is none, or if the packet would not leave
    /// the machine.
    pub fn own_route(&self, id: VrfId, address: IpAddr) -> Option<OwnRoute> {
        let vrf = self.vrf(id.0 as usize)?;
        // The route of the network: that of a neighbour says no more.
        let usable = |entry: &Entry| self.shown(entry).is_some() && !entry.installed.is_none();
        let (_, entry) = vrf.routes.longest(&Prefix::host(address), usable)?;
        let record = self.shown(entry)?;
        if record.kind != RouteKind::Unicast {
            return None;
        }
        self.by_record(id, record, address).map(|(_, route)| route)
    }

    /// Returns the routes of a VRF to addresses of one host and to networks of which packets of this machine take one, in no
    /// order.
    pub fn own_prefixes(&self, id: VrfId) -> impl Iterator<Item = OwnPrefix> {
        let entries = self.vrf(id.0 as usize).map(|vrf| vrf.routes.iter());
        entries.into_iter().flatten().filter_map(move |(prefix, entry)| {
            let record = self.shown(entry).filter(|_| !entry.installed.is_none())?;
            if !matches!(record.kind, RouteKind::Unicast | RouteKind::Local) {
                return None;
            }
            let (gateway, route) = self.by_record(id, record, prefix.address())?;
            Some(OwnPrefix {
                prefix,
                is_local: record.kind == RouteKind::Local,
                gateway,
                route,
            })
        })
    }

    /// Returns the gateway and the route of packets to an address by a record.
    fn by_record(&self, id: VrfId, record: &Record, address: IpAddr) -> Option<(Option<IpAddr>, OwnRoute)> {
        let set = self.hops.set(record.set)?;
        let mut members = set
            .members
            .iter()
            .filter_map(|(member, _)| self.hops.adjacency(*member));
        let live = members.clone().find(|member| member.is_live);
        let key = live.or_else(|| members.next())?.key;
        let (netns, ifindex) = key.link()?;
        let gateway = match key {
            AdjacencyKey::Neighbour { gateway, .. } => gateway,
            _ => None,
        };
        let link = self.namespaces.get(&netns)?.links.get(&ifindex)?;
        let Link {
            name, up, carrier, ..
        } = &link.link;
        let preferred = self.source_addresses.address(record.source_address);
        let route = OwnRoute {
            link: name.clone(),
            is_up: *up && *carrier,
            is_interface: self
                .router_interface(netns, ifindex)
                .is_some_and(|held| held.vrf == id),
            source: preferred.or_else(|| source_towards(link, gateway.unwrap_or(address), address)),
        };
        Some((gateway, route))
    }

    /// Returns the links of a namespace that have an address with a meaning beyond the link, by name.
    pub fn addressed_links(&self, netns: Netns) -> BTreeSet<&str> {
        let links = self
            .namespaces
            .get(&netns)
            .map(|namespace| namespace.links.values());
        let has_address = |record: &&LinkRecord| {
            record.link.kind != LinkKind::Loopback
                && record.addresses.iter().any(|held| !is_of_link(held.address))
        };
        links
            .into_iter()
            .flatten()
            .filter(has_address)
            .map(|record| record.link.name.as_str())
            .collect()
    }
}

/// Returns the address of a link for packets to an address behind a next hop: for IPv4 the first in the network of the next hop,
/// or else the first (as the kernel's `inet_select_addr`); for IPv6 the one with the longest prefix in common with the
/// destination (RFC 6724, section 5, rule 8).
fn source_towards(link: &LinkRecord, next_hop: IpAddr, destination: IpAddr) -> Option<IpAddr> {
    let is_like = |own: IpAddr| {
        Family::of(&own) == Family::of(&destination) && is_of_link(own) == is_of_link(destination)
    };
    let mut usable = link.addresses.iter().filter(|held| is_like(held.address));
    let has_network = |held: &&crate::event::Address| {
        let network = Prefix::new(held.peer.unwrap_or(held.address), held.prefix_len);
        network.is_ok_and(|network| network.contains(next_hop))
    };
    let found = match destination {
        IpAddr::V4(_) => usable.clone().find(has_network).or_else(|| usable.next()),
        IpAddr::V6(to) => {
            let shared = |held: &&crate::event::Address| match held.address {
                IpAddr::V6(own) => (own.to_bits() ^ to.to_bits())
                    .leading_zeros()
                    .min(held.prefix_len.into()),
                IpAddr::V4(_) => 0,
            };
            // Of several, the first.
            usable.rev().max_by_key(shared)
        }
    };
    found.map(|held| held.address)
}

fn is_of_link(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}
