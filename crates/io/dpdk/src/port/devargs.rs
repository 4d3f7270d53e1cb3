//! Device arguments (devargs), checked before DPDK parses them.

use std::ffi::{CStr, CString};
use std::fmt;
use std::str::FromStr;

/// DPDK's limit on a device name, without the terminating zero.
const NAME_SIZE_MAX: usize = 63;

/// Device arguments: `0000:03:00.0`, `net_null0`, `net_pcap0,rx_pcap=in.pcap,infinite_rx=1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DevArgs {
    text: CString,
    name_size: usize,
}

/// The error for text that is not valid devargs.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DevArgsError {
    /// The name before the first comma is empty.
    #[error(
        "devargs {0:?} name no device. To fix it: begin with a PCI address (0000:03:00.0) or a virtual device with a \
             number (net_af_packet0), then options after commas"
    )]
    NoName(String),
    /// The name has an invalid character, or is too long.
    #[error(
        "devargs {0:?}: a device's name has at most 63 letters, digits, '_', '-', '.' and ':'. To fix it: see \
             'millrace doctor' for the devices here"
    )]
    BadName(String),
    /// The text has a control character.
    #[error("devargs {0:?} contain a control character. To fix it: leave it out")]
    Control(String),
    /// An option has no name or no value.
    #[error(
        "devargs {text:?}: {option:?} is no option. To fix it: write options as name=value, with commas between"
    )]
    Option {
        /// The whole text.
        text: String,
        /// The invalid option.
        option: String,
    },
}

impl DevArgs {
    /// Returns the device name: everything before the first comma.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.as_str()[..self.name_size]
    }

    /// Returns the value of an option.
    #[must_use]
    pub fn option(&self, key: &str) -> Option<&str> {
        self.options()
            .find_map(|(name, value)| (name == key).then_some(value))
    }

    /// Returns options and values, in order.
    pub fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        self.as_str()[self.name_size..]
            .split(',')
            .skip(1)
            .filter_map(|option| option.split_once('='))
    }

    /// Returns the driver of a virtual device: the name without the number at its end. `None` for PCI.
    #[must_use]
    pub fn virtual_driver(&self) -> Option<&str> {
        (!self.is_pci()).then(|| self.name().trim_end_matches(|last: char| last.is_ascii_digit()))
    }

    /// Returns true if the driver of a virtual device has this name. DPDK finds the driver by the beginning of the device's
    /// name, so `net_af_xdp_eth1` has the driver `net_af_xdp`.
    #[must_use]
    pub fn has_driver(&self, driver: &str) -> bool {
        !self.is_pci() && self.name().starts_with(driver)
    }

    /// Returns the existing kernel interface whose frames a virtual device receives and sends. A tap device is none: it is
    /// the driver's own, and the driver knows its link.
    #[must_use]
    pub fn kernel_interface(&self) -> Option<&str> {
        const KEYS: [(&str, &[&str]); 4] = [
            ("net_af_packet", &["iface"]),
            ("net_af_xdp", &["iface"]),
            ("net_pcap", &["iface", "tx_iface", "rx_iface", "rx_iface_in"]),
            ("net_tap", &["remote"]),
        ];
        let (_, keys) = KEYS.iter().find(|(driver, _)| self.has_driver(driver))?;
        keys.iter().find_map(|key| self.option(key))
    }

    /// Returns true if the name is a PCI address.
    #[must_use]
    pub fn is_pci(&self) -> bool {
        is_pci_address(self.name())
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // The text was made from a str, so it is UTF-8.
        self.text.to_str().unwrap_or_default()
    }

    pub(crate) fn as_c_str(&self) -> &CStr {
        &self.text
    }
}

impl fmt::Display for DevArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for DevArgs {
    type Err = DevArgsError;

    fn from_str(text: &str) -> Result<Self, DevArgsError> {
        let text = text.trim();
        if text.contains(|char: char| char.is_control()) {
            return Err(DevArgsError::Control(text.to_owned()));
        }
        let (name, options) = text.split_once(',').unwrap_or((text, ""));
        if name.is_empty() {
            return Err(DevArgsError::NoName(text.to_owned()));
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
        if name.len() > NAME_SIZE_MAX || !name.bytes().all(plain) {
            return Err(DevArgsError::BadName(text.to_owned()));
        }
        let is_option = |option: &str| {
            option
                .split_once('=')
                .is_some_and(|(key, value)| !key.is_empty() && !value.is_empty())
        };
        if text.len() > name.len()
            && let Some(option) = options.split(',').find(|option| !is_option(option))
        {
            return Err(DevArgsError::Option {
                text: text.to_owned(),
                option: option.to_owned(),
            });
        }
        // DPDK names a PCI device by its long address, in lower case.
        let long = if is_pci_address(name) {
            let domain = if name.matches(':').count() == 1 {
                "0000:"
            } else {
                ""
            };
            format!("{domain}{}", name.to_ascii_lowercase())
        } else {
            name.to_owned()
        };
        let whole = format!("{long}{}", &text[name.len()..]);
        let text = CString::new(whole).map_err(|_| DevArgsError::Control(text.to_owned()))?;
        Ok(Self {
            text,
            name_size: long.len(),
        })
    }
}

/// Returns true for `dddd:bb:dd.f` or `bb:dd.f`, hexadecimal.
fn is_pci_address(name: &str) -> bool {
    let hex = |text: &str, len: usize| text.len() == len && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let Some((rest, function)) = name.split_once('.') else {
        return false;
    };
    let mut parts = rest.split(':').rev();
    let (device, bus, domain) = (parts.next(), parts.next(), parts.next());
    parts.next().is_none()
        && matches!(function, "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7")
        && device.is_some_and(|device| hex(device, 2))
        && bus.is_some_and(|bus| hex(bus, 2))
        && domain.is_none_or(|domain| hex(domain, 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<DevArgs, DevArgsError> {
        text.parse()
    }

    #[test]
    fn a_device_that_uses_a_kernel_interface_names_it() {
        for (text, interface) in [
            ("net_af_packet0,iface=eth1", Some("eth1")),
            ("net_af_xdp_eth1,start_queue=0,iface=eth1", Some("eth1")),
            ("net_pcap0,iface=eth2", Some("eth2")),
            ("net_pcap1,rx_iface_in=eth3,tx_iface=eth4", Some("eth4")),
            ("net_pcap2,rx_pcap=in.pcap", None),
            ("net_tap0,iface=dtap0", None),
            ("net_tap0,iface=dtap0,remote=eth5", Some("eth5")),
            ("net_null0,iface=eth1", None),
            ("0000:03:00.0,iface=eth1", None),
        ] {
            assert_eq!(parse(text).unwrap().kernel_interface(), interface, "{text}");
        }
    }

    #[test]
    fn a_virtual_device_has_a_driver_a_name_and_options() {
        let args = parse("net_pcap0,rx_pcap=/tmp/a b.pcap,infinite_rx=1").unwrap();
        assert_eq!(args.name(), "net_pcap0");
        assert_eq!(args.virtual_driver(), Some("net_pcap"));
        assert_eq!(args.option("rx_pcap"), Some("/tmp/a b.pcap"));
        assert_eq!(args.option("infinite_rx"), Some("1"));
        assert_eq!(args.option("tx_pcap"), None);
        assert!(!args.is_pci());
    }

    #[test]
    fn a_pci_address_is_written_out_as_dpdk_does() {
        for text in ["0000:0A:00.1", "0a:00.1"] {
            let args = parse(text).unwrap();
            assert_eq!(args.name(), "0000:0a:00.1");
            assert!(args.is_pci());
            assert_eq!(args.virtual_driver(), None);
        }
        assert_eq!(
            parse("0a:00.1,representor=[0-3]").unwrap().option("representor"),
            Some("[0-3]")
        );
        for not_pci in ["a:00.1", "0000:0a:00.8", "0000:0000:0a:00.1", "net_null0"] {
            assert!(!parse(not_pci).unwrap().is_pci(), "{not_pci}");
        }
    }

    #[test]
    fn what_dpdk_would_misread_is_refused_with_a_next_step() {
        for bad in [
            "",
            ",a=b",
            "net null",
            "net_null0,",
            "net_null0,size",
            "net_null0,=3",
            "net_null0\n,a=b",
            "a\0b",
        ] {
            let error = parse(bad).unwrap_err();
            assert!(error.to_string().contains("To fix it: "), "{error}");
        }
        assert_eq!(parse(&"x".repeat(64)), Err(DevArgsError::BadName("x".repeat(64))));
    }
}
