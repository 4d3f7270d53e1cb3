//! Huge pages for the time that a system runs: the same for every system, and given back.
//!
//! Other programs reserve and give back pages at the same time (every `millraced` does), so both go by
//! differences and under the lock that `millrace-dpdk` takes, never back to a number read long ago.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

/// Where the kernel says how many pages of 2 MiB there are, and takes orders.
const TOTAL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
/// The directory that programs lock while they reserve: the one that `millrace_dpdk::hugepages::turn` locks.
const LOCKED: &str = "/dev";

/// How long to wait for another program that is just reserving.
const TURN: Duration = Duration::from_secs(5);

/// Pages that were added to the kernel's pool; dropping it takes them out again.
#[derive(Debug)]
pub(crate) struct HugePages {
    added: u64,
}

impl HugePages {
    /// Sees to it that `mib` are free; `None` where that is not permitted or there is not so much memory.
    pub(crate) fn reserve(mib: u64) -> Option<HugePages> {
        let _turn = turn();
        let (total, free) = (number(TOTAL)?, number(FREE)?);
        let missing = mib.div_ceil(2).saturating_sub(free);
        if missing == 0 {
            return Some(HugePages { added: 0 });
        }
        fs::write(TOTAL, (total + missing).to_string()).ok()?;
        // The kernel sets aside what it finds, and says nothing where that is less.
        let pages = HugePages {
            added: number(TOTAL)?.saturating_sub(total),
        };
        (pages.added == missing).then_some(pages)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if self.added == 0 {
            return;
        }
        let _turn = turn();
        if let Some(total) = number(TOTAL) {
            // Refused or not, there is nothing else that we could do.
            let _ = fs::write(TOTAL, total.saturating_sub(self.added).to_string());
        }
    }
}

/// The lock, if it comes in time.
fn turn() -> Option<Flock<File>> {
    let mut file = File::open(LOCKED).ok()?;
    let start = Instant::now();
    while start.elapsed() < TURN {
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
