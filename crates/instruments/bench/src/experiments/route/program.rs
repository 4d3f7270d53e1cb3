//! Runs a program whose failure is recorded and not an error.

use std::process::Command;

use millrace_process::{ProcessError, run_tool};

use super::error::RouteBenchError;

/// Runs a program, and returns its output, or the reason why it failed.
///
/// # Errors
/// SIGINT.
pub(super) fn said(command: &mut Command) -> Result<Result<String, String>, RouteBenchError> {
    match run_tool(command) {
        Ok(text) => Ok(Ok(text)),
        Err(ProcessError::Interrupted) => Err(ProcessError::Interrupted.into()),
        Err(error) => Ok(Err(error.to_string())),
    }
}
