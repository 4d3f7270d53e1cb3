//! Entries of the device: operations of the bridge's thread become commands, and their completions outcomes.
//!
//! The control thread of the port executes operations in batches, and waits for the device; the bridge's thread only puts them
//! into a queue. A removal is complete when a fence that was sent after it has come through every queue: packets before the
//! fence may have the mark, and the worker has processed them when it sees the fence or soon after, in the same burst. A fence
//! that does not come within [`FENCE_TIMEOUT`] is lost, and the slot is not used again.
//!
//! Changes of drops ([`DeviceDrops`]) go before operations, since the bridge's thread waits for them.

use core::sync::atomic::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_nic::exact::{Entry, ExactTable, Place};
use millrace_nic::{Action, Command, CommandCompletion, Config, Key, Status};
use millrace_offload::{Outcome, Refusal};

use super::state::Nic;
use crate::offload::key::project;
use crate::offload::{
    DeviceDrops, DeviceOperation, DeviceOutcome, DropOperation, EntryFields, Offload, OffloadCapabilities,
};

/// The width of the marks of the interface.
const MARK_BITS: u32 = 32;
/// The port of the device, which has one.
const PORT: u8 = 0;
/// The forms that follow each other, so that no row of before a reset matches after it.
const FORMS: u8 = 15;

/// The most changes of drops that are executed together.
const DROPS_BATCH: usize = 64;

/// Time within which a fence comes through all queues: workers poll them many times in a second, even without packets.
pub(super) const FENCE_TIMEOUT: Duration = Duration::from_secs(10);

/// The bridge's thread's side.
pub(super) struct Entries {
    pub(super) nic: Arc<Nic>,
}

impl Offload for Entries {
    fn capabilities(&self) -> Option<OffloadCapabilities> {
        let entries = self.nic.entries.load(Ordering::Acquire);
        let session = self.nic.connections.load(Ordering::Acquire);
        let is_there = self.nic.is_connected.load(Ordering::Acquire) && entries != 0;
        is_there.then(|| OffloadCapabilities {
            session,
            entries,
            mark_bits: MARK_BITS,
            fields: EntryFields::Masked,
            is_trusted: self.nic.is_same_user.load(Ordering::Acquire),
        })
    }

    fn submit(&mut self, operation: DeviceOperation) -> bool {
        let is_taken = self.nic.operations.push(operation).is_ok();
        self.nic.wake.wake();
        is_taken
    }

    fn poll(&mut self) -> Option<DeviceOutcome> {
        self.nic.outcomes.pop()
    }

    fn drops(&self) -> Option<Arc<DeviceDrops>> {
        self.nic.drops()
    }
}

fn are_ok(completions: &[CommandCompletion]) -> bool {
    completions
        .iter()
        .all(|completion| completion.status == Status::Ok)
}

/// Entries that were removed, and the fence that must pass.
#[derive(Debug)]
struct Removal {
    fence: u32,
    reset: u64,
    slot: u32,
    since: Instant,
}

/// The control thread's side, for one connection.
pub(super) struct Installer {
    table: ExactTable,
    /// The mark of each slot.
    marks: BTreeMap<u32, u32>,
    /// The slots of the marks whose packets are dropped, which are the numbers of their drop counters.
    dropping: BTreeMap<u32, u32>,
    mask: Key,
    form: u8,
    reset: u64,
    removals: Vec<Removal>,
    /// True if removals wait for a fence that has yet to be sent.
    needs_fence: bool,
}

impl Installer {
    pub(super) fn new(config: &Config, row_bits: u8) -> Installer {
        Installer {
            table: ExactTable::new(config.keys.clone(), row_bits.into()),
            marks: BTreeMap::new(),
            dropping: BTreeMap::new(),
            mask: Key::default(),
            form: 0,
            reset: 0,
            removals: Vec::new(),
            needs_fence: false,
        }
    }

    /// Returns true while fences are awaited.
    pub(super) fn is_waiting(&self) -> bool {
        self.needs_fence || !self.removals.is_empty()
    }

    /// Takes up to `max` operations at `now`, and executes them. `execute` executes commands in order, and returns their statuses.
    pub(super) fn run<E: From<Status>>(
        &mut self,
        nic: &Nic,
        drops: Option<&DeviceDrops>,
        (max, now): (usize, Instant),
        mut execute: impl FnMut(&[Command]) -> Result<Vec<CommandCompletion>, E>,
    ) -> Result<(), E> {
        for _ in 0..max {
            if let Some(drops) = drops {
                self.run_drops(drops, &mut execute)?;
            }
            let Some(operation) = nic.operations.pop() else {
                break;
            };
            match operation {
                DeviceOperation::Reset { number, mask } => {
                    if are_ok(&execute(&self.reset(number, project(&mask.0)))?) {
                        let _full = nic.outcomes.push(DeviceOutcome::Reset { number });
                    }
                }
                DeviceOperation::Install { slot, mark, key } => {
                    let key = project(&key).masked(&self.mask);
                    let outcome = match self.table.insert(Entry { key, mark }) {
                        Err(_) => Outcome::Refused(Refusal::Capacity),
                        Ok(writes) => {
                            self.marks.insert(slot, mark);
                            let commands: Vec<Command> = writes
                                .iter()
                                .flat_map(|(place, entry)| self.write(*place, entry))
                                .collect();
                            let is_done = are_ok(&execute(&commands)?);
                            if !is_done && writes.len() == 1 {
                                self.table.remove(mark);
                                self.marks.remove(&slot);
                            }
                            match (is_done, writes.len()) {
                                (true, _) => Outcome::Installed,
                                (false, 1) => Outcome::Refused(Refusal::Shape),
                                // A part of the moves may have been written: the slot is not used again.
                                (false, _) => Outcome::Leaked,
                            }
                        }
                    };
                    self.answer(nic, slot, outcome);
                }
                DeviceOperation::Remove { slot } => {
                    let mark = self.marks.remove(&slot);
                    let place = mark.and_then(|mark| {
                        self.dropping.remove(&mark);
                        self.table.remove(mark)
                    });
                    let cleared = match place {
                        Some(place) => execute(&[Command::ClearRow {
                            way: place.way,
                            row: place.row,
                        }])?,
                        None => Vec::new(),
                    };
                    if cleared.len() == 1 && are_ok(&cleared) {
                        self.needs_fence = true;
                        self.removals.push(Removal {
                            fence: 0,
                            reset: self.reset,
                            slot,
                            since: now,
                        });
                    } else {
                        self.answer(nic, slot, Outcome::Leaked);
                    }
                }
            }
        }
        self.send_fence(nic, &mut execute)?;
        self.complete_removals(nic, now);
        Ok(())
    }

    /// Executes changes of drops, and reads the counters of those that end. Fails with the status of a device that refuses to end
    /// one: its connection must end then.
    pub(super) fn run_drops<E: From<Status>>(
        &mut self,
        drops: &DeviceDrops,
        execute: &mut impl FnMut(&[Command]) -> Result<Vec<CommandCompletion>, E>,
    ) -> Result<(), E> {
        loop {
            let operations: Vec<DropOperation> =
                core::iter::from_fn(|| drops.next()).take(DROPS_BATCH).collect();
            if operations.is_empty() {
                return Ok(());
            }
            let mut commands = Vec::with_capacity(3 * operations.len());
            // By operation, its entry, if the slot has one.
            let mut entries = Vec::with_capacity(operations.len());
            for operation in &operations {
                let (DropOperation::Drop { slot } | DropOperation::Pass { slot }) = *operation;
                let entry = self.marks.get(&slot).and_then(|mark| self.table.find(*mark));
                if let Some((place, entry)) = entry {
                    match operation {
                        DropOperation::Drop { .. } => self.dropping.insert(entry.mark, slot),
                        DropOperation::Pass { .. } => self.dropping.remove(&entry.mark),
                    };
                    commands.extend(self.write(place, &entry));
                }
                entries.push(entry);
            }
            let completions = execute(&commands)?;
            let mut written = completions.chunks(3).map(are_ok);
            let mut ended = Vec::new();
            for (operation, entry) in operations.iter().zip(&entries) {
                let is_written = entry.is_some() && written.next() == Some(true);
                match (operation, entry) {
                    (DropOperation::Drop { .. }, _) if is_written => {}
                    (DropOperation::Drop { .. }, entry) => {
                        drops.refuse();
                        if let Some((_, entry)) = entry {
                            self.dropping.remove(&entry.mark);
                        }
                    }
                    (DropOperation::Pass { slot }, Some((place, _))) if !is_written => {
                        // A device that is full of faults may still clear the row.
                        let clear = Command::ClearRow {
                            way: place.way,
                            row: place.row,
                        };
                        if let [CommandCompletion { status, .. }] = *execute(&[clear])?
                            && status != Status::Ok
                        {
                            return Err(status.into());
                        }
                        ended.push(*slot);
                    }
                    (DropOperation::Pass { slot }, _) => ended.push(*slot),
                }
            }
            self.read_drops(drops, &ended, execute)?;
            operations.iter().for_each(|_| drops.done());
        }
    }

    /// Returns the slots whose packets the device drops.
    pub(super) fn dropping(&self) -> Vec<u32> {
        self.dropping.values().copied().collect()
    }

    /// Reads the drop counters of some slots.
    pub(super) fn read_drops<E>(
        &self,
        drops: &DeviceDrops,
        slots: &[u32],
        execute: &mut impl FnMut(&[Command]) -> Result<Vec<CommandCompletion>, E>,
    ) -> Result<(), E> {
        let read = |slot: &u32| [0, 1].map(|half| Command::ReadDrops { half, counter: *slot });
        let commands: Vec<Command> = slots.iter().flat_map(read).collect();
        let completions = execute(&commands)?;
        for (slot, halves) in slots.iter().zip(completions.as_chunks::<2>().0) {
            if are_ok(halves) {
                drops.set_count(*slot, [0, 1].map(|half| halves[half].value));
            }
        }
        Ok(())
    }

    fn answer(&self, nic: &Nic, slot: u32, outcome: Outcome) {
        let _full = nic.outcomes.push(DeviceOutcome::Slot {
            reset: self.reset,
            slot,
            outcome,
        });
    }

    /// Returns the commands that give the port another form and mask, and clear all rows. Without a form no packet is marked,
    /// so rows of the former mask never match keys of the new one.
    fn reset(&mut self, number: u64, mask: Key) -> Vec<Command> {
        let clear = self.table.places().map(|place| Command::ClearRow {
            way: place.way,
            row: place.row,
        });
        let clear: Vec<Command> = clear.collect();
        self.table.clear();
        self.marks.clear();
        self.dropping.clear();
        self.removals.clear();
        self.needs_fence = false;
        self.mask = mask;
        self.reset = number;
        self.form = self.form % FORMS + 1;
        let set = |form| Command::SetMask {
            port: PORT,
            bank: 0,
            form,
        };
        let mut commands = Command::stage(&mask).to_vec();
        commands.push(set(0));
        commands.extend(clear);
        commands.push(set(self.form));
        commands
    }

    fn write(&self, place: Place, entry: &Entry) -> [Command; 3] {
        let [lower, upper] = Command::stage(&entry.key);
        // An entry that moves to another row goes on dropping.
        let counter = self.dropping.get(&entry.mark).copied();
        let action = Action {
            mark: counter.unwrap_or(entry.mark),
            drop: counter.is_some(),
            ..Action::default()
        };
        let write = Command::WriteRow {
            way: place.way,
            row: place.row,
            form: self.form,
            action,
        };
        [lower, upper, write]
    }

    fn send_fence<E>(
        &mut self,
        nic: &Nic,
        execute: &mut impl FnMut(&[Command]) -> Result<Vec<CommandCompletion>, E>,
    ) -> Result<(), E> {
        if !self.needs_fence {
            return Ok(());
        }
        let number = nic.fences.next();
        // A busy device has a queue without room; the next call tries again.
        if are_ok(&execute(&[Command::Fence { number }])?) {
            self.needs_fence = false;
            for removal in self.removals.iter_mut().filter(|removal| removal.fence == 0) {
                removal.fence = number;
            }
        }
        Ok(())
    }

    fn complete_removals(&mut self, nic: &Nic, now: Instant) {
        for removal in core::mem::take(&mut self.removals) {
            let outcome = if removal.fence != 0 && nic.has_passed(removal.fence) {
                Outcome::Removed
            } else if now.saturating_duration_since(removal.since) >= FENCE_TIMEOUT {
                Outcome::Leaked
            } else {
                self.removals.push(removal);
                continue;
            };
            if removal.reset == self.reset {
                self.answer(nic, removal.slot, outcome);
            }
        }
        self.needs_fence &= !self.removals.is_empty();
    }
}
