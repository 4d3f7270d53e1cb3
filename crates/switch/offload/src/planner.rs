//! The planner: which flows have a slot.
//!
//! * Sampled keys of packets without a slot are counted ([`HeavyFlows`]). A decision is made every 100 ms, and counts are
//!   halved every second. (ADR 61: with a halving every 100 ms, a flow is forgotten before it is sampled twice.)
//! * A flow gets a slot if it was sampled at least twice, and the time that marks save in ten seconds exceeds the cost of one
//!   operation. A flood of flows that come once causes no operation.
//! * If no slot is free, the flow with the fewest packets loses its slot to one that is worth twice as much, and not within
//!   a second after it got it.
//! * Operations are limited per second; refusals teach ([`Refusals`]).

use std::collections::{BTreeMap, VecDeque};

use millrace_flow::FlowKey;
use millrace_types::{Duration, Time};

use crate::counts::PlannerCounts;
use crate::heavy::HeavyFlows;
use crate::refusals::{Refusal, Refusals};
use crate::slot::{Flow, Slot, SlotState};

/// Interval of decisions.
const WINDOW: Duration = Duration::from_millis(100);
/// Interval at which sampled counts are halved.
const HALVING: Duration = Duration::from_secs(1);
/// The counts of a steady flow of one packet a second, halved every second, are worth about this many seconds.
const COUNTED_SECONDS: f64 = 2.0;
/// The shortest time for which a flow keeps its slot.
const STAY_MIN: Duration = Duration::from_secs(1);
/// Time over which a slot must earn the cost of its operation, in seconds.
const HORIZON_SECONDS: f64 = 10.0;
/// A flow replaces another if it is worth this many times as much.
const REPLACEMENT_FACTOR: f64 = 2.0;
/// The number of times that a flow must be sampled.
const SAMPLES_MIN: u32 = 2;
/// The number of counted keys for each slot.
const COUNTED_PER_SLOT: usize = 4;

/// The sizes, limits and costs of one port.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PlannerSettings {
    /// The number of slots, at most 2 to the power of `index_bits`.
    pub slots: usize,
    /// The bits of a mark that are the index of its slot.
    pub index_bits: u32,
    /// The width of a mark in bits, 16 to 32; the bits above the index are the tag.
    pub mark_bits: u32,
    /// The maximum number of operations per second.
    pub operations_per_second: u32,
    /// The mean number of packets for each sample.
    pub sampling_interval: u32,
    /// The time that a mark saves for a packet, in nanoseconds.
    pub saved_nanos: f64,
    /// The time that an operation costs, in nanoseconds.
    pub operation_nanos: f64,
}

/// An operation on the device. Each has one outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Marks packets that equal a key.
    Install {
        /// The index of the slot.
        slot: u32,
        /// The mark, which is not 0.
        mark: u32,
        key: FlowKey,
    },
    /// Removes the entry of a slot. The outcome follows when no packet with its mark can be received any more.
    Remove {
        /// The index of the slot.
        slot: u32,
    },
}

/// The outcome of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The device has the entry.
    Installed,
    /// The device does not have the entry.
    Refused(Refusal),
    /// The device no longer has the entry, and no packet with its mark can be received.
    Removed,
    /// The device may still have the entry.
    Leaked,
}

/// An entry that the device has.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct InstalledEntry {
    /// The index of the slot.
    pub slot: u32,
    pub mark: u32,
    pub key: FlowKey,
    /// Packets per second, smoothed over about two seconds.
    pub rate: f64,
}

/// The planner of one port.
#[derive(Debug)]
pub struct Planner {
    settings: PlannerSettings,
    slots: Vec<Slot>,
    free: VecDeque<u32>,
    /// The slot of each key that has one or is getting one.
    index: BTreeMap<[u64; FlowKey::WORDS], u32>,
    heavy: HeavyFlows,
    refusals: Refusals,
    next_window: Time,
    next_halving: Time,
    last_window: Option<Time>,
    /// Operations that may be submitted now.
    allowance: f64,
    allowance_at: Option<Time>,
    counts: PlannerCounts,
}

impl Planner {
    /// Returns a planner whose slots are free.
    pub fn new(settings: PlannerSettings) -> Planner {
        let slots = settings.slots.min(1 << settings.index_bits.min(20));
        Planner {
            settings,
            slots: vec![Slot::FREE; slots],
            free: (0..slots as u32).collect(),
            index: BTreeMap::new(),
            heavy: HeavyFlows::new(COUNTED_PER_SLOT * slots.max(1)),
            refusals: Refusals::new(slots),
            next_window: Time::ZERO,
            next_halving: Time::ZERO,
            last_window: None,
            allowance: 0.0,
            allowance_at: None,
            counts: PlannerCounts::default(),
        }
    }

    /// Returns the counters.
    pub fn counts(&self) -> PlannerCounts {
        let number = |is: fn(&SlotState) -> bool| self.slots.iter().filter(|slot| is(&slot.state)).count();
        PlannerCounts {
            installed: number(|state| matches!(state, SlotState::Installed(_))),
            pending: number(|state| matches!(state, SlotState::Installing(_) | SlotState::Removing)),
            leaked: number(|state| matches!(state, SlotState::Leaked)),
            limit: self.refusals.limit(),
            ..self.counts
        }
    }

    /// Returns the slot and the mark of a key, if the device has its entry.
    pub fn slot_of(&self, key: &FlowKey) -> Option<(u32, u32)> {
        let number = *self.index.get(key.words())?;
        let slot = self.slots.get(number as usize)?;
        let mark = self.mark(number, slot);
        matches!(slot.state, SlotState::Installed(_)).then_some((number, mark))
    }

    /// Returns the entries that the device has, by slot.
    pub fn entries(&self) -> impl Iterator<Item = InstalledEntry> {
        (0..)
            .zip(&self.slots)
            .filter_map(|(number, slot)| match &slot.state {
                SlotState::Installed(flow) => Some(InstalledEntry {
                    slot: number,
                    mark: self.mark(number, slot),
                    key: flow.key,
                    rate: flow.rate,
                }),
                _ => None,
            })
    }

    fn mark(&self, number: u32, slot: &Slot) -> u32 {
        slot.tag << self.settings.index_bits | number
    }

    /// Returns the keys that have slots, with their slots.
    pub fn installed(&self) -> impl Iterator<Item = (u32, &FlowKey)> {
        (0..)
            .zip(&self.slots)
            .filter_map(|(number, slot)| match &slot.state {
                SlotState::Installed(flow) => Some((number, &flow.key)),
                _ => None,
            })
    }

    /// Returns the slots whose packets were counted since their entries are in the device, with their keys.
    pub fn in_use(&self) -> impl Iterator<Item = (u32, &FlowKey)> {
        (0..)
            .zip(&self.slots)
            .filter_map(|(number, slot)| match &slot.state {
                SlotState::Installed(flow) if flow.rate > 0.0 => Some((number, &flow.key)),
                _ => None,
            })
    }

    /// Counts the key of a sampled packet, masked with the bits that entries have.
    pub fn sample(&mut self, key: &FlowKey) {
        self.counts.samples += 1;
        if !self.index.contains_key(key.words()) && !self.refusals.refuses(key) {
            self.heavy.add(key);
        }
    }

    /// Forgets all flows: the device has lost its entries, or packets are told apart by other bits. Slots whose operations have
    /// no outcome yet get none. Marks of before name no slot.
    pub fn clear(&mut self) {
        let tag_max = self.tag_max();
        self.free.clear();
        for (number, slot) in (0..).zip(&mut self.slots) {
            if !matches!(slot.state, SlotState::Free) {
                slot.free(tag_max);
            }
            self.free.push_back(number);
        }
        self.index.clear();
        self.heavy.clear();
        self.refusals.clear();
    }

    /// Takes the outcome of an operation on a slot.
    pub fn outcome(&mut self, slot: u32, outcome: Outcome, now: Time) {
        let tag_max = self.tag_max();
        let installed = self.slots_in_use();
        let Some(held) = self.slots.get_mut(slot as usize) else {
            return;
        };
        match (&held.state, outcome) {
            (SlotState::Installing(key), Outcome::Installed) => {
                let flow = Flow {
                    key: *key,
                    since: now,
                    rate: 0.0,
                    counted: u64::MAX,
                };
                self.heavy.remove(&flow.key);
                self.refusals.succeeded();
                held.state = SlotState::Installed(flow);
            }
            (SlotState::Installing(key), Outcome::Refused(refusal)) => {
                let key = *key;
                match refusal {
                    Refusal::Shape => self.counts.refused_shape += 1,
                    Refusal::Capacity => self.counts.refused_capacity += 1,
                    Refusal::Transient => self.counts.refused_transient += 1,
                }
                self.refusals
                    .refused(refusal, &key, installed.saturating_sub(1), now);
                self.heavy.remove(&key);
                self.index.remove(key.words());
                held.free(tag_max);
                self.free.push_back(slot);
            }
            (SlotState::Removing, Outcome::Removed) => {
                held.free(tag_max);
                self.free.push_back(slot);
            }
            // An entry that outlived [`Planner::clear`].
            (SlotState::Free, Outcome::Leaked) => {
                self.free.retain(|free| *free != slot);
                held.state = SlotState::Leaked;
            }
            (SlotState::Removing | SlotState::Installing(_), Outcome::Leaked) => {
                if let SlotState::Installing(key) = &held.state {
                    self.index.remove(key.words());
                }
                held.state = SlotState::Leaked;
            }
            // An answer that belongs to no question: a device that answers twice changes nothing.
            _ => {}
        }
    }

    fn tag_max(&self) -> u32 {
        let bits = self
            .settings
            .mark_bits
            .saturating_sub(self.settings.index_bits)
            .clamp(1, 31);
        (1 << bits) - 1
    }

    fn slots_in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Notes that marks are not used now: packets of slots are not counted, rates stay as they are, and samples do not count,
    /// since they are of all packets.
    pub fn skip(&mut self) {
        self.last_window = None;
        self.heavy.clear();
        for slot in &mut self.slots {
            if let SlotState::Installed(flow) = &mut slot.state {
                flow.counted = u64::MAX;
            }
        }
    }

    /// Returns the operations that are due. `count` returns the number of packets of a slot so far.
    pub fn tick(&mut self, now: Time, count: impl Fn(u32) -> u64) -> Vec<Operation> {
        self.refusals.tick(now);
        self.allow(now);
        if now < self.next_window {
            return Vec::new();
        }
        self.next_window = now + WINDOW;
        self.measure(now, count);
        let operations = self.plan(now);
        if now >= self.next_halving {
            self.next_halving = now + HALVING;
            self.heavy.halve();
        }
        self.counts.operations += operations.len() as u64;
        self.allowance -= operations.len() as f64;
        operations
    }

    /// Adds the operations that the time since the last call allows; at most those of one second.
    fn allow(&mut self, now: Time) {
        let limit = f64::from(self.settings.operations_per_second);
        let seconds = self.allowance_at.map_or(1.0, |at| now.since(at).as_secs_f64());
        self.allowance = (self.allowance + limit * seconds).min(limit);
        self.allowance_at = Some(now);
    }

    /// Updates the rates of flows with slots.
    fn measure(&mut self, now: Time, count: impl Fn(u32) -> u64) {
        let seconds = self.last_window.map_or(0.0, |last| now.since(last).as_secs_f64());
        self.last_window = Some(now);
        for (number, slot) in (0..).zip(&mut self.slots) {
            let SlotState::Installed(flow) = &mut slot.state else {
                continue;
            };
            let counted = count(number);
            if flow.counted != u64::MAX && seconds > 0.0 {
                let rate = counted.wrapping_sub(flow.counted) as f64 / seconds;
                let weight = (seconds / COUNTED_SECONDS).min(1.0);
                flow.rate += (rate - flow.rate) * weight;
            }
            flow.counted = counted;
        }
    }

    fn plan(&mut self, now: Time) -> Vec<Operation> {
        let mut budget = self.allowance.max(0.0) as usize;
        if budget == 0 || self.refusals.is_paused(now) {
            return Vec::new();
        }
        let candidates = self.heavy.heaviest(SAMPLES_MIN, budget);
        let mut operations = Vec::new();
        let mut weakest = self.weakest(now).into_iter().peekable();
        for (key, seen) in candidates {
            let rate = f64::from(seen) * f64::from(self.settings.sampling_interval) / COUNTED_SECONDS;
            let value = rate * self.settings.saved_nanos * HORIZON_SECONDS;
            if budget == 0 || value <= self.settings.operation_nanos {
                break;
            }
            if self.index.contains_key(key.words()) || self.refusals.refuses(&key) {
                continue;
            }
            let is_full = self.slots_in_use() >= self.refusals.limit();
            if let Some(slot) = self.free.front().copied().filter(|_| !is_full) {
                self.free.pop_front();
                operations.extend(self.install(slot, key));
                budget -= 1;
            } else if let Some((_, slot)) =
                weakest.next_if(|(weak, _)| rate >= REPLACEMENT_FACTOR * weak.max(f64::MIN_POSITIVE))
            {
                // The slot is free after the outcome; the flow is then still among the heaviest.
                operations.extend(self.remove(slot));
                budget -= 1;
            } else {
                break;
            }
        }
        operations
    }

    /// Returns rates and slots of the flows that may lose their slot, the weakest first.
    fn weakest(&self, now: Time) -> Vec<(f64, u32)> {
        let mut all: Vec<(f64, u32)> = (0..)
            .zip(&self.slots)
            .filter_map(|(number, slot)| match &slot.state {
                SlotState::Installed(flow) if now.since(flow.since) >= STAY_MIN => Some((flow.rate, number)),
                _ => None,
            })
            .collect();
        all.sort_by(|one, two| one.0.total_cmp(&two.0).then(one.1.cmp(&two.1)));
        all
    }

    fn install(&mut self, slot: u32, key: FlowKey) -> Option<Operation> {
        let index_bits = self.settings.index_bits;
        let held = self.slots.get_mut(slot as usize)?;
        held.state = SlotState::Installing(key);
        self.index.insert(*key.words(), slot);
        Some(Operation::Install {
            slot,
            mark: held.tag << index_bits | slot,
            key,
        })
    }

    fn remove(&mut self, slot: u32) -> Option<Operation> {
        let held = self.slots.get_mut(slot as usize)?;
        if let SlotState::Installed(flow) = &held.state {
            self.index.remove(flow.key.words());
        }
        held.state = SlotState::Removing;
        Some(Operation::Remove { slot })
    }
}
