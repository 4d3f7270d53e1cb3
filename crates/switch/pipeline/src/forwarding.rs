//! The readers' copy of one bridge: all that a worker needs to know to process a packet.
//!
//! A `Forwarding` is a value that only [`Forwarding::apply`] changes, deterministically and in amortised
//! constant time, so that two copies which got the same [`Op`]s are equal. Workers read it and never write
//! it, except for the atomics inside (when a station was seen, how many packets a trace waits for).

use std::sync::Arc;

use millrace_flow::classify::{Adaptive, CacheForm, Classifier, Slot, prefetch};
use millrace_flow::{Action, Field, FieldSet, FlowMask, Rule, depth_for};
use millrace_types::{GroupId, MeterId, PortNo, TableId};
use millrace_wire::Depth;
use millrace_wire::rewrite::HeaderRewrite;

use crate::fdb::Fdb;
use crate::gist::{Gist, Kind};
use crate::group::{GroupMap, ReadyGroup, SelectHash};
use crate::meter::{MeterMap, ReadyMeter};
use crate::port::PortMap;
use crate::processor::path;
use crate::rewrite::Rewrites;
use crate::{FlowEntry, FragmentMode, LiveTrace, Op, Port, Tunnels};

/// The readers' copy of one bridge.
#[derive(Clone, Debug)]
pub struct Forwarding {
    tables: Vec<Adaptive>,
    /// Entries of all tables, by slot.
    entries: Vec<Option<Arc<FlowEntry>>>,
    /// The gist of each entry, by slot.
    gists: Vec<Gist>,
    /// What entries of [`Kind::Rewrite`] do to packets.
    rewrites: Rewrites,
    fields: FieldUse,
    ports: PortMap,
    groups: GroupMap,
    select_hash: SelectHash,
    meters: MeterMap,
    fdb: Fdb,
    standalone: bool,
    invalid_ttl_to_controller: bool,
    fragments: FragmentMode,
    /// `None` where there are none.
    tunnels: Option<Arc<Tunnels>>,
    traces: Vec<Arc<LiveTrace>>,
    seed: u64,
    flow_cache: FlowCachePolicy,
    /// Counts the changes to tables.
    generation: u64,
    /// By table, the generation that its last change made.
    changed: Vec<u64>,
    /// By table, every bit that an entry matches; `None` without entries.
    masks: Vec<Option<FlowMask>>,
    /// For all tables, and the generation since which it is so.
    cache_form: (CacheForm, u64),
}

/// Every bit that an entry of a table matches, if there is one.
fn mask_of(table: &Adaptive) -> Option<FlowMask> {
    (!table.is_empty()).then(|| table.mask())
}

/// Whether workers keep the paths of packets through the tables, to take them again without a lookup. It makes no
/// difference to what happens to packets, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FlowCachePolicy {
    /// Never.
    Off,
    /// While it saves time.
    #[default]
    Auto,
    /// Whether it saves time or not: for tests and measurements.
    Always,
}

/// Which fields are matched, by how many entries and traces, and what follows from that.
#[derive(Clone, Debug)]
struct FieldUse {
    entries: [u32; Field::ALL.len()],
    depth: Option<Depth>,
    /// Whether any field but the ingress port is matched.
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
    /// An empty bridge with this many tables (1 to 255). `seed` keys every hash: two copies need the same.
    pub fn new(tables: u8, seed: u64) -> Forwarding {
        let mut forwarding = Forwarding {
            tables: Vec::new(),
            entries: Vec::new(),
            gists: Vec::new(),
            rewrites: Rewrites::default(),
            fields: FieldUse::none(),
            ports: PortMap::default(),
            groups: GroupMap::default(),
            meters: MeterMap::default(),
            select_hash: SelectHash::new(seed, SelectHash::FIELDS.into_iter().collect()),
            fdb: Fdb::new(seed),
            standalone: false,
            invalid_ttl_to_controller: false,
            fragments: FragmentMode::Normal,
            tunnels: None,
            traces: Vec::new(),
            seed,
            flow_cache: FlowCachePolicy::default(),
            generation: 0,
            changed: Vec::new(),
            masks: Vec::new(),
            cache_form: (CacheForm::new(seed, &FlowMask::default(), path::words(1)), 0),
        };
        forwarding.set_table_len(tables);
        forwarding
    }

    /// Makes one change.
    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::Insert { slot, entry } => self.insert(*slot, entry),
            Op::Replace { slot, entry } => {
                self.note_change(entry.table());
                self.set_entry(*slot, Some(entry));
            }
            Op::Remove { slot } => self.remove(*slot),
            Op::Clear => self.clear(),
            Op::Port(port) => {
                self.ports.insert(Port::clone(port));
                self.groups.refresh(&self.ports);
            }
            Op::RemovePort(number) => {
                self.ports.remove(*number);
                self.groups.refresh(&self.ports);
            }
            Op::Group(group) => self.groups.insert(Arc::clone(group), &self.ports),
            Op::Meter(meter) => self.meters.insert(meter),
            Op::RemoveMeter(id) => self.meters.remove(*id),
            Op::RemoveGroup(id) => self.groups.remove(*id, &self.ports),
            Op::Learn(entry) => {
                self.fdb.insert(Arc::clone(entry));
            }
            Op::Forget(station) => {
                self.fdb.remove(*station);
            }
            Op::FlushFdb => self.fdb.clear(),
            Op::Standalone(standalone) => self.standalone = *standalone,
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
            Op::SelectFields(fields) => self.select_hash = SelectHash::new(self.seed, *fields),
            Op::Fragments(mode) => self.fragments = *mode,
            Op::FlowCache(policy) => self.flow_cache = *policy,
            Op::Settle(table) => {
                if let Some(table) = self.tables.get_mut(usize::from(table.0)) {
                    table.settle();
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
            self.gists.resize(slot.index() + 1, Gist::VACANT);
        }
        self.set_entry(slot, Some(entry));
    }

    /// Changes what is at a slot that there is; answers what was there.
    fn set_entry(&mut self, slot: Slot, entry: Option<&Arc<FlowEntry>>) -> Option<Arc<FlowEntry>> {
        let place = self.entries.get_mut(slot.index())?;
        let gist = self.gists.get_mut(slot.index())?;
        if gist.kind() == Kind::Rewrite {
            self.rewrites.remove(gist.rewrite_index());
        }
        *gist = entry.map_or(Gist::VACANT, |entry| Gist::of(entry));
        if gist.kind() == Kind::Change
            && let Some([changes @ .., Action::Output { port, .. }]) = entry.map(|entry| entry.actions())
            && let Ok(port) = u16::try_from(port.raw())
            && let Some(index) = self.rewrites.insert(changes)
        {
            gist.set_rewrite(index, port);
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
            // Another slot had taken over this rule: it keeps it.
            Some(other) if other != slot => {
                table.insert(&rule, other);
            }
            _ => {}
        }
        self.note_change(entry.table());
    }

    /// After a change of a table.
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

    /// Makes the form of the cache that of all tables.
    fn form_cache(&mut self) {
        let mut all = FlowMask::default();
        self.masks.iter().flatten().for_each(|mask| all.merge(mask));
        let tables = self.masks.iter().flatten().count();
        let form = CacheForm::new(self.seed, &all, path::words(tables));
        if self.cache_form.0 != form {
            self.cache_form = (form, self.generation);
        }
    }

    fn clear(&mut self) {
        let tables = self.tables.len();
        self.tables.clear();
        self.set_table_len(tables as u8);
        self.entries = Vec::new();
        self.gists = Vec::new();
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

    /// Whether workers keep paths.
    #[inline]
    pub fn flow_cache(&self) -> FlowCachePolicy {
        self.flow_cache
    }

    /// How many changes to tables there have been: what follows from tables is true while this is the same.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The generation that the last change of a table made.
    #[inline]
    pub(crate) fn changed(&self, table: TableId) -> u64 {
        let changed = self.changed.get(usize::from(table.0));
        changed.copied().unwrap_or(self.generation)
    }

    /// What decides about the path of a packet, and the generation since which it is that.
    #[inline(always)]
    pub(crate) fn cache_form(&self) -> (&CacheForm, u64) {
        (&self.cache_form.0, self.cache_form.1)
    }

    /// Number of tables.
    pub fn table_len(&self) -> usize {
        self.tables.len()
    }

    /// The classifier of a table, for `millrace show tables`.
    pub fn table(&self, table: TableId) -> Option<&Adaptive> {
        self.tables.get(usize::from(table.0))
    }

    /// The entry at a slot.
    pub fn entry(&self, slot: Slot) -> Option<&Arc<FlowEntry>> {
        self.entries.get(slot.index())?.as_ref()
    }

    /// The entry with this rule, of all that a table holds. Looks at every entry: for people's questions.
    pub fn find(&self, table: TableId, rule: &Rule) -> Option<&Arc<FlowEntry>> {
        self.entries
            .iter()
            .flatten()
            .find(|entry| entry.table() == table && entry.rule() == *rule)
    }

    /// The gist of the entry at a slot.
    #[inline(always)]
    pub(crate) fn gist(&self, slot: Slot) -> &Gist {
        self.gists.get(slot.index()).unwrap_or(&Gist::VACANT)
    }

    /// The gists of all entries, by the index of the slot.
    #[inline(always)]
    pub(crate) fn gists(&self) -> &[Gist] {
        &self.gists
    }

    /// Returns the rewrites of all entries, by [`Gist::rewrite_index`].
    #[inline(always)]
    pub(crate) fn rewrites(&self) -> &[HeaderRewrite] {
        self.rewrites.all()
    }

    /// Asks for the place to be brought near that says where an entry is.
    #[inline(always)]
    pub(crate) fn prefetch_entry(&self, slot: Slot) {
        prefetch(&self.entries, slot.index());
    }

    /// A port.
    #[inline]
    pub fn port(&self, number: PortNo) -> Option<&Port> {
        self.ports.port(number)
    }

    /// All ports, in order of numbers.
    pub fn ports(&self) -> impl Iterator<Item = &Port> {
        self.ports.iter()
    }

    #[inline]
    pub(crate) fn port_map(&self) -> &PortMap {
        &self.ports
    }

    /// A group.
    #[inline]
    pub fn group(&self, id: GroupId) -> Option<&ReadyGroup> {
        self.groups.group(id)
    }

    /// A meter.
    #[inline]
    pub fn meter(&self, id: MeterId) -> Option<&ReadyMeter> {
        self.meters.meter(id)
    }

    /// The meter that packet-ins pass.
    #[inline]
    pub(crate) fn controller_meter(&self) -> Option<&ReadyMeter> {
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

    /// Number of stations in the MAC table.
    pub fn fdb_len(&self) -> usize {
        self.fdb.len()
    }

    /// Whether packets that match nothing are forwarded by NORMAL.
    #[inline]
    pub fn is_standalone(&self) -> bool {
        self.standalone
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
    pub(crate) fn tunnels(&self) -> Option<&Tunnels> {
        self.tunnels.as_deref()
    }

    #[inline]
    pub(crate) fn traces(&self) -> &[Arc<LiveTrace>] {
        &self.traces
    }

    /// How deep packets are parsed; `None`: not at all.
    #[inline]
    pub fn depth(&self) -> Option<Depth> {
        self.fields.depth
    }

    /// Whether all packets of one port look the same to all tables.
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
