//! The lock on the configuration, and the end of its lease.

use millrace_model::{Bridge, Config};
use millrace_store::{
    CommitError, ConfirmError, LockError, LockToken, Note, Origin, Proposal, RevisionNo, Store, UnixTime,
};

const NOW: UnixTime = UnixTime(1_700_000_000);
const ALICE: LockToken = LockToken::new(1);
const BOB: LockToken = LockToken::new(2);

fn store() -> Store {
    Store::in_memory(NOW).unwrap()
}

fn proposal(name: &str, token: Option<LockToken>) -> Proposal {
    Proposal {
        expected: None,
        config: Config {
            bridges: vec![Bridge::new(name.parse().unwrap())],
            ..Config::default()
        },
        note: Note::new("x", "").with_lock(token),
    }
}

#[test]
fn while_one_session_holds_the_lock_every_change_of_others_is_refused_by_name() {
    let store = store();
    store.commit(proposal("br0", None), NOW).unwrap();
    let lock = store.lock("alice", ALICE, 60, NOW).unwrap();
    assert_eq!((lock.holder.as_str(), lock.expires), ("alice", NOW.plus(60)));
    for token in [None, Some(BOB)] {
        let note = || Note::default().with_lock(token);
        let refused = [
            store.commit(proposal("br1", token), NOW).map(drop),
            store
                .commit_confirm(proposal("br1", token), NOW.plus(9), NOW)
                .map(drop),
            store.dry_run(&proposal("br1", token), false, NOW).map(drop),
            store.rollback(None, RevisionNo(0), note(), NOW).map(drop),
            store
                .own(&["br0".to_owned()], &Origin::OVSDB, note(), NOW)
                .map(drop),
            store
                .commit(
                    Proposal {
                        note: note().of(Origin::OVSDB),
                        ..proposal("br1", None)
                    },
                    NOW,
                )
                .map(drop),
        ];
        for result in refused {
            let error = result.unwrap_err();
            assert!(
                matches!(&error, CommitError::Locked { holder, .. } if holder == "alice"),
                "{error}"
            );
            assert!(error.to_string().starts_with("alice holds the lock"), "{error}");
        }
    }
    store
        .commit_confirm(proposal("br1", Some(ALICE)), NOW.plus(30), NOW)
        .unwrap();
    assert!(matches!(
        store.confirm(None, &Note::default(), NOW),
        Err(ConfirmError::Locked { .. })
    ));
    assert!(matches!(
        store.cancel(None, Note::default(), NOW),
        Err(ConfirmError::Locked { .. })
    ));
    // The time to confirm ends in spite of the lock.
    assert!(store.tick(NOW.plus(30)).unwrap().is_some());
    assert!(store.locked(NOW.plus(30)).is_some());
}

#[test]
fn a_second_session_gets_the_lock_when_the_first_releases_it_or_its_lease_ends() {
    let store = store();
    store.lock("alice", ALICE, 60, NOW).unwrap();
    let held = LockError::Held {
        holder: "alice".to_owned(),
        expires: NOW.plus(60),
    };
    assert_eq!(store.lock("bob", BOB, 60, NOW.plus(59)), Err(held.clone()));
    assert_eq!(store.lock("alice", ALICE, 60, NOW), Err(held), "once only");
    assert_eq!(store.unlock(Some(BOB), NOW), Err(LockError::NotHeld));
    store.unlock(Some(ALICE), NOW).unwrap();
    assert_eq!(store.unlock(Some(ALICE), NOW), Err(LockError::NotHeld));
    store.lock("bob", BOB, 60, NOW).unwrap();
    assert!(store.lock("alice", ALICE, 60, NOW.plus(60)).is_ok());
    assert_eq!(store.renew_lock(BOB, 60, NOW.plus(60)), Err(LockError::NotHeld));
    assert_eq!(store.unlock(None, NOW.plus(61)).unwrap().holder, "alice");
    assert_eq!(store.locked(NOW.plus(61)), None);
}

#[test]
fn a_lease_ends_at_its_time_for_watchers_too_and_a_renewal_moves_it() {
    let store = store();
    let mut watcher = store.watch_lock();
    store.lock("alice", ALICE, 60, NOW).unwrap();
    assert!(watcher.borrow_and_update().is_some());
    let renewed = store.renew_lock(ALICE, 60, NOW.plus(50)).unwrap();
    assert_eq!(renewed.expires, NOW.plus(110));
    store.tick(NOW.plus(109)).unwrap();
    assert!(store.locked(NOW.plus(109)).is_some());
    assert!(watcher.borrow_and_update().is_some());
    store.tick(NOW.plus(110)).unwrap();
    assert!(watcher.borrow_and_update().is_none());
    store.commit(proposal("br1", None), NOW.plus(110)).unwrap();
}

#[test]
fn a_clock_that_is_set_back_does_not_lengthen_a_lease() {
    let store = store();
    store.lock("alice", ALICE, 60, NOW).unwrap();
    let earlier = UnixTime(NOW.0 - 86_400);
    store.tick(earlier).unwrap();
    assert_eq!(store.locked(earlier).unwrap().expires, earlier.plus(60));
    store.tick(earlier.plus(60)).unwrap();
    assert_eq!(store.locked(earlier.plus(60)), None);
}
