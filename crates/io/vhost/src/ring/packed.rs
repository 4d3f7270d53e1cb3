//! Packed rings: one descriptor ring that both sides write to (virtio 1.2, section 2.8).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::chain::{Chain, ChainBuffers, Descriptor, INDIRECT, NEXT, WRITE};
use super::{CHAIN_MAX, Queue, Setup};
use crate::memory::{AtomicArray, View};
use crate::{MessageError, ProtocolViolation};

/// `VIRTQ_DESC_F_AVAIL`: the driver's wrap counter when it makes the descriptor available. The descriptor is available
/// while this bit differs from [`USED`], and used while the two are equal.
const AVAILABLE: u16 = 1 << 7;
/// `VIRTQ_DESC_F_USED`: the device's wrap counter when it uses the descriptor.
const USED: u16 = 1 << 15;

/// `RING_EVENT_FLAGS_DISABLE`: the side that sets it polls.
const EVENTS_OFF: u32 = 1;
/// `RING_EVENT_FLAGS_DESC`: the driver wants a call after one particular descriptor.
const EVENTS_BEHIND: u32 = 2;

/// A position in the ring, in the layout of `off_wrap` (virtio 1.2, section 2.8.14):
///
/// ```text
///  15             14..0
/// +--------------+------------------+
/// | wrap counter | descriptor index |
/// +--------------+------------------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RingPosition(u16);

impl RingPosition {
    const WRAP: u16 = 1 << 15;

    #[inline(always)]
    fn index(self) -> u16 {
        self.0 & !RingPosition::WRAP
    }

    /// Returns `flags` if the wrap counter is 1, and 0 if it is 0.
    #[inline(always)]
    fn flags(self, flags: u16) -> u16 {
        if self.0 & RingPosition::WRAP == 0 {
            0
        } else {
            flags
        }
    }

    /// Returns the position `slots` descriptors later; `slots` is at most `len`.
    #[inline(always)]
    fn plus(self, slots: u16, len: u16) -> RingPosition {
        let to = self.index() + slots;
        if to < len {
            RingPosition(self.0 & RingPosition::WRAP | to)
        } else {
            RingPosition(!self.0 & RingPosition::WRAP | (to - len))
        }
    }

    /// Returns the number of descriptors from this position to `to`, which has the same or the next wrap counter. A
    /// position before this one counts as farther away than any other.
    fn until(self, to: u16, len: u16) -> u16 {
        let turns = if (self.0 ^ to) & RingPosition::WRAP == 0 {
            0
        } else {
            len
        };
        turns
            .wrapping_add(to & !RingPosition::WRAP)
            .wrapping_sub(self.index())
    }
}

/// A used descriptor that the driver does not see yet.
#[derive(Debug)]
struct HeldDescriptor {
    index: u16,
    /// The second word, which has the flags.
    word: u64,
}

#[derive(Debug)]
pub(super) struct Packed {
    ring: AtomicArray<[AtomicU64; 2]>,
    /// The driver event suppression structure: whether the driver wants a call, and after which descriptor.
    driver: AtomicArray<AtomicU32>,
    /// The next chain to take.
    at: RingPosition,
    /// The next chain to return. Chains are returned in order, so all earlier chains are already returned.
    done: RingPosition,
    /// The first chain of a batch, written last: the driver sees no later chain before it sees this one.
    held: Option<HeldDescriptor>,
    /// The position up to which the driver was notified, and the number of descriptors returned since.
    published: RingPosition,
    unpublished: u16,
}

impl Packed {
    pub(super) fn open(setup: &Setup) -> Result<Packed, MessageError> {
        let (size, base) = (setup.len()?, setup.base);
        let outside = |part, user| MessageError::RingOutside { part, user };
        let events = |part, user| {
            setup
                .memory
                .array::<AtomicU32>(user, 1)
                .ok_or(outside(part, user))
        };
        let ring = (setup.memory.array(setup.descriptors, size))
            .ok_or(outside("the descriptors", setup.descriptors))?;
        let driver = events("the driver event suppression structure", setup.driver)?;
        let device = events("the device event suppression structure", setup.device)?;
        // The upper half of the base is the position of the used descriptors. Chains are used in order, so
        // the upper half equals the lower half.
        let at = RingPosition(base as u16);
        if at.index() >= size {
            return Err(MessageError::RingBase { size, base });
        }
        device.at(0).store(EVENTS_OFF << 16, Ordering::Relaxed);
        Ok(Packed {
            ring,
            driver,
            at,
            done: at,
            held: None,
            published: at,
            unpublished: 0,
        })
    }

    #[inline(always)]
    fn read(&self, index: u16) -> Descriptor {
        let [first, second] = self.ring.at(index);
        // The flags are in the second word, which the driver writes last.
        let rest = second.load(Ordering::Acquire);
        parse([first.load(Ordering::Relaxed), rest])
    }
}

#[inline(always)]
fn parse([guest, rest]: [u64; 2]) -> Descriptor {
    Descriptor {
        guest,
        size: rest as u32,
        flags: (rest >> 48) as u16,
        next: (rest >> 32) as u16,
    }
}

impl Queue for Packed {
    #[inline(always)]
    fn poll_index(&mut self, _wanted: usize) -> Result<(), ProtocolViolation> {
        Ok(())
    }

    #[inline(always)]
    fn take(&mut self) -> Result<Option<Chain>, ProtocolViolation> {
        let position = self.at;
        let first = self.read(position.index());
        if (first.flags ^ position.flags(AVAILABLE | USED)) & (AVAILABLE | USED) != USED {
            return Ok(None);
        }
        self.at = position.plus(1, self.ring.len());
        Ok(Some(Chain {
            first,
            id: first.next,
            position: position.0,
            slots: 1,
        }))
    }

    fn read_chain<'a>(
        &mut self,
        chain: &mut Chain,
        view: &'a View,
        buffers: &mut ChainBuffers<'a>,
    ) -> Result<(), ProtocolViolation> {
        let (mut descriptor, len) = (chain.first, self.ring.len());
        for slots in 1..=CHAIN_MAX.min(usize::from(len)) as u16 {
            if descriptor.flags & INDIRECT != 0 {
                let last = (descriptor.size / 16).saturating_sub(1);
                let follow = |index: u16, _| (u32::from(index) < last).then(|| index + 1);
                buffers.add_table(view, descriptor, parse, follow)?;
            } else {
                buffers.add(view, descriptor)?;
            }
            if descriptor.flags & NEXT == 0 {
                (chain.id, chain.slots) = (descriptor.next, slots);
                return Ok(());
            }
            descriptor = self.read(self.at.index());
            self.at = self.at.plus(1, len);
        }
        Err(ProtocolViolation::Chain)
    }

    #[inline]
    fn reset(&mut self, chain: &Chain) {
        self.at = RingPosition(chain.position);
    }

    #[inline(always)]
    fn mark_used(&mut self, chain: &Chain, written: u32) {
        let at = self.done;
        let kind = if written == 0 { 0 } else { WRITE };
        let flags = at.flags(AVAILABLE | USED) | kind;
        let word = u64::from(written) | u64::from(chain.id) << 32 | u64::from(flags) << 48;
        if self.held.is_none() {
            self.held = Some(HeldDescriptor {
                index: at.index(),
                word,
            });
        } else {
            let [_, second] = self.ring.at(at.index());
            second.store(word, Ordering::Release);
        }
        self.done = at.plus(chain.slots, self.ring.len());
        self.unpublished += chain.slots;
    }

    #[inline]
    fn publish(&mut self) -> bool {
        let Some(HeldDescriptor { index, word }) = self.held.take() else {
            return false;
        };
        let [_, second] = self.ring.at(index);
        second.store(word, Ordering::Release);
        let (from, slots) = (self.published, self.unpublished);
        (self.published, self.unpublished) = (self.done, 0);
        // The driver sets its flag and then checks the ring again; the device writes the descriptor and then checks
        // the flag. The fence orders the two on this side, so that no call is lost.
        fence(Ordering::SeqCst);
        let events = self.driver.at(0).load(Ordering::Relaxed);
        match events >> 16 & 3 {
            EVENTS_OFF => false,
            EVENTS_BEHIND => from.until(events as u16, self.ring.len()) < slots,
            _ => true,
        }
    }

    fn base(&self) -> u32 {
        u32::from(self.done.0) << 16 | u32::from(self.done.0)
    }

    #[inline]
    fn len(&self) -> u16 {
        self.ring.len()
    }
}
