//! The Unix socket of the REST API. A user who can connect can do everything that root can: therefore the socket is
//! never accessible to others, not even between bind and chmod, and its folder must not let others replace or forge
//! it.
//!
//! A lock file beside the socket (`PATH.lock`) is held while the socket is served. It makes the check for a stale
//! socket and its replacement one atomic step: if two daemons start at once, one gets the path and the other an error.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{Gid, Mode, chmod, chown, fchmod};
use tokio::net::{UnixListener, UnixSocket};

/// The length of the queue of connections that are not accepted yet.
const BACKLOG: u32 = 1024;

/// Errors of a Unix socket that is to be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// The folder does not exist and cannot be created, or cannot be read.
    #[error(
        "the folder {}: {error}: run millraced as root, or set api.socket to a path in a folder of its user",
        folder.display()
    )]
    Folder {
        folder: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// Other users could replace the socket, or a folder above it.
    #[error(
        "users other than root and the daemon's own could replace {}: expected it to belong to one of these two and to \
         have mode 0755 or less; set api.socket to a path in such a folder, as /run/millrace is",
        folder.display()
    )]
    UnsafeFolder {
        /// The folder, or the symbolic link to it.
        folder: PathBuf,
    },
    /// Another process serves the path.
    #[error(
        "another process serves it: stop that process (`ss -lxp` names it), or set api.socket to another path"
    )]
    Served,
    /// The path names a file that is not a socket.
    #[error("a file of this name exists and is not a socket: remove it, or set api.socket to another path")]
    NotSocket,
    /// The machine has no such group.
    #[error("api.group = \"{group}\": no such group: create it, or leave the key out")]
    Group { group: String },
    /// Any other error of the system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A served socket. Drop removes the socket file, unless another file has replaced it since `bind`.
#[derive(Debug)]
pub(super) struct Listener {
    listener: UnixListener,
    path: PathBuf,
    id: Option<FileId>,
    _lock: Lock,
}

impl Listener {
    /// Serves `path` with mode 0600, or 0660 for a group. Creates a missing folder with mode 0755, and replaces a stale socket.
    ///
    /// # Errors
    /// [`SocketError`].
    pub(super) fn bind(path: &Path, group: Option<u32>) -> Result<Listener, SocketError> {
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
        // On bind, Linux gives the file the mode of the socket, less the umask: the file is private from the start.
        fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(io::Error::from)?;
        socket.bind(path)?;
        if let Some(group) = group {
            // The folder lets nobody else replace the file. Its mode opens last, when the group is the wanted one.
            chown(path, None, Some(Gid::from_raw(group))).map_err(io::Error::from)?;
            chmod(path, Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP).map_err(io::Error::from)?;
        }
        let id = FileId::of_socket(path);
        let listener = socket.listen(BACKLOG)?;
        Ok(Listener {
            listener,
            path: path.to_owned(),
            id,
            _lock: lock,
        })
    }

    /// Returns the listener.
    pub(super) fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Returns the path of the socket.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.id.is_some() && FileId::of_socket(&self.path) == self.id {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Returns the number of a group of this machine, by its name or its number.
///
/// # Errors
/// [`SocketError::Group`].
pub(super) fn group_id(name: &str) -> Result<u32, SocketError> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    // A line of group(5): NAME:PASSWORD:GID:MEMBERS.
    let mut fields = groups.lines().map(|line| line.split(':'));
    let number = fields.find_map(|mut fields| match fields.next() {
        Some(found) if found == name => fields.nth(1)?.parse().ok(),
        _ => None,
    });
    number.ok_or_else(|| SocketError::Group {
        group: name.to_owned(),
    })
}

/// Checks that `path` could be served: its folder is safe or can be created, and no other process serves it.
/// `is_taken_by_us` is true if this process serves `path`.
///
/// # Errors
/// [`SocketError`].
pub(super) fn probe(path: &Path, is_taken_by_us: bool) -> Result<(), SocketError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    if !folder.try_exists().map_err(failed(folder))? {
        // The daemon creates one folder, not its parents.
        let above = folder.parent().unwrap_or(Path::new("/"));
        return check_folder(above).or_else(|error| match error {
            // A new folder inside a sticky one, as /tmp, is safe.
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

/// The state of a socket's path.
#[derive(PartialEq, Eq)]
enum State {
    Free,
    /// A socket whose process was killed.
    Stale,
}

fn state(path: &Path) -> Result<State, SocketError> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(State::Free),
        Err(error) => return Err(error.into()),
        Ok(found) if !found.file_type().is_socket() => return Err(SocketError::NotSocket),
        Ok(_) => {}
    }
    match StdUnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(State::Stale),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(State::Free),
        // A socket with a full backlog, or of another type, also belongs to a running process.
        _ => Err(SocketError::Served),
    }
}

/// Rejects a folder in which other users can replace files, or that other users can replace. The check covers all
/// folders above it and all symbolic links on the path. A sticky folder above it, as /tmp, is allowed.
fn check_folder(folder: &Path) -> Result<(), SocketError> {
    let canonical = folder.canonicalize().map_err(failed(folder))?;
    for above in folder.ancestors().chain(canonical.ancestors()) {
        if above.as_os_str().is_empty() {
            continue;
        }
        let link = std::fs::symlink_metadata(above).map_err(failed(above))?;
        let found = std::fs::metadata(above).map_err(failed(above))?;
        let is_parent = above == folder || above == canonical;
        let others_write = found.mode() & 0o022 != 0 && (is_parent || found.mode() & 0o1000 == 0);
        if !is_trusted(&link) || !is_trusted(&found) || others_write {
            return Err(SocketError::UnsafeFolder {
                folder: above.to_owned(),
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

/// The numbers that tell a file from all others of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(file: &Metadata) -> FileId {
        FileId {
            device: file.dev(),
            inode: file.ino(),
        }
    }

    /// Returns the numbers of a socket; `None` if there is no socket of this name.
    fn of_socket(path: &Path) -> Option<FileId> {
        let found = std::fs::symlink_metadata(path).ok()?;
        found.file_type().is_socket().then(|| FileId::of(&found))
    }
}

/// The locked lock file of a socket. Drop removes the file.
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
            // The daemon that held the lock before may have removed the file meanwhile.
            let locked = file.metadata()?;
            let there = std::fs::symlink_metadata(&path);
            if there.is_ok_and(|there| FileId::of(&there) == FileId::of(&locked)) {
                return Ok(Lock { path, _file: file });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The lock is still held: no other daemon uses the file.
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
        let listener = Listener::bind(&path, None).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert!(matches!(Listener::bind(&path, None), Err(SocketError::Served)));
        assert!(matches!(probe(&path, false), Err(SocketError::Served)));
        assert!(probe(&path, true).is_ok());
        drop(listener);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_socket_of_a_group_is_open_to_it_and_to_nobody_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.sock");
        // The group of this process: any user may give a file to it.
        let group = rustix::process::getegid().as_raw();
        let _listener = Listener::bind(&path, Some(group)).unwrap();
        assert_eq!(mode(&path), 0o660);
        assert_eq!(std::fs::symlink_metadata(&path).unwrap().gid(), group);
        assert_eq!(group_id("root").unwrap(), 0);
        assert_eq!(group_id("12").unwrap(), 12);
        assert!(matches!(
            group_id("no-such-group"),
            Err(SocketError::Group { .. })
        ));
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_living_one_or_a_file_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(probe(&path, false).is_ok());
        drop(Listener::bind(&path, None).unwrap());
        let living = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(matches!(Listener::bind(&path, None), Err(SocketError::Served)));
        drop(living);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "mine").unwrap();
        assert!(matches!(Listener::bind(&path, None), Err(SocketError::NotSocket)));
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }

    #[tokio::test]
    async fn a_socket_that_has_taken_the_place_stays_when_the_listener_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api.sock");
        let listener = Listener::bind(&path, None).unwrap();
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
            let bound = Listener::bind(&within.join("api.sock"), None);
            assert_eq!(
                matches!(&bound, Err(SocketError::UnsafeFolder { folder }) if *folder == open),
                refused,
                "{mode:o}: {bound:?}"
            );
        }
        // The folder of the socket itself must not even be sticky: another user could create the name before the
        // daemon starts.
        assert!(matches!(
            Listener::bind(&open.join("api.sock"), None),
            Err(SocketError::UnsafeFolder { .. })
        ));
        let missing = Listener::bind(&directory.path().join("no/such/api.sock"), None);
        assert!(matches!(missing, Err(SocketError::Folder { .. })), "{missing:?}");
    }
}
