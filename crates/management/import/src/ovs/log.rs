//! The file of a standalone database (ovsdb(5), "Standalone and Active-Backup Databases"): the schema, and then transactions, each
//! as JSON with its length and its SHA-1 before it.
//!
//! ```text
//! OVSDB JSON 15244 d1a0…\n
//! {"name":"Open_vSwitch","version":"8.3.1","tables":{…}}\n
//! OVSDB JSON 344 586f…\n
//! {"_date":1795914825325,"_is_diff":true,"Bridge":{"4619…":{"ports":["uuid","639d…"]}}}\n
//! ```

use data_encoding::HEXLOWER;
use millrace_ovsdb::{Datum, Replica, Row, Schema};
use serde_json::Value as Json;
use sha1::{Digest as _, Sha1};

use super::database::Database;
use crate::ImportError;
use crate::finding::Findings;

/// The first bytes of a standalone database.
pub(super) const STANDALONE: &[u8] = b"OVSDB JSON ";

/// The name of the schema.
const NAME: &str = "Open_vSwitch";

/// Reads a database.
pub(super) fn read(name: &str, bytes: &[u8]) -> Result<(Database, Findings), ImportError> {
    let mut findings = Findings::default();
    let mut records = Records { bytes, at: 0 };
    let at = |offset: usize| format!("{name}, byte {offset}");
    let Some(first) = records.next() else {
        return Err(ImportError::new(name, "an empty file: expected a database"));
    };
    let json = first.map_err(|reason| ImportError::new(at(0), reason))?;
    match json.get("name").and_then(Json::as_str) {
        Some(NAME) => {}
        other => {
            return Err(ImportError::new(
                name,
                format!(
                    "a database of schema {}: expected {NAME}, as in /etc/openvswitch/conf.db",
                    other.unwrap_or("without a name")
                ),
            ));
        }
    }
    let schema = Schema::from_json(&json).map_err(|error| ImportError::new(name, error.to_string()))?;
    let mut database = Database::default();
    loop {
        let offset = records.at;
        match records.next() {
            None => break,
            Some(Ok(json)) => {
                apply(&mut database, &schema, &json)
                    .map_err(|reason| ImportError::new(at(offset), reason))?;
            }
            // ovsdb-server also ignores what follows a damaged record, and says so.
            Some(Err(reason)) => {
                findings.difference(at(offset), format!("the rest of the file is left out: {reason}"));
                break;
            }
        }
    }
    Ok((database, findings))
}

/// The records of a file.
struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Iterator for Records<'_> {
    type Item = Result<Json, String>;

    fn next(&mut self) -> Option<Result<Json, String>> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if rest.is_empty() {
            return None;
        }
        let found = record(rest);
        self.at = match &found {
            Ok((size, _)) => self.at + size,
            Err(_) => self.bytes.len(),
        };
        Some(found.map(|(_, json)| json))
    }
}

/// Reads one record; returns its size and its content.
fn record(bytes: &[u8]) -> Result<(usize, Json), String> {
    let head = || "expected a line `OVSDB JSON LENGTH SHA1`".to_owned();
    let end = bytes
        .iter()
        .take(128)
        .position(|byte| *byte == b'\n')
        .ok_or_else(head)?;
    let line = bytes[..end].strip_prefix(STANDALONE).ok_or_else(head)?;
    let line = std::str::from_utf8(line).map_err(|_| head())?;
    let (size, digest) = line.split_once(' ').ok_or_else(head)?;
    let size: usize = size.parse().map_err(|_| head())?;
    let from = end + 1;
    let to = from.checked_add(size).ok_or_else(head)?;
    let content = bytes
        .get(from..to)
        .ok_or("a record is cut off at the end of the file")?;
    let found = HEXLOWER.encode(&Sha1::digest(content));
    if found != digest {
        return Err(format!("a record has SHA-1 {found}: expected {digest}"));
    }
    let json = serde_json::from_slice(content).map_err(|error| format!("a record is no JSON: {error}"))?;
    Ok((to, json))
}

/// Applies a transaction.
fn apply(database: &mut Database, schema: &Schema, json: &Json) -> Result<(), String> {
    let tables = json.as_object().ok_or("a transaction: expected an object")?;
    let is_diff = tables.get("_is_diff") == Some(&Json::Bool(true));
    // Names with an underscore are no tables: `_date`, `_comment`, `_is_diff`.
    for (table, rows) in tables.iter().filter(|(table, _)| !table.starts_with('_')) {
        let rows = rows
            .as_object()
            .ok_or_else(|| format!("table {table}: expected an object"))?;
        for (uuid, columns) in rows {
            let uuid = uuid
                .parse()
                .map_err(|_| format!("table {table}: {uuid} is no UUID"))?;
            if columns.is_null() {
                database.replica.remove(table, uuid);
                continue;
            }
            let changes = Replica::row_from_json(table, columns).map_err(|error| error.to_string())?;
            let row = match database.replica.row(table, uuid) {
                Some(old) => changed(old.clone(), changes, is_diff, |column| {
                    schema.is_composite(table, column)
                }),
                None => changes,
            };
            database.replica.insert(table, uuid, row);
        }
    }
    Ok(())
}

/// Returns a row after changes of columns: new values, or differences of sets and maps.
fn changed(mut row: Row, changes: Row, is_diff: bool, is_composite: impl Fn(&str) -> bool) -> Row {
    for (column, value) in changes {
        let value = match row.get(&column) {
            Some(old) if is_diff && is_composite(&column) => old.patched(value),
            // A map without pairs is written as an empty set of pairs in the first version of a row.
            None if is_diff && is_composite(&column) => Datum::Set(Default::default()).patched(value),
            _ => value,
        };
        row.insert(column, value);
    }
    row
}
