//! The operations that bring an exchange nearer to a document.

use std::collections::{BTreeMap, BTreeSet};

use millrace_ix_model::{
    Account, AccountId, Config, ConfigId, Connection, ConnectionId, Exchange, Operation, PersistentMap,
    PolicyId, PortId, Refusal, ServiceId, SiteId, SwitchId, SwitchPort, Trunk, TrunkId,
};
use millrace_types::Dpid;

use super::{
    AccountText, ConnectionText, Document, EndText, ServiceText, SwitchText, TrunkText, filters, fixed,
    is_wanted,
};

/// The identifiers of an exchange by name.
struct Names {
    sites: BTreeMap<String, SiteId>,
    switches: BTreeMap<String, SwitchId>,
    trunks: BTreeMap<String, TrunkId>,
    accounts: BTreeMap<String, AccountId>,
    policies: BTreeMap<String, PolicyId>,
    connections: BTreeMap<[String; 2], ConnectionId>,
    services: BTreeMap<[String; 2], ServiceId>,
    ends: BTreeMap<ServiceId, Vec<ConfigId>>,
}

/// Returns the identifiers of objects by name.
fn by_name<'a, K: Copy + 'a, V: 'a>(
    objects: &'a PersistentMap<K, V>,
    name: impl Fn(&V) -> &str,
) -> BTreeMap<String, K> {
    objects
        .iter()
        .map(|(id, object)| (name(object).to_owned(), *id))
        .collect()
}

impl Names {
    fn of(exchange: &Exchange) -> Names {
        let account = |id: AccountId| {
            exchange
                .accounts
                .get(&id)
                .map_or_else(|| id.to_string(), |account| account.name.clone())
        };
        let mut ends: BTreeMap<ServiceId, Vec<ConfigId>> = BTreeMap::new();
        for (id, config) in &exchange.configs {
            ends.entry(config.service).or_default().push(*id);
        }
        Names {
            sites: by_name(&exchange.sites, |site| &site.name),
            switches: by_name(&exchange.switches, |switch| &switch.name),
            trunks: by_name(&exchange.trunks, |trunk| &trunk.name),
            accounts: by_name(&exchange.accounts, |account| &account.name),
            policies: by_name(&exchange.policies, |policy| &policy.name),
            connections: exchange
                .connections
                .iter()
                .map(|(id, connection)| ([account(connection.account), connection.name.clone()], *id))
                .collect(),
            services: exchange
                .services
                .iter()
                .filter(|(_, service)| is_wanted(service))
                .map(|(id, service)| ([account(service.account), service.name.clone()], *id))
                .collect(),
            ends,
        }
    }

    /// Returns the port with this name, or `None` if its switch does not exist yet.
    fn port(&self, text: &str) -> Result<Option<PortId>, Refusal> {
        let parts = text
            .split_once(':')
            .and_then(|(switch, number)| Some((switch, number.parse::<u32>().ok()?)));
        let Some((switch, number)) = parts else {
            return Err(Refusal::invalid(
                "ports",
                format!("{text:?} is no port: expected SWITCH:NUMBER, such as ote-1:9"),
            ));
        };
        self.switches
            .get(switch)
            .map(|id| {
                format!("{id}:{number}")
                    .parse()
                    .map_err(|error| Refusal::invalid("ports", format!("{error}")))
            })
            .transpose()
    }

    fn ports<'a>(&self, texts: impl IntoIterator<Item = &'a String>) -> Result<Option<Vec<PortId>>, Refusal> {
        texts.into_iter().map(|text| self.port(text)).collect()
    }
}

/// Returns the operations that bring an exchange nearer to a document; none if the exchange matches the
/// document. Operations on objects that do not exist yet are left out.
///
/// # Errors
/// [`Refusal`] if the document names a thing that is neither in it nor in the exchange.
pub fn operations(document: &Document, exchange: &Exchange) -> Result<Vec<Operation>, Refusal> {
    if document.is_empty() && !super::document(exchange).is_empty() {
        return Err(Refusal::conflict(
            "the text has no site, switch, account or service, and would delete all of the exchange: it is taken for an \
             empty file; compare it with `millrace-ix export`"
                .to_owned(),
        ));
    }
    let names = Names::of(exchange);
    let mut operations = Vec::new();
    fabric(document, exchange, &names, &mut operations)?;
    people(document, exchange, &names, &mut operations)?;
    services(document, exchange, &names, &mut operations)?;
    // A text without this part leaves filters alone.
    if let Some(wanted) = &document.filter {
        let has_account = |name: &str| document.has_account(name);
        filters::operations(wanted, has_account, exchange, &mut operations)?;
    }
    // Removals come last: they begin when no other operation remains.
    if operations.is_empty() {
        removals(document, exchange, &names, &mut operations);
    }
    Ok(operations)
}

/// Returns the ports sorted by number, as in an exchange.
fn in_order(ports: &[SwitchPort]) -> Vec<SwitchPort> {
    let mut ports = ports.to_vec();
    ports.sort_by_key(|port| port.number.raw());
    ports
}

fn unknown(field: &str, name: &str) -> Refusal {
    Refusal::invalid(field, format!("nothing in the document has the name {name:?}"))
}

fn fabric(
    document: &Document,
    exchange: &Exchange,
    names: &Names,
    operations: &mut Vec<Operation>,
) -> Result<(), Refusal> {
    for site in &document.site {
        if !names.sites.contains_key(&site.name) {
            operations.push(Operation::CreateSite {
                name: site.name.clone(),
            });
        }
    }
    for text in &document.switch {
        if let Some(id) = names.switches.get(&text.name)
            && exchange
                .switches
                .get(id)
                .is_some_and(|switch| switch.retired != text.retired)
        {
            operations.push(Operation::RetireSwitch {
                switch: *id,
                retired: text.retired,
            });
        }
        match (names.switches.get(&text.name), names.sites.get(&text.site)) {
            (None, Some(site)) => operations.push(Operation::CreateSwitch {
                name: text.name.clone(),
                site: *site,
                dpid: dpid(text)?,
                ports: text.ports.clone(),
            }),
            (Some(id), Some(site)) => {
                let Some(found) = exchange.switches.get(id) else {
                    continue;
                };
                let dpid = dpid(text)?;
                if found.site != *site || found.dpid != dpid {
                    operations.push(Operation::UpdateSwitch {
                        switch: *id,
                        site: (found.site != *site).then_some(*site),
                        dpid: (found.dpid != dpid).then_some(dpid),
                    });
                }
                if found.ports != in_order(&text.ports) {
                    operations.push(Operation::SetPorts {
                        switch: *id,
                        ports: text.ports.clone(),
                    });
                }
            }
            (_, None) if document.site.iter().all(|site| site.name != text.site) => {
                return Err(unknown("site", &text.site));
            }
            _ => {}
        }
    }
    for text in &document.trunk {
        let Some(ends) = names.ports(&text.ends)? else {
            continue;
        };
        let ends: [PortId; 2] = ends.try_into().map_err(|_| unknown("ends", &text.name))?;
        let found = names.trunks.get(&text.name);
        match found.and_then(|id| Some((*id, exchange.trunks.get(id)?))) {
            Some((id, found)) => {
                fixed::trunk(found, text)?;
                if is_updated(found, text, ends) {
                    operations.push(Operation::UpdateTrunk {
                        trunk: id,
                        ends,
                        cost: text.cost,
                        capacity_mbps: text.capacity_mbps,
                        mtu: text.mtu,
                        risk_group: text.risk_group.clone(),
                        contract_percent: text.contract_percent,
                    });
                }
                if found.drained != text.drained {
                    operations.push(Operation::DrainTrunk {
                        trunk: id,
                        drained: text.drained,
                    });
                }
            }
            None => {
                operations.push(Operation::CreateTrunk {
                    name: text.name.clone(),
                    kind: text.kind,
                    ends,
                    cost: text.cost,
                    capacity_mbps: text.capacity_mbps,
                    mtu: text.mtu,
                    risk_group: text.risk_group.clone(),
                    contract_percent: text.contract_percent,
                });
            }
        }
    }
    Ok(())
}

fn dpid(text: &SwitchText) -> Result<Dpid, Refusal> {
    text.dpid
        .parse()
        .map_err(|error| Refusal::invalid("dpid", format!("switch {}: {}: {error}", text.name, text.dpid)))
}

fn is_updated(found: &Trunk, text: &TrunkText, ends: [PortId; 2]) -> bool {
    found.ends != ends
        || found.cost != text.cost
        || found.capacity_mbps != text.capacity_mbps
        || found.mtu != text.mtu
        || found.risk_group != text.risk_group
        || found.contract_percent != text.contract_percent
}

fn people(
    document: &Document,
    exchange: &Exchange,
    names: &Names,
    operations: &mut Vec<Operation>,
) -> Result<(), Refusal> {
    for text in &document.account {
        let parent = text.parent.as_ref().map(|name| names.accounts.get(name).copied());
        match names
            .accounts
            .get(&text.name)
            .and_then(|id| Some((*id, exchange.accounts.get(id)?)))
        {
            None => {
                let parent = match parent {
                    // The parent must be created first; this account follows in a later round.
                    Some(None) => continue,
                    parent => parent.flatten(),
                };
                operations.push(Operation::CreateAccount {
                    name: text.name.clone(),
                    kind: text.kind,
                    parent,
                    asns: text.asns.clone(),
                    discoverable: text.discoverable,
                    as_set: text.as_set.clone(),
                    external_ref: text.external_ref.clone(),
                });
            }
            Some((account, found)) => {
                fixed::account(exchange, found, text)?;
                if differs(found, text) {
                    operations.push(Operation::UpdateAccount {
                        account,
                        name: None,
                        asns: Some(text.asns.clone()),
                        discoverable: Some(text.discoverable),
                        as_set: text.as_set.clone(),
                        limits: Some(text.limits),
                    });
                }
            }
        }
    }
    for policy in &document.policy {
        match names.policies.get(&policy.name) {
            None => operations.push(Operation::CreatePolicy {
                policy: policy.clone(),
            }),
            Some(id) if exchange.policies.get(id) != Some(policy) => {
                operations.push(Operation::UpdatePolicy {
                    id: *id,
                    policy: policy.clone(),
                });
            }
            Some(_) => {}
        }
    }
    for text in &document.connection {
        let key = [text.account.clone(), text.name.clone()];
        let Some(ports) = names.ports(&text.ports)? else {
            continue;
        };
        match (names.connections.get(&key), names.accounts.get(&text.account)) {
            (None, Some(account)) => operations.push(Operation::CreateConnection {
                account: Some(*account),
                name: text.name.clone(),
                kind: text.kind,
                ports,
                external_ref: text.external_ref.clone(),
            }),
            (Some(id), _) => {
                let Some(found) = exchange.connections.get(id) else {
                    continue;
                };
                fixed::connection(found, text)?;
                if is_patched(found, text, &ports) {
                    operations.push(Operation::SetConnectionPorts {
                        connection: *id,
                        kind: text.kind,
                        ports,
                    });
                }
            }
            (None, None)
                if document
                    .account
                    .iter()
                    .all(|account| account.name != text.account) =>
            {
                return Err(unknown("account", &text.account));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns true if an order must change the account into what the text says.
fn differs(found: &Account, text: &AccountText) -> bool {
    found.asns != text.asns
        || found.discoverable != text.discoverable
        || found.as_set != text.as_set
        || found.limits != text.limits
}

fn is_patched(found: &Connection, text: &ConnectionText, ports: &[PortId]) -> bool {
    found.kind != text.kind || found.ports != ports
}

fn services(
    document: &Document,
    exchange: &Exchange,
    names: &Names,
    operations: &mut Vec<Operation>,
) -> Result<(), Refusal> {
    for text in &document.service {
        let key = [text.account.clone(), text.name.clone()];
        if let Some(id) = names.services.get(&key) {
            let Some(found) = exchange.services.get(id) else {
                continue;
            };
            fixed::service(exchange, found, text)?;
            if found.networks != text.networks {
                operations.push(Operation::SetNetworks {
                    service: *id,
                    networks: text.networks.clone(),
                });
            }
            ends(document, text, *id, exchange, names, operations)?;
            continue;
        }
        let peer = text.peer.as_ref().map(|name| names.accounts.get(name).copied());
        let policy = text.policy.as_ref().map(|name| names.policies.get(name).copied());
        let (Some(account), false, false) = (
            names.accounts.get(&text.account),
            peer == Some(None),
            policy == Some(None),
        ) else {
            if document
                .account
                .iter()
                .all(|account| account.name != text.account)
            {
                return Err(unknown("account", &text.account));
            }
            continue;
        };
        operations.push(Operation::CreateService {
            account: Some(*account),
            kind: text.kind,
            name: text.name.clone(),
            peer: peer.flatten(),
            policy: policy.flatten(),
            networks: text.networks.clone(),
            external_ref: text.external_ref.clone(),
        });
    }
    Ok(())
}

/// Adds the operations for the ends of a service. An end that is as the text says stays; others are moved before ends are
/// removed or added.
fn ends(
    document: &Document,
    text: &ServiceText,
    service: ServiceId,
    exchange: &Exchange,
    names: &Names,
    operations: &mut Vec<Operation>,
) -> Result<(), Refusal> {
    let mut wanted = Vec::new();
    for end in &text.end {
        match names.connections.get(&end.connection) {
            Some(connection) => wanted.push((end, *connection)),
            // The connection follows in a later round.
            None if is_in(document, &end.connection) => return Ok(()),
            None => return Err(unknown("connection", &end.connection.join("/"))),
        }
    }
    let ids = names.ends.get(&service).map_or(&[][..], Vec::as_slice);
    let mut found: Vec<(ConfigId, &Config)> = ids
        .iter()
        .filter_map(|id| Some((*id, exchange.configs.get(id)?)))
        .collect();
    let mut pairs = Vec::new();
    wanted.retain(|(end, connection)| {
        let same = found
            .iter()
            .position(|(_, config)| config.connection == *connection && config.vlan == end.vlan);
        match same {
            Some(index) => {
                pairs.push((found.remove(index), *end));
                false
            }
            None => true,
        }
    });
    let mut unmatched = found.into_iter();
    for (end, connection) in wanted {
        match unmatched.next() {
            Some((config, _)) => {
                operations.push(Operation::MoveEnd {
                    config,
                    connection,
                    vlan: end.vlan.into(),
                });
            }
            None => operations.push(Operation::ConfigureEnd {
                service,
                connection,
                vlan: end.vlan.into(),
                capacity_mbps: end.capacity_mbps,
                role: end.role,
                asns: end.asns.clone(),
                external_ref: end.external_ref.clone(),
            }),
        }
    }
    operations.extend(unmatched.map(|(id, _)| Operation::Delete { target: id.into() }));
    for ((id, config), end) in pairs {
        fixed::end(text, config, end)?;
        if config.capacity_mbps != end.capacity_mbps {
            operations.push(Operation::SetRate {
                config: id,
                capacity_mbps: end.capacity_mbps,
            });
        }
        if config.shut_down != end.shut_down {
            operations.push(Operation::ShutDown {
                config: id,
                shut_down: end.shut_down,
            });
        }
        addresses(id, end, exchange, operations)?;
    }
    Ok(())
}

/// Returns true if a document has a connection with this account and name.
fn is_in(document: &Document, [account, name]: &[String; 2]) -> bool {
    document
        .connection
        .iter()
        .any(|text| text.account == *account && text.name == *name)
}

/// Adds the operations for the permanent addresses of an end. Addresses with an end of validity are not
/// changed.
fn addresses(
    id: ConfigId,
    end: &EndText,
    exchange: &Exchange,
    operations: &mut Vec<Operation>,
) -> Result<(), Refusal> {
    let macs = exchange
        .macs
        .iter()
        .filter(|(_, mac)| mac.config == id && mac.valid_until.is_none());
    let macs: BTreeMap<String, _> = macs
        .map(|(mac, object)| (object.address.to_string(), *mac))
        .collect();
    for address in end.macs.iter().filter(|address| !macs.contains_key(*address)) {
        let address = address
            .parse()
            .map_err(|error| Refusal::invalid("macs", format!("{address}: {error}")))?;
        operations.push(Operation::AddMac {
            config: id,
            address,
            valid_from: None,
            valid_until: None,
        });
    }
    let gone = macs
        .into_iter()
        .filter(|(address, _)| !end.macs.contains(address));
    operations.extend(gone.map(|(_, mac)| Operation::RemoveMac { mac }));
    let ips = exchange
        .ips
        .iter()
        .filter(|(_, ip)| ip.config == id && ip.valid_until.is_none());
    let ips: BTreeMap<String, _> = ips
        .map(|(ip, object)| (object.address.to_string(), *ip))
        .collect();
    for address in end.ips.iter().filter(|address| !ips.contains_key(*address)) {
        let address = address
            .parse()
            .map_err(|error| Refusal::invalid("ips", format!("{address}: {error}")))?;
        operations.push(Operation::AddIp {
            config: id,
            address,
            valid_until: None,
        });
    }
    let gone = ips.into_iter().filter(|(address, _)| !end.ips.contains(address));
    operations.extend(gone.map(|(_, ip)| Operation::RemoveIp { ip }));
    Ok(())
}

/// Adds deletions of services that the document does not have. If there are none, it adds deletions of unused
/// connections that the document does not have. A connection whose services are being removed is therefore
/// deleted by a later application of the same document.
fn removals(document: &Document, exchange: &Exchange, names: &Names, operations: &mut Vec<Operation>) {
    let services: BTreeSet<[String; 2]> = document
        .service
        .iter()
        .map(|text| [text.account.clone(), text.name.clone()])
        .collect();
    let gone = names.services.iter().filter(|(key, _)| !services.contains(*key));
    operations.extend(gone.map(|(_, id)| Operation::Delete { target: (*id).into() }));
    if !operations.is_empty() {
        return;
    }
    let connections: BTreeSet<[String; 2]> = document
        .connection
        .iter()
        .map(|text| [text.account.clone(), text.name.clone()])
        .collect();
    let is_used = |id: ConnectionId| exchange.configs.values().any(|config| config.connection == id);
    let gone = names
        .connections
        .iter()
        .filter(|(key, id)| !connections.contains(*key) && !is_used(**id));
    operations.extend(gone.map(|(_, id)| Operation::Delete { target: (*id).into() }));
}
