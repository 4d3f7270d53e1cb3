//! Converts paths, trunks, switches and sites into values of the API.

use std::collections::BTreeSet;

use millrace_ix_model::path::contracts_of;
use millrace_ix_model::{
    Config, ConfigId, Connection, OperationKind, Service, ServiceId, ServiceKind, SiteId, SwitchId, TrunkId,
};

use super::{ViewContext, word};
use crate::service::SwitchState;
use crate::view;

impl ViewContext<'_> {
    /// Returns the path of a service's frames between its first two ends.
    pub(super) fn path(&self, service: &Service, ends: &[(ConfigId, &Config)]) -> Vec<view::Hop> {
        let [(_, near), (_, far), ..] = ends else {
            return Vec::new();
        };
        let port_of = |config: &Config| {
            let connection = self.snapshot.exchange.connections.get(&config.connection)?;
            Some((connection, *connection.ports.first()?))
        };
        let (Some((near_link, near_port)), Some((far_link, far_port))) = (port_of(near), port_of(far)) else {
            return Vec::new();
        };
        let hop = |kind: &str, name: String, site: Option<String>, up: Option<bool>| view::Hop {
            kind: kind.to_owned(),
            name,
            site,
            up,
        };
        let end_hop = |config: &Config, connection: &Connection| {
            let name = if self
                .principal
                .may(OperationKind::ReadConnection, config.connection)
            {
                connection.name.clone()
            } else {
                self.account_name(config.account).name
            };
            let up = match self.connection_state(connection) {
                "up" | "degraded" => Some(true),
                "down" => Some(false),
                _ => None,
            };
            hop("port", name, Some(self.site_of(config.connection)), up)
        };
        let switch_hop = |id: SwitchId| {
            let found = self.snapshot.exchange.switches.get(&id);
            let health = self.snapshot.switches.get(&id);
            let name = found.map_or_else(|| id.to_string(), |switch| switch.name.clone());
            // A switch that the engine cannot reach may still forward, so its state is unknown.
            let up = health.and_then(|health| (health.state != SwitchState::Unreachable).then_some(true));
            hop(
                "switch",
                name,
                found.map(|switch| self.site_name(switch.site)),
                up,
            )
        };
        let mut hops = vec![end_hop(near, near_link), switch_hop(near_port.switch)];
        if near_port.switch != far_port.switch {
            for pair in service.path(near_port.switch, far_port.switch).windows(2) {
                let carrier = self.carrier(pair[0], pair[1]);
                if let Some((id, trunk)) =
                    carrier.and_then(|id| Some((id, self.snapshot.exchange.trunks.get(&id)?)))
                {
                    hops.push(hop("trunk", trunk.name.clone(), None, self.trunk_up(id)));
                }
                hops.push(switch_hop(pair[1]));
            }
        }
        hops.push(end_hop(far, far_link));
        hops
    }

    /// Returns true if both ends of a trunk have link; `None` if the state of an end is unknown.
    pub(crate) fn trunk_up(&self, id: TrunkId) -> Option<bool> {
        let trunk = self.snapshot.exchange.trunks.get(&id)?;
        let [a, b] = trunk.ends.map(|end| self.snapshot.is_up(end));
        match (a, b) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        }
    }

    /// Returns the trunk that carries the traffic between two switches: of the trunks that are not down, the
    /// one with the lowest cost. A drained trunk is used only if there is no other.
    pub(crate) fn carrier(&self, a: SwitchId, b: SwitchId) -> Option<TrunkId> {
        self.carrier_without(a, b, None)
    }

    fn carrier_without(&self, a: SwitchId, b: SwitchId, excluded: Option<TrunkId>) -> Option<TrunkId> {
        let joins = |ends: [millrace_ix_model::PortId; 2]| {
            let [one, other] = ends.map(|end| end.switch);
            (one, other) == (a, b) || (one, other) == (b, a)
        };
        let trunks = self
            .snapshot
            .exchange
            .trunks
            .iter()
            .filter(|(_, trunk)| joins(trunk.ends));
        let usable = trunks.filter(|(id, _)| Some(**id) != excluded && self.trunk_up(**id) != Some(false));
        usable
            .min_by_key(|(id, trunk)| (trunk.drained, trunk.cost, **id))
            .map(|(id, _)| *id)
    }

    pub(crate) fn trunk(&self, id: TrunkId, trunk: &millrace_ix_model::Trunk) -> view::Trunk {
        let [a, b] = trunk.ends.map(|end| end.switch);
        view::Trunk {
            id: id.to_string(),
            name: trunk.name.clone(),
            kind: word(&trunk.kind),
            ends: trunk.ends.iter().map(|end| self.port(*end)).collect(),
            cost: trunk.cost,
            capacity_mbps: trunk.capacity_mbps,
            contracted_mbps: self.contracted(a, b),
            load: self.load(id),
            drained: trunk.drained,
            up: self.trunk_up(id),
            since: None,
            carries: self.carrier(a, b) == Some(id),
            services: self.services_on(a, b).len(),
            revision: self.snapshot.revision_of(id.into()),
            can: self.can(id, &[OperationKind::DrainTrunk, OperationKind::DeleteFabric]),
        }
    }

    /// Returns the effect of draining a trunk. There is no effect if the trunk carries no traffic now.
    pub(crate) fn impact(&self, id: TrunkId, trunk: &millrace_ix_model::Trunk) -> view::Impact {
        let [a, b] = trunk.ends.map(|end| end.switch);
        let exchange = &self.snapshot.exchange;
        let other = self.carrier_without(a, b, Some(id));
        let services = if self.carrier(a, b) == Some(id) {
            self.services_on(a, b)
        } else {
            Vec::new()
        };
        let mut members = BTreeSet::new();
        let mut moved = Vec::new();
        for id in services {
            let Some(service) = exchange.services.get(&id) else {
                continue;
            };
            members.insert(service.account);
            let ends = self
                .snapshot
                .index()
                .by_service
                .get(&id)
                .map(Vec::as_slice)
                .unwrap_or_default();
            members.extend(
                ends.iter()
                    .filter_map(|end| Some(exchange.configs.get(end)?.account)),
            );
            moved.push(view::ImpactService {
                id: id.to_string(),
                name: service.name.clone(),
                account: self.account_name(service.account),
            });
        }
        moved.sort_by(|a, b| a.name.cmp(&b.name));
        let other = other.and_then(|id| exchange.trunks.get(&id));
        view::Impact {
            services: moved,
            members: members
                .into_iter()
                .map(|account| self.account_name(account))
                .collect(),
            carrier: other.map(|trunk| trunk.name.clone()),
            contracted_mbps: self.contracted(a, b),
            capacity_mbps: other.map_or(0, |trunk| trunk.capacity_mbps),
        }
    }

    /// Returns the number of members with a port on a switch.
    pub(crate) fn members_at(&self, switch: SwitchId) -> usize {
        let connections = self.snapshot.exchange.connections.values();
        let here = connections.filter(|connection| connection.ports.iter().any(|port| port.switch == switch));
        here.map(|connection| connection.account)
            .collect::<BTreeSet<_>>()
            .len()
    }

    /// Returns the number of members whose services are interrupted because the trunk is down; 0 if another
    /// trunk carries them.
    pub(crate) fn members_cut_off(&self, trunk: &millrace_ix_model::Trunk) -> usize {
        let [a, b] = trunk.ends.map(|end| end.switch);
        if self.carrier(a, b).is_some() {
            return 0;
        }
        let exchange = &self.snapshot.exchange;
        let services = self.services_on(a, b);
        let ends = services
            .iter()
            .filter_map(|id| self.snapshot.index().by_service.get(id))
            .flatten();
        let accounts = ends.filter_map(|end| Some(exchange.configs.get(end)?.account));
        accounts.collect::<BTreeSet<_>>().len()
    }

    /// Returns the sum of the contracted rates between two switches, in Mbit/s; the greater of the two
    /// directions.
    fn contracted(&self, a: SwitchId, b: SwitchId) -> u32 {
        let contracts = contracts_of(&self.snapshot.exchange);
        let rates = [(a, b), (b, a)].map(|pair| contracts.get(&pair).copied().unwrap_or_default());
        rates[0].max(rates[1]).try_into().unwrap_or(u32::MAX)
    }

    /// Returns the circuits whose path crosses from one of two adjacent switches to the other, and other
    /// services with ends at both switches.
    pub(crate) fn services_on(&self, a: SwitchId, b: SwitchId) -> Vec<ServiceId> {
        let exchange = &self.snapshot.exchange;
        let switches_of = |ends: &[ConfigId]| -> BTreeSet<SwitchId> {
            let configs = ends.iter().filter_map(|end| exchange.configs.get(end));
            configs
                .filter_map(|config| exchange.connections.get(&config.connection)?.switch())
                .collect()
        };
        let is_on = |service: &Service, switches: &BTreeSet<SwitchId>| {
            if service.kind != ServiceKind::P2pVc {
                return switches.contains(&a) && switches.contains(&b);
            }
            let (Some(from), Some(to)) = (switches.first(), switches.last()) else {
                return false;
            };
            let path = service.path(*from, *to);
            path.windows(2).any(|pair| pair == [a, b] || pair == [b, a])
        };
        let services = self.snapshot.index().by_service.iter();
        let services = services.filter(|(id, ends)| {
            exchange.services.get(id).is_some_and(|service| {
                let has_path = service.state.is_carried() && service.wire_id.is_some();
                has_path && is_on(service, &switches_of(ends))
            })
        });
        services.map(|(id, _)| *id).collect()
    }

    pub(crate) fn switch(&self, id: SwitchId, switch: &millrace_ix_model::Switch) -> view::Switch {
        let exchange = &self.snapshot.exchange;
        let health = self.snapshot.switches.get(&id);
        let connections = exchange
            .connections
            .values()
            .flat_map(|connection| connection.ports.iter());
        let trunks = exchange.trunks.values().flat_map(|trunk| trunk.ends.iter());
        view::Switch {
            id: id.to_string(),
            name: switch.name.clone(),
            site: self.site_name(switch.site),
            dpid: switch.dpid.to_string(),
            state: health.map_or("unknown", |health| health.state.name()).to_owned(),
            since: health
                .and_then(|health| health.since)
                .map(|time| time.to_string()),
            error: health.and_then(|health| health.error.clone()),
            entries: health.map(|health| health.entries),
            ports: switch.ports.len(),
            ports_used: connections.chain(trunks).filter(|port| port.switch == id).count(),
            retired: switch.retired,
            revision: self.snapshot.revision_of(id.into()),
            can: self.can(
                id,
                &[
                    OperationKind::SetPorts,
                    OperationKind::RetireSwitch,
                    OperationKind::DeleteFabric,
                ],
            ),
        }
    }

    pub(crate) fn site(&self, id: SiteId, site: &millrace_ix_model::Site) -> view::Site {
        let exchange = &self.snapshot.exchange;
        let switches: BTreeSet<SwitchId> = exchange
            .switches
            .iter()
            .filter(|(_, switch)| switch.site == id)
            .map(|(id, _)| *id)
            .collect();
        let is_here = |connection: &&Connection| {
            connection
                .ports
                .first()
                .is_some_and(|port| switches.contains(&port.switch))
        };
        view::Site {
            id: id.to_string(),
            name: site.name.clone(),
            switches: switches.len(),
            connections: exchange.connections.values().filter(is_here).count(),
        }
    }
}
