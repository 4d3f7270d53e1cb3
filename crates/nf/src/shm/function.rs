//! The function's end of a window, and the loop that runs a function over it.

use core::sync::atomic::Ordering;
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use millrace_types::Time;

use super::region::{PacketMemory, Region};
use super::rest::{Pause, Rest};
use super::{COUNTERS_MAX, Layout, MAGIC, at, halves};
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
        let describe = |region: &Region, number: u64| {
            let description = layout.description(number);
            let number = |at: usize| region.number(at).load(Ordering::Relaxed);
            (number(description), number(description + 8))
        };
        // Places in a row, up to the end of the array, lie side by side.
        let row = waiting.min(layout.places as u64 - (first & (layout.places as u64 - 1)));
        let way = describe(&self.region, first).1 >> 32;
        let same = (0..row).take_while(|ahead| describe(&self.region, first + ahead).1 >> 32 == way);
        let len = same.count();
        let mut places = [(0_u64, 0_u64); BURST];
        for (ahead, place) in (0..).zip(&mut places[..len]) {
            *place = describe(&self.region, first + ahead);
        }
        let lent: ArrayVec<&mut [u8], BURST> = match layout.place_size {
            0 => {
                let address = |ahead: u64| {
                    let description = layout.description(first + ahead);
                    self.region.number(description + 32).load(Ordering::Relaxed)
                };
                let places: ArrayVec<(u64, usize), BURST> = (0..)
                    .zip(&places[..len])
                    .map(|(ahead, (bounds, _))| {
                        let size = (bounds & 0xffff_ffff) + (bounds >> 32);
                        (address(ahead), size as usize)
                    })
                    .collect();
                self.memory.lend(&places)
            }
            size => {
                let bytes = self.region.lend(layout.place(first), len * size);
                bytes.chunks_exact_mut(size).collect()
            }
        };
        let mut slots: ArrayVec<Slot<'_>, BURST> = lent
            .into_iter()
            .zip(&places[..len])
            .map(|(place, (bounds, sizes))| {
                let (start, size) = (bounds & 0xffff_ffff, bounds >> 32);
                Slot::new(
                    place,
                    start as usize,
                    size as usize,
                    (sizes & 0xffff_ffff) as usize,
                )
            })
            .collect();
        let context = Context {
            now,
            direction: match way {
                0 => Direction::Forward,
                _ => Direction::Backward,
            },
        };
        let mut verdicts = [Verdict::Next; BURST];
        let mut burst: ArrayVec<&mut dyn Buffer, BURST> =
            slots.iter_mut().map(|slot| slot as &mut dyn Buffer).collect();
        let verdicts = &mut verdicts[..burst.len()];
        function.process(&context, &mut burst, verdicts);
        drop(burst);
        let answers: ArrayVec<u64, BURST> = slots
            .iter()
            .map(|slot| {
                let (start, size) = slot.bounds();
                halves(start as u32, size as u32)
            })
            .collect();
        drop(slots);
        for ((number, answer), verdict) in (first..).zip(answers).zip(&*verdicts) {
            let description = layout.description(number) + 16;
            let (word, operand) = verdict.to_raw();
            let verdict = halves(word, operand);
            self.region.number(description).store(answer, Ordering::Relaxed);
            self.region
                .number(description + 8)
                .store(verdict, Ordering::Relaxed);
        }
        self.done += len as u64;
        self.region.number(at::DONE).store(self.done, Ordering::Release);
        len
    }
}
