//! The errors of the experiment `lan`.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use millrace_lab::{RunError, UpError};
use millrace_process::ProcessError;
use thiserror::Error;

use super::iperf;

/// The error of a system, or of the experiment.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LanError {
    /// The lab cannot be set up.
    #[error(transparent)]
    Up(#[from] UpError),
    /// A command in a host failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The lab file is invalid, which is a defect of this program.
    #[error("{0}")]
    File(String),
    /// The output of iperf3 has no result.
    #[error(transparent)]
    Iperf(#[from] iperf::IperfError),
    /// The hosts do not reach each other.
    #[error("h1 does not reach h2 over {system} within {} s", .within.as_secs())]
    Unreachable {
        system: &'static str,
        /// The time limit.
        within: Duration,
    },
    /// A counter of an interface cannot be read.
    #[error("{host}: {path} contains {text:?}: expected a number")]
    Counter {
        host: &'static str,
        /// The path of the counter.
        path: String,
        /// The content of the file.
        text: String,
    },
    /// A program is not installed, or SIGINT was received.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A result cannot be written.
    #[error("{}: {source}", .path.display())]
    Write {
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}
