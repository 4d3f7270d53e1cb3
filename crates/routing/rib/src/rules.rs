//! The consequences of links, addresses, neighbours and next-hop objects: the rules that the kernel applies, many of them
//! without a message. `tests/kernel/rules.rs` replays each against the real kernel.
//!
//! | event | what the kernel does in silence |
//! | --- | --- |
//! | link down | drops IPv4 routes all of whose next hops are on links that are down, but not local ones; drops next-hop objects on it |
//! | carrier lost | drops next-hop objects on it |
//! | link deleted | drops IPv4 routes with any next hop on it; drops next-hop objects on it |
//! | last IPv4 address of a link deleted | as link down, but keeps next-hop objects, and drops local routes, too |
//! | address deleted | drops IPv4 routes with that source |
//! | next-hop object deleted | drops routes by its number; groups lose it; a group that is then empty is deleted |
//! | link up, IPv4 address added | next hops on the link that were dead in a multipath route are alive |

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

use millrace_fib::{Family, Prefix};
use millrace_types::Time;

use crate::action::Action;
use crate::dead_hops::Loss;
use crate::event::{Address, Dump, Link, LinkKind, Neighbour, NeighbourState, Netns, NextHopObject, Source};
use crate::hops::{AdjacencyKey, Set, SetId, Via};
use crate::namespace::{LinkRecord, NeighbourRecord};
use crate::rib::{Rib, VrfId};
use crate::routes::{Origin, Record};

impl Rib {
    pub(crate) fn link_there(&mut self, netns: Netns, link: Link, now: Time) {
        let Some(namespace) = self.namespaces.get_mut(&netns) else {
            return;
        };
        let generation = namespace.generation_of(Source::Kernel, Dump::Links);
        let ifindex = link.ifindex;
        let name = link.name.clone();
        let (up, carrier) = (link.up, link.carrier);
        match link.kind {
            LinkKind::Macvlan { .. } => namespace.macvlans.insert(ifindex),
            _ => namespace.macvlans.remove(&ifindex),
        };
        let before = match namespace.links.get_mut(&ifindex) {
            Some(record) => {
                record.generation = generation;
                Some(core::mem::replace(&mut record.link, link))
            }
            None => {
                let record = LinkRecord {
                    link,
                    addresses: Vec::new(),
                    generation,
                };
                namespace.links.insert(ifindex, record);
                None
            }
        };
        let (was_up, had_carrier) = before
            .as_ref()
            .map_or((false, false), |link| (link.up, link.carrier));
        if !(up && carrier) {
            // Repair first: groups lose the members on the link. A carrier may have come and gone since the last message,
            // which tells only the last state: objects that were made meanwhile are gone.
            self.refresh_link(netns, ifindex);
            if self.objects_on_link_gone(netns, ifindex) || (was_up && had_carrier) {
                self.check_soon(netns, now);
            }
        }
        if (was_up || before.is_none()) && !up {
            self.hops_die(netns, ifindex, Loss::LinkDown);
        }
        if up && !was_up {
            self.hops_revive(netns, ifindex, Family::V4);
            self.hops_revive(netns, ifindex, Family::V6);
        }
        if up && carrier && !(was_up && had_carrier) {
            // Neighbours that failed before have not been asked since.
            if let Some(namespace) = self.namespaces.get_mut(&netns) {
                let failed = |key: &(u32, IpAddr), record: &mut NeighbourRecord| {
                    key.0 != ifindex || record.state != NeighbourState::Failed
                };
                namespace.neighbours.retain(failed);
            }
            self.manage_link(netns, ifindex);
        }
        match before {
            Some(before) if before.name != name => {
                self.interface_changed(netns, &before.name);
                self.interface_changed(netns, &name);
            }
            Some(_) => self.refresh_link(netns, ifindex),
            None => self.interface_changed(netns, &name),
        }
    }

    pub(crate) fn link_gone(&mut self, netns: Netns, ifindex: u32, now: Time) {
        let Some(namespace) = self.namespaces.get_mut(&netns) else {
            return;
        };
        if namespace.links.remove(&ifindex).is_none() {
            return;
        }
        namespace.macvlans.remove(&ifindex);
        let gone: Vec<(u32, IpAddr)> = namespace.neighbours_on(ifindex).map(|(key, _)| *key).collect();
        for key in &gone {
            namespace.neighbours.remove(key);
        }
        self.refresh_link(netns, ifindex);
        self.objects_on_link_gone(netns, ifindex);
        // An IPv4 route goes even if another of its next hops is alive. IPv6 routes were withdrawn before; those that were not
        // (their messages were lost) must not wait for a link with the same number.
        let sets: HashSet<SetId> = self
            .hops
            .sets()
            .filter(|(_, set)| set.key.netns == netns)
            .filter(|(_, set)| {
                let mut hops = set.key.via.hops().iter();
                match set.key.family {
                    Family::V4 => {
                        hops.any(|hop| hop.ifindex == ifindex) || set.key.via == Via::Local(ifindex)
                    }
                    Family::V6 => hops.len() > 0 && hops.all(|hop| hop.ifindex == ifindex),
                }
            })
            .map(|(id, _)| id)
            .collect();
        self.purge(netns, &sets, |_, _| true);
        self.forget_hosts_of_link(netns, ifindex);
        self.check_soon(netns, now);
    }

    pub(crate) fn address_there(&mut self, netns: Netns, address: Address) {
        let Some(namespace) = self.namespaces.get_mut(&netns) else {
            return;
        };
        let Some(record) = namespace.links.get_mut(&address.ifindex) else {
            return;
        };
        if !record.addresses.contains(&address) {
            record.addresses.push(address);
        }
        if let Some(named) = &mut namespace.named_addresses {
            named.insert(address);
        }
        if Family::of(&address.address) == Family::V4
            && namespace.link(address.ifindex).is_some_and(|link| link.up)
        {
            self.hops_revive(netns, address.ifindex, Family::V4);
        }
        self.resolve_floating(netns);
    }

    pub(crate) fn address_gone(&mut self, netns: Netns, address: Address, now: Time) {
        let Some(namespace) = self.namespaces.get_mut(&netns) else {
            return;
        };
        let Some(record) = namespace.links.get_mut(&address.ifindex) else {
            return;
        };
        let before = record.addresses.len();
        record
            .addresses
            .retain(|other| (other.address, other.prefix_len) != (address.address, address.prefix_len));
        if record.addresses.len() == before {
            return;
        }
        let is_last = namespace.addresses_v4(address.ifindex) == 0;
        let is_nowhere = !namespace.has_address(address.address);
        if Family::of(&address.address) == Family::V4 {
            if is_last {
                self.hops_die(netns, address.ifindex, Loss::LastAddress);
            }
            if is_nowhere && let Some(number) = self.source_addresses.find(address.address) {
                let is_gone = |prefix: &Prefix, record: &Record| {
                    prefix.family() == Family::V4
                        && record.source_address == number
                        && record.origin != Origin::Fpm
                };
                self.counts.purged += self.remove_all(netns, is_gone) as u64;
            }
            self.check_soon(netns, now);
        }
        self.resolve_floating(netns);
    }

    pub(crate) fn neighbour_there(&mut self, netns: Netns, neighbour: Neighbour) {
        let limit = self.limits.neighbours;
        let Some(namespace) = self.namespaces.get_mut(&netns) else {
            return;
        };
        let key = (neighbour.ifindex, neighbour.address);
        let before = namespace.neighbours.get(&key).copied();
        if before.is_none() && namespace.neighbours.len() >= limit {
            self.counts.refused += 1;
            return;
        }
        let mac = neighbour.mac.filter(|_| neighbour.state.is_valid());
        // A neighbour that failed and is asked again has still failed, until it answers.
        let has_failed = before.is_some_and(|before| before.state == NeighbourState::Failed);
        let state = if has_failed && mac.is_none() {
            NeighbourState::Failed
        } else {
            neighbour.state
        };
        let generation = namespace.generation_of(Source::Kernel, Dump::Neighbours);
        namespace.neighbours.insert(
            key,
            NeighbourRecord {
                mac,
                state,
                generation,
            },
        );
        let is_same = before.is_some_and(|before| {
            before.mac == mac && (before.state == NeighbourState::Failed) == (state == NeighbourState::Failed)
        });
        if !is_same {
            self.refresh_neighbour(netns, neighbour.ifindex, neighbour.address);
            self.host_changed(netns, neighbour.ifindex, neighbour.address, mac.is_some());
        }
        // Static neighbours are not managed (`millrace-netlink`).
        if before.is_some_and(|before| before.state.is_static()) && !state.is_static() {
            for key in self.gateways_at(netns, neighbour.ifindex, neighbour.address) {
                self.manage(&key);
            }
        }
    }

    /// Returns the adjacencies of a neighbour that routes use as their gateway.
    fn gateways_at(&self, netns: Netns, ifindex: u32, address: IpAddr) -> Vec<AdjacencyKey> {
        let of_neighbour = self.hops.of_neighbour(netns, ifindex, address).into_iter();
        of_neighbour
            .filter_map(|id| self.hops.adjacency(id))
            .filter(|adjacency| adjacency.gateway_uses > 0)
            .map(|adjacency| adjacency.key)
            .collect()
    }

    pub(crate) fn neighbour_gone(&mut self, netns: Netns, ifindex: u32, address: IpAddr) {
        let Some(namespace) = self.namespaces.get_mut(&netns) else {
            return;
        };
        if namespace.neighbours.remove(&(ifindex, address)).is_none() {
            return;
        }
        let gateways = self.gateways_at(netns, ifindex, address);
        if !gateways.is_empty()
            && let Some(namespace) = self.namespaces.get_mut(&netns)
        {
            // Others of a group go first, until the kernel has asked for it again.
            let record = NeighbourRecord {
                mac: None,
                state: NeighbourState::Failed,
                generation: namespace.generation_of(Source::Kernel, Dump::Neighbours),
            };
            namespace.neighbours.insert((ifindex, address), record);
        }
        self.refresh_neighbour(netns, ifindex, address);
        self.host_changed(netns, ifindex, address, false);
        for key in gateways {
            self.manage(&key);
        }
    }

    pub(crate) fn object_there(&mut self, netns: Netns, source: Source, object: NextHopObject) {
        let limit = self.limits.objects;
        let Some(namespace) = self.namespaces.get_mut(&netns) else {
            return;
        };
        let known = namespace.objects.get(&(source, object.id));
        if known.is_none() && namespace.objects.len() >= limit {
            self.counts.refused += 1;
            return;
        }
        let generation = namespace.generation_of(source, Dump::NextHops);
        if known.is_some_and(|known| known.generation != generation)
            && source == Source::Fpm
            && let Some(replay) = &mut namespace.replay
        {
            replay.renew();
        }
        if namespace.set_object(source, object.id, object.kind, generation) {
            let mut changed = namespace
                .groups_of
                .get(&(source, object.id))
                .cloned()
                .unwrap_or_default();
            changed.push(object.id);
            self.resolve_objects(netns, source, &changed);
        }
    }

    pub(crate) fn objects_gone(&mut self, netns: Netns, source: Source, ids: Vec<u32>) {
        let Some(namespace) = self.namespaces.get_mut(&netns) else {
            return;
        };
        let (gone, changed) = namespace.remove_objects(source, ids);
        self.resolve_objects(netns, source, &changed);
        // The routes of an object that is gone: none, if they moved before it went.
        let sets: HashSet<SetId> = gone
            .iter()
            .filter_map(|id| self.set_of_object(netns, source, *id))
            .collect();
        self.purge(netns, &sets, |_, _| true);
        self.resolve_objects(netns, source, &gone);
    }

    fn set_of_object(&self, netns: Netns, source: Source, id: u32) -> Option<SetId> {
        self.hops.find_object_set(netns, source, id)
    }

    /// Finds the members of the sets of objects anew.
    fn resolve_objects(&mut self, netns: Netns, source: Source, ids: &[u32]) {
        for id in ids {
            if let Some(set) = self.set_of_object(netns, source, *id) {
                self.resolve(set);
            }
        }
    }

    /// Drops the next-hop objects on a link. Returns true if there were any.
    fn objects_on_link_gone(&mut self, netns: Netns, ifindex: u32) -> bool {
        let ids = self
            .namespaces
            .get(&netns)
            .map(|namespace| namespace.objects_on(ifindex))
            .unwrap_or_default();
        let any = !ids.is_empty();
        if any {
            self.objects_gone(netns, Source::Kernel, ids);
        }
        any
    }

    /// Resolves the sets whose gateways name no interface: addresses decide.
    fn resolve_floating(&mut self, netns: Netns) {
        let floating = |set: &Set| {
            set.key.netns == netns
                && set
                    .key
                    .via
                    .hops()
                    .iter()
                    .any(|hop| hop.ifindex == 0 && hop.gateway.is_some())
        };
        let ids: Vec<SetId> = self
            .hops
            .sets()
            .filter(|(_, set)| floating(set))
            .map(|(id, _)| id)
            .collect();
        for id in ids {
            self.resolve(id);
        }
    }

    /// Asks the kernel to keep all gateways on a link fresh.
    fn manage_link(&mut self, netns: Netns, ifindex: u32) {
        for id in self.hops.on_link(netns, ifindex) {
            if let Some(adjacency) = self.hops.adjacency(id)
                && adjacency.gateway_uses > 0
            {
                let key = adjacency.key;
                self.manage(&key);
            }
        }
    }

    /// Returns the links of a name: at most one, but for a moment in which names are exchanged.
    pub(crate) fn links_named(&self, netns: Netns, name: &str) -> Vec<u32> {
        let Some(namespace) = self.namespaces.get(&netns) else {
            return Vec::new();
        };
        let named = |record: &&LinkRecord| record.link.name == name;
        namespace
            .links
            .values()
            .filter(named)
            .map(|record| record.link.ifindex)
            .collect()
    }

    /// Returns the links whose packets are those of an interface of the router: the link of its name, and the macvlans over it.
    pub(crate) fn links_of_interface(&self, netns: Netns, name: &str) -> Vec<u32> {
        let mut links = self.links_named(netns, name);
        if let Some(namespace) = self.namespaces.get(&netns) {
            let over = |macvlan: &u32| {
                let kind = namespace.link(*macvlan).map(|link| link.kind);
                matches!(kind, Some(LinkKind::Macvlan { lower }) if links.contains(&lower))
            };
            let over: Vec<u32> = namespace.macvlans.iter().copied().filter(over).collect();
            links.extend(over);
        }
        links
    }

    /// Follows an interface of the router that came or went, or whose link did.
    pub(crate) fn interface_changed(&mut self, netns: Netns, name: &str) {
        for ifindex in self.links_of_interface(netns, name) {
            self.refresh_link(netns, ifindex);
            self.manage_link(netns, ifindex);
            let Some(namespace) = self.namespaces.get(&netns) else {
                continue;
            };
            let hosts: Vec<(IpAddr, bool)> = namespace
                .neighbours
                .range((ifindex, IpAddr::from([0, 0, 0, 0]))..)
                .take_while(|((other, _), _)| *other == ifindex)
                .map(|((_, address), record)| (*address, record.mac.is_some()))
                .collect();
            for (address, is_there) in hosts {
                self.host_changed(netns, ifindex, address, is_there);
            }
        }
    }

    /// Follows a neighbour: one on an interface of the router, or on a macvlan over it, has a route of its own. Link-local
    /// addresses have none: packets to them are not forwarded.
    fn host_changed(&mut self, netns: Netns, ifindex: u32, address: IpAddr, is_there: bool) {
        let is_link_local = match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        let interface = self.router_interface(netns, ifindex);
        if let Some(interface) = interface.filter(|_| !is_link_local) {
            self.set_host(interface.vrf, ifindex, address, is_there);
        }
    }

    /// Removes all hosts of a link that is gone, whatever VRF had it.
    fn forget_hosts_of_link(&mut self, netns: Netns, ifindex: u32) {
        let of_namespace: BTreeSet<VrfId> = self
            .interfaces
            .iter()
            .filter(|((of, _), _)| *of == netns)
            .map(|(_, interface)| interface.vrf)
            .collect();
        for vrf in of_namespace {
            self.forget_hosts(vrf, ifindex);
        }
    }

    /// Removes all hosts of a link.
    pub(crate) fn forget_hosts(&mut self, vrf: VrfId, ifindex: u32) {
        let hosts: Vec<IpAddr> = self
            .vrf(vrf.0 as usize)
            .map(|vrf| {
                vrf.hosts
                    .keys()
                    .filter(|key| key.1 == ifindex)
                    .map(|key| key.0)
                    .collect()
            })
            .unwrap_or_default();
        for address in hosts {
            self.remove_host(vrf, ifindex, address);
        }
    }

    /// Asks the kernel about hosts that have traffic and are stale.
    pub(crate) fn confirm_hosts(&mut self) {
        let mut actions = Vec::new();
        for (netns, namespace) in &self.namespaces {
            for ((ifindex, address), record) in &namespace.neighbours {
                if record.state != NeighbourState::Stale {
                    continue;
                }
                let key = AdjacencyKey::Neighbour {
                    netns: *netns,
                    ifindex: *ifindex,
                    gateway: Some(*address),
                    mtu: 0,
                };
                let adjacency = self
                    .hops
                    .find_adjacency(&key)
                    .and_then(|id| self.hops.adjacency(id));
                let line = adjacency.and_then(|adjacency| self.writer.next_hop(adjacency.next_hop));
                if line.is_some_and(millrace_fib::NextHop::take_used) {
                    actions.push(Action::Probe {
                        netns: *netns,
                        ifindex: *ifindex,
                        address: *address,
                    });
                }
            }
        }
        for action in actions {
            self.act(action);
        }
    }
}
