//! The readers' copy of one bridge: all that a worker needs to process a packet.
//!
//! Only [`Forwarding::apply`] changes a `Forwarding`, deterministically and in amortized constant time, so that two
//! copies with the same [`Op`]s are equal. Workers read it and write nothing but the atomics inside (the time when a
//! MAC address was seen, the number of packets that a trace waits for).

use std::sync::Arc;

use millrace_flow::classify::{Adaptive, CacheForm, Classifier, Slot, prefetch};
use millrace_flow::{Action, Field, FieldSet, FlowMask, Layer, Rule, depth_for};
use millrace_types::{GroupId, MeterId, PortNo, TableId};
use millrace_wire::Depth;
use millrace_wire::rewrite::HeaderRewrite;

use crate::action_summary::{ActionSummary, Kind};
use crate::fdb::Fdb;
use crate::group::{CompiledGroup, GroupMap, SelectHash};
use crate::meter::{CompiledMeter, MeterMap};
use crate::port::PortMap;
use crate::processor::traversal;
use crate::rewrite::Rewrites;
use crate::{
    FlowCachePolicy, FlowEntry, FragmentMode, LiveTrace, Mirrors, NormalIngress, NormalSettings, OamPorts,
    Op, Port, PortConfig, Standalone, Tunnels,
};

/// The readers' copy of one bridge.
#[derive(Clone, Debug)]
pub struct Forwarding {
    tables: Vec<Adaptive>,
    /// Entries of all tables, by slot.
    entries: Vec<Option<Arc<FlowEntry>>>,
    /// The summary of each entry, by slot.
    summaries: Vec<ActionSummary>,
    /// The rewrites of entries of [`Kind::Rewrite`].
    rewrites: Rewrites,
    fields: FieldUse,
    ports: PortMap,
    groups: GroupMap,
    select_hash: SelectHash,
    meters: MeterMap,
    fdb: Fdb,
    standalone: Standalone,
    /// `None` without such ports and VLANs.
    normal_ingress: Option<Arc<NormalIngress>>,
    normal_settings: Arc<NormalSettings>,
    /// `None` without mirrors.
    mirrors: Option<Arc<Mirrors>>,
    invalid_ttl_to_controller: bool,
    fragments: FragmentMode,
    /// `None` without tunnels.
    tunnels: Option<Arc<Tunnels>>,
    /// `None` without monitored ports.
    oam: Option<Arc<OamPorts>>,
    traces: Vec<Arc<LiveTrace>>,
    seed: u64,
    flow_cache: FlowCachePolicy,
    /// The number of changes of tables so far.
    generation: u64,
    /// By table, the generation of its last change.
    changed: Vec<u64>,
    /// By table, the bits that its entries match; `None` without entries.
    masks: Vec<Option<FlowMask>>,
    /// The form of cached traversals, and the generation at which this form began.
    cache_form: (CacheForm, u64),
}

/// Returns the bits that the entries of a table match, if it has entries.
fn mask_of(table: &Adaptive) -> Option<FlowMask> {
    (!table.is_empty()).then(|| table.mask())
}

/// Sets or clears the bit of a port by which it carries copies of mirrors only.
fn mark_mirror_output(port: &mut Port, mirrors: Option<&Mirrors>) {
    let is_output = mirrors.is_some_and(|mirrors| mirrors.has_output_port(port.number));
    let bit = PortConfig::MIRROR_OUTPUT.0;
    port.config.0 = port.config.0 & !bit | if is_output { bit } else { 0 };
}

/// The number of entries and traces that match each field, and the parse depth that follows from the matched fields.
#[derive(Clone, Debug)]
struct FieldUse {
    entries: [u32; Field::ALL.len()],
    depth: Option<Depth>,
    /// True if some entry or trace matches a field other than in_port and in_phy_port.
    beyond_in_port: bool,
}

impl FieldUse {
    fn none() -> FieldUse {
        FieldUse {
            entries: [0; Field::ALL.len()],
            depth: None,
            beyond_in_port: false,
        }
    }

    fn add(&mut self, fields: FieldSet) {
        for field in fields.iter() {
            let users = &mut self.entries[usize::from(field.index())];
            *users += 1;
            if *users == 1 {
                self.conclude();
            }
        }
    }

    fn remove(&mut self, fields: FieldSet) {
        for field in fields.iter() {
            let users = &mut self.entries[usize::from(field.index())];
            *users = users.saturating_sub(1);
            if *users == 0 {
                self.conclude();
            }
        }
    }

    fn conclude(&mut self) {
        let is_used = |field: &Field| self.entries[usize::from(field.index())] > 0;
        let used: FieldSet = Field::ALL.into_iter().filter(is_used).collect();
        self.depth = depth_for(used);
        self.beyond_in_port = used
            .iter()
            .any(|field| !matches!(field, Field::InPort | Field::InPhyPort));
    }
}

impl Forwarding {
    /// Returns an empty bridge with this many tables (1 to 255). `seed` keys every hash: two copies need the same.
    pub fn new(tables: u8, seed: u64) -> Forwarding {
        let mut forwarding = Forwarding {
            tables: Vec::new(),
            entries: Vec::new(),
            summaries: Vec::new(),
            rewrites: Rewrites::default(),
            fields: FieldUse::none(),
            ports: PortMap::default(),
            groups: GroupMap::default(),
            meters: MeterMap::default(),
            select_hash: SelectHash::new(seed, SelectHash::FIELDS.into_iter().collect()),
            fdb: Fdb::new(seed),
            standalone: Standalone::Off,
            normal_ingress: None,
            normal_settings: Arc::default(),
            mirrors: None,
            invalid_ttl_to_controller: false,
            fragments: FragmentMode::Normal,
            tunnels: None,
            oam: None,
            traces: Vec::new(),
            seed,
            flow_cache: FlowCachePolicy::default(),
            generation: 0,
            changed: Vec::new(),
            masks: Vec::new(),
            cache_form: (CacheForm::new(seed, &FlowMask::default(), traversal::words(1)), 0),
        };
        forwarding.set_table_len(tables);
        forwarding
    }

    /// Applies one change.
    pub fn apply(&mut self, op: &Op) {
        self.stage(op);
        self.settle();
    }

    /// Completes the changes of [`Self::stage`].
    pub fn settle(&mut self) {
        self.groups.settle(&self.ports);
    }

    /// Applies one of several changes; [`Self::settle`] follows the last one, before packets are processed.
    pub fn stage(&mut self, op: &Op) {
        match op {
            Op::Insert { slot, entry } => self.insert(*slot, entry),
            Op::Replace { slot, entry } => {
                self.note_change(entry.table());
                self.set_entry(*slot, Some(entry));
            }
            Op::Remove { slot } => self.remove(*slot),
            Op::Clear => self.clear(),
            Op::Port(port) => {
                let mut port = Port::clone(port);
                mark_mirror_output(&mut port, self.mirrors.as_deref());
                self.ports.insert(port);
                self.groups.note_port();
            }
            Op::RemovePort(number) => {
                self.ports.remove(*number);
                self.groups.note_port();
            }
            Op::Group(group) => self.groups.insert(Arc::clone(group)),
            Op::Meter(meter) => self.meters.insert(meter),
            Op::RemoveMeter(id) => self.meters.remove(*id),
            Op::RemoveGroup(id) => self.groups.remove(*id),
            Op::Learn(entry) => {
                self.fdb.insert(Arc::clone(entry));
            }
            Op::Forget(key) => {
                self.fdb.remove(*key);
            }
            Op::FlushFdb => self.fdb.clear(),
            Op::Standalone(standalone) => self.standalone = *standalone,
            Op::NormalIngress(normal) => {
                self.normal_ingress = Some(Arc::clone(normal)).filter(|normal| !normal.is_empty());
            }
            Op::NormalSettings(settings) => self.normal_settings = Arc::clone(settings),
            Op::Mirrors(mirrors) => {
                self.mirrors = Some(Arc::clone(mirrors)).filter(|mirrors| !mirrors.is_empty());
                let mirrors = self.mirrors.as_deref();
                self.ports.change_all(|port| mark_mirror_output(port, mirrors));
            }
            Op::InvalidTtlToController(on) => self.invalid_ttl_to_controller = *on,
            Op::ArmTrace(trace) => {
                self.disarm(trace.id());
                self.fields.add(trace.fields());
                self.traces.push(Arc::clone(trace));
            }
            Op::DisarmTrace(id) => self.disarm(*id),
            Op::Tables { len } => self.set_table_len(*len),
            Op::Tunnels(tunnels) => {
                self.tunnels = Some(Arc::clone(tunnels)).filter(|tunnels| !tunnels.is_empty());
            }
            Op::Oam(oam) => self.oam = Some(Arc::clone(oam)).filter(|oam| !oam.is_empty()),
            Op::SelectFields(fields) => self.select_hash = SelectHash::new(self.seed, *fields),
            Op::Fragments(mode) => self.fragments = *mode,
            Op::FlowCache(policy) => self.flow_cache = *policy,
            Op::Optimize(table) => {
                if let Some(table) = self.tables.get_mut(usize::from(table.0)) {
                    table.optimize();
                }
            }
        }
    }

    fn insert(&mut self, slot: Slot, entry: &Arc<FlowEntry>) {
        let Some(table) = self.tables.get_mut(usize::from(entry.table().0)) else {
            return;
        };
        table.insert(&entry.rule(), slot);
        self.note_change(entry.table());
        self.fields.add(entry.match_().fields());
        if self.entries.len() <= slot.index() {
            self.entries.resize(slot.index() + 1, None);
            self.summaries.resize(slot.index() + 1, ActionSummary::VACANT);
        }
        self.set_entry(slot, Some(entry));
    }

    /// Changes the entry at an existing slot. Returns the previous entry.
    fn set_entry(&mut self, slot: Slot, entry: Option<&Arc<FlowEntry>>) -> Option<Arc<FlowEntry>> {
        let place = self.entries.get_mut(slot.index())?;
        let summary = self.summaries.get_mut(slot.index())?;
        if summary.kind() == Kind::Rewrite {
            self.rewrites.remove(summary.rewrite_index());
        }
        *summary = entry.map_or(ActionSummary::VACANT, |entry| ActionSummary::of(entry));
        if summary.kind() == Kind::Change
            && let Some([changes @ .., Action::Output { port, .. }]) = entry.map(|entry| entry.actions())
            && let Ok(port) = u16::try_from(port.raw())
            && let Some(index) = self.rewrites.insert(changes)
        {
            summary.set_rewrite(index, port);
        }
        core::mem::replace(place, entry.cloned())
    }

    fn remove(&mut self, slot: Slot) {
        let Some(entry) = self.set_entry(slot, None) else {
            return;
        };
        self.fields.remove(entry.match_().fields());
        let Some(table) = self.tables.get_mut(usize::from(entry.table().0)) else {
            return;
        };
        let rule = entry.rule();
        match table.remove(&rule) {
            // Another slot has the rule by now and keeps it.
            Some(other) if other != slot => {
                table.insert(&rule, other);
            }
            _ => {}
        }
        self.note_change(entry.table());
    }

    /// Updates the values that depend on a table, after the table has changed.
    fn note_change(&mut self, table: TableId) {
        let number = usize::from(table.0);
        let (Some(changed), Some(held)) = (self.changed.get_mut(number), self.masks.get_mut(number)) else {
            return;
        };
        self.generation += 1;
        *changed = self.generation;
        let mask = mask_of(&self.tables[number]);
        if *held != mask {
            *held = mask;
            self.form_cache();
        }
    }

    /// Updates the form of cached traversals to the masks of all tables.
    fn form_cache(&mut self) {
        let mut all = FlowMask::default();
        self.masks.iter().flatten().for_each(|mask| all.merge(mask));
        // A match on a masked port does not compare the layer's bit. The cache must compare it, because set_field
        // changes no port in a packet without ports.
        if all.0.field(Field::TcpSrc) | all.0.field(Field::TcpDst) != 0 {
            all.0.add_layer(Layer::L4);
        }
        let tables = self.masks.iter().flatten().count();
        let form = CacheForm::new(self.seed, &all, traversal::words(tables));
        if self.cache_form.0 != form {
            self.cache_form = (form, self.generation);
        }
    }

    fn clear(&mut self) {
        let tables = self.tables.len();
        self.tables.clear();
        self.set_table_len(tables as u8);
        self.entries = Vec::new();
        self.summaries = Vec::new();
        self.rewrites.clear();
        self.fields = FieldUse::none();
        for trace in &self.traces {
            self.fields.add(trace.fields());
        }
    }

    fn disarm(&mut self, id: u64) {
        let fields = &mut self.fields;
        self.traces.retain(|trace| {
            let stays = trace.id() != id;
            if !stays {
                fields.remove(trace.fields());
            }
            stays
        });
    }

    fn set_table_len(&mut self, len: u8) {
        let len = usize::from(len.clamp(1, TableId::MAX.0 + 1));
        self.generation += 1;
        self.changed.resize(len, self.generation);
        self.changed.fill(self.generation);
        self.masks.resize(len, None);
        let mut number = self.tables.len() as u64;
        self.tables.resize_with(len, || {
            number += 1;
            Adaptive::new(self.seed.wrapping_add(number))
        });
        for (mask, table) in self.masks.iter_mut().zip(&self.tables) {
            *mask = mask_of(table);
        }
        self.form_cache();
    }

    /// Returns the policy for the workers' caches of traversals.
    #[inline]
    pub fn flow_cache(&self) -> FlowCachePolicy {
        self.flow_cache
    }

    /// Returns the number of changes of tables so far. Values derived from the tables are valid while this number stays
    /// the same.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the generation of the last change of a table.
    #[inline]
    pub(crate) fn changed(&self, table: TableId) -> u64 {
        let changed = self.changed.get(usize::from(table.0));
        changed.copied().unwrap_or(self.generation)
    }

    /// Returns the form of cached traversals, and the generation at which this form began.
    #[inline(always)]
    pub(crate) fn cache_form(&self) -> (&CacheForm, u64) {
        (&self.cache_form.0, self.cache_form.1)
    }

    /// Returns the bits by which the tables tell packets apart, and their version: packets that are equal in these bits meet
    /// the same entries. The version changes with the bits, and never comes again.
    pub fn match_bits(&self) -> (FlowMask, u64) {
        (self.cache_form.0.mask(), self.cache_form.1)
    }

    /// Returns the number of tables.
    pub fn table_len(&self) -> usize {
        self.tables.len()
    }

    /// Returns the classifier of a table, for `millrace show tables`.
    pub fn table(&self, table: TableId) -> Option<&Adaptive> {
        self.tables.get(usize::from(table.0))
    }

    /// Returns the entry at a slot.
    pub fn entry(&self, slot: Slot) -> Option<&Arc<FlowEntry>> {
        self.entries.get(slot.index())?.as_ref()
    }

    /// Returns the entry of a table with this rule. The search compares every entry: it is for requests of
    /// operators only.
    pub fn find(&self, table: TableId, rule: &Rule) -> Option<&Arc<FlowEntry>> {
        self.entries
            .iter()
            .flatten()
            .find(|entry| entry.table() == table && entry.rule() == *rule)
    }

    /// Returns the summary of the entry at a slot.
    #[inline(always)]
    pub(crate) fn summary(&self, slot: Slot) -> &ActionSummary {
        self.summaries.get(slot.index()).unwrap_or(&ActionSummary::VACANT)
    }

    /// Returns the summaries of all entries, by the index of the slot.
    #[inline(always)]
    pub(crate) fn summaries(&self) -> &[ActionSummary] {
        &self.summaries
    }

    /// Returns the rewrites of all entries, by [`ActionSummary::rewrite_index`].
    #[inline(always)]
    pub(crate) fn rewrites(&self) -> &[HeaderRewrite] {
        self.rewrites.all()
    }

    /// Prefetches the pointer to an entry.
    #[inline(always)]
    pub(crate) fn prefetch_entry(&self, slot: Slot) {
        prefetch(&self.entries, slot.index());
    }

    /// Returns a port.
    #[inline]
    pub fn port(&self, number: PortNo) -> Option<&Port> {
        self.ports.port(number)
    }

    /// Returns all ports, in order of numbers.
    pub fn ports(&self) -> impl Iterator<Item = &Port> {
        self.ports.iter()
    }

    #[inline]
    pub(crate) fn port_map(&self) -> &PortMap {
        &self.ports
    }

    /// Returns a group.
    #[inline]
    pub fn group(&self, id: GroupId) -> Option<&CompiledGroup> {
        self.groups.group(id)
    }

    /// Returns a meter.
    #[inline]
    pub fn meter(&self, id: MeterId) -> Option<&CompiledMeter> {
        self.meters.meter(id)
    }

    /// Returns the meter that packet-ins pass.
    #[inline]
    pub(crate) fn controller_meter(&self) -> Option<&CompiledMeter> {
        self.meters.controller()
    }

    #[inline]
    pub(crate) fn groups(&self) -> &GroupMap {
        &self.groups
    }

    #[inline]
    pub(crate) fn select_hash(&self) -> &SelectHash {
        &self.select_hash
    }

    #[inline]
    pub(crate) fn fdb(&self) -> &Fdb {
        &self.fdb
    }

    /// Returns the number of entries in the MAC table.
    pub fn fdb_len(&self) -> usize {
        self.fdb.len()
    }

    /// Returns the packets that NORMAL forwards because no controller is connected.
    #[inline]
    pub fn standalone(&self) -> Standalone {
        self.standalone
    }

    /// Returns the ports and VLANs whose packets NORMAL forwards without the flow tables, if there are any.
    #[inline]
    pub(crate) fn normal_ingress(&self) -> Option<&NormalIngress> {
        self.normal_ingress.as_deref()
    }

    /// Returns what NORMAL does in the whole bridge.
    #[inline]
    pub(crate) fn normal_settings(&self) -> &NormalSettings {
        &self.normal_settings
    }

    /// Returns the mirrors, if there are any.
    #[inline]
    pub fn mirrors(&self) -> Option<&Mirrors> {
        self.mirrors.as_deref()
    }

    #[inline]
    pub(crate) fn invalid_ttl_to_controller(&self) -> bool {
        self.invalid_ttl_to_controller
    }

    #[inline]
    pub(crate) fn fragments(&self) -> FragmentMode {
        self.fragments
    }

    #[inline]
    pub(crate) fn oam(&self) -> Option<&OamPorts> {
        self.oam.as_deref()
    }

    #[inline]
    pub(crate) fn tunnels(&self) -> Option<&Tunnels> {
        self.tunnels.as_deref()
    }

    #[inline]
    pub(crate) fn traces(&self) -> &[Arc<LiveTrace>] {
        &self.traces
    }

    /// Returns how deep packets are parsed; `None` if they are not parsed at all.
    #[inline]
    pub fn depth(&self) -> Option<Depth> {
        self.fields.depth
    }

    /// Returns true if all packets of one port look the same to all tables.
    #[inline]
    pub(crate) fn matches_in_port_only(&self) -> bool {
        !self.fields.beyond_in_port
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_go_to_other_threads_and_are_read_by_many() {
        fn is_shared<T: Send + Sync>() {}
        is_shared::<Forwarding>();
        is_shared::<Op>();
    }

    #[test]
    fn fields_that_nobody_matches_any_more_are_not_parsed() {
        let mut fields = FieldUse::none();
        let set = |list: &[Field]| list.iter().copied().collect::<FieldSet>();
        fields.add(set(&[Field::InPort, Field::EthType, Field::TcpDst]));
        fields.add(set(&[Field::VlanVid]));
        assert_eq!(fields.depth, Some(Depth::L4));
        fields.remove(set(&[Field::InPort, Field::EthType, Field::TcpDst]));
        assert_eq!(fields.depth, Some(Depth::L2));
        fields.remove(set(&[Field::VlanVid]));
        assert!(fields.depth.is_none() && !fields.beyond_in_port);
    }
}
