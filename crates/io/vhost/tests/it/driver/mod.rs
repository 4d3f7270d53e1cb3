//! A driver for tests. It allocates memory, makes chains available in a split or packed ring, and reads what was used.
//! It can also write anything anywhere.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use arrayvec::ArrayVec;
use millrace_vhost::Features;
use millrace_vhost::memory::{AtomicArray, Memory, MemoryRegion, UnsealedPolicy, View};
use millrace_vhost::ring::{Limits, Setup};
use millrace_wire::{Frame, FramePool};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

/// Guest address, and front-end address, of the memory.
pub(crate) const GUEST: u64 = 0x1_0000_0000;
pub(crate) const USER: u64 = 0x7fff_1230_0000;
/// Size of each of the two adjacent regions, in bytes.
pub(crate) const HALF: u64 = 4 << 20;

const TABLE: u64 = 0;
const DRIVER: u64 = 0x1_0000;
const DEVICE: u64 = 0x2_0000;
/// Offset of the indirect tables, of 64 descriptors each.
const TABLES: u64 = 0x4_0000;
/// Offset of the buffers; the second region has buffers only.
pub(crate) const BUFFERS: u64 = 0x20_0000;

pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;

pub(crate) const LIMITS: Limits = Limits {
    frame_size: 2048,
    mtu: 1500,
    is_segmented: false,
};

pub(crate) type Burst = ArrayVec<Frame, 32>;

/// Returns a source of empty packets.
pub(crate) fn empties(pool: &FramePool) -> impl FnMut(usize, &mut Burst) {
    |len, burst| burst.extend((0..len).map_while(|_| pool.take(&[])))
}

/// Returns the feature bits of a split or a packed ring.
pub(crate) fn plain(is_packed: bool) -> Features {
    let kind = if is_packed {
        Features::RING_PACKED
    } else {
        Features::NONE
    };
    Features::VERSION_1 | Features::MRG_RXBUF | kind
}

pub(crate) fn memfd(size: u64) -> OwnedFd {
    let file = memfd_create("driver", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, size).unwrap();
    fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    file
}

pub(crate) fn memory() -> Arc<Memory> {
    let file = memfd(2 * HALF);
    let regions = [0, HALF].map(|offset| MemoryRegion {
        guest: GUEST + offset,
        size: HALF,
        user: USER + offset,
        offset,
    });
    let regions = regions.map(|region| (region, file.try_clone().unwrap()));
    Arc::new(Memory::open(regions, UnsealedPolicy::Reject).unwrap())
}

/// A buffer: address and size in bytes.
pub(crate) type Buffer = (u64, u32);

pub(crate) struct Driver {
    pub(crate) memory: Arc<Memory>,
    pub(crate) view: View,
    pub(crate) features: Features,
    pub(crate) len: u16,
    pub(crate) table: AtomicArray<[AtomicU64; 2]>,
    /// Flags, index, ring, and `used_event`.
    pub(crate) available: AtomicArray<AtomicU16>,
    pub(crate) device: AtomicArray<AtomicU16>,
    used: AtomicArray<[AtomicU32; 2]>,
    pub(crate) events: [AtomicArray<AtomicU32>; 2],
    /// The available index of a split ring; position and wrap counter of a packed one.
    pub(crate) at: (u16, bool),
    seen: (u16, bool),
    /// The descriptors of a chain that the device holds; for a packed ring, their number.
    out: HashMap<u16, Vec<u16>>,
    free: Vec<u16>,
}

impl Driver {
    pub(crate) fn new(len: u16, features: Features) -> Driver {
        Driver::from(len, features, 0)
    }

    /// Makes a ring that begins at an index.
    pub(crate) fn from(len: u16, features: Features, base: u16) -> Driver {
        let memory = memory();
        let driver = Driver {
            view: View::new(Arc::clone(&memory)),
            features,
            len,
            table: memory.array(USER + TABLE, len).unwrap(),
            available: memory.array(USER + DRIVER, len + 3).unwrap(),
            device: memory.array(USER + DEVICE, 2).unwrap(),
            used: memory.array(USER + DEVICE + 4, len).unwrap(),
            events: [DRIVER, DEVICE].map(|at| memory.array(USER + at, 1).unwrap()),
            at: (base, true),
            seen: (base, true),
            out: HashMap::new(),
            free: (0..len).rev().collect(),
            memory,
        };
        if !driver.is_packed() {
            driver.device.at(1).store(base, Ordering::Relaxed);
        }
        driver
    }

    pub(crate) fn is_packed(&self) -> bool {
        self.features.contains(Features::RING_PACKED)
    }

    pub(crate) fn setup(&self) -> Setup {
        Setup {
            memory: Arc::clone(&self.memory),
            size: u32::from(self.len),
            descriptors: USER + TABLE,
            driver: USER + DRIVER,
            device: USER + DEVICE,
            base: if self.is_packed() {
                0x8000_8000 | u32::from(self.at.0) << 16 | u32::from(self.at.0)
            } else {
                u32::from(self.at.0)
            },
            features: self.features,
        }
    }

    pub(crate) fn put(&self, guest: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let left = (bytes.len() - done) as u32;
            let place = self.view.slice(guest + done as u64, left).unwrap();
            place.write(&bytes[done..]);
            done += place.size();
        }
    }

    pub(crate) fn bytes(&self, (guest, size): Buffer) -> Vec<u8> {
        let mut bytes = vec![0; size as usize];
        let mut done = 0;
        while done < bytes.len() {
            let place = self.view.slice(guest + done as u64, size - done as u32).unwrap();
            place.read(&mut bytes[done..]);
            done += place.size();
        }
        bytes
    }

    /// Returns the free descriptors.
    pub(crate) fn free_len(&self) -> usize {
        if self.is_packed() {
            usize::from(self.len) - self.out.values().map(Vec::len).sum::<usize>()
        } else {
            self.free.len()
        }
    }

    /// Writes a descriptor: address, then size, flags and next index in the layout of the ring.
    pub(crate) fn describe(&self, index: u16, guest: u64, size: u32, flags: u16, next: u16) {
        let [first, second] = self.table.at(index);
        first.store(guest, Ordering::Relaxed);
        second.store(self.word(size, flags, next), Ordering::Release);
    }

    /// Returns the second word of a descriptor.
    pub(crate) fn word(&self, size: u32, flags: u16, next: u16) -> u64 {
        let (low, high) = if self.is_packed() {
            (next, flags)
        } else {
            (flags, next)
        };
        u64::from(size) | u64::from(low) << 32 | u64::from(high) << 48
    }

    /// Returns the flags of a descriptor that is available at the current wrap counter.
    pub(crate) fn available_flags(&self) -> u16 {
        if self.at.1 { 1 << 7 } else { 1 << 15 }
    }

    /// Makes a chain available. Returns its ID, or `None` if there are too few descriptors.
    pub(crate) fn offer(&mut self, buffers: &[Buffer], flags: u16, is_indirect: bool) -> Option<u16> {
        let needed = if is_indirect { 1 } else { buffers.len() };
        if needed > self.free_len() {
            return None;
        }
        let id = self.free.pop()?;
        if is_indirect {
            let table = GUEST + TABLES + 1024 * u64::from(id);
            for (index, (guest, size)) in (0..).zip(buffers) {
                let is_last = usize::from(index) + 1 == buffers.len();
                let next = if is_last || self.is_packed() { 0 } else { NEXT };
                let word = self.word(*size, flags | next, index + 1);
                let mut bytes = guest.to_le_bytes().to_vec();
                bytes.extend(word.to_le_bytes());
                self.put(table + 16 * u64::from(index), &bytes);
            }
            let table = (table, 16 * buffers.len() as u32);
            self.chain(id, &[table], INDIRECT);
        } else {
            self.chain(id, buffers, flags);
        }
        Some(id)
    }

    fn chain(&mut self, id: u16, buffers: &[Buffer], flags: u16) {
        if self.is_packed() {
            let first = self.at;
            let mut words = Vec::new();
            for (index, (guest, size)) in buffers.iter().enumerate() {
                let next = if index + 1 == buffers.len() { 0 } else { NEXT };
                let word = self.word(*size, flags | next | self.available_flags(), id);
                words.push((self.at.0, *guest, word));
                self.at = self.after(self.at, 1);
            }
            // The first descriptor becomes visible last.
            for (at, guest, word) in words.into_iter().rev() {
                let [first, second] = self.table.at(at);
                first.store(guest, Ordering::Relaxed);
                second.store(word, Ordering::Release);
            }
            assert_ne!(first, self.at);
            self.out.insert(id, vec![0; buffers.len()]);
            return;
        }
        let mut indices = vec![id];
        indices.extend((1..buffers.len()).map(|_| self.free.pop().unwrap()));
        for (at, (guest, size)) in buffers.iter().enumerate() {
            let next = indices.get(at + 1).copied();
            let more = if next.is_some() { NEXT } else { 0 };
            self.describe(indices[at], *guest, *size, flags | more, next.unwrap_or(0));
        }
        self.out.insert(id, indices);
        self.announce(id);
    }

    /// Appends the head of a chain to the available ring of a split ring.
    pub(crate) fn announce(&mut self, head: u16) {
        self.available
            .at(2 + self.at.0 % self.len)
            .store(head, Ordering::Relaxed);
        self.at.0 = self.at.0.wrapping_add(1);
        self.available.at(1).store(self.at.0, Ordering::Release);
    }

    fn after(&self, (at, turn): (u16, bool), by: u16) -> (u16, bool) {
        match at + by {
            to if to >= self.len => (to - self.len, !turn),
            to => (to, turn),
        }
    }

    /// Returns the next used chain: its ID, and the number of bytes written.
    pub(crate) fn used(&mut self) -> Option<(u16, u32)> {
        if self.is_packed() {
            let word = self.table.at(self.seen.0)[1].load(Ordering::Acquire);
            let flags = (word >> 48) as u16;
            let turn = self.seen.1;
            if (flags & 1 << 7 != 0) != turn || (flags & 1 << 15 != 0) != turn {
                return None;
            }
            let id = (word >> 32) as u16;
            let slots = self.out.remove(&id).expect("it was out").len();
            self.seen = self.after(self.seen, slots as u16);
            self.free.push(id);
            assert_eq!(flags & WRITE != 0, word as u32 != 0);
            return Some((id, word as u32));
        }
        if self.device.at(1).load(Ordering::Acquire) == self.seen.0 {
            return None;
        }
        let [id, size] = self.used.at(self.seen.0 % self.len);
        self.seen.0 = self.seen.0.wrapping_add(1);
        let id = id.load(Ordering::Relaxed) as u16;
        self.free.extend(self.out.remove(&id).expect("it was out"));
        Some((id, size.load(Ordering::Relaxed)))
    }

    /// Returns all used chains.
    pub(crate) fn all_used(&mut self) -> Vec<(u16, u32)> {
        std::iter::from_fn(|| self.used()).collect()
    }
}

/// Returns a frame with its virtio-net header, contiguous.
pub(crate) fn with_header(header: [u8; 12], frame: &[u8]) -> Vec<u8> {
    let mut bytes = header.to_vec();
    bytes.extend_from_slice(frame);
    bytes
}

/// Returns a frame that contains its number.
pub(crate) fn frame(number: u32) -> Vec<u8> {
    let size = 4 + number as usize % 250;
    let mut frame = number.to_le_bytes().to_vec();
    frame.resize(size, number as u8);
    frame
}
