//! The flow table: a hash table of sets with eight entries each, which hold the indexes of the flows.
//!
//! ```text
//!  hash(key, seed) ─▶ set ─▶ [tag, index] x 8 ─▶ flows[index]      one packet
//!                                                deadlines[index]  search for idle flows
//!                                                ages[index]       search for one to evict
//! ```
//!
//! A full set evicts one of its flows. Senders who do not know the seed cannot fill a chosen set. All indexes
//! are allocated when the table is made. An ended flow keeps its memory, and the next flow begins in it.
//!
//! The searches read 4 and 16 bytes of each flow from contiguous arrays, because the flows themselves are
//! larger than the caches of a processor.

use millrace_types::Time;

use super::{Flow, FlowState, FlowVerdict, Timeouts, Tuple};
use crate::hash::Seed;
use crate::tcp::Session;

const ENTRIES_PER_SET: usize = 8;
/// Number of flows that are compared to evict one from a full table.
const CANDIDATES: usize = 32;

/// Number of flows that are searched for the largest parser.
const LARGEST_SCAN: usize = 1024;
/// Memory of a parser in bytes at which the search for the largest parser ends.
const LARGE_PARSER_SIZE: usize = 64 << 10;

/// The eviction rank of an established flow.
const ESTABLISHED: u8 = 2;

/// The index of a flow in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowIndex(u32);

#[derive(Debug, Clone, Copy, Default)]
struct TableEntry {
    /// Bits of the hash that the choice of the set does not use.
    tag: u32,
    /// Index of the flow plus one; 0 for an empty entry.
    index: u32,
}

/// Memory of a flow in bytes: its record, its TCP connection and its table entries. Other pools count its
/// data.
pub const FLOW_SIZE: usize = size_of::<Flow>()
    + size_of::<Session>()
    + size_of::<Slot>()
    + size_of::<Age>()
    + size_of::<Deadline>()
    // Up to four times as many entries as flows.
    + 4 * size_of::<TableEntry>()
    // Indexes of free slots, and the overhead of the allocator for two allocations.
    + size_of::<u32>()
    + 2 * 16;

/// Counters of the flow table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowCounters {
    /// Flows that began.
    pub created: u64,
    /// Flows that ended because they were idle.
    pub timeouts: u64,
    /// Flows that were evicted because the table was full.
    pub evicted_full: u64,
    /// Flows that were evicted because their set was full.
    pub evicted_set: u64,
}

#[derive(Debug)]
struct Slot {
    hash: u64,
    /// `None` while the engine works on the flow, and in free slots.
    flow: Option<Box<Flow>>,
    is_free: bool,
}

/// The earliest [`unit`] of time at which a flow times out; [`NEVER`] without a flow.
type Deadline = u32;

/// The data by which flows are compared for eviction.
#[derive(Debug, Clone, Copy)]
struct Age {
    /// Time of the last packet.
    last: Time,
    /// Memory of the parser in units of [`PARSER_UNIT`].
    parser: u16,
    /// The eviction rank: the flow with the smallest rank is evicted first.
    rank: u8,
}

/// Unit for the comparison of parser memory, in bytes.
const PARSER_UNIT: usize = 64;

/// The deadline of a slot without a flow.
const NEVER: Deadline = Deadline::MAX;
/// The rank of a slot without a flow.
const NONE: u8 = u8::MAX;
/// Largest number of ended flows that are kept for their memory.
const SPARE: usize = 8192;

impl Age {
    /// The age of a slot without a flow.
    const ABSENT: Age = Age {
        last: Time::ZERO,
        parser: 0,
        rank: NONE,
    };

    fn of(flow: &Flow) -> Age {
        Age {
            last: flow.last,
            parser: u16::try_from(flow.charged.div_ceil(PARSER_UNIT)).unwrap_or(u16::MAX),
            rank: rank(flow),
        }
    }
}

/// Returns a time in units of 2^30 ns, about a second; always less than [`NEVER`].
fn unit(time: Time) -> Deadline {
    const SHIFT: u32 = 30;
    Deadline::try_from(time.nanos() >> SHIFT).map_or(NEVER - 1, |unit| unit.min(NEVER - 1))
}

/// Returns true if at least one deadline has passed. The loop compares all deadlines, so that it compiles to
/// vector instructions.
#[inline]
fn has_passed(deadlines: &[Deadline], unit: Deadline) -> bool {
    let passed = deadlines.iter().map(|deadline| u32::from(*deadline <= unit));
    passed.fold(0, |any, passed| any | passed) != 0
}

/// Returns the eviction rank of a flow.
fn rank(flow: &Flow) -> u8 {
    match (flow.verdict, flow.state) {
        (FlowVerdict::Drop, _) => 3,
        (_, FlowState::Closed) => 0,
        (_, FlowState::New) => 1,
        (_, FlowState::Established) => ESTABLISHED,
    }
}

/// The flows of a lane.
#[derive(Debug)]
pub(crate) struct FlowTable {
    sets: Vec<[TableEntry; ENTRIES_PER_SET]>,
    slots: Vec<Slot>,
    /// The age of each slot.
    ages: Vec<Age>,
    /// The deadline of each slot.
    deadlines: Vec<Deadline>,
    free: Vec<u32>,
    /// Ended flows, for reuse of their memory.
    #[expect(clippy::vec_box, reason = "flows move between this list and slots")]
    spare: Vec<Box<Flow>>,
    /// Memory that the parsers and detection of flows in `spare` keep, in bytes, and its limit.
    spare_bytes: usize,
    spare_limit: usize,
    limit: usize,
    seed: Seed,
    timeouts: Timeouts,
    next_id: u64,
    /// Cursor: the slot from which the next search continues.
    sweep: usize,
    pub(crate) counters: FlowCounters,
}

impl FlowTable {
    /// Returns an empty table for at most `limit` flows. Flows that ended keep at most `spare_limit` bytes of parsers.
    pub(crate) fn new(
        limit: usize,
        spare_limit: usize,
        timeouts: Timeouts,
        seed: Seed,
        first_id: u64,
    ) -> FlowTable {
        let limit = limit.clamp(ENTRIES_PER_SET, 1 << 30);
        // Twice as many entries as flows, so that few sets fill up.
        let sets = (2 * limit / ENTRIES_PER_SET).next_power_of_two();
        FlowTable {
            sets: vec![Default::default(); sets],
            slots: Vec::with_capacity(limit),
            ages: Vec::with_capacity(limit),
            deadlines: Vec::with_capacity(limit),
            free: Vec::with_capacity(limit),
            spare: Vec::with_capacity(limit.min(SPARE)),
            spare_bytes: 0,
            spare_limit,
            limit,
            seed,
            timeouts,
            next_id: first_id,
            sweep: 0,
            counters: FlowCounters::default(),
        }
    }

    /// Returns the number of flows.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn set_and_tag(&self, hash: u64) -> (usize, u32) {
        ((hash as usize) & (self.sets.len() - 1), (hash >> 32) as u32)
    }

    /// Returns the index of the flow with a key.
    pub(crate) fn find(&self, tuple: &Tuple) -> Option<FlowIndex> {
        let (set, tag) = self.set_and_tag(tuple.hash_with(self.seed));
        let entries = self.sets[set]
            .iter()
            .filter(|entry| entry.index != 0 && entry.tag == tag);
        entries.map(|entry| FlowIndex(entry.index - 1)).find(|index| {
            let flow = self.slots[index.0 as usize].flow.as_ref();
            flow.is_some_and(|flow| tuple.belongs_to(&flow.key))
        })
    }

    /// Returns true if a new flow would evict a flow that is established or dropped.
    pub(crate) fn is_full(&self, tuple: &Tuple) -> bool {
        let (set, _) = self.set_and_tag(tuple.hash_with(self.seed));
        let victim = match self.sets[set].iter().all(|entry| entry.index != 0) {
            true => Some(self.victim_of_set(set).1),
            false if self.len() >= self.limit => self.victim().map(|index| FlowIndex(index as u32)),
            false => None,
        };
        victim.is_some_and(|victim| {
            let rank = self.ages[victim.0 as usize].rank;
            (ESTABLISHED..NONE).contains(&rank)
        })
    }

    /// Begins a flow; the sender of packets with the key is its client. Returns the index of the flow, and
    /// the flow that was evicted.
    pub(crate) fn insert(&mut self, tuple: &Tuple, now: Time) -> (FlowIndex, Option<Box<Flow>>) {
        let hash = tuple.hash_with(self.seed);
        let (set, tag) = self.set_and_tag(hash);
        let mut evicted = None;
        let way = match self.sets[set].iter().position(|entry| entry.index == 0) {
            Some(way) => {
                if self.len() >= self.limit {
                    evicted = self.evict_any();
                }
                way
            }
            None => {
                let (way, victim) = self.victim_of_set(set);
                evicted = self.remove(victim);
                self.counters.evicted_set += 1;
                way
            }
        };
        let flow = match self.spare.pop() {
            Some(mut flow) => {
                self.spare_bytes -= core::mem::take(&mut flow.charged);
                // It was reset when it ended.
                flow.begin(tuple.flow_key(), self.next_id, now);
                flow
            }
            None => Box::new(Flow::new(tuple.flow_key(), self.next_id, now)),
        };
        self.next_id += 1;
        self.counters.created += 1;
        let (age, deadline) = (Age::of(&flow), self.deadline(&flow));
        let slot = Slot {
            hash,
            flow: Some(flow),
            is_free: false,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                self.ages[index as usize] = age;
                self.deadlines[index as usize] = deadline;
                index
            }
            None => {
                self.slots.push(slot);
                self.ages.push(age);
                self.deadlines.push(deadline);
                (self.slots.len() - 1) as u32
            }
        };
        self.sets[set][way] = TableEntry {
            tag,
            index: index + 1,
        };
        (FlowIndex(index), evicted)
    }

    /// Takes a flow out of the table to work on it; [`FlowTable::put`] puts it back.
    pub(crate) fn take(&mut self, index: FlowIndex) -> Option<Box<Flow>> {
        self.slots.get_mut(index.0 as usize)?.flow.take()
    }

    /// Puts back a flow that was taken out.
    pub(crate) fn put(&mut self, index: FlowIndex, flow: Box<Flow>) {
        let at = index.0 as usize;
        self.ages[at] = Age::of(&flow);
        self.deadlines[at] = self.deadline(&flow);
        self.slots[at].flow = Some(flow);
    }

    /// Keeps the memory of an ended flow for the next flow.
    pub(crate) fn recycle(&mut self, mut flow: Box<Flow>) {
        if self.spare.len() >= self.spare.capacity() {
            return;
        }
        flow.reset();
        flow.charged = flow.parser_memory();
        if self.spare_bytes + flow.charged > self.spare_limit {
            flow.free_spare();
            flow.charged = 0;
        }
        self.spare_bytes += flow.charged;
        self.spare.push(flow);
    }

    /// Returns the memory that parsers and detection of ended flows keep for later flows, in bytes.
    pub(crate) fn spare_bytes(&self) -> usize {
        self.spare_bytes
    }

    /// Frees the memory that parsers and detection of ended flows keep for later flows.
    pub(crate) fn free_spare(&mut self) {
        // Flows without memory are skipped, because a full pool calls this function with each packet.
        for flow in self.spare.iter_mut().rev() {
            if self.spare_bytes == 0 {
                break;
            }
            if flow.charged != 0 {
                flow.free_spare();
                self.spare_bytes -= core::mem::take(&mut flow.charged);
            }
        }
    }

    /// Returns the flow with the most parser memory among the next [`LARGEST_SCAN`] slots, and this memory in
    /// bytes, rounded up to [`PARSER_UNIT`]. The search ends at the first parser of
    /// [`LARGE_PARSER_SIZE`] or more.
    pub(crate) fn largest(&mut self) -> Option<(FlowIndex, usize)> {
        let len = self.ages.len();
        let mut found: Option<(FlowIndex, u16)> = None;
        for _ in 0..LARGEST_SCAN.min(len) {
            self.sweep += 1;
            if self.sweep >= len {
                self.sweep = 0;
            }
            let parser = self.ages[self.sweep].parser;
            if parser > found.map_or(0, |(_, most)| most) {
                found = Some((FlowIndex(self.sweep as u32), parser));
                if usize::from(parser) >= LARGE_PARSER_SIZE / PARSER_UNIT {
                    break;
                }
            }
        }
        found.map(|(index, parser)| (index, usize::from(parser) * PARSER_UNIT))
    }

    /// Removes a flow.
    pub(crate) fn remove(&mut self, index: FlowIndex) -> Option<Box<Flow>> {
        let slot = self.slots.get_mut(index.0 as usize)?;
        if slot.is_free {
            return None;
        }
        let (hash, flow) = (slot.hash, slot.flow.take());
        slot.is_free = true;
        self.ages[index.0 as usize] = Age::ABSENT;
        self.deadlines[index.0 as usize] = NEVER;
        let (set, _) = self.set_and_tag(hash);
        for entry in &mut self.sets[set] {
            if entry.index == index.0 + 1 {
                *entry = TableEntry::default();
            }
        }
        self.free.push(index.0);
        flow
    }

    /// Removes a flow that is idle at `now` among the next `budget` slots; `None` if there is none.
    #[inline]
    pub(crate) fn expire(&mut self, now: Time, budget: usize) -> Option<Box<Flow>> {
        let (len, unit) = (self.deadlines.len(), unit(now));
        let budget = budget.min(len);
        if budget == 0 {
            return None;
        }
        let next = if self.sweep + 1 < len { self.sweep + 1 } else { 0 };
        // In nearly all calls no deadline of these slots has passed.
        if let Some(deadlines) = self.deadlines.get(next..next + budget)
            && !has_passed(deadlines, unit)
        {
            self.sweep = next + budget - 1;
            return None;
        }
        self.expire_one_by_one(now, budget)
    }

    /// Does the work of [`FlowTable::expire`] if a deadline has passed, or if the search wraps around the end
    /// of the table.
    #[cold]
    fn expire_one_by_one(&mut self, now: Time, budget: usize) -> Option<Box<Flow>> {
        let (len, unit) = (self.deadlines.len(), unit(now));
        for _ in 0..budget {
            self.sweep += 1;
            if self.sweep >= len {
                self.sweep = 0;
            }
            if self.deadlines[self.sweep] > unit {
                continue;
            }
            let is_idle = |flow: &Flow| self.is_idle(flow, now);
            if self.slots[self.sweep].flow.as_deref().is_some_and(is_idle) {
                self.counters.timeouts += 1;
                return self.remove(FlowIndex(self.sweep as u32));
            }
        }
        None
    }

    /// Returns the deadline of a flow.
    #[inline]
    fn deadline(&self, flow: &Flow) -> Deadline {
        unit(flow.last + self.timeouts.of(flow))
    }

    /// Returns true if the flow is idle for longer than the time-out of its protocol and state.
    pub(crate) fn is_idle(&self, flow: &Flow, now: Time) -> bool {
        now.since(flow.last) > self.timeouts.of(flow)
    }

    /// Returns the flows in the order in which they began, and leaves the table empty.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Box<Flow>> + use<> {
        let flows = self.slots.iter_mut().filter_map(|slot| slot.flow.take());
        let mut flows = flows.collect::<Vec<_>>();
        flows.sort_by_key(|flow| flow.id);
        let mask = self.sets.len() - 1;
        for slot in self.slots.drain(..) {
            self.sets[slot.hash as usize & mask] = Default::default();
        }
        self.ages.clear();
        self.deadlines.clear();
        self.free.clear();
        self.sweep = 0;
        flows.into_iter()
    }

    /// Returns the eviction order of the flow in a slot: the smallest is evicted first.
    fn order(&self, index: usize) -> (u8, Time) {
        let age = &self.ages[index];
        (age.rank, age.last)
    }

    fn victim_of_set(&self, set: usize) -> (usize, FlowIndex) {
        let entries = self.sets[set].iter().enumerate();
        let victim = entries
            .min_by_key(|(_, entry)| self.order(entry.index as usize - 1))
            .map_or((0, 0), |(way, entry)| (way, entry.index - 1));
        (victim.0, FlowIndex(victim.1))
    }

    /// Removes the flow that is evicted first among the next [`CANDIDATES`] slots.
    fn evict_any(&mut self) -> Option<Box<Flow>> {
        let len = self.slots.len();
        let victim = self.victim()?;
        self.sweep = (self.sweep + CANDIDATES) % len;
        self.counters.evicted_full += 1;
        self.remove(FlowIndex(victim as u32))
    }

    /// Returns the index of the flow that is evicted first among the next [`CANDIDATES`] slots.
    fn victim(&self) -> Option<usize> {
        let len = self.ages.len();
        let candidates = (0..CANDIDATES.min(len)).map(|step| (self.sweep + step) % len);
        candidates.min_by_key(|index| self.order(*index))
    }
}
