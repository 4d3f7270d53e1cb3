//! The owners of the objects of the configuration.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use millrace_store::Origin;
use serde::Deserialize;

use crate::server::app::App;
use crate::server::authorship::{note, now};
use crate::server::extract::{Body, Query};
use crate::server::peer::Peer;
use crate::view::{OwnRequest, Owned, Ownership, Problem, ProblemKind, Revision};

/// List all objects of the configuration with their owners
///
/// An object is an item of a list of the configuration that has a name (`bridge/br0`, with its ports and chains), or a
/// table that exists once (`system`). It belongs to the front end that made it; changes by others are refused.
#[utoipa::path(get, path = "/api/v1/owners", tag = "configuration",
    responses((status = 200, body = Ownership), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list(State(app): State<App>) -> Result<Json<Ownership>, Problem> {
    let head = app.store.head();
    let owned = |object: millrace_model::ObjectName| Owned {
        owner: head.owners.owner(&object).to_string(),
        object: object.path(),
    };
    let objects = head.config.objects().into_iter().map(owned).collect();
    Ok(Json(Ownership { objects }))
}

/// The author of a change of owners.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct OwnParams {
    /// The author of the change.
    author: Option<String>,
    /// The reason for the change.
    comment: Option<String>,
}

/// Give objects to another owner, as a new revision with the same configuration
#[utoipa::path(post, path = "/api/v1/owners", tag = "configuration", request_body = OwnRequest, params(OwnParams),
    responses((status = 200, body = Revision),
        (status = 404, description = "The configuration has no such object", body = Problem, content_type = "application/problem+json"),
        (status = 423, description = "Another session holds the lock", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn own(
    State(app): State<App>,
    Query(params): Query<OwnParams>,
    peer: Peer,
    headers: HeaderMap,
    Body(request): Body<OwnRequest>,
) -> Result<Json<Revision>, Problem> {
    let owner: Origin = request
        .owner
        .parse()
        .map_err(|error| Problem::new(ProblemKind::Invalid, format!("owner: {error}")))?;
    let note = note(
        peer,
        &headers,
        params.author.as_deref(),
        params.comment.as_deref(),
    )?;
    let revision = app
        .with_store(move |store| store.own(&request.objects, &owner, note, now()))
        .await??;
    Ok(Json(Revision::from(&revision)))
}
