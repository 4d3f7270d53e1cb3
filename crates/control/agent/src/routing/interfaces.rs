//! Reconciliation of VRFs and interfaces with the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_datapath::io::{Backend, DeviceOptions, DeviceSpec, ShadowSpec};
use millrace_model as model;
use millrace_netlink::{Fpm, Kernel, Settings, Shadow};
use millrace_pipeline::FdbKey;
use millrace_rib::Netns;
use millrace_router::{Address4, Address6, Change, EgressMode, Interface, InterfaceCounters};
use millrace_types::Mac;
use parking_lot::Mutex;

use super::plan::{InterfaceKey, InterfacePlan, Plan, compile, namespace_of};
use super::state::{RunningInterface, RunningNamespace, RunningVrf, State, source_of};
use crate::control::{BridgeHandle, BridgeInterfaces};
use crate::problem::Problem;

/// The time within which workers give the queues of closed interfaces back: far more than they take.
const CLOSE_BOUND: Duration = Duration::from_secs(5);
/// The pause between two looks at the interfaces that close.
const CLOSE_PAUSE: Duration = Duration::from_millis(1);

/// See [`super::Router::withdraw`].
pub(super) fn withdraw<B: Backend>(
    state: &Mutex<State<B>>,
    plan: Plan,
    bridge: impl Fn(&str) -> Option<BridgeHandle<B>>,
    stays: impl Fn(&str) -> bool,
) {
    let plan = state.lock().with_passive(plan);
    let router = Arc::clone(&state.lock().router);
    let (mut left, mut kept) = (Vec::new(), Vec::new());
    {
        let mut state = state.lock();
        let vrf_stays = |vrf: &RunningVrf| plan.vrfs.get(vrf.config.name.as_str()) == Some(&vrf.config);
        let obsolete: Vec<InterfaceKey> = state
            .interfaces
            .iter()
            .filter(|(key, held)| {
                let is_wanted = plan
                    .interfaces
                    .get(*key)
                    .is_some_and(|wanted| !wanted.needs_new(&held.plan));
                let has_vrf = state.vrfs.get(&key.0).is_some_and(vrf_stays);
                !(is_wanted && has_vrf && stays(held.plan.config.bridge.as_str()))
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in obsolete {
            state.remove_interface(&key);
        }
        let obsolete: Vec<String> = state
            .vrfs
            .iter()
            .filter(|(_, vrf)| !vrf_stays(vrf))
            .map(|(name, _)| name.clone())
            .collect();
        let before: Vec<_> = state
            .bridges_with_tunnels()
            .into_iter()
            .map(|name| (state.underlays_of(&name), name))
            .collect();
        state.tunnels.retain(|port, held| {
            let has_vrf = !obsolete.contains(&held.plan.vrf);
            has_vrf && stays(&port.0) && plan.tunnels.get(port) == Some(&held.plan)
        });
        state.publish_tunnels();
        for (before, name) in before {
            let vrfs = state.underlays_of(&name);
            if vrfs != before {
                kept.push((name, vrfs));
            }
        }
        for name in obsolete {
            state.remove_vrf(&name);
        }
        let of_tunnels = state.bridges_with_tunnels();
        let used: BTreeSet<&str> = state
            .interfaces
            .values()
            .map(|held| held.plan.config.bridge.as_str())
            .chain(of_tunnels.iter().map(String::as_str))
            .collect();
        left.extend(
            state
                .bridges
                .keys()
                .filter(|name| !used.contains(name.as_str()))
                .cloned(),
        );
        for name in &left {
            state.bridges.remove(name);
            state.handles.remove(name);
        }
    }
    // The index of a VRF that is gone may be that of another one soon.
    for (name, vrfs) in kept {
        if let Some(handle) = bridge(&name) {
            let router = Arc::clone(&router);
            let removed = handle.call_blocking(move |control| control.keep_underlays(&router, &vrfs));
            if let Err(error) = removed {
                tracing::debug!(bridge = name, %error, "tunnels left a bridge that is gone");
            }
        }
    }
    for name in left {
        if let Some(handle) = bridge(&name) {
            let router = Arc::clone(&router);
            let removed = handle.call_blocking(move |control| control.remove_router(&router));
            if let Err(error) = removed {
                tracing::debug!(bridge = name, %error, "the router left a bridge that is gone");
            }
        }
    }
    // An interface of the same name can be made only when the old one is closed.
    let until = Instant::now() + CLOSE_BOUND;
    while router.lock().collect() > 0 && Instant::now() < until {
        std::thread::sleep(CLOSE_PAUSE);
    }
}

/// See [`super::Router::apply`].
pub(super) fn apply<B: Backend>(
    state: &Mutex<State<B>>,
    plan: Plan,
    bridge: impl Fn(&str) -> Option<BridgeHandle<B>>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for vrf in plan.vrfs.values() {
        if let Err(reason) = state.lock().apply_vrf(vrf) {
            problems.push(Problem::new(format!("vrf {}", vrf.name), reason));
        }
    }
    let plan = {
        let mut state = state.lock();
        state.taps = plan.taps.keys().cloned().collect();
        state.with_passive(plan)
    };
    for (key, wanted) in &plan.interfaces {
        if let Err(reason) = state.lock().apply_interface(key, wanted) {
            problems.push(Problem::new(format!("interface {}", wanted.config.name), reason));
        }
    }
    {
        let mut state = state.lock();
        for (port, wanted) in &plan.tunnels {
            state.apply_tunnel(port, wanted);
            state.bridge_index(&port.0);
        }
    }
    let bridges = state.lock().bridges.clone();
    for (name, index) in bridges {
        let problem = |reason: String| Problem::new(format!("bridge {name}, router"), reason);
        let Some(handle) = bridge(&name) else {
            problems.push(problem("the bridge does not run".to_owned()));
            continue;
        };
        let (router, interfaces, links) = {
            let mut state = state.lock();
            state.handles.insert(name.clone(), handle.clone());
            // Macvlans may change before the bridge has what is sent now.
            state.untold.insert(name.clone());
            (
                Arc::clone(&state.router),
                state.interfaces_of(&name, index),
                state.links.clone(),
            )
        };
        let set = handle.call_blocking(move |control| control.set_router(&router, index, interfaces, links));
        match set {
            Ok(Ok(underlays)) => state.lock().set_underlays(&name, index, &underlays),
            Ok(Err(reason)) => problems.push(problem(reason)),
            Err(error) => problems.push(problem(error.to_string())),
        }
    }
    state.lock().publish_tunnels();
    for (key, wanted) in plan
        .interfaces
        .iter()
        .filter(|(_, wanted)| wanted.passive.is_none())
    {
        if let Err(reason) = apply_shadow(state, key, wanted) {
            problems.push(Problem::new(format!("interface {}", wanted.config.name), reason));
        }
    }
    problems
}

/// Makes the kernel's interface, if it is missing, and gives it its addresses.
fn apply_shadow<B: Backend>(
    state: &Mutex<State<B>>,
    key: &InterfaceKey,
    wanted: &InterfacePlan,
) -> Result<(), String> {
    let (datapath, vrf, missing) = {
        let state = state.lock();
        let (Some(held), Some(vrf)) = (state.interfaces.get(key), state.vrfs.get(&key.0)) else {
            return Ok(());
        };
        let missing = held.shadow.is_none().then_some(held.interface.index);
        (Arc::clone(&state.datapath), vrf.config.clone(), missing)
    };
    let namespace = namespace_of(&vrf);
    if let Some(index) = missing {
        let spec = DeviceSpec::Shadow(ShadowSpec {
            namespace: namespace.file().map(Path::to_owned),
            name: wanted.config.name.to_string(),
            mac: wanted.config.mac_address(),
        });
        let options = DeviceOptions {
            mtu: wanted.config.mtu.get(),
            ..DeviceOptions::PLAIN
        };
        let opened = datapath
            .backend()
            .open(&spec, options)
            .map_err(|error| error.to_string())?;
        let shadow =
            Shadow::find(&namespace, wanted.config.name.as_str()).map_err(|error| error.to_string())?;
        let mut state = state.lock();
        let router = Arc::clone(&state.router);
        let mut router = router.lock();
        if !router.add_shadow(index, opened) {
            return Err("its bridge has no router".to_owned());
        }
        if let Some(held) = state.interfaces.get_mut(key) {
            router.set_carrier(index, held.interface.is_up);
            held.ifindex = Some(shadow.ifindex());
            held.shadow = Some(shadow);
        }
    }
    let addresses: Vec<(IpAddr, u8)> = wanted
        .config
        .addresses
        .iter()
        .map(|address| (address.address(), address.prefix_len()))
        .collect();
    let shadow = state
        .lock()
        .interfaces
        .get_mut(key)
        .and_then(|held| held.shadow.take());
    let Some(mut shadow) = shadow else {
        return Ok(());
    };
    // Without the lock: the kernel takes milliseconds, and a busy one longer.
    let set = shadow.set_addresses(&addresses);
    // The interface may have been taken away meanwhile.
    if let Some(held) = state.lock().interfaces.get_mut(key)
        && held.ifindex == Some(shadow.ifindex())
    {
        held.shadow = Some(shadow);
    }
    set.map_err(|error| error.to_string())
}

impl<B: Backend> State<B> {
    fn remove_interface(&mut self, key: &InterfaceKey) {
        let Some(held) = self.interfaces.remove(key) else {
            return;
        };
        self.rib.remove_interface(held.netns, &key.1);
        let mut router = self.router.lock();
        router.remove_shadow(held.interface.index);
        router.change(&mut vec![Change::RemoveInterface(held.interface.index)]);
        tracing::info!(interface = key.1, vrf = key.0, "interface removed");
    }

    fn remove_vrf(&mut self, name: &str) {
        let Some(vrf) = self.vrfs.remove(name) else {
            return;
        };
        // Readers of the FIB are gone before its memory is used again.
        self.router.lock().change(&mut vec![Change::Vrf(vrf.index, None)]);
        self.rib.remove_vrf(vrf.id);
        let is_used = self.vrfs.values().any(|other| other.netns == vrf.netns);
        self.namespaces
            .retain(|_, held| is_used || held.netns != vrf.netns);
        tracing::info!(vrf = name, "VRF removed");
    }

    /// Opens the namespace of a VRF, or opens it again after it was gone.
    fn open_namespace(&mut self, vrf: &model::Vrf) -> Result<Netns, String> {
        let name = vrf.netns.as_ref().map(ToString::to_string);
        if let Some(held) = self.namespaces.get(&name)
            && held.kernel.status().is_open
        {
            return Ok(held.netns);
        }
        let netns = match self.namespaces.get(&name) {
            Some(held) => held.netns,
            None => {
                self.next_netns += 1;
                Netns(self.next_netns)
            }
        };
        let kernel = Kernel::open(
            netns,
            &namespace_of(vrf),
            Settings::default(),
            self.events.clone(),
        )
        .map_err(|error| error.to_string())?;
        // Interfaces that the kernel had in a namespace of this name are gone with it.
        let lost = self.interfaces.values_mut().filter(|held| held.netns == netns);
        for held in lost {
            (held.shadow, held.ifindex) = (None, None);
            self.router.lock().remove_shadow(held.interface.index);
        }
        self.namespaces.insert(name, RunningNamespace { netns, kernel });
        Ok(netns)
    }

    fn apply_vrf(&mut self, wanted: &model::Vrf) -> Result<(), String> {
        let netns = self.open_namespace(wanted)?;
        let name = wanted.name.to_string();
        if !self.vrfs.contains_key(&name) {
            let (id, fib) = self.rib.add_vrf(netns, wanted.table.get(), source_of(wanted));
            let index = free(self.vrfs.values().map(|vrf| vrf.index));
            self.router
                .lock()
                .change(&mut vec![Change::Vrf(index, Some(fib))]);
            tracing::info!(vrf = name, table = wanted.table.get(), routes = %wanted.routes, "VRF added");
            let vrf = RunningVrf {
                config: wanted.clone(),
                index,
                id,
                netns,
                fpm: None,
                tunnels: Arc::default(),
            };
            self.vrfs.insert(name.clone(), vrf);
            self.act();
        }
        if let model::RouteSource::Fpm(address) = wanted.routes
            && let Some(vrf) = self.vrfs.get_mut(&name)
            && vrf.fpm.as_ref().is_none_or(|fpm| !fpm.status().is_open)
        {
            let fpm = Fpm::open(netns, &namespace_of(wanted), address, self.events.clone());
            vrf.fpm = Some(fpm.map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    /// Returns the index of a bridge in the router, a new one if it has none.
    fn bridge_index(&mut self, bridge: &str) -> u16 {
        if let Some(index) = self.bridges.get(bridge) {
            return *index;
        }
        let index = free(self.bridges.values().copied());
        self.bridges.insert(bridge.to_owned(), index);
        index
    }

    fn bridges_with_tunnels(&self) -> BTreeSet<String> {
        self.tunnels.keys().map(|(bridge, _)| bridge.clone()).collect()
    }

    fn apply_interface(&mut self, key: &InterfaceKey, wanted: &InterfacePlan) -> Result<(), String> {
        let Some(vrf) = self.vrfs.get(&key.0) else {
            return Err(format!("its VRF {} does not run", key.0));
        };
        let (vrf_index, id, netns) = (vrf.index, vrf.id, vrf.netns);
        let bridge_index = self.bridge_index(wanted.config.bridge.as_str());
        if let Some(held) = self.interfaces.get_mut(key) {
            if held.plan == *wanted {
                return Ok(());
            }
            let mut interface = interface_of(
                wanted,
                (held.interface.index, Arc::clone(&held.interface.counters)),
                (vrf_index, bridge_index),
                self.seed,
            );
            interface.is_up = held.interface.is_up;
            interface.other_macs.clone_from(&held.interface.other_macs);
            held.interface = Arc::new(interface);
            held.plan = wanted.clone();
            self.router
                .lock()
                .change(&mut vec![Change::Interface(Arc::clone(&held.interface))]);
            return Ok(());
        }
        let index = free(self.interfaces.values().map(|held| held.interface.index));
        let counters = self.router.lock().new_counters();
        let interface = interface_of(wanted, (index, counters), (vrf_index, bridge_index), self.seed);
        let interface = Arc::new(interface);
        self.router
            .lock()
            .change(&mut vec![Change::Interface(Arc::clone(&interface))]);
        self.rib.add_interface(id, netns, &key.1, index);
        tracing::info!(interface = key.1, vrf = key.0, bridge = %wanted.config.bridge, vlan = wanted.config.vid().raw(), "interface added");
        let running = RunningInterface {
            plan: wanted.clone(),
            netns,
            interface,
            shadow: None,
            ifindex: None,
        };
        self.interfaces.insert(key.clone(), running);
        Ok(())
    }

    /// Returns the interfaces of a bridge as its control thread needs them.
    pub(super) fn interfaces_of(&self, bridge: &str, index: u16) -> BridgeInterfaces {
        let of_bridge = || {
            self.interfaces
                .values()
                .filter(|held| held.plan.config.bridge.as_str() == bridge)
        };
        let held = || of_bridge().filter(|held| held.plan.passive.is_none());
        BridgeInterfaces {
            vlans: self.router.lock().vlan_mode(index),
            addresses: held()
                .flat_map(|held| {
                    let interface = &held.interface;
                    let macs = core::iter::once(&interface.mac).chain(&interface.other_macs);
                    macs.map(|mac| FdbKey {
                        vid: interface.vid,
                        mac: *mac,
                    })
                })
                .collect(),
            numbers: held()
                .filter_map(|held| Some((held.plan.config.number?, held.interface.index)))
                .collect(),
            vids: held()
                .map(|held| (held.interface.index, held.interface.vid))
                .collect::<BTreeMap<_, _>>(),
            passive: of_bridge()
                .filter_map(|held| Some((held.plan.passive?, held.interface.index)))
                .collect(),
            underlays: self.underlays_of(bridge),
        }
    }
}

/// Returns the lowest number that is not used.
fn free(used: impl Iterator<Item = u16>) -> u16 {
    let used: BTreeSet<u16> = used.collect();
    (0..u16::MAX)
        .find(|index| !used.contains(index))
        .unwrap_or(u16::MAX)
}

/// Returns an interface as workers have it, without a link and without macvlans; `kept` are its index and its counters, `of` the
/// indices of its VRF and its bridge.
fn interface_of(
    plan: &InterfacePlan,
    (index, counters): (u16, Arc<[InterfaceCounters]>),
    of: (u16, u16),
    seed: u64,
) -> Interface {
    let config = &plan.config;
    let mut ipv4 = Vec::new();
    let mut ipv6 = Vec::new();
    for address in &config.addresses {
        let prefix_len = address.prefix_len();
        match address.address() {
            IpAddr::V4(address) => ipv4.push(Address4 { address, prefix_len }),
            IpAddr::V6(address) => ipv6.push(Address6 { address, prefix_len }),
        }
    }
    let egress = match (plan.passive, config.egress, config.number) {
        (Some(port), ..) => EgressMode::Kernel(port),
        (None, model::InterfaceEgress::Tables, Some(number)) => EgressMode::Tables(number),
        _ => EgressMode::Straight,
    };
    // The kernel says the MAC addresses at which a passive interface receives, its MTU, and whether it is up.
    let (mac, mtu) = match plan.passive {
        None => (config.mac_address(), config.mtu.get()),
        Some(_) => (Mac::ZERO, u16::MAX),
    };
    Interface {
        index,
        name: config.name.as_str().into(),
        vrf: of.0,
        bridge: of.1,
        vid: config.vid(),
        mac,
        other_macs: Vec::new(),
        mtu,
        is_up: plan.passive.is_some(),
        ipv4,
        ipv6,
        acl_in: plan.acl_in.as_ref().map(|acl| compile(acl, seed)),
        acl_out: plan.acl_out.as_ref().map(|acl| compile(acl, seed)),
        egress,
        counters,
    }
}
