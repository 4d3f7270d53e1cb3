//! Transactions over the configuration. Writers are serialized by one lock, so each change is based on the head that
//! it replaces; readers and watchers take the last published snapshot and never block.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_model::{Change, Config, diff};
use tokio::sync::watch;

use crate::disk::{self, Disk, PendingWrite, Retention, Write};
use crate::error::{CommitError, ConfirmError, OpenError, ReadError, StorageError};
use crate::revision::{Note, Origin, Pending, Revision, RevisionNo, Snapshot, UnixTime};

/// The file name of the store in its directory.
pub const FILE_NAME: &str = "store.redb";

/// The tolerance, in seconds, for a `now` before the time of a pending revision. Within it, the clock does
/// not count as set back: a caller reads the clock before it waits for other writers.
const CLOCK_TOLERANCE_S: u64 = 5;

/// A proposed change.
#[derive(Debug, Clone)]
pub struct Proposal {
    /// The revision on which the change is based; a commit is rejected if it is no longer the head. `None` replaces
    /// any head.
    pub expected: Option<RevisionNo>,
    /// The whole desired configuration.
    pub config: Config,
    /// The author and comment.
    pub note: Note,
}

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

/// The configuration store. Clones share one store. Calls that write block for the duration of the disk writes (some
/// milliseconds), so an async caller runs them on a blocking thread.
///
/// States of the head:
///
/// ```text
///               commit_confirm
///  ┌───────────┐ ──────────────▶ ┌─────────┐ commit_confirm
///  │ confirmed │                 │ pending │ ◀─┐ (new head, or new deadline)
///  └───────────┘ ◀────────────── └─────────┘ ──┘
///    ▲       │     confirm            │
///    └───────┘                        │ cancel, or tick at the deadline
///  commit, rollback                   ▼
///                a new confirmed revision with the content of the fallback
/// ```
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    disk: Disk,
    writer: Mutex<()>,
    head: watch::Sender<Arc<Snapshot>>,
}

impl Store {
    /// Opens the store in `directory`, which is created if it is absent. A revision whose deadline is before `now` is
    /// rolled back before it is visible; one with a later deadline keeps it.
    ///
    /// # Errors
    /// [`OpenError`]: in use, no permission, damaged, or written by a newer version.
    pub fn open(directory: &Path, now: UnixTime) -> Result<Store, OpenError> {
        Store::open_with(directory, Retention::default(), now)
    }

    /// Opens the store as [`Store::open`] with other limits of the history.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_with(directory: &Path, retention: Retention, now: UnixTime) -> Result<Store, OpenError> {
        disk::make_directory(directory)?;
        let path = directory.join(FILE_NAME);
        let disk = Disk::open(&path, retention, now)?;
        Store::start(disk, now).map_err(|error| disk::storage_error(&path, error))
    }

    /// Returns a store in memory, which is lost with its last clone.
    ///
    /// # Errors
    /// [`StorageError`] if memory cannot be allocated.
    pub fn in_memory(now: UnixTime) -> Result<Store, StorageError> {
        Store::start(Disk::in_memory(Retention::default(), now)?, now)
    }

    pub(crate) fn start(disk: Disk, now: UnixTime) -> Result<Store, StorageError> {
        let (_, newest) = disk.oldest_and_newest()?;
        let (revision, config) = disk.at(newest).map_err(|error| match error {
            ReadError::Storage(error) => error,
            error @ ReadError::NoSuchRevision { .. } => StorageError::new(&error),
        })?;
        let pending = disk.pending()?;
        let (head, _) = watch::channel(Arc::new(Snapshot {
            revision,
            config: Arc::new(config),
            pending,
        }));
        let store = Store {
            inner: Arc::new(Inner {
                disk,
                writer: Mutex::new(()),
                head,
            }),
        };
        store.tick(now)?;
        Ok(store)
    }

    /// Returns the newest revision, its content, and its pending confirmation, if any.
    pub fn head(&self) -> Arc<Snapshot> {
        self.inner.head.borrow().clone()
    }

    /// Returns a receiver that always holds the newest snapshot. A slow receiver misses intermediate snapshots but no
    /// revisions: [`Store::since`] lists them.
    pub fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.inner.head.subscribe()
    }

    /// Makes the proposed configuration the head. When the call returns, the revision is on the medium. A
    /// configuration equal to the head makes no new revision.
    ///
    /// # Errors
    /// [`CommitError`]; the store is unchanged then.
    pub fn commit(&self, proposal: Proposal, now: UnixTime) -> Result<Revision, CommitError> {
        let writer = self.writer();
        self.expire(&writer, now)?;
        self.check(&proposal)?;
        self.refuse_if_pending()?;
        self.advance(&writer, proposal.config, proposal.note, Origin::Commit, None, now)
    }

    /// Commits as [`Store::commit`], but unless [`Store::confirm`] is called before `deadline`, the content
    /// of the previous revision is restored as a new revision, even if the process ends in between. If a
    /// revision is already pending, the new one replaces it and keeps the same fallback; if both
    /// configurations are equal, only the deadline changes.
    ///
    /// # Errors
    /// [`CommitError`]; the store is unchanged then.
    pub fn commit_confirm(
        &self,
        proposal: Proposal,
        deadline: UnixTime,
        now: UnixTime,
    ) -> Result<Revision, CommitError> {
        let writer = self.writer();
        self.expire(&writer, now)?;
        self.check(&proposal)?;
        if deadline <= now {
            return Err(CommitError::DeadlinePassed { deadline, now });
        }
        let head = self.head();
        let pending = Pending {
            revision: RevisionNo(head.revision.number.0 + 1),
            fallback: head
                .pending
                .map_or(head.revision.number, |pending| pending.fallback),
            since: now,
            deadline,
        };
        if head.pending.is_some() && *head.config == proposal.config {
            let extended = Pending {
                revision: head.revision.number,
                ..pending
            };
            self.change_pending(&writer, extended)?;
            return Ok(head.revision.clone());
        }
        self.advance(
            &writer,
            proposal.config,
            proposal.note,
            Origin::Commit,
            Some(pending),
            now,
        )
    }

    /// Returns the changes that a commit of the proposal at `now` would make; empty if the proposal is equal
    /// to the head. If `to_confirm` is true, the commit is a [`Store::commit_confirm`], which a pending
    /// revision does not prevent. As in a commit, an unconfirmed revision whose deadline has passed is rolled
    /// back first.
    ///
    /// # Errors
    /// [`CommitError`], as the commit itself would return.
    pub fn dry_run(
        &self,
        proposal: &Proposal,
        to_confirm: bool,
        now: UnixTime,
    ) -> Result<Vec<Change>, CommitError> {
        let writer = self.writer();
        self.expire(&writer, now)?;
        self.check(proposal)?;
        if !to_confirm {
            self.refuse_if_pending()?;
        }
        Ok(diff(&self.head().config, &proposal.config))
    }

    /// Confirms the pending revision. `revision`, if given, must be its number.
    ///
    /// # Errors
    /// [`ConfirmError`] if none or another one is pending.
    pub fn confirm(&self, revision: Option<RevisionNo>, now: UnixTime) -> Result<Revision, ConfirmError> {
        let writer = self.writer();
        self.expire(&writer, now)?;
        self.pending_revision(revision)?;
        Ok(self.keep_head(&writer)?)
    }

    /// Rolls the pending revision back before its deadline.
    ///
    /// # Errors
    /// [`ConfirmError`] if none or another one is pending.
    pub fn cancel(
        &self,
        revision: Option<RevisionNo>,
        note: Note,
        now: UnixTime,
    ) -> Result<Revision, ConfirmError> {
        let writer = self.writer();
        self.expire(&writer, now)?;
        let pending = self.pending_revision(revision)?;
        Ok(self.fall_back(
            &writer,
            pending,
            Origin::Cancelled { to: pending.fallback },
            note,
            now,
        )?)
    }

    /// Rolls an unconfirmed revision back if its deadline has passed, and returns the new head then. The
    /// daemon calls this about once per second while a revision is pending.
    ///
    /// # Errors
    /// [`StorageError`] if the store failed; the revision is still pending then.
    pub fn tick(&self, now: UnixTime) -> Result<Option<Revision>, StorageError> {
        let writer = self.writer();
        self.expire(&writer, now)
    }

    /// Makes the content of an earlier revision the head, as a new revision.
    ///
    /// # Errors
    /// [`CommitError`]; the store is unchanged then.
    pub fn rollback(
        &self,
        expected: Option<RevisionNo>,
        to: RevisionNo,
        note: Note,
        now: UnixTime,
    ) -> Result<Revision, CommitError> {
        let writer = self.writer();
        self.expire(&writer, now)?;
        let (_, config) = self.at(to)?;
        let proposal = Proposal {
            expected,
            config,
            note,
        };
        self.check(&proposal)?;
        self.refuse_if_pending()?;
        self.advance(
            &writer,
            proposal.config,
            proposal.note,
            Origin::Rollback { to },
            None,
            now,
        )
    }

    /// Imports the configuration file at the start of the daemon: if it differs from the last imported version, its
    /// content becomes the head (and a pending confirmation ends); otherwise later changes through the API are kept.
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
        let is_head = *head.config == *config;
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
        let revision = self.next(note, Origin::Commit, now);
        self.write(&writer, &revision, config.clone(), None, Some(config))?;
        Ok(FileImport::Committed(revision))
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
        let (Origin::Expired { .. } | Origin::Cancelled { .. }) = head.origin else {
            return Ok(false);
        };
        match self.at(RevisionNo(head.number.0.saturating_sub(1))) {
            Ok((_, rolled_back)) => Ok(rolled_back == *config),
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
        let (_, config) = self.at(to)?;
        config.validate()?;
        if *self.head().config == config {
            return Ok(self.keep_head(&writer)?);
        }
        let revision = self.next(note, Origin::Rollback { to }, now);
        self.write(&writer, &revision, config, None, None)?;
        Ok(revision)
    }

    /// Returns the newest `limit` revisions, the newest first.
    ///
    /// # Errors
    /// [`StorageError`] if the store failed.
    pub fn history(&self, limit: usize) -> Result<Vec<Revision>, StorageError> {
        self.inner.disk.history(limit)
    }

    /// Returns the revisions after `number`, the oldest first. If the first one is not `number + 1`, those in between
    /// were removed from the history.
    ///
    /// # Errors
    /// [`StorageError`] if the store failed.
    pub fn since(&self, number: RevisionNo) -> Result<Vec<Revision>, StorageError> {
        self.inner.disk.since(number)
    }

    /// Returns a revision and its content.
    ///
    /// # Errors
    /// [`ReadError`] if the revision does not exist or was removed from the history.
    pub fn at(&self, number: RevisionNo) -> Result<(Revision, Config), ReadError> {
        self.inner.disk.at(number)
    }

    /// Returns the changes from revision `old` to revision `new`.
    ///
    /// # Errors
    /// [`ReadError`] if one of them does not exist or was removed from the history.
    pub fn diff(&self, old: RevisionNo, new: RevisionNo) -> Result<Vec<Change>, ReadError> {
        Ok(diff(&self.at(old)?.1, &self.at(new)?.1))
    }

    fn writer(&self) -> MutexGuard<'_, ()> {
        // The lock guards no data: a writer that panicked has published nothing.
        self.inner.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, proposal: &Proposal) -> Result<(), CommitError> {
        let head = self.head().revision.number;
        match proposal.expected {
            Some(expected) if expected != head => Err(CommitError::Conflict { expected, head }),
            _ => Ok(proposal.config.validate()?),
        }
    }

    fn refuse_if_pending(&self) -> Result<(), CommitError> {
        match self.head().pending {
            Some(Pending {
                revision, deadline, ..
            }) => Err(CommitError::Unconfirmed { revision, deadline }),
            None => Ok(()),
        }
    }

    fn pending_revision(&self, wanted: Option<RevisionNo>) -> Result<Pending, ConfirmError> {
        let head = self.head();
        match (head.pending, wanted) {
            (None, _) => Err(ConfirmError::NothingPending {
                head: head.revision.number,
            }),
            (Some(pending), Some(wanted)) if pending.revision != wanted => Err(ConfirmError::OtherPending {
                wanted,
                pending: pending.revision,
            }),
            (Some(pending), _) => Ok(pending),
        }
    }

    fn expire(&self, writer: &MutexGuard<'_, ()>, now: UnixTime) -> Result<Option<Revision>, StorageError> {
        match self.head().pending {
            Some(pending) if now.plus(CLOCK_TOLERANCE_S) < pending.since => {
                // After the clock was set back, the remaining time to confirm does not exceed the original one.
                let moved = Pending {
                    since: now,
                    deadline: now.plus(pending.deadline.since(pending.since).as_secs()),
                    ..pending
                };
                tracing::warn!(
                    revision = pending.revision.0,
                    deadline = moved.deadline.0,
                    "the clock was set back: the time to confirm begins anew"
                );
                self.change_pending(writer, moved)?;
                Ok(None)
            }
            Some(pending) if now >= pending.deadline => {
                let note = Note::new(
                    "millraced",
                    &format!("revision {} was not confirmed in time", pending.revision),
                );
                tracing::warn!(
                    revision = pending.revision.0,
                    fallback = pending.fallback.0,
                    "not confirmed in time: rolled back"
                );
                let origin = Origin::Expired { to: pending.fallback };
                self.fall_back(writer, pending, origin, note, now).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn fall_back(
        &self,
        writer: &MutexGuard<'_, ()>,
        pending: Pending,
        origin: Origin,
        note: Note,
        now: UnixTime,
    ) -> Result<Revision, StorageError> {
        let (_, config) = self.at(pending.fallback).map_err(|error| match error {
            ReadError::Storage(error) => error,
            error @ ReadError::NoSuchRevision { .. } => StorageError::new(&error),
        })?;
        let revision = self.next(note, origin, now);
        self.write(writer, &revision, config, None, None)?;
        Ok(revision)
    }

    /// Changes the time to confirm the head.
    fn change_pending(&self, _: &MutexGuard<'_, ()>, pending: Pending) -> Result<(), StorageError> {
        self.inner.disk.write(&Write {
            pending: PendingWrite::Set(pending),
            ..Write::default()
        })?;
        let head = self.head();
        self.publish(Snapshot {
            pending: Some(pending),
            ..(*head).clone()
        });
        Ok(())
    }

    /// Keeps the head and ends a pending confirmation.
    fn keep_head(&self, _: &MutexGuard<'_, ()>) -> Result<Revision, StorageError> {
        self.inner.disk.write(&Write {
            pending: PendingWrite::Clear,
            ..Write::default()
        })?;
        let head = self.head();
        self.publish(Snapshot {
            pending: None,
            ..(*head).clone()
        });
        Ok(head.revision.clone())
    }

    /// Writes and returns a new head, or the current one if the configuration is equal to it.
    fn advance(
        &self,
        writer: &MutexGuard<'_, ()>,
        config: Config,
        note: Note,
        origin: Origin,
        pending: Option<Pending>,
        now: UnixTime,
    ) -> Result<Revision, CommitError> {
        let head = self.head();
        if *head.config == config {
            return Ok(head.revision.clone());
        }
        let revision = self.next(note, origin, now);
        self.write(writer, &revision, config, pending, None)?;
        Ok(revision)
    }

    fn next(&self, note: Note, origin: Origin, now: UnixTime) -> Revision {
        Revision::new(RevisionNo(self.head().revision.number.0 + 1), now, note, origin)
    }

    /// Writes a new head to the medium, then publishes it. `pending` is its pending confirmation.
    fn write(
        &self,
        _: &MutexGuard<'_, ()>,
        revision: &Revision,
        config: Config,
        pending: Option<Pending>,
        file: Option<&Config>,
    ) -> Result<(), StorageError> {
        self.inner.disk.write(&Write {
            revision: Some((revision, &config)),
            pending: pending.into(),
            file,
        })?;
        self.publish(Snapshot {
            revision: revision.clone(),
            config: Arc::new(config),
            pending,
        });
        Ok(())
    }

    fn publish(&self, snapshot: Snapshot) {
        self.inner.head.send_replace(Arc::new(snapshot));
    }
}
