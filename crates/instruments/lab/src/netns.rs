//! Network namespaces: creation, entry by a thread, removal.
//!
//! Only dedicated threads enter a namespace, so that the rest of the process stays in its own. A process that such a
//! thread starts runs in the thread's namespace.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

use crate::directory::{LabDirectory, RACES_MAX, create_shared};
use crate::system::SystemError;

/// Creates the namespace of `node`, its mount and its link. `first` runs in the namespace before anything
/// else.
pub(crate) fn create(
    directory: &LabDirectory,
    node: &str,
    first: impl FnOnce() -> Result<(), SystemError> + Send,
) -> Result<(), SystemError> {
    let (path, link) = (directory.namespace(node), directory.netns_link(node));
    let failed = |source: io::Error| SystemError::Namespace {
        doing: "create",
        namespace: format!("mr-{}-{node}", directory.name()),
        source,
    };
    File::create_new(&path).map_err(failed)?;
    on_a_thread(|| {
        unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| failed(errno.into()))?;
        let me = Path::new("/proc/thread-self/ns/net");
        mount(Some(me), &path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            .map_err(|errno| failed(errno.into()))?;
        first()
    })?;
    link_to(&path, &link).map_err(failed)
}

/// Creates the link to a namespace, and the directory of links if it is absent.
pub(crate) fn link_to(path: &Path, link: &Path) -> io::Result<()> {
    // The removal of another lab deletes the directory if it is empty; then this function creates it again.
    for _ in 0..RACES_MAX {
        match symlink(path, link) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                link.parent().map_or(Ok(()), create_shared)?;
            }
            done => return done,
        }
    }
    symlink(path, link)
}

/// Removes the namespace of `node`, its mount and its link, if they exist.
pub(crate) fn remove(directory: &LabDirectory, node: &str) -> Result<(), SystemError> {
    let (path, link) = (directory.namespace(node), directory.netns_link(node));
    if fs::read_link(&link).is_ok_and(|target| target == path) {
        fs::remove_file(&link).map_err(SystemError::file("remove", &link))?;
    }
    // EINVAL: nothing is mounted there; ENOENT: not even the file exists.
    while umount2(&path, MntFlags::MNT_DETACH).is_ok() {}
    match fs::remove_file(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(SystemError::file("remove", &path)(source))
        }
        _ => Ok(()),
    }
}

/// Runs `work` on a new thread in the namespace at `path`.
pub(crate) fn within<T: Send>(
    path: &Path,
    work: impl FnOnce() -> Result<T, SystemError> + Send,
) -> Result<T, SystemError> {
    on_a_thread(|| {
        enter_network(path)?;
        work()
    })
}

fn on_a_thread<T: Send>(work: impl FnOnce() -> Result<T, SystemError> + Send) -> Result<T, SystemError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("namespace".to_owned());
        let handle = thread
            .spawn_scoped(scope, work)
            .map_err(|source| SystemError::Thread { source })?;
        match handle.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn enter_network(path: &Path) -> Result<(), SystemError> {
    let failed = |source: io::Error| SystemError::Namespace {
        doing: "enter",
        namespace: path.display().to_string(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    setns(file, CloneFlags::CLONE_NEWNET).map_err(|errno| failed(errno.into()))
}

/// Moves the calling thread into the namespace at `path` permanently. The thread gets a new mount of `/sys`,
/// which shows the interfaces of the namespace. Only this thread and its children see this mount. It contains
/// no BPF file system, so mounts and pins of the children end with the children.
pub(crate) fn enter(path: &Path) -> Result<(), SystemError> {
    enter_network(path)?;
    let failed = |errno: nix::errno::Errno| SystemError::Namespace {
        doing: "mount /sys in",
        namespace: path.display().to_string(),
        source: errno.into(),
    };
    unshare(CloneFlags::CLONE_NEWNS).map_err(failed)?;
    let slave = MsFlags::MS_REC | MsFlags::MS_SLAVE;
    mount(None::<&str>, "/", None::<&str>, slave, None::<&str>).map_err(failed)?;
    mount(
        Some("sysfs"),
        "/sys",
        Some("sysfs"),
        MsFlags::empty(),
        None::<&str>,
    )
    .map_err(failed)
}
