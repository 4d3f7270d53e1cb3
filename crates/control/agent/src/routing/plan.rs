//! The configuration of the router as what must run: interfaces with their VRFs and access lists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_model as model;
use millrace_netlink::Namespace;
use millrace_router::{Acl, AclAction, AclRule};
use millrace_types::PortNo;

use super::tunnel_plan::{self, TunnelPlan, TunnelPort};

/// The key of an interface: its VRF, and its name, which is unique in the namespace.
pub(super) type InterfaceKey = (String, String);

/// The desired router.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) vrfs: BTreeMap<String, model::Vrf>,
    pub(super) interfaces: BTreeMap<InterfaceKey, InterfacePlan>,
    /// The interfaces that the kernel has behind ports of bridges, if the routes of the machine carry a tunnel. Those with
    /// an address become passive interfaces.
    pub(super) taps: BTreeMap<InterfaceKey, InterfacePlan>,
    pub(super) tunnels: BTreeMap<TunnelPort, TunnelPlan>,
}

/// A desired interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct InterfacePlan {
    pub(super) config: model::Interface,
    pub(super) acl_in: Option<model::Acl>,
    pub(super) acl_out: Option<model::Acl>,
    /// The port with the tap device, if the interface is passive.
    pub(super) passive: Option<PortNo>,
}

impl Plan {
    pub(super) fn of(config: &model::Config) -> Plan {
        let acl = |name: &Option<model::AclName>| {
            let name = name.as_ref()?;
            config.acls.iter().find(|acl| acl.name == *name).cloned()
        };
        let interface = |interface: &model::Interface| {
            let plan = InterfacePlan {
                config: interface.clone(),
                acl_in: acl(&interface.acl_in),
                acl_out: acl(&interface.acl_out),
                passive: None,
            };
            ((interface.vrf.to_string(), interface.name.to_string()), plan)
        };
        let tunnels = tunnel_plan::planned(config);
        let host = model::Vrf::of_host();
        let of_host = tunnels
            .values()
            .any(|tunnel| tunnel.vrf == host.name.as_str())
            .then_some(&host);
        Plan {
            vrfs: config
                .vrfs
                .iter()
                .chain(of_host)
                .map(|vrf| (vrf.name.to_string(), vrf.clone()))
                .collect(),
            interfaces: config.interfaces.iter().map(interface).collect(),
            taps: of_host.map(|vrf| taps(config, vrf)).unwrap_or_default(),
            tunnels,
        }
    }

    /// Makes the taps among `links` passive interfaces.
    pub(super) fn with_passive(mut self, links: &BTreeSet<&str>) -> Plan {
        let taps = self.taps.iter().filter(|(key, _)| is_passive(key, links));
        self.interfaces
            .extend(taps.map(|(key, plan)| (key.clone(), plan.clone())));
        self
    }
}

/// Returns true if a tap is a passive interface: if it is one of the links that have an address.
pub(super) fn is_passive((_, name): &InterfaceKey, links: &BTreeSet<&str>) -> bool {
    links.contains(name.as_str())
}

/// Returns the interfaces that the kernel has behind LOCAL and `tap:` ports, as passive ones of a VRF.
fn taps(config: &model::Config, vrf: &model::Vrf) -> BTreeMap<InterfaceKey, InterfacePlan> {
    let mut found = BTreeMap::new();
    for bridge in &config.bridges {
        for port in bridge.all_ports() {
            if let model::Device::Tap(name) = &port.device {
                let interface = model::Interface::new(name.clone(), vrf.name.clone(), bridge.name.clone());
                let plan = InterfacePlan {
                    config: interface,
                    acl_in: None,
                    acl_out: None,
                    passive: Some(port.number),
                };
                found.insert((vrf.name.to_string(), name.to_string()), plan);
            }
        }
    }
    found
}

impl InterfacePlan {
    /// Returns true if an interface must be made again: what identifies it in its bridge or in the kernel differs.
    pub(super) fn needs_new(&self, running: &InterfacePlan) -> bool {
        let key = |plan: &InterfacePlan| {
            let config = &plan.config;
            (
                config.bridge.clone(),
                config.vlan,
                config.mac,
                config.mtu,
                config.number,
                plan.passive,
            )
        };
        key(self) != key(running)
    }
}

/// Returns the namespace of a VRF.
pub(super) fn namespace_of(vrf: &model::Vrf) -> Namespace {
    vrf.netns
        .as_ref()
        .map_or(Namespace::Own, |name| Namespace::named(name.as_str()))
}

/// Returns an access list in the form of workers. `seed` keys its hash tables.
pub(super) fn compile(acl: &model::Acl, seed: u64) -> Arc<Acl> {
    let rule = |rule: &model::AclRule| AclRule {
        match_: rule.matches().clone(),
        action: if rule.permits() {
            AclAction::Permit
        } else {
            AclAction::Deny
        },
    };
    let rules: Vec<AclRule> = acl.rules.iter().map(rule).collect();
    Arc::new(Acl::new(&rules, seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(device: &str) -> Plan {
        let text = format!(
            "[[bridge]]\nname = \"br-int\"\nlocal = \"off\"\n[[bridge.port]]\nname = \"vx\"\nnumber = 1\ndevice = \"{device}\"\n\
             [[bridge]]\nname = \"br-phy\"\nlocal = \"tap\"\n[[bridge.port]]\nname = \"int0\"\nnumber = 7\ndevice = \"tap:int0\"\n\
             [[bridge.port]]\nname = \"p1\"\nnumber = 1\ndevice = \"memory\"\n"
        );
        Plan::of(&model::Config::from_toml("test.toml", &text).unwrap())
    }

    #[test]
    fn a_tunnel_that_the_machine_routes_makes_taps_with_addresses_passive_interfaces() {
        let routed = plan("vxlan:remote=192.0.2.2,underlay=host");
        assert_eq!(routed.vrfs.keys().collect::<Vec<_>>(), ["host"]);
        assert_eq!(routed.vrfs["host"].key(), model::Vrf::of_host().key());
        let key = |name: &str| ("host".to_owned(), name.to_owned());
        let taps: Vec<_> = routed.taps.keys().cloned().collect();
        assert_eq!(taps, [key("br-phy"), key("int0")]);
        assert!(routed.interfaces.is_empty());
        let links = ["eth1", "int0"].into();
        let routed = routed.with_passive(&links);
        let passive: Vec<_> = routed
            .interfaces
            .iter()
            .map(|(key, plan)| (key.clone(), plan.passive.unwrap().raw()))
            .collect();
        assert_eq!(passive, [(key("int0"), 7)]);

        let without = plan("memory");
        assert!(
            without.vrfs.is_empty() && without.taps.is_empty(),
            "without such a tunnel"
        );
    }
}
