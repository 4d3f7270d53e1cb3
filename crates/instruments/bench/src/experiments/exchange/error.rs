//! The errors of the experiment `exchange`.

use crate::file_error::FileError;

/// The error of `millrace bench exchange`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeBenchError {
    /// SIGINT was received, or the script cannot be started.
    #[error(transparent)]
    Process(#[from] millrace_process::ProcessError),
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}
