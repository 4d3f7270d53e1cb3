//! DPDK devices: PCI NICs and virtual devices, with their devargs.

use std::fmt;

use crate::node::shorten;

/// A PCI NIC.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PciDevice {
    /// The PCI address.
    pub address: PciAddress,
    /// The devargs of its driver.
    pub args: DevArgs,
}

/// A PCI address: domain, bus, device, function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:04x}:{:02x}:{:02x}.{:x}",
            self.domain, self.bus, self.device, self.function
        )
    }
}

impl PciAddress {
    /// Parses `DDDD:BB:DD.F` or `BB:DD.F` in hex; a domain may have up to 8 digits, as Intel VMD has.
    pub(super) fn parse(text: &str) -> Option<PciAddress> {
        let hex = |digits: &str, len: std::ops::RangeInclusive<usize>| {
            let valid = len.contains(&digits.len()) && digits.bytes().all(|c| c.is_ascii_hexdigit());
            valid.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
        };
        let (rest, function) = text.rsplit_once('.')?;
        let mut parts = rest.rsplit(':');
        let device = hex(parts.next()?, 2..=2).filter(|device| *device < 32)?;
        let bus = hex(parts.next()?, 2..=2)?;
        let domain = match parts.next() {
            Some(digits) => hex(digits, 4..=8)?,
            None => 0,
        };
        let function = hex(function, 1..=1).filter(|function| *function < 8)?;
        if parts.next().is_some() {
            return None;
        }
        Some(PciAddress {
            domain,
            bus: bus as u8,
            device: device as u8,
            function: function as u8,
        })
    }
}

/// A DPDK virtual device.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Vdev {
    pub(super) name: String,
    /// The devargs of its driver.
    pub args: DevArgs,
}

impl Vdev {
    /// Returns the device name, which is unique in DPDK: `net_af_packet0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the driver: the device name without its instance suffix, `net_af_packet`.
    pub fn driver(&self) -> &str {
        let known = DRIVERS
            .iter()
            .filter(|driver| self.name.starts_with(**driver))
            .max_by_key(|driver| driver.len());
        match known {
            Some(driver) => driver,
            None => self.name.trim_end_matches(|c: char| c.is_ascii_digit()),
        }
    }
}

/// DPDK devargs, `,key=value,key,…`; may be empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct DevArgs(Vec<(String, Option<String>)>);

impl DevArgs {
    /// Returns the pairs in the given order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_deref()))
    }

    /// Returns the value of the first `key` that has one.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.iter()
            .find(|(name, _)| *name == key)
            .and_then(|(_, value)| value)
    }

    pub(super) fn parse(text: &str) -> Result<DevArgs, String> {
        let mut args = Vec::new();
        for part in split_outside_brackets(text) {
            let (key, value) = match part.split_once('=') {
                Some((key, value)) => (key, Some(value.to_owned())),
                None => (part, None),
            };
            if key.is_empty() {
                return Err(format!(
                    "`{}` has no key; expected key=value after each comma",
                    shorten(part)
                ));
            }
            args.push((key.to_owned(), value));
        }
        Ok(DevArgs(args))
    }
}

impl fmt::Display for DevArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, value) in self.iter() {
            match value {
                Some(value) => write!(f, ",{key}={value}")?,
                None => write!(f, ",{key}")?,
            }
        }
        Ok(())
    }
}

/// The network drivers of DPDK 22.11 that devargs can name.
pub(super) const DRIVERS: [&str; 22] = [
    "net_af_packet",
    "net_af_xdp",
    "net_tap",
    "net_tun",
    "net_pcap",
    "net_null",
    "net_ring",
    "net_memif",
    "net_vhost",
    "net_virtio_user",
    "net_bonding",
    "net_failsafe",
    "net_softnic",
    "net_kni",
    "net_gre",
    "net_vdev_netvsc",
    "net_mvneta",
    "net_mvpp2",
    "net_dpaa",
    "net_octeontx",
    "virtio_user",
    "eth_bond",
];

/// Splits at commas, except inside `[…]` and `(…)`, where devargs hold lists.
fn split_outside_brackets(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |c| {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}
