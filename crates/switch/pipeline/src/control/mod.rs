//! The control half of the pipeline: the single writer of one bridge.
//!
//! [`Control`] holds the authoritative state of a bridge: flow entries, groups, meters, ports, MAC table. A request is
//! validated first, then applied completely or not at all, and appends the [`Op`]s that bring the readers' copies to
//! the same state. The control half never sees a packet.
//!
//! # Slots and their counters
//! Workers count for an entry at its [`Slot`]; groups, buckets, meters and bands have slots only for their counters,
//! in the same row. Workers may count for a removed entry until the change is published. Its slot therefore waits
//! until [`Control::published`], which reads the final counters, reports the entry and frees the slot.
//!
//! # Cost
//! A request that names one entry takes constant time. A request that covers many, and an add that checks for
//! overlaps, visit all entries of all tables once. Expiry and listings do bounded work at each call and continue at
//! the next.

mod abilities;
mod changes;
mod error;
mod eviction;
mod expiry;
mod fdb;
mod flow_mod;
mod group_mod;
mod groups;
mod journal;
mod meter_mod;
mod optimize;
mod ports;
mod request;
mod reset;
mod statistics;
mod strict;
mod validate;
mod wheel;

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_flow::classify::Slot;
use millrace_flow::{Action, FieldSet, Match};
use millrace_types::{Duration, GroupId, MeterId, TableId, Time};

pub use abilities::{ActionAbilities, EntryAbilities, PipelineError, TableAbilities, TableSet, TypeSet};
pub use changes::{ChangeKind, EntryChange};
pub use error::{
    AbilityError, ActionError, ExtensionError, FlowModError, GroupModError, MeterModError, PortModError,
};
pub use eviction::{TableLimit, WhenFull};
pub use fdb::FdbConfig;
pub use flow_mod::Prepared;
pub use group_mod::{GroupMod, GroupStat};
pub use meter_mod::{MeterMod, MeterStat};
pub use request::{
    Aggregate, Cursor, FlowFilter, FlowMod, FlowModCommand, FlowRemoved, FlowStat, ModOutcome, RemovedReason,
    TableStat,
};

use self::abilities::TableState;
use self::eviction::Evictions;
use self::fdb::FdbControl;
use self::groups::Groups;
use self::journal::{Journal, Undo};
use self::meter_mod::MeterRecord;
use self::optimize::IdleTable;
use self::strict::StrictIndex;
use self::wheel::{Tick, Wheel};
use crate::counters::{CounterBanks, EntryCount};
use crate::group::SelectHash;
use crate::port::PortMap;
use crate::{
    Counters, DropReason, FlowCachePolicy, FlowEntry, FlowFlags, Forwarding, FragmentMode, LiveTrace, Op,
    Tunnels,
};

/// The configuration of the control half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlConfig {
    /// Number of tables, 1 to 255.
    pub tables: u8,
    /// Entries that fit into one table.
    pub max_entries: u32,
    /// Keys every hash; should be random.
    pub seed: u64,
    /// The MAC table.
    pub fdb: FdbConfig,
    /// Policy for the workers' caches of traversals.
    pub flow_cache: FlowCachePolicy,
    /// True if matches may use the extensions of Open vSwitch to OpenFlow 1.3.5 ([`Match::extension`]).
    pub match_extensions: bool,
}

impl Default for ControlConfig {
    fn default() -> ControlConfig {
        ControlConfig {
            tables: TableId::MAX.0,
            max_entries: 4_000_000,
            seed: 0,
            fdb: FdbConfig::default(),
            flow_cache: FlowCachePolicy::default(),
            match_extensions: true,
        }
    }
}

/// A flow entry, and the tick of its timer.
#[derive(Clone, Debug)]
struct Record {
    entry: Arc<FlowEntry>,
    timer: Tick,
    /// The table of the entry, readable without touching the entry's memory.
    table: TableId,
    refers: bool,
}

/// A removed entry that workers may still use.
#[derive(Debug)]
struct RemovedEntry {
    slot: Slot,
    entry: Arc<FlowEntry>,
    /// `None` if no controller is notified.
    reason: Option<RemovedReason>,
    at: Time,
}

/// The single writer of one bridge.
#[derive(Debug)]
pub struct Control {
    config: ControlConfig,
    tables: Vec<StrictIndex>,
    /// Idle state of each table.
    idle_tables: Vec<IdleTable>,
    records: Vec<Option<Record>>,
    free: Vec<Slot>,
    removed: Vec<RemovedEntry>,
    /// Counter slots of removed groups, buckets, meters and bands that workers may still use.
    removed_counters: Vec<Slot>,
    wheel: Wheel,
    banks: CounterBanks,
    ports: PortMap,
    groups: Groups,
    meters: BTreeMap<MeterId, MeterRecord>,
    fdb: FdbControl,
    standalone: bool,
    invalid_ttl_to_controller: bool,
    fragments: FragmentMode,
    select_fields: FieldSet,
    tunnels: Arc<Tunnels>,
    traces: Vec<Arc<LiveTrace>>,
    /// The features of each table as controllers set them; empty if no table differs from the switch's abilities.
    table_states: Vec<TableState>,
    /// The tables with a limit of their own.
    limits: BTreeMap<TableId, TableLimit>,
    evictions: Evictions,
    /// Changes since the latest [`Control::take_changes`]; `None` while nobody watches.
    changes: Option<Vec<EntryChange>>,
    /// `Some` between [`Control::begin`] and [`Control::commit`].
    journal: Option<Journal>,
}

impl Control {
    /// Returns an empty bridge.
    pub fn new(config: ControlConfig) -> Control {
        let tables = config.tables.clamp(1, TableId::MAX.0 + 1);
        Control {
            config: ControlConfig { tables, ..config },
            tables: (0..tables).map(|_| StrictIndex::new(config.seed)).collect(),
            idle_tables: vec![IdleTable::default(); usize::from(tables)],
            records: Vec::new(),
            free: Vec::new(),
            removed: Vec::new(),
            removed_counters: Vec::new(),
            wheel: Wheel::new(),
            banks: CounterBanks::default(),
            ports: PortMap::default(),
            groups: Groups::default(),
            meters: BTreeMap::new(),
            fdb: FdbControl::new(config.fdb, config.seed),
            standalone: false,
            invalid_ttl_to_controller: false,
            fragments: FragmentMode::Normal,
            select_fields: SelectHash::FIELDS.into_iter().collect(),
            tunnels: Arc::default(),
            traces: Vec::new(),
            table_states: Vec::new(),
            limits: BTreeMap::new(),
            evictions: Evictions::default(),
            changes: None,
            journal: None,
        }
    }

    /// Returns the workers' state as it is now. The caller takes two copies before the first request and applies all
    /// later [`Op`]s to both, or takes another one later to compare.
    pub fn forwarding(&self) -> Forwarding {
        let mut forwarding = Forwarding::new(self.config.tables, self.config.seed);
        let mut apply = |op| forwarding.apply(&op);
        for (slot, record) in self.entries() {
            let entry = Arc::clone(&record.entry);
            apply(Op::Insert { slot, entry });
        }
        for port in self.ports.iter() {
            apply(Op::Port(Arc::new(port.clone())));
        }
        for meter in self.meters.values() {
            apply(Op::Meter(Arc::clone(&meter.ready)));
        }
        for group in self.groups.from(GroupId(0)) {
            apply(Op::Group(Arc::clone(&group.ready)));
        }
        for entry in self.fdb.iter() {
            apply(Op::Learn(Arc::clone(entry)));
        }
        for trace in &self.traces {
            apply(Op::ArmTrace(Arc::clone(trace)));
        }
        apply(Op::FlowCache(self.config.flow_cache));
        apply(Op::Standalone(self.standalone));
        apply(Op::InvalidTtlToController(self.invalid_ttl_to_controller));
        apply(Op::Fragments(self.fragments));
        apply(Op::SelectFields(self.select_fields));
        apply(Op::Tunnels(Arc::clone(&self.tunnels)));
        forwarding
    }

    /// Sets the policy for the workers' caches of traversals.
    pub fn set_flow_cache(&mut self, policy: FlowCachePolicy, ops: &mut Vec<Op>) {
        if policy != self.config.flow_cache {
            self.config.flow_cache = policy;
            ops.push(Op::FlowCache(policy));
        }
    }

    /// Allows or refuses the extensions of Open vSwitch in later matches. Existing entries stay.
    pub fn set_match_extensions(&mut self, allowed: bool) {
        self.config.match_extensions = allowed;
    }

    /// Checks that a match uses no extension that this bridge refuses.
    ///
    /// # Errors
    /// [`ExtensionError`] with the first one.
    pub fn check_extensions(&self, match_: &Match) -> Result<(), ExtensionError> {
        if self.config.match_extensions {
            return Ok(());
        }
        match_
            .extension()
            .map_or(Ok(()), |extension| Err(ExtensionError(extension)))
    }

    /// Returns the number of entries that fit into a table.
    pub fn max_entries(&self, table: TableId) -> u32 {
        let limit = self.limits.get(&table).map(|limit| limit.max_entries);
        limit.unwrap_or(u32::MAX).min(self.config.max_entries)
    }

    /// Returns the configuration.
    pub fn config(&self) -> &ControlConfig {
        &self.config
    }

    /// Returns counters for one more worker, for its [`Processor`](crate::Processor). When the worker drops them, the
    /// next worker gets them; no count is lost.
    pub fn counters(&mut self) -> Arc<Counters> {
        self.banks.lease(false)
    }

    /// Returns counters for packets that the control side processes itself. They allocate memory for the entries that
    /// they count; those of a worker allocate it for all entries.
    pub fn own_counters(&mut self) -> Arc<Counters> {
        self.banks.lease(true)
    }

    /// Returns the number of packets that all workers dropped for one reason.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.banks.drops(reason)
    }

    /// Records that all workers use the state after everything emitted so far. Appends the removed entries with
    /// `OFPFF_SEND_FLOW_REM` to `removed`, with their final counters, in the order of their removal.
    pub fn published(&mut self, removed: &mut Vec<FlowRemoved>) {
        for entry in core::mem::take(&mut self.removed) {
            if let Some(reason) = entry.reason {
                removed.push(FlowRemoved {
                    duration: entry.at.since(entry.entry.created()),
                    count: self.banks.entry(entry.slot),
                    reason,
                    entry: entry.entry,
                });
            }
            self.free.push(entry.slot);
        }
        self.free.append(&mut self.removed_counters);
    }

    /// Returns the number of removed entries that wait for [`Control::published`].
    pub fn unpublished_len(&self) -> usize {
        self.removed.len()
    }

    /// Checks the actions of a packet_out.
    ///
    /// # Errors
    /// [`ActionError`] for the first action that is not possible.
    pub fn check_packet_out(&self, actions: &[Action]) -> Result<(), ActionError> {
        validate::packet_out(actions)?;
        self.check_targets(actions)
    }

    /// Sets whether NORMAL forwards packets that match no entry: true while the bridge is `fail-standalone` and has no
    /// controller.
    pub fn set_standalone(&mut self, standalone: bool, ops: &mut Vec<Op>) {
        if self.standalone != standalone {
            self.standalone = standalone;
            ops.push(Op::Standalone(standalone));
        }
    }

    /// Sets whether packets with an invalid TTL cause packet-ins: true while a controller has `OFPR_INVALID_TTL` in
    /// its asynchronous configuration.
    pub fn set_invalid_ttl_to_controller(&mut self, on: bool, ops: &mut Vec<Op>) {
        if self.invalid_ttl_to_controller != on {
            self.invalid_ttl_to_controller = on;
            ops.push(Op::InvalidTtlToController(on));
        }
    }

    /// Replaces all tunnels. Their ports, and their underlays, are added apart.
    pub fn set_tunnels(&mut self, tunnels: Tunnels, ops: &mut Vec<Op>) {
        if *self.tunnels != tunnels {
            self.tunnels = Arc::new(tunnels);
            ops.push(Op::Tunnels(Arc::clone(&self.tunnels)));
        }
    }

    /// Sets the fields whose hash chooses the bucket of a select group. If empty: addresses, VLAN, protocol and ports.
    /// A field of a deeper header than the transport ports is hashed as absent.
    pub fn set_select_fields(&mut self, fields: FieldSet, ops: &mut Vec<Op>) {
        let fields = match fields.is_empty() {
            true => SelectHash::FIELDS.into_iter().collect(),
            false => fields,
        };
        if self.select_fields != fields {
            self.select_fields = fields;
            ops.push(Op::SelectFields(fields));
        }
    }

    /// Sets the handling of IP fragments.
    pub fn set_fragments(&mut self, mode: FragmentMode, ops: &mut Vec<Op>) {
        if self.fragments != mode {
            self.fragments = mode;
            ops.push(Op::Fragments(mode));
        }
    }

    /// Returns the handling of IP fragments.
    pub fn fragments(&self) -> FragmentMode {
        self.fragments
    }

    /// Arms a trace of live packets, which [`Control::disarm_trace`] ends.
    pub fn arm_trace(&mut self, trace: Arc<LiveTrace>, ops: &mut Vec<Op>) {
        self.traces.retain(|armed| armed.id() != trace.id());
        self.traces.push(Arc::clone(&trace));
        ops.push(Op::ArmTrace(trace));
    }

    /// Disarms a trace.
    pub fn disarm_trace(&mut self, id: u64, ops: &mut Vec<Op>) {
        self.traces.retain(|armed| armed.id() != id);
        ops.push(Op::DisarmTrace(id));
    }

    /// Returns the entry at a slot.
    pub fn entry(&self, slot: Slot) -> Option<&Arc<FlowEntry>> {
        self.record(slot).map(|record| &record.entry)
    }

    /// Returns the number of entries in all tables.
    pub fn entry_len(&self) -> usize {
        self.tables.iter().map(StrictIndex::len).sum()
    }

    fn record(&self, slot: Slot) -> Option<&Record> {
        self.records.get(slot.index())?.as_ref()
    }

    fn entries(&self) -> impl Iterator<Item = (Slot, &Record)> {
        let numbered = self.records.iter().enumerate();
        numbered.filter_map(|(at, record)| Some((Slot::new(at as u32), record.as_ref()?)))
    }

    /// Returns an unused slot.
    fn allocate(&mut self) -> Slot {
        let slot = self
            .free
            .pop()
            .unwrap_or_else(|| Slot::new(self.records.len() as u32));
        if self.records.len() <= slot.index() {
            self.records.resize(slot.index() + 1, None);
        }
        self.banks.reserve(slot);
        slot
    }

    /// Returns the number of slots that can be [allocated](Control::allocate).
    fn free_slots(&self) -> usize {
        self.free.len() + Counters::ENTRIES_MAX.saturating_sub(self.records.len())
    }

    /// Returns an unused slot, with counters of zero, for something other than a flow entry.
    fn allocate_counters(&mut self) -> Slot {
        let slot = self.allocate();
        self.banks.set_entry(slot, EntryCount::default());
        slot
    }

    /// Stores an entry at a slot, with a timer if it has a time-out.
    fn store(&mut self, slot: Slot, entry: Arc<FlowEntry>) {
        let (table, refers) = (entry.table(), entry.refers());
        let mut record = Record {
            entry,
            timer: Tick::NONE,
            table,
            refers,
        };
        let due = expiry::due(&record.entry, self.banks.entry(slot).last_used);
        if let Some(due) = due {
            record.timer = self.wheel.add(slot, due);
        }
        if let Some(stored) = self.records.get_mut(slot.index()) {
            *stored = Some(record);
        }
        if let Some(due) = due {
            self.note_due(table, slot, due);
        }
    }

    /// Removes an entry from its table. It is reported if its flags ask for that and there is a reason.
    fn remove(&mut self, slot: Slot, reason: Option<RemovedReason>, now: Time, ops: &mut Vec<Op>) {
        let Some(record) = self.records.get_mut(slot.index()).and_then(Option::take) else {
            return;
        };
        if let Some(index) = self.tables.get_mut(usize::from(record.table.0)) {
            index.remove(&record.entry, slot);
        }
        ops.push(Op::Remove { slot });
        self.note(|| Undo::Removed(slot, record.clone()));
        self.note_change(
            ChangeKind::Removed(reason.unwrap_or(RemovedReason::Delete)),
            &record.entry,
        );
        self.retire(slot, record, reason, now);
    }

    fn retire(&mut self, slot: Slot, record: Record, reason: Option<RemovedReason>, now: Time) {
        let reports = record.entry.flags().contains(FlowFlags::SEND_FLOW_REM);
        self.removed.push(RemovedEntry {
            slot,
            entry: record.entry,
            reason: reason.filter(|_| reports),
            at: now,
        });
    }
}

/// Returns a time-out of a flow entry as a duration.
fn seconds(seconds: u16) -> Duration {
    Duration::from_secs(u64::from(seconds))
}
