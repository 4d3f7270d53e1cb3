//! From sets to groups of the FIB: members, which of them are live, and what their next hops are.

use std::net::IpAddr;

use millrace_fib::{GroupId, NextHopId, NextHopKind, NextHopSpec};
use millrace_types::Mac;

use crate::action::Action;
use crate::event::{Hop, LinkKind, NeighbourState, Netns};
use crate::hops::{Adjacency, AdjacencyId, AdjacencyKey, Set, SetId, SetKey, Via};
use crate::namespace::ObjectHops;
use crate::rib::{Interface, Rib};

impl Rib {
    /// Returns the set of a key, with one user more.
    pub(crate) fn use_set(&mut self, key: SetKey) -> Option<SetId> {
        if let Some(id) = self.hops.find_set(&key) {
            if let Some(set) = self.hops.set_mut(id) {
                set.users += 1;
            }
            return Some(id);
        }
        let Ok(group) = self.writer.add_group(&[]) else {
            self.counts.refused += 1;
            return None;
        };
        // The kernel accepts no next hop on a link that is down: one that is there was alive before.
        let namespace = self.namespaces.get(&key.netns);
        let is_down = |hop: &Hop| {
            namespace
                .and_then(|namespace| namespace.link(hop.ifindex))
                .is_some_and(|link| !link.up)
        };
        let dead = key.via.hops().iter().map(is_down).collect();
        let id = self.hops.insert_set(Set {
            key,
            users: 1,
            group,
            members: Vec::new(),
            dead,
        });
        self.resolve(id);
        Some(id)
    }

    /// Takes one user from a set; retires it with its last.
    pub(crate) fn drop_set(&mut self, id: SetId) {
        let Some(set) = self.hops.set_mut(id) else {
            return;
        };
        set.users = set.users.saturating_sub(1);
        if set.users > 0 {
            return;
        }
        if let Some(set) = self.hops.remove_set(id) {
            self.writer.retire_group(set.group);
            let is_host = matches!(set.key.via, Via::Host(..));
            for (member, _) in set.members {
                self.drop_adjacency(member, id, is_host);
            }
        }
    }

    /// Returns the group of a set.
    pub(crate) fn group_of(&self, id: SetId) -> GroupId {
        self.hops.set(id).map_or(GroupId::NONE, |set| set.group)
    }

    /// Finds the members of a set anew.
    pub(crate) fn resolve(&mut self, id: SetId) {
        let Some(set) = self.hops.set(id) else {
            return;
        };
        let is_host = matches!(set.key.via, Via::Host(..));
        let wanted = self.wanted(&set.key);
        let mut members = Vec::with_capacity(wanted.len());
        for (key, weight) in wanted {
            if let Some(adjacency) = self.use_adjacency(key, id, is_host) {
                members.push((adjacency, weight));
            }
        }
        let before = match self.hops.set_mut(id) {
            Some(set) => core::mem::replace(&mut set.members, members),
            None => return,
        };
        self.regroup(id);
        for (member, _) in before {
            self.drop_adjacency(member, id, is_host);
        }
    }

    /// Returns the adjacencies of a set's next hops, with weights.
    fn wanted(&self, key: &SetKey) -> Vec<(AdjacencyKey, u32)> {
        let netns = key.netns;
        let of_hop = |hop: &Hop| self.neighbour_of(netns, hop, key.mtu);
        let found: Vec<(AdjacencyKey, u32)> = match &key.via {
            Via::One(hop) => vec![(of_hop(hop), 1)],
            Via::Many(hops) => hops
                .iter()
                .map(|hop| (of_hop(hop), u32::from(hop.weight)))
                .collect(),
            Via::Object(source, id) => {
                match self
                    .namespaces
                    .get(&netns)
                    .and_then(|namespace| namespace.hops_of(*source, *id))
                {
                    Some(ObjectHops::Hops(hops)) => {
                        hops.iter().map(|(hop, weight)| (of_hop(hop), *weight)).collect()
                    }
                    Some(ObjectHops::Blackhole) => vec![(AdjacencyKey::Discard(NextHopKind::Blackhole), 1)],
                    None => Vec::new(),
                }
            }
            Via::Host(ifindex, address) => {
                let gateway = Some(*address);
                vec![(
                    AdjacencyKey::Neighbour {
                        netns,
                        ifindex: *ifindex,
                        gateway,
                        mtu: 0,
                    },
                    1,
                )]
            }
            Via::Local(ifindex) => vec![(
                AdjacencyKey::Local {
                    netns,
                    ifindex: *ifindex,
                },
                1,
            )],
            Via::Discard(kind) => vec![(AdjacencyKey::Discard(*kind), 1)],
        };
        if found.is_empty() {
            // The number is not defined (yet).
            return vec![(AdjacencyKey::Discard(NextHopKind::Unreachable), 1)];
        }
        found
    }

    /// Returns the adjacency of a next hop.
    fn neighbour_of(&self, netns: Netns, hop: &Hop, mtu: u16) -> AdjacencyKey {
        let ifindex = match (hop.ifindex, hop.gateway) {
            (0, Some(gateway)) => self
                .namespaces
                .get(&netns)
                .and_then(|namespace| namespace.interface_of(gateway)),
            (0, None) => None,
            (ifindex, _) => Some(ifindex),
        };
        match ifindex {
            Some(ifindex) => AdjacencyKey::Neighbour {
                netns,
                ifindex,
                gateway: hop.gateway,
                mtu,
            },
            None => AdjacencyKey::Discard(NextHopKind::Unreachable),
        }
    }

    fn use_adjacency(&mut self, key: AdjacencyKey, set: SetId, is_host: bool) -> Option<AdjacencyId> {
        let id = match self.hops.find_adjacency(&key) {
            Some(id) => id,
            None => {
                let (spec, is_live) = self.spec(&key);
                let Ok(next_hop) = self.writer.add_next_hop(&spec) else {
                    self.counts.refused += 1;
                    return None;
                };
                self.hops.insert_adjacency(Adjacency {
                    key,
                    next_hop,
                    sets: Vec::new(),
                    gateway_uses: 0,
                    is_live,
                })
            }
        };
        let adjacency = self.hops.adjacency_mut(id)?;
        adjacency.sets.push(set);
        if !is_host {
            adjacency.gateway_uses += 1;
            if adjacency.gateway_uses == 1 {
                self.manage(&key);
            }
        }
        Some(id)
    }

    fn drop_adjacency(&mut self, id: AdjacencyId, set: SetId, is_host: bool) {
        let Some(adjacency) = self.hops.adjacency_mut(id) else {
            return;
        };
        if let Some(at) = adjacency.sets.iter().position(|other| *other == set) {
            adjacency.sets.swap_remove(at);
        }
        let key = adjacency.key;
        let mut unmanage = false;
        if !is_host {
            adjacency.gateway_uses = adjacency.gateway_uses.saturating_sub(1);
            unmanage = adjacency.gateway_uses == 0;
        }
        let next_hop = adjacency.next_hop;
        if adjacency.sets.is_empty() {
            self.hops.remove_adjacency(id);
            self.writer.retire_next_hop(next_hop);
        }
        if unmanage {
            self.unmanage(&key);
        }
    }

    /// Asks the kernel to keep the neighbour of an adjacency fresh.
    pub(crate) fn manage(&mut self, key: &AdjacencyKey) {
        self.set_managed(key, true);
    }

    /// Asks the kernel no longer to keep the neighbour of an adjacency fresh.
    fn unmanage(&mut self, key: &AdjacencyKey) {
        self.set_managed(key, false);
    }

    fn set_managed(&mut self, key: &AdjacencyKey, managed: bool) {
        let AdjacencyKey::Neighbour {
            netns,
            ifindex,
            gateway: Some(address),
            ..
        } = *key
        else {
            return;
        };
        // The kernel asks no neighbour on a link that is down, and forgets those it had.
        let can = self.namespaces.get(&netns).is_some_and(|namespace| {
            namespace.is_open
                && namespace
                    .link(ifindex)
                    .is_some_and(|link| link.up && (link.carrier || !managed))
        });
        if can && self.interface_of(netns, ifindex).is_some() {
            self.act(Action::Manage {
                netns,
                ifindex,
                address,
                managed,
            });
        }
    }

    /// Returns the router's interface of a link, and the source MAC address of packets: a macvlan has that of the link below
    /// and a MAC address of its own.
    pub(crate) fn interface_of(&self, netns: Netns, ifindex: u32) -> Option<(u16, Mac)> {
        let link = self.namespaces.get(&netns)?.link(ifindex)?;
        Some((self.router_interface(netns, ifindex)?.index, link.mac))
    }

    /// Returns the router's interface of a link; of a macvlan, that of the link below.
    pub(crate) fn router_interface(&self, netns: Netns, ifindex: u32) -> Option<Interface> {
        let link = self.namespaces.get(&netns)?.link(ifindex)?;
        let name = match link.kind {
            LinkKind::Macvlan { lower } => &self.namespaces.get(&netns)?.link(lower)?.name,
            _ => &link.name,
        };
        self.interfaces.get(&(netns, name.clone())).copied()
    }

    /// Returns the values of an adjacency's next hop, and true if the adjacency is live.
    fn spec(&self, key: &AdjacencyKey) -> (NextHopSpec, bool) {
        match *key {
            AdjacencyKey::Discard(kind) => (NextHopSpec::without_interface(kind), true),
            AdjacencyKey::Local { netns, ifindex } => {
                let mut spec = NextHopSpec::without_interface(NextHopKind::Local);
                if let Some((interface, mac)) = self.interface_of(netns, ifindex) {
                    spec.interface = interface;
                    spec.source = mac;
                }
                (spec, true)
            }
            AdjacencyKey::Neighbour {
                netns,
                ifindex,
                gateway,
                mtu,
            } => {
                let link = self
                    .namespaces
                    .get(&netns)
                    .and_then(|namespace| namespace.link(ifindex));
                let (Some(link), Some((interface, source))) = (link, self.interface_of(netns, ifindex))
                else {
                    return (NextHopSpec::without_interface(NextHopKind::Unreachable), false);
                };
                let neighbour = gateway.and_then(|gateway| {
                    let namespace = self.namespaces.get(&netns)?;
                    namespace.neighbours.get(&(ifindex, gateway)).copied()
                });
                let link_mtu = u16::try_from(link.mtu).unwrap_or(u16::MAX);
                let mac = neighbour.and_then(|neighbour| neighbour.mac);
                let spec = NextHopSpec {
                    kind: if mac.is_some() {
                        NextHopKind::Forward
                    } else {
                        NextHopKind::Glean
                    },
                    interface,
                    gateway,
                    destination: mac.unwrap_or(Mac::ZERO),
                    source,
                    mtu: if mtu == 0 { link_mtu } else { mtu.min(link_mtu) },
                };
                let has_failed = neighbour.is_some_and(|neighbour| neighbour.state == NeighbourState::Failed);
                (spec, link.up && link.carrier && !has_failed)
            }
        }
    }

    /// Brings an adjacency up to date with its link and its neighbour. Groups follow if it dies or revives.
    pub(crate) fn refresh(&mut self, id: AdjacencyId) {
        let Some(adjacency) = self.hops.adjacency(id) else {
            return;
        };
        let (next_hop, was_live) = (adjacency.next_hop, adjacency.is_live);
        let (spec, is_live) = self.spec(&adjacency.key);
        let Some(before) = self.writer.next_hop(next_hop).map(millrace_fib::NextHop::spec) else {
            return;
        };
        let mut regroup = was_live != is_live;
        if (before.interface, before.gateway) == (spec.interface, spec.gateway) {
            if before != spec {
                self.writer.set_next_hop(next_hop, &spec);
            }
        } else if let Ok(new) = self.writer.add_next_hop(&spec) {
            // Workers must not see the interface of one link with the MAC address of another: it is another next hop.
            if let Some(adjacency) = self.hops.adjacency_mut(id) {
                adjacency.next_hop = new;
            }
            self.writer.retire_next_hop(next_hop);
            regroup = true;
        } else {
            self.counts.refused += 1;
        }
        let Some(adjacency) = self.hops.adjacency_mut(id) else {
            return;
        };
        adjacency.is_live = is_live;
        if regroup {
            let mut sets = adjacency.sets.clone();
            sets.sort_unstable();
            sets.dedup();
            for set in sets {
                self.regroup(set);
            }
        }
    }

    /// Brings all adjacencies on a link up to date.
    pub(crate) fn refresh_link(&mut self, netns: Netns, ifindex: u32) {
        for id in self.hops.on_link(netns, ifindex) {
            self.refresh(id);
        }
    }

    /// Brings the adjacencies of a neighbour up to date.
    pub(crate) fn refresh_neighbour(&mut self, netns: Netns, ifindex: u32, address: IpAddr) {
        for id in self.hops.of_neighbour(netns, ifindex, address) {
            self.refresh(id);
        }
    }

    /// Writes the live members of a set into its group: all, if none is live.
    pub(crate) fn regroup(&mut self, id: SetId) {
        let Some(set) = self.hops.set(id) else {
            return;
        };
        let group = set.group;
        let member = |(at, (adjacency, weight)): (usize, &(AdjacencyId, u32))| {
            let adjacency = self.hops.adjacency(*adjacency)?;
            let is_dead = set.dead.get(at).copied().unwrap_or_default();
            Some((adjacency.next_hop, *weight, adjacency.is_live && !is_dead))
        };
        let all: Vec<(NextHopId, u32, bool)> = set.members.iter().enumerate().filter_map(member).collect();
        let any = all.iter().any(|member| member.2);
        let members: Vec<(NextHopId, u32)> = all
            .into_iter()
            .filter(|member| member.2 || !any)
            .map(|(next_hop, weight, _)| (next_hop, weight))
            .collect();
        if self.writer.set_group(group, &members).is_err() {
            self.counts.refused += 1;
        }
    }
}
