//! Columns and rows that the translation does not read. Those that Open vSwitch writes itself are no configuration.

use millrace_ovs::MONITORED;
use millrace_ovsdb::{Atom, Datum, Row, Uuid};

use super::database::{Database, references};
use super::schema;
use crate::finding::{Findings, Weight};

/// Columns that other parts of the translation name, or that say nothing about packets; what comes closest.
const CLOSEST: [(&str, &str, Weight, &str); 11] = [
    (
        "",
        "external_ids",
        Weight::Note,
        "notes of other programs: expected `description` of the bridge, or their own place",
    ),
    (
        "Open_vSwitch",
        "manager_options",
        Weight::Difference,
        "managers over OVSDB: expected the REST API (`[api]`), or OVSDB as the source of the configuration",
    ),
    (
        "Controller",
        "local_ip",
        Weight::Note,
        "in-band control: expected an address of the LOCAL port",
    ),
    (
        "Controller",
        "local_netmask",
        Weight::Note,
        "in-band control: expected an address of the LOCAL port",
    ),
    (
        "Controller",
        "local_gateway",
        Weight::Note,
        "in-band control: expected a route over the LOCAL port",
    ),
    (
        "Controller",
        "type",
        Weight::Note,
        "a service controller is one as any other",
    ),
    (
        "Controller",
        "controller_queue_size",
        Weight::Note,
        "packet-ins wait in a queue of fixed size",
    ),
    (
        "Controller",
        "other_config",
        Weight::Note,
        "differentiated services of the connection are not set",
    ),
    (
        "Port",
        "fake_bridge",
        Weight::Note,
        "a fake bridge: its ports are ports of the bridge with its VLAN",
    ),
    (
        "Flow_Table",
        "prefixes",
        Weight::Note,
        "classifiers choose by themselves",
    ),
    (
        "Flow_Table",
        "groups",
        Weight::Note,
        "entries are evicted by their timeouts",
    ),
];

/// Columns that a live OVSDB may leave without a word, because they have no effect, or only on what is refused in another row.
const WITHOUT_EFFECT: [(&str, &str, Weight, &str); 10] = [
    ("Port", "bond_mode", Weight::Note, BONDS),
    ("Port", "bond_updelay", Weight::Note, BONDS),
    ("Port", "bond_downdelay", Weight::Note, BONDS),
    ("Port", "bond_fake_iface", Weight::Note, BONDS),
    ("Port", "lacp", Weight::Note, BONDS),
    (
        "Port",
        "cvlans",
        Weight::Note,
        "only vlan_mode=dot1q-tunnel uses it",
    ),
    ("Port", "mac", Weight::Note, "expected `ip link set address`"),
    (
        "Controller",
        "connection_mode",
        Weight::Note,
        "connections are out of band",
    ),
    (
        "Controller",
        "enable_async_messages",
        Weight::Note,
        "a controller asks for messages itself",
    ),
    (
        "SSL",
        "bootstrap_ca_cert",
        Weight::Difference,
        "a certificate is never taken over the network: expected the file of the authority",
    ),
];

const BONDS: &str = "only a port with several interfaces uses it: expected `[[bridge.lag]]` for one";

/// Maps of which the translation reads these keys; others it knows by name.
const KEYS: [(&str, &[&str]); 3] = [
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
    ("Interface", &[]),
    ("QoS", &["max-rate", "cir"]),
];

/// Adds the columns of a row that have no effect.
fn without_effect(place: &str, label: &str, table: &str, row: &Row, findings: &mut Findings) {
    for (of, column, weight, reason) in WITHOUT_EFFECT {
        if of == table && row.get(column).is_some_and(|value| !is_default(value)) {
            findings.add(weight, place.to_owned(), format!("{label}: {column}: {reason}"));
        }
    }
    for unit in ["", "kpkts_"] {
        let is_set = |name: &str| {
            let value = row.get(&format!("ingress_policing_{unit}{name}"));
            value.is_some_and(|value| !is_default(value))
        };
        if is_set("burst") && !is_set("rate") {
            findings.note(
                place,
                format!("{label}: ingress_policing_{unit}burst: has no effect without a rate"),
            );
        }
    }
    let known = KEYS.iter().find(|(of, _)| *of == table);
    if let (Some((_, known)), Some(Datum::Map(pairs))) = (known, row.get("other_config")) {
        for (key, value) in pairs {
            if let (Atom::Text(key), Atom::Text(value)) = (key, value)
                && !known.contains(&key.as_str())
            {
                findings.note(
                    place,
                    format!("{label}: other_config:{key}={value}: no counterpart"),
                );
            }
        }
    }
}

/// Adds what the translation does not read.
pub(super) fn add(name: &str, database: &Database, findings: &mut Findings) {
    for table in schema::TABLES {
        let read = MONITORED.iter().find(|(of, _)| *of == table.name);
        for (uuid, row) in database.replica.rows(table.name) {
            let place = database.place(name, uuid);
            let label = label(database, table.name, uuid);
            let Some((_, columns)) = read else {
                // The column that refers to the row is named, in its table.
                if !is_referred(database, table.name, uuid) {
                    findings.note(place, format!("{label}: a row that nothing refers to"));
                }
                continue;
            };
            without_effect(&place, &label, table.name, row, findings);
            for (column, value) in row {
                let is_read = columns.contains(&column.as_str());
                let known = table.columns.iter().find(|known| known.name == column);
                if is_read || is_default(value) || known.is_some_and(|known| known.is_state) {
                    continue;
                }
                let closest = CLOSEST
                    .iter()
                    .find(|(of, name, ..)| *name == column && (of.is_empty() || *of == table.name));
                let (weight, instead) = match closest {
                    Some((_, _, weight, instead)) => (*weight, *instead),
                    None => (Weight::Difference, "not available"),
                };
                findings.add(weight, place.clone(), format!("{label}: {column}: {instead}"));
            }
            if table.is_root
                && table.name != super::database::ROOT
                && !is_referred(database, table.name, uuid)
            {
                findings.note(place, format!("{label}: no port uses it"));
            }
        }
    }
    for table in ["CT_Zone", "CT_Timeout_Policy"] {
        if database.replica.rows(table).next().is_some() {
            findings.difference(name, format!("{table}: connection tracking is not available in flow entries: expected a function of a chain"));
        }
    }
}

/// Returns the name of a row for people.
fn label(database: &Database, table: &str, uuid: Uuid) -> String {
    let name = database
        .text(table, uuid, "name")
        .or_else(|| database.text(table, uuid, "target"));
    match name {
        Some(name) => format!("{table} {name}"),
        None if table == super::database::ROOT => table.to_owned(),
        None => format!("{table} {uuid}"),
    }
}

fn is_referred(database: &Database, table: &str, uuid: Uuid) -> bool {
    schema::references_to(table).any(|(holder, column)| {
        let mut rows = database.replica.rows(holder);
        rows.any(|(_, row)| {
            row.get(column)
                .is_some_and(|value| references(value).contains(&uuid))
        })
    })
}

/// Returns true for the value of a column that nobody set.
fn is_default(value: &Datum) -> bool {
    match value {
        Datum::Map(pairs) => pairs.is_empty(),
        Datum::Set(atoms) => atoms.iter().all(|atom| match atom {
            Atom::Integer(value) => *value == 0,
            Atom::Real(value) => *value == 0.0,
            Atom::Boolean(value) => !*value,
            Atom::Text(text) | Atom::Named(text) => text.is_empty(),
            Atom::Uuid(_) => false,
        }),
    }
}
