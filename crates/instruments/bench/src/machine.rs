//! The machine that the figures belong to.

use std::fs;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::distance::Distance;
use millrace_process::tool;

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor, as it calls itself.
    pub processor: String,
    /// How many cores this process sees.
    pub cores: usize,
    /// Size of memory in bytes.
    pub memory: u64,
    /// Its kernel.
    pub kernel: String,
    /// Its distribution.
    pub distribution: String,
    /// What it is a guest of, or `none`.
    pub virtualisation: String,
    /// Huge pages for each system, MiB.
    pub huge_pages_mib: u64,
    /// The load average at the start: what else ran.
    pub load: String,
    /// From core to core at the start, where that could be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distance: Option<Distance>,
}

impl Machine {
    /// This one.
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
            virtualisation: tool(&mut Command::new("systemd-detect-virt"))
                .map_or_else(|_| unknown(), |text| text.trim().to_owned()),
            huge_pages_mib,
            load: read("/proc/loadavg")
                .split(' ')
                .take(3)
                .collect::<Vec<_>>()
                .join(" "),
            distance: Distance::measure(),
        }
    }
}
