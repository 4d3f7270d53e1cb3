//! The directory of the kept states: one file for each bridge.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use millrace_datapath::io::Backend;
use millrace_types::Duration;
use parking_lot::Mutex;

use super::file::{decode_file, encode_file};
use super::kept::{Captured, Kept};
use super::state::{Restored, capture, restore};
use crate::control::BridgeHandle;

/// The extension of a file.
const EXTENSION: &str = "flows";

/// The result of a save.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    pub file: PathBuf,
    /// The number of flow entries.
    pub flows: usize,
    /// The number of groups.
    pub groups: usize,
    /// The number of meters.
    pub meters: usize,
}

/// Saves the states of bridges in a directory, and restores each once, at the start of the switch.
#[derive(Debug)]
pub struct Keeper {
    directory: PathBuf,
    /// The bridges whose state is not restored yet.
    pending: Mutex<BTreeSet<String>>,
    /// Held during a save: saves of one bridge at the same time would disturb each other.
    saving: Mutex<()>,
    /// The bridges whose state could not be restored, and the reasons.
    refused: Mutex<BTreeMap<String, String>>,
}

impl Keeper {
    /// Returns the keeper of a directory, which the first save creates. With `restores`, the states in it are those to
    /// restore.
    pub fn new(directory: PathBuf, restores: bool) -> Keeper {
        let pending = match restores {
            true => names(&directory),
            false => BTreeSet::new(),
        };
        Keeper {
            directory,
            pending: Mutex::new(pending),
            saving: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    fn path(&self, bridge: &str) -> PathBuf {
        self.directory.join(format!("{bridge}.{EXTENSION}"))
    }

    /// Restores the state of a bridge that was just started, if a file of it is left. A file that cannot be used is
    /// renamed to `*.refused`; the bridge starts without it.
    pub(crate) fn restore<B: Backend>(&self, bridge: &str, handle: &BridgeHandle<B>) {
        if !self.pending.lock().remove(bridge) {
            return;
        }
        let path = self.path(bridge);
        match self.try_restore(bridge, &path, handle) {
            Ok((restored, saved)) => {
                let Restored {
                    flows,
                    groups,
                    meters,
                    expired,
                } = restored;
                tracing::info!(bridge, flows, groups, meters, expired, saved_seconds_ago = saved.as_secs(),
                    file = %path.display(), "flow entries restored");
            }
            Err(reason) => {
                let aside = path.with_extension(format!("{EXTENSION}.refused"));
                let kept_as = match fs::rename(&path, &aside) {
                    Ok(()) => aside,
                    Err(_) => path.clone(),
                };
                tracing::warn!(bridge, file = %kept_as.display(), reason,
                    "the saved flow entries are refused: the bridge starts without them");
                let text = format!(
                    "the flow entries saved in {} are refused, and the bridge started without them: {reason}. To fix it: let \
                     its controllers add them again, then run `millrace flow save {bridge}`, which ends this message",
                    kept_as.display()
                );
                self.refused.lock().insert(bridge.to_owned(), text);
            }
        }
    }

    fn try_restore<B: Backend>(
        &self,
        bridge: &str,
        path: &Path,
        handle: &BridgeHandle<B>,
    ) -> Result<(Restored, Duration), String> {
        let bytes = fs::read(path).map_err(|error| format!("it cannot be read: {error}"))?;
        let kept: Kept = decode_file(&bytes).map_err(|error| error.to_string())?;
        if kept.bridge != bridge {
            return Err(format!("it was saved for the bridge `{}`", kept.bridge));
        }
        // A clock that was set back makes the time since the save unknown, not negative.
        let away = Duration::from_nanos(unix_nanos().saturating_sub(kept.saved_unix_nanos));
        let restored = handle
            .call_blocking(move |control| restore(control, kept, away))
            .map_err(|error| error.to_string())??;
        Ok((restored, away))
    }

    /// Ends the restoration: bridges that are added later start empty.
    pub(crate) fn end_restoration(&self, started: impl Fn(&str) -> bool) {
        self.pending.lock().retain(|bridge| started(bridge));
    }

    /// Returns the bridges whose state could not be restored, and the reasons.
    pub(crate) fn refused(&self) -> BTreeMap<String, String> {
        self.refused.lock().clone()
    }

    /// Saves the state of a bridge; `None` if the bridge was removed. Must not be called from an async task.
    ///
    /// # Errors
    /// The error of the file system; the file before stays.
    pub(crate) fn save<B: Backend>(&self, handle: &BridgeHandle<B>) -> Option<io::Result<Saved>> {
        let _saving = self.saving.lock();
        let state = capture(handle).ok()?;
        Some(self.write(&state))
    }

    fn write(&self, state: &Captured) -> io::Result<Saved> {
        let bytes = encode_file(state, unix_nanos());
        let file = self.path(&state.bridge);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)?;
        millrace_durable::replace(&file, &bytes, millrace_durable::PRIVATE)?;
        self.refused.lock().remove(&state.bridge);
        Ok(Saved {
            file,
            flows: state.flows.len(),
            groups: state.groups.len(),
            meters: state.meters.len(),
        })
    }

    /// Removes the files of all bridges but those that `is_kept` selects: their state is out of date.
    pub(crate) fn retain(&self, is_kept: impl Fn(&str) -> bool) {
        for bridge in names(&self.directory).iter().filter(|bridge| !is_kept(bridge)) {
            let file = self.path(bridge);
            if let Err(error) = fs::remove_file(&file) {
                tracing::warn!(file = %file.display(), %error, "out-of-date flow entries cannot be removed");
            }
        }
    }
}

/// Returns the names of the bridges with a file in the directory.
fn names(directory: &Path) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return BTreeSet::new();
    };
    let name = |entry: io::Result<fs::DirEntry>| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        Some(name.strip_suffix(&format!(".{EXTENSION}"))?.to_owned())
    };
    entries.filter_map(name).collect()
}

fn unix_nanos() -> u64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX)
}
