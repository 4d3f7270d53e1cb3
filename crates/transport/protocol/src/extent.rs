//! The address space of a session: all files one after the other, divided into extents.
//!
//! An address is a byte's index in that space. On the wire it is an extent (36 bits) and an offset within it
//! (20 bits). Extents have 1 MiB, and an offset counts bytes. For sessions over 1 TiB, extents have 16 MiB,
//! and an offset counts units of 16 bytes.

use thiserror::Error;

/// The size of a group in bytes: the unit in which a receiver hashes and writes. Groups begin at multiples of
/// this size. Each extent is a whole number of groups. Only the last group of a session may be shorter.
pub const GROUP_SIZE: u64 = 16 << 10;
/// The number of extents that 36 bits can name.
pub const EXTENTS_MAX: u64 = 1 << 36;
const OFFSET_BITS: u32 = 20;

/// The size of the extents of a session. Only the last extent may be shorter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtentSize {
    /// 1 MiB, for up to 64 PiB.
    Small,
    /// 16 MiB, for sessions over 1 TiB.
    Large,
}

/// An address space that 36 + 20 bits cannot describe, or an address outside of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ExtentError {
    /// The session has too many bytes.
    #[error("a session of {bytes} bytes has more than 2^36 extents; use extents of 16 MiB or split it")]
    TooManyExtents {
        /// Bytes of the session.
        bytes: u64,
    },
    /// The bytes from `address` on are not in the session, or cross an extent boundary.
    #[error("{len} bytes at address {address} are not within one extent of the session")]
    OutOfBounds {
        /// The first byte.
        address: u64,
        /// The number of bytes.
        len: u64,
    },
    /// The address cannot be written as a multiple of the offset unit.
    #[error("address {address} is not a multiple of {unit} bytes, the unit of offsets")]
    Unaligned {
        address: u64,
        /// The unit in bytes.
        unit: u64,
    },
}

/// The layout of a session's address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    bytes: u64,
    size: ExtentSize,
}

impl Layout {
    /// Returns the layout of a session of `bytes` bytes.
    ///
    /// # Errors
    /// If the session has more than 2^36 extents.
    pub fn new(bytes: u64, size: ExtentSize) -> Result<Layout, ExtentError> {
        let layout = Layout { bytes, size };
        if layout.extents() > EXTENTS_MAX {
            return Err(ExtentError::TooManyExtents { bytes });
        }
        Ok(layout)
    }

    /// Returns the bytes of the session.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the binary logarithm of the extent size. A packet asks for its extent several times: a shift costs less than a division.
    #[inline]
    fn extent_bits(&self) -> u32 {
        match self.size {
            ExtentSize::Small => 20,
            ExtentSize::Large => 24,
        }
    }

    /// Returns the bytes of a full extent.
    #[inline]
    pub fn extent_size(&self) -> u64 {
        1 << self.extent_bits()
    }

    /// Returns the number of bytes in one unit of an offset.
    #[inline]
    pub fn offset_unit(&self) -> u64 {
        self.extent_size() >> OFFSET_BITS
    }

    /// Returns the number of extents.
    #[inline]
    pub fn extents(&self) -> u64 {
        self.bytes.div_ceil(self.extent_size())
    }

    /// Returns the extent that holds an address.
    #[inline]
    pub fn extent_of(&self, address: u64) -> u64 {
        address >> self.extent_bits()
    }

    /// Returns the first address of an extent and the address after its last one, both within the session.
    #[inline]
    pub fn bounds(&self, extent: u64) -> (u64, u64) {
        let start = extent.saturating_mul(self.extent_size()).min(self.bytes);
        (start, start.saturating_add(self.extent_size()).min(self.bytes))
    }

    /// Returns the 56 bits of the wire for an address.
    ///
    /// # Errors
    /// If the address is not in the session or not a multiple of the offset unit.
    pub fn encode(&self, address: u64) -> Result<u64, ExtentError> {
        let unit = self.offset_unit();
        if !address.is_multiple_of(unit) {
            return Err(ExtentError::Unaligned { address, unit });
        }
        self.check(address, 1)?;
        let extent = self.extent_of(address);
        let offset = (address & (self.extent_size() - 1)) / unit;
        Ok(extent << OFFSET_BITS | offset)
    }

    /// Returns the address that 56 bits from the wire encode, for `len` bytes of data.
    ///
    /// # Errors
    /// If any of the bytes is not in the session, or they cross the border of an extent.
    pub fn decode(&self, bits: u64, len: u64) -> Result<u64, ExtentError> {
        let offset = (bits & ((1 << OFFSET_BITS) - 1)) * self.offset_unit();
        let address = (bits >> OFFSET_BITS)
            .saturating_mul(self.extent_size())
            .saturating_add(offset);
        self.check(address, len)?;
        Ok(address)
    }

    /// Returns an error unless `len` bytes at `address` lie within one extent of the session.
    ///
    /// # Errors
    /// [`ExtentError::OutOfBounds`]; also for zero bytes.
    pub fn check(&self, address: u64, len: u64) -> Result<(), ExtentError> {
        let error = ExtentError::OutOfBounds { address, len };
        let end = address.checked_add(len).ok_or(error)?;
        let (_, border) = self.bounds(self.extent_of(address));
        if len == 0 || end > border {
            return Err(error);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_packet_never_crosses_the_border_of_an_extent_or_the_end() {
        let layout = Layout::new((1 << 20) + 100, ExtentSize::Small).unwrap();
        assert_eq!(layout.extents(), 2);
        assert_eq!(layout.bounds(1), (1 << 20, (1 << 20) + 100));
        assert!(layout.check((1 << 20) - 10, 10).is_ok());
        assert!(layout.check((1 << 20) - 10, 11).is_err());
        assert!(layout.check(1 << 20, 100).is_ok());
        assert!(layout.check(1 << 20, 101).is_err());
        assert!(layout.check(5, 0).is_err());
        assert!(layout.check(u64::MAX, 2).is_err());
    }

    #[test]
    fn large_extents_have_offsets_in_units_of_16_bytes() {
        let layout = Layout::new(1 << 41, ExtentSize::Large).unwrap();
        assert_eq!(layout.encode((1 << 24) + 32), Ok(1 << 20 | 2));
        assert_eq!(
            layout.encode(8),
            Err(ExtentError::Unaligned { address: 8, unit: 16 })
        );
        assert!(Layout::new(1 << 57, ExtentSize::Small).is_err());
    }

    proptest! {
        #[test]
        fn an_address_survives_the_wire(bytes in 1..=1_u64 << 56, part in 0.0..1.0) {
            let layout = Layout::new(bytes, ExtentSize::Small).unwrap();
            #[allow(clippy::cast_sign_loss, reason = "both are positive")]
            let address = ((bytes - 1) as f64 * part) as u64;
            prop_assert_eq!(layout.decode(layout.encode(address).unwrap(), 1), Ok(address));
        }

        #[test]
        fn any_bits_decode_to_an_address_in_the_session_or_to_an_error(bits: u64, len: u16) {
            let layout = Layout::new(123_456_789, ExtentSize::Small).unwrap();
            if let Ok(address) = layout.decode(bits, u64::from(len)) {
                prop_assert!(address + u64::from(len) <= 123_456_789);
            }
        }
    }
}
