//! The sender's side: reads extents, hashes them at the same time, and detects source files that change.

use crate::digest::{ExtentValue, HaveEntry, Value, extent_value, extent_values, set_root};
use crate::fs::{Access, FileSystem};
use crate::manifest::{Manifest, Slice};
use crate::path::RelativePath;
use crate::scan::SourcePaths;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use thiserror::Error;

/// The number of files that stay open between reads.
const OPEN_FILES: usize = 16;

/// The reaction to a source file that no longer matches the manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnChange {
    /// Reading fails.
    #[default]
    Fail,
    /// The file is withdrawn and the other files continue. The caller may send the file in a second round.
    Withdraw,
}

/// Settings for reading a set of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceOptions {
    /// The size of the cache of extents for repairs and slower receivers, in bytes. At least one extent is
    /// cached.
    pub cache_size: usize,
    /// The reaction to a file that changed.
    pub on_change: OnChange,
}

impl Default for SourceOptions {
    fn default() -> SourceOptions {
        SourceOptions {
            cache_size: 64 << 20,
            on_change: OnChange::Fail,
        }
    }
}

/// The evidence that a file changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeReason {
    /// The size, the modification time or the change time differs from the manifest.
    Metadata,
    /// The digest of the bytes differs from that of the first read.
    Digest,
    /// The file cannot be read any more.
    Unreadable(io::ErrorKind),
}

impl std::fmt::Display for ChangeReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ChangeReason::Metadata => f.write_str("its size or times changed"),
            ChangeReason::Digest => f.write_str("its bytes changed"),
            ChangeReason::Unreadable(kind) => write!(f, "it cannot be read: {kind}"),
        }
    }
}

/// A file that the source stopped sending because it changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Withdrawn {
    /// Number of the file.
    pub file: u32,
    /// Path at the receiver.
    pub path: RelativePath,
    /// The evidence.
    pub reason: ChangeReason,
}

/// The reason why bytes cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SourceError {
    /// A file changed, and [`OnChange::Fail`] is set.
    #[error("{path} changed while it was sent ({reason}); send again, or let changed files be withdrawn")]
    Changed {
        /// Path at the receiver.
        path: RelativePath,
        /// The evidence.
        reason: ChangeReason,
    },
    /// The bytes are not within one extent of the set.
    #[error("{len} bytes at address {address} are not within one extent of the set")]
    OutOfBounds {
        /// The first address.
        address: u64,
        /// Bytes.
        len: u64,
    },
}

/// A set of files to be sent.
#[derive(Debug)]
pub struct Source<F: FileSystem> {
    fs: F,
    manifest: Arc<Manifest>,
    paths: SourcePaths,
    options: SourceOptions,
    values: Vec<Option<Value>>,
    /// Extents whose value is new.
    fresh: VecDeque<u64>,
    /// Extents with their bytes, the last used at the back.
    cache: VecDeque<(u64, Vec<u8>)>,
    /// Open files by number, the last used at the back.
    open: VecDeque<(u32, F::File)>,
    withdrawn: BTreeSet<u32>,
    withdrawals: VecDeque<Withdrawn>,
    reads: u64,
}

impl<F: FileSystem> Source<F> {
    /// Returns a source that has read nothing.
    pub fn new(fs: F, manifest: Arc<Manifest>, paths: SourcePaths, options: SourceOptions) -> Source<F> {
        let extents = usize::try_from(manifest.layout().extents()).unwrap_or(usize::MAX);
        Source {
            fs,
            values: vec![None; extents],
            manifest,
            paths,
            options,
            fresh: VecDeque::new(),
            cache: VecDeque::new(),
            open: VecDeque::new(),
            withdrawn: BTreeSet::new(),
            withdrawals: VecDeque::new(),
            reads: 0,
        }
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// Returns how many extents were read from files, repeated reads included.
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Returns bytes of the set. The whole extent is read and hashed unless it is cached.
    ///
    /// # Errors
    /// If the bytes cross an extent, or a file changed and [`OnChange::Fail`] is set.
    pub fn read(&mut self, address: u64, len: u64) -> Result<&[u8], SourceError> {
        let layout = self.manifest.layout();
        layout
            .check(address, len)
            .map_err(|_| SourceError::OutOfBounds { address, len })?;
        let extent = layout.extent_of(address);
        let from = (address - layout.bounds(extent).0) as usize;
        let bytes = self.load(extent)?;
        Ok(&bytes[from..from + len as usize])
    }

    /// Returns true if the receiver's bytes of an extent are those of the source.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub fn check_have(&mut self, have: &HaveEntry) -> Result<bool, SourceError> {
        if have.extent >= self.manifest.layout().extents() {
            return Ok(false);
        }
        if self.value(have.extent).is_none() {
            self.load(have.extent)?;
        }
        Ok(self.value(have.extent) == Some(have.value))
    }

    /// Returns the next new value: of an extent that was read for the first time, or again after a
    /// withdrawal.
    pub fn poll_value(&mut self) -> Option<ExtentValue> {
        loop {
            let extent = self.fresh.pop_front()?;
            if let Some(value) = self.value(extent) {
                return Some(ExtentValue { extent, value });
            }
        }
    }

    /// Returns the value of an extent, if it was read.
    pub fn value(&self, extent: u64) -> Option<Value> {
        *self.values.get(usize::try_from(extent).ok()?)?
    }

    /// Returns the values of the groups of an extent.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub fn group_values(&mut self, extent: u64) -> Result<Vec<Value>, SourceError> {
        let (start, end) = self.manifest.layout().bounds(extent);
        if start >= end {
            return Err(SourceError::OutOfBounds {
                address: start,
                len: 0,
            });
        }
        let offset = self.manifest.hash_offset(extent);
        Ok(extent_values(offset, self.load(extent)?).1)
    }

    /// Returns the next withdrawn file that was not returned before.
    pub fn poll_withdrawn(&mut self) -> Option<Withdrawn> {
        self.withdrawals.pop_front()
    }

    /// Returns the root of the set once every extent was read. Returns `None` after a withdrawal: a sink may
    /// have committed the file before it learned of the withdrawal.
    pub fn root(&self) -> Option<[u8; 32]> {
        if !self.withdrawn.is_empty() {
            return None;
        }
        let values: Option<Vec<&Value>> = self.values.iter().map(Option::as_ref).collect();
        Some(set_root(self.manifest.digest(), values?.into_iter()))
    }

    /// Returns the bytes of an extent.
    fn load(&mut self, extent: u64) -> Result<&[u8], SourceError> {
        let is_last = self.cache.back().is_some_and(|(cached, _)| *cached == extent);
        if is_last {
            // Most calls end here: the packet's extent is the last one used.
        } else if let Some(at) = self.cache.iter().position(|(cached, _)| *cached == extent) {
            if let Some(entry) = self.cache.remove(at) {
                self.cache.push_back(entry);
            }
        } else {
            let (start, end) = self.manifest.layout().bounds(extent);
            let capacity = self.options.cache_size / ((end - start) as usize).max(1);
            let mut memory = Vec::new();
            while self.cache.len() >= capacity.max(1) {
                memory = self.cache.pop_front().map(|(_, bytes)| bytes).unwrap_or_default();
            }
            let bytes = self.fetch(extent, memory)?;
            self.cache.push_back((extent, bytes));
        }
        Ok(self.cache.back().map_or(&[], |(_, bytes)| bytes))
    }

    /// Reads an extent until its bytes match the manifest and earlier reads. The memory of `bytes` is reused.
    fn fetch(&mut self, extent: u64, mut bytes: Vec<u8>) -> Result<Vec<u8>, SourceError> {
        let (start, end) = self.manifest.layout().bounds(extent);
        let manifest = Arc::clone(&self.manifest);
        'again: loop {
            self.reads += 1;
            bytes.resize((end - start) as usize, 0);
            let mut filled = 0;
            for slice in manifest.slices(start..end) {
                let from = (slice.address - start) as usize;
                // Addresses between files read as zeros, and so do files that were withdrawn.
                bytes[filled.min(from)..from].fill(0);
                filled = from + slice.len as usize;
                let target = &mut bytes[from..filled];
                if self.withdrawn.contains(&slice.file) {
                    target.fill(0);
                } else if let Err(reason) = self.read_slice(slice, target) {
                    self.changed(slice.file, reason)?;
                    continue 'again;
                }
            }
            bytes[filled..].fill(0);
            let value = extent_value(manifest.hash_offset(extent), &bytes);
            let known = &mut self.values[extent as usize];
            match known {
                Some(known) if *known != value => {
                    // The digest changed, but the times did not: any file of the extent may have changed.
                    let mut files: Vec<u32> = manifest.slices(start..end).map(|slice| slice.file).collect();
                    files.dedup();
                    files.retain(|file| !self.withdrawn.contains(file));
                    for file in files {
                        self.changed(file, ChangeReason::Digest)?;
                    }
                }
                Some(_) => return Ok(bytes),
                None => {
                    *known = Some(value);
                    self.fresh.push_back(extent);
                    return Ok(bytes);
                }
            }
        }
    }

    /// Reads bytes of a file, and checks afterwards that the file still has the size and the times of the
    /// manifest.
    fn read_slice(&mut self, slice: Slice, target: &mut [u8]) -> Result<(), ChangeReason> {
        let unreadable = |error: io::Error| ChangeReason::Unreadable(error.kind());
        let manifest = Arc::clone(&self.manifest);
        let (entry, content) = manifest.file(slice.file).ok_or(ChangeReason::Metadata)?;
        let open = match self.open.iter().position(|(file, _)| *file == slice.file) {
            Some(at) => self.open.remove(at).map(|(_, open)| open),
            None => None,
        };
        let open = match open {
            Some(open) => open,
            None => {
                let path = self.paths.resolve(&entry.path).ok_or(ChangeReason::Metadata)?;
                self.fs.open(&path, Access::Read).map_err(unreadable)?
            }
        };
        let len = self.fs.read_at(&open, slice.offset, target).map_err(unreadable)?;
        let metadata = self.fs.file_metadata(&open).map_err(unreadable)?;
        let same = metadata.size == content.size
            && metadata.modified == entry.attributes.modified
            && crate::scan::version(&metadata) == content.changed;
        if len < target.len() || !same {
            return Err(ChangeReason::Metadata);
        }
        if self.open.len() >= OPEN_FILES {
            self.open.pop_front();
        }
        self.open.push_back((slice.file, open));
        Ok(())
    }

    /// Withdraws a changed file, or returns an error if [`OnChange::Fail`] is set.
    fn changed(&mut self, file: u32, reason: ChangeReason) -> Result<(), SourceError> {
        let path = self
            .manifest
            .file(file)
            .map_or_else(RelativePath::root, |(entry, _)| entry.path.clone());
        if self.options.on_change == OnChange::Fail {
            return Err(SourceError::Changed { path, reason });
        }
        self.withdrawn.insert(file);
        self.open.retain(|(open, _)| *open != file);
        // The file reads as zeros from now on. Its extents get new values, and the sinks compare these with
        // their own.
        let extents = self.manifest.extents_of(file);
        self.cache.retain(|(extent, _)| !extents.contains(extent));
        for value in &mut self.values[extents.start as usize..extents.end as usize] {
            *value = None;
        }
        self.withdrawals.push_back(Withdrawn { file, path, reason });
        Ok(())
    }
}
