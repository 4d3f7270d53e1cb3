//! The view of ietf-interfaces: reads, edits, what it refuses, and edits beside those of the module of the switch.

use std::sync::Arc;

use millrace_netconf::Shared;
use millrace_yang::datastore::Role;
use parking_lot::Mutex;
use serde_json::{Value as Json, json};

use super::fake::{Peer, Switch, edit};

const ROUTED: &str = r#"
    [[bridge]]
    name = "br0"
    [[bridge.port]]
    name = "p1"
    number = 1
    device = "memory"
    [[bridge.port]]
    name = "p2"
    number = 2
    device = "memory"
    down = true
    [[vrf]]
    name = "blue"
    [[interface]]
    name = "v10"
    vrf = "blue"
    bridge = "br0"
    vlan = 10
    address = ["10.0.10.1/24", "2001:db8:10::1/64"]
"#;

fn writer() -> (Arc<Mutex<Switch>>, Peer) {
    let switch = Switch::of(ROUTED);
    let peer = Peer::new(&switch, &Arc::new(Shared::default()), "alice", Role::Write);
    (switch, peer)
}

/// Returns an edit-config with these entries of `/interfaces`.
fn edits(entries: &str) -> String {
    format!(
        r#"<edit-config><target><candidate/></target><config xmlns:nc="urn:ietf:params:xml:ns:netconf:base:1.0">
        <interfaces xmlns="urn:ietf:params:xml:ns:yang:ietf-interfaces">{entries}</interfaces></config></edit-config>"#
    )
}

fn port(switch: &Mutex<Switch>, index: usize) -> Json {
    switch.lock().document()["bridge"][0]["port"][index].clone()
}

const IP: &str = "urn:ietf:params:xml:ns:yang:ietf-ip";

#[test]
fn ports_and_interfaces_of_the_router_are_read_by_the_names_of_the_standard() {
    let (_, mut peer) = writer();
    let config = peer.call("<get-config><source><running/></source></get-config>");
    assert!(
        config.contains(
            r#"<interfaces xmlns="urn:ietf:params:xml:ns:yang:ietf-interfaces"><interface><name>br0/p1</name><type xmlns:ianaift="urn:ietf:params:xml:ns:yang:iana-if-type">ianaift:ethernetCsmacd</type></interface>"#
        ),
        "{config}"
    );
    assert!(
        config.contains("<enabled>false</enabled>") && !config.contains("oper-status"),
        "{config}"
    );
    assert!(
        config.contains(&format!(
            r#"<ipv4 xmlns="{IP}"><forwarding>true</forwarding><address><ip>10.0.10.1</ip><prefix-length>24</prefix-length></address></ipv4>"#
        )),
        "{config}"
    );
    let filter = r#"<filter><interfaces xmlns="urn:ietf:params:xml:ns:yang:ietf-interfaces"><interface><name>br0/p1</name></interface></interfaces></filter>"#;
    let state = peer.call(&format!("<get>{filter}</get>"));
    for part in [
        "<admin-status>up</admin-status><oper-status>up</oper-status><if-index>17</if-index>",
        "<phys-address>02:00:00:00:00:01</phys-address><speed>1000000000</speed>",
        "<statistics><discontinuity-time>2026-11-29T12:00:00Z</discontinuity-time><in-octets>700</in-octets>",
    ] {
        assert!(state.contains(part), "{part}: {state}");
    }
    assert!(
        !state.contains("p2") && !state.contains("urn:millrace:switch"),
        "{state}"
    );
    let all = peer.call(&format!(
        r#"<get-config><source><running/></source>{filter}<with-defaults xmlns="urn:ietf:params:xml:ns:yang:ietf-netconf-with-defaults">report-all</with-defaults></get-config>"#
    ));
    assert!(
        all.contains("<enabled>true</enabled>") && !all.contains("statistics"),
        "{all}"
    );
    // A configuration without ports and interfaces has no view.
    let mut empty = Peer::new(&Switch::of(""), &Arc::new(Shared::default()), "alice", Role::Read);
    assert!(!empty.call("<get/>").contains("<interfaces xmlns"));
}

#[test]
fn what_the_standard_says_is_written_and_the_rest_stays() {
    let (switch, mut peer) = writer();
    peer.ok(&edits(
        "<interface><name>br0/p1</name><enabled>false</enabled></interface>
         <interface><name>br0/p2</name><enabled nc:operation=\"delete\"/></interface>",
    ));
    peer.ok(&edits(&format!(
        r#"<interface><name>v10</name><ipv4 xmlns="{IP}"><mtu>9000</mtu><address><ip>10.0.10.9</ip><prefix-length>24</prefix-length></address>
        <address nc:operation="delete"><ip>10.0.10.1</ip></address></ipv4></interface>"#
    )));
    peer.ok("<commit/>");
    assert_eq!(
        (port(&switch, 0)["down"].clone(), port(&switch, 1)["down"].clone()),
        (json!(true), json!(false))
    );
    assert_eq!(port(&switch, 0)["device"], json!("memory"));
    let interface = switch.lock().document()["interface"][0].clone();
    assert_eq!(interface["address"], json!(["2001:db8:10::1/64", "10.0.10.9/24"]));
    assert_eq!(
        (&interface["mtu"], &interface["vlan"]),
        (&json!(9000), &json!(10))
    );
    // Deleted interfaces are gone, and an edit that changes nothing is none.
    peer.ok(&edits(
        "<interface nc:operation=\"delete\"><name>br0/p2</name></interface>
         <interface nc:operation=\"delete\"><name>v10</name></interface>",
    ));
    peer.ok("<commit/>");
    let document = switch.lock().document();
    assert_eq!(document["bridge"][0]["port"].as_array().unwrap().len(), 1);
    assert_eq!(document["interface"], json!([]));
}

#[test]
fn what_a_view_cannot_say_is_refused_with_what_can() {
    let (switch, mut peer) = writer();
    for (entries, tag, said) in [
        (
            "<interface><name>br0/p9</name></interface>",
            "invalid-value",
            "a port needs a device",
        ),
        (
            "<interface><name>v11</name></interface>",
            "invalid-value",
            "one needs a VRF and a bridge",
        ),
        (
            "<interface><name>br0/p1</name><description>x</description></interface>",
            "unknown-element",
            "enabled",
        ),
        (
            "<interface><name>br0/p1</name><type>l3ipvlan</type></interface>",
            "invalid-value",
            "ethernetCsmacd",
        ),
        (
            "<interface><name>br0/p1</name><oper-status>up</oper-status></interface>",
            "access-denied",
            "state",
        ),
        (
            "<interface><name>v10</name><enabled>false</enabled></interface>",
            "invalid-value",
            "expected true",
        ),
        (
            "<interface><name>br0/p1</name><mtu>1</mtu></interface>",
            "unknown-element",
            "mtu",
        ),
        (
            "<interface nc:operation=\"create\"><name>br0/p1</name></interface>",
            "data-exists",
            "br0/p1",
        ),
        (
            "<interface nc:operation=\"delete\"><name>br0/p9</name></interface>",
            "data-missing",
            "br0/p9",
        ),
    ] {
        let reply = peer.fails(&edits(entries), tag);
        assert!(reply.contains(said), "{entries}: {reply}");
    }
    for (inner, tag, said) in [
        (
            format!(r#"<ipv4 xmlns="{IP}"><address><ip>10.0.0.1</ip></address></ipv4>"#),
            "missing-element",
            "prefix-length",
        ),
        (
            format!(
                r#"<ipv4 xmlns="{IP}"><address><ip>::1</ip><prefix-length>8</prefix-length></address></ipv4>"#
            ),
            "invalid-value",
            "IPv4 address",
        ),
        (
            format!(r#"<ipv4 xmlns="{IP}"><forwarding>false</forwarding></ipv4>"#),
            "invalid-value",
            "the router forwards",
        ),
        (
            format!(r#"<ipv6 xmlns="{IP}"><mtu>9</mtu></ipv6>"#),
            "invalid-value",
            "1280",
        ),
        (
            format!(r#"<ipv4 xmlns="{IP}"><mtu>1400</mtu></ipv4><ipv6 xmlns="{IP}"><mtu>1300</mtu></ipv6>"#),
            "invalid-value",
            "one MTU",
        ),
        (
            "<ipv4><mtu>1400</mtu></ipv4>".to_owned(),
            "unknown-element",
            "ipv4",
        ),
    ] {
        let reply = peer.fails(
            &edits(&format!("<interface><name>v10</name>{inner}</interface>")),
            tag,
        );
        assert!(reply.contains(said), "{inner}: {reply}");
        peer.ok("<discard-changes/>");
    }
    let reply = peer.fails(
        &edits(&format!(
            r#"<interface><name>br0/p1</name><ipv4 xmlns="{IP}"/></interface>"#
        )),
        "invalid-value",
    );
    assert!(
        reply.contains("/if:interfaces/if:interface[if:name='br0/p1']/ip:ipv4</error-path>"),
        "{reply}"
    );
    assert_eq!(switch.lock().head(), 0);
}

#[test]
fn a_client_that_sends_back_what_it_read_changes_what_it_changed_in_either_place() {
    let (switch, mut peer) = writer();
    let read = peer.call("<get-config><source><running/></source></get-config>");
    let data = read
        .split_once("<data>")
        .unwrap()
        .1
        .split_once("</data>")
        .unwrap()
        .0;
    let copy = |data: &str| {
        format!(
            "<copy-config><target><candidate/></target><source><config>{data}</config></source></copy-config>"
        )
    };
    peer.ok(&copy(data));
    peer.ok("<commit/>");
    let (before, after) = {
        let switch = switch.lock();
        (switch.revisions[0].0.to_json(), switch.document())
    };
    assert_eq!(before, after);
    // In the module of the switch: p2 is enabled there, and the view still says that it is not.
    peer.ok(&copy(&data.replace("<down>true</down>", "")));
    peer.ok("<commit/>");
    assert_eq!(port(&switch, 1)["down"], json!(false));
    // In the view: p2 is down in the module of the switch, which is what runs after the next line.
    peer.ok(&copy(data));
    peer.ok("<commit/>");
    peer.ok(&copy(
        &data.replace("<enabled>false</enabled>", "<enabled>true</enabled>"),
    ));
    peer.ok("<commit/>");
    assert_eq!(port(&switch, 1)["down"], json!(false));
    // A whole that has the view alone has no devices.
    let view = &data[data.find("<interfaces").unwrap()..];
    let reply = peer.fails(&copy(view), "invalid-value");
    assert!(reply.contains("a port needs a device"), "{reply}");
    // One request may make a port and edit it by the view.
    let both = edits("<interface><name>br0/p3</name><enabled>false</enabled></interface>").replace(
        "<interfaces",
        "<bridge xmlns=\"urn:millrace:switch\"><name>br0</name><port><name>p3</name><number>3</number><device>memory</device></port></bridge><interfaces",
    );
    peer.ok(&both);
    peer.ok("<commit/>");
    assert_eq!(port(&switch, 2)["down"], json!(true));
    // An edit of the module of the switch leaves the view alone.
    peer.ok(&edit("<port><name>p3</name><down>false</down></port>"));
    peer.ok("<commit/>");
    assert_eq!(port(&switch, 2)["down"], json!(false));
}

#[test]
fn the_modules_of_the_view_are_announced_and_handed_out() {
    let (_, mut peer) = writer();
    let hello = String::from_utf8(peer.session.hello()).unwrap();
    assert!(
        hello.contains("urn:ietf:params:xml:ns:yang:ietf-interfaces?module=ietf-interfaces&amp;revision=2018-02-20&amp;features=if-mib"),
        "{hello}"
    );
    let state = peer.call("<get/>");
    for (module, revision) in [
        ("ietf-interfaces", "2018-02-20"),
        ("ietf-ip", "2018-02-22"),
        ("iana-if-type", "2014-05-08"),
        ("ietf-yang-types", "2013-07-15"),
        ("ietf-inet-types", "2013-07-15"),
    ] {
        let schema = peer.call(&format!(
            r#"<get-schema xmlns="urn:ietf:params:xml:ns:yang:ietf-netconf-monitoring"><identifier>{module}</identifier><version>{revision}</version></get-schema>"#
        ));
        assert!(
            schema.contains(&format!("module {module} {{"))
                && schema.contains(&format!("revision {revision}")),
            "{module}"
        );
        assert!(
            state.contains(&format!(
                "<identifier>{module}</identifier><version>{revision}</version>"
            )),
            "{state}"
        );
    }
    assert_eq!(
        state
            .matches("<conformance-type>import</conformance-type>")
            .count(),
        2
    );
}
