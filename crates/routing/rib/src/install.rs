//! Routes that come and go, and which of them the FIB has.

use std::collections::HashSet;
use std::net::IpAddr;

use millrace_fib::{Family, GroupId, NextHopKind, Prefix};

use crate::event::{Dump, Hop, Hops, Netns, Route, RouteKind, RouteMode, Source};
use crate::hops::{HopTable, Set, SetId, SetKey, Via};
use crate::namespace::ObjectHops;
use crate::rib::{Rib, VrfId};
use crate::routes::{Entry, Origin, Record};

/// The kernel's main table.
const TABLE_MAIN: u32 = 254;
/// The kernel's table of local addresses, which is asked before all others.
const TABLE_LOCAL: u32 = 255;
/// Routes that the kernel makes for addresses (`RTPROT_KERNEL`).
const PROTOCOL_KERNEL: u8 = 2;
/// Routes of router advertisements (`RTPROT_RA`).
const PROTOCOL_RA: u8 = 9;

impl Rib {
    /// Returns the VRF and the origin of a route; none if no VRF follows it.
    fn place_of(&self, netns: Netns, source: Source, route: &Route) -> Option<(usize, Origin)> {
        if route.tos != 0 || route.kind == RouteKind::Multicast {
            return None;
        }
        let at = self.vrfs.iter().position(|vrf| {
            vrf.as_ref().is_some_and(|vrf| {
                let is_local = route.table == TABLE_LOCAL && vrf.table == TABLE_MAIN;
                vrf.netns == netns && (vrf.table == route.table || is_local)
            })
        })?;
        let vrf = self.vrf(at)?;
        let is_of_address = route.protocol == PROTOCOL_KERNEL || route.kind == RouteKind::Local;
        let origin = match (source, vrf.source) {
            (Source::Kernel, _) if route.table == TABLE_LOCAL => Origin::LocalTable,
            (Source::Kernel, Source::Kernel) => Origin::Kernel,
            (Source::Kernel, Source::Fpm) if is_of_address => Origin::Kernel,
            (Source::Fpm, Source::Fpm) if !is_of_address => Origin::Fpm,
            _ => return None,
        };
        Some((at, origin))
    }

    /// Returns the key of a route's next hops.
    fn key_of(netns: Netns, source: Source, route: &Route) -> SetKey {
        let first = match &route.hops {
            Hops::One(hop) => Some(hop),
            Hops::Many(hops) => hops.first(),
            Hops::None | Hops::Object(_) => None,
        };
        let via = match route.kind {
            RouteKind::Local | RouteKind::Broadcast | RouteKind::Anycast => {
                Via::Local(first.map_or(0, |hop| hop.ifindex))
            }
            RouteKind::Blackhole => Via::Discard(NextHopKind::Blackhole),
            RouteKind::Prohibit => Via::Discard(NextHopKind::Prohibit),
            RouteKind::Unreachable | RouteKind::Multicast => Via::Discard(NextHopKind::Unreachable),
            // The lookup goes on in the next table, and a VRF has one.
            RouteKind::Throw => Via::Discard(NextHopKind::NoRoute),
            RouteKind::Unicast => match &route.hops {
                Hops::None => Via::Discard(NextHopKind::Unreachable),
                Hops::One(hop) => Via::One(normal(hop)),
                Hops::Many(hops) => via_of(hops.iter().map(weighted).collect()),
                Hops::Object(id) => Via::Object(source, *id),
            },
        };
        let has_hops = !via.hops().is_empty();
        SetKey {
            netns,
            family: if has_hops {
                route.prefix.family()
            } else {
                Family::V4
            },
            via,
            // Routes by object have the MTU of the link.
            mtu: if has_hops {
                u16::try_from(route.mtu).unwrap_or(0)
            } else {
                0
            },
        }
    }

    pub(crate) fn route_there(&mut self, netns: Netns, source: Source, route: &Route) {
        let Some((at, origin)) = self.place_of(netns, source, route) else {
            return;
        };
        let prefix = route.prefix;
        let limit = self.limits.prefixes;
        let Some(vrf) = self.vrf(at) else {
            return;
        };
        if vrf.routes.len() >= limit && vrf.routes.get(&prefix).is_none() {
            self.counts.refused += 1;
            return;
        }
        let generation = self.namespaces.get(&netns).map_or(0, |namespace| {
            namespace.generation_of(source, Dump::Routes(prefix.family()))
        });
        let key = Self::key_of(netns, source, route);
        let by_hops = ByHops::of(&key.via, route.protocol);
        let Some(set) = self.use_set(key) else {
            return;
        };
        let record = Record {
            set,
            metric: route.metric,
            source_address: self.source_addresses.number(route.source),
            protocol: route.protocol,
            kind: route.kind,
            origin,
            generation,
        };
        // The records that may be equals, by the kind of their next hops.
        let hops = &self.hops;
        let kind_of = |other: &Record| {
            hops.set(other.set)
                .map(|set| ByHops::of(&set.key.via, other.protocol))
        };
        let Some(vrf) = self.vrfs.get_mut(at).and_then(Option::as_mut) else {
            return;
        };
        let entry = vrf.routes.entry(&prefix);
        let peers = |other: &Record| other.origin == origin && other.metric == route.metric;
        let same = entry
            .records()
            .iter()
            .position(|other| peers(other) && Record { generation, ..*other } == record);
        let replaced = match (origin, prefix.family(), route.mode) {
            // FPM has one route for each prefix.
            (Origin::Fpm, ..) => entry.records().iter().position(|other| other.origin == origin),
            (_, Family::V4, RouteMode::Replace) => entry.records().iter().position(peers),
            // The kernel replaces a route of the same kind, if there is one.
            (_, Family::V6, RouteMode::Replace) => entry
                .records()
                .iter()
                .position(|other| peers(other) && kind_of(other) == Some(by_hops))
                .or_else(|| entry.records().iter().position(peers)),
            (_, Family::V4, _) => None,
            // Messages about IPv6 routes with gateways name all next hops of prefix and metric.
            (_, Family::V6, _) => entry.records().iter().position(|other| {
                peers(other) && by_hops == ByHops::Gateways && kind_of(other) == Some(by_hops)
            }),
        };
        let is_renewed =
            replaced.is_some_and(|at| origin == Origin::Fpm && entry.records()[at].generation != generation);
        // A dump names equals in their order, which is not known if messages were lost: a route stands before those that the
        // dump has not named yet.
        let unnamed = entry.records().iter().position(|other| {
            generation != 0
                && route.mode == RouteMode::Append
                && peers(other)
                && other.generation != generation
        });
        let mut dropped = Vec::new();
        match (same, replaced) {
            // A route takes the place of another, and its own is empty then.
            (Some(same), Some(replaced)) if same != replaced => {
                let old = core::mem::replace(&mut entry.records_mut()[replaced], record);
                dropped.push(old.set);
                dropped.extend(entry.remove(same).map(|record| record.set));
            }
            (Some(same), _) => {
                let is_named = entry.records()[same].generation == generation;
                entry.records_mut()[same].generation = generation;
                dropped.push(set);
                if let Some(unnamed) = unnamed
                    && unnamed < same
                    && !is_named
                    && let Some(moved) = entry.remove(same)
                {
                    entry.insert(unnamed, moved);
                }
            }
            (None, Some(replaced)) => {
                let old = core::mem::replace(&mut entry.records_mut()[replaced], record);
                dropped.push(old.set);
            }
            (None, None) => {
                let first = match (prefix.family(), route.mode) {
                    (Family::V4, RouteMode::Add) => entry.records().iter().position(peers),
                    _ => unnamed,
                };
                entry.insert(first.unwrap_or(entry.records().len()), record);
            }
        }
        if origin == Origin::LocalTable && prefix.len() < prefix.family().bits() {
            self.note_wide(at, &prefix);
        }
        self.sync(at, &prefix);
        for set in dropped {
            self.drop_set(set);
        }
        if is_renewed && let Some(replay) = self.replay(netns) {
            replay.renew();
        }
    }

    pub(crate) fn route_gone(&mut self, netns: Netns, source: Source, route: &Route) {
        let Some((at, origin)) = self.place_of(netns, source, route) else {
            return;
        };
        let prefix = route.prefix;
        let key = Self::key_of(netns, source, route);
        let set = self.hops.find_set(&key);
        let source_address = route
            .source
            .and_then(|address| self.source_addresses.find(address))
            .unwrap_or(0);
        let Some(entry) = self.vrf(at).and_then(|vrf| vrf.routes.get(&prefix)) else {
            return;
        };
        let peers = |other: &Record| other.origin == origin && other.metric == route.metric;
        let position = |want: &dyn Fn(&Record) -> bool| entry.records().iter().position(want);
        let found = if origin == Origin::Fpm {
            position(&|other| other.origin == origin)
        } else {
            // Routes may differ by origin or source address alone. IPv6 routes lose a source address in silence.
            position(&|other| {
                let is_of_source = prefix.family() == Family::V6 || other.source_address == source_address;
                let is_of_origin = other.kind == route.kind && other.protocol == route.protocol;
                peers(other) && Some(other.set) == set && is_of_origin && is_of_source
            })
            .or_else(|| position(&|other| peers(other) && route.hops == Hops::None))
        };
        if let Some(found) = found {
            self.remove_records(at, &prefix, |position, _| position == found);
            return;
        }
        // One or some next hops of an IPv6 route.
        if prefix.family() == Family::V6 && ByHops::of(&key.via, route.protocol) == ByHops::Gateways {
            let gone: Vec<Hop> = key.via.hops().to_vec();
            let around = entry.records().iter().enumerate().find_map(|(position, other)| {
                let set = self.hops.set(other.set).filter(|_| peers(other))?;
                let hops = set.key.via.hops();
                let is_gone = |hop: &&Hop| gone.iter().any(|gone| is_same_hop(gone, hop));
                let rest: Vec<Hop> = hops.iter().filter(|hop| !is_gone(hop)).copied().collect();
                (rest.len() < hops.len()).then(|| (position, rest, set.key.clone()))
            });
            match around {
                Some((position, rest, _)) if rest.is_empty() => {
                    self.remove_records(at, &prefix, |other, _| other == position);
                }
                Some((position, rest, key)) => {
                    let new = self.use_set(SetKey {
                        via: via_of(rest),
                        ..key
                    });
                    self.exchange_set(at, &prefix, position, new);
                }
                None => {}
            }
        }
    }

    fn exchange_set(&mut self, at: usize, prefix: &Prefix, position: usize, new: Option<SetId>) {
        let Some(new) = new else {
            return;
        };
        let entry = self.vrf_mut(at).and_then(|vrf| vrf.routes.get_mut(prefix));
        let Some(record) = entry.and_then(|entry| entry.records_mut().get_mut(position)) else {
            self.drop_set(new);
            return;
        };
        let old = core::mem::replace(&mut record.set, new);
        self.sync(at, prefix);
        self.drop_set(old);
    }

    /// Removes routes of a prefix. Returns their number.
    pub(crate) fn remove_records(
        &mut self,
        at: usize,
        prefix: &Prefix,
        mut is_gone: impl FnMut(usize, &Record) -> bool,
    ) -> usize {
        let Some(entry) = self.vrf_mut(at).and_then(|vrf| vrf.routes.get_mut(prefix)) else {
            return 0;
        };
        let mut dropped = Vec::new();
        for position in (0..entry.records().len()).rev() {
            if is_gone(position, &entry.records()[position]) {
                dropped.extend(entry.remove(position));
            }
        }
        if dropped.is_empty() {
            return 0;
        }
        if dropped.iter().any(|record| record.origin == Origin::LocalTable) {
            self.note_wide(at, prefix);
        }
        self.sync(at, prefix);
        for record in &dropped {
            self.drop_set(record.set);
        }
        dropped.len()
    }

    /// Removes all routes of a namespace for which `is_gone` holds. Returns their number.
    pub(crate) fn remove_all(&mut self, netns: Netns, is_gone: impl Fn(&Prefix, &Record) -> bool) -> usize {
        let mut removed = 0;
        for at in self.vrfs_of(netns) {
            let Some(vrf) = self.vrf(at) else {
                continue;
            };
            let hit = |(prefix, entry): (Prefix, &Entry)| {
                entry
                    .records()
                    .iter()
                    .any(|record| is_gone(&prefix, record))
                    .then_some(prefix)
            };
            let prefixes: Vec<Prefix> = vrf.routes.iter().filter_map(hit).collect();
            for prefix in prefixes {
                removed += self.remove_records(at, &prefix, |_, record| is_gone(&prefix, record));
            }
        }
        removed
    }

    /// Makes the FIB equal to the routes that have one of these sets.
    pub(crate) fn sync_routes_of(&mut self, netns: Netns, sets: &HashSet<SetId>) {
        for at in self.vrfs_of(netns) {
            let Some(vrf) = self.vrf(at) else {
                continue;
            };
            let has = |entry: &Entry| entry.records().iter().any(|record| sets.contains(&record.set));
            let prefixes: Vec<Prefix> = vrf
                .routes
                .iter()
                .filter(|(_, entry)| has(entry))
                .map(|(prefix, _)| prefix)
                .collect();
            for prefix in prefixes {
                self.sync(at, &prefix);
            }
        }
    }

    /// Notes that a prefix of the table `local` came or went, which hides longer routes of the VRF's table.
    fn note_wide(&mut self, at: usize, prefix: &Prefix) {
        let Some(vrf) = self.vrf_mut(at) else {
            return;
        };
        let is_there = vrf.routes.get(prefix).is_some_and(|entry| {
            entry
                .records()
                .iter()
                .any(|record| record.origin == Origin::LocalTable)
        });
        let was_there = vrf.wide_local.contains(prefix);
        if is_there == was_there || prefix.len() == prefix.family().bits() {
            return;
        }
        vrf.wide_local.retain(|other| other != prefix);
        if is_there {
            vrf.wide_local.push(*prefix);
        }
        let hit = |(other, _): (Prefix, &Entry)| (prefix.covers(&other) && other != *prefix).then_some(other);
        let covered: Vec<Prefix> = vrf.routes.iter().filter_map(hit).collect();
        for other in covered {
            self.sync(at, &other);
        }
    }

    /// Returns the route that packets to a prefix take, if the FIB should have it.
    fn wanted_record<'a>(
        hops: &HopTable,
        wide: &[Prefix],
        prefix: &Prefix,
        entry: &'a Entry,
    ) -> Option<&'a Record> {
        let is_dead = |record: &Record| hops.set(record.set).is_some_and(Set::is_dead);
        let best = entry.best(|record| record.origin == Origin::Fpm || !is_dead(record))?;
        let is_hidden = best.origin != Origin::LocalTable && wide.iter().any(|wide| wide.covers(prefix));
        (!is_hidden).then_some(best)
    }

    /// Returns the group that the FIB should have for a prefix.
    fn wanted_group(&self, at: usize, prefix: &Prefix) -> GroupId {
        let Some(vrf) = self.vrf(at) else {
            return GroupId::NONE;
        };
        if prefix.len() == prefix.family().bits() {
            let address = prefix.address();
            let mut hosts = vrf.hosts.range((address, 0)..=(address, u32::MAX)).peekable();
            if hosts.peek().is_some() {
                // A hidden route has no host either: the table `local` decides.
                if let Some((around, entry)) = vrf.routes.longest(prefix, |entry| !entry.is_empty())
                    && let Some(record) = Self::wanted_record(&self.hops, &vrf.wide_local, &around, entry)
                {
                    for ((_, ifindex), set) in hosts {
                        if self.is_connected(record.set, *ifindex) {
                            return self.group_of(*set);
                        }
                    }
                }
            }
        }
        vrf.routes
            .get(prefix)
            .and_then(|entry| Self::wanted_record(&self.hops, &vrf.wide_local, prefix, entry))
            .map_or(GroupId::NONE, |record| self.group_of(record.set))
    }

    /// Returns true if a set sends packets to their destinations on a link.
    fn is_connected(&self, set: SetId, ifindex: u32) -> bool {
        let Some(set) = self.hops.set(set) else {
            return false;
        };
        let is = |hop: &Hop| hop.ifindex == ifindex && hop.gateway.is_none();
        match &set.key.via {
            Via::Object(source, id) => {
                let namespace = self.namespaces.get(&set.key.netns);
                match namespace.and_then(|namespace| namespace.hops_of(*source, *id)) {
                    Some(ObjectHops::Hops(hops)) => hops.iter().any(|(hop, _)| is(hop)),
                    _ => false,
                }
            }
            via => via.hops().iter().any(is),
        }
    }

    /// Makes the FIB equal to the routes of a prefix, and to the hosts inside of it.
    pub(crate) fn sync(&mut self, at: usize, prefix: &Prefix) {
        self.sync_one(at, prefix);
        let Some(vrf) = self.vrf(at).filter(|vrf| !vrf.hosts.is_empty()) else {
            return;
        };
        let hosts: Vec<IpAddr> = vrf
            .hosts
            .range((prefix.address(), 0)..)
            .map(|((address, _), _)| *address)
            .take_while(|address| prefix.contains(*address))
            .collect();
        for address in hosts {
            let host = Prefix::host(address);
            if host != *prefix {
                self.sync_one(at, &host);
            }
        }
    }

    fn sync_one(&mut self, at: usize, prefix: &Prefix) {
        let wanted = self.wanted_group(at, prefix);
        let Some(vrf) = self.vrfs.get_mut(at).and_then(Option::as_mut) else {
            return;
        };
        let installed = vrf
            .routes
            .get(prefix)
            .map_or(GroupId::NONE, |entry| entry.installed);
        if wanted != installed {
            let result = match (installed.is_none(), wanted.is_none()) {
                (_, true) => {
                    let cover = vrf.routes.cover(prefix);
                    self.writer.remove(vrf.fib, prefix, cover)
                }
                (true, false) => self.writer.insert(vrf.fib, prefix, wanted),
                (false, false) => self.writer.replace(vrf.fib, prefix, wanted),
            };
            match result {
                Ok(_) => vrf.routes.entry(prefix).installed = wanted,
                Err(_) => self.counts.refused += 1,
            }
        }
        vrf.routes.settle(prefix);
    }

    pub(crate) fn remove_host(&mut self, id: VrfId, ifindex: u32, address: IpAddr) {
        self.set_host(id, ifindex, address, false);
    }

    /// Adds or removes a host: a neighbour that packets may be sent to.
    pub(crate) fn set_host(&mut self, id: VrfId, ifindex: u32, address: IpAddr, is_there: bool) {
        let at = id.0 as usize;
        let Some(vrf) = self.vrf(at) else {
            return;
        };
        let key = (address, ifindex);
        if vrf.hosts.contains_key(&key) == is_there {
            return;
        }
        let mut dropped = None;
        if is_there {
            let set = self.use_set(SetKey {
                netns: vrf.netns,
                family: Family::V4,
                via: Via::Host(ifindex, address),
                mtu: 0,
            });
            if let (Some(set), Some(vrf)) = (set, self.vrf_mut(at)) {
                vrf.hosts.insert(key, set);
            }
        } else if let Some(vrf) = self.vrf_mut(at) {
            dropped = vrf.hosts.remove(&key);
        }
        self.sync_one(at, &Prefix::host(address));
        if let Some(set) = dropped {
            self.drop_set(set);
        }
    }
}

/// How routes of IPv6 with one prefix and metric are told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ByHops {
    /// Next hops with gateways: the kernel joins them to one route (but not those of router advertisements).
    Gateways,
    /// All others stand side by side.
    Other,
}

impl ByHops {
    fn of(via: &Via, protocol: u8) -> ByHops {
        let hops = via.hops();
        if !hops.is_empty() && protocol != PROTOCOL_RA && hops.iter().any(|hop| hop.gateway.is_some()) {
            ByHops::Gateways
        } else {
            ByHops::Other
        }
    }
}

/// Returns an only hop without what makes no difference to packets, so that equal ones are found.
fn normal(hop: &Hop) -> Hop {
    Hop {
        onlink: false,
        weight: 1,
        ..*hop
    }
}

/// Returns one of several hops without what makes no difference to packets.
fn weighted(hop: &Hop) -> Hop {
    Hop {
        weight: hop.weight.max(1),
        ..normal(hop)
    }
}

fn is_same_hop(one: &Hop, other: &Hop) -> bool {
    (one.ifindex, one.gateway) == (other.ifindex, other.gateway)
}

fn via_of(mut hops: Vec<Hop>) -> Via {
    match (hops.len(), hops.pop()) {
        (1, Some(hop)) => Via::One(normal(&hop)),
        (_, Some(last)) => {
            hops.push(last);
            Via::Many(hops)
        }
        (_, None) => Via::Discard(NextHopKind::Unreachable),
    }
}
