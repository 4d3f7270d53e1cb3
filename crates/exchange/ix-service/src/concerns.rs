//! The parts of an exchange that a change concerns, and what follows for other changes in progress.
//!
//! A change is planned on top of the earlier changes in progress. Its entries may depend on theirs although it neither
//! writes nor names one of their objects: a filter has an entry for each end of its owner. Such a change **follows** the
//! earlier one: it begins when that one is drained, and is planned again if that one is rolled back.
//!
//! | change | follows an earlier change of |
//! | --- | --- |
//! | of a filter | ends of its account, and of the peers that it names |
//! | of a filter | filters of its account: its priority depends on those that it overlaps |
//! | of an end | filters of its account, and those that name the account |
//! | of an end of a peering LAN | ends of the same LAN at the same connection: frames between them leave by `IN_PORT` |
//! | of a peering LAN's first or last end at a switch | the same LAN: the switch gets or loses the entries of all its ends |
//! | in a multipoint circuit | the same circuit: its entries name pairs of ends |
//! | in a service with a validity that begins or ends | the same service |

use std::collections::BTreeSet;

use millrace_ix_engine::Scope;
use millrace_ix_model::{
    AccountId, ChangeSet, Config, ConnectionId, Exchange, Filter, Object, ObjectId, ServiceId, ServiceKind,
    SwitchId,
};

/// The parts of an exchange that a change concerns.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Concerns {
    services: BTreeSet<ServiceId>,
    /// The services whose entries name pairs of ends, and those with a validity that begins or ends.
    entwined: BTreeSet<ServiceId>,
    connections: BTreeSet<ConnectionId>,
    /// The ends of peering LANs, by connection.
    lan_ends: BTreeSet<(ServiceId, ConnectionId)>,
    /// The peering LANs that get their first end at a switch, or lose their last one there.
    spread: BTreeSet<ServiceId>,
    /// The accounts whose ends are concerned.
    ends_of: BTreeSet<AccountId>,
    /// The accounts whose filters are concerned.
    filters_of: BTreeSet<AccountId>,
    /// The accounts whose ends filters depend on: owners and peers.
    filters_read: BTreeSet<AccountId>,
    /// The switches whose trunks are concerned.
    trunks_at: BTreeSet<SwitchId>,
    /// True if the change alters a policy, a switch or a trunk: all services are verified.
    is_whole: bool,
}

impl Concerns {
    /// Returns the parts that a change concerns, which writes `redo` and of which `undo` is the reverse. `sides` are the
    /// exchange before and after it, `boundary` the services in which a validity begins or ends.
    pub(crate) fn of(
        [redo, undo]: [&ChangeSet; 2],
        sides: [&Exchange; 2],
        boundary: &BTreeSet<ServiceId>,
    ) -> Concerns {
        let mut concerns = Concerns::default();
        for side in sides {
            for service in boundary {
                concerns.add_service(*service, side);
            }
        }
        concerns.entwined.extend(boundary);
        for (id, object) in redo.objects.iter().chain(&undo.objects) {
            for side in sides {
                concerns.add(*id, object.as_ref(), side);
            }
        }
        let lans: BTreeSet<ServiceId> = concerns.lan_ends.iter().map(|(lan, _)| *lan).collect();
        let [before, after] = sides;
        let has_spread = |lan: &ServiceId| switches_of(*lan, before) != switches_of(*lan, after);
        concerns.spread = lans.into_iter().filter(has_spread).collect();
        concerns
    }

    fn add(&mut self, id: ObjectId, object: Option<&Object>, side: &Exchange) {
        if let ObjectId::Service(service) = id {
            self.add_service(service, side);
        }
        match object {
            Some(Object::Config(config)) => self.add_end(config, side),
            Some(Object::Mac(mac)) => self.add_service_of(side.configs.get(&mac.config), side),
            Some(Object::Ip(ip)) => self.add_service_of(side.configs.get(&ip.config), side),
            Some(Object::Connection(_)) => {
                if let ObjectId::Connection(connection) = id {
                    let ends = side.configs.values();
                    for config in ends.filter(|config| config.connection == connection) {
                        self.add_end(config, side);
                    }
                }
            }
            Some(Object::Filter(filter)) => self.add_filter(filter),
            Some(Object::Policy(_)) => {
                self.is_whole = true;
                let services = side.services.iter();
                let with_policy = services.filter(
                    |(_, service)| matches!(id, ObjectId::Policy(policy) if service.policy == Some(policy)),
                );
                for (service, _) in with_policy {
                    self.entwined.insert(*service);
                    self.add_service(*service, side);
                }
            }
            Some(Object::Switch(_)) => {
                self.is_whole = true;
                if let ObjectId::Switch(switch) = id {
                    self.trunks_at.insert(switch);
                }
            }
            Some(Object::Trunk(trunk)) => {
                self.is_whole = true;
                self.trunks_at.extend(trunk.ends.iter().map(|end| end.switch));
            }
            _ => {}
        }
    }

    fn add_service(&mut self, id: ServiceId, side: &Exchange) {
        self.services.insert(id);
        let Some(service) = side.services.get(&id) else {
            return;
        };
        if matches!(service.kind, ServiceKind::P2mpVc | ServiceKind::Mp2mpVc) {
            self.entwined.insert(id);
        }
        if service.kind != ServiceKind::ExchangeLan {
            for (_, config) in side.ends(id) {
                self.ends_of.insert(config.account);
                self.connections.insert(config.connection);
            }
        }
    }

    fn add_service_of(&mut self, config: Option<&Config>, side: &Exchange) {
        if let Some(config) = config {
            self.add_service(config.service, side);
        }
    }

    fn add_end(&mut self, config: &Config, side: &Exchange) {
        self.add_service(config.service, side);
        self.ends_of.insert(config.account);
        self.connections.insert(config.connection);
        let service = side.services.get(&config.service);
        if service.is_some_and(|service| service.kind == ServiceKind::ExchangeLan) {
            self.lan_ends.insert((config.service, config.connection));
        }
    }

    fn add_filter(&mut self, filter: &Filter) {
        self.filters_of.insert(filter.account);
        self.filters_read.insert(filter.account);
        self.filters_read.extend(&filter.peers);
    }

    /// Returns true if the entries of this change may depend on those of an earlier one that is in progress.
    pub(crate) fn follow(&self, earlier: &Concerns) -> bool {
        let meet = |one: &BTreeSet<ServiceId>, two: &BTreeSet<ServiceId>| !one.is_disjoint(two);
        meet(&self.entwined, &earlier.services)
            || meet(&self.services, &earlier.entwined)
            || meet(&self.spread, &earlier.services)
            || meet(&self.services, &earlier.spread)
            || !self.lan_ends.is_disjoint(&earlier.lan_ends)
            || !self.filters_of.is_disjoint(&earlier.filters_of)
            || !self.filters_read.is_disjoint(&earlier.ends_of)
            || !self.ends_of.is_disjoint(&earlier.filters_read)
    }

    /// Returns the services that the change concerns.
    pub(crate) const fn services(&self) -> &BTreeSet<ServiceId> {
        &self.services
    }

    /// Returns the parts that the verification of the change reads, and those that its flip alters.
    pub(crate) fn scope(&self, sides: [&Exchange; 2]) -> Scope {
        let mut scope = Scope::default();
        let any = || "any".to_owned();
        scope.alters.insert(any());
        if self.is_whole {
            scope.reads.insert(any());
        }
        let services = self.services.iter().map(ToString::to_string);
        let connections = self.connections.iter().map(ToString::to_string);
        for part in services.chain(connections) {
            scope.reads.insert(part.clone());
            scope.alters.insert(part);
        }
        for switch in &self.trunks_at {
            scope.alters.insert(format!("trunks at {switch}"));
        }
        for account in &self.ends_of {
            scope.alters.insert(format!("ends of {account}"));
        }
        for account in &self.filters_of {
            scope.alters.insert(format!("filters of {account}"));
            scope.reads.insert(format!("filters of {account}"));
        }
        for account in &self.filters_read {
            scope.reads.insert(format!("ends of {account}"));
        }
        for side in sides {
            for service in &self.services {
                let via = side.services.get(service).map(|service| service.via.as_slice());
                let via = via.unwrap_or_default().iter();
                scope
                    .reads
                    .extend(via.map(|switch| format!("trunks at {switch}")));
                for (_, config) in side.ends(*service) {
                    scope.reads.insert(format!("filters of {}", config.account));
                    let connection = side.connections.get(&config.connection);
                    let ports = connection.into_iter().flat_map(|connection| &connection.ports);
                    scope
                        .reads
                        .extend(ports.map(|port| format!("trunks at {}", port.switch)));
                }
            }
        }
        scope
    }
}

/// Returns the switches at which a service has ends.
fn switches_of(service: ServiceId, side: &Exchange) -> BTreeSet<SwitchId> {
    let connections = side
        .ends(service)
        .filter_map(|(_, config)| side.connections.get(&config.connection));
    connections
        .flat_map(|connection| connection.ports.iter().map(|port| port.switch))
        .collect()
}
