//! The change stream: server-sent events, one for each revision, from the last one that the client has seen.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use futures::stream::{self, Stream};
use millrace_store::{Pending, RevisionNo, Snapshot};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::state::follow;
use crate::server::app::App;
use crate::server::extract::Query;
use crate::view::{ConfirmPending, Confirmation, Problem, ProblemKind, Revision};

/// The interval of keep-alive comments on an idle stream. Failed writes of comments reveal dead connections.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Stream every change of the configuration
///
/// Server-sent events. The event `revision` carries a revision and has the number of the revision as id.
/// After a broken connection, `Last-Event-ID` resumes the stream without a gap. The event `confirmation`
/// carries the revision that waits for a confirmation, or null; a resumed stream repeats it after the missed
/// revisions. The event `gap` reports missed revisions that are no longer stored. The stream begins with the
/// newest revision, or with the one after `Last-Event-ID`.
///
/// With `kinds`, the stream carries changes of the state of `/api/v1/state` instead, one event for each, which has the
/// name of its kind; its id is a cursor. It begins after the cursor `after`, or after that of `Last-Event-ID`. The event
/// `reset` tells that changes in between are not available: the reader was too slow, or the daemon was restarted.
#[utoipa::path(get, path = "/api/v1/events", tag = "history",
    params(EventsParams, ("last-event-id" = Option<String>, Header, description = "The number of the last revision that the client has seen; with `kinds`, the last cursor")),
    responses((status = 200, body = String, content_type = "text/event-stream"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn events(
    State(app): State<App>,
    Query(params): Query<EventsParams>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let permit = app.long_request()?;
    let closing = app.closing();
    let stream = match &params.kinds {
        Some(kinds) => {
            let last = headers.get("last-event-id").and_then(|value| value.to_str().ok());
            let place = last
                .or(params.after.as_deref())
                .and_then(|text| text.parse().ok());
            follow(&app, super::state::kinds(kinds)?, place).left_stream()
        }
        None => changes(app, seen(&headers)?).right_stream(),
    };
    let stream = stream.take_until(closing).map(move |event| {
        // The stream owns the permit, so the permit is released when the stream ends.
        let _permit = &permit;
        Ok::<_, Infallible>(event)
    });
    Ok(Sse::new(stream)
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
        .into_response())
}

/// The options of the change stream.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsParams {
    /// Stream changes of these kinds of state, separated by commas, instead of all revisions.
    kinds: Option<String>,
    /// With `kinds`: the cursor after which the stream begins. `Last-Event-ID` takes precedence.
    after: Option<String>,
}

/// Returns the number of the last revision that the client has seen.
fn seen(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    Ok(
        match headers
            .get("last-event-id")
            .map(|value| value.to_str().unwrap_or("?"))
        {
            None | Some("") => None,
            Some(text) => Some(text.parse::<u64>().map_err(|_| {
                Problem::new(
                    ProblemKind::BadRequest,
                    "Last-Event-ID is not a revision: expected a number",
                )
            })?),
        },
    )
}

struct Watcher {
    app: App,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    /// The last revision that was sent.
    last: u64,
    /// The confirmation that was sent last; `None` if the client resumes and may have missed it.
    pending: Option<Option<Pending>>,
    ready: VecDeque<Event>,
}

fn changes(app: App, seen: Option<u64>) -> impl Stream<Item = Event> {
    let mut snapshots = app.store.watch();
    let head = Arc::clone(&snapshots.borrow_and_update());
    let newest = head.revision.number.0;
    let mut ready = VecDeque::new();
    // A number above the newest revision belongs to another store.
    let last = seen.filter(|seen| *seen <= newest);
    let resumes = last.is_some();
    if !resumes {
        ready.push_back(revision_event(&Revision::from(&head.revision)));
        if head.pending.is_some() {
            ready.push_back(confirmation_event(head.pending));
        }
    }
    let watcher = Watcher {
        app,
        snapshots,
        last: last.unwrap_or(newest),
        pending: (!resumes).then_some(head.pending),
        ready,
    };
    stream::unfold((watcher, resumes), |(mut watcher, mut missed)| async move {
        loop {
            if missed {
                watcher.catch_up().await?;
                missed = false;
            }
            if let Some(event) = watcher.ready.pop_front() {
                return Some((event, (watcher, missed)));
            }
            watcher.snapshots.changed().await.ok()?;
            missed = true;
        }
    })
}

impl Watcher {
    /// Queues events for all changes since the last event. Returns `None` if the store failed.
    async fn catch_up(&mut self) -> Option<()> {
        let last = RevisionNo(self.last);
        let (head, revisions) = {
            let head = Arc::clone(&self.snapshots.borrow_and_update());
            let revisions = self
                .app
                .with_store(move |store| store.since(last))
                .await
                .ok()?
                .ok()?;
            (head, revisions)
        };
        // Revisions after the snapshot are sent with the next snapshot, so that confirmations keep their
        // order.
        let known = revisions
            .iter()
            .filter(|revision| revision.number <= head.revision.number);
        for revision in known {
            // A revision stands for those of the same machine that it replaced.
            let first = revision.replaces.unwrap_or(revision.number).0;
            if first > self.last + 1 {
                self.ready.push_back(json_event(
                    "gap",
                    &Gap {
                        after: self.last,
                        before: first,
                    },
                ));
            }
            self.last = revision.number.0;
            self.ready.push_back(revision_event(&Revision::from(revision)));
        }
        if self.pending != Some(head.pending) {
            self.pending = Some(head.pending);
            self.ready.push_back(confirmation_event(head.pending));
        }
        Some(())
    }
}

/// Revisions that are no longer stored.
#[derive(Serialize)]
struct Gap {
    after: u64,
    before: u64,
}

fn revision_event(revision: &Revision) -> Event {
    json_event("revision", revision).id(revision.number.to_string())
}

fn confirmation_event(pending: Option<Pending>) -> Event {
    json_event(
        "confirmation",
        &Confirmation {
            pending: pending.map(ConfirmPending::from),
        },
    )
}

fn json_event(name: &str, data: &impl Serialize) -> Event {
    let text = serde_json::to_string(data).unwrap_or_default();
    Event::default().event(name).data(text)
}
