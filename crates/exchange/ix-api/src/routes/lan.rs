//! Ends of peering LANs: joining, members, quarantine, validity of MAC addresses.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use millrace_ix_model::{ConfigId, MacId, Operation, OperationKind, ServiceId, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ends::order_object;
use super::orders::{END_POINTER_PREFIX, order_about};
use super::services::EndOrder;
use crate::access::{Access, Principal};
use crate::app::App;
use crate::problem::Problem;
use crate::render::ViewContext;
use crate::request::{Body, Conditions, OrderParams, PageParams, Query};
use crate::view::{self, List, Ordered};

/// A policy of peering LANs.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Policy {
    /// The identifier.
    id: String,
    /// The rules.
    rules: view::LanRules,
    /// The names of the LANs that have the policy.
    lans: Vec<String>,
}

/// List the policies of peering LANs
#[utoipa::path(get, path = "/api/v1/policies", tag = "services", params(PageParams),
    responses((status = 200, body = List<Policy>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn policies(
    principal: Principal,
    Query(page): Query<PageParams>,
) -> Result<Json<List<Policy>>, Problem> {
    principal.require(OperationKind::ReadPolicy)?;
    let exchange = &principal.snapshot.exchange;
    let all: Vec<_> = exchange
        .policies
        .iter()
        .map(|(id, policy)| (*id, policy))
        .collect();
    page.page(&all, |id, policy| {
        let lans = exchange.services.values();
        let lans = lans.filter(|service| service.policy == Some(id) && service.state.is_carried());
        Policy {
            id: id.to_string(),
            rules: view::LanRules::of(policy),
            lans: lans.map(|service| service.name.clone()).collect(),
        }
    })
    .map(Json)
}

/// The end that joins a service.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct JoinOrder {
    /// Your own end.
    end: EndOrder,
}

/// Join a peering LAN, or configure your own end of a service
#[utoipa::path(post, path = "/api/v1/services/{id}/ends", tag = "services", request_body = JoinOrder, params(OrderParams, ("id" = String, Path, description = "The service"),
        ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 201, body = Ordered), (status = 200, body = Ordered, description = "Dry run"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn join(
    State(app): State<App>,
    access: Access<ServiceId>,
    conditions: Conditions,
    Body(given): Body<JoinOrder>,
) -> Result<Response, Problem> {
    access.require(OperationKind::ConfigureEnd)?;
    let operation = given.end.configure(access.id(), "/end")?;
    let (connection, _) = given.end.parts("/end")?;
    let steps = vec![(operation, END_POINTER_PREFIX)];
    let answer = order_about(&app, &access, &conditions, None, steps, &given).await?;
    if !conditions.dry_run {
        // The new end of a peering LAN gets the lowest free address of each network.
        let snapshot = app.snapshot();
        let ends = snapshot.exchange.configs.iter();
        let newest = ends
            .filter(|(_, end)| end.service == access.id() && end.connection == connection)
            .map(|(id, _)| *id)
            .max();
        if let Some(end) = newest {
            crate::v2::ips::assign(&app, end).await;
        }
    }
    Ok(answer)
}

/// List the members of a peering LAN that other accounts may find
#[utoipa::path(get, path = "/api/v1/services/{id}/members", tag = "services", params(PageParams, ("id" = String, Path, description = "The service")),
    responses((status = 200, body = List<view::Presence>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn members(
    State(app): State<App>,
    access: Access<ServiceId>,
    Query(page): Query<PageParams>,
) -> Result<Json<List<view::Presence>>, Problem> {
    access.require(OperationKind::ReadPresence)?;
    let all = ViewContext::new(access.principal(), app.now()).presences(access.id());
    let numbered: Vec<_> = all.into_iter().enumerate().collect();
    page.page(&numbered, |_, presence| presence.clone()).map(Json)
}

/// The end of validity of a MAC address.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct MacEnd {
    /// The end of validity, RFC 3339; null for no end.
    #[schema(required)]
    valid_until: Option<String>,
}

/// Change the end of validity of a MAC address
#[utoipa::path(put, path = "/api/v1/macs/{id}", tag = "services", request_body = MacEnd, params(OrderParams, ("id" = String, Path, description = "The address"),
        ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn mac_end(
    State(app): State<App>,
    access: Access<MacId>,
    conditions: Conditions,
    Body(given): Body<MacEnd>,
) -> Result<Response, Problem> {
    access.require(OperationKind::AddMac)?;
    let until = given
        .valid_until
        .as_deref()
        .map(str::parse::<Timestamp>)
        .transpose();
    let valid_until = until.map_err(|error| Problem::invalid("/valid_until", error))?;
    let operation = Operation::SetMacEnd {
        mac: access.id(),
        valid_until,
    };
    order_about(&app, &access, &conditions, None, vec![(operation, "")], &given).await
}

/// The reason for the end of a quarantine.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct WaiveOrder {
    /// The reason as text; it is stored with the end and in the audit chain.
    reason: String,
}

/// End the quarantine of an end before its clean period is complete
#[utoipa::path(post, path = "/api/v1/configs/{id}/waive", tag = "services", request_body = WaiveOrder, params(OrderParams, ("id" = String, Path, description = "The end"),
        ("if-match" = String, Header, description = "The ETag that the client has read"), ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn waive(
    State(app): State<App>,
    access: Access<ConfigId>,
    conditions: Conditions,
    Body(given): Body<WaiveOrder>,
) -> Result<Response, Problem> {
    let operation = Operation::WaiveQuarantine {
        config: access.id(),
        reason: given.reason.trim().to_owned(),
    };
    order_object(&app, &access, &conditions, operation, &given).await
}
