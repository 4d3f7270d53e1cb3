//! Files of this machine: implementations of the traits of [`crate::files`] with `millrace-fileset`.

use crate::files::{self, FilesError, OpenError, Requests, Value};
use crate::identity::PublicKey;
use crate::refusal::RefuseCode;
use millrace_fileset::entry::Entry;
use millrace_fileset::fs::{CreatedDirectories, Root};
use millrace_fileset::scan::{Argument, ScanError, resolve_arguments};
use millrace_fileset::{
    Commit, ExtentValue, Manifest, ManifestLimits, ManifestReader, OnChange, RelativePath, Scan, ScanItem,
    Sink, SinkError, SinkEvent, SinkOptions, Source, SourceOptions,
};
use millrace_transport::extent::Layout;
use millrace_transport::ranges::RangeSet;
use millrace_types::Time;
use nix::sys::statvfs::statvfs;
use std::fmt::Display;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// The size of a source's cache of extents, in bytes. It is small, because sealed packets are cached
/// elsewhere.
const CACHE_SIZE: usize = 4 << 20;

fn failed(error: impl Display) -> FilesError {
    FilesError(error.to_string())
}

/// Converts the error of a scan below `/`. The scan's paths lack the leading slash.
fn not_scanned(error: ScanError) -> FilesError {
    match error {
        ScanError::Io { path, error } => FilesError(format!("/{path} cannot be read: {error}")),
        error => failed(error),
    }
}

/// Converts the error of a receiver's file. The text goes to the sender, too, and contains no temporary
/// names, which the sender does not know.
fn not_written(error: SinkError) -> FilesError {
    let SinkError::Io { path, error } = error else {
        return failed(error);
    };
    let name = path.split().1;
    let place = if name.starts_with(b".millrace-") {
        "a temporary file".to_owned()
    } else {
        path.to_string()
    };
    FilesError(match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => format!(
            "the receiver's disk is full ({place}: {error}); make room there and send again: what arrived is kept"
        ),
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
            format!(
                "the receiver may not write to its directory ({place}: {error}); permit it, or receive into another one"
            )
        }
        _ => format!("the receiver cannot write {place}: {error}"),
    })
}

/// Converts the error of a sink that cannot be opened. Files that another transfer uses are refused as busy.
fn not_opened(error: SinkError) -> OpenError {
    match error {
        error @ SinkError::InUse(_) => OpenError {
            code: RefuseCode::Busy,
            error: failed(error),
        },
        error => not_written(error).into(),
    }
}

/// Returns a number of bytes in MiB, rounded up.
fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

/// The maximum ratio of announced bytes to the size of the file system. A file system may compress files, so
/// it is above 1.
const ANNOUNCED_MAX: u64 = 4;

/// Refuses files that are much larger than the file system of a directory, regardless of its free space.
/// Memory for their extents is allocated only afterwards.
fn check_announced(directory: &Path, announced: u64) -> Result<(), OpenError> {
    let Ok(space) = statvfs(directory) else {
        return Ok(());
    };
    let size = space.blocks().saturating_mul(space.fragment_size());
    // A file system that reports no size, such as one of FUSE, is accepted.
    if announced <= size.saturating_mul(ANNOUNCED_MAX) || size == 0 {
        return Ok(());
    }
    let free = space.blocks_available().saturating_mul(space.fragment_size());
    let (announced, size, free) = (mib(announced), mib(size), mib(free));
    Err(OpenError {
        code: RefuseCode::Files,
        error: FilesError(format!(
            "the sender announces files of {announced}, and the receiver's file system has {size}, of which {free} are free; send \
             less, or receive into another directory"
        )),
    })
}

/// Refuses files that do not fit into the file system of a directory.
fn check_space(directory: &Path, needed: u64) -> Result<(), OpenError> {
    // A file system that cannot report its free space is accepted.
    let Ok(space) = statvfs(directory) else {
        return Ok(());
    };
    let free = space.blocks_available().saturating_mul(space.fragment_size());
    // A file system without a size, such as ramfs, does not know its free space.
    if needed <= free || space.blocks() == 0 {
        return Ok(());
    }
    let (needed, free) = (mib(needed), mib(free));
    Err(OpenError {
        code: RefuseCode::Files,
        error: FilesError(format!(
            "the files need {needed}, and the receiver's file system has {free}; make room there, or receive into another directory"
        )),
    })
}

/// Options for reading files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScanOptions {
    /// A file that changes while it is sent ends the transfer. Without this option it is left out, and the outcome names that.
    pub stop_on_change: bool,
    /// Owners and extended attributes, access control lists among them, are sent, too.
    pub preserve: bool,
}

/// The files that a sender selected.
pub struct LocalSource {
    source: Source<Root>,
    manifest: Vec<u8>,
    skipped: Vec<(String, String)>,
    unreadable: Vec<String>,
}

impl LocalSource {
    /// Scans paths; a directory with a trailing slash stands for its contents.
    ///
    /// # Errors
    /// If a path cannot be read.
    pub fn scan(paths: &[PathBuf], options: &ScanOptions) -> Result<LocalSource, FilesError> {
        let fs = Root::open("/").map_err(failed)?;
        let arguments = resolve_arguments(paths).map_err(failed)?;
        LocalSource::scan_arguments(fs, &arguments, options, not_scanned)
    }

    /// Scans one path. Receivers see it under another name.
    ///
    /// # Errors
    /// If the path cannot be read, or the name is not valid.
    pub fn scan_as(path: &Path, name: &[u8], options: &ScanOptions) -> Result<LocalSource, FilesError> {
        if name.is_empty() || name.contains(&b'/') {
            let name = String::from_utf8_lossy(name);
            return Err(failed(format!(
                "`{name}` is no name; expected one without a slash"
            )));
        }
        let fs = Root::open("/").map_err(failed)?;
        let mut arguments = resolve_arguments(&[path]).map_err(failed)?;
        for argument in &mut arguments {
            argument.name = Some(name.to_vec());
        }
        LocalSource::scan_arguments(fs, &arguments, options, not_scanned)
    }

    /// Scans a path below a directory; no symlink leads out of the directory. With `contents`, the path
    /// stands for the contents of a directory, as the empty path always does.
    ///
    /// # Errors
    /// If the path cannot be read.
    pub fn scan_below(
        directory: &Path,
        path: &RelativePath,
        contents: bool,
        options: &ScanOptions,
    ) -> Result<LocalSource, FilesError> {
        let fs = Root::open(directory).map_err(failed)?;
        let named = !contents && !path.is_root();
        let argument = Argument {
            path: path.clone(),
            name: named.then(|| path.split().1.to_vec()),
        };
        LocalSource::scan_arguments(fs, &[argument], options, failed)
    }

    fn scan_arguments(
        fs: Root,
        arguments: &[Argument],
        options: &ScanOptions,
        failed_scan: fn(ScanError) -> FilesError,
    ) -> Result<LocalSource, FilesError> {
        let scan_options = millrace_fileset::ScanOptions {
            preserve: options.preserve,
            ..millrace_fileset::ScanOptions::default()
        };
        let mut scan = Scan::new(&fs, arguments, scan_options).map_err(failed_scan)?;
        let (mut skipped, mut unreadable) = (Vec::new(), Vec::new());
        while let Some(item) = scan.next_item(&fs).map_err(failed_scan)? {
            match item {
                ScanItem::Skipped { path, reason } if reason.is_failure() => {
                    unreadable.push(format!("{path}: {reason}"));
                }
                ScanItem::Skipped { path, reason } => skipped.push((path, reason.to_string())),
                ScanItem::Entry => {}
            }
        }
        let manifest = scan.take_encoded();
        let (entries, bases) = scan
            .finish()
            .ok_or_else(|| failed("the scan has no end; report this as a bug"))?;
        let on_change = if options.stop_on_change {
            OnChange::Fail
        } else {
            OnChange::Withdraw
        };
        let options = SourceOptions {
            cache_size: CACHE_SIZE,
            on_change,
        };
        Ok(LocalSource {
            source: Source::new(fs, Arc::new(entries), bases, options),
            manifest,
            skipped,
            unreadable,
        })
    }

    /// Returns the paths that are not sent because of their type, with the reasons: devices, sockets, pipes,
    /// temporary files of transfers, and paths that were removed meanwhile.
    pub fn skipped(&self) -> &[(String, String)] {
        &self.skipped
    }

    /// Returns the number of files.
    pub fn files(&self) -> u32 {
        self.source.manifest().files()
    }
}

impl files::Source for LocalSource {
    fn manifest(&self) -> &[u8] {
        &self.manifest
    }

    fn layout(&self) -> Layout {
        self.source.manifest().layout()
    }

    fn check_have(&mut self, extent: u64, value: &Value) -> Result<bool, FilesError> {
        self.source
            .check_have(&ExtentValue {
                extent,
                value: *value,
            })
            .map_err(failed)
    }

    fn read(&mut self, address: u64, len: usize) -> Result<&[u8], FilesError> {
        self.source.read(address, len as u64).map_err(failed)
    }

    fn poll_value(&mut self) -> Option<(u64, Value)> {
        self.source
            .poll_value()
            .map(|message| (message.extent, message.value))
    }

    fn value(&self, extent: u64) -> Option<Value> {
        self.source.value(extent)
    }

    fn group_values(&mut self, extent: u64) -> Result<Vec<Value>, FilesError> {
        self.source.group_values(extent).map_err(failed)
    }

    fn poll_withdrawn(&mut self) -> Option<(u64, String)> {
        let withdrawn = self.source.poll_withdrawn()?;
        let reason = format!("{}: {}", withdrawn.path, withdrawn.reason);
        Some((u64::from(withdrawn.file), reason))
    }

    fn root(&self) -> Option<Value> {
        self.source.root()
    }

    fn unreadable(&self) -> &[String] {
        &self.unreadable
    }

    fn paths(&self) -> files::Paths {
        let manifest = Arc::clone(self.source.manifest());
        Box::new(move |file| path_of(&manifest, file))
    }
}

/// Options for writing files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlaceOptions {
    /// No file gets its name before all are verified.
    pub all_at_once: bool,
    /// Existing files are kept: a transfer that would replace one is refused.
    pub keep_existing: bool,
    /// Existing files are read, and only extents that differ are sent.
    pub delta: bool,
    /// Permission bits and modification times are those of the source.
    pub modes_and_times: bool,
    /// Permission bits and modification times are those of the source; so are owners and extended attributes,
    /// if it sends them.
    pub preserve: bool,
    /// No symlink leads out of the directory of the store: a set with such a symlink is refused.
    pub symlinks_beneath: bool,
}

/// A directory of this machine that receives files.
pub struct LocalStore {
    directory: PathBuf,
    /// The path below `directory` for the files; it is created if it does not exist.
    path: RelativePath,
    /// The only entry that may be written into the directory.
    only: Option<Vec<u8>>,
    options: PlaceOptions,
}

impl LocalStore {
    /// Returns the store of a directory.
    pub fn new(directory: &Path, options: PlaceOptions) -> LocalStore {
        LocalStore {
            directory: directory.to_owned(),
            path: RelativePath::root(),
            only: None,
            options,
        }
    }

    /// Checks that this user may make files in the directory: a file is made and removed.
    ///
    /// # Errors
    /// If no file can be made.
    pub fn check_writable(&self) -> std::io::Result<()> {
        let probe = self
            .directory
            .join(format!(".millrace-{}.probe", std::process::id()));
        let _old = std::fs::remove_file(&probe);
        std::fs::File::create_new(&probe)?;
        std::fs::remove_file(&probe)
    }

    /// Returns the store that takes only the entry with this name in its directory, and what is below it.
    #[must_use]
    pub fn only(self, name: &[u8]) -> LocalStore {
        LocalStore {
            only: Some(name.to_vec()),
            ..self
        }
    }

    /// Refuses a set with another entry than the only one.
    fn check_names(&self, manifest: &Manifest) -> Result<(), FilesError> {
        let Some(only) = &self.only else {
            return Ok(());
        };
        let is_other = |entry: &&Entry| entry.path.names().next() != Some(only);
        manifest.entries().iter().find(is_other).map_or(Ok(()), |entry| {
            let only = String::from_utf8_lossy(only);
            Err(failed(format!(
                "the sender sends {}, and {only} was asked for; nothing else is written",
                entry.path
            )))
        })
    }

    /// Returns the store of a directory below another one. The lower directory is created when files arrive; no symlink
    /// leads out of the upper one.
    pub fn below(directory: &Path, path: RelativePath, options: PlaceOptions) -> LocalStore {
        LocalStore {
            directory: directory.to_owned(),
            path,
            only: None,
            options,
        }
    }
}

impl files::Store for LocalStore {
    fn open(
        &self,
        sender: PublicKey,
        manifest: &[u8],
        requests: Requests,
    ) -> Result<Box<dyn files::Sink>, OpenError> {
        let mut reader = ManifestReader::new(ManifestLimits::default());
        reader.feed(manifest).map_err(failed)?;
        let manifest = reader.finish().map_err(failed)?;
        self.check_names(&manifest)?;
        let fs = Root::open(&self.directory)
            .map_err(|error| failed(format!("{}: {error}", self.directory.display())))?;
        let (fs, created) = fs
            .create_below(&self.path)
            .map_err(|error| failed(format!("{}: {error}", self.path)))?;
        let options = SinkOptions {
            sender: *sender.bytes(),
            commit: if self.options.all_at_once || requests.all_at_once {
                Commit::All
            } else {
                Commit::Each
            },
            overwrite: !self.options.keep_existing,
            delta: self.options.delta || requests.delta,
            modes: self.options.modes_and_times || self.options.preserve,
            times: self.options.modes_and_times || self.options.preserve,
            preserve: self.options.preserve,
            symlinks_within: self.options.symlinks_beneath.then(|| self.path.names().count()),
            ..SinkOptions::default()
        };
        check_announced(&self.directory, manifest.layout().bytes())?;
        let notice = notice(&manifest, options.preserve);
        let mut sink = Sink::open(fs, Arc::new(manifest), options).map_err(not_opened)?;
        check_space(&self.directory, sink.needed_space().map_err(not_opened)?)?;
        Ok(Box::new(LocalSink {
            sink,
            created,
            notice,
        }))
    }
}

struct LocalSink {
    /// Must be dropped before `created`: this removes the journal of a sink that did not start.
    sink: Sink<Root>,
    created: CreatedDirectories,
    notice: Option<&'static str>,
}

/// Returns the path of a file at the receiver.
fn path_of(manifest: &Manifest, file: u64) -> Option<String> {
    let (entry, _) = manifest.file(u32::try_from(file).ok()?)?;
    Some(entry.path.to_string())
}

/// Returns a notice if only one end preserves owners and extended attributes.
fn notice(manifest: &Manifest, preserve: bool) -> Option<&'static str> {
    let has_owner = |entry: &Entry| entry.attributes.owner.is_some();
    let is_sent = manifest.entries().iter().any(has_owner);
    match (preserve, is_sent) {
        (true, false) if !manifest.entries().is_empty() => Some(
            "owners and extended attributes are not sent: only the receiver has --preserve; give it to the sender, too",
        ),
        (false, true) => Some(
            "owners and extended attributes are sent, and not set: only the sender has --preserve; give it to the receiver, too",
        ),
        _ => None,
    }
}

impl files::Sink for LocalSink {
    fn layout(&self) -> Layout {
        self.sink.manifest().layout()
    }

    fn poll_have(&mut self) -> Result<Option<(u64, Value)>, FilesError> {
        let have = self.sink.poll_have().map_err(not_written)?;
        Ok(have.map(|have| (have.extent, have.value)))
    }

    fn keep(&mut self, extent: u64) -> Result<(), FilesError> {
        self.sink.keep(extent).map_err(not_written)
    }

    fn start(&mut self) -> Result<(), FilesError> {
        self.created.keep();
        self.sink.start().map_err(not_written)
    }

    fn verified(&self) -> RangeSet {
        self.sink.verified().clone()
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<u64, FilesError> {
        self.sink.write(address, bytes).map_err(not_written)?;
        Ok(self.sink.take_written())
    }

    fn on_value(&mut self, extent: u64, value: &Value) -> Result<(), FilesError> {
        self.sink
            .on_value(ExtentValue {
                extent,
                value: *value,
            })
            .map_err(not_written)
    }

    fn on_group_values(&mut self, extent: u64, values: &[Value]) -> Result<(), FilesError> {
        self.sink.on_group_values(extent, values).map_err(not_written)
    }

    fn on_withdrawn(&mut self, file: u64) -> Result<(), FilesError> {
        let file = u32::try_from(file).map_err(failed)?;
        self.sink.on_withdrawn(file).map_err(not_written)
    }

    fn poll(&mut self, now: Time) -> Result<(), FilesError> {
        self.sink.poll(now).map_err(not_written)
    }

    fn flush(&mut self) -> Result<(), FilesError> {
        self.sink.flush().map_err(not_written)
    }

    fn next_timeout(&self) -> Option<Time> {
        self.sink.next_timeout()
    }

    fn poll_event(&mut self) -> Option<files::SinkEvent> {
        if let Some(notice) = self.notice.take() {
            return Some(files::SinkEvent::Notice(notice.into()));
        }
        Some(match self.sink.poll_event()? {
            SinkEvent::Verified(extent) => files::SinkEvent::Verified(extent),
            SinkEvent::NeedGroupValues(extent) => files::SinkEvent::NeedGroupValues(extent),
            SinkEvent::Rejected { extent, .. } => files::SinkEvent::Rejected(extent),
            SinkEvent::Durable(extent) => files::SinkEvent::Durable(extent),
            SinkEvent::Committed(file) | SinkEvent::Unchanged(file) => files::SinkEvent::Committed {
                file: file.into(),
                path: path_of(self.sink.manifest(), file.into()).unwrap_or_default(),
            },
            SinkEvent::Withdrawn(file) => files::SinkEvent::Withdrawn {
                file: file.into(),
                path: path_of(self.sink.manifest(), file.into()).unwrap_or_default(),
            },
            SinkEvent::Failed { path, reason } => files::SinkEvent::Failed {
                path: path.to_string(),
                reason,
            },
            SinkEvent::Complete => files::SinkEvent::Complete,
        })
    }

    fn root(&self) -> Option<Value> {
        self.sink.root()
    }

    fn failed(&self) -> u64 {
        self.sink.failed()
    }

    fn close(self: Box<Self>) -> Result<(), FilesError> {
        self.sink.close().map_err(not_written)
    }
}
