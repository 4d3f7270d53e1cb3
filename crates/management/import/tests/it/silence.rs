//! Nothing is left out in silence: each column of the schema that people can set changes the configuration, or is named.

use millrace_import::ovs;
use serde_json::Value as Json;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Rows of every table that a configuration has.
pub(crate) const BASE: &str = "\
ovs-vsctl add-br br0
ovs-vsctl add-port br0 p1
ovs-vsctl set-controller br0 tcp:192.0.2.1:6653
ovs-vsctl set-ssl /k /c /a
ovs-vsctl -- --id=@q create QoS type=linux-htb queues:1=@k -- --id=@k create Queue other_config:min-rate=1000000 -- set Port p1 qos=@q
ovs-vsctl -- --id=@s create sFlow agent=192.0.2.3 targets=\\\"192.0.2.9:6343\\\" -- set Bridge br0 sflow=@s
ovs-vsctl -- --id=@f create Flow_Table name=t -- set Bridge br0 flow_tables:1=@f
";

/// The tables, and the row of each in a script.
const ROWS: [(&str, &str); 9] = [
    ("Open_vSwitch", "."),
    ("Bridge", "br0"),
    ("Port", "p1"),
    ("Interface", "p1"),
    ("Controller", "br0"),
    ("QoS", "p1"),
    ("sFlow", "br0"),
    ("SSL", "."),
    ("Flow_Table", "t"),
];

/// Columns that Open vSwitch writes itself, or whose effect needs another row.
const LEFT_OUT: [&str; 46] = [
    "name",
    "interfaces",
    "ports",
    "bridges",
    "datapaths",
    "next_cfg",
    "cur_cfg",
    "statistics",
    "ovs_version",
    "db_version",
    "system_type",
    "system_version",
    "datapath_types",
    "iface_types",
    "dpdk_initialized",
    "dpdk_version",
    "datapath_version",
    "datapath_id",
    "status",
    "rstp_status",
    "rstp_statistics",
    "bond_active_slave",
    "mac_in_use",
    "ifindex",
    "ofport",
    "bfd_status",
    "cfm_flap_count",
    "cfm_fault",
    "cfm_fault_status",
    "cfm_remote_opstate",
    "cfm_remote_mpids",
    "cfm_health",
    "lacp_current",
    "admin_state",
    "link_state",
    "link_resets",
    "link_speed",
    "duplex",
    "mtu",
    "error",
    "is_connected",
    "role",
    // An explicit default of the kind of the other values.
    "max_backoff",
    "inactivity_probe",
    "polling",
    "header",
];

/// Values that say something, by column.
fn value(column: &str, kind: &Json) -> Option<String> {
    let known = match column {
        "datapath_type" => "other",
        "fail_mode" => "secure",
        "type" => "internal",
        "vlan_mode" => "native-untagged",
        "protocols" => "OpenFlow10",
        "bond_mode" => "balance-tcp",
        "lacp" => "active",
        "target" => "\\\"tcp:192.0.2.77:6653\\\"",
        "targets" => "\\\"192.0.2.77:6343\\\"",
        "agent" => "192.0.2.78",
        "overflow_policy" => "evict",
        "connection_mode" => "in-band",
        // The default is true.
        "enable_async_messages" => "false",
        "mac" => "\\\"02:00:00:00:00:01\\\"",
        "tag" => "7",
        "trunks" | "cvlans" | "flood_vlans" => "8,9",
        "mtu_request" => "1400",
        "bfd" => "enable=true",
        "lldp" => "enable=true",
        "sampling" => "17",
        _ => match kind["key"].get("type").or(kind.get("key")).unwrap_or(kind) {
            Json::String(key) => match (key.as_str(), kind.get("value").is_some()) {
                ("string", true) => "some-key=some-value",
                ("string", false) => "some-text",
                ("integer", false) => "5",
                ("boolean", false) => "true",
                _ => return None,
            },
            _ => return None,
        },
    };
    Some(known.to_owned())
}

#[test]
fn every_column_that_people_set_changes_the_configuration_or_is_named() {
    let Ok(text) = std::fs::read_to_string(SCHEMA) else {
        eprintln!("skipped: {SCHEMA} is missing (package openvswitch-common)");
        return;
    };
    let schema: Json = serde_json::from_str(&text).unwrap();
    let base = ovs::read("s", BASE.as_bytes()).unwrap();
    assert!(!base.differs(), "{:#?}", base.findings);
    let mut silent = Vec::new();
    let mut tried = 0;
    for (table, row) in ROWS {
        for (column, definition) in schema["tables"][table]["columns"].as_object().unwrap() {
            if LEFT_OUT.contains(&column.as_str()) {
                continue;
            }
            let Some(value) = value(column, &definition["type"]) else {
                continue;
            };
            let script = format!("{BASE}ovs-vsctl set {table} {row} {column}={value}\n");
            let imported = ovs::read("s", script.as_bytes()).unwrap();
            let refusal = imported
                .findings
                .iter()
                .find(|finding| finding.text.contains("would refuse it"));
            assert!(refusal.is_none(), "{table} {column}={value}: {refusal:?}");
            tried += 1;
            let texts = |imported: &millrace_import::Imported| {
                imported
                    .findings
                    .iter()
                    .map(|finding| finding.text.clone())
                    .collect::<Vec<_>>()
            };
            if imported.config == base.config && texts(&imported) == texts(&base) {
                silent.push(format!("{table} {column}={value}"));
            }
        }
    }
    assert!(tried > 50, "{tried}");
    assert_eq!(silent, Vec::<String>::new());
}
