//! The file system that sources and sinks use: a trait, Linux ([`Root`]) and a model that crashes ([`memory::MemoryFs`]).

pub mod memory;
mod real;

pub(crate) use real::bytes as path_bytes;
pub use real::{CreatedDirectories, Root};

use crate::entry::{Owner, Segment, Timestamp, Xattr};
use crate::path::RelativePath;
use std::io;

/// The type of a directory entry, as `lstat(2)` reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileType {
    /// A regular file.
    File,
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, socket or pipe.
    Other,
}

/// The identity of a file on this machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileIdentity {
    /// The number of the device.
    pub device: u64,
    /// The number of the inode on the device.
    pub inode: u64,
}

/// Metadata of a file (inode(7)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata {
    pub file_type: FileType,
    /// Bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    pub owner: Owner,
    /// Time of the last modification of the content.
    pub modified: Timestamp,
    /// Time of the last change of the inode.
    pub changed: Timestamp,
    pub identity: FileIdentity,
    /// Hard links.
    pub links: u64,
}

/// The purpose for which a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reads a file that exists.
    Read,
    /// Reads and writes a file that exists.
    Write,
    /// Reads and writes a file, which is made with mode 0600 if it does not exist.
    CreatePrivate,
    /// Makes a file with this mode less the umask, and reads and writes it. An entry that has the name already is an error.
    New(u32),
    /// Opens a directory, for its attributes.
    Directory,
}

/// The operations on files below one root. No path leads outside the root, not even through a symlink.
///
/// A write is durable after [`sync`](FileSystem::sync) of its file; a name after
/// [`sync_directory`](FileSystem::sync_directory) of its directory; both after [`sync_all`](FileSystem::sync_all).
pub trait FileSystem {
    /// An open file.
    type File;

    /// Returns the identity of the root, which distinguishes it from every other root in this process.
    ///
    /// # Errors
    /// The errors of `fstat(2)`.
    fn root_identity(&self) -> io::Result<FileIdentity>;
    /// Returns the metadata of a path; of a symlink those of the link itself.
    ///
    /// # Errors
    /// The errors of `lstat(2)`.
    fn metadata(&self, path: &RelativePath) -> io::Result<Metadata>;
    /// Returns the metadata of an open file.
    ///
    /// # Errors
    /// The errors of `fstat(2)`.
    fn file_metadata(&self, file: &Self::File) -> io::Result<Metadata>;
    /// Returns an identifier of the kernel's run: it changes with each start of the machine.
    fn boot(&self) -> [u8; 32];
    /// Returns true if every change of a file from now on gets a later time than `time`, the time of an earlier change. Times of
    /// files advance in steps of some milliseconds.
    fn is_past(&self, time: Timestamp) -> bool;
    /// Waits until the times of all changes so far are past.
    fn settle(&self);
    /// Returns the names in a directory, in any order, without `.` and `..`.
    ///
    /// # Errors
    /// The errors of `getdents64(2)`.
    fn names(&self, directory: &RelativePath) -> io::Result<Vec<Vec<u8>>>;
    /// Returns the target of a symlink.
    ///
    /// # Errors
    /// The errors of `readlink(2)`.
    fn read_link(&self, path: &RelativePath) -> io::Result<Vec<u8>>;
    /// Opens a file or directory; never a symlink.
    ///
    /// # Errors
    /// The errors of `openat2(2)`.
    fn open(&self, path: &RelativePath, access: Access) -> io::Result<Self::File>;
    /// Reads until the buffer is full or the file ends; returns the bytes read.
    ///
    /// # Errors
    /// The errors of `pread(2)`.
    fn read_at(&self, file: &Self::File, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes all bytes.
    ///
    /// # Errors
    /// The errors of `pwrite(2)`.
    fn write_at(&self, file: &Self::File, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Returns the runs of data of a file of `size` bytes; one run for the whole file if the file system
    /// does not report them.
    ///
    /// # Errors
    /// The errors of `lseek(2)` with `SEEK_DATA`.
    fn segments(&self, file: &Self::File, size: u64) -> io::Result<Vec<Segment>>;
    /// Sets the size; new bytes are a hole.
    ///
    /// # Errors
    /// The errors of `ftruncate(2)`.
    fn set_size(&self, file: &Self::File, size: u64) -> io::Result<()>;
    /// Reserves space for a run of bytes; does nothing if the file system cannot.
    ///
    /// # Errors
    /// The errors of `fallocate(2)`.
    fn allocate(&self, file: &Self::File, segment: Segment) -> io::Result<()>;
    /// Returns the extended attributes, in ascending order.
    ///
    /// # Errors
    /// The errors of `flistxattr(2)` and `fgetxattr(2)`.
    fn xattrs(&self, file: &Self::File) -> io::Result<Vec<Xattr>>;
    /// Sets the permission bits.
    ///
    /// # Errors
    /// The errors of `fchmod(2)`.
    fn set_mode(&self, file: &Self::File, mode: u32) -> io::Result<()>;
    /// Sets the time of the last modification.
    ///
    /// # Errors
    /// The errors of `futimens(3)`.
    fn set_modified(&self, file: &Self::File, modified: Timestamp) -> io::Result<()>;
    /// Sets user and group.
    ///
    /// # Errors
    /// The errors of `fchown(2)`.
    fn set_owner(&self, file: &Self::File, owner: Owner) -> io::Result<()>;
    /// Sets extended attributes.
    ///
    /// # Errors
    /// The errors of `fsetxattr(2)`.
    fn set_xattrs(&self, file: &Self::File, xattrs: &[Xattr]) -> io::Result<()>;
    /// Makes the content of a file durable.
    ///
    /// # Errors
    /// The errors of `fsync(2)`.
    fn sync(&self, file: &Self::File) -> io::Result<()>;
    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// The errors of `fsync(2)`.
    fn sync_directory(&self, directory: &RelativePath) -> io::Result<()>;
    /// Makes everything durable.
    ///
    /// # Errors
    /// The errors of `syncfs(2)`.
    fn sync_all(&self) -> io::Result<()>;
    /// Makes a directory with this mode less the umask.
    ///
    /// # Errors
    /// The errors of `mkdir(2)`.
    fn create_directory(&self, path: &RelativePath, mode: u32) -> io::Result<()>;
    /// Returns true if this process may make and rename files in a directory.
    fn is_writable(&self, directory: &RelativePath) -> bool;
    /// Sets user and group, and the time of the last modification, of a symlink itself.
    ///
    /// # Errors
    /// The errors of `fchownat(2)` and `utimensat(2)`.
    fn set_link(
        &self,
        path: &RelativePath,
        owner: Option<Owner>,
        modified: Option<Timestamp>,
    ) -> io::Result<()>;
    /// Makes a symlink.
    ///
    /// # Errors
    /// The errors of `symlink(2)`.
    fn symlink(&self, target: &[u8], path: &RelativePath) -> io::Result<()>;
    /// Gives a file a second name.
    ///
    /// # Errors
    /// The errors of `link(2)`.
    fn hard_link(&self, existing: &RelativePath, new: &RelativePath) -> io::Result<()>;
    /// Renames a file; an existing file with the new name is replaced.
    ///
    /// # Errors
    /// The errors of `rename(2)`.
    fn rename(&self, from: &RelativePath, to: &RelativePath) -> io::Result<()>;
    /// Renames a file; an existing file with the new name is not replaced.
    ///
    /// # Errors
    /// The errors of `renameat2(2)` with `RENAME_NOREPLACE`: `AlreadyExists` if the new name is taken.
    fn rename_new(&self, from: &RelativePath, to: &RelativePath) -> io::Result<()>;
    /// Removes a name of a file or symlink.
    ///
    /// # Errors
    /// The errors of `unlink(2)`.
    fn remove(&self, path: &RelativePath) -> io::Result<()>;
}

/// Returns `Ok(None)` if a path does not exist.
pub(crate) fn optional<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
