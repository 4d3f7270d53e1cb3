//! `get`, `get-config`, `get-schema`, filters and defaults.

use std::sync::Arc;

use millrace_netconf::Shared;
use millrace_yang::datastore::Role;

use super::fake::{Peer, Switch};

fn peer() -> Peer {
    Peer::new(&Switch::new(), &Arc::new(Shared::default()), "alice", Role::Read)
}

#[test]
fn get_config_has_what_somebody_decided_and_all_of_it_on_request() {
    let mut peer = peer();
    let trimmed = peer.call("<get-config><source><running/></source></get-config>");
    assert!(
        trimmed.contains(r#"<bridge xmlns="urn:millrace:switch"><name>br0</name>"#),
        "{trimmed}"
    );
    assert!(!trimmed.contains("<mtu>"), "{trimmed}");
    let all = peer.call(
        r#"<get-config><source><running/></source><with-defaults xmlns="urn:ietf:params:xml:ns:yang:ietf-netconf-with-defaults">report-all</with-defaults></get-config>"#,
    );
    assert!(
        all.contains("<mtu>1500</mtu>") && all.contains("<memory_mib>512</memory_mib>"),
        "{all}"
    );
    peer.fails(
        r#"<get-config><source><running/></source><with-defaults xmlns="urn:ietf:params:xml:ns:yang:ietf-netconf-with-defaults">explicit</with-defaults></get-config>"#,
        "invalid-value",
    );
}

#[test]
fn a_subtree_filter_selects() {
    let mut peer = peer();
    let filter = |inner: &str| {
        format!(
            "<get-config><source><running/></source><filter type=\"subtree\">{inner}</filter></get-config>"
        )
    };
    let reply = peer.call(&filter(
        r#"<bridge xmlns="urn:millrace:switch"><port><device/></port></bridge>"#,
    ));
    assert!(
        reply.contains("<bridge xmlns=\"urn:millrace:switch\"><name>br0</name><port><name>p1</name><device>memory</device></port></bridge>"),
        "{reply}"
    );
    assert!(peer.call(&filter("")).contains("<data/>"));
    peer.fails(
        r#"<get><filter type="regexp" select="/"/></get>"#,
        "bad-attribute",
    );
}

#[test]
fn an_xpath_filter_selects_nodes_with_their_keys() {
    let mut peer = peer();
    let get = |declaration: &str, select: &str| {
        format!(
            "<get-config {declaration}><source><running/></source><filter type=\"xpath\" select=\"{select}\"/></get-config>"
        )
    };
    let expected = "<data><bridge xmlns=\"urn:millrace:switch\"><name>br0</name><port><name>p1</name><device>memory</device></port></bridge></data>";
    let prefix = "xmlns:m=\"urn:millrace:switch\"";
    for request in [
        get("", "/bridge/port/device"),
        get(prefix, "/m:bridge[m:name='br0']/m:port[m:name='p1']/m:device"),
        get(prefix, "//m:port/m:device/text()"),
    ] {
        let reply = peer.call(&request);
        assert!(reply.contains(expected), "{reply}");
    }
    assert!(peer.call(&get("", "//port[name='p9']")).contains("<data/>"));
    let state = "<get><filter type=\"xpath\" select=\"//link[. = 'up']\"/></get>";
    let reply = peer.call(state);
    assert!(
        reply.contains("<link>up</link>") && !reply.contains("<packets>"),
        "{reply}"
    );
    for wrong in ["/m:bridge", "/bridge[", "count(/bridge)", "//port[unknown()]"] {
        peer.fails(&get("", wrong), "invalid-value");
    }
    peer.fails(r#"<get><filter type="xpath"/></get>"#, "missing-attribute");
}

#[test]
fn get_has_state_sessions_and_modules() {
    let mut peer = peer();
    let reply = peer.call("<get/>");
    assert!(
        reply.contains("<packets>7</packets>") && reply.contains("<link>up</link>"),
        "{reply}"
    );
    assert!(
        reply.contains("<username>alice</username>") && reply.contains("<module-set-id>"),
        "{reply}"
    );
    assert!(
        reply.contains("<login-time>2026-11-29T12:00:00Z</login-time>"),
        "{reply}"
    );
    let features = "<feature>candidate</feature><feature>confirmed-commit</feature><feature>rollback-on-error</feature>\
        <feature>validate</feature><feature>xpath</feature>";
    assert!(reply.contains(features), "{reply}");
}

#[test]
fn get_schema_returns_the_module_that_hello_announces() {
    let mut peer = peer();
    let get = |identifier: &str| {
        format!(
            r#"<get-schema xmlns="urn:ietf:params:xml:ns:yang:ietf-netconf-monitoring"><identifier>{identifier}</identifier></get-schema>"#
        )
    };
    assert!(peer.call(&get("millrace")).contains("module millrace {"));
    peer.fails(&get("other"), "invalid-value");
}

#[test]
fn a_reader_changes_nothing_and_a_writer_ends_no_session() {
    let switch = Switch::new();
    let shared = Arc::new(Shared::default());
    let mut reader = Peer::new(&switch, &shared, "reader", Role::Read);
    for operation in [
        "<edit-config><target><candidate/></target><config/></edit-config>",
        "<copy-config><target><candidate/></target><source><running/></source></copy-config>",
        "<commit/>",
        "<cancel-commit/>",
        "<discard-changes/>",
        "<lock><target><running/></target></lock>",
        "<unlock><target><running/></target></unlock>",
        "<kill-session><session-id>1</session-id></kill-session>",
    ] {
        reader.fails(operation, "access-denied");
    }
    reader.fails(
        "<delete-config><target><candidate/></target></delete-config>",
        "operation-not-supported",
    );
    let mut writer = Peer::new(&switch, &shared, "writer", Role::Write);
    writer.fails(
        "<kill-session><session-id>1</session-id></kill-session>",
        "access-denied",
    );
    let mut admin = Peer::new(&switch, &shared, "admin", Role::Admin);
    admin.ok(&format!(
        "<kill-session><session-id>{}</session-id></kill-session>",
        reader.session.id()
    ));
    admin.fails(
        &format!(
            "<kill-session><session-id>{}</session-id></kill-session>",
            admin.session.id()
        ),
        "invalid-value",
    );
    admin.fails(
        "<kill-session><session-id>999</session-id></kill-session>",
        "invalid-value",
    );
}
