//! Unix sockets for users of this machine: everybody may connect, and each connection is judged by its peer's credentials.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use anyhow::{Context, Result, bail};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

/// Serves `path` with mode 0666, and replaces a socket that no process serves.
pub(crate) fn bind(path: &Path) -> Result<UnixListener> {
    let name = || path.display().to_string();
    if let Ok(found) = std::fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            bail!("{}: a file of this name exists and is not a socket", name());
        }
        if UnixStream::connect(path).is_ok() {
            bail!("{}: another process serves it", name());
        }
        std::fs::remove_file(path).with_context(name)?;
    }
    let listener = UnixListener::bind(path).with_context(name)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).with_context(name)?;
    Ok(listener)
}

/// Returns the user at the other end.
pub(crate) fn peer(stream: &impl std::os::fd::AsFd) -> Result<u32> {
    Ok(getsockopt(stream, PeerCredentials)?.uid())
}
