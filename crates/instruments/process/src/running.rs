//! Programs that run in the background.
//!
//! Each program is started through `setpriv --pdeathsig`, if `setpriv` is installed, so that the program ends
//! with the instrument even if the instrument is killed. The program is also started through `nice`, which
//! reduces the influence of other load on the machine equally for all systems. Both tools execute the program in
//! their own process, so the process id of the child is that of the program. Signals are sent to this process only.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::command::{tail, wrap};
use crate::error::ProcessError;

/// The time between SIGTERM and SIGKILL.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval at which conditions are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A running program. Dropping the value ends the program.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    log: PathBuf,
    stop_timeout: Duration,
}

impl Running {
    /// Starts `command` at the nice level `nice`. Standard input is a pipe that stays open; standard output and
    /// standard error go to the file `log`.
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
            stop_timeout: STOP_TIMEOUT,
        })
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns all that the program has written so far.
    pub fn log(&self) -> String {
        fs::read(&self.log).map_or_else(
            |_| String::new(),
            |bytes| String::from_utf8_lossy(&bytes).into_owned(),
        )
    }

    /// Writes a line to the standard input of the program.
    ///
    /// # Errors
    /// [`ProcessError::Ended`] if the program has ended, [`ProcessError::Input`] if it has closed its input.
    pub fn write_line(&mut self, line: &str) -> Result<(), ProcessError> {
        let Some(input) = &mut self.child.stdin else {
            return self.check();
        };
        let written = input.write_all(format!("{line}\n").as_bytes());
        match written.and_then(|()| input.flush()) {
            Ok(()) => Ok(()),
            Err(source) => {
                self.check()?;
                Err(ProcessError::Input {
                    program: self.name.clone(),
                    source,
                })
            }
        }
    }

    /// Returns the last lines that the program has written.
    pub fn tail(&self) -> String {
        tail(&self.log())
    }

    /// Returns `Ok` while the program runs.
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

    /// Waits until the program ends by itself, and returns all that it has written.
    ///
    /// # Errors
    /// [`ProcessError::Ended`] if the exit status is not 0, [`ProcessError::Interrupted`].
    pub fn finish(&mut self) -> Result<String, ProcessError> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(self.log()),
                _ => self.check()?,
            }
            pause(POLL_INTERVAL)?;
        }
    }

    fn ended(&self, status: ExitStatus) -> ProcessError {
        ProcessError::Ended {
            program: self.name.clone(),
            status: status.to_string(),
            tail: self.tail(),
        }
    }

    /// Polls `ready` until it returns a value, for at most `within`. `awaited` describes the condition in errors.
    ///
    /// # Errors
    /// [`ProcessError::Ended`], [`ProcessError::TimedOut`], [`ProcessError::Interrupted`], and the errors of `ready`.
    pub fn wait_for<T>(
        &mut self,
        awaited: &str,
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
                return Err(ProcessError::TimedOut {
                    program: self.name.clone(),
                    awaited: awaited.to_owned(),
                    within,
                    tail: self.tail(),
                });
            }
            pause(POLL_INTERVAL)?;
        }
    }

    /// Sends SIGTERM, and SIGKILL if the program still runs after the stop timeout.
    fn stop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // A program that has ended is not yet reaped, so no other process has this process id.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let start = Instant::now();
        while start.elapsed() < self.stop_timeout {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
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

/// Sleeps for `duration`, or until SIGINT or SIGTERM is received.
///
/// # Errors
/// [`ProcessError::Interrupted`].
pub fn pause(duration: Duration) -> Result<(), ProcessError> {
    let start = Instant::now();
    loop {
        if crate::interrupt::requested() {
            return Err(ProcessError::Interrupted);
        }
        let left = duration.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
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
    fn a_dropped_program_is_killed_if_it_ignores_sigterm() {
        let dir = tempfile::tempdir().unwrap();
        let mut running = sleeper(dir.path(), "trap '' TERM; echo up; while :; do sleep 0.1; done");
        running.stop_timeout = Duration::from_millis(300);
        running
            .wait_for("a line", Duration::from_secs(60), |running| {
                Ok(running.log().contains("up").then_some(()))
            })
            .unwrap();
        let pid = running.pid();
        drop(running);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn a_program_that_closes_its_input_is_said_to_run() {
        let dir = tempfile::tempdir().unwrap();
        let mut running = sleeper(dir.path(), "exec <&-; echo closed; while :; do sleep 0.1; done");
        running
            .wait_for("a line", Duration::from_secs(60), |running| {
                Ok(running.log().contains("closed").then_some(()))
            })
            .unwrap();
        // Another process that was just forked may still have the input open for a moment.
        let error = loop {
            if let Err(error) = running.write_line("x") {
                break error;
            }
        };
        assert!(matches!(error, ProcessError::Input { .. }), "{error}");
        assert!(
            error.to_string().starts_with("test runs, but its standard input"),
            "{error}"
        );
    }

    #[test]
    fn a_program_that_ends_by_itself_is_reported_with_its_last_lines() {
        let dir = tempfile::tempdir().unwrap();
        let mut running = sleeper(dir.path(), "echo no such device; exit 3");
        let error = running
            .wait_for::<()>("readiness", Duration::from_secs(60), |_| Ok(None))
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("exit status: 3") && text.contains("no such device"),
            "{text}"
        );
    }
}
