//! The length of a run, and its recorder.

use super::error::ExchangeBenchError;
use super::record::ExchangeRecord;
use crate::gated::Item;
use crate::gated::recorder::{self, GatedRecord};
use crate::record::Record;

/// The size of a run.
#[derive(Debug, Clone, Copy)]
pub struct RunLength {
    /// The duration of the traffic in seconds.
    pub seconds: u32,
    /// The mean rate of all tenants in Mbit/s.
    pub rate_mbps: u32,
    /// Changes a second.
    pub changes: u32,
    /// The number of tenants.
    pub tenants: u32,
}

impl RunLength {
    /// The duration of gate A38 in seconds.
    pub const FULL_S: u32 = 3600;
    /// The duration in seconds from which on the memory of processes is compared.
    pub(super) const MEMORY_FROM_S: u32 = 600;
}

/// The recorder of the experiment.
pub type Recorder<'a> = recorder::Recorder<'a, RunLength, ExchangeRecord>;

impl From<ExchangeRecord> for Record {
    fn from(record: ExchangeRecord) -> Self {
        Record::Exchange(Box::new(record))
    }
}

impl GatedRecord for ExchangeRecord {
    const NAME: &'static str = "exchange";

    type Error = ExchangeBenchError;

    fn item(record: &Record) -> Option<Item<'_>> {
        match record {
            Record::Exchange(record) => match record.as_ref() {
                ExchangeRecord::Value(value) => Some(Item::Value(value)),
                ExchangeRecord::Missing(missing) => Some(Item::Missing(missing)),
                ExchangeRecord::Sample(_) => None,
            },
            _ => None,
        }
    }
}
