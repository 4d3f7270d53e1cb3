//! Packed rings: one table of descriptors, which both sides write to in turn (virtio 1.2, section 2.8).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::chain::{Chain, Descriptor, INDIRECT, NEXT, Pieces, WRITE};
use super::{CHAIN_MAX, Queue, Setup};
use crate::memory::{Array, View};
use crate::{Lie, Refusal};

/// `VIRTQ_DESC_F_AVAIL`: the driver's turn, for what it makes available; equal to the other, for what is used.
const AVAILABLE: u16 = 1 << 7;
/// `VIRTQ_DESC_F_USED`.
const USED: u16 = 1 << 15;

/// `RING_EVENT_FLAGS_DISABLE`: who says so looks by itself.
const EVENTS_OFF: u32 = 1;
/// `RING_EVENT_FLAGS_DESC`: to be woken behind one descriptor.
const EVENTS_BEHIND: u32 = 2;

/// A place in the ring, and in which of two kinds of turns: 15 bits and one, as messages have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Turn(u16);

impl Turn {
    const WRAP: u16 = 1 << 15;

    #[inline(always)]
    fn index(self) -> u16 {
        self.0 & !Turn::WRAP
    }

    /// What flags say that are set in this turn.
    #[inline(always)]
    fn flags(self, flags: u16) -> u16 {
        if self.0 & Turn::WRAP == 0 { 0 } else { flags }
    }

    /// So many descriptors further, no more than there are.
    #[inline(always)]
    fn plus(self, slots: u16, len: u16) -> Turn {
        let to = self.index() + slots;
        if to < len {
            Turn(self.0 & Turn::WRAP | to)
        } else {
            Turn(!self.0 & Turn::WRAP | (to - len))
        }
    }

    /// Descriptors from here on to a place in this turn or the next; what is behind is further than all of them.
    fn until(self, to: u16, len: u16) -> u16 {
        let turns = if (self.0 ^ to) & Turn::WRAP == 0 { 0 } else { len };
        turns.wrapping_add(to & !Turn::WRAP).wrapping_sub(self.index())
    }
}

#[derive(Debug)]
pub(super) struct Packed {
    ring: Array<[AtomicU64; 2]>,
    /// Whether the driver is to be woken, and behind what.
    driver: Array<AtomicU32>,
    /// The next chain to be taken.
    at: Turn,
    /// The next chain to be given back: none that was taken earlier is left.
    done: Turn,
    /// What is given back first is shown last, as the driver sees nothing behind it until then.
    held: Option<(u16, u64)>,
    /// Up to where the driver was told, and how many descriptors are behind that.
    published: Turn,
    unpublished: u16,
}

impl Packed {
    pub(super) fn open(setup: &Setup) -> Result<Packed, Refusal> {
        let (size, base) = (setup.len()?, setup.base);
        let outside = |part, user| Refusal::RingOutside { part, user };
        let events = |part, user| {
            setup
                .memory
                .array::<AtomicU32>(user, 1)
                .ok_or(outside(part, user))
        };
        let ring = (setup.memory.array(setup.descriptors, size))
            .ok_or(outside("the descriptors", setup.descriptors))?;
        let driver = events("what the driver says of events", setup.driver)?;
        let device = events("what the device says of events", setup.device)?;
        // The higher half says what was used: as everything is used in order, that is the same.
        let at = Turn(base as u16);
        if at.index() >= size {
            return Err(Refusal::RingBase { size, base });
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
        // The flags are in the second half, and are written last.
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
    fn look(&mut self, _wanted: usize) -> Result<(), Lie> {
        Ok(())
    }

    #[inline(always)]
    fn take(&mut self) -> Result<Option<Chain>, Lie> {
        let mark = self.at;
        let first = self.read(mark.index());
        if (first.flags ^ mark.flags(AVAILABLE | USED)) & (AVAILABLE | USED) != USED {
            return Ok(None);
        }
        self.at = mark.plus(1, self.ring.len());
        Ok(Some(Chain {
            first,
            id: first.next,
            mark: mark.0,
            slots: 1,
        }))
    }

    fn walk<'a>(&mut self, chain: &mut Chain, view: &'a View, pieces: &mut Pieces<'a>) -> Result<(), Lie> {
        let (mut descriptor, len) = (chain.first, self.ring.len());
        for slots in 1..=CHAIN_MAX.min(usize::from(len)) as u16 {
            if descriptor.flags & INDIRECT != 0 {
                let last = (descriptor.size / 16).saturating_sub(1);
                let follow = |index: u16, _| (u32::from(index) < last).then(|| index + 1);
                pieces.add_table(view, descriptor, parse, follow)?;
            } else {
                pieces.add(view, descriptor)?;
            }
            if descriptor.flags & NEXT == 0 {
                (chain.id, chain.slots) = (descriptor.next, slots);
                return Ok(());
            }
            descriptor = self.read(self.at.index());
            self.at = self.at.plus(1, len);
        }
        Err(Lie::Chain)
    }

    #[inline]
    fn reset(&mut self, chain: &Chain) {
        self.at = Turn(chain.mark);
    }

    #[inline(always)]
    fn put(&mut self, chain: &Chain, written: u32) {
        let at = self.done;
        let kind = if written == 0 { 0 } else { WRITE };
        let flags = at.flags(AVAILABLE | USED) | kind;
        let word = u64::from(written) | u64::from(chain.id) << 32 | u64::from(flags) << 48;
        if self.held.is_none() {
            self.held = Some((at.index(), word));
        } else {
            let [_, second] = self.ring.at(at.index());
            second.store(word, Ordering::Release);
        }
        self.done = at.plus(chain.slots, self.ring.len());
        self.unpublished += chain.slots;
    }

    #[inline]
    fn publish(&mut self) -> bool {
        let Some((index, word)) = self.held.take() else {
            return false;
        };
        let [_, second] = self.ring.at(index);
        second.store(word, Ordering::Release);
        let (from, slots) = (self.published, self.unpublished);
        (self.published, self.unpublished) = (self.done, 0);
        // It says that it sleeps, and then looks once more; we tell, and then look whether it sleeps.
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
