//! Processors, and the affinity of threads to them.

use std::fmt;

use nix::errno::Errno as SystemErrno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::Errno;

/// A processor, by its number in Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoreId(pub u16);

impl fmt::Display for CoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The error of starting a worker thread.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ThreadError {
    /// The core does not exist, or the process may not use it.
    #[error(
        "core {core} cannot be used: {source}; this process may use {}. To fix it: name another core, or widen the \
         process's cpuset (systemd: AllowedCPUs=, containers: --cpuset-cpus)", list(.allowed)
    )]
    Core {
        /// The requested core.
        core: CoreId,
        /// The cores that the process may use.
        allowed: Vec<CoreId>,
        /// The error of the system call.
        source: SystemErrno,
    },
    /// DPDK has no free lcore, or a secondary process is attached.
    #[error(
        "DPDK cannot register this thread: {errno}. To fix it: use fewer workers (a process has at most 128 \
         lcores), or restart this process with no secondary process attached"
    )]
    Register {
        /// The error that DPDK returned.
        errno: Errno,
    },
    /// The system cannot start another thread.
    #[error(
        "cannot start a thread: {0}. To fix it: raise the limit on threads (ulimit -u, or the service's TasksMax=)"
    )]
    Spawn(#[source] std::io::Error),
}

/// Formats a list of cores, such as "0, 1, 5".
pub(crate) fn list(cores: &[CoreId]) -> String {
    let cores: Vec<String> = cores.iter().map(ToString::to_string).collect();
    cores.join(", ")
}

/// Returns the cores that the calling thread may run on, in ascending order.
#[must_use]
pub fn allowed_cores() -> Vec<CoreId> {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else {
        return Vec::new();
    };
    let count = u16::try_from(CpuSet::count()).unwrap_or(u16::MAX);
    (0..count)
        .filter(|&core| set.is_set(usize::from(core)).unwrap_or(false))
        .map(CoreId)
        .collect()
}

/// Pins the calling thread to these cores.
///
/// # Errors
/// [`ThreadError::Core`] if a number is above 1,023, or the process may use none of these cores. The kernel
/// ignores cores that are not allowed (sched_setaffinity(2)).
pub fn pin(cores: &[CoreId]) -> Result<(), ThreadError> {
    let mut set = CpuSet::new();
    let refused = |core, source| ThreadError::Core {
        core,
        allowed: allowed_cores(),
        source,
    };
    for &core in cores {
        set.set(usize::from(core.0))
            .map_err(|source| refused(core, source))?;
    }
    let first = cores.first().copied().unwrap_or(CoreId(0));
    sched_setaffinity(Pid::from_raw(0), &set).map_err(|source| refused(first, source))
}
