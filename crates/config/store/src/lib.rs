//! The configuration store: transactions, revisions, history, confirmation, and watch.
//!
//! The store holds the desired configuration; the agent reports the running state. Every change is a whole
//! [`Config`](millrace_model::Config) and makes a numbered [`Revision`]. An acknowledged change is on the medium: it
//! survives `kill -9`, and a partial change is never visible. Time is an argument of every call that needs it.
//!
//! Several front ends write to one store. Each object of the configuration belongs to the [`Origin`] that made it; a
//! change by another one is refused. Consecutive revisions of one machine replace each other, so that the history
//! holds what people did.
//!
//! ```
//! # use millrace_store::{Note, Proposal, Store, UnixTime};
//! # use millrace_model::Config;
//! let now = UnixTime(1_700_000_000);
//! let store = Store::in_memory(now)?;
//! let head = store.head();
//! let mut config = Config::clone(&head.config);
//! config.bridges.push(millrace_model::Bridge::new("br0".parse()?));
//! let note = Note::new("alice", "a first bridge");
//! let revision = store.commit(Proposal { expected: Some(head.revision.number), config, note }, now)?;
//! assert_eq!(revision.number.0, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod disk;
mod error;
mod externals;
mod import;
mod lock;
mod locking;
mod origin;
mod ownership;
#[cfg(test)]
mod power_cut;
mod revision;
mod store;
mod tables;
mod time;

pub use disk::check_directory;
pub use error::{CommitError, ConfirmError, OpenError, ReadError, StorageError};
pub use import::FileImport;
pub use lock::{Lock, LockError, LockToken, LockTokenError};
pub use origin::{Origin, OriginError, Owned, Owners};
pub use revision::{Note, Operation, Pending, Revision, RevisionNo, Snapshot};
pub use store::{FILE_NAME, Proposal, Store};
pub use tables::Retention;
pub use time::UnixTime;
