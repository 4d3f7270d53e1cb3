//! The contents of a transaction, and the contents of the database as they are read at the start.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::audit::AuditEntry;
use crate::time::UnixMillis;

/// The maximum number of starts by which the epoch of a switch may be ahead of the database. A larger number does not
/// come from an engine, and could leave no epoch for the next start.
pub(crate) const EPOCHS_AHEAD_MAX: u64 = 1 << 32;
/// The time for which an answer is kept, in milliseconds: 24 hours.
pub(crate) const ANSWER_LIFETIME: u64 = 24 * 60 * 60 * 1000;

/// The number of a committed transaction; an object has the revision of the transaction that wrote it last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An object of the exchange, as the database holds it.
#[derive(Clone, PartialEq, Debug)]
pub struct ObjectRow {
    /// The collection: `connection`, `service`, `config`…
    pub kind: String,
    /// The identifier within the collection.
    pub id: u32,
    /// The revision that wrote the object; ignored in a [`Transaction`].
    pub revision: Revision,
    /// The object's JSON.
    pub body: Value,
}

/// The state of a change in the journal.
///
/// ```text
/// accepted -> planned -> staged -> flipped -> drained -> cleaned
///     |          |
///     +----------+-----> rolled_back        (nothing has flipped yet)
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeState {
    /// The objects are written; nothing has been sent to a switch.
    Accepted,
    /// The new generation is being installed alongside the old one.
    Planned,
    /// All switches have confirmed the new generation; the flip begins. From here the change can only go forward.
    Staged,
    /// All ingress switches use the new generation; frames of the old one may still be under way.
    Flipped,
    /// No frame of the old generation is under way; its entries are being removed.
    Drained,
    /// The old generation is gone.
    Cleaned,
    /// The change is undone; the objects are as before.
    RolledBack,
}

impl ChangeState {
    /// All states, in the order of a change that succeeds, and then [`ChangeState::RolledBack`].
    pub const ALL: [ChangeState; 7] = [
        ChangeState::Accepted,
        ChangeState::Planned,
        ChangeState::Staged,
        ChangeState::Flipped,
        ChangeState::Drained,
        ChangeState::Cleaned,
        ChangeState::RolledBack,
    ];

    /// Returns `true` if nothing remains to be done.
    pub fn is_final(self) -> bool {
        matches!(self, ChangeState::Cleaned | ChangeState::RolledBack)
    }

    /// Returns the name, as the journal and the REST API write it.
    pub fn name(self) -> &'static str {
        match self {
            ChangeState::Accepted => "accepted",
            ChangeState::Planned => "planned",
            ChangeState::Staged => "staged",
            ChangeState::Flipped => "flipped",
            ChangeState::Drained => "drained",
            ChangeState::Cleaned => "cleaned",
            ChangeState::RolledBack => "rolled_back",
        }
    }
}

impl fmt::Display for ChangeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ChangeState {
    type Err = String;

    fn from_str(text: &str) -> Result<ChangeState, String> {
        let found = ChangeState::ALL.into_iter().find(|state| state.name() == text);
        found.ok_or_else(|| format!("{text:?} is no state of a change"))
    }
}

/// A step of a change.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JournalRecord {
    pub change: u64,
    /// The state that the change enters.
    pub state: ChangeState,
    /// The time of the record.
    pub at: UnixMillis,
    /// Details in words or numbers: the reason of a rollback, the objects of an accepted change.
    #[serde(default)]
    pub detail: Value,
}

/// A change with its newest state.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ChangeRecord {
    /// The number of the change.
    pub id: u64,
    /// The newest state in the journal.
    pub state: ChangeState,
    /// The time at which the change was accepted.
    pub accepted_at: UnixMillis,
    /// The time of the newest journal record.
    pub updated_at: UnixMillis,
    /// The detail of the `accepted` record: actor, operation, objects before and after.
    pub detail: Value,
}

/// The key with which a client marks a request, so that it can repeat the request safely.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct IdempotencyKey {
    /// The account, user or API client to which the key belongs.
    pub scope: String,
    /// The value of the header `Idempotency-Key`.
    pub key: String,
}

/// An answer for a retried request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The hash of the request, so that the same key with another request is detected.
    pub request_hash: String,
    /// The answer.
    pub body: Value,
}

/// An answer in the database.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredAnswer {
    pub answer: Answer,
    /// The time of the answer.
    pub at: UnixMillis,
}

/// A session of a signed-in user.
#[derive(Clone, PartialEq, Debug)]
pub struct Session {
    /// The hash of the token; the token itself is not stored.
    pub token_hash: String,
    /// The end of the session.
    pub expires: UnixMillis,
    /// The session's JSON: user, address, time of sign-in.
    pub body: Value,
}

/// Writes that become visible together.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Transaction {
    /// Objects that are created or replaced.
    pub puts: Vec<ObjectRow>,
    /// Objects (kind, id) that are deleted.
    pub deletes: Vec<(String, u32)>,
    /// Journal records. A record in state `accepted` creates its change.
    pub journal: Vec<JournalRecord>,
    /// Audit entries, in order.
    pub audit: Vec<AuditEntry>,
    /// Answers for retried requests.
    pub answers: Vec<(IdempotencyKey, Answer)>,
    /// Settings by name; `None` removes one.
    pub settings: Vec<(String, Option<Value>)>,
}

impl Transaction {
    /// Returns `true` if the transaction would write nothing.
    pub fn is_empty(&self) -> bool {
        self.puts.is_empty()
            && self.deletes.is_empty()
            && self.journal.is_empty()
            && self.audit.is_empty()
            && self.answers.is_empty()
            && self.settings.is_empty()
    }
}

/// The outcome of a committed transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    /// The revision of the transaction.
    pub revision: Revision,
    /// The serial number of the newest audit entry.
    pub audit_serial: u64,
}

/// The database at the start of an engine.
#[derive(Clone, PartialEq, Debug)]
pub struct Contents {
    /// The epoch of this engine: each opening of the database has a larger one.
    pub epoch: u64,
    /// The revision of the newest transaction.
    pub revision: Revision,
    /// All objects, by kind and identifier.
    pub objects: Vec<ObjectRow>,
    /// The changes that are not finished, oldest first.
    pub open_changes: Vec<ChangeRecord>,
    /// The number of the next change.
    pub next_change: u64,
}
