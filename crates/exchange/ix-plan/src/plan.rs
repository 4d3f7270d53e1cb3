//! The plan: entries of the switches themselves, and of each service and filter.

use std::collections::{BTreeMap, BTreeSet};

use millrace_flow::Action;
use millrace_ix_model::{
    ConfigId, ConnectionKind, Consent, Exchange, ServiceId, ServiceKind, SwitchId, VlanConfig,
};
use millrace_types::GroupId;

use crate::builder::{
    Builder, FlowBuilder, Problem, RESERVED_PRIORITY, metadata, reserved_addresses, watching,
};
use crate::entry::{GroupKind, Matching, SwitchState};
use crate::filters::FilterScope;
use crate::layout::{CookieFields, CookieKind, EGRESS, Metadata, PORT, PROTECT};
use crate::service::{Index, ServiceContext, Settings, switch_of, trunk_port, trunks_between};
use crate::{circuit, filters, lan, multipoint, tags};

/// The content that every switch should have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The content of each switch.
    pub switches: BTreeMap<SwitchId, SwitchState>,
    /// The objects that are left out of the plan, with the reasons.
    pub problems: Vec<Problem>,
}

/// Returns the plan of a whole exchange.
pub fn plan(exchange: &Exchange, settings: &Settings) -> Plan {
    let mut builder = Builder::default();
    plan_base(exchange, &mut builder);
    let index = Index::of_all(exchange);
    for id in exchange.services.keys() {
        plan_service(exchange, &index, *id, settings, &mut builder);
    }
    filters::plan_filters(exchange, &FilterScope::All, settings, &mut builder);
    Plan {
        switches: builder.switches,
        problems: builder.problems,
    }
}

/// Returns the plan of some services alone, without the entries of the switches themselves and without
/// filters. Plans of different services have no entry in common, so that a change of one service needs no
/// plan of other services.
pub fn plan_services(exchange: &Exchange, services: &BTreeSet<ServiceId>, settings: &Settings) -> Plan {
    let mut builder = Builder::default();
    if !services.is_empty() {
        let index = Index::of(exchange, services);
        for id in services {
            plan_service(exchange, &index, *id, settings, &mut builder);
        }
    }
    Plan {
        switches: builder.switches,
        problems: builder.problems,
    }
}

/// Returns the plan of some filters alone.
pub(crate) fn plan_filters_of(exchange: &Exchange, scope: &FilterScope, settings: &Settings) -> Plan {
    let mut builder = Builder::default();
    filters::plan_filters(exchange, scope, settings, &mut builder);
    Plan {
        switches: builder.switches,
        problems: builder.problems,
    }
}

/// Returns the plan of the entries that belong to the switches themselves.
pub(crate) fn plan_switches(exchange: &Exchange) -> Plan {
    let mut builder = Builder::default();
    plan_base(exchange, &mut builder);
    Plan {
        switches: builder.switches,
        problems: builder.problems,
    }
}

/// Returns true if the entries of the switches themselves, as [`plan_switches`] returns them, may differ
/// between two exchanges. They depend on peering LANs and their ends, because of the entries for unassigned frames
/// in quarantine, and on ends with two tags. They depend on no other service or end.
pub(crate) fn switches_differ(old: &Exchange, new: &Exchange) -> bool {
    let is_lan = |exchange: &Exchange, id: &ServiceId| {
        let service = exchange.services.get(id);
        service.is_some_and(|service| service.kind == ServiceKind::ExchangeLan)
    };
    let has_part = |exchange: &Exchange, end: &ConfigId| {
        exchange.configs.get(end).is_some_and(|config| {
            matches!(config.vlan, VlanConfig::Qinq { .. }) || is_lan(exchange, &config.service)
        })
    };
    let has_two_tags = |exchange: &Exchange, id: &ServiceId| {
        let mut ends = exchange.ends(*id);
        ends.any(|(_, config)| matches!(config.vlan, VlanConfig::Qinq { .. }))
    };
    let is_in_base = |exchange: &Exchange, id: &ServiceId| is_lan(exchange, id) || has_two_tags(exchange, id);
    let (services, ends) = (&old.services, &old.configs);
    old.switches != new.switches
        || old.trunks != new.trunks
        || old.connections != new.connections
        || services
            .differing(&new.services)
            .iter()
            .any(|id| is_in_base(old, id) || is_in_base(new, id))
        || ends
            .differing(&new.configs)
            .iter()
            .any(|end| has_part(old, end) || has_part(new, end))
}

/// The priority of the entry that lets frames by trunk pass table 5.
const BY_TRUNK_PRIORITY: u16 = 65_000;

fn plan_base(exchange: &Exchange, builder: &mut Builder) {
    tags::plan_outer_tags(exchange, builder);
    lan::plan_strays(exchange, builder);
    tags::plan_probes(exchange, builder);
    for switch in exchange.switches.keys() {
        let cookie = CookieFields {
            kind: CookieKind::Base,
            object: switch.0,
            generation: 0,
        };
        let reserved = reserved_addresses();
        builder.flow(
            *switch,
            FlowBuilder::new(PORT, RESERVED_PRIORITY, reserved, cookie),
        );
        let by_trunk = metadata(Metadata::from_word(Metadata::TRUNK), Metadata::TRUNK);
        builder.flow(
            *switch,
            FlowBuilder::new(PROTECT, BY_TRUNK_PRIORITY, by_trunk, cookie).goto(EGRESS),
        );
        builder.flow(
            *switch,
            FlowBuilder::new(PROTECT, 1, Matching::any(), cookie).goto(EGRESS),
        );
        for (other, remote) in exchange.switches.iter().filter(|(other, _)| *other != switch) {
            let trunks = trunks_between(exchange, *switch, *other);
            if trunks.is_empty() {
                continue;
            }
            let buckets = trunks.iter().filter_map(|(_, trunk)| {
                let port = trunk_port(trunk, *switch)?;
                Some(watching(port, 0, vec![Action::output(port)]))
            });
            let buckets: Vec<_> = buckets.collect();
            builder.group(
                *switch,
                GroupId(remote.group.raw()),
                GroupKind::FastFailover,
                buckets,
            );
        }
    }
    for connection in exchange.connections.values() {
        let (Some(group), Some(switch)) = (connection.group, switch_of(connection)) else {
            continue;
        };
        if connection.kind == ConnectionKind::Standalone {
            continue;
        }
        let ports = connection.ports.iter().map(|port| port.port);
        let buckets = ports
            .map(|port| watching(port, 1, vec![Action::output(port)]))
            .collect();
        builder.group(switch, GroupId(group.raw()), GroupKind::Select, buckets);
    }
}

fn plan_service(
    exchange: &Exchange,
    index: &Index<'_>,
    id: ServiceId,
    settings: &Settings,
    builder: &mut Builder,
) {
    let Some(context) = ServiceContext::new(exchange, index, id, settings) else {
        return;
    };
    let is_agreed = matches!(context.service.consent, Consent::NotNeeded | Consent::Accepted);
    if !context.service.state.is_carried() || !is_agreed {
        return;
    }
    if context.switches().len() > 1 && context.service.wire_id.is_none() {
        builder.problem(id, "the service has ends at several switches and no wire id");
        return;
    }
    match context.service.kind {
        ServiceKind::P2pVc => circuit::plan_p2p(&context, builder),
        ServiceKind::ExchangeLan => lan::plan_lan(&context, builder),
        ServiceKind::P2mpVc | ServiceKind::Mp2mpVc => multipoint::plan_multipoint(&context, builder),
    }
}
