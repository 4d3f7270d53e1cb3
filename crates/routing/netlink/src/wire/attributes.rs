//! Attributes (`struct rtattr`, `struct nlattr`): type, length, value, each at a multiple of 4 bytes.
//!
//! ```text
//!  0        2                     4
//!  | length | N B type (14 bits)  | value ... | padding to 4 bytes
//! ```
//! N marks a nested attribute, B a value in network byte order; both are hints, which the decoders ignore.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::error::DecodeError;
use super::numbers::family;

const HEADER_SIZE: usize = 4;
const TYPE_MASK: u16 = 0x3fff;

/// An attribute of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attribute<'a> {
    /// The message, for errors.
    what: &'static str,
    /// The type, without flags.
    pub kind: u16,
    /// The value, without padding.
    pub value: &'a [u8],
}

/// The attributes in some bytes. The iterator ends after the first error.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// Returns the attributes in `bytes`, part of the message `what`.
    pub fn new(what: &'static str, bytes: &'a [u8]) -> Attributes<'a> {
        Attributes { what, rest: bytes }
    }

    /// Returns the attributes after the fixed part of a message, `header` bytes long, and that part.
    pub(super) fn after(
        what: &'static str,
        body: &'a [u8],
        header: usize,
    ) -> Result<(&'a [u8], Attributes<'a>), DecodeError> {
        match body.split_at_checked(header) {
            Some((fixed, rest)) => Ok((fixed, Attributes::new(what, rest))),
            None => Err(DecodeError::Header {
                what,
                expected: header,
                found: body.len(),
            }),
        }
    }

    fn take(&mut self) -> Result<Attribute<'a>, DecodeError> {
        let bytes = core::mem::take(&mut self.rest);
        let wrong = |length| DecodeError::Length {
            what: self.what,
            length,
            available: bytes.len(),
        };
        let (Some(length), Some(kind)) = (u16_at(bytes, 0), u16_at(bytes, 2)) else {
            return Err(wrong(HEADER_SIZE));
        };
        let length = usize::from(length);
        let value = bytes.get(HEADER_SIZE..length).ok_or(wrong(length))?;
        self.rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Ok(Attribute {
            what: self.what,
            kind: kind & TYPE_MASK,
            value,
        })
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<Attribute<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.rest.is_empty()).then(|| self.take())
    }
}

impl<'a> Attribute<'a> {
    fn wrong_size(&self, expected: &'static str) -> DecodeError {
        DecodeError::Size {
            what: self.what,
            attribute: self.kind,
            expected,
            found: self.value.len(),
        }
    }

    fn array<const N: usize>(&self, expected: &'static str) -> Result<[u8; N], DecodeError> {
        self.value.try_into().map_err(|_| self.wrong_size(expected))
    }

    pub(super) fn u8(&self) -> Result<u8, DecodeError> {
        self.array::<1>("1").map(|[byte]| byte)
    }

    pub(super) fn u16(&self) -> Result<u16, DecodeError> {
        self.array("2").map(u16::from_ne_bytes)
    }

    pub(super) fn u32(&self) -> Result<u32, DecodeError> {
        self.array("4").map(u32::from_ne_bytes)
    }

    pub(super) fn i32(&self) -> Result<i32, DecodeError> {
        self.array("4").map(i32::from_ne_bytes)
    }

    pub(super) fn empty(&self) -> Result<(), DecodeError> {
        self.array::<0>("0").map(|_| ())
    }

    /// Returns an IP address of either family, by its size.
    pub(super) fn address(&self) -> Result<IpAddr, DecodeError> {
        address_of(self.value).ok_or(self.wrong_size("4 or 16"))
    }

    /// Returns the address of a gateway of another family: `struct rtvia`.
    pub(super) fn via(&self) -> Result<IpAddr, DecodeError> {
        let wrong = || self.wrong_size("2 and an address of the family");
        let (number, address) = self.value.split_first_chunk::<2>().ok_or_else(wrong)?;
        let address = address_of(address).ok_or_else(wrong)?;
        let expected = if address.is_ipv4() {
            family::INET
        } else {
            family::INET6
        };
        if u16::from_ne_bytes(*number) == u16::from(expected) {
            Ok(address)
        } else {
            Err(wrong())
        }
    }

    /// Returns a MAC address; `None` for a link layer with addresses of another size.
    pub(super) fn mac(&self) -> Option<[u8; 6]> {
        self.value.try_into().ok()
    }

    /// Returns the bytes of a text, which a zero byte ends.
    pub(super) fn text(&self) -> &'a [u8] {
        let end = self.value.iter().position(|byte| *byte == 0);
        self.value
            .get(..end.unwrap_or(self.value.len()))
            .unwrap_or_default()
    }

    /// Returns the attributes in the value.
    pub(super) fn nested(&self) -> Attributes<'a> {
        Attributes::new(self.what, self.value)
    }
}

pub(super) fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(v4).into());
    }
    <[u8; 16]>::try_from(bytes)
        .ok()
        .map(|v6| Ipv6Addr::from(v6).into())
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_ne_bytes)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_ne_bytes)
}

pub(super) fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    array_at(bytes, at).map(i32::from_ne_bytes)
}
