//! IP prefixes: an address whose host bits are zero, and a length.

use core::fmt;
use core::str::FromStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    /// Returns the length of an address in bits: 32 or 128.
    #[inline]
    pub const fn bits(self) -> u8 {
        match self {
            Family::V4 => 32,
            Family::V6 => 128,
        }
    }

    /// Returns the family of an address.
    #[inline]
    pub const fn of(address: &IpAddr) -> Family {
        match address {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }
}

/// An IPv4 or IPv6 prefix. Bits behind its length are zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    family: Family,
    /// The address, left-aligned: an IPv4 address occupies the 32 high bits.
    bits: u128,
    len: u8,
}

/// A prefix length that its address family does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("prefix length {len} of {address}: expected at most {max}")]
pub struct PrefixError {
    pub address: IpAddr,
    pub len: u8,
    pub max: u8,
}

/// A text that is no prefix.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PrefixTextError {
    #[error("expected IP/LENGTH as in 10.0.0.0/8")]
    Form,
    #[error(transparent)]
    Length(#[from] PrefixError),
}

impl FromStr for Prefix {
    type Err = PrefixTextError;

    fn from_str(text: &str) -> Result<Prefix, PrefixTextError> {
        let (address, len) = text.split_once('/').ok_or(PrefixTextError::Form)?;
        let address = address.parse().map_err(|_| PrefixTextError::Form)?;
        let len = len.parse().map_err(|_| PrefixTextError::Form)?;
        Ok(Prefix::new(address, len)?)
    }
}

impl Prefix {
    /// Returns the prefix of an address; bits behind `len` are cleared.
    ///
    /// # Errors
    /// If `len` exceeds 32 for IPv4, or 128 for IPv6.
    pub fn new(address: IpAddr, len: u8) -> Result<Prefix, PrefixError> {
        let family = Family::of(&address);
        let max = family.bits();
        if len > max {
            return Err(PrefixError { address, len, max });
        }
        Ok(Prefix::of_bits(family, bits_of(address), len))
    }

    /// Returns the prefix of the full length of an address: a host route.
    pub fn host(address: IpAddr) -> Prefix {
        let family = Family::of(&address);
        Prefix::of_bits(family, bits_of(address), family.bits())
    }

    /// Returns the prefix of length 0.
    pub const fn default_route(family: Family) -> Prefix {
        Prefix {
            family,
            bits: 0,
            len: 0,
        }
    }

    /// Returns the prefix of left-aligned bits; `len` is at most that of the family.
    pub(crate) fn of_bits(family: Family, bits: u128, len: u8) -> Prefix {
        let len = len.min(family.bits());
        let bits = bits & mask(len);
        Prefix { family, bits, len }
    }

    /// Returns the address family.
    #[inline]
    pub const fn family(&self) -> Family {
        self.family
    }

    /// Returns the length in bits: 0 to 32 or 128.
    #[inline]
    #[expect(
        clippy::len_without_is_empty,
        reason = "the length of a prefix is not a number of items"
    )]
    pub const fn len(&self) -> u8 {
        self.len
    }

    /// Returns the first address as left-aligned bits: an IPv4 address occupies the 32 high bits.
    #[inline]
    pub const fn bits(&self) -> u128 {
        self.bits
    }

    /// Returns the first address.
    pub fn address(&self) -> IpAddr {
        match self.family {
            Family::V4 => IpAddr::V4(Ipv4Addr::from_bits((self.bits >> 96) as u32)),
            Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(self.bits)),
        }
    }

    /// Returns true if the address is in the prefix.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.family == Family::of(&address) && bits_of(address) & mask(self.len) == self.bits
    }

    /// Returns true if all addresses of `other` are in `self`.
    pub fn covers(&self, other: &Prefix) -> bool {
        self.family == other.family && self.len <= other.len && other.bits & mask(self.len) == self.bits
    }

    /// Returns the prefix of the first `len` bits; `self` if it is not longer.
    #[must_use]
    pub fn shortened(&self, len: u8) -> Prefix {
        Prefix::of_bits(self.family, self.bits, len.min(self.len))
    }
}

/// Returns an address as left-aligned bits.
#[inline]
pub const fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => (address.to_bits() as u128) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Returns `len` ones, left-aligned.
#[inline]
pub(crate) const fn mask(len: u8) -> u128 {
    match len {
        0 => 0,
        1..=127 => !0 << (128 - len),
        _ => !0,
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address(), self.len)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_read_as_it_is_printed_and_other_texts_are_refused_with_what_was_expected() {
        for text in [
            "0.0.0.0/0",
            "10.0.0.0/8",
            "192.0.2.1/32",
            "::/0",
            "2001:db8::/32",
            "::1/128",
        ] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), text);
        }
        assert_eq!("10.1.2.3/8".parse::<Prefix>().unwrap().to_string(), "10.0.0.0/8");
        for text in [
            "",
            "10.0.0.0",
            "10.0.0.0/",
            "/8",
            "host/8",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/-1",
            "10.0.0.0/8/8",
        ] {
            let error = text.parse::<Prefix>().unwrap_err().to_string();
            assert!(error.contains("expected"), "{text}: {error}");
        }
    }
}
