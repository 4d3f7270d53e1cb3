//! Statistics of flow entries and tables, in steps.

use millrace_flow::classify::Slot;
use millrace_types::{TableId, Time};

use super::record::Record;
use super::request::{Aggregate, Cursor, FlowFilter, FlowStat, TableStat};
use super::writer::Control;

impl Control {
    /// Calls `visit` for the entries that `filter` accepts, from `cursor` on. Visits at most `budget` entries. Returns
    /// the cursor for the next call, or `None` at the end.
    pub fn flow_stats(
        &self,
        filter: &FlowFilter,
        cursor: Cursor,
        budget: usize,
        now: Time,
        mut visit: impl FnMut(FlowStat<'_>),
    ) -> Option<Cursor> {
        self.scan(filter, cursor, budget, |slot, record| {
            visit(FlowStat {
                slot,
                entry: &record.entry,
                duration: now.since(record.entry.created()),
                count: self.banks.entry(slot),
            });
        })
    }

    /// Adds the entries that `filter` accepts to `sum`, from `cursor` on, in steps as [`Control::flow_stats`].
    pub fn aggregate(
        &self,
        filter: &FlowFilter,
        cursor: Cursor,
        budget: usize,
        sum: &mut Aggregate,
    ) -> Option<Cursor> {
        self.scan(filter, cursor, budget, |slot, _| {
            let count = self.banks.entry(slot);
            sum.packets = sum.packets.wrapping_add(count.packets);
            sum.bytes = sum.bytes.wrapping_add(count.bytes);
            sum.flows += 1;
        })
    }

    fn scan(
        &self,
        filter: &FlowFilter,
        cursor: Cursor,
        budget: usize,
        mut visit: impl FnMut(Slot, &Record),
    ) -> Option<Cursor> {
        let end = cursor.0.saturating_add(budget.max(1)).min(self.records.len());
        for at in cursor.0..end {
            let Some(record) = &self.records[at] else {
                continue;
            };
            let is_in_table = filter.table == TableId::ALL || filter.table == record.table;
            if is_in_table && filter.accepts(&record.entry) {
                visit(Slot::new(at as u32), record);
            }
        }
        (end < self.records.len()).then_some(Cursor(end))
    }

    /// Returns the statistics of each existing table.
    pub fn table_stats(&self) -> impl Iterator<Item = TableStat> + '_ {
        self.tables.iter().enumerate().filter_map(|(number, index)| {
            let table = TableId(number as u8);
            let count = self.banks.table(table);
            self.has_table(table).then(|| TableStat {
                table,
                active: index.len() as u32,
                max_entries: self.max_entries(table),
                lookups: count.lookups,
                matches: count.matches,
            })
        })
    }
}
