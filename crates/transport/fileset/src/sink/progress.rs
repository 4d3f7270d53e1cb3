//! The progress of a sink, and that of its files, extents and groups.

use crate::Value;
use millrace_transport::ranges::RangeSet;

/// The progress of a sink.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Extents whose digest is right.
    pub verified_extents: u64,
    /// Extents on disk and in the journal.
    pub durable_extents: u64,
    /// Files with their final names.
    pub files: u64,
    /// Groups whose digest was wrong.
    pub rejected_groups: u64,
}

/// The progress of a file towards its final name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FileState {
    /// Bytes are missing, or the file is not renamed yet.
    Pending,
    /// The file has its final name.
    Done,
    /// The sender withdrew the file.
    Withdrawn,
    /// The file could not be put into place.
    Failed,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FileProgress {
    pub(super) state: FileState,
    /// Extents that are not verified.
    pub(super) missing: u64,
    /// The temporary file exists.
    pub(super) temporary: bool,
    /// The final file already has all bytes.
    pub(super) unchanged: bool,
}

/// The location of the local bytes that a file may keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Existing {
    None,
    /// The temporary file that the journal's records are about, unchanged.
    Temporary,
    /// A temporary file that changed after the journal's last record of it, that another transfer made, or that the journal does
    /// not mention: its bytes are read.
    OtherTemporary,
    /// The file under its final name: one with the size and the time of the source, with `delta` any one, the file that an earlier run
    /// renamed, or a file that has replaced it. Its bytes are read.
    Final,
    /// The file under its final name that an earlier run committed, unchanged.
    Committed,
}

impl Existing {
    pub(super) fn is_temporary(self) -> bool {
        matches!(self, Existing::Temporary | Existing::OtherTemporary)
    }
}

/// The groups of an extent that is not verified.
#[derive(Debug)]
pub(super) struct ExtentProgress {
    /// The value of each group that was written.
    pub(super) groups: Vec<Option<Value>>,
    pub(super) missing: usize,
    /// True once the values of the groups are requested.
    pub(super) requested: bool,
}

/// A group with missing bytes.
#[derive(Debug)]
pub(super) struct PartialGroup {
    pub(super) bytes: Vec<u8>,
    pub(super) filled: RangeSet,
}
