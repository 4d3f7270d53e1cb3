//! Columns that no other module reads, and the keys of rows that have no module. Each that has a value is named, so that nothing is ignored in silence;
//! `millrace import` names the same.

use crate::fault::{Faults, RowName, Severity};
use crate::keys;
use crate::rows::View;

/// Columns without effect: table, column, weight, and what comes closest.
const COLUMNS: [(&str, &str, Severity, &str); 10] = [
    (
        "Open_vSwitch",
        "datapaths",
        Severity::Ignored,
        "no action tracks connections: expected a function of a chain",
    ),
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

/// The keys of `other_config` that other modules read or name, by table. Modules of Port, Bridge and QoS name theirs themselves.
const READ: [(&str, &[&str]); 4] = [
    ("Open_vSwitch", &["stats-update-interval"]),
    (
        "Interface",
        &[
            "cfm_interval",
            "lacp-port-id",
            "lacp-port-priority",
            "lacp-aggregation-key",
        ],
    ),
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
    if let Some((_, read)) = READ.iter().find(|(table, _)| *table == view.table) {
        keys::check(view, "other_config", row, |key| read.contains(&key), faults);
    }
}
