//! Decodes a manifest as its bytes arrive, in pieces of any size. The sender need not be trusted.

use super::encode::{DIRECTORY, END, FILE, FLAG_LARGE, FLAG_PRESERVE, HARD_LINK, MAGIC, SYMLINK};
use super::{EntryError, Manifest, ManifestBuilder, SEGMENTS_MAX};
use crate::entry::{Attributes, Entry, EntryKind, FileEntry, Owner, Segment, Timestamp, Xattr};
use crate::path::{NAME_MAX, PATH_MAX, PathError, RelativePath};
use crate::varint::{VarintError, take, take_bytes, take_signed};
use millrace_transport::extent::ExtentSize;
use thiserror::Error;

/// The maximum size of all extended attributes of an entry together, in bytes.
pub(super) const XATTRS_SIZE_MAX: usize = 64 << 10;
/// The size in bytes above which an incomplete entry is an error. Every valid entry is shorter.
const ENTRY_SIZE_MAX: usize = 2 * PATH_MAX + XATTRS_SIZE_MAX + 20 * SEGMENTS_MAX + 256;

/// Limits on the manifest that a peer sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ManifestLimits {
    pub entries: usize,
    /// The maximum number of segments of all files.
    pub segments: usize,
    /// The maximum memory for paths, targets and extended attributes, in bytes.
    pub memory: usize,
    /// The maximum number of data bytes of all files.
    pub bytes: u64,
}

impl Default for ManifestLimits {
    /// Returns limits of ten million entries and 2 GiB of memory, without a limit on data bytes.
    fn default() -> ManifestLimits {
        ManifestLimits {
            entries: 10_000_000,
            segments: 1 << 24,
            memory: 2 << 30,
            bytes: u64::MAX,
        }
    }
}

/// A manifest that is not valid, or exceeds a limit.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ManifestError {
    /// The first bytes are not those of a manifest of version 1.
    #[error("this is no manifest of version 1; update the older of the two programs")]
    Version,
    /// A number is too long, has padding, or is out of its range.
    #[error("the manifest has an invalid number at entry {entry}; the sender violates the protocol")]
    Number {
        /// Number of the entry, from zero.
        entry: usize,
    },
    /// The type of an entry is unknown.
    #[error("entry {entry} of the manifest has the unknown type {tag}; update the receiver")]
    Type {
        /// Number of the entry.
        entry: usize,
        /// The type.
        tag: u8,
    },
    /// An entry shares more bytes with the path before it than that path has.
    #[error("entry {entry} of the manifest shares more of the last path than there is")]
    Shared {
        /// Number of the entry.
        entry: usize,
    },
    /// An entry is longer than any valid one.
    #[error("entry {entry} of the manifest is longer than {ENTRY_SIZE_MAX} bytes")]
    EntryTooLong {
        /// Number of the entry.
        entry: usize,
    },
    /// A path is not valid.
    #[error(transparent)]
    Path(#[from] PathError),
    /// An entry is not valid after the entries before it.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// The extended attributes are too large or not in ascending order.
    #[error(
        "entry {entry} has extended attributes that are out of order, or larger than {XATTRS_SIZE_MAX} bytes in all"
    )]
    Xattrs {
        /// Number of the entry.
        entry: usize,
    },
    /// A limit of the receiver is exceeded.
    #[error("the manifest has more than {limit} {name}, the receiver's limit; raise it or send less at once")]
    Limit {
        /// The name of the limited quantity.
        name: &'static str,
        limit: u64,
    },
    /// The number of entries or the digest at the end does not match.
    #[error("the manifest does not match its digest; send again")]
    Digest,
    /// Bytes follow the end.
    #[error("{0} bytes follow the end of the manifest")]
    Trailing(usize),
    /// The manifest ends before its end entry.
    #[error(
        "the manifest ends after {entries} entries without its end; the connection broke or the sender stopped"
    )]
    Truncated {
        /// Entries so far.
        entries: usize,
    },
}

/// Reads a manifest.
#[derive(Debug)]
pub struct ManifestReader {
    limits: ManifestLimits,
    /// Bytes that are not decoded.
    pending: Vec<u8>,
    /// Decoding is tried again when this many bytes are pending.
    wanted: usize,
    hasher: blake3::Hasher,
    builder: Option<ManifestBuilder>,
    preserve: bool,
    segments: usize,
    memory: usize,
    digest: Option<[u8; 32]>,
    failed: Option<ManifestError>,
}

/// A decoded entry, or the end of the manifest.
enum Step {
    Entry(Entry),
    End,
}

/// The reason why decoding stops: more bytes are needed, or an error.
enum Stop {
    Incomplete,
    Error(ManifestError),
}

impl From<ManifestError> for Stop {
    fn from(error: ManifestError) -> Stop {
        Stop::Error(error)
    }
}

impl ManifestReader {
    /// Returns a reader that has read nothing.
    pub fn new(limits: ManifestLimits) -> ManifestReader {
        ManifestReader {
            limits,
            pending: Vec::new(),
            wanted: 1,
            hasher: blake3::Hasher::new(),
            builder: None,
            preserve: false,
            segments: 0,
            memory: 0,
            digest: None,
            failed: None,
        }
    }

    /// Returns the entries decoded so far.
    pub fn entries(&self) -> &[Entry] {
        self.builder
            .as_ref()
            .map_or(&[], |builder| builder.manifest().entries())
    }

    /// Returns true once the end of the manifest is read.
    pub fn is_complete(&self) -> bool {
        self.digest.is_some()
    }

    /// Reads the next bytes of the manifest.
    ///
    /// # Errors
    /// The first [`ManifestError`] of the manifest. Each later call returns the same error.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), ManifestError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.pending.extend_from_slice(bytes);
        if self.pending.len() < self.wanted {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        let mut rest = &pending[..];
        let result = self.decode(&mut rest);
        self.pending = rest.to_vec();
        // A long incomplete entry is decoded again only after its bytes have doubled, so that the work stays
        // linear.
        self.wanted = if self.pending.len() > 4_096 {
            2 * self.pending.len()
        } else {
            1
        };
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    /// Returns the manifest.
    ///
    /// # Errors
    /// If the manifest is incomplete or invalid.
    pub fn finish(mut self) -> Result<Manifest, ManifestError> {
        if self.digest.is_none() {
            self.wanted = 0;
            self.feed(&[])?;
        }
        match (self.digest, self.builder) {
            (Some(digest), Some(builder)) => Ok(builder.finish(digest)),
            (_, builder) => Err(ManifestError::Truncated {
                entries: builder.map_or(0, |builder| builder.manifest().entries().len()),
            }),
        }
    }

    fn decode(&mut self, rest: &mut &[u8]) -> Result<(), ManifestError> {
        while !rest.is_empty() {
            if self.digest.is_some() {
                return Err(ManifestError::Trailing(rest.len()));
            }
            let mut ahead = *rest;
            match self.step(&mut ahead) {
                Ok(()) => *rest = ahead,
                Err(Stop::Incomplete) if rest.len() > ENTRY_SIZE_MAX => {
                    return Err(ManifestError::EntryTooLong {
                        entry: self.entries().len(),
                    });
                }
                Err(Stop::Incomplete) => return Ok(()),
                Err(Stop::Error(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Decodes the header, an entry or the end.
    fn step(&mut self, bytes: &mut &[u8]) -> Result<(), Stop> {
        let before = *bytes;
        let Some(builder) = &mut self.builder else {
            let (extent_size, preserve) = decode_header(bytes)?;
            self.preserve = preserve;
            self.builder = ManifestBuilder::new(extent_size);
            self.hasher.update(&before[..before.len() - bytes.len()]);
            return Ok(());
        };
        let count = builder.manifest().entries().len();
        let mut fields = Fields { bytes, entry: count };
        match fields.step(builder.last(), self.preserve)? {
            Step::Entry(entry) => {
                self.segments += segments(&entry);
                self.memory += memory(&entry);
                within("entries", count as u64 + 1, self.limits.entries as u64)?;
                within("segments", self.segments as u64, self.limits.segments as u64)?;
                within("bytes of names", self.memory as u64, self.limits.memory as u64)?;
                builder.push(entry).map_err(ManifestError::from)?;
                within(
                    "bytes of data",
                    builder.manifest().layout().bytes(),
                    self.limits.bytes,
                )?;
                self.hasher.update(&before[..before.len() - bytes.len()]);
            }
            Step::End => {
                let mut hasher = self.hasher.clone();
                hasher.update(&before[..before.len() - bytes.len()]);
                let digest = take_bytes(bytes, 32).map_err(|_| Stop::Incomplete)?;
                let expected = *hasher.finalize().as_bytes();
                if digest != expected {
                    return Err(ManifestError::Digest.into());
                }
                self.digest = Some(expected);
            }
        }
        Ok(())
    }
}

fn decode_header(bytes: &mut &[u8]) -> Result<(ExtentSize, bool), Stop> {
    let known = bytes.len().min(MAGIC.len());
    if bytes[..known] != MAGIC[..known] {
        return Err(ManifestError::Version.into());
    }
    let header = take_bytes(bytes, MAGIC.len() + 1).map_err(|_| Stop::Incomplete)?;
    let flags = header[MAGIC.len()];
    if flags & !(FLAG_LARGE | FLAG_PRESERVE) != 0 {
        return Err(ManifestError::Version.into());
    }
    let large = flags & FLAG_LARGE != 0;
    Ok((
        if large {
            ExtentSize::Large
        } else {
            ExtentSize::Small
        },
        flags & FLAG_PRESERVE != 0,
    ))
}

/// Returns the number of segments of an entry.
fn segments(entry: &Entry) -> usize {
    match &entry.kind {
        EntryKind::File(file) => file.segments.len(),
        EntryKind::Symlink(_) | EntryKind::Directory | EntryKind::HardLink(_) => 0,
    }
}

/// The bytes of memory that an extended attribute occupies besides name and value: two pointers with lengths.
const XATTR_OVERHEAD: usize = size_of::<Xattr>();

/// Returns the bytes of memory that the names and values of an entry occupy.
fn memory(entry: &Entry) -> usize {
    let xattrs: usize = entry
        .attributes
        .xattrs
        .iter()
        .map(|(name, value)| name.len() + value.len() + XATTR_OVERHEAD)
        .sum();
    let target = match &entry.kind {
        EntryKind::Symlink(target) => target.len(),
        EntryKind::File(_) | EntryKind::Directory | EntryKind::HardLink(_) => 0,
    };
    entry.path.as_bytes().len() + xattrs + target
}

fn within(name: &'static str, value: u64, limit: u64) -> Result<(), Stop> {
    if value > limit {
        return Err(ManifestError::Limit { name, limit }.into());
    }
    Ok(())
}

/// The bytes of one entry.
struct Fields<'a, 'b> {
    bytes: &'a mut &'b [u8],
    /// Number of the entry, for errors.
    entry: usize,
}

impl<'b> Fields<'_, 'b> {
    fn step(&mut self, last: &RelativePath, preserve: bool) -> Result<Step, Stop> {
        let tag = self.bytes(1)?[0];
        if tag == END {
            if self.number(u64::MAX)? != self.entry as u64 {
                return Err(ManifestError::Digest.into());
            }
            return Ok(Step::End);
        }
        if !matches!(tag, DIRECTORY | FILE | SYMLINK | HARD_LINK) {
            return Err(ManifestError::Type {
                entry: self.entry,
                tag,
            }
            .into());
        }
        let path = self.path(last)?;
        let attributes = match tag {
            HARD_LINK => Attributes::default(),
            _ => self.attributes(preserve)?,
        };
        let kind = match tag {
            FILE => EntryKind::File(self.file()?),
            SYMLINK => EntryKind::Symlink(self.counted(PATH_MAX)?.into()),
            HARD_LINK => EntryKind::HardLink(self.number(u64::from(u32::MAX))? as u32),
            _ => EntryKind::Directory,
        };
        Ok(Step::Entry(Entry {
            path,
            attributes,
            kind,
        }))
    }

    fn path(&mut self, last: &RelativePath) -> Result<RelativePath, Stop> {
        let shared = self.number(PATH_MAX as u64)? as usize;
        let own = self.counted(PATH_MAX)?;
        let shared = last
            .as_bytes()
            .get(..shared)
            .ok_or(ManifestError::Shared { entry: self.entry })?;
        Ok(RelativePath::new(&[shared, own].concat()).map_err(ManifestError::from)?)
    }

    fn attributes(&mut self, preserve: bool) -> Result<Attributes, Stop> {
        let mut attributes = Attributes {
            mode: self.number(0o7777)? as u32,
            modified: self.time()?,
            ..Attributes::default()
        };
        if preserve {
            attributes.owner = Some(Owner {
                user: self.number(u64::from(u32::MAX))? as u32,
                group: self.number(u64::from(u32::MAX))? as u32,
            });
            let error = ManifestError::Xattrs { entry: self.entry };
            let mut size = 0;
            for _ in 0..self.number(XATTRS_SIZE_MAX as u64)? {
                let name: Box<[u8]> = self.counted(NAME_MAX)?.into();
                let value: Box<[u8]> = self.counted(XATTRS_SIZE_MAX)?.into();
                size += name.len() + value.len();
                let ascends = attributes.xattrs.last().is_none_or(|(before, _)| *before < name);
                if name.is_empty() || name.contains(&0) || !ascends || size > XATTRS_SIZE_MAX {
                    return Err(error.into());
                }
                attributes.xattrs.push((name, value));
            }
        }
        Ok(attributes)
    }

    fn file(&mut self) -> Result<FileEntry, Stop> {
        let size = self.number(u64::MAX)?;
        let changed = self.time()?;
        let count = self.number(SEGMENTS_MAX as u64 + 1)?;
        let mut segments = Vec::new();
        if count == 0 {
            segments = FileEntry::whole(size);
        }
        let mut end = 0_u64;
        for _ in 1..count.max(1) {
            let offset = end.checked_add(self.number(u64::MAX)?).ok_or(self.invalid())?;
            let len = self.number(u64::MAX)?;
            end = offset.checked_add(len).ok_or(self.invalid())?;
            segments.push(Segment { offset, len });
        }
        let file = FileEntry {
            size,
            changed,
            segments,
            address: 0,
        };
        // Each file has one encoding: a file without holes is encoded without segments.
        if count > 0 && end <= size && file.data_len() == size {
            return Err(self.invalid().into());
        }
        Ok(file)
    }

    fn time(&mut self) -> Result<Timestamp, Stop> {
        let seconds = take_signed(self.bytes).map_err(|error| self.stop(error))?;
        Ok(Timestamp {
            seconds,
            nanoseconds: self.number(999_999_999)? as u32,
        })
    }

    fn number(&mut self, max: u64) -> Result<u64, Stop> {
        let number = take(self.bytes).map_err(|error| self.stop(error))?;
        if number > max {
            return Err(self.invalid().into());
        }
        Ok(number)
    }

    fn counted(&mut self, max: usize) -> Result<&'b [u8], Stop> {
        let len = self.number(max as u64)? as usize;
        self.bytes(len)
    }

    fn bytes(&mut self, len: usize) -> Result<&'b [u8], Stop> {
        take_bytes(self.bytes, len).map_err(|error| self.stop(error))
    }

    fn stop(&self, error: VarintError) -> Stop {
        match error {
            VarintError::Incomplete => Stop::Incomplete,
            VarintError::Invalid => self.invalid().into(),
        }
    }

    fn invalid(&self) -> ManifestError {
        ManifestError::Number { entry: self.entry }
    }
}
