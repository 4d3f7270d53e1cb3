//! The file system on Linux: `openat2(2)` resolves every path with `RESOLVE_BENEATH` and
//! `RESOLVE_NO_SYMLINKS`.

use super::{Access, FileIdentity, FileSystem, FileType, Metadata};
use crate::entry::{Owner, Segment, Timestamp, Xattr};
use crate::path::RelativePath;
use rustix::fs::{
    self, AtFlags, FallocateFlags, Gid, Mode, OFlags, RenameFlags, ResolveFlags, SeekFrom, Timespec, Uid,
    XattrFlags,
};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The number of attempts to resolve a path while others rename directories (`EAGAIN` of `openat2(2)`).
const ATTEMPTS: usize = 16;
/// The maximum size of a list of extended attributes and of one attribute, in bytes (`XATTR_LIST_MAX`,
/// `XATTR_SIZE_MAX`).
const XATTR_SIZE_MAX: usize = 64 << 10;

/// The longest step in which the times of files advance, and a reserve: a tick of the kernel takes 10 ms at most (`CONFIG_HZ`).
const TIME_STEP: Duration = Duration::from_millis(20);

/// The files below a directory.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
}

impl Root {
    /// Opens a directory. Symlinks in `directory` are followed.
    ///
    /// # Errors
    /// The errors of `open(2)`.
    pub fn open(directory: impl AsRef<Path>) -> io::Result<Root> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Root {
            directory: fs::open(directory.as_ref(), flags, Mode::empty())?,
        })
    }

    /// Opens a directory below this one. Missing directories of the path are created, with modes according to
    /// the umask. Returns the opened directory and the created directories.
    ///
    /// # Errors
    /// The errors of `mkdir(2)` and `openat2(2)`.
    pub fn create_below(self, path: &RelativePath) -> io::Result<(Root, CreatedDirectories)> {
        let mut created = CreatedDirectories {
            root: self,
            paths: Vec::new(),
        };
        let mut at = RelativePath::root();
        for name in path.names() {
            at = at.join(name).map_err(io::Error::other)?;
            match created.root.create_directory(&at, 0o777) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                result => {
                    result?;
                    created.paths.push(at.clone());
                }
            }
        }
        let flags = OFlags::DIRECTORY | OFlags::RDONLY;
        let directory = created.root.resolve(path, flags, 0)?;
        Ok((Root { directory }, created))
    }

    fn resolve(&self, path: &RelativePath, flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
        let bytes = if path.is_root() { b"." } else { path.as_bytes() };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC;
        let mut attempts = 0;
        loop {
            match fs::openat2(&self.directory, bytes, flags, Mode::from_raw_mode(mode), resolve) {
                Err(Errno::AGAIN | Errno::INTR) if attempts < ATTEMPTS => attempts += 1,
                result => return Ok(result?),
            }
        }
    }

    /// Opens the directory that holds a path, and returns the name in it.
    fn parent<'a>(&self, path: &'a RelativePath) -> io::Result<(OwnedFd, &'a [u8])> {
        let (directory, _) = path.split();
        let name = path
            .as_bytes()
            .rsplit(|byte| *byte == b'/')
            .next()
            .unwrap_or_default();
        if name.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the root has no name",
            ));
        }
        let flags = OFlags::DIRECTORY | OFlags::PATH;
        Ok((self.resolve(&directory, flags, 0)?, name))
    }
}

/// Directories that were created for files that may not arrive. Dropping the value removes the empty ones,
/// unless [`CreatedDirectories::keep`] was called.
#[derive(Debug)]
pub struct CreatedDirectories {
    root: Root,
    /// The created directories. A directory precedes its subdirectories.
    paths: Vec<RelativePath>,
}

impl CreatedDirectories {
    /// Keeps the directories when the value is dropped.
    pub fn keep(&mut self) {
        self.paths.clear();
    }
}

impl Drop for CreatedDirectories {
    fn drop(&mut self) {
        for path in self.paths.iter().rev() {
            // Only empty directories are removed: a directory with entries is in use by now.
            let _removed = self
                .root
                .parent(path)
                .and_then(|(parent, name)| Ok(fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)?));
        }
    }
}

impl FileSystem for Root {
    type File = File;

    fn root_identity(&self) -> io::Result<FileIdentity> {
        Ok(identity(&fs::fstat(&self.directory)?))
    }

    fn metadata(&self, path: &RelativePath) -> io::Result<Metadata> {
        if path.is_root() {
            return Ok(convert(&fs::fstat(&self.directory)?));
        }
        // RESOLVE_NO_SYMLINKS also refuses a symlink as the last name, so the last name is looked up in its
        // directory.
        let (parent, name) = self.parent(path)?;
        Ok(convert(&fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    fn file_metadata(&self, file: &File) -> io::Result<Metadata> {
        Ok(convert(&fs::fstat(file)?))
    }

    fn boot(&self) -> [u8; 32] {
        // random(4). Without this file, no start of the machine is distinguished from another.
        let identifier = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        *blake3::hash(&identifier).as_bytes()
    }

    fn is_past(&self, time: Timestamp) -> bool {
        let Ok(seconds) = u64::try_from(time.seconds) else {
            return true;
        };
        let step = Duration::new(seconds, time.nanoseconds).saturating_add(TIME_STEP);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.is_ok_and(|now| now > step)
    }

    fn settle(&self) {
        std::thread::sleep(TIME_STEP);
    }

    fn names(&self, directory: &RelativePath) -> io::Result<Vec<Vec<u8>>> {
        let directory = self.resolve(directory, OFlags::DIRECTORY | OFlags::RDONLY, 0)?;
        let mut names = Vec::new();
        for entry in fs::Dir::new(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
        }
        Ok(names)
    }

    fn read_link(&self, path: &RelativePath) -> io::Result<Vec<u8>> {
        let (parent, name) = self.parent(path)?;
        Ok(fs::readlinkat(&parent, name, Vec::new())?.into_bytes())
    }

    fn open(&self, path: &RelativePath, access: Access) -> io::Result<File> {
        let (flags, mode) = match access {
            // A pipe must not block the scan.
            Access::Read => (OFlags::RDONLY | OFlags::NONBLOCK, 0),
            Access::Write => (OFlags::RDWR | OFlags::NONBLOCK, 0),
            Access::CreatePrivate => (OFlags::RDWR | OFlags::CREATE, 0o600),
            Access::New(mode) => (OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, mode),
            Access::Directory => (OFlags::RDONLY | OFlags::DIRECTORY, 0),
        };
        Ok(File::from(self.resolve(path, flags | OFlags::NOFOLLOW, mode)?))
    }

    fn read_at(&self, file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    fn segments(&self, file: &File, size: u64) -> io::Result<Vec<Segment>> {
        let mut segments = Vec::new();
        let mut from = 0;
        while from < size {
            let offset = match fs::seek(file, SeekFrom::Data(from)) {
                Ok(offset) => offset.min(size),
                // ENXIO: no data follow the offset.
                Err(Errno::NXIO) => break,
                Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(crate::entry::FileEntry::whole(size)),
                Err(error) => return Err(error.into()),
            };
            let end = match fs::seek(file, SeekFrom::Hole(offset)) {
                Ok(end) => end.min(size),
                Err(Errno::NXIO) => break,
                Err(error) => return Err(error.into()),
            };
            if end > offset {
                segments.push(Segment {
                    offset,
                    len: end - offset,
                });
            }
            from = end.max(from + 1);
        }
        Ok(segments)
    }

    fn set_size(&self, file: &File, size: u64) -> io::Result<()> {
        file.set_len(size)
    }

    fn allocate(&self, file: &File, segment: Segment) -> io::Result<()> {
        match fs::fallocate(file, FallocateFlags::empty(), segment.offset, segment.len) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            result => Ok(result?),
        }
    }

    fn xattrs(&self, file: &File) -> io::Result<Vec<Xattr>> {
        let mut list = vec![0; XATTR_SIZE_MAX];
        let len = match fs::flistxattr(file, &mut list[..]) {
            Err(Errno::OPNOTSUPP) => 0,
            result => result?,
        };
        let mut xattrs = Vec::new();
        let mut value = vec![0; XATTR_SIZE_MAX];
        for name in list[..len]
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty())
        {
            match fs::fgetxattr(file, name, &mut value[..]) {
                Ok(len) => xattrs.push((name.into(), value[..len].into())),
                // The attribute was removed meanwhile, or this process may not read it.
                Err(Errno::NODATA | Errno::ACCESS | Errno::PERM) => {}
                Err(error) => return Err(error.into()),
            }
        }
        xattrs.sort();
        Ok(xattrs)
    }

    fn set_mode(&self, file: &File, mode: u32) -> io::Result<()> {
        Ok(fs::fchmod(file, Mode::from_raw_mode(mode))?)
    }

    fn set_modified(&self, file: &File, modified: Timestamp) -> io::Result<()> {
        Ok(fs::futimens(file, &modification(modified))?)
    }

    fn set_owner(&self, file: &File, Owner { user, group }: Owner) -> io::Result<()> {
        Ok(fs::fchown(
            file,
            Some(Uid::from_raw(user)),
            Some(Gid::from_raw(group)),
        )?)
    }

    fn set_xattrs(&self, file: &File, xattrs: &[Xattr]) -> io::Result<()> {
        for (name, value) in xattrs {
            fs::fsetxattr(file, &name[..], value, XattrFlags::empty())?;
        }
        Ok(())
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        Ok(fs::fsync(file)?)
    }

    fn sync_directory(&self, directory: &RelativePath) -> io::Result<()> {
        let directory = self.resolve(directory, OFlags::DIRECTORY | OFlags::RDONLY, 0)?;
        Ok(fs::fsync(&directory)?)
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(fs::syncfs(&self.directory)?)
    }

    fn create_directory(&self, path: &RelativePath, mode: u32) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        Ok(fs::mkdirat(&parent, name, Mode::from_raw_mode(mode))?)
    }

    fn is_writable(&self, directory: &RelativePath) -> bool {
        let access = fs::Access::WRITE_OK | fs::Access::EXEC_OK;
        let result = if directory.is_root() {
            fs::accessat(&self.directory, ".", access, AtFlags::EACCESS)
        } else {
            match self.parent(directory) {
                Ok((parent, name)) => fs::accessat(&parent, name, access, AtFlags::EACCESS),
                Err(_) => return false,
            }
        };
        result.is_ok()
    }

    fn set_link(
        &self,
        path: &RelativePath,
        owner: Option<Owner>,
        modified: Option<Timestamp>,
    ) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        if let Some(Owner { user, group }) = owner {
            let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
            fs::chownat(&parent, name, user, group, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        if let Some(modified) = modified {
            fs::utimensat(&parent, name, &modification(modified), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    fn symlink(&self, target: &[u8], path: &RelativePath) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        Ok(fs::symlinkat(target, &parent, name)?)
    }

    fn hard_link(&self, existing: &RelativePath, new: &RelativePath) -> io::Result<()> {
        let (from, old) = self.parent(existing)?;
        let (to, name) = self.parent(new)?;
        Ok(fs::linkat(&from, old, &to, name, AtFlags::empty())?)
    }

    fn rename(&self, from: &RelativePath, to: &RelativePath) -> io::Result<()> {
        let (old_parent, old) = self.parent(from)?;
        // Temporary files are nearly always in the directory of their final names.
        let (directory, name) = to.split();
        if directory == from.split().0 && !name.is_empty() {
            return Ok(fs::renameat(&old_parent, old, &old_parent, name)?);
        }
        let (new_parent, new) = self.parent(to)?;
        Ok(fs::renameat(&old_parent, old, &new_parent, new)?)
    }

    fn rename_new(&self, from: &RelativePath, to: &RelativePath) -> io::Result<()> {
        let (old_parent, old) = self.parent(from)?;
        let (new_parent, new) = self.parent(to)?;
        match fs::renameat_with(&old_parent, old, &new_parent, new, RenameFlags::NOREPLACE) {
            // The file system does not support RENAME_NOREPLACE (renameat2(2)). A hard link never replaces a
            // name either. If power is lost before the old name is removed, both names remain.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                fs::linkat(&old_parent, old, &new_parent, new, AtFlags::empty())?;
                self.sync_directory(&to.split().0)?;
                Ok(fs::unlinkat(&old_parent, old, AtFlags::empty())?)
            }
            result => Ok(result?),
        }
    }

    fn remove(&self, path: &RelativePath) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        Ok(fs::unlinkat(&parent, name, AtFlags::empty())?)
    }
}

/// Returns the argument of `utimensat(2)` that sets the time of the last modification only.
fn modification(modified: Timestamp) -> fs::Timestamps {
    fs::Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: fs::UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: modified.seconds,
            tv_nsec: modified.nanoseconds.into(),
        },
    }
}

fn identity(stat: &fs::Stat) -> FileIdentity {
    FileIdentity {
        device: stat.st_dev,
        inode: stat.st_ino,
    }
}

fn convert(stat: &fs::Stat) -> Metadata {
    let time = |seconds: i64, nanoseconds: u64| Timestamp {
        seconds,
        nanoseconds: u32::try_from(nanoseconds).unwrap_or(0),
    };
    Metadata {
        file_type: match fs::FileType::from_raw_mode(stat.st_mode) {
            fs::FileType::RegularFile => FileType::File,
            fs::FileType::Directory => FileType::Directory,
            fs::FileType::Symlink => FileType::Symlink,
            _ => FileType::Other,
        },
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        owner: Owner {
            user: stat.st_uid,
            group: stat.st_gid,
        },
        modified: time(stat.st_mtime, stat.st_mtime_nsec),
        changed: time(stat.st_ctime, stat.st_ctime_nsec),
        identity: identity(stat),
        links: stat.st_nlink,
    }
}

/// Returns the bytes of a path of the operating system.
pub(crate) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
