//! Identifiers of a chassis and of a port (IEEE 802.1AB-2016, sections 8.5.2 and 8.5.3), and the values of which they and
//! other TLVs consist: addresses and texts.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millrace_types::Mac;

/// Size of texts and identifiers at most (IEEE 802.1AB-2016, section 8.5).
const MAX_TEXT_SIZE: usize = 255;
/// The address family of IPv4 and of IPv6 (IANA, "Address Family Numbers").
const FAMILY_IPV4: u8 = 1;
const FAMILY_IPV6: u8 = 2;

/// The identifier of a chassis (IEEE 802.1AB-2016, table 8-2).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ChassisId {
    /// A MAC address (subtype 4).
    Mac(Mac),
    /// A network address (subtype 5).
    Address(IpAddr),
    /// An interface name (subtype 6).
    InterfaceName(String),
    /// A locally assigned name (subtype 7).
    Local(String),
    /// Another subtype, with its bytes.
    Other(u8, Vec<u8>),
}

/// The identifier of a port (IEEE 802.1AB-2016, table 8-3).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PortId {
    /// A MAC address (subtype 3).
    Mac(Mac),
    /// A network address (subtype 4).
    Address(IpAddr),
    /// An interface name (subtype 5).
    InterfaceName(String),
    /// A locally assigned name (subtype 7).
    Local(String),
    /// Another subtype, with its bytes.
    Other(u8, Vec<u8>),
}

/// The subtypes of an identifier.
struct Subtypes {
    mac: u8,
    address: u8,
    name: u8,
    local: u8,
}

const CHASSIS_SUBTYPES: Subtypes = Subtypes {
    mac: 4,
    address: 5,
    name: 6,
    local: 7,
};
const PORT_SUBTYPES: Subtypes = Subtypes {
    mac: 3,
    address: 4,
    name: 5,
    local: 7,
};

impl core::fmt::Display for ChassisId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            ChassisId::Mac(mac) => mac.fmt(f),
            ChassisId::Address(address) => address.fmt(f),
            ChassisId::InterfaceName(name) | ChassisId::Local(name) => f.write_str(name),
            ChassisId::Other(_, bytes) => display_bytes(bytes, f),
        }
    }
}

impl core::fmt::Display for PortId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            PortId::Mac(mac) => mac.fmt(f),
            PortId::Address(address) => address.fmt(f),
            PortId::InterfaceName(name) | PortId::Local(name) => f.write_str(name),
            PortId::Other(_, bytes) => display_bytes(bytes, f),
        }
    }
}

fn display_bytes(bytes: &[u8], f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
    f.write_str("0x")?;
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl ChassisId {
    pub(super) fn parse(value: &[u8]) -> Option<ChassisId> {
        let (subtype, id) = split_id(value)?;
        let subtypes = &CHASSIS_SUBTYPES;
        Some(match subtype {
            s if s == subtypes.mac => id.try_into().map(|mac| ChassisId::Mac(Mac(mac))).ok()?,
            s if s == subtypes.address => match address(id) {
                Some(address) => ChassisId::Address(address),
                None => ChassisId::Other(s, id.to_vec()),
            },
            s if s == subtypes.name => ChassisId::InterfaceName(text(id)),
            s if s == subtypes.local => ChassisId::Local(text(id)),
            s => ChassisId::Other(s, id.to_vec()),
        })
    }

    pub(super) fn value(&self) -> Vec<u8> {
        let subtypes = &CHASSIS_SUBTYPES;
        match self {
            ChassisId::Mac(mac) => id_value(subtypes.mac, &mac.0),
            ChassisId::Address(address) => id_value(subtypes.address, &address_bytes(*address)),
            ChassisId::InterfaceName(name) => id_value(subtypes.name, bytes_of(name)),
            ChassisId::Local(name) => id_value(subtypes.local, bytes_of(name)),
            ChassisId::Other(subtype, bytes) => id_value(*subtype, bytes),
        }
    }
}

impl PortId {
    pub(super) fn parse(value: &[u8]) -> Option<PortId> {
        let (subtype, id) = split_id(value)?;
        let subtypes = &PORT_SUBTYPES;
        Some(match subtype {
            s if s == subtypes.mac => id.try_into().map(|mac| PortId::Mac(Mac(mac))).ok()?,
            s if s == subtypes.address => match address(id) {
                Some(address) => PortId::Address(address),
                None => PortId::Other(s, id.to_vec()),
            },
            s if s == subtypes.name => PortId::InterfaceName(text(id)),
            s if s == subtypes.local => PortId::Local(text(id)),
            s => PortId::Other(s, id.to_vec()),
        })
    }

    pub(super) fn value(&self) -> Vec<u8> {
        let subtypes = &PORT_SUBTYPES;
        match self {
            PortId::Mac(mac) => id_value(subtypes.mac, &mac.0),
            PortId::Address(address) => id_value(subtypes.address, &address_bytes(*address)),
            PortId::InterfaceName(name) => id_value(subtypes.name, bytes_of(name)),
            PortId::Local(name) => id_value(subtypes.local, bytes_of(name)),
            PortId::Other(subtype, bytes) => id_value(*subtype, bytes),
        }
    }
}

/// Splits an identifier of 1 to 255 bytes from its subtype.
fn split_id(value: &[u8]) -> Option<(u8, &[u8])> {
    let (subtype, id) = value.split_first()?;
    (1..=MAX_TEXT_SIZE).contains(&id.len()).then_some((*subtype, id))
}

fn id_value(subtype: u8, id: &[u8]) -> Vec<u8> {
    let id = &id[..id.len().min(MAX_TEXT_SIZE)];
    [&[subtype], id].concat()
}

/// Returns the address after its family.
pub(super) fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.split_first()? {
        (&FAMILY_IPV4, address) => <[u8; 4]>::try_from(address)
            .ok()
            .map(|a| Ipv4Addr::from(a).into()),
        (&FAMILY_IPV6, address) => <[u8; 16]>::try_from(address)
            .ok()
            .map(|a| Ipv6Addr::from(a).into()),
        _ => None,
    }
}

pub(super) fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => [&[FAMILY_IPV4][..], &address.octets()].concat(),
        IpAddr::V6(address) => [&[FAMILY_IPV6][..], &address.octets()].concat(),
    }
}

pub(super) fn bounded_text(value: &[u8]) -> Option<String> {
    (value.len() <= MAX_TEXT_SIZE).then(|| text(value))
}

/// Returns the text of a neighbour: UTF-8, in which control characters, which could confuse a terminal, are replaced.
pub(super) fn text(bytes: &[u8]) -> String {
    let text = match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => text.trim_end_matches('\0').to_owned(),
        Cow::Owned(text) => text,
    };
    text.replace(char::is_control, "\u{fffd}")
}

pub(super) fn bytes_of(text: &str) -> &[u8] {
    truncated(text, MAX_TEXT_SIZE).as_bytes()
}

/// Returns the longest prefix of at most `size` bytes that ends between two characters.
pub(super) fn truncated(text: &str, size: usize) -> &str {
    let mut end = size.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
