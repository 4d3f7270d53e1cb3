//! The candidate: edits, error options, validation, commits and their order.

use std::sync::Arc;

use millrace_netconf::Shared;
use millrace_yang::datastore::Role;
use serde_json::json;

use super::fake::{Peer, Switch, edit, field};

#[test]
fn an_edit_is_in_the_candidate_until_commit_makes_it_run() {
    let switch = Switch::new();
    let shared = Arc::new(Shared::default());
    let mut peer = Peer::new(&switch, &shared, "alice", Role::Write);
    peer.edit("<mac_ageing_s>600</mac_ageing_s>");
    assert_eq!(field(&switch, "mac_ageing_s"), json!(300));
    let candidate = "<get-config><source><candidate/></source></get-config>";
    assert!(peer.call(candidate).contains("<mac_ageing_s>600</mac_ageing_s>"));
    peer.ok("<validate><source><candidate/></source></validate>");
    peer.ok("<commit/>");
    assert_eq!(field(&switch, "mac_ageing_s"), json!(600));
    // Nothing is left to commit, and nothing is committed.
    let head = switch.lock().head();
    peer.ok("<commit/>");
    assert_eq!(switch.lock().head(), head);
    peer.edit("<mac_ageing_s>700</mac_ageing_s>");
    peer.ok("<discard-changes/>");
    assert!(!peer.call(candidate).contains("700"));
}

#[test]
fn running_is_written_by_commit_alone() {
    let switch = Switch::new();
    let mut peer = Peer::new(&switch, &Arc::new(Shared::default()), "alice", Role::Write);
    let direct = edit("<tables>9</tables>").replace("candidate", "running");
    peer.fails(&direct, "operation-not-supported");
    assert_eq!(field(&switch, "tables"), json!(64));
}

#[test]
fn parameters_without_a_namespace_are_those_of_the_operation_and_foreign_ones_are_refused() {
    let switch = Switch::new();
    let mut peer = Peer::new(&switch, &Arc::new(Shared::default()), "alice", Role::Write);
    peer.ok("<lock xmlns=\"\"><target><candidate/></target></lock>");
    peer.ok("<unlock><target><candidate/></target></unlock>");
    peer.fails(
        "<lock xmlns=\"urn:x\"><target><candidate/></target></lock>",
        "operation-not-supported",
    );
    let config = edit("<tables>9</tables>").replace("<config>", "<config xmlns=\"\">");
    peer.ok(&config);
    peer.ok("<validate xmlns:x=\"urn:x\"><source xmlns=\"\"><candidate/></source></validate>");
    // The commit is a confirmed one, and goes with its session.
    peer.ok("<commit><confirmed xmlns=\"\"/></commit>");
    assert_eq!(field(&switch, "tables"), json!(9));
    peer.fails("<commit><confirmed xmlns=\"urn:x\"/></commit>", "unknown-element");
    peer.fails(
        "<get-config><source><running/></source><filter xmlns=\"urn:x\"/></get-config>",
        "unknown-element",
    );
    peer.fails(
        "<get><with-defaults>report-all</with-defaults></get>",
        "unknown-element",
    );
    let defaults = "<get-config><source><running/></source><with-defaults xmlns=\"\">report-all</with-defaults></get-config>";
    assert!(peer.call(defaults).contains("<mac_ageing_s>300</mac_ageing_s>"));
    peer.session.end(&mut peer.store);
    assert_eq!(field(&switch, "tables"), json!(64));
}

#[test]
fn each_error_option_keeps_what_it_promises() {
    let kept = |option: &str| {
        let switch = Switch::new();
        let mut peer = Peer::new(&switch, &Arc::new(Shared::default()), "alice", Role::Write);
        let operation = edit(
            "<tables>9</tables><mac_table_size xmlns:nc=\"urn:ietf:params:xml:ns:netconf:base:1.0\" nc:operation=\"delete\"/><local_mtu>1400</local_mtu>",
        )
        .replace("<config>", &format!("<error-option>{option}</error-option><config>"));
        peer.fails(&operation, "data-missing");
        let candidate = peer.call("<get-config><source><candidate/></source></get-config>");
        (
            candidate.contains("<tables>9</tables>"),
            candidate.contains("<local_mtu>1400</local_mtu>"),
        )
    };
    assert_eq!(kept("stop-on-error"), (true, false));
    assert_eq!(kept("continue-on-error"), (true, true));
    assert_eq!(kept("rollback-on-error"), (false, false));
}

#[test]
fn what_the_switch_refuses_names_the_mistake_and_leaves_the_candidate() {
    let switch = Switch::new();
    let mut peer = Peer::new(&switch, &Arc::new(Shared::default()), "alice", Role::Write);
    // Two ports with one number: well formed for YANG, invalid for the switch.
    peer.edit("<port><name>p2</name><number>1</number><device>memory</device></port>");
    let reply = peer.fails(
        "<validate><source><candidate/></source></validate>",
        "operation-failed",
    );
    assert!(
        reply.contains("<error-app-tag>invalid</error-app-tag>") && reply.contains("number"),
        "{reply}"
    );
    peer.fails("<commit/>", "operation-failed");
    assert_eq!(switch.lock().head(), 0);
    let test_only = edit("<port><name>p3</name><number>1</number><device>memory</device></port>")
        .replace("<config>", "<test-option>test-only</test-option><config>");
    peer.fails(&test_only, "operation-failed");
    let candidate = peer.call("<get-config><source><candidate/></source></get-config>");
    assert!(
        candidate.contains("p2") && !candidate.contains("p3"),
        "{candidate}"
    );
}

#[test]
fn a_commit_on_a_configuration_that_has_changed_is_refused_and_merges_nothing() {
    let switch = Switch::new();
    let shared = Arc::new(Shared::default());
    let mut peer = Peer::new(&switch, &shared, "alice", Role::Write);
    peer.edit("<tables>9</tables>");
    // Another front end writes meanwhile.
    {
        let mut switch = switch.lock();
        let other = (switch.revisions[0].0.clone(), "REST".to_owned());
        switch.revisions.push(other);
    }
    let reply = peer.fails("<commit/>", "operation-failed");
    assert!(reply.contains("<error-app-tag>stale</error-app-tag>"), "{reply}");
    assert_eq!(field(&switch, "tables"), json!(64));
    peer.ok("<discard-changes/>");
    peer.edit("<tables>9</tables>");
    peer.ok("<commit/>");
    assert_eq!(field(&switch, "tables"), json!(9));
}

#[test]
fn copy_config_replaces_the_candidate() {
    let switch = Switch::new();
    let mut peer = Peer::new(&switch, &Arc::new(Shared::default()), "alice", Role::Write);
    peer.ok(r#"<copy-config><target><candidate/></target><source><config><bridge xmlns="urn:millrace:switch"><name>br9</name></bridge></config></source></copy-config>"#);
    peer.ok("<commit/>");
    assert_eq!(field(&switch, "name"), json!("br9"));
    peer.edit("<tables>9</tables>");
    peer.ok("<copy-config><target><candidate/></target><source><running/></source></copy-config>");
    peer.ok("<commit/>");
    assert_eq!(switch.lock().document()["bridge"].as_array().unwrap().len(), 1);
}
