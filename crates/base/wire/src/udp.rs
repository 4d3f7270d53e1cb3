//! UDP (RFC 768).

use crate::bytes::{be16, put, split};
use crate::ip::Pseudo;
use crate::{HeaderError, IpProto};

/// Size of the header in bytes.
pub const SIZE: usize = 8;

pub(crate) mod offset {
    pub(crate) const SRC: usize = 0;
    pub(crate) const DST: usize = 2;
    pub(crate) const SIZE: usize = 4;
    pub(crate) const CHECKSUM: usize = 6;
}

/// A complete datagram.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; SIZE],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Returns a view of the payload of an IP packet that is not a fragment. Does not verify the checksum.
    ///
    /// # Errors
    /// [`HeaderError`] if the header is truncated or its length is invalid. The length 0 of a jumbogram (RFC 2675) is
    /// invalid, too.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, HeaderError> {
        let (header, _) = split::<SIZE>("UDP", bytes)?;
        let size = be16(header, offset::SIZE);
        let invalid = HeaderError::Invalid {
            header: "UDP",
            field: "length",
            value: size.into(),
        };
        let payload = bytes.get(SIZE..size.into()).ok_or(invalid)?;
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

    /// Returns the checksum; zero means that there is none.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.header, offset::CHECKSUM)
    }

    /// Returns true if the checksum is right, or absent.
    pub fn checksum_is_right(&self, pseudo: &Pseudo) -> bool {
        let sum = pseudo.sum(IpProto::UDP, SIZE + self.payload.len());
        self.checksum() == 0 || sum.add_bytes(self.header).add_bytes(self.payload).checksum() == 0
    }

    /// Returns the data after the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The fields of a UDP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repr {
    /// Source port.
    pub src: u16,
    /// Destination port.
    pub dst: u16,
}

impl Repr {
    /// Returns the fields of a header.
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            src: view.src(),
            dst: view.dst(),
        }
    }

    /// Appends the header, with its checksum, and the payload. A length over 65,535 saturates.
    pub fn emit(&self, pseudo: &Pseudo, payload: &[u8], out: &mut Vec<u8>) {
        let size = u16::try_from(SIZE + payload.len()).unwrap_or(u16::MAX);
        let mut header = [0; SIZE];
        put(&mut header, offset::SRC, self.src.to_be_bytes());
        put(&mut header, offset::DST, self.dst.to_be_bytes());
        put(&mut header, offset::SIZE, size.to_be_bytes());
        let sum = pseudo
            .sum(IpProto::UDP, size.into())
            .add_bytes(&header)
            .add_bytes(payload);
        put(&mut header, offset::CHECKSUM, sum.udp_checksum().to_be_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv6Addr;
    use proptest::prelude::*;

    const PSEUDO: Pseudo = Pseudo::V6 {
        src: Ipv6Addr::LOCALHOST,
        dst: Ipv6Addr::LOCALHOST,
    };

    #[test]
    fn a_length_inside_the_header_or_beyond_the_packet_is_refused() {
        for (size, right) in [(0, false), (7, false), (8, true), (10, true), (11, false)] {
            let bytes = [0, 1, 0, 2, 0, size, 0, 0, 9, 9];
            assert_eq!(View::new(&bytes).is_ok(), right, "length {size}");
        }
    }

    #[test]
    fn a_checksum_of_zero_is_sent_as_all_ones() {
        // A payload that makes the sum 0xffff, found by putting the checksum of zeros into the data.
        let mut bytes = Vec::new();
        Repr::default().emit(&PSEUDO, &[0, 0], &mut bytes);
        let payload = [bytes[6], bytes[7]];
        bytes.clear();
        Repr::default().emit(&PSEUDO, &payload, &mut bytes);
        assert_eq!(bytes[6..8], [0xff, 0xff]);
        assert!(View::new(&bytes).unwrap().checksum_is_right(&PSEUDO));
    }

    proptest! {
        #[test]
        fn what_is_emitted_parses_to_the_same_and_verifies(
            src: u16, dst: u16, payload in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let repr = Repr { src, dst };
            let mut bytes = Vec::new();
            repr.emit(&PSEUDO, &payload, &mut bytes);
            let view = View::new(&bytes).unwrap();
            prop_assert_eq!(view.payload(), &payload[..]);
            prop_assert!(view.checksum() != 0 && view.checksum_is_right(&PSEUDO));
            prop_assert_eq!(Repr::parse(&view), repr);
        }
    }
}
