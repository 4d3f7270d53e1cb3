//! Routes, next hops and neighbours as `millrace show` and REST display them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use millrace_fib::{Family, GroupId, NextHopSpec, Prefix, Usage};
use millrace_types::Mac;

use crate::event::{Dump, Link, LinkKind, NeighbourState, Netns, RouteKind, Source};
use crate::rib::{Counts, Rib, Vrf, VrfId};
use crate::routes::{Entry, Origin, Record};

/// A route of a VRF and its next hops, as the RIB has them now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteView {
    pub prefix: Prefix,
    pub kind: RouteKind,
    pub metric: u32,
    pub protocol: u8,
    pub source: Source,
    /// True if it is the kernel's table `local` that has the route.
    pub is_local_table: bool,
    /// True if the FIB has the route.
    pub is_installed: bool,
    /// The group of its next hops.
    pub group: GroupId,
    pub next_hops: Vec<HopView>,
}

/// A next hop of a route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HopView {
    pub spec: NextHopSpec,
    /// The name of the link in the namespace; empty if the next hop has none.
    pub link: String,
    pub weight: u32,
    /// True if its link is up and its neighbour has not failed.
    pub is_live: bool,
}

/// A neighbour and its MAC address, as the kernel has them now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NeighbourView {
    pub link: String,
    pub address: IpAddr,
    pub mac: Option<Mac>,
    pub state: NeighbourState,
}

/// The numbers of a VRF.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VrfSummary {
    /// The number of prefixes that the FIB has, IPv4 and IPv6; without those of neighbours.
    pub prefixes: [usize; 2],
    /// The number of groups of next hops that they use.
    pub groups: usize,
    /// The number of neighbours with a route of their own.
    pub hosts: usize,
    /// True if all routes of the kernel were read since the namespace was opened, and FPM's replay is complete.
    pub is_synchronised: bool,
}

impl Rib {
    /// Returns the numbers of a VRF, which are kept with each change.
    pub fn summary(&self, id: VrfId) -> VrfSummary {
        let Some(vrf) = self.vrf(id.0 as usize) else {
            return VrfSummary::default();
        };
        let tally = vrf.routes.tally();
        VrfSummary {
            prefixes: tally.prefixes,
            groups: tally.groups_len(),
            hosts: vrf.hosts.len(),
            is_synchronised: self.namespaces.get(&vrf.netns).is_some_and(|namespace| {
                let is_read = |family| namespace.read.contains(&Dump::Routes(family));
                is_read(Family::V4) && is_read(Family::V6) && namespace.replay.is_none()
            }),
        }
    }

    /// Returns the number of neighbours with a MAC address on the links of the VRF's namespace that `is_counted` accepts by
    /// name.
    pub fn neighbours_len(&self, id: VrfId, is_counted: impl Fn(&str) -> bool) -> usize {
        let namespace = self
            .vrf(id.0 as usize)
            .and_then(|vrf| self.namespaces.get(&vrf.netns));
        let Some(namespace) = namespace else {
            return 0;
        };
        let counted = namespace
            .links
            .values()
            .filter(|record| record.link.kind != LinkKind::Loopback && is_counted(&record.link.name));
        counted
            .map(|record| {
                let on_link = namespace.neighbours_on(record.link.ifindex);
                on_link.filter(|(_, neighbour)| neighbour.mac.is_some()).count()
            })
            .sum()
    }

    /// Returns the routes of a VRF, in no order.
    pub fn routes(&self, id: VrfId) -> impl Iterator<Item = RouteView> {
        let vrf = self.vrf(id.0 as usize);
        vrf.into_iter().flat_map(move |vrf| {
            vrf.routes
                .iter()
                .flat_map(move |(prefix, entry)| self.views(prefix, entry))
        })
    }

    /// Returns routes of a VRF that packets follow, without those to multicast groups, in the order of prefixes: those of
    /// `within` and longer ones that come after `after`, `count` at most. The cost is that of a look at each prefix of a
    /// family.
    pub fn page(
        &self,
        id: VrfId,
        within: Option<&Prefix>,
        after: Option<&Prefix>,
        count: usize,
    ) -> Vec<RouteView> {
        let Some(vrf) = self.vrf(id.0 as usize) else {
            return Vec::new();
        };
        let is_followed = |entry: &Entry| {
            let followed = self
                .shown(entry)
                .filter(|record| record.kind != RouteKind::Multicast);
            !entry.installed.is_none() && followed.is_some()
        };
        let prefixes = vrf.routes.first(after, count, |prefix, entry| {
            within.is_none_or(|within| within.covers(prefix)) && is_followed(entry)
        });
        let view = |prefix: &Prefix| {
            let mut routes = self.route(id, prefix).into_iter();
            routes.find(|route| route.is_installed)
        };
        prefixes.iter().filter_map(view).collect()
    }

    /// Returns the routes of one prefix.
    pub fn route(&self, id: VrfId, prefix: &Prefix) -> Vec<RouteView> {
        let entry = self.vrf(id.0 as usize).and_then(|vrf| vrf.routes.get(prefix));
        entry.map(|entry| self.views(*prefix, entry)).unwrap_or_default()
    }

    /// Returns the route that packets to an address take.
    pub fn explain(&self, id: VrfId, address: IpAddr) -> Option<RouteView> {
        let vrf = self.vrf(id.0 as usize)?;
        let usable = |entry: &Entry| !entry.is_empty() && !entry.installed.is_none();
        let (prefix, entry) = vrf.routes.longest(&Prefix::host(address), usable)?;
        self.views(prefix, entry)
            .into_iter()
            .find(|view| view.is_installed)
    }

    /// Returns the link by which packets to a neighbour at an interface of the router leave: that of the interface, or a macvlan
    /// over it that has the neighbour's network. `None` if no route leads to the interface.
    pub fn link_towards(&self, id: VrfId, address: IpAddr, interface: u16) -> Option<u32> {
        let vrf = self.vrf(id.0 as usize)?;
        // The route of the network: a neighbour's own begins with its first answer.
        let usable = |entry: &Entry| self.shown(entry).is_some() && !entry.installed.is_none();
        let (_, entry) = vrf.routes.longest(&Prefix::host(address), usable)?;
        let set = self.hops.set(self.shown(entry)?.set)?;
        let links = set
            .members
            .iter()
            .filter_map(|(member, _)| self.hops.adjacency(*member)?.key.link());
        let of_interface = |(netns, ifindex): &(Netns, u32)| {
            self.interface_of(*netns, *ifindex)
                .is_some_and(|(index, _)| index == interface)
        };
        links.into_iter().find(of_interface).map(|(_, ifindex)| ifindex)
    }

    /// Returns the route that the FIB has for an entry, if the FIB has one.
    pub(crate) fn shown<'a>(&self, entry: &'a Entry) -> Option<&'a Record> {
        let installed = |record: &Record| self.group_of(record.set) == entry.installed;
        // A neighbour's route of its own stands before a connected one of its prefix.
        entry.best(installed).or_else(|| entry.best(|_| true))
    }

    fn views(&self, prefix: Prefix, entry: &Entry) -> Vec<RouteView> {
        let best = self.shown(entry).copied();
        let view = |record: &Record| RouteView {
            prefix,
            kind: record.kind,
            metric: record.metric,
            protocol: record.protocol,
            source: record.origin.source(),
            is_local_table: record.origin == Origin::LocalTable,
            is_installed: !entry.installed.is_none() && best == Some(*record),
            group: self.group_of(record.set),
            next_hops: self.hop_views(record),
        };
        entry.records().iter().map(view).collect()
    }

    fn hop_views(&self, record: &Record) -> Vec<HopView> {
        let Some(set) = self.hops.set(record.set) else {
            return Vec::new();
        };
        let view = |(at, (id, weight)): (usize, &(crate::hops::AdjacencyId, u32))| {
            let adjacency = self.hops.adjacency(*id)?;
            let link = adjacency
                .key
                .link()
                .and_then(|(netns, ifindex)| self.namespaces.get(&netns)?.link(ifindex));
            Some(HopView {
                spec: self.writer.next_hop(adjacency.next_hop)?.spec(),
                link: link.map(|link| link.name.clone()).unwrap_or_default(),
                weight: *weight,
                is_live: adjacency.is_live && !set.dead.get(at).copied().unwrap_or_default(),
            })
        };
        set.members.iter().enumerate().filter_map(view).collect()
    }

    /// Returns the neighbours of the VRF's namespace on links other than the loopback.
    pub fn neighbours(&self, id: VrfId) -> Vec<NeighbourView> {
        let namespace = self
            .vrf(id.0 as usize)
            .and_then(|vrf| self.namespaces.get(&vrf.netns));
        let Some(namespace) = namespace else {
            return Vec::new();
        };
        let view = |((ifindex, address), record): (&(u32, IpAddr), &crate::namespace::NeighbourRecord)| {
            let link = namespace
                .link(*ifindex)
                .filter(|link| link.kind != LinkKind::Loopback)?;
            Some(NeighbourView {
                link: link.name.clone(),
                address: *address,
                mac: record.mac,
                state: record.state,
            })
        };
        namespace.neighbours.iter().filter_map(view).collect()
    }

    /// Returns the MTU of a link in bytes; `None` if there is no link of this name.
    pub fn link_mtu(&self, netns: Netns, name: &str) -> Option<u16> {
        let [ifindex] = self.links_named(netns, name)[..] else {
            return None;
        };
        let link = self.namespaces.get(&netns)?.link(ifindex)?;
        Some(u16::try_from(link.mtu).unwrap_or(u16::MAX))
    }

    /// Returns the addresses at which the kernel receives on the router's interfaces, by their names: that of each, which an
    /// administrator may have changed, and those of macvlans with a carrier and an IP address of their own.
    ///
    /// The macvlan of a VRRP router has both only while the router is the master (RFC 9568, section 7.3): FRR takes a backup's
    /// carrier (`protodown`), and keepalived its IP addresses. An address that the kernel makes of the MAC address (RFC 4291,
    /// appendix A) is none of its own.
    pub fn receiving_addresses(&self, netns: Netns) -> BTreeMap<&str, BTreeSet<Mac>> {
        let mut addresses: BTreeMap<&str, BTreeSet<Mac>> = BTreeMap::new();
        let Some(namespace) = self.namespaces.get(&netns) else {
            return addresses;
        };
        for record in namespace.links.values() {
            let Link { name, mac, .. } = &record.link;
            if self.interfaces.contains_key(&(netns, name.clone())) {
                addresses.entry(name).or_default().insert(*mac);
            }
        }
        let macvlans = namespace
            .macvlans
            .iter()
            .filter_map(|ifindex| namespace.links.get(ifindex));
        for record in macvlans {
            let LinkKind::Macvlan { lower } = record.link.kind else {
                continue;
            };
            let made = link_local(record.link.mac);
            let has_own = record.addresses.iter().any(|address| address.address != made);
            if record.link.up
                && record.link.carrier
                && has_own
                && let Some(below) = namespace.link(lower)
            {
                addresses.entry(&below.name).or_default().insert(record.link.mac);
            }
        }
        addresses
    }

    /// Returns true if the VRF's namespace exists.
    pub fn is_open(&self, id: VrfId) -> bool {
        let of = |vrf: &Vrf| {
            self.namespaces
                .get(&vrf.netns)
                .is_some_and(|namespace| namespace.is_open)
        };
        self.vrf(id.0 as usize).is_some_and(of)
    }

    /// Returns the counters.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the numbers of objects of all FIBs, and their memory.
    pub fn usage(&self) -> Usage {
        self.writer.usage()
    }
}

/// Returns the link-local address that the kernel makes of a MAC address (RFC 4291, appendix A).
fn link_local(mac: Mac) -> IpAddr {
    let [a, b, c, d, e, f] = mac.0;
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]).into()
}
