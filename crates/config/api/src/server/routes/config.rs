//! The configuration as a whole, its bridges and ports, and the confirmation of risky changes.
//!
//! Every change, also that of a single port, is one transaction over the whole configuration. Errors refer to the
//! whole configuration by JSON pointer.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use millrace_model::Config;
use millrace_store::{CommitError, Origin, Proposal, RevisionNo, Snapshot};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::server::app::App;
use crate::server::authorship::{note, now};
use crate::server::condition::{Condition, etag};
use crate::server::extract::{Body, MergePatch, Path, Query};
use crate::server::peer::Peer;
use crate::view::{Change, Committed, Confirmation, Owned, Problem, ProblemKind, Revision};

/// The number of attempts of a change without `If-Match` when others commit at the same time.
const ATTEMPTS: usize = 8;
/// The longest wait for a confirmation, in seconds: a day.
const CONFIRM_WITHIN_MAX: u64 = 86_400;

/// The options of a change.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeParams {
    /// Only check the change, and return the differences.
    dry_run: Option<bool>,
    /// Roll the change back after this number of seconds (1 to 86400) unless it is confirmed. Such a change
    /// is accepted even while another change waits for confirmation.
    confirm_within: Option<u64>,
    /// The author of the change.
    author: Option<String>,
    /// The reason for the change.
    comment: Option<String>,
    /// The front end that makes the change, 1 to 32 lower-case letters, digits and hyphens; `local` unless given. Objects
    /// that the change adds belong to it.
    origin: Option<String>,
    /// The number that the desired state has at its origin, for an origin other than `local`: `mod_revision` of a key in etcd.
    external: Option<u64>,
    /// Let objects of other origins that the configuration lacks stay as they are; otherwise such a change is refused.
    keep_others: Option<bool>,
}

/// The options of a confirmation, or of a rollback instead of a confirmation.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfirmParams {
    /// The revision to confirm or to roll back; the default is the pending revision.
    revision: Option<u64>,
    /// The author of the rollback.
    author: Option<String>,
    /// The reason for the rollback.
    comment: Option<String>,
}

/// Returns a response with the revision as its ETag.
fn with_etag(revision: u64, body: impl IntoResponse) -> Response {
    let mut response = body.into_response();
    if let Ok(tag) = HeaderValue::from_str(&etag(revision)) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// Returns the part of the newest configuration that `part` selects, or 304 if the client has this revision.
pub(super) fn read_part(
    app: &App,
    headers: &HeaderMap,
    part: impl FnOnce(&Config) -> Result<Value, Problem>,
) -> Result<Response, Problem> {
    let head = app.store.head();
    let number = head.revision.number.0;
    // A part that does not exist is 404 under any condition (RFC 9110, section 13.2.1).
    let part = part(&head.config)?;
    if Condition::none_match(headers).is_some_and(|condition| condition.includes(number)) {
        return Ok(with_etag(number, StatusCode::NOT_MODIFIED));
    }
    Ok(with_etag(number, Json(part)))
}

/// Commits the result of applying `change` to the newest configuration.
pub(super) async fn change(
    app: &App,
    peer: Peer,
    headers: &HeaderMap,
    params: &ChangeParams,
    change: impl Fn(&Config) -> Result<Config, Problem>,
) -> Result<Response, Problem> {
    let condition = Condition::if_match(headers)?;
    if let Some(seconds) = params.confirm_within
        && !(1..=CONFIRM_WITHIN_MAX).contains(&seconds)
    {
        let detail = format!("confirm_within={seconds}: expected 1 to {CONFIRM_WITHIN_MAX} seconds");
        return Err(Problem::new(ProblemKind::BadRequest, detail));
    }
    let note = note(peer, headers, params.author.as_deref(), params.comment.as_deref())?.of(origin(params)?);
    let note = match params.external {
        Some(number) => note.external(number),
        None => note,
    };
    let is_of_revisions = matches!(condition, Some(Condition::OneOf(_)));
    let mut attempt = 1;
    loop {
        let head = app.store.head();
        if let Some(condition) = &condition
            && !condition.includes(head.revision.number.0)
        {
            return Err(stale(&head));
        }
        let wanted = change(&head.config)?;
        let (config, left_alone) = match params.keep_others {
            Some(true) => head.with_others(&wanted, note.origin())?,
            Some(false) | None => (wanted, Vec::new()),
        };
        let proposal = Proposal {
            expected: Some(head.revision.number),
            config,
            note: note.clone(),
        };
        let left_alone = left_alone.iter().map(Owned::from).collect();
        match commit(app, params, &head, proposal, left_alone).await? {
            Ok(done) => return Ok(with_etag(done.revision.number, Json(done))),
            // Without a condition, or with `*`, the change applies to any revision, so it is repeated on the
            // new revision.
            Err(CommitError::Conflict { .. }) if !is_of_revisions && attempt < ATTEMPTS => attempt += 1,
            Err(CommitError::Conflict { .. }) if is_of_revisions => return Err(stale(&app.store.head())),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the origin of a change.
fn origin(params: &ChangeParams) -> Result<Origin, Problem> {
    match &params.origin {
        None => Ok(Origin::LOCAL),
        Some(text) => text
            .parse()
            .map_err(|error| Problem::new(ProblemKind::BadRequest, format!("origin={error}"))),
    }
}

async fn commit(
    app: &App,
    params: &ChangeParams,
    head: &Snapshot,
    proposal: Proposal,
    left_alone: Vec<Owned>,
) -> Result<Result<Committed, CommitError>, Problem> {
    let (dry_run, confirm_within) = (params.dry_run.unwrap_or(false), params.confirm_within);
    let changes = millrace_model::diff(&head.config, &proposal.config)
        .into_iter()
        .map(|change| Change::owned(change, &head.owners))
        .collect();
    let before = Revision::from(&head.revision);
    let pending = head.pending.map(Into::into);
    app.check(&proposal.config).await?;
    app.with_store(move |store| {
        if dry_run {
            store.dry_run(&proposal, confirm_within.is_some(), now())?;
            return Ok(Committed {
                dry_run,
                revision: before,
                changes,
                pending,
                left_alone,
            });
        }
        let now = now();
        let revision = match confirm_within {
            Some(seconds) => store.commit_confirm(proposal, now.plus(seconds), now)?,
            None => store.commit(proposal, now)?,
        };
        // Another client may have committed since: only a confirmation of this revision is reported.
        let pending = store
            .head()
            .pending
            .filter(|pending| pending.revision == revision.number);
        Ok(Committed {
            dry_run,
            revision: Revision::from(&revision),
            changes,
            pending: pending.map(Into::into),
            left_alone,
        })
    })
    .await
}

/// Returns the problem of a change whose `If-Match` does not name the head.
pub(super) fn stale(head: &Snapshot) -> Problem {
    let detail = format!(
        "the configuration is at revision {}: expected the one in If-Match",
        head.revision.number
    );
    Problem::new(ProblemKind::Stale, detail)
        .with_next_step("read the configuration again and repeat the change")
}

/// Read the configuration
#[utoipa::path(get, path = "/api/v1/config", tag = "configuration",
    responses((status = 200, body = Config, headers(("etag" = String, description = "The revision"))),
        (status = 304, description = "The revision is the one in If-None-Match"),
        (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn read(State(app): State<App>, headers: HeaderMap) -> Result<Response, Problem> {
    read_part(&app, &headers, |config| Ok(config.to_json()))
}

/// Replace the configuration
#[utoipa::path(put, path = "/api/v1/config", tag = "configuration", request_body = Config,
    params(ChangeParams, ("if-match" = String, Header, description = "The revision on which the change is based, or `*`")),
    responses((status = 200, body = Committed), (status = 409, description = "An object belongs to another origin, or a revision waits for its confirmation", body = Problem, content_type = "application/problem+json"),
        (status = 423, description = "Another session holds the lock", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "Another client committed first", body = Problem, content_type = "application/problem+json"),
        (status = 428, description = "If-Match is missing", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn replace(
    State(app): State<App>,
    Query(params): Query<ChangeParams>,
    peer: Peer,
    headers: HeaderMap,
    Body(config): Body<Value>,
) -> Result<Response, Problem> {
    if !headers.contains_key(header::IF_MATCH) {
        let detail = "a PUT of the whole configuration may undo changes of others: expected If-Match";
        return Err(
            Problem::new(ProblemKind::ConditionRequired, detail).with_next_step(
                "send the ETag of the configuration that you changed, or `*` to replace any revision",
            ),
        );
    }
    let config = Config::from_json(&config)?;
    change(&app, peer, &headers, &params, move |_| Ok(config.clone())).await
}

/// Change a part of the configuration (JSON merge patch, RFC 7396)
#[utoipa::path(patch, path = "/api/v1/config", tag = "configuration",
    request_body(content = Object, content_type = "application/merge-patch+json"),
    params(ChangeParams, ("if-match" = Option<String>, Header, description = "The revision on which the change is based")),
    responses((status = 200, body = Committed), (status = 409, description = "An object belongs to another origin, or a revision waits for its confirmation", body = Problem, content_type = "application/problem+json"),
        (status = 423, description = "Another session holds the lock", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "Another client committed first", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn patch(
    State(app): State<App>,
    Query(params): Query<ChangeParams>,
    peer: Peer,
    headers: HeaderMap,
    MergePatch(patch): MergePatch,
) -> Result<Response, Problem> {
    change(&app, peer, &headers, &params, move |config| {
        Ok(config.merge_patched(&patch)?)
    })
    .await
}

/// Returns the element of a list whose `name` is `name`.
pub(super) fn named<'a>(list: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    list.as_array_mut()?
        .iter_mut()
        .find(|item| item.get("name").and_then(Value::as_str) == Some(name))
}

/// Replaces the element called `name` in the list `key` of `owner`, or appends it.
fn put_named(owner: &mut Value, key: &str, name: &str, item: Map<String, Value>) {
    if let Some(owner) = owner.as_object_mut() {
        let list = owner.entry(key).or_insert_with(|| json!([]));
        let item = Value::Object(item);
        match named(list, name) {
            Some(element) => *element = item,
            None => list
                .as_array_mut()
                .into_iter()
                .for_each(|list| list.push(item.clone())),
        }
    }
}

/// Removes the element called `name`. Returns true if it existed.
fn remove_named(owner: &mut Value, key: &str, name: &str) -> bool {
    let Some(list) = owner.get_mut(key).and_then(Value::as_array_mut) else {
        return false;
    };
    let before = list.len();
    list.retain(|item| item.get("name").and_then(Value::as_str) != Some(name));
    list.len() < before
}

/// Returns the members of a body that describes the object `name`. A member `name` in the body must be equal
/// to `name`.
fn body_of(name: &str, body: Value) -> Result<Map<String, Value>, Problem> {
    let Value::Object(mut body) = body else {
        return Err(Problem::new(
            ProblemKind::Invalid,
            "the body is not an object: expected one",
        ));
    };
    match body.get("name") {
        Some(given) if given.as_str() != Some(name) => {
            let detail = format!("the body names {given} and the path \"{name}\": expected the same name");
            Err(Problem::new(ProblemKind::Invalid, detail))
        }
        _ => {
            body.insert("name".to_owned(), Value::from(name));
            Ok(body)
        }
    }
}

fn no_bridge(config: &Config, name: &str) -> Problem {
    let names: Vec<&str> = config.bridges.iter().map(|bridge| bridge.name.as_str()).collect();
    let known = if names.is_empty() {
        "there is none".to_owned()
    } else {
        format!("expected one of {}", names.join(", "))
    };
    Problem::new(
        ProblemKind::NotFound,
        format!("no bridge `{name}` is configured: {known}"),
    )
}

fn no_port(bridge: &str, name: &str) -> Problem {
    Problem::new(
        ProblemKind::NotFound,
        format!("bridge `{bridge}` has no port `{name}` configured"),
    )
}

/// Returns the configuration in which `edit` has changed one bridge. `edit` gets the bridge as JSON.
fn with_bridge(
    config: &Config,
    name: &str,
    edit: impl FnOnce(&mut Value) -> Result<(), Problem>,
) -> Result<Config, Problem> {
    let mut whole = config.to_json();
    let bridge = whole.get_mut("bridge").and_then(|list| named(list, name));
    edit(bridge.ok_or_else(|| no_bridge(config, name))?)?;
    Ok(Config::from_json(&whole)?)
}

/// Read the configuration of a bridge
#[utoipa::path(get, path = "/api/v1/config/bridges/{bridge}", tag = "configuration", params(("bridge" = String, Path, description = "Name of the bridge")),
    responses((status = 200, body = millrace_model::Bridge), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn bridge(
    State(app): State<App>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    read_part(&app, &headers, |config| match config.bridge(&name) {
        Some(bridge) => Ok(json!(bridge)),
        None => Err(no_bridge(config, &name)),
    })
}

/// Add a bridge, or replace it with its ports
#[utoipa::path(put, path = "/api/v1/config/bridges/{bridge}", tag = "configuration", request_body = millrace_model::Bridge,
    params(("bridge" = String, Path, description = "Name of the bridge"), ChangeParams),
    responses((status = 200, body = Committed), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn put_bridge(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(params): Query<ChangeParams>,
    peer: Peer,
    headers: HeaderMap,
    Body(body): Body<Value>,
) -> Result<Response, Problem> {
    let item = body_of(&name, body)?;
    change(&app, peer, &headers, &params, move |config| {
        let mut whole = config.to_json();
        put_named(&mut whole, "bridge", &name, item.clone());
        Ok(Config::from_json(&whole)?)
    })
    .await
}

/// Remove a bridge with its ports
#[utoipa::path(delete, path = "/api/v1/config/bridges/{bridge}", tag = "configuration",
    params(("bridge" = String, Path, description = "Name of the bridge"), ChangeParams),
    responses((status = 200, body = Committed), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn delete_bridge(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(params): Query<ChangeParams>,
    peer: Peer,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    change(&app, peer, &headers, &params, move |config| {
        let mut whole = config.to_json();
        if !remove_named(&mut whole, "bridge", &name) {
            return Err(no_bridge(config, &name));
        }
        Ok(Config::from_json(&whole)?)
    })
    .await
}

/// Read the configuration of a port
#[utoipa::path(get, path = "/api/v1/config/bridges/{bridge}/ports/{port}", tag = "configuration",
    params(("bridge" = String, Path, description = "Name of the bridge"), ("port" = String, Path, description = "Name of the port")),
    responses((status = 200, body = millrace_model::Port), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn port(
    State(app): State<App>,
    Path((bridge, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    read_part(&app, &headers, |config| match config.bridge(&bridge) {
        None => Err(no_bridge(config, &bridge)),
        Some(found) => found
            .port(&name)
            .map(|port| json!(port))
            .ok_or_else(|| no_port(&bridge, &name)),
    })
}

/// Add a port to a bridge, or replace it
#[utoipa::path(put, path = "/api/v1/config/bridges/{bridge}/ports/{port}", tag = "configuration", request_body = millrace_model::Port,
    params(("bridge" = String, Path, description = "Name of the bridge"), ("port" = String, Path, description = "Name of the port"), ChangeParams),
    responses((status = 200, body = Committed), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn put_port(
    State(app): State<App>,
    Path((bridge, name)): Path<(String, String)>,
    Query(params): Query<ChangeParams>,
    peer: Peer,
    headers: HeaderMap,
    Body(body): Body<Value>,
) -> Result<Response, Problem> {
    let item = body_of(&name, body)?;
    change(&app, peer, &headers, &params, move |config| {
        with_bridge(config, &bridge, |bridge| {
            put_named(bridge, "port", &name, item.clone());
            Ok(())
        })
    })
    .await
}

/// Remove a port from a bridge
#[utoipa::path(delete, path = "/api/v1/config/bridges/{bridge}/ports/{port}", tag = "configuration",
    params(("bridge" = String, Path, description = "Name of the bridge"), ("port" = String, Path, description = "Name of the port"), ChangeParams),
    responses((status = 200, body = Committed), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn delete_port(
    State(app): State<App>,
    Path((bridge, name)): Path<(String, String)>,
    Query(params): Query<ChangeParams>,
    peer: Peer,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    change(&app, peer, &headers, &params, move |config| {
        with_bridge(config, &bridge, |owner| {
            if remove_named(owner, "port", &name) {
                Ok(())
            } else {
                Err(no_port(&bridge, &name))
            }
        })
    })
    .await
}

/// Read the revision that waits for a confirmation
#[utoipa::path(get, path = "/api/v1/config/confirm", tag = "configuration",
    responses((status = 200, body = Confirmation), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn confirmation(State(app): State<App>) -> Json<Confirmation> {
    Json(Confirmation {
        pending: app.store.head().pending.map(Into::into),
    })
}

/// Confirm the pending revision
#[utoipa::path(post, path = "/api/v1/config/confirm", tag = "configuration", params(ConfirmParams),
    responses((status = 200, body = Revision), (status = 409, description = "No revision is pending, or another one", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn confirm(
    State(app): State<App>,
    Query(params): Query<ConfirmParams>,
    peer: Peer,
    headers: HeaderMap,
) -> Result<Json<Revision>, Problem> {
    let wanted = params.revision.map(RevisionNo);
    let note = note(
        peer,
        &headers,
        params.author.as_deref(),
        params.comment.as_deref(),
    )?;
    let revision = app
        .with_store(move |store| store.confirm(wanted, &note, now()))
        .await??;
    Ok(Json(Revision::from(&revision)))
}

/// Roll back the pending revision at once
#[utoipa::path(delete, path = "/api/v1/config/confirm", tag = "configuration", params(ConfirmParams),
    responses((status = 200, body = Revision), (status = 409, description = "No revision is pending, or another one", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn cancel(
    State(app): State<App>,
    Query(params): Query<ConfirmParams>,
    peer: Peer,
    headers: HeaderMap,
) -> Result<Json<Revision>, Problem> {
    let wanted = params.revision.map(RevisionNo);
    let note = note(
        peer,
        &headers,
        params.author.as_deref(),
        params.comment.as_deref(),
    )?;
    let revision = app
        .with_store(move |store| store.cancel(wanted, note, now()))
        .await??;
    Ok(Json(Revision::from(&revision)))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use millrace_store::{Note, Store};
    use tokio::sync::watch;

    use super::*;
    use crate::fake::FakeSwitch;
    use crate::server::router;

    /// Returns the configuration with one more bridge.
    fn and_bridge(config: &Config, name: &str) -> Config {
        let mut config = config.clone();
        config
            .bridges
            .push(millrace_model::Bridge::new(name.parse().unwrap()));
        config
    }

    #[tokio::test]
    async fn a_change_of_any_revision_is_repeated_after_a_commit_that_came_between() {
        for (if_match, expected) in [(None, Ok(200)), (Some("*"), Ok(200)), (Some("\"0\""), Err(412))] {
            let store = Store::in_memory(now()).unwrap();
            let (_open, closing) = watch::channel(false);
            let live = Arc::new(FakeSwitch::default());
            let app = App::new(live, store.clone(), None, router::document(), closing);
            let mut headers = HeaderMap::new();
            if let Some(value) = if_match {
                headers.insert(header::IF_MATCH, value.parse().unwrap());
            }
            let is_first = Cell::new(true);
            let edit = |config: &Config| {
                if is_first.replace(false) {
                    let proposal = Proposal {
                        expected: None,
                        config: and_bridge(config, "other"),
                        note: Note::default(),
                    };
                    store.commit(proposal, now()).unwrap();
                }
                Ok(and_bridge(config, "br0"))
            };
            let response = change(&app, Peer::Unknown, &headers, &ChangeParams::default(), edit).await;
            let status = response
                .map(|response| response.status().as_u16())
                .map_err(|problem| problem.status);
            assert_eq!(status, expected, "{if_match:?}");
        }
    }
}
