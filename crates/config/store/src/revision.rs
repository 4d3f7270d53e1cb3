//! Metadata of a revision: number, author, time, comment and origin.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millrace_model::Config;
use serde::{Deserialize, Serialize};

/// The number of a revision, counted from zero (the empty configuration of a new store) without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RevisionNo(pub u64);

impl fmt::Display for RevisionNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Wall-clock time in whole seconds since 1970-01-01 UTC. The store never reads a clock: callers pass the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnixTime(pub u64);

impl UnixTime {
    /// Returns this time plus `seconds`, saturating.
    pub const fn plus(self, seconds: u64) -> UnixTime {
        UnixTime(self.0.saturating_add(seconds))
    }

    /// Returns the duration from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: UnixTime) -> Duration {
        Duration::from_secs(self.0.saturating_sub(earlier.0))
    }
}

impl From<SystemTime> for UnixTime {
    /// Converts a system time; a time before 1970 becomes zero.
    fn from(time: SystemTime) -> UnixTime {
        UnixTime(time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }
}

/// The author of a change and a comment. Control characters except line feeds are replaced by blanks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Note {
    author: String,
    comment: String,
}

impl Note {
    /// The length limit of the author, in characters.
    pub const AUTHOR_MAX: usize = 128;
    /// The length limit of the comment, in characters.
    pub const COMMENT_MAX: usize = 2048;

    /// Returns a note; text beyond the limits is truncated.
    pub fn new(author: &str, comment: &str) -> Note {
        let clean = |text: &str, max: usize| {
            let plain = text
                .chars()
                .map(|c| if c.is_control() && c != '\n' { ' ' } else { c });
            plain.take(max).collect::<String>().trim().to_owned()
        };
        Note {
            author: clean(author, Note::AUTHOR_MAX),
            comment: clean(comment, Note::COMMENT_MAX),
        }
    }
}

/// The operation that created a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Origin {
    /// The empty configuration of a new store.
    Initial,
    /// A commit.
    Commit,
    /// A rollback to the content of an earlier revision.
    Rollback {
        /// The revision with the same content.
        to: RevisionNo,
    },
    /// Automatic rollback of a revision that was not confirmed before its deadline.
    Expired {
        /// The revision with the same content: the predecessor of the unconfirmed revision.
        to: RevisionNo,
    },
    /// Cancellation of an unconfirmed revision before its deadline.
    Cancelled {
        /// The revision with the same content: the predecessor of the unconfirmed revision.
        to: RevisionNo,
    },
}

/// A revision without its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Revision {
    /// The number of the revision.
    pub number: RevisionNo,
    /// The time of the commit, in seconds since 1970.
    pub time: UnixTime,
    /// The author.
    pub author: String,
    /// The comment.
    pub comment: String,
    /// The operation that created the revision.
    pub origin: Origin,
}

impl Revision {
    pub(crate) fn new(number: RevisionNo, time: UnixTime, note: Note, origin: Origin) -> Revision {
        Revision {
            number,
            time,
            author: note.author,
            comment: note.comment,
            origin,
        }
    }
}

/// A revision that is rolled back unless it is confirmed before a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Pending {
    /// The revision that awaits confirmation; it is the head.
    pub revision: RevisionNo,
    /// The revision whose content is restored by the rollback.
    pub fallback: RevisionNo,
    /// The time of the commit.
    pub since: UnixTime,
    /// The deadline: in this second the content is rolled back.
    pub deadline: UnixTime,
}

/// The state of the store at one moment, which watchers receive.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The newest revision.
    pub revision: Revision,
    /// The configuration of the newest revision.
    pub config: Arc<Config>,
    /// The pending confirmation of the newest revision, if any.
    pub pending: Option<Pending>,
}
