//! The OpenAPI document, as JSON and as a page for people, and a page for each kind of problem.

use std::fmt::Write as _;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use utoipa::openapi::path::Operation;
use utoipa::openapi::{OpenApi, PathItem};

use crate::server::app::App;
use crate::server::extract::Path;
use crate::server::problem::page;
use crate::view::{Problem, ProblemKind};

/// Read this document
#[utoipa::path(get, path = "/openapi.json", tag = "documentation",
    responses((status = 200, description = "OpenAPI 3.1", body = Object)))]
pub(crate) async fn openapi(State(app): State<App>) -> Json<OpenApi> {
    Json(OpenApi::clone(&app.document))
}

/// Read this document as a page for people
#[utoipa::path(get, path = "/docs", tag = "documentation", responses((status = 200, body = String, content_type = "text/html")))]
pub(crate) async fn docs(State(app): State<App>) -> Html<String> {
    Html(render(&app.document))
}

/// Read the meaning of a kind of problem
#[utoipa::path(get, path = "/problems/{name}", tag = "documentation", params(("name" = String, Path, description = "The last part of a problem's `type`")),
    responses((status = 200, body = String, content_type = "text/plain"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn problem(Path(name): Path<String>) -> Result<Response, Problem> {
    match page(&name) {
        Some(text) => Ok((
            StatusCode::OK,
            [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
            text,
        )
            .into_response()),
        None => Err(Problem::new(
            ProblemKind::NotFound,
            "no kind of problem has this name",
        )),
    }
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
code{font:14px ui-monospace,monospace}td{padding:.15rem .8rem .15rem 0;vertical-align:top}";

fn render(document: &OpenApi) -> String {
    let mut page = String::new();
    let title = escape(&document.info.title);
    let _ = write!(
        page,
        "<!doctype html><meta charset=utf-8><title>{title}</title><style>{STYLE}</style><h1>{title}</h1>"
    );
    if let Some(about) = &document.info.description {
        let _ = write!(page, "<p>{}</p>", escape(about));
    }
    page.push_str("<p>The machine-readable document: <a href=/openapi.json>/openapi.json</a></p>");
    let mut tags: Vec<&str> = Vec::new();
    for (_, operations) in paths(document) {
        for (_, operation) in operations {
            let tag = tag_of(operation);
            if !tags.contains(&tag) {
                tags.push(tag);
            }
        }
    }
    for tag in tags {
        let _ = write!(page, "<h2>{}</h2><table>", escape(tag));
        for (path, operations) in paths(document) {
            for (method, operation) in operations
                .into_iter()
                .filter(|(_, operation)| tag_of(operation) == tag)
            {
                let summary = operation.summary.as_deref().unwrap_or("");
                let (path, summary) = (escape(path), escape(summary));
                let _ = write!(
                    page,
                    "<tr><td><code>{method}</code><td><code>{path}</code><td>{summary}"
                );
            }
        }
        page.push_str("</table>");
    }
    page
}

fn tag_of(operation: &Operation) -> &str {
    operation
        .tags
        .as_ref()
        .and_then(|tags| tags.first())
        .map_or("other", String::as_str)
}

/// Returns every path with its operations.
pub(crate) fn paths(document: &OpenApi) -> impl Iterator<Item = (&str, Vec<(&'static str, &Operation)>)> {
    document
        .paths
        .paths
        .iter()
        .map(|(path, item)| (path.as_str(), operations(item)))
}

fn operations(item: &PathItem) -> Vec<(&'static str, &Operation)> {
    let all = [
        ("GET", &item.get),
        ("PUT", &item.put),
        ("POST", &item.post),
        ("PATCH", &item.patch),
        ("DELETE", &item.delete),
    ];
    all.into_iter()
        .filter_map(|(method, operation)| operation.as_ref().map(|operation| (method, operation)))
        .collect()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
