//! The control half: the single writer of one bridge.
//!
//! [`Control`] holds what is true of the bridge: its entries, ports, stations. Each request checks first,
//! then changes everything or nothing, and emits the [`Op`]s that bring the readers' copies after it. It
//! never sees a packet.
//!
//! # Slots and their counters
//! An entry lives at a [`Slot`], by which workers count; groups and their buckets have slots only to count, in the
//! same row. When an entry goes, workers may still count for it
//! until the change is published; so its slot waits until [`Control::published`], which reads the final
//! counters, reports the entry and lets the slot be used again.
//!
//! # Cost
//! Requests that name one entry take constant time. Those that cover many, and adds that check for overlaps, look at
//! all entries of all tables once. Expiry and listings do bounded work for each call and go on where they stopped.

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
mod ports;
mod request;
mod reset;
mod rest;
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

use self::abilities::Written;
use self::eviction::Evictions;
use self::fdb::FdbControl;
use self::groups::Groups;
use self::journal::{Journal, Undo};
use self::meter_mod::HeldMeter;
use self::rest::Rest;
use self::strict::StrictIndex;
use self::wheel::{Tick, Wheel};
use crate::counters::{CounterBanks, EntryCount};
use crate::group::SelectHash;
use crate::port::PortMap;
use crate::{
    Counters, DropReason, FlowCachePolicy, FlowEntry, FlowFlags, Forwarding, FragmentMode, LiveTrace, Op,
    Tunnels,
};

/// How a bridge is set up.
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
    /// Whether workers keep the paths of packets.
    pub flow_cache: FlowCachePolicy,
    /// Lets matches use what Open vSwitch defines beyond OpenFlow 1.3.5 ([`Match::extension`]).
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

/// An entry and when to look at it again.
#[derive(Clone, Debug)]
struct Record {
    entry: Arc<FlowEntry>,
    timer: Tick,
    /// Also in the entry, but here without touching it.
    table: TableId,
    refers: bool,
}

/// An entry that is gone but perhaps not for every worker.
#[derive(Debug)]
struct Gone {
    slot: Slot,
    entry: Arc<FlowEntry>,
    /// `None` if nobody is to hear of it.
    reason: Option<RemovedReason>,
    at: Time,
}

/// The single writer of one bridge.
#[derive(Debug)]
pub struct Control {
    config: ControlConfig,
    tables: Vec<StrictIndex>,
    /// Of each table.
    rests: Vec<Rest>,
    records: Vec<Option<Record>>,
    free: Vec<Slot>,
    gone: Vec<Gone>,
    /// Slots of groups, buckets, meters and bands that are gone but perhaps not for every worker.
    gone_counts: Vec<Slot>,
    wheel: Wheel,
    banks: CounterBanks,
    ports: PortMap,
    groups: Groups,
    meters: BTreeMap<MeterId, HeldMeter>,
    fdb: FdbControl,
    standalone: bool,
    invalid_ttl_to_controller: bool,
    fragments: FragmentMode,
    select_fields: FieldSet,
    tunnels: Arc<Tunnels>,
    traces: Vec<Arc<LiveTrace>>,
    /// What controllers made of the tables; empty while they made nothing of any.
    written: Vec<Written>,
    /// What is particular to tables that are to hold less than others.
    limits: BTreeMap<TableId, TableLimit>,
    evictions: Evictions,
    /// What became of entries, while somebody wants to know.
    changes: Option<Vec<EntryChange>>,
    /// While requests that belong together are carried out.
    journal: Option<Journal>,
}

impl Control {
    /// Returns an empty bridge.
    pub fn new(config: ControlConfig) -> Control {
        let tables = config.tables.clamp(1, TableId::MAX.0 + 1);
        Control {
            config: ControlConfig { tables, ..config },
            tables: (0..tables).map(|_| StrictIndex::new(config.seed)).collect(),
            rests: vec![Rest::default(); usize::from(tables)],
            records: Vec::new(),
            free: Vec::new(),
            gone: Vec::new(),
            gone_counts: Vec::new(),
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
            written: Vec::new(),
            limits: BTreeMap::new(),
            evictions: Evictions::default(),
            changes: None,
            journal: None,
        }
    }

    /// What workers read, as it is now. Take it before the first request, twice, and apply all [`Op`]s from
    /// then on to both; or later, to compare.
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
        for station in self.fdb.iter() {
            apply(Op::Learn(Arc::clone(station)));
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

    /// Chooses whether workers keep the paths of packets.
    pub fn set_flow_cache(&mut self, policy: FlowCachePolicy, ops: &mut Vec<Op>) {
        if policy != self.config.flow_cache {
            self.config.flow_cache = policy;
            ops.push(Op::FlowCache(policy));
        }
    }

    /// Lets later matches use the extensions of Open vSwitch, or refuses them. Entries that are there stay.
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

    /// How many entries fit into a table.
    pub fn max_entries(&self, table: TableId) -> u32 {
        let limit = self.limits.get(&table).map(|limit| limit.max_entries);
        limit.unwrap_or(u32::MAX).min(self.config.max_entries)
    }

    /// How the bridge is set up.
    pub fn config(&self) -> &ControlConfig {
        &self.config
    }

    /// Counters for one more worker, to make its [`Processor`](crate::Processor) with. When the worker drops
    /// them, they go to the next one; nothing counted is forgotten.
    pub fn counters(&mut self) -> Arc<Counters> {
        self.banks.lease(false)
    }

    /// Counters for packets that the control side processes itself. They take memory for entries that it counts, where
    /// those of a worker take it for all.
    pub fn own_counters(&mut self) -> Arc<Counters> {
        self.banks.lease(true)
    }

    /// Packets dropped by all workers for one reason.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.banks.drops(reason)
    }

    /// Says that all workers see everything emitted so far. Reports the entries that went and asked for it
    /// (`OFPFF_SEND_FLOW_REM`), with their final counters, in the order in which they went.
    pub fn published(&mut self, removed: &mut Vec<FlowRemoved>) {
        for gone in core::mem::take(&mut self.gone) {
            if let Some(reason) = gone.reason {
                removed.push(FlowRemoved {
                    duration: gone.at.since(gone.entry.created()),
                    count: self.banks.entry(gone.slot),
                    reason,
                    entry: gone.entry,
                });
            }
            self.free.push(gone.slot);
        }
        self.free.append(&mut self.gone_counts);
    }

    /// Number of entries that went and wait for [`Control::published`].
    pub fn unpublished_len(&self) -> usize {
        self.gone.len()
    }

    /// Checks the actions of a packet-out.
    ///
    /// # Errors
    /// [`ActionError`] for the first action that is not possible.
    pub fn check_packet_out(&self, actions: &[Action]) -> Result<(), ActionError> {
        validate::packet_out(actions)?;
        self.check_targets(actions)
    }

    /// Lets NORMAL forward what matches nothing, or not: the bridge is `fail-standalone` and has lost its
    /// controllers, or has found them again.
    pub fn set_standalone(&mut self, standalone: bool, ops: &mut Vec<Op>) {
        if self.standalone != standalone {
            self.standalone = standalone;
            ops.push(Op::Standalone(standalone));
        }
    }

    /// Makes packet-ins of packets whose TTL runs out, or not: whether some controller asked for
    /// `OFPR_INVALID_TTL` in its asynchronous configuration.
    pub fn set_invalid_ttl_to_controller(&mut self, on: bool, ops: &mut Vec<Op>) {
        if self.invalid_ttl_to_controller != on {
            self.invalid_ttl_to_controller = on;
            ops.push(Op::InvalidTtlToController(on));
        }
    }

    /// Replaces all tunnels. Their ports, and their underlays, are ports like others.
    pub fn set_tunnels(&mut self, tunnels: Tunnels, ops: &mut Vec<Op>) {
        if *self.tunnels != tunnels {
            self.tunnels = Arc::new(tunnels);
            ops.push(Op::Tunnels(Arc::clone(&self.tunnels)));
        }
    }

    /// Says by which fields select groups tell flows apart; none: by addresses, VLAN, protocol and ports. Fields that
    /// are deeper in a packet than ports count as absent.
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

    /// Says what becomes of IP fragments.
    pub fn set_fragments(&mut self, mode: FragmentMode, ops: &mut Vec<Op>) {
        if self.fragments != mode {
            self.fragments = mode;
            ops.push(Op::Fragments(mode));
        }
    }

    /// What becomes of IP fragments.
    pub fn fragments(&self) -> FragmentMode {
        self.fragments
    }

    /// Waits for live packets. Disarm it when it has seen them.
    pub fn arm_trace(&mut self, trace: Arc<LiveTrace>, ops: &mut Vec<Op>) {
        self.traces.retain(|held| held.id() != trace.id());
        self.traces.push(Arc::clone(&trace));
        ops.push(Op::ArmTrace(trace));
    }

    /// Stops waiting.
    pub fn disarm_trace(&mut self, id: u64, ops: &mut Vec<Op>) {
        self.traces.retain(|held| held.id() != id);
        ops.push(Op::DisarmTrace(id));
    }

    /// Returns the entry at a slot.
    pub fn entry(&self, slot: Slot) -> Option<&Arc<FlowEntry>> {
        self.record(slot).map(|record| &record.entry)
    }

    /// Number of entries in all tables.
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

    /// Returns a slot that nobody uses.
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

    /// How many slots can be [allocated](Control::allocate).
    fn free_slots(&self) -> usize {
        self.free.len() + Counters::ENTRIES_MAX.saturating_sub(self.records.len())
    }

    /// A slot for the counters of something that is no flow entry: all zero.
    fn allocate_count(&mut self) -> Slot {
        let slot = self.allocate();
        self.banks.set_entry(slot, EntryCount::default());
        slot
    }

    /// Puts an entry at a slot, with a timer if it needs one.
    fn place(&mut self, slot: Slot, entry: Arc<FlowEntry>) {
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
        if let Some(place) = self.records.get_mut(slot.index()) {
            *place = Some(record);
        }
        if let Some(due) = due {
            self.note_due(table, slot, due);
        }
    }

    /// Takes an entry out of everything. It is reported if its flags ask for it and there is a reason.
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
        self.gone.push(Gone {
            slot,
            entry: record.entry,
            reason: reason.filter(|_| reports),
            at: now,
        });
    }
}

/// Returns a number of seconds as flow entries give them.
fn seconds(seconds: u16) -> Duration {
    Duration::from_secs(u64::from(seconds))
}
