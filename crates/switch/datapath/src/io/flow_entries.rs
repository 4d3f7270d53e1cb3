//! Entries of a device that takes rules of rte_flow: mark rules, installed by a thread of the device.
//!
//! Drivers take from microseconds to milliseconds for a rule, so the bridge's thread only puts operations into a queue. A slot is
//! removed when its rule is destroyed and every receive queue has delivered what it held then ([`QueueFence`]). A rule that the
//! device does not destroy is a leak: its slot is not used again.
//!
//! [`QueueFence`]: crate::offload::fences::QueueFence

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use millrace_flow::FlowMask;
use millrace_offload::{Outcome, Refusal};
use millrace_wire::Mark;

use super::steer::SteerRule;
use crate::offload::fences::Fences;
use crate::offload::rule::mark_rule;
use crate::offload::{DeviceOperation, DeviceOutcome, EntryFields, Offload, OffloadCapabilities};

/// The number of operations that may wait; of outcomes, twice as many.
const OPERATIONS_LEN: usize = 4096;
/// The number of rules that a device is asked for at first. Devices do not tell how many they hold; what they refuse for want of
/// room lowers the limit ([`Refusal::Capacity`]).
const ENTRIES_MAX: usize = 4096;
/// Interval at which fences are looked for.
const FENCE_INTERVAL: Duration = Duration::from_millis(1);
/// Time for which the thread sleeps if nothing wakes it.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);
/// Time within which every queue has delivered what it held.
const FENCE_TIMEOUT: Duration = Duration::from_secs(10);

/// The rules of a device.
pub(super) trait RuleTable: Send + 'static {
    /// A rule of the device.
    type Rule: Send;

    /// Adds a rule.
    ///
    /// # Errors
    /// Returns the kind of the refusal; the device does not have the rule then.
    fn create(&mut self, rule: &SteerRule) -> Result<Self::Rule, Refusal>;

    /// Removes a rule. Returns false if the device may still have it.
    fn destroy(&mut self, rule: Self::Rule) -> bool;
}

/// The abilities of a device with rules.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuleAbilities {
    /// The width of a mark in bits.
    pub(super) mark_bits: u8,
    /// True if rules can leave out fragments.
    pub(super) no_fragment: bool,
    pub(super) queues: u16,
}

/// The state that the bridge's thread, the device's thread and the queues share.
struct Shared {
    operations: ArrayQueue<DeviceOperation>,
    outcomes: ArrayQueue<DeviceOutcome>,
    fences: Arc<Fences>,
    stop: AtomicBool,
}

/// The bridge's thread's side. Dropping it removes all rules.
pub(super) struct FlowEntries {
    shared: Arc<Shared>,
    abilities: RuleAbilities,
    thread: Option<JoinHandle<()>>,
}

impl FlowEntries {
    /// Starts the thread of a device.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(super) fn start(
        table: impl RuleTable,
        fences: &Arc<Fences>,
        abilities: RuleAbilities,
    ) -> std::io::Result<FlowEntries> {
        let shared = Arc::new(Shared {
            operations: ArrayQueue::new(OPERATIONS_LEN),
            outcomes: ArrayQueue::new(2 * OPERATIONS_LEN),
            fences: Arc::clone(fences),
            stop: AtomicBool::new(false),
        });
        let mut installer = Installer {
            table,
            shared: Arc::clone(&shared),
            abilities,
            rules: BTreeMap::new(),
            mask: FlowMask::default(),
            reset: 0,
            removals: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name("flow-rules".to_owned())
            .spawn(move || installer.work())?;
        Ok(FlowEntries {
            shared,
            abilities,
            thread: Some(thread),
        })
    }
}

impl Drop for FlowEntries {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _panicked = thread.join();
        }
    }
}

impl Offload for FlowEntries {
    fn capabilities(&self) -> Option<OffloadCapabilities> {
        Some(OffloadCapabilities {
            session: 1,
            entries: ENTRIES_MAX,
            mark_bits: self.abilities.mark_bits.into(),
            fields: EntryFields::Whole,
            // The parser of the device is not ours.
            is_trusted: false,
        })
    }

    fn submit(&mut self, operation: DeviceOperation) -> bool {
        let is_taken = self.shared.operations.push(operation).is_ok();
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
        is_taken
    }

    fn poll(&mut self) -> Option<DeviceOutcome> {
        self.shared.outcomes.pop()
    }
}

/// A rule that was destroyed, and the fence that must pass.
#[derive(Debug)]
struct Removal {
    fence: u32,
    slot: u32,
    since: Instant,
}

/// The device's thread.
struct Installer<T: RuleTable> {
    table: T,
    shared: Arc<Shared>,
    abilities: RuleAbilities,
    rules: BTreeMap<u32, T::Rule>,
    mask: FlowMask,
    /// The number of the last reset.
    reset: u64,
    removals: Vec<Removal>,
}

impl<T: RuleTable> Installer<T> {
    fn work(&mut self) {
        while !self.shared.stop.load(Ordering::Acquire) {
            self.run(Instant::now());
            std::thread::park_timeout(match self.removals.is_empty() {
                true => IDLE_INTERVAL,
                false => FENCE_INTERVAL,
            });
        }
        self.destroy_all();
    }

    /// Executes all operations at `now`, and completes removals.
    fn run(&mut self, now: Instant) {
        let mut removed = Vec::new();
        while let Some(operation) = self.shared.operations.pop() {
            if self.shared.stop.load(Ordering::Acquire) {
                return;
            }
            match operation {
                DeviceOperation::Reset { number, mask } => {
                    removed.clear();
                    self.removals.clear();
                    (self.reset, self.mask) = (number, mask);
                    let leaked = self.destroy_all();
                    let _full = self.shared.outcomes.push(DeviceOutcome::Reset { number });
                    // The slot would be used again, and the rule that stays has its mark.
                    leaked
                        .into_iter()
                        .for_each(|slot| self.answer(slot, Outcome::Leaked));
                }
                DeviceOperation::Install { slot, mark, key } => {
                    let no_fragment = self.abilities.no_fragment;
                    let rule =
                        Mark::new(mark).and_then(|mark| mark_rule(&key, &self.mask, mark, no_fragment));
                    let created = rule
                        .ok_or(Refusal::Shape)
                        .and_then(|rule| self.table.create(&rule));
                    let outcome = match created {
                        Ok(rule) => {
                            self.rules.insert(slot, rule);
                            Outcome::Installed
                        }
                        Err(refusal) => Outcome::Refused(refusal),
                    };
                    self.answer(slot, outcome);
                }
                DeviceOperation::Remove { slot } => {
                    let rule = self.rules.remove(&slot);
                    if rule.is_some_and(|rule| self.table.destroy(rule)) {
                        removed.push(slot);
                    } else {
                        self.answer(slot, Outcome::Leaked);
                    }
                }
            }
        }
        if !removed.is_empty() {
            let fence = self.shared.fences.next();
            let removal = |slot| Removal {
                fence,
                slot,
                since: now,
            };
            self.removals.extend(removed.into_iter().map(removal));
        }
        self.complete_removals(now);
    }

    /// Destroys all rules, and returns the slots of those that stay.
    fn destroy_all(&mut self) -> Vec<u32> {
        let rules = core::mem::take(&mut self.rules).into_iter();
        rules
            .filter_map(|(slot, rule)| (!self.table.destroy(rule)).then_some(slot))
            .collect()
    }

    fn complete_removals(&mut self, now: Instant) {
        let queues = self.abilities.queues.into();
        for removal in core::mem::take(&mut self.removals) {
            if self.shared.fences.has_passed(removal.fence, queues) {
                self.answer(removal.slot, Outcome::Removed);
            } else if now.saturating_duration_since(removal.since) >= FENCE_TIMEOUT {
                self.answer(removal.slot, Outcome::Leaked);
            } else {
                self.removals.push(removal);
            }
        }
    }

    fn answer(&self, slot: u32, outcome: Outcome) {
        let _full = self.shared.outcomes.push(DeviceOutcome::Slot {
            reset: self.reset,
            slot,
            outcome,
        });
    }
}

#[cfg(test)]
mod tests;
