//! The description of this API, the meaning of problems, and the probe.

use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};

use crate::app::App;
use crate::problem::{Problem, describe};

/// Read this document
#[utoipa::path(get, path = "/api/v1/openapi.json", tag = "documentation", security(()),
    responses((status = 200, description = "OpenAPI 3.1", body = Object)))]
pub(crate) async fn openapi(State(app): State<App>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], app.document.clone())
}

/// Read the meaning of a kind of problem
#[utoipa::path(get, path = "/api/v1/problems/{name}", tag = "documentation", security(()), params(("name" = String, Path, description = "The last part of a problem's `type`")),
    responses((status = 200, body = String, content_type = "text/plain"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn problem(Path(name): Path<String>) -> Result<Response, Problem> {
    match describe(&name) {
        Some(text) => Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()),
        None => Err(Problem::absent("such kind of problem")),
    }
}

/// Probe the process
#[utoipa::path(get, path = "/api/v1/health", tag = "documentation", security(()), responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn health() -> &'static str {
    "ok\n"
}
