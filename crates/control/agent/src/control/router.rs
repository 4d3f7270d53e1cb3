//! Operations on the router's port in a bridge: its VLANs, the addresses of its interfaces, and the links of their VLANs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, mpsc};

use millrace_datapath::io::Backend;
use millrace_pipeline::{FdbKey, Port, PortConfig, PortState};
use millrace_router::{Arrival, RouteExplanation, explain};
use millrace_types::PortNo;

use super::bridge::BridgeControl;
use super::router_port::{BridgeInterfaces, BridgeRouter, LinkChange, SharedRouter};
use crate::lock::lock;

impl<B: Backend> BridgeControl<B> {
    /// Makes the router's ports in this bridge equal to `wanted`. `index` is the number of the bridge in the router.
    ///
    /// # Errors
    /// The reason why the router is not in the bridge, with the next step.
    pub(crate) fn set_router(
        &mut self,
        router: &SharedRouter<B::Packet>,
        index: u16,
        wanted: BridgeInterfaces,
        told: mpsc::Sender<LinkChange>,
    ) -> Result<(), String> {
        let is_new = self.router.is_none();
        let port = match &self.router {
            Some(held) => held.port,
            None => self.free_number(&wanted),
        };
        let trunk = Port {
            vlan: wanted.vlans.clone(),
            ..Port::new(port)
        };
        self.tables.set_port(trunk, &mut self.ops);
        self.publish();
        if is_new {
            let attached = lock(router).attach(index, &mut self.datapath, port);
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
            links: BTreeMap::new(),
            told,
        });
        let result = self.set_router_numbers(router, &held, &wanted);
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
        result
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
                lock(router).detach_number(held.index, &mut self.datapath, *number);
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
            let attached = lock(router).attach_number(held.index, &mut self.datapath, *number, *interface);
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
        for number in held.interfaces.numbers.keys().chain([&held.port]) {
            self.tables.remove_port(*number, &mut self.ops);
        }
        self.publish();
        lock(router).detach(held.index, &mut self.datapath);
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
        let interface = match port == held.port {
            true => None,
            false => Some(*held.interfaces.numbers.get(&port)?),
        };
        let arrival = Arrival {
            interface,
            ..Arrival::of_bridge(held.index)
        };
        let router = lock(&held.router);
        let now = self.datapath.now();
        Some(explain(router.state(), arrival, frame, router.seed(), now))
    }

    /// Returns the highest number that no port has.
    fn free_number(&self, wanted: &BridgeInterfaces) -> PortNo {
        let mut raw = PortNo::MAX.raw();
        loop {
            let number = PortNo::from_raw(raw);
            let is_configured = self.config.all_ports().any(|port| port.number == number);
            if !is_configured && !self.ports.contains_key(&number) && !wanted.numbers.contains_key(&number) {
                return number;
            }
            raw -= 1;
        }
    }
}
