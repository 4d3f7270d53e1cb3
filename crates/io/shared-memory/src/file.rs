//! Memory files: memfds that this process creates, and files that another process shares.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    FileType, MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate,
    memfd_create,
};
use rustix::io::Errno;

/// `TMPFS_MAGIC` of `linux/magic.h`: the file system of memfds.
const TMPFS: u64 = 0x0102_1994;
/// `HUGETLBFS_MAGIC` of `linux/magic.h`.
const HUGETLBFS: u64 = 0x9584_58f6;

/// The treatment of memory whose owner can shrink it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnsealedPolicy {
    /// Reject it: an access after truncation would end the process with SIGBUS.
    Reject,
    /// Accept it: the process handles SIGBUS and replaces the missing pages.
    Accept,
}

/// Creates a zeroed memfd of `size` bytes, which can neither shrink nor grow. `name` appears in `/proc/PID/maps`.
///
/// # Errors
/// The kernel's error.
pub fn create(name: &str, size: u64) -> Result<OwnedFd, Errno> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, size)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// The reason why a file of another process is not a memory file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotMemoryFile {
    /// It is another type of file, such as a device, which may also be in tmpfs.
    NotRegular,
    /// The file system is neither tmpfs nor hugetlbfs. A page fault of another one can take arbitrarily long.
    OtherFileSystem,
    /// The kernel's error.
    Failed(Errno),
}

/// A regular file in tmpfs or hugetlbfs that another process shares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryFile {
    /// Size in bytes.
    pub size: u64,
    /// Size of a page of the file in bytes: mappings of huge pages start and end at a multiple of it.
    pub page_size: u64,
    /// True if the owner can remove pages under a mapping: the file is not sealed against shrinking, or is in hugetlbfs,
    /// whose files can lose pages at an unchanged size.
    pub can_shrink: bool,
    /// The kernel's error for files that support no seals.
    pub no_seals: Option<Errno>,
}

impl MemoryFile {
    /// Checks a file that another process shares.
    ///
    /// # Errors
    /// [`NotMemoryFile`]
    pub fn inspect(file: impl AsFd) -> Result<MemoryFile, NotMemoryFile> {
        let file = file.as_fd();
        let stat = fstat(file).map_err(NotMemoryFile::Failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(NotMemoryFile::NotRegular);
        }
        let file_system = fstatfs(file).map_err(NotMemoryFile::Failed)?.f_type as u64 & 0xffff_ffff;
        if file_system != TMPFS && file_system != HUGETLBFS {
            return Err(NotMemoryFile::OtherFileSystem);
        }
        // EINVAL, or ENOTTY from some drivers, means that this kind of file supports no seals.
        let seals = fcntl_get_seals(file);
        let is_sealed = seals.is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        Ok(MemoryFile {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            page_size: u64::try_from(stat.st_blksize).unwrap_or(0).max(4096),
            can_shrink: file_system != TMPFS || !is_sealed,
            no_seals: seals.err(),
        })
    }

    /// Returns the current size of a file in bytes.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn size_of(file: impl AsFd) -> Result<u64, Errno> {
        Ok(u64::try_from(fstat(file)?.st_size).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_created_file_can_neither_shrink_nor_grow() {
        let file = create("test", 8192).unwrap();
        let found = MemoryFile::inspect(&file).unwrap();
        assert_eq!(
            (found.size, found.can_shrink, found.no_seals),
            (8192, false, None)
        );
        assert_eq!(ftruncate(&file, 4096), Err(Errno::PERM));
        assert_eq!(ftruncate(&file, 16_384), Err(Errno::PERM));
        assert_eq!(
            fcntl_add_seals(&file, SealFlags::WRITE),
            Err(Errno::PERM),
            "no more seals"
        );
    }

    #[test]
    fn an_unsealed_file_can_shrink() {
        let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 8192).unwrap();
        assert!(MemoryFile::inspect(&file).unwrap().can_shrink);
        ftruncate(&file, 4096).unwrap();
        assert_eq!(MemoryFile::size_of(&file), Ok(4096));
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        assert!(!MemoryFile::inspect(&file).unwrap().can_shrink);
    }

    #[test]
    fn devices_and_folders_are_no_memory_files() {
        let inspect = |path: &str| MemoryFile::inspect(File::open(path).unwrap()).err();
        assert_eq!(inspect("/dev/null"), Some(NotMemoryFile::NotRegular));
        assert_eq!(inspect("/dev"), Some(NotMemoryFile::NotRegular));
        assert_eq!(inspect("/proc/self/maps"), Some(NotMemoryFile::OtherFileSystem));
    }
}
