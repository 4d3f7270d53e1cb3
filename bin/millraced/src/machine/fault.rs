//! The error of a value that names something that this machine does not have.

use millrace_model::{ConfigError, Path};

/// Adds an error of the value at `path`, if there is one.
pub(super) fn note(errors: &mut Vec<ConfigError>, path: &Path, outcome: Result<(), String>) {
    if let Err(message) = outcome {
        errors.push(ConfigError::unavailable(path.clone(), message));
    }
}
