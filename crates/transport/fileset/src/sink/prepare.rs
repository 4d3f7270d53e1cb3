//! The beginning of a sink: directories, the journal of an earlier run, and the have-map.

use super::claims::Claims;
use super::progress::Existing;
use super::{
    FileProgress, FileState, PERMISSIONS, Progress, Sink, SinkError, SinkEvent, SinkOptions, have_entry,
    holds_temporary_files, is_of_entry, journal_path,
};
use crate::digest::{HaveEntry, extent_value};
use crate::entry::{Entry, EntryKind};
use crate::fs::{Access, FileSystem, FileType, optional};
use crate::journal::{self, Record};
use crate::manifest::Manifest;
use crate::path::RelativePath;
use millrace_transport::ranges::RangeSet;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::io;
use std::sync::Arc;

/// The permission bits with which a user works in a directory.
const OWN_DIRECTORY: u32 = 0o700;
/// The reason of an entry whose directory does not exist.
const NO_DIRECTORY: &str = "its directory cannot be made";
/// The maximum number of bytes of a journal that are read.
const JOURNAL_SIZE_MAX: u64 = 1 << 32;

impl<F: FileSystem> Sink<F> {
    /// Opens a sink, and reads the journal of an earlier run. Before [`Sink::start`] the sink creates only an
    /// empty journal, and removes it when it is dropped without a start.
    ///
    /// # Errors
    /// If an entry of another type exists at a path of the set, or a file exists that must not be replaced. No
    /// file is left behind.
    pub fn open(fs: F, manifest: Arc<Manifest>, options: SinkOptions) -> Result<Sink<F>, SinkError> {
        let root = RelativePath::root();
        let journal_path = journal_path(&manifest, &options.sender);
        let io = |error| SinkError::Io {
            path: journal_path.clone(),
            error,
        };
        let mut claims = Claims::new(fs.root_identity().map_err(io)?);
        if !claims.claim(None, &journal_path) {
            let first = manifest.entries().first().map(|entry| entry.path.clone());
            return Err(SinkError::InUse(first.unwrap_or_default()));
        }
        let journal = fs.open(&journal_path, Access::CreatePrivate).map_err(io)?;
        let size = fs.file_metadata(&journal).map_err(io)?.size;
        let mut bytes = vec![0; size.min(JOURNAL_SIZE_MAX) as usize];
        let len = fs.read_at(&journal, 0, &mut bytes).map_err(io)?;
        let (mut earlier, journal_size) =
            journal::decode(manifest.digest(), &bytes[..len]).unwrap_or_default();
        let boot = Record::Boot(fs.boot());
        let is_restarted = earlier.boot != Some(fs.boot());
        earlier.apply(boot);
        let files = (0..manifest.files()).map(|file| FileProgress {
            state: FileState::Pending,
            missing: manifest.extents_of(file).count() as u64,
            temporary: false,
            unchanged: false,
        });
        let mut sink = Sink {
            files: files.collect(),
            values: HashMap::new(),
            existing: vec![None; manifest.files() as usize],
            pending: u64::from(manifest.files()),
            failed: 0,
            fs,
            manifest,
            options,
            claims,
            is_restarted,
            earlier,
            journal,
            journal_size,
            have_cursor: 0,
            kept: RangeSet::new(),
            verified: RangeSet::new(),
            durable: RangeSet::new(),
            unsaved: Vec::new(),
            extents: HashMap::new(),
            groups: HashMap::new(),
            written: 0,
            open: VecDeque::new(),
            dirty: BTreeSet::new(),
            unrecorded: BTreeSet::new(),
            dirty_directories: HashMap::from([(root, ())]),
            relaxed: Vec::new(),
            replaced: HashMap::new(),
            ready: Vec::new(),
            next_sync: None,
            started: false,
            complete: false,
            events: VecDeque::new(),
            progress: Progress::default(),
        };
        let extents = sink.manifest.layout().extents();
        sink.earlier.extents.retain(|extent, _| *extent < extents);
        let files = sink.manifest.files();
        sink.earlier.committed.retain(|file, _| *file < files);
        sink.earlier.temporary.retain(|file, _| *file < files);
        sink.check_entries()?;
        Ok(sink)
    }

    /// Returns the bytes of files that have no temporary file yet: the space that their data take in the file system until they are
    /// put into place. A file whose older version has another size counts in full, because that version stays until then.
    ///
    /// # Errors
    /// If a file cannot be examined.
    pub fn needed_space(&mut self) -> Result<u64, SinkError> {
        let mut bytes = 0;
        for file in 0..self.manifest.files() {
            let existing = self.existing(file)?;
            let Some((entry, content)) = self.manifest.file(file) else {
                continue;
            };
            let needs_copy = match existing {
                Existing::None => true,
                Existing::Final => {
                    let io = |error| SinkError::Io {
                        path: entry.path.clone(),
                        error,
                    };
                    let found = optional(self.fs.metadata(&entry.path)).map_err(io)?;
                    found.is_none_or(|found| found.size != content.size)
                }
                Existing::Temporary | Existing::OtherTemporary | Existing::Committed => false,
            };
            if needs_copy {
                bytes += content.data_len();
            }
        }
        Ok(bytes)
    }

    /// Returns the next extent whose bytes exist locally; `None` after the last.
    ///
    /// Files are not read for extents that the journal records, if they have the identity of the journal.
    ///
    /// # Errors
    /// If a file cannot be examined.
    pub fn poll_have(&mut self) -> Result<Option<HaveEntry>, SinkError> {
        while self.have_cursor < self.manifest.layout().extents() {
            let extent = self.have_cursor;
            self.have_cursor += 1;
            if let Some(value) = self.local_value(extent)? {
                self.values.insert(extent, value);
                return Ok(Some(have_entry(extent, value)));
            }
        }
        Ok(None)
    }

    /// Keeps an extent of the have-map: the sender has the same value.
    ///
    /// # Errors
    /// If the have-map does not have the extent.
    pub fn keep(&mut self, extent: u64) -> Result<(), SinkError> {
        self.check_extent(extent)?;
        if self.value(extent).is_none() || self.started {
            return Err(SinkError::Unknown {
                name: "extent in the have-map",
                number: extent,
            });
        }
        self.kept.insert(extent..extent + 1);
        Ok(())
    }

    /// Ends the preparation: makes directories, and copies the bytes of kept extents to temporary files. Bytes may
    /// be written from then on.
    ///
    /// # Errors
    /// If a file cannot be written, or a local file changed since the have-map.
    pub fn start(&mut self) -> Result<(), SinkError> {
        let kept = &self.kept;
        self.values.retain(|extent, _| kept.contains(*extent));
        self.prepare_journal()?;
        self.revoke_stale_records()?;
        let missing = self.make_directories()?;
        for file in 0..self.manifest.files() {
            if missing.contains(&self.path(file).split().0) {
                self.fail(file, NO_DIRECTORY);
                continue;
            }
            let started = self.start_file(file);
            self.drop_failed(file, started)?;
        }
        let kept = self.kept.ranges().to_vec();
        for extent in kept.into_iter().flatten() {
            self.keep_bytes(extent)?;
        }
        self.started = true;
        for file in 0..self.manifest.files() {
            let progress = &self.files[file as usize];
            if progress.state == FileState::Pending && progress.missing == 0 {
                self.ready.push(file);
            }
        }
        // The extents that the journal records are still durable; the others are synced and recorded now.
        let kept = self.kept.ranges().to_vec();
        for extent in kept.into_iter().flatten() {
            self.verified.insert(extent..extent + 1);
            if self.earlier.extents.contains_key(&extent) {
                self.durable.insert(extent..extent + 1);
            } else {
                self.unsaved.push(extent);
            }
        }
        self.save()
    }

    /// Writes the header of a new journal, and cuts torn records off an old one.
    fn prepare_journal(&mut self) -> Result<(), SinkError> {
        let io = |error| SinkError::Io {
            path: RelativePath::root(),
            error,
        };
        if self.journal_size == 0 {
            let header = journal::header(self.manifest.digest());
            self.fs.set_size(&self.journal, 0).map_err(io)?;
            self.fs.write_at(&self.journal, 0, &header).map_err(io)?;
            self.journal_size = header.len() as u64;
        } else if self.fs.file_metadata(&self.journal).map_err(io)?.size != self.journal_size {
            self.fs.set_size(&self.journal, self.journal_size).map_err(io)?;
            // A torn record must not count again once whole records precede it.
            self.fs.sync(&self.journal).map_err(io)?;
        }
        if self.is_restarted {
            self.append(&[Record::Boot(self.fs.boot())])?;
        }
        Ok(())
    }

    /// Revokes the journal's records whose bytes are gone or will move, and makes that durable.
    fn revoke_stale_records(&mut self) -> Result<(), SinkError> {
        let manifest = Arc::clone(&self.manifest);
        let extents: Vec<u64> = self.earlier.extents.keys().copied().collect();
        let committed: Vec<u32> = self.earlier.committed.keys().copied().collect();
        let (mut stay, mut stale) = (HashMap::new(), Vec::new());
        for extent in extents {
            let (start, end) = manifest.layout().bounds(extent);
            let mut holds = self.kept.contains(extent);
            for slice in manifest.slices(start..end) {
                holds = holds
                    && match stay.get(&slice.file) {
                        Some(stays) => *stays,
                        None => *stay.entry(slice.file).or_insert(self.bytes_stay(slice.file)?),
                    };
            }
            if !holds {
                stale.push(Record::ExtentRevoked(extent));
            }
        }
        for file in committed {
            if self.existing(file)? != Existing::Committed || !self.bytes_stay(file)? {
                stale.push(Record::CommittedRevoked(file));
            }
        }
        self.append(&stale)?;
        for record in stale {
            self.earlier.apply(record);
        }
        Ok(())
    }

    /// Returns true if the local bytes of a file stay in the file that holds them, and the journal's records mean
    /// that file.
    fn bytes_stay(&mut self, file: u32) -> Result<bool, SinkError> {
        Ok(match self.existing(file)? {
            Existing::Temporary => true,
            Existing::OtherTemporary => false,
            Existing::None | Existing::Final | Existing::Committed => self.is_unchanged(file)?,
        })
    }

    /// Returns true if the file under the final name is whole, so that it needs no temporary file.
    fn is_unchanged(&mut self, file: u32) -> Result<bool, SinkError> {
        let mut extents = self.manifest.extents_of(file);
        if !extents.all(|extent| self.kept.contains(extent)) {
            return Ok(false);
        }
        match self.existing(file)? {
            Existing::Committed => Ok(true),
            Existing::Final => self.has_same_shape(file),
            Existing::Temporary | Existing::OtherTemporary | Existing::None => Ok(false),
        }
    }

    /// Makes the directories that are missing, and lets this process write in those that exist, until the end. Returns the directories
    /// that cannot be made.
    fn make_directories(&mut self) -> Result<HashSet<RelativePath>, SinkError> {
        let manifest = Arc::clone(&self.manifest);
        let directories = manifest
            .entries()
            .iter()
            .filter(|entry| matches!(entry.kind, EntryKind::Directory));
        let mut missing = HashSet::new();
        for Entry { path, attributes, .. } in directories {
            if missing.contains(&path.split().0) {
                self.fail_entry(path, NO_DIRECTORY);
                missing.insert(path.clone());
                continue;
            }
            let made = match optional(self.fs.metadata(path)) {
                Ok(None) => self
                    .fs
                    .create_directory(path, attributes.mode & PERMISSIONS | OWN_DIRECTORY)
                    .and_then(|()| self.note_directory(path, attributes.mode)),
                Ok(Some(found)) => {
                    self.relax_directory(path, found.mode);
                    Ok(())
                }
                Err(error) => Err(error),
            };
            match made {
                Err(error) if is_of_entry(&error) => {
                    self.fail_entry(path, &error.to_string());
                    missing.insert(path.clone());
                }
                Err(error) => {
                    let path = path.clone();
                    return Err(SinkError::Io { path, error });
                }
                Ok(()) => {}
            }
        }
        Ok(missing)
    }

    /// Notes a new directory. At the end it has no permissions that the directory of the source lacks.
    fn note_directory(&mut self, path: &RelativePath, mode: u32) -> io::Result<()> {
        self.dirty_directories.insert(path.split().0, ());
        if mode & OWN_DIRECTORY != OWN_DIRECTORY {
            let made = self.fs.metadata(path)?.mode;
            self.relaxed.push((path.clone(), made & mode));
        }
        Ok(())
    }

    /// Permits this process to write in a directory of its user that an earlier transfer left without that permission, as rsync does.
    fn relax_directory(&mut self, path: &RelativePath, mode: u32) {
        if mode & OWN_DIRECTORY == OWN_DIRECTORY || self.fs.is_writable(path) {
            return;
        }
        let open = self.fs.open(path, Access::Directory);
        // A directory of another user stays as it is: its files fail, each by name.
        if open.is_ok_and(|open| self.fs.set_mode(&open, mode | OWN_DIRECTORY).is_ok()) {
            self.relaxed.push((path.clone(), mode));
        }
    }

    /// Gives the directories that the sink made writable their modes back.
    pub(super) fn restore_directories(&mut self) {
        // A directory precedes its subdirectories, which can be reached only through it.
        for (path, mode) in std::mem::take(&mut self.relaxed).into_iter().rev() {
            let open = self.fs.open(&path, Access::Directory);
            let restored = open.and_then(|open| self.fs.set_mode(&open, mode));
            if let Err(error) = restored {
                self.report(&path, &format!("its mode {mode:o} was not restored: {error}"));
            }
        }
    }

    /// Checks that no entry of another type exists at a path of the set, and that no file exists that must not be
    /// replaced. Directories that do not exist are not searched.
    fn check_entries(&mut self) -> Result<(), SinkError> {
        let manifest = Arc::clone(&self.manifest);
        let mut absent = HashSet::new();
        let mut file = 0;
        for entry in manifest.entries() {
            let path = &entry.path;
            let io = |error| SinkError::Io {
                path: path.clone(),
                error,
            };
            let directory = path.split().0;
            let is_new = absent.contains(&directory);
            let found = if is_new {
                None
            } else {
                match optional(self.fs.metadata(path)) {
                    // The entry fails when it is written, and the others arrive.
                    Err(error) if is_of_entry(&error) => None,
                    found => found.map_err(io)?.map(|metadata| metadata.file_type),
                }
            };
            if let (EntryKind::Symlink(target), Some(above)) = (&entry.kind, self.options.symlinks_within)
                && !leads_within(&directory, target, above)
            {
                return Err(SinkError::SymlinkLeaves(path.clone()));
            }
            if entry.kind == EntryKind::Directory && found.is_none() {
                absent.insert(path.clone());
            }
            match (&entry.kind, found) {
                (EntryKind::Directory, Some(FileType::Directory) | None) => {}
                (EntryKind::Directory, Some(_)) => return Err(SinkError::NotDirectory(path.clone())),
                (_, Some(FileType::Directory)) => return Err(SinkError::IsDirectory(path.clone())),
                (kind, Some(_)) if !self.options.overwrite => {
                    // An entry that an earlier run of this transfer made is no obstacle.
                    let is_ours = match kind {
                        EntryKind::File(_) => self.is_ours(file),
                        EntryKind::Symlink(target) => {
                            self.fs.read_link(path).is_ok_and(|found| found == **target)
                        }
                        EntryKind::HardLink(other) => {
                            self.is_ours(*other) && self.is_same_file(&self.path(*other), path).map_err(io)?
                        }
                        EntryKind::Directory => true,
                    };
                    if !is_ours {
                        return Err(SinkError::Exists(path.clone()));
                    }
                }
                (_, _) => {}
            }
            if matches!(entry.kind, EntryKind::File(_)) {
                if is_new && holds_temporary_files(&directory) {
                    self.existing[file as usize] = Some(Existing::None);
                }
                file += 1;
            }
        }
        Ok(())
    }

    /// Returns true if two paths name one file.
    pub(super) fn is_same_file(&self, one: &RelativePath, other: &RelativePath) -> io::Result<bool> {
        let one = optional(self.fs.metadata(one))?.map(|metadata| metadata.identity);
        let other = optional(self.fs.metadata(other))?.map(|metadata| metadata.identity);
        Ok(one.is_some() && one == other)
    }

    /// Decides whether a file is already complete, is continued, or is received from its first byte.
    fn start_file(&mut self, file: u32) -> Result<(), SinkError> {
        let existing = self.existing(file)?;
        let extents = self.manifest.extents_of(file);
        let missing = extents
            .clone()
            .filter(|extent| !self.kept.contains(*extent))
            .count() as u64;
        let unchanged = self.is_unchanged(file)?;
        let progress = &mut self.files[file as usize];
        progress.missing = missing;
        progress.temporary = existing.is_temporary();
        progress.unchanged = unchanged;
        if existing != Existing::Temporary {
            self.earlier.temporary.remove(&file);
        }
        if existing == Existing::OtherTemporary {
            self.check_size(file)?;
            self.clear_gaps(file)?;
        }
        let progress = &self.files[file as usize];
        if progress.temporary
            && !extents
                .clone()
                .all(|extent| self.earlier.extents.contains_key(&extent))
        {
            // The bytes may be in the page cache only.
            self.dirty.insert(file);
            self.dirty_directories.insert(self.temporary(file).split().0, ());
        }
        if unchanged && existing == Existing::Committed {
            self.finish_file(file, FileState::Done);
            self.events.push_back(SinkEvent::Committed(file));
        }
        Ok(())
    }

    /// Copies the bytes of a kept extent from files under final names to temporary files.
    fn keep_bytes(&mut self, extent: u64) -> Result<(), SinkError> {
        let (start, end) = self.manifest.layout().bounds(extent);
        let manifest = Arc::clone(&self.manifest);
        let mut copies = Vec::new();
        for slice in manifest.slices(start..end) {
            let is_final = matches!(self.existing(slice.file)?, Existing::Final | Existing::Committed);
            let progress = self.files[slice.file as usize];
            if is_final && !progress.unchanged && progress.state == FileState::Pending {
                copies.push(slice);
            }
        }
        if copies.is_empty() {
            return Ok(());
        }
        let bytes = self.read_local(extent)?.unwrap_or_default();
        let value = extent_value(manifest.hash_offset(extent), &bytes);
        if bytes.is_empty() || self.value(extent) != Some(value) {
            return Err(SinkError::ChangedLocally(extent));
        }
        for slice in copies {
            let from = (slice.address - start) as usize;
            let source = &bytes[from..from + slice.len as usize];
            let written = self.with_temporary(slice.file, |fs, file| fs.write_at(file, slice.offset, source));
            self.drop_failed(slice.file, written)?;
            self.dirty.insert(slice.file);
        }
        Ok(())
    }
}

/// Returns true if a symlink in a directory leads to a path below the root, or below the directory that is `above` levels above it. A
/// target with `..` behind a name does not count as one: the name may be a symlink itself.
fn leads_within(directory: &RelativePath, target: &[u8], above: usize) -> bool {
    let mut names = target
        .split(|byte| *byte == b'/')
        .filter(|name| !matches!(*name, b"" | b"."))
        .peekable();
    let mut up = 0;
    while names.next_if(|name| *name == b"..").is_some() {
        up += 1;
    }
    !target.starts_with(b"/") && up <= directory.names().count() + above && names.all(|name| name != b"..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symlink_leads_within_the_directory_only_if_no_path_through_it_leaves() {
        let within = |directory: &str, target: &str, above| {
            leads_within(
                &RelativePath::new(directory.as_bytes()).unwrap(),
                target.as_bytes(),
                above,
            )
        };
        for (directory, target, above) in [
            ("", "a", 0),
            ("a/b", "../../c", 0),
            ("a", "../../c", 1),
            ("", "./a//b", 0),
            ("a", "..", 0),
        ] {
            assert!(within(directory, target, above), "{directory} {target}");
        }
        for (directory, target, above) in [
            ("", "..", 0),
            ("", "/etc", 9),
            ("a", "../../c", 0),
            ("a/b", "c/../d", 0),
            ("", "a/../..", 0),
            ("", "../", 0),
        ] {
            assert!(!within(directory, target, above), "{directory} {target}");
        }
    }
}
