//! The errors of the experiment `ips`.

use std::path::PathBuf;

use crate::file_error::FileError;

/// The error of `millrace bench ips`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IpsBenchError {
    /// A program failed, or SIGINT was received.
    #[error(transparent)]
    Process(#[from] millrace_process::ProcessError),
    /// `millrace nf rate` failed.
    #[error("{command}: {reason}")]
    Rate {
        command: String,
        /// The output of the program.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The program of an earlier build does not exist.
    #[error("--before {}: there is no such file; expected the program millrace of an earlier build. To build one: scripts/build-before.sh COMMIT millrace", .0.display())]
    NoBefore(PathBuf),
}
