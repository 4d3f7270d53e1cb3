//! Tests of `bridge`, `port`, `controller` and `fdb`: one command, one transaction.

use millrace_api::fake::FakeServer;

use crate::harness::{committed, json, refused, stdout};

/// Returns the part of `show config` from a header on.
fn shown(server: &FakeServer, header: &str) -> String {
    let config = stdout(server, "show config");
    let at = config
        .find(header)
        .unwrap_or_else(|| panic!("no {header}: {config}"));
    config[at..].to_owned()
}

#[test]
fn a_port_is_added_by_its_name_changed_and_removed() {
    let server = FakeServer::start().unwrap();
    let text = committed(&server, "port add br0 eth3 -m uplink");
    assert!(text.starts_with("+ bridge br0 port eth3 {"), "{text}");
    assert!(
        text.contains("device = \"kernel:eth3\"") && text.contains("number = 3"),
        "{text}"
    );
    assert!(text.contains("revision 2\n"), "{text}");
    let history = json(&server, "show history");
    assert_eq!(history["revisions"][0]["comment"], "uplink");
    let text = committed(&server, "port set br0 eth3 vlan=10 mtu=9000 down=true");
    assert_eq!(
        text.lines()
            .filter(|line| line.starts_with("~ bridge br0 port eth3"))
            .count(),
        3,
        "{text}"
    );
    let text = committed(&server, "port set br0 eth3 mtu= down=");
    assert!(text.contains("mtu: 9000 -> 1500"), "{text}");
    assert!(shown(&server, "name = \"eth3\"").contains("vlan = 10"));
    assert!(committed(&server, "port remove br0 eth3").starts_with("- bridge br0 port eth3"));
    let text = refused(&server, "port remove br0 eth3", 1);
    assert!(
        text.contains("bridge br0 has no port `eth3` configured: expected one of h1, h2"),
        "{text}"
    );
}

#[test]
fn commands_may_be_repeated_where_that_is_asked_for() {
    let server = FakeServer::start().unwrap();
    let add = "port add br0 eth3 vlan=10";
    committed(&server, add);
    let text = refused(&server, add, 1);
    assert!(
        text.contains("millrace port set br0 eth3 KEY=VALUE") && text.contains("--may-exist"),
        "{text}"
    );
    assert!(committed(&server, &format!("{add} --may-exist")).contains("nothing changes: revision 2"));
    let text = committed(&server, "port add br0 eth3 vlan=20 --may-exist");
    assert!(
        text.starts_with("~ bridge br0 port eth3 vlan: 10 -> 20"),
        "{text}"
    );
    for (command, what) in [
        ("bridge add br0", "there is a bridge `br0` already"),
        (
            "bridge remove br7",
            "no bridge `br7` is configured: expected one of br0 (`millrace bridge add br7` adds it)",
        ),
        ("port add br7 eth3", "no bridge `br7` is configured"),
        (
            "controller remove br0 tcp:192.0.2.1",
            "has no controller tcp:192.0.2.1:6653: there is none",
        ),
    ] {
        let text = refused(&server, command, 1);
        assert!(text.contains(what), "{command}: {text}");
    }
    for command in [
        "bridge add br0 --may-exist",
        "bridge remove br7 --if-exists",
        "port remove br0 eth9 --if-exists",
        "port remove br7 eth9 --if-exists",
        "controller remove br0 tcp:192.0.2.1 --if-exists",
    ] {
        assert!(
            committed(&server, command).contains("nothing changes"),
            "{command}"
        );
    }
}

#[test]
fn bridges_and_controllers_are_added_changed_and_removed() {
    let server = FakeServer::start().unwrap();
    committed(
        &server,
        "bridge add br1 fail_mode=standalone description.datapath=lab",
    );
    let text = shown(&server, "name = \"br1\"");
    assert!(
        text.contains("fail_mode = \"standalone\"") && text.contains("datapath = \"lab\""),
        "{text}"
    );
    committed(&server, "controller add br1 tcp:192.0.2.10 max_backoff_s=4");
    committed(&server, "controller add br1 tcp:192.0.2.11:6634");
    let text = shown(&server, "name = \"br1\"");
    assert!(
        text.contains("tcp:192.0.2.10:6653") && text.contains("tcp:192.0.2.11:6634"),
        "{text}"
    );
    let text = refused(&server, "controller add br1 tcp:192.0.2.10:6653", 1);
    assert!(
        text.contains("has the controller tcp:192.0.2.10:6653 already"),
        "{text}"
    );
    committed(&server, "controller remove br1 tcp:192.0.2.10");
    committed(&server, "controller remove br1 --all");
    assert!(!shown(&server, "name = \"br1\"").contains("tcp:"));
    assert!(committed(&server, "bridge remove br1").starts_with("- bridge br1"));
}

#[test]
fn both_ends_of_a_link_come_and_go_in_one_transaction() {
    let server = FakeServer::start().unwrap();
    committed(&server, "bridge add br1");
    let text = refused(&server, "port add br0 to-br1 --device link:patch0", 1);
    assert!(text.contains("link `patch0` has one end"), "{text}");
    let text = committed(
        &server,
        "port add br0 to-br1 --device link:patch0 --peer br1/to-br0",
    );
    assert_eq!(
        text.lines().filter(|line| line.starts_with("+ bridge")).count(),
        2,
        "{text}"
    );
    assert!(refused(&server, "port remove br0 to-br1", 1).contains("has one end"));
    let text = committed(&server, "port remove br0 to-br1 --peer");
    assert_eq!(
        text.lines().filter(|line| line.starts_with("- bridge")).count(),
        2,
        "{text}"
    );
    let text = refused(&server, "port add br0 eth3 --device kernel:eth3 --peer br1/p", 1);
    assert!(
        text.contains("kernel:eth3 has no other end in this switch"),
        "{text}"
    );
    assert!(refused(&server, "port add br0 x --device link:y --peer br1", 2).contains("BRIDGE/PORT"));
}

#[test]
fn a_change_is_tried_bound_to_a_revision_and_confirmed_like_that_of_a_file() {
    let server = FakeServer::start().unwrap();
    let text = stdout(&server, "port add br0 eth3 --dry-run");
    assert!(text.ends_with("dry run: revision 1 stays in force\n"), "{text}");
    let text = committed(&server, "port add br0 eth3 --confirm-within 10m");
    assert!(text.contains("unless confirmed: millrace confirm 2"), "{text}");
    assert_eq!(stdout(&server, "confirm 2"), "revision 2 is confirmed\n");
    assert!(refused(&server, "port add br0 eth4 --expect 1", 1).contains("at revision 2"));
    assert!(committed(&server, "rollback").contains("- bridge br0 port eth3"));
    for (options, expected) in [
        ("--confirm-within 0s", "1s to 1d"),
        ("--confirm-within 1.5s", "whole seconds"),
        ("--wait soon", "such as 20s"),
    ] {
        let text = refused(&server, &format!("port add br0 eth4 {options}"), 2);
        assert!(text.contains(expected), "{options}: {text}");
    }
}

#[test]
fn a_mistake_is_refused_with_its_key_and_what_was_expected() {
    let server = FakeServer::start().unwrap();
    for (command, expected) in [
        ("port add br0 eth3 tag=10", "did you mean `vlan`?"),
        ("port add br0 eth3 vlan", "`vlan`: expected KEY=VALUE"),
        (
            "port add br0 eth3 mtu=many",
            "/mtu: found the text \"many\": expected a whole number",
        ),
        ("port add br0 eth3 --device eth3", "did you mean `kernel:eth3`?"),
        ("port add br0 h3 --number 1", "port number 1 is already used by"),
        (
            "port set br0 h1 fail_mode=secure",
            "the key belongs to `[[bridge]]`",
        ),
        ("bridge add a/b", "bridge name"),
        ("controller add br0 192.0.2.1", "tcp:"),
    ] {
        let text = refused(&server, command, 1);
        assert!(text.contains(expected), "{command}: {text}");
    }
    assert!(refused(&server, "port set br0 h1", 2).contains("KEY=VALUE"));
}

#[test]
fn mac_addresses_are_forgotten_and_flow_entries_saved() {
    let server = FakeServer::start().unwrap();
    assert_eq!(stdout(&server, "fdb flush br0"), "4 MAC addresses forgotten\n");
    assert_eq!(
        stdout(&server, "fdb flush br0 --vlan 7 --port h1"),
        "1 MAC address forgotten\n"
    );
    assert!(refused(&server, "fdb flush br0 --port h9", 1).contains("h9"));
    assert!(refused(&server, "fdb flush br0 --vlan 4095", 2).contains("4094"));
    let text = stdout(&server, "flow save");
    assert_eq!(
        text,
        "br0: 4 entries, 1 groups and 1 meters saved to /var/lib/millrace/flows/br0.flows\n"
    );
    assert_eq!(json(&server, "flow save br0")[0]["flows"], 4);
}
