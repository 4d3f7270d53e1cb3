//! A timer wheel of records. It returns the records that are due, in the order of (release, writing).
//!
//! ```text
//!   far     8192 slots of one period (2^20 ns, 1.05 ms), 8.6 s in all
//!             |  the records of the next period are moved eight at a time
//!             v
//!   near    2048 slots of 2^10 ns (1.024 us): this period and the next
//!             |  a slot that begins is sorted
//!             v
//!   due     one list in the order of release
//! ```
//!
//! A far slot is eight stacks that are linked through the records. A near slot is a short array and one such
//! stack for the excess. The insertion of a record touches no other record, so that the processor does not
//! have to fetch another record's memory. When records move to near slots or are sorted, the memory of
//! several is fetched in parallel: one record from each stack, or all of an array. A period is short, so that
//! a moved record is still in the cache when it is sorted.
//!
//! The records of a near slot have no order. When time reaches the slot, they are sorted into `due` by (release, writing), so that
//! the order is exact to the nanosecond.
//!
//! A record that is due later than in 8.6 s waits in the last far slot and is inserted again from there. No
//! call allocates, and each call takes a bounded number of steps for each record.

use arrayvec::ArrayVec;

use super::bitmap::Bitmap;
use super::records::{Memory, NONE, Reader};

/// The binary logarithm of a near slot in nanoseconds.
const SLOT: u32 = 10;
/// The binary logarithm of a period in near slots.
const PERIOD: u32 = 10;
const NEAR: usize = 2 << PERIOD;
const FAR: usize = 8192;
/// The number of stacks of a far slot. It is also the number of records that move to near slots at each
/// insertion and at each poll.
const STACKS: usize = 8;
/// The units from the beginning of a record to its second cache line.
const SECOND_LINE: u32 = 4;

/// The number of records that are sorted at once. If a slot has more, several sorted batches are merged.
const BATCH: usize = 64;

/// Access to the links and times of records.
pub(crate) trait Records {
    fn release(&self, record: u32) -> u64;
    /// Returns a number that is larger the later the record was written.
    fn sequence(&self, record: u32) -> u64;
    fn link(&self, record: u32) -> u32;
    fn set_link(&mut self, record: u32, link: u32);
    /// Fetches the beginning of a record's frame into the cache.
    fn touch(&self, record: u32);
}

impl<M: Memory> Records for Reader<M> {
    #[inline]
    fn release(&self, record: u32) -> u64 {
        Reader::release(self, record)
    }

    #[inline]
    fn sequence(&self, record: u32) -> u64 {
        Reader::sequence(self, record)
    }

    #[inline]
    fn link(&self, record: u32) -> u32 {
        Reader::link(self, record)
    }

    #[inline]
    fn set_link(&mut self, record: u32, link: u32) {
        Reader::set_link(self, record, link);
    }

    #[inline]
    fn touch(&self, record: u32) {
        Reader::touch(self, record, SECOND_LINE);
    }
}

/// The sort key of a record (release, sequence), and the record.
type Key = (u64, u64, u32);

#[inline]
fn key(records: &impl Records, record: u32) -> Key {
    (records.release(record), records.sequence(record), record)
}

/// A timer wheel in two resolutions: near slots for the current period, far slots for later ones.
pub(crate) struct Wheel {
    near: Box<[Slot]>,
    far: Box<[Stacks]>,
    used_near: Bitmap,
    used_far: Bitmap,
    /// Records of the next period that are not in near slots yet.
    moving: Stacks,
    /// The number of records that were pushed to far slots. It selects the stack of the next record.
    next_stack: usize,
    /// The records of the slot at the cursor and of earlier slots, in order.
    due: List,
    /// The near slot that time has reached, counted from time 0.
    cursor: u64,
}

/// A list of records.
#[derive(Clone, Copy)]
struct List {
    first: u32,
    /// The last record; its value has no meaning while the list is empty.
    last: u32,
}

impl List {
    const EMPTY: List = List {
        first: NONE,
        last: NONE,
    };
}

/// The records of a near slot. Some are in an array, so that the processor fetches them in parallel. The rest
/// is in a stack.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Slot {
    len: u32,
    row: [u32; Slot::ROW],
    top: u32,
}

impl Slot {
    /// The array and the other fields fill a cache line.
    const ROW: usize = 14;
    const EMPTY: Slot = Slot {
        len: 0,
        row: [NONE; Slot::ROW],
        top: NONE,
    };

    #[inline]
    fn push(&mut self, records: &mut impl Records, record: u32) {
        match self.row.get_mut(self.len as usize) {
            Some(place) => {
                *place = record;
                self.len += 1;
            }
            None => push(&mut self.top, records, record),
        }
    }
}

/// Puts a record on top of a stack.
#[inline]
fn push(top: &mut u32, records: &mut impl Records, record: u32) {
    records.set_link(record, *top);
    *top = record;
}

/// Removes the top record of a stack.
#[inline]
fn pop(top: &mut u32, records: &impl Records) -> Option<u32> {
    if *top == NONE {
        return None;
    }
    let record = *top;
    *top = records.link(record);
    Some(record)
}

/// The records of a far slot: the top record of each stack.
///
/// The successor of a record is in the record's memory, which is no longer in a cache. So several stacks are
/// popped in parallel.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stacks([u32; STACKS]);

impl Stacks {
    const EMPTY: Stacks = Stacks([NONE; STACKS]);
}

impl Wheel {
    /// Returns an empty wheel at a time in nanoseconds.
    pub(crate) fn new(now: u64) -> Wheel {
        Wheel {
            near: vec![Slot::EMPTY; NEAR].into_boxed_slice(),
            far: vec![Stacks::EMPTY; FAR].into_boxed_slice(),
            used_near: Bitmap::new(NEAR),
            used_far: Bitmap::new(FAR),
            moving: Stacks::EMPTY,
            next_stack: 0,
            due: List::EMPTY,
            cursor: now >> SLOT,
        }
    }

    #[inline]
    fn period(&self) -> u64 {
        self.cursor >> PERIOD
    }

    /// Inserts a record.
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
            let key = key(records, record);
            self.merge(records, &[key]);
        } else if period <= current + 1 {
            let at = slot as usize % NEAR;
            self.near[at].push(records, record);
            self.used_near.set(at);
        } else {
            let at = period.min(current + FAR as u64 - 1) as usize % FAR;
            self.next_stack += 1;
            push(&mut self.far[at].0[self.next_stack % STACKS], records, record);
            self.used_far.set(at);
        }
    }

    /// Merges sorted records into `due`.
    fn merge(&mut self, records: &mut impl Records, sorted: &[Key]) {
        let (mut before, mut after) = (NONE, self.due.first);
        let is_behind =
            |last: u32, records: &_| sorted.first().is_some_and(|first| key(records, last) < *first);
        if after != NONE && is_behind(self.due.last, records) {
            (before, after) = (self.due.last, NONE);
        }
        for next in sorted {
            while after != NONE && key(records, after) < *next {
                (before, after) = (after, records.link(after));
            }
            let record = next.2;
            records.set_link(record, after);
            if before == NONE {
                self.due.first = record;
            } else {
                records.set_link(before, record);
            }
            if after == NONE {
                self.due.last = record;
            }
            before = record;
        }
    }

    /// Moves some records of the next period to near slots.
    #[inline]
    fn step(&mut self, records: &mut impl Records) {
        if self.moving != Stacks::EMPTY {
            self.move_records(records);
        }
    }

    /// Moves one record of each stack to a near slot.
    fn move_records(&mut self, records: &mut impl Records) {
        // All records are popped before the first is inserted, so that the processor fetches their memory in
        // parallel.
        let popped = self.moving.0.each_mut().map(|top| pop(top, records));
        for record in popped.into_iter().flatten() {
            self.place(records, record);
        }
    }

    /// Moves all records of the next period to near slots.
    fn move_all(&mut self, records: &mut impl Records) {
        while self.moving != Stacks::EMPTY {
            self.move_records(records);
        }
    }

    /// Removes and returns the first record that is due at `now`, in nanoseconds.
    #[inline]
    pub(crate) fn take(&mut self, records: &mut impl Records, now: u64) -> Option<u32> {
        if self.due.first == NONE {
            self.advance(records, now >> SLOT);
        }
        if self.due.first == NONE || records.release(self.due.first) > now {
            return None;
        }
        pop(&mut self.due.first, records)
    }

    /// Returns a time in nanoseconds before which no record is due. It is exact to a slot within the current
    /// period, and to a period beyond it, except for records beyond the last far slot.
    pub(crate) fn next_due(&self, records: &impl Records) -> Option<u64> {
        if self.due.first != NONE {
            return Some(records.release(self.due.first));
        }
        let end = (self.period() + 1) << PERIOD;
        match self.next_near() {
            Some(slot) if slot < end || self.moving == Stacks::EMPTY => Some(slot << SLOT),
            _ if self.moving != Stacks::EMPTY => Some(end << SLOT),
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

    /// Advances to the slot `now`, or to the first earlier slot with records.
    fn advance(&mut self, records: &mut impl Records, now: u64) {
        self.step(records);
        while self.due.first == NONE && self.cursor < now {
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
                    let next_has_records = next.is_some() || self.moving != Stacks::EMPTY;
                    self.enter(records, now >> PERIOD, next_has_records);
                }
            }
        }
    }

    /// Enters the next period with records, but no period after `last`.
    fn enter(&mut self, records: &mut impl Records, last: u64, next_has_records: bool) {
        let next = self.period() + 1;
        let period = if next_has_records {
            next
        } else {
            self.next_far().unwrap_or(last).clamp(next, last.max(next))
        };
        self.move_all(records);
        self.cursor = period << PERIOD;
        if period > next {
            // The skipped periods hold no records. The records of this period are still in far slots.
            self.moving = self.take_far(period);
            self.move_all(records);
        }
        self.moving = self.take_far(period + 1);
        self.sort_slot(records);
    }

    fn take_far(&mut self, period: u64) -> Stacks {
        let at = period as usize % FAR;
        self.used_far.clear(at);
        std::mem::replace(&mut self.far[at], Stacks::EMPTY)
    }

    /// Sorts the records of the slot at the cursor into `due`.
    fn sort_slot(&mut self, records: &mut impl Records) {
        let at = self.cursor as usize % NEAR;
        self.used_near.clear(at);
        let Slot { len, row, mut top } = self.near[at];
        self.near[at].len = 0;
        self.near[at].top = NONE;
        let mut batch = ArrayVec::<Key, BATCH>::new();
        let row = row.iter().take(len as usize);
        batch.extend(row.map(|record| {
            records.touch(*record);
            key(records, *record)
        }));
        while !batch.is_empty() {
            batch.sort_unstable();
            self.merge(records, &batch);
            batch.clear();
            while !batch.is_full()
                && let Some(record) = pop(&mut top, records)
            {
                batch.push(key(records, record));
            }
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

        fn sequence(&self, record: u32) -> u64 {
            u64::from(record)
        }

        fn link(&self, record: u32) -> u32 {
            self.0[record as usize].1
        }

        fn set_link(&mut self, record: u32, link: u32) {
            self.0[record as usize].1 = link;
        }

        fn touch(&self, _record: u32) {}
    }

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u64),
        Pass(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // Delays and pauses of all magnitudes, from less than a slot to beyond the wheel.
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
    fn more_records_of_one_slot_than_are_sorted_at_once_come_out_in_order() {
        // A record that is due at once, one in the next period, and one beyond: all cases of insertion into a
        // near slot.
        for far in [0, 5_000_000, 50_000_000] {
            let mut records = Array::default();
            let mut wheel = Wheel::new(0);
            for record in 0..1000u32 {
                records.0.push((far + u64::from(record * 389 % 7), NONE));
                wheel.insert(&mut records, record);
            }
            let taken: Vec<_> = std::iter::from_fn(|| wheel.take(&mut records, far + 7)).collect();
            let mut expected: Vec<u32> = (0..1000).collect();
            expected.sort_by_key(|record| (record * 389 % 7, *record));
            assert_eq!(taken, expected);
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
