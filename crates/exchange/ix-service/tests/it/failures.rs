//! Failures of the database: a full disk, and yesterday's file under today's switches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millrace_ix_engine::{Mode, Resolution};
use millrace_ix_model::Actor;
use millrace_ix_service::{OrderError, OrderOptions};
use millrace_ix_store::{
    AuditRecord, ChangeRecord, Committed, Contents, IdempotencyKey, JournalRecord, Revision, Session,
    SignedHead, SigningKey, Sqlite, Store, StoreError, StoredAnswer, Transaction, UnixMillis,
};
use millrace_types::Duration;
use serde_json::Value;

use crate::world::World;

const SECOND: Duration = Duration::from_secs(1);

/// A database whose disk is full at times.
struct Filling {
    inner: Sqlite,
    is_full: Arc<AtomicBool>,
}

impl Filling {
    fn writable(&mut self) -> Result<&mut Sqlite, StoreError> {
        if self.is_full.load(Ordering::SeqCst) {
            Err(StoreError::Full)
        } else {
            Ok(&mut self.inner)
        }
    }
}

impl Store for Filling {
    fn load(&self) -> Result<Contents, StoreError> {
        self.inner.load()
    }
    fn commit(&mut self, transaction: &Transaction, now: UnixMillis) -> Result<Committed, StoreError> {
        self.writable()?.commit(transaction, now)
    }
    fn answer(&self, key: &IdempotencyKey, now: UnixMillis) -> Result<Option<StoredAnswer>, StoreError> {
        self.inner.answer(key, now)
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

#[test]
fn a_full_disk_refuses_orders_with_the_reason_and_sends_nothing_that_the_journal_does_not_hold() {
    let is_full = Arc::new(AtomicBool::new(false));
    let store = Filling {
        inner: Sqlite::in_memory().unwrap(),
        is_full: Arc::clone(&is_full),
    };
    let mut world = World::with(Box::new(store));
    let (first, _) = world.circuit("first", [(0, 100), (2, 100)]);
    // The disk fills while the change is between two states.
    is_full.store(true, Ordering::SeqCst);
    let commits: Vec<u32> = world.switches.values().map(|switch| switch.commits).collect();
    world.run(5 * SECOND);
    let after: Vec<u32> = world.switches.values().map(|switch| switch.commits).collect();
    assert!(
        after
            .iter()
            .zip(&commits)
            .all(|(after, before)| after - before <= 1),
        "the stage only: {after:?}"
    );
    let operations = world.circuit_operations("second", [(1, 100), (3, 100)]);
    let refused = world.try_order(&operations, &OrderOptions::default());
    assert!(
        matches!(&refused, Err(OrderError::Unavailable(reason)) if reason.contains("disk")),
        "{refused:?}"
    );
    assert!(!world.is_settled());
    is_full.store(false, Ordering::SeqCst);
    let now = world.now();
    world.core().tick(now);
    world.deliver();
    world.run(5 * SECOND);
    assert!(world.is_settled() && world.services() == [first]);
    world.try_order(&operations, &OrderOptions::default()).unwrap();
    world.run(5 * SECOND);
    assert!(world.is_settled());
}

#[test]
fn yesterdays_database_deletes_nothing_before_an_operators_word() {
    for resolution in [Resolution::Adopt, Resolution::Enforce] {
        let folder = tempfile::tempdir().unwrap();
        let (today, yesterday) = (folder.path().join("today.db"), folder.path().join("yesterday.db"));
        let mut world = World::with(Box::new(Sqlite::open(&today).unwrap()));
        world.circuit("old", [(0, 100), (2, 100)]);
        world.run(3 * SECOND);
        Sqlite::open_read_only(&today)
            .unwrap()
            .back_up(&yesterday)
            .unwrap();
        world.circuit("new", [(1, 100), (3, 100)]);
        world.run(3 * SECOND);
        assert!(world.is_settled());
        drop(world.kill(false));
        let contents: Vec<_> = world
            .switches
            .values()
            .map(|switch| switch.content.clone())
            .collect();
        let commits: Vec<u32> = world.switches.values().map(|switch| switch.commits).collect();
        world.start(Box::new(Sqlite::open(&yesterday).unwrap()));
        world.run(200 * SECOND);
        assert!(matches!(world.core().engine().mode(), Mode::ReadOnly { .. }));
        assert_eq!(
            world
                .switches
                .values()
                .map(|switch| switch.content.clone())
                .collect::<Vec<_>>(),
            contents
        );
        let operations = world.circuit_operations("another", [(1, 200), (3, 200)]);
        let refused = world.try_order(&operations, &OrderOptions::default());
        assert!(
            matches!(&refused, Err(OrderError::ReadOnly(reason)) if reason.contains("adopt")),
            "{refused:?}"
        );
        let now = world.now();
        world.core().resolve(resolution, &Actor::system(), now).unwrap();
        world.deliver();
        world.run(3 * SECOND);
        let is_deleted = world
            .switches
            .values()
            .zip(&contents)
            .any(|(switch, before)| before.keys().any(|key| !switch.content.contains_key(key)));
        assert_eq!(is_deleted, resolution == Resolution::Enforce);
        assert_eq!(world.is_settled(), resolution == Resolution::Enforce);
        // Orders are taken again, and a restart does not ask again.
        world.try_order(&operations, &OrderOptions::default()).unwrap();
        world.run(3 * SECOND);
        let store = world.kill(false);
        world.start(store);
        world.run(3 * SECOND);
        assert_eq!(world.core().engine().mode(), Mode::Normal);
        assert!(
            world
                .switches
                .values()
                .zip(commits)
                .all(|(switch, before)| switch.commits > before)
        );
    }
}
