//! Network functions in C, compiled for tests, and folders from which the switch loads them.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a function in C to a shared object in `folder`, with `millrace_nf.h` on the include path, and returns the
/// path of the object. Warnings are errors.
///
/// # Panics
/// Panics with the compiler's messages if the source does not compile.
#[must_use]
pub fn compile_function(folder: &Path, source: &Path) -> PathBuf {
    let object = folder.join(source.file_stem().unwrap()).with_extension("so");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions/nf/include");
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-I"])
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
    object
}

/// Returns a folder from which the switch may load a library: one below `target`, or below `/var/lib` if other users can
/// write to a folder above `target`, as for a clone in `/tmp`. Callers pass `env!("CARGO_TARGET_TMPDIR")`.
///
/// # Panics
/// Panics if the folder cannot be created.
#[must_use]
pub fn trusted_folder(target: &str) -> tempfile::TempDir {
    let target = Path::new(target);
    let is_trusted = |folder: &Path| std::fs::metadata(folder).unwrap().mode() & 0o022 == 0;
    let folder = if target.ancestors().all(is_trusted) {
        target
    } else {
        Path::new("/var/lib")
    };
    tempfile::tempdir_in(folder).unwrap()
}

/// Lets all users read a folder, because each function in a process runs as a separate user.
///
/// # Panics
/// Panics if the permissions cannot be changed.
pub fn open_to_all(folder: &Path) {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}
