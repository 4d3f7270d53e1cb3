//! Processor time: of the whole machine, and of the programs of a switch.
//!
//! What the kernel forwards has no program: it is in the machine's time alone, which is therefore what
//! systems are compared by.

use std::fs;

/// The kernel's unit of processor time in `/proc` (sysconf(_SC_CLK_TCK), 100 on every Linux of today).
const TICKS_PER_SECOND: f64 = 100.0;

/// Processor time up to now, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Times {
    /// All cores: user, nice, system, interrupts.
    pub(super) machine_s: f64,
    /// Taken by the machine's host.
    pub(super) steal_s: f64,
    /// The programs asked for.
    pub(super) programs_s: f64,
}

impl Times {
    pub(super) fn now(pids: &[i32]) -> Times {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let (machine_s, steal_s) = machine(&stat).unwrap_or_default();
        let programs = pids
            .iter()
            .filter_map(|pid| program(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?));
        Times {
            machine_s,
            steal_s,
            programs_s: programs.sum(),
        }
    }

    pub(super) fn since(self, earlier: Times) -> Times {
        Times {
            machine_s: (self.machine_s - earlier.machine_s).max(0.0),
            steal_s: (self.steal_s - earlier.steal_s).max(0.0),
            programs_s: (self.programs_s - earlier.programs_s).max(0.0),
        }
    }
}

/// Busy and stolen seconds, from the first line of `/proc/stat`: user, nice, system, idle, iowait, irq,
/// softirq, steal (proc(5)). Guests' time is part of user.
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

/// User and system seconds, from `/proc/PID/stat`.
fn program(stat: &str) -> Option<f64> {
    // The second field, the command in parentheses, may itself hold spaces and parentheses.
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
    fn a_program_with_a_strange_name_is_read_all_the_same() {
        let stat = "4242 (a) b (c) S 1 4242 4242 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 100 0 0";
        assert_eq!(program(stat), Some(3.0));
        assert_eq!(program("garbage"), None);
    }

    #[test]
    fn this_process_takes_time() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let before = Times::now(&[pid]);
        let start = std::time::Instant::now();
        // On a busy machine it takes a while until the process has run for a tick of the kernel's clock.
        let mut taken = Times::now(&[pid]).since(before);
        while taken.programs_s == 0.0 && start.elapsed().as_secs() < 60 {
            taken = Times::now(&[pid]).since(before);
        }
        assert!(taken.machine_s > 0.0 && taken.programs_s > 0.0, "{taken:?}");
    }
}
