//! A function's process as the control side sees it: whether it lives, how long it could have run, and how it ended.
//!
//! The process is named by a file descriptor (pidfd_open(2)) and not by its number: the kernel gives the number of a
//! process that was waited for to another process.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::OnceLock;

use millrace_types::{Duration, Time};
use nix::sys::socket::{getsockopt, sockopt::PeerPidfd};
use nix::unistd::{SysconfVar, sysconf};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::cgroup::Limit;

/// The interval at which counters and the heartbeat are read.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The state of a process, shared by the lane, the control thread, and the thread that waits for its end.
#[derive(Debug)]
pub(crate) struct Process {
    pid: u32,
    /// `None` if an attached process that maps no packet memory has ended before it was opened, or is in another PID namespace.
    pidfd: Option<OwnedFd>,
    /// The connection of an attached process.
    connection: Option<OwnedFd>,
    /// True for a process that the switch started, and for an attached process that maps packet memory. The switch may
    /// kill these processes and waits for their end.
    maps_packets: bool,
    pub(super) is_dead: AtomicBool,
    /// An attached process has closed its connection.
    pub(super) is_closed: AtomicBool,
    /// The switch has killed the process.
    is_unwanted: AtomicBool,
    /// The exit status. Set before `is_dead`.
    pub(super) status: OnceLock<ExitStatus>,
    /// The last lines of the process's standard error. Set before `is_dead`.
    pub(super) words: OnceLock<String>,
    /// The kernel killed the process because of its memory limit. Set before `is_dead`.
    pub(super) had_no_memory: AtomicBool,
    /// The time in which the process could have sent heartbeats, in milliseconds ([`Process::look`]).
    pub(super) chances: AtomicU64,
    looked: Mutex<Looked>,
    /// The resource limits, and the mechanisms that enforce them.
    limits: Vec<Limit>,
}

/// The last sample of a process: its time, and the CPU time of the process in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Looked {
    at: Option<Time>,
    ran: u64,
}

impl Process {
    /// Opens the process of `child`. The child has not been waited for, so no other process can have its number.
    ///
    /// # Errors
    /// The kernel's error: no file descriptor is free, or the kernel is older than Linux 5.3.
    pub(super) fn of(child: &Child, limits: Vec<Limit>) -> io::Result<Process> {
        let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        Ok(Process {
            limits,
            ..Process::new(child.id(), Some(pidfd), None, true)
        })
    }

    /// Returns the process at the other end of a connection, which an operator has started. `maps_packets` says that it maps
    /// packet memory (class `ring`).
    ///
    /// # Errors
    /// The process maps packet memory, but the switch cannot wait for its end, and so could never take packets back from it.
    pub(super) fn attached(pid: u32, connection: OwnedFd, maps_packets: bool) -> io::Result<Process> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        // After the process has ended, another process may get its number. Linux 6.5 and later return a descriptor of
        // the peer itself (SO_PEERPIDFD).
        let pidfd = raw.and_then(|pid| match getsockopt(&connection, PeerPidfd) {
            Err(nix::errno::Errno::ENOPROTOOPT) => pidfd_open(pid, PidfdFlags::empty()).ok(),
            found => found.ok(),
        });
        if maps_packets && pidfd.is_none() {
            return Err(io::Error::other(
                "the process has ended, or the switch cannot see it: expected a process in the PID namespace of the switch, or \
                 class isolated",
            ));
        }
        Ok(Process::new(pid, pidfd, Some(connection), maps_packets))
    }

    fn new(pid: u32, pidfd: Option<OwnedFd>, connection: Option<OwnedFd>, maps_packets: bool) -> Process {
        Process {
            pid,
            pidfd,
            connection,
            maps_packets,
            is_dead: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            is_unwanted: AtomicBool::new(false),
            status: OnceLock::new(),
            words: OnceLock::new(),
            had_no_memory: AtomicBool::new(false),
            chances: AtomicU64::new(0),
            looked: Mutex::default(),
            limits: Vec::new(),
        }
    }

    /// Waits until a process that maps packet memory has ended. Returns at once for a process that maps none.
    pub(super) fn wait_for_end(&self) {
        let Some(pidfd) = self.pidfd.as_ref().filter(|_| self.maps_packets) else {
            return;
        };
        while matches!(
            poll(&mut [PollFd::new(pidfd, PollFlags::IN)], None),
            Err(Errno::INTR)
        ) {}
    }

    /// Adds up the time in which the process could have sent heartbeats. While it is runnable but waits for a
    /// core, only its CPU time counts, so that a process without a core does not seem to hang. This reads
    /// files, so only the control side calls it.
    pub(crate) fn look(&self, now: Time) {
        let mut looked = self.looked.lock();
        if looked.at.is_some_and(|at| now.since(at) < POLL_INTERVAL) {
            return;
        }
        let found = match run_time(self.pid()) {
            // The time of an attached process in another PID namespace is unknown.
            None if self.connection.is_some() => Some((false, 0)),
            found => found,
        };
        let Some((is_runnable, ran)) = found else {
            // The process has just ended, and the thread that waits for it records that.
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

    /// Sends SIGKILL to the process; nothing happens if it has ended. An attached process loses its connection instead, and is
    /// only killed if it maps packet memory: the switch would never get those packets back.
    pub(crate) fn kill(&self) {
        self.is_unwanted.store(true, Ordering::Release);
        if let Some(connection) = &self.connection {
            let _closed = shutdown(connection, Shutdown::Both);
        }
        if let Some(pidfd) = self.pidfd.as_ref().filter(|_| self.maps_packets) {
            // ESRCH: the process has ended, and the thread that waits for it records that.
            let _ended = pidfd_send_signal(pidfd, Signal::KILL);
        }
    }

    /// Returns whether the operator started the process.
    pub(crate) fn is_attached(&self) -> bool {
        self.connection.is_some()
    }

    /// Returns whether SIGKILL from outside the switch ended the process, and not the memory limit of its
    /// group.
    pub(crate) fn was_killed(&self) -> bool {
        let signal = self.status.get().and_then(ExitStatusExt::signal);
        !self.is_unwanted.load(Ordering::Acquire)
            && !self.had_no_memory.load(Ordering::Acquire)
            && signal == Some(Signal::KILL.as_raw())
    }

    /// Returns the resource limits.
    pub(crate) fn limits(&self) -> &[Limit] {
        &self.limits
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns whether a thread of a process is runnable, and the CPU time of the process in milliseconds (proc(5)).
fn run_time(pid: u32) -> Option<(bool, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = after_command(&stat)?.split(' ').collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    let per_second = sysconf(SysconfVar::CLK_TCK).ok()??;
    // `/proc/PID/stat` has the state of the main thread, but another thread may handle packets.
    let is_runnable = fields[0] == "R" || has_runnable_thread(pid);
    Some((is_runnable, ticks * 1000 / u64::try_from(per_second).ok()?.max(1)))
}

/// Returns the third field of a `stat` file and those that follow. The second one, the command in parentheses, may itself
/// hold spaces and parentheses.
fn after_command(stat: &str) -> Option<&str> {
    Some(stat.rsplit_once(") ")?.1)
}

fn has_runnable_thread(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    threads.into_iter().flatten().flatten().any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat"));
        stat.is_ok_and(|stat| after_command(&stat).is_some_and(|fields| fields.starts_with('R')))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail")]

    use std::process::Command;

    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").spawn().unwrap()
    }

    /// Starts a process that has the number `pid`; `None` without the right to choose numbers, or if another process
    /// was faster each time.
    fn sleeper_with(pid: u32) -> Option<Child> {
        for _ in 0..100 {
            std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
            let mut child = sleeper();
            if child.id() == pid {
                return Some(child);
            }
            child.kill().unwrap();
            child.wait().unwrap();
        }
        None
    }

    #[test]
    fn a_process_is_runnable_if_a_thread_beside_the_first_is() {
        // The first thread waits while another thread calls `run_time`.
        let (is_runnable, _) = std::thread::spawn(|| run_time(std::process::id()))
            .join()
            .unwrap()
            .unwrap();
        assert!(is_runnable);
    }

    #[test]
    fn a_process_in_another_pid_namespace_gets_no_packet_memory() {
        let connection = || OwnedFd::from(std::os::unix::net::UnixStream::pair().unwrap().0);
        // The kernel gives 0 as the number of such a process (unix(7)).
        assert!(Process::attached(0, connection(), false).is_ok());
        let error = Process::attached(0, connection(), true).unwrap_err().to_string();
        assert!(
            error.contains("expected a process in the PID namespace of the switch"),
            "{error}"
        );
        assert!(Process::attached(std::process::id(), connection(), true).is_ok());
    }

    #[test]
    fn a_process_is_killed() {
        let mut child = sleeper();
        Process::of(&child, Vec::new()).unwrap().kill();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }

    #[test]
    fn another_process_that_got_the_number_of_an_ended_one_is_not_killed() {
        let mut child = sleeper();
        let ended = Process::of(&child, Vec::new()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let Some(mut other) = sleeper_with(child.id()) else {
            eprintln!("skipped: only root chooses the numbers of processes");
            return;
        };
        ended.kill();
        // If `kill` sent SIGKILL to this process, SIGTERM would come too late to decide its exit status.
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(other.id().try_into().unwrap()),
            nix::sys::signal::Signal::SIGTERM,
        )
        .unwrap();
        assert_eq!(other.wait().unwrap().signal(), Some(15));
    }
}
