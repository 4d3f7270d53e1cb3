//! Errors of the programs that an instrument starts.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

/// The error of a program that an instrument starts.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// The program cannot be started.
    #[error(
        "{program} cannot be started: {source}. To fix it: install it (`make setup`), or put it into $PATH"
    )]
    Start {
        /// The name of the program.
        program: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The standard input of a running program cannot be written.
    #[error("{program} runs, but its standard input cannot be written: {source}")]
    Input {
        /// The name of the program.
        program: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The program ended before it was stopped.
    #[error("{program} has ended ({status}):\n{tail}")]
    Ended {
        /// The name of the program.
        program: String,
        /// The exit status.
        status: String,
        /// The last lines of its log.
        tail: String,
    },
    /// A condition was not met in time.
    #[error("{program}: {awaited} did not come within {} s:\n{tail}", .within.as_secs_f64())]
    TimedOut {
        /// The name of the program.
        program: String,
        /// The condition.
        awaited: String,
        /// The time limit.
        within: Duration,
        /// The last lines of its log.
        tail: String,
    },
    /// A tool failed.
    #[error("`{command}` fails: {output}")]
    Tool {
        /// The command line.
        command: String,
        /// The last lines of its output, or the exit status of a tool without output.
        output: String,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", .path.display())]
    File {
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// SIGINT or SIGTERM was received, or SIGINT ended a tool.
    #[error("interrupted")]
    Interrupted,
}

impl ProcessError {
    /// Returns a function for `map_err` that names the file `path`.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> ProcessError + use<> {
        let path = path.to_owned();
        move |source| ProcessError::File { path, source }
    }
}
