//! Idle and hard timeouts (section 5.5), some entries at a time.

use millrace_flow::classify::Slot;
use millrace_types::Time;

use super::request::RemovedReason;
use super::{Control, seconds};
use crate::{FlowEntry, Op};

/// When the entry goes if no packet comes; `None` is never.
pub(super) fn due(entry: &FlowEntry, last_used: Time) -> Option<Time> {
    let created = entry.created();
    let hard = (entry.hard_timeout() > 0).then(|| created + seconds(entry.hard_timeout()));
    let idle = (entry.idle_timeout() > 0).then(|| created.max(last_used) + seconds(entry.idle_timeout()));
    match (hard, idle) {
        (Some(hard), Some(idle)) => Some(hard.min(idle)),
        (hard, idle) => hard.or(idle),
    }
}

impl Control {
    /// Removes entries whose time has come. Looks at no more than `budget` entries; returns how many it
    /// looked at, so that `budget` means: call again.
    ///
    /// Entries go at most a tenth of a second late if this is called that often.
    pub fn expire(&mut self, now: Time, budget: usize, ops: &mut Vec<Op>) -> usize {
        for looked in 0..budget {
            let Some((slot, tick)) = self.wheel.pop(now) else {
                return looked;
            };
            if self.record(slot).is_some_and(|record| record.timer == tick) {
                self.look_at(slot, now, ops);
            }
        }
        budget
    }

    fn look_at(&mut self, slot: Slot, now: Time, ops: &mut Vec<Op>) {
        let Some(record) = self.record(slot) else {
            return;
        };
        let entry = &record.entry;
        let Some(due) = due(entry, self.banks.entry(slot).last_used) else {
            return;
        };
        if now >= due {
            let hard = entry.created() + seconds(entry.hard_timeout());
            let reason = if entry.hard_timeout() > 0 && now >= hard {
                RemovedReason::HardTimeout
            } else {
                RemovedReason::IdleTimeout
            };
            self.remove(slot, Some(reason), now, ops);
        } else {
            let tick = self.wheel.add(slot, due);
            if let Some(record) = self.records.get_mut(slot.index()).and_then(Option::as_mut) {
                record.timer = tick;
            }
        }
    }
}
