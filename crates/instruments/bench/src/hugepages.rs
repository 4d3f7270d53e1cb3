//! Huge pages for the time that a system runs: the same number for every system, released afterwards.
//!
//! Other programs reserve and release pages at the same time (each `millraced` does). The pool is therefore changed by
//! differences, under the lock that `millrace-dpdk` takes, and never set to a number that was read earlier.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

/// The number of pages of 2 MiB in the kernel's pool, which root may write, and the number of free pages.
const TOTAL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
/// The directory that programs lock while they reserve pages; `millrace_dpdk::hugepages` locks the same one.
const LOCKED: &str = "/dev";

/// The time limit for the lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// Pages that were added to the kernel's pool. Dropping the value removes them.
#[derive(Debug)]
pub(crate) struct HugePages {
    added: u64,
}

impl HugePages {
    /// Makes `mib` MiB of pages available. Returns `None` without permission, or if the machine has too little memory.
    pub(crate) fn reserve(mib: u64) -> Option<HugePages> {
        let lock = reservation_lock();
        let (total, free) = (number(TOTAL)?, number(FREE)?);
        let missing = mib.div_ceil(2).saturating_sub(free);
        if missing == 0 {
            return Some(HugePages { added: 0 });
        }
        fs::write(TOTAL, (total + missing).to_string()).ok()?;
        // The kernel reserves as many pages as it finds, and returns no error if these are fewer.
        let pages = HugePages {
            added: number(TOTAL)?.saturating_sub(total),
        };
        // Dropping pages takes the lock again.
        drop(lock);
        (pages.added == missing).then_some(pages)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if self.added == 0 {
            return;
        }
        let _lock = reservation_lock();
        if let Some(total) = number(TOTAL) {
            // A failure cannot be handled in a destructor.
            let _ = fs::write(TOTAL, total.saturating_sub(self.added).to_string());
        }
    }
}

/// Returns the lock; `None` if another program holds it until the time limit.
fn reservation_lock() -> Option<Flock<File>> {
    let mut file = File::open(LOCKED).ok()?;
    let start = Instant::now();
    while start.elapsed() < LOCK_TIMEOUT {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Some(lock),
            Err((same, _)) => file = same,
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(Path::new(path)).ok()?.trim().parse().ok()
}
