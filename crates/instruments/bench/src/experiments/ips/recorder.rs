//! The length of a run, and its recorder.

use super::error::IpsBenchError;
use super::record::IpsRecord;
use crate::gated::Item;
use crate::gated::recorder::{self, GatedRecord};
use crate::record::Record;

/// The number of rounds and the duration of each measurement.
#[derive(Debug, Clone, Copy)]
pub struct RunLength {
    /// Rounds, of which medians are judged.
    pub rounds: usize,
    /// Time of each measurement in seconds.
    pub seconds: f64,
    /// True if the run is shorter than the gates ask for.
    pub quick: bool,
}

/// The recorder of the experiment.
pub type Recorder<'a> = recorder::Recorder<'a, RunLength, IpsRecord>;

impl From<IpsRecord> for Record {
    fn from(record: IpsRecord) -> Self {
        Record::Ips(Box::new(record))
    }
}

impl GatedRecord for IpsRecord {
    const NAME: &'static str = "ips";

    type Error = IpsBenchError;

    fn item(record: &Record) -> Option<Item<'_>> {
        match record {
            Record::Ips(record) => match record.as_ref() {
                IpsRecord::Value(value) => Some(Item::Value(value)),
                IpsRecord::Missing(missing) => Some(Item::Missing(missing)),
                IpsRecord::Rate(_) => None,
            },
            _ => None,
        }
    }
}
