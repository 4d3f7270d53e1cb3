//! The errors of simulated runs.

use std::io;
use std::path::{Path, PathBuf};

use millrace_process::ProcessError;
use thiserror::Error;

/// The error of a simulated run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// valgrind is not installed.
    #[error("valgrind is not installed. To fix it: apt-get install valgrind")]
    Missing,
    /// valgrind or the switch failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A line of the file of callgrind is not valid.
    #[error("callgrind's file, line {line}: {text:?}: expected {expected}")]
    Callgrind {
        /// The number of the line, from 1.
        line: usize,
        /// The line.
        text: String,
        /// The expected content.
        expected: &'static str,
    },
    /// No function had the name that is counted.
    #[error(
        "callgrind counted nothing in {}: expected a millraced of this version with its symbols (not stripped)",
        .millraced.display()
    )]
    NotCounted {
        /// The path of the program.
        millraced: PathBuf,
    },
    /// The output of the switch is not the expected JSON object.
    #[error("{}: {text:?}: expected a JSON object of packets, ports and tables", .millraced.display())]
    Output {
        /// The path of the program.
        millraced: PathBuf,
        /// The output.
        text: String,
    },
    /// Packets left by the wrong ports.
    #[error("{case}: {sent:?} packets left by ports 1 to 3: expected shares of {shares:?} by ports 2 and 3")]
    WrongPorts {
        /// The name of the case.
        case: String,
        /// The number of packets by port.
        sent: [u64; 3],
        /// The shares of a correct switch.
        shares: [f64; 2],
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", .path.display())]
    File {
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Returns a function for `map_err` that names the file `path`.
pub(super) fn failed(path: &Path) -> impl FnOnce(io::Error) -> SimulateError + use<> {
    let path = path.to_owned();
    move |source| SimulateError::File { path, source }
}
