//! flow_mod: add, modify and delete (OpenFlow 1.3.5, sections 6.4 and 7.3.4.1).

use std::sync::Arc;

use millrace_flow::Match;
use millrace_flow::classify::Slot;
use millrace_types::{Priority, TableId, Time};

use super::changes::ChangeKind;
use super::error::FlowModError;
use super::journal::Undo;
use super::request::{FlowFilter, FlowMod, FlowModCommand, ModOutcome, RemovedReason};
use super::strict::{HalfHash, StrictIndex};
use super::validate;
use super::writer::Control;
use crate::counters::EntryCount;
use crate::{FlowEntry, FlowEntryParts, FlowFlags, Op};

/// A flow_mod after the validation that needs no other entry.
#[derive(Debug)]
pub struct Prepared(Kind);

impl Prepared {
    /// Returns the flow_mod. Fields that an add does not use are as in [`FlowMod::new`].
    pub fn request(&self) -> FlowMod {
        let entry = match &self.0 {
            Kind::Add(entry) => entry.parts(),
            Kind::Other(request) => return FlowMod::clone(request),
        };
        FlowMod {
            cookie: entry.cookie,
            idle_timeout: entry.idle_timeout,
            hard_timeout: entry.hard_timeout,
            flags: entry.flags,
            instructions: entry.instructions,
            ..FlowMod::new(FlowModCommand::Add, entry.table, entry.priority, entry.match_)
        }
    }
}

#[derive(Debug)]
enum Kind {
    Add(Arc<FlowEntry>),
    Other(Box<FlowMod>),
}

impl Control {
    /// Executes a flow_mod and appends its changes for the readers to `ops`.
    ///
    /// # Errors
    /// [`FlowModError`]; nothing has changed.
    pub fn flow_mod(
        &mut self,
        request: FlowMod,
        now: Time,
        ops: &mut Vec<Op>,
    ) -> Result<ModOutcome, FlowModError> {
        let mut prepared = self.prepare(request)?;
        self.apply(&mut prepared, now, ops)
    }

    /// Performs the validation of a flow_mod that needs no other entry, and builds the entry of an add, so that
    /// [`Control::apply`] has little to do.
    ///
    /// # Errors
    /// [`FlowModError`].
    pub fn prepare(&self, request: FlowMod) -> Result<Prepared, FlowModError> {
        if !FlowFlags::ALL.contains(request.flags) {
            return Err(FlowModError::BadFlags {
                flags: request.flags.0,
            });
        }
        let deletes = !request.command.needs_table();
        let exists = self.has_table(request.table);
        let is_all = deletes && request.table == TableId::ALL;
        if !exists && !is_all {
            return Err(FlowModError::BadTable {
                table: request.table,
                tables: self.tables.len(),
            });
        }
        self.check_extensions(&request.match_)?;
        if !deletes {
            let (table, tables) = (request.table, self.tables.len());
            validate::instructions(&request.match_, &request.instructions, table, tables)?;
        }
        Ok(Prepared(match request.command {
            FlowModCommand::Add => Kind::Add(Arc::new(FlowEntry::new(FlowEntryParts {
                table: request.table,
                priority: request.priority,
                match_: request.match_,
                instructions: request.instructions,
                cookie: request.cookie,
                idle_timeout: request.idle_timeout,
                hard_timeout: request.hard_timeout,
                flags: request.flags,
                created: Time::ZERO,
            }))),
            _ => Kind::Other(Box::new(request)),
        }))
    }

    /// Reserves memory for flow_mods that are about to be applied, so that lists grow once.
    pub fn reserve<'a>(&mut self, prepared: impl Iterator<Item = &'a Prepared>, ops: &mut Vec<Op>) {
        let adds = prepared
            .filter(|prepared| matches!(prepared.0, Kind::Add(_)))
            .count();
        self.records.reserve(adds.saturating_sub(self.free.len()));
        ops.reserve(adds);
    }

    /// Executes a prepared flow_mod, once, and appends its changes for the readers to `ops`.
    ///
    /// # Errors
    /// [`FlowModError`]; nothing has changed.
    pub fn apply(
        &mut self,
        prepared: &mut Prepared,
        now: Time,
        ops: &mut Vec<Op>,
    ) -> Result<ModOutcome, FlowModError> {
        let table = match &prepared.0 {
            Kind::Add(entry) => Some(entry.table()),
            Kind::Other(request) => request.command.needs_table().then_some(request.table),
        };
        // A controller may have removed the table since the flow_mod was prepared.
        if let Some(table) = table.filter(|table| !self.has_table(*table)) {
            let tables = self.tables.len();
            return Err(FlowModError::BadTable { table, tables });
        }
        match &mut prepared.0 {
            Kind::Add(entry) => {
                self.check_entry(entry)?;
                if entry.refers() {
                    self.check_targets(entry.actions())?;
                    self.check_meter_exists(entry.meter())?;
                }
                Arc::make_mut(entry).begin(now);
                self.add(Arc::clone(entry), now, ops)
            }
            Kind::Other(request) => match request.command {
                FlowModCommand::Modify | FlowModCommand::ModifyStrict => self.modify(request, ops),
                _ => Ok(self.delete(request, now, ops)),
            },
        }
    }

    /// Returns the entry with this match and priority.
    pub fn find_entry(&self, table: TableId, match_: &Match, priority: Priority) -> Option<&Arc<FlowEntry>> {
        self.entry(self.find_strict(table, match_, priority)?)
    }

    pub(super) fn find_strict(&self, table: TableId, match_: &Match, priority: Priority) -> Option<Slot> {
        let index = self.tables.get(usize::from(table.0))?;
        index.find(&self.records, index.hash(match_, priority), match_, priority)
    }

    fn add(
        &mut self,
        entry: Arc<FlowEntry>,
        now: Time,
        ops: &mut Vec<Op>,
    ) -> Result<ModOutcome, FlowModError> {
        let table = entry.table();
        let index = &self.tables[usize::from(table.0)];
        let hash = index.hash(entry.match_(), entry.priority());
        let held = index.find(&self.records, hash, entry.match_(), entry.priority());
        if entry.flags().contains(FlowFlags::CHECK_OVERLAP) && self.overlaps(&entry, held) {
            return Err(FlowModError::Overlap { table });
        }
        let resets = entry.flags().contains(FlowFlags::RESET_COUNTS);
        let max_entries = self.max_entries(table);
        let full = FlowModError::TableFull { table, max_entries };
        if (held.is_none() || resets) && self.is_out_of_slots() {
            // An entry whose counters begin again moves to another slot. An eviction would not help: the slot of the evicted
            // entry is free only after publication.
            return Err(full);
        }
        let mut evicted = 0;
        if held.is_none() {
            let active = self.tables[usize::from(table.0)].len();
            if active >= max_entries as usize {
                if !self.make_room(table, now, ops) {
                    return Err(full);
                }
                evicted = 1;
            }
        }
        self.note_change(ChangeKind::Added, held.is_none(), &entry);
        match held {
            None => {
                self.insert(hash, entry, EntryCount::default(), ops);
                Ok(ModOutcome {
                    added: 1,
                    removed: evicted,
                    ..ModOutcome::default()
                })
            }
            Some(slot) => {
                // Duration and time-outs begin again, and the former entry causes no flow_removed (OpenFlow 1.3.5,
                // section 6.4).
                self.change(slot, entry, resets.then(EntryCount::default), now, ops);
                Ok(ModOutcome {
                    modified: 1,
                    ..ModOutcome::default()
                })
            }
        }
    }

    /// Adds an entry of an earlier run of the switch, which was added at `created`, with the counters and the time of its
    /// latest packet. Its flags stay, but overlaps and `max_entries` of its table are not checked, because the earlier
    /// run accepted the entry.
    ///
    /// # Errors
    /// [`FlowModError`], [`FlowModError::Overlap`] if the table has an entry with this match and priority; nothing has
    /// changed.
    pub fn restore_entry(
        &mut self,
        request: FlowMod,
        created: Time,
        count: EntryCount,
        ops: &mut Vec<Op>,
    ) -> Result<(), FlowModError> {
        let add = FlowMod {
            command: FlowModCommand::Add,
            ..request
        };
        let Prepared(Kind::Add(mut entry)) = self.prepare(add)? else {
            return Ok(());
        };
        let table = entry.table();
        self.check_entry(&entry)?;
        self.check_targets(entry.actions())?;
        self.check_meter_exists(entry.meter())?;
        let max_entries = self.config.max_entries;
        let index = &self.tables[usize::from(table.0)];
        if self.is_out_of_slots() || index.len() >= max_entries as usize {
            return Err(FlowModError::TableFull { table, max_entries });
        }
        let hash = index.hash(entry.match_(), entry.priority());
        if index
            .find(&self.records, hash, entry.match_(), entry.priority())
            .is_some()
        {
            return Err(FlowModError::Overlap { table });
        }
        Arc::make_mut(&mut entry).begin(created);
        self.insert(hash, entry, count, ops);
        Ok(())
    }

    /// Inserts an entry whose match and priority no other entry of its table has.
    fn insert(&mut self, hash: HalfHash, entry: Arc<FlowEntry>, count: EntryCount, ops: &mut Vec<Op>) {
        let slot = self.allocate();
        self.banks.set_entry(slot, count);
        self.store(slot, Arc::clone(&entry));
        self.tables[usize::from(entry.table().0)].insert_hashed(hash, &entry, slot);
        self.note_added(slot);
        ops.push(Op::Insert { slot, entry });
    }

    fn is_out_of_slots(&self) -> bool {
        self.free.is_empty() && self.records.len() >= crate::Counters::ENTRIES_MAX
    }

    /// Returns true if another entry of equal priority could match the same packet. The entry with the same match at
    /// `held`, which the add replaces, does not count.
    fn overlaps(&mut self, entry: &FlowEntry, held: Option<Slot>) -> bool {
        let table = entry.table();
        let records = self.records.iter().flatten();
        let of_table = records
            .filter(|record| record.table == table)
            .map(|record| &*record.entry);
        let index = &mut self.tables[usize::from(table.0)];
        if index.has_only_shape(entry.match_(), entry.priority(), of_table) {
            return false;
        }
        let rule = entry.rule();
        self.entries().any(|(slot, record)| {
            Some(slot) != held
                && record.table == entry.table()
                && record.entry.priority() == entry.priority()
                && record.entry.rule().overlaps(&rule)
        })
    }

    /// Replaces the entry at `slot` by `entry`, which has the same match, priority and table. With `count`, the
    /// counters become `count`, and the entry moves to another slot, because workers own the former counters.
    pub(super) fn change(
        &mut self,
        slot: Slot,
        entry: Arc<FlowEntry>,
        count: Option<EntryCount>,
        now: Time,
        ops: &mut Vec<Op>,
    ) {
        let Some(count) = count else {
            if let Some(held) = self.entry(slot).filter(|_| self.journal.is_some()) {
                let held = Arc::clone(held);
                self.record_undo(|| Undo::Replaced(slot, held));
            }
            self.store(slot, Arc::clone(&entry));
            ops.push(Op::Replace { slot, entry });
            return;
        };
        let new = self.allocate();
        self.banks.set_entry(new, count);
        let table = usize::from(entry.table().0);
        let old = self.records.get_mut(slot.index()).and_then(Option::take);
        if let Some(old) = old {
            self.tables[table].remove(&old.entry, slot);
            self.record_undo(|| Undo::Removed(slot, old.clone()));
            self.retire(slot, old, None, now);
        }
        self.store(new, Arc::clone(&entry));
        self.tables[table].insert(&entry, new);
        self.note_added(new);
        ops.push(Op::Insert { slot: new, entry });
        ops.push(Op::Remove { slot });
    }

    fn modify(&mut self, request: &FlowMod, ops: &mut Vec<Op>) -> Result<ModOutcome, FlowModError> {
        let is_strict = request.command == FlowModCommand::ModifyStrict;
        let slots = self.selected(request, is_strict);
        self.check_modify(request, &slots)?;
        self.check_targets(request.instructions.actions())?;
        self.check_meter_exists(request.instructions.meter)?;
        if request.flags.contains(FlowFlags::RESET_COUNTS) && slots.len() > self.free_slots() {
            // Workers own the former counters until the change is published: each entry takes another slot.
            let (table, max_entries) = (request.table, self.max_entries(request.table));
            return Err(FlowModError::TableFull { table, max_entries });
        }
        for slot in &slots {
            let Some(record) = self.record(*slot) else {
                continue;
            };
            let held = &record.entry;
            let mut parts = held.parts();
            parts.instructions = request.instructions.clone();
            let created = held.created();
            // The time of the latest use stays, so that the entry does not expire early.
            let count = request
                .flags
                .contains(FlowFlags::RESET_COUNTS)
                .then(|| EntryCount {
                    last_used: self.banks.entry(*slot).last_used,
                    ..EntryCount::default()
                });
            let entry = Arc::new(FlowEntry::new(parts));
            self.note_change(ChangeKind::Modified, false, &entry);
            self.change(*slot, entry, count, created, ops);
        }
        Ok(ModOutcome {
            modified: slots.len(),
            ..ModOutcome::default()
        })
    }

    fn delete(&mut self, request: &FlowMod, now: Time, ops: &mut Vec<Op>) -> ModOutcome {
        let is_strict = request.command == FlowModCommand::DeleteStrict;
        if !is_strict && FlowFilter::of(request).is_everything() {
            return self.delete_everything(now, ops);
        }
        let slots = self.selected(request, is_strict);
        for slot in &slots {
            self.remove(*slot, Some(RemovedReason::Delete), now, ops);
        }
        ModOutcome {
            removed: slots.len(),
            ..ModOutcome::default()
        }
    }

    fn delete_everything(&mut self, now: Time, ops: &mut Vec<Op>) -> ModOutcome {
        self.tables.iter_mut().for_each(StrictIndex::clear);
        let records = core::mem::take(&mut self.records);
        let len = records.len();
        let before = self.removed.len();
        for (at, record) in records.into_iter().enumerate() {
            if let Some(record) = record {
                self.record_undo(|| Undo::Removed(Slot::new(at as u32), record.clone()));
                self.note_change(ChangeKind::Removed(RemovedReason::Delete), false, &record.entry);
                self.retire(Slot::new(at as u32), record, Some(RemovedReason::Delete), now);
            }
        }
        // Slots that wait for `published` keep their numbers.
        self.records.resize(len, None);
        ops.push(Op::Clear);
        ModOutcome {
            removed: self.removed.len() - before,
            ..ModOutcome::default()
        }
    }

    /// Returns the entries that a modify or delete selects.
    fn selected(&self, request: &FlowMod, is_strict: bool) -> Vec<Slot> {
        let filter = FlowFilter::of(request);
        if is_strict {
            let tables = match request.table {
                TableId::ALL => 0..self.tables.len() as u8,
                table => table.0..table.0 + 1,
            };
            return tables
                .filter_map(|table| self.find_strict(TableId(table), &request.match_, request.priority))
                .filter(|slot| {
                    self.record(*slot)
                        .is_some_and(|record| filter.accepts_but_for_match(&record.entry))
                })
                .collect();
        }
        let is_in_table = |table| filter.table == TableId::ALL || filter.table == table;
        self.entries()
            .filter(|(_, record)| is_in_table(record.table) && filter.accepts(&record.entry))
            .map(|(slot, _)| slot)
            .collect()
    }
}
