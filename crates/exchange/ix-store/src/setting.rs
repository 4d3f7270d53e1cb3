//! Settings of the engine, by name.

use rusqlite::{Connection, params};
use serde_json::Value;

use crate::error::StoreError;

/// Writes a setting, or removes it.
pub(crate) fn write_setting(sql: &Connection, name: &str, value: Option<&Value>) -> Result<(), StoreError> {
    match value {
        Some(value) => sql
            .prepare_cached("INSERT OR REPLACE INTO setting VALUES (?1, ?2)")?
            .execute(params![name, value.to_string()])?,
        None => sql.execute("DELETE FROM setting WHERE name = ?1", params![name])?,
    };
    Ok(())
}
