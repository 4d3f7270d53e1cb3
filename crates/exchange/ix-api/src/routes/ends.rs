//! Ends of services: rate, connection and tags, shut-down, MAC addresses; and drains of trunks.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use millrace_ix_model::{ConfigId, Key, MacId, Operation, OperationKind, Timestamp, TrunkId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::objects::{Tagged, tagged};
use super::orders::{expected_revision, order_about};
use super::services::vlan_request;
use crate::access::{Access, Principal};
use crate::app::App;
use crate::problem::Problem;
use crate::render::ViewContext;
use crate::request::{Body, Conditions, OrderParams, PageParams, Query};
use crate::view::{self, List, Ordered};

/// Passes an order about one object to the engine.
pub(super) async fn order_object<K: Key>(
    app: &App,
    access: &Access<K>,
    conditions: &Conditions,
    operation: Operation,
    body: &impl Serialize,
) -> Result<Response, Problem> {
    access.require(operation.kind())?;
    let expected = expected_revision(access, conditions)?;
    order_about(app, access, conditions, expected, vec![(operation, "")], body).await
}

/// List ends of services
#[utoipa::path(get, path = "/api/v1/configs", tag = "services", params(PageParams),
    responses((status = 200, body = List<view::End>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(app): State<App>,
    principal: Principal,
    Query(page): Query<PageParams>,
) -> Result<Json<List<view::End>>, Problem> {
    let scope = ViewContext::new(&principal, app.now());
    let index = principal.snapshot.index();
    let exchange = &principal.snapshot.exchange;
    let services = super::services::readable(&principal);
    let ends = services
        .iter()
        .filter_map(|(id, _)| index.by_service.get(id))
        .flatten();
    let mut readable: Vec<_> = ends
        .filter(|end| principal.may_read(**end))
        .filter_map(|end| Some((*end, exchange.configs.get(end)?)))
        .collect();
    readable.sort_by_key(|(id, _)| *id);
    page.page(&readable, |id, config| scope.end(id, config)).map(Json)
}

/// Read an end of a service
#[utoipa::path(get, path = "/api/v1/configs/{id}", tag = "services", params(("id" = String, Path, description = "The end")),
    responses((status = 200, body = view::End), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn read(
    State(app): State<App>,
    access: Access<ConfigId>,
) -> Result<Tagged<view::End>, Problem> {
    let view = ViewContext::new(access.principal(), app.now()).end(access.id(), access.object()?);
    Ok(tagged(view.revision, view))
}

/// Remove an end from its service
#[utoipa::path(delete, path = "/api/v1/configs/{id}", tag = "services", params(OrderParams, ("id" = String, Path, description = "The end"),
        ("if-match" = String, Header, description = "The ETag that the client has read"), ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn delete(
    State(app): State<App>,
    access: Access<ConfigId>,
    conditions: Conditions,
) -> Result<Response, Problem> {
    let target = access.id().into();
    order_object(&app, &access, &conditions, Operation::Delete { target }, &()).await
}

/// A contracted rate.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct RateOrder {
    /// The rate in Mbit/s; null for the speed of the connection.
    #[schema(required)]
    capacity_mbps: Option<u32>,
}

/// Change the contracted rate of an end
#[utoipa::path(put, path = "/api/v1/configs/{id}/rate", tag = "services", request_body = RateOrder, params(OrderParams, ("id" = String, Path, description = "The end"),
        ("if-match" = String, Header, description = "The ETag that the client has read"), ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn rate(
    State(app): State<App>,
    access: Access<ConfigId>,
    conditions: Conditions,
    Body(given): Body<RateOrder>,
) -> Result<Response, Problem> {
    let operation = Operation::SetRate {
        config: access.id(),
        capacity_mbps: given.capacity_mbps,
    };
    order_object(&app, &access, &conditions, operation, &given).await
}

/// The connection and the tags of an end.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct PlaceOrder {
    /// The connection.
    connection: String,
    /// The tags; the exchange chooses a VID that is null.
    vlan: view::Vlan,
}

/// Move an end to another connection or to other tags; the end works there before its old place is removed
#[utoipa::path(put, path = "/api/v1/configs/{id}/place", tag = "services", request_body = PlaceOrder, params(OrderParams, ("id" = String, Path, description = "The end"),
        ("if-match" = String, Header, description = "The ETag that the client has read"), ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn place(
    State(app): State<App>,
    access: Access<ConfigId>,
    conditions: Conditions,
    Body(given): Body<PlaceOrder>,
) -> Result<Response, Problem> {
    let connection = given
        .connection
        .parse()
        .map_err(|error: millrace_ix_model::IdParseError| Problem::invalid("/connection", error))?;
    let operation = Operation::MoveEnd {
        config: access.id(),
        connection,
        vlan: vlan_request(&given.vlan, "")?,
    };
    order_object(&app, &access, &conditions, operation, &given).await
}

/// The shut-down of an end.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct ShutDownOrder {
    /// True to stop frames at this end.
    shut_down: bool,
}

/// Shut an end down, for example for a failover test, or enable it again
#[utoipa::path(put, path = "/api/v1/configs/{id}/shut-down", tag = "services", request_body = ShutDownOrder, params(OrderParams, ("id" = String, Path, description = "The end"),
        ("if-match" = String, Header, description = "The ETag that the client has read"), ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn shut_down(
    State(app): State<App>,
    access: Access<ConfigId>,
    conditions: Conditions,
    Body(given): Body<ShutDownOrder>,
) -> Result<Response, Problem> {
    let operation = Operation::ShutDown {
        config: access.id(),
        shut_down: given.shut_down,
    };
    order_object(&app, &access, &conditions, operation, &given).await
}

/// A MAC address to register.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct NewMac {
    /// The address.
    address: String,
    /// The end of validity, RFC 3339; null for no end.
    #[serde(default)]
    valid_until: Option<String>,
}

/// Register a MAC address at an end
#[utoipa::path(post, path = "/api/v1/configs/{id}/macs", tag = "services", request_body = NewMac, params(OrderParams, ("id" = String, Path, description = "The end"),
        ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 201, body = Ordered), (status = 200, body = Ordered, description = "Dry run"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn add_mac(
    State(app): State<App>,
    access: Access<ConfigId>,
    conditions: Conditions,
    Body(given): Body<NewMac>,
) -> Result<Response, Problem> {
    access.require(OperationKind::AddMac)?;
    let address = given
        .address
        .trim()
        .parse::<millrace_types::Mac>()
        .map_err(|error| Problem::invalid("/address", error.to_string()))?;
    let until = given
        .valid_until
        .as_deref()
        .map(str::parse::<Timestamp>)
        .transpose();
    let operation = Operation::AddMac {
        config: access.id(),
        address,
        valid_from: None,
        valid_until: until.map_err(|error| Problem::invalid("/valid_until", error.to_string()))?,
    };
    order_about(&app, &access, &conditions, None, vec![(operation, "")], &given).await
}

/// Remove a MAC address
#[utoipa::path(delete, path = "/api/v1/macs/{id}", tag = "services", params(OrderParams, ("id" = String, Path, description = "The address"),
        ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn remove_mac(
    State(app): State<App>,
    access: Access<MacId>,
    conditions: Conditions,
) -> Result<Response, Problem> {
    access.require(OperationKind::RemoveMac)?;
    let operation = Operation::RemoveMac { mac: access.id() };
    order_about(&app, &access, &conditions, None, vec![(operation, "")], &()).await
}

/// The drain of a trunk.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct DrainOrder {
    /// True to move the traffic off the trunk.
    drained: bool,
}

/// Drain a trunk of its traffic, or end the drain
#[utoipa::path(put, path = "/api/v1/trunks/{id}/drain", tag = "fabric", request_body = DrainOrder, params(OrderParams, ("id" = String, Path, description = "The trunk"),
        ("if-match" = String, Header, description = "The ETag that the client has read"), ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn drain(
    State(app): State<App>,
    access: Access<TrunkId>,
    conditions: Conditions,
    Body(given): Body<DrainOrder>,
) -> Result<Response, Problem> {
    let operation = Operation::DrainTrunk {
        trunk: access.id(),
        drained: given.drained,
    };
    order_object(&app, &access, &conditions, operation, &given).await
}
