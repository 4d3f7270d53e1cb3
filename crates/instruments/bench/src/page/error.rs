//! The errors of `millrace report`.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// The error of `millrace report`.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A file or folder cannot be read.
    #[error("{}: {source}. To fix it: `millrace bench` writes results, and `millrace report DIR` reads those of DIR", .path.display())]
    Read {
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("{}: {source}", .path.display())]
    Write {
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The folder has no records.
    #[error("{} has no records (*.jsonl); `millrace bench` makes some{}", .dir.display(), because(.problems))]
    Empty {
        /// The folder.
        dir: PathBuf,
        /// The lines that could not be read, a sentence each.
        problems: Vec<String>,
    },
}

fn because(problems: &[String]) -> String {
    problems.iter().map(|problem| format!("\n  {problem}")).collect()
}
