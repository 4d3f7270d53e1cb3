//! The description of this API, the meaning of problems, and the probe.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use data_encoding::HEXLOWER;

use crate::app::App;
use crate::page::is_known;
use crate::problem::{Problem, describe};

/// Read this document
#[utoipa::path(get, path = "/api/v1/openapi.json", tag = "documentation", security(()),
    responses((status = 200, description = "OpenAPI 3.1", body = Object)))]
pub(crate) async fn openapi(State(app): State<App>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], app.document.clone())
}

/// Returns a document for everybody, which caches may keep for a minute. Its ETag is of `content`: the parts of it that mean something.
pub(crate) fn public_document(
    headers: &HeaderMap,
    media_type: &'static str,
    body: String,
    content: &str,
) -> Response {
    let digest = ring::digest::digest(&ring::digest::SHA256, content.as_bytes());
    let tag = HEXLOWER.encode(digest.as_ref().get(..12).unwrap_or_default());
    let etag = format!("W/\"{tag}\"");
    let mut response = if is_known(headers, &etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, media_type)], body).into_response()
    };
    let answer = response.headers_mut();
    answer.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("public, max-age=60"),
    );
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        answer.insert(header::ETAG, etag);
    }
    response
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
