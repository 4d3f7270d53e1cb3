//! The switch's end of a window.

use core::sync::atomic::Ordering;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use millrace_wire::Packet;

use super::layout::{
    ADDRESS_BITS, COUNTERS_MAX, HEADROOM, Layout, MAGIC, TAIL_UNIT, TAILS_SIZE, UNCHANGED, at,
};
use super::records::{Record, RecordReader};
use super::region::Region;
use super::{BurstKind, Descriptor, ProtocolViolation};
use crate::burst::{BURST, Verdict};
use crate::effects::ShunnedFlow;

/// The function's answer to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The verdict on the packet.
    pub verdict: Verdict,
    /// The bytes by which the packet grew at its front; negative if it shrank.
    pub growth: i32,
    /// The new size of the first segment, in bytes.
    pub size: usize,
    /// The offset of the packet's bytes in the window.
    at: usize,
}

/// The location of a packet in memory that the function's process also maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketLocation {
    /// The address of the first byte.
    pub address: u64,
    /// Free bytes in front of it.
    pub headroom: usize,
    /// Bytes of the first segment.
    pub head_size: usize,
    /// Bytes of all segments.
    pub size: usize,
}

/// The switch's end of a window: it gives packets to the function and takes them back.
#[derive(Debug)]
pub struct SwitchEnd {
    region: Region,
    layout: Layout,
    given: u64,
    taken: u64,
    /// The number of packets done, as last read from the window.
    done: u64,
    records: RecordReader,
    /// The fill level of the chain's entry, as the function sees it.
    load: u8,
    tails: Tails,
}

/// The tails of packets in flight: a ring of bytes, in which each tail is contiguous.
#[derive(Debug, Default)]
struct Tails {
    /// Bytes allocated and freed so far.
    allocated: u64,
    freed: u64,
    /// The packets with tails: their numbers, and the bytes allocated up to the end of their tails.
    packets: VecDeque<(u64, u64)>,
}

impl Tails {
    /// Returns the offset of a tail of `size` bytes for a packet, or `None` if there is no room.
    fn allocate(&mut self, packet: u64, size: usize) -> Option<usize> {
        let size = size.next_multiple_of(TAIL_UNIT);
        let mut at = self.allocated;
        let offset = at as usize % TAILS_SIZE;
        if offset + size > TAILS_SIZE {
            at += (TAILS_SIZE - offset) as u64;
        }
        let end = at + size as u64;
        if end - self.freed > TAILS_SIZE as u64 || self.packets.len() == self.packets.capacity() {
            return None;
        }
        self.allocated = end;
        self.packets.push_back((packet, end));
        Some(at as usize % TAILS_SIZE)
    }

    /// Frees the tails of packets before a number.
    #[inline]
    fn free(&mut self, before: u64) {
        while let Some((_, end)) = self.packets.front().filter(|(packet, _)| *packet < before) {
            self.freed = *end;
            self.packets.pop_front();
        }
    }
}

impl SwitchEnd {
    /// Creates a window of `slots` slots (rounded up to a power of two) for packets of up to `packet_size` bytes. Returns it
    /// with the file descriptor by which the function's process maps it.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn create(name: &str, slots: usize, packet_size: usize) -> io::Result<(SwitchEnd, OwnedFd)> {
        SwitchEnd::new(name, slots, (HEADROOM + packet_size).next_multiple_of(64))
    }

    /// Creates a window for packets in memory that the function's process also maps.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn create_shared(name: &str, slots: usize) -> io::Result<(SwitchEnd, OwnedFd)> {
        SwitchEnd::new(name, slots, 0)
    }

    fn new(name: &str, slots: usize, slot_size: usize) -> io::Result<(SwitchEnd, OwnedFd)> {
        let layout = Layout {
            slots: slots.next_power_of_two(),
            slot_size,
        };
        let (region, file) = Region::create(name, layout.size())?;
        region
            .number(at::SLOTS)
            .store(layout.slots as u64, Ordering::Relaxed);
        region
            .number(at::SLOT_SIZE)
            .store(layout.slot_size as u64, Ordering::Relaxed);
        region.number(at::MAGIC).store(MAGIC, Ordering::Release);
        let end = SwitchEnd {
            region,
            layout,
            given: 0,
            taken: 0,
            done: 0,
            records: RecordReader::default(),
            load: 0,
            tails: Tails {
                packets: VecDeque::with_capacity(if layout.slot_size == 0 { layout.slots } else { 0 }),
                ..Tails::default()
            },
        };
        Ok((end, file))
    }

    /// Returns the number of free slots.
    #[inline]
    pub fn free_slots(&self) -> usize {
        self.layout.slots - self.in_flight()
    }

    /// Returns the number of packets given and not taken back.
    #[inline]
    pub fn in_flight(&self) -> usize {
        (self.given - self.taken) as usize
    }

    /// Copies the first segment of a packet of `size` bytes into the window. The function sees it after [`Self::publish`].
    /// Returns false if no slot is free or the packet is too long.
    #[inline]
    pub fn give(&mut self, head: &[u8], size: usize, kind: impl Into<BurstKind>) -> bool {
        if head.len() > self.layout.slot_size - HEADROOM || self.free_slots() == 0 {
            return false;
        }
        let Some(descriptor) = descriptor((HEADROOM, 0), head.len(), size, kind.into()) else {
            return false;
        };
        self.region
            .write_pair(self.layout.descriptor(self.given), descriptor);
        self.region.write(self.layout.slot(self.given) + HEADROOM, head);
        self.given += 1;
        true
    }

    /// Copies all segments of a packet into the window, as far as they fit the slot. The function sees the packet after
    /// [`Self::publish`]. Returns false if no slot is free or the first segment is too long.
    #[inline]
    pub fn give_packet<P: Packet>(&mut self, packet: &P, kind: impl Into<BurstKind>) -> bool {
        let (head, size) = (packet.head(), packet.len());
        if !self.give(head, size, kind) {
            return false;
        }
        if size > head.len() {
            let slot = self.layout.slot(self.given - 1);
            let (mut at, end) = (slot + HEADROOM, slot + self.layout.slot_size);
            packet.each_segment(&mut |segment: &[u8]| {
                let fits = segment.len().min(end - at);
                self.region.write(at, &segment[..fits]);
                at += fits;
            });
        }
        true
    }

    /// Writes the descriptors of packets in shared memory. Returns the number of packets described. Stops
    /// when no slot is free, or at a packet that is too long.
    #[inline]
    pub fn give_shared(
        &mut self,
        packets: impl Iterator<Item = PacketLocation>,
        kind: impl Into<BurstKind>,
    ) -> usize {
        let (mut given, kind) = (self.given, kind.into());
        // This loop stores nothing else, so that the processor fetches as many lines as possible in parallel.
        for packet in packets.take(self.free_slots()) {
            let headroom = packet.headroom.min(HEADROOM);
            let start = (headroom, packet.address - headroom as u64);
            let Some(descriptor) = descriptor(start, packet.head_size, packet.size, kind) else {
                break;
            };
            self.region.write_pair(self.layout.descriptor(given), descriptor);
            given += 1;
        }
        let described = (given - self.given) as usize;
        self.given = given;
        described
    }

    /// Writes the descriptor of a packet of several segments in shared memory, and copies all segments but
    /// the first to the tails. Returns false if no slot is free, the tails have no room, or the packet is too
    /// long.
    #[cold]
    pub fn give_segmented<P: Packet>(
        &mut self,
        packet: &P,
        location: PacketLocation,
        kind: impl Into<BurstKind>,
    ) -> bool {
        let headroom = location.headroom.min(HEADROOM);
        let start = (headroom, location.address - headroom as u64);
        let described = descriptor(start, location.head_size, location.size, kind.into());
        let size = location.size.saturating_sub(location.head_size);
        let Some([word, address]) = described.filter(|_| self.free_slots() != 0) else {
            return false;
        };
        let Some(tail) = self.tails.allocate(self.given, size) else {
            return false;
        };
        let (mut at, mut head) = (self.layout.first_tail() + tail, location.head_size);
        let end = at + size;
        packet.each_segment(&mut |segment: &[u8]| {
            let behind = &segment[head.min(segment.len())..];
            head = head.saturating_sub(segment.len());
            let fits = behind.len().min(end - at);
            self.region.write(at, &behind[..fits]);
            at += fits;
        });
        let unit = (tail / TAIL_UNIT + 1) as u64;
        let words = [word, address | unit << ADDRESS_BITS];
        self.region.write_pair(self.layout.descriptor(self.given), words);
        self.given += 1;
        true
    }

    /// Prefetches the cache lines for the next `packets` packets, a burst at most. The caller does this
    /// shortly before it writes the packets. The hardware prefetcher of the function's core reads ahead: it
    /// would take back lines that are prefetched earlier.
    #[inline]
    pub fn expect(&self, packets: usize) {
        for line in self.layout.descriptor_lines(self.given, packets) {
            self.region.own(line);
        }
        if self.layout.slot_size != 0 {
            for number in self.given..self.given + packets.min(BURST) as u64 {
                self.region.own(self.layout.slot(number) + HEADROOM);
            }
        }
        self.region.own(at::GIVEN);
    }

    /// Makes the packets given so far visible to the function.
    #[inline]
    pub fn publish(&self) {
        self.region.number(at::GIVEN).store(self.given, Ordering::Release);
    }

    /// Prefetches the cache line of the function's counter, if the next call of [`Self::done`] reads it.
    #[inline]
    pub fn expect_done(&self) {
        if self.done - self.taken < BURST as u64 {
            self.region.fetch(at::DONE);
        }
    }

    /// Returns the number of packets with an answer. The result may leave out new answers if a burst or more
    /// are known already.
    ///
    /// # Errors
    /// [`ProtocolViolation::Done`].
    #[inline]
    pub fn done(&mut self) -> Result<usize, ProtocolViolation> {
        let known = (self.done - self.taken) as usize;
        if known >= BURST {
            return Ok(known);
        }
        let done = self.region.number(at::DONE).load(Ordering::Acquire);
        if done < self.done || done > self.given {
            return Err(ProtocolViolation::Done {
                done,
                given: self.given,
                taken: self.taken,
            });
        }
        self.done = done;
        // Records of these packets were published before.
        self.records.refresh(&self.region)?;
        Ok((done - self.taken) as usize)
    }

    /// Returns the number of packets that were taken back so far. It is also the number of the oldest packet
    /// that is still in the window.
    #[inline]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns whether [`Self::done`] has seen a record that was not freed.
    #[inline]
    pub fn has_record(&self) -> bool {
        self.records.is_waiting()
    }

    /// Returns the oldest record that [`Self::done`] has seen.
    ///
    /// # Errors
    /// [`ProtocolViolation::Record`].
    pub fn record(&self) -> Result<Option<Record>, ProtocolViolation> {
        self.records.head(&self.region, self.layout, self.given)
    }

    /// Copies the payload of the oldest record, as many bytes as `to` holds.
    pub fn copy_record(&self, record: &Record, to: &mut [u8]) {
        self.records.payload(&self.region, self.layout, record, to);
    }

    /// Frees the oldest record.
    pub fn free_record(&mut self, record: &Record) {
        self.records.free(&self.region, record);
    }

    /// Tells the function that a flow is no longer shunned. Returns false if the ring of notices is full,
    /// because the function has not read the last 1,024 notices.
    pub fn notify(&mut self, ended: &ShunnedFlow) -> bool {
        self.records.notify(&self.region, self.layout, ended)
    }

    /// Returns two numbers of sources: the source from which the function's shared value was compiled, and
    /// the last source that the function's process could not compile. A number is 0 if there is no such
    /// source.
    pub fn value(&self) -> [u64; 2] {
        [at::VALUE, at::VALUE_FAILED].map(|at| self.region.number(at).load(Ordering::Acquire))
    }

    /// Returns the number of packets that the function could not send.
    pub fn refused(&self) -> u64 {
        self.region.number(at::REFUSED).load(Ordering::Relaxed)
    }

    /// Sets the fill level of the chain's entry, from 0 to 255, for the packets that are published next.
    #[inline]
    pub fn set_load(&mut self, load: u8) {
        if self.load != load {
            self.load = load;
            self.region.number(at::LOAD).store(load.into(), Ordering::Relaxed);
        }
    }

    /// Returns how many packets in a row, starting with the oldest, are forwarded to the next hop with offset
    /// and size unchanged; `most` at most. `most` must not exceed [`Self::done`].
    #[inline]
    pub fn unchanged(&self, most: usize) -> usize {
        let numbers = self.taken..self.taken + most.min(self.in_flight()) as u64;
        numbers.take_while(|number| self.is_unchanged(*number)).count()
    }

    #[inline]
    fn is_unchanged(&self, number: u64) -> bool {
        let note = self.region.byte(self.layout.note(number));
        note.load(Ordering::Relaxed) == UNCHANGED
    }

    /// Returns the answer to the packet with index `behind`, counted from the oldest packet. `given_size` is
    /// the size in bytes of the packet's first segment when it was given. `behind` must be less than
    /// [`Self::done`].
    ///
    /// # Errors
    /// [`ProtocolViolation::Bytes`].
    #[inline]
    pub fn answer(&self, behind: usize, given_size: usize) -> Result<Answer, ProtocolViolation> {
        self.answer_to(self.taken + behind as u64, given_size)
    }

    /// Returns the verdict on the packet with index `behind`, counted from the oldest packet. The function's
    /// changes to the packet are discarded. `behind` must be less than [`Self::done`].
    ///
    /// # Errors
    /// [`ProtocolViolation::Bytes`].
    #[inline]
    pub fn verdict(&self, behind: usize) -> Result<Verdict, ProtocolViolation> {
        let answer = self.answer_to(self.taken + behind as u64, 0)?;
        Ok(answer.verdict)
    }

    fn answer_to(&self, number: u64, given_size: usize) -> Result<Answer, ProtocolViolation> {
        let slot = self.layout.slot(number);
        if self.is_unchanged(number) {
            return Ok(Answer {
                verdict: Verdict::Next,
                growth: 0,
                size: given_size,
                at: slot + HEADROOM,
            });
        }
        let (answer, descriptor) = (self.layout.answer(number), self.layout.descriptor(number));
        let number = |at: usize| self.region.number(at).load(Ordering::Relaxed);
        let (bounds, verdict) = (number(answer), number(answer + 8));
        let (start, size) = (bounds & 0xffff_ffff, bounds >> 32);
        let (headroom, slot_size) = match self.layout.slot_size {
            // The descriptor is read from the window, because functions of class `ring` are trusted not to
            // change it.
            0 => {
                let given = Descriptor::from_word(number(descriptor));
                (
                    u64::from(given.start),
                    usize::from(given.start) + usize::from(given.size),
                )
            }
            size => (HEADROOM as u64, size),
        };
        if start + size > slot_size as u64 {
            return Err(ProtocolViolation::Bytes {
                start,
                size,
                slot_size,
            });
        }
        // A difference of two 32-bit numbers that exceeds 32 bits is not a valid growth of a packet.
        let growth = i32::try_from(headroom as i64 - start as i64).map_err(|_| ProtocolViolation::Bytes {
            start,
            size,
            slot_size,
        })?;
        let operand = (verdict >> 32) as u32;
        Ok(Answer {
            // An unknown verdict drops the packet.
            verdict: Verdict::from_raw(verdict as u32, operand).unwrap_or(Verdict::Drop),
            growth,
            size: size as usize,
            at: slot + start as usize,
        })
    }

    /// Copies the bytes of an answer, as many as `to` holds.
    #[inline]
    pub fn copy(&self, answer: &Answer, to: &mut [u8]) {
        let size = to.len().min(answer.size);
        self.region.read(answer.at, &mut to[..size]);
    }

    /// Takes the oldest packets back, and frees their slots.
    #[inline]
    pub fn take(&mut self, packets: usize) {
        self.taken = (self.taken + packets as u64).min(self.given);
        // A dead process never reports these packets done.
        self.done = self.done.max(self.taken);
        self.tails.free(self.taken);
    }

    /// Returns the heartbeat counter of the function's process.
    #[inline]
    pub fn heartbeat(&self) -> u64 {
        self.region.number(at::HEARTBEAT).load(Ordering::Relaxed)
    }

    /// Returns the counter of the function at an index.
    pub fn counter(&self, index: usize) -> u64 {
        let index = index.min(COUNTERS_MAX - 1);
        self.region
            .number(at::COUNTERS + 8 * index)
            .load(Ordering::Relaxed)
    }

    /// Tells the function to end.
    pub fn stop(&self) {
        self.region.number(at::STOP).store(1, Ordering::Relaxed);
    }
}

/// Returns the descriptor of a packet at an offset from an address, or `None` if its sizes do not fit.
#[inline]
fn descriptor(
    (start, address): (usize, u64),
    size: usize,
    total: usize,
    kind: BurstKind,
) -> Option<[u64; 2]> {
    let first = Descriptor {
        start: u16::try_from(start).ok()?,
        size: u16::try_from(size).ok()?,
        total: u32::try_from(total)
            .ok()
            .filter(|total| *total <= Descriptor::TOTAL_MAX)?,
        kind,
    };
    Some([first.to_word(), address])
}

impl Drop for SwitchEnd {
    fn drop(&mut self) {
        self.stop();
    }
}
