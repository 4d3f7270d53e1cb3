//! Reset of the counters of flow entries that stay.

use std::sync::Arc;

use millrace_flow::classify::Slot;
use millrace_types::TableId;

use super::error::FlowModError;
use super::request::FlowFilter;
use super::writer::Control;
use crate::Op;
use crate::counters::EntryCount;

impl Control {
    /// Resets the counters of the selected entries to zero. Their durations and idle times continue, and no controller
    /// is notified. Returns the number of selected entries, and appends the changes for the readers to `ops`.
    ///
    /// # Errors
    /// [`FlowModError::TableFull`] if there are fewer free slots than selected entries: workers own the former
    /// counters until the change is published, so each entry moves to another slot. Nothing has changed.
    pub fn reset_counts(&mut self, filter: &FlowFilter, ops: &mut Vec<Op>) -> Result<usize, FlowModError> {
        let is_in_table = |table| filter.table == TableId::ALL || filter.table == table;
        let slots: Vec<Slot> = self
            .entries()
            .filter(|(_, record)| is_in_table(record.table) && filter.accepts(&record.entry))
            .map(|(slot, _)| slot)
            .collect();
        if slots.len() > self.free_slots() {
            let (table, max_entries) = (filter.table, self.max_entries(filter.table));
            return Err(FlowModError::TableFull { table, max_entries });
        }
        for slot in &slots {
            let Some(entry) = self.entry(*slot).map(Arc::clone) else {
                continue;
            };
            // The time of the latest use stays, so that the entry does not expire early.
            let count = EntryCount {
                last_used: self.banks.entry(*slot).last_used,
                ..EntryCount::default()
            };
            let created = entry.created();
            self.change(*slot, entry, Some(count), created, ops);
        }
        Ok(slots.len())
    }
}
