//! Split rings: a descriptor table, the driver's available ring, and the device's used ring (virtio 1.2, section 2.7).

use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use super::chain::{Chain, ChainBuffers, Descriptor, INDIRECT, NEXT};
use super::{CHAIN_MAX, Queue, Setup};
use crate::memory::{AtomicArray, View};
use crate::{Features, MessageError, ProtocolViolation};

/// `VIRTQ_AVAIL_F_NO_INTERRUPT` and `VIRTQ_USED_F_NO_NOTIFY`: the side that sets it polls.
const POLLED: u16 = 1;
/// Descriptors, and used elements, in a cache line of 64 bytes.
const DESCRIPTORS_IN_LINE: usize = 4;
const USED_IN_LINE: usize = 8;
/// Positions of the flags and of the index, in 16-bit words before the ring.
const FLAGS: u16 = 0;
const INDEX: u16 = 1;

#[derive(Debug)]
pub(super) struct Split {
    table: AtomicArray<[AtomicU64; 2]>,
    /// Flags and index of the available ring.
    driver: AtomicArray<AtomicU16>,
    available: AtomicArray<AtomicU16>,
    /// `used_event`: the driver wants a call after this used entry; present if `VIRTIO_F_EVENT_IDX` was negotiated.
    used_event: Option<AtomicArray<AtomicU16>>,
    /// Flags and index of the used ring.
    device: AtomicArray<AtomicU16>,
    used: AtomicArray<[AtomicU32; 2]>,
    /// The available index of the next chain to take. This index and the others wrap at 65,536.
    at: u16,
    /// The last known index of the available ring.
    limit: u16,
    /// The used index of the next chain to return. Chains are returned in order, so all earlier chains are
    /// already returned.
    done: u16,
    /// The used index up to which the driver was notified.
    published: u16,
}

impl Split {
    pub(super) fn open(setup: &Setup) -> Result<Split, MessageError> {
        let len = setup.len()?;
        let outside = |part, user| MessageError::RingOutside { part, user };
        let halves = |part, user: u64, skip: u64, len| {
            let found = user
                .checked_add(skip)
                .and_then(|at| setup.memory.array::<AtomicU16>(at, len));
            found.ok_or(outside(part, user))
        };
        let Setup { driver, device, .. } = *setup;
        let (available, used) = ("the available ring", "the used ring");
        let has_events = setup.features.contains(Features::EVENT_IDX);
        let used_event = has_events.then(|| halves(available, driver, 4 + 2 * u64::from(len), 1));
        let split = Split {
            table: (setup.memory.array(setup.descriptors, len))
                .ok_or(outside("the descriptors", setup.descriptors))?,
            driver: halves(available, driver, 0, 2)?,
            available: halves(available, driver, 4, len)?,
            used_event: used_event.transpose()?,
            device: halves(used, device, 0, 2)?,
            used: (device.checked_add(4))
                .and_then(|at| setup.memory.array(at, len))
                .ok_or(outside(used, device))?,
            at: 0,
            limit: 0,
            done: 0,
            published: 0,
        };
        // The used index in shared memory is the one that the driver has seen. The index is more recent than the
        // front-end's vring base if a previous device process was killed; and since chains are used in order, all
        // chains before the index are complete.
        let at = split.device.at(INDEX).load(Ordering::Acquire);
        split.device.at(FLAGS).store(POLLED, Ordering::Relaxed);
        Ok(Split {
            at,
            limit: at,
            done: at,
            published: at,
            ..split
        })
    }

    #[inline(always)]
    fn descriptor(&self, index: u16) -> Result<Descriptor, ProtocolViolation> {
        let len = self.table.len();
        if index >= len {
            return Err(ProtocolViolation::Descriptor { index, len });
        }
        let [first, second] = self.table.at(index);
        Ok(parse([
            first.load(Ordering::Relaxed),
            second.load(Ordering::Relaxed),
        ]))
    }

    #[inline(always)]
    fn entry(&self, index: u16) -> u16 {
        // The length is a power of two.
        index & (self.table.len() - 1)
    }

    /// Prefetches the descriptors of the next `chains` chains, and their used elements. Assumes that the descriptors
    /// are consecutive in the table, as they are with most drivers.
    #[inline(always)]
    fn prefetch_entries(&self, chains: u16) {
        if chains == 0 {
            return;
        }
        let first = self.available.at(self.entry(self.at)).load(Ordering::Relaxed);
        for behind in (0..chains).step_by(DESCRIPTORS_IN_LINE) {
            self.table.prefetch(self.entry(first.wrapping_add(behind)));
        }
        for behind in (0..chains).step_by(USED_IN_LINE) {
            self.used
                .prefetch_to_write(self.entry(self.done.wrapping_add(behind)));
        }
    }
}

#[inline(always)]
fn parse([guest, rest]: [u64; 2]) -> Descriptor {
    Descriptor {
        guest,
        size: rest as u32,
        flags: (rest >> 32) as u16,
        next: (rest >> 48) as u16,
    }
}

/// Returns the index of the next descriptor of the chain, if there is one.
fn follow(descriptor: Descriptor) -> Option<u16> {
    (descriptor.flags & NEXT != 0).then_some(descriptor.next)
}

impl Queue for Split {
    #[inline(always)]
    fn poll_index(&mut self, wanted: usize) -> Result<(), ProtocolViolation> {
        let known = self.limit.wrapping_sub(self.at);
        if usize::from(known) >= wanted {
            self.prefetch_entries(wanted as u16);
            return Ok(());
        }
        let limit = self.driver.at(INDEX).load(Ordering::Acquire);
        let (len, now) = (self.table.len(), limit.wrapping_sub(self.at));
        if now > len || now < known {
            return Err(ProtocolViolation::Index {
                from: self.limit,
                to: limit,
                room: len - known,
            });
        }
        self.limit = limit;
        self.prefetch_entries(usize::from(now).min(wanted) as u16);
        Ok(())
    }

    #[inline(always)]
    fn take(&mut self) -> Result<Option<Chain>, ProtocolViolation> {
        let position = self.at;
        if position == self.limit {
            return Ok(None);
        }
        let id = self.available.at(self.entry(position)).load(Ordering::Relaxed);
        let first = self.descriptor(id)?;
        self.at = position.wrapping_add(1);
        Ok(Some(Chain {
            first,
            id,
            position,
            slots: 1,
        }))
    }

    fn read_chain<'a>(
        &mut self,
        chain: &mut Chain,
        view: &'a View,
        buffers: &mut ChainBuffers<'a>,
    ) -> Result<(), ProtocolViolation> {
        let mut descriptor = chain.first;
        for _ in 0..CHAIN_MAX.min(usize::from(self.table.len())) {
            if descriptor.flags & INDIRECT != 0 {
                return buffers.add_table(view, descriptor, parse, |_, descriptor| follow(descriptor));
            }
            buffers.add(view, descriptor)?;
            match follow(descriptor) {
                Some(next) => descriptor = self.descriptor(next)?,
                None => return Ok(()),
            }
        }
        Err(ProtocolViolation::Chain)
    }

    #[inline]
    fn reset(&mut self, chain: &Chain) {
        self.at = chain.position;
    }

    #[inline(always)]
    fn mark_used(&mut self, chain: &Chain, written: u32) {
        let [id, size] = self.used.at(self.entry(self.done));
        id.store(u32::from(chain.id), Ordering::Relaxed);
        size.store(written, Ordering::Relaxed);
        self.done = self.done.wrapping_add(1);
    }

    #[inline]
    fn publish(&mut self) -> bool {
        let (old, new) = (self.published, self.done);
        if old == new {
            return false;
        }
        self.published = new;
        self.device.at(INDEX).store(new, Ordering::Release);
        // The driver sets its flag and then checks the used index again; the device writes the index and then checks
        // the flag. The fence orders the two on this side, so that no call is lost.
        fence(Ordering::SeqCst);
        match &self.used_event {
            Some(used_event) => {
                let behind = used_event.at(0).load(Ordering::Relaxed);
                new.wrapping_sub(behind).wrapping_sub(1) < new.wrapping_sub(old)
            }
            None => self.driver.at(FLAGS).load(Ordering::Relaxed) & POLLED == 0,
        }
    }

    fn base(&self) -> u32 {
        u32::from(self.done)
    }

    #[inline]
    fn len(&self) -> u16 {
        self.table.len()
    }
}
