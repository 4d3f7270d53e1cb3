//! The switch as a whole: version, health, status, workers, drops.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};

use crate::server::app::App;
use crate::server::guard::Access;
use crate::server::live::Live;
use crate::view::{Drop, Health, Problem, Ready, Status, Version, Worker};

/// Whether the process lives
#[utoipa::path(get, path = "/health", tag = "health", responses((status = 200, body = Health)))]
pub(crate) async fn health() -> Json<Health> {
    Json(Health { alive: true })
}

/// Whether the switch forwards as configured
#[utoipa::path(get, path = "/ready", tag = "health",
    responses((status = 200, body = Ready), (status = 503, description = "Not yet; `reasons` says why to those who show the token", body = Ready)))]
pub(crate) async fn ready(
    State(app): State<App>,
    access: Option<Extension<Access>>,
) -> Result<Response, Problem> {
    let mut ready = app.ask(<dyn Live>::ready).await?;
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

/// What this program is
#[utoipa::path(get, path = "/api/v1/version", tag = "switch",
    responses((status = 200, body = Version), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn version(State(app): State<App>) -> Result<Json<Version>, Problem> {
    app.ask(<dyn Live>::version).await.map(Json)
}

/// What is configured, what runs, and what stands between
#[utoipa::path(get, path = "/api/v1/status", tag = "switch",
    responses((status = 200, body = Status), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn status(State(app): State<App>) -> Result<Json<Status>, Problem> {
    app.ask(<dyn Live>::status).await.map(Json)
}

/// Returns the workers of the data plane
#[utoipa::path(get, path = "/api/v1/workers", tag = "switch",
    responses((status = 200, body = Vec<Worker>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn workers(State(app): State<App>) -> Result<Json<Vec<Worker>>, Problem> {
    app.ask(<dyn Live>::workers).await.map(Json)
}

/// Why packets were dropped, reason by reason
#[utoipa::path(get, path = "/api/v1/drops", tag = "switch",
    responses((status = 200, body = Vec<Drop>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn drops(State(app): State<App>) -> Result<Json<Vec<Drop>>, Problem> {
    app.ask(<dyn Live>::drops).await.map(Json)
}
