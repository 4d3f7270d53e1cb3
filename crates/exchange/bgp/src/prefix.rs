//! IP prefixes, and their wire format: a length in bits, then the minimum number of bytes for that length.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::family::Afi;
use crate::reader::Reader;

/// An IPv4 or IPv6 prefix. Bits after the length are zero; their value in a message is ignored (RFC 4271,
/// section 4.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

impl Prefix {
    /// Returns the prefix of an address, with the bits after `len` cleared; `None` if `len` is too large.
    pub fn new(address: IpAddr, len: u8) -> Option<Prefix> {
        let address = match address {
            IpAddr::V4(v4) if len <= 32 => {
                let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
            }
            IpAddr::V6(v6) if len <= 128 => {
                let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
            }
            _ => return None,
        };
        Some(Prefix { address, len })
    }

    /// Returns the first address of the prefix.
    pub const fn address(self) -> IpAddr {
        self.address
    }

    /// Returns the length in bits.
    pub const fn len(self) -> u8 {
        self.len
    }

    /// Returns true if the length is 0, so that the prefix contains all addresses of its family.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns the address family.
    pub const fn afi(self) -> Afi {
        Afi::of(self.address)
    }

    /// Returns true for IPv6.
    pub const fn is_ipv6(self) -> bool {
        self.address.is_ipv6()
    }

    /// Reads a prefix. Returns `None` if the length is too large for the family or bytes are missing.
    pub(crate) fn read(reader: &mut Reader<'_>, afi: Afi) -> Option<Prefix> {
        let len = reader.u8()?;
        let bytes = reader.take(usize::from(len).div_ceil(8))?;
        let address = match afi {
            Afi::Ipv4 => IpAddr::from(padded::<4>(bytes)?),
            Afi::Ipv6 => IpAddr::from(padded::<16>(bytes)?),
        };
        Prefix::new(address, len)
    }

    /// Appends the wire format.
    pub fn write(self, bytes: &mut Vec<u8>) {
        bytes.push(self.len);
        let count = usize::from(self.len).div_ceil(8);
        match self.address {
            IpAddr::V4(v4) => bytes.extend(v4.octets().iter().take(count)),
            IpAddr::V6(v6) => bytes.extend(v6.octets().iter().take(count)),
        }
    }
}

/// Returns the bytes with zeros after them; `None` if there are more than `N`.
pub(crate) fn padded<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    let mut all = [0; N];
    all.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(all)
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}
