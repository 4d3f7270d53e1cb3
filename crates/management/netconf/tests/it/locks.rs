//! Locks (RFC 6241, sections 7.5 and 7.6).

use std::sync::Arc;

use millrace_netconf::Shared;
use millrace_yang::datastore::Role;
use serde_json::json;

use super::fake::{Peer, Switch, edit, field};

const LOCK_CANDIDATE: &str = "<lock><target><candidate/></target></lock>";
const LOCK_RUNNING: &str = "<lock><target><running/></target></lock>";

#[test]
fn a_locked_candidate_is_for_its_session_alone() {
    let switch = Switch::new();
    let shared = Arc::new(Shared::default());
    let mut alice = Peer::new(&switch, &shared, "alice", Role::Write);
    let mut bob = Peer::new(&switch, &shared, "bob", Role::Write);
    alice.ok(LOCK_CANDIDATE);
    let denied = bob.fails(LOCK_CANDIDATE, "lock-denied");
    assert!(
        denied.contains(&format!("<session-id>{}</session-id>", alice.session.id())),
        "{denied}"
    );
    bob.fails(&edit("<tables>9</tables>"), "in-use");
    bob.fails("<commit/>", "in-use");
    bob.fails("<discard-changes/>", "in-use");
    bob.fails(
        "<unlock><target><candidate/></target></unlock>",
        "operation-failed",
    );
    alice.edit("<tables>9</tables>");
    // The end of the session frees the lock and drops its changes.
    alice.session.end(&mut alice.store);
    bob.ok(LOCK_CANDIDATE);
    bob.ok("<commit/>");
    assert_eq!(field(&switch, "tables"), json!(64));
}

#[test]
fn a_candidate_with_changes_is_not_locked() {
    let switch = Switch::new();
    let shared = Arc::new(Shared::default());
    let mut alice = Peer::new(&switch, &shared, "alice", Role::Write);
    alice.edit("<tables>9</tables>");
    alice.fails(LOCK_CANDIDATE, "lock-denied");
    alice.ok("<discard-changes/>");
    alice.ok(LOCK_CANDIDATE);
    // Changes go with the lock.
    alice.edit("<tables>9</tables>");
    alice.ok("<unlock><target><candidate/></target></unlock>");
    alice.ok(LOCK_CANDIDATE);
    alice.ok("<commit/>");
    assert_eq!(field(&switch, "tables"), json!(64));
}

#[test]
fn the_lock_of_running_is_that_of_the_switch() {
    let switch = Switch::new();
    let shared = Arc::new(Shared::default());
    let mut alice = Peer::new(&switch, &shared, "alice", Role::Write);
    let mut bob = Peer::new(&switch, &shared, "bob", Role::Write);
    alice.ok(LOCK_RUNNING);
    assert_eq!(switch.lock().lock.as_deref(), Some("alice"));
    bob.fails(LOCK_RUNNING, "lock-denied");
    bob.edit("<tables>9</tables>");
    bob.fails("<commit/>", "in-use");
    alice.ok("<commit/>");
    alice.session.end(&mut alice.store);
    assert_eq!(switch.lock().lock, None);
    // A holder that is no session of NETCONF has the number 0.
    switch.lock().lock = Some("REST".to_owned());
    let denied = bob.fails(LOCK_RUNNING, "lock-denied");
    assert!(denied.contains("<session-id>0</session-id>"), "{denied}");
}

#[test]
fn running_is_not_locked_while_a_commit_of_another_waits() {
    let switch = Switch::new();
    let shared = Arc::new(Shared::default());
    let mut alice = Peer::new(&switch, &shared, "alice", Role::Write);
    alice.edit("<tables>9</tables>");
    alice.ok("<commit><confirmed/></commit>");
    let mut bob = Peer::new(&switch, &shared, "bob", Role::Write);
    bob.fails(LOCK_RUNNING, "lock-denied");
    alice.ok(LOCK_RUNNING);
}
