//! Journal of a lab's resources: each is recorded *before* it is created, so that `down` finds it whenever `up` is
//! killed.
//!
//! ```text
//!  record(resource) ──▶ create it ──▶ started(process id)
//!         │                 │
//!    kill here: listed, absent    kill here: listed, present; `down` handles both
//! ```
//!
//! The file is replaced atomically (write, then rename). A listed resource may not exist yet, or no longer; removal
//! treats both as success.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

use crate::directory::LabDirectory;
use crate::process::ProcessId;
use crate::system::SystemError;

/// The recorded state of a lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct State {
    /// The mark of the lab, which every process of the lab has in its environment (see [`crate::process`]).
    pub(crate) mark: String,
    /// The boot id at the creation of the lab; after a reboot only the files can remain.
    pub(crate) boot: String,
    /// True if `up` has finished.
    pub(crate) complete: bool,
    /// The hosts and switches, for `run` and `status`.
    pub(crate) nodes: Vec<NodeRecord>,
    /// The resources in the order of their creation.
    pub(crate) resources: Vec<Resource>,
}

/// The kind of a host that is a namespace.
pub(crate) const HOST: &str = "host";
/// The kind of a host that is a virtual machine.
pub(crate) const GUEST: &str = "guest";

/// The record of a host or switch for `run` and `status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// The name in the lab.
    pub name: String,
    /// `host`, `guest`, or the kind of switch.
    pub kind: String,
    /// The name for `ip netns`.
    pub namespace: String,
    /// `eth0 10.0.0.1/24` for a host, `1 h1` (number and interface) for a switch.
    pub interfaces: Vec<String>,
    /// The environment variables of commands in this node's namespace.
    pub environment: Vec<(String, String)>,
}

/// A resource that outlives the process that creates it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Resource {
    /// The namespace of a node, with its mount and its link in `/run/netns`.
    Namespace { node: String },
    /// A veth pair, identified by its first end.
    Link { node: String, interface: String },
    /// A process; without `id`, it was about to be started.
    Process {
        switch: String,
        role: String,
        id: Option<ProcessId>,
    },
}

/// The state of a lab and the file that holds it.
#[derive(Debug)]
pub(crate) struct Journal {
    directory: LabDirectory,
    pub(crate) state: State,
}

impl Journal {
    /// Returns a journal. The first [`Journal::save`] writes its file.
    pub(crate) fn new(directory: LabDirectory, state: State) -> Journal {
        Journal { directory, state }
    }

    pub(crate) fn directory(&self) -> &LabDirectory {
        &self.directory
    }

    /// Records that `resource` is about to be created.
    pub(crate) fn record(&mut self, resource: Resource) -> Result<(), SystemError> {
        self.state.resources.push(resource);
        self.save()
    }

    /// Records the process id of the last recorded process.
    pub(crate) fn started(&mut self, started: ProcessId) -> Result<(), SystemError> {
        if let Some(Resource::Process { id, .. }) = self.state.resources.last_mut() {
            *id = Some(started);
        }
        self.save()
    }

    pub(crate) fn save(&self) -> Result<(), SystemError> {
        let path = self.directory.state();
        let text = serde_json::to_vec_pretty(&self.state).map_err(io::Error::from);
        let text = text.map_err(SystemError::file("write", &path))?;
        let new = path.with_extension("new");
        fs::write(&new, text).map_err(SystemError::file("write", &new))?;
        fs::rename(&new, &path).map_err(SystemError::file("write", &path))
    }

    /// Returns the state of the lab in a directory; `None` if `up` was killed before the first write.
    pub(crate) fn load(directory: &LabDirectory) -> Result<Option<State>, SystemError> {
        let path = directory.state();
        match fs::read(&path) {
            Ok(text) => {
                let state = serde_json::from_slice(&text).map_err(io::Error::from);
                state.map(Some).map_err(SystemError::file("read", &path))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(SystemError::file("read", &path)(source)),
        }
    }
}

/// Returns the id of the current boot.
pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}
