//! The environment abstraction layer (EAL): started once in a process, never ended.

mod config;
mod error;
pub(crate) mod log;

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use millrace_dpdk_sys as sys;
use parking_lot::Mutex;

pub use config::{EalConfig, HugePages, LogLevel, Pci};
pub use error::{EalError, Version};

use crate::Errno;
use crate::affinity::{self, CoreId, ThreadError};
use crate::hugepages::{self, HugePageMemory, HugePagesError};

/// Proof that EAL is up. Every DPDK function takes a copy.
#[derive(Clone, Copy, Debug)]
pub struct Eal {
    _only_from_init: (),
}

/// The state of EAL in this process.
enum State {
    Untouched,
    Up(HugePageMemory),
    /// DPDK cannot be initialised again after a failure.
    Failed,
}

static STATE: Mutex<State> = Mutex::new(State::Untouched);

impl Eal {
    /// Starts EAL. Takes 0.1 to 1 s, most of it for loading drivers and for touching the memory.
    ///
    /// The calling thread keeps its affinity: EAL's main lcore is a temporary thread. Messages of EAL and the drivers
    /// go to `tracing` with target `dpdk`.
    ///
    /// # Errors
    /// [`EalError`]; each names the next step. After a failure inside DPDK the process cannot try again.
    pub fn init(config: &EalConfig) -> Result<Self, EalError> {
        let mut state = STATE.lock();
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
        let lock = hugepages::lock();
        let mut memory = take_huge_pages(&lock, config)?;
        if memory.is_none() {
            check_memory(config.memory_mib, hugepages::total_mib().unwrap_or(u64::MAX))?;
        }
        let arguments = config.arguments(cores.main, memory.as_ref());
        let started = start(&cores.housekeeping, &arguments);
        if matches!(started, Err(EalError::Panicked)) {
            *state = State::Failed;
        }
        let (outcome, warnings) = started?;
        if config.in_memory {
            remove_runtime_dir(&config.file_prefix);
        }
        let has_huge_pages = memory.is_some();
        // EAL has all of its memory now. The pages become surplus, and the kernel frees them when this
        // process ends, even if it is killed.
        if let Some(memory) = &mut memory {
            memory.reservation = None;
        }
        drop(lock);
        match outcome {
            Ok(_) => {
                *state = State::Up(memory.unwrap_or_default());
                Ok(Self { _only_from_init: () })
            }
            Err(errno) => {
                *state = State::Failed;
                Err(start_error(errno, &warnings, config, has_huge_pages))
            }
        }
    }

    /// Returns the token if EAL is up.
    #[must_use]
    pub fn current() -> Option<Self> {
        matches!(*STATE.lock(), State::Up(_)).then_some(Self { _only_from_init: () })
    }

    /// Returns true if memory is in huge pages.
    #[must_use]
    pub fn has_huge_pages(self) -> bool {
        // SAFETY: the token proves that EAL is up.
        unsafe { sys::rte_eal_has_hugepages() != 0 }
    }

    /// Sets the least severe level of the messages that DPDK passes to `tracing`.
    pub fn set_log_level(self, level: LogLevel) {
        level.apply();
    }

    /// Unmounts the hugetlbfs if [`Self::init`] mounted one. Memory in use stays usable and is released when
    /// the process ends. The call is possible at any time, but should be the last one.
    pub fn unmount_hugetlbfs(self) {
        if let State::Up(memory) = &mut *STATE.lock() {
            *memory = HugePageMemory::default();
        }
    }
}

/// Returns the release of the DPDK libraries that this process runs with.
#[must_use]
pub fn running_version() -> Version {
    // SAFETY: the function returns a constant of the library.
    let year = unsafe { sys::rte_version_year() };
    // SAFETY: the function returns a constant of the library.
    let month = unsafe { sys::rte_version_month() };
    Version { year, month }
}

/// Compares releases: inline functions are compiled for the structure layout of the headers' release only.
fn check_version(built: Version, running: Version) -> Result<(), EalError> {
    if running == built {
        return Ok(());
    }
    Err(EalError::Version { built, running })
}

/// Checks the memory when huge pages are not used. Without this check, the kernel would overcommit and later
/// kill EAL instead of reporting an error.
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

/// The core of EAL's temporary main thread, and the cores of its control threads.
struct Cores {
    main: CoreId,
    housekeeping: Vec<CoreId>,
}

impl Cores {
    fn choose(config: &EalConfig) -> Result<Self, EalError> {
        let allowed = affinity::allowed_cores();
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

/// Reserves huge pages as configured; `None` if EAL runs without them.
fn take_huge_pages(
    lock: &hugepages::ReservationLock,
    config: &EalConfig,
) -> Result<Option<HugePageMemory>, EalError> {
    let take = || -> Result<HugePageMemory, HugePagesError> {
        let reservation = Some(hugepages::reserve(lock, u64::from(config.memory_mib))?);
        let mount = match &config.huge_dir {
            Some(path) if !config.in_memory => Some(hugepages::private_mount(path)?),
            _ => None,
        };
        Ok(HugePageMemory { reservation, mount })
    };
    match config.huge_pages {
        HugePages::Off => Ok(None),
        HugePages::Require => take().map(Some).map_err(EalError::HugePages),
        HugePages::Prefer => match take() {
            Ok(memory) => Ok(Some(memory)),
            Err(error) => {
                tracing::warn!(%error, "running without huge pages");
                Ok(None)
            }
        },
    }
}

/// Runs rte_eal_init on a temporary thread confined to `cores`: EAL pins the calling thread, and its control threads
/// inherit the remaining affinity.
fn start(cores: &[CoreId], arguments: &[CString]) -> Result<(Result<i32, Errno>, Vec<String>), EalError> {
    let subscriber = tracing::dispatcher::get_default(Clone::clone);
    let init = move || -> Result<_, EalError> {
        let _log_here = tracing::dispatcher::set_default(&subscriber);
        affinity::pin(cores)?;
        log::redirect().map_err(EalError::Log)?;
        let started = log::capture(|| eal_init(arguments));
        log::redirect_bpf();
        handle_sigbus();
        Ok(started)
    };
    on_temporary_thread(init)
}

/// Runs a function on a thread `dpdk-init`, and returns its result.
fn on_temporary_thread<T: Send>(init: impl FnOnce() -> Result<T, EalError> + Send) -> Result<T, EalError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("dpdk-init".to_owned())
            .spawn_scoped(scope, init);
        let thread = thread.map_err(|error| EalError::Thread(ThreadError::Spawn(error)))?;
        thread.join().unwrap_or(Err(EalError::Panicked))
    })
}

/// Installs the SIGBUS handler: when a peer of a virtual NIC truncates its shared memory, only that connection ends.
fn handle_sigbus() {
    // SAFETY: the function only sets the handler of one signal, which EAL does not use after its start.
    let code = unsafe { sys::shim_handle_sigbus() };
    if let Err(error) = Errno::check(code) {
        tracing::warn!(%error, "without a SIGBUS handler, a peer that truncates its shared memory ends this process");
    }
}

/// Removes the runtime directory, which EAL creates even if it puts no file there. Also removes the runtime
/// directories of processes that were killed while EAL started.
fn remove_runtime_dir(file_prefix: &str) {
    // SAFETY: EAL is started; the string belongs to EAL and does not change any more.
    let path = unsafe { sys::rte_eal_get_runtime_dir() };
    if path.is_null() {
        return;
    }
    // SAFETY: the pointer is not null, and the string is zero-terminated.
    let path = unsafe { CStr::from_ptr(path) };
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    // Removing fails if the directory is not empty, as intended.
    let _ = std::fs::remove_dir(path);
    if let (Some(directories), Some((program, _pid))) = (path.parent(), file_prefix.rsplit_once('-')) {
        remove_abandoned(directories, program);
    }
}

/// Removes the empty directories `PROGRAM-PID` of processes that do not exist any more.
fn remove_abandoned(directories: &Path, program: &str) {
    for entry in std::fs::read_dir(directories).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|name| name.strip_prefix(program)?.strip_prefix('-'))
            .and_then(|pid| pid.parse::<u32>().ok());
        if let Some(pid) = pid
            && !Path::new("/proc").join(pid.to_string()).exists()
        {
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

fn eal_init(arguments: &[CString]) -> Result<i32, Errno> {
    // EAL permutes the array and may keep pointers to the strings, so both are leaked, once in a process.
    let strings = arguments.iter().map(|argument| argument.clone().into_raw());
    let argv: Vec<*mut c_char> = strings.chain([ptr::null_mut()]).collect();
    let argc = c_int::try_from(arguments.len()).unwrap_or(c_int::MAX);
    // SAFETY: argv holds argc strings and a null pointer, which stay valid and writable forever; the state lock
    // prevents a second call.
    let code = unsafe { sys::rte_eal_init(argc, argv.leak().as_mut_ptr()) };
    if code < 0 { Err(Errno::last()) } else { Ok(code) }
}

/// Classifies a failure of rte_eal_init by its error number, and by the logged messages where they say more.
fn start_error(errno: Errno, warnings: &[String], config: &EalConfig, huge_pages: bool) -> EalError {
    use nix::errno::Errno as E;
    let detail = if warnings.is_empty() {
        "it logged no reason".to_owned()
    } else {
        warnings.join("; ")
    };
    if detail.contains("another primary process") {
        return EalError::PrefixInUse {
            prefix: config.file_prefix.clone(),
            detail,
        };
    }
    if detail.contains("CPU") && errno.is(E::ENOTSUP) {
        return EalError::Machine { detail };
    }
    if errno.is(E::EACCES) || errno.is(E::EPERM) {
        return EalError::Permission { errno, detail };
    }
    if errno.is(E::ENOMEM) || errno.is(E::ENODEV) || detail.contains("memory") {
        return EalError::Memory {
            memory_mib: config.memory_mib,
            huge_pages,
            detail,
        };
    }
    EalError::Other { errno, detail }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Starts EAL with little memory, in a test that has a process of its own.
    pub(crate) fn small_eal() -> Eal {
        Eal::init(&EalConfig {
            memory_mib: 64,
            huge_pages: HugePages::Off,
            file_prefix: format!("millrace-test-{}", std::process::id()),
            ..EalConfig::default()
        })
        .unwrap()
    }

    #[test]
    fn a_panic_of_the_thread_that_starts_eal_is_reported_as_one() {
        assert_eq!(on_temporary_thread(|| Ok(7)).unwrap(), 7);
        let error = on_temporary_thread::<()>(|| panic!("a test of a panic")).unwrap_err();
        assert!(matches!(error, EalError::Panicked), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("panicked") && text.contains("To fix it: "),
            "{text}"
        );
    }

    #[test]
    fn another_release_of_dpdk_is_refused_with_the_package_that_mends_it() {
        let version = |year, month| Version { year, month };
        assert!(check_version(version(22, 11), version(22, 11)).is_ok());
        let error = check_version(version(22, 11), version(23, 3)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Millrace was built for DPDK 22.11 and runs with DPDK 23.03. To fix it: install DPDK 22.11 (apt-get install \
             libdpdk-dev), or build Millrace again on this machine"
        );
    }

    #[test]
    fn directories_of_killed_processes_are_removed_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        // No process has the largest number: the kernel's limit is 2^22.
        let (dead, living) = (u32::MAX, std::process::id());
        let names = [
            format!("millraced-{dead}"),
            format!("millraced-{living}"),
            format!("other-{dead}"),
            "millraced-x".to_owned(),
        ];
        for name in &names {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let full = folder.path().join(format!("millraced-{}", dead - 1));
        std::fs::create_dir_all(full.join("config")).unwrap();
        remove_abandoned(folder.path(), "millraced");
        assert!(!folder.path().join(&names[0]).exists());
        for name in &names[1..] {
            assert!(folder.path().join(name).exists(), "{name}");
        }
        assert!(full.exists());
    }

    #[test]
    fn memory_that_the_machine_does_not_have_is_refused() {
        assert!(check_memory(512, 512).is_ok());
        let error = check_memory(513, 512).unwrap_err().to_string();
        assert!(
            error.contains("EAL cannot have 513 MiB: this machine has 512 MiB in all. To fix it: "),
            "{error}"
        );
    }
}
