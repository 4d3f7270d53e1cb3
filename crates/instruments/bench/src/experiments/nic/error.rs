//! The errors of the experiment `nic`.

use crate::file_error::FileError;

/// The error of `millrace bench nic`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NicBenchError {
    /// SIGINT was received.
    #[error(transparent)]
    Process(#[from] millrace_process::ProcessError),
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}
