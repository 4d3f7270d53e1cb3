//! A database on a simulated medium, which is slow or full at times, and counts its writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millrace_ix_store::{
    Answer, AuditEntry, AuditRecord, ChangeRecord, Committed, Contents, IdempotencyKey, JournalRecord,
    Revision, Session, SignedHead, SigningKey, Sqlite, Standing, Store, StoreError, StoredAnswer,
    Transaction, UnixMillis,
};
use serde_json::Value;

/// The state of a medium, which is read and set while the engine uses it.
#[derive(Debug, Default)]
pub struct Controls {
    /// True if the medium has no space.
    pub is_full: AtomicBool,
    /// The time that each write to the medium takes, in milliseconds.
    pub delay_ms: AtomicU64,
    /// The number of writes to the medium.
    pub writes: AtomicU64,
    /// The newest revision on the medium.
    pub revision: AtomicU64,
}

/// A database in memory that counts its writes to the medium, delays them, and has no space at times.
#[derive(Debug)]
pub struct Medium {
    inner: Sqlite,
    controls: Arc<Controls>,
    /// The newest revision of the group.
    written: u64,
}

impl Medium {
    /// Returns a database on a medium, and the state of the medium.
    pub fn over(inner: Sqlite) -> (Medium, Arc<Controls>) {
        let controls = Arc::new(Controls::default());
        let medium = Medium {
            inner,
            controls: Arc::clone(&controls),
            written: 0,
        };
        (medium, controls)
    }

    fn writable(&mut self) -> Result<&mut Sqlite, StoreError> {
        if self.controls.is_full.load(Ordering::SeqCst) {
            Err(StoreError::Full)
        } else {
            Ok(&mut self.inner)
        }
    }
}

impl Store for Medium {
    fn load(&self) -> Result<Contents, StoreError> {
        self.inner.load()
    }
    fn newest_time(&self) -> Result<UnixMillis, StoreError> {
        self.inner.newest_time()
    }
    fn standing(&mut self) -> Standing {
        self.inner.standing()
    }
    fn reset_time(&mut self, now: UnixMillis, entry: AuditEntry) -> Result<UnixMillis, StoreError> {
        self.writable()?.reset_time(now, entry)
    }
    fn begin(&mut self) -> Result<(), StoreError> {
        self.inner.begin()
    }
    fn write(&mut self, transaction: &Transaction, now: UnixMillis) -> Result<Committed, StoreError> {
        let committed = self.inner.write(transaction, now)?;
        self.written = committed.revision.0;
        Ok(committed)
    }
    fn finish(&mut self) -> Result<(), StoreError> {
        // A disk that is full refuses the write of the whole group.
        if self.controls.is_full.load(Ordering::SeqCst) {
            self.inner.abandon();
        }
        self.writable()?.finish()?;
        let delay = self.controls.delay_ms.load(Ordering::SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(delay));
        self.controls.writes.fetch_add(1, Ordering::SeqCst);
        self.controls.revision.store(self.written, Ordering::SeqCst);
        Ok(())
    }
    fn abandon(&mut self) {
        self.inner.abandon();
    }
    fn answer(&self, key: &IdempotencyKey, now: UnixMillis) -> Result<Option<StoredAnswer>, StoreError> {
        self.inner.answer(key, now)
    }
    fn put_answer(
        &mut self,
        key: &IdempotencyKey,
        answer: &Answer,
        now: UnixMillis,
    ) -> Result<(), StoreError> {
        self.writable()?.put_answer(key, answer, now)
    }
    fn audit_before(&self, before: u64, limit: usize) -> Result<Vec<AuditRecord>, StoreError> {
        self.inner.audit_before(before, limit)
    }

    fn audit(&self, after: u64, limit: usize) -> Result<Vec<AuditRecord>, StoreError> {
        self.inner.audit(after, limit)
    }
    fn sign_head(&mut self, key: &SigningKey, now: UnixMillis) -> Result<Option<SignedHead>, StoreError> {
        self.writable()?.sign_head(key, now)
    }
    fn signed_heads(&self) -> Result<Vec<SignedHead>, StoreError> {
        self.inner.signed_heads()
    }
    fn newest_head(&self) -> Result<Option<SignedHead>, StoreError> {
        self.inner.newest_head()
    }
    fn changes(&self, before: u64, limit: usize) -> Result<Vec<ChangeRecord>, StoreError> {
        self.inner.changes(before, limit)
    }
    fn journal(&self, change: u64) -> Result<Vec<JournalRecord>, StoreError> {
        self.inner.journal(change)
    }
    fn put_session(&mut self, session: &Session) -> Result<(), StoreError> {
        self.writable()?.put_session(session)
    }
    fn session(&self, token_hash: &str, now: UnixMillis) -> Result<Option<Session>, StoreError> {
        self.inner.session(token_hash, now)
    }
    fn delete_session(&mut self, token_hash: &str) -> Result<(), StoreError> {
        self.writable()?.delete_session(token_hash)
    }
    fn setting(&self, name: &str) -> Result<Option<Value>, StoreError> {
        self.inner.setting(name)
    }
    fn put_setting(&mut self, name: &str, value: Option<&Value>) -> Result<(), StoreError> {
        self.writable()?.put_setting(name, value)
    }
    fn raise_revision(&mut self, revision: Revision) -> Result<(), StoreError> {
        self.writable()?.raise_revision(revision)
    }
    fn raise_epoch(&mut self, latest: u64) -> Result<u64, StoreError> {
        self.writable()?.raise_epoch(latest)
    }
    fn credential(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.credential(key)
    }
    fn put_credential(&mut self, key: &str, value: Option<&[u8]>) -> Result<(), StoreError> {
        self.writable()?.put_credential(key, value)
    }
    fn credential_keys(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        self.inner.credential_keys(prefix)
    }
    fn prune(&mut self, now: UnixMillis) -> Result<(), StoreError> {
        self.writable()?.prune(now)
    }
}
