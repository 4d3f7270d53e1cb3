//! The state that others follow, and its events.

use axum::Json;
use axum::extract::State as Shared;
use axum::response::sse::Event;
use futures::stream::{self, Stream};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::server::app::App;
use crate::server::extract::Query;
use crate::server::journal::{Changes, Cursor, Entry, Journal};
use crate::view::{Problem, ProblemKind, State, StateEvent, StateKind, StateReset};

/// The number of changes that a stream takes from the journal at once.
const BATCH_LEN: usize = 64;

/// The kinds to read.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct StateParams {
    /// The kinds, separated by commas: `revisions`, `confirmation`, `ports`, `links`, `neighbours`, `lldp`, `shortfalls`;
    /// all unless given.
    kinds: Option<String>,
}

/// Returns the kinds in a list that is separated by commas.
pub(super) fn kinds(text: &str) -> Result<Vec<StateKind>, Problem> {
    let kinds = text.split(',').map(|word| word.trim().parse());
    let kinds: Result<Vec<StateKind>, _> = kinds.collect();
    kinds.map_err(|error| Problem::new(ProblemKind::BadRequest, format!("kinds: {error}")))
}

/// Read the state that others follow
///
/// Present values, and the cursor from which `/api/v1/events?kinds=…&after=CURSOR` streams their changes without a gap.
#[utoipa::path(get, path = "/api/v1/state", tag = "history", params(StateParams),
    responses((status = 200, body = State), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn state(
    Shared(app): Shared<App>,
    Query(params): Query<StateParams>,
) -> Result<Json<State>, Problem> {
    let kinds = match &params.kinds {
        Some(text) => kinds(text)?,
        None => StateKind::ALL.to_vec(),
    };
    Ok(Json(app.journal.state(&kinds)))
}

/// Returns the changes of `kinds` after `place` as events.
pub(super) fn follow(
    app: &App,
    kinds: Vec<StateKind>,
    place: Option<Cursor>,
) -> impl Stream<Item = Event> + use<> {
    let journal = app.journal.clone();
    let reader = Reader {
        newest: journal.watch(),
        journal,
        kinds,
        place,
        ready: Vec::new().into_iter(),
    };
    stream::unfold(reader, |mut reader| async move {
        let event = reader.next().await?;
        Some((event, reader))
    })
}

/// A stream at its place.
struct Reader {
    journal: Journal,
    newest: watch::Receiver<u64>,
    kinds: Vec<StateKind>,
    place: Option<Cursor>,
    /// The changes that were taken from the journal.
    ready: std::vec::IntoIter<Entry>,
}

impl Reader {
    /// Returns the next event. `None` if the journal is gone.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(entry) = self.ready.next() {
                return Some(changed(&entry));
            }
            // A change after this line wakes the wait below.
            self.newest.mark_unchanged();
            match self.journal.after(self.place, &self.kinds, BATCH_LEN) {
                Changes::Lost(present) => {
                    self.place = Some(present);
                    return Some(reset(present));
                }
                Changes::Next(entries, end) => {
                    let is_end = self.place.replace(end) == Some(end);
                    self.ready = entries.into_iter();
                    if is_end {
                        self.newest.changed().await.ok()?;
                    }
                }
            }
        }
    }
}

fn changed(entry: &Entry) -> Event {
    let data = StateEvent {
        key: entry.key.to_string(),
        value: entry.value.as_deref().cloned(),
    };
    event(entry.kind.name(), entry.cursor, &data)
}

/// Returns the event of a stream whose place is not in the journal.
fn reset(present: Cursor) -> Event {
    let data = StateReset {
        cursor: present.to_string(),
        detail:
            "the events after the cursor of the request are not available, or it has none: read /api/v1/state"
                .to_owned(),
    };
    event("reset", present, &data)
}

fn event(name: &str, cursor: Cursor, data: &impl Serialize) -> Event {
    let text = serde_json::to_string(data).unwrap_or_default();
    Event::default().event(name).id(cursor.to_string()).data(text)
}
