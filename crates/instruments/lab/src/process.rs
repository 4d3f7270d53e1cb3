//! Processes of a lab: started in a namespace, identified after any failure, terminated and waited for.
//!
//! A process belongs to the lab if the journal lists it with its start time, or if its environment contains
//! the lab's mark. All processes in a lab inherit the mark. So a daemon that a command in a host started is
//! found, and so is a process that `up` started without recording its id. Any other process does not belong
//! to the lab, even in one of its namespaces, and is not terminated.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// The environment variable that holds the lab's mark.
pub(crate) const MARK: &str = "MILLRACE_LAB_MARK";

/// The time that a process has to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(3);
/// The time that the kernel has to end a killed process.
const LAST_GRACE: Duration = Duration::from_secs(10);

/// A process, distinguished by its start time from a later one with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// The process id.
    pub pid: i32,
    /// The start time in clock ticks since boot (field 22 of `/proc/PID/stat`, proc(5)).
    pub start: u64,
}

impl ProcessId {
    /// Returns the current process with this id.
    ///
    /// # Errors
    /// An error of reading `/proc/PID/stat`; most often, there is no such process.
    pub fn of(pid: i32) -> io::Result<ProcessId> {
        Ok(ProcessId::with_state(pid)?.0)
    }

    /// Returns true if the process exists and runs; a zombie does not run.
    pub fn is_alive(self) -> bool {
        ProcessId::with_state(self.pid).is_ok_and(|(now, state)| now == self && !matches!(state, 'Z' | 'X'))
    }

    fn with_state(pid: i32) -> io::Result<(ProcessId, char)> {
        let stat = Stat::of(pid)?;
        let start = stat.field(22).and_then(|start| start.parse().ok());
        let start = start.ok_or_else(|| io::Error::other("/proc/PID/stat has no start time"))?;
        let state = stat.field(3).and_then(|state| state.chars().next());
        Ok((ProcessId { pid, start }, state.unwrap_or('X')))
    }

    /// Returns the name of the process's program, as in `ps`.
    pub(crate) fn command(self) -> String {
        fs::read_to_string(format!("/proc/{}/comm", self.pid))
            .unwrap_or_default()
            .trim()
            .to_owned()
    }

    fn open(self) -> Option<OwnedFd> {
        let fd = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        // The descriptor refers to one process. The start time, read after the opening, proves that it is the
        // right process.
        self.is_alive().then_some(fd)
    }
}

/// The contents of `/proc/PID/stat` (proc(5)).
struct Stat(String);

impl Stat {
    fn of(pid: i32) -> io::Result<Stat> {
        Ok(Stat(fs::read_to_string(format!("/proc/{pid}/stat"))?))
    }

    /// Returns a field by its number in proc(5), from 3.
    fn field(&self, number: usize) -> Option<&str> {
        // The second field, the command in parentheses, may contain spaces and parentheses.
        let (_, after) = self.0.rsplit_once(") ")?;
        after.split(' ').nth(number - 3)
    }
}

/// Returns all processes that satisfy `wanted`.
pub(crate) fn all(wanted: impl Fn(i32) -> bool) -> Vec<ProcessId> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| wanted(*pid))
        .filter_map(|pid| ProcessId::of(pid).ok())
        .collect()
}

/// Returns all processes that carry `mark`, except the calling one.
pub(crate) fn marked(mark: &str) -> Vec<ProcessId> {
    let wanted = format!("{MARK}={mark}");
    let carries = |pid: i32| {
        environment(pid)
            .split(|octet| *octet == 0)
            .any(|variable| variable == wanted.as_bytes())
    };
    let me = i32::try_from(std::process::id()).unwrap_or(0);
    all(|pid| pid != me && carries(pid))
}

/// Returns the environment of a process. It is empty for threads of the kernel and zombies, which have none.
///
/// A process that executes a program has no environment for a moment: it has left its old memory and closed its
/// descriptors, the lock of an `up` among them, and the kernel has not laid out the new memory yet. That moment is
/// waited for.
fn environment(pid: i32) -> Vec<u8> {
    let deadline = Instant::now() + GRACE;
    loop {
        match fs::read(format!("/proc/{pid}/environ")) {
            Err(_) => return Vec::new(),
            Ok(empty) if empty.is_empty() && !has_empty_environment(pid) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_micros(100));
            }
            Ok(environment) => return environment,
        }
    }
}

/// Returns true if the process is gone, or was started without environment variables: its environment begins and ends at the same
/// address (fields 50 and 51 of `/proc/PID/stat`, proc(5)). While the kernel lays out a program's memory, both are 0, then both are
/// where the environment begins, and the end moves once all variables are there. The address of the program's text (field 26) comes
/// last.
fn has_empty_environment(pid: i32) -> bool {
    let Ok(stat) = Stat::of(pid) else { return true };
    stat.field(50) == stat.field(51) && stat.field(26) != Some("0")
}

/// Terminates processes: sends SIGTERM, sends SIGKILL after three seconds, and returns when they have ended.
/// Returns the processes that SIGKILL has not ended within ten seconds (they hang in the kernel).
pub(crate) fn end(processes: &[ProcessId]) -> Vec<ProcessId> {
    let mut open: Vec<_> = processes
        .iter()
        .filter_map(|id| Some((*id, id.open()?)))
        .collect();
    for (signal, grace) in [(Signal::TERM, GRACE), (Signal::KILL, LAST_GRACE)] {
        for (_, fd) in &open {
            // The process may already have ended, so errors are ignored.
            let _ = pidfd_send_signal(fd, signal);
        }
        let deadline = Instant::now() + grace;
        open.retain(|(_, fd)| !ended_by(fd, deadline));
    }
    open.into_iter().map(|(id, _)| id).collect()
}

fn ended_by(fd: &OwnedFd, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap_or(Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        });
        let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(ready) => return ready > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_told_by_its_start_time() {
        let me = ProcessId::of(std::process::id() as i32).unwrap();
        assert!(me.is_alive());
        assert!(
            !ProcessId {
                start: me.start + 1,
                ..me
            }
            .is_alive()
        );
    }

    #[test]
    fn marked_processes_are_found_with_their_children_and_ended_even_if_they_refuse() {
        let mark = format!("test-{}", std::process::id());
        let mut child = Command::new("sh")
            .args(["-c", "trap '' TERM; sleep 60 & wait; sleep 60"])
            .env(MARK, &mark)
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        // Two processes are expected: the shell, and its child, which is a shell until it executes `sleep`.
        let found = loop {
            let found = marked(&mark);
            if found.len() == 2 && found.iter().any(|process| process.command() == "sleep") {
                break found;
            }
            assert!(Instant::now() < deadline, "{found:?}");
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(end(&found).is_empty());
        child.wait().unwrap();
        assert!(marked(&mark).is_empty());
    }

    /// `spawn` returns while the child is between its old memory and its new one. An `up` may be killed then.
    #[test]
    fn a_process_that_is_executing_its_program_at_the_moment_is_found() {
        let mark = format!("test-exec-{}", std::process::id());
        for _ in 0..400 {
            let mut child = Command::new("sleep").arg("60").env(MARK, &mark).spawn().unwrap();
            let found = marked(&mark);
            let id = ProcessId::of(child.id() as i32).unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(found, [id]);
        }
    }

    #[test]
    fn a_process_without_environment_is_not_waited_for() {
        let mut child = Command::new("/bin/sleep").arg("60").env_clear().spawn().unwrap();
        let began = Instant::now();
        assert!(environment(child.id() as i32).is_empty());
        assert!(began.elapsed() < GRACE);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_of_another_start_time_is_not_touched() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let id = ProcessId::of(child.id() as i32).unwrap();
        end(&[ProcessId {
            start: id.start + 1,
            ..id
        }]);
        assert!(id.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!id.is_alive());
    }
}
