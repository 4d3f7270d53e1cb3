//! Tunnels that VRFs carry. Workers look for the packets of their local ends, and bridges are told whether the VRF has a way to
//! their remote ends: the link of a tunnel's port is up while it has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_datapath::io::Backend;
use millrace_router::{Change, Glean, TunnelEnds, TunnelPath, UnderlayPort};
use millrace_types::{PortNo, Time};

use super::state::{RouterProblem, State};
use super::tunnel_plan::{RunningTunnel, TunnelPlan, TunnelPort};
use crate::control::{TaskError, TunnelRoute};

impl<B: Backend> State<B> {
    /// Adds a tunnel, or replaces it.
    pub(super) fn apply_tunnel(&mut self, port: &TunnelPort, wanted: &TunnelPlan) {
        if self.tunnels.get(port).is_none_or(|held| held.plan != *wanted) {
            let running = RunningTunnel {
                plan: wanted.clone(),
                underlay: None,
                told: None,
            };
            self.tunnels.insert(port.clone(), running);
        }
    }

    /// Returns the indices of the VRFs that carry tunnels of a bridge.
    pub(super) fn underlays_of(&self, bridge: &str) -> BTreeSet<u16> {
        let of_bridge = self.tunnels.iter().filter(|((held, _), _)| held == bridge);
        of_bridge
            .filter_map(|(_, tunnel)| Some(self.vrfs.get(&tunnel.plan.vrf)?.index))
            .collect()
    }

    /// Notes the ports by which a bridge reaches VRFs, by index of the VRF. The bridge is told all ways again.
    pub(super) fn set_underlays(&mut self, bridge: &str, index: u16, ports: &BTreeMap<u16, PortNo>) {
        let vrfs = &self.vrfs;
        for ((held, _), tunnel) in &mut self.tunnels {
            if held == bridge {
                let vrf = vrfs.get(&tunnel.plan.vrf).map(|vrf| vrf.index);
                let port = vrf.and_then(|vrf| ports.get(&vrf));
                tunnel.underlay = port.map(|port| UnderlayPort {
                    bridge: index,
                    port: *port,
                });
                tunnel.told = None;
            }
        }
        self.looks.note();
    }

    /// Gives workers the local ends of the tunnels of each VRF.
    pub(super) fn publish_tunnels(&mut self) {
        for (name, vrf) in &mut self.vrfs {
            let of_vrf = self.tunnels.values().filter(|tunnel| tunnel.plan.vrf == *name);
            let ends = TunnelEnds::new(of_vrf.filter_map(|tunnel| Some((tunnel.plan.end, tunnel.underlay?))));
            if *vrf.tunnels != ends {
                vrf.tunnels = Arc::new(ends);
                let change = Change::Tunnels(vrf.index, Arc::clone(&vrf.tunnels));
                self.router.lock().change(&mut vec![change]);
            }
        }
    }

    /// Looks at the ways of all tunnels, if it is time, and tells the bridges what changed. Returns the neighbours to ask for.
    pub(super) fn follow_tunnels(&mut self, now: Time) -> Vec<Glean> {
        let mut asked = Vec::new();
        if self.tunnels.is_empty() || !self.looks.take(now) {
            return asked;
        }
        let mut routes: BTreeMap<String, BTreeMap<PortNo, TunnelRoute>> = BTreeMap::new();
        let mut changed = BTreeSet::new();
        {
            let router = self.router.lock();
            for ((bridge, port), tunnel) in &self.tunnels {
                let Some(vrf) = self.vrfs.get(&tunnel.plan.vrf) else {
                    continue;
                };
                let is_local = router.state().is_own_address(vrf.index, tunnel.plan.end.local);
                let mtu = match router.state().tunnel_path(vrf.index, tunnel.plan.end.remote) {
                    TunnelPath::There { mtu } => is_local.then_some(mtu),
                    TunnelPath::Unresolved(glean) => {
                        asked.push(glean);
                        None
                    }
                    TunnelPath::None => None,
                };
                let route = TunnelRoute { vrf: vrf.index, mtu };
                if tunnel.told != Some(route) {
                    changed.insert(bridge.clone());
                }
                routes.entry(bridge.clone()).or_default().insert(*port, route);
            }
        }
        for bridge in changed {
            let Some(handle) = self.handles.get(&bridge) else {
                continue;
            };
            let of_bridge = routes.remove(&bridge).unwrap_or_default();
            let told = of_bridge.clone();
            let sent = handle.send(move |control| control.set_tunnel_routes(told));
            if matches!(sent, Err(TaskError::Full)) {
                // The next look tells it.
                self.looks.note();
                continue;
            }
            for (port, route) in of_bridge {
                if let Some(tunnel) = self.tunnels.get_mut(&(bridge.clone(), port)) {
                    tunnel.told = Some(route);
                }
            }
        }
        asked
    }

    /// Returns the tunnels whose packets would not come back.
    pub(super) fn tunnel_problems(&self) -> Vec<RouterProblem> {
        let router = self.router.lock();
        let mut problems = Vec::new();
        for ((bridge, _), RunningTunnel { plan, .. }) in &self.tunnels {
            let Some(vrf) = self.vrfs.get(&plan.vrf) else {
                continue;
            };
            let local = plan.end.local;
            if !router.state().is_own_address(vrf.index, local) {
                problems.push((
                    format!("port {} of bridge {bridge}", plan.name),
                    format!(
                        "{local} is no address of VRF {}: the packets of the tunnel would not come back. To fix it: give an \
                         interface of the VRF, or `lo` in its namespace, this address",
                        plan.vrf
                    ),
                ));
            }
        }
        problems
    }
}
