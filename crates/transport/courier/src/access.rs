//! Access to a receiver that serves many peers: who may write, read and list below which path.
//!
//! A program that receives for one user has a ticket and a list of keys. A daemon implements [`Access`]: it
//! identifies peers by their keys, and the first part of each path is the name of a grant.

use crate::event::Outcome;
use crate::files::{Source, Store};
use crate::identity::PublicKey;
use crate::shared_rate::SharedRate;
use std::sync::Arc;

pub use crate::refusal::Refusal;

/// The type of an entry of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryType {
    /// A regular file.
    File = 0,
    Directory = 1,
    Symlink = 2,
}

impl EntryType {
    pub(crate) fn from_byte(byte: u8) -> Option<EntryType> {
        [EntryType::File, EntryType::Directory, EntryType::Symlink]
            .into_iter()
            .find(|known| *known as u8 == byte)
    }

    /// Returns the name that listings show.
    pub fn name(self) -> &'static str {
        match self {
            EntryType::File => "file",
            EntryType::Directory => "directory",
            EntryType::Symlink => "symlink",
        }
    }
}

/// An entry of a directory in the answer to `ls`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryEntry {
    /// The name, without slashes.
    pub name: Vec<u8>,
    pub entry_type: EntryType,
    /// The size of a file in bytes; 0 for other types.
    pub size: u64,
    /// The time of the last modification, in seconds since 1970.
    pub modified: u64,
}

/// Observes one transfer, from its admission to its end. Dropping the observer frees the transfer's slot.
pub trait TransferObserver: Send {
    /// Records the start of the transfer; the receiver already has `present` bytes.
    fn on_accept(&mut self, present: u64);

    /// Records the progress: `verified` of the transfer's `bytes` are verified, including those
    /// present at the start. The rate is in bit/s.
    fn on_progress(&mut self, verified: u64, bytes: u64, rate_bps: u64);

    /// Records the outcome and the number of verified bytes at the end.
    fn on_end(&mut self, outcome: &Outcome, verified: u64);
}

/// The permission to write files.
pub struct WriteAccess {
    /// The store for the files.
    pub store: Arc<dyn Store>,
    /// The rate limit, which all holders of this `Arc` share.
    pub rate: Arc<SharedRate>,
    /// The maximum number of received bytes that are not written yet.
    pub pool_max: u64,
    /// Observes the transfer.
    pub observer: Box<dyn TransferObserver>,
}

/// The permission to read files.
pub struct ReadAccess {
    /// The files.
    pub source: Box<dyn Source>,
    /// The rate limit, which all holders of this `Arc` share.
    pub rate: Arc<SharedRate>,
    /// Observes the transfer.
    pub observer: Box<dyn TransferObserver>,
}

/// Decides what peers may do. Paths are the bytes that the peer sent; they are not checked yet.
pub trait Access: Send + Sync {
    /// Returns `Ok` if the key has any permission. It is called for each connection and does not block.
    ///
    /// # Errors
    /// The refusal.
    fn admit(&self, key: PublicKey) -> Result<(), Refusal>;

    /// Returns `Ok` if the key may write below a path. It is called before the manifest of a transfer arrives, and does
    /// not block; [`Access::write`] begins the transfer.
    ///
    /// # Errors
    /// The refusal.
    fn may_write(&self, key: PublicKey, path: &[u8]) -> Result<(), Refusal>;

    /// Returns the permission to write below a path; an empty path stands for the only grant that lets the key write. The call
    /// does not block: the store opens files later, in a thread of its own.
    ///
    /// # Errors
    /// The refusal.
    fn write(&self, key: PublicKey, path: &[u8]) -> Result<WriteAccess, Refusal>;

    /// Returns the permission to read the files at a path; a path with a trailing slash stands for the
    /// contents of a directory. It is called in a thread of its own, and may take as long as a scan.
    ///
    /// # Errors
    /// The refusal.
    fn read(&self, key: PublicKey, path: &[u8]) -> Result<ReadAccess, Refusal>;

    /// Returns the entries of a directory. For the empty path, they are the grants of the key. It is called
    /// in a thread of its own.
    ///
    /// # Errors
    /// The refusal.
    fn list(&self, key: PublicKey, path: &[u8]) -> Result<Vec<DirectoryEntry>, Refusal>;
}
