//! Runs programs that print rows, whose failure is recorded and not an error.

use std::path::{Path, PathBuf};
use std::process::Command;

use millrace_process::{ProcessError, run_tool};
use thiserror::Error;

use crate::file_error::FileError;

/// The error of an experiment whose rows other programs print.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// SIGINT was received, or a program cannot be started.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Runs a program, and returns its output, or the reason why it failed.
///
/// # Errors
/// [`ProcessError::Interrupted`].
pub(crate) fn said(command: &mut Command) -> Result<Result<String, String>, ProcessError> {
    match run_tool(command) {
        Ok(text) => Ok(Ok(text)),
        Err(ProcessError::Interrupted) => Err(ProcessError::Interrupted),
        Err(error) => Ok(Err(error.to_string())),
    }
}

/// Returns the command of a script in `tests/interop` of the project's sources. What it makes lies in namespaces of its own.
pub(crate) fn script(sources: &Path, name: &str) -> Command {
    let mut command = Command::new(sources.join("scripts/apart.sh"));
    let python = sources.join("target/venv/bin/python");
    command.arg(if python.exists() {
        python
    } else {
        PathBuf::from("python3")
    });
    command.arg(sources.join("tests/interop").join(name));
    command
}

/// Returns the number of a line `NAME: NUMBER ...`.
pub(crate) fn value_of(text: &str, name: &str) -> Option<f64> {
    let of_line = |line: &str| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned);
    let rest = text.lines().find_map(of_line)?;
    rest.split_whitespace().next()?.parse().ok()
}
