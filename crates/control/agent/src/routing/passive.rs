//! Passive interfaces: those that the kernel has behind LOCAL and `tap:` ports of bridges, in the namespace of the switch. They
//! carry the tunnels that the machine itself routes, and nothing else: what arrives for the machine is the kernel's.
//!
//! Only those with an address are there, because each costs its bridge a router. When the kernel gives one an address, or takes
//! the last one away, the configuration is applied again.

use std::collections::BTreeSet;

use millrace_datapath::io::Backend;
use millrace_model as model;
use millrace_rib::Netns;

use super::plan::{InterfaceKey, Plan, is_passive};
use super::state::State;

impl<B: Backend> State<B> {
    /// Returns a plan with its passive interfaces.
    pub(super) fn with_passive(&self, plan: Plan) -> Plan {
        if plan.taps.is_empty() {
            return plan;
        }
        plan.with_passive(&self.addressed_links())
    }

    /// Returns true if other taps have addresses than those that are passive interfaces.
    pub(super) fn has_other_passive(&self) -> bool {
        if self.taps.is_empty() {
            return false;
        }
        let links = self.addressed_links();
        let wanted = self.taps.iter().filter(|key| is_passive(key, &links));
        let running = self
            .interfaces
            .iter()
            .filter(|(_, held)| held.plan.passive.is_some());
        let running: BTreeSet<&InterfaceKey> = running.map(|(key, _)| key).collect();
        running != wanted.collect()
    }

    /// Returns the links of the namespace of the switch that have an address.
    fn addressed_links(&self) -> BTreeSet<&str> {
        let host = self.host_netns();
        host.map(|netns| self.rib.addressed_links(netns))
            .unwrap_or_default()
    }

    fn host_netns(&self) -> Option<Netns> {
        let vrf = self.vrfs.get(model::Vrf::of_host().name.as_str());
        vrf.map(|vrf| vrf.netns)
    }
}
