//! Unix sockets that only their owner can connect to, from the first moment on.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Binds a Unix socket with mode 0600. A socket on which no process listens is replaced, because a killed process leaves
/// it; any other file stays.
///
/// Between bind(2) and chmod(2) a socket has the mode of the umask, and others can connect to it. So the socket is bound
/// in a new directory of mode 0700, and gets its name when it has its mode.
///
/// # Errors
/// The path exists, its directory does not, or it is longer than a socket's name can be.
pub fn bind_private(path: &Path) -> io::Result<UnixListener> {
    remove_stale(path);
    // A name that no killed process has left: in a container each process has the same identifier.
    let random = RandomState::new().build_hasher().finish() as u32;
    let hidden = path.with_file_name(format!(".{random:08x}"));
    fs::DirBuilder::new().mode(0o700).create(&hidden)?;
    let bound = hidden.join("s");
    let outcome = UnixListener::bind(&bound).and_then(|listener| {
        fs::set_permissions(&bound, fs::Permissions::from_mode(0o600))?;
        // Unlike rename(2), link(2) fails if there is a file already.
        fs::hard_link(&bound, path)?;
        Ok(listener)
    });
    // The listener does not need the first name. A directory that cannot be removed stays private.
    let _removed = fs::remove_file(&bound);
    let _removed = fs::remove_dir(&hidden);
    outcome
}

/// Removes a socket file on which no process listens. Any other file stays, and the bind fails.
fn remove_stale(path: &Path) {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let is_refused =
        || UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_socket && is_refused() {
        // If another process removes the socket first, `bind` reports what is wrong.
        let _removed = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_socket_replaces_a_stale_one_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = bind_private(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        UnixStream::connect(&path).unwrap();
        assert_eq!(
            bind_private(&path).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists,
            "the socket is served"
        );
        drop(listener);
        drop(bind_private(&path).unwrap());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "somebody's file").unwrap();
        assert_eq!(
            bind_private(&path).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        assert_eq!(fs::read(&path).unwrap(), b"somebody's file");
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}
