//! The stream of events as server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, Method};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream;
use millrace_ix_model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::access::{Principal, bearer, key_user};
use crate::app::{App, actor_of};
use crate::events::Logged;
use crate::problem::{Problem, ProblemKind};
use crate::request::Query;
use crate::streams::OpenStream;

/// The interval of heartbeats on an idle stream. A client that receives none knows that its connection is
/// dead.
const HEARTBEAT: Duration = Duration::from_secs(4);

/// The position from which a stream resumes.
#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct StreamParams {
    /// The id of the last event that the client has seen. The header `Last-Event-ID` has the same meaning.
    after: Option<String>,
}

/// An event as it is sent.
#[derive(Serialize)]
struct SseEvent {
    serial: u64,
    kind: &'static str,
    objects: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<String>,
}

/// Stream events
///
/// `begin` is the first event: it names the user, and its id is the position at which the stream begins.
/// `change` names the objects that were created, changed or deleted, or that have a new state. It names only
/// objects that the account may know of. After a broken connection, `Last-Event-ID` resumes without a gap.
/// `reset` reports that events were missed: the client must read all objects again. `beat` is sent after 4 s
/// without another event. The stream of an access token ends with the token.
#[utoipa::path(get, path = "/api/v1/events", tag = "events",
    params(StreamParams, ("last-event-id" = Option<String>, Header, description = "The id of the last event that the client has seen")),
    responses((status = 200, body = String, content_type = "text/event-stream"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn events(
    State(app): State<App>,
    principal: Principal,
    Query(params): Query<StreamParams>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let user = principal
        .actor
        .user
        .ok_or_else(|| Problem::new(ProblemKind::Unauthorized, "there is no session"))?;
    let open = app
        .streams
        .begin(user)
        .map_err(|error| Problem::new(ProblemKind::Busy, error.to_string()).retry_after(30))?;
    // A browser sends the header when it reconnects; it is newer than the parameter of the first request.
    let header = headers
        .get("last-event-id")
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned);
    let seen = header.or(params.after).filter(|id| !id.is_empty());
    let newest = app.events.newest();
    // The first event makes proxies and browsers see the stream at once.
    let begin = Event::default()
        .event("begin")
        .data(serde_json::json!({ "user": user.to_string() }).to_string());
    let (last, ready) = match seen.as_deref().map(|id| app.events.serial(id)) {
        // A client without an id has just read all objects, and can resume from here.
        None => (newest, VecDeque::from([begin.id(app.events.id(newest))])),
        Some(Some(serial)) if app.events.after(serial).is_some() => {
            (serial, VecDeque::from([begin.id(app.events.id(serial))]))
        }
        // `begin` has no id here. With an id, a client that loses its connection before `reset` would resume
        // and not notice the gap.
        Some(_) => (newest, VecDeque::from([begin, reset(&app, newest)])),
    };
    let stream = Follower {
        deleted_keys: None,
        token_end: bearer(&headers).and_then(|token| app.tokens.end(token)),
        watch: app.events.watch(),
        app,
        principal,
        headers,
        last,
        ready,
        _open: open,
    };
    let events = stream::unfold(stream, |mut stream| async move {
        let event = stream.next().await?;
        Some((Ok::<_, Infallible>(event), stream))
    });
    let mut response = Sse::new(events)
        .keep_alive(KeepAlive::new().interval(HEARTBEAT).event(beat()))
        .into_response();
    response
        .headers_mut()
        .insert("x-accel-buffering", axum::http::HeaderValue::from_static("no"));
    Ok(response)
}

fn reset(app: &App, serial: u64) -> Event {
    Event::default()
        .event("reset")
        .id(app.events.id(serial))
        .data("{}")
}

/// Returns the heartbeat of an idle stream. It has data, because a browser ignores an event without data.
fn beat() -> Event {
    Event::default().event("beat").data("{}")
}

struct Follower {
    app: App,
    principal: Principal,
    headers: HeaderMap,
    /// The number of deleted API keys when this stream last checked its key; `None` before the first event.
    deleted_keys: Option<u64>,
    /// The expiry of the access token that opened the stream; `None` for a session and an API key.
    token_end: Option<Timestamp>,
    watch: tokio::sync::watch::Receiver<u64>,
    /// The serial number of the last event that the stream examined.
    last: u64,
    ready: VecDeque<Event>,
    _open: OpenStream,
}

impl Follower {
    /// Returns the next event; `None` ends the stream.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let now = self.app.now();
            if self.token_end.is_some_and(|end| end <= now) {
                return None;
            }
            match self.app.events.after(self.last) {
                Some(events) if !events.is_empty() => {
                    // Roles and session may have ended since the last event.
                    self.renew().await?;
                    for event in events {
                        self.last = event.serial;
                        self.ready.extend(self.visible(&event));
                    }
                }
                Some(_) => {
                    let remaining = self.token_end.map(|end| end.since(now));
                    let token_expires = async {
                        match remaining {
                            Some(remaining) => tokio::time::sleep(remaining).await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        changed = self.watch.changed() => changed.ok()?,
                        () = token_expires => {}
                    }
                }
                None => {
                    self.last = self.app.events.newest();
                    self.ready.push_back(reset(&self.app, self.last));
                }
            }
        }
    }

    /// Reads the principal again; `None` if its session has ended or its API key was deleted.
    async fn renew(&mut self) -> Option<()> {
        let user = self.principal.actor.user?;
        if let Some(key) = bearer(&self.headers) {
            let deleted = Some(self.app.deleted_keys.load(Ordering::Acquire));
            if deleted != self.deleted_keys {
                key_user(&self.app, key, &Method::GET).await.ok()??;
                self.deleted_keys = deleted;
            }
        } else {
            // An open stream is not activity of the user. It does not prolong the session, which ends even if
            // events arrive.
            self.app.sessions.peek(&self.headers, self.app.now())?;
        }
        let snapshot = self.app.snapshot();
        self.principal.actor = actor_of(&snapshot, user)?;
        self.principal.snapshot = snapshot;
        Some(())
    }

    fn visible(&self, event: &Logged) -> Option<Event> {
        let objects = event.visible_to(&self.principal);
        if objects.is_empty() {
            return None;
        }
        let sent = SseEvent {
            serial: event.serial,
            kind: event.kind,
            objects: objects.iter().map(ToString::to_string).collect(),
            change: event.change.map(|change| format!("ch-{change}")),
        };
        let data = serde_json::to_string(&sent).unwrap_or_default();
        Some(
            Event::default()
                .event("change")
                .id(self.app.events.id(event.serial))
                .data(data),
        )
    }
}
