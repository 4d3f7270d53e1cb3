//! IP addresses of the ends of peering LANs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::StatusCode;
use millrace_ix_model::{ConfigId, IpId, Operation, Prefix, ServiceKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::addresses::time;
use super::orders::{created, ix_api_properties, order, order_as_system, renewed};
use super::problem::IxProblem;
use super::query::{FilterParams, Filters};
use super::services::path_id;
use super::view::{Owned, id as identifier, invalid};
use crate::access::Principal;
use crate::app::App;
use crate::problem::Problem;
use crate::request::{Body, Conditions};

/// The maximum number of addresses of a network that are examined to find a free one.
const LOOKED_AT_MAX: u32 = 70_000;
/// The maximum number of attempts to assign addresses while other ends take the same addresses.
const ATTEMPTS: usize = 8;

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
    /// The start of validity.
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
        owned: ix_api_properties(app, ip.config).owned(config.account, None),
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

/// A new IP address. The exchange's staff assigns addresses; an end of a peering LAN gets a free address
/// automatically.
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

/// Remove an IP address from its end
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

/// Returns the lowest free address of a network; the network address and the broadcast address are not used.
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

/// Assigns one free address of each network of a peering LAN to an end that has none in that network. If the
/// assignment fails, the exchange's staff must assign the addresses.
pub(crate) async fn assign(app: &App, config: ConfigId) {
    for _ in 0..ATTEMPTS {
        let operations = missing(app, config);
        if operations.is_empty() {
            return;
        }
        match order_as_system(app, operations).await {
            Ok(_) => return,
            // Another end got one of the addresses first: try again.
            Err(problem) if problem.status == StatusCode::CONFLICT.as_u16() => {}
            Err(problem) => {
                tracing::warn!(%config, reason = %problem.detail, "no addresses were assigned");
                return;
            }
        }
    }
    tracing::warn!(%config, "no addresses were assigned: others got them in each attempt");
}

/// Returns the operations that assign the missing addresses to an end of a peering LAN.
fn missing(app: &App, config: ConfigId) -> Vec<Operation> {
    let snapshot = app.snapshot();
    let exchange = &snapshot.exchange;
    let Some(service) = exchange
        .configs
        .get(&config)
        .and_then(|found| exchange.services.get(&found.service))
        .filter(|service| service.kind == ServiceKind::ExchangeLan)
    else {
        return Vec::new();
    };
    let reserved = app
        .settings
        .route_servers
        .iter()
        .flat_map(crate::route_servers::RouteServer::addresses);
    let reserved: Vec<IpAddr> = reserved.collect();
    let taken = |address: IpAddr| {
        reserved.contains(&address) || exchange.ips.values().any(|ip| ip.address == address)
    };
    let has_one = |network: &Prefix| {
        let mut own = exchange.ips.values().filter(|ip| ip.config == config);
        own.any(|ip| network.contains(ip.address))
    };
    let networks = service.networks.iter().filter(|network| !has_one(network));
    let addresses = networks.filter_map(|network| lowest_free(*network, taken));
    let order = |address| Operation::AddIp {
        config,
        address,
        valid_until: None,
    };
    addresses.map(order).collect()
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
