//! The errors of the experiment `wan`.

use std::time::Duration;

use millrace_lab::UpError;
use millrace_process::ProcessError;
use millrace_wan_emulator::{ConfigError, PlanError};
use nix::errno::Errno;
use thiserror::Error;

use crate::file_error::FileError;

/// The error of `millrace bench wan`.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WanBenchError {
    /// A program failed, or SIGINT was received.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The hosts cannot be set up.
    #[error(transparent)]
    Up(#[from] UpError),
    /// The lab file is invalid, which is a defect of this program.
    #[error("{0}")]
    LabFile(String),
    /// A setting of a path is invalid, which is a defect of this program.
    #[error(transparent)]
    Setting(#[from] ConfigError),
    /// A path cannot be started.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A system call on a packet socket failed.
    #[error("{doing} at {interface} in {namespace}: {errno}")]
    Socket {
        /// The operation.
        doing: &'static str,
        interface: String,
        /// The network namespace.
        namespace: String,
        /// The error of the system.
        errno: Errno,
    },
    /// The control socket of the emulator refused a request.
    #[error("millrace-wan: {0}")]
    Control(String),
    /// No frame arrived.
    #[error("of {sent} frames none arrived over {system} within {} ms", .within.as_millis())]
    NoFrames {
        /// The number of frames that were sent.
        sent: usize,
        system: String,
        /// The time limit.
        within: Duration,
    },
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}
