//! What can go wrong, one enum per operation, each message with its remedy.

use std::io;
use std::path::PathBuf;

use millrace_model::ConfigErrors;
use thiserror::Error;

use crate::revision::{RevisionNo, UnixTime};

/// Why a store cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it open.
    #[error("{}: in use by another process: stop the other millraced, or give this one its own state_dir", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The process may not read or write it.
    #[error("{}: no permission: run as the owner of the directory, or set state_dir to one that this user can write", path.display())]
    Permission {
        /// The file or directory.
        path: PathBuf,
    },
    /// Others may write to the directory, and could replace the store.
    #[error(
        "{}: users other than its owner may write there (mode {mode:04o}) and so decide what the switch does: `chmod go-w {}`, \
         or set state_dir to a directory of its own",
        path.display(), path.display()
    )]
    Exposed {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The file is damaged, or no store.
    #[error("{}: not a sound store ({detail}): restore it from a backup, or move it away to begin with the configuration file", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// A later version of Millrace wrote it.
    #[error("{}: written by a newer millrace (schema {found}, this one knows up to {known}): upgrade, or move it away", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The schema of the file.
        found: u64,
        /// The newest schema that this version knows.
        known: u64,
    },
    /// Anything else the system says.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The store cannot be read or written any more. What was acknowledged is safe; what was under way may or
/// may not be there after the next start.
#[derive(Debug, Error)]
#[error("the configuration store failed ({detail}): check the disk of state_dir, then restart millraced")]
pub struct StorageError {
    pub(crate) detail: String,
}

impl StorageError {
    pub(crate) fn new(detail: &impl ToString) -> StorageError {
        StorageError {
            detail: detail.to_string(),
        }
    }
}

macro_rules! from {
    ($($error:ty),*) => {$(
        impl From<$error> for StorageError {
            fn from(error: $error) -> StorageError {
                StorageError::new(&error)
            }
        }
    )*};
}

from!(
    redb::DatabaseError,
    redb::TransactionError,
    redb::TableError,
    redb::StorageError,
    redb::CommitError,
    serde_json::Error
);

/// Why a revision cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// There is no such revision, or not any more.
    #[error("revision {wanted} is not there: the store holds {oldest} to {newest}")]
    NoSuchRevision {
        /// The number that was asked for.
        wanted: RevisionNo,
        /// The oldest revision that is kept.
        oldest: RevisionNo,
        /// The newest revision.
        newest: RevisionNo,
    },
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Why a change was not committed. Nothing has changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CommitError {
    /// Somebody else committed first.
    #[error("the configuration is at revision {head}, not {expected}: read it again and repeat the change")]
    Conflict {
        /// The revision that the change was made from.
        expected: RevisionNo,
        /// The newest revision.
        head: RevisionNo,
    },
    /// The configuration is not legal.
    #[error("{0}")]
    Invalid(#[from] ConfigErrors),
    /// The head waits to be confirmed.
    #[error("revision {revision} waits to be confirmed: confirm it or cancel it first")]
    Unconfirmed {
        /// The revision that waits.
        revision: RevisionNo,
        /// When it is taken back.
        deadline: UnixTime,
    },
    /// The deadline of a confirmed commit is not in the future.
    #[error("the deadline {deadline} is not after {now}: expected a time to confirm in", deadline = deadline.0, now = now.0)]
    DeadlinePassed {
        /// The deadline that was given.
        deadline: UnixTime,
        /// The time that was given.
        now: UnixTime,
    },
    /// The revision to go back to cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Why there is nothing to confirm or to cancel.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfirmError {
    /// No revision waits: it was confirmed, cancelled, or its time ran out.
    #[error("no revision waits to be confirmed (the configuration is at revision {head})")]
    NothingPending {
        /// The newest revision.
        head: RevisionNo,
    },
    /// Another revision waits.
    #[error("revision {pending} waits to be confirmed, not {wanted}")]
    OtherPending {
        /// The revision that was named.
        wanted: RevisionNo,
        /// The revision that waits.
        pending: RevisionNo,
    },
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}
