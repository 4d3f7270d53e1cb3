//! The function's end of a window (the shared-memory ring to the switch), and the poll loop of a function.

use core::ops::Range;
use core::sync::atomic::Ordering;
use std::fs::File;
use std::io;

use arrayvec::ArrayVec;
use millrace_shared_memory::{prefetch, prefetch_to_write};
use millrace_types::Time;

use super::layout::{ADDRESS_BITS, CHANGED, COUNTERS_MAX, Layout, MAGIC, TAIL_UNIT, UNCHANGED, at};
use super::records::RecordWriter;
use super::region::{PacketMemory, Region};
use super::{BurstKind, Descriptor, halves};
use crate::buffer::Buffer as _;
use crate::burst::{BURST, Context, Verdict};
use crate::counters::Counters;
use crate::effects::Effects;
use crate::function::Function;
use crate::kind::Setup;
use crate::outbox::Outbox;
use crate::rounds::Rounds;
use crate::shared::{NewValue, Values};
use crate::slot::Slot;

/// The function's end of a window: it receives packets and writes the answers.
#[derive(Debug)]
pub struct FunctionEnd {
    pub(super) region: Region,
    pub(super) layout: Layout,
    pub(super) memory: PacketMemory,
    /// True if the function writes to packets.
    writes: bool,
    /// The number of packets given, as last read from the window.
    pub(super) given: u64,
    pub(super) done: u64,
    effects: Effects,
    pub(super) records: RecordWriter,
}

impl FunctionEnd {
    /// Maps the window that a switch has created.
    ///
    /// # Errors
    /// The kernel's error, or [`io::ErrorKind::InvalidData`] if the file is not a window of this version.
    pub fn open(file: &File) -> io::Result<FunctionEnd> {
        let region = Region::open(file)?;
        let number = |at: usize| region.number(at).load(Ordering::Acquire) as usize;
        let layout = Layout {
            slots: number(at::SLOTS),
            slot_size: number(at::SLOT_SIZE),
        };
        let is_window = region.number(at::MAGIC).load(Ordering::Acquire) == MAGIC
            && layout.slots.is_power_of_two()
            && layout.slots <= region.size()
            && layout.slot_size <= region.size()
            && layout.size() == region.size();
        if !is_window {
            let message =
                "not a window of this version: start the function with the millrace-nf of this millraced";
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let done = number(at::DONE) as u64;
        Ok(FunctionEnd {
            records: RecordWriter::of(&region),
            region,
            layout,
            memory: PacketMemory::default(),
            writes: true,
            given: done,
            done,
            effects: Effects::new(),
        })
    }

    /// Sets the memory of packets that are not in the window.
    #[must_use]
    pub fn with_memory(mut self, memory: PacketMemory) -> FunctionEnd {
        self.memory = memory;
        self
    }

    /// Sets whether the function writes to packets; the default is true. If it does, the first cache line of
    /// each packet is prefetched for writing.
    #[must_use]
    pub fn with_writes(mut self, writes: bool) -> FunctionEnd {
        self.writes = writes;
        self
    }

    /// Sets whether the function writes to packets.
    pub fn set_writes(&mut self, writes: bool) {
        self.writes = writes;
    }

    /// Returns whether the switch has told the function to end.
    pub fn is_stopped(&self) -> bool {
        self.region.number(at::STOP).load(Ordering::Relaxed) != 0
    }

    /// Runs the function that was created with `setup`. Returns when the switch tells the function to end, or
    /// when `goes_on` returns false. `goes_on` is called ten times a second.
    pub fn run(&mut self, function: &mut dyn Function, setup: &Setup, goes_on: impl FnMut() -> bool) {
        self.run_with(function, setup, None, goes_on);
    }

    /// Runs the function as [`FunctionEnd::run`] does, and passes new shared values from `values` to it
    /// between bursts.
    pub fn run_with(
        &mut self,
        function: &mut dyn Function,
        setup: &Setup,
        mut values: Option<&mut dyn Values>,
        mut goes_on: impl FnMut() -> bool,
    ) {
        let mut rounds = Rounds::new();
        while !self.is_stopped() {
            let round = rounds.begin();
            self.beat();
            if round.ticks {
                if let Some(values) = &mut values {
                    self.share(function, &mut **values);
                }
                function.tick(round.now);
                self.show(&setup.counters);
                self.pass_on(&setup.report, true);
                if !goes_on() {
                    return;
                }
            }
            self.pass_on(&setup.outbox, false);
            self.receive_notices(function);
            let served = self.serve(function, round.now);
            rounds.end(served != 0);
        }
        self.show(&setup.counters);
    }

    /// Moves the messages of a queue to the ring of records until the ring is full. The other messages stay
    /// in the queue.
    pub fn pass_on(&mut self, queue: &Outbox, is_report: bool) {
        if queue.is_empty() {
            return;
        }
        let size = queue.size();
        while self.records.has_room(&self.region, size) {
            let (records, window, done) = (&mut self.records, (&self.region, self.layout), self.done);
            if !queue.receive(|bytes| records.message(window, is_report, done, bytes)) {
                break;
            }
        }
        self.records.publish(&self.region);
    }

    /// Tells the function which flows are no longer shunned.
    pub fn receive_notices(&mut self, function: &mut dyn Function) {
        while let Some(ended) = self.records.notice(&self.region, self.layout) {
            function.shun_ended(&ended);
        }
    }

    /// Passes the next shared value to the function, if there is one, and reports its number to the switch.
    fn share(&self, function: &mut dyn Function, values: &mut dyn Values) {
        let Some(NewValue { generation, value }) = values.take() else {
            return;
        };
        let at = match value {
            None => at::VALUE_FAILED,
            Some(value) => {
                if let Some(old) = function.share(value) {
                    values.retire(old);
                }
                at::VALUE
            }
        };
        self.region.number(at).store(generation, Ordering::Release);
    }

    /// Increments the heartbeat counter.
    pub fn beat(&self) {
        let heartbeat = self.region.number(at::HEARTBEAT);
        let beats = heartbeat.load(Ordering::Relaxed).wrapping_add(1);
        heartbeat.store(beats, Ordering::Relaxed);
    }

    /// Writes the function's counters to the window, where the switch reads them.
    pub fn show(&self, counters: &Counters) {
        for (index, (_, value)) in counters.read().into_iter().take(COUNTERS_MAX).enumerate() {
            self.region
                .number(at::COUNTERS + 8 * index)
                .store(value, Ordering::Relaxed);
        }
    }

    /// Returns the number of packets that wait for the function. The result may leave out new packets if a
    /// burst or more wait already.
    #[inline]
    pub(super) fn waiting(&mut self) -> u64 {
        let known = self.given.wrapping_sub(self.done);
        if known >= BURST as u64 {
            return known;
        }
        self.given = self.region.number(at::GIVEN).load(Ordering::Acquire);
        self.given.wrapping_sub(self.done)
    }

    /// Passes packets of one kind, a burst at most, to the function. Returns their number.
    pub fn serve(&mut self, function: &mut dyn Function, now: Time) -> usize {
        let waiting = self.waiting();
        if waiting == 0 {
            return 0;
        }
        let (first, layout, writes, region) = (self.done, self.layout, self.writes, &self.region);
        // Slots up to the end of the array are adjacent.
        let row = waiting
            .min(BURST as u64)
            .min(layout.slots as u64 - (first & (layout.slots as u64 - 1)));
        region.own(at::DONE);
        // The previous call has prefetched the descriptors of this burst.
        for (first, packets) in [(first, row), (first + row, waiting - row)] {
            for line in layout.descriptor_lines(first, packets as usize) {
                region.fetch(line);
            }
        }
        let number = |at: usize| region.number(at).load(Ordering::Relaxed);
        let at_entry = number(at::LOAD).min(255);
        let mut kind: Option<BurstKind> = None;
        let packets = (first..first + row).map_while(|of| {
            let packet = Descriptor::from_word(number(layout.descriptor(of)));
            (*kind.get_or_insert(packet.kind) == packet.kind).then_some((of, packet))
        });
        let mut slots = ArrayVec::<Slot<'_>, BURST>::new();
        match layout.slot_size {
            0 => {
                let packets = packets.map(|(of, packet)| {
                    let word = number(layout.descriptor(of) + 8);
                    let size = usize::from(packet.start) + usize::from(packet.size);
                    let (address, tail) = (word & ((1 << ADDRESS_BITS) - 1), word >> ADDRESS_BITS);
                    ((packet, tail), address, size)
                });
                for ((packet, tail), bytes) in self.memory.lend(packets) {
                    let slot = slot(&packet, bytes, writes);
                    slots.push(match (tail as usize).checked_sub(1) {
                        None => slot,
                        Some(unit) => {
                            let rest = (packet.total as usize).saturating_sub(packet.size.into());
                            slot.with_rest(self.region.bytes(layout.first_tail() + unit * TAIL_UNIT, rest))
                        }
                    });
                }
            }
            size => {
                let packets: ArrayVec<Descriptor, BURST> = packets.map(|(_, packet)| packet).collect();
                let bytes = self.region.lend(layout.slot(first), packets.len() * size);
                for (packet, bytes) in packets.iter().zip(bytes.chunks_exact_mut(size)) {
                    slots.push(slot(packet, bytes, writes));
                }
            }
        }
        let kind = kind.unwrap_or_default();
        // The load is the mean fill level of the chain's entry and of the window: packets wait in both.
        let load = (waiting * 255 / layout.slots as u64).min(255) + at_entry;
        let context = Context {
            load: (load / 2) as u8,
            ..Context::new(now, kind.direction)
        };
        let len = slots.len();
        self.effects.reset(kind.into());
        let verdicts = Slot::process(&mut slots, function, &context, &mut self.effects);
        let all_next = verdicts.iter().all(|verdict| *verdict == Verdict::Next);
        let bounds: ArrayVec<Option<Range<usize>>, BURST> =
            match all_next && slots.iter().all(Slot::is_in_place) {
                true => ArrayVec::new(),
                false => {
                    let moved = |(slot, verdict): (&Slot<'_>, &Verdict)| {
                        (*verdict != Verdict::Next || !slot.is_in_place()).then(|| slot.bounds())
                    };
                    slots.iter().zip(&verdicts).map(moved).collect()
                }
            };
        drop(slots);
        for (index, number) in (first..first + len as u64).enumerate() {
            match bounds.get(index) {
                Some(Some(bounds)) => self.answer(number, bounds, verdicts[index]),
                _ => self.note(number, UNCHANGED),
            }
        }
        if !self.effects.is_empty() {
            self.write_effects(len as u64);
        }
        self.done += len as u64;
        self.region.number(at::DONE).store(self.done, Ordering::Release);
        len
    }

    /// Writes the effects of a burst of `len` packets to the ring of records. The burst is not reported done
    /// yet.
    #[cold]
    fn write_effects(&mut self, len: u64) {
        let FunctionEnd {
            region,
            layout,
            effects,
            records,
            done,
            ..
        } = self;
        let window = (&*region, *layout);
        // Shun requests are written first, so that packets cannot use up the space for them.
        for shun in effects.shuns().iter().filter(|shun| (shun.packet as u64) < len) {
            records.shun(window, *done + shun.packet as u64 + 1, shun.action, shun.idle);
        }
        for (direction, frame) in effects.sent() {
            records.send(window, direction, *done + len, frame);
        }
        if effects.refused() != 0 {
            records.refuse(region, effects.refused());
        }
        records.publish(region);
    }

    /// Sets the note of a packet. An equal note of the previous packet in the slot is not written again, so that no cache
    /// line is transferred.
    #[inline]
    pub(super) fn note(&self, number: u64, value: u8) {
        let note = self.region.byte(self.layout.note(number));
        if note.load(Ordering::Relaxed) != value {
            note.store(value, Ordering::Relaxed);
        }
    }

    /// Writes the answer to a packet that has a new offset or size, or that is not forwarded to the next hop.
    #[inline]
    pub(super) fn answer(&self, number: u64, bounds: &Range<usize>, verdict: Verdict) {
        let answer = self.layout.answer(number);
        let (word, operand) = verdict.to_raw();
        let words = [
            halves(bounds.start as u32, bounds.len() as u32),
            halves(word, operand),
        ];
        for (word, at) in words.into_iter().zip([answer, answer + 8]) {
            self.region.number(at).store(word, Ordering::Relaxed);
        }
        self.note(number, CHANGED);
    }
}

/// Returns the slot of a packet, and prefetches the first line of the packet.
#[inline]
fn slot<'a>(packet: &Descriptor, memory: &'a mut [u8], writes: bool) -> Slot<'a> {
    let slot = Slot::whole(
        memory,
        packet.start.into(),
        packet.size.into(),
        packet.total as usize,
    );
    let head = slot.head().as_ptr();
    match writes {
        true => prefetch_to_write(head),
        false => prefetch(head),
    }
    slot
}
