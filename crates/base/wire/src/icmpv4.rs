//! ICMP for IPv4 (RFC 792).

use crate::HeaderError;
use crate::bytes::{array, be16, put, split};
use crate::checksum::Sum;

/// Size of the header in bytes: type, code, checksum, and four bytes with a meaning that depends on the type.
pub const SIZE: usize = 8;

/// Type of an echo reply.
pub const ECHO_REPLY: u8 = 0;
/// Type of a destination unreachable message.
pub const UNREACHABLE: u8 = 3;
/// Type of an echo request.
pub const ECHO_REQUEST: u8 = 8;
/// Type of a time exceeded message.
pub const TIME_EXCEEDED: u8 = 11;

pub(crate) mod offset {
    pub(crate) const TYPE: usize = 0;
    pub(crate) const CODE: usize = 1;
    pub(crate) const CHECKSUM: usize = 2;
    pub(crate) const REST: usize = 4;
}

/// A message with a complete header.
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
        let (header, payload) = split("ICMP", bytes)?;
        Ok(View { header, payload })
    }

    /// Returns the type of the message.
    #[inline]
    pub fn kind(&self) -> u8 {
        self.header[offset::TYPE]
    }

    /// Returns the code, whose meaning depends on the type.
    #[inline]
    pub fn code(&self) -> u8 {
        self.header[offset::CODE]
    }

    /// Returns the checksum.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.header, offset::CHECKSUM)
    }

    /// Returns true if the checksum is right.
    pub fn checksum_is_right(&self) -> bool {
        Sum::of(self.header).add_bytes(self.payload).checksum() == 0
    }

    /// Returns the four bytes with a meaning that depends on the type: identifier and sequence number of an
    /// echo.
    #[inline]
    pub fn rest_of_header(&self) -> [u8; 4] {
        array(self.header, offset::REST)
    }

    /// Returns the data after the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The fields of an ICMP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repr {
    pub kind: u8,
    pub code: u8,
    /// The four bytes with a meaning that depends on the type.
    pub rest_of_header: [u8; 4],
}

impl Repr {
    /// Returns an echo request.
    pub fn echo_request(ident: u16, seq: u16) -> Repr {
        let ([a, b], [c, d]) = (ident.to_be_bytes(), seq.to_be_bytes());
        Repr {
            kind: ECHO_REQUEST,
            code: 0,
            rest_of_header: [a, b, c, d],
        }
    }

    /// Returns the fields of a header.
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            kind: view.kind(),
            code: view.code(),
            rest_of_header: view.rest_of_header(),
        }
    }

    /// Appends the header, with its checksum, and the payload.
    pub fn emit(&self, payload: &[u8], out: &mut Vec<u8>) {
        let mut header = [0; SIZE];
        header[offset::TYPE] = self.kind;
        header[offset::CODE] = self.code;
        put(&mut header, offset::REST, self.rest_of_header);
        let checksum = Sum::of(&header).add_bytes(payload).checksum();
        put(&mut header, offset::CHECKSUM, checksum.to_be_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_header_that_is_cut_short_is_refused() {
        assert!(View::new(&[0; 7]).is_err());
    }

    proptest! {
        #[test]
        fn what_is_emitted_parses_to_the_same_and_verifies(
            kind: u8, code: u8, rest_of_header: [u8; 4], payload in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let repr = Repr { kind, code, rest_of_header };
            let mut bytes = Vec::new();
            repr.emit(&payload, &mut bytes);
            let view = View::new(&bytes).unwrap();
            prop_assert!(view.checksum_is_right());
            prop_assert_eq!(Repr::parse(&view), repr);
        }
    }
}
