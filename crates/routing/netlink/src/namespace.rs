//! Network namespaces, entered by dedicated threads only: the rest of the process stays in its own.

use core::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use nix::sched::{CloneFlags, setns};
use thiserror::Error;

/// The folder in which `ip netns` keeps named namespaces.
const FOLDER: &str = "/run/netns";

/// A network namespace.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Namespace {
    /// The namespace of this process.
    Own,
    /// The namespace that is mounted at a path.
    Path(PathBuf),
}

/// The device and inode of a namespace, which no other namespace has at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    device: u64,
    inode: u64,
}

/// The reason why work in a namespace failed.
#[derive(Debug, Error)]
pub enum NamespaceError {
    /// There is no such namespace, or it cannot be entered.
    #[error("namespace {namespace} cannot be entered: {source}. To fix it: {next_step}")]
    Enter {
        namespace: Namespace,
        source: io::Error,
        next_step: String,
    },
    /// The work itself failed.
    #[error("namespace {namespace}: {doing}: {source}")]
    Failed {
        namespace: Namespace,
        doing: &'static str,
        source: io::Error,
    },
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Namespace::Own => f.write_str("of this process"),
            Namespace::Path(path) => match path.strip_prefix(FOLDER) {
                Ok(name) => write!(f, "{}", name.display()),
                Err(_) => write!(f, "{}", path.display()),
            },
        }
    }
}

impl Namespace {
    /// Returns the namespace with this name, as `ip netns` names it.
    pub fn named(name: &str) -> Namespace {
        Namespace::Path(Path::new(FOLDER).join(name))
    }

    /// Returns the path at which the namespace is mounted; `None` for that of this process.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Namespace::Own => None,
            Namespace::Path(path) => Some(path),
        }
    }

    fn path(&self) -> &Path {
        self.file().unwrap_or(Path::new("/proc/self/ns/net"))
    }

    /// Returns the namespace that the path leads to now; `None` if it leads to none.
    ///
    /// A socket keeps its namespace alive after `ip netns del`, so that only a comparison of identities shows that the
    /// namespace of a name is gone, or another one has the name.
    pub fn identity(&self) -> Option<Identity> {
        let found = self.path().metadata().ok()?;
        Some(Identity {
            device: found.dev(),
            inode: found.ino(),
        })
    }

    /// Starts a thread in the namespace. `begin` runs there first, and this function waits for it; `run` runs after it with its
    /// value.
    ///
    /// # Errors
    /// Returns [`NamespaceError`] if the namespace cannot be entered, or `begin` fails.
    pub fn spawn<T: 'static, R: Send + 'static>(
        &self,
        name: String,
        begin: impl FnOnce() -> Result<T, (&'static str, io::Error)> + Send + 'static,
        run: impl FnOnce(T) -> R + Send + 'static,
    ) -> Result<JoinHandle<Option<R>>, NamespaceError> {
        let failed = |doing, source| NamespaceError::Failed {
            namespace: self.clone(),
            doing,
            source,
        };
        let (report, reported) = std::sync::mpsc::sync_channel(1);
        let namespace = self.clone();
        let thread = thread::Builder::new().name(name).spawn(move || {
            let begun = namespace.enter().and_then(|()| {
                begin().map_err(|(doing, source)| NamespaceError::Failed {
                    namespace: namespace.clone(),
                    doing,
                    source,
                })
            });
            // The receiver waits for this one message, so that sending it does not fail.
            match begun {
                Ok(value) => {
                    let _sent = report.send(Ok(()));
                    Some(run(value))
                }
                Err(error) => {
                    let _sent = report.send(Err(error));
                    None
                }
            }
        });
        let thread = thread.map_err(|source| failed("start a thread", source))?;
        match reported.recv() {
            Ok(result) => result.map(|()| thread),
            Err(_) => Err(failed("start a thread", io::Error::other("it ended at once"))),
        }
    }

    /// Runs `work` on a thread in the namespace, and returns its value.
    ///
    /// # Errors
    /// Returns [`NamespaceError`] if the namespace cannot be entered, or `work` fails.
    pub fn within<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, NamespaceError> {
        let begin = move || work().map_err(|source| (doing, source));
        let thread = self.spawn("netns".to_owned(), begin, |value| value)?;
        let value = thread.join().ok().flatten();
        value.ok_or_else(|| NamespaceError::Failed {
            namespace: self.clone(),
            doing,
            source: io::Error::other("the thread panicked"),
        })
    }

    fn enter(&self) -> Result<(), NamespaceError> {
        let Namespace::Path(path) = self else {
            return Ok(());
        };
        let entered =
            File::open(path).and_then(|file| setns(file, CloneFlags::CLONE_NEWNET).map_err(io::Error::from));
        entered.map_err(|source| {
            let next_step = match source.kind() {
                io::ErrorKind::NotFound => format!("ip netns add {self}"),
                io::ErrorKind::PermissionDenied => "start millraced with CAP_SYS_ADMIN".to_owned(),
                _ => format!("see if it is a network namespace: ls -l {}", path.display()),
            };
            NamespaceError::Enter {
                namespace: self.clone(),
                source,
                next_step,
            }
        })
    }
}
