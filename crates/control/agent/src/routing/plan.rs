//! The configuration of the router as what must run: interfaces with their VRFs and access lists.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_model as model;
use millrace_netlink::Namespace;
use millrace_router::{Acl, AclAction, AclRule};

use super::tunnel_plan::{self, TunnelPlan, TunnelPort};

/// The key of an interface: its VRF, and its name, which is unique in the namespace.
pub(super) type InterfaceKey = (String, String);

/// The desired router.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) vrfs: BTreeMap<String, model::Vrf>,
    pub(super) interfaces: BTreeMap<InterfaceKey, InterfacePlan>,
    pub(super) tunnels: BTreeMap<TunnelPort, TunnelPlan>,
}

/// A desired interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct InterfacePlan {
    pub(super) config: model::Interface,
    pub(super) acl_in: Option<model::Acl>,
    pub(super) acl_out: Option<model::Acl>,
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
            };
            ((interface.vrf.to_string(), interface.name.to_string()), plan)
        };
        Plan {
            vrfs: config
                .vrfs
                .iter()
                .map(|vrf| (vrf.name.to_string(), vrf.clone()))
                .collect(),
            interfaces: config.interfaces.iter().map(interface).collect(),
            tunnels: tunnel_plan::planned(config),
        }
    }
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
