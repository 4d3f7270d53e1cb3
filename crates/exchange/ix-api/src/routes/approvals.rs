//! Orders that wait for a second person, deletions of trunks, and service keys.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use millrace_ix_model::{ApprovalId, Operation, OperationKind, ServiceKeyId, TrunkId};

use super::ends::order_object;
use super::objects::readable;
use crate::access::{Access, Principal};
use crate::app::App;
use crate::problem::Problem;
use crate::render::ViewContext;
use crate::request::{Conditions, OrderParams, PageParams, Query};
use crate::view::{self, List, Ordered};

/// List orders that wait for a second person
#[utoipa::path(get, path = "/api/v1/approvals", tag = "approvals", params(PageParams),
    responses((status = 200, body = List<view::Approval>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(app): State<App>,
    principal: Principal,
    Query(page): Query<PageParams>,
) -> Result<Json<List<view::Approval>>, Problem> {
    principal.require(OperationKind::ReadFabric)?;
    let scope = ViewContext::new(&principal, app.now());
    page.page(&readable::<ApprovalId>(&principal), |id, approval| {
        scope.approval(id, approval)
    })
    .map(Json)
}

/// Approve an order as the second person, and execute it
#[utoipa::path(post, path = "/api/v1/approvals/{id}/approve", tag = "approvals", params(OrderParams, ("id" = String, Path, description = "The order"),
        ("if-match" = String, Header, description = "The ETag that the client has read"), ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn approve(
    State(app): State<App>,
    access: Access<ApprovalId>,
    conditions: Conditions,
) -> Result<Response, Problem> {
    let operation = Operation::Approve {
        approval: access.id(),
    };
    order_object(&app, &access, &conditions, operation, &()).await
}

/// Withdraw or refuse an order that waits for a second person
#[utoipa::path(delete, path = "/api/v1/approvals/{id}", tag = "approvals", params(OrderParams, ("id" = String, Path, description = "The order"),
        ("if-match" = String, Header, description = "The ETag that the client has read"), ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn withdraw(
    State(app): State<App>,
    access: Access<ApprovalId>,
    conditions: Conditions,
) -> Result<Response, Problem> {
    let target = access.id().into();
    order_object(&app, &access, &conditions, Operation::Delete { target }, &()).await
}

/// Delete a trunk; a trunk that services use needs a second person
#[utoipa::path(delete, path = "/api/v1/trunks/{id}", tag = "fabric", params(OrderParams, ("id" = String, Path, description = "The trunk"),
        ("if-match" = String, Header, description = "The ETag that the client has read"), ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn delete_trunk(
    State(app): State<App>,
    access: Access<TrunkId>,
    conditions: Conditions,
) -> Result<Response, Problem> {
    let target = access.id().into();
    order_object(&app, &access, &conditions, Operation::Delete { target }, &()).await
}

/// Read the effect of draining a trunk
#[utoipa::path(get, path = "/api/v1/trunks/{id}/impact", tag = "fabric", params(("id" = String, Path, description = "The trunk")),
    responses((status = 200, body = view::Impact), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn impact(
    State(app): State<App>,
    access: Access<TrunkId>,
) -> Result<Json<view::Impact>, Problem> {
    access.require(OperationKind::ReadFabric)?;
    let scope = ViewContext::new(access.principal(), app.now());
    Ok(Json(scope.impact(access.id(), access.object()?)))
}

/// List service keys without their secrets
#[utoipa::path(get, path = "/api/v1/service-keys", tag = "services", params(PageParams),
    responses((status = 200, body = List<view::ServiceKey>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn service_keys(
    State(app): State<App>,
    principal: Principal,
    Query(page): Query<PageParams>,
) -> Result<Json<List<view::ServiceKey>>, Problem> {
    let scope = ViewContext::new(&principal, app.now());
    page.page(&readable::<ServiceKeyId>(&principal), |id, key| {
        scope.service_key(id, key)
    })
    .map(Json)
}

/// Revoke a service key
#[utoipa::path(delete, path = "/api/v1/service-keys/{id}", tag = "services", params(OrderParams, ("id" = String, Path, description = "The key"),
        ("if-match" = String, Header, description = "The ETag that the client has read, or *"), ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn revoke_key(
    State(app): State<App>,
    access: Access<ServiceKeyId>,
    conditions: Conditions,
) -> Result<Response, Problem> {
    let operation = Operation::RevokeServiceKey { key: access.id() };
    order_object(&app, &access, &conditions, operation, &()).await
}
