//! The records of the experiment `nic`.

use serde::{Deserialize, Serialize};

use crate::gated::{Missing, Value};

/// A record of the experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum NicRecord {
    /// A value of a row.
    Value(Value),
    /// A row that could not be measured.
    Missing(Missing),
}
