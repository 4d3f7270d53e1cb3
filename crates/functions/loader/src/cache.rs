//! What was loaded already: a file is read again only when it has changed, as what it held stays in memory.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use millrace_nf::Kind;

/// What tells that a file has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    size: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        Stamp {
            size: metadata.len(),
            modified: metadata.modified().ok(),
        }
    }
}

/// Kinds by the files that hold them.
pub(crate) struct Cache(Mutex<BTreeMap<PathBuf, (Stamp, &'static Kind)>>);

impl Cache {
    pub(crate) const fn new() -> Cache {
        Cache(Mutex::new(BTreeMap::new()))
    }

    /// The kind in a file, from here or by `load`, which is given the path and the size of the file.
    pub(crate) fn find(
        &self,
        path: &Path,
        load: impl FnOnce(&Path, u64) -> Result<&'static Kind, String>,
    ) -> Result<&'static Kind, String> {
        let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
        if !path.is_absolute() {
            return Err("expected an absolute path".to_owned());
        }
        let metadata = std::fs::metadata(path).map_err(unreadable)?;
        if !metadata.is_file() {
            return Err("expected a file".to_owned());
        }
        let stamp = Stamp::of(&metadata);
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, kind)) = held.get(path).filter(|(at, _)| *at == stamp) {
            return Ok(kind);
        }
        let kind = load(path, stamp.size)?;
        held.insert(path.to_owned(), (stamp, kind));
        Ok(kind)
    }
}
