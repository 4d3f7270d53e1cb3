//! Database tables of the store. One redb transaction holds all writes of one change, so that a crash leaves either
//! all of them or none. A commit returns when the data is on the medium (two-phase commit and fsync); the allocator
//! state is saved with it, so that recovery after a crash takes the same short time for any size.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_model::Config;
use parking_lot::RwLock;
use redb::backends::InMemoryBackend;
use redb::{AccessGuard, Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, TableError};
use serde::de::DeserializeOwned;

use crate::error::{OpenError, ReadError, StorageError};
use crate::origin::{Origin, Owners};
#[cfg(test)]
use crate::power_cut::SimulatedDisk;
use crate::revision::{Note, Operation, Pending, Revision, RevisionNo};
use crate::tables::{CONFIGS, History, META, OWNERS, REVISIONS, Retention, from_bytes, to_bytes};
use crate::time::UnixTime;

/// The version of the table layout. A later version must be able to read an earlier one. Schema 2 adds [`OWNERS`],
/// the table of machines, `external` and the keys `source`, `external` and `replaces` of revisions. A store gets it with the first
/// change that needs one of them, so that until then an earlier version can open it again.
const SCHEMA: u64 = 2;
/// The layout without owners and machines.
const LOCAL_SCHEMA: u64 = 1;

/// The extension of a store under construction, followed by the process id.
const DRAFT: &str = "draft-";

/// The size of the page cache in bytes, enough for the pages of one configuration; the default of redb is one
/// gigabyte.
const CACHE_SIZE: usize = 8 << 20;

/// The modes of the store and of its directory: access for the daemon's user only.
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_DIRECTORY: u32 = 0o700;

/// Creates the directory of a store with mode 0700, unless it exists. The mode of an existing directory is not
/// changed; a directory in which others could replace the store is rejected.
pub(crate) fn make_directory(path: &Path) -> Result<(), OpenError> {
    DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE_DIRECTORY)
        .create(path)
        .map_err(|error| io_error(path, error))?;
    check_directory(path)
}

/// Checks that only the owner of an existing directory can replace a store in it.
///
/// # Errors
/// [`OpenError::Exposed`] if others can; [`OpenError::Permission`] or [`OpenError::Io`] if the directory cannot be read.
pub fn check_directory(path: &Path) -> Result<(), OpenError> {
    let mode = std::fs::metadata(path)
        .map_err(|error| io_error(path, error))?
        .mode();
    // In a directory with the sticky bit, such as /tmp, users cannot replace files of others.
    if mode & 0o022 != 0 && mode & 0o1000 == 0 {
        return Err(OpenError::Exposed {
            path: path.to_owned(),
            mode: mode & 0o7777,
        });
    }
    Ok(())
}

/// A change of the store, written in one transaction.
#[derive(Debug, Default)]
pub(crate) struct Write<'a> {
    /// The new head, if any, with its content and the owners of its objects.
    pub(crate) revision: Option<(&'a Revision, &'a Config, &'a Owners)>,
    pub(crate) pending: PendingWrite,
    /// The content of the imported configuration file, if this change imports one.
    pub(crate) file: Option<&'a Config>,
    /// The highest external number of each machine, if this change raises one.
    pub(crate) externals: Option<&'a BTreeMap<Origin, u64>>,
}

impl Write<'_> {
    /// Returns true if schema 1 cannot hold this change.
    fn needs_owners(&self) -> bool {
        let is_of_machine = |(revision, _, owners): (&Revision, &Config, &Owners)| {
            !revision.origin.is_local() || !owners.is_all_local() || revision.operation == Operation::Own
        };
        self.externals.is_some() || self.revision.is_some_and(is_of_machine)
    }
}

/// The effect of a [`Write`] on the pending confirmation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum PendingWrite {
    /// No change.
    #[default]
    Keep,
    /// No confirmation is pending.
    Clear,
    /// The confirmation of this revision is pending.
    Set(Pending),
}

impl From<Option<Pending>> for PendingWrite {
    fn from(pending: Option<Pending>) -> PendingWrite {
        pending.map_or(PendingWrite::Clear, PendingWrite::Set)
    }
}

/// The medium of a database.
#[derive(Debug)]
enum Medium {
    File(PathBuf),
    /// Memory, which is lost with its database.
    Memory,
    #[cfg(test)]
    Simulated(SimulatedDisk),
}

impl Medium {
    /// Opens the database that was open before.
    fn reopen(&self) -> Result<Database, StorageError> {
        match self {
            Medium::File(path) => Ok(builder().open(path)?),
            Medium::Memory => Err(StorageError::new(&"its memory is lost")),
            #[cfg(test)]
            Medium::Simulated(disk) => Ok(builder().create_with_backend(disk.clone())?),
        }
    }
}

/// The database, which is opened again after an operation of its medium failed.
#[derive(Debug)]
pub(crate) struct Disk {
    /// `None` if it could not be opened again.
    database: RwLock<Option<Database>>,
    medium: Medium,
    retention: Retention,
}

impl Disk {
    /// Opens or creates the file. A crash during creation leaves no file under its name.
    pub(crate) fn open(path: &Path, retention: Retention, now: UnixTime) -> Result<Disk, OpenError> {
        if !path.try_exists().map_err(|error| io_error(path, error))? {
            Disk::make(path, retention, now)?;
        }
        // Earlier versions left the mode to the umask.
        let mode = std::fs::metadata(path)
            .map_err(|error| io_error(path, error))?
            .mode();
        if mode & 0o077 != 0 {
            let private = Permissions::from_mode(PRIVATE_FILE);
            std::fs::set_permissions(path, private).map_err(|error| io_error(path, error))?;
        }
        let disk = Disk::new(open_checked(path)?, Medium::File(path.to_owned()), retention);
        disk.check_schema(path)?;
        remove_drafts(path);
        Ok(disk)
    }

    /// Creates a complete store under a temporary name that is unique to this process and call, then links it
    /// to `path`. If two processes do so at the same time, one link succeeds; the other process finds the
    /// name taken and the store in use.
    fn make(path: &Path, retention: Retention, now: UnixTime) -> Result<(), OpenError> {
        static DRAFTS: AtomicU64 = AtomicU64::new(0);
        let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
        let draft = path.with_extension(format!("{DRAFT}{}-{number}", std::process::id()));
        match std::fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error(&draft, error)),
            _ => {}
        }
        // The file has mode 0600 from its creation; the database finds it empty and initializes it.
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(PRIVATE_FILE)
            .open(&draft)
            .map_err(|error| io_error(&draft, error))?;
        let made = builder()
            .create(&draft)
            .map_err(|error| database_error(&draft, error))
            .and_then(|database| {
                Disk::new(database, Medium::File(draft.clone()), retention)
                    .set_up(now)
                    .map_err(|error| storage_error(path, error))
            });
        if let Err(error) = made {
            // A draft on a full disk takes space that the next start needs.
            let _absent = std::fs::remove_file(&draft);
            return Err(error);
        }
        match std::fs::hard_link(&draft, path) {
            // The name is taken. If the draft is absent, the process that took the name has removed it.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(io_error(path, error)),
            Ok(()) => sync_directory(path),
        }
    }

    pub(crate) fn in_memory(retention: Retention, now: UnixTime) -> Result<Disk, StorageError> {
        let database = builder().create_with_backend(InMemoryBackend::new())?;
        Disk::new(database, Medium::Memory, retention).set_up(now)
    }

    #[cfg(test)]
    pub(crate) fn with_backend(
        backend: SimulatedDisk,
        retention: Retention,
        now: UnixTime,
    ) -> Result<Disk, StorageError> {
        let database = builder().create_with_backend(backend.clone())?;
        let disk = Disk::new(database, Medium::Simulated(backend), retention);
        match disk.oldest_and_newest() {
            Ok(_) => Ok(disk),
            Err(_) => disk.set_up(now),
        }
    }

    fn new(database: Database, medium: Medium, retention: Retention) -> Disk {
        Disk {
            database: RwLock::new(Some(database)),
            medium,
            retention,
        }
    }

    fn set_up(self, now: UnixTime) -> Result<Disk, StorageError> {
        let config = Config::default();
        let revision = Revision::new(RevisionNo(0), now, Note::default(), Operation::Initial);
        self.write(&Write {
            revision: Some((&revision, &config, &Owners::default())),
            ..Write::default()
        })?;
        Ok(self)
    }

    /// Returns the result of an operation. If the medium fails, opens the database again and repeats the operation
    /// once: after a failed write, redb refuses all operations of an open database, also when a full disk has room
    /// again. An operation that writes has the same effect when it is repeated.
    fn with<T>(&self, operation: impl Fn(&Database) -> Result<T, StorageError>) -> Result<T, StorageError> {
        // After a panic the value is either a database or `None`.
        if let Some(database) = &*self.database.read() {
            match operation(database) {
                Err(error) if error.medium.is_some() => tracing::warn!(%error, "the store is opened again"),
                result => return result,
            }
        }
        let mut database = self.database.write();
        // The file is locked until the database is dropped.
        *database = None;
        operation(database.insert(self.medium.reopen()?))
    }

    fn check_schema(&self, path: &Path) -> Result<(), OpenError> {
        match self.meta::<u64>("schema") {
            Ok(Some(found)) if found > SCHEMA => Err(OpenError::Newer {
                path: path.to_owned(),
                found,
                known: SCHEMA,
            }),
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(corrupt(path, "the schema number is missing")),
            Err(error) => Err(storage_error(path, error)),
        }
    }

    pub(crate) fn write(&self, change: &Write<'_>) -> Result<(), StorageError> {
        self.with(|database| self.write_to(database, change))
    }

    fn write_to(&self, database: &Database, change: &Write<'_>) -> Result<(), StorageError> {
        let mut transaction = database.begin_write()?;
        transaction.set_quick_repair(true);
        {
            let mut meta = transaction.open_table(META)?;
            let schema = match meta.get("schema")? {
                Some(value) => from_bytes("schema", value.value())?,
                None => LOCAL_SCHEMA,
            };
            let mut put =
                |key: &str, value: &[u8]| meta.insert(key, value).map(|_| ()).map_err(StorageError::from);
            let schema = if change.needs_owners() { SCHEMA } else { schema };
            put("schema", &to_bytes(&schema)?)?;
            match change.pending {
                PendingWrite::Keep => {}
                PendingWrite::Clear => put("pending", &to_bytes(&None::<Pending>)?)?,
                PendingWrite::Set(pending) => put("pending", &to_bytes(&Some(pending))?)?,
            }
            if let Some(config) = change.file {
                put("file", &to_bytes(config)?)?;
            }
            if let Some(externals) = change.externals {
                put("external", &to_bytes(externals)?)?;
            }
        }
        if let Some((revision, config, owners)) = change.revision {
            let mut history = History::open(&transaction)?;
            history.add(revision, config, owners)?;
            history.remove_replaced(revision)?;
            history.shorten(&self.retention, revision.number)?;
        }
        Ok(transaction.commit()?)
    }

    /// Returns the owners of the objects of a revision.
    pub(crate) fn owners(&self, number: RevisionNo) -> Result<Owners, StorageError> {
        self.with(|database| {
            let owners = match database.begin_read()?.open_table(OWNERS) {
                // A store that no machine has changed yet.
                Err(TableError::TableDoesNotExist(_)) => return Ok(Owners::default()),
                found => found?,
            };
            match owners.get(number.0)? {
                Some(value) => from_bytes("the owners of a revision", value.value()),
                None => Ok(Owners::default()),
            }
        })
    }

    /// Returns the highest external number of each machine.
    pub(crate) fn externals(&self) -> Result<BTreeMap<Origin, u64>, StorageError> {
        Ok(self.meta("external")?.unwrap_or_default())
    }

    pub(crate) fn pending(&self) -> Result<Option<Pending>, StorageError> {
        self.meta::<Option<Pending>>("pending").map(Option::flatten)
    }

    /// Returns the content of the last imported configuration file, if there is one. It is JSON because it is only
    /// compared: a version that can no longer decode it treats the file as changed.
    pub(crate) fn file(&self) -> Result<Option<serde_json::Value>, StorageError> {
        self.meta("file")
    }

    pub(crate) fn oldest_and_newest(&self) -> Result<(RevisionNo, RevisionNo), StorageError> {
        self.with(oldest_and_newest)
    }

    /// Returns a revision and its content.
    pub(crate) fn at(&self, number: RevisionNo) -> Result<(Revision, Config), ReadError> {
        if let Some(found) = self.find(number)? {
            return Ok(found);
        }
        let (oldest, newest) = self.oldest_and_newest()?;
        Err(ReadError::NoSuchRevision {
            wanted: number,
            oldest,
            newest,
        })
    }

    fn find(&self, number: RevisionNo) -> Result<Option<(Revision, Config)>, StorageError> {
        self.with(|database| {
            let transaction = database.begin_read()?;
            let revision = transaction.open_table(REVISIONS)?.get(number.0)?;
            let config = transaction.open_table(CONFIGS)?.get(number.0)?;
            match (revision, config) {
                (Some(revision), Some(config)) => Ok(Some((
                    from_bytes("a revision", revision.value())?,
                    from_bytes("the content of a revision", config.value())?,
                ))),
                _ => Ok(None),
            }
        })
    }

    /// Returns up to `limit` revisions, the newest first.
    pub(crate) fn history(&self, limit: usize) -> Result<Vec<Revision>, StorageError> {
        self.with(|database| {
            let revisions = database.begin_read()?.open_table(REVISIONS)?;
            revisions.iter()?.rev().take(limit).map(revision).collect()
        })
    }

    /// Returns the revisions after `number`, the oldest first.
    pub(crate) fn since(&self, number: RevisionNo) -> Result<Vec<Revision>, StorageError> {
        self.with(|database| {
            let revisions = database.begin_read()?.open_table(REVISIONS)?;
            let entries = revisions.range(number.0.saturating_add(1)..)?;
            entries.map(revision).collect()
        })
    }

    fn meta<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, StorageError> {
        self.with(|database| {
            let meta = database.begin_read()?.open_table(META)?;
            let value = meta.get(key)?;
            value.map(|value| from_bytes(key, value.value())).transpose()
        })
    }
}

/// An entry of [`REVISIONS`].
type Entry<'a> = Result<(AccessGuard<'a, u64>, AccessGuard<'a, &'static [u8]>), redb::StorageError>;

fn revision(entry: Entry<'_>) -> Result<Revision, StorageError> {
    from_bytes("a revision", entry?.1.value())
}

fn oldest_and_newest(database: &Database) -> Result<(RevisionNo, RevisionNo), StorageError> {
    let revisions = database.begin_read()?.open_table(REVISIONS)?;
    let number = |entry: Option<(AccessGuard<'_, u64>, _)>| match entry {
        Some((number, _)) => Ok(RevisionNo(number.value())),
        None => Err(StorageError::new(&"there is no revision")),
    };
    Ok((number(revisions.first()?)?, number(revisions.last()?)?))
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_SIZE);
    builder
}

/// Opens the file and verifies the checksum of every page, so that damage is reported at the start with the name of
/// the file.
fn open_checked(path: &Path) -> Result<Database, OpenError> {
    // redb asserts invariants of its metadata, so a file damaged by something else can cause a panic. The panic is
    // treated as corruption; the database object is dropped, so no inconsistent state can be observed.
    let opened = catch_unwind(|| {
        let mut database = builder().open(path)?;
        if !database.check_integrity()? {
            tracing::warn!(path = %path.display(), "the store was repaired");
        }
        Ok(database)
    });
    match opened {
        Ok(result) => result.map_err(|error| database_error(path, error)),
        Err(_) => Err(corrupt(path, "its metadata is inconsistent")),
    }
}

/// Removes drafts that crashes left. A failure to do so does not prevent the start.
fn remove_drafts(path: &Path) {
    let Some(entries) = path
        .parent()
        .and_then(|directory| std::fs::read_dir(directory).ok())
    else {
        return;
    };
    for entry in entries.flatten() {
        let other = entry.path();
        let is_draft = other
            .extension()
            .is_some_and(|extension| extension.to_string_lossy().starts_with(DRAFT));
        if is_draft && other.file_stem() == path.file_stem() {
            let _ = std::fs::remove_file(other);
        }
    }
}

/// Syncs the directory, so that a power cut cannot undo the creation of the file name.
fn sync_directory(path: &Path) -> Result<(), OpenError> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let handle = std::fs::File::open(directory).map_err(|error| io_error(directory, error))?;
    handle.sync_all().map_err(|error| io_error(directory, error))
}

pub(crate) fn io_error(path: &Path, source: io::Error) -> OpenError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => OpenError::Permission { path },
        _ => OpenError::Io { path, source },
    }
}

pub(crate) fn corrupt(path: &Path, detail: impl Into<String>) -> OpenError {
    OpenError::Corrupt {
        path: path.to_owned(),
        detail: detail.into(),
    }
}

/// Returns the error of a store that cannot be opened. A disk that is full or fails does not make the store corrupt.
pub(crate) fn storage_error(path: &Path, error: StorageError) -> OpenError {
    match error.medium {
        Some(kind) => medium_error(path, io::Error::new(kind, error.detail)),
        None => corrupt(path, error.detail),
    }
}

fn database_error(path: &Path, error: DatabaseError) -> OpenError {
    match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::Locked {
            path: path.to_owned(),
        },
        DatabaseError::Storage(redb::StorageError::Io(source)) => medium_error(path, source),
        error => corrupt(path, error.to_string()),
    }
}

fn medium_error(path: &Path, source: io::Error) -> OpenError {
    match source.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => corrupt(path, source.to_string()),
        _ => io_error(path, source),
    }
}
