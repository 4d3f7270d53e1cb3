//! Removal of a lab in any state.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use crate::directory::{LabDirectory, Lock};
use crate::netlink::Socket;
use crate::netns;
use crate::process::{self, MARK, ProcessId};
use crate::state::{Journal, Resource, State, boot_id};
use crate::system::SystemError;

/// The maximum time that `down` waits for another `up` or `down` of the same lab, and for a process that a killed `up`
/// was starting (it holds the lock until its program is executed).
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of `down`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DownReport {
    /// The name of the lab.
    pub name: String,
    /// True if there was anything to remove.
    pub existed: bool,
    /// The number of terminated processes.
    pub ended: usize,
    /// Processes that run in the lab's namespaces although the lab did not start them. They keep running.
    /// Each keeps its namespace, now without name and links, until the process ends.
    pub foreign_processes: Vec<ForeignProcess>,
}

/// A process in a namespace of the lab that the lab did not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignProcess {
    /// The process.
    pub id: ProcessId,
    /// The name of its program.
    pub command: String,
    /// The node to which the namespace belongs.
    pub node: String,
}

/// Reasons why a lab was not removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DownError {
    /// The caller is not root.
    #[error("removing a lab needs root: run it with sudo")]
    NotRoot,
    /// The caller runs inside the lab.
    #[error("this shell runs in lab `{name}` and would be terminated with it: leave it first")]
    Inside {
        /// The name of the lab.
        name: String,
    },
    /// Another process builds or removes the lab.
    #[error(
        "another process is building or removing lab `{name}`: wait until it ends, or terminate it, and try again"
    )]
    Busy {
        /// The name of the lab.
        name: String,
    },
    /// Processes that SIGKILL does not end.
    #[error(
        "processes {pids:?} hang in the kernel and cannot be terminated: repeat `millrace lab down {name}` after they end"
    )]
    Unkillable {
        /// The name of the lab.
        name: String,
        /// The process ids.
        pids: Vec<i32>,
    },
    /// An operation failed in the operating system.
    #[error(transparent)]
    System(#[from] SystemError),
}

pub(crate) fn down(name: &str) -> Result<DownReport, DownError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(DownError::NotRoot);
    }
    let directory = LabDirectory::of(name);
    let absent = || DownReport {
        name: name.to_owned(),
        ..DownReport::default()
    };
    if !directory.exists() {
        return Ok(absent());
    }
    let Some(lock) = directory.lock(LOCK_TIMEOUT)? else {
        // Another `down` may have removed the lab meanwhile.
        if !directory.exists() {
            return Ok(absent());
        }
        return Err(DownError::Busy {
            name: name.to_owned(),
        });
    };
    let state = Journal::load(&directory)?;
    remove(&directory, state.as_ref(), &lock)
}

/// Removes everything that `state` lists, and the lab's directory. Absent resources are no error.
pub(crate) fn remove(
    directory: &LabDirectory,
    state: Option<&State>,
    lock: &Lock,
) -> Result<DownReport, DownError> {
    let mut report = DownReport {
        name: directory.name().to_owned(),
        existed: true,
        ..DownReport::default()
    };
    if let Some(state) = state {
        if std::env::var(MARK).is_ok_and(|mark| mark == state.mark) {
            return Err(DownError::Inside { name: report.name });
        }
        // After a reboot, the process ids belong to other processes, and all other resources are gone with the old
        // kernel.
        if state.boot == boot_id() {
            report.ended = end_processes(directory.name(), state)?;
            report.foreign_processes = foreign_processes(directory, state);
            remove_links(directory, state)?;
        }
        for resource in &state.resources {
            if let Resource::Namespace { node } = resource {
                netns::remove(directory, node)?;
            }
        }
    }
    directory.remove(lock)?;
    Ok(report)
}

/// Terminates the listed processes and all processes that carry the mark. Repeats this until there are none,
/// because a process may have just started another.
fn end_processes(name: &str, state: &State) -> Result<usize, DownError> {
    let listed = state.resources.iter().filter_map(|resource| match resource {
        Resource::Process { id, .. } => *id,
        _ => None,
    });
    let listed: Vec<ProcessId> = listed.collect();
    let mut ended = 0;
    loop {
        let mut found = process::marked(&state.mark);
        found.extend(listed.iter().filter(|id| id.is_alive()));
        found.sort_by_key(|id| id.pid);
        found.dedup();
        found.retain(|id| id.is_alive());
        if found.is_empty() {
            return Ok(ended);
        }
        let left = process::end(&found);
        if !left.is_empty() {
            let pids = left.iter().map(|id| id.pid).collect();
            return Err(DownError::Unkillable {
                name: name.to_owned(),
                pids,
            });
        }
        ended += found.len();
    }
}

fn foreign_processes(directory: &LabDirectory, state: &State) -> Vec<ForeignProcess> {
    let identity = |path: &std::path::Path| std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    let namespaces = state.resources.iter().filter_map(|resource| match resource {
        Resource::Namespace { node } => Some((identity(&directory.namespace(node))?, node.clone())),
        _ => None,
    });
    let namespaces: HashMap<_, _> = namespaces.collect();
    let node_of = |pid: i32| {
        let own = identity(std::path::Path::new(&format!("/proc/{pid}/ns/net")))?;
        namespaces.get(&own).cloned()
    };
    let inside = process::all(|pid| node_of(pid).is_some()).into_iter();
    let inside = inside.filter_map(|id| {
        Some(ForeignProcess {
            id,
            command: id.command(),
            node: node_of(id.pid)?,
        })
    });
    inside.collect()
}

/// Removes both ends of every link. Otherwise a namespace that a foreign process keeps would also keep its
/// links.
fn remove_links(directory: &LabDirectory, state: &State) -> Result<(), SystemError> {
    for resource in &state.resources {
        if let Resource::Link { node, interface } = resource {
            let namespace = directory.namespace(node);
            // The file is not a namespace: `up` was killed between its creation and the mount.
            if !is_namespace(&namespace) {
                continue;
            }
            netns::within(&namespace, || Socket::open()?.remove(interface))?;
        }
    }
    Ok(())
}

fn is_namespace(path: &std::path::Path) -> bool {
    let file_system = nix::sys::statfs::statfs(path).map(|stat| stat.filesystem_type());
    file_system.is_ok_and(|kind| kind == nix::sys::statfs::NSFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::tests::apart;

    #[test]
    fn a_lab_that_another_down_removes_meanwhile_is_absent_and_not_busy() {
        apart(|| {
            let directory = LabDirectory::of("x-removed");
            let lock = directory.create().unwrap().unwrap();
            std::thread::scope(|scope| {
                let second = scope.spawn(|| down(directory.name()));
                // The second `down` opens the directory, and then waits for the lock.
                while open_files(&directory) < 2 {
                    assert!(!second.is_finished(), "{:?}", second.join());
                    std::thread::yield_now();
                }
                directory.remove(&lock).unwrap();
                drop(lock);
                let report = second.join().unwrap().unwrap();
                assert!(!report.existed, "{report:?}");
            });
        });
    }

    /// Returns the number of open files of this process that refer to the lab's directory.
    fn open_files(directory: &LabDirectory) -> usize {
        let lab = directory.state();
        let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let targets = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        targets
            .filter(|target| Some(target.as_path()) == lab.parent())
            .count()
    }
}
