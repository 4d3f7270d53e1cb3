//! Quotas: limits on the bytes and the entries in the directory of a grant.
//!
//! A transfer reserves the size in its manifest before a byte arrives. If two transfers fit one by one, but
//! not together, the second one is refused at once. Written bytes are counted against the present quota,
//! since an operator may lower it during a transfer. A transfer that hits the quota keeps its temporary
//! files, and continues from them after the quota was raised.
//!
//! ```text
//!   used     = entries in the directory now, less those of sets in transfer  +  what those sets have written
//!   reserved = the same entries  +  for each set, the larger one of its claim and of its entries now
//!   claim    = for each file of a set, the larger one of its size in the directory and of its size in the manifest
//! ```
//!
//! A file that a set replaces counts until it is replaced: a peer that announces a small version, and never sends it, gains no room.
//! A file with several names counts once.
//!
//! ```text
//!   census   held while a set begins or ends; the directory is walked meanwhile, if it has a quota
//!   state    held for a moment only: writes, status and metrics do not wait for a walk
//! ```
//!
//! Without a quota, the directory is walked only at the start. After that, the changes of transfers are added
//! and subtracted.

use crate::size::ByteSize;
use millrace_courier::RefuseCode;
use millrace_courier::files::{FilesError, OpenError, Requests, Sink, SinkEvent, Store, Value};
use millrace_courier::identity::PublicKey;
use millrace_courier::local::{LocalStore, PlaceOptions};
use millrace_fileset::entry::EntryKind;
use millrace_fileset::fs::{FileIdentity, FileSystem, Root};
use millrace_fileset::sink::{journal_path, temporary_path};
use millrace_fileset::{Manifest, ManifestLimits, ManifestReader, RelativePath};
use millrace_transport::extent::Layout;
use millrace_transport::ranges::RangeSet;
use millrace_types::Time;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes and entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
}

impl Usage {
    fn plus(self, other: Usage) -> Usage {
        Usage {
            bytes: self.bytes.saturating_add(other.bytes),
            entries: self.entries.saturating_add(other.entries),
        }
    }

    fn minus(self, other: Usage) -> Usage {
        Usage {
            bytes: self.bytes.saturating_sub(other.bytes),
            entries: self.entries.saturating_sub(other.entries),
        }
    }

    /// Returns the larger number of each kind.
    fn max(self, other: Usage) -> Usage {
        Usage {
            bytes: self.bytes.max(other.bytes),
            entries: self.entries.max(other.entries),
        }
    }

    /// Returns the usage of an entry. `counted`: the files with several names that were counted before.
    fn of(metadata: &fs::Metadata, counted: &mut Inodes) -> Usage {
        let is_known =
            metadata.is_file() && metadata.nlink() > 1 && !counted.insert((metadata.dev(), metadata.ino()));
        let allocated = metadata.blocks().saturating_mul(512);
        Usage {
            // Holes use no space, and preallocated space is used.
            bytes: if metadata.is_file() && !is_known {
                allocated.min(metadata.len())
            } else {
                0
            },
            entries: 1,
        }
    }
}

/// Device and inode numbers of files.
type Inodes = HashSet<(u64, u64)>;

/// The limits of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Quota {
    pub(crate) bytes: Option<u64>,
    pub(crate) entries: Option<u64>,
}

impl Quota {
    fn is_limited(&self) -> bool {
        self.bytes.is_some() || self.entries.is_some()
    }

    fn holds(&self, usage: Usage) -> bool {
        self.bytes.is_none_or(|bytes| usage.bytes <= bytes)
            && self.entries.is_none_or(|entries| usage.entries <= entries)
    }

    /// Returns the used part of the quota as text, for errors.
    fn state(&self, used: Usage) -> String {
        let mut parts = Vec::new();
        if let Some(bytes) = self.bytes {
            parts.push(format!("{} of {}", ByteSize(used.bytes), ByteSize(bytes)));
        }
        if let Some(entries) = self.entries {
            parts.push(format!("{} of {entries} files", used.entries));
        }
        parts.join(" and ")
    }
}

/// A set of files in transfer.
#[derive(Debug)]
struct Reservation {
    /// The paths of its files and temporary files below the directory of the grant.
    paths: Arc<[RelativePath]>,
    /// The maximum usage of the set during the transfer, whichever of its files have been replaced.
    claim: Usage,
    /// The bytes that the manifest announces.
    announced: u64,
    written: Usage,
}

#[derive(Debug, Default)]
struct State {
    quota: Quota,
    /// The entries that belong to no set in transfer.
    others: Usage,
    reservations: BTreeMap<u64, Reservation>,
    next: u64,
}

impl State {
    fn used(&self) -> Usage {
        let written = self.reservations.values().map(|reservation| reservation.written);
        written.fold(self.others, Usage::plus)
    }

    /// Returns the paths and claims of the sets in transfer, without set `number`.
    fn sets_but(&self, number: Option<u64>) -> Vec<(Arc<[RelativePath]>, Usage)> {
        let sets = self
            .reservations
            .iter()
            .filter(|(other, _)| Some(**other) != number);
        sets.map(|(_, set)| (Arc::clone(&set.paths), set.claim)).collect()
    }
}

/// The usage of a directory.
#[derive(Debug)]
pub(crate) struct Ledger {
    grant: String,
    directory: PathBuf,
    /// Held while a set begins or ends.
    census: Mutex<()>,
    state: Mutex<State>,
}

impl Ledger {
    /// Returns the ledger of a directory, after counting the directory's entries.
    pub(crate) fn new(grant: &str, directory: &Path, quota: Quota) -> Ledger {
        let state = State {
            quota,
            others: count(directory, &HashSet::new()),
            ..State::default()
        };
        Ledger {
            grant: grant.to_owned(),
            directory: directory.to_owned(),
            census: Mutex::default(),
            state: Mutex::new(state),
        }
    }

    /// Sets the quota; running transfers are checked against it at their next write.
    pub(crate) fn set_quota(&self, quota: Quota) {
        let before = std::mem::replace(&mut self.state.lock().quota, quota);
        if quota.is_limited() && !before.is_limited() {
            let _census = self.census.lock();
            let sets = self.state.lock().sets_but(None);
            let others = count(&self.directory, &paths_of(&sets));
            self.state.lock().others = others;
        }
    }

    /// Returns the usage of the directory.
    pub(crate) fn used(&self) -> Usage {
        self.state.lock().used()
    }

    /// Returns the usage of the entries at these paths.
    fn present<'a>(&self, paths: impl IntoIterator<Item = &'a RelativePath>) -> Usage {
        let Ok(root) = Root::open(&self.directory) else {
            return Usage::default();
        };
        let mut counted = Inodes::new();
        let found = paths
            .into_iter()
            .filter_map(|path| self.usage(&root, path, &mut counted));
        found.fold(Usage::default(), Usage::plus)
    }

    /// Returns the usage of those entries of a set that belong to no other set.
    fn present_apart(&self, paths: &[RelativePath], sets: &[(Arc<[RelativePath]>, Usage)]) -> Usage {
        let others = paths_of(sets);
        self.present(paths.iter().filter(|path| !others.contains(path.as_bytes())))
    }

    /// Returns the usage of the entry at a path, if there is one. `root` is the directory. A symlink in the middle of the path is
    /// not followed: an entry outside of the directory is no part of its usage, and must not be subtracted from it.
    fn usage(&self, root: &Root, path: &RelativePath, counted: &mut Inodes) -> Option<Usage> {
        let identity = root.metadata(path).ok()?.identity;
        let path = self.directory.join(OsStr::from_bytes(path.as_bytes()));
        let metadata = fs::symlink_metadata(path).ok()?;
        // `metadata` follows symlinks, and the call before does not: the path must lead to one inode in both.
        let followed = FileIdentity {
            device: metadata.dev(),
            inode: metadata.ino(),
        };
        (identity == followed).then(|| Usage::of(&metadata, counted))
    }

    /// Reserves room for a set below a path.
    fn reserve(
        self: &Arc<Self>,
        below: &RelativePath,
        sender: PublicKey,
        manifest: &Manifest,
    ) -> Result<Reserved, FilesError> {
        let join = |path: &RelativePath| {
            let joined = below.join(path.as_bytes());
            joined.map_err(|error| FilesError(error.to_string()))
        };
        let root = Root::open(&self.directory).ok();
        let (mut paths, mut counted) = (Vec::new(), Inodes::new());
        let (mut claimed, mut announced) = (0_u64, 0_u64);
        for entry in manifest.entries() {
            let path = join(&entry.path)?;
            let size = match &entry.kind {
                EntryKind::File(content) => content.data_len(),
                _ => 0,
            };
            let old = root
                .as_ref()
                .and_then(|root| self.usage(root, &path, &mut counted))
                .unwrap_or_default();
            claimed = claimed.saturating_add(size.max(old.bytes));
            announced = announced.saturating_add(size);
            paths.push(path);
        }
        for file in 0..manifest.files() {
            paths.push(join(&temporary_path(manifest, file, sender.bytes()))?);
        }
        paths.push(join(&journal_path(manifest, sender.bytes()))?);
        let claim = Usage {
            bytes: claimed,
            entries: manifest.entries().len() as u64,
        };
        let _census = self.census.lock();
        let (is_limited, sets) = {
            let state = self.state.lock();
            (state.quota.is_limited(), state.sets_but(None))
        };
        let (others, wanted) = if is_limited {
            let mut known = paths_of(&sets);
            known.extend(paths.iter().map(RelativePath::as_bytes));
            let others = count(&self.directory, &known);
            // A set that has ended meanwhile may have written the same paths.
            let wanted = sets
                .iter()
                .map(|(paths, claim)| claim.max(self.present(&**paths)));
            (others, wanted.fold(others, Usage::plus))
        } else {
            let own = self.present_apart(&paths, &sets);
            (self.state.lock().others.minus(own), Usage::default())
        };
        let mut state = self.state.lock();
        state.others = others;
        if is_limited && !state.quota.holds(wanted.plus(claim)) {
            return Err(FilesError(format!(
                "quota of grant `{}`: {} and {} files more do not fit, {} are used or reserved; remove files there, or ask the \
                 operator to raise the quota, and run the same command again",
                self.grant,
                ByteSize(claim.bytes),
                claim.entries,
                state.quota.state(wanted)
            )));
        }
        let number = state.next;
        state.next += 1;
        let reservation = Reservation {
            paths: paths.into(),
            claim,
            announced,
            written: Usage {
                bytes: 0,
                entries: claim.entries,
            },
        };
        state.reservations.insert(number, reservation);
        Ok(Reserved {
            ledger: Arc::clone(self),
            number,
        })
    }
}

/// Returns the paths of sets, as bytes.
fn paths_of(sets: &[(Arc<[RelativePath]>, Usage)]) -> HashSet<&[u8]> {
    let paths = sets.iter().flat_map(|(paths, _)| paths.iter());
    paths.map(RelativePath::as_bytes).collect()
}

/// Returns the usage of the entries below a directory, without those at the paths `but`. An entry that
/// vanishes or may not be read does not count.
fn count(directory: &Path, but: &HashSet<&[u8]>) -> Usage {
    let (mut usage, mut counted) = (Usage::default(), Inodes::new());
    let mut stack = vec![Vec::new()];
    while let Some(below) = stack.pop() {
        let at = directory.join(OsStr::from_bytes(&below));
        for entry in fs::read_dir(at).into_iter().flatten().flatten() {
            // The metadata of a symlink are those of the link itself.
            let Ok(metadata) = entry.metadata() else { continue };
            let name = entry.file_name();
            let path = if below.is_empty() {
                name.as_bytes().to_vec()
            } else {
                [&below, &b"/"[..], name.as_bytes()].concat()
            };
            if !but.contains(&*path) {
                usage = usage.plus(Usage::of(&metadata, &mut counted));
            }
            if metadata.is_dir() {
                stack.push(path);
            }
        }
    }
    usage
}

/// Room that is reserved until it is dropped.
#[derive(Debug)]
struct Reserved {
    ledger: Arc<Ledger>,
    number: u64,
}

impl Reserved {
    /// Counts bytes of the set that arrive.
    fn write(&self, bytes: u64) -> Result<(), FilesError> {
        let mut state = self.ledger.state.lock();
        if let Some(reservation) = state.reservations.get_mut(&self.number) {
            // Bytes that are sent again after a wrong digest replace earlier ones.
            let written = reservation.written.bytes.saturating_add(bytes);
            reservation.written.bytes = written.min(reservation.announced);
        }
        let used = state.used();
        if state.quota.holds(used) {
            return Ok(());
        }
        Err(FilesError(format!(
            "quota of grant `{}` reached: {} are used; what arrived is kept: ask the operator to raise the quota, and run the \
             same command again",
            self.ledger.grant,
            state.quota.state(used)
        )))
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let ledger = &self.ledger;
        let _census = ledger.census.lock();
        let (is_limited, own, sets) = {
            let state = ledger.state.lock();
            let own = state.reservations.get(&self.number);
            let own = own.map(|reservation| Arc::clone(&reservation.paths));
            (state.quota.is_limited(), own, state.sets_but(Some(self.number)))
        };
        // The set counts as in transfer until its entries count among the others.
        let others = if is_limited {
            count(&ledger.directory, &paths_of(&sets))
        } else {
            let own = ledger.present_apart(own.as_deref().unwrap_or_default(), &sets);
            ledger.state.lock().others.plus(own)
        };
        let mut state = ledger.state.lock();
        state.reservations.remove(&self.number);
        state.others = others;
    }
}

/// The store of one transfer to a grant.
pub(crate) struct QuotaStore {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) path: RelativePath,
    pub(crate) options: PlaceOptions,
}

impl Store for QuotaStore {
    fn open(
        &self,
        sender: PublicKey,
        manifest: &[u8],
        requests: Requests,
    ) -> Result<Box<dyn Sink>, OpenError> {
        let failed = |error: millrace_fileset::ManifestError| FilesError(error.to_string());
        let mut reader = ManifestReader::new(ManifestLimits::default());
        reader.feed(manifest).map_err(failed)?;
        let set = reader.finish().map_err(failed)?;
        let reserved = self.ledger.reserve(&self.path, sender, &set);
        let reserved = reserved.map_err(|error| OpenError {
            code: RefuseCode::Quota,
            error,
        })?;
        drop(set);
        let store = LocalStore::below(&self.ledger.directory, self.path.clone(), self.options);
        let sink = store.open(sender, manifest, requests)?;
        Ok(Box::new(QuotaSink { sink, reserved }))
    }
}

/// A sink that counts its bytes against a quota.
struct QuotaSink {
    sink: Box<dyn Sink>,
    reserved: Reserved,
}

impl Sink for QuotaSink {
    fn layout(&self) -> Layout {
        self.sink.layout()
    }

    fn poll_have(&mut self) -> Result<Option<(u64, Value)>, FilesError> {
        self.sink.poll_have()
    }

    fn keep(&mut self, extent: u64) -> Result<(), FilesError> {
        self.sink.keep(extent)
    }

    fn start(&mut self) -> Result<(), FilesError> {
        self.sink.start()?;
        let layout = self.sink.layout();
        let verified = self.sink.verified();
        let bytes = verified.ranges().iter().flat_map(Clone::clone).map(|extent| {
            let (start, end) = layout.bounds(extent);
            end - start
        });
        self.reserved.write(bytes.sum())
    }

    fn verified(&self) -> RangeSet {
        self.sink.verified()
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<u64, FilesError> {
        self.reserved.write(bytes.len() as u64)?;
        self.sink.write(address, bytes)
    }

    fn on_value(&mut self, extent: u64, value: &Value) -> Result<(), FilesError> {
        self.sink.on_value(extent, value)
    }

    fn on_group_values(&mut self, extent: u64, values: &[Value]) -> Result<(), FilesError> {
        self.sink.on_group_values(extent, values)
    }

    fn on_withdrawn(&mut self, file: u64) -> Result<(), FilesError> {
        self.sink.on_withdrawn(file)
    }

    fn poll(&mut self, now: Time) -> Result<(), FilesError> {
        self.sink.poll(now)
    }

    fn flush(&mut self) -> Result<(), FilesError> {
        self.sink.flush()
    }

    fn next_timeout(&self) -> Option<Time> {
        self.sink.next_timeout()
    }

    fn poll_event(&mut self) -> Option<SinkEvent> {
        self.sink.poll_event()
    }

    fn root(&self) -> Option<Value> {
        self.sink.root()
    }

    fn failed(&self) -> u64 {
        self.sink.failed()
    }

    fn close(self: Box<Self>) -> Result<(), FilesError> {
        self.sink.close()
    }
}

#[cfg(test)]
mod tests;
