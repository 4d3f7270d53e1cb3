//! What a user may choose about EAL, and the arguments that it becomes.

use std::ffi::CString;
use std::path::PathBuf;

use super::{EalError, Held};
use crate::thread::CoreId;

/// How EAL is to run. [`EalConfig::default`] suits a laptop: 512 MiB, huge pages where they can be had, no PCI device
/// until one is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EalConfig {
    /// Where EAL's own control threads begin; the first core that is no worker's where `None`.
    pub main_core: Option<CoreId>,
    /// Cores that [`crate::thread::spawn`] will use: EAL's control threads keep away from them.
    pub worker_cores: Vec<CoreId>,
    /// Memory for pools, rings and drivers, MiB; taken when EAL starts.
    pub memory_mib: u32,
    /// Whether that memory is in huge pages.
    pub huge_pages: HugePages,
    /// Keep no file: two processes cannot share memory by name, and nothing is left behind however this one ends.
    /// Switch it off only for secondary processes.
    pub in_memory: bool,
    /// Where to mount a hugetlbfs of our own, when not `in_memory`; `None` uses one that is mounted already.
    pub huge_dir: Option<PathBuf>,
    /// One file descriptor for each region of memory rather than for each page: vhost-user and virtio-user need it.
    pub single_file_segments: bool,
    /// What EAL may do with PCI devices.
    pub pci: Pci,
    /// Tells EAL's runtime files from those of another DPDK program: letters, digits, `_`, `-`.
    pub file_prefix: String,
    /// What reaches `tracing`.
    pub log_level: LogLevel,
}

/// Whether memory is in huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HugePages {
    /// Never.
    Off,
    /// Where they are free or may be reserved; otherwise one line says why not.
    #[default]
    Prefer,
    /// Always: an error where they cannot be had.
    Require,
}

/// What EAL may do with PCI devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Pci {
    /// PCI is not looked at, and no PCI device can be attached.
    Off,
    /// No device is touched until it is attached as a port.
    #[default]
    OnDemand,
}

/// What EAL and the drivers say: this and everything more serious.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "the names are DPDK's and say all there is")]
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

/// An address that no network device has (the host bridge): an allow list with it alone allows nothing, and leaves
/// devices to be attached later.
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

    pub(super) fn arguments(&self, main: CoreId, huge_pages: Option<&Held>) -> Vec<CString> {
        let mut arguments = vec!["millrace".to_owned()];
        // One lcore, whatever core it is on; workers register themselves.
        arguments.push(format!("--lcores=0@({main})"));
        arguments.push(format!("-m{}", self.memory_mib));
        arguments.push(format!("--file-prefix={}", self.file_prefix));
        arguments.push(format!("--log-level={}", self.log_level.number()));
        // Virtual addresses work in every case; physical ones need root and are never needed with an IOMMU.
        arguments.push("--iova-mode=va".to_owned());
        arguments.push("--no-telemetry".to_owned());
        match (self.in_memory, huge_pages) {
            (true, Some(_)) => arguments.push("--in-memory".to_owned()),
            // Without huge pages EAL refuses --in-memory; this has the same effect.
            (true, None) => arguments.push("--no-shconf".to_owned()),
            (false, _) => {}
        }
        match huge_pages {
            None => arguments.push("--no-huge".to_owned()),
            Some(Held {
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
        // No text with a zero byte gets here: the checks above refuse it, and a path has none.
        arguments
            .into_iter()
            .filter_map(|argument| CString::new(argument).ok())
            .collect()
    }
}
