//! Columns and rows that the translation does not read. Those that Open vSwitch writes itself are no configuration.

use millrace_ovs::MONITORED;
use millrace_ovsdb::{Atom, Datum, Uuid};

use super::database::{Database, references};
use super::schema;
use crate::finding::{Findings, Weight};

/// Columns that other parts of the translation name, or that say nothing about packets; what comes closest.
const CLOSEST: [(&str, &str, Weight, &str); 4] = [
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
        "Port",
        "mac",
        Weight::Difference,
        "the MAC address of a bridge does not follow from those of its ports: expected `local_mac` of the bridge",
    ),
    (
        "Port",
        "fake_bridge",
        Weight::Note,
        "a fake bridge: its ports are ports of the bridge with its VLAN",
    ),
];

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
            for (column, value) in row {
                let closest = CLOSEST
                    .iter()
                    .find(|(of, name, ..)| *name == column && (of.is_empty() || *of == table.name));
                // Some columns that a running switch reads are no configuration.
                let is_read = columns.contains(&column.as_str()) && closest.is_none();
                let known = table.columns.iter().find(|known| known.name == column);
                if is_read || is_default(value) || known.is_some_and(|known| known.is_state) {
                    continue;
                }
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
