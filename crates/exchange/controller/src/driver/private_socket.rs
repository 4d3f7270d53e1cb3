//! Unix sockets to which only their owner can ever connect.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Binds a Unix socket with mode 0600. If the path is a socket on which no process listens, the new socket
/// replaces it, because a killed process leaves its socket. Any other file is kept.
///
/// Between bind(2) and chmod(2), the umask determines the mode of a socket, and others can connect to it.
/// Therefore the socket is bound in a new directory of mode 0700, and is linked to its path after chmod(2).
///
/// # Errors
/// The path exists, its directory does not exist, or it is longer than a socket's name can be.
pub fn bind_private(path: &Path) -> io::Result<UnixListener> {
    remove_stale(path);
    // The name is random, because a killed process may have left one made from its PID: in a container, PIDs
    // repeat.
    let random = RandomState::new().build_hasher().finish() as u32;
    let hidden = path.with_file_name(format!(".{random:08x}"));
    fs::DirBuilder::new().mode(0o700).create(&hidden)?;
    let bound = hidden.join("s");
    let outcome = UnixListener::bind(&bound).and_then(|listener| {
        fs::set_permissions(&bound, fs::Permissions::from_mode(0o600))?;
        // link(2), unlike rename(2), fails if the path exists.
        fs::hard_link(&bound, path)?;
        Ok(listener)
    });
    // The listener does not need the name in the directory. If the directory cannot be removed, it stays
    // private.
    let _removed = fs::remove_file(&bound);
    let _removed = fs::remove_dir(&hidden);
    outcome
}

/// Removes a socket file on which no process listens. Any other file is kept, and the caller's bind then
/// fails.
fn remove_stale(path: &Path) {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let is_refused =
        || UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_socket && is_refused() {
        // If another process removes the socket first, the caller's bind reports the error.
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
