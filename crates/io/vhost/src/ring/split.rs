//! Split rings: descriptors in a table, an available ring of the driver's, a used ring of ours (virtio 1.2, section 2.7).

use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use super::chain::{Chain, Descriptor, INDIRECT, NEXT, Pieces};
use super::{CHAIN_MAX, Queue, Setup};
use crate::memory::{Array, View};
use crate::{Features, Lie, Refusal};

/// `VIRTQ_AVAIL_F_NO_INTERRUPT` and `VIRTQ_USED_F_NO_NOTIFY`: who says so looks by itself.
const POLLED: u16 = 1;
/// How many fit into 64 bytes.
const DESCRIPTORS_IN_LINE: usize = 4;
const USED_IN_LINE: usize = 8;
/// Where the flags are in front of a ring, and the index.
const FLAGS: u16 = 0;
const INDEX: u16 = 1;

#[derive(Debug)]
pub(super) struct Split {
    table: Array<[AtomicU64; 2]>,
    /// Flags and index of the driver.
    driver: Array<AtomicU16>,
    available: Array<AtomicU16>,
    /// Behind which buffer the driver is to be woken, if that was agreed upon.
    wake_behind: Option<Array<AtomicU16>>,
    /// Flags and index of the device.
    device: Array<AtomicU16>,
    used: Array<[AtomicU32; 2]>,
    /// The next chain to be taken. This and the other indices run freely, modulo 65,536.
    at: u16,
    /// How far the driver is known to be.
    limit: u16,
    /// The next chain to be given back: none that was taken earlier is left.
    done: u16,
    /// Up to where the driver was told.
    published: u16,
}

impl Split {
    pub(super) fn open(setup: &Setup) -> Result<Split, Refusal> {
        let len = setup.len()?;
        let outside = |part, user| Refusal::RingOutside { part, user };
        let halves = |part, user: u64, skip: u64, len| {
            let found = user
                .checked_add(skip)
                .and_then(|at| setup.memory.array::<AtomicU16>(at, len));
            found.ok_or(outside(part, user))
        };
        let Setup { driver, device, .. } = *setup;
        let (available, used) = ("the available ring", "the used ring");
        let has_events = setup.features.contains(Features::EVENT_IDX);
        let wake_behind = has_events.then(|| halves(available, driver, 4 + 2 * u64::from(len), 1));
        let split = Split {
            table: (setup.memory.array(setup.descriptors, len))
                .ok_or(outside("the descriptors", setup.descriptors))?,
            driver: halves(available, driver, 0, 2)?,
            available: halves(available, driver, 4, len)?,
            wake_behind: wake_behind.transpose()?,
            device: halves(used, device, 0, 2)?,
            used: (device.checked_add(4))
                .and_then(|at| setup.memory.array(at, len))
                .ok_or(outside(used, device))?,
            at: 0,
            limit: 0,
            done: 0,
            published: 0,
        };
        // What was given back is what the driver has seen: where somebody was killed before us, it knows better than the
        // frontend, and as everything is given back in order, it is all that was taken.
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
    fn descriptor(&self, index: u16) -> Result<Descriptor, Lie> {
        let len = self.table.len();
        if index >= len {
            return Err(Lie::Descriptor { index, len });
        }
        let [first, second] = self.table.at(index);
        Ok(parse([
            first.load(Ordering::Relaxed),
            second.load(Ordering::Relaxed),
        ]))
    }

    #[inline(always)]
    fn place(&self, index: u16) -> u16 {
        // The length is a power of two.
        index & (self.table.len() - 1)
    }

    /// Asks for what the next chains need of the rings: for their descriptors as if these stood in a row, which they do
    /// in most drivers, and for where they are given back.
    #[inline(always)]
    fn ask_for(&self, chains: u16) {
        if chains == 0 {
            return;
        }
        let first = self.available.at(self.place(self.at)).load(Ordering::Relaxed);
        for behind in (0..chains).step_by(DESCRIPTORS_IN_LINE) {
            self.table.prefetch(self.place(first.wrapping_add(behind)));
        }
        for behind in (0..chains).step_by(USED_IN_LINE) {
            self.used
                .prefetch_to_write(self.place(self.done.wrapping_add(behind)));
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

/// Which descriptor comes behind.
fn follow(descriptor: Descriptor) -> Option<u16> {
    (descriptor.flags & NEXT != 0).then_some(descriptor.next)
}

impl Queue for Split {
    #[inline(always)]
    fn look(&mut self, wanted: usize) -> Result<(), Lie> {
        let known = self.limit.wrapping_sub(self.at);
        if usize::from(known) >= wanted {
            self.ask_for(wanted as u16);
            return Ok(());
        }
        let limit = self.driver.at(INDEX).load(Ordering::Acquire);
        let (len, now) = (self.table.len(), limit.wrapping_sub(self.at));
        if now > len || now < known {
            return Err(Lie::Index {
                from: self.limit,
                to: limit,
                room: len - known,
            });
        }
        self.limit = limit;
        self.ask_for(usize::from(now).min(wanted) as u16);
        Ok(())
    }

    #[inline(always)]
    fn take(&mut self) -> Result<Option<Chain>, Lie> {
        let mark = self.at;
        if mark == self.limit {
            return Ok(None);
        }
        let id = self.available.at(self.place(mark)).load(Ordering::Relaxed);
        let first = self.descriptor(id)?;
        self.at = mark.wrapping_add(1);
        Ok(Some(Chain {
            first,
            id,
            mark,
            slots: 1,
        }))
    }

    fn walk<'a>(&mut self, chain: &mut Chain, view: &'a View, pieces: &mut Pieces<'a>) -> Result<(), Lie> {
        let mut descriptor = chain.first;
        for _ in 0..CHAIN_MAX.min(usize::from(self.table.len())) {
            if descriptor.flags & INDIRECT != 0 {
                return pieces.add_table(view, descriptor, parse, |_, descriptor| follow(descriptor));
            }
            pieces.add(view, descriptor)?;
            match follow(descriptor) {
                Some(next) => descriptor = self.descriptor(next)?,
                None => return Ok(()),
            }
        }
        Err(Lie::Chain)
    }

    #[inline]
    fn reset(&mut self, chain: &Chain) {
        self.at = chain.mark;
    }

    #[inline(always)]
    fn put(&mut self, chain: &Chain, written: u32) {
        let [id, size] = self.used.at(self.place(self.done));
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
        // It says that it sleeps, and then looks once more; we tell, and then look whether it sleeps.
        fence(Ordering::SeqCst);
        match &self.wake_behind {
            Some(wake_behind) => {
                let behind = wake_behind.at(0).load(Ordering::Relaxed);
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
