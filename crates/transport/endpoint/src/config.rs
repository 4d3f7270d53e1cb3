//! The static configuration of an endpoint.

use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use millrace_types::{Duration, Mac, Vid};
use thiserror::Error;

use crate::limits::{ADDRESSES_MAX, MTU_MAX, MTU_MIN, PROBE_NUM};

/// An own address with the length of its prefix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct InterfaceAddress {
    ip: IpAddr,
    prefix_len: u8,
}

/// An address that no interface can have.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum AddressError {
    /// The text has another form.
    #[error(
        "`{text}` is no address with a prefix length; expected for instance 192.0.2.1/24 or 2001:db8::1/64"
    )]
    Text { text: String },
    /// The prefix is longer than the address.
    #[error("the prefix length {prefix_len} of {ip} is too long; expected at most {max}")]
    Prefix {
        /// The address.
        ip: IpAddr,
        /// The prefix length.
        prefix_len: u8,
        /// The maximum length.
        max: u8,
    },
    /// The address does not name one host.
    #[error("{ip} is not the address of a host; expected a unicast address")]
    NotUnicast {
        /// The address.
        ip: IpAddr,
    },
}

impl InterfaceAddress {
    /// Returns an address of a host.
    ///
    /// # Errors
    /// [`AddressError`] if the prefix is too long, or the address is not that of a host.
    pub fn new(ip: IpAddr, prefix_len: u8) -> Result<InterfaceAddress, AddressError> {
        let max = if ip.is_ipv4() { 32 } else { 128 };
        if prefix_len > max {
            return Err(AddressError::Prefix { ip, prefix_len, max });
        }
        let address = InterfaceAddress { ip, prefix_len };
        if !is_host(ip) || ip.is_loopback() || address.is_subnet_broadcast(ip) {
            return Err(AddressError::NotUnicast { ip });
        }
        Ok(address)
    }

    /// Returns the address.
    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Returns the length of the prefix in bits.
    pub fn prefix_len(&self) -> u8 {
        self.prefix_len
    }

    /// Returns true if an address has the same prefix.
    pub fn contains(&self, other: IpAddr) -> bool {
        match (self.ip, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing
                    .checked_shr(32 - u32::from(self.prefix_len))
                    .unwrap_or(0)
                    == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing
                    .checked_shr(128 - u32::from(self.prefix_len))
                    .unwrap_or(0)
                    == 0
            }
            _ => false,
        }
    }

    /// Returns true for the broadcast address and the network address of an IPv4 subnet; those of /31 and /32 are hosts
    /// (RFC 3021).
    pub fn is_subnet_broadcast(&self, other: IpAddr) -> bool {
        let IpAddr::V4(other) = other else { return false };
        if self.prefix_len >= 31 || !self.contains(IpAddr::V4(other)) {
            return false;
        }
        let host = other.to_bits() & (u32::MAX >> self.prefix_len);
        host == 0 || host == u32::MAX >> self.prefix_len
    }
}

impl FromStr for InterfaceAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<InterfaceAddress, AddressError> {
        let parsed = text
            .split_once('/')
            .and_then(|(ip, prefix_len)| Some((ip.parse().ok()?, prefix_len.parse().ok()?)));
        let (ip, prefix_len) = parsed.ok_or_else(|| AddressError::Text {
            text: text.to_owned(),
        })?;
        InterfaceAddress::new(ip, prefix_len)
    }
}

/// Returns true if an address can be that of one host.
pub(crate) fn is_host(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !(ip.is_unspecified() || ip.is_multicast() || ip.octets()[0] >= 240),
        IpAddr::V6(ip) => !(ip.is_unspecified() || ip.is_multicast() || ip.to_ipv4_mapped().is_some()),
    }
}

/// The configuration of an endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The own MAC address.
    pub mac: Mac,
    /// The MTU of the link in bytes.
    pub mtu: u16,
    /// The VLAN of all frames; `None`: frames have no tag.
    pub vlan: Option<Vid>,
    /// Own addresses, at least one. With an IPv6 address, a link-local address is formed from the MAC address, too.
    pub addresses: Vec<InterfaceAddress>,
    /// Next hops for addresses outside of the prefixes, at most one of each version.
    pub gateways: Vec<IpAddr>,
    /// Probes of each address before it is used (duplicate address detection); 0: addresses are used at once.
    pub probes: u8,
    /// The time between two probes, and after the last.
    pub probe_interval: Duration,
    /// The seed of identifications, flow labels and reachable times. Should be random.
    pub seed: u64,
}

impl Config {
    /// Returns the configuration of one address on a link of 1,500 bytes, with the probes of RFC 5227.
    pub fn new(mac: Mac, address: InterfaceAddress, seed: u64) -> Config {
        Config {
            mac,
            mtu: 1_500,
            vlan: None,
            addresses: vec![address],
            gateways: Vec::new(),
            probes: PROBE_NUM,
            probe_interval: Duration::from_secs(1),
            seed,
        }
    }

    /// Checks that the values fit each other.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.mac.is_multicast() || self.mac == Mac::ZERO {
            return Err(ConfigError::Mac { mac: self.mac });
        }
        if !(MTU_MIN..=MTU_MAX).contains(&self.mtu) {
            return Err(ConfigError::Mtu { mtu: self.mtu });
        }
        if let Some(vlan) = self.vlan
            && !(1..=4_094).contains(&vlan.raw())
        {
            return Err(ConfigError::Vlan { vlan });
        }
        if self.addresses.is_empty() || self.addresses.len() > ADDRESSES_MAX {
            return Err(ConfigError::Addresses {
                len: self.addresses.len(),
            });
        }
        for (at, gateway) in self.gateways.iter().enumerate() {
            let gateway = *gateway;
            let is_link_local = matches!(gateway, IpAddr::V6(ip) if ip.is_unicast_link_local())
                && self.addresses.iter().any(|address| address.ip.is_ipv6());
            let is_near = |address: &InterfaceAddress| {
                address.contains(gateway) && address.ip != gateway && !address.is_subnet_broadcast(gateway)
            };
            if !is_link_local && !self.addresses.iter().any(is_near) {
                return Err(ConfigError::Gateway { gateway });
            }
            let same = |other: &IpAddr| other.is_ipv4() == gateway.is_ipv4();
            if self.gateways[..at].iter().any(same) {
                return Err(ConfigError::Gateways { gateway });
            }
        }
        Ok(())
    }
}

/// A configuration with values that do not fit each other.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ConfigError {
    /// The MAC address names no single interface.
    #[error(
        "{mac} is not the MAC address of an interface; expected a unicast address such as 02:00:00:00:00:01"
    )]
    Mac {
        /// The MAC address.
        mac: Mac,
    },
    /// The MTU is out of range.
    #[error("the MTU of {mtu} bytes is out of range; expected {MTU_MIN} to {MTU_MAX}")]
    Mtu {
        /// The MTU in bytes.
        mtu: u16,
    },
    /// The VLAN is out of range.
    #[error("VLAN {vlan} is out of range; expected 1 to 4094")]
    Vlan { vlan: Vid },
    /// There is no address, or there are too many.
    #[error("{len} addresses are given; expected 1 to {ADDRESSES_MAX}")]
    Addresses {
        /// The number of addresses.
        len: usize,
    },
    /// The gateway is outside of all prefixes.
    #[error(
        "the gateway {gateway} is not another host of an own prefix; expected one, or leave the gateway out to reach the own \
         prefix only"
    )]
    Gateway { gateway: IpAddr },
    /// Two gateways have one IP version.
    #[error(
        "{gateway} is a second gateway of its IP version; expected at most one for IPv4 and one for IPv6"
    )]
    Gateways {
        /// The second one.
        gateway: IpAddr,
    },
}

/// Returns true for an address that no datagram may come from: broadcast, multicast, loopback, unspecified.
pub(crate) fn is_bad_source(ip: IpAddr) -> bool {
    !is_host(ip) || ip.is_loopback() || ip == IpAddr::V4(Ipv4Addr::BROADCAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> InterfaceAddress {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_have_prefixes_and_name_one_host() {
        let own = address("192.0.2.1/24");
        assert!(own.contains("192.0.2.200".parse().unwrap()));
        assert!(!own.contains("192.0.3.1".parse().unwrap()));
        assert!(address("10.0.0.1/0").contains("192.0.3.1".parse().unwrap()));
        assert!(address("2001:db8::1/64").contains("2001:db8::ff".parse().unwrap()));
        assert!(!address("2001:db8::1/128").contains("2001:db8::2".parse().unwrap()));
        assert!(address("10.0.0.0/31").contains("10.0.0.1".parse().unwrap()));
        for wrong in [
            "192.0.2.1",
            "192.0.2.1/33",
            "2001:db8::1/129",
            "224.0.0.1/4",
            "192.0.2.255/24",
            "192.0.2.0/24",
            "127.0.0.1/8",
            "0.0.0.0/0",
            "ff02::1/64",
            "::/0",
            "::ffff:1.2.3.4/96",
            "x/24",
        ] {
            assert!(wrong.parse::<InterfaceAddress>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_configuration_that_cannot_work_is_refused_by_name() {
        let good = Config {
            gateways: vec!["192.0.2.254".parse().unwrap()],
            ..Config::new(Mac([2, 0, 0, 0, 0, 1]), address("192.0.2.1/24"), 1)
        };
        good.check().unwrap();
        let refused = |change: &dyn Fn(&mut Config)| {
            let mut config = good.clone();
            change(&mut config);
            config.check().unwrap_err()
        };
        assert!(matches!(
            refused(&|c| c.mac = Mac([1, 0, 0, 0, 0, 1])),
            ConfigError::Mac { .. }
        ));
        assert!(matches!(refused(&|c| c.mtu = 1_279), ConfigError::Mtu { .. }));
        assert!(matches!(
            refused(&|c| c.vlan = Some(Vid::from_tci(0))),
            ConfigError::Vlan { .. }
        ));
        assert!(matches!(
            refused(&|c| c.addresses.clear()),
            ConfigError::Addresses { len: 0 }
        ));
        for gateway in ["192.0.3.1", "192.0.2.1", "192.0.2.255", "fe80::1"] {
            let gateway: IpAddr = gateway.parse().unwrap();
            assert_eq!(
                refused(&|c| c.gateways = vec![gateway]),
                ConfigError::Gateway { gateway }
            );
        }
        let second: IpAddr = "192.0.2.253".parse().unwrap();
        assert!(matches!(
            refused(&|c| c.gateways.push(second)),
            ConfigError::Gateways { .. }
        ));
    }
}
