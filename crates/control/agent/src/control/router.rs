//! Operations on the router's port in a bridge: its VLANs, the addresses of its interfaces, and the links of their VLANs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, mpsc};

use millrace_datapath::io::Backend;
use millrace_pipeline::{FdbKey, Port, PortConfig, PortState};
use millrace_router::{Arrival, RouteExplanation, explain};
use millrace_types::PortNo;

use super::bridge::BridgeControl;
use super::router_port::{BridgeInterfaces, BridgeRouter, LinkChange, SharedRouter, TunnelRoute};

impl<B: Backend> BridgeControl<B> {
    /// Makes the router's ports in this bridge equal to `wanted`. `index` is the number of the bridge in the router.
    ///
    /// Returns the ports to VRFs that carry tunnels, by index of the VRF.
    ///
    /// # Errors
    /// The reason why the router is not in the bridge, with the next step.
    pub(crate) fn set_router(
        &mut self,
        router: &SharedRouter<B::Packet>,
        index: u16,
        wanted: BridgeInterfaces,
        told: mpsc::Sender<LinkChange>,
    ) -> Result<BTreeMap<u16, PortNo>, String> {
        let is_new = self.router.is_none();
        let port = match &self.router {
            Some(held) => held.port,
            None => self.free_number(|number| wanted.numbers.contains_key(&number)),
        };
        // A bridge with none but passive interfaces sends the router nothing of its own.
        let has_vlans = !wanted.vids.is_empty();
        let trunk = Port {
            vlan: wanted.vlans.clone(),
            config: if has_vlans {
                PortConfig::default()
            } else {
                PortConfig::NO_FLOOD | PortConfig::TUNNELS_ONLY
            },
            ..Port::new(port)
        };
        self.tables.set_port(trunk, &mut self.ops);
        self.publish();
        if is_new {
            let attached = router.lock().attach(index, &mut self.datapath, port);
            if let Err(error) = attached {
                self.tables.remove_port(port, &mut self.ops);
                self.publish();
                return Err(error.to_string());
            }
        }
        let mut held = self.router.take().unwrap_or_else(|| BridgeRouter {
            router: Arc::clone(router),
            index,
            port,
            interfaces: BridgeInterfaces::default(),
            underlays: BTreeMap::new(),
            tunnel_routes: BTreeMap::new(),
            links: BTreeMap::new(),
            told,
        });
        let numbers = self.set_router_numbers(router, &held, &wanted);
        let passive = self.set_diversions(router, &held, &wanted);
        let underlays = self.set_underlays(router, &mut held, &wanted);
        let addresses = wanted.addresses.clone();
        held.interfaces = BridgeInterfaces {
            addresses: core::mem::take(&mut held.interfaces.addresses),
            ..wanted
        };
        // An interface that was made again may have the index of its predecessor.
        held.links.clear();
        self.router = Some(held);
        self.set_router_addresses(&addresses);
        self.tell_links();
        numbers.and(passive).and(underlays)
    }

    /// Lets the router have the packets of tunnels among those that ports with passive interfaces send to the kernel. A port
    /// whose device was opened again has lost its diversion.
    fn set_diversions(
        &mut self,
        router: &SharedRouter<B::Packet>,
        held: &BridgeRouter<B::Packet>,
        wanted: &BridgeInterfaces,
    ) -> Result<(), String> {
        let mut router = router.lock();
        for port in held.interfaces.passive.keys() {
            if !wanted.passive.contains_key(port) {
                router.end_diversion(&mut self.datapath, *port);
            }
        }
        let mut outcome = Ok(());
        for (port, interface) in &wanted.passive {
            let diverted = router.divert(held.index, &mut self.datapath, *port, *interface);
            outcome = outcome.and(diverted.map_err(|error| error.to_string()));
        }
        outcome
    }

    /// Opens the ports to VRFs that carry tunnels, and closes those that no tunnel needs.
    fn set_underlays(
        &mut self,
        router: &SharedRouter<B::Packet>,
        held: &mut BridgeRouter<B::Packet>,
        wanted: &BridgeInterfaces,
    ) -> Result<BTreeMap<u16, PortNo>, String> {
        self.close_underlays(router, held, &wanted.underlays);
        for vrf in &wanted.underlays {
            if held.underlays.contains_key(vrf) {
                continue;
            }
            let number = self.free_number(|number| {
                number == held.port
                    || wanted.numbers.contains_key(&number)
                    || held.underlays.values().any(|used| *used == number)
            });
            let port = Port {
                config: PortConfig::NO_FLOOD | PortConfig::TUNNELS_ONLY,
                ..Port::new(number)
            };
            self.tables.set_port(port, &mut self.ops);
            self.publish();
            let attached = router
                .lock()
                .attach_underlay(held.index, &mut self.datapath, number, *vrf);
            attached.map_err(|error| error.to_string())?;
            held.underlays.insert(*vrf, number);
        }
        Ok(held.underlays.clone())
    }

    fn close_underlays(
        &mut self,
        router: &SharedRouter<B::Packet>,
        held: &mut BridgeRouter<B::Packet>,
        wanted: &BTreeSet<u16>,
    ) {
        let all = core::mem::take(&mut held.underlays);
        for (vrf, number) in all {
            if wanted.contains(&vrf) {
                held.underlays.insert(vrf, number);
                continue;
            }
            held.tunnel_routes.retain(|_, route| route.vrf != vrf);
            self.tables.remove_port(number, &mut self.ops);
            self.publish();
            router
                .lock()
                .detach_number(held.index, &mut self.datapath, number);
        }
    }

    /// Closes the ports to VRFs other than these.
    pub(crate) fn keep_underlays(&mut self, router: &SharedRouter<B::Packet>, vrfs: &BTreeSet<u16>) {
        if let Some(mut held) = self.router.take() {
            self.close_underlays(router, &mut held, vrfs);
            self.router = Some(held);
            self.update_tunnels(self.datapath.now());
            self.publish();
        }
    }

    /// Sets the ways of all tunnels that VRFs carry, by number of their ports.
    pub(crate) fn set_tunnel_routes(&mut self, routes: BTreeMap<PortNo, TunnelRoute>) {
        let Some(held) = &mut self.router else {
            return;
        };
        held.tunnel_routes = routes;
        self.update_tunnels(self.datapath.now());
        // The link of a tunnel is up while it has a way.
        self.poll_links();
    }

    /// Returns the way of a tunnel that a VRF carries; `None` for other ports, and until the router has said it.
    pub fn tunnel_route(&self, port: PortNo) -> Option<&TunnelRoute> {
        self.router.as_ref()?.tunnel_routes.get(&port)
    }

    /// Lets the router receive at these addresses, and at no others.
    pub(crate) fn set_router_addresses(&mut self, wanted: &BTreeSet<FdbKey>) {
        let Some(held) = &mut self.router else {
            return;
        };
        let (port, now) = (held.port, self.datapath.now());
        let before = core::mem::replace(&mut held.interfaces.addresses, wanted.clone());
        for key in before.difference(wanted) {
            self.tables.remove_static_fdb(*key, &mut self.ops);
        }
        for key in wanted {
            self.tables.set_static_fdb(*key, port, now, &mut self.ops);
        }
        self.publish();
    }

    /// Opens and closes the ports of interfaces with an OpenFlow number.
    fn set_router_numbers(
        &mut self,
        router: &SharedRouter<B::Packet>,
        held: &BridgeRouter<B::Packet>,
        wanted: &BridgeInterfaces,
    ) -> Result<(), String> {
        for (number, interface) in &held.interfaces.numbers {
            if wanted.numbers.get(number) != Some(interface) {
                self.tables.remove_port(*number, &mut self.ops);
                self.publish();
                router
                    .lock()
                    .detach_number(held.index, &mut self.datapath, *number);
            }
        }
        for (number, interface) in &wanted.numbers {
            if held.interfaces.numbers.get(number) == Some(interface) {
                continue;
            }
            let port = Port {
                config: PortConfig::NO_FLOOD,
                ..Port::new(*number)
            };
            self.tables.set_port(port, &mut self.ops);
            self.publish();
            let attached = router
                .lock()
                .attach_number(held.index, &mut self.datapath, *number, *interface);
            attached.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Takes the router out of this bridge.
    pub(crate) fn remove_router(&mut self, router: &SharedRouter<B::Packet>) {
        let Some(held) = self.router.take() else {
            return;
        };
        for key in &held.interfaces.addresses {
            self.tables.remove_static_fdb(*key, &mut self.ops);
        }
        let numbers = held.interfaces.numbers.keys().chain(held.underlays.values());
        for number in numbers.chain([&held.port]) {
            self.tables.remove_port(*number, &mut self.ops);
        }
        self.publish();
        let mut router = router.lock();
        for port in held.interfaces.passive.keys() {
            router.end_diversion(&mut self.datapath, *port);
        }
        router.detach(held.index, &mut self.datapath);
    }

    /// Tells the router which VLANs have a link: a port that carries the VLAN and is up.
    pub(super) fn tell_links(&mut self) {
        let Some(mut held) = self.router.take() else {
            return;
        };
        for (interface, vid) in &held.interfaces.vids {
            let is_up = self.ports.iter().any(|(number, status)| {
                let is_live = !status.config.has(PortConfig::DOWN) && !status.state.has(PortState::LINK_DOWN);
                let carries = || {
                    self.tables
                        .port(*number)
                        .is_some_and(|port| port.vlan.carries(*vid))
                };
                is_live && carries()
            });
            if held.links.insert(*interface, is_up) != Some(is_up) {
                // The receiver is gone only while the router ends.
                let _ended = held.told.send((*interface, is_up));
            }
        }
        self.router = Some(held);
    }

    /// Returns what the router does with a frame that the bridge sends to one of its ports; `None` for another port.
    pub fn explain_route(&self, port: PortNo, frame: &[u8]) -> Option<RouteExplanation> {
        let held = self.router.as_ref()?;
        let to_vrf = held.underlays.iter().find(|(_, number)| **number == port);
        let arrival = match to_vrf {
            _ if port == held.port => Arrival::of_bridge(held.index),
            Some((vrf, _)) => Arrival::of_vrf(held.index, *vrf),
            None => Arrival {
                interface: Some(*held.interfaces.numbers.get(&port)?),
                ..Arrival::of_bridge(held.index)
            },
        };
        let router = held.router.lock();
        let now = self.datapath.now();
        Some(explain(router.state(), arrival, frame, router.seed(), now))
    }

    /// Returns the highest number that no port has.
    fn free_number(&self, is_taken: impl Fn(PortNo) -> bool) -> PortNo {
        let mut raw = PortNo::MAX.raw();
        loop {
            let number = PortNo::from_raw(raw);
            let is_configured = self.config.all_ports().any(|port| port.number == number);
            if !is_configured && !self.ports.contains_key(&number) && !is_taken(number) {
                return number;
            }
            raw -= 1;
        }
    }
}
