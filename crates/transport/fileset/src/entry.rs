//! Entries of a manifest: directories, files, symlinks and hard links, with their attributes.

use crate::path::RelativePath;

/// A point in time of a file, relative to 1970-01-01 UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp {
    /// Seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds after `seconds`, below 10^9.
    pub nanoseconds: u32,
}

/// An extended attribute (xattr(7)): name and value. ACLs are extended attributes, too.
pub type Xattr = (Box<[u8]>, Box<[u8]>);

/// The user and the group of a file, by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Owner {
    pub user: u32,
    pub group: u32,
}

/// Attributes of a directory, file or symlink.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Attributes {
    /// Permission bits, 12 at most (including set-user-ID, set-group-ID and sticky).
    pub mode: u32,
    /// Time of the last modification.
    pub modified: Timestamp,
    /// Only if it is preserved.
    pub owner: Option<Owner>,
    /// Extended attributes in ascending order; only if they are preserved.
    pub xattrs: Vec<Xattr>,
}

/// A run of data in a file; between two segments is a hole, which reads as zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Segment {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes, more than zero.
    pub len: u64,
}

/// A regular file.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FileEntry {
    /// Bytes, holes included.
    pub size: u64,
    /// Time of the last change of the inode: it identifies the version of the content.
    pub changed: Timestamp,
    /// The runs of data, ascending and apart; no byte outside them is sent.
    pub segments: Vec<Segment>,
    /// Address of the first data byte; the manifest assigns it.
    pub address: u64,
}

impl FileEntry {
    /// Returns the bytes of all segments.
    pub fn data_len(&self) -> u64 {
        self.segments.iter().map(|segment| segment.len).sum()
    }

    /// Returns the segments of a file without holes.
    pub fn whole(size: u64) -> Vec<Segment> {
        match size {
            0 => Vec::new(),
            len => vec![Segment { offset: 0, len }],
        }
    }

    /// Returns true if every byte of the file is in a segment.
    pub fn has_no_holes(&self) -> bool {
        self.data_len() == self.size
    }
}

/// The type of an entry.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum EntryKind {
    Directory,
    /// A regular file.
    File(FileEntry),
    /// A symbolic link and its target.
    Symlink(Box<[u8]>),
    /// Another name of the file with this number (the files of a manifest are numbered from zero).
    HardLink(u32),
}

/// An entry of a manifest.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    /// Path below the receiver's directory.
    pub path: RelativePath,
    /// Attributes; those of a hard link are empty, since its file has them.
    pub attributes: Attributes,
    pub kind: EntryKind,
}
