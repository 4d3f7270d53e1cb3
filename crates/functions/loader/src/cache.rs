//! A cache of functions from files: a file is loaded again only if it has changed, because a loaded function stays in
//! memory until the process ends.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use millrace_nf::Kind;
use parking_lot::Mutex;
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat};

/// The attributes of a file that show whether it has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds since the epoch.
    modified: (i64, u64),
}

impl Stamp {
    fn of(stat: &Stat) -> Stamp {
        Stamp {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime, stat.st_mtime_nsec),
        }
    }
}

/// Kinds of functions by their files.
pub(crate) struct Cache(Mutex<BTreeMap<PathBuf, (Stamp, &'static Kind)>>);

impl Cache {
    pub(crate) const fn new() -> Cache {
        Cache(Mutex::new(BTreeMap::new()))
    }

    /// Returns the kind in a file, from the cache, or by `load`, which gets the file that `open` returned and its size
    /// in bytes.
    pub(crate) fn find(
        &self,
        path: &Path,
        open: impl FnOnce(&Path) -> Result<OwnedFd, String>,
        load: impl FnOnce(OwnedFd, u64) -> Result<&'static Kind, String>,
    ) -> Result<&'static Kind, String> {
        if !path.is_absolute() {
            return Err("expected an absolute path".to_owned());
        }
        let file = open(path)?;
        let stat = fstat(&file).map_err(|error| format!("cannot be read: {error}"))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err("expected a file".to_owned());
        }
        let stamp = Stamp::of(&stat);
        let mut held = self.0.lock();
        if let Some((_, kind)) = held.get(path).filter(|(at, _)| *at == stamp) {
            return Ok(kind);
        }
        let kind = load(file, stamp.size)?;
        held.insert(path.to_owned(), (stamp, kind));
        Ok(kind)
    }
}

/// Opens a file for reading, whoever owns it. It does not wait for the writer of a pipe.
pub(crate) fn open_any(path: &Path) -> Result<OwnedFd, String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // openat(2), as the filter of system calls of `millrace-nf` refuses open(2).
    openat(CWD, path, flags, Mode::empty())
        .map_err(|error| format!("cannot be read: {}", std::io::Error::from(error)))
}
