//! The switch's end of a window.

use core::sync::atomic::Ordering;
use std::io;
use std::os::fd::OwnedFd;

use super::region::Region;
use super::{COUNTERS_MAX, HEADROOM, Layout, Lie, MAGIC, at, halves};
use crate::function::{Direction, Verdict};

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Where it goes.
    pub verdict: Verdict,
    /// By how many bytes it grew at its front; fewer than zero if it shrank.
    pub growth: i32,
    /// Its size now, of the first segment.
    pub size: usize,
    /// Where its bytes are.
    at: usize,
}

/// The end that gives packets.
#[derive(Debug)]
pub struct SwitchEnd {
    region: Region,
    layout: Layout,
    given: u64,
    taken: u64,
}

impl SwitchEnd {
    /// A window of so many places (rounded up to a power of two), each for a packet of so many bytes, and the file by
    /// which the function's process can map it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn create(name: &str, places: usize, packet_size: usize) -> io::Result<(SwitchEnd, OwnedFd)> {
        SwitchEnd::new(name, places, (HEADROOM + packet_size).next_multiple_of(64))
    }

    /// The same for packets that stay where they are.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn create_shared(name: &str, places: usize) -> io::Result<(SwitchEnd, OwnedFd)> {
        SwitchEnd::new(name, places, 0)
    }

    fn new(name: &str, places: usize, place_size: usize) -> io::Result<(SwitchEnd, OwnedFd)> {
        let layout = Layout {
            places: places.next_power_of_two(),
            place_size,
        };
        let (region, file) = Region::create(name, layout.size())?;
        region
            .number(at::PLACES)
            .store(layout.places as u64, Ordering::Relaxed);
        region
            .number(at::PLACE_SIZE)
            .store(layout.place_size as u64, Ordering::Relaxed);
        region.number(at::MAGIC).store(MAGIC, Ordering::Release);
        let end = SwitchEnd {
            region,
            layout,
            given: 0,
            taken: 0,
        };
        Ok((end, file))
    }

    /// Packets that can be given now.
    #[inline]
    pub fn room(&self) -> usize {
        self.layout.places - self.in_flight()
    }

    /// Packets given and not taken back.
    #[inline]
    pub fn in_flight(&self) -> usize {
        (self.given - self.taken) as usize
    }

    /// Copies a packet in: its first segment, and the size of all. The function sees it after [`Self::publish`]. Returns
    /// false if there is no room, or if it is too long.
    #[inline]
    pub fn give(&mut self, head: &[u8], size: usize, direction: Direction) -> bool {
        if self.room() == 0 || head.len() > self.layout.place_size - HEADROOM {
            return false;
        }
        let description = self.layout.description(self.given);
        let numbers = [
            halves(HEADROOM as u32, head.len() as u32),
            halves(size as u32, u32::from(direction == Direction::Backward)),
        ];
        for (number, place) in numbers.into_iter().zip([description, description + 8]) {
            self.region.number(place).store(number, Ordering::Relaxed);
        }
        self.region.write(self.layout.place(self.given) + HEADROOM, head);
        self.given += 1;
        true
    }

    /// Tells of a packet that stays where it is: the address of its first byte, how many are free in front of it, the
    /// size of its first segment and of all. Returns false if there is no room.
    #[inline]
    pub fn give_shared(
        &mut self,
        (address, headroom): (u64, usize),
        head_size: usize,
        size: usize,
        direction: Direction,
    ) -> bool {
        if self.room() == 0 {
            return false;
        }
        let description = self.layout.description(self.given);
        let headroom = headroom.min(HEADROOM);
        let numbers = [
            (0, halves(headroom as u32, head_size as u32)),
            (
                8,
                halves(size as u32, u32::from(direction == Direction::Backward)),
            ),
            (32, address - headroom as u64),
        ];
        for (at, number) in numbers {
            self.region
                .number(description + at)
                .store(number, Ordering::Relaxed);
        }
        self.given += 1;
        true
    }

    /// Shows the function what it was given.
    #[inline]
    pub fn publish(&self) {
        self.region.number(at::GIVEN).store(self.given, Ordering::Release);
    }

    /// Packets whose answers can be taken.
    ///
    /// # Errors
    /// [`Lie::Done`].
    #[inline]
    pub fn done(&self) -> Result<usize, Lie> {
        let done = self.region.number(at::DONE).load(Ordering::Acquire);
        if done < self.taken || done > self.given {
            return Err(Lie::Done {
                done,
                given: self.given,
                taken: self.taken,
            });
        }
        Ok((done - self.taken) as usize)
    }

    /// The answer to the oldest packet. To be called when [`Self::done`] says that there is one, and followed by
    /// [`Self::take`].
    ///
    /// # Errors
    /// [`Lie::Bytes`].
    #[inline]
    pub fn answer(&self) -> Result<Answer, Lie> {
        let description = self.layout.description(self.taken);
        let number = |at: usize| self.region.number(description + at).load(Ordering::Relaxed);
        let (place, verdict) = (number(16), number(24));
        let (start, size) = (place & 0xffff_ffff, place >> 32);
        let (headroom, place_size) = match self.layout.place_size {
            // What was given; of the trusted class, so read back from where it was written.
            0 => {
                let given = number(0);
                (
                    given & 0xffff_ffff,
                    ((given & 0xffff_ffff) + (given >> 32)) as usize,
                )
            }
            size => (HEADROOM as u64, size),
        };
        if start + size > place_size as u64 {
            return Err(Lie::Bytes {
                start,
                size,
                place_size,
            });
        }
        // Numbers of 32 bits each: what does not fit is no size of a packet.
        let growth = i32::try_from(headroom as i64 - start as i64).map_err(|_| Lie::Bytes {
            start,
            size,
            place_size,
        })?;
        let operand = (verdict >> 32) as u32;
        Ok(Answer {
            // Nothing that there is goes nowhere.
            verdict: Verdict::from_raw(verdict as u32, operand).unwrap_or(Verdict::Drop),
            growth,
            size: size as usize,
            at: self.layout.place(self.taken) + start as usize,
        })
    }

    /// Copies the bytes of an answer, as many as there is room for.
    #[inline]
    pub fn copy(&self, answer: &Answer, to: &mut [u8]) {
        let size = to.len().min(answer.size);
        self.region.read(answer.at, &mut to[..size]);
    }

    /// Ends with the oldest packet: its place is free.
    #[inline]
    pub fn take(&mut self) {
        self.taken = (self.taken + 1).min(self.given);
    }

    /// How often the function's process has shown that it lives.
    #[inline]
    pub fn heartbeat(&self) -> u64 {
        self.region.number(at::HEARTBEAT).load(Ordering::Relaxed)
    }

    /// A counter of the function by its place.
    pub fn counter(&self, place: usize) -> u64 {
        let place = place.min(COUNTERS_MAX - 1);
        self.region
            .number(at::COUNTERS + 8 * place)
            .load(Ordering::Relaxed)
    }

    /// Tells the function to end.
    pub fn stop(&self) {
        self.region.number(at::STOP).store(1, Ordering::Relaxed);
    }
}

impl Drop for SwitchEnd {
    fn drop(&mut self) {
        self.stop();
    }
}
