//! The start of the daemon: import of the configuration file, and return to an earlier revision.

use millrace_model::Config;

use crate::disk::Write;
use crate::error::{CommitError, ReadError, StorageError};
use crate::origin::{Origin, Owned, Owners};
use crate::revision::{Note, Operation, Revision, RevisionNo};
use crate::store::Store;
use crate::time::UnixTime;

/// The result of the import of the configuration file at the start of the daemon.
#[derive(Debug, Clone, PartialEq)]
pub enum FileImport {
    /// The file equals its last imported version. The head stays; it may contain later changes.
    Unchanged(Revision),
    /// The file is new or has changed: its content is the head, and still awaits confirmation if it did before.
    Committed(Revision),
    /// The file is new or has changed, but its content is that of the revision before the head, which was cancelled or
    /// not confirmed in time. The head stays.
    RolledBack(Revision),
}

impl Store {
    /// Imports the configuration file at the start of the daemon: if it differs from the last imported version, its
    /// content becomes the head (and a pending confirmation ends); otherwise later changes through the API are kept.
    /// Objects of other origins stay as they are; [`Store::of_file`] names them.
    ///
    /// A start confirms nothing: a file with the content of the pending revision leaves it pending, and a file with the
    /// content of a revision that was rolled back by [`Store::tick`] or [`Store::cancel`] leaves the head, if that
    /// rollback was the last change.
    ///
    /// # Errors
    /// [`CommitError::Invalid`] or [`CommitError::Storage`].
    pub fn import(&self, config: &Config, note: Note, now: UnixTime) -> Result<FileImport, CommitError> {
        let writer = self.writer();
        self.expire(&writer, now)?;
        config.validate()?;
        let head = self.head();
        if self.is_last_import(config)? {
            return Ok(FileImport::Unchanged(head.revision.clone()));
        }
        let (wanted, _) = self.of_file(config)?;
        wanted.validate()?;
        let is_head = *head.config == wanted;
        if is_head || self.is_rolled_back(config)? {
            self.inner.disk.write(&Write {
                file: Some(config),
                ..Write::default()
            })?;
            let revision = head.revision.clone();
            return Ok(match is_head {
                true => FileImport::Committed(revision),
                false => FileImport::RolledBack(revision),
            });
        }
        let revision =
            self.write_config(&writer, wanted, note, Operation::Commit, None, Some(config), now)?;
        Ok(FileImport::Committed(revision))
    }

    /// Returns the configuration that the import of a file makes of the head, and the objects of other origins that it
    /// leaves as they are although they differ.
    ///
    /// # Errors
    /// [`CommitError::Invalid`] if the result cannot be decoded.
    pub fn of_file(&self, config: &Config) -> Result<(Config, Vec<Owned>), CommitError> {
        let head = self.head();
        Ok(head.keeping_others(config, &Owners::default(), &Origin::LOCAL)?)
    }

    /// Returns true if [`Store::import`] of `config` would keep the head, even if its content differs.
    ///
    /// # Errors
    /// [`StorageError`] if the store failed.
    pub fn has_imported(&self, config: &Config) -> Result<bool, StorageError> {
        Ok(self.is_last_import(config)? || self.is_rolled_back(config)?)
    }

    /// Returns true if `config` equals the last imported configuration file.
    fn is_last_import(&self, config: &Config) -> Result<bool, StorageError> {
        let before = self.inner.disk.file()?;
        let before = before.and_then(|json| Config::from_json(&json).ok());
        Ok(before.as_ref() == Some(config))
    }

    /// Returns true if the head replaced a revision with the content `config` that was not confirmed.
    fn is_rolled_back(&self, config: &Config) -> Result<bool, StorageError> {
        let head = self.head().revision.clone();
        let (Operation::Expired { .. } | Operation::Cancelled { .. }) = head.operation else {
            return Ok(false);
        };
        match self.at(RevisionNo(head.number.0.saturating_sub(1))) {
            Ok((_, rolled_back)) => Ok(self
                .of_file(config)
                .is_ok_and(|(wanted, _)| wanted == rolled_back)),
            Err(ReadError::NoSuchRevision { .. }) => Ok(false),
            // A version that cannot decode the revision any more treats the file as changed.
            Err(ReadError::Storage(error)) if error.medium.is_none() => Ok(false),
            Err(ReadError::Storage(error)) => Err(error),
        }
    }

    /// Makes the content of an earlier revision the head at the start of the daemon, as a new revision. Unlike
    /// [`Store::rollback`] it ends a pending confirmation: the pending revision may be the one that fails to start.
    ///
    /// # Errors
    /// [`CommitError`]; the store is unchanged then.
    pub fn restart_from(&self, to: RevisionNo, note: Note, now: UnixTime) -> Result<Revision, CommitError> {
        let writer = self.writer();
        self.expire(&writer, now)?;
        let (config, _) = self.restored(to, note.origin())?;
        config.validate()?;
        if *self.head().config == config {
            return Ok(self.keep_head(&writer)?);
        }
        Ok(self.write_config(&writer, config, note, Operation::Rollback { to }, None, None, now)?)
    }
}
