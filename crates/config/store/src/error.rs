//! Errors of the store, one enum per operation, each message with a next step.

use std::io;
use std::path::PathBuf;

use millrace_model::{ConfigErrors, ObjectError};
use thiserror::Error;

use crate::lock;
use crate::origin::{Origin, Owned};
use crate::revision::RevisionNo;
use crate::time::UnixTime;

/// Reasons why a store cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has the store open.
    #[error("{}: in use by another process: stop the other millraced, or give this one its own state_dir", path.display())]
    Locked { path: PathBuf },
    /// The process has no permission to read or write the file.
    #[error("{}: no permission: run as the owner of the directory, or set state_dir to one that this user can write", path.display())]
    Permission {
        /// The file or directory.
        path: PathBuf,
    },
    /// Other users may write to the directory and could replace the store.
    #[error(
        "{}: users other than its owner may write there (mode {mode:04o}) and replace the configuration: `chmod go-w {}`, \
         or set state_dir to a directory of its own",
        path.display(), path.display()
    )]
    Exposed {
        path: PathBuf,
        /// The permission bits of the directory.
        mode: u32,
    },
    /// The file is damaged or is not a store.
    #[error("{}: not a valid store ({detail}): restore it from a backup, or move it away to start with the configuration file", path.display())]
    Corrupt {
        path: PathBuf,
        /// The defect found.
        detail: String,
    },
    /// A later version of Millrace wrote it.
    #[error("{}: written by a newer millrace (schema {found}, this version supports up to {known}): upgrade, or move it away", path.display())]
    Newer {
        path: PathBuf,
        /// The schema of the file.
        found: u64,
        /// The newest schema that this version supports.
        known: u64,
    },
    /// Any other system error.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system error.
        source: io::Error,
    },
}

/// An error of the database or its medium. Acknowledged changes are safe; an unacknowledged change may or may not be
/// present after the next start.
#[derive(Debug, Error)]
#[error(
    "the configuration store failed ({detail}): check the disk of state_dir; the next access opens it again"
)]
pub struct StorageError {
    pub(crate) detail: String,
    /// The error of the medium, in this operation or in an earlier one; `None` if it did not fail.
    pub(crate) medium: Option<io::ErrorKind>,
}

impl StorageError {
    pub(crate) fn new(detail: &impl ToString) -> StorageError {
        StorageError {
            detail: detail.to_string(),
            medium: None,
        }
    }
}

macro_rules! from {
    ($($error:ty),*) => {$(
        impl From<$error> for StorageError {
            fn from(error: $error) -> StorageError {
                let detail = error.to_string();
                let medium = match redb::Error::from(error) {
                    redb::Error::Io(error) => Some(error.kind()),
                    redb::Error::PreviousIo => Some(io::ErrorKind::Other),
                    _ => None,
                };
                StorageError { detail, medium }
            }
        }
    )*};
}

from!(
    redb::DatabaseError,
    redb::TransactionError,
    redb::TableError,
    redb::StorageError,
    redb::CommitError
);

impl From<serde_json::Error> for StorageError {
    fn from(error: serde_json::Error) -> StorageError {
        StorageError::new(&error)
    }
}

/// Reasons why a revision cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The revision does not exist, or was removed from the history.
    #[error("{}", no_such_revision(*.wanted, *.oldest, *.newest))]
    NoSuchRevision {
        /// The requested number.
        wanted: RevisionNo,
        /// The oldest revision in the history.
        oldest: RevisionNo,
        /// The newest revision.
        newest: RevisionNo,
    },
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

fn no_such_revision(wanted: RevisionNo, oldest: RevisionNo, newest: RevisionNo) -> String {
    match (oldest..=newest).contains(&wanted) {
        true => format!(
            "revision {wanted} is no longer stored: a later one of the same origin replaced it; `millrace show history` \
             lists what the store holds"
        ),
        false => format!("revision {wanted} does not exist: the store holds {oldest} to {newest}"),
    }
}

fn refusals(objects: &[Owned], by: &Origin) -> String {
    objects
        .iter()
        .map(|owned| owned.refusal(by))
        .collect::<Vec<_>>()
        .join("; ")
}

/// Reasons why a change was not committed. The store is unchanged.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CommitError {
    /// Another commit changed the head first.
    #[error("the configuration is at revision {head}, not {expected}: read it again and repeat the change")]
    Conflict {
        /// The revision on which the change is based.
        expected: RevisionNo,
        /// The newest revision.
        head: RevisionNo,
    },
    /// The configuration is not valid.
    #[error("{0}")]
    Invalid(#[from] ConfigErrors),
    /// The head awaits confirmation.
    #[error("revision {revision} waits to be confirmed: confirm it or cancel it first")]
    Unconfirmed {
        /// The revision that awaits confirmation.
        revision: RevisionNo,
        /// The time at which it is rolled back.
        deadline: UnixTime,
    },
    /// The deadline of a confirmed commit is not in the future.
    #[error("the deadline {deadline} is not after {now}: expected a deadline in the future", deadline = deadline.0, now = now.0)]
    DeadlinePassed {
        /// The given deadline.
        deadline: UnixTime,
        /// The given current time.
        now: UnixTime,
    },
    /// The change touches objects of other origins.
    #[error("{}", refusals(.objects, .by))]
    Owned {
        /// The objects and their owners, at least one.
        objects: Vec<Owned>,
        /// The origin of the change.
        by: Origin,
    },
    /// An object that is to be given to an owner does not exist.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// Another session holds the lock.
    #[error("{}", lock::refusal(.holder, *.expires))]
    Locked {
        /// The name of the holder.
        holder: String,
        /// The end of the lease.
        expires: UnixTime,
    },
    /// The target of a rollback cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Another session holds the lock.
pub(crate) struct Locked {
    pub(crate) holder: String,
    pub(crate) expires: UnixTime,
}

impl From<Locked> for CommitError {
    fn from(Locked { holder, expires }: Locked) -> CommitError {
        CommitError::Locked { holder, expires }
    }
}

impl From<Locked> for ConfirmError {
    fn from(Locked { holder, expires }: Locked) -> ConfirmError {
        ConfirmError::Locked { holder, expires }
    }
}

/// Reasons why a revision cannot be confirmed or cancelled.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfirmError {
    /// No revision awaits confirmation: it was confirmed or cancelled, or its deadline has passed.
    #[error("no revision waits to be confirmed (the configuration is at revision {head})")]
    NothingPending {
        /// The newest revision.
        head: RevisionNo,
    },
    /// Another revision awaits confirmation.
    #[error("revision {pending} waits to be confirmed, not {wanted}")]
    OtherPending {
        /// The requested revision.
        wanted: RevisionNo,
        /// The revision that awaits confirmation.
        pending: RevisionNo,
    },
    /// Another session holds the lock.
    #[error("{}", lock::refusal(.holder, *.expires))]
    Locked {
        /// The name of the holder.
        holder: String,
        /// The end of the lease.
        expires: UnixTime,
    },
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}
