//! The begin of a session, and the form of replies.

use std::sync::Arc;

use millrace_netconf::{BASE_1_1, Session, Shared};
use millrace_yang::datastore::{Client, Role};

use super::fake::{LOGIN, Peer, Store, Switch};

fn session(switch: &Arc<parking_lot::Mutex<Switch>>) -> (Session, Store) {
    let shared = Arc::new(Shared::default());
    let store = Peer::new(switch, &shared, "other", Role::Read).store;
    let client = Client {
        name: "alice".to_owned(),
        role: Role::Write,
    };
    (Session::new(client, LOGIN, shared, Box::new(|| {})), store)
}

fn hello(capability: &str) -> String {
    format!(
        r#"<hello xmlns="urn:ietf:params:xml:ns:netconf:base:1.0"><capabilities><capability>{capability}</capability></capabilities></hello>"#
    )
}

const GET: &str =
    r#"<rpc message-id="a" xmlns="urn:ietf:params:xml:ns:netconf:base:1.0"><discard-changes/></rpc>"#;

#[test]
fn framing_changes_right_after_hello_if_both_sides_have_version_1_1() {
    let switch = Switch::new();
    let (mut session, mut store) = session(&switch);
    let own = String::from_utf8(session.hello()).unwrap();
    assert!(
        own.contains(BASE_1_1) && own.contains("<session-id>") && own.ends_with("]]>]]>"),
        "{own}"
    );
    for module in [
        "base:1.0?module=ietf-netconf&amp;revision=2011-06-01&amp;features=candidate,confirmed-commit,rollback-on-error,validate,xpath<",
        "urn:millrace:switch?module=millrace&amp;revision=",
        "notification:1.0?module=notifications&amp;revision=2008-07-14<",
    ] {
        assert!(own.contains(module), "{own}");
    }
    // Hello and the first request in one segment.
    let bytes = format!("{}]]>]]>\n#{}\n{GET}\n##\n", hello(BASE_1_1), GET.len());
    let outcome = session.receive(bytes.as_bytes(), &mut store);
    let output = String::from_utf8(outcome.output).unwrap();
    assert!(
        output.starts_with("\n#") && output.ends_with("\n##\n") && output.contains("<ok/>"),
        "{output}"
    );
}

#[test]
fn a_hello_in_chunks_is_accepted_as_ncclient_sends_it() {
    let switch = Switch::new();
    let (mut session, mut store) = session(&switch);
    let hello = hello(BASE_1_1);
    let bytes = format!("\n#{}\n{hello}\n##\n\n#{}\n{GET}\n##\n", hello.len(), GET.len());
    let outcome = session.receive(bytes.as_bytes(), &mut store);
    assert!(String::from_utf8(outcome.output).unwrap().contains("<ok/>"));
}

#[test]
fn a_client_without_a_common_version_or_without_hello_is_closed() {
    for first in [
        hello("urn:other"),
        GET.to_owned(),
        "<x/>".to_owned(),
        hello(BASE_1_1).replace("</capabilities>", "</capabilities><session-id>1</session-id>"),
    ] {
        let switch = Switch::new();
        let (mut session, mut store) = session(&switch);
        let outcome = session.receive(format!("{first}]]>]]>").as_bytes(), &mut store);
        assert!(outcome.closes && outcome.output.is_empty(), "{first}");
    }
}

#[test]
fn the_attributes_of_rpc_come_back_and_errors_have_the_words_of_rfc_6241() {
    let switch = Switch::new();
    let shared = Arc::new(Shared::default());
    let mut peer = Peer::new(&switch, &shared, "alice", Role::Write);
    let mut raw = |message: &str| {
        let outcome = peer
            .session
            .receive(format!("{message}]]>]]>").as_bytes(), &mut peer.store);
        String::from_utf8(outcome.output).unwrap()
    };
    let reply = raw(
        r#"<nc:rpc xmlns:nc="urn:ietf:params:xml:ns:netconf:base:1.0" message-id="x&lt;1" xmlns:e="urn:e" e:user="fred"><nc:discard-changes/></nc:rpc>"#,
    );
    assert!(
        reply.contains(r#"message-id="x&lt;1""#) && reply.contains(r#"e:user="fred""#),
        "{reply}"
    );
    assert!(
        raw(r#"<rpc xmlns="urn:ietf:params:xml:ns:netconf:base:1.0"><get/></rpc>"#)
            .contains("missing-attribute")
    );
    assert!(raw("<rpc").contains("malformed-message"));
    assert!(raw(r#"<!DOCTYPE rpc [<!ENTITY a "b">]><rpc message-id="1"/>"#).contains("malformed-message"));
    assert!(
        raw(r#"<rpc message-id="1" xmlns="urn:ietf:params:xml:ns:netconf:base:1.0"><reboot/></rpc>"#)
            .contains("operation-not-supported")
    );
    assert!(
        raw(r#"<rpc message-id="1" xmlns="urn:ietf:params:xml:ns:netconf:base:1.0"><get-config/></rpc>"#)
            .contains("missing-element")
    );
    let reply = raw(
        r#"<rpc message-id="1" xmlns="urn:ietf:params:xml:ns:netconf:base:1.0"><get-config><source><startup/></source></get-config></rpc>"#,
    );
    assert!(
        reply.contains("unknown-element") && reply.contains("<bad-element>startup</bad-element>"),
        "{reply}"
    );
}

#[test]
fn close_session_answers_and_closes() {
    let switch = Switch::new();
    let shared = Arc::new(Shared::default());
    let mut peer = Peer::new(&switch, &shared, "alice", Role::Read);
    let close =
        r#"<rpc message-id="1" xmlns="urn:ietf:params:xml:ns:netconf:base:1.0"><close-session/></rpc>]]>]]>"#;
    let outcome = peer.session.receive(close.as_bytes(), &mut peer.store);
    assert!(outcome.closes && String::from_utf8(outcome.output).unwrap().contains("<ok/>"));
}
