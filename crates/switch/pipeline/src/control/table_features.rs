//! The tables of the pipeline, as controllers set their features (OpenFlow 1.3.5, section 7.3.5.5).

use millrace_flow::Instructions;
use millrace_flow::classify::Slot;
use millrace_types::{TableId, Time};

use super::capabilities::{PipelineError, TableCapabilities, TableSet, TableState, is_miss};
use super::error::CapabilityError;
use super::request::FlowMod;
use super::writer::Control;
use crate::{FlowEntry, Op};

impl Control {
    /// Returns true if the table exists, and no controller has removed it.
    pub fn has_table(&self, table: TableId) -> bool {
        usize::from(table.0) < self.tables.len()
            && self.table_states.get(usize::from(table.0)) != Some(&TableState::Removed)
    }

    /// Returns the capabilities that a controller set for a table; `None` if the table has all capabilities of the
    /// switch, or does not exist.
    pub fn table_capabilities(&self, table: TableId) -> Option<&TableCapabilities> {
        match self.table_states.get(usize::from(table.0)) {
            Some(TableState::Limited(capabilities)) => Some(capabilities),
            _ => None,
        }
    }

    /// Sets the tables of the pipeline, with their capabilities; `None` stands for all capabilities of the switch.
    /// Tables that are left out are removed. Removed tables, and tables whose capabilities change, lose their
    /// entries without a flow_removed; others lose entries that go to a removed table.
    ///
    /// An entry of a table with all capabilities can go to every later table, so such a table changes if later tables
    /// are removed or exist again.
    ///
    /// # Errors
    /// [`PipelineError`]; nothing has changed.
    pub fn set_pipeline(
        &mut self,
        tables: Vec<(TableId, Option<TableCapabilities>)>,
        now: Time,
        ops: &mut Vec<Op>,
    ) -> Result<(), PipelineError> {
        let mut states = vec![TableState::Removed; self.tables.len()];
        for (table, capabilities) in tables {
            let Some(state) = states.get_mut(usize::from(table.0)) else {
                return Err(PipelineError::BadTable {
                    table,
                    tables: self.tables.len(),
                });
            };
            if *state != TableState::Removed {
                return Err(PipelineError::Twice { table });
            }
            *state = capabilities.map_or(TableState::Default, |capabilities| {
                TableState::Limited(Box::new(capabilities))
            });
        }
        if states.first() == Some(&TableState::Removed) {
            return Err(PipelineError::NoFirst);
        }
        let before = core::mem::take(&mut self.table_states);
        let before = |at: usize| before.get(at).unwrap_or(&TableState::Default);
        // The last table that is removed, or exists again.
        let last = states
            .iter()
            .enumerate()
            .rposition(|(at, after)| (*before(at) == TableState::Removed) != (*after == TableState::Removed));
        let has_changed = |(at, after): &(usize, &TableState)| {
            before(*at) != *after || **after == TableState::Default && last > Some(*at)
        };
        let changed: TableSet = states
            .iter()
            .enumerate()
            .filter(has_changed)
            .map(|(at, _)| TableId(at as u8))
            .collect();
        if states.iter().any(|table| *table != TableState::Default) {
            self.table_states = states;
        }
        let obsolete: Vec<_> = self
            .entries()
            .filter(|(_, record)| changed.contains(record.table) || self.goes_nowhere(&record.entry))
            .map(|(slot, _)| slot)
            .collect();
        for slot in obsolete {
            self.remove(slot, None, now, ops);
        }
        Ok(())
    }

    /// Returns true if the entry goes to a table that does not exist.
    fn goes_nowhere(&self, entry: &FlowEntry) -> bool {
        let to = entry.goto_table();
        !self.table_states.is_empty() && to.is_some_and(|to| !self.has_table(to))
    }

    /// Checks that the tables' features allow an entry.
    pub(super) fn check_entry(&self, entry: &FlowEntry) -> Result<(), CapabilityError> {
        if self.table_states.is_empty() {
            return Ok(());
        }
        let (match_, instructions) = (entry.match_(), entry.instructions());
        let is_miss = is_miss(match_, entry.priority());
        if let Some(capabilities) = self.table_capabilities(entry.table()).filter(|_| !is_miss) {
            capabilities.check_match(match_)?;
        }
        self.check_instructions(entry.table(), is_miss, &instructions)
    }

    /// Checks that the tables' features allow a modify of these entries.
    pub(super) fn check_modify(&self, request: &FlowMod, slots: &[Slot]) -> Result<(), CapabilityError> {
        if self.table_states.is_empty() {
            return Ok(());
        }
        let is_miss = |slot: &Slot| {
            let entry = self.entry(*slot);
            entry.is_some_and(|entry| is_miss(entry.match_(), entry.priority()))
        };
        let misses = slots.iter().filter(|slot| is_miss(slot)).count();
        if misses > 0 {
            self.check_instructions(request.table, true, &request.instructions)?;
        }
        if misses < slots.len() {
            self.check_instructions(request.table, false, &request.instructions)?;
        }
        Ok(())
    }

    fn check_instructions(
        &self,
        table: TableId,
        is_miss: bool,
        instructions: &Instructions,
    ) -> Result<(), CapabilityError> {
        if let Some(to) = instructions.goto_table.filter(|to| !self.has_table(*to)) {
            return Err(CapabilityError::Goto { to });
        }
        match self.table_capabilities(table) {
            Some(capabilities) => capabilities.check_instructions(is_miss, instructions),
            None => Ok(()),
        }
    }
}
