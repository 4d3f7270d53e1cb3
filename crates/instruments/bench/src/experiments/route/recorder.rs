//! The length of a run, and its recorder.

use super::error::RouteBenchError;
use super::record::RouteRecord;
use crate::gated::Item;
use crate::gated::recorder::{self, GatedRecord};
use crate::record::Record;

/// The number of rounds, and the sizes of the full table.
#[derive(Debug, Clone, Copy)]
pub struct RunLength {
    /// Rounds, of which medians are judged.
    pub rounds: usize,
    /// The number of IPv4 routes.
    pub routes_v4: usize,
    /// The number of IPv6 routes.
    pub routes_v6: usize,
    /// True if DPDK's own structures are measured, too.
    pub has_peers: bool,
}

/// The recorder of the experiment.
pub type Recorder<'a> = recorder::Recorder<'a, RunLength, RouteRecord>;

impl From<RouteRecord> for Record {
    fn from(record: RouteRecord) -> Self {
        Record::Route(Box::new(record))
    }
}

impl GatedRecord for RouteRecord {
    const NAME: &'static str = "route";

    type Error = RouteBenchError;

    fn item(record: &Record) -> Option<Item<'_>> {
        match record {
            Record::Route(record) => Some(match record.as_ref() {
                RouteRecord::Value(value) => Item::Value(value),
                RouteRecord::Missing(missing) => Item::Missing(missing),
            }),
            _ => None,
        }
    }
}
