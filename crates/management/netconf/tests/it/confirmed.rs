//! Confirmed commits (RFC 6241, section 8.4).

use std::sync::Arc;

use millrace_netconf::Shared;
use millrace_yang::datastore::Role;
use parking_lot::Mutex;
use serde_json::json;

use super::fake::{Peer, Switch, field};

fn begin() -> (Arc<Mutex<Switch>>, Arc<Shared>, Peer) {
    let switch = Switch::new();
    let shared = Arc::new(Shared::default());
    let mut peer = Peer::new(&switch, &shared, "alice", Role::Write);
    peer.edit("<tables>9</tables>");
    (switch, shared, peer)
}

#[test]
fn a_confirmed_commit_runs_and_the_next_commit_confirms_it() {
    let (switch, _, mut peer) = begin();
    peer.ok("<commit><confirmed/><confirm-timeout>120</confirm-timeout></commit>");
    assert_eq!(
        (field(&switch, "tables"), switch.lock().pending),
        (json!(9), Some(1))
    );
    peer.ok("<commit/>");
    assert_eq!(
        (field(&switch, "tables"), switch.lock().pending),
        (json!(9), None)
    );
}

#[test]
fn without_persist_the_end_of_the_session_takes_it_back_at_once() {
    let (switch, _, mut peer) = begin();
    peer.ok("<commit><confirmed/></commit>");
    peer.session.end(&mut peer.store);
    assert_eq!(
        (field(&switch, "tables"), switch.lock().pending),
        (json!(64), None)
    );
}

#[test]
fn with_persist_another_session_confirms_after_a_restart_of_the_server() {
    let (switch, _, mut peer) = begin();
    peer.ok("<commit><confirmed/><persist>IQ,d4668</persist></commit>");
    peer.session.end(&mut peer.store);
    assert_eq!(field(&switch, "tables"), json!(9));
    // A new process: nothing is shared but the switch.
    let shared = Arc::new(Shared::default());
    let mut other = Peer::new(&switch, &shared, "bob", Role::Write);
    other.fails("<commit/>", "in-use");
    other.fails("<commit><persist-id>wrong</persist-id></commit>", "invalid-value");
    other.ok("<commit><persist-id>IQ,d4668</persist-id></commit>");
    assert_eq!(
        (field(&switch, "tables"), switch.lock().pending),
        (json!(9), None)
    );
    other.fails(
        "<commit><persist-id>IQ,d4668</persist-id></commit>",
        "invalid-value",
    );
}

#[test]
fn a_second_confirmed_commit_goes_on_and_its_confirmation_keeps_both() {
    let (switch, _, mut peer) = begin();
    peer.ok("<commit><confirmed/></commit>");
    peer.edit("<mac_ageing_s>600</mac_ageing_s>");
    peer.ok("<commit><confirmed/></commit>");
    peer.edit("<local_mtu>1400</local_mtu>");
    peer.ok("<commit/>");
    assert_eq!(field(&switch, "tables"), json!(9));
    assert_eq!(field(&switch, "mac_ageing_s"), json!(600));
    assert_eq!(
        (field(&switch, "local_mtu"), switch.lock().pending),
        (json!(1400), None)
    );
}

#[test]
fn cancel_commit_takes_it_back_and_needs_the_session_or_its_persist_id() {
    let (switch, shared, mut peer) = begin();
    peer.fails("<cancel-commit/>", "operation-failed");
    peer.ok("<commit><confirmed/><persist>a</persist></commit>");
    let mut other = Peer::new(&switch, &shared, "bob", Role::Write);
    other.fails("<cancel-commit/>", "in-use");
    other.fails(
        "<cancel-commit><persist-id>b</persist-id></cancel-commit>",
        "invalid-value",
    );
    other.ok("<cancel-commit><persist-id>a</persist-id></cancel-commit>");
    assert_eq!(
        (field(&switch, "tables"), switch.lock().pending),
        (json!(64), None)
    );
    peer.fails("<commit><persist>x</persist></commit>", "invalid-value");
    peer.fails(
        "<commit><confirmed/><confirm-timeout>0</confirm-timeout></commit>",
        "invalid-value",
    );
}

#[test]
fn after_the_time_has_passed_nothing_is_pending_and_the_session_goes_on() {
    let (switch, _, mut peer) = begin();
    peer.ok("<commit><confirmed/></commit>");
    switch.lock().expire();
    assert_eq!(field(&switch, "tables"), json!(64));
    peer.ok("<commit/>");
    assert_eq!(field(&switch, "tables"), json!(64));
    peer.session.end(&mut peer.store);
    assert_eq!(field(&switch, "tables"), json!(64));
}

#[test]
fn a_confirmed_commit_without_changes_is_confirmed_and_cancelled_as_any() {
    let switch = Switch::new();
    let shared = Arc::new(Shared::default());
    let mut peer = Peer::new(&switch, &shared, "alice", Role::Write);
    let mut other = Peer::new(&switch, &shared, "bob", Role::Write);
    peer.ok("<commit><confirmed/><persist>a</persist></commit>");
    other.fails("<commit><persist-id>b</persist-id></commit>", "invalid-value");
    other.fails("<cancel-commit/>", "operation-failed");
    peer.ok("<commit><confirmed/><persist-id>a</persist-id></commit>");
    other.ok("<commit><persist-id>a</persist-id></commit>");
    other.fails("<commit><persist-id>a</persist-id></commit>", "invalid-value");
    // Without persist it belongs to its session, and ends with it.
    peer.ok("<commit><confirmed/></commit>");
    other.fails("<cancel-commit/>", "operation-failed");
    peer.ok("<cancel-commit/>");
    peer.fails("<cancel-commit/>", "operation-failed");
    let switch = switch.lock();
    assert_eq!((switch.head(), switch.pending), (0, None));
}

#[test]
fn a_second_confirmed_commit_may_have_another_persist() {
    let (switch, _, mut peer) = begin();
    peer.ok("<commit><confirmed/><persist>a</persist></commit>");
    peer.ok("<commit><confirmed/><persist-id>a</persist-id><persist>b</persist></commit>");
    peer.fails("<commit><persist-id>a</persist-id></commit>", "invalid-value");
    peer.ok("<commit><persist-id>b</persist-id></commit>");
    assert_eq!(
        (field(&switch, "tables"), switch.lock().pending),
        (json!(9), None)
    );
}
