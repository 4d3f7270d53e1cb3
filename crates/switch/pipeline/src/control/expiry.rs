//! Idle and hard time-outs (OpenFlow 1.3.5, section 5.5), in steps.

use millrace_flow::classify::Slot;
use millrace_types::Time;

use super::record::{expiry_time, seconds};
use super::request::RemovedReason;
use super::writer::Control;
use crate::Op;

impl Control {
    /// Removes expired entries. Checks at most `budget` entries, and returns the number that it checked: `budget`
    /// means that more may be due.
    ///
    /// Entries are removed at most a tenth of a second late if this is called that often.
    pub fn expire(&mut self, now: Time, budget: usize, ops: &mut Vec<Op>) -> usize {
        for checked in 0..budget {
            let Some((slot, tick)) = self.wheel.pop(now) else {
                return checked;
            };
            if self.record(slot).is_some_and(|record| record.timer == tick) {
                self.check_time_outs(slot, now, ops);
            }
        }
        budget
    }

    fn check_time_outs(&mut self, slot: Slot, now: Time, ops: &mut Vec<Op>) {
        let Some(record) = self.record(slot) else {
            return;
        };
        let entry = &record.entry;
        let Some(due) = expiry_time(entry, self.banks.entry(slot).last_used) else {
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
