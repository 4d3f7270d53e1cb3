//! The manifest: the ordered entries of a set, and the address of every data byte of its files.
//!
//! ```text
//!   files     a (200 KiB)  b  c     d (100 MiB, with a hole)       e
//!             ├───────────┼──┼────┐ ├──────┤░░░░░░├───────────┤    ├──┤
//!   addresses │           │  │    pad      │      │           │ ───┘
//!             └ small files packed  └ from an extent's border; holes take no addresses
//! ```
//!
//! Sender and receiver compute the same addresses from the same entries, so that the manifest carries no
//! addresses. Entries are in ascending order of their paths, compared name by name, and each follows its
//! directory. So a path cannot occur twice, and cannot lead through a file or a symlink.

mod decode;
mod encode;

pub use decode::{ManifestError, ManifestLimits, ManifestReader};
pub(crate) use encode::{encode_end, encode_entry, encode_header};

use crate::digest::GROUP_SIZE;
use crate::entry::{Entry, EntryKind, FileEntry};
use crate::path::{PATH_MAX, RelativePath};
use millrace_transport::extent::{ExtentSize, Layout};
use std::ops::Range;
use thiserror::Error;

/// A file of at least this many extents begins at an extent boundary, so that its extents hold no earlier
/// file.
///
/// The padding before it is then below 1/64 of the file.
pub const ALIGNED_EXTENTS: u64 = 64;
/// The maximum number of segments of a file. The scan merges the closest segments of a file that has more.
pub const SEGMENTS_MAX: usize = 1 << 16;
/// The maximum number of data bytes of a file.
pub const FILE_SIZE_MAX: u64 = 1 << 55;

/// The reason why an entry is not valid after the entries before it.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum EntryError {
    /// The path does not come after the path before it.
    #[error("{0} is not behind the entry before it: a path comes once, in ascending order")]
    Order(RelativePath),
    /// The path is the root, or in no directory of the manifest.
    #[error("{0} is in no directory of the manifest")]
    NoDirectory(RelativePath),
    /// A name has the prefix of temporary files and journals.
    #[error("{0} has a name that begins with .millrace-, which transfers in progress use; rename it")]
    Reserved(RelativePath),
    /// The mode has bits other than permission bits.
    #[error("{path} has the mode {mode:o}, more than 12 permission bits")]
    Mode {
        /// The entry.
        path: RelativePath,
        mode: u32,
    },
    /// The nanoseconds of a time are 10^9 or more.
    #[error("{0} has a time with 10^9 nanoseconds or more")]
    Time(RelativePath),
    /// The file is too large, or the segments overlap, are empty, are too many or exceed the file.
    #[error(
        "{0} has segments that overlap, are empty, are out of order or lie outside the file, or is over 2^55 bytes"
    )]
    Segments(RelativePath),
    /// The target is empty, too long or contains NUL.
    #[error("the symlink {0} has a target that is empty, contains NUL or is longer than {PATH_MAX} bytes")]
    Target(RelativePath),
    /// The hard link names a file that does not precede it.
    #[error("{path} is a hard link to file {file}, which is not before it")]
    HardLink {
        /// The entry.
        path: RelativePath,
        /// The number of the file.
        file: u32,
    },
    /// The set has more addresses or files than its fields can hold.
    #[error("the set has too many bytes or files at {0}; split it")]
    TooLarge(RelativePath),
}

/// A range of addresses that belongs to one segment of one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice {
    /// The first address.
    pub address: u64,
    /// The number of bytes.
    pub len: u64,
    /// Number of the file.
    pub file: u32,
    /// Offset in the file.
    pub offset: u64,
}

/// The entries of a set, and their addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    entries: Vec<Entry>,
    /// Index of the entry of each file.
    files: Vec<u32>,
    slices: Vec<Slice>,
    bytes: u64,
    layout: Layout,
    extent_size: ExtentSize,
    digest: [u8; 32],
}

impl Manifest {
    /// Returns the entries in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the number of regular files.
    pub fn files(&self) -> u32 {
        self.files.len() as u32
    }

    /// Returns the entry of a file, and the fields of the entry that only files have.
    pub fn file(&self, file: u32) -> Option<(&Entry, &FileEntry)> {
        let entry = self.entries.get(*self.files.get(file as usize)? as usize)?;
        match &entry.kind {
            EntryKind::File(content) => Some((entry, content)),
            _ => None,
        }
    }

    /// Returns the layout of the address space.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the size of the extents.
    pub fn extent_size(&self) -> ExtentSize {
        self.extent_size
    }

    /// Returns the digest of the encoded manifest, which identifies this version of the set.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Returns the slices that overlap a range of addresses, each cut to it, in ascending order.
    pub fn slices(&self, range: Range<u64>) -> impl Iterator<Item = Slice> + '_ {
        let from = self
            .slices
            .partition_point(|slice| slice.address + slice.len <= range.start);
        self.slices[from..]
            .iter()
            .take_while({
                let end = range.end;
                move |slice| slice.address < end
            })
            .map(move |slice| {
                let start = slice.address.max(range.start);
                let end = (slice.address + slice.len).min(range.end);
                Slice {
                    address: start,
                    len: end - start,
                    file: slice.file,
                    offset: slice.offset + (start - slice.address),
                }
            })
    }

    /// Returns the addresses of a file.
    pub fn addresses(&self, file: u32) -> Range<u64> {
        self.file(file).map_or(0..0, |(_, content)| {
            content.address..content.address + content.data_len()
        })
    }

    /// Returns the extents that hold bytes of a file.
    pub fn extents_of(&self, file: u32) -> Range<u64> {
        let addresses = self.addresses(file);
        if addresses.is_empty() {
            return 0..0;
        }
        self.layout.extent_of(addresses.start)..self.layout.extent_of(addresses.end - 1) + 1
    }

    /// Returns the offset of an extent in its digest's hash input.
    ///
    /// The hash input of an extent within one aligned file is the data of that file. Any other extent is a
    /// hash input of its own and has the offset 0.
    pub fn hash_offset(&self, extent: u64) -> u64 {
        let (start, end) = self.layout.bounds(extent);
        self.slices(start..end).next().map_or(0, |slice| {
            let file = self.addresses(slice.file);
            if file.start.is_multiple_of(self.layout.extent_size()) && end <= file.end && file.start <= start
            {
                start - file.start
            } else {
                0
            }
        })
    }

    /// Returns the addresses of a group.
    pub(crate) fn group_bounds(&self, group: u64) -> Range<u64> {
        let start = group * GROUP_SIZE;
        start..(start + GROUP_SIZE).min(self.layout.bytes())
    }
}

/// Collects entries, checks each against those before it, and assigns addresses.
#[derive(Debug)]
pub(crate) struct ManifestBuilder {
    manifest: Manifest,
    /// The ancestor directories of the last entry.
    directories: Vec<RelativePath>,
    last: RelativePath,
}

impl ManifestBuilder {
    pub(crate) fn new(extent_size: ExtentSize) -> Option<ManifestBuilder> {
        Some(ManifestBuilder {
            manifest: Manifest {
                entries: Vec::new(),
                files: Vec::new(),
                slices: Vec::new(),
                bytes: 0,
                layout: Layout::new(0, extent_size).ok()?,
                extent_size,
                digest: [0; 32],
            },
            directories: Vec::new(),
            last: RelativePath::root(),
        })
    }

    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the path of the last entry, or the root before the first entry.
    pub(crate) fn last(&self) -> &RelativePath {
        &self.last
    }

    /// Adds an entry.
    pub(crate) fn push(&mut self, mut entry: Entry) -> Result<(), EntryError> {
        self.check_path(&entry.path)?;
        check_attributes(&entry)?;
        match &mut entry.kind {
            EntryKind::Directory => self.directories.push(entry.path.clone()),
            EntryKind::File(file) => self.assign_addresses(&entry.path, file)?,
            EntryKind::Symlink(target) => {
                if target.is_empty() || target.len() > PATH_MAX || target.contains(&0) {
                    return Err(EntryError::Target(entry.path));
                }
            }
            EntryKind::HardLink(file) => {
                if *file >= self.manifest.files() {
                    return Err(EntryError::HardLink {
                        file: *file,
                        path: entry.path,
                    });
                }
            }
        }
        self.last.clone_from(&entry.path);
        self.manifest.entries.push(entry);
        Ok(())
    }

    /// Returns the manifest. `digest` is the digest of its encoded form.
    pub(crate) fn finish(mut self, digest: [u8; 32]) -> Manifest {
        self.manifest.digest = digest;
        self.manifest
    }

    fn check_path(&mut self, path: &RelativePath) -> Result<(), EntryError> {
        if path.is_root() {
            return Err(EntryError::NoDirectory(path.clone()));
        }
        if path.is_reserved() {
            return Err(EntryError::Reserved(path.clone()));
        }
        if !self.manifest.entries.is_empty() && !path.names().gt(self.last.names()) {
            return Err(EntryError::Order(path.clone()));
        }
        let (parent, _) = path.split();
        while self
            .directories
            .last()
            .is_some_and(|directory| *directory != parent)
        {
            self.directories.pop();
        }
        if self.directories.is_empty() && !parent.is_root() {
            return Err(EntryError::NoDirectory(path.clone()));
        }
        Ok(())
    }

    /// Checks a file's segments and assigns the next addresses to its data.
    fn assign_addresses(&mut self, path: &RelativePath, file: &mut FileEntry) -> Result<(), EntryError> {
        check_segments(path, file)?;
        let too_large = || EntryError::TooLarge(path.clone());
        let number = u32::try_from(self.manifest.files.len()).map_err(|_| too_large())?;
        let index = u32::try_from(self.manifest.entries.len()).map_err(|_| too_large())?;
        let (len, extent) = (file.data_len(), self.manifest.layout.extent_size());
        let mut address = self.manifest.bytes;
        if len >= ALIGNED_EXTENTS * extent {
            address = address.checked_next_multiple_of(extent).ok_or_else(too_large)?;
        }
        let end = address.checked_add(len).ok_or_else(too_large)?;
        let layout = Layout::new(end, self.manifest.extent_size).map_err(|_| too_large())?;
        file.address = address;
        for segment in &file.segments {
            self.manifest.slices.push(Slice {
                address,
                len: segment.len,
                file: number,
                offset: segment.offset,
            });
            address += segment.len;
        }
        if len > 0 {
            self.manifest.bytes = end;
            self.manifest.layout = layout;
        }
        self.manifest.files.push(index);
        Ok(())
    }
}

fn check_attributes(entry: &Entry) -> Result<(), EntryError> {
    let attributes = &entry.attributes;
    if attributes.mode > 0o7777 {
        return Err(EntryError::Mode {
            path: entry.path.clone(),
            mode: attributes.mode,
        });
    }
    let changed = match &entry.kind {
        EntryKind::File(file) => file.changed.nanoseconds,
        _ => 0,
    };
    if attributes.modified.nanoseconds.max(changed) >= 1_000_000_000 {
        return Err(EntryError::Time(entry.path.clone()));
    }
    Ok(())
}

fn check_segments(path: &RelativePath, file: &FileEntry) -> Result<(), EntryError> {
    let error = || EntryError::Segments(path.clone());
    if file.size > FILE_SIZE_MAX || file.segments.len() > SEGMENTS_MAX {
        return Err(error());
    }
    let mut end = 0;
    for (index, segment) in file.segments.iter().enumerate() {
        let touches = index > 0 && segment.offset == end;
        if segment.len == 0 || segment.offset < end || touches {
            return Err(error());
        }
        end = segment.offset.checked_add(segment.len).ok_or_else(error)?;
    }
    if end > file.size {
        return Err(error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Attributes, Segment};

    fn path(text: &str) -> RelativePath {
        RelativePath::new(text.as_bytes()).unwrap()
    }

    fn file(name: &str, segments: &[(u64, u64)], size: u64) -> Entry {
        let segments = segments.iter().map(|(offset, len)| Segment {
            offset: *offset,
            len: *len,
        });
        Entry {
            path: path(name),
            attributes: Attributes::default(),
            kind: EntryKind::File(FileEntry {
                size,
                changed: Default::default(),
                segments: segments.collect(),
                address: 0,
            }),
        }
    }

    fn directory(name: &str) -> Entry {
        Entry {
            path: path(name),
            attributes: Attributes::default(),
            kind: EntryKind::Directory,
        }
    }

    #[test]
    fn small_files_are_packed_and_large_ones_begin_at_a_border() {
        let mut builder = ManifestBuilder::new(ExtentSize::Small).unwrap();
        builder.push(file("a", &[(0, 100)], 100)).unwrap();
        builder.push(file("b", &[(0, 50)], 50)).unwrap();
        builder.push(file("c", &[(0, 64 << 20)], 64 << 20)).unwrap();
        builder.push(file("d", &[(0, 7)], 7)).unwrap();
        let manifest = builder.finish([0; 32]);
        assert_eq!(manifest.addresses(1), 100..150);
        assert_eq!(manifest.addresses(2), 1 << 20..65 << 20);
        assert_eq!(manifest.addresses(3), 65 << 20..(65 << 20) + 7);
        assert_eq!(manifest.hash_offset(0), 0);
        assert_eq!(manifest.hash_offset(3), 2 << 20, "an extent continues its file");
        assert_eq!(manifest.hash_offset(65), 0);
        assert_eq!(manifest.extents_of(2), 1..65);
    }

    #[test]
    fn holes_take_no_addresses() {
        let mut builder = ManifestBuilder::new(ExtentSize::Small).unwrap();
        builder
            .push(file("a", &[(4_096, 10), (1 << 40, 20)], 1 << 41))
            .unwrap();
        let manifest = builder.finish([0; 32]);
        assert_eq!(manifest.layout().bytes(), 30);
        let slices: Vec<_> = manifest
            .slices(5..15)
            .map(|slice| (slice.address, slice.len, slice.offset))
            .collect();
        assert_eq!(slices, [(5, 5, 4_101), (10, 5, 1 << 40)]);
    }

    #[test]
    fn an_entry_comes_once_behind_its_directory() {
        let mut builder = ManifestBuilder::new(ExtentSize::Small).unwrap();
        builder.push(directory("a")).unwrap();
        builder.push(file("a/x", &[], 0)).unwrap();
        builder.push(file("a.b", &[], 0)).unwrap();
        for (entry, wrong) in [
            (file("a.b", &[], 0), "a path comes once"),
            (file("a/y", &[], 0), "ascending order"),
            (file("b/c", &[], 0), "no directory"),
            (file("a.b/c", &[], 0), "no directory"),
            (file(".millrace-x", &[], 0), "rename"),
            (file("c", &[(0, 5), (5, 1)], 9), "overlap"),
            (file("c", &[(0, 5)], 4), "outside"),
            (file("c", &[(u64::MAX, 5)], 4), "outside"),
        ] {
            let error = builder.push(entry).unwrap_err().to_string();
            assert!(error.contains(wrong), "{error}");
        }
        assert!(
            builder.push(file("b", &[], 0)).is_ok(),
            "an error changes nothing"
        );
    }
}
