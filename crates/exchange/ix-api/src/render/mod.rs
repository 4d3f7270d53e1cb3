//! Converts the model's objects into values of the API for one actor. Data of other accounts are left out.

mod fabric;
mod filters;
mod lan;
mod route_servers;

use std::collections::{BTreeMap, BTreeSet};

#[cfg(test)]
pub(crate) use filters::new_filter;
pub(crate) use filters::target;
use millrace_ix_model::state::{Checklist, CommercialState, ConsentState, Severity, shown};
use millrace_ix_model::{
    Account, AccountId, Config, ConfigId, Connection, ConnectionId, Consent, FilterId, ObjectId,
    OperationKind, Quarantine, Reason, Service, ServiceId, ServiceKind, SiteId, Timestamp, User, UserId,
    VlanConfig,
};
pub(crate) use route_servers::{RouteServerReading, causes, member_routes, rejections, validity};
use serde::Serialize;

use crate::access::Principal;
use crate::names::Names;
use crate::observed::{FilterCounter, Load};
use crate::service::Snapshot;
use crate::view;

/// Returns the name that serde gives to an enumeration value without fields.
pub(crate) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    }
}

/// The snapshot, with the data that the principal of a request may see.
pub(crate) struct ViewContext<'a> {
    principal: &'a Principal,
    snapshot: &'a Snapshot,
    now: Timestamp,
    loads: BTreeMap<ObjectId, Load>,
    counters: BTreeMap<FilterId, FilterCounter>,
}

impl<'a> ViewContext<'a> {
    pub(crate) fn new(principal: &'a Principal, now: Timestamp) -> ViewContext<'a> {
        ViewContext {
            principal,
            snapshot: &principal.snapshot,
            now,
            loads: BTreeMap::new(),
            counters: BTreeMap::new(),
        }
    }

    /// Adds the rates of connections and trunks.
    pub(crate) fn with_loads(mut self, loads: BTreeMap<ObjectId, Load>) -> ViewContext<'a> {
        self.loads = loads;
        self
    }

    /// Adds the counters of filters.
    pub(crate) fn with_counters(mut self, counters: BTreeMap<FilterId, FilterCounter>) -> ViewContext<'a> {
        self.counters = counters;
        self
    }

    fn load(&self, object: impl Into<ObjectId>) -> Option<view::Load> {
        self.loads.get(&object.into()).map(|load| view::Load {
            in_bps: load.in_bps,
            out_bps: load.out_bps,
        })
    }

    /// Returns the names of those operations in `kinds` that are permitted on an object.
    fn can(&self, object: impl Into<ObjectId>, kinds: &[OperationKind]) -> Vec<String> {
        let object = object.into();
        kinds
            .iter()
            .filter(|kind| self.principal.may(**kind, object))
            .map(word)
            .collect()
    }

    /// Returns the name and the AS numbers of an account, without a check of permissions. If the principal may
    /// not know the account, use [`peer_name`](Self::peer_name).
    /// Returns the names of objects for the principal.
    pub(crate) fn names(&self) -> Names<'_> {
        Names(self.principal)
    }

    pub(crate) fn account_name(&self, id: AccountId) -> view::AccountName {
        let found = self.snapshot.exchange.accounts.get(&id);
        view::AccountName {
            id: id.to_string(),
            name: found.map_or_else(|| id.to_string(), |account| account.name.clone()),
            asns: found
                .map(|account| account.asns.iter().copied().collect())
                .unwrap_or_default(),
        }
    }

    /// Returns the name of an account at the other end of a service. If the principal may not know the name,
    /// returns the AS numbers instead, or `None` if the account has none.
    pub(crate) fn peer_name(&self, id: AccountId, service: Option<ServiceId>) -> Option<view::AccountName> {
        let is_of_circuit = |service: ServiceId| self.principal.is_of_circuit(service.into());
        if self.principal.knows(id) || service.is_some_and(is_of_circuit) {
            return Some(self.account_name(id));
        }
        Some(view::AccountName {
            id: String::new(),
            name: self.principal.asns_as_name(id)?,
            ..self.account_name(id)
        })
    }

    pub(crate) fn account(&self, id: AccountId, account: &Account) -> view::Account {
        let exchange = &self.snapshot.exchange;
        let full = self.principal.may_read(id);
        let connections = exchange
            .connections
            .values()
            .filter(|connection| full && connection.account == id);
        let services: BTreeSet<ServiceId> = if full {
            let ordered = exchange
                .services
                .iter()
                .filter(|(_, service)| service.account == id)
                .map(|(id, _)| *id);
            let joined = exchange
                .configs
                .values()
                .filter(|config| config.account == id)
                .map(|config| config.service);
            ordered.chain(joined).collect()
        } else {
            BTreeSet::new()
        };
        view::Account {
            id: id.to_string(),
            name: account.name.clone(),
            kind: word(&account.kind),
            parent: account
                .parent
                .filter(|_| full)
                .map(|parent| self.account_name(parent)),
            asns: account.asns.iter().copied().collect(),
            discoverable: account.discoverable,
            connections: connections.count(),
            services: services.len(),
            revision: self.snapshot.revision_of(id.into()),
            can: self.can(id, &[OperationKind::UpdateAccount, OperationKind::DeleteAccount]),
        }
    }

    pub(crate) fn user(&self, id: UserId, user: &User) -> view::User {
        view::User {
            id: id.to_string(),
            name: user.name.clone(),
            account: self.account_name(user.account),
            roles: user.roles.iter().map(|role| role.name().to_owned()).collect(),
            email: user.email.clone(),
            deactivated: user.deactivated,
            revision: self.snapshot.revision_of(id.into()),
            can: self.can(id, &[OperationKind::UpdateUser, OperationKind::DeleteUser]),
        }
    }

    fn site_name(&self, id: SiteId) -> String {
        self.snapshot
            .exchange
            .sites
            .get(&id)
            .map_or_else(|| id.to_string(), |site| site.name.clone())
    }

    fn port(&self, id: millrace_ix_model::PortId) -> view::Port {
        let switch = self.snapshot.exchange.switches.get(&id.switch);
        let speed = switch
            .and_then(|switch| switch.port(id.port))
            .map_or(0, |port| port.speed_mbps);
        view::Port {
            id: id.to_string(),
            switch: switch.map_or_else(|| id.switch.to_string(), |switch| switch.name.clone()),
            site: switch
                .map(|switch| self.site_name(switch.site))
                .unwrap_or_default(),
            number: id.port.raw(),
            speed_mbps: speed,
            up: self.snapshot.is_up(id),
        }
    }

    /// Returns the site of a connection.
    pub(crate) fn site_of(&self, connection: ConnectionId) -> String {
        let found = self.snapshot.exchange.connections.get(&connection);
        let port = found.and_then(|connection| connection.ports.first());
        port.map(|port| self.port(*port).site).unwrap_or_default()
    }

    /// Returns the state of a connection: `up`, `degraded`, `down` or `unknown`.
    pub(crate) fn connection_state(&self, connection: &Connection) -> &'static str {
        let ports: Vec<Option<bool>> = connection
            .ports
            .iter()
            .map(|port| self.snapshot.is_up(*port))
            .collect();
        if ports.iter().any(Option::is_none) {
            "unknown"
        } else if ports.iter().all(|up| *up == Some(true)) {
            "up"
        } else if ports.contains(&Some(true)) {
            "degraded"
        } else {
            "down"
        }
    }

    pub(crate) fn connection(&self, id: ConnectionId, connection: &Connection) -> view::Connection {
        let ports: Vec<view::Port> = connection.ports.iter().map(|port| self.port(*port)).collect();
        let ends = self
            .snapshot
            .index()
            .by_connection
            .get(&id)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let configs = ends
            .iter()
            .filter_map(|end| self.snapshot.exchange.configs.get(end));
        view::Connection {
            id: id.to_string(),
            name: connection.name.clone(),
            account: self.account_name(connection.account),
            kind: word(&connection.kind),
            site: ports.first().map(|port| port.site.clone()).unwrap_or_default(),
            state: self.connection_state(connection).to_owned(),
            speed_mbps: ports.iter().map(|port| port.speed_mbps).sum(),
            reserved_mbps: configs
                .filter_map(|config| config.capacity_mbps)
                .fold(0, u32::saturating_add),
            ends: ends.len(),
            load: self.load(id),
            ports,
            locked_by: connection.locked_by.map(|account| self.account_name(account)),
            revision: self.snapshot.revision_of(id.into()),
            can: self.can(
                id,
                &[
                    OperationKind::SetConnectionPorts,
                    OperationKind::DeleteConnection,
                    OperationKind::Lock,
                ],
            ),
        }
    }

    pub(crate) fn vlans(&self, id: ConnectionId) -> view::Vlans {
        let exchange = &self.snapshot.exchange;
        let ends = self
            .snapshot
            .index()
            .by_connection
            .get(&id)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let mut used: BTreeSet<u16> = BTreeSet::new();
        let mut taken = Vec::new();
        for config in ends.iter().filter_map(|end| exchange.configs.get(end)) {
            let outer = config.vlan.outer().map(millrace_ix_model::VlanId::raw);
            used.extend(outer);
            let service = exchange.services.get(&config.service);
            taken.push(view::TakenVlan {
                vlan: config.vlan.to_string(),
                outer,
                service: config.service.to_string(),
                name: service.map(|service| service.name.clone()).unwrap_or_default(),
            });
        }
        let whole = ends
            .iter()
            .filter_map(|end| exchange.configs.get(end))
            .any(|config| config.vlan == VlanConfig::Port);
        let mut free: Vec<[u16; 2]> = Vec::new();
        for vid in (2..=4094_u16).filter(|vid| !whole && !used.contains(vid)) {
            match free.last_mut() {
                Some([_, last]) if *last + 1 == vid => *last = vid,
                _ => free.push([vid, vid]),
            }
        }
        view::Vlans {
            free,
            port: ends.is_empty(),
            taken,
        }
    }

    pub(crate) fn end(&self, id: ConfigId, config: &Config) -> view::End {
        let exchange = &self.snapshot.exchange;
        // The other party of a service may see the end and its site, but not its port and VLAN.
        let own = self.principal.may(OperationKind::ReadConnection, id);
        let connection = exchange.connections.get(&config.connection).filter(|_| own);
        let macs = self
            .snapshot
            .index()
            .macs
            .get(&id)
            .filter(|_| own)
            .map(Vec::as_slice)
            .unwrap_or_default();
        // The parties of a circuit agree on its rate, which the invited account reads before it accepts.
        let service = exchange.services.get(&config.service);
        let is_shared = service.is_some_and(|service| service.kind == millrace_ix_model::ServiceKind::P2pVc);
        view::End {
            id: id.to_string(),
            service: config.service.to_string(),
            account: self.account_name(config.account),
            own,
            site: self.site_of(config.connection),
            connection: connection.map(|connection| view::ConnectionName {
                id: config.connection.to_string(),
                name: connection.name.clone(),
                ports: connection
                    .ports
                    .iter()
                    .map(|port| self.port(*port))
                    .map(|port| format!("{}:{}", port.switch, port.number))
                    .collect(),
            }),
            vlan: own.then(|| vlan(config.vlan)),
            vlan_text: own.then(|| config.vlan.to_string()),
            capacity_mbps: config.capacity_mbps.filter(|_| own || is_shared),
            shut_down: config.shut_down,
            macs: macs
                .iter()
                .filter_map(|mac| Some((mac, exchange.macs.get(mac)?)))
                .map(|(mac, found)| view::RegisteredMac {
                    id: mac.to_string(),
                    address: found.address.to_string(),
                    valid_from: found.valid_from.to_string(),
                    valid_until: found.valid_until.map(|time| time.to_string()),
                })
                .collect(),
            ips: self.ips(id, own),
            checklist: self.checklist(id, config).filter(|_| own),
            quarantine: match config.quarantine {
                Quarantine::NotNeeded => "not_needed",
                Quarantine::Running { .. } => "running",
                Quarantine::Passed => "passed",
                Quarantine::Waived { .. } => "waived",
            }
            .to_owned(),
            revision: self.snapshot.revision_of(id.into()),
            can: self.can(
                id,
                &[
                    OperationKind::SetRate,
                    OperationKind::MoveEnd,
                    OperationKind::ShutDown,
                    OperationKind::DeleteEnd,
                    OperationKind::AddMac,
                    OperationKind::RemoveMac,
                    OperationKind::WaiveQuarantine,
                ],
            ),
        }
    }

    /// Returns the ends of a service that the actor may see.
    fn ends(&self, id: ServiceId) -> Vec<(ConfigId, &'a Config)> {
        let ends = self
            .snapshot
            .index()
            .by_service
            .get(&id)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let found = ends
            .iter()
            .filter_map(|end| Some((*end, self.snapshot.exchange.configs.get(end)?)));
        found.filter(|(end, _)| self.principal.may_read(*end)).collect()
    }

    /// Returns the state of a service for display on pages.
    pub(crate) fn shown(&self, id: ServiceId, service: &Service) -> millrace_ix_model::state::ServiceState {
        let realisation = self.snapshot.realisation(id);
        let consent = match service.consent {
            Consent::NotNeeded | Consent::Accepted => ConsentState::Given,
            Consent::Pending => ConsentState::Pending,
            Consent::Refused { .. } => ConsentState::Refused,
        };
        let of_end = |(end, config): &(ConfigId, &Config)| {
            let Quarantine::Running { clean_since } = config.quarantine else {
                return Checklist::NotNeeded;
            };
            if let Some(finding) = self.newest_finding(*end) {
                return Checklist::Failing(finding);
            }
            let policy = service
                .policy
                .and_then(|policy| self.snapshot.exchange.policies.get(&policy));
            let all = policy.map_or(900, |policy| policy.quarantine_secs);
            let passed = u32::try_from(self.now.since(clean_since).as_secs()).unwrap_or(u32::MAX);
            Checklist::Running {
                remaining_secs: all.saturating_sub(passed),
            }
        };
        let checklist = self
            .ends(id)
            .iter()
            .map(of_end)
            .fold(Checklist::NotNeeded, Checklist::worse);
        shown(service.state, &realisation, consent, &checklist)
    }

    pub(crate) fn service(&self, id: ServiceId, service: &Service) -> view::Service {
        let state = self.shown(id, service);
        let ends = self.ends(id);
        let (consent, because) = match &service.consent {
            Consent::NotNeeded => ("not_needed", None),
            Consent::Pending => ("pending", None),
            Consent::Accepted => ("accepted", None),
            Consent::Refused { reason } => ("refused", Some(reason.clone())),
        };
        view::Service {
            id: id.to_string(),
            name: service.name.clone(),
            kind: word(&service.kind),
            account: self.account_name(service.account),
            peer: service.peer.map(|peer| self.account_name(peer)),
            stages: stages(service, state.state, ends.len()),
            state: word(&state.state),
            status: state
                .status
                .iter()
                .map(|status| {
                    let reason = self.names().reason(Reason {
                        text: status.message.clone(),
                        coded: status.coded.clone(),
                    });
                    view::Status {
                        severity: severity(status.severity),
                        tag: status.tag.to_owned(),
                        message: reason.text,
                        coded: view::coded(&reason.coded),
                    }
                })
                .collect(),
            path: self.path(service, &ends),
            ends: ends.iter().map(|(id, config)| self.end(*id, config)).collect(),
            consent: consent.to_owned(),
            refused_because: because,
            locked_by: service.locked_by.map(|account| self.account_name(account)),
            networks: service.networks.iter().map(ToString::to_string).collect(),
            rules: self.rules(service),
            generation: service.generation,
            revision: self.snapshot.revision_of(id.into()),
            can: self.can(
                id,
                &[
                    OperationKind::Accept,
                    OperationKind::Refuse,
                    OperationKind::ConfigureEnd,
                    OperationKind::RenameService,
                    OperationKind::CreateServiceKey,
                    OperationKind::Lock,
                    OperationKind::Unlock,
                    OperationKind::DeleteService,
                ],
            ),
        }
    }

    /// Returns the number of objects in each state, in the order of the states' names.
    pub(crate) fn count(states: impl Iterator<Item = String>) -> Vec<view::Count> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for state in states {
            *counts.entry(state).or_default() += 1;
        }
        counts
            .into_iter()
            .map(|(state, count)| view::Count { state, count })
            .collect()
    }
}

pub(crate) fn severity(severity: Severity) -> view::Severity {
    match severity {
        Severity::Error => view::Severity::Error,
        Severity::Warning => view::Severity::Warning,
        Severity::Info => view::Severity::Info,
    }
}

fn vlan(config: VlanConfig) -> view::Vlan {
    match config {
        VlanConfig::Port => view::Vlan::Port,
        VlanConfig::Dot1q { vlan, .. } => view::Vlan::Dot1q {
            vlan: Some(vlan.raw()),
        },
        VlanConfig::Qinq { outer, inner, .. } => view::Vlan::Qinq {
            outer: Some(outer.raw()),
            inner: Some(inner.raw()),
        },
    }
}

/// Returns the stages in the life of a service, with the current stage marked.
fn stages(service: &Service, state: CommercialState, ends: usize) -> Vec<view::Stage> {
    use CommercialState as C;
    let has_consent = !matches!(service.consent, Consent::NotNeeded);
    let has_quarantine = service.kind == ServiceKind::ExchangeLan;
    let consented = matches!(service.consent, Consent::NotNeeded | Consent::Accepted);
    let configured = consented && (ends >= 2 || service.kind != ServiceKind::P2pVc && ends >= 1);
    let in_place = matches!(state, C::Testing | C::Production | C::ProductionChangePending);
    let in_production = matches!(state, C::Production | C::ProductionChangePending);
    let leaving = matches!(state, C::DecommissionRequested | C::Decommissioned | C::Archived);
    let mut stages = vec![("ordered", true)];
    if has_consent {
        stages.push(("consented", consented));
    }
    stages.push(("configured", configured));
    stages.push(("installed", in_place));
    if has_quarantine {
        stages.push(("quarantine", in_production));
    }
    stages.push(("production", in_production));
    if leaving {
        stages.push(("removed", matches!(state, C::Decommissioned | C::Archived)));
    }
    let failed = matches!(state, C::Error | C::Cancelled);
    let mut has_current = false;
    stages
        .into_iter()
        .map(|(stage, done)| {
            let done = done || leaving && stage != "removed";
            let state = if done {
                "done"
            } else if has_current {
                "open"
            } else {
                has_current = true;
                if failed { "failed" } else { "current" }
            };
            view::Stage {
                stage: stage.to_owned(),
                state: state.to_owned(),
            }
        })
        .collect()
}
