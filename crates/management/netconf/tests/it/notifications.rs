//! Notifications of changes (RFC 5277, RFC 6470).

use std::sync::Arc;

use millrace_netconf::{ConfigChange, Shared};
use millrace_yang::datastore::Role;

use super::fake::{Peer, Switch};

fn subscribe(inner: &str) -> String {
    format!(
        r#"<create-subscription xmlns="urn:ietf:params:xml:ns:netconf:notification:1.0">{inner}</create-subscription>"#
    )
}

fn change() -> ConfigChange {
    ConfigChange {
        time: "2026-11-29T05:00:00Z".to_owned(),
        user: "root (alice)".to_owned(),
        edits: vec![("/bridge/br0/port/p1/mtu".to_owned(), "replace")],
    }
}

fn peer() -> Peer {
    Peer::new(&Switch::new(), &Arc::new(Shared::default()), "alice", Role::Read)
}

#[test]
fn a_subscriber_hears_of_each_revision_and_nobody_else_does() {
    let mut peer = peer();
    assert_eq!(peer.session.notification(&change()), None);
    peer.ok(&subscribe(""));
    let message = String::from_utf8(peer.session.notification(&change()).unwrap()).unwrap();
    for part in [
        "<eventTime>2026-11-29T05:00:00Z</eventTime>",
        "<username>root (alice)</username>",
        "/mr:bridge[mr:name='br0']/mr:port[mr:name='p1']/mr:mtu</target><operation>replace</operation>",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert!(message.ends_with("]]>]]>"));
    // The session goes on (interleave), and has one subscription.
    assert!(peer.call("<get/>").contains("<name>NETCONF</name>"));
    peer.fails(&subscribe(""), "operation-failed");
}

#[test]
fn a_filter_selects_and_what_the_stream_does_not_have_is_refused() {
    let mut peer = peer();
    peer.fails(&subscribe("<stream>other</stream>"), "invalid-value");
    peer.fails(
        &subscribe("<startTime>2026-11-29T05:00:00Z</startTime>"),
        "operation-failed",
    );
    peer.ok(&subscribe(
        r#"<stream>NETCONF</stream><filter type="subtree"><other xmlns="urn:other"/></filter>"#,
    ));
    assert_eq!(peer.session.notification(&change()), None);
}
