//! The machine that a run measures.

use std::fs;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::core_latency::CoreToCoreLatency;
use millrace_process::run_tool;

/// A description of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The model name of the processor.
    pub processor: String,
    /// The number of cores that this process may use.
    pub cores: usize,
    /// Size of memory in bytes.
    pub memory: u64,
    /// The release of the kernel.
    pub kernel: String,
    /// The name of the distribution.
    pub distribution: String,
    /// The hypervisor, or `none`.
    pub virtualisation: String,
    /// The huge pages for each system in MiB.
    pub huge_pages_mib: u64,
    /// The load averages at the start of the run.
    pub load: String,
    /// The core-to-core latency at the start of the run, if it could be measured.
    #[serde(default, rename = "distance", skip_serializing_if = "Option::is_none")]
    pub core_latency: Option<CoreToCoreLatency>,
}

impl Machine {
    /// Returns the description of this machine.
    pub fn describe(huge_pages_mib: u64) -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let value = |text: &str, key: &str, separator: char| -> Option<String> {
            text.lines().find_map(|line| {
                let (name, value) = line.split_once(separator)?;
                (name.trim() == key).then(|| value.trim().trim_matches('"').to_owned())
            })
        };
        let unknown = || "unknown".to_owned();
        let memory = value(&read("/proc/meminfo"), "MemTotal", ':')
            .and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        Machine {
            processor: value(&read("/proc/cpuinfo"), "model name", ':').unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory.unwrap_or(0) * 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            distribution: value(&read("/etc/os-release"), "PRETTY_NAME", '=').unwrap_or_else(unknown),
            virtualisation: run_tool(&mut Command::new("systemd-detect-virt"))
                .map_or_else(|_| unknown(), |text| text.trim().to_owned()),
            huge_pages_mib,
            load: read("/proc/loadavg")
                .split(' ')
                .take(3)
                .collect::<Vec<_>>()
                .join(" "),
            core_latency: CoreToCoreLatency::measure(),
        }
    }
}
