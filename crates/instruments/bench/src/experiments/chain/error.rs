//! The errors of the experiment `chain`.

use std::path::{Path, PathBuf};

use millrace_api::client::ClientError;
use millrace_process::ProcessError;
use thiserror::Error;

/// The error of `millrace bench chain`.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChainBenchError {
    /// A program failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Guests or their switch failed.
    #[error(transparent)]
    Guests(#[from] crate::peer::PeerError),
    /// The hosts at two sites failed.
    #[error(transparent)]
    Sites(#[from] crate::experiments::lan::LanError),
    /// The REST API of the daemon returned an error.
    #[error("millraced: {0}")]
    Api(#[from] ClientError),
    /// A file cannot be read or written.
    #[error("{}: {source}", .path.display())]
    File {
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// No packet passed the chain.
    #[error("no packet passes a chain of {length} {kind} functions: {reason}\n{log}")]
    NoPackets {
        /// The number of functions.
        length: u16,
        /// The kind of the functions.
        kind: &'static str,
        /// The problem that the daemon reports.
        reason: String,
        /// The last lines of the daemon's log.
        log: String,
    },
}

pub(super) fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> ChainBenchError + use<> {
    let path = path.to_owned();
    move |source| ChainBenchError::File { path, source }
}
