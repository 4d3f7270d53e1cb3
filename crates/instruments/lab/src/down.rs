//! Removing a lab, whatever state it is in.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use crate::netlink::Socket;
use crate::netns;
use crate::place::{Lock, Place};
use crate::process::{self, MARK, ProcessId};
use crate::state::{Journal, Resource, State, boot_id};
use crate::system::SystemError;

/// How long `down` waits for another `up` or `down` of the same lab, and for what a killed `up` was just
/// starting (that holds the lock until it is started).
const PATIENCE: Duration = Duration::from_secs(5);

/// What `down` found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DownReport {
    /// The lab's name.
    pub name: String,
    /// Whether there was anything to remove.
    pub existed: bool,
    /// Processes that were ended.
    pub ended: usize,
    /// Processes in the lab's namespaces that the lab did not start, left alone; each keeps its namespace,
    /// now nameless and without links, until it ends.
    pub strangers: Vec<Stranger>,
}

/// A process in a namespace of the lab that the lab did not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stranger {
    /// The process.
    pub id: ProcessId,
    /// Its program.
    pub command: String,
    /// The node in whose namespace it is.
    pub node: String,
}

/// Why a lab is not gone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DownError {
    /// Namespaces and links are root's.
    #[error("removing a lab needs root: run it with sudo")]
    NotRoot,
    /// The caller is part of the lab.
    #[error("this shell runs in lab `{name}` and would be ended with it: leave it first")]
    Inside {
        /// The lab.
        name: String,
    },
    /// Another process builds or removes it.
    #[error("somebody is building or removing lab `{name}`: wait for that, or end it, and try again")]
    Busy {
        /// The lab.
        name: String,
    },
    /// Processes that SIGKILL does not end.
    #[error(
        "processes {pids:?} hang in the kernel and cannot be ended: `millrace lab down {name}` again when they are gone"
    )]
    Unkillable {
        /// The lab.
        name: String,
        /// Their numbers.
        pids: Vec<i32>,
    },
    /// The operating system refuses something.
    #[error(transparent)]
    System(#[from] SystemError),
}

pub(crate) fn down(name: &str) -> Result<DownReport, DownError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(DownError::NotRoot);
    }
    let place = Place::of(name);
    if !place.exists() {
        return Ok(DownReport {
            name: name.to_owned(),
            ..DownReport::default()
        });
    }
    let Some(lock) = place.lock(PATIENCE)? else {
        return Err(DownError::Busy {
            name: name.to_owned(),
        });
    };
    let state = Journal::load(&place)?;
    remove(&place, state.as_ref(), &lock)
}

/// Removes everything that `state` lists, and the lab's directory. Bears with everything that is not there.
pub(crate) fn remove(place: &Place, state: Option<&State>, lock: &Lock) -> Result<DownReport, DownError> {
    let mut report = DownReport {
        name: place.name().to_owned(),
        existed: true,
        ..DownReport::default()
    };
    if let Some(state) = state {
        if std::env::var(MARK).is_ok_and(|mark| mark == state.mark) {
            return Err(DownError::Inside { name: report.name });
        }
        // After another boot the numbers are other processes', and all else is gone with the old kernel.
        if state.boot == boot_id() {
            report.ended = end_processes(place.name(), state)?;
            report.strangers = strangers(place, state);
            remove_links(place, state)?;
        }
        for resource in &state.resources {
            if let Resource::Namespace { node } = resource {
                netns::remove(place, node)?;
            }
        }
    }
    place.remove(lock)?;
    Ok(report)
}

/// Ends the listed processes and all that carry the mark, until there are none: one may just have started
/// another.
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

fn strangers(place: &Place, state: &State) -> Vec<Stranger> {
    let identity = |path: &std::path::Path| std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    let namespaces = state.resources.iter().filter_map(|resource| match resource {
        Resource::Namespace { node } => Some((identity(&place.namespace(node))?, node.clone())),
        _ => None,
    });
    let namespaces: HashMap<_, _> = namespaces.collect();
    let node_of = |pid: i32| {
        let own = identity(std::path::Path::new(&format!("/proc/{pid}/ns/net")))?;
        namespaces.get(&own).cloned()
    };
    let inside = process::all(|pid| node_of(pid).is_some()).into_iter();
    let inside = inside.filter_map(|id| {
        Some(Stranger {
            id,
            command: id.command(),
            node: node_of(id.pid)?,
        })
    });
    inside.collect()
}

/// Removes the links themselves, which at once takes both ends; a namespace that a stranger keeps would keep
/// them.
fn remove_links(place: &Place, state: &State) -> Result<(), SystemError> {
    for resource in &state.resources {
        if let Resource::Link { node, interface } = resource {
            let namespace = place.namespace(node);
            // Not a namespace: `up` died between making the file and mounting on it.
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
