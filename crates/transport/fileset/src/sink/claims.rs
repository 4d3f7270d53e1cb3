//! The temporary files and journals in use in this process: at most one sink writes each.
//!
//! Their names depend on the key of the sender, so that no sender reaches those of another. One sender may still send a file in two sets
//! at the same time, or a set twice: the second sink is refused. Sinks of other processes are not seen.

use crate::fs::FileIdentity;
use crate::path::RelativePath;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

/// A digest of the directory and of the path below it.
type Name = [u8; 16];

static HELD: LazyLock<Mutex<HashSet<Name>>> = LazyLock::new(Mutex::default);

/// The files that one sink uses; they are free again when it is dropped.
#[derive(Debug)]
pub(super) struct Claims {
    /// The identity of the sink's directory.
    root: FileIdentity,
    /// The claimed name of each file, by its number; `None` is the journal.
    names: HashMap<Option<u32>, Name>,
}

impl Claims {
    pub(super) fn new(root: FileIdentity) -> Claims {
        Claims {
            root,
            names: HashMap::new(),
        }
    }

    /// Claims the journal (`None`) or the temporary file of a file. Returns false if another sink uses it.
    pub(super) fn claim(&mut self, file: Option<u32>, path: &RelativePath) -> bool {
        if self.names.contains_key(&file) {
            return true;
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.root.device.to_le_bytes());
        hasher.update(&self.root.inode.to_le_bytes());
        hasher.update(path.as_bytes());
        let mut name = Name::default();
        hasher.finalize_xof().fill(&mut name);
        let is_free = HELD.lock().insert(name);
        if is_free {
            self.names.insert(file, name);
        }
        is_free
    }

    /// Frees the temporary file of a file.
    pub(super) fn release(&mut self, file: u32) {
        if let Some(name) = self.names.remove(&Some(file)) {
            HELD.lock().remove(&name);
        }
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        let mut held = HELD.lock();
        for name in self.names.values() {
            held.remove(name);
        }
    }
}
