//! The switch as front ends use it: documents in, revisions out.
//!
//! A front end reads the newest document, edits it, and writes it back with the number of the revision that it read. If
//! another one wrote meanwhile, the write fails with [`Failure::Stale`]: documents are never merged.

use data_encoding::HEXLOWER;
use serde_json::{Map, Value as Json};
use sha2::{Digest as _, Sha256};

/// The rights of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Read the configuration and the state.
    Read,
    /// Also change the configuration.
    Write,
    /// Also end sessions of others.
    Admin,
}

impl Role {
    /// Returns the word of the role.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Write => "write",
            Role::Admin => "admin",
        }
    }
}

/// A client of a front end: the author of its changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// The name of the user.
    pub name: String,
    /// The rights.
    pub role: Role,
}

/// The reason why the switch refused a request, by the types of its problems (docs/rest.md).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The document is invalid.
    #[error("{0}")]
    Invalid(String),
    /// An object belongs to another front end.
    #[error("{0}")]
    Owned(String),
    /// Another session holds the lock.
    #[error("{0}")]
    Locked(String),
    /// A revision waits for a confirmation, or none does.
    #[error("{0}")]
    Conflict(String),
    /// The configuration has changed since it was read.
    #[error("{0}")]
    Stale(String),
    /// The document is too large.
    #[error("{0}")]
    TooLarge(String),
    /// The switch cannot be reached, or failed.
    #[error("{0}")]
    Unavailable(String),
}

/// The document of a revision.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The number of the revision.
    pub revision: u64,
    /// The document, with all defaults.
    pub document: Map<String, Json>,
}

/// The options of a change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// Only check the change.
    pub dry_run: bool,
    /// The seconds after which it is taken back unless it is confirmed.
    pub confirm_within: Option<u64>,
    /// The comment of the revision.
    pub comment: String,
}

/// A revision that waits for its confirmation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// The number of the revision.
    pub revision: u64,
    /// The comment that was given with the change.
    pub comment: String,
}

/// The switch behind a front end. Each session has one of its own, which holds the token of the session's lock.
pub trait Datastore {
    /// Returns the newest revision.
    ///
    /// # Errors
    /// [`Failure`], as in every method below.
    fn running(&mut self) -> Result<Snapshot, Failure>;

    /// Replaces the configuration if `base` is the newest revision. Returns the number of the new one, or of the newest in a
    /// dry run.
    fn replace(&mut self, document: &Map<String, Json>, base: u64, change: &Change) -> Result<u64, Failure>;

    /// Returns the revision that waits for a confirmation.
    fn pending(&mut self) -> Result<Option<Pending>, Failure>;

    /// Confirms a pending revision.
    fn confirm(&mut self, revision: u64) -> Result<(), Failure>;

    /// Takes a pending revision back at once.
    fn cancel(&mut self, revision: u64, comment: &str) -> Result<(), Failure>;

    /// Takes the lock until [`Datastore::unlock`], or until this value is dropped.
    fn lock(&mut self) -> Result<(), Failure>;

    /// Releases the lock.
    fn unlock(&mut self) -> Result<(), Failure>;

    /// Returns the state of the switch, as the schema describes `switch_state`.
    fn state(&mut self) -> Result<Map<String, Json>, Failure>;
}

/// Returns the comment that records an identifier which confirms a change: NETCONF's `persist`, gNMI's commit id. It holds a
/// digest, so that readers of the history cannot confirm the change; it outlives every process.
pub fn confirmation_comment(kind: &str, id: &str) -> String {
    format!("{kind} {}", digest(id))
}

/// Returns true if a comment records this identifier.
pub fn is_confirmed_by(comment: &str, kind: &str, id: &str) -> bool {
    comment == confirmation_comment(kind, id)
}

fn digest(id: &str) -> String {
    format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(id.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_names_an_identifier_without_saying_it() {
        let comment = confirmation_comment("NETCONF confirmed commit", "secret");
        assert!(!comment.contains("secret"));
        assert!(is_confirmed_by(&comment, "NETCONF confirmed commit", "secret"));
        assert!(!is_confirmed_by(&comment, "NETCONF confirmed commit", "other"));
        assert!(!is_confirmed_by(&comment, "gNMI commit", "secret"));
        assert!(Role::Read < Role::Write && Role::Write < Role::Admin);
    }
}
