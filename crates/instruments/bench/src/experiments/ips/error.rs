//! The errors of the experiment `ips`.

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
}
