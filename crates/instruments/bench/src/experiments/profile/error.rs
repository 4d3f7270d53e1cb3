//! The errors of `millrace profile`.

use millrace_process::ProcessError;
use millrace_profile::ProfileError;
use millrace_profile::simulated::SimulateError;
use thiserror::Error;

use crate::experiments::lan::LanError;
use crate::run::RunError;

/// The error of `millrace profile`.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CommandError {
    /// The profile of a process failed.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A case of `bench forward` failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The switch between two hosts failed.
    #[error(transparent)]
    Lan(#[from] LanError),
    /// The simulated run failed.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// The arguments contradict each other.
    #[error("{0}")]
    Usage(String),
}

impl From<ProcessError> for CommandError {
    fn from(error: ProcessError) -> CommandError {
        CommandError::Profile(error.into())
    }
}
