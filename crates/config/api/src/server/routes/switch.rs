//! The switch as a whole: version, health, status, workers, drops.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};

use crate::server::app::App;
use crate::server::guard::Access;
use crate::server::live::Live;
use crate::view::{Drop, Health, Ovsdb, Problem, Ready, Status, Version, Worker};

/// Check that the process runs
#[utoipa::path(get, path = "/health", tag = "health", responses((status = 200, body = Health)))]
pub(crate) async fn health() -> Json<Health> {
    Json(Health { alive: true })
}

/// Check that the switch forwards as configured
#[utoipa::path(get, path = "/ready", tag = "health",
    responses((status = 200, body = Ready), (status = 503, description = "Not ready; `reasons` lists the causes for a request with the token", body = Ready)))]
pub(crate) async fn ready(
    State(app): State<App>,
    access: Option<Extension<Access>>,
) -> Result<Response, Problem> {
    let mut ready = app.with_live(<dyn Live>::ready).await?;
    if access.is_some_and(|Extension(access)| access == Access::Probe) {
        ready.reasons.clear();
    }
    let status = if ready.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    Ok((status, Json(ready)).into_response())
}

/// Read the versions of the program and its libraries
#[utoipa::path(get, path = "/api/v1/version", tag = "switch",
    responses((status = 200, body = Version), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn version(State(app): State<App>) -> Result<Json<Version>, Problem> {
    app.with_live(<dyn Live>::version).await.map(Json)
}

/// Read the desired revision, the running one, and the problems between them
#[utoipa::path(get, path = "/api/v1/status", tag = "switch",
    responses((status = 200, body = Status), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn status(State(app): State<App>) -> Result<Json<Status>, Problem> {
    app.with_live(<dyn Live>::status).await.map(Json)
}

/// List the workers of the data plane
#[utoipa::path(get, path = "/api/v1/workers", tag = "switch",
    responses((status = 200, body = Vec<Worker>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn workers(State(app): State<App>) -> Result<Json<Vec<Worker>>, Problem> {
    app.with_live(<dyn Live>::workers).await.map(Json)
}

/// List the drop reasons with their counts
#[utoipa::path(get, path = "/api/v1/drops", tag = "switch",
    responses((status = 200, body = Vec<Drop>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn drops(State(app): State<App>) -> Result<Json<Vec<Drop>>, Problem> {
    app.with_live(<dyn Live>::drops).await.map(Json)
}

/// Read the state of the Open vSwitch database that the switch follows
#[utoipa::path(get, path = "/api/v1/ovsdb", tag = "switch",
    responses((status = 200, body = Ovsdb), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn ovsdb(State(app): State<App>) -> Result<Json<Ovsdb>, Problem> {
    app.with_live(<dyn Live>::ovsdb).await.map(Json)
}
