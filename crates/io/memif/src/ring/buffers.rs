//! The position of one side in a ring, and the buffers that its descriptors name.

use core::sync::atomic::Ordering;

use crate::error::ProtocolViolation;
use crate::region::{Buffer, RingMemory};

/// Descriptor flag: the frame continues in the next buffer (libmemif, `MEMIF_DESC_FLAG_NEXT`).
const NEXT: u64 = 1;

/// One side's position in a ring: its own index, and the limit that the other side's index sets. Indices are counted
/// modulo 65,536.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    /// The index of the next descriptor to be processed.
    pub(super) at: u16,
    /// The index of the first descriptor that the other side owns.
    pub(super) limit: u16,
    /// The number of descriptors of the ring.
    pub(super) len: u16,
}

impl Cursor {
    /// Moves the limit to `limit`. Returns the number of available descriptors, or an error if that moves the
    /// limit back, or beyond the descriptors that the other side owns.
    #[inline]
    pub(super) fn advance_limit(&mut self, limit: u16) -> Result<u16, ProtocolViolation> {
        let room = self.len - self.available();
        if limit.wrapping_sub(self.limit) > room {
            return Err(ProtocolViolation::Index {
                from: self.limit,
                to: limit,
                room,
            });
        }
        self.limit = limit;
        Ok(self.available())
    }

    /// Returns the number of descriptors that this side owns now.
    #[inline]
    pub(super) fn available(&self) -> u16 {
        self.limit.wrapping_sub(self.at)
    }
}

/// The owner of the buffers: always the client.
#[derive(Clone, Copy, Debug)]
pub(super) enum Buffers {
    /// The peer, because this side is the server.
    Peer,
    /// This side, because it is the client. The buffers are in region 0, one for each descriptor.
    Own {
        /// Offset of the first buffer, in bytes.
        first: u32,
        /// Size of each buffer, in bytes.
        size: u32,
    },
}

/// A full buffer of a frame.
pub(super) struct FullBuffer<'a> {
    pub(super) bytes: Buffer<'a>,
    /// True if the frame ends with this buffer.
    pub(super) is_last: bool,
}

impl Buffers {
    /// Returns the bytes of a full buffer.
    #[inline]
    pub(super) fn full(self, ring: &RingMemory, index: u16) -> Result<FullBuffer<'_>, ProtocolViolation> {
        let [first, second] = ring.descriptor(index);
        let word = first.load(Ordering::Relaxed);
        let length = (word >> 32) as u32;
        let bytes = match self {
            Buffers::Peer => {
                let offset = second.load(Ordering::Relaxed) as u32;
                ring.memory().buffer((word >> 16) as u16, offset, length)?
            }
            Buffers::Own { size, .. } => {
                if length > size {
                    return Err(ProtocolViolation::Longer {
                        size: length,
                        room: size,
                    });
                }
                ring.memory().buffer(0, self.offset(ring, index), length)?
            }
        };
        Ok(FullBuffer {
            bytes,
            is_last: word & NEXT == 0,
        })
    }

    /// Returns an empty buffer, and the index of its region.
    #[inline]
    pub(super) fn empty(self, ring: &RingMemory, index: u16) -> Result<(Buffer<'_>, u16), ProtocolViolation> {
        match self {
            Buffers::Peer => {
                let [first, second] = ring.descriptor(index);
                let word = first.load(Ordering::Relaxed);
                let offset = second.load(Ordering::Relaxed) as u32;
                let region = (word >> 16) as u16;
                let buffer = ring.memory().buffer(region, offset, (word >> 32) as u32)?;
                Ok((buffer, region))
            }
            Buffers::Own { size, .. } => Ok((ring.memory().buffer(0, self.offset(ring, index), size)?, 0)),
        }
    }

    /// Writes the descriptor of a buffer that holds `size` bytes.
    #[inline]
    pub(super) fn write_descriptor(
        self,
        ring: &RingMemory,
        index: u16,
        region: u16,
        size: usize,
        is_last: bool,
    ) {
        let [first, second] = ring.descriptor(index);
        let flags = if is_last { 0 } else { NEXT };
        let word = flags | u64::from(region) << 16 | (size as u64) << 32;
        first.store(word, Ordering::Relaxed);
        if let Buffers::Own { .. } = self {
            second.store(u64::from(self.offset(ring, index)), Ordering::Relaxed);
        }
    }

    /// Writes the descriptor of an empty buffer of this side.
    #[inline]
    pub(super) fn offer(self, ring: &RingMemory, index: u16) {
        if let Buffers::Own { size, .. } = self {
            self.write_descriptor(ring, index, 0, size as usize, true);
        }
    }

    /// Returns the offset in region 0 of a buffer of this side, in bytes.
    #[inline]
    fn offset(self, ring: &RingMemory, index: u16) -> u32 {
        match self {
            Buffers::Peer => 0,
            // `Layout` keeps all offsets within 32 bits.
            Buffers::Own { first, size } => {
                first.wrapping_add(size.wrapping_mul(u32::from(index & (ring.descriptors() - 1))))
            }
        }
    }
}
