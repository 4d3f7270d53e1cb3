//! Huge pages: the pools of the machine, temporary reservations, and a private hugetlbfs mount.
//!
//! The kernel has a pool of persistent pages (`nr_hugepages`), and frees surplus pages as soon as their last user
//! ends. A [`Reservation`] enlarges the pool only until the pages are in use; dropping it makes pages in use surplus:
//!
//! ```text
//!                      reserve(512 MiB)          EAL takes them         drop(reservation)        the process ends
//! persistent     0  ->  256, all free       ->  256, all in use    ->  0                    ->  0
//! surplus        0      0                       0                      256, all in use          0
//! ```
//!
//! So the pages are freed when the process ends, even if it is killed. A process that is killed before it
//! drops its reservation leaves a record of the reservation (`record`). The next [`reserve`] reads the record
//! and frees the pages.
//!
//! Only pages and mounts of this module are released: pages that another program reserved stay reserved, and its
//! mounts stay mounted.

mod record;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use record::Record;

const POOLS: &str = "/sys/kernel/mm/hugepages";
/// The size in KiB of the huge pages that every x86-64 machine has and can reserve at run time.
const PAGE_KIB: u64 = 2048;

/// The huge pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Size of a page, in KiB.
    pub page_kib: u64,
    /// Number of pages that the kernel set aside, including surplus pages.
    pub total: u64,
    /// Number of pages that the kernel frees when their last user ends.
    pub surplus: u64,
    /// Number of pages that are neither used nor promised to a process.
    pub free: u64,
}

impl Pool {
    /// Returns the memory in free pages, in MiB.
    #[must_use]
    pub fn free_mib(&self) -> u64 {
        self.free * self.page_kib / 1024
    }

    /// Returns the number of pages that stay when their users end, which `nr_hugepages` sets.
    #[must_use]
    pub fn persistent(&self) -> u64 {
        self.total.saturating_sub(self.surplus)
    }
}

/// The error of reserving or mounting huge pages.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HugePagesError {
    /// The kernel has no huge pages of 2 MiB.
    #[error(
        "this kernel has no huge pages of 2 MiB ({POOLS} has no such folder). To fix it: run without huge pages"
    )]
    Unsupported,
    /// Reserving needs root.
    #[error(
        "{wanted_mib} MiB of huge pages are needed, {free_mib} MiB are free, and reserving more is not permitted: \
         {source}. To fix it: as root, echo {} > /proc/sys/vm/nr_hugepages; or run without huge pages",
        .wanted_mib.div_ceil(2)
    )]
    Permission {
        /// The requested memory, in MiB.
        wanted_mib: u64,
        /// The free memory, in MiB.
        free_mib: u64,
        /// The error of the system call.
        source: io::Error,
    },
    /// The memory is too full, or too fragmented.
    #[error(
        "{wanted_mib} MiB of huge pages are needed and the kernel found {found_mib} MiB. To fix it: ask for less memory, \
         end other programs, or reserve them when the machine starts (hugepages= on the kernel's command line)"
    )]
    NotEnough {
        /// The requested memory, in MiB.
        wanted_mib: u64,
        /// The available memory, in MiB.
        found_mib: u64,
    },
    /// Mounting failed.
    #[error("cannot mount hugetlbfs at {}: {source}. To fix it: run as root, or without huge pages", .path.display())]
    Mount {
        /// The mount point.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// Reading the kernel's state failed.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
}

/// Returns the pools by page size; empty if the kernel has no huge pages.
///
/// # Errors
/// [`HugePagesError::Read`]
pub fn pools() -> Result<Vec<Pool>, HugePagesError> {
    let Ok(folders) = fs::read_dir(POOLS) else {
        return Ok(Vec::new());
    };
    let mut pools = Vec::new();
    for folder in folders.flatten() {
        let name = folder.file_name();
        let size = name
            .to_str()
            .and_then(|name| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok());
        if let Some(page_kib) = size {
            pools.push(Pool {
                page_kib,
                total: read_number(&folder.path().join("nr_hugepages"))?,
                surplus: read_number(&folder.path().join("surplus_hugepages"))?,
                free: read_number(&folder.path().join("free_hugepages"))?,
            });
        }
    }
    pools.sort_by_key(|pool| pool.page_kib);
    Ok(pools)
}

/// Returns the mount points of hugetlbfs, each with the size of a page in KiB if the mount options contain it.
#[must_use]
pub fn mounts() -> Vec<(PathBuf, Option<u64>)> {
    let Ok(table) = fs::read_to_string("/proc/self/mounts") else {
        return Vec::new();
    };
    let mount = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let (path, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        let size = options
            .split(',')
            .find_map(|option| option.strip_prefix("pagesize="));
        (kind == "hugetlbfs").then(|| (PathBuf::from(path), size.and_then(page_size)))
    };
    table.lines().filter_map(mount).collect()
}

/// Parses a page size as the kernel prints it, such as "2M" or "1024M". Returns KiB.
fn page_size(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit = match unit {
        "K" => 1,
        "M" => 1024,
        "G" => 1024 * 1024,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// A lock that keeps other processes from counting the same free pages: taken before [`reserve`], and held until the
/// pages are in use.
#[derive(Debug)]
pub struct ReservationLock {
    lock: Option<Flock<fs::File>>,
}

/// True while this process holds a [`ReservationLock`]. A reservation that is dropped meanwhile must not wait
/// for the lock.
static IS_LOCKED: AtomicBool = AtomicBool::new(false);

/// The directory that a [`ReservationLock`] locks. Huge pages and devtmpfs exist once for the whole machine.
/// The file with the number of pages is unsuitable, because each network namespace has a separate sysfs.
const LOCKED: &str = "/dev";

/// The longest time to wait for the lock. A process needs about a second between reservation and use, and several
/// times as long on a busy machine. The limit is for a process that hangs.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until no other process is between its [`reserve`] and the use of its pages, and takes the lock.
/// Returns without the lock after a minute.
#[must_use]
pub fn lock() -> ReservationLock {
    // Without the lock, reservations still work, one process at a time.
    let Ok(mut file) = fs::File::open(LOCKED) else {
        return ReservationLock { lock: None };
    };
    if IS_LOCKED.swap(true, Ordering::AcqRel) {
        return ReservationLock { lock: None };
    }
    let start = Instant::now();
    while start.elapsed() < LOCK_TIMEOUT {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return ReservationLock { lock: Some(lock) },
            Err((same, _)) => file = same,
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    IS_LOCKED.store(false, Ordering::Release);
    ReservationLock { lock: None }
}

impl ReservationLock {
    /// Returns true if this value holds the lock; false if the lock was not free in time, another value of this
    /// process held it, or [`LOCKED`] cannot be opened.
    fn is_held(&self) -> bool {
        self.lock.is_some()
    }
}

impl Drop for ReservationLock {
    fn drop(&mut self) {
        if self.lock.take().is_some() {
            IS_LOCKED.store(false, Ordering::Release);
        }
    }
}

/// Persistent pages that [`reserve`] added to the kernel's pool. Dropping it removes them from the pool: free pages
/// are released at once; pages in use become surplus pages, which are released when their last user ends.
#[derive(Debug)]
pub struct Reservation {
    /// Number of pages.
    added: u64,
    _record: Option<Record>,
}

/// Reserves pages until at least `mib` MiB of huge pages are free. First releases the pages that a killed
/// process left reserved.
///
/// # Errors
/// [`HugePagesError`]; the kernel's pool is then unchanged.
pub fn reserve(lock: &ReservationLock, mib: u64) -> Result<Reservation, HugePagesError> {
    if lock.is_held() {
        release_abandoned()?;
    }
    let pools = pools()?;
    let free_mib: u64 = pools.iter().map(Pool::free_mib).sum();
    if free_mib >= mib {
        return Ok(Reservation {
            added: 0,
            _record: None,
        });
    }
    let pool = pools
        .iter()
        .find(|pool| pool.page_kib == PAGE_KIB)
        .ok_or(HugePagesError::Unsupported)?;
    let missing = ((mib - free_mib) * 1024).div_ceil(PAGE_KIB);
    // If more than the available memory is requested, the kernel reclaims memory of all programs before it fails.
    let available_kib = available_kib().unwrap_or(u64::MAX);
    if missing * PAGE_KIB > available_kib / 10 * 9 {
        return Err(HugePagesError::NotEnough {
            wanted_mib: mib,
            found_mib: free_mib + available_kib / 1024,
        });
    }
    let before = pool.persistent();
    // The record is written before the pages are reserved. Without the lock, the record could belong to
    // another process.
    let record = lock
        .is_held()
        .then(|| Record::write(before, pool.surplus + missing));
    // The kernel first makes surplus pages persistent, and then adds pages.
    set_persistent(pool.total + missing).map_err(|source| HugePagesError::Permission {
        wanted_mib: mib,
        free_mib,
        source,
    })?;
    // The kernel adds as many pages as it finds, and returns no error if it finds too few.
    let after = pool_of_2_mib()?;
    let found = after.total.saturating_sub(pool.total);
    if found < missing {
        let _ = set_persistent(before);
        let found_mib = free_mib + found * PAGE_KIB / 1024;
        return Err(HugePagesError::NotEnough {
            wanted_mib: mib,
            found_mib,
        });
    }
    Ok(Reservation {
        added: after.persistent().saturating_sub(before),
        _record: record.flatten(),
    })
}

/// Releases the pages of a process that was killed between its [`reserve`] and the drop of its reservation. The caller
/// has the lock, so that no live process is between the two.
fn release_abandoned() -> Result<(), HugePagesError> {
    let Some(left) = record::read() else {
        return Ok(());
    };
    let persistent = pool_of_2_mib()?.persistent();
    let pages = persistent.saturating_sub(left.before).min(left.pages);
    if pages > 0 && set_persistent(persistent - pages).is_ok() {
        tracing::info!(pages, "released huge pages that a killed process had reserved");
    }
    record::remove();
    Ok(())
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.added == 0 {
            return;
        }
        let _lock = lock();
        let released = pool_of_2_mib()
            .map_err(io::Error::other)
            .and_then(|pool| set_persistent(pool.persistent().saturating_sub(self.added)));
        if let Err(error) = released {
            tracing::warn!(pages = self.added, %error, "huge pages stay reserved");
        }
    }
}

/// A hugetlbfs that [`private_mount`] mounted. Dropping it unmounts the file system, even while its files are
/// mapped.
#[derive(Debug)]
pub struct Mount {
    path: PathBuf,
}

impl Mount {
    /// Returns the mount point.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Creates the folder `path` if it is missing, and mounts a hugetlbfs with 2 MiB pages there. Only this user
/// can enter it.
///
/// # Errors
/// [`HugePagesError::Mount`]
pub fn private_mount(path: &Path) -> Result<Mount, HugePagesError> {
    let refused = |source| HugePagesError::Mount {
        path: path.to_owned(),
        source,
    };
    fs::create_dir_all(path).map_err(refused)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    match mount(
        Some("millrace"),
        path,
        Some("hugetlbfs"),
        flags,
        Some("pagesize=2M,mode=0700"),
    ) {
        Ok(()) => Ok(Mount {
            path: path.to_owned(),
        }),
        Err(errno) => {
            // Only an empty folder is removed, so existing files are kept.
            let _ = fs::remove_dir(path);
            Err(refused(errno.into()))
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmounted = umount2(&self.path, MntFlags::MNT_DETACH).map_err(io::Error::from);
        if let Err(error) = unmounted.and_then(|()| fs::remove_dir(&self.path)) {
            tracing::warn!(path = %self.path.display(), %error, "the hugetlbfs mount stays");
        }
    }
}

/// The huge pages and the mount that [`Eal::init`](crate::Eal::init) acquired.
#[derive(Default)]
pub(crate) struct HugePageMemory {
    /// The reserved pages; `None` once EAL uses them.
    pub(crate) reservation: Option<Reservation>,
    pub(crate) mount: Option<Mount>,
}

/// Returns the memory that can be reserved without ending a program, in KiB.
fn available_kib() -> Option<u64> {
    memory_kib("MemAvailable:")
}

/// Returns the memory of the machine in MiB; `None` if the kernel does not report it.
#[must_use]
pub fn total_mib() -> Option<u64> {
    memory_kib("MemTotal:").map(|kib| kib / 1024)
}

fn memory_kib(key: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

fn pool_of_2_mib() -> Result<Pool, HugePagesError> {
    let found = pools()?.into_iter().find(|pool| pool.page_kib == PAGE_KIB);
    found.ok_or(HugePagesError::Unsupported)
}

fn total_path() -> PathBuf {
    PathBuf::from(format!("{POOLS}/hugepages-{PAGE_KIB}kB/nr_hugepages"))
}

/// Sets the number of persistent pages.
fn set_persistent(pages: u64) -> io::Result<()> {
    fs::write(total_path(), pages.to_string())
}

fn read_number(path: &Path) -> Result<u64, HugePagesError> {
    let read = |source| HugePagesError::Read {
        path: path.to_owned(),
        source,
    };
    let text = fs::read_to_string(path).map_err(read)?;
    text.trim()
        .parse()
        .map_err(|error| read(io::Error::new(io::ErrorKind::InvalidData, error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_page_sizes_are_understood() {
        assert_eq!(page_size("2M"), Some(2048));
        assert_eq!(page_size("1024M"), Some(1024 * 1024));
        assert_eq!(page_size("1G"), Some(1024 * 1024));
        assert_eq!(page_size(""), None);
        assert_eq!(page_size("2 é"), None);
    }

    #[test]
    fn no_message_lacks_a_next_step() {
        let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
        for error in [
            HugePagesError::Unsupported,
            HugePagesError::Permission {
                wanted_mib: 512,
                free_mib: 0,
                source: refused(),
            },
            HugePagesError::NotEnough {
                wanted_mib: 512,
                found_mib: 6,
            },
            HugePagesError::Mount {
                path: "/run/x".into(),
                source: refused(),
            },
        ] {
            assert!(error.to_string().contains("To fix it: "), "{error}");
        }
    }
}
