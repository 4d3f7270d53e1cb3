//! The environment abstraction layer: started once in a process, never ended.

mod config;
mod error;
pub(crate) mod log;

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use millrace_dpdk_sys as sys;

pub use config::{EalConfig, HugePages, LogLevel, Pci};
pub use error::{EalError, Version};

use crate::Errno;
use crate::hugepages::{self, HugePagesError};
use crate::thread::{self, CoreId};

/// Proof that EAL is up. Copy it to whoever needs DPDK.
#[derive(Clone, Copy, Debug)]
pub struct Eal {
    _only_from_init: (),
}

/// What this process has done with EAL.
enum State {
    Untouched,
    Up(Held),
    /// DPDK cannot be initialised again after a failure.
    Failed,
}

/// What init took from the machine.
#[derive(Default)]
struct Held {
    #[expect(dead_code, reason = "kept for what dropping it does")]
    reservation: Option<hugepages::Reservation>,
    mount: Option<hugepages::Mount>,
}

static STATE: Mutex<State> = Mutex::new(State::Untouched);

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Eal {
    /// Starts EAL. Takes 0.1 to 1 s, most of it for loading drivers and for touching the memory.
    ///
    /// The calling thread stays what it was: EAL's main lcore is a thread that ends here. What EAL and the drivers log
    /// goes to `tracing` with target `dpdk`.
    ///
    /// # Errors
    /// [`EalError`]; each names a remedy. After one that came from DPDK itself the process cannot try again.
    pub fn init(config: &EalConfig) -> Result<Self, EalError> {
        let mut state = state();
        match *state {
            State::Untouched => {}
            State::Up(_) => return Err(EalError::AlreadyUp),
            State::Failed => return Err(EalError::FailedBefore),
        }
        let built = Version {
            year: sys::SHIM_VERSION_YEAR,
            month: sys::SHIM_VERSION_MONTH,
        };
        check_version(built, running_version())?;
        config.check()?;
        let cores = Cores::choose(config)?;
        let _turn = hugepages::turn();
        let held = take_huge_pages(config)?;
        if held.is_none() {
            check_memory(config.memory_mib, hugepages::total_mib())?;
        }
        let arguments = config.arguments(cores.main, held.as_ref());
        let (outcome, complaints) = start(&cores.housekeeping, &arguments)?;
        if config.in_memory {
            remove_runtime_dir();
        }
        match outcome {
            Ok(_) => {
                *state = State::Up(held.unwrap_or_default());
                Ok(Self { _only_from_init: () })
            }
            Err(errno) => {
                *state = State::Failed;
                Err(EalError::from_dpdk(errno, &complaints, config, held.is_some()))
            }
        }
    }

    /// The token, where EAL is up.
    #[must_use]
    pub fn current() -> Option<Self> {
        matches!(*state(), State::Up(_)).then_some(Self { _only_from_init: () })
    }

    /// Whether memory is in huge pages.
    #[must_use]
    pub fn has_huge_pages(self) -> bool {
        // SAFETY: EAL is up, says the token.
        unsafe { sys::rte_eal_has_hugepages() != 0 }
    }

    /// Gives back what [`Self::init`] took from the machine: huge pages that it reserved, the mount that it made. Memory
    /// in use stays usable and goes back when the process ends, so this may be called at any time, and should be
    /// called last.
    pub fn give_back(self) {
        if let State::Up(held) = &mut *state() {
            *held = Held::default();
        }
    }
}

/// The release of the DPDK libraries that this process runs with.
#[must_use]
pub fn running_version() -> Version {
    // SAFETY: returns a constant of the library.
    let year = unsafe { sys::rte_version_year() };
    // SAFETY: returns a constant of the library.
    let month = unsafe { sys::rte_version_month() };
    Version { year, month }
}

/// The layout of what inline functions touch is that of the release of the headers, and of no other.
fn check_version(built: Version, running: Version) -> Result<(), EalError> {
    if running == built {
        return Ok(());
    }
    Err(EalError::Version { built, running })
}

/// Without huge pages, the kernel promises more than it has, and EAL dies of its page tables instead of saying so.
fn check_memory(memory_mib: u32, total_mib: u64) -> Result<(), EalError> {
    if u64::from(memory_mib) <= total_mib {
        return Ok(());
    }
    Err(EalError::Memory {
        memory_mib,
        huge_pages: false,
        detail: format!("this machine has {total_mib} MiB in all"),
    })
}

/// Which core EAL's short-lived main thread takes, and where its control threads go.
struct Cores {
    main: CoreId,
    housekeeping: Vec<CoreId>,
}

impl Cores {
    fn choose(config: &EalConfig) -> Result<Self, EalError> {
        let allowed = thread::allowed_cores();
        let asked = config.main_core.iter().chain(&config.worker_cores);
        if let Some(&core) = asked.clone().find(|core| !allowed.contains(core)) {
            return Err(EalError::Core { core, allowed });
        }
        let idle = |core: &CoreId| !config.worker_cores.contains(core);
        let mut housekeeping: Vec<CoreId> = allowed.iter().copied().filter(idle).collect();
        if housekeeping.is_empty() {
            housekeeping = allowed;
        }
        let main = config
            .main_core
            .or(housekeeping.first().copied())
            .ok_or(EalError::NoCore)?;
        if !housekeeping.contains(&main) {
            housekeeping.push(main);
        }
        Ok(Self { main, housekeeping })
    }
}

/// `None` where EAL is to run without huge pages.
fn take_huge_pages(config: &EalConfig) -> Result<Option<Held>, EalError> {
    let take = || -> Result<Held, HugePagesError> {
        let reservation = Some(hugepages::reserve(u64::from(config.memory_mib))?);
        let mount = match &config.huge_dir {
            Some(path) if !config.in_memory => Some(hugepages::private_mount(path)?),
            _ => None,
        };
        Ok(Held { reservation, mount })
    };
    match config.huge_pages {
        HugePages::Off => Ok(None),
        HugePages::Require => take().map(Some).map_err(EalError::HugePages),
        HugePages::Prefer => match take() {
            Ok(held) => Ok(Some(held)),
            Err(error) => {
                tracing::warn!(%error, "running without huge pages");
                Ok(None)
            }
        },
    }
}

/// Runs rte_eal_init on a thread of its own, confined to `cores`: EAL pins the thread that calls it, and its control
/// threads inherit what is left of the affinity.
fn start(cores: &[CoreId], arguments: &[CString]) -> Result<(Result<i32, Errno>, Vec<String>), EalError> {
    let subscriber = tracing::dispatcher::get_default(Clone::clone);
    let init = move || -> Result<_, EalError> {
        let _log_here = tracing::dispatcher::set_default(&subscriber);
        thread::pin(cores)?;
        log::redirect().map_err(EalError::Log)?;
        let started = log::listen(|| eal_init(arguments));
        log::redirect_bpf();
        bear_shrinking();
        Ok(started)
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("dpdk-init".to_owned())
            .spawn_scoped(scope, init);
        let thread = thread.map_err(|error| EalError::Thread(thread::ThreadError::Spawn(error)))?;
        thread.join().unwrap_or(Err(EalError::NoCore))
    })
}

/// From now on, memory that a peer of a virtual NIC shares and takes back ends its packets, and not this process.
fn bear_shrinking() {
    // SAFETY: it only sets the handler of one signal, which EAL has left alone since it started.
    let code = unsafe { sys::shim_bear_shrinking() };
    if let Err(error) = Errno::check(code) {
        tracing::warn!(%error, "a peer that takes back memory it shares ends this process");
    }
}

/// EAL makes a folder for its files also where it will have none.
fn remove_runtime_dir() {
    // SAFETY: EAL was started; the text is EAL's own and is not changed any more.
    let path = unsafe { sys::rte_eal_get_runtime_dir() };
    if path.is_null() {
        return;
    }
    // SAFETY: it is not null, and ends with a zero byte.
    let path = unsafe { CStr::from_ptr(path) };
    // One that is not empty stays.
    let _ = std::fs::remove_dir(OsStr::from_bytes(path.to_bytes()));
}

fn eal_init(arguments: &[CString]) -> Result<i32, Errno> {
    // EAL permutes the array and may keep pointers into its strings, so both are leaked: once in a process.
    let strings = arguments.iter().map(|argument| argument.clone().into_raw());
    let argv: Vec<*mut c_char> = strings.chain([ptr::null_mut()]).collect();
    let argc = c_int::try_from(arguments.len()).unwrap_or(c_int::MAX);
    // SAFETY: argv holds argc strings and a null, which all live and may be written for ever; the state lock keeps a
    // second call out.
    let code = unsafe { sys::rte_eal_init(argc, argv.leak().as_mut_ptr()) };
    if code < 0 { Err(Errno::last()) } else { Ok(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_release_of_dpdk_is_refused_with_the_package_that_mends_it() {
        let version = |year, month| Version { year, month };
        assert!(check_version(version(22, 11), version(22, 11)).is_ok());
        let error = check_version(version(22, 11), version(23, 3)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Millrace was built for DPDK 22.11 and runs with DPDK 23.03. Remedy: install DPDK 22.11 (apt-get install \
             libdpdk-dev), or build Millrace again on this machine"
        );
    }

    #[test]
    fn memory_that_the_machine_does_not_have_is_refused() {
        assert!(check_memory(512, 512).is_ok());
        let error = check_memory(513, 512).unwrap_err().to_string();
        assert!(
            error.contains("EAL cannot have 513 MiB: this machine has 512 MiB in all. Remedy: "),
            "{error}"
        );
    }
}
