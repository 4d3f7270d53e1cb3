//! The author and the time of a revision.

use std::time::SystemTime;

use millrace_store::{Note, UnixTime};

use super::peer::Peer;

/// Returns the note of a revision. The system names the user of a Unix socket; `author` is only a claim of the
/// request.
pub(super) fn note(peer: Peer, author: Option<&str>, comment: Option<&str>) -> Note {
    Note::new(&peer.author(author), comment.unwrap_or(""))
}

/// Returns the time that the store records.
pub(super) fn now() -> UnixTime {
    UnixTime::from(SystemTime::now())
}
