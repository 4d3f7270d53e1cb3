//! The error of a file that an experiment cannot read or write.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A file cannot be read or written.
#[derive(Debug, Error)]
#[error("{}: {source}", .path.display())]
pub struct FileError {
    pub path: PathBuf,
    /// The error of the system.
    pub source: io::Error,
}

/// Returns a function that makes a [`FileError`] for `path`.
pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> FileError + use<> {
    let path = path.to_owned();
    move |source| FileError { path, source }
}
