//! The entries of OpenFlow switches, as the engine handles them.

use millrace_flow::Instructions;
use millrace_ix_engine::Entries;
use millrace_ix_plan::layout::{OWNER, TABLES_END};
use millrace_ix_plan::{EntryId, Flow, FlowId, Matching};
use millrace_types::{Cookie, Priority, TableId};

pub use millrace_ix_plan::Entry;
/// The identity of an entry.
pub type FabricKey = EntryId;

/// Flow entries, groups and meters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fabric {}

/// The kind of the marker's cookie; the planner uses lower ones.
const MARKER_KIND: u64 = 0xf;
/// The bits of the marker's cookie that hold the revision.
const REVISION_MASK: u64 = (1 << 52) - 1;

fn marker_key() -> FabricKey {
    EntryId::Flow(FlowId {
        table: TableId(TABLES_END),
        priority: Priority(0),
        matching: Matching::any(),
    })
}

impl Entries for Fabric {
    type Key = FabricKey;
    type Value = Entry;

    /// Returns the marker: an entry with the revision in its cookie. No instruction leads to its table, table
    /// 7.
    fn marker(revision: u64) -> (FabricKey, Entry) {
        let cookie = u64::from(OWNER) << 56 | MARKER_KIND << 52 | revision & REVISION_MASK;
        let flow = Flow {
            cookie: Cookie(cookie),
            instructions: Instructions::default(),
            idle_timeout: 0,
            hard_timeout: 0,
        };
        (marker_key(), Entry::Flow(flow))
    }

    fn revision(key: &FabricKey, value: &Entry) -> Option<u64> {
        match value {
            Entry::Flow(Flow {
                cookie: Cookie(word), ..
            }) if *key == marker_key() => {
                let is_marker = word >> 52 == u64::from(OWNER) << 4 | MARKER_KIND;
                is_marker.then_some(word & REVISION_MASK)
            }
            _ => None,
        }
    }

    fn is_ours(_: &FabricKey, value: &Entry) -> bool {
        matches!(value, Entry::Flow(Flow { cookie: Cookie(word), .. }) if word >> 56 == u64::from(OWNER))
    }
}
