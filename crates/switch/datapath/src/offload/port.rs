//! The offload of one port, in the bridge's thread: sampled keys become entries of the device and slots of the workers.
//!
//! ```text
//!   Away --device connects--> Resetting --reset done--> Ready --match bits change--> Resetting
//!     ^                           |                       |
//!     +------ device is gone -----+-----------------------+
//! ```
//! A packet whose mark names no slot of a worker goes through the tables: the worker has not heard of the key yet, or has
//! forgotten it already, or the device is wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use millrace_flow::{FlowKey, FlowMask};
use millrace_offload::{Governor, Load, Operation, Outcome, Planner, PlannerSettings, Refusal, Standing};
use millrace_pipeline::{Forwarding, MarkCounts, MarkLevel, MarkState, SlotChange};
use millrace_types::{Duration, Time};

pub(crate) use self::drops::DropCount;
use self::drops::PortDrops;
use super::key::{entry_bits, unsuitable};
use super::rule::whole_fields;
use super::{
    DeviceDrops, DeviceOperation, DeviceOutcome, EntryFields, MarkedKey, Offload, OffloadBy,
    OffloadCapabilities, OffloadEntries, OffloadMode, OffloadSettings, OffloadStatus,
};

/// The number of sampled keys that may wait for the bridge's thread.
const SAMPLES_LEN: usize = 4096;
/// The maximum number of samples that one call takes.
const SAMPLES_BATCH: usize = 8192;
/// The mean number of packets for each sample (`pipeline::marks`).
const SAMPLING_INTERVAL: u32 = 256;
/// The time that a mark saves for a packet, until a trial has measured it: what the spike of ADR 52 measured for 10,000 exact
/// entries, 55.1 less 37.2 ns.
const SAVED_NANOS: f64 = 18.0;
/// The time of a device for one operation, three commands, in nanoseconds: an estimate.
const OPERATION_NANOS: f64 = 20_000.0;
/// The load factor of a cuckoo table of four ways that is reached without many moves.
const LOAD_PERCENT: usize = 90;

/// The state that workers share to use marks of a port.
#[derive(Debug)]
pub(crate) struct MarkSetup {
    pub(crate) index_bits: u32,
    pub(crate) state: Arc<MarkState>,
    /// By worker.
    pub(crate) counts: Vec<Arc<MarkCounts>>,
    pub(crate) samples: Arc<ArrayQueue<FlowKey>>,
}

/// A change for the workers that receive from the port.
#[derive(Clone, Debug)]
pub(crate) enum WorkerChange {
    /// Marks are used from now on, with empty slots; or not used any more.
    Setup(Option<Arc<MarkSetup>>),
    Slots(Arc<[SlotChange]>),
}

/// The use of a device while it is there.
#[derive(Debug)]
struct Session {
    capabilities: OffloadCapabilities,
    setup: Arc<MarkSetup>,
    planner: Planner,
    governor: Governor,
    /// The drops, if the settings allow them and the device has them.
    drops: Option<PortDrops>,
    /// The version of the match bits, and these bits with those that entries always compare.
    version: u64,
    match_bits: FlowMask,
    entry_bits: FlowMask,
    /// The number of the last reset, and true once the device has confirmed it.
    reset: u64,
    is_ready: bool,
}

/// The offload of one port.
#[derive(Debug)]
pub(crate) struct PortOffload {
    settings: OffloadSettings,
    workers: usize,
    session: Option<Session>,
    /// True once a mark was wrong. It stays until the settings of the port change.
    is_distrusted: bool,
    /// Samples that get no entry, by reason.
    unsuitable: BTreeMap<&'static str, u64>,
    /// Packets that the device dropped, whose entries have not counted them; of sessions that have ended.
    dropped: Vec<DropCount>,
    /// The number of the last reset.
    resets: u64,
    rate: OperationRate,
}

/// The operations of a second.
#[derive(Debug, Default)]
struct OperationRate {
    /// The begin of this second; `None` before the first.
    since: Option<Time>,
    /// Operations until then.
    before: u64,
    /// Operations of the last second.
    last: u64,
}

impl PortOffload {
    pub(crate) fn new(settings: OffloadSettings, workers: usize) -> PortOffload {
        PortOffload {
            settings,
            workers,
            session: None,
            is_distrusted: false,
            unsuitable: BTreeMap::new(),
            dropped: Vec::new(),
            resets: 0,
            rate: OperationRate::default(),
        }
    }

    pub(crate) fn settings(&self) -> &OffloadSettings {
        &self.settings
    }

    /// Runs the planner and the governor, and submits operations. `bits` are those by which tables tell packets apart, and
    /// their version; `load` is the work of the workers so far. Returns the changes for the workers, in order.
    pub(crate) fn tick(
        &mut self,
        device: &mut dyn Offload,
        bits: (FlowMask, u64),
        load: Load,
        now: Time,
    ) -> Vec<WorkerChange> {
        let mut changes = Vec::new();
        let known = self.session.as_ref().map(|session| session.capabilities.session);
        match device.capabilities() {
            None => {
                if self.end_session() {
                    changes.push(WorkerChange::Setup(None));
                }
                return changes;
            }
            Some(there) if known != Some(there.session) => {
                self.end_session();
                let session = self.begin(there, device.drops(), bits, load, now);
                changes.push(WorkerChange::Setup(Some(Arc::clone(&session.setup))));
                self.session = Some(session);
                self.reset(device, now);
            }
            Some(_)
                if self
                    .session
                    .as_ref()
                    .is_some_and(|session| session.version != bits.1) =>
            {
                self.change_bits(bits);
                self.reset(device, now);
            }
            Some(_) => {}
        }
        self.take_outcomes(device, now);
        self.take_samples();
        let slots = self.plan(device, load, now);
        if !slots.is_empty() {
            changes.push(WorkerChange::Slots(slots.into()));
        }
        self.measure(now);
        changes
    }

    /// Forgets the session with a device, and returns true if there was one. What the device has dropped is counted.
    fn end_session(&mut self) -> bool {
        let Some(mut session) = self.session.take() else {
            return false;
        };
        if let Some(drops) = &mut session.drops {
            drops.end_all();
            self.dropped.extend(drops.take_counts());
        }
        true
    }

    fn begin(
        &self,
        capabilities: OffloadCapabilities,
        drops: Option<Arc<DeviceDrops>>,
        (match_bits, version): (FlowMask, u64),
        load: Load,
        now: Time,
    ) -> Session {
        let fitting = capabilities.entries * LOAD_PERCENT / 100;
        let wanted = self.settings.entries.map_or(fitting, |entries| entries as usize);
        let slots = wanted.min(fitting).clamp(1, 1 << 16);
        let index_bits = slots.next_power_of_two().ilog2().max(1);
        let state = Arc::new(MarkState::new(MarkLevel::Dispatch));
        Session {
            capabilities,
            setup: Arc::new(MarkSetup {
                index_bits,
                state,
                counts: (0..self.workers)
                    .map(|_| Arc::new(MarkCounts::new(slots)))
                    .collect(),
                samples: Arc::new(ArrayQueue::new(SAMPLES_LEN)),
            }),
            planner: Planner::new(PlannerSettings {
                slots,
                index_bits,
                mark_bits: capabilities.mark_bits,
                operations_per_second: self.settings.operations_per_second,
                sampling_interval: SAMPLING_INTERVAL,
                saved_nanos: SAVED_NANOS,
                operation_nanos: OPERATION_NANOS,
            }),
            governor: Governor::new(now, load),
            drops: drops.filter(|_| self.settings.drops).map(PortDrops::new),
            version,
            entry_bits: bits_of(capabilities.fields, &match_bits),
            match_bits,
            reset: 0,
            is_ready: false,
        }
    }

    /// Forgets all slots, since packets are told apart by other bits. Workers ignore slots of the former version.
    fn change_bits(&mut self, (match_bits, version): (FlowMask, u64)) {
        self.end_drops();
        if let Some(session) = &mut self.session {
            session.planner.clear();
            session.version = version;
            session.entry_bits = bits_of(session.capabilities.fields, &match_bits);
            session.match_bits = match_bits;
        }
    }

    /// Asks the device to forget all entries.
    fn reset(&mut self, device: &mut dyn Offload, now: Time) {
        let Some(session) = &mut self.session else {
            return;
        };
        // The number also differs from those of earlier settings of the port.
        self.resets = now.nanos().max(self.resets + 1);
        (session.reset, session.is_ready) = (self.resets, false);
        let mask = session.entry_bits;
        if !device.submit(DeviceOperation::Reset {
            number: self.resets,
            mask,
        }) {
            // The next call tries again.
            session.version = session.version.wrapping_add(1);
        }
    }

    fn take_outcomes(&mut self, device: &mut dyn Offload, now: Time) {
        while let Some(outcome) = device.poll() {
            let Some(session) = &mut self.session else {
                continue;
            };
            match outcome {
                DeviceOutcome::Reset { number } => session.is_ready |= number == session.reset,
                DeviceOutcome::Slot { reset, slot, outcome } if reset == session.reset => {
                    session.planner.outcome(slot, outcome, now);
                }
                DeviceOutcome::Slot { .. } => {}
            }
        }
    }

    fn take_samples(&mut self) {
        let Some(session) = &mut self.session else {
            return;
        };
        for _ in 0..SAMPLES_BATCH {
            let Some(key) = session.setup.samples.pop() else {
                break;
            };
            match unsuitable(&key, &session.match_bits) {
                Some(reason) => *self.unsuitable.entry(reason).or_default() += 1,
                None => session.planner.sample(&key.masked(&session.entry_bits)),
            }
        }
    }

    /// Sets the level, and submits the operations of the planner. Returns the changes of slots.
    fn plan(&mut self, device: &mut dyn Offload, load: Load, now: Time) -> Vec<SlotChange> {
        let mut changes = Vec::new();
        let (level, _) = self.level();
        let Some(session) = &mut self.session else {
            return changes;
        };
        if session.setup.state.is_distrusted() && !self.is_distrusted {
            self.is_distrusted = true;
            tracing::warn!("offload: a mark of the device was wrong; every mark is compared from now on");
        }
        session.governor.tick(now, load);
        session.setup.state.set_level(level);
        if !session.is_ready || self.settings.mode == OffloadMode::Dispatch {
            return changes;
        }
        if level == MarkLevel::Dispatch {
            // Slots stay while marks cost time, or a trial measures without them: the next trial needs them.
            session.planner.skip();
            return changes;
        }
        let (counts, drops) = (&session.setup.counts, &mut session.drops);
        let packets = |slot: u32| {
            let processed: u64 = counts.iter().map(|count| count.of_slot(slot as usize)).sum();
            processed.wrapping_add(drops.as_ref().map_or(0, |drops| drops.of_slot(slot)))
        };
        let operations = session.planner.tick(now, packets);
        if let Some(drops) = drops {
            let removed: Vec<u32> = operations
                .iter()
                .filter_map(|operation| match operation {
                    Operation::Remove { slot } => Some(*slot),
                    Operation::Install { .. } => None,
                })
                .collect();
            drops.end(&removed);
        }
        for operation in operations {
            let (slot, device_operation) = match operation {
                Operation::Install { slot, mark, key } => {
                    changes.push(SlotChange {
                        slot,
                        key: Some((mark, key, session.version)),
                    });
                    (slot, DeviceOperation::Install { slot, mark, key })
                }
                Operation::Remove { slot } => {
                    changes.push(SlotChange { slot, key: None });
                    (slot, DeviceOperation::Remove { slot })
                }
            };
            let is_install = matches!(device_operation, DeviceOperation::Install { .. });
            if !device.submit(device_operation) {
                let failed = match is_install {
                    true => Outcome::Refused(Refusal::Transient),
                    false => Outcome::Leaked,
                };
                session.planner.outcome(slot, failed, now);
            }
        }
        changes
    }

    /// Returns true if the device may drop packets now.
    pub(crate) fn has_drops(&self) -> bool {
        let drops = self.session.as_ref().and_then(|session| session.drops.as_ref());
        drops.is_some_and(|drops| drops.len() != 0)
    }

    /// Ends the drops of flows that `fwd` does not drop in the same way, or all if something keeps marks from being used. When
    /// this returns, the device drops none of their packets.
    pub(crate) fn end_changed_drops(&mut self, fwd: &Forwarding, is_obstructed: bool) {
        if let Some(session) = &mut self.session
            && let Some(drops) = &mut session.drops
        {
            if is_obstructed || session.version != fwd.match_bits().1 {
                drops.end_all();
            } else {
                drops.end_changed(fwd);
            }
        }
    }

    /// Begins and ends drops.
    pub(crate) fn tick_drops(&mut self, fwd: &Forwarding, is_obstructed: bool) {
        let level = self.level().0;
        let may_drop = !is_obstructed && !self.is_distrusted;
        self.end_changed_drops(fwd, !may_drop);
        let Some(session) = &mut self.session else {
            return;
        };
        // An entry drops only after packets with its mark were compared with its key, and found by it. Trials of the governor
        // leave drops as they are.
        if let Some(drops) = &mut session.drops
            && may_drop
            && level == MarkLevel::Trust
            && session.is_ready
            && session.version == fwd.match_bits().1
        {
            drops.begin(session.planner.in_use(), fwd);
        }
    }

    /// Ends all drops. When this returns, the device drops no packet.
    pub(crate) fn end_drops(&mut self) {
        if let Some(session) = &mut self.session
            && let Some(drops) = &mut session.drops
        {
            drops.end_all();
        }
    }

    /// Returns the packets that the device dropped and no entry has counted yet.
    pub(crate) fn take_drop_counts(&mut self) -> Vec<DropCount> {
        let mut all = core::mem::take(&mut self.dropped);
        if let Some(session) = &mut self.session
            && let Some(drops) = &mut session.drops
        {
            all.extend(drops.take_counts());
        }
        all
    }

    /// Counts the operations of each second.
    fn measure(&mut self, now: Time) {
        let operations = self
            .session
            .as_ref()
            .map_or(0, |session| session.planner.counts().operations);
        match self.rate.since {
            Some(since) if now.since(since) < Duration::from_secs(1) => {}
            _ => {
                self.rate = OperationRate {
                    since: Some(now),
                    before: operations,
                    last: operations.saturating_sub(self.rate.before),
                };
            }
        }
    }

    /// Returns the level of the port, and who set it.
    fn level(&self) -> (MarkLevel, OffloadBy) {
        let Some(session) = &self.session else {
            return (MarkLevel::Dispatch, OffloadBy::Device);
        };
        let is_distrusted = self.is_distrusted || session.setup.state.is_distrusted();
        let trusted = |by| match is_distrusted {
            true => (MarkLevel::Verify, OffloadBy::Audit),
            false => (MarkLevel::Trust, by),
        };
        match self.settings.mode {
            OffloadMode::Dispatch => (MarkLevel::Dispatch, OffloadBy::Operator),
            OffloadMode::Verify => (MarkLevel::Verify, OffloadBy::Operator),
            OffloadMode::Trust => trusted(OffloadBy::Operator),
            OffloadMode::Auto if !session.governor.uses_marks() => (MarkLevel::Dispatch, OffloadBy::Governor),
            OffloadMode::Auto if session.capabilities.is_trusted => trusted(OffloadBy::Auto),
            OffloadMode::Auto => (MarkLevel::Verify, OffloadBy::Auto),
        }
    }

    /// Returns the state for people.
    pub(crate) fn status(&self) -> OffloadStatus {
        let (level, by) = self.level();
        let session = self.session.as_ref();
        let drops = session.and_then(|session| session.drops.as_ref());
        let counts = session.map_or(&[][..], |session| &session.setup.counts);
        let sum = |count: fn(&MarkCounts) -> u64| counts.iter().map(|counts| count(counts)).sum();
        OffloadStatus {
            settings: self.settings,
            level,
            by,
            is_distrusted: self.is_distrusted,
            planner: session
                .map(|session| session.planner.counts())
                .unwrap_or_default(),
            operations_per_second: self.rate.last,
            packets: sum(MarkCounts::packets),
            marked: sum(MarkCounts::marked),
            used: sum(MarkCounts::used),
            verified: sum(MarkCounts::verified),
            mismatches: sum(MarkCounts::mismatches),
            unknown: sum(MarkCounts::unknown),
            samples_lost: sum(MarkCounts::samples_lost),
            unsuitable: self
                .unsuitable
                .iter()
                .map(|(reason, count)| (*reason, *count))
                .collect(),
            drops: drops.map_or(0, PortDrops::len),
            dropped: drops.map_or(0, PortDrops::packets),
            drops_refused: drops.map_or(0, PortDrops::refused),
            saved_nanos: session
                .filter(|session| session.governor.standing() != Standing::Trial)
                .and_then(|session| session.governor.saved_nanos()),
        }
    }

    /// Returns the mark of packets with a key, if the device marks them.
    pub(crate) fn mark_of(&self, key: &FlowKey) -> Option<MarkedKey> {
        let session = self.session.as_ref()?;
        let (slot, mark) = session.planner.slot_of(&key.masked(&session.entry_bits))?;
        Some(MarkedKey {
            slot,
            mark,
            level: self.level().0,
            is_dropped: session.drops.as_ref().is_some_and(|drops| drops.drops(slot)),
        })
    }

    /// Returns the entries that the device has.
    pub(crate) fn entries(&self) -> OffloadEntries {
        let level = self.level().0;
        let Some(session) = &self.session else {
            return OffloadEntries {
                level,
                mask: FlowMask::default(),
                entries: Vec::new(),
            };
        };
        let is_dropped = |slot| session.drops.as_ref().is_some_and(|drops| drops.drops(slot));
        let entries = session.planner.entries();
        OffloadEntries {
            level,
            mask: session.entry_bits,
            entries: entries.map(|entry| (entry, is_dropped(entry.slot))).collect(),
        }
    }
}

/// Returns the bits that entries compare so that packets with the mark of one are equal in `match_bits`.
fn bits_of(fields: EntryFields, match_bits: &FlowMask) -> FlowMask {
    let bits = entry_bits(match_bits);
    match fields {
        EntryFields::Masked => bits,
        EntryFields::Whole => whole_fields(&bits),
    }
}

mod drops;
#[cfg(test)]
mod rebinds;
#[cfg(test)]
mod tests;
