//! The database of an exchange: objects with revisions, the change journal, the audit chain, and the answers to requests
//! that a client may retry.
//!
//! ```text
//!                one transaction                    audit chain
//!   objects ----+                       entry 1 <--- entry 2 <--- entry 3     each entry holds the
//!   journal ----+---> commit                                        ^         hash of the previous one
//!   answer  ----+                                                   |
//!   audit   ----+                                            signature of the head, every minute
//! ```
//!
//! [`Store`] is the interface with two implementations. [`Sqlite`] is one file of one engine, of mode 0600, in WAL mode with
//! `synchronous=FULL`, so that a committed transaction survives `kill -9` and a power cut. [`Postgres`] is a database that
//! several engines share. The exchange's objects are JSON; the store does not know their types, but the schema holds the
//! constraints on them that must never be violated. Time is an argument of every call that needs it.
//!
//! Only one process may write: the one that has begun to lead last, by opening the file or by taking the lease, has
//! incremented the epoch, and each transaction is refused if the epoch of the database is no longer the writer's.

#![forbid(unsafe_code)]

mod answer;
mod audit;
mod canonical;
mod clock;
mod error;
mod postgres;
mod schema;
mod setting;
mod sqlite;
mod standing;
mod time;
mod transaction;
mod write;

pub use audit::{
    AuditEntry, AuditRecord, BrokenChain, ChainSummary, GENESIS, Hash, NoHead, SignedHead, SigningKey,
    sha256_hex, verify,
};
pub use canonical::{CanonicalError, canonical};
pub use error::{Constraint, StoreError};
pub use postgres::{Postgres, PostgresSettings, SharedSeries};
pub use sqlite::Sqlite;
pub use standing::{Leader, Role, Standing};
pub use time::UnixMillis;
pub use transaction::{
    Answer, ChangeRecord, ChangeState, Committed, Contents, IdempotencyKey, JournalRecord, ObjectRow,
    Revision, Session, StoredAnswer, Transaction,
};

use serde_json::Value;

/// The database behind an exchange. One thread owns it; each call blocks until the medium has the data.
pub trait Store: Send {
    /// Returns the part of this engine among the engines of the database. The engine of a file always leads.
    ///
    /// After a new term, writes succeed only after [`Store::load`].
    fn standing(&mut self) -> Standing;

    /// Returns all objects, the changes that are not finished, and the counters from which numbering continues.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be read.
    fn load(&self) -> Result<Contents, StoreError>;

    /// Returns the newest time of the engine's clock that the database has recorded: that of a transaction or of a
    /// [`Store::prune`].
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be read.
    fn newest_time(&self) -> Result<UnixMillis, StoreError>;

    /// Begins a group of transactions that become durable together.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be written.
    fn begin(&mut self) -> Result<(), StoreError>;

    /// Writes a transaction of the group, all or nothing. Reads of this store see it; it is durable when the group is
    /// finished.
    ///
    /// # Errors
    /// [`StoreError`]; nothing of this transaction is written then, and the earlier ones of the group stay.
    fn write(&mut self, transaction: &Transaction, now: UnixMillis) -> Result<Committed, StoreError>;

    /// Ends the group. After `Ok` all its transactions are on the medium.
    ///
    /// # Errors
    /// [`StoreError`]; no transaction of the group is written then.
    fn finish(&mut self) -> Result<(), StoreError>;

    /// Ends the group without any of its transactions.
    fn abandon(&mut self);

    /// Writes a transaction, all or nothing. After `Ok` it is on the medium.
    ///
    /// # Errors
    /// [`StoreError`]; nothing of the transaction is written then.
    fn commit(&mut self, transaction: &Transaction, now: UnixMillis) -> Result<Committed, StoreError> {
        self.begin()?;
        match self.write(transaction, now) {
            Ok(committed) => self.finish().map(|()| committed),
            Err(error) => {
                self.abandon();
                Err(error)
            }
        }
    }

    /// Returns the answer that was given to the request with this key, if it is less than 24 hours old.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be read.
    fn answer(&self, key: &IdempotencyKey, now: UnixMillis) -> Result<Option<StoredAnswer>, StoreError>;

    /// Stores the answer to a request whose work is in no [`Transaction`].
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be written.
    fn put_answer(
        &mut self,
        key: &IdempotencyKey,
        answer: &Answer,
        now: UnixMillis,
    ) -> Result<(), StoreError>;

    /// Returns up to `limit` entries of the audit chain with serial numbers above `after`, oldest first.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be read.
    fn audit(&self, after: u64, limit: usize) -> Result<Vec<AuditRecord>, StoreError>;

    /// Returns up to `limit` entries of the audit chain with serial numbers below `before`, newest first.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be read.
    fn audit_before(&self, before: u64, limit: usize) -> Result<Vec<AuditRecord>, StoreError>;

    /// Signs the newest entry of the audit chain and stores the signature; returns `None` if the head is signed already.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be written.
    fn sign_head(&mut self, key: &SigningKey, now: UnixMillis) -> Result<Option<SignedHead>, StoreError>;

    /// Returns all signatures of the chain's heads, oldest first.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be read.
    fn signed_heads(&self) -> Result<Vec<SignedHead>, StoreError>;

    /// Returns the newest signature of the chain's head; `None` if there is none.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be read.
    fn newest_head(&self) -> Result<Option<SignedHead>, StoreError>;

    /// Returns up to `limit` changes with identifiers below `before`, newest first, finished ones included.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be read.
    fn changes(&self, before: u64, limit: usize) -> Result<Vec<ChangeRecord>, StoreError>;

    /// Returns the journal of a change, oldest record first.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be read.
    fn journal(&self, change: u64) -> Result<Vec<JournalRecord>, StoreError>;

    /// Stores a session under the hash of its token, or replaces it.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be written.
    fn put_session(&mut self, session: &Session) -> Result<(), StoreError>;

    /// Returns the session with this token hash, unless it has expired.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be read.
    fn session(&self, token_hash: &str, now: UnixMillis) -> Result<Option<Session>, StoreError>;

    /// Deletes a session; a session that does not exist is no error.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be written.
    fn delete_session(&mut self, token_hash: &str) -> Result<(), StoreError>;

    /// Returns a setting of the engine.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be read.
    fn setting(&self, name: &str) -> Result<Option<Value>, StoreError>;

    /// Writes a setting of the engine, or removes it.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be written.
    fn put_setting(&mut self, name: &str, value: Option<&Value>) -> Result<(), StoreError>;

    /// Raises the revision to at least `revision`, after an operator has decided about switches that hold
    /// this revision.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be written.
    fn raise_revision(&mut self, revision: Revision) -> Result<(), StoreError>;

    /// Raises the epoch above `latest`, and returns it: a switch that was led in a later epoch than that of a restored
    /// database accepts no other one.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if another engine has opened the database since; it leads.
    fn raise_epoch(&mut self, latest: u64) -> Result<u64, StoreError>;

    /// Returns a credential: a password hash, a sealed secret, the hash of an API key.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be read.
    fn credential(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Writes a credential, or removes it.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be written.
    fn put_credential(&mut self, key: &str, value: Option<&[u8]>) -> Result<(), StoreError>;

    /// Returns the keys of all credentials that begin with `prefix`, in order.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be read.
    fn credential_keys(&self, prefix: &str) -> Result<Vec<String>, StoreError>;

    /// Sets the newest time back to `now`, and records `entry` in the audit chain. Answers to retried requests and sessions
    /// that bear a later time are deleted, because they would not end for as long as the clock was ahead. Entries of
    /// journal and audit chain keep the times that they have; their order is that of their numbers. Returns the newest
    /// time that the database had.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be written. The call may be repeated.
    fn reset_time(&mut self, now: UnixMillis, entry: AuditEntry) -> Result<UnixMillis, StoreError>;

    /// Deletes answers older than 24 hours and expired sessions, and records the time.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be written.
    fn prune(&mut self, now: UnixMillis) -> Result<(), StoreError>;
}
