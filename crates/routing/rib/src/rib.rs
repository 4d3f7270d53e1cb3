//! The state of all VRFs: events in, changes of the FIBs and requests to the kernel out.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;

use millrace_fib::{Fib, FibId, NextHops, Prefix, Retired, Writer};
use millrace_types::{Duration, Time};

use crate::action::Action;
use crate::event::{Change, Dump, Event, Netns, Object, Source};
use crate::hops::{HopTable, SetId};
use crate::namespace::{Namespace, next_generation};
use crate::replay::Replay;
use crate::routes::Routes;

/// How long the routes of a namespace that is gone stay in the FIB: a container that is started again takes seconds.
pub const NAMESPACE_HOLD: Duration = Duration::from_secs(30);
/// How long after an event with silent consequences the routes are dumped as a check.
pub const CHECK_AFTER: Duration = Duration::from_secs(2);
/// The least time between two checks of a namespace: a dump of a million routes takes seconds.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// How long after a dump that failed it is asked for again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How often hosts with traffic are confirmed: below half of the kernel's `gc_stale_time` of 60 s.
const CONFIRM_INTERVAL: Duration = Duration::from_secs(10);
/// The maximum number of requests that wait for the kernel; more are dropped and counted.
const ACTIONS_MAX: usize = 65_536;

/// The number of a VRF.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VrfId(pub(crate) u32);

/// Bounds of memory. Objects beyond them are refused and counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The maximum number of prefixes of a VRF.
    pub prefixes: usize,
    /// The maximum number of neighbours of a namespace.
    pub neighbours: usize,
    /// The maximum number of next-hop objects of a namespace.
    pub objects: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            prefixes: 4_000_000,
            neighbours: 131_072,
            objects: 262_144,
        }
    }
}

/// Counters of the RIB, from its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub events: u64,
    /// Routes, neighbours and objects beyond the limits, and changes for which the FIB had no memory.
    pub refused: u64,
    /// Requests that were dropped because too many waited.
    pub actions_dropped: u64,
    /// Routes that the kernel removed without a message, by the RIB's rules.
    pub purged: u64,
    /// Objects that a dump or a replay did not name.
    pub swept: u64,
}

#[derive(Debug)]
pub(crate) struct Vrf {
    pub(crate) netns: Netns,
    pub(crate) table: u32,
    pub(crate) source: Source,
    pub(crate) fib: FibId,
    pub(crate) routes: Routes,
    /// Neighbours that packets may be sent to, with a set each.
    pub(crate) hosts: BTreeMap<(IpAddr, u32), SetId>,
    /// Prefixes of the table `local` that are shorter than an address: they win over longer ones of the VRF's table.
    pub(crate) wide_local: Vec<Prefix>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Interface {
    pub(crate) index: u16,
    pub(crate) vrf: VrfId,
}

/// The state of all VRFs, and the single writer of their FIBs. It has no clock: `now` is an argument.
#[derive(Debug, Default)]
pub struct Rib {
    pub(crate) writer: Writer,
    pub(crate) vrfs: Vec<Option<Vrf>>,
    pub(crate) namespaces: HashMap<Netns, Namespace>,
    pub(crate) interfaces: HashMap<(Netns, String), Interface>,
    pub(crate) hops: HopTable,
    pub(crate) source_addresses: SourceAddresses,
    pub(crate) limits: Limits,
    pub(crate) counts: Counts,
    actions: VecDeque<Action>,
    confirm_at: Option<Time>,
}

/// Preferred source addresses by number.
#[derive(Debug, Default)]
pub(crate) struct SourceAddresses {
    numbers: HashMap<IpAddr, u32>,
}

impl SourceAddresses {
    /// Returns the number of an address, from 1; it is the same for ever. Few addresses of a machine are ever a source.
    pub(crate) fn number(&mut self, address: Option<IpAddr>) -> u32 {
        let Some(address) = address else {
            return 0;
        };
        let next = self.numbers.len() as u32 + 1;
        *self.numbers.entry(address).or_insert(next)
    }

    /// Returns the address with a number.
    pub(crate) fn address(&self, number: u32) -> Option<IpAddr> {
        let mut numbers = self.numbers.iter();
        numbers
            .find(|(_, held)| **held == number)
            .map(|(address, _)| *address)
    }

    pub(crate) fn find(&self, address: IpAddr) -> Option<u32> {
        self.numbers.get(&address).copied()
    }
}

impl Rib {
    /// Returns a RIB without VRFs.
    pub fn new(limits: Limits) -> Rib {
        Rib {
            limits,
            ..Rib::default()
        }
    }

    /// Returns the reader of all next hops.
    pub fn next_hops(&self) -> NextHops {
        self.writer.next_hops()
    }

    /// Adds a VRF: a routing table of a namespace (254 is the main table, with which the table `local` goes), and the
    /// source of its routes. Connected and local routes are the kernel's in any case. Returns the reader of its FIB.
    pub fn add_vrf(&mut self, netns: Netns, table: u32, source: Source) -> (VrfId, Fib) {
        let (fib, reader) = self.writer.add_fib();
        let vrf = Some(Vrf {
            netns,
            table,
            source,
            fib,
            routes: Routes::default(),
            hosts: BTreeMap::new(),
            wide_local: Vec::new(),
        });
        let at = self
            .vrfs
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.vrfs.len());
        if at == self.vrfs.len() {
            self.vrfs.push(None);
        }
        self.vrfs[at] = vrf;
        if self.namespaces.entry(netns).or_default().is_open {
            self.dump_all(netns);
        }
        (VrfId(at as u32), reader)
    }

    /// Removes a VRF, its interfaces and its routes. Readers of its FIB must be dropped before the next
    /// [`Rib::reclaim`].
    pub fn remove_vrf(&mut self, id: VrfId) {
        let of_vrf = |interface: &Interface| interface.vrf == id;
        let names: Vec<(Netns, String)> = self
            .interfaces
            .iter()
            .filter(|(_, interface)| of_vrf(interface))
            .map(|(name, _)| name.clone())
            .collect();
        for (netns, name) in names {
            self.remove_interface(netns, &name);
        }
        if let Some(vrf) = self.vrfs.get_mut(id.0 as usize).and_then(Option::take) {
            self.writer.remove_fib(vrf.fib);
            for (_, entry) in vrf.routes.iter() {
                for record in entry.records() {
                    self.drop_set(record.set);
                }
            }
            for set in vrf.hosts.into_values() {
                self.drop_set(set);
            }
            if !self.vrfs.iter().flatten().any(|other| other.netns == vrf.netns) {
                self.namespaces.remove(&vrf.netns);
            }
        }
    }

    /// Adds an interface of the router: its shadow in the namespace has this name. `index` is the router's, below
    /// [`millrace_fib::NextHopSpec::NO_INTERFACE`].
    pub fn add_interface(&mut self, vrf: VrfId, netns: Netns, name: &str, index: u16) {
        self.interfaces
            .insert((netns, name.to_owned()), Interface { index, vrf });
        self.interface_changed(netns, name);
    }

    /// Removes an interface of the router.
    pub fn remove_interface(&mut self, netns: Netns, name: &str) {
        let Some(interface) = self.interfaces.remove(&(netns, name.to_owned())) else {
            return;
        };
        for ifindex in self.links_of_interface(netns, name) {
            self.forget_hosts(interface.vrf, ifindex);
        }
        self.interface_changed(netns, name);
    }

    /// Applies an event.
    pub fn handle(&mut self, event: Event, now: Time) {
        self.counts.events += 1;
        let Event {
            netns,
            source,
            change,
        } = event;
        let namespace = self.namespaces.entry(netns).or_default();
        let is_replay = source == Source::Fpm && namespace.replay.is_some();
        match change {
            Change::There(Object::Route(route)) => self.route_there(netns, source, &route),
            Change::Gone(Object::Route(route)) => self.route_gone(netns, source, &route),
            Change::There(Object::NextHop(object)) => self.object_there(netns, source, object),
            Change::Gone(Object::NextHop(object)) => self.objects_gone(netns, source, vec![object.id]),
            Change::There(Object::Neighbour(neighbour)) => self.neighbour_there(netns, neighbour),
            Change::Gone(Object::Neighbour(neighbour)) => {
                self.neighbour_gone(netns, neighbour.ifindex, neighbour.address);
            }
            Change::There(Object::Link(link)) => self.link_there(netns, link, now),
            Change::Gone(Object::Link(link)) => self.link_gone(netns, link.ifindex, now),
            Change::There(Object::Address(address)) => self.address_there(netns, address),
            Change::Gone(Object::Address(address)) => self.address_gone(netns, address, now),
            Change::DumpBegins(dump) => namespace.begin_dump(dump),
            Change::DumpEnds(dump) => self.dump_ended(netns, dump, now),
            Change::DumpFails(dump) => {
                namespace.dumps.retain(|state| state.dump != dump);
                self.check_by(netns, now + RETRY_AFTER);
            }
            Change::Lost => self.dump_all(netns),
            Change::Opened if source == Source::Kernel => {
                namespace.is_open = true;
                namespace.empty_at = None;
                self.dump_all(netns);
            }
            Change::Opened => {
                namespace.replay = Some(Replay::new(now, namespace.fpm_generation != 0));
                namespace.fpm_generation = next_generation(namespace.fpm_generation);
            }
            Change::Closed if source == Source::Kernel => {
                namespace.is_open = false;
                namespace.dumps.clear();
                namespace.read.clear();
                namespace.check_at = None;
                namespace.empty_at = Some(now + NAMESPACE_HOLD);
            }
            // The routes stay until the next connection's replay: zebra may be restarting.
            Change::Closed => namespace.replay = None,
        }
        if is_replay && let Some(replay) = self.replay(netns) {
            replay.handled(now);
        }
        if self.confirm_at.is_none() {
            self.confirm_at = Some(now + CONFIRM_INTERVAL);
        }
    }

    /// Returns FPM's replay in a namespace, if one is under way.
    pub(crate) fn replay(&mut self, netns: Netns) -> Option<&mut Replay> {
        self.namespaces.get_mut(&netns)?.replay.as_mut()
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Time) {
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        let names: Vec<Netns> = self.namespaces.keys().copied().collect();
        for netns in names {
            let Some(namespace) = self.namespaces.get_mut(&netns) else {
                continue;
            };
            if is_due(namespace.empty_at) {
                namespace.empty_at = None;
                self.empty(netns);
            } else if is_due(namespace.check_at) {
                namespace.check_at = None;
                namespace.checked_at = Some(now);
                self.dump_all(netns);
            }
            if is_due(self.replay(netns).map(|replay| replay.ends_at())) {
                self.replay_ended(netns);
            }
        }
        if is_due(self.confirm_at) {
            self.confirm_at = Some(now + CONFIRM_INTERVAL);
            self.confirm_hosts();
        }
    }

    /// Returns when [`Rib::tick`] has something to do; `None` if no time is set.
    pub fn next_due(&self) -> Option<Time> {
        let of_namespace = |namespace: &Namespace| {
            let replay = namespace.replay.map(|replay| replay.ends_at());
            [namespace.empty_at, namespace.check_at, replay]
                .into_iter()
                .flatten()
                .min()
        };
        self.namespaces
            .values()
            .filter_map(of_namespace)
            .chain(self.confirm_at)
            .min()
    }

    /// Returns the next request to the kernel.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns what workers can no longer reach, unless they are in a burst now; `None` if there is nothing.
    pub fn take_retired(&mut self) -> Option<Retired> {
        self.writer.take_retired()
    }

    /// Takes back what [`Rib::take_retired`] returned, after a grace period.
    pub fn reclaim(&mut self, retired: Retired) {
        self.writer.reclaim(retired);
    }

    pub(crate) fn act(&mut self, action: Action) {
        if matches!(action, Action::Dump { .. }) {
            if self.actions.contains(&action) {
                return;
            }
        } else if self.actions.len() >= ACTIONS_MAX {
            self.counts.actions_dropped += 1;
            return;
        }
        self.actions.push_back(action);
    }

    /// Asks for all that a namespace has, in the order in which objects need each other.
    pub(crate) fn dump_all(&mut self, netns: Netns) {
        use millrace_fib::Family::{V4, V6};
        for dump in [
            Dump::Links,
            Dump::Addresses,
            Dump::Neighbours,
            Dump::NextHops,
            Dump::Routes(V4),
            Dump::Routes(V6),
        ] {
            self.act(Action::Dump { netns, dump });
        }
    }

    /// Has the namespace checked after an event with silent consequences.
    pub(crate) fn check_soon(&mut self, netns: Netns, now: Time) {
        let last = self
            .namespaces
            .get(&netns)
            .and_then(|namespace| namespace.checked_at);
        let earliest = last.map_or(Time::ZERO, |last| last + CHECK_INTERVAL);
        self.check_by(netns, earliest.max(now + CHECK_AFTER));
    }

    fn check_by(&mut self, netns: Netns, at: Time) {
        if let Some(namespace) = self.namespaces.get_mut(&netns)
            && namespace.is_open
        {
            namespace.check_at = Some(namespace.check_at.map_or(at, |before| before.min(at)));
        }
    }

    /// Returns the numbers of the VRFs of a namespace.
    pub(crate) fn vrfs_of(&self, netns: Netns) -> Vec<usize> {
        let of_netns = |(at, vrf): (usize, &Option<Vrf>)| (vrf.as_ref()?.netns == netns).then_some(at);
        self.vrfs.iter().enumerate().filter_map(of_netns).collect()
    }

    pub(crate) fn vrf(&self, at: usize) -> Option<&Vrf> {
        self.vrfs.get(at)?.as_ref()
    }

    pub(crate) fn vrf_mut(&mut self, at: usize) -> Option<&mut Vrf> {
        self.vrfs.get_mut(at)?.as_mut()
    }
}
