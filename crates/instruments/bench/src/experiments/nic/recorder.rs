//! The length of a run, and its recorder.

use super::error::NicBenchError;
use super::record::NicRecord;
use crate::gated::Item;
use crate::gated::recorder::{self, GatedRecord};
use crate::record::Record;

/// The number of rounds, and the sizes of one.
#[derive(Debug, Clone, Copy)]
pub struct RunLength {
    /// Rounds, of which medians are judged.
    pub rounds: usize,
    /// The number of windows of each variant.
    pub windows: u32,
    /// The number of flows.
    pub flows: u32,
    /// The seconds for each case of `forward` and `hostile` in the mode `auto`; 0 for none.
    pub governed_seconds: u32,
}

/// The recorder of the experiment.
pub type Recorder<'a> = recorder::Recorder<'a, RunLength, NicRecord>;

impl From<NicRecord> for Record {
    fn from(record: NicRecord) -> Self {
        Record::Nic(Box::new(record))
    }
}

impl GatedRecord for NicRecord {
    const NAME: &'static str = "nic";

    type Error = NicBenchError;

    fn item(record: &Record) -> Option<Item<'_>> {
        match record {
            Record::Nic(record) => Some(match record.as_ref() {
                NicRecord::Value(value) => Item::Value(value),
                NicRecord::Missing(missing) => Item::Missing(missing),
            }),
            _ => None,
        }
    }
}
