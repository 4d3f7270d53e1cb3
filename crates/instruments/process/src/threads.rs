//! Processor time, affinity and memory of other processes, from `/proc`.

use std::cmp::Reverse;
use std::fs;
use std::time::Instant;

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

/// The processor time of each thread of a process at one moment. The busiest threads of a switch with poll-mode drivers
/// are those that forward.
#[derive(Debug, Clone)]
pub struct ThreadTimes {
    at: Instant,
    /// Thread id, and nanoseconds on a processor.
    threads: Vec<(u32, u64)>,
}

impl ThreadTimes {
    /// Reads the times of a process now; there are none if the process has ended.
    pub fn of(pid: u32) -> ThreadTimes {
        let threads = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let id = entry.file_name().to_str()?.parse().ok()?;
                // Time on a processor, time waiting on a run queue, number of time slices (Linux,
                // Documentation/scheduler/sched-stats.rst).
                let text = fs::read_to_string(entry.path().join("schedstat")).ok()?;
                Some((id, text.split_whitespace().next()?.parse().ok()?))
            })
            .collect();
        ThreadTimes {
            at: Instant::now(),
            threads,
        }
    }

    /// Returns the smallest share of processor time since `earlier`, from 0 to 1, among the `threads` busiest
    /// threads.
    pub fn core_share_since(&self, earlier: &ThreadTimes, threads: usize) -> f64 {
        let elapsed = self.at.duration_since(earlier.at).as_nanos() as f64;
        let mut busiest: Vec<u64> = self
            .threads
            .iter()
            .filter_map(|(id, now)| {
                let before = earlier.threads.iter().find(|thread| thread.0 == *id)?.1;
                Some(now.saturating_sub(before))
            })
            .collect();
        busiest.sort_unstable_by_key(|nanoseconds| Reverse(*nanoseconds));
        match busiest.get(threads.saturating_sub(1)) {
            Some(nanoseconds) if elapsed > 0.0 => (*nanoseconds as f64 / elapsed).min(1.0),
            _ => 0.0,
        }
    }
}

/// Pins to `core` all threads of a process that are not yet pinned to one core. Otherwise the scheduler, if
/// it finds a core busy, would move such threads to the core of the forwarding thread.
pub fn pin_process(pid: u32, core: u32) {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let ids = tasks.into_iter().flatten().flatten();
    for id in ids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        let bound = sched_getaffinity(Pid::from_raw(id)).is_ok_and(|set| cores_in(&set) == 1);
        if !bound {
            // A thread that has ended needs no affinity.
            let _ended = pin_thread(Pid::from_raw(id), core);
        }
    }
}

/// Pins the calling thread, and the threads that it starts, to `core`. Returns true on success.
pub fn pin_current_thread(core: u32) -> bool {
    pin_thread(Pid::from_raw(0), core)
}

/// The cores that remain for other threads after a thread claimed one core.
#[derive(Debug, Clone, Copy)]
pub struct OtherCores(CpuSet);

impl OtherCores {
    /// Moves the calling thread to these cores.
    pub fn enter(&self) {
        // If the kernel has withdrawn these cores, the thread keeps its core.
        let _as_before = sched_setaffinity(Pid::from_raw(0), &self.0);
    }
}

/// Pins the calling thread to the core that it runs on, and returns the other cores that it may use. Returns
/// `None` if there are none, or if the kernel refuses. Threads that the calling thread starts from now on
/// share its core, unless they call [`OtherCores::enter`].
pub fn claim_core() -> Option<OtherCores> {
    let core = sched_getcpu().ok()?;
    let mut others = sched_getaffinity(Pid::from_raw(0)).ok()?;
    others.unset(core).ok()?;
    (cores_in(&others) > 0 && pin_thread(Pid::from_raw(0), u32::try_from(core).ok()?))
        .then_some(OtherCores(others))
}

/// Returns the number of cores in a set.
fn cores_in(set: &CpuSet) -> usize {
    (0..CpuSet::count())
        .filter(|core| set.is_set(*core).unwrap_or(false))
        .count()
}

fn pin_thread(thread: Pid, core: u32) -> bool {
    let mut set = CpuSet::new();
    set.set(core as usize)
        .and_then(|()| sched_setaffinity(thread, &set))
        .is_ok()
}

/// Returns the resident memory of a process in bytes, huge pages included.
pub fn resident_memory(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kib = |key: &str| -> Option<u64> {
        text.lines()
            .find_map(|line| line.strip_prefix(key))?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    };
    Some((kib("VmRSS:")? + kib("HugetlbPages:").unwrap_or(0)) * 1024)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::Running;

    #[test]
    fn the_busiest_thread_of_a_process_that_spins_has_most_of_a_core() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.arg("-c").arg("while :; do :; done");
        let spinning = Running::start("test", &command, 0, &dir.path().join("log")).unwrap();
        let before = ThreadTimes::of(spinning.pid());
        // On a busy machine, the program may not run for seconds.
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            std::thread::sleep(Duration::from_millis(300));
            let share = ThreadTimes::of(spinning.pid()).core_share_since(&before, 1);
            if share > 0.05 {
                break;
            }
            assert!(Instant::now() < deadline, "{share}");
        }
        assert!(resident_memory(spinning.pid()).is_some_and(|bytes| bytes > 100_000));
    }

    #[test]
    fn a_thread_claims_its_core_and_another_enters_the_others() {
        let own = || cores_in(&sched_getaffinity(Pid::from_raw(0)).unwrap());
        std::thread::spawn(move || {
            let before = own();
            match claim_core() {
                Some(others) => {
                    assert_eq!((own(), cores_in(&others.0)), (1, before - 1));
                    others.enter();
                    assert_eq!(own(), before - 1);
                }
                None => assert_eq!((before, own()), (1, 1)),
            }
        })
        .join()
        .unwrap();
    }
}
