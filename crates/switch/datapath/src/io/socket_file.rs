//! Socket files that the switch creates. The file's permissions decide who may connect.
//! The file is therefore never open to everyone, not even for a moment, and no file of others is removed for
//! it.
//!
//! Drivers create the file, by its path, when a port is opened. [`SocketFile::make`] runs them on a thread
//! with its own file mode mask (umask), so that only this process's user can access the new file. Then the
//! file gets the configured owner, group and permissions.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Gid, Group, Uid, User, fchownat};

use super::OpenError;
use super::vnic::SocketAccess;

/// A socket file of this process. Dropping it removes the file, if it is still the one that was created.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    id: FileId,
}

/// The numbers that tell a file from all others of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FileId {
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl FileId {
    fn of(file: &fs::Metadata) -> FileId {
        FileId {
            device: file.dev(),
            inode: file.ino(),
        }
    }
}

impl SocketFile {
    /// Returns the file of a socket that is bound to `path`.
    ///
    /// # Errors
    /// Returns the error of the system if there is no such file.
    pub fn of(path: &Path) -> io::Result<SocketFile> {
        Ok(SocketFile {
            path: path.to_owned(),
            id: FileId::of(&fs::symlink_metadata(path)?),
        })
    }

    /// Calls `open`, which creates the socket `path`, and gives the file the access rights in `access`.
    ///
    /// # Errors
    /// Returns [`OpenError`], which names the file or the account; and the errors of `open`.
    pub fn make<T: Send>(
        path: &Path,
        access: &SocketAccess,
        open: impl FnOnce() -> Result<T, OpenError> + Send,
    ) -> Result<(SocketFile, T), OpenError> {
        let owner = access.owner.as_deref().map(|name| user(path, name)).transpose()?;
        let group = access
            .group
            .as_deref()
            .map(|name| self::group(path, name))
            .transpose()?;
        check_folder(path)?;
        remove_stale(path)?;
        let opened = with_private_umask(path, open)?;
        let (socket, id) = open_socket(path)?;
        let file = SocketFile {
            path: path.to_owned(),
            id,
        };
        let refused = |what: &str, error: io::Error| OpenError::Failed {
            device: path.display().to_string(),
            reason: format!("the kernel refuses to set {what} of the socket file: {error}"),
            next_step: "run millraced as root, or set no owner and no group".to_owned(),
        };
        if owner.is_some() || group.is_some() {
            fchownat(&socket, "", owner, group, AtFlags::AT_EMPTY_PATH)
                .map_err(|error| refused("owner and group", error.into()))?;
        }
        let mode = fs::Permissions::from_mode(u32::from(access.mode));
        fs::set_permissions(format!("/proc/self/fd/{}", socket.as_raw_fd()), mode)
            .map_err(|error| refused("the permissions", error))?;
        Ok((file, opened))
    }
}

/// Returns a descriptor of the new socket file, without access to its content, and its numbers. The descriptor stays with this file if others, whom the folder belongs to, put another one in its place.
fn open_socket(path: &Path) -> Result<(fs::File, FileId), OpenError> {
    let failed = |reason: String| OpenError::Failed {
        device: path.display().to_string(),
        reason,
        next_step: "use a folder that nobody else changes".to_owned(),
    };
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_NOFOLLOW)
        .open(path)
        .and_then(|file| Ok((file.metadata()?, file)));
    let (found, file) = opened.map_err(|error| failed(format!("the new socket file: {error}")))?;
    if !found.file_type().is_socket() {
        return Err(failed(
            "another file has taken the place of the new socket".to_owned(),
        ));
    }
    Ok((file, FileId::of(&found)))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Drivers remove the file, too, and another socket may have been created at its path.
        if fs::symlink_metadata(&self.path).is_ok_and(|found| FileId::of(&found) == self.id) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns an error if everyone may rename files in the folder of the socket, because the socket could then
/// be replaced.
fn check_folder(path: &Path) -> Result<(), OpenError> {
    let device = || path.display().to_string();
    let folder = path.parent().unwrap_or(Path::new("/"));
    let found = fs::metadata(folder).map_err(|error| OpenError::Missing {
        device: device(),
        reason: format!("the folder {}: {error}", folder.display()),
        next_step: "create it, with access for those who may connect".to_owned(),
    })?;
    let mode = found.permissions().mode();
    if mode & 0o002 != 0 && mode & 0o1000 == 0 {
        return Err(OpenError::Failed {
            device: device(),
            reason: format!("everyone may write to the folder {}", folder.display()),
            next_step: "use a folder that only those may write to who may connect".to_owned(),
        });
    }
    Ok(())
}

/// Removes a socket file that nobody listens to, such as a killed process leaves, and no other file.
fn remove_stale(path: &Path) -> Result<(), OpenError> {
    let device = || path.display().to_string();
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(OpenError::Failed {
                device: device(),
                reason: error.to_string(),
                next_step: "check the path of the socket".to_owned(),
            });
        }
        Ok(found) => found,
    };
    if !found.file_type().is_socket() {
        return Err(OpenError::Failed {
            device: device(),
            reason: "there is a file of this name that is no socket, and it is not removed".to_owned(),
            next_step: "name another path, or remove the file".to_owned(),
        });
    }
    match is_served(path) {
        Ok(false) => {}
        Err(Errno::ENOENT) => return Ok(()),
        Ok(true) | Err(_) => {
            return Err(OpenError::Busy {
                device: device(),
                reason: "another process listens at this socket".to_owned(),
                next_step: "end that process, or name another path".to_owned(),
            });
        }
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(OpenError::Failed {
            device: device(),
            reason: format!("the socket file of a process that ended cannot be removed: {error}"),
            next_step: "remove it".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Returns true if a process listens at this socket. The request uses a type that no virtual NIC has, so that the
/// listener does not notice it: the kernel returns `EPROTOTYPE` if there is a listener, and `ECONNREFUSED` if not.
fn is_served(path: &Path) -> nix::Result<bool> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Datagram, flags, None)?;
    match connect(socket.as_raw_fd(), &UnixAddr::new(path)?) {
        Ok(()) | Err(Errno::EPROTOTYPE) => Ok(true),
        Err(Errno::ECONNREFUSED) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the reason why a peer's socket cannot be connected to, before a driver fails with a shorter message.
///
/// # Errors
/// Returns [`OpenError::Missing`].
#[cfg(any(test, feature = "dpdk"))]
pub(super) fn expect_peer(path: &Path) -> Result<(), OpenError> {
    let reason = match is_served(path) {
        Ok(true) => return Ok(()),
        Ok(false) => "nobody listens at this socket".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(OpenError::Missing {
        device: path.display().to_string(),
        reason,
        next_step: "start the peer, which creates the socket; the switch keeps looking for it".to_owned(),
    })
}

/// Calls `open` on a thread whose new files are not executable, and accessible only to this process's user.
fn with_private_umask<T: Send>(
    path: &Path,
    open: impl FnOnce() -> Result<T, OpenError> + Send,
) -> Result<T, OpenError> {
    let failed = |reason: String| OpenError::Failed {
        device: path.display().to_string(),
        reason,
        next_step: "see the log; the socket file is only created on a thread of its own".to_owned(),
    };
    let subscriber = tracing::dispatcher::get_default(Clone::clone);
    std::thread::scope(|scope| {
        let work = || {
            let _log_here = tracing::dispatcher::set_default(&subscriber);
            // From here on this thread has its own mask.
            unshare(CloneFlags::CLONE_FS)
                .map_err(|error| failed(format!("no file mode mask of its own: {error}")))?;
            umask(Mode::from_bits_truncate(0o177));
            open()
        };
        let thread = std::thread::Builder::new()
            .name("vnic".to_owned())
            .spawn_scoped(scope, work)
            .map_err(|error| failed(format!("no thread: {error}")))?;
        thread
            .join()
            .unwrap_or_else(|_| Err(failed("opening it panicked".to_owned())))
    })
}

fn user(path: &Path, name: &str) -> Result<Uid, OpenError> {
    let number = name.parse().ok().map(Uid::from_raw);
    let found = || User::from_name(name).ok().flatten().map(|user| user.uid);
    number
        .or_else(found)
        .ok_or_else(|| no_account(path, "user", name))
}

fn group(path: &Path, name: &str) -> Result<Gid, OpenError> {
    let number = name.parse().ok().map(Gid::from_raw);
    let found = || Group::from_name(name).ok().flatten().map(|group| group.gid);
    number
        .or_else(found)
        .ok_or_else(|| no_account(path, "group", name))
}

fn no_account(path: &Path, what: &str, name: &str) -> OpenError {
    OpenError::Missing {
        device: path.display().to_string(),
        reason: format!("the {what} {name}"),
        next_step: format!("name a {what} of this machine, or its number"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    const OURS: SocketAccess = SocketAccess {
        owner: None,
        group: None,
        mode: 0o660,
    };

    fn bind(path: &Path) -> Result<(UnixListener, u32), OpenError> {
        let listener = UnixListener::bind(path).unwrap();
        Ok((listener, fs::metadata(path).unwrap().mode() & 0o777))
    }

    fn make(path: &Path) -> Result<(SocketFile, (UnixListener, u32)), OpenError> {
        SocketFile::make(path, &OURS, || bind(path))
    }

    #[test]
    fn a_socket_is_never_open_to_others_and_goes_with_its_port() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vm1");
        let (file, (_listener, born)) = make(&path).unwrap();
        assert_eq!(born, 0o600);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o660);
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn the_mask_of_other_threads_stays() {
        let dir = tempfile::tempdir().unwrap();
        let before = umask(Mode::from_bits_truncate(0o022));
        let _made = make(&dir.path().join("vm1")).unwrap();
        assert_eq!(umask(before), Mode::from_bits_truncate(0o022));
    }

    #[test]
    fn what_a_killed_process_left_behind_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vm1");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        make(&path).unwrap();
    }

    #[test]
    fn a_socket_that_somebody_listens_at_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vm1");
        let _other = UnixListener::bind(&path).unwrap();
        let error = make(&path).unwrap_err();
        assert!(matches!(error, OpenError::Busy { .. }), "{error}");
        assert!(path.exists());
    }

    #[test]
    fn a_peer_is_asked_for_without_its_notice() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vm1");
        let error = expect_peer(&path).unwrap_err().to_string();
        assert!(error.contains("ENOENT"), "{error}");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        expect_peer(&path).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(listener);
        let error = expect_peer(&path).unwrap_err().to_string();
        assert!(error.contains("nobody listens"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vm1");
        fs::write(&path, "a letter").unwrap();
        let error = make(&path).unwrap_err().to_string();
        assert!(
            error.contains("no socket") && error.contains(&path.display().to_string()),
            "{error}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "a letter");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path().join("nowhere"), &link).unwrap();
        make(&link).unwrap_err();
        assert!(fs::symlink_metadata(&link).is_ok());
    }

    #[test]
    fn another_socket_that_took_the_place_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vm1");
        let (file, first) = make(&path).unwrap();
        // Two sockets at once, so that the second has an inode of its own.
        fs::rename(&path, dir.path().join("aside")).unwrap();
        let _second = UnixListener::bind(&path).unwrap();
        drop(file);
        assert!(path.exists());
        drop(first);
    }

    #[test]
    fn a_link_that_took_the_place_of_the_new_socket_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, victim) = (dir.path().join("vm1"), dir.path().join("passwd"));
        fs::write(&victim, "a letter").unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
        let mine = Some(Uid::current().to_string());
        for owner in [None, mine] {
            let access = SocketAccess { owner, ..OURS };
            let error = SocketFile::make(&path, &access, || {
                let bound = bind(&path);
                fs::remove_file(&path).unwrap();
                std::os::unix::fs::symlink(&victim, &path).unwrap();
                bound
            })
            .unwrap_err();
            assert!(error.to_string().contains("taken the place"), "{error}");
            assert_eq!(fs::metadata(&victim).unwrap().mode() & 0o777, 0o600);
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn accounts_that_are_not_there_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vm1");
        for (owner, group) in [(Some("no-such-one"), None), (None, Some("no-such-one"))] {
            let access = SocketAccess {
                owner: owner.map(str::to_owned),
                group: group.map(str::to_owned),
                mode: 0o600,
            };
            let error = SocketFile::make(&path, &access, || bind(&path))
                .unwrap_err()
                .to_string();
            assert!(error.contains("no-such-one"), "{error}");
            assert!(!path.exists());
        }
    }

    #[test]
    fn a_folder_that_everyone_may_change_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let error = make(&open.join("vm1")).unwrap_err().to_string();
        assert!(error.contains("everyone"), "{error}");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
        make(&open.join("vm1")).unwrap();
    }
}
