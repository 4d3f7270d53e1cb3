//! Descriptors, and the buffers of a descriptor chain.

use arrayvec::ArrayVec;

use crate::ProtocolViolation;
use crate::limits::CHAIN_MAX;
use crate::memory::{GuestSlice, View};

/// `VIRTQ_DESC_F_NEXT`: the chain continues.
pub(super) const NEXT: u16 = 1;
/// `VIRTQ_DESC_F_WRITE`: the device writes to the buffer.
pub(super) const WRITE: u16 = 2;
/// `VIRTQ_DESC_F_INDIRECT`: the buffer holds a table of descriptors.
pub(super) const INDIRECT: u16 = 4;

/// Size of a descriptor in bytes.
const DESCRIPTOR: u32 = 16;

/// The fields of a descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptor {
    pub(super) guest: u64,
    pub(super) size: u32,
    pub(super) flags: u16,
    /// The index of the next descriptor, in a split ring; the buffer ID, in a packed ring.
    pub(super) next: u16,
}

impl Descriptor {
    /// Returns true if the descriptor is a chain of one buffer with the direction of this queue.
    #[inline(always)]
    pub(super) fn is_alone(&self, use_of: BufferAccess) -> bool {
        self.flags & (NEXT | WRITE | INDIRECT) == use_of as u16
    }
}

/// The direction of a queue: the device reads or writes its buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub(super) enum BufferAccess {
    Read = 0,
    Write = WRITE,
}

/// A descriptor chain that was taken from a ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    pub(super) first: Descriptor,
    /// The index of the first descriptor, in a split ring; the buffer ID, in a packed ring.
    pub(super) id: u16,
    /// The position in the ring at which the chain was taken.
    pub(super) position: u16,
    /// The number of descriptors that the chain occupies in a packed ring.
    pub(super) slots: u16,
}

/// The buffers of one or more chains, consumed from the front.
pub(super) struct ChainBuffers<'a> {
    use_of: BufferAccess,
    slices: ArrayVec<GuestSlice<'a>, CHAIN_MAX>,
    /// The number of descriptors, including empty ones, which have no slice. The limit [`CHAIN_MAX`] bounds the cost of
    /// a packet.
    descriptors: usize,
    /// The index of the first buffer that is not consumed.
    at: usize,
    /// The number of bytes that are not consumed.
    pub(super) size: usize,
}

impl<'a> ChainBuffers<'a> {
    pub(super) fn new(use_of: BufferAccess) -> ChainBuffers<'a> {
        ChainBuffers {
            use_of,
            slices: ArrayVec::new(),
            descriptors: 0,
            at: 0,
            size: 0,
        }
    }

    /// Returns the buffers of a device-readable chain of one buffer.
    pub(super) fn of(slice: GuestSlice<'a>) -> ChainBuffers<'a> {
        let mut buffers = ChainBuffers::new(BufferAccess::Read);
        buffers.size = slice.size();
        buffers.slices.push(slice);
        buffers
    }

    /// Appends the buffer of a descriptor.
    pub(super) fn add(&mut self, view: &'a View, descriptor: Descriptor) -> Result<(), ProtocolViolation> {
        let is_written = descriptor.flags & WRITE != 0;
        if is_written != (self.use_of == BufferAccess::Write) {
            let word = |is_written| {
                if is_written {
                    "device-writable"
                } else {
                    "device-readable"
                }
            };
            return Err(ProtocolViolation::Direction {
                found: word(is_written),
                expected: word(!is_written),
            });
        }
        self.descriptors += 1;
        if self.descriptors > CHAIN_MAX {
            return Err(ProtocolViolation::Chain);
        }
        let (mut guest, mut left) = (descriptor.guest, descriptor.size);
        while left > 0 {
            let slice = view.slice(guest, left)?;
            self.size += slice.size();
            left -= slice.size() as u32;
            guest += slice.size() as u64;
            self.slices
                .try_push(slice)
                .map_err(|_| ProtocolViolation::Chain)?;
        }
        Ok(())
    }

    /// Appends the buffers of an indirect table. `parse` decodes a descriptor; `follow` returns the index of the
    /// descriptor after the one at an index, or `None` after the last.
    pub(super) fn add_table(
        &mut self,
        view: &'a View,
        table: Descriptor,
        parse: impl Fn([u64; 2]) -> Descriptor,
        follow: impl Fn(u16, Descriptor) -> Option<u16>,
    ) -> Result<(), ProtocolViolation> {
        let Descriptor { guest, size, .. } = table;
        let len = u16::try_from(size / DESCRIPTOR).unwrap_or(u16::MAX);
        if table.flags & NEXT != 0 || len == 0 || !size.is_multiple_of(DESCRIPTOR) {
            return Err(ProtocolViolation::Table { size });
        }
        let slice = view.slice(guest, size)?;
        if slice.size() < size as usize {
            return Err(ProtocolViolation::Outside { guest, size });
        }
        let mut index = 0;
        for _ in 0..CHAIN_MAX {
            let words = (index < len).then(|| slice.behind(DESCRIPTOR as usize * usize::from(index)).words());
            let Some(words) = words.flatten() else {
                return Err(ProtocolViolation::Descriptor { index, len });
            };
            let descriptor = parse(words);
            if descriptor.flags & INDIRECT != 0 {
                return Err(ProtocolViolation::Table { size });
            }
            self.add(view, descriptor)?;
            match follow(index, descriptor) {
                Some(next) => index = next,
                None => return Ok(()),
            }
        }
        Err(ProtocolViolation::Chain)
    }

    /// Copies bytes from the buffers until `into` is full or all buffers are consumed.
    pub(super) fn read(&mut self, into: &mut [u8]) {
        let mut rest = into;
        while let Some(slice) = self.next(rest.len()) {
            let (part, behind) = rest.split_at_mut(slice.size().min(rest.len()));
            slice.read(part);
            rest = behind;
        }
    }

    /// Copies `bytes` into the buffers until all are written or all buffers are full.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(slice) = self.next(rest.len()) {
            let (part, behind) = rest.split_at(slice.size().min(rest.len()));
            slice.write(part);
            rest = behind;
        }
    }

    /// Returns the unconsumed rest of the current buffer and consumes up to `wanted` bytes of it. Returns
    /// `None` if no byte is left or wanted.
    fn next(&mut self, wanted: usize) -> Option<GuestSlice<'a>> {
        let slice = *self.slices.get(self.at).filter(|_| wanted > 0)?;
        let left = slice.behind(wanted);
        self.size -= slice.size() - left.size();
        if left.size() == 0 {
            self.at += 1;
        } else {
            self.slices[self.at] = left;
        }
        Some(slice)
    }
}
