//! The state of the router for people.

use std::net::IpAddr;

use millrace_datapath::io::Backend;
use millrace_fib::Prefix;
use millrace_model as model;
use millrace_rib::event::RouteKind;
use millrace_rib::{NeighbourView, OwnPrefix, RouteView};
use millrace_router::InterfaceStats;
use millrace_types::Mac;

use super::router::Router;
use super::state::State;

/// The state of a VRF.
#[derive(Clone, Debug)]
pub struct VrfStatus {
    pub config: model::Vrf,
    pub state: VrfState,
    /// The number of routes that packets follow, IPv4 and IPv6.
    pub routes: [u64; 2],
    pub nexthop_groups: u64,
    pub neighbours: u64,
    /// The memory of the lookup tables of all VRFs, in bytes.
    pub fib_bytes: u64,
    /// The connection to the kernel of the namespace.
    pub kernel: millrace_netlink::Status,
    /// The listener for FRR; empty without one.
    pub fpm: millrace_netlink::Status,
}

/// The numbers of the router as a whole.
#[derive(Clone, Copy, Debug)]
pub struct RouterTotals {
    pub usage: millrace_fib::Usage,
    pub counts: millrace_rib::Counts,
}

/// The state of the source of a VRF's routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VrfState {
    /// No route was read yet.
    Reading,
    Synchronised,
    /// FRR is not connected.
    Away,
    NoNamespace,
}

/// The state of an interface.
#[derive(Clone, Debug)]
pub struct InterfaceStatus {
    pub config: model::Interface,
    pub is_up: bool,
    /// The longest IP packet in bytes: by the configuration, or less by the kernel's interface.
    pub mtu: u16,
    /// The addresses at which it receives besides its own.
    pub other_macs: Vec<Mac>,
    pub stats: InterfaceStats,
}

/// A group of next hops and the number of its routes.
#[derive(Clone, Debug)]
pub struct NextHopGroupStatus {
    pub routes: u64,
    /// One of its routes.
    pub example: RouteView,
}

/// The part of a VRF's routes that is asked for.
#[derive(Clone, Copy, Debug)]
pub enum RouteSelection {
    All,
    /// The route that packets to this address follow.
    To(IpAddr),
    /// The route of this prefix, and those of prefixes in it.
    Within(Prefix),
}

/// Returns true for routes of which people ask: those that packets follow, without those of single neighbours and of
/// multicast.
fn is_shown(route: &RouteView) -> bool {
    route.is_installed && route.kind != RouteKind::Multicast
}

impl<B: Backend> State<B> {
    fn vrf_status(&self, name: &str) -> Option<VrfStatus> {
        let vrf = self.vrfs.get(name)?;
        let kernel = self.namespaces.values().find(|held| held.netns == vrf.netns);
        let kernel = kernel.map(|held| held.kernel.status()).unwrap_or_default();
        let fpm = vrf.fpm.as_ref().map(millrace_netlink::Fpm::status);
        let is_away = fpm.as_ref().is_some_and(|fpm| fpm.messages == 0);
        let summary = self.rib.summary(vrf.id);
        let state = match (kernel.is_open, is_away, summary.is_synchronised) {
            (false, _, _) => VrfState::NoNamespace,
            (true, true, _) => VrfState::Away,
            (true, false, false) => VrfState::Reading,
            (true, false, true) => VrfState::Synchronised,
        };
        Some(VrfStatus {
            config: vrf.config.clone(),
            state,
            routes: summary.prefixes.map(|prefixes| prefixes as u64),
            nexthop_groups: summary.groups as u64,
            neighbours: self
                .rib
                .neighbours_len(vrf.id, |link| self.has_interface(name, link)) as u64,
            fib_bytes: self.rib.usage().size as u64,
            fpm: fpm.unwrap_or_default(),
            kernel,
        })
    }

    /// Returns true if a link of a VRF's namespace is one of its interfaces.
    fn has_interface(&self, vrf: &str, link: &str) -> bool {
        self.interfaces.contains_key(&(vrf.to_owned(), link.to_owned()))
    }

    /// Returns the neighbours on the interfaces of a VRF.
    pub(super) fn neighbours(&self, name: &str) -> Vec<NeighbourView> {
        let Some(vrf) = self.vrfs.get(name) else {
            return Vec::new();
        };
        let mut neighbours = self.rib.neighbours(vrf.id);
        neighbours.retain(|held| self.has_interface(name, &held.link));
        neighbours.sort_by(|a, b| (&a.link, a.address).cmp(&(&b.link, b.address)));
        neighbours
    }
}

impl<B: Backend> Router<B> {
    /// Returns the VRFs in order of names.
    pub fn vrfs(&self) -> Vec<VrfStatus> {
        let Some(state) = self.state() else {
            return Vec::new();
        };
        state
            .vrfs
            .keys()
            .filter_map(|name| state.vrf_status(name))
            .collect()
    }

    /// Returns the numbers of the router as a whole; `None` without VRFs.
    pub fn totals(&self) -> Option<RouterTotals> {
        let state = self.state()?;
        Some(RouterTotals {
            usage: state.rib.usage(),
            counts: state.rib.counts(),
        })
    }

    /// Returns the names of the VRFs.
    pub fn vrf_names(&self) -> Vec<String> {
        self.state()
            .map(|state| state.vrfs.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// Returns the interfaces in order of VRFs and names.
    pub fn interfaces(&self) -> Vec<InterfaceStatus> {
        let Some(state) = self.state() else {
            return Vec::new();
        };
        let status = |held: &super::state::RunningInterface| InterfaceStatus {
            config: held.plan.config.clone(),
            is_up: held.interface.is_up,
            mtu: state
                .rib
                .link_mtu(held.netns, &held.interface.name)
                .map_or(held.interface.mtu, |mtu| mtu.min(held.interface.mtu)),
            other_macs: held.interface.other_macs.clone(),
            stats: InterfaceStats::of(&held.interface.counters),
        };
        let configured = state
            .interfaces
            .values()
            .filter(|held| held.plan.passive.is_none());
        configured.map(status).collect()
    }

    /// Returns routes of a VRF that packets follow, in the order of prefixes, those after `after`, and `limit` at most;
    /// true if there are more. `None` if there is no such VRF.
    pub fn routes(
        &self,
        vrf: &str,
        selection: RouteSelection,
        after: Option<Prefix>,
        limit: usize,
    ) -> Option<(Vec<RouteView>, bool)> {
        let state = self.state()?;
        let id = state.vrfs.get(vrf)?.id;
        let page = |within| {
            state
                .rib
                .page(id, within, after.as_ref(), limit.saturating_add(1))
        };
        let mut routes: Vec<RouteView> = match selection {
            RouteSelection::To(address) => {
                let route = state.rib.explain(id, address).filter(is_shown);
                let is_next = |route: &RouteView| after.is_none_or(|after| route.prefix > after);
                route.filter(is_next).into_iter().collect()
            }
            RouteSelection::All => page(None),
            RouteSelection::Within(within) => page(Some(&within)),
        };
        drop(state);
        let has_more = routes.len() > limit;
        routes.truncate(limit);
        Some((routes, has_more))
    }

    /// Returns the groups of next hops of a VRF by number; `None` if there is no such VRF.
    pub fn nexthops(&self, vrf: &str) -> Option<Vec<NextHopGroupStatus>> {
        let state = self.state()?;
        let id = state.vrfs.get(vrf)?.id;
        let mut groups = std::collections::BTreeMap::new();
        for route in state.rib.routes(id).filter(is_shown) {
            let group = groups.entry(route.group).or_insert_with(|| NextHopGroupStatus {
                routes: 0,
                example: route,
            });
            group.routes += 1;
        }
        Some(groups.into_values().collect())
    }

    /// Returns the neighbours of a VRF by interface and address; `None` if there is no such VRF.
    pub fn neighbours(&self, vrf: &str) -> Option<Vec<NeighbourView>> {
        let state = self.state()?;
        state.vrfs.contains_key(vrf).then(|| state.neighbours(vrf))
    }

    /// Returns the routes by which the machine sends tunnels with `underlay=host`, `limit` at most, and the neighbours at its
    /// passive interfaces. Both are empty without such a tunnel.
    pub fn of_host(&self, limit: usize) -> (Vec<OwnPrefix>, Vec<NeighbourView>) {
        let host = model::Vrf::of_host();
        let name = host.name.as_str();
        let Some(state) = self.state() else {
            return Default::default();
        };
        let id = state.vrfs.get(name).map(|vrf| vrf.id);
        let routes = id.map(|id| state.rib.own_prefixes(id).take(limit).collect());
        (routes.unwrap_or_default(), state.neighbours(name))
    }

    /// Returns the name of the interface of the router with this index.
    pub fn interface_name(&self, index: u16) -> Option<String> {
        let state = self.state()?;
        let held = state
            .interfaces
            .values()
            .find(|held| held.interface.index == index)?;
        Some(held.plan.config.name.to_string())
    }
}
