//! What a lab has made, written down *before* it is made, so that `down` finds it whenever `up` may die.
//!
//! The file is replaced as a whole (write, then rename), so that it is either the old or the new list. A
//! resource on the list may not exist yet, or no longer; removing it must bear with that.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

use crate::place::Place;
use crate::process::ProcessId;
use crate::system::SystemError;

/// Everything that is known of a lab after `up` has returned or died.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct State {
    /// The lab's mark: every process of the lab has it in its environment (see [`crate::process`]).
    pub(crate) mark: String,
    /// The boot in which the lab was made; after another boot only the files can be left.
    pub(crate) boot: String,
    /// Whether `up` has finished.
    pub(crate) complete: bool,
    /// For `run` and `status`.
    pub(crate) nodes: Vec<NodeRecord>,
    /// In the order in which they were made.
    pub(crate) resources: Vec<Resource>,
}

/// The kind of a host that is a namespace.
pub(crate) const HOST: &str = "host";
/// The kind of a host that is a virtual machine.
pub(crate) const GUEST: &str = "guest";

/// What `run` and `status` say of a host or switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its name in the lab.
    pub name: String,
    /// `host`, `guest`, or the kind of switch.
    pub kind: String,
    /// The name under which `ip netns` knows it.
    pub namespace: String,
    /// `eth0 10.0.0.1/24` for a host, `1 h1` (number and interface) for a switch.
    pub interfaces: Vec<String>,
    /// What commands in this node's namespace find in their environment.
    pub environment: Vec<(String, String)>,
}

/// Something that outlives the process that made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Resource {
    /// The namespace of a node, with its mount and its link in `/run/netns`.
    Namespace { node: String },
    /// A veth pair, by its first end.
    Link { node: String, interface: String },
    /// A process. No `id`: it was about to be started.
    Process {
        switch: String,
        role: String,
        id: Option<ProcessId>,
    },
}

/// The state of a lab with the file in which it stands.
#[derive(Debug)]
pub(crate) struct Journal {
    place: Place,
    pub(crate) state: State,
}

impl Journal {
    /// A journal whose file is written with the first [`Journal::save`].
    pub(crate) fn new(place: Place, state: State) -> Journal {
        Journal { place, state }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Writes down that `resource` is about to be made.
    pub(crate) fn record(&mut self, resource: Resource) -> Result<(), SystemError> {
        self.state.resources.push(resource);
        self.save()
    }

    /// Writes down which process the last recorded one has become.
    pub(crate) fn started(&mut self, started: ProcessId) -> Result<(), SystemError> {
        if let Some(Resource::Process { id, .. }) = self.state.resources.last_mut() {
            *id = Some(started);
        }
        self.save()
    }

    pub(crate) fn save(&self) -> Result<(), SystemError> {
        let path = self.place.state();
        let text = serde_json::to_vec_pretty(&self.state).map_err(io::Error::from);
        let text = text.map_err(SystemError::file("write", &path))?;
        let new = path.with_extension("new");
        fs::write(&new, text).map_err(SystemError::file("write", &new))?;
        fs::rename(&new, &path).map_err(SystemError::file("write", &path))
    }

    /// The state of the lab at `place`; `None` if `up` died before it wrote any.
    pub(crate) fn load(place: &Place) -> Result<Option<State>, SystemError> {
        let path = place.state();
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

/// The identifier of the running boot.
pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}
