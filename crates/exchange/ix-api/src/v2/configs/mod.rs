//! Network service configs: one connection's end of a service.
//!
//! [`order`] configures ends; this module lists, changes and removes ends; [`view`] converts ends to IX-API
//! objects, and [`vlan`] has the tags of ends.

mod order;
mod view;
mod vlan;

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::StatusCode;
use millrace_ix_model::{
    AccountId, Config, ConfigId, ConnectionId, Exchange, Key as _, Operation, OperationKind, ServiceKind,
    VlanRequest,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

pub(crate) use self::order::{__path_create, create};
use self::view::{NetworkServiceConfig, Role, find, offering_of, view};
use self::vlan::VlanConfig;
use super::addresses::{self, MacChange};
use super::contacts::check_assignments;
use super::orders::{check_reference, ix_api_properties, order, put_properties, renewed};
use super::places::type_of;
use super::problem::IxProblem;
use super::query::{FilterParams, Filters};
use super::services::{CancellationPolicy, path_id};
use super::view::{
    BilledUpdate, OwnedUpdate, State, Stateful, id as identifier, invalid, nullable, unchanged,
};
use crate::access::Principal;
use crate::app::App;
use crate::problem::{Problem, ProblemKind};
use crate::request::{Body, Conditions};

/// List network service configs
#[utoipa::path(get, path = "/api/v2/network-service-configs", tag = "network-service-configs", operation_id = "network_service_configs_list", params(FilterParams),
    responses((status = 200, body = Vec<NetworkServiceConfig>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn list(
    Shared(app): Shared<App>,
    principal: Principal,
    filters: Filters,
) -> Result<Json<Vec<Value>>, Problem> {
    let all = principal.snapshot.exchange.configs.keys();
    filters.list(all.filter_map(|id| view(&app, &principal, *id).ok()).collect())
}

/// Read a network service config
#[utoipa::path(get, path = "/api/v2/network-service-configs/{id}", tag = "network-service-configs", operation_id = "network_service_configs_read", params(("id" = String, Path, description = "The config")),
    responses((status = 200, body = NetworkServiceConfig), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn read(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<NetworkServiceConfig>, Problem> {
    view(&app, &principal, path_id(&id)?).map(Json)
}

/// Changes of a config; absent properties stay.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct NetworkServiceConfigUpdate {
    /// The type, which cannot change.
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(flatten)]
    owned: OwnedUpdate,
    #[serde(flatten)]
    billed: BilledUpdate,
    /// The product offering, which cannot change.
    #[serde(default)]
    product_offering: Option<String>,
    /// The role, which cannot change.
    #[serde(default)]
    role: Option<Role>,
    /// The connection.
    #[serde(default)]
    connection: Option<String>,
    /// The tags.
    #[serde(default)]
    vlan_config: Option<VlanConfig>,
    /// The contracted rate in Mbit/s; null for the speed of the connection.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<u32>, minimum = 1)]
    capacity: Option<Option<u32>>,
    /// The MAC addresses.
    #[serde(default)]
    macs: Option<Vec<String>>,
    /// The autonomous systems, which cannot change.
    #[serde(default)]
    asns: Option<BTreeSet<u32>>,
    /// True if the member wants to be on the member list.
    #[serde(default)]
    listed: Option<bool>,
}

/// Returns the ends of an account, with the references of their orders.
fn siblings(exchange: &Exchange, account: AccountId) -> impl Iterator<Item = (ConfigId, Option<&String>)> {
    let all = exchange.configs.iter();
    let own = all.filter(move |(_, found)| found.account == account);
    own.map(|(id, found)| (*id, found.external_ref.as_ref()))
}

/// Returns an end that the principal may change.
fn writable(principal: &Principal, id: ConfigId, kind: OperationKind) -> Result<&Config, Problem> {
    let config = find(principal, id)?;
    if principal.may(kind, id) {
        return Ok(config);
    }
    let detail = format!("your roles do not permit this for {id}");
    Err(Problem::new(ProblemKind::Forbidden, detail).with_code("forbidden"))
}

async fn change(
    app: &App,
    principal: &Principal,
    id: &str,
    conditions: &Conditions,
    given: NetworkServiceConfigUpdate,
) -> Result<Json<NetworkServiceConfig>, Problem> {
    let id: ConfigId = path_id(id)?;
    let config = writable(principal, id, OperationKind::MoveEnd)?;
    let kind = config
        .service
        .stored(&principal.snapshot.exchange)
        .map(|service| service.kind);
    if given
        .kind
        .as_deref()
        .is_some_and(|given| kind.map(type_of) != Some(given))
    {
        return Err(invalid("type", "the type of a config cannot change"));
    }
    if given.asns.as_ref().is_some_and(|asns| *asns != config.asns) {
        return Err(invalid(
            "asns",
            "the autonomous systems of a config cannot change: order a new one",
        ));
    }
    let mut operations = Vec::new();
    let connection: ConnectionId = match &given.connection {
        Some(text) => identifier("connection", text)?,
        None => config.connection,
    };
    let vlan = match &given.vlan_config {
        Some(vlan) => vlan.request()?,
        None => VlanRequest::from(config.vlan),
    };
    if connection != config.connection || vlan != VlanRequest::from(config.vlan) {
        operations.push(Operation::MoveEnd {
            config: id,
            connection,
            vlan,
        });
    }
    if let Some(capacity) = given
        .capacity
        .filter(|capacity| *capacity != config.capacity_mbps)
    {
        operations.push(Operation::SetRate {
            config: id,
            capacity_mbps: capacity,
        });
    }
    let mut added: Vec<MacChange> = Vec::new();
    if let Some(macs) = &given.macs {
        let present = addresses::macs_of(app, principal, id);
        let new: Vec<String> = macs
            .iter()
            .filter(|mac| !present.contains(mac))
            .cloned()
            .collect();
        for gone in present.iter().filter(|mac| !macs.contains(mac)) {
            operations.extend(addresses::removals(app, principal, gone, Some(id)));
        }
        added = addresses::resolve(app, principal, &new)?;
        operations.extend(added.iter().map(|mac| mac.add(id)));
    }
    let mut facts = ix_api_properties(app, id);
    let consuming = given.owned.consuming_account.as_ref();
    unchanged("consuming_account", consuming, &config.account.to_string())?;
    unchanged("role", given.role.as_ref(), &Role::from(config.role))?;
    let offering = offering_of(&facts, kind.unwrap_or(ServiceKind::P2pVc), config.service);
    unchanged("product_offering", given.product_offering.as_ref(), &offering)?;
    if let Some(reference) = &given.owned.external_ref {
        let others = siblings(&principal.snapshot.exchange, config.account);
        check_reference(app, reference.as_ref(), others.filter(|(other, _)| *other != id))?;
        facts.external_ref = Some(reference.clone().unwrap_or_default());
    }
    if let Some(managing) = &given.owned.managing_account {
        super::view::account(principal, "managing_account", managing)?;
        facts.managing_account = Some(managing.clone());
    }
    facts.listed = given.listed.or(facts.listed);
    let mut billed = facts.billed(config.account);
    given.billed.clone().apply(&mut billed);
    billed.check(principal)?;
    check_assignments(app, principal, &billed.role_assignments)?;
    order(app, principal, conditions, operations, &given).await?;
    facts.billed = Some(billed);
    put_properties(app, principal, id, &facts).await?;
    let principal = renewed(app, principal);
    addresses::link(app, &principal, id, &added).await?;
    view(app, &principal, id).map(Json)
}

/// Change a network service config
#[utoipa::path(patch, path = "/api/v2/network-service-configs/{id}", tag = "network-service-configs", operation_id = "network_service_configs_partial_update", request_body = NetworkServiceConfigUpdate, params(("id" = String, Path, description = "The config")),
    responses((status = 202, body = NetworkServiceConfig), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn update(
    Shared(app): Shared<App>,
    principal: Principal,
    conditions: Conditions,
    Path(id): Path<String>,
    Body(given): Body<NetworkServiceConfigUpdate>,
) -> Result<(StatusCode, Json<NetworkServiceConfig>), Problem> {
    let changed = change(&app, &principal, &id, &conditions, given).await?;
    Ok((StatusCode::ACCEPTED, changed))
}

/// Change a network service config; absent properties stay
#[utoipa::path(put, path = "/api/v2/network-service-configs/{id}", tag = "network-service-configs", operation_id = "network_service_configs_update", request_body = NetworkServiceConfigUpdate, params(("id" = String, Path, description = "The config")),
    responses((status = 202, body = NetworkServiceConfig), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn replace(
    Shared(app): Shared<App>,
    principal: Principal,
    conditions: Conditions,
    Path(id): Path<String>,
    Body(given): Body<NetworkServiceConfigUpdate>,
) -> Result<(StatusCode, Json<NetworkServiceConfig>), Problem> {
    let changed = change(&app, &principal, &id, &conditions, given).await?;
    Ok((StatusCode::ACCEPTED, changed))
}

/// Remove an end from its service
#[utoipa::path(delete, path = "/api/v2/network-service-configs/{id}", tag = "network-service-configs", operation_id = "network_service_configs_destroy", params(("id" = String, Path, description = "The config")),
    responses((status = 202, body = NetworkServiceConfig), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn delete(
    Shared(app): Shared<App>,
    principal: Principal,
    conditions: Conditions,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<NetworkServiceConfig>), Problem> {
    let id: ConfigId = path_id(&id)?;
    writable(&principal, id, OperationKind::DeleteEnd)?;
    let mut gone = view(&app, &principal, id)?;
    let target = id.into();
    order(
        &app,
        &principal,
        &conditions,
        vec![Operation::Delete { target }],
        &(),
    )
    .await?;
    gone.base_mut().stateful = Stateful::plain(State::DecommissionRequested);
    Ok((StatusCode::ACCEPTED, Json(gone)))
}

/// Read when a network service config can end
#[utoipa::path(get, path = "/api/v2/network-service-configs/{id}/cancellation-policy", tag = "network-service-configs", operation_id = "network_service_config_cancellation_policy_read", params(("id" = String, Path, description = "The config")),
    responses((status = 200, body = CancellationPolicy), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn cancellation_policy(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<CancellationPolicy>, Problem> {
    writable(&principal, path_id(&id)?, OperationKind::DeleteEnd)?;
    Ok(super::services::policy(&app))
}
