//! Counters of the kernel for a process and for the machine: context switches, page faults, processor time.

use std::fs;

use serde::{Deserialize, Serialize};

/// Counts since the start of a process or of the machine, or between two moments.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Voluntary context switches: a thread waited.
    pub voluntary: u64,
    /// Involuntary context switches: a thread was preempted.
    pub involuntary: u64,
    /// Context switches of the whole machine: hosts, kernel and everything else.
    pub machine: u64,
    /// Page faults without a read from disk.
    pub minor_faults: u64,
    /// Page faults with a read from disk.
    pub major_faults: u64,
    /// The processor time of the process in seconds.
    pub cpu_s: f64,
}

/// The unit of processor time in `/proc`: sysconf(_SC_CLK_TCK).
const TICKS_PER_SECOND: f64 = 100.0;

impl Counts {
    /// Returns the current counts of a process and of the machine; without a process, only the machine's
    /// counts.
    pub fn now(pid: Option<i32>) -> Counts {
        let mut counts = Counts {
            machine: machine(&fs::read_to_string("/proc/stat").unwrap_or_default()),
            ..Counts::default()
        };
        let Some(pid) = pid else { return counts };
        let threads = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten();
        for thread in threads {
            let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            counts.voluntary += value(&status, "voluntary_ctxt_switches:");
            counts.involuntary += value(&status, "nonvoluntary_ctxt_switches:");
        }
        if let Some((minor, major, cpu_s)) =
            stat(&fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default())
        {
            (counts.minor_faults, counts.major_faults, counts.cpu_s) = (minor, major, cpu_s);
        }
        counts
    }

    /// Returns the difference to `earlier`. The counts of a thread that has ended in between are lost.
    pub fn since(self, earlier: Counts) -> Counts {
        Counts {
            voluntary: self.voluntary.saturating_sub(earlier.voluntary),
            involuntary: self.involuntary.saturating_sub(earlier.involuntary),
            machine: self.machine.saturating_sub(earlier.machine),
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            cpu_s: (self.cpu_s - earlier.cpu_s).max(0.0),
        }
    }
}

/// Returns the number after a key at the start of a line.
fn value(text: &str, key: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
        .unwrap_or(0)
}

fn machine(stat: &str) -> u64 {
    value(stat, "ctxt ")
}

/// Returns minor and major page faults, and user and system seconds, from `/proc/PID/stat` (proc(5)).
fn stat(stat: &str) -> Option<(u64, u64, f64)> {
    // The second field, the command in parentheses, may contain spaces and parentheses.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let count = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let ticks = count(11)? + count(12)?;
    Some((count(7)?, count(9)?, ticks as f64 / TICKS_PER_SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_texts_are_read() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t7\n";
        assert_eq!(value(status, "voluntary_ctxt_switches:"), 12);
        assert_eq!(value(status, "nonvoluntary_ctxt_switches:"), 7);
        assert_eq!(machine("cpu 1 2\nctxt 99\nbtime 1\n"), 99);
        let line = "42 (a) b) R 1 42 42 0 -1 4194560 100 0 3 0 250 50 0 0 20 0 1 0 5 0 0";
        assert_eq!(stat(line), Some((100, 3, 3.0)));
        assert_eq!(stat("garbage"), None);
    }

    #[test]
    fn a_sleep_is_a_context_switch_of_this_process() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let before = Counts::now(Some(pid));
        // A thread that is preempted on its way to sleep, until its time is over, has no voluntary switch.
        let counts = std::iter::repeat_with(|| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            Counts::now(Some(pid)).since(before)
        })
        .take(1_000)
        .find(|counts| counts.voluntary >= 1)
        .unwrap();
        assert!(counts.machine >= counts.voluntary, "{counts:?}");
    }
}
