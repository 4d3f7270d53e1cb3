//! The check of the addresses to which webhooks send requests. A member names a URL, and the exchange's host
//! sends a request there. Without this check, a member could reach the internal networks of the exchange
//! (server-side request forgery).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// Returns true for a public address: not private, local, shared, for documentation, for benchmarks,
/// multicast or reserved (RFC 6890 and the IANA special-purpose registries).
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || a == 0
        || a >= 224
        || (a, b) == (100, b & 0x3f | 0x40)
        || (a, b & 0xfe) == (198, 18)
        || (a, b, c) == (192, 0, 0)
        || (a, b, c) == (192, 88, 99);
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, third, ..] = address.segments();
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match (first, second) {
        // NAT64 (RFC 6052) and 6to4 (RFC 3056) carry an IPv4 address.
        (0x64, 0xff9b) => {
            let [.., high, low] = address.segments();
            third == 0 && embedded(high, low)
        }
        (0x2002, high) => embedded(high, third),
        // Teredo, benchmarks, ORCHID; documentation.
        (0x2001, 0..0x200 | 0xdb8) | (0x3fff, _) => false,
        // Only 2000::/3 is global unicast.
        _ => first & 0xe000 == 0x2000,
    }
}

/// Resolves names, and refuses a name with an address that is not public. It gives the same error for such a name as for one that
/// does not exist, because the exchange's resolver may know internal names that its members must not learn. The client connects to the checked addresses and
/// does not resolve again, so that the name cannot change in between.
#[derive(Debug)]
pub(crate) struct PublicResolver {
    inner: DefaultResolver,
    /// True if all addresses are permitted.
    permits_private: bool,
}

impl PublicResolver {
    pub(crate) fn new(permits_private: bool) -> PublicResolver {
        PublicResolver {
            inner: DefaultResolver::default(),
            permits_private,
        }
    }
}

impl Resolver for PublicResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let host = uri.host().unwrap_or_default();
        let found = match self.inner.resolve(uri, config, timeout) {
            Ok(found) => found,
            Err(error @ Error::Timeout(_)) => return Err(error),
            Err(error) => {
                tracing::debug!(host, %error, "the name of a webhook is not resolved");
                return Err(Error::HostNotFound);
            }
        };
        let refused = found.iter().find(|address| !is_public(address.ip()));
        match refused {
            Some(address) if !self.permits_private => {
                let address = address.ip();
                tracing::debug!(host, %address, "the name of a webhook has an address that is not public");
                Err(Error::HostNotFound)
            }
            _ => Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_internet_are_public() {
        for address in [
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.0",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1",
            "2002:808:808::1",
            "64:ff9b::808:808",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "fc00::1",
            "fe80::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "2002:a00:1::1",
            "3fff::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }
}
