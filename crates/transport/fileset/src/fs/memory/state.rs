//! Inodes of the model: each with its live content, its durable content and the volatile changes between them.

use super::content::Content;
use crate::entry::{Owner, Timestamp, Xattr};
use crate::fs::{FileIdentity, FileType, Metadata};
use crate::path::RelativePath;
use millrace_transport::random::Random;
use std::collections::BTreeMap;
use std::io;

/// The bytes that a loss of power keeps or loses as a whole.
const SECTOR_SIZE: u64 = 512;
const ROOT: usize = 0;
pub(super) const UMASK: u32 = 0o022;

#[derive(Clone, Debug)]
pub(super) enum FileChange {
    Write(u64, Vec<u8>),
    Size(u64),
}

#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Set(Vec<u8>, usize),
    Remove(Vec<u8>),
    Rename(Vec<u8>, Vec<u8>, usize),
}

pub(super) type Names = BTreeMap<Vec<u8>, usize>;

pub(super) fn apply(names: &mut Names, change: &NameChange) {
    match change {
        NameChange::Set(name, inode) => drop(names.insert(name.clone(), *inode)),
        NameChange::Remove(name) => drop(names.remove(name)),
        NameChange::Rename(from, to, inode) => {
            names.remove(from);
            names.insert(to.clone(), *inode);
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Node {
    File {
        live: Content,
        durable: Content,
        volatile: Vec<FileChange>,
    },
    Directory {
        live: Names,
        durable: Names,
        volatile: Vec<NameChange>,
    },
    Symlink(Vec<u8>),
}

#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub(super) node: Node,
    pub(super) mode: u32,
    pub(super) owner: Owner,
    pub(super) modified: Timestamp,
    pub(super) changed: Timestamp,
    /// The times of the last modification and of the last change that were synced.
    pub(super) durable_times: (Timestamp, Timestamp),
    pub(super) xattrs: Vec<Xattr>,
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) inodes: Vec<Inode>,
    /// Changes so far; also the clock, in nanoseconds.
    pub(super) operations: u64,
    /// Losses of power so far.
    pub(super) crashes: u64,
    pub(super) kill_at: Option<u64>,
}

/// Applies a volatile write to the durable content: none of it, all of it, or some of its sectors.
pub(super) fn survive(durable: &mut Content, change: FileChange, random: &mut Random) {
    let lot = random.below(3);
    match change {
        FileChange::Size(size) if lot > 0 => durable.set_size(size),
        FileChange::Write(offset, bytes) if lot == 1 => durable.write(offset, &bytes),
        FileChange::Write(offset, bytes) if lot == 2 => {
            let mut at = offset;
            while at < offset + bytes.len() as u64 {
                let end = ((at / SECTOR_SIZE + 1) * SECTOR_SIZE).min(offset + bytes.len() as u64);
                if random.below(2) == 0 {
                    durable.write(at, &bytes[(at - offset) as usize..(end - offset) as usize]);
                }
                at = end;
            }
        }
        FileChange::Size(_) | FileChange::Write(..) => {}
    }
}

pub(super) fn directory() -> Node {
    Node::Directory {
        live: Names::new(),
        durable: Names::new(),
        volatile: Vec::new(),
    }
}

impl State {
    /// Counts a change; fails from operation `kill_at` on.
    pub(super) fn step(&mut self) -> io::Result<Timestamp> {
        if self.kill_at.is_some_and(|kill| self.operations >= kill) {
            return Err(io::Error::other("killed"));
        }
        self.operations += 1;
        Ok(self.now())
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp {
            seconds: 1_000 + (self.operations / 1_000_000_000).cast_signed(),
            nanoseconds: (self.operations % 1_000_000_000) as u32,
        }
    }

    pub(super) fn create(&mut self, node: Node, mode: u32) -> usize {
        let now = self.now();
        self.inodes.push(Inode {
            node,
            mode,
            owner: Owner::default(),
            modified: now,
            changed: now,
            durable_times: (now, now),
            xattrs: Vec::new(),
        });
        self.inodes.len() - 1
    }

    pub(super) fn find(&self, path: &RelativePath) -> io::Result<usize> {
        let mut inode = ROOT;
        for name in path.names() {
            match &self.inodes[inode].node {
                Node::Directory { live, .. } => {
                    inode = *live.get(name).ok_or(io::ErrorKind::NotFound)?;
                }
                Node::File { .. } | Node::Symlink(_) => return Err(io::ErrorKind::NotADirectory.into()),
            }
        }
        Ok(inode)
    }

    pub(super) fn change_names(&mut self, directory: &RelativePath, change: NameChange) -> io::Result<()> {
        let now = self.now();
        let inode = self.find(directory)?;
        self.inodes[inode].modified = now;
        match &mut self.inodes[inode].node {
            Node::Directory { live, volatile, .. } => {
                apply(live, &change);
                volatile.push(change);
                Ok(())
            }
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    pub(super) fn add(&mut self, path: &RelativePath, node: Node, mode: u32) -> io::Result<usize> {
        if self.find(path).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = self.create(node, mode);
        let (parent, name) = path.split();
        self.change_names(&parent, NameChange::Set(name.to_vec(), inode))?;
        Ok(inode)
    }

    pub(super) fn change_file(&mut self, inode: usize, change: FileChange) -> io::Result<()> {
        let now = self.now();
        self.inodes[inode].modified = now;
        self.inodes[inode].changed = now;
        match &mut self.inodes[inode].node {
            Node::File { live, volatile, .. } => {
                match &change {
                    FileChange::Write(offset, bytes) => live.write(*offset, bytes),
                    FileChange::Size(size) => live.set_size(*size),
                }
                volatile.push(change);
                Ok(())
            }
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    pub(super) fn sync(&mut self, inode: usize) {
        self.inodes[inode].durable_times = (self.inodes[inode].modified, self.inodes[inode].changed);
        match &mut self.inodes[inode].node {
            Node::File {
                live,
                durable,
                volatile,
            } => {
                durable.clone_from(live);
                volatile.clear();
            }
            Node::Directory {
                live,
                durable,
                volatile,
            } => {
                durable.clone_from(live);
                volatile.clear();
            }
            Node::Symlink(_) => {}
        }
    }

    pub(super) fn metadata(&self, inode: usize) -> Metadata {
        let found = &self.inodes[inode];
        let (file_type, size) = match &found.node {
            Node::File { live, .. } => (FileType::File, live.size),
            Node::Directory { .. } => (FileType::Directory, 0),
            Node::Symlink(target) => (FileType::Symlink, target.len() as u64),
        };
        let links = self.inodes.iter().map(|directory| match &directory.node {
            Node::Directory { live, .. } => live.values().filter(|entry| **entry == inode).count() as u64,
            _ => 0,
        });
        Metadata {
            file_type,
            size,
            mode: found.mode,
            owner: found.owner,
            modified: found.modified,
            changed: found.changed,
            identity: FileIdentity {
                device: 0,
                inode: inode as u64,
            },
            links: links.sum(),
        }
    }
}
