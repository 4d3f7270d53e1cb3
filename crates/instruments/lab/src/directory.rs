//! The directory of a lab, inside the directory of all labs. `/run/millrace` is not used: it belongs to the
//! service (`RuntimeDirectory=` of its systemd unit).
//!
//! ```text
//! /run/millrace-lab/NAME/           locked (flock) while `up` or `down` runs
//!     state.json                    the resources to remove
//!     ns/NODE                       the namespaces, bind-mounted
//!     switch/NODE/                  configuration, logs and sockets of a switch or guest
//! /run/netns/mr-NAME-NODE           a link to ns/NODE, for `ip netns` and `ip -n`
//! ```
//!
//! The namespaces are not mounted in `/run/netns` itself: the first `ip netns add` on a machine mounts that directory
//! over itself, and earlier mounts in it could then no longer be unmounted.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

use crate::system::SystemError;

const LABS: &str = "/run/millrace-lab";
const NETNS: &str = "/run/netns";

/// The maximum number of retries when the removal of another lab deletes the empty directory.
pub(crate) const RACES_MAX: usize = 16;

/// The directory of one lab, which may or may not exist.
#[derive(Debug, Clone)]
pub(crate) struct LabDirectory {
    name: String,
    dir: PathBuf,
}

impl LabDirectory {
    pub(crate) fn of(name: &str) -> LabDirectory {
        LabDirectory {
            name: name.to_owned(),
            dir: Path::new(LABS).join(name),
        }
    }

    /// Returns the names of all labs that have a directory, sorted.
    pub(crate) fn all() -> Result<Vec<String>, SystemError> {
        let labs = Path::new(LABS);
        let entries = match fs::read_dir(labs) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(SystemError::file("read", labs)(source)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(SystemError::file("read", labs))?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn exists(&self) -> bool {
        self.dir.is_dir()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.dir.join("state.json")
    }

    pub(crate) fn namespace(&self, node: &str) -> PathBuf {
        self.dir.join("ns").join(node)
    }

    pub(crate) fn netns_link(&self, node: &str) -> PathBuf {
        Path::new(NETNS).join(format!("mr-{}-{node}", self.name))
    }

    /// Returns the directory of configuration, logs and sockets of a switch or guest.
    pub(crate) fn node(&self, node: &str) -> PathBuf {
        self.dir.join("switch").join(node)
    }

    /// Creates the lab's directory and locks it; `None` if it exists already.
    pub(crate) fn create(&self) -> Result<Option<Lock>, SystemError> {
        // The removal of another lab may delete the empty parent directory. A `down` of the same lab may
        // delete the new directory.
        let mut lost = io::Error::from(io::ErrorKind::NotFound);
        for _ in 0..=RACES_MAX {
            match create_shared(Path::new(LABS)).and_then(|()| fs::create_dir(&self.dir)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    lost = error;
                    continue;
                }
                Err(source) => return Err(SystemError::file("create", &self.dir)(source)),
            }
            match self.lock(Duration::from_secs(10)) {
                Ok(Some(lock)) => return self.fill(lock).map(Some),
                Ok(None) if self.exists() => return Ok(None),
                Ok(None) => {}
                Err(error) => {
                    let _ = fs::remove_dir(&self.dir);
                    return Err(error);
                }
            }
        }
        Err(SystemError::file("create", &self.dir)(lost))
    }

    /// Creates the directories within the lab's directory. After a failure, removes them again.
    fn fill(&self, lock: Lock) -> Result<Lock, SystemError> {
        for dir in [self.dir.join("ns"), self.dir.join("switch")] {
            if let Err(source) = fs::create_dir(&dir) {
                let _ = self.remove(&lock);
                return Err(SystemError::file("create", &dir)(source));
            }
        }
        Ok(lock)
    }

    /// Locks the lab's directory, waiting at most `timeout`; `None` if another process holds the lock, or if
    /// the directory is removed during the wait.
    pub(crate) fn lock(&self, timeout: Duration) -> Result<Option<Lock>, SystemError> {
        let deadline = Instant::now() + timeout;
        let mut file = match File::open(&self.dir) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(SystemError::file("read", &self.dir)(source)),
        };
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(self.is_the_same(&lock).then_some(Lock { _held: lock })),
                Err((back, nix::errno::Errno::EWOULDBLOCK)) if Instant::now() < deadline => {
                    file = back;
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err((_, nix::errno::Errno::EWOULDBLOCK)) => return Ok(None),
                Err((_, errno)) => return Err(SystemError::file("lock", &self.dir)(errno.into())),
            }
        }
    }

    /// Returns true if the path still leads to the locked directory.
    fn is_the_same(&self, lock: &Flock<File>) -> bool {
        let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
        let held = lock.metadata().map(identity).ok();
        held.is_some() && held == fs::metadata(&self.dir).map(identity).ok()
    }

    /// Removes the lab's directory, and the shared directories that became empty.
    pub(crate) fn remove(&self, _lock: &Lock) -> Result<(), SystemError> {
        match fs::remove_dir_all(&self.dir) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(SystemError::file("remove", &self.dir)(source));
            }
            _ => {}
        }
        // The removal fails for a directory that another lab uses, and for the mount of `ip netns add`.
        for shared in [LABS, NETNS] {
            let _ = fs::remove_dir(shared);
        }
        Ok(())
    }
}

/// Creates a directory that all labs share, unless it exists. `create_dir_all` fails with `AlreadyExists` if another
/// lab removes the directory between its two steps.
pub(crate) fn create_shared(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// The exclusive lock to build or remove a lab; released when dropped, or when the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _held: Flock<File>,
}

#[cfg(test)]
pub(crate) mod tests {
    use std::thread;

    use nix::errno::Errno;
    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};

    use super::*;
    use crate::netns;

    /// The number of labs that each thread creates and removes.
    const LABS_EACH: usize = 2_000;

    /// Runs a test with an empty /run that only the test and its threads see. Without root, prints a line
    /// instead.
    pub(crate) fn apart(test: impl FnOnce() + Send + 'static) {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: a lab needs root");
            return;
        }
        let thread = thread::spawn(|| {
            if unshare(CloneFlags::CLONE_NEWNS) == Err(Errno::EPERM) {
                eprintln!("skipped: no right to make a mount namespace");
                return;
            }
            let slave = MsFlags::MS_REC | MsFlags::MS_SLAVE;
            mount(None::<&str>, "/", None::<&str>, slave, None::<&str>).unwrap();
            mount(
                Some("tmpfs"),
                "/run",
                Some("tmpfs"),
                MsFlags::empty(),
                None::<&str>,
            )
            .unwrap();
            test();
        });
        thread.join().unwrap();
    }

    #[test]
    fn a_shared_directory_is_created_while_others_remove_it() {
        apart(|| {
            let create_and_remove = || {
                for _ in 0..20_000 {
                    create_shared(Path::new(LABS)).unwrap();
                    let _ = fs::remove_dir(LABS);
                }
            };
            thread::scope(|scope| {
                scope.spawn(create_and_remove);
                scope.spawn(create_and_remove);
            });
        });
    }

    #[test]
    fn labs_are_created_while_others_remove_the_shared_directories() {
        apart(|| {
            let create_and_remove = |name: &str| {
                let directory = LabDirectory::of(name);
                for _ in 0..LABS_EACH {
                    let lock = directory.create().unwrap().expect("no other lab has the name");
                    let link = directory.netns_link("h1");
                    netns::link_to(&directory.namespace("h1"), &link).unwrap();
                    fs::remove_file(&link).unwrap();
                    directory.remove(&lock).unwrap();
                }
            };
            thread::scope(|scope| {
                scope.spawn(|| create_and_remove("x-a"));
                scope.spawn(|| create_and_remove("x-b"));
            });
        });
    }
}
