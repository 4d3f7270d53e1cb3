//! Files that are replaced as a whole: a reader, and a start after a crash, find the old content or the new one.
//!
//! ```text
//!  bytes ─▶ NAME.new ─▶ fsync ─▶ rename to NAME ─▶ fsync of the folder
//! ```
//!
//! The rename is atomic (rename(2)); without the first fsync the new name may have no content after a loss of power, and without
//! the second one the old name may be back.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The mode of a file that only its owner may read, such as one with a secret.
pub const PRIVATE: u32 = 0o600;
/// The mode of a file that others may read, as far as the process's umask admits.
pub const READABLE: u32 = 0o644;

/// Replaces a file, or makes it, with this mode. When this returns, the content is on the medium.
///
/// The file that an earlier process left as `NAME.new` is removed; a link of this name is not followed.
///
/// # Errors
/// Those of the file system. The file has its old content then.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let new = draft_of(path);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    match path.parent() {
        Some(folder) if folder != Path::new("") => File::open(folder)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

/// Returns the name of the new content before it has the name of the file.
fn draft_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".new");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    #[test]
    fn a_file_has_the_new_content_and_mode_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        replace(&path, b"one", READABLE).unwrap();
        replace(&path, b"two", PRIVATE).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, PRIVATE);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_draft_of_somebody_else_is_removed_and_not_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let (path, target) = (folder.path().join("state"), folder.path().join("target"));
        fs::write(&target, b"mine").unwrap();
        symlink(&target, folder.path().join("state.new")).unwrap();
        replace(&path, b"new", PRIVATE).unwrap();
        assert_eq!(
            (fs::read(&target).unwrap(), fs::read(&path).unwrap()),
            (b"mine".to_vec(), b"new".to_vec())
        );
    }

    #[test]
    fn a_failure_leaves_the_old_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        replace(&path, b"old", PRIVATE).unwrap();
        fs::create_dir(folder.path().join("state.new")).unwrap();
        assert!(replace(&path, b"new", PRIVATE).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert!(replace(&folder.path().join("absent/state"), b"new", PRIVATE).is_err());
    }
}
