//! The addresses at which an interface receives because the kernel does: of virtual routers (VRRP), for each of which keepalived
//! and FRR make a macvlan over the interface, and one that an administrator gave the kernel's interface.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_datapath::io::Backend;
use millrace_router::Change;

use super::state::State;
use crate::control::TaskError;

impl<B: Backend> State<B> {
    /// Lets interfaces receive at the addresses of their kernel's interfaces and macvlans, and only there. Returns false if a
    /// bridge is too busy to be told: the next call tells it.
    pub(super) fn follow_addresses(&mut self) -> bool {
        let namespaces = self.namespaces.values();
        let of_links: HashMap<_, _> = namespaces
            .map(|held| (held.netns, self.rib.receiving_addresses(held.netns)))
            .collect();
        for ((_, name), running) in &mut self.interfaces {
            let Some(of_links) = of_links.get(&running.netns) else {
                continue;
            };
            let addresses = of_links.get(name.as_str());
            let own = running.interface.mac;
            let addresses: Vec<_> = addresses
                .into_iter()
                .flatten()
                .copied()
                .filter(|mac| *mac != own)
                .collect();
            if running.interface.other_macs == addresses {
                continue;
            }
            tracing::info!(
                interface = name,
                ?addresses,
                "further addresses at which it receives"
            );
            Arc::make_mut(&mut running.interface).other_macs = addresses;
            self.router
                .lock()
                .change(&mut vec![Change::Interface(Arc::clone(&running.interface))]);
            self.untold.insert(running.plan.config.bridge.to_string());
        }
        let told: Vec<String> = self
            .untold
            .iter()
            .filter(|bridge| self.tell_addresses(bridge))
            .cloned()
            .collect();
        for bridge in told {
            self.untold.remove(&bridge);
        }
        self.untold.is_empty()
    }

    /// Tells a bridge the addresses at which the router receives. Returns true if it is told, or gone.
    fn tell_addresses(&self, bridge: &str) -> bool {
        let (Some(index), Some(handle)) = (self.bridges.get(bridge), self.handles.get(bridge)) else {
            return true;
        };
        let addresses = self.interfaces_of(bridge, *index).addresses;
        let sent = handle.send(move |control| control.set_router_addresses(&addresses));
        !matches!(sent, Err(TaskError::Full))
    }
}
