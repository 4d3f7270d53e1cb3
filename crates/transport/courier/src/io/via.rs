//! `--via`: the interface of a transfer as a text, such as `memif:/run/millrace/a.sock,address=192.0.2.1/24,gateway=192.0.2.254`.
//!
//! The first word names the device: `memif:PATH`, or the devargs of a DPDK device, which may contain options
//! of the device. Millrace's own options are:
//!
//! | option | meaning |
//! | --- | --- |
//! | `address=IP/LEN` | own address and prefix length; required, repeatable |
//! | `gateway=IP` | next hop of all other addresses; one for each IP version |
//! | `mtu=BYTES` | MTU of the link; default 1,500 |
//! | `vlan=ID` | VLAN of all frames |
//! | `mac=MAC` | memif only: own MAC address, by default derived from the first address; DPDK devices have one |
//! | `id=NUMBER`, `queues=NUMBER` | memif only: interface at the socket, and rings in each direction |

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use millrace_endpoint::{AddressError, Config, InterfaceAddress};
use millrace_types::{Mac, Vid};
use thiserror::Error;

use super::{DatagramIo, FrameIo, MemifConfig, MemifLink};
use crate::identity::random;

/// The time between two of the three probes of an own address; RFC 5227, section 1.1, has 1 to 2 s. An answer that
/// arrives after the probes counts as a conflict with an address in use.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
const MTU: u16 = 1_500;
const VLANS: &str = "1 to 4094";
const QUEUES: &str = "1 to 64";
/// The first port of the range for senders that name no port (RFC 6335, section 6: dynamic ports).
const DYNAMIC_PORTS: u16 = 49_152;

/// The device of a `--via`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Device {
    /// A memif port of the switch: socket, interface, rings in each direction.
    Memif {
        /// The socket.
        path: PathBuf,
        /// The number of the interface at the socket.
        id: u32,
        /// Rings in each direction.
        queues: u16,
    },
    /// The devargs of a DPDK device, which `millrace-courier` opens.
    Dpdk(String),
}

/// An interface for transfers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Via {
    pub device: Device,
    /// Own addresses, at least one.
    pub addresses: Vec<InterfaceAddress>,
    /// The next hops to addresses outside the own prefixes.
    pub gateways: Vec<IpAddr>,
    /// MTU in bytes.
    pub mtu: u16,
    /// The VLAN of all frames.
    pub vlan: Option<Vid>,
    /// The own MAC address, if one is given.
    pub mac: Option<Mac>,
}

/// The reason why a text is not a valid `--via`.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ViaError {
    /// The device is missing or unknown.
    #[error(
        "`{text}` names no device; expected memif:/path/to/socket, or DPDK devargs such as net_af_packet0,iface=eth1"
    )]
    Device {
        /// The first word.
        text: String,
    },
    /// A value cannot be read.
    #[error("{key}={value} cannot be read; expected {expected}")]
    Value {
        /// The option.
        key: String,
        value: String,
        /// The form that is expected.
        expected: &'static str,
    },
    /// An address cannot be used.
    #[error("address= is wrong: {0}")]
    Address(#[from] AddressError),
    /// An option is not known.
    #[error(
        "`{option}` is no option of a memif; expected address=, gateway=, mtu=, vlan=, mac=, id= or queues="
    )]
    Unknown { option: String },
    /// There is no address.
    #[error("no address is given; expected for instance address=192.0.2.1/24")]
    NoAddress,
}

fn value<T: FromStr>(key: &str, text: &str, expected: &'static str) -> Result<T, ViaError> {
    text.parse().map_err(|_| invalid(key, text, expected))
}

fn invalid(key: &str, text: &str, expected: &'static str) -> ViaError {
    ViaError::Value {
        key: key.to_owned(),
        value: text.to_owned(),
        expected,
    }
}

impl FromStr for Via {
    type Err = ViaError;

    fn from_str(text: &str) -> Result<Via, ViaError> {
        let mut words = text.split(',');
        let first = words.next().unwrap_or_default();
        let unknown = || ViaError::Device {
            text: first.to_owned(),
        };
        let mut device = match first.strip_prefix("memif:") {
            Some("") => return Err(unknown()),
            Some(path) => Device::Memif {
                path: path.into(),
                id: 0,
                queues: 1,
            },
            None if first.starts_with("net_") || is_pci(first) => Device::Dpdk(first.to_owned()),
            None => return Err(unknown()),
        };
        let mut via = Via {
            device: Device::Dpdk(String::new()),
            addresses: Vec::new(),
            gateways: Vec::new(),
            mtu: MTU,
            vlan: None,
            mac: None,
        };
        for word in words {
            let (key, text) = word.split_once('=').unwrap_or((word, ""));
            match (key, &mut device) {
                ("address", _) => via.addresses.push(text.parse::<InterfaceAddress>()?),
                ("gateway", _) => via.gateways.push(value(key, text, "an IP address")?),
                ("mtu", _) => via.mtu = value(key, text, "a number of bytes")?,
                ("vlan", _) => {
                    let raw = value(key, text, VLANS)?;
                    via.vlan = Some(Vid::new(raw).map_err(|_| invalid(key, text, VLANS))?);
                }
                // DPDK devices may have options named mac, id or queues. All other options are therefore passed to
                // them.
                (_, Device::Dpdk(devargs)) => {
                    devargs.push(',');
                    devargs.push_str(word);
                }
                ("mac", _) => via.mac = Some(value(key, text, "a MAC address such as 02:00:00:00:00:01")?),
                ("id", Device::Memif { id, .. }) => *id = value(key, text, "a number")?,
                ("queues", Device::Memif { queues, .. }) => {
                    *queues = value(key, text, QUEUES)?;
                    if !(1..=64).contains(queues) {
                        return Err(invalid(key, text, QUEUES));
                    }
                }
                _ => {
                    return Err(ViaError::Unknown {
                        option: word.to_owned(),
                    });
                }
            }
        }
        if via.addresses.is_empty() {
            return Err(ViaError::NoAddress);
        }
        Ok(Via { device, ..via })
    }
}

/// Returns true for a PCI address, such as 0000:03:00.0 or 03:00.0.
fn is_pci(text: &str) -> bool {
    let is_hex = |part: &str| !part.is_empty() && part.chars().all(|char| char.is_ascii_hexdigit());
    text.rsplit_once('.').is_some_and(|(slot, function)| {
        is_hex(function) && (1..=2).contains(&slot.matches(':').count()) && slot.split(':').all(is_hex)
    })
}

/// Returns a locally administered MAC address (IEEE 802-2014, section 8.4) derived from an IP address: `02:00` and the
/// four bytes of an IPv4 address; `06:00` and the exclusive or of the four words of an IPv6 address. The address is the
/// same in every transfer, so that the neighbours' ARP and ND caches stay valid.
fn mac_of(ip: IpAddr) -> Mac {
    let (first, [a, b, c, d]) = match ip {
        IpAddr::V4(ip) => (2, ip.octets()),
        IpAddr::V6(ip) => {
            let bits = ip.to_bits();
            let words = [96, 64, 32, 0].map(|shift| (bits >> shift) as u32);
            (6, words.iter().fold(0, |all, word| all ^ word).to_be_bytes())
        }
    };
    Mac([first, 0, a, b, c, d])
}

impl Via {
    /// Returns the own IP addresses, for tickets.
    pub fn ips(&self) -> Vec<IpAddr> {
        self.addresses.iter().map(InterfaceAddress::ip).collect()
    }

    /// Returns the configuration of the endpoint. `device` is the MAC address of the device, if it has one.
    ///
    /// # Errors
    /// If the system gives no random numbers.
    pub fn config(&self, device: Option<Mac>) -> io::Result<Config> {
        let seed = u64::from_be_bytes(random().map_err(io::Error::other)?);
        let first = self.addresses.first().ok_or(io::ErrorKind::InvalidInput)?;
        let mac = self.mac.or(device).unwrap_or_else(|| mac_of(first.ip()));
        Ok(Config {
            mtu: self.mtu,
            vlan: self.vlan,
            addresses: self.addresses.clone(),
            gateways: self.gateways.clone(),
            probe_interval: PROBE_INTERVAL,
            ..Config::new(mac, *first, seed)
        })
    }

    /// Returns a random UDP port for a sender.
    ///
    /// # Errors
    /// If the system gives no random numbers.
    pub fn dynamic_port() -> io::Result<u16> {
        let random = u16::from_be_bytes(random().map_err(io::Error::other)?);
        Ok(DYNAMIC_PORTS | random)
    }

    /// Opens a UDP port on a memif; `None` for a device of DPDK.
    ///
    /// # Errors
    /// If the switch does not answer, or another host uses an address.
    pub fn open_memif(&self, port: u16) -> io::Result<Option<Box<dyn DatagramIo>>> {
        let Device::Memif { path, id, queues } = &self.device else {
            return Ok(None);
        };
        let link = MemifLink::new(MemifConfig {
            path: path.clone(),
            id: *id,
            queues: *queues,
            mtu: self.mtu,
        })?;
        Ok(Some(Box::new(FrameIo::open(link, self.config(None)?, port)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memif_has_addresses_gateways_and_options_of_its_own() {
        let text = "memif:/run/a.sock,address=192.0.2.1/24,address=2001:db8::1/64,gateway=192.0.2.254,mtu=9000,vlan=7,id=3,queues=2,mac=02:00:00:00:00:09";
        let via: Via = text.parse().unwrap();
        let memif = Device::Memif {
            path: "/run/a.sock".into(),
            id: 3,
            queues: 2,
        };
        assert_eq!(via.device, memif);
        assert_eq!((via.addresses.len(), via.gateways.len(), via.mtu), (2, 1, 9_000));
        let config = via.config(None).unwrap();
        assert_eq!(
            (config.mac, config.vlan.map(Vid::raw)),
            (Mac([2, 0, 0, 0, 0, 9]), Some(7))
        );
        let via: Via = "memif:x,address=192.0.2.1/24".parse().unwrap();
        assert_eq!(via.config(None).unwrap().mac, Mac([2, 0, 192, 0, 2, 1]));
        assert_eq!(
            mac_of("2001:db8::ff".parse().unwrap()),
            Mac([6, 0, 0x20, 0x01, 0x0d, 0x47])
        );
    }

    #[test]
    fn a_device_of_dpdk_keeps_its_own_options() {
        let text = "net_virtio_user0,path=/run/v.sock,address=192.0.2.1/24,mac=02:00:00:00:00:09,queues=1";
        let via: Via = text.parse().unwrap();
        let devargs = "net_virtio_user0,path=/run/v.sock,mac=02:00:00:00:00:09,queues=1";
        assert_eq!(via.device, Device::Dpdk(devargs.into()));
        let own = Mac([2, 0, 0, 0, 0, 9]);
        assert_eq!(via.config(Some(own)).unwrap().mac, own);
        assert!("0000:03:00.0,address=192.0.2.1/24".parse::<Via>().is_ok());
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_name() {
        for (text, named) in [
            ("", "memif:"),
            ("eth0,address=192.0.2.1/24", "`eth0`"),
            ("memif:,address=192.0.2.1/24", "memif:"),
            ("memif:x", "no address"),
            ("memif:x,address=192.0.2.1", "192.0.2.1/24"),
            ("memif:x,address=192.0.2.1/24,gateway=b", "gateway=b"),
            ("memif:x,address=192.0.2.1/24,vlan=9999", "4094"),
            ("memif:x,address=192.0.2.1/24,queues=0", "1 to 64"),
            ("memif:x,address=192.0.2.1/24,iface=eth1", "`iface=eth1`"),
        ] {
            let error = text.parse::<Via>().unwrap_err().to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
