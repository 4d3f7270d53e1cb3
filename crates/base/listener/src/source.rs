//! The origin of a connection, by which connections are counted.

use std::net::{IpAddr, SocketAddr};

/// The number of low bits of an IPv6 address that one host can choose freely (RFC 4291, section 2.5.4).
const IPV6_HOST_BITS: u32 = 64;

/// The origin of a connection: a network from which one host can choose its addresses, or this machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Source {
    /// An IPv4 address.
    Ipv4(u32),
    /// The upper 64 bits of an IPv6 address.
    Ipv6(u64),
    /// A user of this machine, by user id.
    User(u32),
    /// A Unix socket whose users have equal rights: they share the limit of the listener.
    Local,
}

impl Source {
    /// Returns true if connections of this source are limited in addition to those of the listener.
    pub(crate) fn has_own_limit(self) -> bool {
        self != Source::Local
    }
}

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Source {
        match address.to_canonical() {
            IpAddr::V4(ip) => Source::Ipv4(ip.to_bits()),
            IpAddr::V6(ip) => Source::Ipv6((ip.to_bits() >> IPV6_HOST_BITS) as u64),
        }
    }
}

impl From<SocketAddr> for Source {
    fn from(address: SocketAddr) -> Source {
        address.ip().into()
    }
}

impl From<Option<SocketAddr>> for Source {
    /// `None` is the peer of a Unix socket.
    fn from(address: Option<SocketAddr>) -> Source {
        address.map_or(Source::Local, Source::from)
    }
}

impl core::fmt::Display for Source {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Source::Ipv4(bits) => write!(f, "{}", std::net::Ipv4Addr::from_bits(*bits)),
            Source::Ipv6(bits) => {
                let prefix = std::net::Ipv6Addr::from_bits(u128::from(*bits) << IPV6_HOST_BITS);
                write!(f, "{prefix}/64")
            }
            Source::User(uid) => write!(f, "uid {uid}"),
            Source::Local => f.write_str("local"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_ipv6_prefix_are_one_source_and_mapped_ones_are_ipv4() {
        let of = |text: &str| Source::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_eq!(of("2001:db8:0:1::7").to_string(), "2001:db8:0:1::/64");
    }
}
