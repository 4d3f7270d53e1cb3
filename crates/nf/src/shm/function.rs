//! The function's end of a window, and the loop that runs a function over it.

use core::sync::atomic::Ordering;
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use millrace_types::Time;

use super::region::{PacketMemory, Region};
use super::rest::{Pause, Rest};
use super::{AS_IT_WAS, CHANGED, COUNTERS_MAX, Given, Layout, MAGIC, at, halves};
use crate::counters::Counters;
use crate::function::{Buffer, Context, Direction, Function, Verdict};
use crate::slot::Slot;

/// Packets of a burst.
const BURST: usize = 64;
/// How often a function is told of the time without a packet.
const TICK: Duration = Duration::from_millis(100);

/// The end that is given packets.
#[derive(Debug)]
pub struct FunctionEnd {
    pub(super) region: Region,
    pub(super) layout: Layout,
    memory: PacketMemory,
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
            done,
        })
    }

    /// The memory in which packets lie that stay where they are.
    #[must_use]
    pub fn with_memory(mut self, memory: PacketMemory) -> FunctionEnd {
        self.memory = memory;
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
        let epoch = Instant::now();
        let (mut rest, mut next_tick) = (Rest::new(), Duration::ZERO);
        while !self.is_stopped() {
            let elapsed = epoch.elapsed();
            let now = Time::from_nanos(elapsed.as_nanos() as u64);
            self.beat();
            rest.runs(elapsed);
            if elapsed >= next_tick {
                next_tick = elapsed + TICK;
                function.tick(now);
                self.show(counters);
                if !goes_on() {
                    return;
                }
            }
            if self.serve(function, now) != 0 {
                rest.found();
                continue;
            }
            match rest.pause(elapsed) {
                Pause::Yield => std::thread::yield_now(),
                Pause::Sleep(time) => std::thread::sleep(time),
            }
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

    /// Runs the function over the packets that are there, one burst of one direction at most. Returns how many.
    pub fn serve(&mut self, function: &mut dyn Function, now: Time) -> usize {
        let given = self.region.number(at::GIVEN).load(Ordering::Acquire);
        let waiting = given.wrapping_sub(self.done).min(BURST as u64);
        if waiting == 0 {
            return 0;
        }
        let (first, layout) = (self.done, self.layout);
        // Places in a row, up to the end of the array, lie side by side.
        let row = waiting.min(layout.places as u64 - (first & (layout.places as u64 - 1)));
        let mut packets = ArrayVec::<Given, BURST>::new();
        for number in first..first + row {
            let description = self.region.number(layout.description(number));
            let packet = Given::from_word(description.load(Ordering::Relaxed));
            if packets
                .first()
                .is_some_and(|first| first.direction != packet.direction)
            {
                break;
            }
            packets.push(packet);
        }
        let len = packets.len();
        let lent: ArrayVec<&mut [u8], BURST> = match layout.place_size {
            0 => {
                let (region, memory) = (&self.region, &mut self.memory);
                memory.lend((first..).zip(&packets).map(|(number, packet)| {
                    let address = region
                        .number(layout.description(number) + 8)
                        .load(Ordering::Relaxed);
                    (address, usize::from(packet.start) + usize::from(packet.size))
                }))
            }
            size => {
                let bytes = self.region.lend(layout.place(first), len * size);
                bytes.chunks_exact_mut(size).collect()
            }
        };
        let mut slots = ArrayVec::<Slot<'_>, BURST>::new();
        for (place, packet) in lent.into_iter().zip(&packets) {
            slots.push(Slot::new(
                place,
                packet.start.into(),
                packet.size.into(),
                packet.total as usize,
            ));
        }
        let context = Context {
            now,
            direction: packets
                .first()
                .map_or(Direction::Forward, |packet| packet.direction),
        };
        let mut verdicts = [Verdict::Next; BURST];
        let mut burst = ArrayVec::<&mut dyn Buffer, BURST>::new();
        for slot in &mut slots {
            burst.push(slot);
        }
        let verdicts = &mut verdicts[..burst.len()];
        function.process(&context, &mut burst, verdicts);
        drop(burst);
        let bounds: ArrayVec<(usize, usize), BURST> = slots.iter().map(Slot::bounds).collect();
        drop(slots);
        for (((number, packet), bounds), verdict) in (first..).zip(&packets).zip(bounds).zip(&*verdicts) {
            self.answer(number, packet, bounds, *verdict);
        }
        self.done += len as u64;
        self.region.number(at::DONE).store(self.done, Ordering::Release);
        len
    }

    /// Says what became of a packet.
    #[inline]
    fn answer(&self, number: u64, given: &Given, (start, size): (usize, usize), verdict: Verdict) {
        let note = self.region.byte(self.layout.note(number));
        if verdict == Verdict::Next && (start, size) == (given.start.into(), given.size.into()) {
            return note.store(AS_IT_WAS, Ordering::Relaxed);
        }
        let answer = self.layout.answer(number);
        let (word, operand) = verdict.to_raw();
        let words = [halves(start as u32, size as u32), halves(word, operand)];
        for (word, at) in words.into_iter().zip([answer, answer + 8]) {
            self.region.number(at).store(word, Ordering::Relaxed);
        }
        note.store(CHANGED, Ordering::Relaxed);
    }
}
