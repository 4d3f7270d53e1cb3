//! The traits by which the threads read and write files: one address space, divided into extents.
//!
//! The product implements both traits with `millrace-fileset`; tests use bytes in memory.

use crate::identity::PublicKey;
use crate::refusal::RefuseCode;
use millrace_transport::extent::Layout;
use millrace_transport::ranges::RangeSet;
use millrace_types::Time;
use thiserror::Error;

/// The BLAKE3 digest of an extent, of a group within an extent, or of all files (the root).
pub type Value = [u8; 32];

/// The reason why files cannot be read or written.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct FilesError(pub String);

/// A store's refusal of a sender's files.
#[derive(Debug, Error)]
#[error("{error}")]
pub struct OpenError {
    /// The kind of refusal.
    pub code: RefuseCode,
    pub error: FilesError,
}

impl From<FilesError> for OpenError {
    fn from(error: FilesError) -> OpenError {
        OpenError {
            code: RefuseCode::Manifest,
            error,
        }
    }
}

/// The sender's files.
pub trait Source: Send {
    /// Returns the manifest as bytes.
    fn manifest(&self) -> &[u8];

    /// Returns the address space.
    fn layout(&self) -> Layout;

    /// Returns true if the source's digest of an extent equals `value`, the receiver's digest.
    ///
    /// # Errors
    /// If the extent cannot be read.
    fn check_have(&mut self, extent: u64, value: &Value) -> Result<bool, FilesError>;

    /// Returns the bytes at an address; the range is within one extent.
    ///
    /// # Errors
    /// If the bytes cannot be read, or the file changed.
    fn read(&mut self, address: u64, len: usize) -> Result<&[u8], FilesError>;

    /// Returns the next extent whose digest has become known, and the digest.
    fn poll_value(&mut self) -> Option<(u64, Value)>;

    /// Returns the digest of an extent if it is known.
    fn value(&self, extent: u64) -> Option<Value>;

    /// Returns the digests of an extent's groups.
    ///
    /// # Errors
    /// If the extent cannot be read.
    fn group_values(&mut self, extent: u64) -> Result<Vec<Value>, FilesError>;

    /// Returns the next file that was withdrawn because it changed, and the reason.
    fn poll_withdrawn(&mut self) -> Option<(u64, String)>;

    /// Returns the root digest, once every extent has been read.
    fn root(&self) -> Option<Value>;

    /// Returns the paths that cannot be read or sent, each with the reason.
    fn unreadable(&self) -> &[String] {
        &[]
    }

    /// Returns the function from the number of a file to its path at the receiver; by default, no path is known.
    fn paths(&self) -> Paths {
        Box::new(|_| None)
    }
}

/// The paths of files by their numbers.
pub type Paths = Box<dyn Fn(u64) -> Option<String> + Send>;

/// The result of a step of the thread that writes files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SinkEvent {
    /// The digest of an extent is right.
    Verified(u64),
    /// The digest of an extent is wrong. The digests of its groups are needed to find the wrong groups.
    NeedGroupValues(u64),
    /// Bytes of an extent must be sent again.
    Rejected(u64),
    /// An extent survives a loss of power.
    Durable(u64),
    /// A file has its final name.
    Committed { file: u64, path: String },
    /// The sender withdrew a file.
    Withdrawn { file: u64, path: String },
    /// A path cannot be completed.
    Failed { path: String, reason: String },
    /// A fact that the receiver's user should know: it changes the result, and is no failure.
    Notice(String),
    /// All files are in place.
    Complete,
}

/// The receiver's files.
pub trait Sink: Send {
    /// Returns the address space.
    fn layout(&self) -> Layout;

    /// Returns the next extent that may be present already, with its digest.
    ///
    /// # Errors
    /// If the files cannot be read.
    fn poll_have(&mut self) -> Result<Option<(u64, Value)>, FilesError>;

    /// Keeps a present extent that the sender confirmed.
    ///
    /// # Errors
    /// If the files cannot be read.
    fn keep(&mut self, extent: u64) -> Result<(), FilesError>;

    /// Ends the exchange about extents that are present. Bytes may arrive from now on.
    ///
    /// # Errors
    /// If the files cannot be written.
    fn start(&mut self) -> Result<(), FilesError>;

    /// Returns the extents that are verified.
    fn verified(&self) -> RangeSet;

    /// Accepts new bytes at an address. Returns the number of bytes that left memory in this call.
    ///
    /// # Errors
    /// If the files cannot be written.
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<u64, FilesError>;

    /// Handles the sender's digest of an extent.
    ///
    /// # Errors
    /// If the files cannot be read or written.
    fn on_value(&mut self, extent: u64, value: &Value) -> Result<(), FilesError>;

    /// Handles the sender's digests of an extent's groups.
    ///
    /// # Errors
    /// If the files cannot be read or written.
    fn on_group_values(&mut self, extent: u64, values: &[Value]) -> Result<(), FilesError>;

    /// Handles the sender's withdrawal of a file.
    ///
    /// # Errors
    /// If the files cannot be written.
    fn on_withdrawn(&mut self, file: u64) -> Result<(), FilesError>;

    /// Advances the work: syncs files, writes the journal, commits files.
    ///
    /// # Errors
    /// If the files cannot be written.
    fn poll(&mut self, now: Time) -> Result<(), FilesError>;

    /// Makes verified extents durable at once, for a later transfer that resumes from them.
    ///
    /// # Errors
    /// If the files cannot be written.
    fn flush(&mut self) -> Result<(), FilesError>;

    /// Returns the time at which [`Sink::poll`] is due.
    fn next_timeout(&self) -> Option<Time>;

    /// Returns the next event.
    fn poll_event(&mut self) -> Option<SinkEvent>;

    /// Returns the root digest, once every extent is verified.
    fn root(&self) -> Option<Value>;

    /// Returns the number of files, links and directories that could not be put into place; files that the
    /// sender withdrew are not counted.
    fn failed(&self) -> u64;

    /// Removes the state from which a transfer would resume, because the sender has the receipt now.
    ///
    /// # Errors
    /// If the files cannot be written.
    fn close(self: Box<Self>) -> Result<(), FilesError>;
}

/// The sending user's options that the receivers apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Requests {
    /// The receiver reads the files that it has, and only extents that differ are sent.
    pub delta: bool,
    /// No file gets its name before all are verified.
    pub all_at_once: bool,
}

/// Creates the sink for a manifest. Several threads may call it at the same time.
pub trait Store: Send + Sync {
    /// Returns the sink for the files of a sender's manifest.
    ///
    /// # Errors
    /// If the manifest is not valid or exceeds a limit, or the files cannot be written.
    fn open(
        &self,
        sender: PublicKey,
        manifest: &[u8],
        requests: Requests,
    ) -> Result<Box<dyn Sink>, OpenError>;
}
