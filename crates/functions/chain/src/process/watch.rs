//! What the control side knows of a function's process: whether it lives, had the chance to show that, and how it ended.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::{Mutex, OnceLock, PoisonError};

use millrace_types::{Duration, Time};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, SysconfVar, sysconf};

use crate::cgroup::Limit;

/// How often counters and the heartbeat are looked at.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// What is known of a process, by all who have to do with it.
#[derive(Debug)]
pub(crate) struct Process {
    pid: AtomicU64,
    pub(super) is_dead: AtomicBool,
    /// Whether this side has ended it.
    is_unwanted: AtomicBool,
    /// How it ended: before `is_dead` is so.
    pub(super) status: OnceLock<ExitStatus>,
    /// Whether that was because it had more memory than it may have: before `is_dead` is so.
    pub(super) had_no_memory: AtomicBool,
    /// Milliseconds in which it could have shown life: see [`Process::look`].
    pub(super) chances: AtomicU64,
    looked: Mutex<Looked>,
    /// What it may use, and what sees to that.
    limits: Vec<Limit>,
}

/// When a process was looked at last, and the milliseconds that it had run for by then.
#[derive(Debug, Clone, Copy, Default)]
struct Looked {
    at: Option<Time>,
    ran: u64,
}

impl Process {
    pub(super) fn new(pid: u32, limits: Vec<Limit>) -> Process {
        Process {
            pid: AtomicU64::new(pid.into()),
            is_dead: AtomicBool::new(false),
            is_unwanted: AtomicBool::new(false),
            status: OnceLock::new(),
            had_no_memory: AtomicBool::new(false),
            chances: AtomicU64::new(0),
            looked: Mutex::default(),
            limits,
        }
    }

    /// Sees how long it had the chance to show life. One that could run and was not let, as others took all cores, does
    /// not hang: of that time only what it ran for counts. Reads files, and so is the control side's.
    pub(crate) fn look(&self, now: Time) {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if looked.at.is_some_and(|at| now.since(at) < LOOK) {
            return;
        }
        let Some((is_runnable, ran)) = run_time(self.pid()) else {
            // It has just ended, which is known in another way.
            return;
        };
        let elapsed = looked.at.map_or(0, |at| millis(now.since(at)));
        let chance = match is_runnable {
            true => elapsed.min(ran.saturating_sub(looked.ran)),
            false => elapsed,
        };
        self.chances.fetch_add(chance, Ordering::Relaxed);
        *looked = Looked { at: Some(now), ran };
    }

    /// Ends it at once.
    pub(crate) fn kill(&self) {
        self.is_unwanted.store(true, Ordering::Release);
        if !self.is_dead.load(Ordering::Acquire)
            && let Ok(pid) = i32::try_from(self.pid.load(Ordering::Acquire))
        {
            // Gone already: the waiting thread will say so.
            let _gone = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }

    /// Whether somebody else has killed it, for no fault of its own.
    pub(crate) fn was_killed(&self) -> bool {
        let signal = self.status.get().and_then(ExitStatusExt::signal);
        !self.is_unwanted.load(Ordering::Acquire)
            && !self.had_no_memory.load(Ordering::Acquire)
            && signal == Some(Signal::SIGKILL as i32)
    }

    /// What it may use.
    pub(crate) fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.load(Ordering::Acquire) as u32
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Whether a process runs or waits for a core, and how many milliseconds it has run for (`/proc/PID/stat`, proc(5)).
fn run_time(pid: u32) -> Option<(bool, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field, the command in parentheses, may itself hold spaces and parentheses.
    let (_, after) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = after.split(' ').collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    let per_second = sysconf(SysconfVar::CLK_TCK).ok()??;
    Some((
        fields[0] == "R",
        ticks * 1000 / u64::try_from(per_second).ok()?.max(1),
    ))
}
