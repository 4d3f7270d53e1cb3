//! Programs that the bench starts, and what it reads of them.
//!
//! Each is started through `setpriv --pdeathsig` where that is installed, so that it ends with the bench
//! even if the bench is killed, and through `nice`, all systems alike, so that what else runs on the
//! machine disturbs a measurement as little as possible. Both replace themselves by the program: its
//! process id is the one that we know, and by that alone it is ended.

use std::cmp::Reverse;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use millrace_lab::find_program;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use thiserror::Error;

/// How long a program may take to end when asked, before it is killed.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a condition is looked at while it is waited for.
const TICK: Duration = Duration::from_millis(20);
/// How many lines of a log a message shows.
const TAIL_LINES: usize = 8;

/// Where the kernel groups tasks by session (sched(7), autogroup), nice levels count only within a group, and
/// the group has its own: this gives a new session its level, the zeroth argument, and becomes the program.
const GROUP: &str = r#"{ echo "$0" > /proc/self/autogroup; } 2> /dev/null; exec "$@""#;

/// A program of Millrace: what the variable of the environment says, or where [`find_program`] finds it; beside this one if
/// it is nowhere.
pub fn beside(name: &str, variable: &str) -> PathBuf {
    if let Some(path) = std::env::var_os(variable) {
        return path.into();
    }
    let own = || std::env::current_exe().unwrap_or_default();
    find_program(name).unwrap_or_else(|| own().with_file_name(name))
}

/// Why a program did not do what it should.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// It cannot be started.
    #[error(
        "{program} cannot be started: {source}. To fix it: install it (`make setup`), or put it into $PATH"
    )]
    Start {
        /// The program.
        program: String,
        /// What the system says.
        source: io::Error,
    },
    /// It has ended, and should not have.
    #[error("{program} has ended ({status}):\n{tail}")]
    Ended {
        /// The program.
        program: String,
        /// How.
        status: String,
        /// The end of its log.
        tail: String,
    },
    /// What was waited for did not come.
    #[error("{program}: {what} did not come within {} s:\n{tail}", .within.as_secs_f64())]
    Late {
        /// The program.
        program: String,
        /// What was waited for.
        what: String,
        /// How long.
        within: Duration,
        /// The end of its log.
        tail: String,
    },
    /// A tool says no.
    #[error("`{command}` fails: {output}")]
    Tool {
        /// The command line.
        command: String,
        /// What it wrote.
        output: String,
    },
    /// A file of the bench cannot be used.
    #[error("{}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The person at the keyboard wants to stop.
    #[error("interrupted")]
    Interrupted,
}

impl ProcessError {
    /// For `map_err`: an error about `path`.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> ProcessError + use<> {
        let path = path.to_owned();
        move |source| ProcessError::File { path, source }
    }
}

/// A command line that a person can repeat.
pub fn shown(command: &Command) -> String {
    let plain = |text: &OsStr| {
        let text = text.to_string_lossy().into_owned();
        if !text.is_empty()
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c))
        {
            text
        } else {
            format!("'{}'", text.replace('\'', "'\\''"))
        }
    };
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(plain)
        .collect::<Vec<_>>()
        .join(" ")
}

/// A program that runs until this is dropped.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    log: PathBuf,
    patience: Duration,
}

impl Running {
    /// Starts `command` with standard input a pipe that stays open, and both outputs in `log`.
    ///
    /// # Errors
    /// [`ProcessError::Start`], [`ProcessError::File`].
    pub fn start(name: &str, command: &Command, nice: i32, log: &Path) -> Result<Running, ProcessError> {
        let out = File::create(log).map_err(ProcessError::file(log))?;
        let err = out.try_clone().map_err(ProcessError::file(log))?;
        let mut wrapped = wrap(command, nice);
        wrapped.stdin(Stdio::piped()).stdout(out).stderr(err);
        let child = wrapped.spawn().map_err(|source| ProcessError::Start {
            program: name.to_owned(),
            source,
        })?;
        Ok(Running {
            name: name.to_owned(),
            child,
            log: log.to_owned(),
            patience: PATIENCE,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All that it has written.
    pub fn log(&self) -> String {
        fs::read(&self.log).map_or_else(
            |_| String::new(),
            |bytes| String::from_utf8_lossy(&bytes).into_owned(),
        )
    }

    /// Writes a line to its standard input.
    ///
    /// # Errors
    /// [`ProcessError::Ended`] if it does not read any more.
    pub fn write_line(&mut self, line: &str) -> Result<(), ProcessError> {
        let Some(input) = &mut self.child.stdin else {
            return self.check();
        };
        let written = input.write_all(format!("{line}\n").as_bytes());
        match written.and_then(|()| input.flush()) {
            Ok(()) => Ok(()),
            Err(source) => {
                self.check()?;
                Err(ProcessError::Start {
                    program: self.name.clone(),
                    source,
                })
            }
        }
    }

    /// The end of what it has written.
    pub fn tail(&self) -> String {
        tail(&self.log())
    }

    /// Whether it still runs, as an error if not.
    ///
    /// # Errors
    /// [`ProcessError::Ended`].
    pub fn check(&mut self) -> Result<(), ProcessError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.ended(status)),
            Err(source) => Err(ProcessError::Start {
                program: self.name.clone(),
                source,
            }),
        }
    }

    /// Waits until it has ended by itself, and answers what it has written.
    ///
    /// # Errors
    /// [`ProcessError::Ended`] if it fails, [`ProcessError::Interrupted`].
    pub fn finish(&mut self) -> Result<String, ProcessError> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(self.log()),
                _ => self.check()?,
            }
            pause(TICK)?;
        }
    }

    fn ended(&self, status: ExitStatus) -> ProcessError {
        ProcessError::Ended {
            program: self.name.clone(),
            status: status.to_string(),
            tail: self.tail(),
        }
    }

    /// Waits until `ready` answers something.
    ///
    /// # Errors
    /// [`ProcessError::Ended`], [`ProcessError::Late`], [`ProcessError::Interrupted`], and what `ready` says.
    pub fn wait_for<T>(
        &mut self,
        what: &str,
        within: Duration,
        mut ready: impl FnMut(&Running) -> Result<Option<T>, ProcessError>,
    ) -> Result<T, ProcessError> {
        let start = Instant::now();
        loop {
            if let Some(result) = ready(self)? {
                return Ok(result);
            }
            self.check()?;
            if start.elapsed() > within {
                return Err(ProcessError::Late {
                    program: self.name.clone(),
                    what: what.to_owned(),
                    within,
                    tail: self.tail(),
                });
            }
            pause(TICK)?;
        }
    }

    /// Asks it to end, and kills it if it does not.
    fn stop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // Should it have ended meanwhile, it is still ours to reap: the number is not another's.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let start = Instant::now();
        while start.elapsed() < self.patience {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(TICK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Sleeps, unless the person at the keyboard wants to stop.
///
/// # Errors
/// [`ProcessError::Interrupted`].
pub fn pause(duration: Duration) -> Result<(), ProcessError> {
    let start = Instant::now();
    loop {
        if crate::interrupt::wanted() {
            return Err(ProcessError::Interrupted);
        }
        let left = duration.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
}

/// Returns the command, so that it ends with us and takes precedence over what else runs.
pub fn wrap(command: &Command, nice: i32) -> Command {
    let mut words: Vec<&OsStr> = Vec::new();
    let level = nice.to_string();
    if in_path("setpriv") {
        words.extend(["setpriv", "--pdeathsig", "KILL"].map(OsStr::new));
    }
    if nice != 0 && nix::unistd::geteuid().is_root() {
        words.extend(["nice", "-n", &level].map(OsStr::new));
        if in_path("setsid") {
            words.extend(["setsid", "sh", "-c", GROUP, &level].map(OsStr::new));
        }
    }
    words.push(command.get_program());
    words.extend(command.get_args());
    let mut wrapped = Command::new(words.first().copied().unwrap_or_default());
    wrapped.args(words.iter().skip(1));
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(key, value),
            None => wrapped.env_remove(key),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        wrapped.current_dir(dir);
    }
    wrapped
}

/// Returns true if a program of that name can be started.
pub fn in_path(program: &str) -> bool {
    program.contains('/') && Path::new(program).is_file()
        || std::env::var_os("PATH")
            .is_some_and(|paths| std::env::split_paths(&paths).any(|dir| dir.join(program).is_file()))
}

/// Runs a tool to its end.
///
/// # Errors
/// [`ProcessError::Start`]; [`ProcessError::Tool`] if it fails.
pub fn tool(command: &mut Command) -> Result<String, ProcessError> {
    let output = run(command)?;
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(out);
    }
    Err(ProcessError::Tool {
        command: shown(command),
        output: tail(&format!("{}{out}", String::from_utf8_lossy(&output.stderr))),
    })
}

/// What a program says of its version, in one line, if it can be asked.
pub fn version(program: impl AsRef<OsStr>) -> Option<String> {
    let out = tool(Command::new(program).arg("--version")).ok()?;
    let lines: Vec<&str> = out
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    Some(lines.join(", "))
}

fn run(command: &mut Command) -> Result<Output, ProcessError> {
    command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| ProcessError::Start {
            program: command.get_program().to_string_lossy().into_owned(),
            source,
        })
}

/// Returns the last lines of a text.
pub fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// Processor time of the busiest threads of a process: with poll-mode drivers, those that forward.
#[derive(Debug, Clone)]
pub struct ThreadTimes {
    at: Instant,
    /// Thread id, nanoseconds on a processor.
    threads: Vec<(u32, u64)>,
}

impl ThreadTimes {
    /// Of this process, now; empty if it is gone.
    pub fn of(pid: u32) -> ThreadTimes {
        let threads = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let id = entry.file_name().to_str()?.parse().ok()?;
                // Time on a processor, time waiting for one, number of times: Documentation/scheduler/sched-stats.
                let text = fs::read_to_string(entry.path().join("schedstat")).ok()?;
                Some((id, text.split_whitespace().next()?.parse().ok()?))
            })
            .collect();
        ThreadTimes {
            at: Instant::now(),
            threads,
        }
    }

    /// The share of the time since `earlier` in which the busiest `threads` were on a processor, 0 to 1: that
    /// of the one that was there least.
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

/// Keeps all threads of a process that are not bound to one core on this one: a scheduler that finds a core
/// taken moves what is left to the forwarding thread's.
pub fn confine(pid: u32, core: u32) {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let ids = tasks.into_iter().flatten().flatten();
    for id in ids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        let bound = sched_getaffinity(Pid::from_raw(id)).is_ok_and(|set| {
            let cores = (0..CpuSet::count()).filter(|core| set.is_set(*core).unwrap_or(false));
            cores.count() == 1
        });
        if !bound {
            // A thread that has ended: nothing to do.
            let _ended = confine_thread(Pid::from_raw(id), core);
        }
    }
}

/// Keeps the calling thread, and those that it starts, on this core. Whether it is there.
pub fn confine_self(core: u32) -> bool {
    confine_thread(Pid::from_raw(0), core)
}

fn confine_thread(thread: Pid, core: u32) -> bool {
    let mut set = CpuSet::new();
    set.set(core as usize)
        .and_then(|()| sched_setaffinity(thread, &set))
        .is_ok()
}

/// Returns the resident memory of a process, bytes: pages of its own, huge ones included.
pub fn memory(pid: u32) -> Option<u64> {
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

/// Returns a TCP port on the loopback address that nobody uses just now.
///
/// # Errors
/// No port is free.
pub fn free_port() -> Result<u16, ProcessError> {
    let path = Path::new("127.0.0.1:0");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(ProcessError::file(path))?;
    Ok(listener.local_addr().map_err(ProcessError::file(path))?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(dir: &Path, script: &str) -> Running {
        Running::start(
            "test",
            Command::new("sh").arg("-c").arg(script),
            0,
            &dir.join("log"),
        )
        .unwrap()
    }

    #[test]
    fn a_program_ends_when_it_is_dropped_even_if_it_does_not_want_to() {
        let dir = tempfile::tempdir().unwrap();
        let mut running = sleeper(dir.path(), "trap '' TERM; echo up; while :; do sleep 0.1; done");
        running.patience = Duration::from_millis(300);
        running
            .wait_for("a line", Duration::from_secs(5), |running| {
                Ok(running.log().contains("up").then_some(()))
            })
            .unwrap();
        let pid = running.pid();
        drop(running);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn a_program_that_ends_by_itself_is_reported_with_its_last_lines() {
        let dir = tempfile::tempdir().unwrap();
        let mut running = sleeper(dir.path(), "echo no such device; exit 3");
        let error = running
            .wait_for::<()>("readiness", Duration::from_secs(5), |_| Ok(None))
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("exit status: 3") && text.contains("no such device"),
            "{text}"
        );
    }

    #[test]
    fn a_command_is_shown_so_that_a_shell_reads_it_back() {
        let mut command = Command::new("ovs-ofctl");
        command.args([
            "add-flow",
            "br0",
            "in_port=1,actions=set_field:1->eth_dst",
            "it's",
        ]);
        assert_eq!(
            shown(&command),
            r"ovs-ofctl add-flow br0 'in_port=1,actions=set_field:1->eth_dst' 'it'\''s'"
        );
    }

    #[test]
    fn the_busiest_thread_of_a_process_that_spins_has_most_of_a_core() {
        let dir = tempfile::tempdir().unwrap();
        let spinning = sleeper(dir.path(), "while :; do :; done");
        let before = ThreadTimes::of(spinning.pid());
        std::thread::sleep(Duration::from_millis(300));
        let share = ThreadTimes::of(spinning.pid()).core_share_since(&before, 1);
        assert!(share > 0.05, "{share}");
        assert!(memory(spinning.pid()).is_some_and(|bytes| bytes > 100_000));
    }
}
