//! The options of `millrace lab up`.

use std::path::PathBuf;
use std::time::Duration;

/// The options of `up`.
#[derive(Debug, Clone)]
pub struct UpOptions {
    /// The daemon of Millrace switches. `None` selects `$MILLRACED`, or the daemon that
    /// [`find_program`](crate::find_program) finds.
    pub millraced: Option<PathBuf>,
    /// The maximum time from the start of a switch until it forwards.
    pub ready_within: Duration,
    /// True if created resources, including logs, are kept after a failure.
    pub keep_on_failure: bool,
}

impl Default for UpOptions {
    fn default() -> UpOptions {
        UpOptions {
            millraced: None,
            ready_within: Duration::from_secs(30),
            keep_on_failure: false,
        }
    }
}
