//! Packets that a device may drop in place of the tables (ADR 78): those whose way through the tables is entries without actions.

use std::sync::Arc;

use millrace_flow::FlowKey;
use millrace_flow::classify::{Classifier as _, Slot};
use millrace_types::{TableId, Time};

use crate::forwarding::Forwarding;
use crate::{Counters, DropReason, FlowEntry};

/// The entries that packets with one key meet until they are dropped, none of which does anything to them.
#[derive(Clone, Debug)]
pub struct DropPath {
    steps: Vec<(Slot, Arc<FlowEntry>)>,
}

impl PartialEq for DropPath {
    /// Two paths are equal if they have the same entries, not entries with the same content: a replaced entry is another one.
    fn eq(&self, other: &DropPath) -> bool {
        let steps = self.steps.iter().zip(&other.steps);
        self.steps.len() == other.steps.len()
            && steps
                .into_iter()
                .all(|((one, entry), (two, other))| one == two && Arc::ptr_eq(entry, other))
    }
}

impl DropPath {
    /// Counts packets of the path, as a worker does that processes them. For the thread that owns the counters only.
    pub fn count(&self, counters: &Counters, packets: u64, bytes: u64, now: Time) {
        for (slot, entry) in &self.steps {
            counters.count_entry(*slot, packets, bytes, now);
            let matches = if entry.is_table_miss() { 0 } else { packets };
            counters.count_table(entry.table(), packets, matches);
        }
        counters.drops.add(DropReason::NoOutput, packets);
    }
}

impl Forwarding {
    /// Returns the path of packets with this key, if the tables drop them and nothing else happens to them: no action, no meter,
    /// no metadata, no miss. The key is that of an entry of a device: it has all bits of [`Self::match_bits`].
    pub fn drop_path(&self, key: &FlowKey) -> Option<DropPath> {
        let mut steps = Vec::new();
        let mut table = TableId(0);
        loop {
            let slot = self.table(table)?.lookup(key)?;
            let entry = self.entry(slot)?;
            let is_idle =
                entry.actions().is_empty() && entry.meter().is_none() && entry.write_metadata().is_none();
            if !is_idle {
                return None;
            }
            steps.push((slot, Arc::clone(entry)));
            match entry.goto_table() {
                // Tables are met in ascending order, so this ends.
                Some(next) if next > table => table = next,
                Some(_) => return None,
                None => return Some(DropPath { steps }),
            }
        }
    }
}
