//! Operations of a transaction (RFC 7047, section 5.2).

use serde_json::{Map, Value as Json, json};

use crate::replica::Row;
use crate::uuid::Uuid;
use crate::value::Datum;

/// A row that an operation names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowRef {
    /// A row of the database.
    Uuid(Uuid),
    /// Every row of the table.
    All,
}

/// An operation of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Sets columns of the rows. A row that is gone makes no error.
    Update {
        table: &'static str,
        rows: RowRef,
        columns: Row,
    },
    /// Aborts the transaction unless the session owns this lock.
    AssertLock(&'static str),
}

impl Operation {
    /// Returns the operation in the notation of RFC 7047.
    pub fn to_json(&self) -> Json {
        match self {
            Operation::Update { table, rows, columns } => {
                let condition = match rows {
                    RowRef::All => json!([]),
                    RowRef::Uuid(uuid) => json!([["_uuid", "==", Datum::from(*uuid).to_json()]]),
                };
                let columns: Map<String, Json> = columns
                    .iter()
                    .map(|(name, value)| (name.clone(), value.to_json()))
                    .collect();
                json!({"op": "update", "table": table, "where": condition, "row": columns})
            }
            Operation::AssertLock(lock) => json!({"op": "assert", "lock": lock}),
        }
    }
}
