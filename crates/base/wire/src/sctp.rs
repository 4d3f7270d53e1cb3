//! The common header of SCTP (RFC 9260, section 3.1).

use crate::HeaderError;
use crate::bytes::{array, be16, be32, put, split};
use crate::checksum::crc32c;

/// Size of the common header in bytes.
pub const SIZE: usize = 12;

pub(crate) mod offset {
    pub(crate) const SRC: usize = 0;
    pub(crate) const DST: usize = 2;
    pub(crate) const TAG: usize = 4;
    pub(crate) const CHECKSUM: usize = 8;
}

/// A packet with a complete common header.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; SIZE],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Returns a view of the payload of an IP packet. Does not verify the checksum.
    ///
    /// # Errors
    /// [`HeaderError::Truncated`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, HeaderError> {
        let (header, payload) = split("SCTP", bytes)?;
        Ok(View { header, payload })
    }

    /// Returns the source port.
    #[inline]
    pub fn src(&self) -> u16 {
        be16(self.header, offset::SRC)
    }

    /// Returns the destination port.
    #[inline]
    pub fn dst(&self) -> u16 {
        be16(self.header, offset::DST)
    }

    /// Returns the verification tag.
    #[inline]
    pub fn tag(&self) -> u32 {
        be32(self.header, offset::TAG)
    }

    /// Returns the CRC32c, the only little-endian field of SCTP.
    #[inline]
    pub fn checksum(&self) -> u32 {
        u32::from_le_bytes(array(self.header, offset::CHECKSUM))
    }

    /// Returns true if the checksum is right.
    pub fn checksum_is_right(&self) -> bool {
        self.checksum() == checksum(self.header, self.payload)
    }

    /// Returns the chunks.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// Returns the correct checksum of a packet, regardless of the value in its checksum field.
pub fn checksum(header: &[u8; SIZE], payload: &[u8]) -> u32 {
    let mut header = *header;
    put(&mut header, offset::CHECKSUM, [0; 4]);
    crc32c::append(crc32c::of(&header), payload)
}

/// The fields of a common header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repr {
    /// Source port.
    pub src: u16,
    /// Destination port.
    pub dst: u16,
    /// Verification tag.
    pub tag: u32,
}

impl Repr {
    /// Returns the fields of a header.
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            src: view.src(),
            dst: view.dst(),
            tag: view.tag(),
        }
    }

    /// Appends the common header, with its checksum, and the chunks.
    pub fn emit(&self, chunks: &[u8], out: &mut Vec<u8>) {
        let mut header = [0; SIZE];
        put(&mut header, offset::SRC, self.src.to_be_bytes());
        put(&mut header, offset::DST, self.dst.to_be_bytes());
        put(&mut header, offset::TAG, self.tag.to_be_bytes());
        let checksum = checksum(&header, chunks);
        put(&mut header, offset::CHECKSUM, checksum.to_le_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(chunks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_header_that_is_cut_short_is_refused() {
        assert!(View::new(&[0; 11]).is_err());
    }

    proptest! {
        #[test]
        fn what_is_emitted_parses_to_the_same_and_verifies(
            src: u16, dst: u16, tag: u32, chunks in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let repr = Repr { src, dst, tag };
            let mut bytes = Vec::new();
            repr.emit(&chunks, &mut bytes);
            let view = View::new(&bytes).unwrap();
            prop_assert!(view.checksum_is_right());
            prop_assert_eq!(Repr::parse(&view), repr);
            bytes[0] ^= 1;
            prop_assert!(!View::new(&bytes).unwrap().checksum_is_right());
        }
    }
}
