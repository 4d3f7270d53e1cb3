//! A timer wheel of records: which of them are due, in the order of (release, writing).
//!
//! ```text
//!   far     4096 slots of one period (2^22 ns, 4.2 ms), 17 s in all
//!             |  the chain of the period after the next is moved in small steps
//!             v
//!   near    8192 slots of 2^10 ns (1.024 us): this period and the next
//!             |  a slot that begins is sorted
//!             v
//!   due     one list in the order of release
//! ```
//!
//! Slots are chains through the records' links, in the order of writing. A slot of 1.024 us does not know which of its
//! records is first; so when time reaches it, its few records are sorted into `due`, and the order is exact to the nanosecond.
//! Records of one release stay in the order of writing, because chains only grow at their end, a chain is moved from its
//! start, and a record joins the chain that is being moved as long as there is one.
//!
//! A record that is due beyond 17 s waits in the last far slot and is placed again from there. No call allocates, and
//! each costs a bounded number of steps a record.

use super::bitmap::Bitmap;
use super::records::{Memory, NONE, Reader};

/// The binary logarithm of a near slot in nanoseconds.
const SLOT: u32 = 10;
/// The binary logarithm of a period in near slots.
const PERIOD: u32 = 12;
const NEAR: usize = 2 << PERIOD;
const FAR: usize = 4096;
/// The records that are moved from the far to the near slots for each that is placed, and for each look at the clock.
const STEP: usize = 4;

/// The links of records, and their times.
pub(crate) trait Records {
    fn release(&self, record: u32) -> u64;
    fn link(&self, record: u32) -> u32;
    fn set_link(&mut self, record: u32, link: u32);
}

impl<M: Memory> Records for Reader<M> {
    #[inline]
    fn release(&self, record: u32) -> u64 {
        Reader::release(self, record)
    }

    #[inline]
    fn link(&self, record: u32) -> u32 {
        Reader::link(self, record)
    }

    #[inline]
    fn set_link(&mut self, record: u32, link: u32) {
        Reader::set_link(self, record, link);
    }
}

/// The ends of a chain.
#[derive(Clone, Copy)]
struct Chain {
    first: u32,
    last: u32,
}

impl Chain {
    const EMPTY: Chain = Chain {
        first: NONE,
        last: NONE,
    };

    #[inline]
    fn is_empty(&self) -> bool {
        self.first == NONE
    }

    #[inline]
    fn append(&mut self, records: &mut impl Records, record: u32) {
        records.set_link(record, NONE);
        if self.is_empty() {
            self.first = record;
        } else {
            records.set_link(self.last, record);
        }
        self.last = record;
    }

    #[inline]
    fn pop(&mut self, records: &impl Records) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let record = self.first;
        self.first = records.link(record);
        Some(record)
    }

    #[inline]
    fn take(&mut self) -> Chain {
        std::mem::replace(self, Chain::EMPTY)
    }
}

/// The wheel.
pub(crate) struct Wheel {
    near: Box<[Chain]>,
    far: Box<[Chain]>,
    used_near: Bitmap,
    used_far: Bitmap,
    /// Records of the next period that are not in near slots yet.
    moving: Chain,
    /// Records of the slot at the cursor and of slots before it, in the order of (release, writing).
    due: Chain,
    /// The near slot, counted from time 0, that time has reached.
    cursor: u64,
}

impl Wheel {
    /// Returns an empty wheel at a time in nanoseconds.
    pub(crate) fn new(now: u64) -> Wheel {
        Wheel {
            near: vec![Chain::EMPTY; NEAR].into_boxed_slice(),
            far: vec![Chain::EMPTY; FAR].into_boxed_slice(),
            used_near: Bitmap::new(NEAR),
            used_far: Bitmap::new(FAR),
            moving: Chain::EMPTY,
            due: Chain::EMPTY,
            cursor: now >> SLOT,
        }
    }

    #[inline]
    fn period(&self) -> u64 {
        self.cursor >> PERIOD
    }

    /// Places a record. Records must be placed in the order of writing.
    #[inline]
    pub(crate) fn insert(&mut self, records: &mut impl Records, record: u32) {
        self.step(records);
        self.place(records, record);
    }

    #[inline]
    fn place(&mut self, records: &mut impl Records, record: u32) {
        let slot = records.release(record) >> SLOT;
        let (period, current) = (slot >> PERIOD, self.period());
        if slot <= self.cursor {
            self.insert_due(records, record);
        } else if period == current + 1 && !self.moving.is_empty() {
            self.moving.append(records, record);
        } else if period <= current + 1 {
            let at = slot as usize % NEAR;
            self.near[at].append(records, record);
            self.used_near.set(at);
        } else {
            let at = period.min(current + FAR as u64 - 1) as usize % FAR;
            self.far[at].append(records, record);
            self.used_far.set(at);
        }
    }

    /// Puts a record behind those of `due` that are released no later.
    fn insert_due(&mut self, records: &mut impl Records, record: u32) {
        let release = records.release(record);
        if self.due.is_empty() || records.release(self.due.last) <= release {
            self.due.append(records, record);
            return;
        }
        let (mut before, mut after) = (NONE, self.due.first);
        while records.release(after) <= release {
            (before, after) = (after, records.link(after));
        }
        records.set_link(record, after);
        if before == NONE {
            self.due.first = record;
        } else {
            records.set_link(before, record);
        }
    }

    /// Moves a few records of the next period to near slots.
    #[inline]
    fn step(&mut self, records: &mut impl Records) {
        if !self.moving.is_empty() {
            self.move_records(records, STEP);
        }
    }

    fn move_records(&mut self, records: &mut impl Records, most: usize) {
        // While one is placed, it must not join the chain that it comes from.
        let mut chain = self.moving.take();
        for _ in 0..most {
            let Some(record) = chain.pop(records) else {
                break;
            };
            self.place(records, record);
        }
        self.moving = chain;
    }

    /// Removes and returns the first record that is due at `now`, in nanoseconds.
    #[inline]
    pub(crate) fn take(&mut self, records: &mut impl Records, now: u64) -> Option<u32> {
        if self.due.is_empty() {
            self.advance(records, now >> SLOT);
        }
        if self.due.is_empty() || records.release(self.due.first) > now {
            return None;
        }
        self.due.pop(records)
    }

    /// Returns a time in nanoseconds before which no record is due, exact to a slot within this period and the next, and to a
    /// period beyond.
    pub(crate) fn next_due(&self, records: &impl Records) -> Option<u64> {
        if !self.due.is_empty() {
            return Some(records.release(self.due.first));
        }
        let end = (self.period() + 1) << PERIOD;
        match self.next_near() {
            Some(slot) if slot < end || self.moving.is_empty() => Some(slot << SLOT),
            _ if !self.moving.is_empty() => Some(end << SLOT),
            _ => self.next_far().map(|period| period << (SLOT + PERIOD)),
        }
    }

    /// Returns the first near slot after the cursor that has records.
    fn next_near(&self) -> Option<u64> {
        let from = self.cursor + 1;
        let at = self.used_near.next(from as usize % NEAR)?;
        Some(from + (at + NEAR - from as usize % NEAR) as u64 % NEAR as u64)
    }

    /// Returns the first period after the next that has records.
    fn next_far(&self) -> Option<u64> {
        let from = self.period() + 2;
        let at = self.used_far.next(from as usize % FAR)?;
        Some(from + (at + FAR - from as usize % FAR) as u64 % FAR as u64)
    }

    /// Goes on to the slot `now`, or to the first before it that has records.
    fn advance(&mut self, records: &mut impl Records, now: u64) {
        self.step(records);
        while self.due.is_empty() && self.cursor < now {
            let end = (self.period() + 1) << PERIOD;
            match self.next_near() {
                Some(slot) if slot < end => {
                    if slot > now {
                        self.cursor = now;
                        return;
                    }
                    self.cursor = slot;
                    self.sort_slot(records);
                }
                next => {
                    if now < end {
                        self.cursor = now;
                        return;
                    }
                    let next_has_records = next.is_some() || !self.moving.is_empty();
                    self.enter(records, now >> PERIOD, next_has_records);
                }
            }
        }
    }

    /// Enters the next period that has records, `last` at most.
    fn enter(&mut self, records: &mut impl Records, last: u64, next_has_records: bool) {
        let next = self.period() + 1;
        let period = if next_has_records {
            next
        } else {
            self.next_far().unwrap_or(last).clamp(next, last.max(next))
        };
        self.move_records(records, usize::MAX);
        self.cursor = period << PERIOD;
        if period > next {
            // Nothing was in the periods between; this one's records are still far.
            self.moving = self.take_far(period);
            self.move_records(records, usize::MAX);
        }
        self.moving = self.take_far(period + 1);
        self.sort_slot(records);
    }

    fn take_far(&mut self, period: u64) -> Chain {
        let at = period as usize % FAR;
        self.used_far.clear(at);
        self.far[at].take()
    }

    /// Sorts the records of the slot at the cursor into `due`.
    fn sort_slot(&mut self, records: &mut impl Records) {
        let at = self.cursor as usize % NEAR;
        self.used_near.clear(at);
        let mut slot = self.near[at].take();
        while let Some(record) = slot.pop(records) {
            self.insert_due(records, record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Records in an array: (release, link).
    #[derive(Default)]
    struct Array(Vec<(u64, u32)>);

    impl Records for Array {
        fn release(&self, record: u32) -> u64 {
            self.0[record as usize].0
        }

        fn link(&self, record: u32) -> u32 {
            self.0[record as usize].1
        }

        fn set_link(&mut self, record: u32, link: u32) {
            self.0[record as usize].1 = link;
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u64),
        Pass(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // Delays and pauses of every size, from less than a slot to beyond the wheel.
        let span = || (0u32..36).prop_flat_map(|bits| 0..1u64 << bits);
        prop::collection::vec(
            prop_oneof![3 => span().prop_map(Step::Insert), 1 => span().prop_map(Step::Pass)],
            0..400,
        )
    }

    proptest! {
        #[test]
        fn records_come_out_when_due_in_the_order_of_release_and_writing(steps in steps(), start in 0u64..1 << 50) {
            let mut records = Array::default();
            let mut wheel = Wheel::new(start);
            let mut model: std::collections::BTreeSet<(u64, u32)> = std::collections::BTreeSet::new();
            let mut now = start;
            let end = Step::Pass(1 << 40);
            for step in steps.into_iter().chain([end]) {
                match step {
                    Step::Insert(delay) => {
                        let record = records.0.len() as u32;
                        records.0.push((now + delay, NONE));
                        wheel.insert(&mut records, record);
                        model.insert((now + delay, record));
                    }
                    Step::Pass(time) => now += time,
                }
                let bound = wheel.next_due(&records);
                prop_assert_eq!(bound.is_some(), !model.is_empty());
                if let (Some(bound), Some((first, _))) = (bound, model.first()) {
                    prop_assert!(bound <= *first, "next_due {} is after {}", bound, first);
                }
                while let Some(record) = wheel.take(&mut records, now) {
                    prop_assert_eq!(model.pop_first(), Some((records.release(record), record)));
                }
                prop_assert!(model.first().is_none_or(|(release, _)| *release > now));
            }
            prop_assert!(model.is_empty());
        }
    }

    #[test]
    fn whoever_polls_at_next_due_gets_a_record_after_a_few_polls() {
        let mut records = Array::default();
        let mut wheel = Wheel::new(0);
        for record in 0..1000u32 {
            records.0.push((u64::from(record) * 7_777_777, NONE));
            wheel.insert(&mut records, record);
        }
        let mut polls = 0;
        for record in 0..1000 {
            loop {
                polls += 1;
                let now = wheel.next_due(&records).unwrap();
                if let Some(taken) = wheel.take(&mut records, now) {
                    assert_eq!((taken, records.release(taken)), (record, now));
                    break;
                }
            }
        }
        assert!(polls <= 3 * 1000, "{polls}");
        assert_eq!(wheel.next_due(&records), None);
    }
}
