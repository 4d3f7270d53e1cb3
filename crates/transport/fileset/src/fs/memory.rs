//! A file system in memory that crashes: the model against which resume and commit are tested.
//!
//! A write is *volatile* until its file is synced; a name is volatile until its directory is synced.
//! [`MemoryFs::crash`] keeps any subset of the volatile changes: a write is lost, kept, or torn into sectors;
//! a change of a directory is lost or kept; a rename within a directory is atomic. POSIX promises no more
//! ("All File Systems Are Not Created Equal", OSDI 2014).

mod content;
mod state;

use super::{Access, FileIdentity, FileSystem, Metadata};
use crate::entry::{FileEntry, Owner, Segment, Timestamp, Xattr};
use crate::path::RelativePath;
use content::{Content, PAGE_SIZE};
use millrace_transport::random::Random;
use parking_lot::Mutex;
use state::{FileChange, NameChange, Node, State, UMASK, apply, directory, survive};
use std::io;
use std::sync::Arc;

/// A file system in memory. Clones are the same file system.
#[derive(Clone, Debug)]
pub struct MemoryFs(Arc<Mutex<State>>);

impl Default for MemoryFs {
    fn default() -> MemoryFs {
        MemoryFs::new()
    }
}

impl MemoryFs {
    /// Returns an empty file system.
    pub fn new() -> MemoryFs {
        let mut state = State {
            inodes: Vec::new(),
            operations: 0,
            crashes: 0,
            kill_at: None,
        };
        state.create(directory(), 0o755);
        MemoryFs(Arc::new(Mutex::new(state)))
    }

    /// Returns the number of changes and syncs so far.
    pub fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// Makes every change and sync from this number on fail, as if the process were killed before it.
    pub fn kill_at(&self, operation: u64) {
        self.0.lock().kill_at = Some(operation);
    }

    /// Returns the file system after a power failure. A subset of the volatile changes, selected by the seed,
    /// is lost.
    #[must_use]
    pub fn crash(&self, seed: u64) -> MemoryFs {
        let mut state = self.0.lock().clone();
        let mut random = Random::new(seed);
        for inode in &mut state.inodes {
            // The times of a file may be older than its bytes.
            if random.below(2) == 0 {
                (inode.modified, inode.changed) = inode.durable_times;
            }
            match &mut inode.node {
                Node::File {
                    live,
                    durable,
                    volatile,
                } => {
                    for change in volatile.drain(..) {
                        survive(durable, change, &mut random);
                    }
                    live.clone_from(durable);
                }
                Node::Directory {
                    live,
                    durable,
                    volatile,
                } => {
                    for change in volatile.drain(..) {
                        if random.below(2) == 0 {
                            apply(durable, &change);
                        }
                    }
                    live.clone_from(durable);
                }
                Node::Symlink(_) => {}
            }
        }
        state.kill_at = None;
        state.crashes += 1;
        MemoryFs(Arc::new(Mutex::new(state)))
    }

    /// Returns the file system after the process was killed: no change is lost.
    #[must_use]
    pub fn restart(&self) -> MemoryFs {
        let mut state = self.0.lock().clone();
        state.kill_at = None;
        MemoryFs(Arc::new(Mutex::new(state)))
    }

    /// Makes a directory, or a file with these bytes; for tests.
    ///
    /// # Errors
    /// The errors of the operations that it consists of.
    pub fn put(&self, path: &RelativePath, bytes: Option<&[u8]>) -> io::Result<()> {
        let Some(bytes) = bytes else {
            return self.create_directory(path, 0o777);
        };
        let file = match self.open(path, Access::New(0o644)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.open(path, Access::Write),
            result => result,
        }?;
        self.set_size(&file, 0)?;
        self.write_at(&file, 0, bytes)
    }

    /// Changes bytes of a file, but neither its size nor its times, as no program can; for tests.
    ///
    /// # Errors
    /// If the file does not exist.
    pub fn tamper(&self, path: &RelativePath, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.lock();
        let inode = state.find(path)?;
        match &mut state.inodes[inode].node {
            Node::File { live, .. } => live.write(offset, bytes),
            _ => return Err(io::ErrorKind::IsADirectory.into()),
        }
        Ok(())
    }
}

impl FileSystem for MemoryFs {
    type File = usize;

    fn root_identity(&self) -> io::Result<FileIdentity> {
        Ok(FileIdentity {
            // No device has this number.
            device: u64::MAX,
            inode: Arc::as_ptr(&self.0).addr() as u64,
        })
    }

    fn metadata(&self, path: &RelativePath) -> io::Result<Metadata> {
        let state = self.0.lock();
        Ok(state.metadata(state.find(path)?))
    }

    fn file_metadata(&self, file: &usize) -> io::Result<Metadata> {
        Ok(self.0.lock().metadata(*file))
    }

    fn boot(&self) -> [u8; 32] {
        let mut identifier = [0; 32];
        identifier[..8].copy_from_slice(&self.0.lock().crashes.to_le_bytes());
        identifier
    }

    /// Each change has a time of its own.
    fn is_past(&self, _: Timestamp) -> bool {
        true
    }

    fn settle(&self) {}

    fn names(&self, directory: &RelativePath) -> io::Result<Vec<Vec<u8>>> {
        let state = self.0.lock();
        match &state.inodes[state.find(directory)?].node {
            Node::Directory { live, .. } => Ok(live.keys().cloned().collect()),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn read_link(&self, path: &RelativePath) -> io::Result<Vec<u8>> {
        let state = self.0.lock();
        match &state.inodes[state.find(path)?].node {
            Node::Symlink(target) => Ok(target.clone()),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn open(&self, path: &RelativePath, access: Access) -> io::Result<usize> {
        let mut state = self.0.lock();
        match (state.find(path), access) {
            (Ok(_), Access::New(_)) => Err(io::ErrorKind::AlreadyExists.into()),
            (Err(error), Access::New(_) | Access::CreatePrivate)
                if error.kind() == io::ErrorKind::NotFound =>
            {
                state.step()?;
                let mode = match access {
                    Access::New(mode) => mode & !UMASK,
                    _ => 0o600,
                };
                let (live, durable) = (Content::default(), Content::default());
                state.add(
                    path,
                    Node::File {
                        live,
                        durable,
                        volatile: Vec::new(),
                    },
                    mode,
                )
            }
            (Ok(inode), _) if matches!(state.inodes[inode].node, Node::Symlink(_)) => {
                Err(io::ErrorKind::InvalidInput.into())
            }
            (result, _) => result,
        }
    }

    fn read_at(&self, file: &usize, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.0.lock().inodes[*file].node {
            Node::File { live, .. } => Ok(live.read(offset, buffer)),
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn write_at(&self, file: &usize, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.lock();
        state.step()?;
        state.change_file(*file, FileChange::Write(offset, bytes.to_vec()))
    }

    fn segments(&self, file: &usize, size: u64) -> io::Result<Vec<Segment>> {
        let state = self.0.lock();
        let Node::File { live, .. } = &state.inodes[*file].node else {
            return Ok(FileEntry::whole(size));
        };
        let mut segments: Vec<Segment> = Vec::new();
        for page in live.pages.keys() {
            let offset = page * PAGE_SIZE;
            let end = (offset + PAGE_SIZE).min(size);
            match segments.last_mut() {
                Some(last) if last.offset + last.len == offset => last.len = end - last.offset,
                _ if end > offset => segments.push(Segment {
                    offset,
                    len: end - offset,
                }),
                _ => {}
            }
        }
        Ok(segments)
    }

    fn set_size(&self, file: &usize, size: u64) -> io::Result<()> {
        let mut state = self.0.lock();
        state.step()?;
        state.change_file(*file, FileChange::Size(size))
    }

    fn allocate(&self, _: &usize, _: Segment) -> io::Result<()> {
        Ok(())
    }

    fn xattrs(&self, file: &usize) -> io::Result<Vec<Xattr>> {
        Ok(self.0.lock().inodes[*file].xattrs.clone())
    }

    fn set_mode(&self, file: &usize, mode: u32) -> io::Result<()> {
        let mut state = self.0.lock();
        let now = state.step()?;
        state.inodes[*file].mode = mode;
        state.inodes[*file].changed = now;
        Ok(())
    }

    fn set_modified(&self, file: &usize, modified: Timestamp) -> io::Result<()> {
        let mut state = self.0.lock();
        let now = state.step()?;
        state.inodes[*file].modified = modified;
        state.inodes[*file].changed = now;
        Ok(())
    }

    fn set_owner(&self, file: &usize, owner: Owner) -> io::Result<()> {
        let mut state = self.0.lock();
        state.step()?;
        state.inodes[*file].owner = owner;
        Ok(())
    }

    fn set_xattrs(&self, file: &usize, xattrs: &[Xattr]) -> io::Result<()> {
        let mut state = self.0.lock();
        state.step()?;
        state.inodes[*file].xattrs = xattrs.to_vec();
        Ok(())
    }

    fn sync(&self, file: &usize) -> io::Result<()> {
        let mut state = self.0.lock();
        state.step()?;
        state.sync(*file);
        Ok(())
    }

    fn sync_directory(&self, directory: &RelativePath) -> io::Result<()> {
        let mut state = self.0.lock();
        state.step()?;
        let inode = state.find(directory)?;
        state.sync(inode);
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        state.step()?;
        for inode in 0..state.inodes.len() {
            state.sync(inode);
        }
        Ok(())
    }

    fn create_directory(&self, path: &RelativePath, mode: u32) -> io::Result<()> {
        let mut state = self.0.lock();
        state.step()?;
        state.add(path, directory(), mode & !UMASK).map(drop)
    }

    /// Permissions are not modelled.
    fn is_writable(&self, _: &RelativePath) -> bool {
        true
    }

    fn set_link(
        &self,
        path: &RelativePath,
        owner: Option<Owner>,
        modified: Option<Timestamp>,
    ) -> io::Result<()> {
        let mut state = self.0.lock();
        state.step()?;
        let inode = state.find(path)?;
        let found = &mut state.inodes[inode];
        found.owner = owner.unwrap_or(found.owner);
        found.modified = modified.unwrap_or(found.modified);
        Ok(())
    }

    fn symlink(&self, target: &[u8], path: &RelativePath) -> io::Result<()> {
        let mut state = self.0.lock();
        state.step()?;
        state.add(path, Node::Symlink(target.to_vec()), 0o777).map(drop)
    }

    fn hard_link(&self, existing: &RelativePath, new: &RelativePath) -> io::Result<()> {
        let mut state = self.0.lock();
        state.step()?;
        let inode = state.find(existing)?;
        if state.find(new).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let (parent, name) = new.split();
        state.change_names(&parent, NameChange::Set(name.to_vec(), inode))
    }

    /// Renames within one directory.
    fn rename(&self, from: &RelativePath, to: &RelativePath) -> io::Result<()> {
        let mut state = self.0.lock();
        state.step()?;
        let inode = state.find(from)?;
        let ((parent, old), (other, new)) = (from.split(), to.split());
        if parent != other {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        // A rename between two names of one file does nothing (rename(2)).
        if state.find(to).is_ok_and(|target| target == inode) {
            return Ok(());
        }
        state.inodes[inode].changed = state.now();
        state.change_names(&parent, NameChange::Rename(old.to_vec(), new.to_vec(), inode))
    }

    fn rename_new(&self, from: &RelativePath, to: &RelativePath) -> io::Result<()> {
        if self.0.lock().find(to).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.rename(from, to)
    }

    fn remove(&self, path: &RelativePath) -> io::Result<()> {
        let mut state = self.0.lock();
        state.step()?;
        state.find(path)?;
        let (parent, name) = path.split();
        state.change_names(&parent, NameChange::Remove(name.to_vec()))
    }
}
