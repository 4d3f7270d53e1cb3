//! Key files. They are created with mode 0600, and refused if other users could read or replace them.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Returns the content of a key file. A missing file is created with the key that `generate` returns.
pub(crate) fn read_or_create(
    path: &Path,
    what: &str,
    generate: impl FnOnce() -> Result<Vec<u8>>,
) -> Result<Vec<u8>> {
    if !path.exists() {
        let name = format!("{what} {}", path.display());
        let key = generate().with_context(|| name.clone())?;
        create(path, &key).with_context(|| name.clone())?;
    }
    read(path, what)
}

/// Returns the content of a key file that must exist.
pub(crate) fn read(path: &Path, what: &str) -> Result<Vec<u8>> {
    let name = format!("{what} {}", path.display());
    let mut file = File::open(path).with_context(|| name.clone())?;
    // The open file is checked, because the path may name another file a moment later.
    let found = file.metadata().with_context(|| name.clone())?;
    let own = rustix::process::geteuid().as_raw();
    // Under systemd, a key belongs to the user of the unit. Root may read the key if its folder belongs to
    // the same user.
    let is_of_unit = || {
        let folder = path.canonicalize().ok()?.parent()?.metadata().ok()?;
        Some(own == 0 && folder.uid() == found.uid())
    };
    if found.uid() != own && found.uid() != 0 && !is_of_unit().unwrap_or(false) {
        bail!(
            "{name}: belongs to the user {}: expected {own}, who runs the engine, or root",
            found.uid()
        );
    }
    if found.mode() & 0o077 != 0 {
        bail!(
            "{name}: has mode {:04o}, so that others can read it: expected 0600; replace the key if somebody may have read it",
            found.mode() & 0o7777
        );
    }
    let mut key = Vec::new();
    file.read_to_end(&mut key).with_context(|| name)?;
    Ok(key)
}

/// Creates a key file. The key is written to a draft file, which is then linked to the path, so that a crash
/// leaves no partial key. No file may exist at the path, because link(2) does not replace files.
fn create(path: &Path, key: &[u8]) -> Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    // A draft that remained after a crash was never used as a key.
    let _absent = std::fs::remove_file(&draft);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)?;
    file.write_all(key)?;
    file.sync_all()?;
    let linked = std::fs::hard_link(&draft, path);
    let _removed = std::fs::remove_file(&draft);
    linked?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt as _, chown};

    use super::*;

    #[test]
    fn a_crash_while_a_key_is_written_leaves_no_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(folder.path().join("key.new"), [7; 5]).unwrap();
        let key = read_or_create(&path, "the key", || Ok(vec![9; 32])).unwrap();
        assert_eq!(key, [9; 32]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(create(&path, &[1; 32]).is_err(), "a key is never replaced");
        assert_eq!(std::fs::read(&path).unwrap(), [9; 32]);
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let key = read_or_create(&path, "the key", || Ok(vec![7; 32])).unwrap();
        assert_eq!(key, [7; 32]);
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        let again = read_or_create(&path, "the key", || panic!("the key exists")).unwrap();
        assert_eq!(again, key);
        for mode in [0o640, 0o604, 0o620] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = read_or_create(&path, "the key", || panic!("the key exists")).unwrap_err();
            assert!(error.to_string().contains("expected 0600"), "{error}");
        }
    }

    #[test]
    fn root_reads_a_key_of_another_user_in_a_folder_of_that_user_only() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, [7; 32]).unwrap();
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        chown(&path, Some(65_534), None).unwrap();
        let error = read(&path, "the key").unwrap_err().to_string();
        assert!(error.contains("belongs to the user 65534"), "{error}");
        chown(folder.path(), Some(65_534), None).unwrap();
        assert_eq!(read(&path, "the key").unwrap(), [7; 32]);
    }
}
