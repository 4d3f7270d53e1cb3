//! IP prefixes.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// An IPv4 or IPv6 prefix. All bits after the prefix length are 0. The text form is `192.0.2.0/24`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

/// A text or a pair that is no prefix.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PrefixError {
    /// The text is no address with a length.
    #[error("\"{0}\" is no prefix: expected an address and a length, such as 192.0.2.0/24")]
    Text(String),
    /// The length is greater than that of the address.
    #[error("/{len} is too long for {address}: expected at most /{}", bits(*.address))]
    Length {
        address: IpAddr,
        /// The length in bits.
        len: u8,
    },
    /// Bits after the prefix length are set.
    #[error("{address}/{len} has bits behind its length: expected {expected}/{len}")]
    HostBits {
        address: IpAddr,
        /// The length in bits.
        len: u8,
        /// The address with these bits set to 0.
        expected: IpAddr,
    },
}

/// Returns the number of bits of the address.
const fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// Returns the address with only its first `len` bits.
fn masked(address: IpAddr, len: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}

impl Prefix {
    /// Returns the prefix.
    ///
    /// # Errors
    /// [`PrefixError`] if the length is greater than that of the address, or bits after the prefix length are
    /// set.
    pub fn new(address: IpAddr, len: u8) -> Result<Prefix, PrefixError> {
        if len > bits(address) {
            return Err(PrefixError::Length { address, len });
        }
        let expected = masked(address, len);
        if expected != address {
            return Err(PrefixError::HostBits {
                address,
                len,
                expected,
            });
        }
        Ok(Prefix { address, len })
    }

    /// Returns the prefix of one address.
    pub const fn host(address: IpAddr) -> Prefix {
        Prefix {
            address,
            len: bits(address),
        }
    }

    /// Returns the first address.
    pub const fn address(self) -> IpAddr {
        self.address
    }

    /// Returns the length in bits.
    pub const fn len(self) -> u8 {
        self.len
    }

    /// Returns the prefix of length `len` that covers this prefix; this prefix if `len` is not shorter.
    #[must_use]
    pub fn truncated(self, len: u8) -> Prefix {
        let len = len.min(self.len);
        Prefix {
            address: masked(self.address, len),
            len,
        }
    }

    /// Returns true for the prefix of all addresses of its family.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns true for IPv6.
    pub const fn is_ipv6(self) -> bool {
        self.address.is_ipv6()
    }

    /// Returns true if the address is in the prefix.
    pub fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv6() == address.is_ipv6() && masked(address, self.len) == self.address
    }

    /// Returns the last address.
    pub fn last(self) -> IpAddr {
        match self.address {
            IpAddr::V4(v4) => {
                let rest = u32::MAX.checked_shr(self.len.into()).unwrap_or(0);
                IpAddr::V4((v4.to_bits() | rest).into())
            }
            IpAddr::V6(v6) => {
                let rest = u128::MAX.checked_shr(self.len.into()).unwrap_or(0);
                IpAddr::V6((v6.to_bits() | rest).into())
            }
        }
    }

    /// Returns true if an address of the prefix can belong to a host. The first and the last address of an IPv4 network
    /// are those of the network and of broadcasts; a network of two addresses has neither (RFC 3021). The first
    /// address of an IPv6 network belongs to all its routers (RFC 4291, section 2.6.1), except of two addresses (RFC
    /// 6164).
    pub fn is_host(self, address: IpAddr) -> bool {
        let is_small = self.len + 1 >= bits(self.address);
        let is_last = !self.is_ipv6() && address == self.last();
        is_small || (address != self.address && !is_last)
    }

    /// Returns true if every address of `other` is in the prefix.
    pub fn covers(self, other: Prefix) -> bool {
        self.len <= other.len && self.contains(other.address)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Prefix, PrefixError> {
        let parts = text.split_once('/').and_then(|(address, len)| {
            let is_number = len.bytes().all(|byte| byte.is_ascii_digit());
            Some((address.parse().ok()?, len.parse().ok().filter(|_| is_number)?))
        });
        let (address, len) = parts.ok_or_else(|| PrefixError::Text(text.to_owned()))?;
        Prefix::new(address, len)
    }
}

impl TryFrom<String> for Prefix {
    type Error = PrefixError;

    fn try_from(text: String) -> Result<Prefix, PrefixError> {
        text.parse()
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> String {
        prefix.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_no_host_bits_and_no_length_over_its_family() {
        let prefix: Prefix = "192.0.2.0/24".parse().unwrap();
        assert_eq!(prefix.to_string(), "192.0.2.0/24");
        assert_eq!(prefix.truncated(16).to_string(), "192.0.0.0/16");
        assert_eq!((prefix.truncated(25), prefix.truncated(0).len()), (prefix, 0));
        assert!(prefix.contains("192.0.2.255".parse().unwrap()));
        assert!(!prefix.contains("192.0.3.0".parse().unwrap()));
        assert!(!prefix.contains("::".parse().unwrap()));
        for text in [
            "192.0.2.1/24",
            "192.0.2.0/33",
            "192.0.2.0",
            "::/129",
            "::1/64",
            "192.0.2.0/+4",
            "",
        ] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
        let error = "192.0.2.1/24".parse::<Prefix>().unwrap_err().to_string();
        assert_eq!(
            error,
            "192.0.2.1/24 has bits behind its length: expected 192.0.2.0/24"
        );
    }

    #[test]
    fn the_longest_and_the_shortest_prefix_cover_as_they_should() {
        let all: Prefix = "::/0".parse().unwrap();
        let host = Prefix::host("2001:db8::1".parse().unwrap());
        assert!(all.covers(host) && !host.covers(all) && host.covers(host));
        let all: Prefix = "0.0.0.0/0".parse().unwrap();
        assert!(!all.covers(host));
    }

    #[test]
    fn the_first_and_the_last_address_of_a_network_are_no_hosts() {
        for (network, hosts, others) in [
            (
                "192.0.2.0/24",
                &["192.0.2.1", "192.0.2.254"][..],
                &["192.0.2.0", "192.0.2.255"][..],
            ),
            ("192.0.2.4/31", &["192.0.2.4", "192.0.2.5"], &[]),
            ("192.0.2.4/32", &["192.0.2.4"], &[]),
            (
                "2001:db8::/64",
                &["2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff"],
                &["2001:db8::"],
            ),
            ("2001:db8::/127", &["2001:db8::", "2001:db8::1"], &[]),
        ] {
            let network: Prefix = network.parse().unwrap();
            assert!(
                hosts.iter().all(|host| network.is_host(host.parse().unwrap())),
                "{network}"
            );
            assert!(
                !others.iter().any(|other| network.is_host(other.parse().unwrap())),
                "{network}"
            );
        }
    }
}
