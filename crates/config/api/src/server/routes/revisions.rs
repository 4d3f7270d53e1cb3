//! The history of the configuration.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use millrace_store::{CommitError, Note, Proposal, ReadError, RevisionNo, Snapshot};
use serde::Deserialize;

use super::config::stale;
use crate::server::app::App;
use crate::server::authorship::{note, now};
use crate::server::condition::Condition;
use crate::server::extract::{Path, Query};
use crate::server::peer::Peer;
use crate::view::{
    Change, Committed, Diff, Owned, Problem, ProblemKind, Revision, RevisionConfig, Revisions,
};

/// The default number of revisions in a list.
const LIST_LEN: usize = 50;
/// The largest number of revisions in a list.
const LIST_MAX_LEN: usize = 1000;

/// The length of the list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// The number of revisions, 1 to 1000; the default is 50.
    limit: Option<usize>,
}

/// List the newest revisions
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

/// Read a revision with its configuration
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

/// The other revision of a comparison.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiffParams {
    /// The revision to compare with; the default is the newest.
    to: Option<u64>,
}

/// Compare two revisions
#[utoipa::path(get, path = "/api/v1/revisions/{number}/diff", tag = "history", params(("number" = u64, Path, description = "Number of the revision"), DiffParams),
    responses((status = 200, body = Diff), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn diff(
    State(app): State<App>,
    Path(from): Path<u64>,
    Query(params): Query<DiffParams>,
) -> Result<Json<Diff>, Problem> {
    let to = params.to.unwrap_or_else(|| app.store.head().revision.number.0);
    let (changes, owners) = app
        .with_store(move |store| -> Result<_, ReadError> {
            let changes = store.diff(RevisionNo(from), RevisionNo(to))?;
            Ok((changes, store.owners_at(RevisionNo(to.max(from)))?))
        })
        .await??;
    let owned = |change| Change::owned(change, &owners);
    Ok(Json(Diff {
        from,
        to,
        changes: changes.into_iter().map(owned).collect(),
    }))
}

/// The options of a rollback.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct RollbackParams {
    /// Only return the differences.
    dry_run: Option<bool>,
    /// The author of the rollback.
    author: Option<String>,
    /// The reason for the rollback.
    comment: Option<String>,
}

/// Roll back to a revision: its configuration becomes a new revision
///
/// Objects that belong to other origins stay as they are; `left_alone` lists those that differ.
#[utoipa::path(post, path = "/api/v1/revisions/{number}/rollback", tag = "history",
    params(("number" = u64, Path, description = "Number of the revision"), RollbackParams,
        ("if-match" = Option<String>, Header, description = "The newest revision that the client has seen")),
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
        Some(condition) if !condition.includes(head.revision.number.0) => return Err(stale(&head)),
        Some(Condition::OneOf(_)) => Some(head.revision.number),
        Some(Condition::Any) | None => None,
    };
    let note = note(
        peer,
        &headers,
        params.author.as_deref(),
        params.comment.as_deref(),
    )?;
    let dry_run = params.dry_run.unwrap_or(false);
    let done = roll_back(&app, head, expected, RevisionNo(number), note, dry_run).await?;
    Ok(Json(done))
}

/// Makes the content of revision `to` the head, or with `dry_run` only compares it with `head`. `expected` is the only
/// revision that may be replaced, if one is given.
async fn roll_back(
    app: &App,
    head: Arc<Snapshot>,
    expected: Option<RevisionNo>,
    to: RevisionNo,
    note: Note,
    dry_run: bool,
) -> Result<Committed, Problem> {
    let origin = note.origin().clone();
    let (config, left_alone) = app.with_store(move |store| store.restored(to, &origin)).await??;
    // The rollback may remove revision `to` from the history, so the changes are determined before it.
    let changes = millrace_model::diff(&head.config, &config);
    let owned = |change| Change::owned(change, &head.owners);
    let changes = changes.into_iter().map(owned).collect();
    let number = head.revision.clone();
    app.check(&config).await?;
    let revision = app
        .with_store(move |store| {
            let done = if dry_run {
                let proposal = Proposal {
                    expected,
                    config,
                    note,
                };
                store.dry_run(&proposal, false, now()).map(|_| number)
            } else {
                store.rollback(expected, to, note, now())
            };
            done.map_err(|error| match error {
                // Another client committed after the comparison with `If-Match`.
                CommitError::Conflict { .. } => stale(&store.head()),
                error => error.into(),
            })
        })
        .await??;
    Ok(Committed {
        dry_run,
        revision: Revision::from(&revision),
        changes,
        pending: None,
        left_alone: left_alone.iter().map(Owned::from).collect(),
    })
}

#[cfg(test)]
mod tests {
    use millrace_model::{Bridge, Config};
    use millrace_store::{Retention, Store};
    use tokio::sync::watch;

    use super::*;
    use crate::fake::FakeSwitch;
    use crate::server::router;

    fn app(store: &Store) -> App {
        let (_open, closing) = watch::channel(false);
        let live = Arc::new(FakeSwitch::default());
        App::new(live, store.clone(), None, router::document(), closing)
    }

    fn commit(store: &Store, bridge: &str) {
        let proposal = Proposal {
            expected: None,
            config: Config {
                bridges: vec![Bridge::new(bridge.parse().unwrap())],
                ..Config::default()
            },
            note: Note::default(),
        };
        store.commit(proposal, now()).unwrap();
    }

    #[tokio::test]
    async fn a_rollback_to_the_oldest_revision_of_a_full_history_has_its_changes() {
        let directory = tempfile::tempdir().unwrap();
        let retention = Retention {
            revisions: 2,
            ..Retention::default()
        };
        let store = Store::open_with(directory.path(), retention, now()).unwrap();
        for name in ["br1", "br2"] {
            commit(&store, name);
        }
        let (app, head, note) = (app(&store), store.head(), Note::default());
        let done = roll_back(&app, head, None, RevisionNo(1), note, false)
            .await
            .unwrap();
        assert_eq!((done.revision.number, done.changes.len()), (3, 2));
        assert!(
            store.at(RevisionNo(1)).is_err(),
            "the rollback removed it from the history"
        );
    }

    #[tokio::test]
    async fn a_rollback_of_another_revision_than_the_head_is_stale() {
        let store = Store::in_memory(now()).unwrap();
        commit(&store, "br1");
        let (seen, number) = (store.head(), RevisionNo(1));
        commit(&store, "br2");
        for dry_run in [true, false] {
            let app = app(&store);
            let note = Note::default();
            let refused = roll_back(&app, Arc::clone(&seen), Some(number), number, note, dry_run).await;
            assert_eq!(refused.unwrap_err().status, 412);
        }
        assert_eq!(store.head().revision.number, RevisionNo(2));
    }
}
