//! The scan: from the paths that a user names to a manifest, entry by entry.

use crate::entry::{Attributes, Entry, EntryKind, FileEntry, Segment, Timestamp};
use crate::fs::{Access, FileIdentity, FileSystem, FileType, Metadata};
use crate::manifest::{
    EntryError, Manifest, ManifestBuilder, SEGMENTS_MAX, encode_end, encode_entry, encode_header,
};
use crate::path::{PathError, RelativePath};
use millrace_transport::extent::ExtentSize;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A set uses large extents if one of its named sources is a file larger than this many bytes.
const LARGE_FILE: u64 = 1 << 40;

/// A source that a user names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Argument {
    /// Path below the root of the source's file system.
    pub path: RelativePath,
    /// The name at the receiver. `None` sends the contents of a directory, as a trailing slash does in rsync.
    pub name: Option<Vec<u8>>,
}

/// The reason why a scan fails.
#[derive(Debug, Error)]
pub enum ScanError {
    /// A path cannot be read.
    #[error("{path} cannot be read: {error}")]
    Io { path: String, error: io::Error },
    /// A path is not valid.
    #[error(transparent)]
    Path(#[from] PathError),
    /// An entry does not fit into a manifest.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// Two sources have the same name at the receiver.
    #[error("two sources would both become {0} at the receiver; rename one, or send them apart")]
    Duplicate(RelativePath),
    /// A trailing slash follows a path that is no directory.
    #[error("{0} is no directory; leave out the trailing slash")]
    NoDirectory(String),
    /// A source is a pipe or a device, or a link to one.
    #[error(
        "{0} is a pipe, a socket or a device, or leads to one: a transfer announces the size of each file and may read it again; write its \
         bytes into a file first, and send that"
    )]
    Stream(String),
    /// The extent size is not valid for the address space of the set.
    #[error("the extent size is not valid")]
    ExtentSize,
}

/// The reason why a path is not sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SkipReason {
    /// The path is a device, socket or pipe.
    Special,
    /// The name is that of a temporary file or journal of a transfer.
    Reserved,
    /// The path was removed during the scan.
    Removed,
    /// The path may not be read.
    PermissionDenied,
    /// The path is too long.
    Path(PathError),
    /// A manifest cannot have the entry.
    Entry(EntryError),
}

impl SkipReason {
    /// Returns true if the user misses something at the receiver that would have been sent otherwise.
    pub fn is_failure(&self) -> bool {
        matches!(
            self,
            SkipReason::PermissionDenied | SkipReason::Path(_) | SkipReason::Entry(_)
        )
    }
}

impl std::fmt::Display for SkipReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SkipReason::Special => f.write_str("a device, socket or pipe"),
            SkipReason::Reserved => f.write_str("a temporary file of a transfer"),
            SkipReason::Removed => f.write_str("removed meanwhile"),
            SkipReason::PermissionDenied => f.write_str("permission denied"),
            SkipReason::Path(error) => error.fmt(f),
            SkipReason::Entry(error) => error.fmt(f),
        }
    }
}

/// One step of a scan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScanItem {
    /// An entry was added to the manifest.
    Entry,
    /// A path is not sent.
    Skipped {
        /// Path at the receiver, which may be too long for a [`RelativePath`].
        path: String,
        reason: SkipReason,
    },
}

/// Settings for reading the source's directories into a manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScanOptions {
    /// Owners and extended attributes are part of the manifest.
    pub preserve: bool,
    /// Extent size. `None` selects 16 MiB if a named source is a file over 1 TiB, and 1 MiB otherwise.
    pub extent_size: Option<ExtentSize>,
}

/// Maps paths of a manifest to paths of the source.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SourcePaths {
    /// The source path of each named source, by the first name of its path at the receiver.
    bases: BTreeMap<Vec<u8>, RelativePath>,
}

impl SourcePaths {
    /// Returns the source's path of an entry.
    pub fn resolve(&self, path: &RelativePath) -> Option<RelativePath> {
        let mut names = path.names();
        let base = self.bases.get(names.next()?)?;
        names.try_fold(base.clone(), |path, name| path.join(name).ok())
    }
}

/// A scan in progress: depth first, names in ascending order.
#[derive(Debug)]
pub struct Scan {
    options: ScanOptions,
    paths: SourcePaths,
    /// For each open directory: path at the receiver, path at the source, remaining names in descending
    /// order.
    stack: Vec<(RelativePath, RelativePath, Vec<Vec<u8>>)>,
    builder: ManifestBuilder,
    /// File number by device and inode, of files with more than one link.
    links: HashMap<FileIdentity, u32>,
    encoded: Vec<u8>,
    hasher: blake3::Hasher,
    hashed: usize,
    digest: Option<[u8; 32]>,
}

impl Scan {
    /// Begins a scan.
    ///
    /// # Errors
    /// If a source cannot be read, or two have the same name.
    pub fn new<F: FileSystem>(
        fs: &F,
        arguments: &[Argument],
        options: ScanOptions,
    ) -> Result<Scan, ScanError> {
        let mut bases = BTreeMap::new();
        let mut large = false;
        for argument in arguments {
            let metadata = fs
                .metadata(&argument.path)
                .map_err(|error| failure(&argument.path, error))?;
            large |= metadata.size > LARGE_FILE;
            let named = match &argument.name {
                Some(name) => vec![(name.clone(), argument.path.clone())],
                None if metadata.file_type != FileType::Directory => {
                    return Err(ScanError::NoDirectory(argument.path.to_string()));
                }
                None => {
                    let names = fs
                        .names(&argument.path)
                        .map_err(|error| failure(&argument.path, error))?;
                    let join = |name: Vec<u8>| Ok((name.clone(), argument.path.join(&name)?));
                    names
                        .into_iter()
                        .map(join)
                        .collect::<Result<Vec<_>, PathError>>()?
                }
            };
            for (name, path) in named {
                let at = RelativePath::new(&name)?;
                if bases.insert(name, path).is_some() {
                    return Err(ScanError::Duplicate(at));
                }
            }
        }
        let size = options.extent_size.unwrap_or(if large {
            ExtentSize::Large
        } else {
            ExtentSize::Small
        });
        let mut encoded = Vec::new();
        encode_header(size, options.preserve, &mut encoded);
        let names = bases.keys().rev().cloned().collect();
        Ok(Scan {
            options,
            stack: vec![(RelativePath::root(), RelativePath::root(), names)],
            paths: SourcePaths { bases },
            builder: ManifestBuilder::new(size).ok_or(ScanError::ExtentSize)?,
            links: HashMap::new(),
            encoded,
            hasher: blake3::Hasher::new(),
            hashed: 0,
            digest: None,
        })
    }

    /// Adds the next entry to the manifest. Returns `None` once all entries are added.
    ///
    /// # Errors
    /// If a path cannot be read or does not fit into a manifest. A path that vanished or may not be read is skipped.
    pub fn next_item<F: FileSystem>(&mut self, fs: &F) -> Result<Option<ScanItem>, ScanError> {
        loop {
            let Some((directory, source, names)) = self.stack.last_mut() else {
                self.end();
                return Ok(None);
            };
            let Some(name) = names.pop() else {
                self.stack.pop();
                continue;
            };
            let joined = directory.join(&name).and_then(|path| {
                Ok(match self.paths.bases.get(&name) {
                    Some(base) if directory.is_root() => (path, base.clone()),
                    _ => (path, source.join(&name)?),
                })
            });
            let (path, source) = match joined {
                Ok(joined) => joined,
                Err(error) => {
                    return Ok(Some(ScanItem::Skipped {
                        path: format!("{directory}/{}", String::from_utf8_lossy(&name).escape_debug()),
                        reason: SkipReason::Path(error),
                    }));
                }
            };
            let reason = if path.is_reserved() {
                SkipReason::Reserved
            } else {
                match self.visit(fs, &path, &source) {
                    Ok(None) => return Ok(Some(ScanItem::Entry)),
                    Ok(Some(reason)) => reason,
                    Err(ScanError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                        SkipReason::Removed
                    }
                    Err(ScanError::Io { error, .. }) if error.kind() == io::ErrorKind::PermissionDenied => {
                        SkipReason::PermissionDenied
                    }
                    // One entry that a manifest cannot have keeps no other from being sent.
                    Err(ScanError::Entry(
                        error @ (EntryError::Segments(_) | EntryError::Target(_) | EntryError::Time(_)),
                    )) => SkipReason::Entry(error),
                    Err(error) => return Err(error),
                }
            };
            let path = path.to_string();
            return Ok(Some(ScanItem::Skipped { path, reason }));
        }
    }

    /// Returns the encoded bytes of the manifest that were added since the last call.
    pub fn take_encoded(&mut self) -> Vec<u8> {
        self.hash();
        self.hashed = 0;
        std::mem::take(&mut self.encoded)
    }

    /// Returns the entries added so far.
    pub fn entries(&self) -> &[Entry] {
        self.builder.manifest().entries()
    }

    /// Returns the manifest, and the paths of its entries at the source; `None` before the scan has ended.
    pub fn finish(self) -> Option<(Manifest, SourcePaths)> {
        Some((self.builder.finish(self.digest?), self.paths))
    }

    /// Appends the end of the manifest, once.
    fn end(&mut self) {
        if self.digest.is_none() {
            encode_end(self.builder.manifest().entries().len(), &mut self.encoded);
            self.hash();
            let digest = *self.hasher.finalize().as_bytes();
            self.encoded.extend_from_slice(&digest);
            self.hashed = self.encoded.len();
            self.digest = Some(digest);
        }
    }

    fn hash(&mut self) {
        self.hasher.update(&self.encoded[self.hashed..]);
        self.hashed = self.encoded.len();
    }

    fn visit<F: FileSystem>(
        &mut self,
        fs: &F,
        path: &RelativePath,
        source: &RelativePath,
    ) -> Result<Option<SkipReason>, ScanError> {
        let io = |error| failure(source, error);
        let metadata = fs.metadata(source).map_err(io)?;
        let mut attributes = Attributes {
            mode: metadata.mode,
            modified: metadata.modified,
            owner: self.options.preserve.then_some(metadata.owner),
            xattrs: Vec::new(),
        };
        let mut names = None;
        let kind = match metadata.file_type {
            FileType::Other => return Ok(Some(SkipReason::Special)),
            FileType::Symlink => EntryKind::Symlink(fs.read_link(source).map_err(io)?.into()),
            FileType::Directory => {
                let directory = fs.open(source, Access::Directory).map_err(io)?;
                if self.options.preserve {
                    attributes.xattrs = fs.xattrs(&directory).map_err(io)?;
                }
                let mut children = fs.names(source).map_err(io)?;
                children.sort_unstable_by(|a, b| b.cmp(a));
                names = Some(children);
                EntryKind::Directory
            }
            FileType::File => match self.links.get(&metadata.identity) {
                Some(file) => {
                    attributes = Attributes::default();
                    EntryKind::HardLink(*file)
                }
                None => {
                    let file = fs.open(source, Access::Read).map_err(io)?;
                    // The path may have been replaced between the examination and the opening of the file.
                    let metadata = fs.file_metadata(&file).map_err(io)?;
                    if metadata.file_type != FileType::File {
                        return Ok(Some(SkipReason::Special));
                    }
                    if self.options.preserve {
                        attributes.xattrs = fs.xattrs(&file).map_err(io)?;
                    }
                    attributes.mode = metadata.mode;
                    attributes.modified = metadata.modified;
                    EntryKind::File(file_entry(fs, &file, &metadata).map_err(io)?)
                }
            },
        };
        let is_file = matches!(kind, EntryKind::File(_));
        let number = self.builder.manifest().files();
        let last = self.builder.last().clone();
        let entry = Entry {
            path: path.clone(),
            attributes,
            kind,
        };
        let mut encoded = Vec::new();
        encode_entry(&entry, &last, self.options.preserve, &mut encoded);
        self.builder.push(entry)?;
        self.encoded.append(&mut encoded);
        if is_file && metadata.links > 1 {
            self.links.insert(metadata.identity, number);
        }
        if let Some(names) = names {
            self.stack.push((path.clone(), source.clone(), names));
        }
        Ok(None)
    }
}

/// Returns the entry of an open file.
fn file_entry<F: FileSystem>(fs: &F, file: &F::File, metadata: &Metadata) -> io::Result<FileEntry> {
    let mut segments = match metadata.size {
        0 => Vec::new(),
        size => fs.segments(file, size)?,
    };
    merge_segments(&mut segments);
    Ok(FileEntry {
        size: metadata.size,
        changed: version(metadata),
        segments,
        address: 0,
    })
}

/// Returns the time that changes whenever the content of a file does.
pub(crate) fn version(metadata: &Metadata) -> Timestamp {
    metadata.changed
}

/// Fills the smallest holes until there are at most [`SEGMENTS_MAX`] segments.
fn merge_segments(segments: &mut Vec<Segment>) {
    let mut hole = 4_096;
    while segments.len() > SEGMENTS_MAX {
        let mut merged: Vec<Segment> = Vec::with_capacity(segments.len() / 2);
        for segment in segments.iter() {
            match merged.last_mut() {
                Some(last) if segment.offset - (last.offset + last.len) <= hole => {
                    last.len = segment.offset + segment.len - last.offset;
                }
                _ => merged.push(*segment),
            }
        }
        *segments = merged;
        hole *= 2;
    }
}

fn failure(path: &RelativePath, error: io::Error) -> ScanError {
    ScanError::Io {
        path: path.to_string(),
        error,
    }
}

/// Returns the sources for paths of the operating system. The root of their file system is `/`.
///
/// `data` is sent as `data`; `data/`, `.` and `/` are sent as their contents. Symlinks in the path itself are followed.
///
/// # Errors
/// If a path does not exist or cannot be resolved.
pub fn resolve_arguments<P: AsRef<Path>>(paths: &[P]) -> Result<Vec<Argument>, ScanError> {
    paths.iter().map(|path| resolve_argument(path.as_ref())).collect()
}

/// Returns true for a pipe, a socket or a device, and for a link to an open one, as `<(command)` in a shell and /dev/stdin are. Another
/// symlink is sent as a symlink.
fn is_stream(path: &Path) -> bool {
    let is_other = |found: &std::fs::Metadata| !(found.is_file() || found.is_dir() || found.is_symlink());
    match path.symlink_metadata() {
        Ok(found) if found.is_symlink() => {
            let is_open = path.starts_with("/dev") || path.starts_with("/proc");
            is_open && path.metadata().is_ok_and(|found| is_other(&found))
        }
        Ok(found) => is_other(&found),
        Err(_) => false,
    }
}

fn resolve_argument(path: &Path) -> Result<Argument, ScanError> {
    let io = |error| ScanError::Io {
        path: path.display().to_string(),
        error,
    };
    if is_stream(path) {
        return Err(ScanError::Stream(path.display().to_string()));
    }
    let contents = crate::fs::path_bytes(path).ends_with(b"/") || path.file_name().is_none();
    // A symlink that is named without a slash is sent as a symlink.
    let resolved: PathBuf = match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if !contents => {
            let parent = if parent.as_os_str().is_empty() {
                Path::new(".")
            } else {
                parent
            };
            parent.canonicalize().map_err(io)?.join(name)
        }
        _ => path.canonicalize().map_err(io)?,
    };
    let bytes = crate::fs::path_bytes(&resolved);
    let name = path
        .file_name()
        .map(|name| crate::fs::path_bytes(Path::new(name)).to_vec());
    Ok(Argument {
        path: RelativePath::new(bytes.strip_prefix(b"/").unwrap_or(bytes))?,
        name: name.filter(|_| !contents),
    })
}
