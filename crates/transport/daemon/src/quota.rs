//! Quotas: the directory of a grant holds so many bytes and entries at most.
//!
//! A transfer reserves what its manifest announces before a byte arrives: two transfers that fit one by one, and not together, are
//! told at once. What it writes is counted again against the quota that holds then, since an operator may lower it meanwhile. A
//! transfer that hits the quota keeps its temporary files, and goes on from them after the quota was raised.
//!
//! ```text
//!   used = entries in the directory now, less those of sets in transfer  +  what those sets have written
//! ```

use crate::activity::lock;
use crate::size::ByteSize;
use millrace_courier::RefuseCode;
use millrace_courier::files::{FilesError, OpenError, Requests, Sink, SinkEvent, Store, Value};
use millrace_courier::local::{LocalStore, PlaceOptions};
use millrace_fileset::entry::EntryKind;
use millrace_fileset::sink::{journal_path, temporary_path};
use millrace_fileset::{Manifest, ManifestLimits, ManifestReader, RelativePath};
use millrace_transport::extent::Layout;
use millrace_transport::ranges::RangeSet;
use millrace_types::Time;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

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

    fn of(metadata: &fs::Metadata) -> Usage {
        let allocated = metadata.blocks().saturating_mul(512);
        Usage {
            // Holes use no space, and preallocated space is used.
            bytes: if metadata.is_file() {
                allocated.min(metadata.len())
            } else {
                0
            },
            entries: 1,
        }
    }
}

/// The limits of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Quota {
    pub(crate) bytes: Option<u64>,
    pub(crate) entries: Option<u64>,
}

impl Quota {
    fn holds(&self, usage: Usage) -> bool {
        self.bytes.is_none_or(|bytes| usage.bytes <= bytes)
            && self.entries.is_none_or(|entries| usage.entries <= entries)
    }

    /// Returns how much of the quota is used, for errors.
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
    /// The paths of its files and temporary files.
    paths: Vec<PathBuf>,
    reserved: Usage,
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
}

/// The usage of a directory.
#[derive(Debug)]
pub(crate) struct Ledger {
    grant: String,
    directory: PathBuf,
    state: Mutex<State>,
}

impl Ledger {
    /// Returns the ledger of a directory, whose entries are counted.
    pub(crate) fn new(grant: &str, directory: &Path, quota: Quota) -> Ledger {
        let state = State {
            quota,
            others: count(directory),
            ..State::default()
        };
        Ledger {
            grant: grant.to_owned(),
            directory: directory.to_owned(),
            state: Mutex::new(state),
        }
    }

    /// Sets the quota; transfers that run meet it at their next write.
    pub(crate) fn set_quota(&self, quota: Quota) {
        lock(&self.state).quota = quota;
    }

    /// Returns what is used.
    pub(crate) fn used(&self) -> Usage {
        lock(&self.state).used()
    }

    /// Returns what the entries use that belong to no set in transfer.
    fn count_others(&self, reservations: &BTreeMap<u64, Reservation>) -> Usage {
        let in_transfer = reservations.values().map(|other| present(&other.paths));
        count(&self.directory).minus(in_transfer.fold(Usage::default(), Usage::plus))
    }

    /// Reserves room for a set below a path.
    fn reserve(self: &Arc<Self>, below: &RelativePath, manifest: &Manifest) -> Result<Reserved, FilesError> {
        let root = self.directory.join(OsStr::from_bytes(below.as_bytes()));
        let join = |path: &RelativePath| root.join(OsStr::from_bytes(path.as_bytes()));
        let entries = manifest.entries().iter().map(|entry| join(&entry.path));
        let temporary = (0..manifest.files()).map(|file| join(&temporary_path(manifest, file)));
        let journal = join(&journal_path(manifest));
        let paths: Vec<PathBuf> = entries.chain(temporary).chain([journal]).collect();
        let bytes = manifest.entries().iter().map(|entry| match &entry.kind {
            EntryKind::File(content) => content.data_len(),
            _ => 0,
        });
        let reserved = Usage {
            bytes: bytes.sum(),
            entries: manifest.entries().len() as u64,
        };
        let mut state = lock(&self.state);
        state.others = self.count_others(&state.reservations).minus(present(&paths));
        let wanted = state.reservations.values().map(|other| other.reserved);
        let wanted = wanted.fold(state.others, Usage::plus);
        if !state.quota.holds(wanted.plus(reserved)) {
            return Err(FilesError(format!(
                "quota of grant `{}`: {} and {} files more do not fit, {} are used or reserved; remove files there, or ask the \
                 operator to raise the quota, and run the same command again",
                self.grant,
                ByteSize(reserved.bytes),
                reserved.entries,
                state.quota.state(wanted)
            )));
        }
        let number = state.next;
        state.next += 1;
        let reservation = Reservation {
            paths,
            reserved,
            written: Usage {
                bytes: 0,
                entries: reserved.entries,
            },
        };
        state.reservations.insert(number, reservation);
        Ok(Reserved {
            ledger: Arc::clone(self),
            number,
        })
    }
}

/// Returns what the entries below a directory use; those that vanish or may not be read count nothing.
fn count(directory: &Path) -> Usage {
    let mut usage = Usage::default();
    let mut stack = vec![directory.to_owned()];
    while let Some(directory) = stack.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            // Of a symlink the link itself.
            let Ok(metadata) = entry.metadata() else { continue };
            usage = usage.plus(Usage::of(&metadata));
            if metadata.is_dir() {
                stack.push(entry.path());
            }
        }
    }
    usage
}

/// Returns what the entries at these paths use.
fn present(paths: &[PathBuf]) -> Usage {
    let found = paths.iter().filter_map(|path| fs::symlink_metadata(path).ok());
    found
        .map(|metadata| Usage::of(&metadata))
        .fold(Usage::default(), Usage::plus)
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
        let mut state = lock(&self.ledger.state);
        if let Some(reservation) = state.reservations.get_mut(&self.number) {
            // Bytes that come again, after a wrong digest, replace others.
            let written = reservation.written.bytes.saturating_add(bytes);
            reservation.written.bytes = written.min(reservation.reserved.bytes);
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
        let mut state = lock(&self.ledger.state);
        state.reservations.remove(&self.number);
        state.others = self.ledger.count_others(&state.reservations);
    }
}

/// The store of one transfer to a grant.
pub(crate) struct QuotaStore {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) path: RelativePath,
    pub(crate) options: PlaceOptions,
}

impl Store for QuotaStore {
    fn open(&self, manifest: &[u8], requests: Requests) -> Result<Box<dyn Sink>, OpenError> {
        let failed = |error: millrace_fileset::ManifestError| FilesError(error.to_string());
        let mut reader = ManifestReader::new(ManifestLimits::default());
        reader.feed(manifest).map_err(failed)?;
        let set = reader.finish().map_err(failed)?;
        let reserved = self.ledger.reserve(&self.path, &set);
        let reserved = reserved.map_err(|error| OpenError {
            code: RefuseCode::Quota,
            error,
        })?;
        drop(set);
        let store = LocalStore::below(&self.ledger.directory, self.path.clone(), self.options);
        let sink = store.open(manifest, requests)?;
        Ok(Box::new(QuotaSink { sink, reserved }))
    }
}

/// A sink whose bytes count.
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

    fn close(self: Box<Self>) -> Result<(), FilesError> {
        self.sink.close()
    }
}
