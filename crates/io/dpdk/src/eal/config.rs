//! The options of EAL, and the command-line arguments that they become.

use std::ffi::CString;
use std::path::PathBuf;

use super::EalError;
use crate::affinity::CoreId;
use crate::hugepages::HugePageMemory;

/// The configuration of EAL. [`EalConfig::default`] suits a laptop: 512 MiB, huge pages if available, no PCI device
/// until one is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EalConfig {
    /// The core of EAL's main lcore, a thread that ends with the start; `None` for the first core without a worker.
    pub main_core: Option<CoreId>,
    /// The cores that [`crate::thread::spawn`] will use; EAL's control threads avoid them.
    pub worker_cores: Vec<CoreId>,
    /// Memory for pools, rings and drivers in MiB, allocated when EAL starts.
    pub memory_mib: u32,
    /// The use of huge pages for that memory.
    pub huge_pages: HugePages,
    /// True to create no files: other processes cannot share memory by name, and no file remains even if the
    /// process is killed. Secondary processes need false.
    pub in_memory: bool,
    /// The mount point for a private hugetlbfs, if not `in_memory`; `None` uses an existing mount.
    pub huge_dir: Option<PathBuf>,
    /// True to use one file descriptor for each memory region instead of one for each page; vhost-user and
    /// virtio-user need it.
    pub single_file_segments: bool,
    /// The PCI devices that EAL may use.
    pub pci: Pci,
    /// The prefix that distinguishes EAL's runtime files from those of other DPDK programs: letters, digits,
    /// `_`, `-`.
    pub file_prefix: String,
    /// The log messages that are passed to `tracing`.
    pub log_level: LogLevel,
}

/// The use of huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HugePages {
    /// Never.
    Off,
    /// Use them if they are free or can be reserved; otherwise log the reason.
    #[default]
    Prefer,
    /// Use them, or fail.
    Require,
}

/// The use of PCI devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Pci {
    /// EAL does not scan the PCI bus, and no PCI device can be attached.
    Off,
    /// EAL touches no device until it is attached as a port.
    #[default]
    OnDemand,
}

/// The least severe level of the messages of EAL and the drivers that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogLevel {
    Error,
    Warning,
    #[default]
    Notice,
    Info,
    Debug,
}

impl LogLevel {
    fn number(self) -> u32 {
        use millrace_dpdk_sys as sys;
        match self {
            Self::Error => sys::SHIM_LOG_ERR,
            Self::Warning => sys::SHIM_LOG_WARNING,
            Self::Notice => sys::SHIM_LOG_NOTICE,
            Self::Info => sys::SHIM_LOG_INFO,
            Self::Debug => sys::SHIM_LOG_DEBUG,
        }
    }
}

impl LogLevel {
    /// Sets the global level of DPDK's log and the level of each component. A message must pass both levels.
    pub(super) fn apply(self) {
        use millrace_dpdk_sys as sys;
        // SAFETY: the call sets one number of DPDK's log, which exists once the library is loaded.
        unsafe { sys::rte_log_set_global_level(self.number()) };
        // SAFETY: the pattern is a string that ends with NUL; DPDK reads it during the call.
        let code = unsafe { sys::rte_log_set_level_pattern(c"*".as_ptr(), self.number()) };
        if code < 0 {
            tracing::warn!(target: "dpdk", "the levels of DPDK's parts stay as they are");
        }
    }
}

impl Default for EalConfig {
    fn default() -> Self {
        Self {
            main_core: None,
            worker_cores: Vec::new(),
            memory_mib: 512,
            huge_pages: HugePages::default(),
            in_memory: true,
            huge_dir: None,
            single_file_segments: true,
            pci: Pci::default(),
            file_prefix: "millrace".to_owned(),
            log_level: LogLevel::default(),
        }
    }
}

/// A PCI address that no network device has (the host bridge). An allow list with this address alone allows
/// no device, so devices can be attached later.
const NO_PCI_DEVICE: &str = "0000:00:00.0";

impl EalConfig {
    pub(super) fn check(&self) -> Result<(), EalError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        if !(1..=32).contains(&self.file_prefix.len()) || !self.file_prefix.bytes().all(plain) {
            return Err(EalError::FilePrefix(self.file_prefix.clone()));
        }
        if self.memory_mib < 32 {
            return Err(EalError::TooLittleMemory {
                memory_mib: self.memory_mib,
            });
        }
        Ok(())
    }

    pub(super) fn arguments(&self, main: CoreId, huge_pages: Option<&HugePageMemory>) -> Vec<CString> {
        let mut arguments = vec!["millrace".to_owned()];
        // EAL starts one lcore, the main lcore; workers register themselves.
        arguments.push(format!("--lcores=0@({main})"));
        arguments.push(format!("-m{}", self.memory_mib));
        arguments.push(format!("--file-prefix={}", self.file_prefix));
        arguments.push(format!("--log-level={}", self.log_level.number()));
        // Virtual addresses (IOVA as VA) always work; physical ones need root and are never needed with an IOMMU.
        arguments.push("--iova-mode=va".to_owned());
        arguments.push("--no-telemetry".to_owned());
        match (self.in_memory, huge_pages) {
            (true, Some(_)) => arguments.push("--in-memory".to_owned()),
            // Without huge pages EAL rejects --in-memory; --no-shconf has the same effect.
            (true, None) => arguments.push("--no-shconf".to_owned()),
            (false, _) => {}
        }
        match huge_pages {
            None => arguments.push("--no-huge".to_owned()),
            Some(HugePageMemory {
                mount: Some(mount), ..
            }) => {
                arguments.push(format!("--huge-dir={}", mount.path().display()));
            }
            Some(_) => {}
        }
        if self.single_file_segments {
            arguments.push("--single-file-segments".to_owned());
        }
        arguments.push(match self.pci {
            Pci::Off => "--no-pci".to_owned(),
            Pci::OnDemand => format!("--allow={NO_PCI_DEVICE}"),
        });
        // The checks above reject text with a zero byte, and a path has none, so nothing is filtered out.
        arguments
            .into_iter()
            .filter_map(|argument| CString::new(argument).ok())
            .collect()
    }
}
