//! The monitored rows of a database, kept by its updates.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};
use thiserror::Error;

use crate::schema::Schema;
use crate::uuid::Uuid;
use crate::value::{Datum, ValueError};

/// The columns of a row. A column that the server left out has its default.
pub type Row = BTreeMap<String, Datum>;

/// The rows of a database.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Replica {
    tables: BTreeMap<String, BTreeMap<Uuid, Row>>,
    /// The memory of all rows, in bytes, about.
    size: usize,
}

/// The reason why an update cannot be applied. The replica is not usable then: the caller connects again.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReplicaError {
    /// The update has another form.
    #[error("an update of table {table}: expected {expected}")]
    Form {
        /// The table; empty before one is known.
        table: String,
        /// The expected form.
        expected: &'static str,
    },
    /// A value of a column has another form.
    #[error("column {column} of table {table}: {error}")]
    Value {
        table: String,
        column: String,
        error: ValueError,
    },
    /// A row that is not known changed.
    #[error(
        "row {uuid} of table {table} changed, which the replica does not have: expected an insertion first"
    )]
    Unknown { table: String, uuid: Uuid },
    /// The rows are larger than the limit.
    #[error("the monitored rows need more than {max} bytes: expected fewer or shorter rows")]
    TooLarge {
        /// The limit in bytes.
        max: usize,
    },
}

fn form(table: &str, expected: &'static str) -> ReplicaError {
    ReplicaError::Form {
        table: table.to_owned(),
        expected,
    }
}

fn object<'a>(table: &str, json: &'a Json) -> Result<&'a Map<String, Json>, ReplicaError> {
    json.as_object().ok_or_else(|| form(table, "an object"))
}

fn size_of_row(row: &Row) -> usize {
    // A row has an entry of a tree and its UUID, too.
    64 + row
        .iter()
        .map(|(name, value)| name.len() + 32 + value.size())
        .sum::<usize>()
}

impl Replica {
    /// Returns the rows of a table in the order of their UUIDs.
    pub fn rows(&self, table: &str) -> impl Iterator<Item = (Uuid, &Row)> {
        self.tables
            .get(table)
            .into_iter()
            .flatten()
            .map(|(uuid, row)| (*uuid, row))
    }

    /// Returns a row.
    pub fn row(&self, table: &str, uuid: Uuid) -> Option<&Row> {
        self.tables.get(table)?.get(&uuid)
    }

    /// Returns the number of rows of all tables.
    pub fn len(&self) -> usize {
        self.tables.values().map(BTreeMap::len).sum()
    }

    /// Returns true if there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory of all rows, in bytes, about.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Adds or replaces a row.
    pub fn insert(&mut self, table: &str, uuid: Uuid, row: Row) {
        self.size += size_of_row(&row);
        let rows = self.tables.entry(table.to_owned()).or_default();
        if let Some(old) = rows.insert(uuid, row) {
            self.size -= size_of_row(&old);
        }
    }

    /// Removes a row, if there is one.
    pub fn remove(&mut self, table: &str, uuid: Uuid) {
        if let Some(old) = self.tables.get_mut(table).and_then(|rows| rows.remove(&uuid)) {
            self.size -= size_of_row(&old);
        }
    }

    /// Returns the row in the notation of RFC 7047: an object of columns.
    ///
    /// # Errors
    /// [`ReplicaError`].
    pub fn row_from_json(table: &str, json: &Json) -> Result<Row, ReplicaError> {
        let columns = object(table, json)?.iter();
        columns
            .map(|(column, json)| match Datum::from_json(json) {
                Ok(value) => Ok((column.clone(), value)),
                Err(error) => Err(ReplicaError::Value {
                    table: table.to_owned(),
                    column: column.clone(),
                    error,
                }),
            })
            .collect()
    }

    /// Applies the updates of `monitor` and `update` (RFC 7047, section 4.1.6): whole rows.
    ///
    /// # Errors
    /// [`ReplicaError`].
    pub fn update(&mut self, updates: &Json, size_max: usize) -> Result<(), ReplicaError> {
        for (table, rows) in object("", updates)? {
            for (uuid, change) in object(table, rows)? {
                let uuid = uuid.parse().map_err(|_| form(table, "the UUIDs of rows"))?;
                match change.get("new") {
                    None | Some(Json::Null) => self.remove(table, uuid),
                    Some(new) => self.insert(table, uuid, Replica::row_from_json(table, new)?),
                }
                self.check_size(size_max)?;
            }
        }
        Ok(())
    }

    /// Applies the updates of `monitor_cond`, `monitor_cond_since`, `update2` and `update3` (ovsdb-server(7), section
    /// 4.1.14): new rows without columns at their defaults, and differences of columns.
    ///
    /// # Errors
    /// [`ReplicaError`].
    pub fn update2(&mut self, updates: &Json, schema: &Schema, size_max: usize) -> Result<(), ReplicaError> {
        for (table, rows) in object("", updates)? {
            for (uuid, change) in object(table, rows)? {
                let uuid = uuid.parse().map_err(|_| form(table, "the UUIDs of rows"))?;
                let mut kinds = object(table, change)?.iter();
                let (Some((kind, columns)), None) = (kinds.next(), kinds.next()) else {
                    return Err(form(
                        table,
                        "one of initial, insert, modify and delete for each row",
                    ));
                };
                match kind.as_str() {
                    "initial" | "insert" => self.insert(table, uuid, Replica::row_from_json(table, columns)?),
                    "delete" => self.remove(table, uuid),
                    "modify" => self.modify(table, uuid, columns, schema)?,
                    _ => return Err(form(table, "initial, insert, modify or delete")),
                }
                self.check_size(size_max)?;
            }
        }
        Ok(())
    }

    fn modify(
        &mut self,
        table: &str,
        uuid: Uuid,
        columns: &Json,
        schema: &Schema,
    ) -> Result<(), ReplicaError> {
        let unknown = || ReplicaError::Unknown {
            table: table.to_owned(),
            uuid,
        };
        let changes = Replica::row_from_json(table, columns)?;
        let mut row = self.row(table, uuid).ok_or_else(unknown)?.clone();
        for (column, value) in changes {
            let value = match row.get(&column) {
                Some(old) if schema.is_composite(table, &column) => old.patched(value),
                _ => value,
            };
            row.insert(column, value);
        }
        self.insert(table, uuid, row);
        Ok(())
    }

    fn check_size(&self, max: usize) -> Result<(), ReplicaError> {
        match self.size > max {
            true => Err(ReplicaError::TooLarge { max }),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail")]

    use super::*;
    use serde_json::json;

    const ROW: &str = "00000000-0000-0000-0000-000000000001";

    fn schema() -> Schema {
        let integers = |max| json!({"type": {"key": "integer", "min": 0, "max": max}});
        let columns = json!({"tag": integers(json!(1)), "trunks": integers(json!(4096)), "ids": {
            "type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}});
        Schema::from_json(&json!({"tables": {"Port": {"columns": columns}}})).unwrap()
    }

    fn after(changes: &[Json]) -> Result<Json, ReplicaError> {
        let mut replica = Replica::default();
        for change in changes {
            replica.update2(&json!({"Port": {ROW: change}}), &schema(), 10_000)?;
        }
        let row = replica.row("Port", ROW.parse().unwrap());
        Ok(row.map_or(Json::Null, |row| {
            row.iter()
                .map(|(name, value)| (name.clone(), value.to_json()))
                .collect()
        }))
    }

    #[test]
    fn a_modification_replaces_single_values_and_patches_sets_and_maps() {
        let first = json!({"initial": {"tag": 5, "trunks": ["set", [1, 2]], "ids": ["map", [["a", "b"]]]}});
        let then =
            json!({"modify": {"tag": ["set", []], "trunks": ["set", [2, 3]], "ids": ["map", [["a", "c"]]]}});
        let expected = json!({"tag": ["set", []], "trunks": ["set", [1, 3]], "ids": ["map", [["a", "c"]]]});
        assert_eq!(after(&[first.clone(), then]).unwrap(), expected);
        let fresh = json!({"modify": {"trunks": ["set", [9]]}});
        assert_eq!(
            after(&[json!({"insert": {"tag": 1}}), fresh]).unwrap(),
            json!({"tag": 1, "trunks": 9})
        );
        assert_eq!(after(&[first, json!({"delete": null})]).unwrap(), Json::Null);
    }

    #[test]
    fn an_update_that_does_not_fit_is_an_error_and_not_a_guess() {
        for change in [
            json!({"modify": {"tag": 1}}),
            json!({"insert": {"tag": {}}}),
            json!({"insert": []}),
            json!({"grow": {}}),
            json!({}),
            json!({"insert": {}, "delete": null}),
            json!(4),
        ] {
            assert!(after(std::slice::from_ref(&change)).is_err(), "{change}");
        }
    }

    #[test]
    fn rows_that_need_too_much_memory_are_refused() {
        let many: Vec<_> = (0..2000).collect();
        let error = after(&[json!({"insert": {"trunks": ["set", many]}})]).unwrap_err();
        assert_eq!(error, ReplicaError::TooLarge { max: 10_000 });
        let (mut replica, row) = (Replica::default(), ROW.parse().unwrap());
        replica.insert("Port", row, Row::from([("tag".to_owned(), Datum::from(5i64))]));
        replica.insert("Port", row, Row::new());
        replica.remove("Port", row);
        assert_eq!(
            (replica.size(), replica.len()),
            (0, 0),
            "nothing is counted twice"
        );
    }

    #[test]
    fn whole_rows_of_the_first_method_replace_each_other() {
        let mut replica = Replica::default();
        replica
            .update(&json!({"Port": {ROW: {"new": {"tag": 5}}}}), 1000)
            .unwrap();
        replica
            .update(
                &json!({"Port": {ROW: {"old": {"tag": 5}, "new": {"tag": 6}}}}),
                1000,
            )
            .unwrap();
        let row = replica.row("Port", ROW.parse().unwrap()).unwrap();
        assert_eq!(row["tag"], Datum::from(6i64));
        replica
            .update(&json!({"Port": {ROW: {"old": {"tag": 6}}}}), 1000)
            .unwrap();
        assert!(replica.is_empty());
    }
}
