//! Transactions over the configuration. All writers take one lock, so each change sees the head that it
//! replaces; readers and watchers take the last published snapshot and wait for nobody.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_model::{Change, Config, diff};
use tokio::sync::watch;

use crate::disk::{self, Disk, PendingWrite, Retention, Write};
use crate::error::{CommitError, ConfirmError, OpenError, ReadError, StorageError};
use crate::revision::{Note, Origin, Pending, Revision, RevisionNo, Snapshot, UnixTime};

/// The name of the store in its directory.
pub const FILE_NAME: &str = "store.redb";

/// A change that somebody wants.
#[derive(Debug, Clone)]
pub struct Proposal {
    /// The revision that the change was made from; a commit is refused if it is no longer the head.
    /// `None` overwrites whatever is there.
    pub expected: Option<RevisionNo>,
    /// The whole configuration as it should be.
    pub config: Config,
    /// Who wants it, and why.
    pub note: Note,
}

/// What became of the configuration file at the start of the daemon.
#[derive(Debug, Clone, PartialEq)]
pub enum Adopted {
    /// The file is as it was when it was last taken over: the head, which may hold later changes, stays.
    Unchanged(Revision),
    /// The file is new or has changed: its content is the head now.
    Committed(Revision),
}

/// The configuration store. Clones share one store. Calls that write block for as long as the disk takes
/// (some milliseconds), so an async caller moves them off its threads.
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
    /// Opens the store in `directory`, which is made if it is missing. A revision that was not confirmed
    /// before `now` is taken back before anybody sees it; one that still has time keeps the rest of it.
    ///
    /// # Errors
    /// [`OpenError`]: in use, no permission, damaged, or written by a newer version.
    pub fn open(directory: &Path, now: UnixTime) -> Result<Store, OpenError> {
        Store::open_with(directory, Retention::default(), now)
    }

    /// [`Store::open`] with another bound on the history.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_with(directory: &Path, retention: Retention, now: UnixTime) -> Result<Store, OpenError> {
        disk::make_directory(directory)?;
        let path = directory.join(FILE_NAME);
        let disk = Disk::open(&path, retention, now)?;
        Store::start(disk, now).map_err(|error| disk::corrupt(&path, error.detail))
    }

    /// A store that is gone with its last clone.
    ///
    /// # Errors
    /// [`StorageError`] if memory cannot be had.
    pub fn in_memory(now: UnixTime) -> Result<Store, StorageError> {
        Store::start(Disk::in_memory(Retention::default(), now)?, now)
    }

    pub(crate) fn start(disk: Disk, now: UnixTime) -> Result<Store, StorageError> {
        let (_, newest) = disk.oldest_and_newest()?;
        let (revision, config) = disk.at(newest).map_err(|error| match error {
            ReadError::Storage(error) => error,
            error @ ReadError::NoSuchRevision { .. } => StorageError::new(&error),
        })?;
        let mut pending = disk.pending()?;
        if let Some(waiting) = pending.as_mut().filter(|waiting| now < waiting.since) {
            // The clock was set back: the time to confirm in does not grow by that.
            waiting.deadline = now.plus(waiting.deadline.since(waiting.since).as_secs());
            waiting.since = now;
            disk.write(&Write {
                pending: PendingWrite::Set(*waiting),
                ..Write::default()
            })?;
        }
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

    /// The newest revision, its content, and whether it waits to be confirmed.
    pub fn head(&self) -> Arc<Snapshot> {
        self.inner.head.borrow().clone()
    }

    /// A receiver that always holds the newest snapshot. One that is slow misses snapshots in between, not
    /// revisions: [`Store::since`] lists what it missed.
    pub fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.inner.head.subscribe()
    }

    /// Makes the proposed configuration the head. When this returns, it is on the medium. A configuration
    /// equal to the head makes no new revision.
    ///
    /// # Errors
    /// [`CommitError`]; nothing has changed then.
    pub fn commit(&self, proposal: Proposal, now: UnixTime) -> Result<Revision, CommitError> {
        let writer = self.writer();
        self.expire(&writer, now)?;
        self.check(&proposal)?;
        self.refuse_if_pending()?;
        self.advance(&writer, proposal.config, proposal.note, Origin::Commit, None, now)
    }

    /// Like [`Store::commit`], but unless [`Store::confirm`] is called before `deadline`, the content of
    /// the revision before comes back as a new revision, even if the process dies in between. If a revision
    /// waits already, this one takes its place and falls back to the same content; if both are equal, only
    /// the deadline moves.
    ///
    /// # Errors
    /// [`CommitError`]; nothing has changed then.
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
            self.inner.disk.write(&Write {
                pending: PendingWrite::Set(extended),
                ..Write::default()
            })?;
            self.publish(Snapshot {
                pending: Some(extended),
                ..(*head).clone()
            });
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

    /// Returns what a commit of the proposal at `now` would change; nothing if it is equal to the head. As with a
    /// commit, an unconfirmed revision whose time has run out is taken back first.
    ///
    /// # Errors
    /// [`CommitError`], as the commit itself would.
    pub fn dry_run(&self, proposal: &Proposal, now: UnixTime) -> Result<Vec<Change>, CommitError> {
        let writer = self.writer();
        self.expire(&writer, now)?;
        self.check(proposal)?;
        self.refuse_if_pending()?;
        Ok(diff(&self.head().config, &proposal.config))
    }

    /// Keeps the revision that waits. `revision` names it, if the caller wants to be sure which.
    ///
    /// # Errors
    /// [`ConfirmError`] if none waits (any more), or another one.
    pub fn confirm(&self, revision: Option<RevisionNo>, now: UnixTime) -> Result<Revision, ConfirmError> {
        let writer = self.writer();
        self.expire(&writer, now)?;
        self.waiting(revision)?;
        Ok(self.keep(&writer, None)?)
    }

    /// Takes the revision that waits back now.
    ///
    /// # Errors
    /// [`ConfirmError`] if none waits (any more), or another one.
    pub fn cancel(
        &self,
        revision: Option<RevisionNo>,
        note: Note,
        now: UnixTime,
    ) -> Result<Revision, ConfirmError> {
        let writer = self.writer();
        self.expire(&writer, now)?;
        let pending = self.waiting(revision)?;
        Ok(self.fall_back(
            &writer,
            pending,
            Origin::Cancelled { to: pending.fallback },
            note,
            now,
        )?)
    }

    /// Takes an unconfirmed revision back if its time has run out, and says so. To be called about once a
    /// second while a revision waits.
    ///
    /// # Errors
    /// [`StorageError`] if the store failed; the revision still waits then.
    pub fn tick(&self, now: UnixTime) -> Result<Option<Revision>, StorageError> {
        let writer = self.writer();
        self.expire(&writer, now)
    }

    /// Makes the content of an earlier revision the head, as a new revision.
    ///
    /// # Errors
    /// [`CommitError`]; nothing has changed then.
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

    /// Takes the configuration file over at the start of the daemon: if it differs from what it was when it
    /// was last taken over, its content becomes the head (and ends a wait for confirmation); if not, later
    /// changes made through the API stay.
    ///
    /// # Errors
    /// [`CommitError::Invalid`] or [`CommitError::Storage`].
    pub fn adopt(&self, config: &Config, note: Note, now: UnixTime) -> Result<Adopted, CommitError> {
        let writer = self.writer();
        self.expire(&writer, now)?;
        config.validate()?;
        let head = self.head();
        if self.has_adopted(config)? {
            return Ok(Adopted::Unchanged(head.revision.clone()));
        }
        if *head.config == *config {
            return Ok(Adopted::Unchanged(self.keep(&writer, Some(config))?));
        }
        let revision = self.next(note, Origin::Commit, now);
        self.write(&writer, &revision, config.clone(), None, Some(config))?;
        Ok(Adopted::Committed(revision))
    }

    /// Whether `config` is the content of the configuration file when it was last taken over: whether
    /// [`Store::adopt`] would leave the head as it is.
    ///
    /// # Errors
    /// [`StorageError`] if the store failed.
    pub fn has_adopted(&self, config: &Config) -> Result<bool, StorageError> {
        let before = self.inner.disk.file()?;
        let before = before.and_then(|json| Config::from_json(&json).ok());
        Ok(before.as_ref() == Some(config))
    }

    /// Makes the content of an earlier revision the head at the start of the daemon, as a new revision. Unlike
    /// [`Store::rollback`] it ends a wait for confirmation: the revision that waits may be the one that does not
    /// start.
    ///
    /// # Errors
    /// [`CommitError`]; nothing has changed then.
    pub fn restart_from(&self, to: RevisionNo, note: Note, now: UnixTime) -> Result<Revision, CommitError> {
        let writer = self.writer();
        self.expire(&writer, now)?;
        let (_, config) = self.at(to)?;
        config.validate()?;
        if *self.head().config == config {
            return Ok(self.keep(&writer, None)?);
        }
        let revision = self.next(note, Origin::Rollback { to }, now);
        self.write(&writer, &revision, config, None, None)?;
        Ok(revision)
    }

    /// The newest `limit` revisions, the newest first.
    ///
    /// # Errors
    /// [`StorageError`] if the store failed.
    pub fn history(&self, limit: usize) -> Result<Vec<Revision>, StorageError> {
        self.inner.disk.history(limit)
    }

    /// The revisions after `number`, the oldest first: what a watcher missed. If the first one is not
    /// `number + 1`, those in between are no longer kept.
    ///
    /// # Errors
    /// [`StorageError`] if the store failed.
    pub fn since(&self, number: RevisionNo) -> Result<Vec<Revision>, StorageError> {
        self.inner.disk.since(number)
    }

    /// A revision and its content.
    ///
    /// # Errors
    /// [`ReadError`] if it is not there, or not any more.
    pub fn at(&self, number: RevisionNo) -> Result<(Revision, Config), ReadError> {
        self.inner.disk.at(number)
    }

    /// What changed from revision `old` to revision `new`.
    ///
    /// # Errors
    /// [`ReadError`] if one of them is not there, or not any more.
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

    fn waiting(&self, wanted: Option<RevisionNo>) -> Result<Pending, ConfirmError> {
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
            Some(pending) if now >= pending.deadline => {
                let note = Note::new(
                    "millraced",
                    &format!("revision {} was not confirmed in time", pending.revision),
                );
                tracing::warn!(
                    revision = pending.revision.0,
                    fallback = pending.fallback.0,
                    "not confirmed in time: taken back"
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

    /// The head stays and waits for nothing; `file` is what was taken over.
    fn keep(&self, _: &MutexGuard<'_, ()>, file: Option<&Config>) -> Result<Revision, StorageError> {
        self.inner.disk.write(&Write {
            pending: PendingWrite::Clear,
            file,
            ..Write::default()
        })?;
        let head = self.head();
        self.publish(Snapshot {
            pending: None,
            ..(*head).clone()
        });
        Ok(head.revision.clone())
    }

    /// A new head, unless nothing would change.
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

    /// Writes a new head to the medium, and then shows it to the watchers. `pending` is its wait for confirmation.
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
