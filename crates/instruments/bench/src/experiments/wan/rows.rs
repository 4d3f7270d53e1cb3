//! The rows of the experiment.

use super::record::WanRecord;
use crate::gated::{self, Item, Row};
use crate::record::Record;

/// Returns the rows in the order of measurement.
pub fn rows(records: &[Record]) -> Vec<Row> {
    gated::rows(records.iter().filter_map(|record| match record {
        Record::Wan(record) => match record.as_ref() {
            WanRecord::Value(value) => Some(Item::Value(value)),
            WanRecord::Missing(missing) => Some(Item::Missing(missing)),
            _ => None,
        },
        _ => None,
    }))
}
