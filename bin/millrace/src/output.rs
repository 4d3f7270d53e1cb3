//! The connection to the daemon, the output, and the failures.

use std::cell::OnceCell;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

use anyhow::{Context, Result};
use millrace_api::client::{Client, ClientError};
use millrace_types::ErrorChain;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use crate::cli::Global;
use crate::table::Table;
use crate::token;

/// The exit status if the daemon does not respond.
const UNREACHABLE: u8 = 3;

/// The environment variable with the token of the lock on the configuration.
pub(crate) const LOCK_VARIABLE: &str = "MILLRACE_LOCK";

/// One run of the program.
pub(crate) struct Session {
    global: Global,
    client: OnceCell<Client>,
}

impl Session {
    pub(crate) fn new(global: Global) -> Session {
        Session {
            global,
            client: OnceCell::new(),
        }
    }

    /// Returns true if the output is JSON.
    pub(crate) fn json(&self) -> bool {
        self.global.json
    }

    /// Returns the address of the daemon.
    pub(crate) fn api(&self) -> &str {
        &self.global.api
    }

    /// Returns the client of the daemon, which is created on first use.
    pub(crate) fn client(&self) -> Result<&Client> {
        if self.client.get().is_none() {
            let token = match &self.global.token_file {
                Some(path) => {
                    let text = std::fs::read_to_string(path)
                        .with_context(|| format!("cannot read the token file {}", path.display()))?;
                    Some(text.lines().next().unwrap_or("").trim().to_owned())
                }
                None => std::env::var("MILLRACE_TOKEN")
                    .ok()
                    .filter(|token| !token.is_empty())
                    .or_else(|| token::of_this_machine(&self.global.api)),
            };
            let client = Client::new(&self.global.api, token, self.global.ca.as_deref())?;
            let lock = std::env::var(LOCK_VARIABLE)
                .ok()
                .filter(|token| !token.is_empty());
            let client = client.with_lock(lock);
            return Ok(self.client.get_or_init(|| client));
        }
        self.client.get().context("there is no client")
    }

    /// Prints `value` as JSON, or as the text that `human` makes of it.
    pub(crate) fn print<T: Serialize + ?Sized>(
        &self,
        value: &T,
        human: impl FnOnce(&T) -> String,
    ) -> Result<()> {
        let text = if self.json() {
            serde_json::to_string_pretty(value)? + "\n"
        } else {
            human(value)
        };
        say(&text)
    }

    /// Prints `value` as JSON, or as a table.
    pub(crate) fn print_table<T: Serialize + ?Sized>(
        &self,
        value: &T,
        table: impl FnOnce(&T) -> Table,
    ) -> Result<()> {
        self.print(value, |value| table(value).to_string())
    }
}

/// Writes to standard output and flushes it.
pub(crate) fn say(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Returns the author of changes: the user who ran sudo, if there is one; else the user of this process.
pub(crate) fn author() -> String {
    let variable = |name| std::env::var(name).ok().filter(|user: &String| !user.is_empty());
    let uid = rustix::process::getuid().as_raw().to_string();
    let named = || {
        let users = std::fs::read_to_string("/etc/passwd").ok()?;
        // A line of passwd(5): NAME:PASSWORD:UID:…
        let user = users.lines().find(|line| line.split(':').nth(2) == Some(&uid))?;
        Some(user.split(':').next()?.to_owned())
    };
    let of_process = || named().unwrap_or_else(|| format!("uid {uid}"));
    variable("SUDO_USER")
        .or_else(|| variable("USER"))
        .unwrap_or_else(of_process)
}

/// Returns true if an error is a broken pipe, and the reader of the output has closed it. A broken pipe
/// elsewhere is a failure.
fn is_of_closed_output(error: &anyhow::Error, output: &impl AsFd) -> bool {
    let is_broken_pipe = |error: &(dyn std::error::Error + 'static)| {
        error
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    // Without requested events, poll(2) only reports that the other end is closed. It does not wait.
    let mut polled = [PollFd::new(output, PollFlags::empty())];
    error.chain().any(is_broken_pipe)
        && poll(&mut polled, Some(&Timespec::default())).is_ok()
        && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// A failure, in the form that the user sees.
pub(crate) struct Failure {
    message: String,
    next_step: Option<String>,
    code: u8,
}

impl Failure {
    /// Returns the failure for an error. A closed pipe at the output is not a failure.
    pub(crate) fn from_error(error: &anyhow::Error) -> Failure {
        let failure = |message: String, next_step: Option<String>, code| Failure {
            message,
            next_step,
            code,
        };
        if is_of_closed_output(error, &io::stdout()) {
            return failure(String::new(), None, 0);
        }
        let message = ErrorChain(error.as_ref()).to_string();
        match error.downcast_ref::<ClientError>() {
            Some(ClientError::Unreachable { .. }) => {
                let next_step = "start the daemon with `sudo millraced --config FILE` (or, after `make install`, `sudo systemctl start millraced`); \
                    if it has another address, give that with --api URL or MILLRACE_API";
                failure(message, Some(next_step.to_owned()), UNREACHABLE)
            }
            Some(ClientError::Denied { .. }) => {
                let next_step = "run it as one of them, as in `sudo millrace …`; docs/security.md says how others get \
                    access over TCP with a token";
                failure(message, Some(next_step.to_owned()), 1)
            }
            Some(ClientError::NotMillrace { .. }) => {
                let next_step = "another program responds there; give the address of millraced with --api URL or MILLRACE_API";
                failure(message, Some(next_step.to_owned()), UNREACHABLE)
            }
            Some(ClientError::Problem(problem)) => {
                failure(message, problem.next_step.as_deref().map(str::to_owned), 1)
            }
            _ => failure(message, None, 1),
        }
    }

    /// Prints the failure on standard error and returns the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        let mut text = String::new();
        if !self.message.is_empty() {
            text = format!("millrace: {}\n", self.message);
        }
        if let Some(next_step) = &self.next_step {
            text += &format!("  to fix it: {next_step}\n");
        }
        // If standard error is closed, too, only the exit status remains.
        let _ = io::stderr().write_all(text.as_bytes());
        ExitCode::from(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_broken_pipe_whose_reader_has_gone_is_that_of_the_output() {
        let broken = || {
            let error = io::Error::from(io::ErrorKind::BrokenPipe);
            anyhow::Error::from(error).context("cannot write the capture")
        };
        let (reader, output) = io::pipe().unwrap();
        assert!(!is_of_closed_output(&broken(), &output));
        drop(reader);
        assert!(is_of_closed_output(&broken(), &output));
        assert!(!is_of_closed_output(
            &anyhow::Error::from(io::Error::other("the disk is full")),
            &output
        ));
    }
}
