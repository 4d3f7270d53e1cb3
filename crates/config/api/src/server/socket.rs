//! The Unix socket of the REST API: whoever may connect to it may do what root may, so the file is never, not for a
//! moment, open to others, and stands in a folder where others can neither replace nor forge it.
//!
//! A lock file beside the socket (`PATH.lock`) is held for as long as the socket is served. It makes "is it stale?" and
//! "replace it" one step: of two daemons that start at once, one gets the path and the other is refused.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use tokio::net::{UnixListener, UnixSocket};

/// Connections that the system holds until they are accepted.
const BACKLOG: u32 = 1024;

/// Why a Unix socket cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// The folder is not there and cannot be made, or cannot be looked at.
    #[error(
        "the folder {}: {error}: run millraced as root, or set api.socket to a path in a folder of its user",
        folder.display()
    )]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// Somebody else could replace the socket, or a folder above it.
    #[error(
        "users other than root and the daemon's own could replace {}: expected it to belong to one of these two and to \
         have mode 0755 or less; set api.socket to a path in such a folder, as /run/millrace is",
        folder.display()
    )]
    UnsafeFolder {
        /// The folder, or the symbolic link to it.
        folder: PathBuf,
    },
    /// Another process serves it.
    #[error("another process serves it: stop that (`ss -lxp` names it), or set api.socket to another path")]
    Served,
    /// There is a file of that name.
    #[error(
        "there is a file of this name, and it is no socket: remove it, or set api.socket to another path"
    )]
    NotSocket,
    /// Anything else.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A served socket. Dropping it removes the file if it is still the one that was made.
#[derive(Debug)]
pub(super) struct Listener {
    listener: UnixListener,
    path: PathBuf,
    identity: Option<(u64, u64)>,
    _lock: Lock,
}

impl Listener {
    /// Serves `path`, with mode 0600. Makes its folder (mode 0755) if that is missing, and replaces a socket that
    /// nobody serves.
    ///
    /// # Errors
    /// [`SocketError`].
    pub(super) fn bind(path: &Path) -> Result<Listener, SocketError> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        match DirBuilder::new().mode(0o755).create(folder) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(failed(folder)(error));
            }
            _ => {}
        }
        check_folder(folder)?;
        let lock = Lock::take(path)?;
        if state(path)? == State::Stale {
            std::fs::remove_file(path)?;
        }
        let socket = UnixSocket::new_stream()?;
        // Linux gives the file the mode of the socket, less the umask, when it binds: it is private from its first
        // moment on.
        fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(io::Error::from)?;
        socket.bind(path)?;
        let identity = identity(path);
        let listener = socket.listen(BACKLOG)?;
        Ok(Listener {
            listener,
            path: path.to_owned(),
            identity,
            _lock: lock,
        })
    }

    /// Returns the socket.
    pub(super) fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Tries whether `path` could be served: its folder is safe, or can be made, and nobody serves it, which
/// `is_taken_by_us` allows.
///
/// # Errors
/// [`SocketError`].
pub(super) fn probe(path: &Path, is_taken_by_us: bool) -> Result<(), SocketError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    if !folder.try_exists().map_err(failed(folder))? {
        // The daemon makes one folder, not several.
        let above = folder.parent().unwrap_or(Path::new("/"));
        return check_folder(above).or_else(|error| match error {
            // What stands in a folder like /tmp is safe if the folder itself is.
            SocketError::UnsafeFolder { folder } if is_sticky(&folder) => Ok(()),
            error => Err(error),
        });
    }
    check_folder(folder)?;
    match state(path) {
        Err(SocketError::Served) if is_taken_by_us => Ok(()),
        other => other.map(|_| ()),
    }
}

/// What stands at the path of a socket.
#[derive(PartialEq, Eq)]
enum State {
    Nothing,
    /// A socket that a process has left that was killed.
    Stale,
}

fn state(path: &Path) -> Result<State, SocketError> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(State::Nothing),
        Err(error) => return Err(error.into()),
        Ok(found) if !found.file_type().is_socket() => return Err(SocketError::NotSocket),
        Ok(_) => {}
    }
    match StdUnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(State::Stale),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(State::Nothing),
        // A full backlog, or a socket of another type, is somebody's, too.
        _ => Err(SocketError::Served),
    }
}

/// Refuses a folder in which others can replace files, or that others can replace: every folder above it counts, and
/// every symbolic link on the way. A sticky folder above it (as /tmp) is allowed.
fn check_folder(folder: &Path) -> Result<(), SocketError> {
    let canonical = folder.canonicalize().map_err(failed(folder))?;
    for place in folder.ancestors().chain(canonical.ancestors()) {
        if place.as_os_str().is_empty() {
            continue;
        }
        let link = std::fs::symlink_metadata(place).map_err(failed(place))?;
        let found = std::fs::metadata(place).map_err(failed(place))?;
        let is_parent = place == folder || place == canonical;
        let others_write = found.mode() & 0o022 != 0 && (is_parent || found.mode() & 0o1000 == 0);
        if !is_trusted(&link) || !is_trusted(&found) || others_write {
            return Err(SocketError::UnsafeFolder {
                folder: place.to_owned(),
            });
        }
    }
    Ok(())
}

fn is_trusted(found: &Metadata) -> bool {
    found.uid() == 0 || found.uid() == rustix::process::geteuid().as_raw()
}

fn is_sticky(folder: &Path) -> bool {
    std::fs::metadata(folder).is_ok_and(|found| found.mode() & 0o1000 != 0 && is_trusted(&found))
}

fn failed(folder: &Path) -> impl Fn(io::Error) -> SocketError {
    move |error| SocketError::Folder {
        folder: folder.to_owned(),
        error,
    }
}

/// The device and inode of a socket, if there is one.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    found.file_type().is_socket().then(|| (found.dev(), found.ino()))
}

/// The lock file of a socket, held. Dropping it removes the file.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    fn take(socket: &Path) -> Result<Lock, SocketError> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        loop {
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(SocketError::Served),
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
            // The daemon that held it before may have removed the file meanwhile.
            let held = file.metadata()?;
            let there = std::fs::symlink_metadata(&path);
            if there.is_ok_and(|there| (there.dev(), there.ino()) == (held.dev(), held.ino())) {
                return Ok(Lock { path, _file: file });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Still held: nobody else has it.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    #[tokio::test]
    async fn a_socket_is_private_and_goes_with_its_listener_and_its_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("made/api.sock");
        let listener = Listener::bind(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert!(matches!(Listener::bind(&path), Err(SocketError::Served)));
        assert!(matches!(probe(&path, false), Err(SocketError::Served)));
        assert!(probe(&path, true).is_ok());
        drop(listener);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_living_one_or_a_file_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(probe(&path, false).is_ok());
        drop(Listener::bind(&path).unwrap());
        let living = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(matches!(Listener::bind(&path), Err(SocketError::Served)));
        drop(living);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "mine").unwrap();
        assert!(matches!(Listener::bind(&path), Err(SocketError::NotSocket)));
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }

    #[tokio::test]
    async fn a_socket_that_has_taken_the_place_stays_when_the_listener_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.sock");
        let listener = Listener::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        drop(listener);
        assert!(path.exists());
    }

    #[tokio::test]
    async fn a_folder_in_which_others_may_write_is_refused_wherever_it_stands_on_the_way() {
        let directory = tempfile::tempdir().unwrap();
        let open = directory.path().join("open");
        let within = open.join("within");
        std::fs::create_dir_all(&within).unwrap();
        for (mode, refused) in [(0o777, true), (0o775, true), (0o755, false), (0o1777, false)] {
            std::fs::set_permissions(&open, std::fs::Permissions::from_mode(mode)).unwrap();
            let bound = Listener::bind(&within.join("api.sock"));
            assert_eq!(
                matches!(&bound, Err(SocketError::UnsafeFolder { folder }) if *folder == open),
                refused,
                "{mode:o}: {bound:?}"
            );
        }
        // The folder of the socket itself must not even be sticky: a name in it can be taken before the daemon starts.
        assert!(matches!(
            Listener::bind(&open.join("api.sock")),
            Err(SocketError::UnsafeFolder { .. })
        ));
        let missing = Listener::bind(&directory.path().join("no/such/api.sock"));
        assert!(matches!(missing, Err(SocketError::Folder { .. })), "{missing:?}");
    }
}
