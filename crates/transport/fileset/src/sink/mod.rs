//! The receiver's side: writes groups into temporary files, verifies extents, keeps a journal, and renames files.
//!
//! ```text
//!   open ─> poll_have … keep … start ─> write, on_value ─> Verified ─> poll: sync, journal ─> Durable ─> rename ─> Committed
//!                                            │ mismatch                                                    │ all
//!                                            └> NeedGroupValues ─> on_group_values ─> Rejected             └> Complete
//! ```
//!
//! **Invariant**: a file gets its final name only after a digest has verified all its bytes and the bytes are
//! synced. A temporary file is in the directory of the final file. Its name is a digest of the sender, path, size, change
//! time and segments, so that any later transfer of the same version of the file by the same sender finds it. Bytes of an earlier
//! run count only after this run has read and hashed them, or if the file still has the identity of the journal's last sync
//! ([`journal`]): no byte has changed since they were verified.

mod claims;
mod commit;
mod local;
mod prepare;
mod progress;
mod receive;

use crate::digest::{ExtentValue, Value, set_root};
use crate::entry::Entry;
use crate::fs::{Access, FileSystem, Metadata};
use crate::journal::{self, Identity, Journal};
use crate::manifest::Manifest;
use crate::path::RelativePath;
use claims::Claims;
use millrace_transport::ranges::RangeSet;
use millrace_types::{Duration, Time};
use progress::{Existing, ExtentProgress, FileProgress, FileState, PartialGroup};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use thiserror::Error;

pub use progress::Progress;

/// The number of temporary files that stay open between writes.
const OPEN_FILES: usize = 64;
/// The permission bits for user, group and others.
const PERMISSIONS: u32 = 0o777;
/// The permission bits with which only the user reads and writes.
const PRIVATE: u32 = 0o600;

/// The time at which files get their final names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Commit {
    /// Each file once it is verified.
    #[default]
    Each,
    /// All files once all are verified.
    All,
}

/// Settings for writing a set of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SinkOptions {
    /// The key of the sender. Another sender has temporary files and journals of its own: no sender writes into a file that has verified
    /// bytes of another sender.
    pub sender: [u8; 32],
    /// The time at which files get their final names.
    pub commit: Commit,
    /// Existing files are read, and their extents are offered in the have-map.
    pub delta: bool,
    /// Existing files are replaced.
    pub overwrite: bool,
    /// Permission bits are those of the source. If false, a new file or directory has those of the source less the umask, and a
    /// file that is replaced keeps its own.
    pub modes: bool,
    /// Modification times are those of the source.
    pub times: bool,
    /// Owners and extended attributes are set as at the source, if the manifest has them.
    pub preserve: bool,
    /// The number of directories above the root to which symlinks of the set may lead; `None`: symlinks may lead anywhere.
    pub symlinks_within: Option<usize>,
    /// The maximum time from the verification of an extent to its record in the journal.
    pub sync_interval: Duration,
    /// The maximum number of verified bytes without a record in the journal. The sender may send these bytes
    /// again after a crash.
    pub sync_size: u64,
}

impl Default for SinkOptions {
    fn default() -> SinkOptions {
        SinkOptions {
            sender: [0; 32],
            commit: Commit::Each,
            delta: false,
            overwrite: true,
            modes: false,
            times: false,
            preserve: false,
            symlinks_within: None,
            sync_interval: Duration::from_secs(1),
            sync_size: 32 << 20,
        }
    }
}

/// The reason why a sink cannot continue.
#[derive(Debug, Error)]
pub enum SinkError {
    /// An operation on a file failed.
    #[error("{path}: {error}")]
    Io {
        /// The path below the receiver's directory.
        path: RelativePath,
        error: io::Error,
    },
    /// Another sink of this process writes a file for the same sender, or the same set.
    #[error("another transfer from the same sender writes {0}; try again when that has ended")]
    InUse(RelativePath),
    /// A file exists and must not be replaced.
    #[error("{0} exists; allow files to be replaced, or receive into another directory")]
    Exists(RelativePath),
    /// The path of a directory exists and is no directory.
    #[error("{0} exists and is no directory; remove it, or receive into another directory")]
    NotDirectory(RelativePath),
    /// The path of a file exists and is a directory.
    #[error("{0} exists and is a directory; remove it, or receive into another directory")]
    IsDirectory(RelativePath),
    /// A symlink leads out of the directory.
    #[error(
        "the symlink {0} leads out of the receiver's directory, or may do so: expected a relative target whose `..` are all at its beginning \
         and not above the directory; send without it"
    )]
    SymlinkLeaves(RelativePath),
    /// The bytes are not within the set.
    #[error(
        "{len} bytes at address {address} are not within one extent of the set; the sender violates the protocol"
    )]
    OutOfBounds {
        /// The first address.
        address: u64,
        /// Bytes.
        len: u64,
    },
    /// A message names an extent or a file that the set does not have.
    #[error("the set has no {name} {number}; the sender violates the protocol")]
    Unknown {
        /// "extent" or "file".
        name: &'static str,
        number: u64,
    },
    /// The values of the groups of an extent do not merge to the extent's value.
    #[error("the group values of extent {0} do not agree with its value; the sender violates the protocol")]
    GroupValues(u64),
    /// A local file changed while its bytes were copied.
    #[error("a local file of extent {0} changed while its bytes were kept; try again")]
    ChangedLocally(u64),
}

/// The result of a step, for the courier that drives the sink.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SinkEvent {
    /// The digest of an extent is right.
    Verified(u64),
    /// The digest of an extent is wrong; the values of its groups are needed.
    NeedGroupValues(u64),
    /// Addresses with wrong bytes are needed again.
    Rejected {
        extent: u64,
        /// The addresses.
        wrong: Vec<Range<u64>>,
    },
    /// An extent is on disk and in the journal.
    Durable(u64),
    /// A file has its final name.
    Committed(u32),
    /// A file had all its bytes before the transfer.
    Unchanged(u32),
    /// The sender withdrew a file. The sink keeps none of its bytes.
    Withdrawn(u32),
    /// An entry could not be put into place. The sink continues with the other entries.
    Failed { path: RelativePath, reason: String },
    /// Every entry is in place, has failed or was withdrawn.
    Complete,
}

/// A set of files to be received.
#[derive(Debug)]
pub struct Sink<F: FileSystem> {
    fs: F,
    manifest: Arc<Manifest>,
    options: SinkOptions,
    claims: Claims,
    /// The journal is new, or has identities from before a restart of the machine.
    is_restarted: bool,
    /// Records of an earlier run.
    earlier: Journal,
    journal: F::File,
    journal_size: u64,
    /// The next extent of the have-map; `existing` holds the local bytes of each file that was examined.
    have_cursor: u64,
    existing: Vec<Option<Existing>>,
    kept: RangeSet,
    files: Vec<FileProgress>,
    /// Known values. Their number is bounded by what has arrived: an announced extent takes no memory.
    values: HashMap<u64, Value>,
    verified: RangeSet,
    durable: RangeSet,
    /// Verified extents that are not in the journal.
    unsaved: Vec<u64>,
    extents: HashMap<u64, ExtentProgress>,
    groups: HashMap<u64, PartialGroup>,
    written: u64,
    /// Open temporary files by number, the last used at the back.
    open: VecDeque<(u32, F::File)>,
    /// Temporary files with bytes that are not synced; `dirty_directories` are directories with names that are not synced.
    dirty: BTreeSet<u32>,
    /// Synced temporary files whose identity is not in the journal.
    unrecorded: BTreeSet<u32>,
    dirty_directories: HashMap<RelativePath, ()>,
    /// Directories that the sink made writable for the transfer, with their modes before.
    relaxed: Vec<(RelativePath, u32)>,
    /// The permission bits of files that are replaced.
    replaced: HashMap<u32, u32>,
    /// Files with all extents verified.
    ready: Vec<u32>,
    /// Files in the state `Pending`.
    pending: u64,
    /// Entries that could not be put into place.
    failed: u64,
    next_sync: Option<Time>,
    started: bool,
    complete: bool,
    events: VecDeque<SinkEvent>,
    progress: Progress,
}

impl<F: FileSystem> Sink<F> {
    /// Returns the manifest.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// Returns the extents whose digest is right.
    pub fn verified(&self) -> &RangeSet {
        &self.verified
    }

    /// Returns the extents that are on disk and in the journal.
    pub fn durable(&self) -> &RangeSet {
        &self.durable
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<SinkEvent> {
        self.events.pop_front()
    }

    /// Returns true once every entry is in place, has failed or was withdrawn.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Returns the number of entries that could not be put into place: files, links, and directories with
    /// refused attributes. Withdrawn files do not count.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Returns the progress.
    pub fn progress(&self) -> Progress {
        Progress {
            verified_extents: self.verified.count(),
            durable_extents: self.durable.count(),
            ..self.progress
        }
    }

    /// Returns the root of the set, if every extent is verified. An extent with only withdrawn files counts
    /// as 32 zero bytes.
    pub fn root(&self) -> Option<[u8; 32]> {
        if self.verified.count() < self.manifest.layout().extents() {
            return None;
        }
        let extents = 0..self.manifest.layout().extents();
        let values: Option<Vec<Value>> = extents.map(|extent| self.value(extent)).collect();
        Some(set_root(self.manifest.digest(), values?.iter()))
    }

    /// Returns true while an extent or a group is in memory, because it is not verified.
    pub fn has_data_in_memory(&self) -> bool {
        !(self.extents.is_empty() && self.groups.is_empty())
    }

    fn entry(&self, file: u32) -> Option<&Entry> {
        self.manifest.file(file).map(|(entry, _)| entry)
    }

    fn path(&self, file: u32) -> RelativePath {
        self.entry(file)
            .map_or_else(RelativePath::root, |entry| entry.path.clone())
    }

    /// Returns the path of a file's temporary file.
    fn temporary(&self, file: u32) -> RelativePath {
        temporary_path(&self.manifest, file, &self.options.sender)
    }

    fn check_extent(&self, extent: u64) -> Result<(), SinkError> {
        if extent >= self.manifest.layout().extents() {
            return Err(SinkError::Unknown {
                name: "extent",
                number: extent,
            });
        }
        Ok(())
    }

    fn value(&self, extent: u64) -> Option<Value> {
        self.values.get(&extent).copied()
    }

    /// Calls `act` with the open temporary file of a file. A missing temporary file is created.
    fn with_temporary<T>(
        &mut self,
        file: u32,
        act: impl FnOnce(&F, &F::File) -> io::Result<T>,
    ) -> Result<T, SinkError> {
        let open = match self.open.iter().position(|(open, _)| *open == file) {
            Some(at) => self.open.remove(at).map(|(_, open)| open),
            None => None,
        };
        // The temporary path of a file with many segments takes long to compute. It is needed only to open
        // the file or to report an error.
        let failed = |sink: &Sink<F>, error| SinkError::Io {
            path: sink.temporary(file),
            error,
        };
        let open = match open {
            Some(open) => open,
            None => {
                let path = self.temporary(file);
                self.claim_temporary(file, &path)?;
                self.open_temporary(file, &path)
                    .map_err(|error| failed(self, error))?
            }
        };
        let result = act(&self.fs, &open).map_err(|error| failed(self, error));
        if self.open.len() >= OPEN_FILES {
            self.open.pop_front();
        }
        self.open.push_back((file, open));
        result
    }

    /// Claims the temporary file of a file for this sink.
    fn claim_temporary(&mut self, file: u32, path: &RelativePath) -> Result<(), SinkError> {
        if self.claims.claim(Some(file), path) {
            Ok(())
        } else {
            Err(SinkError::InUse(self.path(file)))
        }
    }

    /// Returns the identity of a file's temporary file; `None` if the file may still change without a change of its identity.
    fn temporary_identity(&self, file: u32) -> Result<Option<Identity>, SinkError> {
        let open = self.open.iter().find(|(open, _)| *open == file);
        let metadata = match open {
            Some((_, open)) => self.fs.file_metadata(open),
            None => self.fs.metadata(&self.temporary(file)),
        };
        let metadata = metadata.map_err(|error| SinkError::Io {
            path: self.temporary(file),
            error,
        })?;
        Ok(self.lasting_identity(&metadata))
    }

    /// Returns the identity of a file whose metadata are these, unless a later change could have the same times.
    fn lasting_identity(&self, metadata: &Metadata) -> Option<Identity> {
        let is_past = self.fs.is_past(metadata.changed.max(metadata.modified));
        is_past.then(|| journal::identity(metadata))
    }

    fn open_temporary(&mut self, file: u32, path: &RelativePath) -> io::Result<F::File> {
        let Some(progress) = self.files.get_mut(file as usize) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        if progress.temporary {
            // A complete temporary file may have lost its write permission already.
            return match self.fs.open(path, Access::Write) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    self.fs.open(path, Access::Read)
                }
                result => result,
            };
        }
        let entry = self.manifest.file(file).map(|(entry, _)| entry);
        let mode = match entry {
            // The receiver reads and writes the file until it is complete.
            Some(entry) if !self.options.modes => entry.attributes.mode & PERMISSIONS | PRIVATE,
            _ => PRIVATE,
        };
        // Only a file that this sink makes, or whose bytes it read, is written into.
        let open = match self.fs.open(path, Access::New(mode)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.fs.remove(path)?;
                self.fs.open(path, Access::New(mode))
            }
            result => result,
        }?;
        progress.temporary = true;
        self.earlier.temporary.remove(&file);
        self.dirty.insert(file);
        self.dirty_directories.insert(path.split().0, ());
        if let Some((_, content)) = self.manifest.file(file) {
            self.fs.set_size(&open, content.size)?;
            for segment in &content.segments {
                if segment.len >= self.manifest.layout().extent_size() {
                    self.fs.allocate(&open, *segment)?;
                }
            }
        }
        Ok(open)
    }
}

impl<F: FileSystem> Drop for Sink<F> {
    /// Removes the empty journal of a sink that did not start. A journal of an earlier run stays, and so does
    /// a journal in which another sink has written.
    fn drop(&mut self) {
        self.restore_directories();
        if self.started || self.journal_size > 0 {
            return;
        }
        if self
            .fs
            .file_metadata(&self.journal)
            .is_ok_and(|metadata| metadata.size == 0)
        {
            // If the removal fails, the empty journal remains and the next run uses it.
            let _removed = self
                .fs
                .remove(&journal_path(&self.manifest, &self.options.sender));
        }
    }
}

/// Returns true if an error of an operation on an entry concerns this entry only: other entries of the set may still be received. A full
/// disk or a device that fails ends the transfer.
fn is_of_entry(error: &io::Error) -> bool {
    use io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied
            | ErrorKind::NotFound
            | ErrorKind::AlreadyExists
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::InvalidFilename
            | ErrorKind::InvalidInput
            | ErrorKind::TooManyLinks
            | ErrorKind::FileTooLarge
            | ErrorKind::Unsupported
    )
}

/// Returns the path of the temporary file of a file of a set that a sender sends.
pub fn temporary_path(manifest: &Manifest, file: u32, sender: &[u8; 32]) -> RelativePath {
    let Some((entry, content)) = manifest.file(file) else {
        return RelativePath::root();
    };
    let mut hasher = blake3::Hasher::new_derive_key("millrace 2026 fileset temporary file");
    hasher.update(sender);
    hasher.update(entry.path.as_bytes());
    hasher.update(&[0]);
    hasher.update(&content.size.to_le_bytes());
    hasher.update(&content.changed.seconds.to_le_bytes());
    hasher.update(&content.changed.nanoseconds.to_le_bytes());
    for segment in &content.segments {
        hasher.update(&segment.offset.to_le_bytes());
        hasher.update(&segment.len.to_le_bytes());
    }
    let digest = hasher.finalize().to_hex();
    reserved(&entry.path.split().0, &digest.as_str()[..32])
}

/// Returns the path of the journal of a set that a sender sends.
pub fn journal_path(manifest: &Manifest, sender: &[u8; 32]) -> RelativePath {
    let hex = blake3::keyed_hash(sender, manifest.digest()).to_hex();
    reserved(&RelativePath::root(), &format!("{}.journal", &hex.as_str()[..32]))
}

/// Returns true if the temporary files of a directory's files are in that directory: their paths are short
/// enough.
fn holds_temporary_files(directory: &RelativePath) -> bool {
    let name = crate::path::RESERVED_PREFIX.len() + 32;
    directory.as_bytes().len() + 1 + name <= crate::path::PATH_MAX
}

/// Returns the path of a temporary file or journal.
fn reserved(directory: &RelativePath, name: &str) -> RelativePath {
    let name = [crate::path::RESERVED_PREFIX, name.as_bytes()].concat();
    // If the path of the directory is too close to PATH_MAX for the name, the file is in the root, as the
    // journal is.
    directory
        .join(&name)
        .or_else(|_| RelativePath::new(&name))
        .unwrap_or_default()
}

/// Returns the have-map entry of an extent.
fn have_entry(extent: u64, value: Value) -> ExtentValue {
    ExtentValue { extent, value }
}
