//! The switch's end of a window.

use core::sync::atomic::Ordering;
use std::io;
use std::os::fd::OwnedFd;

use super::region::Region;
use super::{AS_IT_WAS, COUNTERS_MAX, Given, HEADROOM, Layout, Lie, MAGIC, at};
use crate::function::{Direction, Verdict};
use crate::slot::BURST;

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

/// Where a packet is that stays there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The address of its first byte.
    pub address: u64,
    /// Free bytes in front of it.
    pub headroom: usize,
    /// Bytes of its first segment.
    pub head_size: usize,
    /// Bytes of all.
    pub size: usize,
}

/// The end that gives packets.
#[derive(Debug)]
pub struct SwitchEnd {
    region: Region,
    layout: Layout,
    given: u64,
    taken: u64,
    /// With how many the function was done when that was read last.
    done: u64,
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
            done: 0,
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
        if head.len() > self.layout.place_size - HEADROOM || self.room() == 0 {
            return false;
        }
        let Some(description) = described((HEADROOM, 0), head.len(), size, direction) else {
            return false;
        };
        self.region
            .write_pair(self.layout.description(self.given), description);
        self.region.write(self.layout.place(self.given) + HEADROOM, head);
        self.given += 1;
        true
    }

    /// Tells of packets that stay where they are. Returns of how many: up to one for which there is no room, or which is
    /// too long.
    #[inline]
    pub fn give_shared(&mut self, places: impl Iterator<Item = Place>, direction: Direction) -> usize {
        let mut given = self.given;
        // Nothing else is stored in this loop, so that as many lines as can be are fetched side by side.
        for place in places.take(self.room()) {
            let headroom = place.headroom.min(HEADROOM);
            let start = (headroom, place.address - headroom as u64);
            let Some(description) = described(start, place.head_size, place.size, direction) else {
                break;
            };
            self.region
                .write_pair(self.layout.description(given), description);
            given += 1;
        }
        let told = (given - self.given) as usize;
        self.given = given;
        told
    }

    /// Asks for what giving so many packets writes, a burst at most: to be said shortly before. Earlier is too early, as the
    /// function's core guesses that it will read on, and takes back the lines behind those that it has read.
    #[inline]
    pub fn expect(&self, packets: usize) {
        for line in self.layout.description_lines(self.given, packets) {
            self.region.own(line);
        }
        if self.layout.place_size != 0 {
            for number in self.given..self.given + packets.min(BURST) as u64 {
                self.region.own(self.layout.place(number) + HEADROOM);
            }
        }
        self.region.own(at::GIVEN);
    }

    /// Shows the function what it was given.
    #[inline]
    pub fn publish(&self) {
        self.region.number(at::GIVEN).store(self.given, Ordering::Release);
    }

    /// Asks for what [`Self::done`] will read, if it will.
    #[inline]
    pub fn expect_done(&self) {
        if self.done - self.taken < BURST as u64 {
            self.region.fetch(at::DONE);
        }
    }

    /// Packets whose answers can be taken: all, or a burst at least.
    ///
    /// # Errors
    /// [`Lie::Done`].
    #[inline]
    pub fn done(&mut self) -> Result<usize, Lie> {
        let known = (self.done - self.taken) as usize;
        if known >= BURST {
            return Ok(known);
        }
        let done = self.region.number(at::DONE).load(Ordering::Acquire);
        if done < self.done || done > self.given {
            return Err(Lie::Done {
                done,
                given: self.given,
                taken: self.taken,
            });
        }
        self.done = done;
        Ok((done - self.taken) as usize)
    }

    /// How many packets in a row, the oldest first and as many as `most`, go on to the next hop and begin and end where
    /// they did. To be asked of packets of which [`Self::done`] has told.
    #[inline]
    pub fn as_they_were(&self, most: usize) -> usize {
        let numbers = self.taken..self.taken + most.min(self.in_flight()) as u64;
        numbers.take_while(|number| self.is_as_it_was(*number)).count()
    }

    #[inline]
    fn is_as_it_was(&self, number: u64) -> bool {
        let note = self.region.byte(self.layout.note(number));
        note.load(Ordering::Relaxed) == AS_IT_WAS
    }

    /// The answer to a packet, `behind` so many that are older, whose first segment had so many bytes. To be asked of
    /// packets of which [`Self::done`] has told.
    ///
    /// # Errors
    /// [`Lie::Bytes`].
    #[inline]
    pub fn answer(&self, behind: usize, given_size: usize) -> Result<Answer, Lie> {
        self.answer_to(self.taken + behind as u64, given_size)
    }

    /// What is to become of a packet, `behind` so many that are older: for one whose bytes stay what they are, whatever
    /// was done to a copy of it. To be asked of packets of which [`Self::done`] has told.
    ///
    /// # Errors
    /// [`Lie::Bytes`].
    #[inline]
    pub fn verdict(&self, behind: usize) -> Result<Verdict, Lie> {
        let answer = self.answer_to(self.taken + behind as u64, 0)?;
        Ok(answer.verdict)
    }

    fn answer_to(&self, number: u64, given_size: usize) -> Result<Answer, Lie> {
        let place = self.layout.place(number);
        if self.is_as_it_was(number) {
            return Ok(Answer {
                verdict: Verdict::Next,
                growth: 0,
                size: given_size,
                at: place + HEADROOM,
            });
        }
        let (answer, description) = (self.layout.answer(number), self.layout.description(number));
        let number = |at: usize| self.region.number(at).load(Ordering::Relaxed);
        let (bounds, verdict) = (number(answer), number(answer + 8));
        let (start, size) = (bounds & 0xffff_ffff, bounds >> 32);
        let (headroom, place_size) = match self.layout.place_size {
            // What was given; of the trusted class, so read back from where it was written.
            0 => {
                let given = Given::from_word(number(description));
                (
                    u64::from(given.start),
                    usize::from(given.start) + usize::from(given.size),
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
            at: place + start as usize,
        })
    }

    /// Copies the bytes of an answer, as many as there is room for.
    #[inline]
    pub fn copy(&self, answer: &Answer, to: &mut [u8]) {
        let size = to.len().min(answer.size);
        self.region.read(answer.at, &mut to[..size]);
    }

    /// Ends with so many packets, the oldest: their places are free.
    #[inline]
    pub fn take(&mut self, packets: usize) {
        self.taken = (self.taken + packets as u64).min(self.given);
        // Also of a dead one, which will not be done with them.
        self.done = self.done.max(self.taken);
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

/// The description of a packet that begins so far behind an address. None of one that has no such sizes.
#[inline]
fn described(
    (start, address): (usize, u64),
    size: usize,
    total: usize,
    direction: Direction,
) -> Option<[u64; 2]> {
    let given = Given {
        start: u16::try_from(start).ok()?,
        size: u16::try_from(size).ok()?,
        total: i32::try_from(total).ok()?.unsigned_abs(),
        direction,
    };
    Some([given.to_word(), address])
}

impl Drop for SwitchEnd {
    fn drop(&mut self) {
        self.stop();
    }
}
