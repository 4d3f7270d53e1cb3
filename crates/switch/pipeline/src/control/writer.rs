//! The state of one bridge, and the elementary changes that all requests consist of.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_flow::classify::Slot;
use millrace_flow::{Action, FieldSet, Match};
use millrace_types::{GroupId, MeterId, TableId, Time};

use super::capabilities::TableState;
use super::changes::{ChangeKind, EntryChange};
use super::config::ControlConfig;
use super::error::{ActionError, ExtensionError};
use super::fdb::FdbControl;
use super::groups::Groups;
use super::idle_table::IdleTable;
use super::journal::{Journal, Undo};
use super::limits::{Evictions, TableLimit};
use super::meters::MeterRecord;
use super::record::{Record, RemovedEntry, expiry_time};
use super::request::{FlowRemoved, RemovedReason};
use super::strict::StrictIndex;
use super::validate;
use super::wheel::{Tick, Wheel};
use crate::counters::{CounterBanks, EntryCount};
use crate::group::SelectHash;
use crate::port::PortMap;
use crate::{
    Counters, DropReason, FlowCachePolicy, FlowEntry, FlowFlags, Forwarding, FragmentMode, LiveTrace,
    Mirrors, NormalIngress, NormalSettings, OamPorts, Op, Standalone, Tunnels,
};

/// The single writer of one bridge.
#[derive(Debug)]
pub struct Control {
    pub(super) config: ControlConfig,
    pub(super) tables: Vec<StrictIndex>,
    /// Idle state of each table.
    pub(super) idle_tables: Vec<IdleTable>,
    pub(super) records: Vec<Option<Record>>,
    pub(super) free: Vec<Slot>,
    pub(super) removed: Vec<RemovedEntry>,
    /// Counter slots of removed groups, buckets, meters and bands that workers may still use.
    pub(super) removed_counters: Vec<Slot>,
    pub(super) wheel: Wheel,
    pub(super) banks: CounterBanks,
    pub(super) ports: PortMap,
    pub(super) groups: Groups,
    pub(super) meters: BTreeMap<MeterId, MeterRecord>,
    pub(super) fdb: FdbControl,
    pub(super) standalone: Standalone,
    pub(super) normal_ingress: Arc<NormalIngress>,
    pub(super) normal_settings: Arc<NormalSettings>,
    pub(super) mirrors: Arc<Mirrors>,
    pub(super) invalid_ttl_to_controller: bool,
    pub(super) fragments: FragmentMode,
    pub(super) select_fields: FieldSet,
    pub(super) tunnels: Arc<Tunnels>,
    pub(super) oam: Arc<OamPorts>,
    pub(super) traces: Vec<Arc<LiveTrace>>,
    /// The features of each table as controllers set them; empty if no table differs from the switch's capabilities.
    pub(super) table_states: Vec<TableState>,
    /// The tables with a limit of their own.
    pub(super) limits: BTreeMap<TableId, TableLimit>,
    pub(super) evictions: Evictions,
    /// Changes since the latest [`Control::take_changes`]; `None` while no flow monitor watches.
    pub(super) changes: Option<Vec<EntryChange>>,
    /// `Some` between [`Control::begin`] and [`Control::commit`].
    pub(super) journal: Option<Journal>,
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
            standalone: Standalone::Off,
            normal_ingress: Arc::default(),
            normal_settings: Arc::default(),
            mirrors: Arc::default(),
            invalid_ttl_to_controller: false,
            fragments: FragmentMode::Normal,
            select_fields: SelectHash::FIELDS.into_iter().collect(),
            tunnels: Arc::default(),
            oam: Arc::default(),
            traces: Vec::new(),
            table_states: Vec::new(),
            limits: BTreeMap::new(),
            evictions: Evictions::default(),
            changes: None,
            journal: None,
        }
    }

    /// Returns a copy of the current state for workers. The caller takes two copies before the first request,
    /// and applies all later [`Op`]s to both. A later copy serves only for comparison.
    pub fn forwarding(&self) -> Forwarding {
        let mut forwarding = Forwarding::new(self.config.tables, self.config.seed);
        let mut apply = |op| forwarding.stage(&op);
        for (slot, record) in self.entries() {
            let entry = Arc::clone(&record.entry);
            apply(Op::Insert { slot, entry });
        }
        for port in self.ports.iter() {
            apply(Op::Port(Arc::new(port.clone())));
        }
        for meter in self.meters.values() {
            apply(Op::Meter(Arc::clone(&meter.compiled)));
        }
        for group in self.groups.from(GroupId(0)) {
            apply(Op::Group(Arc::clone(&group.compiled)));
        }
        for entry in self.fdb.iter() {
            apply(Op::Learn(Arc::clone(entry)));
        }
        for trace in &self.traces {
            apply(Op::ArmTrace(Arc::clone(trace)));
        }
        apply(Op::FlowCache(self.config.flow_cache));
        apply(Op::Standalone(self.standalone));
        apply(Op::NormalIngress(Arc::clone(&self.normal_ingress)));
        apply(Op::NormalSettings(Arc::clone(&self.normal_settings)));
        apply(Op::Mirrors(Arc::clone(&self.mirrors)));
        apply(Op::InvalidTtlToController(self.invalid_ttl_to_controller));
        apply(Op::Fragments(self.fragments));
        apply(Op::SelectFields(self.select_fields));
        apply(Op::Tunnels(Arc::clone(&self.tunnels)));
        apply(Op::Oam(Arc::clone(&self.oam)));
        forwarding.settle();
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

    /// Returns counters for one more worker, for its [`Processor`](crate::Processor). When the worker drops the
    /// counters, the next worker gets them; no count is lost.
    pub fn counters(&mut self) -> Arc<Counters> {
        self.banks.for_worker()
    }

    /// Returns counters for packets that the control side processes itself. These counters allocate memory
    /// only for entries that they count; the counters of a worker have memory for all entries.
    pub fn own_counters(&mut self) -> Arc<Counters> {
        self.banks.for_control()
    }

    /// Returns the number of packets that all workers dropped for one reason.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.banks.drops(reason)
    }

    /// Records that all workers use a state with every [`Op`] emitted so far. Appends the removed entries
    /// with `OFPFF_SEND_FLOW_REM` to `removed`, with their final counters, in the order of their removal.
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

    /// Returns the packets that NORMAL forwards because no controller is connected.
    pub fn standalone(&self) -> Standalone {
        self.standalone
    }

    /// Sets the packets that NORMAL forwards because no controller is connected.
    pub fn set_standalone(&mut self, standalone: Standalone, ops: &mut Vec<Op>) {
        if self.standalone != standalone {
            self.standalone = standalone;
            ops.push(Op::Standalone(standalone));
        }
    }

    /// Replaces the ports and VLANs whose packets NORMAL forwards without the flow tables.
    pub fn set_normal_ingress(&mut self, normal: NormalIngress, ops: &mut Vec<Op>) {
        if *self.normal_ingress != normal {
            self.normal_ingress = Arc::new(normal);
            ops.push(Op::NormalIngress(Arc::clone(&self.normal_ingress)));
        }
    }

    /// Sets what NORMAL does in the whole bridge.
    pub fn set_normal_settings(&mut self, settings: NormalSettings, ops: &mut Vec<Op>) {
        if *self.normal_settings != settings {
            self.normal_settings = Arc::new(settings);
            ops.push(Op::NormalSettings(Arc::clone(&self.normal_settings)));
        }
    }

    /// Returns the mirrors.
    pub fn mirrors(&self) -> &Mirrors {
        &self.mirrors
    }

    /// Replaces all mirrors. MAC addresses that NORMAL learned from a port that is now the output of a mirror, or in a VLAN
    /// that is, are removed.
    pub fn set_mirrors(&mut self, mirrors: Mirrors, ops: &mut Vec<Op>) {
        if *self.mirrors == mirrors {
            return;
        }
        self.mirrors = Arc::new(mirrors);
        let mirrors = &self.mirrors;
        self.fdb.forget(
            |entry| mirrors.has_output_port(entry.port) || mirrors.has_output_vlan(entry.key.vid),
            ops,
        );
        ops.push(Op::Mirrors(Arc::clone(mirrors)));
    }

    /// Sets whether packets with an invalid TTL cause packet-ins: true while a controller has `OFPR_INVALID_TTL` in
    /// its asynchronous configuration.
    pub fn set_invalid_ttl_to_controller(&mut self, on: bool, ops: &mut Vec<Op>) {
        if self.invalid_ttl_to_controller != on {
            self.invalid_ttl_to_controller = on;
            ops.push(Op::InvalidTtlToController(on));
        }
    }

    /// Replaces the ports whose OAM frames go to the control side.
    pub fn set_oam(&mut self, oam: OamPorts, ops: &mut Vec<Op>) {
        if *self.oam != oam {
            self.oam = Arc::new(oam);
            ops.push(Op::Oam(Arc::clone(&self.oam)));
        }
    }

    /// Replaces all tunnels. The caller adds the tunnels' logical ports and underlay ports separately.
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

    /// Disarms a trace: the workers record no further packets for it.
    pub fn disarm_trace(&mut self, id: u64, ops: &mut Vec<Op>) {
        self.traces.retain(|armed| armed.id() != id);
        ops.push(Op::DisarmTrace(id));
    }

    /// Emits [`Op::Optimize`] for the tables that are idle. Called periodically.
    pub fn optimize_idle_tables(&mut self, now: Time, ops: &mut Vec<Op>) {
        for (number, (idle, table)) in self.idle_tables.iter_mut().zip(&self.tables).enumerate() {
            if idle.is_due(table.changes(), now) {
                ops.push(Op::Optimize(TableId(number as u8)));
            }
        }
    }

    /// Starts or stops recording changes.
    pub fn set_watched(&mut self, watched: bool) {
        if watched != self.changes.is_some() {
            self.changes = watched.then(Vec::new);
        }
    }

    /// Returns the changes since the latest call.
    pub fn take_changes(&mut self) -> Vec<EntryChange> {
        self.changes.as_mut().map(core::mem::take).unwrap_or_default()
    }

    /// Returns the entry at a slot.
    pub fn entry(&self, slot: Slot) -> Option<&Arc<FlowEntry>> {
        self.record(slot).map(|record| &record.entry)
    }

    /// Returns the number of entries in all tables.
    pub fn entry_len(&self) -> usize {
        self.tables.iter().map(StrictIndex::len).sum()
    }

    pub(super) fn record(&self, slot: Slot) -> Option<&Record> {
        self.records.get(slot.index())?.as_ref()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (Slot, &Record)> {
        let numbered = self.records.iter().enumerate();
        numbered.filter_map(|(at, record)| Some((Slot::new(at as u32), record.as_ref()?)))
    }

    /// Returns an unused slot.
    pub(super) fn allocate(&mut self) -> Slot {
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
    pub(super) fn free_slots(&self) -> usize {
        self.free.len() + Counters::ENTRIES_MAX.saturating_sub(self.records.len())
    }

    /// Returns an unused slot, with counters of zero, for something other than a flow entry.
    pub(super) fn allocate_counters(&mut self) -> Slot {
        let slot = self.allocate();
        self.banks.set_entry(slot, EntryCount::default());
        slot
    }

    /// Stores an entry at a slot, with a timer if it has a time-out.
    pub(super) fn store(&mut self, slot: Slot, entry: Arc<FlowEntry>) {
        let (table, refers) = (entry.table(), entry.refers());
        let mut record = Record {
            entry,
            timer: Tick::NONE,
            table,
            refers,
        };
        let due = expiry_time(&record.entry, self.banks.entry(slot).last_used);
        if let Some(due) = due {
            record.timer = self.wheel.add(slot, due);
        }
        if let Some(stored) = self.records.get_mut(slot.index()) {
            *stored = Some(record);
        }
        if let Some(due) = due {
            self.push_expiry(table, slot, due);
        }
    }

    /// Removes an entry from its table. The removal is reported if the entry's flags ask for that and
    /// `reason` is `Some`.
    pub(super) fn remove(&mut self, slot: Slot, reason: Option<RemovedReason>, now: Time, ops: &mut Vec<Op>) {
        let Some(record) = self.records.get_mut(slot.index()).and_then(Option::take) else {
            return;
        };
        if let Some(index) = self.tables.get_mut(usize::from(record.table.0)) {
            index.remove(&record.entry, slot);
        }
        ops.push(Op::Remove { slot });
        self.record_undo(|| Undo::Removed(slot, record.clone()));
        self.note_change(
            ChangeKind::Removed(reason.unwrap_or(RemovedReason::Delete)),
            false,
            &record.entry,
        );
        self.retire(slot, record, reason, now);
    }

    /// Keeps the slot of a removed entry until [`Control::published`].
    pub(super) fn retire(&mut self, slot: Slot, record: Record, reason: Option<RemovedReason>, now: Time) {
        let reports = record.entry.flags().contains(FlowFlags::SEND_FLOW_REM);
        self.removed.push(RemovedEntry {
            slot,
            entry: record.entry,
            reason: reason.filter(|_| reports),
            at: now,
        });
    }

    /// Records a change for flow monitors. `is_new` is true if the entry was added and replaced no other
    /// entry.
    pub(super) fn note_change(&mut self, kind: ChangeKind, is_new: bool, entry: &Arc<FlowEntry>) {
        if let Some(changes) = &mut self.changes {
            let entry = Arc::clone(entry);
            changes.push(EntryChange { kind, is_new, entry });
        }
    }
}
