//! Processor time of the whole machine, and of the programs of a switch.
//!
//! The kernel's forwarding belongs to no program: its time appears only in the time of the machine. Systems
//! are therefore compared by the time of the machine.

use std::fs;

/// The unit of processor time in `/proc`: sysconf(_SC_CLK_TCK), 100 on every current Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Processor time since the start of the machine, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct CpuTimes {
    /// The time of all cores in user, nice, system and interrupt mode.
    pub(super) machine_s: f64,
    /// Steal time: the time that the hypervisor took away.
    pub(super) steal_s: f64,
    /// The time of the given programs.
    pub(super) programs_s: f64,
}

impl CpuTimes {
    pub(super) fn now(pids: &[i32]) -> CpuTimes {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let (machine_s, steal_s) = machine(&stat).unwrap_or_default();
        let programs = pids
            .iter()
            .filter_map(|pid| program(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?));
        CpuTimes {
            machine_s,
            steal_s,
            programs_s: programs.sum(),
        }
    }

    pub(super) fn since(self, earlier: CpuTimes) -> CpuTimes {
        CpuTimes {
            machine_s: (self.machine_s - earlier.machine_s).max(0.0),
            steal_s: (self.steal_s - earlier.steal_s).max(0.0),
            programs_s: (self.programs_s - earlier.programs_s).max(0.0),
        }
    }
}

/// Returns busy and stolen seconds from the first line of `/proc/stat`: user, nice, system, idle, iowait, irq,
/// softirq, steal (proc(5)). The time of guests is part of user.
fn machine(stat: &str) -> Option<(f64, f64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<f64> = line
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    let [user, nice, system, _, _, irq, softirq, steal] = *ticks.first_chunk::<8>()?;
    let busy = user + nice + system + irq + softirq;
    Some((busy / TICKS_PER_SECOND, steal / TICKS_PER_SECOND))
}

/// Returns user and system seconds from `/proc/PID/stat`.
fn program(stat: &str) -> Option<f64> {
    // The second field, the command in parentheses, may contain spaces and parentheses.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_and_waiting_are_not_busy() {
        let stat = "cpu  100 20 30 100000 555 1 2 40 7 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(machine(stat), Some((1.53, 0.4)));
        assert_eq!(machine("cpu  1 2 x"), None);
        assert_eq!(machine(""), None);
    }

    #[test]
    fn a_program_name_may_contain_spaces_and_parentheses() {
        let stat = "4242 (a) b (c) S 1 4242 4242 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 100 0 0";
        assert_eq!(program(stat), Some(3.0));
        assert_eq!(program("garbage"), None);
    }

    #[test]
    fn this_process_takes_time() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let before = CpuTimes::now(&[pid]);
        let start = std::time::Instant::now();
        // On a busy machine it takes a while until the process has used a tick of the kernel's clock. The kernel updates
        // the machine's total apart from the process's.
        let mut taken = CpuTimes::now(&[pid]).since(before);
        while (taken.programs_s == 0.0 || taken.machine_s == 0.0) && start.elapsed().as_secs() < 60 {
            taken = CpuTimes::now(&[pid]).since(before);
        }
        assert!(taken.machine_s > 0.0 && taken.programs_s > 0.0, "{taken:?}");
    }
}
