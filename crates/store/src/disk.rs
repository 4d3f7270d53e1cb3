//! The tables on disk. One redb transaction holds everything that one change of the store means, so a
//! crash leaves either all of it or nothing. A commit returns after the data is on the medium (two-phase
//! commit and fsync); the allocator state is saved with it, so that recovery after a crash is immediate
//! whatever the size.

use std::io;
use std::path::{Path, PathBuf};

use millrace_model::Config;
use redb::backends::InMemoryBackend;
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{OpenError, ReadError, StorageError};
use crate::revision::{Note, Origin, Pending, Revision, RevisionNo, UnixTime};

/// The layout of the tables below. A later one must be able to read an earlier one.
const SCHEMA: u64 = 1;

/// Single values, as JSON: `schema`, `pending`, `file`, `bytes`.
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
/// [`Revision`] by number, as JSON.
const REVISIONS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("revisions");
/// The full [`Config`] by number, as JSON: with defaults, so that an upgrade that changes a default does
/// not change what was committed.
const CONFIGS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("configs");

/// Enough for the pages of one configuration; the default of redb is a gigabyte.
const CACHE_SIZE: usize = 8 << 20;

/// How much history is kept. The head and what a pending confirmation falls back to are always kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// The most revisions.
    pub revisions: u64,
    /// The most bytes of all contents together.
    pub bytes: u64,
}

impl Default for Retention {
    /// 1000 revisions and 64 MiB.
    fn default() -> Retention {
        Retention {
            revisions: 1000,
            bytes: 64 << 20,
        }
    }
}

/// A change of the store, written as a whole or not at all.
#[derive(Debug, Default)]
pub(crate) struct Write<'a> {
    /// A new head.
    pub(crate) revision: Option<(&'a Revision, &'a Config)>,
    /// `Some(None)` forgets the pending confirmation.
    pub(crate) pending: Option<Option<Pending>>,
    /// The content of the configuration file that was last taken over.
    pub(crate) file: Option<&'a Config>,
}

/// The open database.
#[derive(Debug)]
pub(crate) struct Disk {
    database: Database,
    retention: Retention,
}

impl Disk {
    /// Opens the file, or makes it. A crash while it is made leaves nothing under its name.
    pub(crate) fn open(path: &Path, retention: Retention, now: UnixTime) -> Result<Disk, OpenError> {
        if !exists(path)? {
            let draft = path.with_extension("new");
            // What a crash left of an earlier attempt has never been anybody's store.
            match std::fs::remove_file(&draft) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error(&draft, error)),
                _ => {}
            }
            let database = builder()
                .create(&draft)
                .map_err(|error| database_error(&draft, error))?;
            Disk::set_up(database, retention, now).map_err(|error| corrupt(&draft, error))?;
            std::fs::rename(&draft, path).map_err(|error| io_error(path, error))?;
            sync_directory(path)?;
        }
        let database = builder()
            .open(path)
            .map_err(|error| database_error(path, error))?;
        let disk = Disk { database, retention };
        disk.check_schema(path)?;
        Ok(disk)
    }

    pub(crate) fn in_memory(retention: Retention, now: UnixTime) -> Result<Disk, StorageError> {
        let database = builder()
            .create_with_backend(InMemoryBackend::new())
            .map_err(StorageError::new)?;
        Disk::set_up(database, retention, now)
    }

    #[cfg(test)]
    pub(crate) fn with_backend(
        backend: impl redb::StorageBackend,
        retention: Retention,
        now: UnixTime,
    ) -> Result<Disk, StorageError> {
        let database = builder()
            .create_with_backend(backend)
            .map_err(StorageError::new)?;
        let disk = Disk { database, retention };
        match disk.oldest_and_newest() {
            Ok(_) => Ok(disk),
            Err(_) => Disk::set_up(disk.database, retention, now),
        }
    }

    fn set_up(database: Database, retention: Retention, now: UnixTime) -> Result<Disk, StorageError> {
        let disk = Disk { database, retention };
        let config = Config::default();
        let revision = Revision::new(RevisionNo(0), now, Note::default(), Origin::Initial);
        disk.write(&Write {
            revision: Some((&revision, &config)),
            ..Write::default()
        })?;
        Ok(disk)
    }

    fn check_schema(&self, path: &Path) -> Result<(), OpenError> {
        match self.meta::<u64>("schema") {
            Ok(Some(found)) if found > SCHEMA => Err(OpenError::Newer {
                path: path.to_owned(),
                found,
                known: SCHEMA,
            }),
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(corrupt(path, "it has no schema number")),
            Err(error) => Err(corrupt(path, error.detail)),
        }
    }

    pub(crate) fn write(&self, change: &Write<'_>) -> Result<(), StorageError> {
        let mut transaction = self.database.begin_write().map_err(StorageError::new)?;
        transaction.set_quick_repair(true);
        {
            let mut meta = transaction.open_table(META).map_err(StorageError::new)?;
            let mut put =
                |key: &str, value: &[u8]| meta.insert(key, value).map(|_| ()).map_err(StorageError::new);
            put("schema", &to_bytes(&SCHEMA)?)?;
            if let Some(pending) = &change.pending {
                put("pending", &to_bytes(pending)?)?;
            }
            if let Some(config) = change.file {
                put("file", &to_bytes(config)?)?;
            }
        }
        if let Some((revision, config)) = change.revision {
            let mut meta = transaction.open_table(META).map_err(StorageError::new)?;
            let mut revisions = transaction.open_table(REVISIONS).map_err(StorageError::new)?;
            let mut configs = transaction.open_table(CONFIGS).map_err(StorageError::new)?;
            let content = to_bytes(config)?;
            let mut bytes = match meta.get("bytes").map_err(StorageError::new)? {
                Some(value) => from_bytes::<u64>("bytes", value.value())?,
                None => 0,
            };
            bytes = bytes.saturating_add(content.len() as u64);
            revisions
                .insert(revision.number.0, to_bytes(revision)?.as_slice())
                .map_err(StorageError::new)?;
            configs
                .insert(revision.number.0, content.as_slice())
                .map_err(StorageError::new)?;
            let pending = match &change.pending {
                Some(pending) => *pending,
                None => match meta.get("pending").map_err(StorageError::new)? {
                    Some(value) => from_bytes("pending", value.value())?,
                    None => None,
                },
            };
            let keep = pending.map_or(revision.number, |pending| pending.fallback).0;
            loop {
                let len = revisions.len().map_err(StorageError::new)?;
                if len <= self.retention.revisions && bytes <= self.retention.bytes {
                    break;
                }
                let oldest = revisions
                    .first()
                    .map_err(StorageError::new)?
                    .map(|(number, _)| number.value());
                let Some(oldest) = oldest.filter(|oldest| *oldest < keep) else {
                    break;
                };
                revisions.remove(oldest).map_err(StorageError::new)?;
                if let Some(gone) = configs.remove(oldest).map_err(StorageError::new)? {
                    bytes = bytes.saturating_sub(gone.value().len() as u64);
                }
            }
            meta.insert("bytes", to_bytes(&bytes)?.as_slice())
                .map_err(StorageError::new)?;
        }
        transaction.commit().map_err(StorageError::new)
    }

    pub(crate) fn pending(&self) -> Result<Option<Pending>, StorageError> {
        self.meta::<Option<Pending>>("pending").map(Option::flatten)
    }

    /// The content of the configuration file that was last taken over; `None` too if this version
    /// cannot read it any more.
    pub(crate) fn file(&self) -> Result<Option<serde_json::Value>, StorageError> {
        self.meta("file")
    }

    pub(crate) fn oldest_and_newest(&self) -> Result<(RevisionNo, RevisionNo), StorageError> {
        let transaction = self.database.begin_read().map_err(StorageError::new)?;
        let revisions = transaction.open_table(REVISIONS).map_err(StorageError::new)?;
        let number = |entry: Result<Option<(redb::AccessGuard<'_, u64>, _)>, redb::StorageError>| match entry
        {
            Ok(Some((number, _))) => Ok(RevisionNo(number.value())),
            Ok(None) => Err(StorageError::new("there is no revision")),
            Err(error) => Err(StorageError::new(error)),
        };
        Ok((number(revisions.first())?, number(revisions.last())?))
    }

    /// A revision and its content.
    pub(crate) fn at(&self, number: RevisionNo) -> Result<(Revision, Config), ReadError> {
        let transaction = self.database.begin_read().map_err(StorageError::new)?;
        let revisions = transaction.open_table(REVISIONS).map_err(StorageError::new)?;
        let configs = transaction.open_table(CONFIGS).map_err(StorageError::new)?;
        let revision = revisions.get(number.0).map_err(StorageError::new)?;
        let config = configs.get(number.0).map_err(StorageError::new)?;
        match (revision, config) {
            (Some(revision), Some(config)) => Ok((
                from_bytes("a revision", revision.value())?,
                from_bytes("the content of a revision", config.value())?,
            )),
            _ => {
                let (oldest, newest) = self.oldest_and_newest()?;
                Err(ReadError::NoSuchRevision {
                    wanted: number,
                    oldest,
                    newest,
                })
            }
        }
    }

    /// The newest revisions first.
    pub(crate) fn history(&self, limit: usize) -> Result<Vec<Revision>, StorageError> {
        let transaction = self.database.begin_read().map_err(StorageError::new)?;
        let revisions = transaction.open_table(REVISIONS).map_err(StorageError::new)?;
        let entries = revisions.iter().map_err(StorageError::new)?.rev().take(limit);
        entries
            .map(|entry| {
                let (_, revision) = entry.map_err(StorageError::new)?;
                from_bytes("a revision", revision.value())
            })
            .collect()
    }

    /// The revisions after `number`, the oldest first.
    pub(crate) fn since(&self, number: RevisionNo) -> Result<Vec<Revision>, StorageError> {
        let transaction = self.database.begin_read().map_err(StorageError::new)?;
        let revisions = transaction.open_table(REVISIONS).map_err(StorageError::new)?;
        let entries = revisions
            .range(number.0.saturating_add(1)..)
            .map_err(StorageError::new)?;
        entries
            .map(|entry| {
                let (_, revision) = entry.map_err(StorageError::new)?;
                from_bytes("a revision", revision.value())
            })
            .collect()
    }

    fn meta<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, StorageError> {
        let transaction = self.database.begin_read().map_err(StorageError::new)?;
        let meta = transaction.open_table(META).map_err(StorageError::new)?;
        let value = meta.get(key).map_err(StorageError::new)?;
        value.map(|value| from_bytes(key, value.value())).transpose()
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_SIZE);
    builder
}

fn to_bytes<T: Serialize>(value: &T) -> Result<Vec<u8>, StorageError> {
    serde_json::to_vec(value).map_err(StorageError::new)
}

fn from_bytes<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, StorageError> {
    serde_json::from_slice(bytes)
        .map_err(|error| StorageError::new(format!("{what} cannot be read: {error}")))
}

fn exists(path: &Path) -> Result<bool, OpenError> {
    path.try_exists().map_err(|error| io_error(path, error))
}

/// Makes the new name last: without it, a power cut could take the file back.
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

pub(crate) fn corrupt(path: &Path, detail: impl ToString) -> OpenError {
    OpenError::Corrupt {
        path: PathBuf::from(path),
        detail: detail.to_string(),
    }
}

fn database_error(path: &Path, error: DatabaseError) -> OpenError {
    match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::Locked {
            path: path.to_owned(),
        },
        DatabaseError::Storage(redb::StorageError::Io(source)) => match source.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => corrupt(path, source),
            _ => io_error(path, source),
        },
        error => corrupt(path, error),
    }
}
