//! The reasons why an order, or the start, fails.

use millrace_ix_model::{ObjectId, Refusal};
use millrace_ix_store::{Revision, StoreError};

/// An order was not accepted; nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OrderError {
    /// The model refuses the order.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The object has changed since the caller read it.
    #[error("{object} has changed since revision {expected}: read it again")]
    Stale {
        object: ObjectId,
        /// The revision that the caller read.
        expected: Revision,
        /// The present revision; `None` if the object is gone.
        found: Option<Revision>,
    },
    /// The idempotency key was used for another request.
    #[error("the idempotency key belongs to another request of the last 24 hours: use a new key")]
    KeyReused,
    /// The engine is read-only.
    #[error("{0}")]
    ReadOnly(String),
    /// The database cannot be written at present; the same order may succeed later.
    #[error("{0}")]
    Unavailable(String),
    /// Another engine leads, and accepts the order.
    #[error("{0}")]
    Follows(String),
    /// The service has ended.
    #[error("the engine has ended")]
    Stopped,
}

impl OrderError {
    /// Returns the error for a failed transaction.
    pub(crate) fn from_store(error: &StoreError) -> OrderError {
        match error {
            StoreError::Constraint { constraint, .. } => {
                OrderError::Refused(Refusal::conflict(constraint.to_string()))
            }
            StoreError::Follows { .. } => OrderError::Follows(error.to_string()),
            _ => OrderError::Unavailable(error.to_string()),
        }
    }
}

/// The service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The database fails.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The program cannot read an object of the database.
    #[error("object {id} in the database: {reason}; start the version that wrote it")]
    Object {
        /// The object.
        id: String,
        reason: String,
    },
    /// A change in the journal cannot be read.
    #[error("change {id} in the journal: {reason}; start the version that wrote it")]
    Change {
        /// The change.
        id: u64,
        reason: String,
    },
    /// The thread cannot be started.
    #[error("the engine's thread: {0}")]
    Thread(std::io::Error),
}
