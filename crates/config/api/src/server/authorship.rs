//! The author, the session and the time of a change.

use std::time::SystemTime;

use axum::http::HeaderMap;
use millrace_store::{LockToken, Note, UnixTime};

use super::peer::Peer;
use crate::view::{Problem, ProblemKind};

/// The header with the token of the lock (RFC 4918, section 10.5, names it).
pub(super) const LOCK_TOKEN: &str = "lock-token";

/// Returns the note of a revision, with the token of the lock in `headers`. The system names the user of a Unix socket;
/// `author` is only a claim of the request.
pub(super) fn note(
    peer: Peer,
    headers: &HeaderMap,
    author: Option<&str>,
    comment: Option<&str>,
) -> Result<Note, Problem> {
    let note = Note::new(&peer.author(author), comment.unwrap_or(""));
    Ok(note.with_lock(lock_token(headers)?))
}

/// Returns the token of the lock in `headers`.
pub(super) fn lock_token(headers: &HeaderMap) -> Result<Option<LockToken>, Problem> {
    let Some(value) = headers.get(LOCK_TOKEN) else {
        return Ok(None);
    };
    let parsed = value.to_str().unwrap_or("?").trim().parse();
    parsed
        .map(Some)
        .map_err(|error| Problem::new(ProblemKind::BadRequest, format!("the header Lock-Token: {error}")))
}

/// Returns the time that the store records.
pub(super) fn now() -> UnixTime {
    UnixTime::from(SystemTime::now())
}
