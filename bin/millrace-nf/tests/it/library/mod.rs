//! Functions in C, compiled for a test.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Lets all users read a folder, as functions run as users of their own.
pub(crate) fn open_to_all(dir: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Compiles a function in C. Returns its name for a hop.
pub(crate) fn library(dir: &Path, source: &Path) -> String {
    open_to_all(dir);
    let object = dir.join(source.file_stem().unwrap()).with_extension("so");
    let include = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../crates/functions/nf/include");
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-I"])
        .arg(include)
        .arg("-o")
        .args([&object, source])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    format!("library:{}", object.display())
}
