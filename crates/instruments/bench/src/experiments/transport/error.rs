//! The errors of the experiment `transport`.

use millrace_lab::{RunError, UpError};
use millrace_process::ProcessError;
use thiserror::Error;

use crate::file_error::FileError;

/// The error of `millrace bench transport`.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TransportBenchError {
    /// A program failed, or SIGINT was received.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The hosts cannot be set up.
    #[error(transparent)]
    Up(#[from] UpError),
    /// A command in a host cannot be run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The lab file is invalid, which is a defect of this program.
    #[error("{0}")]
    LabFile(String),
    /// The output of a program does not have the expected content.
    #[error("{program}: {problem}")]
    Output { program: String, problem: String },
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

impl TransportBenchError {
    /// Returns true if the experiment cannot continue.
    pub(super) fn ends_the_run(&self) -> bool {
        millrace_process::interrupt::requested()
            || matches!(self, TransportBenchError::Process(ProcessError::Interrupted))
    }
}

/// Returns the error of a program with unexpected output.
pub(super) fn output(program: &str, problem: impl Into<String>) -> TransportBenchError {
    TransportBenchError::Output {
        program: program.to_owned(),
        problem: problem.into(),
    }
}
