//! Metadata of a revision: number, author, time, comment, operation and origin.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use millrace_model::Config;
use serde::{Deserialize, Serialize};

use crate::lock::LockToken;
use crate::origin::{Origin, Owners};
use crate::time::UnixTime;

/// The number of a revision, counted from zero (the empty configuration of a new store). Each change takes the next
/// number; the number of a revision that another one replaced names no revision any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RevisionNo(pub u64);

impl fmt::Display for RevisionNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The author of a change, a comment, and the front end that makes it. Control characters except line feeds are replaced
/// by blanks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Note {
    author: String,
    comment: String,
    origin: Origin,
    external: Option<u64>,
    lock: Option<LockToken>,
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
            ..Note::default()
        }
    }

    /// Returns the note of a change of `origin`.
    #[must_use]
    pub fn of(self, origin: Origin) -> Note {
        Note { origin, ..self }
    }

    /// Returns the note with the number that the desired state has at its origin: `next_cfg` of an Open vSwitch database,
    /// `mod_revision` of a key in etcd. The origin `local` has no such numbers.
    #[must_use]
    pub fn external(self, number: u64) -> Note {
        Note {
            external: Some(number),
            ..self
        }
    }

    /// Returns the note of a session that may hold the lock.
    #[must_use]
    pub fn with_lock(self, lock: Option<LockToken>) -> Note {
        Note { lock, ..self }
    }

    /// Returns the origin of the change.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns the name of the author.
    pub fn author(&self) -> &str {
        &self.author
    }

    pub(crate) fn comment(&self) -> &str {
        &self.comment
    }

    pub(crate) fn lock(&self) -> Option<LockToken> {
        self.lock
    }

    /// Returns the external number, for a machine.
    pub(crate) fn external_number(&self) -> Option<(&Origin, u64)> {
        let number = self.external.filter(|_| !self.origin.is_local())?;
        Some((&self.origin, number))
    }
}

/// The operation that created a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Operation {
    /// The empty configuration of a new store.
    Initial,
    /// A commit.
    Commit,
    /// Objects were given to another owner; the content is that of the revision before.
    Own,
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
    /// The operation that created the revision. Its key in the store is the one of schema 1.
    #[serde(rename = "origin")]
    pub operation: Operation,
    /// The front end that made the change; `local` if the store has none.
    #[serde(rename = "source", default, skip_serializing_if = "Origin::is_local")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub origin: Origin,
    /// The number that the desired state has at its origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<u64>,
    /// The first of the revisions that this one replaced, up to the number before its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<RevisionNo>,
}

impl Revision {
    pub(crate) fn new(number: RevisionNo, time: UnixTime, note: Note, operation: Operation) -> Revision {
        let external = note.external_number().map(|(_, number)| number);
        Revision {
            number,
            time,
            author: note.author,
            comment: note.comment,
            operation,
            origin: note.origin,
            external,
            replaces: None,
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
    /// The owners of the objects of the configuration.
    pub owners: Arc<Owners>,
    /// The highest external number that each machine committed.
    pub externals: Arc<BTreeMap<Origin, u64>>,
}
