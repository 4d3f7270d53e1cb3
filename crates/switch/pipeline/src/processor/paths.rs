//! The cache of paths of one worker: which are kept, and which of them are still true.
//!
//! A path is true as long as no table on it has changed. Paths through the same tables have one *shape*, and each
//! shape knows when one of its tables changed last; so a change of a table costs the paths through it, and no other.

use arrayvec::ArrayVec;
use millrace_flow::FlowKey;
use millrace_flow::classify::{BURST, CacheForm, CacheIndex, Classifier, FlowCache, HeaderColumns, Slot};
use millrace_types::TableId;
use millrace_wire::Packet;

use super::governor::{self, Governor};
use super::path::{self, EPOCHS, Path, STEPS_MAX, Sum};
use crate::{Counters, FlowCachePolicy, Forwarding};

/// Shapes, at most.
const SHAPES: usize = 64;
/// Paths that are noted in one burst, at most.
const NOTES: usize = 8;
/// Of the paths for which another is forgotten, one of so many is noted: where there are more flows than room, those that
/// are known stay known, and the others do not each cost what it costs to note them.
const DISPLACING: u32 = 8;

/// The tables on a path.
#[derive(Clone, Debug)]
struct Shape {
    tables: ArrayVec<TableId, STEPS_MAX>,
    /// Where the path meets a table-miss entry, one bit for each step.
    misses: u32,
    /// The last change of one of them.
    changed: u64,
    /// Counts these changes: paths of an epoch before this are no longer true.
    epoch: u64,
    /// Packets of this burst.
    packets: u64,
}

/// A packet that goes through the tables and whose path is noted.
#[derive(Debug)]
struct Note {
    /// Its place in the burst.
    packet: u8,
    /// The key with which it came.
    key: FlowKey,
    /// Whether it came with one VLAN tag.
    has_one_tag: bool,
    slots: ArrayVec<Slot, STEPS_MAX>,
    /// Whether it met a table without an entry for it, or more tables than are noted.
    is_lost: bool,
}

/// See the beginning of this file.
#[derive(Debug)]
pub(crate) struct Paths {
    cache: FlowCache,
    shapes: Vec<Shape>,
    /// The state of the forwarding that the shapes are up to date with, and of the form.
    generation: u64,
    form_version: u64,
    notes: Vec<Note>,
    /// Paths for which another would have had to be forgotten.
    crowded: u32,
    /// Packets whose path is noted, one bit each.
    pub(crate) noted: u64,
    governor: Governor,
    /// Lookups of each table in this window.
    visits: Box<[u32; 256]>,
}

impl Paths {
    pub(crate) fn new() -> Paths {
        Paths {
            cache: FlowCache::new(),
            shapes: Vec::with_capacity(SHAPES),
            generation: 0,
            form_version: 0,
            notes: Vec::with_capacity(NOTES),
            crowded: 0,
            noted: 0,
            governor: Governor::new(),
            visits: Box::new([0; 256]),
        }
    }

    /// Before a burst: whether to look for paths. Brings itself up to date if so.
    #[inline]
    pub(crate) fn begin(&mut self, fwd: &Forwarding) -> bool {
        let is_on = match fwd.flow_cache() {
            FlowCachePolicy::Off => false,
            FlowCachePolicy::Auto => self.governor.is_on(),
            FlowCachePolicy::Always => true,
        };
        if is_on && self.generation != fwd.generation() {
            self.catch_up(fwd);
        }
        if is_on && self.cache.is_moving() {
            self.cache.move_some(fwd.cache_form().0);
        }
        is_on
    }

    #[inline(never)]
    fn catch_up(&mut self, fwd: &Forwarding) {
        self.generation = fwd.generation();
        if self.form_version != fwd.cache_form().1 {
            self.form_version = fwd.cache_form().1;
            self.forget();
        }
        for shape in &mut self.shapes {
            let changes = shape.tables.iter().map(|table| fwd.changed(*table));
            let changed = changes.max().unwrap_or(0);
            if core::mem::replace(&mut shape.changed, changed) != changed {
                shape.epoch = (shape.epoch + 1) % EPOCHS;
                if shape.epoch == 0 {
                    // Paths of its first epoch must not be taken for new ones.
                    self.cache.clear();
                }
            }
        }
    }

    /// Forgets all paths, and shapes, so that those that come now have room.
    fn forget(&mut self) {
        self.cache.clear();
        self.shapes.clear();
    }

    /// Looks for paths.
    #[inline]
    pub(crate) fn find(&self, form: &CacheForm, keys: &[FlowKey], places: &mut [CacheIndex; BURST]) {
        self.cache.lookup_burst(form, keys, &mut places[..keys.len()]);
    }

    /// The same by heads.
    #[inline]
    pub(crate) fn find_by_heads(
        &self,
        form: &CacheForm,
        heads: &HeaderColumns,
        beside: (&FlowKey, &[FlowKey]),
        places: &mut [CacheIndex],
    ) {
        self.cache.lookup_headers(form, heads, beside, places);
    }

    /// The path at a place, if it is true.
    #[inline(always)]
    pub(crate) fn path(&self, form: &CacheForm, place: CacheIndex) -> Option<Path<'_>> {
        if !place.is_some() {
            return None;
        }
        let path = Path(self.cache.value(form, place));
        let shape = self.shapes.get(usize::from(path.shape()))?;
        (path.epoch() == shape.epoch).then_some(path)
    }

    /// The path at a place where [`Paths::path`] found one.
    #[inline(always)]
    pub(crate) fn known(&self, form: &CacheForm, place: CacheIndex) -> Path<'_> {
        Path(self.cache.value(form, place))
    }

    /// Counts a packet that took a path of a shape; [`Paths::count`] tells the tables.
    #[inline(always)]
    pub(crate) fn took(&mut self, shape: u8) {
        if let Some(shape) = self.shapes.get_mut(usize::from(shape)) {
            shape.packets += 1;
        }
    }

    /// A packet took a path of so many entries, one after the other.
    pub(crate) fn replayed(&mut self, steps: usize) {
        self.governor.hit(1, steps);
    }

    /// The table at a step of a shape, and whether a table-miss entry is met there.
    pub(crate) fn step(&self, shape: u8, step: usize) -> (TableId, bool) {
        let shape = self.shapes.get(usize::from(shape));
        shape.map_or((TableId(0), false), |shape| {
            let table = shape.tables.get(step).copied().unwrap_or(TableId(0));
            (table, shape.misses >> step & 1 != 0)
        })
    }

    /// Counts what [`Paths::took`] noted for the tables.
    pub(crate) fn count(&mut self, counters: &Counters) {
        let (mut hits, mut steps) = (0, 0);
        for shape in self.shapes.iter_mut().filter(|shape| shape.packets != 0) {
            let packets = core::mem::take(&mut shape.packets);
            for (step, table) in shape.tables.iter().enumerate() {
                let matched = if shape.misses >> step & 1 != 0 { 0 } else { packets };
                counters.count_table(*table, packets, matched);
            }
            hits += packets as usize;
            steps += packets as usize * shape.tables.len();
        }
        self.governor.hit(hits, steps);
    }

    /// Chooses some of the packets that go through the tables, which are these, with their keys: their paths will be noted.
    #[inline(never)]
    pub(crate) fn choose<P: Packet>(&mut self, fwd: &Forwarding, packets: &[P], keys: &[FlowKey; BURST]) {
        let (form, _) = fwd.cache_form();
        for (i, (packet, key)) in packets.iter().zip(keys).enumerate().take(NOTES) {
            if !self.cache.has_room(form, key) {
                self.crowded = self.crowded.wrapping_add(1);
                if !self.crowded.is_multiple_of(DISPLACING) {
                    continue;
                }
            }
            self.noted |= 1 << i;
            self.notes.push(Note {
                packet: i as u8,
                key: *key,
                has_one_tag: path::has_one_tag(packet.head()),
                slots: ArrayVec::new(),
                is_lost: false,
            });
        }
    }

    /// Notes what a chosen packet met.
    #[inline(never)]
    pub(crate) fn met(&mut self, packet: usize, slot: Option<Slot>) {
        let note = self
            .notes
            .iter_mut()
            .find(|note| usize::from(note.packet) == packet);
        if let Some(note) = note {
            note.is_lost |= slot.is_none_or(|slot| note.slots.try_push(slot).is_err());
        }
    }

    /// Keeps the paths that were noted.
    #[inline(never)]
    pub(crate) fn keep(&mut self, fwd: &Forwarding) {
        self.noted = 0;
        let (form, _) = fwd.cache_form();
        while let Some(note) = self.notes.pop() {
            let entries = note
                .slots
                .iter()
                .map(|slot| fwd.entry(*slot).map(|entry| &**entry));
            if !note.is_lost
                && note.slots.len() <= path::steps(form.kept())
                && let Some(entries) = entries.collect::<Option<ArrayVec<_, STEPS_MAX>>>()
                && let Some((sum, lengths)) = Sum::of(&entries)
                && let Some(last) = note.slots.last()
                && let sum = sum.with_last(&entries, *fwd.gist(*last))
                && sum.is_for(note.has_one_tag)
                && let Some(shape) = self.shape(fwd, &note.slots)
            {
                let path = Path::encode(&(sum, lengths), shape, &note.slots);
                self.cache.insert(form, &note.key, &path);
            }
        }
    }

    /// The shape of a path through these entries, and the epoch of that.
    fn shape(&mut self, fwd: &Forwarding, slots: &[Slot]) -> Option<(u8, u64)> {
        let mut shape = Shape {
            tables: ArrayVec::new(),
            misses: 0,
            changed: 0,
            epoch: 0,
            packets: 0,
        };
        for (step, slot) in slots.iter().enumerate() {
            let table = fwd.entry(*slot)?.table();
            shape.tables.push(table);
            shape.misses |= u32::from(!fwd.gist(*slot).is_match()) << step;
            shape.changed = shape.changed.max(fwd.changed(table));
        }
        let same = |held: &Shape| held.misses == shape.misses && held.tables == shape.tables;
        if let Some(held) = self.shapes.iter().position(same) {
            return Some((held as u8, self.shapes[held].epoch));
        }
        if self.shapes.len() == SHAPES {
            return None;
        }
        self.shapes.push(shape);
        Some((self.shapes.len() as u8 - 1, 0))
    }

    /// Packets are about to be looked up in a table.
    #[inline(always)]
    pub(crate) fn visit(&mut self, table: TableId, packets: usize) {
        self.visits[usize::from(table.0)] += packets as u32;
        if table == TableId(0) {
            self.governor.walk(packets);
        }
    }

    /// After a burst: every now and then, judges whether all this pays.
    #[inline(always)]
    pub(crate) fn end(&mut self, fwd: &Forwarding) {
        if self.governor.is_due() {
            self.judge(fwd);
        }
    }

    #[inline(never)]
    fn judge(&mut self, fwd: &Forwarding) {
        let (mut visits, mut cost) = (0, 0);
        for (number, lookups) in self
            .visits
            .iter_mut()
            .enumerate()
            .filter(|(_, lookups)| **lookups != 0)
        {
            let lookups = u64::from(core::mem::take(lookups));
            let table = fwd.table(TableId(number as u8));
            visits += lookups;
            cost += lookups * table.map_or(0, |table| governor::cost(table.kind(), table.len()));
        }
        let is_on = self.governor.judge(visits, cost);
        if is_on && fwd.flow_cache() == FlowCachePolicy::Auto {
            // What was kept before the pause is not worth checking.
            self.forget();
        }
    }
}
