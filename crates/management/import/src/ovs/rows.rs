//! Names of tables, columns and rows as ovs-vsctl(8) reads them ("Identifying Tables, Records, and Columns").

use std::collections::BTreeMap;

use millrace_ovsdb::Uuid;

use super::database::Database;
use super::schema::{self, Column, Table};

/// Names that `--id` gave to rows in this call.
pub(super) type Named = BTreeMap<String, (&'static str, Uuid)>;

/// Returns the item whose name is meant: case does not count, `-` is `_`, and a beginning that only one name has is enough.
fn meant<'a, T>(items: &'a [T], name: impl Fn(&T) -> &str, text: &str) -> Option<&'a T> {
    let plain = |text: &str| text.to_ascii_lowercase().replace('-', "_");
    let text = plain(text);
    if let Some(item) = items.iter().find(|item| plain(name(item)) == text) {
        return Some(item);
    }
    let mut found = items.iter().filter(|item| plain(name(item)).starts_with(&text));
    found.next().filter(|_| found.next().is_none())
}

/// Returns the table that is meant.
pub(super) fn table(text: &str) -> Result<&'static Table, String> {
    meant(schema::TABLES, |table| table.name, text)
        .ok_or_else(|| format!("{text}: expected a table such as Bridge, Port or Interface"))
}

/// Returns the column that is meant.
pub(super) fn column(table: &'static Table, text: &str) -> Result<&'static Column, String> {
    meant(table.columns, |column| column.name, text)
        .ok_or_else(|| format!("{text}: expected a column of table {}", table.name))
}

/// Rows that are found by the name of another row: the table, the table of the name, and its column that refers to the row.
const BY_HOLDER: [(&str, &str, &str); 7] = [
    ("Controller", "Bridge", "controller"),
    ("NetFlow", "Bridge", "netflow"),
    ("sFlow", "Bridge", "sflow"),
    ("IPFIX", "Bridge", "ipfix"),
    ("AutoAttach", "Bridge", "auto_attach"),
    ("QoS", "Port", "qos"),
    ("SSL", "Open_vSwitch", "ssl"),
];

/// Returns the row that is meant.
pub(super) fn row(
    database: &Database,
    named: &Named,
    table: &'static Table,
    text: &str,
) -> Result<Uuid, String> {
    if text.starts_with('@') {
        return match named.get(text) {
            Some((of, uuid)) if *of == table.name => Ok(*uuid),
            Some((of, _)) => Err(format!(
                "{text} is a row of table {of}: expected one of {}",
                table.name
            )),
            None => Err(format!(
                "{text}: expected a name that --id gives in the same command"
            )),
        };
    }
    let unknown = || Err(format!("no row {text} in table {}", table.name));
    if table.name == "Open_vSwitch" {
        return database.root().map_or_else(unknown, Ok);
    }
    if text.parse::<Uuid>().is_ok() {
        return Err(format!(
            "{text}: rows of a script get other UUIDs: expected the name of the row, or the database (conf.db) in place of the script"
        ));
    }
    for column in ["name", "target"] {
        if let Some(uuid) = database.find(table.name, column, text) {
            return Ok(uuid);
        }
    }
    let holders = BY_HOLDER.iter().filter(|(of, ..)| *of == table.name);
    for (_, holder, column) in holders {
        let holding = match *holder {
            "Open_vSwitch" => database.root(),
            holder => database.find(holder, "name", text),
        };
        let rows = holding.map(|uuid| database.refers(holder, uuid, column));
        if let Some([uuid]) = rows.as_deref() {
            return Ok(*uuid);
        }
    }
    unknown()
}
