//! Functions in C, compiled for a test.

use std::path::Path;

use millrace_testing::{compile_function, open_to_all};

/// Compiles a function in C, in a folder that all users may read. Returns its name for a hop.
pub(crate) fn library(dir: &Path, source: &Path) -> String {
    open_to_all(dir);
    format!("library:{}", compile_function(dir, source).display())
}
