//! Worker threads: `std` threads, each on a core of its own and registered as a DPDK lcore, so that it has mempool
//! caches.

use std::fmt;
use std::marker::PhantomData;
use std::thread::JoinHandle;

use millrace_dpdk_sys as sys;
use nix::errno::Errno as SystemErrno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::{Eal, Errno};

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

/// The registration of the calling thread as an lcore; dropping it ends the registration.
#[derive(Debug)]
pub struct Registration {
    /// Makes the type neither Send nor Sync: a registration belongs to the thread that made it.
    here: PhantomData<*const ()>,
}

/// Registers the calling thread as an lcore, which gives it a cache in every mempool.
///
/// DPDK allows this only while no secondary process is attached, and none can attach afterwards.
///
/// # Errors
/// [`ThreadError::Register`] if no lcore is free, or a secondary process is attached.
pub fn register(_eal: Eal) -> Result<Registration, ThreadError> {
    // SAFETY: the token proves that EAL is up; DPDK itself rejects a thread that cannot be registered.
    let code = unsafe { sys::rte_thread_register() };
    if code < 0 {
        Err(ThreadError::Register { errno: Errno::last() })
    } else {
        Ok(Registration { here: PhantomData })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: the thread is registered, and is this one, since Registration is not Send.
        unsafe { sys::rte_thread_unregister() };
    }
}

/// A thread that [`spawn`] started.
#[derive(Debug)]
pub struct Worker<T> {
    thread: JoinHandle<Option<T>>,
}

impl<T> Worker<T> {
    /// Waits for the thread to end.
    ///
    /// # Errors
    /// The value of the thread's panic.
    pub fn join(self) -> std::thread::Result<T> {
        match self.thread.join()? {
            Some(result) => Ok(result),
            // `spawn` returns a Worker only after the registration.
            None => Err(Box::new("the thread was not registered")),
        }
    }

    /// Returns true if the thread has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Starts `work` on a new thread, pinned to `core` and registered as an lcore. Returns when the thread is
/// pinned and registered.
///
/// # Errors
/// [`ThreadError`]; `work` was then not started.
pub fn spawn<T, F>(eal: Eal, name: &str, core: CoreId, work: F) -> Result<Worker<T>, ThreadError>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let (ready, started) = std::sync::mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        // The receiver waits below for one of these two messages, so sending cannot fail.
        match pin(&[core]).and_then(|()| register(eal)) {
            Ok(_registration) => {
                let _ = ready.send(Ok(()));
                Some(work())
            }
            Err(error) => {
                let _ = ready.send(Err(error));
                None
            }
        }
    });
    let thread = thread.map_err(ThreadError::Spawn)?;
    match started.recv() {
        Ok(Err(error)) => Err(error),
        // The thread is ready, or it panicked before it could report; `join` then returns the panic.
        Ok(Ok(())) | Err(_) => Ok(Worker { thread }),
    }
}
