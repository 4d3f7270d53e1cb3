//! The lock on the configuration: with a lease, or for the time of one open response.

use std::convert::Infallible;
use std::fs::File;
use std::io::Read as _;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::StreamExt as _;
use futures::stream::{self, Stream};
use millrace_store::{LockToken, Store};
use serde::Deserialize;

use crate::server::app::App;
use crate::server::authorship::{lock_token, note, now};
use crate::server::extract::Query;
use crate::server::peer::Peer;
use crate::view::{Lock, LockState, LockTaken, Problem, ProblemKind};

/// The lease unless one is given, in seconds.
const LEASE_S: u64 = 60;
/// The longest lease, in seconds: a day.
const LEASE_MAX_S: u64 = 86_400;
/// The lease of a session, which the server renews as long as the response is open.
const SESSION_LEASE_S: u64 = 30;
/// The interval of renewals and of comments on the response of a session. A failed write of a comment reveals a dead
/// connection.
const SESSION_PERIOD: Duration = Duration::from_secs(1);

/// The options of the lock.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct LockParams {
    /// The name of the holder.
    author: Option<String>,
    /// The time until the lock is free unless it is renewed, 1 to 86400 seconds; the default is 60.
    lease: Option<u64>,
}

/// The options of a release.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseParams {
    /// Break the lock, whoever holds it.
    force: Option<bool>,
}

impl LockParams {
    fn lease(&self) -> Result<u64, Problem> {
        let lease = self.lease.unwrap_or(LEASE_S);
        match (1..=LEASE_MAX_S).contains(&lease) {
            true => Ok(lease),
            false => {
                let detail = format!("lease={lease}: expected 1 to {LEASE_MAX_S} seconds");
                Err(Problem::new(ProblemKind::BadRequest, detail))
            }
        }
    }
}

/// Returns a token that nobody can guess.
fn draw() -> Result<LockToken, Problem> {
    let mut random = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut random));
    read.map_err(|error| Problem::new(ProblemKind::Internal, format!("/dev/urandom: {error}")))?;
    Ok(LockToken::new(u128::from_ne_bytes(random)))
}

fn required(headers: &HeaderMap) -> Result<LockToken, Problem> {
    lock_token(headers)?.ok_or_else(|| {
        Problem::new(
            ProblemKind::BadRequest,
            "the header Lock-Token is missing: expected the token of the lock",
        )
    })
}

async fn take(app: &App, holder: String, lease_s: u64) -> Result<LockTaken, Problem> {
    let token = draw()?;
    let lock = app
        .with_store(move |store| store.lock(&holder, token, lease_s, now()))
        .await??;
    Ok(LockTaken {
        token: token.to_string(),
        lock: Lock::from(&lock),
    })
}

/// Read the lock on the configuration
#[utoipa::path(get, path = "/api/v1/lock", tag = "configuration",
    responses((status = 200, body = LockState), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn read(State(app): State<App>) -> Result<Json<LockState>, Problem> {
    let lock = app.store.locked(now());
    Ok(Json(LockState {
        lock: lock.as_ref().map(Lock::from),
    }))
}

/// Take the lock on the configuration
///
/// Until it is released, or its lease ends, changes without its token in the header `Lock-Token` are refused, whatever
/// front end they come from. Rollbacks of unconfirmed changes go on.
#[utoipa::path(post, path = "/api/v1/lock", tag = "configuration", params(LockParams),
    responses((status = 200, body = LockTaken),
        (status = 423, description = "Another session holds the lock", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn post(
    State(app): State<App>,
    Query(params): Query<LockParams>,
    peer: Peer,
    headers: HeaderMap,
) -> Result<Json<LockTaken>, Problem> {
    let note = note(peer, &headers, params.author.as_deref(), None)?;
    Ok(Json(take(&app, note.author().to_owned(), params.lease()?).await?))
}

/// Renew the lease of the lock
#[utoipa::path(put, path = "/api/v1/lock", tag = "configuration",
    params(LockParams, ("lock-token" = String, Header, description = "The token of the lock")),
    responses((status = 200, body = Lock),
        (status = 409, description = "The session does not hold the lock", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn renew(
    State(app): State<App>,
    Query(params): Query<LockParams>,
    headers: HeaderMap,
) -> Result<Json<Lock>, Problem> {
    let (token, lease) = (required(&headers)?, params.lease()?);
    let lock = app
        .with_store(move |store| store.renew_lock(token, lease, now()))
        .await??;
    Ok(Json(Lock::from(&lock)))
}

/// Release the lock, or break it
#[utoipa::path(delete, path = "/api/v1/lock", tag = "configuration",
    params(ReleaseParams, ("lock-token" = Option<String>, Header, description = "The token of the lock; not needed with `force`")),
    responses((status = 200, description = "The lock that was held", body = Lock),
        (status = 409, description = "The session does not hold the lock", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn release(
    State(app): State<App>,
    Query(params): Query<ReleaseParams>,
    peer: Peer,
    headers: HeaderMap,
) -> Result<Json<Lock>, Problem> {
    let is_forced = params.force.unwrap_or(false);
    let token = match is_forced {
        true => None,
        false => Some(required(&headers)?),
    };
    let lock = app.with_store(move |store| store.unlock(token, now())).await??;
    if is_forced {
        tracing::warn!(
            holder = lock.holder,
            by = peer.author(None),
            "the lock on the configuration was broken"
        );
    }
    Ok(Json(Lock::from(&lock)))
}

/// Hold the lock for as long as the response is open
///
/// Server-sent events. The event `lock` carries the token; the connection that reads the response holds the lock until
/// either side closes it. The event `lost` tells that somebody broke the lock, and ends the response.
#[utoipa::path(post, path = "/api/v1/lock/session", tag = "configuration", params(SessionParams),
    responses((status = 200, body = String, content_type = "text/event-stream"),
        (status = 423, description = "Another session holds the lock", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn session(
    State(app): State<App>,
    Query(params): Query<SessionParams>,
    peer: Peer,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let permit = app.long_request()?;
    let closing = app.closing();
    let note = note(peer, &headers, params.author.as_deref(), None)?;
    let taken = take(&app, note.author().to_owned(), SESSION_LEASE_S).await?;
    let stream = held(app, taken)?.take_until(closing).map(move |event| {
        // The stream owns the permit, so the permit is released when the stream ends.
        let _permit = &permit;
        Ok::<_, Infallible>(event)
    });
    Ok(Sse::new(stream)
        .keep_alive(KeepAlive::new().interval(SESSION_PERIOD))
        .into_response())
}

/// The options of a session that holds the lock.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionParams {
    /// The name of the holder.
    author: Option<String>,
}

/// The lock of a session, released on drop.
struct Held {
    store: Store,
    token: LockToken,
}

impl Drop for Held {
    fn drop(&mut self) {
        let (store, token) = (self.store.clone(), self.token);
        // A writer may wait for the disk. Without a runtime the process ends, and with it the lock.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn_blocking(move || {
                // The lock may be broken.
                let _not_held = store.unlock(Some(token), now());
            });
        }
    }
}

/// The progress of a session that holds the lock.
enum Session {
    Begins(LockTaken),
    Holds,
    Lost,
}

/// Returns the events of a session, which holds the lock until the stream is dropped.
fn held(app: App, taken: LockTaken) -> Result<impl Stream<Item = Event>, Problem> {
    let token = taken
        .token
        .parse()
        .map_err(|_| Problem::new(ProblemKind::Internal, "the token of the lock cannot be read"))?;
    let held = Held {
        store: app.store.clone(),
        token,
    };
    let mut watcher = app.store.watch_lock();
    watcher.mark_unchanged();
    let clock = tokio::time::interval(SESSION_PERIOD);
    let begin = (app, held, watcher, clock, Session::Begins(taken));
    Ok(stream::unfold(
        begin,
        |(app, held, mut watcher, mut clock, session)| async move {
            let event = |name: &str, text: String| Event::default().event(name).data(text);
            match session {
                Session::Begins(taken) => {
                    let text = serde_json::to_string(&taken).unwrap_or_default();
                    Some((event("lock", text), (app, held, watcher, clock, Session::Holds)))
                }
                Session::Holds => loop {
                    let is_due = tokio::select! {
                        _ = clock.tick() => true,
                        changed = watcher.changed() => { changed.ok()?; false }
                    };
                    let token = held.token;
                    let is_held = match is_due {
                        true => {
                            let renewed =
                                app.with_store(move |store| store.renew_lock(token, SESSION_LEASE_S, now()));
                            renewed.await.is_ok_and(|renewed| renewed.is_ok())
                        }
                        false => watcher
                            .borrow_and_update()
                            .as_ref()
                            .is_some_and(|lock| lock.is_held_by(token)),
                    };
                    if !is_held {
                        let lost = event("lost", "{}".to_owned());
                        return Some((lost, (app, held, watcher, clock, Session::Lost)));
                    }
                },
                Session::Lost => None,
            }
        },
    ))
}
