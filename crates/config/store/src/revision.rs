//! What the store keeps of each change: its number, who made it, when, why, and how it came about.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millrace_model::Config;
use serde::{Deserialize, Serialize};

/// The number of a revision. They are counted from zero (the empty configuration of a new store)
/// without gaps; a larger number is later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RevisionNo(pub u64);

impl fmt::Display for RevisionNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Wall-clock time in whole seconds since 1970-01-01 UTC. The store never reads a clock: its callers
/// say what time it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnixTime(pub u64);

impl UnixTime {
    /// This time and `seconds` more; saturates at the end of time.
    pub const fn plus(self, seconds: u64) -> UnixTime {
        UnixTime(self.0.saturating_add(seconds))
    }

    /// How long from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: UnixTime) -> Duration {
        Duration::from_secs(self.0.saturating_sub(earlier.0))
    }
}

impl From<SystemTime> for UnixTime {
    /// A time before 1970 becomes zero.
    fn from(time: SystemTime) -> UnixTime {
        UnixTime(time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }
}

/// Who changes the configuration, and why. Control characters become blanks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Note {
    author: String,
    comment: String,
}

impl Note {
    /// The longest author, in characters.
    pub const AUTHOR_MAX: usize = 128;
    /// The longest comment, in characters.
    pub const COMMENT_MAX: usize = 2048;

    /// A note; what is longer than the maximum is cut.
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

/// How a revision came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Origin {
    /// The empty configuration of a new store.
    Initial,
    /// Somebody committed it.
    Commit,
    /// Somebody went back to the content of an earlier revision.
    Rollback {
        /// Whose content it has.
        to: RevisionNo,
    },
    /// An unconfirmed revision was taken back because its time ran out.
    Expired {
        /// Whose content it has: the revision before the unconfirmed one.
        to: RevisionNo,
    },
    /// Somebody took an unconfirmed revision back before its time.
    Cancelled {
        /// Whose content it has: the revision before the unconfirmed one.
        to: RevisionNo,
    },
}

/// A revision without its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Revision {
    /// Its number.
    pub number: RevisionNo,
    /// When it was committed, in seconds since 1970.
    pub time: UnixTime,
    /// Who made it.
    pub author: String,
    /// Why.
    pub comment: String,
    /// How it came about.
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

/// A revision that is taken back unless somebody confirms it in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Pending {
    /// The revision that waits, which is the head.
    pub revision: RevisionNo,
    /// The revision whose content comes back.
    pub fallback: RevisionNo,
    /// When the wait began.
    pub since: UnixTime,
    /// When it ends: at this second the content is taken back.
    pub deadline: UnixTime,
}

/// What the store holds at one moment: what watchers see.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The newest revision.
    pub revision: Revision,
    /// Its content.
    pub config: Arc<Config>,
    /// Whether it still waits to be confirmed.
    pub pending: Option<Pending>,
}
