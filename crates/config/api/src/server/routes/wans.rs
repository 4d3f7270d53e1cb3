//! Emulated paths: state and counters, and changes of their settings.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use millrace_model::{Config, merge_patch};
use serde_json::{Value, json};

use super::config::{ChangeParams, change, named, read_part};
use crate::server::app::App;
use crate::server::extract::{MergePatch, Path, Query};
use crate::server::live::Live;
use crate::server::peer::Peer;
use crate::view::{Committed, Problem, ProblemKind, WanPath};

/// List the emulated paths with their counters
#[utoipa::path(get, path = "/api/v1/wans", tag = "wans",
    responses((status = 200, body = Vec<WanPath>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn wans(State(app): State<App>) -> Result<Json<Vec<WanPath>>, Problem> {
    Ok(Json(app.with_live(<dyn Live>::wans).await?))
}

/// Read an emulated path with its counters
#[utoipa::path(get, path = "/api/v1/wans/{wan}", tag = "wans", params(("wan" = String, Path, description = "Name of the path")),
    responses((status = 200, body = WanPath), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn wan(State(app): State<App>, Path(name): Path<String>) -> Result<Json<WanPath>, Problem> {
    let mut all = app.with_live(<dyn Live>::wans).await?;
    match all.iter().position(|wan| wan.name == name) {
        Some(index) => Ok(Json(all.swap_remove(index))),
        None => Err(no_wan(&name, all.iter().map(|wan| wan.name.as_str()))),
    }
}

/// Read the configuration of an emulated path
#[utoipa::path(get, path = "/api/v1/config/wans/{wan}", tag = "configuration", params(("wan" = String, Path, description = "Name of the path")),
    responses((status = 200, body = millrace_model::Wan), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn configured(
    State(app): State<App>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    read_part(&app, &headers, |config| {
        let found = config.wans.iter().find(|wan| wan.name.as_str() == name);
        found
            .map(|wan| json!(wan))
            .ok_or_else(|| not_configured(config, &name))
    })
}

/// Change an emulated path (JSON merge patch, RFC 7396)
///
/// New settings apply to frames that arrive later. Frames already on the path are not affected.
#[utoipa::path(patch, path = "/api/v1/config/wans/{wan}", tag = "configuration",
    request_body(content = Object, content_type = "application/merge-patch+json"),
    params(("wan" = String, Path, description = "Name of the path"), ChangeParams),
    responses((status = 200, body = Committed), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn patch(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(params): Query<ChangeParams>,
    peer: Peer,
    headers: HeaderMap,
    MergePatch(patch): MergePatch,
) -> Result<Response, Problem> {
    change(&app, peer, &headers, &params, move |config| {
        let mut whole = config.to_json();
        let wan: Option<&mut Value> = whole.get_mut("wan").and_then(|list| named(list, &name));
        merge_patch(wan.ok_or_else(|| not_configured(config, &name))?, &patch);
        Ok(Config::from_json(&whole)?)
    })
    .await
}

fn not_configured(config: &Config, name: &str) -> Problem {
    no_wan(name, config.wans.iter().map(|wan| wan.name.as_str()))
}

fn no_wan<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Problem {
    let names: Vec<&str> = names.collect();
    let known = match names.is_empty() {
        true => "there is none".to_owned(),
        false => format!("expected one of {}", names.join(", ")),
    };
    Problem::new(
        ProblemKind::NotFound,
        format!("there is no path `{name}`: {known}"),
    )
}
