//! The links, addresses, neighbours and next-hop objects of a namespace.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};

use millrace_fib::{Family, Prefix};
use millrace_types::{Mac, Time};

use crate::event::{Address, Dump, Hop, Link, NeighbourState, NextHopObjectKind, Source};
use crate::replay::Replay;

/// A neighbour as the RIB needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NeighbourRecord {
    /// The MAC address, if packets may be sent to it.
    pub(crate) mac: Option<Mac>,
    pub(crate) state: NeighbourState,
    pub(crate) generation: u8,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LinkRecord {
    pub(crate) link: Link,
    pub(crate) addresses: Vec<Address>,
    pub(crate) generation: u8,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ObjectRecord {
    pub(crate) kind: NextHopObjectKind,
    pub(crate) generation: u8,
}

/// A dump that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DumpState {
    pub(crate) dump: Dump,
    pub(crate) generation: u8,
}

#[derive(Debug, Default)]
pub(crate) struct Namespace {
    /// True from `Opened` to `Closed` of the kernel.
    pub(crate) is_open: bool,
    /// When the FIBs of the namespace are emptied, after it has gone.
    pub(crate) empty_at: Option<Time>,
    /// When all routes are dumped again, as a check.
    pub(crate) check_at: Option<Time>,
    pub(crate) checked_at: Option<Time>,
    pub(crate) links: HashMap<u32, LinkRecord>,
    /// The links among them that are macvlans.
    pub(crate) macvlans: BTreeSet<u32>,
    /// By interface and address: neighbours that packets may be sent to, and those that failed.
    pub(crate) neighbours: BTreeMap<(u32, IpAddr), NeighbourRecord>,
    pub(crate) objects: HashMap<(Source, u32), ObjectRecord>,
    /// The groups in which an object is a member.
    pub(crate) groups_of: HashMap<(Source, u32), Vec<u32>>,
    /// The addresses that the dump of addresses has named so far; none if none is under way.
    pub(crate) named_addresses: Option<HashSet<Address>>,
    /// The dumps that are under way.
    pub(crate) dumps: Vec<DumpState>,
    /// The number of the newest dump of each kind; objects that a dump names get its number, others 0.
    pub(crate) generations: BTreeMap<Dump, u8>,
    /// The dumps that were complete since the namespace was opened.
    pub(crate) read: BTreeSet<Dump>,
    /// FPM's replay, if one is under way.
    pub(crate) replay: Option<Replay>,
    /// The number of FPM's current connection; routes and objects that it names get it.
    pub(crate) fpm_generation: u8,
}

impl Namespace {
    /// Begins a dump. Its number differs from that of the last dump of its kind, and from 0.
    pub(crate) fn begin_dump(&mut self, dump: Dump) {
        let generation = self.generations.entry(dump).or_default();
        *generation = next_generation(*generation);
        let generation = *generation;
        if dump == Dump::Addresses {
            self.named_addresses = Some(HashSet::new());
        }
        self.dumps.retain(|state| state.dump != dump);
        self.dumps.push(DumpState { dump, generation });
    }

    /// Returns the number for an object that is named now.
    pub(crate) fn generation_of(&self, source: Source, dump: Dump) -> u8 {
        match source {
            Source::Fpm => self.fpm_generation,
            Source::Kernel => self
                .dumps
                .iter()
                .rev()
                .find(|state| state.dump == dump)
                .map_or(0, |state| state.generation),
        }
    }

    /// Returns the neighbours on a link.
    pub(crate) fn neighbours_on(
        &self,
        ifindex: u32,
    ) -> impl Iterator<Item = (&(u32, IpAddr), &NeighbourRecord)> {
        // IPv4 comes before IPv6.
        let first = (ifindex, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let from = self.neighbours.range(first..);
        from.take_while(move |((other, _), _)| *other == ifindex)
    }

    pub(crate) fn link(&self, ifindex: u32) -> Option<&Link> {
        self.links.get(&ifindex).map(|record| &record.link)
    }

    /// Returns the interface whose address has the longest prefix around a gateway.
    pub(crate) fn interface_of(&self, gateway: IpAddr) -> Option<u32> {
        self.links
            .values()
            .flat_map(|record| &record.addresses)
            .filter_map(|address| {
                let prefix = Prefix::new(address.peer.unwrap_or(address.address), address.prefix_len).ok()?;
                prefix
                    .contains(gateway)
                    .then_some((prefix.len(), core::cmp::Reverse(address.ifindex)))
            })
            .max()
            .map(|(_, ifindex)| ifindex.0)
    }

    /// Returns true if any interface has the address.
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        self.links
            .values()
            .flat_map(|record| &record.addresses)
            .any(|other| other.address == address)
    }

    /// Returns the number of IPv4 addresses of an interface.
    pub(crate) fn addresses_v4(&self, ifindex: u32) -> usize {
        self.links.get(&ifindex).map_or(0, |record| {
            let four = |address: &&Address| Family::of(&address.address) == Family::V4;
            record.addresses.iter().filter(four).count()
        })
    }

    /// Returns the next hops of an object, with their weights; groups are resolved. None if there is no such object.
    pub(crate) fn hops_of(&self, source: Source, id: u32) -> Option<ObjectHops> {
        match &self.objects.get(&(source, id))?.kind {
            NextHopObjectKind::Hop(hop) => Some(ObjectHops::Hops(vec![(*hop, 1)])),
            NextHopObjectKind::Blackhole => Some(ObjectHops::Blackhole),
            NextHopObjectKind::Unknown => None,
            NextHopObjectKind::Group(members) => {
                let mut hops = Vec::with_capacity(members.len());
                for (member, weight) in members {
                    // A group has no groups as members (FPM's are flattened by zebra).
                    match self.objects.get(&(source, *member)).map(|record| &record.kind) {
                        Some(NextHopObjectKind::Hop(hop)) => hops.push((*hop, *weight)),
                        Some(NextHopObjectKind::Blackhole) if members.len() == 1 => {
                            return Some(ObjectHops::Blackhole);
                        }
                        _ => {}
                    }
                }
                Some(ObjectHops::Hops(hops))
            }
        }
    }

    /// Stores an object; returns true if it is new or differs.
    pub(crate) fn set_object(
        &mut self,
        source: Source,
        id: u32,
        kind: NextHopObjectKind,
        generation: u8,
    ) -> bool {
        if let Some(record) = self.objects.get_mut(&(source, id))
            && record.kind == kind
        {
            record.generation = generation;
            return false;
        }
        self.forget_object(source, id);
        if let NextHopObjectKind::Group(members) = &kind {
            for (member, _) in members {
                self.groups_of.entry((source, *member)).or_default().push(id);
            }
        }
        self.objects
            .insert((source, id), ObjectRecord { kind, generation });
        true
    }

    /// Removes an object, but not from the groups that have it.
    fn forget_object(&mut self, source: Source, id: u32) -> bool {
        let Some(record) = self.objects.remove(&(source, id)) else {
            return false;
        };
        if let NextHopObjectKind::Group(members) = record.kind {
            for (member, _) in members {
                if let Some(groups) = self.groups_of.get_mut(&(source, member)) {
                    groups.retain(|group| *group != id);
                    if groups.is_empty() {
                        self.groups_of.remove(&(source, member));
                    }
                }
            }
        }
        true
    }

    /// Removes objects as the kernel does: groups lose them as members, and groups that are then empty are removed, too.
    /// Returns the objects that are gone, and the groups that changed.
    pub(crate) fn remove_objects(&mut self, source: Source, ids: Vec<u32>) -> (Vec<u32>, Vec<u32>) {
        let (mut gone, mut changed) = (Vec::new(), Vec::new());
        let mut waiting = ids;
        while let Some(id) = waiting.pop() {
            if !self.forget_object(source, id) {
                continue;
            }
            gone.push(id);
            for group in self.groups_of.remove(&(source, id)).unwrap_or_default() {
                let Some(record) = self.objects.get_mut(&(source, group)) else {
                    continue;
                };
                if let NextHopObjectKind::Group(members) = &mut record.kind {
                    members.retain(|(member, _)| *member != id);
                    if members.is_empty() {
                        waiting.push(group);
                    } else {
                        changed.push(group);
                    }
                }
            }
        }
        changed.retain(|group| !gone.contains(group));
        (gone, changed)
    }

    /// Returns the kernel's objects on a link.
    pub(crate) fn objects_on(&self, ifindex: u32) -> Vec<u32> {
        let on = |(key, record): (&(Source, u32), &ObjectRecord)| match &record.kind {
            NextHopObjectKind::Hop(hop) if key.0 == Source::Kernel && hop.ifindex == ifindex => Some(key.1),
            _ => None,
        };
        self.objects.iter().filter_map(on).collect()
    }
}

/// Returns the number of the dump or replay after another; never 0.
pub(crate) fn next_generation(generation: u8) -> u8 {
    generation.checked_add(1).unwrap_or(1)
}

/// The next hops of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ObjectHops {
    Hops(Vec<(Hop, u32)>),
    Blackhole,
}
