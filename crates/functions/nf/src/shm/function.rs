//! The function's end of a window, and the loop that runs a function over it.

use core::sync::atomic::Ordering;
use std::fs::File;
use std::io;

use arrayvec::ArrayVec;
use millrace_types::Time;

use super::region::{PacketMemory, Region, prefetch, prefetch_to_write};
use super::{AS_IT_WAS, CHANGED, COUNTERS_MAX, Given, Layout, MAGIC, at, halves};
use crate::counters::Counters;
use crate::function::{Buffer as _, Context, Function, Verdict};
use crate::rounds::Rounds;
use crate::slot::{BURST, Slot};

/// The end that is given packets.
#[derive(Debug)]
pub struct FunctionEnd {
    pub(super) region: Region,
    pub(super) layout: Layout,
    memory: PacketMemory,
    /// Whether the function writes to packets.
    writes: bool,
    /// Packets that were given when that was read last.
    given: u64,
    done: u64,
}

impl FunctionEnd {
    /// A window that a switch has made.
    ///
    /// # Errors
    /// What the kernel says; [`io::ErrorKind::InvalidData`] if this is no window of this version.
    pub fn open(file: &File) -> io::Result<FunctionEnd> {
        let region = Region::open(file)?;
        let number = |at: usize| region.number(at).load(Ordering::Acquire) as usize;
        let layout = Layout {
            places: number(at::PLACES),
            place_size: number(at::PLACE_SIZE),
        };
        let is_window = region.number(at::MAGIC).load(Ordering::Acquire) == MAGIC
            && layout.places.is_power_of_two()
            && layout.places <= region.size()
            && layout.place_size <= region.size()
            && layout.size() == region.size();
        if !is_window {
            let message =
                "not a window of this version: start the function with the millrace-nf of this millraced";
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let done = number(at::DONE) as u64;
        Ok(FunctionEnd {
            region,
            layout,
            memory: PacketMemory::default(),
            writes: true,
            given: done,
            done,
        })
    }

    /// The memory in which packets lie that stay where they are.
    #[must_use]
    pub fn with_memory(mut self, memory: PacketMemory) -> FunctionEnd {
        self.memory = memory;
        self
    }

    /// Whether the function writes to packets: then their first lines are asked for to be written, else to be read. True
    /// if nothing else is said.
    #[must_use]
    pub fn with_writes(mut self, writes: bool) -> FunctionEnd {
        self.writes = writes;
        self
    }

    /// Whether the switch wants the function to end.
    pub fn is_stopped(&self) -> bool {
        self.region.number(at::STOP).load(Ordering::Relaxed) != 0
    }

    /// Runs the function until the switch wants it to end, or until `goes_on` says no, which is asked ten times a second.
    pub fn run(
        &mut self,
        function: &mut dyn Function,
        counters: &Counters,
        mut goes_on: impl FnMut() -> bool,
    ) {
        let mut rounds = Rounds::new();
        while !self.is_stopped() {
            let round = rounds.begin();
            self.beat();
            if round.ticks {
                function.tick(round.now);
                self.show(counters);
                if !goes_on() {
                    return;
                }
            }
            let served = self.serve(function, round.now);
            rounds.end(served != 0);
        }
        self.show(counters);
    }

    /// Shows that the process lives.
    pub fn beat(&self) {
        let heartbeat = self.region.number(at::HEARTBEAT);
        let beats = heartbeat.load(Ordering::Relaxed).wrapping_add(1);
        heartbeat.store(beats, Ordering::Relaxed);
    }

    fn show(&self, counters: &Counters) {
        for (place, (_, value)) in counters.read().into_iter().take(COUNTERS_MAX).enumerate() {
            self.region
                .number(at::COUNTERS + 8 * place)
                .store(value, Ordering::Relaxed);
        }
    }

    /// Packets that wait: all, or a burst at least.
    #[inline]
    fn waiting(&mut self) -> u64 {
        let known = self.given.wrapping_sub(self.done);
        if known >= BURST as u64 {
            return known;
        }
        self.given = self.region.number(at::GIVEN).load(Ordering::Acquire);
        self.given.wrapping_sub(self.done)
    }

    /// Runs the function over the packets that are there, one burst of one direction at most. Returns how many.
    pub fn serve(&mut self, function: &mut dyn Function, now: Time) -> usize {
        let waiting = self.waiting();
        if waiting == 0 {
            return 0;
        }
        let (first, layout, writes, region) = (self.done, self.layout, self.writes, &self.region);
        // Places in a row, up to the end of the array, lie side by side.
        let row = waiting
            .min(BURST as u64)
            .min(layout.places as u64 - (first & (layout.places as u64 - 1)));
        region.own(at::DONE);
        // This burst's are there already, if there was one before it.
        for (first, packets) in [(first, row), (first + row, waiting - row)] {
            for line in layout.description_lines(first, packets as usize) {
                region.fetch(line);
            }
        }
        let number = |at: usize| region.number(at).load(Ordering::Relaxed);
        let mut direction = None;
        let packets = (first..first + row).map_while(|of| {
            let packet = Given::from_word(number(layout.description(of)));
            (*direction.get_or_insert(packet.direction) == packet.direction).then_some((of, packet))
        });
        let mut slots = ArrayVec::<Slot<'_>, BURST>::new();
        match layout.place_size {
            0 => {
                let packets = packets.map(|(of, packet)| {
                    let address = number(layout.description(of) + 8);
                    let size = usize::from(packet.start) + usize::from(packet.size);
                    (packet, address, size)
                });
                for (packet, place) in self.memory.lend(packets) {
                    slots.push(slot(&packet, place, writes));
                }
            }
            size => {
                let packets: ArrayVec<Given, BURST> = packets.map(|(_, packet)| packet).collect();
                let bytes = self.region.lend(layout.place(first), packets.len() * size);
                for (packet, place) in packets.iter().zip(bytes.chunks_exact_mut(size)) {
                    slots.push(slot(packet, place, writes));
                }
            }
        }
        let context = Context {
            now,
            direction: direction.unwrap_or_default(),
        };
        let len = slots.len();
        let verdicts = Slot::process(&mut slots, function, &context);
        let all_next = verdicts.iter().all(|verdict| *verdict == Verdict::Next);
        let bounds: ArrayVec<Option<(usize, usize)>, BURST> =
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
        for (place, number) in (first..first + len as u64).enumerate() {
            match bounds.get(place) {
                Some(Some(bounds)) => self.answer(number, *bounds, verdicts[place]),
                _ => self.note(number, AS_IT_WAS),
            }
        }
        self.done += len as u64;
        self.region.number(at::DONE).store(self.done, Ordering::Release);
        len
    }

    /// Says in a byte what became of a packet. Where that is what was said of the last one in this place, nothing crosses
    /// to the other core.
    #[inline]
    fn note(&self, number: u64, what: u8) {
        let note = self.region.byte(self.layout.note(number));
        if note.load(Ordering::Relaxed) != what {
            note.store(what, Ordering::Relaxed);
        }
    }

    /// Says what became of a packet that is not as it was, or goes elsewhere.
    #[inline]
    fn answer(&self, number: u64, (start, size): (usize, usize), verdict: Verdict) {
        let answer = self.layout.answer(number);
        let (word, operand) = verdict.to_raw();
        let words = [halves(start as u32, size as u32), halves(word, operand)];
        for (word, at) in words.into_iter().zip([answer, answer + 8]) {
            self.region.number(at).store(word, Ordering::Relaxed);
        }
        self.note(number, CHANGED);
    }
}

/// A packet in its place, of which the first line is asked for.
#[inline]
fn slot<'a>(packet: &Given, place: &'a mut [u8], writes: bool) -> Slot<'a> {
    let slot = Slot::new(
        place,
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
