//! Transactions over the configuration. Writers are serialized by one lock, so each change is based on the head that
//! it replaces; readers and watchers take the last published snapshot and never block.

use std::path::Path;
use std::sync::Arc;

use millrace_model::{Change, Config, diff};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::disk::{self, Disk, PendingWrite, Write};
use crate::error::{CommitError, ConfirmError, Locked, OpenError, ReadError, StorageError};
use crate::lock::Lock;
use crate::origin::Owners;
use crate::revision::{Note, Operation, Pending, Revision, RevisionNo, Snapshot};
use crate::tables::Retention;
use crate::time::UnixTime;

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
    /// The author, the comment and the origin.
    pub note: Note,
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
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) disk: Disk,
    writer: Mutex<()>,
    head: watch::Sender<Arc<Snapshot>>,
    /// Changed only by the holder of `writer`.
    pub(crate) lock: watch::Sender<Option<Lock>>,
}

/// The permission to write: one at a time.
pub(crate) type Writer<'a> = MutexGuard<'a, ()>;

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
            owners: Arc::new(disk.owners(newest)?),
            externals: Arc::new(disk.externals()?),
        }));
        let store = Store {
            inner: Arc::new(Inner {
                disk,
                writer: Mutex::new(()),
                head,
                lock: watch::Sender::new(None),
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
    /// A revision of a machine replaces the head if that is a commit of the same machine.
    ///
    /// # Errors
    /// [`CommitError`]; the store is unchanged then.
    pub fn commit(&self, proposal: Proposal, now: UnixTime) -> Result<Revision, CommitError> {
        let writer = self.writer();
        self.expire(&writer, now)?;
        self.check(&proposal)?;
        self.refuse_if_pending()?;
        let Proposal { config, note, .. } = proposal;
        self.advance(&writer, config, note, Operation::Commit, None, now)
    }

    /// Commits as [`Store::commit`], but unless [`Store::confirm`] is called before `deadline`, the content
    /// of the previous revision is restored as a new revision, even if the process ends in between. If a
    /// revision is already pending, the new one replaces it and keeps the same fallback; if both
    /// configurations are equal, only the deadline changes, unless the new one has a comment of its own.
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
        let is_equal = head.pending.is_some() && *head.config == proposal.config;
        let comment = proposal.note.comment();
        if is_equal && !comment.is_empty() && comment != head.revision.comment {
            // The comment may name what confirms the revision.
            let Proposal { config, note, .. } = proposal;
            let operation = Operation::Commit;
            return Ok(self.write_config(&writer, config, note, operation, Some(pending), None, now)?);
        }
        if is_equal {
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
            Operation::Commit,
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

    /// Confirms the pending revision. `revision`, if given, must be its number; `note` names the session.
    ///
    /// # Errors
    /// [`ConfirmError`] if none or another one is pending.
    pub fn confirm(
        &self,
        revision: Option<RevisionNo>,
        note: &Note,
        now: UnixTime,
    ) -> Result<Revision, ConfirmError> {
        let writer = self.writer();
        self.expire(&writer, now)?;
        self.refuse_if_locked(note)?;
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
        self.refuse_if_locked(&note)?;
        let pending = self.pending_revision(revision)?;
        Ok(self.fall_back(
            &writer,
            pending,
            Operation::Cancelled { to: pending.fallback },
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

    /// Makes the content of an earlier revision the head, as a new revision. Objects of other origins stay as they are;
    /// [`Store::restored`] names them.
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
        let (config, _) = self.restored(to, note.origin())?;
        let proposal = Proposal {
            expected,
            config,
            note,
        };
        self.check(&proposal)?;
        self.refuse_if_pending()?;
        let Proposal { config, note, .. } = proposal;
        self.advance(&writer, config, note, Operation::Rollback { to }, None, now)
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

    /// Returns the owners of the objects of a revision.
    ///
    /// # Errors
    /// [`StorageError`] if the store failed.
    pub fn owners_at(&self, number: RevisionNo) -> Result<Owners, StorageError> {
        self.inner.disk.owners(number)
    }

    /// Returns the changes from revision `old` to revision `new`.
    ///
    /// # Errors
    /// [`ReadError`] if one of them does not exist or was removed from the history.
    pub fn diff(&self, old: RevisionNo, new: RevisionNo) -> Result<Vec<Change>, ReadError> {
        Ok(diff(&self.at(old)?.1, &self.at(new)?.1))
    }

    pub(crate) fn writer(&self) -> Writer<'_> {
        // The lock guards no data: a writer that panicked has published nothing.
        self.inner.writer.lock()
    }

    fn check(&self, proposal: &Proposal) -> Result<(), CommitError> {
        let head = self.head().revision.number;
        match proposal.expected {
            Some(expected) if expected != head => return Err(CommitError::Conflict { expected, head }),
            _ => proposal.config.validate()?,
        }
        self.refuse_if_locked(&proposal.note)?;
        let (head, by) = (self.head(), proposal.note.origin());
        let objects = head.owners.foreign_changes(&head.config, &proposal.config, by);
        match objects.is_empty() {
            true => Ok(()),
            false => Err(CommitError::Owned {
                objects,
                by: by.clone(),
            }),
        }
    }

    pub(crate) fn refuse_if_locked(&self, note: &Note) -> Result<(), Locked> {
        match &*self.inner.lock.borrow() {
            Some(lock) if !lock.is_of(note.lock()) => Err(Locked {
                holder: lock.holder.clone(),
                expires: lock.expires,
            }),
            _ => Ok(()),
        }
    }

    pub(crate) fn refuse_if_pending(&self) -> Result<(), CommitError> {
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

    pub(crate) fn expire(
        &self,
        writer: &Writer<'_>,
        now: UnixTime,
    ) -> Result<Option<Revision>, StorageError> {
        self.expire_lock(writer, now);
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
                let operation = Operation::Expired { to: pending.fallback };
                self.fall_back(writer, pending, operation, note, now).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn fall_back(
        &self,
        writer: &Writer<'_>,
        pending: Pending,
        operation: Operation,
        note: Note,
        now: UnixTime,
    ) -> Result<Revision, StorageError> {
        let (_, config) = self.at(pending.fallback).map_err(|error| match error {
            ReadError::Storage(error) => error,
            error @ ReadError::NoSuchRevision { .. } => StorageError::new(&error),
        })?;
        let owners = self.inner.disk.owners(pending.fallback)?;
        let snapshot = Snapshot {
            revision: self.next(note, operation, now),
            config: Arc::new(config),
            pending: None,
            owners: Arc::new(owners),
            externals: Arc::clone(&self.head().externals),
        };
        self.write(writer, snapshot, None)
    }

    /// Ends the lock if its lease is over.
    pub(crate) fn expire_lock(&self, _: &Writer<'_>, now: UnixTime) {
        let held = self.inner.lock.borrow().clone();
        let Some(lock) = held else {
            return;
        };
        let left = lock.clone().at(now);
        if left.as_ref() != Some(&lock) {
            if left.is_none() {
                tracing::warn!(
                    holder = lock.holder,
                    "the lease of the lock on the configuration ended"
                );
            }
            self.inner.lock.send_replace(left);
        }
    }

    /// Changes the time to confirm the head.
    fn change_pending(&self, _: &Writer<'_>, pending: Pending) -> Result<(), StorageError> {
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
    pub(crate) fn keep_head(&self, _: &Writer<'_>) -> Result<Revision, StorageError> {
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
    pub(crate) fn advance(
        &self,
        writer: &Writer<'_>,
        config: Config,
        note: Note,
        operation: Operation,
        pending: Option<Pending>,
        now: UnixTime,
    ) -> Result<Revision, CommitError> {
        let head = self.head();
        if *head.config == config {
            self.note_external(writer, &note)?;
            return Ok(head.revision.clone());
        }
        Ok(self.write_config(writer, config, note, operation, pending, None, now)?)
    }

    /// Writes and returns a new head. `file` is the imported configuration file, if this change imports one.
    #[expect(clippy::too_many_arguments, reason = "each is one part of a revision")]
    pub(crate) fn write_config(
        &self,
        writer: &Writer<'_>,
        config: Config,
        note: Note,
        operation: Operation,
        pending: Option<Pending>,
        file: Option<&Config>,
        now: UnixTime,
    ) -> Result<Revision, StorageError> {
        let head = self.head();
        let externals = self.externals_after(&note);
        let mut revision = self.next(note, operation, now);
        let before = &head.revision;
        let is_continued = !revision.origin.is_local()
            && before.origin == revision.origin
            && (before.operation, operation) == (Operation::Commit, Operation::Commit)
            && head.pending.is_none()
            && pending.is_none();
        revision.replaces = is_continued.then(|| before.replaces.unwrap_or(before.number));
        let owners = head.owners.after(&head.config, &config, &revision.origin);
        let snapshot = Snapshot {
            revision,
            config: Arc::new(config),
            pending,
            owners: Arc::new(owners),
            externals: externals.unwrap_or_else(|| Arc::clone(&head.externals)),
        };
        self.write(writer, snapshot, file)
    }

    pub(crate) fn next(&self, note: Note, operation: Operation, now: UnixTime) -> Revision {
        Revision::new(
            RevisionNo(self.head().revision.number.0 + 1),
            now,
            note,
            operation,
        )
    }

    /// Writes a new head to the medium, then publishes it. Returns its revision.
    pub(crate) fn write(
        &self,
        _: &Writer<'_>,
        snapshot: Snapshot,
        file: Option<&Config>,
    ) -> Result<Revision, StorageError> {
        let has_new_externals = !Arc::ptr_eq(&snapshot.externals, &self.head().externals);
        self.inner.disk.write(&Write {
            revision: Some((&snapshot.revision, &snapshot.config, &snapshot.owners)),
            pending: snapshot.pending.into(),
            file,
            externals: has_new_externals.then_some(&*snapshot.externals),
        })?;
        let revision = snapshot.revision.clone();
        self.publish(snapshot);
        Ok(revision)
    }

    pub(crate) fn publish(&self, snapshot: Snapshot) {
        self.inner.head.send_replace(Arc::new(snapshot));
    }
}
