//! Nothing is ignored in silence: a column that the switch reads and that people set changes the configuration, or is named.

use millrace_ovs::MONITORED;
use serde_json::{Value as Json, json};

use crate::database::{Database, map, uuid};

/// Columns whose values the other tests try, or that only tell names and states.
const LEFT_OUT: &[&str] = &[
    "name",
    "bridges",
    "ports",
    "interfaces",
    "controller",
    "next_cfg",
    "ovs_version",
    "db_version",
    "ssl",
    "sflow",
    "ipfix",
    "netflow",
    "mirrors",
    "output_port",
    "select_src_port",
    "select_dst_port",
    "flow_tables",
    "auto_attach",
    "qos",
    "queues",
    "target",
    "targets",
    "private_key",
    "certificate",
    "ca_cert",
    "ofport",
    "type",
    "fake_bridge",
    "bridge",
];

/// Values that say something, by column.
fn value(column: &str) -> Json {
    match column {
        "other_config" => map(&[("some-key", "some-value")]),
        "options" => map(&[("some-key", "some-value")]),
        "bfd" | "lldp" => map(&[("enable", "true")]),
        "prefixes" | "groups" | "agent" | "mac" | "local_ip" | "local_netmask" | "local_gateway" => {
            json!("192.0.2.78")
        }
        "datapath_type" => json!("other"),
        "fail_mode" => json!("secure"),
        "protocols" => json!("OpenFlow10"),
        "vlan_mode" => json!("native-untagged"),
        "bond_mode" => json!("balance-tcp"),
        "lacp" => json!("active"),
        "overflow_policy" => json!("evict"),
        "connection_mode" => json!("in-band"),
        "enable_async_messages" => json!(false),
        "select_all"
        | "stp_enable"
        | "rstp_enable"
        | "mcast_snooping_enable"
        | "bond_fake_iface"
        | "protected"
        | "bootstrap_ca_cert" => json!(true),
        _ => json!(1234),
    }
}

/// Returns what the database says with one more column in one row: its bridges and its faults.
fn said(table: &str, column: Option<&str>) -> String {
    let mut database = Database::default();
    let with = |of: &str, mut base: Json| {
        if let Some(column) = column.filter(|_| of == table) {
            base[column] = value(column);
        }
        base
    };
    let queue = database.row(
        "Queue",
        &with("Queue", json!({"other_config": map(&[("min-rate", "1000000")])})),
    );
    let qos = database.row(
        "QoS",
        &with(
            "QoS",
            json!({"type": "linux-htb", "queues": ["map", [[1, uuid(queue)]]]}),
        ),
    );
    let flow_table = database.row("Flow_Table", &with("Flow_Table", json!({"name": "t"})));
    let sflow = database.row(
        "sFlow",
        &with(
            "sFlow",
            json!({"agent": "192.0.2.1", "targets": "192.0.2.9:6343"}),
        ),
    );
    let ipfix = database.row(
        "IPFIX",
        &with(
            "IPFIX",
            json!({"targets": "192.0.2.9:4739", "cache_max_flows": 5, "cache_active_timeout": 9}),
        ),
    );
    database.row(
        "Flow_Sample_Collector_Set",
        &with("Flow_Sample_Collector_Set", json!({})),
    );
    let controller = database.row(
        "Controller",
        &with("Controller", json!({"target": "tcp:192.0.2.1:6653"})),
    );
    let port = database.port(
        "p1",
        &with("Port", json!({"qos": uuid(qos)})),
        &with("Interface", json!({"type": "internal"})),
    );
    let monitor = database.port("p2", &json!({}), &json!({"type": "internal"}));
    let mirror = database.row(
        "Mirror",
        &with(
            "Mirror",
            json!({"name": "m", "select_src_port": uuid(port), "output_port": uuid(monitor)}),
        ),
    );
    let bridge = json!({"mirrors": uuid(mirror), "controller": uuid(controller), "sflow": uuid(sflow), "ipfix": uuid(ipfix), "flow_tables": ["map", [[1, uuid(flow_table)]]]});
    database.bridge("br0", &with("Bridge", bridge), &[port, monitor]);
    let ssl = database.row(
        "SSL",
        &with(
            "SSL",
            json!({"private_key": "/k", "certificate": "/c", "ca_cert": "/a"}),
        ),
    );
    database.root = with("Open_vSwitch", json!({"ssl": uuid(ssl)}));
    let translation = database.translated();
    format!("{:?} {:?}", translation.bridges, translation.faults)
}

#[test]
fn every_monitored_column_that_is_set_changes_the_bridge_or_is_named() {
    let mut silent = Vec::new();
    for (table, columns) in MONITORED {
        for column in columns.iter().filter(|column| !LEFT_OUT.contains(column)) {
            if said(table, Some(column)) == said(table, None) {
                silent.push(format!("{table}:{column}"));
            }
        }
    }
    // A burst alone, 0xff of a DSCP and the like say nothing without another column.
    assert_eq!(silent, Vec::<String>::new());
}

#[test]
fn what_the_local_port_cannot_have_is_named() {
    let mut database = Database::default();
    let local = database.port(
        "br0",
        &json!({"tag": 0, "protected": true, "other_config": map(&[("a", "b")])}),
        &json!({"type": "internal", "ingress_policing_rate": 5, "lldp": map(&[("enable", "true")])}),
    );
    let bridge = database.row("Bridge", &json!({"name": "br0", "ports": uuid(local)}));
    database.bridges.push(bridge);
    let faults = database.translated().faults;
    let said: Vec<String> = faults.iter().map(ToString::to_string).collect();
    for column in [
        "tag",
        "protected",
        "other_config",
        "ingress_policing_rate",
        "lldp",
    ] {
        assert!(
            said.iter()
                .any(|fault| fault.contains(&format!(": {column} of the LOCAL port"))),
            "{column}: {said:?}"
        );
    }
}

/// Returns what the database says of a bridge in a spanning tree with these keys of `other_config`.
fn tree(protocol: &str, of_bridge: &[(&str, &str)], of_port: &[(&str, &str)]) -> String {
    let enabled = format!("{protocol}_enable");
    tree_of(&json!({enabled: true}), of_bridge, of_port)
}

fn tree_of(columns: &Json, of_bridge: &[(&str, &str)], of_port: &[(&str, &str)]) -> String {
    let mut database = Database::default();
    let port = database.port(
        "p1",
        &json!({"other_config": map(of_port)}),
        &json!({"type": "system"}),
    );
    let mut columns = columns.clone();
    columns["other_config"] = map(of_bridge);
    database.bridge("br0", &columns, &[port]);
    let translation = database.translated();
    format!("{:?} {:?}", translation.bridges, translation.faults)
}

#[test]
fn every_key_of_a_spanning_tree_changes_the_bridge_or_is_named() {
    let of_bridge = [
        ("stp", "system-id", "02:00:00:00:00:09"),
        ("stp", "priority", "100"),
        ("stp", "hello-time", "1"),
        ("stp", "max-age", "10"),
        ("stp", "forward-delay", "10"),
        ("rstp", "address", "02:00:00:00:00:09"),
        ("rstp", "priority", "4096"),
        ("rstp", "ageing-time", "100"),
        ("rstp", "force-protocol-version", "0"),
        ("rstp", "max-age", "10"),
        ("rstp", "forward-delay", "10"),
        ("rstp", "transmit-hold-count", "3"),
    ];
    let of_port = [
        ("stp", "enable", "false"),
        ("stp", "port-num", "9"),
        ("stp", "port-priority", "16"),
        ("stp", "path-cost", "7"),
        ("rstp", "enable", "false"),
        ("rstp", "port-num", "9"),
        ("rstp", "port-priority", "16"),
        ("rstp", "path-cost", "7"),
        ("rstp", "port-admin-edge", "true"),
        ("rstp", "port-auto-edge", "false"),
        ("rstp", "port-mcheck", "true"),
        ("rstp", "admin-p2p-mac", "false"),
    ];
    for (protocol, key, value) in of_bridge {
        let key = format!("{protocol}-{key}");
        assert_ne!(
            tree(protocol, &[(&key, value)], &[]),
            tree(protocol, &[], &[]),
            "{key}"
        );
    }
    for (protocol, key, value) in of_port {
        let key = format!("{protocol}-{key}");
        assert_ne!(
            tree(protocol, &[], &[(&key, value)]),
            tree(protocol, &[], &[]),
            "{key}"
        );
    }
    // Of both protocols RSTP is in effect, and reads its own keys, also if it speaks as STP does; others are named.
    let keys = [("rstp-force-protocol-version", "0"), ("rstp-priority", "5000")];
    let as_stp = tree("rstp", &keys, &[("rstp-path-cost", "7"), ("stp-path-cost", "9")]);
    for said in [
        "version: Stp",
        "BridgePriority(4096)",
        "PathCost(7)",
        "other_config:stp-path-cost=9 has no effect: the bridge has no stp_enable=true",
    ] {
        assert!(as_stp.contains(said), "{said}: {as_stp}");
    }
    // Priorities of STP are whole numbers of 16 bits, those of RSTP multiples of 4096; a wrong address is named.
    assert!(tree("stp", &[("stp-priority", "100")], &[]).contains("BridgePriority(100)"));
    assert!(tree("rstp", &[("rstp-priority", "5000")], &[]).contains("BridgePriority(4096)"));
    let wrong = tree("rstp", &[("rstp-address", "nobody")], &[]);
    let both = tree_of(&json!({"stp_enable": true, "rstp_enable": true}), &[], &[]);
    assert!(
        both.contains("version: Rstp") && both.contains("stp_enable has no effect beside rstp_enable"),
        "{both}"
    );
    assert!(wrong.contains("rstp-address=nobody has no effect"), "{wrong}");
}
