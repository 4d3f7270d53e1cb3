//! Tunnels that VRFs carry. Workers look for the packets of their local ends, and bridges are told whether the VRF has a way to
//! their remote ends: the link of a tunnel's port is up while it has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_datapath::io::Backend;
use millrace_model as model;
use millrace_rib::OwnRoute;
use millrace_router::{Change, Glean, TunnelEnds, TunnelPath, UnderlayPort};
use millrace_types::{PortNo, Time};

use super::state::{RunningVrf, State};
use super::tunnel_plan::{RunningTunnel, TunnelPlan, TunnelPort};
use crate::control::{TaskError, TunnelEgress, TunnelRoute};
use crate::problem::Problem;

impl<B: Backend> State<B> {
    /// Adds a tunnel, or replaces it.
    pub(super) fn apply_tunnel(&mut self, port: &TunnelPort, wanted: &TunnelPlan) {
        if self.tunnels.get(port).is_none_or(|held| held.plan != *wanted) {
            let running = RunningTunnel {
                plan: wanted.clone(),
                underlay: None,
                local: wanted.local,
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
            let ends = TunnelEnds::new(of_vrf.filter_map(RunningTunnel::end));
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
        let mut locals = Vec::new();
        for (key, tunnel) in &self.tunnels {
            let Some((route, glean)) = self.way_of(tunnel) else {
                continue;
            };
            asked.extend(glean);
            let (bridge, port) = key;
            if tunnel.told.as_ref() != Some(&route) {
                changed.insert(bridge.clone());
            }
            if tunnel.local != route.local {
                locals.push((key.clone(), route.local));
            }
            routes.entry(bridge.clone()).or_default().insert(*port, route);
        }
        let has_other_ends = !locals.is_empty();
        for (key, local) in locals {
            if let Some(tunnel) = self.tunnels.get_mut(&key) {
                tracing::info!(
                    bridge = key.0,
                    port = tunnel.plan.name,
                    ?local,
                    "local address of a tunnel"
                );
                tunnel.local = local;
            }
        }
        if has_other_ends {
            self.publish_tunnels();
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

    /// Returns the way of a tunnel to its remote end, and the neighbour to ask for if it is not known.
    fn way_of(&self, tunnel: &RunningTunnel) -> Option<(TunnelRoute, Option<Glean>)> {
        let plan = &tunnel.plan;
        let vrf = self.vrfs.get(&plan.vrf)?;
        let of_host = is_host(vrf).then(|| self.rib.own_route(vrf.id, plan.remote));
        let local = match (&of_host, plan.local) {
            (_, Some(local)) => Some(local),
            (Some(Some(route)), None) => route.source.filter(|_| route.is_interface),
            _ => None,
        };
        let router = self.router.lock();
        let is_local = local.is_some_and(|local| router.state().is_own_address(vrf.index, local));
        let (mtu, glean) = match router.state().tunnel_path(vrf.index, plan.remote) {
            TunnelPath::There { mtu } => (Some(mtu).filter(|_| is_local), None),
            TunnelPath::Unresolved(glean) => (None, Some(glean)),
            TunnelPath::None => (None, None),
        };
        let problem = match (&of_host, local) {
            (Some(of_host), _) if mtu.is_none() => host_problem(plan, of_host.as_ref(), is_local),
            (None, Some(local)) if !is_local => Some(format!(
                "{local} is no address of VRF {}: the packets of the tunnel would not come back. To fix it: give an interface of \
                 the VRF, or `lo` in its namespace, this address",
                plan.vrf
            )),
            _ => None,
        };
        let route = TunnelRoute {
            vrf: vrf.index,
            local,
            mtu,
            egress: of_host.flatten().map(|route| TunnelEgress {
                interface: route.link.as_str().into(),
                has_carrier: route.is_up,
            }),
            problem: problem.map(Into::into),
        };
        Some((route, glean))
    }

    /// Returns the tunnels that have no way, and those whose packets would not come back.
    pub(super) fn tunnel_problems(&self) -> Vec<Problem> {
        let problem = |((bridge, _), tunnel): (&TunnelPort, &RunningTunnel)| {
            let (route, _) = self.way_of(tunnel)?;
            let object = format!("port {} of bridge {bridge}", tunnel.plan.name);
            Some(Problem::new(object, route.problem?))
        };
        self.tunnels.iter().filter_map(problem).collect()
    }
}

/// Returns true for the VRF with the routes of the machine itself.
fn is_host(vrf: &RunningVrf) -> bool {
    vrf.config.name == model::Vrf::of_host().name
}

/// Returns the reason why the machine does not route the packets of a tunnel, unless only the MAC address of the next hop is
/// not known.
fn host_problem(plan: &TunnelPlan, route: Option<&OwnRoute>, is_local: bool) -> Option<String> {
    let remote = plan.remote;
    let Some(route) = route else {
        return Some(format!(
            "there is no route to {remote} in the namespace of millraced. To fix it: give the local port of a bridge an address in \
             the network of {remote} (ip addr add ADDRESS/PREFIX dev BRIDGE; ip link set BRIDGE up), or add a route"
        ));
    };
    let link = &route.link;
    match plan.local {
        _ if !route.is_interface => Some(format!(
            "the route to {remote} leaves by {link}, which is no local port of a bridge. To fix it: add {link} to a bridge and \
             give the bridge its address, or add a route by the local port of a bridge"
        )),
        _ if !route.is_up => Some(format!(
            "the route to {remote} leaves by {link}, which has no carrier. To fix it: ip link set {link} up"
        )),
        None if route.source.is_none() => Some(format!(
            "the route to {remote} leaves by {link}, which has no address. To fix it: ip addr add ADDRESS/PREFIX dev {link}"
        )),
        Some(local) if !is_local => Some(format!(
            "{local} is no address of this machine: the packets of the tunnel would not come back. To fix it: ip addr add \
             {local}/PREFIX dev {link}, or leave `local` out"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use millrace_pipeline::TunnelKey;
    use millrace_types::TunnelKind;

    use super::*;

    #[test]
    fn a_tunnel_without_a_way_says_why() {
        let plan = |local: Option<&str>| TunnelPlan {
            name: "vx".to_owned(),
            vrf: "host".to_owned(),
            kind: TunnelKind::Vxlan,
            udp_port: 4789,
            local: local.map(|local| local.parse().unwrap()),
            remote: "192.0.2.2".parse().unwrap(),
            key: TunnelKey::Fixed(0),
        };
        let route = OwnRoute {
            link: "br-phy".to_owned(),
            is_up: true,
            is_interface: true,
            source: Some("192.0.2.1".parse().unwrap()),
        };
        let elsewhere = OwnRoute {
            link: "eth9".to_owned(),
            is_interface: false,
            ..route.clone()
        };
        let down = OwnRoute {
            is_up: false,
            ..route.clone()
        };
        let bare = OwnRoute {
            source: None,
            ..route.clone()
        };
        let (any, given) = (plan(None), plan(Some("192.0.2.9")));
        for (plan, route, is_local, said) in [
            (&any, None, false, "there is no route to 192.0.2.2"),
            (
                &any,
                Some(&elsewhere),
                true,
                "leaves by eth9, which is no local port of a bridge",
            ),
            (&any, Some(&down), true, "br-phy, which has no carrier"),
            (&any, Some(&bare), false, "br-phy, which has no address"),
            (
                &given,
                Some(&route),
                false,
                "192.0.2.9 is no address of this machine",
            ),
        ] {
            let problem = host_problem(plan, route, is_local).unwrap();
            assert!(
                problem.contains(said) && problem.contains("To fix it: "),
                "{problem}"
            );
        }
        // Only the neighbour has not answered yet.
        assert_eq!(host_problem(&any, Some(&route), true), None);
    }
}
