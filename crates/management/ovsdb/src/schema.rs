//! The part of a database schema (RFC 7047, section 3.2) that a replica needs: the columns of each table, and those that
//! hold more than one value.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use thiserror::Error;

/// The tables of a database.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schema {
    /// The version of the schema: `8.3.1`.
    pub version: String,
    tables: BTreeMap<String, BTreeMap<String, Column>>,
}

/// The form of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Column {
    /// True if the column can hold more than one value or pair.
    is_composite: bool,
}

/// The reason why JSON is no schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the schema of the database has no {0}: expected the form of RFC 7047, section 3.2")]
pub struct SchemaError(&'static str);

impl Schema {
    /// Reads a schema.
    ///
    /// # Errors
    /// [`SchemaError`].
    pub fn from_json(json: &Json) -> Result<Schema, SchemaError> {
        let tables = json
            .get("tables")
            .and_then(Json::as_object)
            .ok_or(SchemaError("tables"))?;
        let read = |table: &Json| {
            let columns = table
                .get("columns")
                .and_then(Json::as_object)
                .ok_or(SchemaError("columns"))?;
            Ok(columns
                .iter()
                .map(|(name, column)| (name.clone(), read_column(column)))
                .collect())
        };
        Ok(Schema {
            version: json
                .get("version")
                .and_then(Json::as_str)
                .unwrap_or_default()
                .to_owned(),
            tables: tables
                .iter()
                .map(|(name, table)| Ok((name.clone(), read(table)?)))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Returns true if the table has the column.
    pub fn has(&self, table: &str, column: &str) -> bool {
        self.column(table, column).is_some()
    }

    /// Returns true if the database has the table.
    pub fn has_table(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    /// Returns true if the column can hold more than one value, so that `update2` sends differences of it.
    pub fn is_composite(&self, table: &str, column: &str) -> bool {
        self.column(table, column)
            .is_some_and(|column| column.is_composite)
    }

    fn column(&self, table: &str, column: &str) -> Option<&Column> {
        self.tables.get(table)?.get(column)
    }
}

fn read_column(column: &Json) -> Column {
    // The type is `"string"`, or an object whose `max` is 1 unless given.
    let is_composite = match column.get("type").and_then(|kind| kind.get("max")) {
        None => false,
        Some(Json::Number(max)) => max.as_i64() != Some(1),
        Some(_) => true,
    };
    Column { is_composite }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail")]

    use super::*;

    #[test]
    fn columns_of_several_values_are_known_from_their_maximum() {
        let text = r#"{"name":"d","version":"1.2.3","tables":{"T":{"columns":{
            "one":{"type":"string"}, "optional":{"type":{"key":"integer","min":0,"max":1}},
            "set":{"type":{"key":"integer","min":0,"max":"unlimited"}}, "few":{"type":{"key":"integer","min":0,"max":4096}}}}}}"#;
        let schema = Schema::from_json(&serde_json::from_str(text).unwrap()).unwrap();
        let composite = |column| schema.is_composite("T", column);
        assert_eq!(
            ["one", "optional", "set", "few", "none"].map(composite),
            [false, false, true, true, false]
        );
        assert!(schema.has("T", "one") && !schema.has("T", "none") && !schema.has("U", "one"));
        assert_eq!(schema.version, "1.2.3");
        let error = Schema::from_json(&Json::Null).unwrap_err().to_string();
        assert!(error.contains("expected"), "{error}");
    }
}
