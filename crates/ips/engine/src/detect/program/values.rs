//! The values of sets.

use std::collections::HashMap;

/// Values of a set, each with its reputation; 0 for those without one.
pub type Values = HashMap<Vec<u8>, u16>;

/// The JSON values of a set, which alerts show.
#[derive(Debug)]
pub struct JsonSet {
    /// The key of the object in alerts.
    pub key: String,
    /// True for an object in `extra`, false for one in `context`.
    pub is_extra: bool,
    /// The JSON text of each value.
    pub values: HashMap<Vec<u8>, String>,
}
