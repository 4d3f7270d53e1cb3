//! Columns and keys that no other module reads. Each that has a value is named, so that nothing is ignored in silence;
//! `millrace import` names the same.

use crate::fault::{Faults, RowName, Severity};
use crate::rows::View;

/// Columns without effect: table, column, weight, and what comes closest.
const COLUMNS: [(&str, &str, Severity, &str); 9] = [
    (
        "Controller",
        "type",
        Severity::Ignored,
        "a service controller is one as any other",
    ),
    (
        "Controller",
        "local_ip",
        Severity::Ignored,
        "connections are out of band: expected an address of the LOCAL port",
    ),
    (
        "Controller",
        "local_netmask",
        Severity::Ignored,
        "connections are out of band: expected an address of the LOCAL port",
    ),
    (
        "Controller",
        "local_gateway",
        Severity::Ignored,
        "connections are out of band: expected a route over the LOCAL port",
    ),
    (
        "Controller",
        "controller_queue_size",
        Severity::Ignored,
        "packet-ins wait in a queue of fixed size",
    ),
    (
        "Controller",
        "other_config",
        Severity::Ignored,
        "the differentiated services of the connection are not set",
    ),
    (
        "Flow_Table",
        "prefixes",
        Severity::Ignored,
        "classifiers choose by themselves",
    ),
    (
        "Flow_Table",
        "groups",
        Severity::Ignored,
        "entries are evicted by their timeouts",
    ),
    (
        "SSL",
        "bootstrap_ca_cert",
        Severity::Refused,
        "a certificate is never taken over the network: expected the file of the authority",
    ),
];

/// The keys of `other_config` that other modules read or name, by table. Port and Bridge name unknown ones themselves.
const KEYS: [(&str, &[&str]); 5] = [
    (
        "Open_vSwitch",
        &[
            "stats-update-interval",
            "dpdk-init",
            "dpdk-extra",
            "dpdk-socket-mem",
            "dpdk-lcore-mask",
            "pmd-cpu-mask",
            "hw-offload",
        ],
    ),
    (
        "Interface",
        &[
            "cfm_interval",
            "lacp-port-id",
            "lacp-port-priority",
            "lacp-aggregation-key",
        ],
    ),
    ("QoS", &["max-rate", "cir"]),
    // The names of tunnels and directions of which Open vSwitch tells more records.
    ("IPFIX", &[]),
    ("Queue", &["min-rate", "max-rate", "priority"]),
];

/// Adds the columns and keys of a row that have no effect.
pub(crate) fn check(view: &View<'_>, row: &RowName, faults: &mut Faults) {
    for (table, column, severity, instead) in COLUMNS {
        if table == view.table && view.is_set(column) {
            faults.add(row, severity, format!("{column} has no effect: {instead}"));
        }
    }
    let Some((_, known)) = KEYS.iter().find(|(table, _)| *table == view.table) else {
        return;
    };
    for (key, value) in view.map("other_config") {
        if !known.contains(&key) {
            faults.ignore(
                row,
                format!("other_config:{key}={value} has no effect: the key is not known here"),
            );
        }
    }
}
