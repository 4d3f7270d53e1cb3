//! The function's end of a window for callers that hold packets for a while and answer them in any order, such as a library that
//! hands packets to a foreign program. The switch still gets answers in order: an answer waits for those to earlier packets.

use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use millrace_types::Duration;

use super::layout::{ADDRESS_BITS, UNCHANGED, at};
use super::region::Region;
use super::{BurstKind, Descriptor, FunctionEnd};
use crate::burst::{Direction, Verdict};
use crate::effects::{ShunAction, ShunnedFlow};
use crate::table::KeyedHash;

/// A packet that was received and is not answered.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedPacket {
    /// The number of the packet in the window.
    pub number: u64,
    /// The first byte. The bytes are valid while the packet is not answered and the [`FunctionEnd`] lives.
    pub bytes: NonNull<u8>,
    /// Bytes that can be read: all segments (class `isolated`), or the first one (class `ring`).
    pub size: usize,
    /// Bytes of the first segment, which may be changed.
    pub head_size: usize,
    /// Bytes of all segments.
    pub total: usize,
    /// The direction, and whether a function sent the packet.
    pub kind: BurstKind,
    start: usize,
    /// The hash of the bytes after the first segment; 0 without a key.
    rest_hash: u64,
}

/// Packets that were received and not answered, in a window.
#[derive(Debug)]
pub struct Unordered {
    end: FunctionEnd,
    /// The number of packets received.
    received: u64,
    /// One flag for each slot: true if the packet in the slot is answered.
    answered: Box<[bool]>,
    rest_key: Option<KeyedHash>,
}

impl Unordered {
    /// Returns the unordered end of a window from which no packet was received yet. `rest_key` is the secret key of the
    /// hash by which [`has_changed_rest`](Self::has_changed_rest) detects changes after the first segment; a caller
    /// that changes no packets passes `None`.
    pub fn new(end: FunctionEnd, rest_key: Option<KeyedHash>) -> Unordered {
        Unordered {
            received: end.done,
            answered: vec![false; end.layout.slots].into(),
            end,
            rest_key,
        }
    }

    /// Returns the underlying end of the window, by which the caller writes counters and passes messages to
    /// the switch.
    pub fn end(&mut self) -> &mut FunctionEnd {
        &mut self.end
    }

    /// Returns the number of packets that are received and not answered to the switch.
    pub fn outstanding(&self) -> usize {
        (self.received - self.end.done) as usize
    }

    /// Returns the next packet.
    #[inline]
    pub fn receive(&mut self) -> Option<ReceivedPacket> {
        // `waiting` would not read the switch's counter while a burst of packets is not answered.
        if self.end.given == self.received {
            self.end.given = self.end.region.number(at::GIVEN).load(Ordering::Acquire);
        }
        if self.end.given.wrapping_sub(self.received).cast_signed() <= 0 {
            return None;
        }
        let (number, layout, region) = (self.received, self.end.layout, &self.end.region);
        let word = |at: usize| region.number(at).load(Ordering::Relaxed);
        let packet = Descriptor::from_word(word(layout.descriptor(number)));
        let (start, head_size, total) = (
            usize::from(packet.start),
            usize::from(packet.size),
            packet.total as usize,
        );
        let (bytes, size) = match layout.slot_size {
            0 => {
                let address = word(layout.descriptor(number) + 8) & ((1 << ADDRESS_BITS) - 1);
                let bytes = self.end.memory.address(address, start + head_size);
                (bytes, head_size)
            }
            slot_size => {
                let size = total.max(head_size).min(slot_size.saturating_sub(start));
                (region.address(layout.slot(number), start + size), size)
            }
        };
        let rest_hash = self.rest_hash(number, start + head_size, size.saturating_sub(head_size));
        self.received += 1;
        let Some(bytes) = bytes else {
            // A correct switch gives no such packet. It is answered, so that later answers need not wait for
            // it.
            self.answer_raw(number, &(start..start + head_size), Verdict::Drop);
            return None;
        };
        Some(ReceivedPacket {
            number,
            bytes: NonNull::new(bytes.as_ptr().wrapping_add(start)).unwrap_or(bytes),
            size,
            head_size,
            total,
            kind: packet.kind,
            start,
            rest_hash,
        })
    }

    /// Returns the hash of a packet's bytes after its first segment, which begin at an offset in its slot.
    #[inline]
    fn rest_hash(&self, number: u64, begin: usize, size: usize) -> u64 {
        match (self.rest_key, size) {
            (None, _) | (_, 0) => 0,
            (Some(key), size) => {
                let begin = self.end.layout.slot(number) + begin;
                key.of(&self.end.region.bytes(begin, size))
            }
        }
    }

    /// Returns true if bytes after the first segment of a packet that is not answered have changed. The switch does not copy
    /// them back. Returns false without a key.
    pub fn has_changed_rest(&self, packet: &ReceivedPacket) -> bool {
        let size = packet.size.saturating_sub(packet.head_size);
        self.rest_hash(packet.number, packet.start + packet.head_size, size) != packet.rest_hash
    }

    /// Answers a packet, whose bytes may have changed in place. The switch sees the answer after [`publish`](Self::publish). An
    /// answer to a packet that is answered already changes nothing.
    pub fn answer(&mut self, packet: &ReceivedPacket, verdict: Verdict) {
        let bounds = packet.start..packet.start + packet.head_size;
        self.answer_raw(packet.number, &bounds, verdict);
    }

    fn answer_raw(&mut self, number: u64, bounds: &Range<usize>, verdict: Verdict) {
        let index = self.end.layout.index(number);
        let is_open = (self.end.done..self.received).contains(&number) && !self.answered[index];
        if !is_open {
            return;
        }
        match verdict {
            Verdict::Next => self.end.note(number, UNCHANGED),
            verdict => self.end.answer(number, bounds, verdict),
        }
        self.answered[index] = true;
    }

    /// Makes the answers visible to the switch, up to the first packet that is not answered.
    pub fn publish(&mut self) {
        let first = self.end.done;
        while self.end.done != self.received && self.answered[self.end.layout.index(self.end.done)] {
            self.answered[self.end.layout.index(self.end.done)] = false;
            self.end.done += 1;
        }
        // Records become visible before the answers that they belong to.
        self.end.records.publish(&self.end.region);
        if self.end.done != first {
            let done = self.end.region.number(at::DONE);
            done.store(self.end.done, Ordering::Release);
        }
    }

    /// Shuns the flow of a packet that is not answered yet.
    pub fn shun(&mut self, packet: &ReceivedPacket, action: ShunAction, idle: Duration) {
        let window = (&self.end.region, self.end.layout);
        self.end.records.shun(window, packet.number + 1, action, idle);
    }

    /// Sends a packet after the switch has taken back `packet`, or all received packets if `packet` is
    /// `None`. Returns false, and counts the packet as refused, if there is no room, or if a function sent
    /// `packet`.
    pub fn send(&mut self, packet: Option<&ReceivedPacket>, direction: Direction, frame: &[u8]) -> bool {
        if packet.is_some_and(|packet| packet.kind.is_sent) {
            self.end.records.refuse(&self.end.region, 1);
            return false;
        }
        let after = packet.map_or(self.received, |packet| packet.number + 1);
        let window = (&self.end.region, self.end.layout);
        self.end.records.send(window, direction, after, frame)
    }

    /// Returns the next flow that is no longer shunned, or `None` if there is no notice.
    pub fn shun_ended(&mut self) -> Option<ShunnedFlow> {
        self.end.records.notice(&self.end.region, self.end.layout)
    }
}

impl Region {
    /// Returns the address of `size` bytes at an offset, or `None` if they exceed the mapping.
    pub(super) fn address(&self, at: usize, size: usize) -> Option<NonNull<u8>> {
        let end = at.checked_add(size)?;
        (end <= self.size()).then_some(())?;
        NonNull::new(self.start().as_ptr().wrapping_add(at))
    }
}
