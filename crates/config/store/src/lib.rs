//! The configuration store: transactions, revisions, history, confirmation, and watch.
//!
//! The store holds the desired configuration; the agent reports the running state. Every change is a whole
//! [`Config`](millrace_model::Config) and makes a numbered [`Revision`]. An acknowledged change is on the medium: it
//! survives `kill -9`, and a partial change is never visible. Time is an argument of every call that needs it.
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
#[cfg(test)]
mod power_cut;
mod revision;
mod store;

pub use disk::{Retention, check_directory};
pub use error::{CommitError, ConfirmError, OpenError, ReadError, StorageError};
pub use revision::{Note, Origin, Pending, Revision, RevisionNo, Snapshot, UnixTime};
pub use store::{FILE_NAME, FileImport, Proposal, Store};
