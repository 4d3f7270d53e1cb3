//! The text of an exchange.

use std::collections::BTreeMap;

use toml::Spanned;

use super::form::{
    AccountForm, ConnectionForm, EndForm, FilterForm, Form, IpForm, MacForm, Name, ServiceForm, SiteForm,
    SwitchForm, TrunkForm, UserForm, name,
};
use crate::exchange::Exchange;
use crate::fabric::{PortId, Switch};
use crate::id::{AccountId, ConfigId, ConnectionId, ServiceId};

/// Returns the exchange as TOML, in the order of identifiers. References to objects that are absent are written as their
/// identifiers, and refused when the text is read.
///
/// # Errors
/// The serializer's words; contents of an exchange have no value that TOML lacks.
pub fn export(exchange: &Exchange) -> Result<String, String> {
    toml::to_string(&Writer(exchange).form()).map_err(|error| error.to_string())
}

struct Writer<'a>(&'a Exchange);

impl Writer<'_> {
    fn account(&self, id: AccountId) -> Name {
        name(
            &self
                .0
                .accounts
                .get(&id)
                .map_or_else(|| id.to_string(), |account| account.name.clone()),
        )
    }

    fn accounts(&self, id: Option<AccountId>) -> Option<Name> {
        id.map(|id| self.account(id))
    }

    fn port(&self, port: PortId) -> Name {
        let switch = self.0.switches.get(&port.switch);
        let switch = switch.map_or_else(|| port.switch.to_string(), |switch| switch.name.clone());
        name(&format!("{switch}:{}", port.port.raw()))
    }

    fn connection(&self, id: ConnectionId) -> Name {
        let found = self.0.connections.get(&id);
        let text = found.map(|found| format!("{}/{}", self.account(found.account).get_ref(), found.name));
        name(&text.unwrap_or_else(|| id.to_string()))
    }

    fn form(&self) -> Form {
        let exchange = self.0;
        let site = |id| exchange.sites.get(&id).map_or("", |site| &site.name);
        Form {
            sites: exchange
                .sites
                .values()
                .map(|site| SiteForm {
                    name: name(&site.name),
                })
                .collect(),
            switches: exchange
                .switches
                .values()
                .map(|switch| SwitchForm {
                    name: name(&switch.name),
                    site: name(site(switch.site)),
                    dpid: name(&switch.dpid.to_string()),
                    ports: port_ranges(switch),
                })
                .collect(),
            trunks: exchange
                .trunks
                .values()
                .map(|trunk| TrunkForm {
                    name: name(&trunk.name),
                    kind: trunk.kind,
                    ends: trunk.ends.map(|port| self.port(port)),
                    cost: trunk.cost,
                    capacity_mbps: trunk.capacity_mbps,
                    mtu: trunk.mtu,
                    risk_group: trunk.risk_group.clone(),
                    drained: trunk.drained,
                })
                .collect(),
            policies: exchange
                .policies
                .values()
                .map(|policy| Spanned::new(0..0, policy.clone()))
                .collect(),
            accounts: exchange
                .accounts
                .values()
                .map(|account| AccountForm {
                    name: name(&account.name),
                    kind: account.kind,
                    parent: self.accounts(account.parent),
                    asns: account.asns.clone(),
                    discoverable: account.discoverable,
                    as_set: account.as_set.clone(),
                    external_ref: account.external_ref.clone(),
                })
                .collect(),
            users: exchange
                .users
                .values()
                .map(|user| UserForm {
                    name: name(&user.name),
                    account: self.account(user.account),
                    roles: user.roles.clone(),
                    email: user.email.clone(),
                    language: user.language.clone(),
                })
                .collect(),
            connections: exchange
                .connections
                .values()
                .map(|connection| ConnectionForm {
                    name: name(&connection.name),
                    account: self.account(connection.account),
                    kind: connection.kind,
                    ports: connection.ports.iter().map(|port| self.port(*port)).collect(),
                    external_ref: connection.external_ref.clone(),
                    locked_by: self.accounts(connection.locked_by),
                })
                .collect(),
            services: exchange
                .services
                .keys()
                .filter_map(|id| self.service(*id))
                .collect(),
            filters: exchange
                .filters
                .values()
                .map(|filter| FilterForm {
                    account: self.account(filter.account),
                    peers: filter.peers.iter().map(|peer| self.account(*peer)).collect(),
                    origin: filter.origin,
                    rank: filter.rank,
                    valid_until: filter.valid_until,
                    comment: filter.comment.clone(),
                    external_ref: filter.external_ref.clone(),
                    action: filter.action,
                    state: filter.state.clone(),
                    matching: Spanned::new(0..0, filter.matching.clone()),
                })
                .collect(),
        }
    }

    fn service(&self, id: ServiceId) -> Option<ServiceForm> {
        let service = self.0.services.get(&id)?;
        let policy = service.policy.and_then(|policy| self.0.policies.get(&policy));
        Some(ServiceForm {
            name: name(&service.name),
            account: self.account(service.account),
            kind: service.kind,
            state: service.state,
            peer: self.accounts(service.peer),
            policy: policy.map(|policy| name(&policy.name)),
            networks: service.networks.clone(),
            external_ref: service.external_ref.clone(),
            locked_by: self.accounts(service.locked_by),
            consent: service.consent.clone(),
            ends: self
                .0
                .ends(id)
                .map(|(end, _)| end)
                .filter_map(|end| self.end(end))
                .collect(),
        })
    }

    fn end(&self, id: ConfigId) -> Option<EndForm> {
        let config = self.0.configs.get(&id)?;
        let macs = self.0.macs.values().filter(|mac| mac.config == id);
        let ips = self.0.ips.values().filter(|ip| ip.config == id);
        Some(EndForm {
            connection: self.connection(config.connection),
            account: self.account(config.account),
            capacity_mbps: config.capacity_mbps,
            role: config.role,
            shut_down: config.shut_down,
            asns: config.asns.clone(),
            external_ref: config.external_ref.clone(),
            locked_by: self.accounts(config.locked_by),
            vlan: Spanned::new(0..0, config.vlan),
            quarantine: config.quarantine.clone(),
            macs: macs
                .map(|mac| MacForm {
                    address: name(&mac.address.to_string()),
                    valid_from: mac.valid_from,
                    valid_until: mac.valid_until,
                })
                .collect(),
            ips: ips
                .map(|ip| IpForm {
                    address: Spanned::new(0..0, ip.address),
                    valid_until: ip.valid_until,
                })
                .collect(),
        })
    }
}

/// Returns the speeds of ports, runs of equal ones as a range.
fn port_ranges(switch: &Switch) -> BTreeMap<String, u32> {
    let mut ranges: Vec<(u32, u32, u32)> = Vec::new();
    for port in &switch.ports {
        let number = port.number.raw();
        match ranges.last_mut() {
            Some((_, last, speed)) if *last + 1 == number && *speed == port.speed_mbps => *last = number,
            _ => ranges.push((number, number, port.speed_mbps)),
        }
    }
    let text = |first: u32, last: u32| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    };
    ranges
        .into_iter()
        .map(|(first, last, speed)| (text(first, last), speed))
        .collect()
}
