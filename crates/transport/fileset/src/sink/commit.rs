//! Durability and commit: sync, journal, rename, links, attributes of directories.

use super::{
    Commit, FileProgress, FileState, PRIVATE, Sink, SinkError, SinkEvent, is_of_entry, journal_path, reserved,
};
use crate::entry::{Attributes, Entry, EntryKind};
use crate::fs::{Access, FileSystem, Metadata, optional};
use crate::journal::{self, Record};
use crate::path::RelativePath;
use millrace_types::Time;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;

/// The maximum number of files and directories that are synced one by one. For more, one `syncfs(2)` replaces the
/// `fsync(2)` of each.
const SYNC_ONE_BY_ONE: usize = 8;
/// The number of ready files at which a commit does not wait for the interval. It bounds memory and the work after
/// a crash.
const READY_MAX: usize = 4_096;
/// The bits of a mode with which a program runs as the owner or the group of its file. A file gets them only together with the
/// owner of the source: otherwise a sender could have any program run as the receiver's user.
const SET_ID: u32 = 0o6000;

impl<F: FileSystem> Sink<F> {
    /// Syncs, records and commits the files that are due. Call it at [`Sink::next_timeout`], and after events.
    ///
    /// # Errors
    /// If bytes cannot be synced. A file that cannot be renamed is an event.
    pub fn poll(&mut self, now: Time) -> Result<(), SinkError> {
        if !self.started || self.complete {
            return Ok(());
        }
        let all = self.verified.count() >= self.manifest.layout().extents();
        let waiting = !self.unsaved.is_empty() || !self.ready.is_empty();
        let due = self.next_sync.is_some_and(|due| due <= now);
        let large =
            self.unsaved.len() as u64 * self.manifest.layout().extent_size() >= self.options.sync_size;
        // With `Commit::All`, ready files wait for all others.
        let many = self.options.commit == Commit::Each && self.ready.len() >= READY_MAX;
        if all || due || large || many {
            self.save()?;
            self.next_sync = None;
        } else if waiting && self.next_sync.is_none() {
            self.next_sync = Some(now + self.options.sync_interval);
        }
        Ok(())
    }

    /// Makes verified extents durable, and commits ready files, without waiting for the interval.
    ///
    /// # Errors
    /// As for [`Sink::poll`].
    pub fn flush(&mut self) -> Result<(), SinkError> {
        let is_saved = self.unsaved.is_empty() && self.ready.is_empty() && self.dirty.is_empty();
        if !self.started || self.complete || is_saved && self.unrecorded.is_empty() {
            return Ok(());
        }
        self.next_sync = None;
        self.save()?;
        if !self.complete && !self.unrecorded.is_empty() {
            self.fs.settle();
            self.record_extents(&[])?;
        }
        Ok(())
    }

    /// Returns the time of the next sync.
    pub fn next_timeout(&self) -> Option<Time> {
        self.next_sync
    }

    /// Removes the journal of a complete transfer. Call it once the sender has the receipt: until then a crash of either end
    /// costs nothing, since the journal records that all extents are durable.
    ///
    /// # Errors
    /// If the journal cannot be removed.
    pub fn close(self) -> Result<(), SinkError> {
        if self.complete {
            let io = |error| SinkError::Io {
                path: RelativePath::root(),
                error,
            };
            optional(self.fs.remove(&self.journal_path())).map_err(io)?;
            self.fs.sync_directory(&RelativePath::root()).map_err(io)?;
        }
        Ok(())
    }

    /// Makes verified extents durable, records them in the journal, and commits ready files.
    pub(super) fn save(&mut self) -> Result<(), SinkError> {
        let others_wait = self.ready.len() as u64 != self.pending;
        let ready = if self.options.commit == Commit::All && others_wait {
            Vec::new()
        } else {
            std::mem::take(&mut self.ready)
        };
        let mut renames = Vec::new();
        for file in ready {
            match self.finish_content(file) {
                Ok(()) => renames.push(file),
                Err(error) => self.fail(file, &reason(error)),
            }
        }
        self.sync()?;
        self.record_extents(&renames)?;
        self.rename(&renames)?;
        if self.pending == 0 {
            self.complete()?;
        }
        Ok(())
    }

    /// Syncs the temporary files and the directories with new names.
    fn sync(&mut self) -> Result<(), SinkError> {
        let dirty = std::mem::take(&mut self.dirty);
        let directories = std::mem::take(&mut self.dirty_directories);
        self.unrecorded.extend(&dirty);
        if dirty.len() + directories.len() > SYNC_ONE_BY_ONE {
            let path = RelativePath::root();
            return self.fs.sync_all().map_err(|error| SinkError::Io { path, error });
        }
        for file in dirty {
            if self.files[file as usize].temporary {
                self.with_temporary(file, F::sync)?;
            }
        }
        for path in directories.into_keys() {
            self.fs
                .sync_directory(&path)
                .map_err(|error| SinkError::Io { path, error })?;
        }
        Ok(())
    }

    /// Writes extents that are durable to the journal, after the temporary files that hold them: their identities changed with each
    /// write. `renames`: files whose temporary files are about to go.
    fn record_extents(&mut self, renames: &[u32]) -> Result<(), SinkError> {
        let unsaved = std::mem::take(&mut self.unsaved);
        let mut records = Vec::new();
        let renames: HashSet<u32> = renames.iter().copied().collect();
        for file in std::mem::take(&mut self.unrecorded) {
            let FileProgress { state, temporary, .. } = self.files[file as usize];
            if state != FileState::Pending || !temporary || renames.contains(&file) {
                continue;
            }
            match self.temporary_identity(file)? {
                Some(identity) => {
                    let record = Record::Temporary(file, identity);
                    self.earlier.apply(record);
                    records.push(record);
                }
                None => drop(self.unrecorded.insert(file)),
            }
        }
        for extent in &unsaved {
            if let Some(value) = self.value(*extent) {
                records.push(Record::Extent(*extent, value));
            }
        }
        self.append(&records)?;
        for extent in unsaved {
            self.durable.insert(extent..extent + 1);
            self.events.push_back(SinkEvent::Durable(extent));
        }
        Ok(())
    }

    /// Appends records to the journal and syncs it.
    pub(super) fn append(&mut self, records: &[Record]) -> Result<(), SinkError> {
        if records.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(records.len() * journal::RECORD_SIZE);
        for record in records {
            let offset = self.journal_size + bytes.len() as u64;
            journal::encode(self.manifest.digest(), offset, *record, &mut bytes);
        }
        let io = |error| SinkError::Io {
            path: self.journal_path(),
            error,
        };
        self.fs
            .write_at(&self.journal, self.journal_size, &bytes)
            .map_err(io)?;
        self.fs.sync(&self.journal).map_err(io)?;
        self.journal_size += bytes.len() as u64;
        Ok(())
    }

    /// Sets the attributes of a file that is verified, before it is synced.
    fn finish_content(&mut self, file: u32) -> Result<(), SinkError> {
        let Some(entry) = self.entry(file) else {
            return Ok(());
        };
        let mut attributes = entry.attributes.clone();
        let options = self.options;
        if !(options.preserve && attributes.owner.is_some()) {
            attributes.mode &= !SET_ID;
        }
        if self.files[file as usize].unchanged {
            let path = self.path(file);
            let io = |error| SinkError::Io {
                path: path.clone(),
                error,
            };
            let open = self.fs.open(&path, Access::Read).map_err(io)?;
            let found = self.fs.file_metadata(&open).map_err(io)?;
            let has_mode = !options.modes || found.mode == attributes.mode;
            if has_mode && !options.preserve && (!options.times || found.modified == attributes.modified) {
                return Ok(());
            }
            set_attributes(&self.fs, &open, &attributes, &options).map_err(io)?;
            return self.fs.sync(&open).map_err(io);
        }
        // Without modes of the source, a file that is replaced keeps its permissions, and a new one has none that the source lacks.
        let replaced = self.replaced.get(&file).copied();
        let is_narrow = attributes.mode & PRIVATE != PRIVATE;
        let sets_mode = !options.modes && (replaced.is_some() || is_narrow);
        let sets_attributes = options.preserve || options.modes || options.times || sets_mode;
        if self.files[file as usize].temporary && !sets_attributes {
            return Ok(());
        }
        self.with_temporary(file, |fs, open| {
            if sets_mode {
                let mode = match replaced {
                    Some(mode) => mode,
                    None => fs.file_metadata(open)?.mode & attributes.mode,
                };
                fs.set_mode(open, mode)?;
            }
            set_attributes(fs, open, &attributes, &options)
        })?;
        self.dirty.insert(file);
        Ok(())
    }

    /// Gives files their final names, and syncs the directories that hold these names.
    fn rename(&mut self, files: &[u32]) -> Result<(), SinkError> {
        let mut done = Vec::new();
        for file in files {
            let (temporary, path) = (self.temporary(*file), self.path(*file));
            if self.files[*file as usize].unchanged {
                self.finish_file(*file, FileState::Done);
                self.events.push_back(SinkEvent::Unchanged(*file));
                continue;
            }
            let at = self.open.iter().position(|(open, _)| open == file);
            let open = at.and_then(|at| self.open.remove(at)).map(|(_, open)| open);
            match self.put(&temporary, &path) {
                Ok(()) => {
                    self.dirty_directories.insert(path.split().0, ());
                    // rename(2) changes the time of the inode.
                    let found = match open {
                        Some(open) => self.fs.file_metadata(&open),
                        None => self.fs.metadata(&path),
                    };
                    done.push((*file, found));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    self.fail(*file, "a file with this name exists; allow files to be replaced, or receive into another directory");
                }
                Err(error) => self.fail(*file, &error.to_string()),
            }
        }
        self.sync()?;
        // A file that another process has taken away already, or that may still change without a change of its times, gets no
        // identity: its bytes are read in a later run.
        let identity = |found: &io::Result<Metadata>| {
            let lasting = found.as_ref().ok().and_then(|found| self.lasting_identity(found));
            lasting.unwrap_or(journal::NO_IDENTITY)
        };
        let records = done
            .iter()
            .map(|(file, found)| Record::Committed(*file, identity(found)));
        let records: Vec<Record> = records.collect();
        self.append(&records)?;
        for (file, _) in done {
            self.earlier.temporary.remove(&file);
            self.files[file as usize].temporary = false;
            self.finish_file(file, FileState::Done);
            self.events.push_back(SinkEvent::Committed(file));
        }
        Ok(())
    }

    /// Gives a temporary file or link its final name. An existing entry with that name is replaced only if the
    /// options allow it, even if the entry appeared after the sink was opened.
    fn put(&self, temporary: &RelativePath, path: &RelativePath) -> io::Result<()> {
        if self.options.overwrite {
            return self.fs.rename(temporary, path);
        }
        match self.fs.rename_new(temporary, path) {
            // An earlier run created the final name, and ended before it removed the temporary one.
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists && self.is_same_file(temporary, path)? =>
            {
                self.fs.remove(temporary)
            }
            result => result,
        }
    }

    /// Drops a file that could not be put into place.
    pub(super) fn fail(&mut self, file: u32, reason: &str) {
        if self.files[file as usize].state != FileState::Pending {
            return;
        }
        self.finish_file(file, FileState::Failed);
        self.dirty.remove(&file);
        self.open.retain(|(open, _)| *open != file);
        self.ready.retain(|ready| *ready != file);
        self.fail_entry(&self.path(file), reason);
    }

    /// Drops a file if an operation on it failed for a reason that concerns this file only: the others arrive. Returns the result of an
    /// operation that did not fail.
    pub(super) fn drop_failed<T>(
        &mut self,
        file: u32,
        result: Result<T, SinkError>,
    ) -> Result<Option<T>, SinkError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(SinkError::Io { error, .. }) if is_of_entry(&error) => {
                self.fail(file, &error.to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Counts and reports an entry that could not be put into place.
    pub(super) fn fail_entry(&mut self, path: &RelativePath, reason: &str) {
        self.failed += 1;
        self.report(path, reason);
    }

    /// Makes links and sets the attributes of directories.
    fn complete(&mut self) -> Result<(), SinkError> {
        let manifest = Arc::clone(&self.manifest);
        for entry in manifest.entries() {
            let result = match &entry.kind {
                EntryKind::Symlink(target) => self.make_symlink(entry, target),
                EntryKind::HardLink(file) if self.is_withdrawn(*file) => {
                    self.report(
                        &entry.path,
                        "the sender withdrew the file that it is a hard link to",
                    );
                    continue;
                }
                EntryKind::HardLink(file) => self.make_hard_link(entry, *file),
                EntryKind::Directory | EntryKind::File(_) => Ok(()),
            };
            self.check(entry, result);
        }
        // A directory precedes its entries in the manifest. In reverse order, no later change alters its
        // modification time.
        for entry in manifest.entries().iter().rev() {
            let is_there = || self.fs.metadata(&entry.path).is_ok();
            if entry.kind == EntryKind::Directory && (self.failed == 0 || is_there()) {
                let result = self
                    .fs
                    .open(&entry.path, Access::Directory)
                    .and_then(|open| set_attributes(&self.fs, &open, &entry.attributes, &self.options));
                self.check(entry, result);
            }
        }
        if self.options.modes {
            self.relaxed.clear();
        }
        self.restore_directories();
        let io = |error| SinkError::Io {
            path: RelativePath::root(),
            error,
        };
        self.fs.sync_all().map_err(io)?;
        self.complete = true;
        self.events.push_back(SinkEvent::Complete);
        Ok(())
    }

    /// Counts and reports an entry that could not be put into place.
    fn check(&mut self, entry: &Entry, result: io::Result<()>) {
        if let Err(error) = result {
            self.fail_entry(&entry.path, &error.to_string());
        }
    }

    pub(super) fn report(&mut self, path: &RelativePath, reason: &str) {
        self.events.push_back(SinkEvent::Failed {
            path: path.clone(),
            reason: reason.to_owned(),
        });
    }

    fn is_withdrawn(&self, file: u32) -> bool {
        self.files
            .get(file as usize)
            .is_some_and(|progress| progress.state == FileState::Withdrawn)
    }

    fn make_symlink(&self, entry: &Entry, target: &[u8]) -> io::Result<()> {
        let temporary = self.link_path(&entry.path);
        optional(self.fs.remove(&temporary))?;
        if self
            .fs
            .read_link(&entry.path)
            .is_ok_and(|present| present == target)
        {
            return self.finish_symlink(entry, &entry.path);
        }
        self.fs.symlink(target, &temporary)?;
        let result = self
            .finish_symlink(entry, &temporary)
            .and_then(|()| self.put(&temporary, &entry.path));
        if result.is_err() {
            optional(self.fs.remove(&temporary))?;
        }
        result
    }

    /// Sets the attributes of a symlink itself, as far as Linux has them: it has no permissions.
    fn finish_symlink(&self, entry: &Entry, path: &RelativePath) -> io::Result<()> {
        let owner = entry.attributes.owner.filter(|_| self.options.preserve);
        let modified = self.options.times.then_some(entry.attributes.modified);
        if owner.is_none() && modified.is_none() {
            return Ok(());
        }
        self.fs.set_link(path, owner, modified)
    }

    fn make_hard_link(&self, entry: &Entry, file: u32) -> io::Result<()> {
        if self
            .files
            .get(file as usize)
            .is_none_or(|progress| progress.state != FileState::Done)
        {
            return Err(io::Error::other(
                "the file that it is a hard link to was not received",
            ));
        }
        let temporary = self.link_path(&entry.path);
        optional(self.fs.remove(&temporary))?;
        self.fs.hard_link(&self.path(file), &temporary)?;
        let result = self.put(&temporary, &entry.path);
        // A rename between two names of one file does nothing (rename(2)).
        optional(self.fs.remove(&temporary))?;
        result
    }

    /// Returns the temporary name of a link.
    fn link_path(&self, path: &RelativePath) -> RelativePath {
        let digest = blake3::keyed_hash(&self.options.sender, path.as_bytes()).to_hex();
        reserved(&path.split().0, &format!("{}.link", &digest.as_str()[..32]))
    }

    fn journal_path(&self) -> RelativePath {
        journal_path(&self.manifest, &self.options.sender)
    }
}

/// Returns the reason of a file's failure, without its path.
fn reason(error: SinkError) -> String {
    match error {
        SinkError::Io { error, .. } => error.to_string(),
        error => error.to_string(),
    }
}

/// Sets the attributes that the options ask for.
fn set_attributes<F: FileSystem>(
    fs: &F,
    file: &F::File,
    attributes: &Attributes,
    options: &super::SinkOptions,
) -> io::Result<()> {
    if options.preserve {
        if let Some(owner) = attributes.owner {
            fs.set_owner(file, owner)?;
        }
        fs.set_xattrs(file, &attributes.xattrs)?;
    }
    // chown(2) clears set-user-ID bits: the mode comes after it.
    if options.modes {
        fs.set_mode(file, attributes.mode)?;
    }
    if options.times {
        fs.set_modified(file, attributes.modified)?;
    }
    Ok(())
}
