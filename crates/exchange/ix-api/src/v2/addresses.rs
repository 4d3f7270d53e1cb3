//! MAC addresses and IP addresses.
//!
//! IX-API makes a MAC address first and names it in configs later; the model registers an address at an end. A record holds
//! the address in between, and then the registrations that were made from it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::StatusCode;
use millrace_ix_model::{
    AccountId, ConfigId, IpId, MacId, Operation, OperationKind, Prefix, ServiceKind, Timestamp,
};
use millrace_types::Mac;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::orders::{check_room, created, extra, order, order_as_system, renewed, require};
use super::problem::IxProblem;
use super::query::{FilterParams, Filters};
use super::records::Record;
use super::services::path_id;
use super::view::{Owned, id as identifier, invalid, nullable};
use crate::access::Principal;
use crate::app::App;
use crate::idempotency::Once;
use crate::problem::Problem;
use crate::request::{Body, Conditions};

/// The largest number of free addresses that are looked through for an assignment.
const LOOKED_AT_MAX: u32 = 70_000;

/// A new MAC address.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct MacRequest {
    #[serde(flatten)]
    owned: Owned,
    /// The address: six octets in hexadecimal notation with colons.
    address: String,
    /// The first moment of validity.
    #[serde(default)]
    #[schema(format = DateTime)]
    valid_not_before: Option<String>,
    /// The end of validity; null for no end.
    #[serde(default)]
    #[schema(format = DateTime)]
    valid_not_after: Option<String>,
}

/// A MAC address that was made over IX-API, with its registrations.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct MacRecord {
    #[serde(flatten)]
    mac: MacRequest,
    /// The registrations by end.
    #[serde(default)]
    links: BTreeMap<ConfigId, MacId>,
}

impl Record for MacRecord {
    const PREFIX: &'static str = "mac";
}

/// A MAC address.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MacAddress {
    /// The identifier.
    id: String,
    #[serde(flatten)]
    mac: MacRequest,
}

fn time(property: &str, text: Option<&str>) -> Result<Option<Timestamp>, Problem> {
    text.map(str::parse::<Timestamp>)
        .transpose()
        .map_err(|error| invalid(property, error.to_string()))
}

impl MacRequest {
    /// Returns the address and its times.
    fn check(&self) -> Result<(Mac, Option<Timestamp>, Option<Timestamp>), Problem> {
        let address: Mac = self
            .address
            .parse()
            .map_err(|error: millrace_types::MacParseError| invalid("address", error.to_string()))?;
        if address.is_multicast() || address == Mac::ZERO {
            return Err(invalid("address", format!("{address} is no address of a host")));
        }
        let from = time("valid_not_before", self.valid_not_before.as_deref())?;
        let until = time("valid_not_after", self.valid_not_after.as_deref())?;
        if let (Some(from), Some(until)) = (from, until)
            && until <= from
        {
            return Err(invalid("valid_not_after", "expected an end after the begin"));
        }
        Ok((address, from, until))
    }

    fn account(&self) -> Option<AccountId> {
        self.owned.consuming_account.parse().ok()
    }
}

/// A MAC address that is to be registered at an end.
#[derive(Debug, Clone)]
pub(crate) struct MacChange {
    record: String,
    address: Mac,
    from: Option<Timestamp>,
    until: Option<Timestamp>,
}

impl MacChange {
    /// Returns the operation that registers the address.
    pub(crate) fn add(&self, config: ConfigId) -> Operation {
        Operation::AddMac {
            config,
            address: self.address,
            valid_from: self.from,
            valid_until: self.until,
        }
    }
}

/// Returns the MAC addresses that a config names.
pub(crate) fn resolve(app: &App, principal: &Principal, ids: &[String]) -> Result<Vec<MacChange>, Problem> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let all: BTreeMap<String, MacRecord> = all_macs(app, principal).into_iter().collect();
    let find = |id: &String| {
        let found = all
            .get(id)
            .ok_or_else(|| invalid("macs", absent(id).detail.to_string()))?;
        let (address, from, until) = found.mac.check()?;
        Ok(MacChange {
            record: id.clone(),
            address,
            from,
            until,
        })
    };
    ids.iter().map(find).collect()
}

/// Notes the registrations that an order has made from records.
pub(crate) fn link(
    app: &App,
    principal: &Principal,
    config: ConfigId,
    macs: &[MacChange],
) -> Result<(), Problem> {
    let registered = &principal.snapshot.exchange.macs;
    for mac in macs {
        let made = registered
            .iter()
            .find(|(_, found)| found.config == config && found.address == mac.address);
        if let (Some((id, _)), Some(mut record)) = (made, app.records.find::<MacRecord>(&mac.record)) {
            record.links.insert(config, *id);
            app.records.put(&mac.record, &record)?;
        }
    }
    Ok(())
}

/// Returns all MAC addresses: records, and registrations that were made in another way.
fn all_macs(app: &App, principal: &Principal) -> Vec<(String, MacRecord)> {
    let exchange = &principal.snapshot.exchange;
    let may_read = |account: AccountId| principal.may(OperationKind::ReadConnection, account);
    let mut all: Vec<(String, MacRecord)> = app
        .records
        .all::<MacRecord>()
        .into_iter()
        .filter(|(_, record)| record.mac.account().is_some_and(may_read))
        .collect();
    let linked: std::collections::BTreeSet<MacId> = all
        .iter()
        .flat_map(|(_, record)| record.links.values().copied())
        .collect();
    for (id, mac) in exchange.macs.iter().filter(|(id, _)| !linked.contains(id)) {
        let Some(config) = exchange.configs.get(&mac.config) else {
            continue;
        };
        if !principal.may_read(*id) || !principal.may_read(config.connection) {
            continue;
        }
        let record = MacRecord {
            mac: MacRequest {
                owned: extra(app, mac.config).owned(config.account, None),
                address: mac.address.to_string(),
                valid_not_before: Some(mac.valid_from.to_string()),
                valid_not_after: mac.valid_until.map(|until| until.to_string()),
            },
            links: BTreeMap::from([(mac.config, *id)]),
        };
        all.push((id.to_string(), record));
    }
    all
}

fn find_mac(app: &App, principal: &Principal, id: &str) -> Result<MacRecord, Problem> {
    let found = all_macs(app, principal)
        .into_iter()
        .find(|(other, _)| other == id);
    found.map(|(_, record)| record).ok_or_else(|| absent(id))
}

fn absent(id: &str) -> Problem {
    Problem::absent(id.chars().take(40).collect::<String>())
}

/// Returns the identifiers of the MAC addresses of an end.
pub(crate) fn macs_of(app: &App, principal: &Principal, config: ConfigId) -> Vec<String> {
    let registered = &principal.snapshot.exchange.macs;
    let all = all_macs(app, principal).into_iter();
    let at_end = all.filter(|(_, record)| {
        record
            .links
            .get(&config)
            .is_some_and(|id| registered.contains_key(id))
    });
    at_end.map(|(id, _)| id).collect()
}

/// Returns the operations that remove the registrations of an address, at one end or at all.
pub(crate) fn removals(
    app: &App,
    principal: &Principal,
    id: &str,
    config: Option<ConfigId>,
) -> Vec<Operation> {
    let registered = &principal.snapshot.exchange.macs;
    let Ok(found) = find_mac(app, principal, id) else {
        return Vec::new();
    };
    let links = found.links.into_iter();
    let at_end =
        links.filter(|(at, mac)| registered.contains_key(mac) && config.is_none_or(|config| config == *at));
    at_end.map(|(_, mac)| Operation::RemoveMac { mac }).collect()
}

/// List MAC addresses
#[utoipa::path(get, path = "/api/v2/macs", tag = "macs", operation_id = "macs_list", params(FilterParams),
    responses((status = 200, body = Vec<MacAddress>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn macs(
    Shared(app): Shared<App>,
    principal: Principal,
    filters: Filters,
) -> Result<Json<Vec<Value>>, Problem> {
    let all = all_macs(&app, &principal).into_iter();
    filters.list(
        all.map(|(id, record)| MacAddress { id, mac: record.mac })
            .collect(),
    )
}

/// Read a MAC address
#[utoipa::path(get, path = "/api/v2/macs/{id}", tag = "macs", operation_id = "macs_read", params(("id" = String, Path, description = "The address")),
    responses((status = 200, body = MacAddress), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn mac(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<MacAddress>, Problem> {
    let record = find_mac(&app, &principal, &id)?;
    Ok(Json(MacAddress { id, mac: record.mac }))
}

/// Add a MAC address, to be named in a config
#[utoipa::path(post, path = "/api/v2/macs", tag = "macs", operation_id = "macs_create", request_body = MacRequest,
    responses((status = 201, body = MacAddress), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn create_mac(
    Shared(app): Shared<App>,
    principal: Principal,
    once: Once,
    Body(mut mac): Body<MacRequest>,
) -> Result<(StatusCode, Json<MacAddress>), Problem> {
    let account = mac.owned.check(&principal)?;
    let (address, ..) = mac.check()?;
    mac.address = address.to_string();
    require(&principal, OperationKind::AddMac, account)?;
    check_room(&app, |other: &MacRecord| other.mac.account() == Some(account))?;
    let detail = json!({ "address": mac.address });
    app.record(&principal.audit_name(), "create_mac", account, detail)
        .await?;
    let links = BTreeMap::new();
    let id = app.records.create(
        &MacRecord {
            mac: mac.clone(),
            links,
        },
        &once,
    )?;
    Ok((StatusCode::CREATED, Json(MacAddress { id, mac })))
}

/// Changes of a MAC address; the address itself cannot change.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct MacUpdate {
    /// The reference of the orderer.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    external_ref: Option<Option<String>>,
    /// The end of validity; null for no end.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>, format = DateTime)]
    valid_not_after: Option<Option<String>>,
}

async fn change_mac(
    app: &App,
    principal: &Principal,
    conditions: &Conditions,
    id: String,
    given: MacUpdate,
) -> Result<Json<MacAddress>, Problem> {
    let mut record = find_mac(app, principal, &id)?;
    let account = record.mac.account().ok_or_else(|| Problem::absent(&id))?;
    require(principal, OperationKind::AddMac, account)?;
    if let Some(reference) = &given.external_ref {
        record.mac.owned.external_ref.clone_from(reference);
        record.mac.owned.check(principal)?;
    }
    if let Some(until) = &given.valid_not_after {
        record.mac.valid_not_after.clone_from(until);
        let (_, _, until) = record.mac.check()?;
        let registered = &principal.snapshot.exchange.macs;
        let links = record.links.values().filter(|mac| registered.contains_key(mac));
        let operations = links.map(|mac| Operation::SetMacEnd {
            mac: *mac,
            valid_until: until,
        });
        order(app, principal, conditions, operations.collect(), &given).await?;
    }
    if app.records.find::<MacRecord>(&id).is_some() {
        app.record(&principal.audit_name(), "update_mac", &id, json!({}))
            .await?;
        app.records.put(&id, &record)?;
    }
    Ok(Json(MacAddress { id, mac: record.mac }))
}

/// Change the end of validity of a MAC address
#[utoipa::path(patch, path = "/api/v2/macs/{id}", tag = "macs", operation_id = "macs_partial_update", request_body = MacUpdate, params(("id" = String, Path, description = "The address")),
    responses((status = 200, body = MacAddress), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn update_mac(
    Shared(app): Shared<App>,
    principal: Principal,
    conditions: Conditions,
    Path(id): Path<String>,
    Body(given): Body<MacUpdate>,
) -> Result<Json<MacAddress>, Problem> {
    change_mac(&app, &principal, &conditions, id, given).await
}

/// Change the end of validity of a MAC address; absent properties stay
#[utoipa::path(put, path = "/api/v2/macs/{id}", tag = "macs", operation_id = "macs_update", request_body = MacUpdate, params(("id" = String, Path, description = "The address")),
    responses((status = 200, body = MacAddress), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn replace_mac(
    Shared(app): Shared<App>,
    principal: Principal,
    conditions: Conditions,
    Path(id): Path<String>,
    Body(given): Body<MacUpdate>,
) -> Result<Json<MacAddress>, Problem> {
    change_mac(&app, &principal, &conditions, id, given).await
}

/// Remove a MAC address from all ends
#[utoipa::path(delete, path = "/api/v2/macs/{id}", tag = "macs", operation_id = "macs_destroy", params(("id" = String, Path, description = "The address")),
    responses((status = 200, body = MacAddress), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn delete_mac(
    Shared(app): Shared<App>,
    principal: Principal,
    conditions: Conditions,
    Path(id): Path<String>,
) -> Result<Json<MacAddress>, Problem> {
    let record = find_mac(&app, &principal, &id)?;
    let account = record.mac.account().ok_or_else(|| Problem::absent(&id))?;
    require(&principal, OperationKind::RemoveMac, account)?;
    let operations = removals(&app, &principal, &id, None);
    order(&app, &principal, &conditions, operations, &()).await?;
    if app.records.find::<MacRecord>(&id).is_some() {
        app.record(&principal.audit_name(), "delete_mac", &id, json!({}))
            .await?;
        app.records.delete(&id)?;
    }
    Ok(Json(MacAddress { id, mac: record.mac }))
}

/// An IP address of an end of a peering LAN.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct IpAddress {
    /// The identifier.
    id: String,
    #[serde(flatten)]
    owned: Owned,
    /// The version of the protocol: 4 or 6.
    version: u8,
    /// The address.
    address: String,
    /// The length of the prefix of the LAN.
    #[schema(minimum = 0, maximum = 128)]
    prefix_length: u8,
    /// The name in the DNS.
    fqdn: Option<String>,
    /// The first moment of validity.
    valid_not_before: Option<String>,
    /// The end of validity.
    #[schema(format = DateTime)]
    valid_not_after: Option<String>,
}

fn ip_view(app: &App, principal: &Principal, id: IpId) -> Result<IpAddress, Problem> {
    let exchange = &principal.snapshot.exchange;
    let absent = || Problem::absent(id);
    let ip = exchange.ips.get(&id).ok_or_else(absent)?;
    let config = exchange.configs.get(&ip.config).ok_or_else(absent)?;
    if !principal.may_read(id) || !principal.may_read(config.connection) {
        return Err(absent());
    }
    let service = exchange.services.get(&config.service).ok_or_else(absent)?;
    let network = service
        .networks
        .iter()
        .find(|network| network.contains(ip.address));
    let host = if ip.address.is_ipv4() { 32 } else { 128 };
    Ok(IpAddress {
        id: id.to_string(),
        owned: extra(app, ip.config).owned(config.account, None),
        version: if ip.address.is_ipv4() { 4 } else { 6 },
        address: ip.address.to_string(),
        prefix_length: network.map_or(host, |network| network.len()),
        fqdn: None,
        valid_not_before: None,
        valid_not_after: ip.valid_until.map(|until| until.to_string()),
    })
}

/// List IP addresses
#[utoipa::path(get, path = "/api/v2/ips", tag = "ips", operation_id = "ips_list", params(FilterParams),
    responses((status = 200, body = Vec<IpAddress>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn ips(
    Shared(app): Shared<App>,
    principal: Principal,
    filters: Filters,
) -> Result<Json<Vec<Value>>, Problem> {
    let all = principal.snapshot.exchange.ips.keys();
    filters.list(all.filter_map(|id| ip_view(&app, &principal, *id).ok()).collect())
}

/// Read an IP address
#[utoipa::path(get, path = "/api/v2/ips/{id}", tag = "ips", operation_id = "ips_read", params(("id" = String, Path, description = "The address")),
    responses((status = 200, body = IpAddress), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn ip(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<IpAddress>, Problem> {
    ip_view(&app, &principal, path_id(&id)?).map(Json)
}

/// A new IP address. The exchange's staff assigns addresses; an end of a peering LAN gets a free one by itself.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct IpRequest {
    /// The address.
    address: String,
    /// The end of a peering LAN that gets the address.
    network_service_config: String,
    /// The end of validity.
    #[serde(default)]
    #[schema(format = DateTime)]
    valid_not_after: Option<String>,
}

/// Assign an IP address to an end of a peering LAN
#[utoipa::path(post, path = "/api/v2/ips", tag = "ips", operation_id = "ips_create", request_body = IpRequest,
    responses((status = 201, body = IpAddress), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn create_ip(
    Shared(app): Shared<App>,
    principal: Principal,
    conditions: Conditions,
    Body(given): Body<IpRequest>,
) -> Result<(StatusCode, Json<IpAddress>), Problem> {
    let address: IpAddr = given
        .address
        .parse()
        .map_err(|_| invalid("address", "expected an IPv4 or an IPv6 address"))?;
    let config: ConfigId = identifier("network_service_config", &given.network_service_config)?;
    let operation = Operation::AddIp {
        config,
        address,
        valid_until: time("valid_not_after", given.valid_not_after.as_deref())?,
    };
    let applied = order(&app, &principal, &conditions, vec![operation], &given).await?;
    let id: IpId = created(&applied)?;
    Ok((
        StatusCode::CREATED,
        Json(ip_view(&app, &renewed(&app, &principal), id)?),
    ))
}

/// Take an IP address back
#[utoipa::path(delete, path = "/api/v2/ips/{id}", tag = "ips", operation_id = "ips_destroy", params(("id" = String, Path, description = "The address")),
    responses((status = 200, body = IpAddress), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn delete_ip(
    Shared(app): Shared<App>,
    principal: Principal,
    conditions: Conditions,
    Path(id): Path<String>,
) -> Result<Json<IpAddress>, Problem> {
    let id: IpId = path_id(&id)?;
    let gone = ip_view(&app, &principal, id)?;
    order(
        &app,
        &principal,
        &conditions,
        vec![Operation::RemoveIp { ip: id }],
        &(),
    )
    .await?;
    Ok(Json(gone))
}

/// Returns the lowest address of a network that nobody has, without those of network and broadcast.
fn lowest_free(network: Prefix, taken: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
    let bits = if network.is_ipv6() { 128 } else { 32 };
    let hosts = 1_u128
        .checked_shl(u32::from(bits - network.len()))
        .unwrap_or(u128::MAX);
    let at = |offset: u128| match network.address() {
        IpAddr::V4(base) => {
            let offset = u32::try_from(offset).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(base).wrapping_add(offset)))
        }
        IpAddr::V6(base) => IpAddr::V6(Ipv6Addr::from(u128::from(base).wrapping_add(offset))),
    };
    let last = hosts.saturating_sub(1).min(u128::from(LOOKED_AT_MAX));
    (1..last).map(at).find(|address| !taken(*address))
}

/// Assigns an end of a peering LAN one free address of each network of the LAN. An address that cannot be assigned is
/// left to the exchange's staff.
pub(crate) async fn assign(app: &App, config: ConfigId) {
    let snapshot = app.snapshot();
    let exchange = &snapshot.exchange;
    let Some(service) = exchange
        .configs
        .get(&config)
        .and_then(|found| exchange.services.get(&found.service))
        .filter(|service| service.kind == ServiceKind::ExchangeLan)
    else {
        return;
    };
    let reserved = app
        .settings
        .route_servers
        .iter()
        .flat_map(super::features::RouteServer::addresses);
    let reserved: Vec<IpAddr> = reserved.collect();
    let taken = |address: IpAddr| {
        reserved.contains(&address) || exchange.ips.values().any(|ip| ip.address == address)
    };
    let addresses = service
        .networks
        .iter()
        .filter_map(|network| lowest_free(*network, taken));
    let operations: Vec<Operation> = addresses
        .map(|address| Operation::AddIp {
            config,
            address,
            valid_until: None,
        })
        .collect();
    if operations.is_empty() {
        return;
    }
    if let Err(problem) = order_as_system(app, operations).await {
        tracing::warn!(%config, reason = %problem.detail, "no addresses were assigned");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_address_is_neither_that_of_the_network_nor_the_broadcast() {
        let v4: Prefix = "192.0.2.0/30".parse().unwrap();
        assert_eq!(lowest_free(v4, |_| false), Some("192.0.2.1".parse().unwrap()));
        let first: IpAddr = "192.0.2.1".parse().unwrap();
        assert_eq!(
            lowest_free(v4, |address| address == first),
            Some("192.0.2.2".parse().unwrap())
        );
        assert_eq!(lowest_free(v4, |_| true), None);
        let v6: Prefix = "2001:db8::/64".parse().unwrap();
        assert_eq!(lowest_free(v6, |_| false), Some("2001:db8::1".parse().unwrap()));
    }
}
