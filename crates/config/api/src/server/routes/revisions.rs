//! The history of the configuration.

use std::time::SystemTime;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use millrace_store::{RevisionNo, UnixTime};
use serde::Deserialize;

use super::config::note;
use crate::server::app::App;
use crate::server::condition::Condition;
use crate::server::extract::{Path, Query};
use crate::server::peer::Peer;
use crate::view::{Committed, Diff, Problem, ProblemKind, Revision, RevisionConfig, Revisions};

/// Revisions in a list unless the client asks for another number.
const LIST_LEN: usize = 50;
/// Revisions in a list at most.
const LIST_MAX_LEN: usize = 1000;

/// The time that the store is told.
pub(super) fn now() -> UnixTime {
    UnixTime::from(SystemTime::now())
}

/// How many revisions.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// At most so many, 1 to 1000; 50 unless given.
    limit: Option<usize>,
}

/// Returns the newest revisions
#[utoipa::path(get, path = "/api/v1/revisions", tag = "history", params(ListParams),
    responses((status = 200, body = Revisions), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(app): State<App>,
    Query(params): Query<ListParams>,
) -> Result<Json<Revisions>, Problem> {
    let limit = params.limit.unwrap_or(LIST_LEN);
    if !(1..=LIST_MAX_LEN).contains(&limit) {
        let detail = format!("limit={limit}: expected 1 to {LIST_MAX_LEN}");
        return Err(Problem::new(ProblemKind::BadRequest, detail));
    }
    let revisions = app.with_store(move |store| store.history(limit)).await??;
    Ok(Json(Revisions {
        revisions: revisions.iter().map(Revision::from).collect(),
        pending: app.store.head().pending.map(Into::into),
    }))
}

/// Returns a revision with its content
#[utoipa::path(get, path = "/api/v1/revisions/{number}", tag = "history", params(("number" = u64, Path, description = "Number of the revision")),
    responses((status = 200, body = RevisionConfig), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn one(
    State(app): State<App>,
    Path(number): Path<u64>,
) -> Result<Json<RevisionConfig>, Problem> {
    let (revision, config) = app
        .with_store(move |store| store.at(RevisionNo(number)))
        .await??;
    Ok(Json(RevisionConfig {
        revision: Revision::from(&revision),
        config: config.to_json(),
    }))
}

/// What to compare with.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiffParams {
    /// The revision to compare with; the newest unless given.
    to: Option<u64>,
}

/// What changed from a revision to another
#[utoipa::path(get, path = "/api/v1/revisions/{number}/diff", tag = "history", params(("number" = u64, Path, description = "Number of the revision"), DiffParams),
    responses((status = 200, body = Diff), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn diff(
    State(app): State<App>,
    Path(from): Path<u64>,
    Query(params): Query<DiffParams>,
) -> Result<Json<Diff>, Problem> {
    let to = params.to.unwrap_or_else(|| app.store.head().revision.number.0);
    let changes = app
        .with_store(move |store| store.diff(RevisionNo(from), RevisionNo(to)))
        .await??;
    Ok(Json(Diff {
        from,
        to,
        changes: changes.into_iter().map(Into::into).collect(),
    }))
}

/// How to go back.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct RollbackParams {
    /// Only show what would change.
    dry_run: Option<bool>,
    /// Who goes back.
    author: Option<String>,
    /// Why.
    comment: Option<String>,
}

/// Go back to the content of a revision, as a new revision
#[utoipa::path(post, path = "/api/v1/revisions/{number}/rollback", tag = "history",
    params(("number" = u64, Path, description = "Number of the revision"), RollbackParams,
        ("if-match" = Option<String>, Header, description = "The newest revision as the client knows it")),
    responses((status = 200, body = Committed), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn rollback(
    State(app): State<App>,
    Path(number): Path<u64>,
    Query(params): Query<RollbackParams>,
    peer: Peer,
    headers: HeaderMap,
) -> Result<Json<Committed>, Problem> {
    let head = app.store.head();
    let expected = match Condition::if_match(&headers)? {
        Some(condition) if !condition.holds(head.revision.number.0) => {
            let detail = format!(
                "the configuration is at revision {}, not at the one in If-Match",
                head.revision.number
            );
            return Err(Problem::new(ProblemKind::Stale, detail));
        }
        Some(Condition::OneOf(_)) => Some(head.revision.number),
        Some(Condition::Any) | None => None,
    };
    let note = note(peer, params.author.as_deref(), params.comment.as_deref());
    let (to, from, dry_run) = (
        RevisionNo(number),
        head.revision.number,
        params.dry_run.unwrap_or(false),
    );
    let (_, config) = app.with_store(move |store| store.at(to)).await??;
    app.check(&config).await?;
    let (revision, changes) = app
        .with_store(move |store| -> Result<_, Problem> {
            let revision = if dry_run {
                head.revision.clone()
            } else {
                store.rollback(expected, to, note, now())?
            };
            Ok((revision, store.diff(from, to)?))
        })
        .await??;
    Ok(Json(Committed {
        dry_run,
        revision: Revision::from(&revision),
        changes: changes.into_iter().map(Into::into).collect(),
        pending: None,
    }))
}
