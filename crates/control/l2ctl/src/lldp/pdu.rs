//! The LLDPDU and its TLVs (IEEE 802.1AB-2016, clause 8 and annexes).
//!
//! ```text
//!   15       9 8                 0
//! ┌───────────┬───────────────────┐
//! │ type      │ size of the value │ value …     organizationally specific (type 127): 3 bytes of OUI and 1 of
//! └───────────┴───────────────────┘             subtype begin the value
//! ```
//! Chassis ID, port ID and time to live come first, in this order; the end TLV, or the end of the frame, comes last.

use std::net::IpAddr;

use thiserror::Error;

use super::id::{ChassisId, PortId, address, address_bytes, bounded_text, bytes_of, text, truncated};
use super::{MAX_ADDRESSES, MAX_SIZE, MAX_VLANS};

const END: u8 = 0;
const CHASSIS_ID: u8 = 1;
const PORT_ID: u8 = 2;
const TIME_TO_LIVE: u8 = 3;
const PORT_DESCRIPTION: u8 = 4;
const SYSTEM_NAME: u8 = 5;
const SYSTEM_DESCRIPTION: u8 = 6;
const SYSTEM_CAPABILITIES: u8 = 7;
const MANAGEMENT_ADDRESS: u8 = 8;
const ORGANIZATIONALLY_SPECIFIC: u8 = 127;

/// The OUI of IEEE 802.1 and of IEEE 802.3.
const OUI_802_1: [u8; 3] = [0x00, 0x80, 0xc2];
const OUI_802_3: [u8; 3] = [0x00, 0x12, 0x0f];
/// Subtypes of IEEE 802.1 (IEEE 802.1Q-2018, table D-1).
const PORT_VLAN: u8 = 1;
const VLAN_NAME: u8 = 3;
const LINK_AGGREGATION_802_1: u8 = 7;
/// Subtypes of IEEE 802.3 (IEEE 802.3-2018, table 79-1). Link aggregation has moved to IEEE 802.1 and is read in both.
const LINK_AGGREGATION_802_3: u8 = 3;
const MAX_FRAME_SIZE: u8 = 4;

/// Size of the value of a TLV at most: 9 bits.
const MAX_VALUE_SIZE: usize = 511;
/// Size of a VLAN name at most (IEEE 802.1Q-2018, section D.2.3).
const MAX_VLAN_NAME_SIZE: usize = 32;

const NUMBERING_UNKNOWN: u8 = 1;
const NUMBERING_IF_INDEX: u8 = 2;

/// The capabilities of a system (IEEE 802.1AB-2016, table 8-4), one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Capabilities(pub u16);

impl Capabilities {
    /// The system is a bridge.
    pub const BRIDGE: Capabilities = Capabilities(1 << 2);
    /// The system is a router.
    pub const ROUTER: Capabilities = Capabilities(1 << 4);

    /// The names of the bits, from the lowest.
    const NAMES: [&'static str; 11] = [
        "other",
        "repeater",
        "bridge",
        "wlan",
        "router",
        "telephone",
        "docsis",
        "station",
        "c_vlan",
        "s_vlan",
        "tpmr",
    ];

    /// Returns the names of the set bits, from the lowest.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let is_set = move |bit: &usize| self.0 >> bit & 1 != 0;
        (0..Self::NAMES.len()).filter(is_set).map(|bit| Self::NAMES[bit])
    }
}

/// A management address (IEEE 802.1AB-2016, section 8.5.9). Addresses of other families than IP are not read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ManagementAddress {
    pub address: IpAddr,
    /// The ifIndex of the interface; `None` if it is unknown or numbered in another way.
    pub if_index: Option<u32>,
}

/// A VLAN and its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NamedVlan {
    /// The VLAN, 0 to 4095.
    pub vid: u16,
    /// The name, at most 32 bytes.
    pub name: String,
}

/// The link aggregation state of a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aggregation {
    /// True if the port can be a member of a LAG.
    pub is_capable: bool,
    /// True if the port is a member of a LAG.
    pub is_enabled: bool,
    /// The ifIndex of the LAG; 0 if the port is no member.
    pub port_id: u32,
}

/// An LLDPDU: what a system tells of itself and of one of its ports.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lldpdu {
    /// The chassis of the sender.
    pub chassis: ChassisId,
    /// The port of the sender.
    pub port: PortId,
    /// The time for which the information is valid, in seconds; 0 withdraws it.
    pub time_to_live_s: u16,
    pub port_description: Option<String>,
    pub system_name: Option<String>,
    pub system_description: Option<String>,
    /// The capabilities that the system has, and those that are enabled.
    pub capabilities: Option<(Capabilities, Capabilities)>,
    /// The management addresses.
    pub addresses: Vec<ManagementAddress>,
    /// The VLAN of untagged frames; 0 if the port has none.
    pub port_vlan: Option<u16>,
    /// The VLANs of the port.
    pub vlans: Vec<NamedVlan>,
    /// The link aggregation state.
    pub aggregation: Option<Aggregation>,
    /// The maximum frame size, with header and check sequence, in bytes.
    pub max_frame_size: Option<u16>,
    /// TLVs that were not read: unknown ones, malformed ones, and those above a limit.
    pub unread: u32,
}

/// The error for bytes that are not an LLDPDU (IEEE 802.1AB-2016, section 9.2.7.7.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum LldpduError {
    /// The LLDPDU is larger than [`MAX_SIZE`].
    #[error("the LLDPDU has {size} bytes: expected at most {MAX_SIZE}")]
    TooLarge {
        /// The size in bytes.
        size: usize,
    },
    /// One of the first three TLVs is missing, out of order or malformed.
    #[error("TLV {position} has type {found:?} or a malformed value: expected type {position} in this place")]
    Mandatory {
        /// The type that is expected: 1, 2 or 3.
        position: u8,
        /// The type that was found.
        found: Option<u8>,
    },
    /// A TLV ends after the LLDPDU.
    #[error("a TLV of type {kind} has {size} bytes, and only {left} are left")]
    Truncated {
        /// The type of the TLV.
        kind: u8,
        /// The size of its value in bytes.
        size: usize,
        /// The bytes that follow its header.
        left: usize,
    },
    /// A TLV that may occur once occurs again.
    #[error("the TLV of type {kind} occurs twice: expected it once")]
    Repeated {
        /// The type of the TLV.
        kind: u8,
    },
}

/// Reads the TLVs of an LLDPDU in order.
struct Tlvs<'a> {
    rest: &'a [u8],
}

impl<'a> Tlvs<'a> {
    /// Returns type and value of the next TLV; `None` at the end.
    fn next(&mut self) -> Result<Option<(u8, &'a [u8])>, LldpduError> {
        let Some((header, rest)) = self.rest.split_first_chunk::<2>() else {
            self.rest = &[];
            return Ok(None);
        };
        let header = u16::from_be_bytes(*header);
        let (kind, size) = ((header >> 9) as u8, usize::from(header & 0x1ff));
        if kind == END {
            self.rest = &[];
            return Ok(None);
        }
        let left = rest.len();
        let (value, rest) = rest
            .split_at_checked(size)
            .ok_or(LldpduError::Truncated { kind, size, left })?;
        self.rest = rest;
        Ok(Some((kind, value)))
    }

    /// Reads a mandatory TLV.
    fn mandatory<T>(&mut self, kind: u8, parse: impl Fn(&[u8]) -> Option<T>) -> Result<T, LldpduError> {
        let tlv = self.next()?;
        let value = tlv
            .filter(|(found, _)| *found == kind)
            .and_then(|(_, value)| parse(value));
        value.ok_or(LldpduError::Mandatory {
            position: kind,
            found: tlv.map(|(found, _)| found),
        })
    }
}

impl Lldpdu {
    /// Returns an LLDPDU with the mandatory TLVs.
    pub fn new(chassis: ChassisId, port: PortId, time_to_live_s: u16) -> Lldpdu {
        Lldpdu {
            chassis,
            port,
            time_to_live_s,
            port_description: None,
            system_name: None,
            system_description: None,
            capabilities: None,
            addresses: Vec::new(),
            port_vlan: None,
            vlans: Vec::new(),
            aggregation: None,
            max_frame_size: None,
            unread: 0,
        }
    }

    /// Reads the bytes after the EtherType. Optional TLVs that are malformed are counted, not refused.
    ///
    /// # Errors
    /// [`LldpduError`].
    pub fn parse(bytes: &[u8]) -> Result<Lldpdu, LldpduError> {
        if bytes.len() > MAX_SIZE {
            return Err(LldpduError::TooLarge { size: bytes.len() });
        }
        let mut tlvs = Tlvs { rest: bytes };
        let chassis = tlvs.mandatory(CHASSIS_ID, ChassisId::parse)?;
        let port = tlvs.mandatory(PORT_ID, PortId::parse)?;
        let seconds = tlvs.mandatory(TIME_TO_LIVE, |value| {
            value.first_chunk().copied().map(u16::from_be_bytes)
        })?;
        let mut pdu = Lldpdu::new(chassis, port, seconds);
        while let Some((kind, value)) = tlvs.next()? {
            if matches!(kind, CHASSIS_ID | PORT_ID | TIME_TO_LIVE) || pdu.has(kind) {
                return Err(LldpduError::Repeated { kind });
            }
            if pdu.read(kind, value).is_none() {
                pdu.unread = pdu.unread.saturating_add(1);
            }
        }
        Ok(pdu)
    }

    /// Returns true if a TLV that may occur once was read already.
    fn has(&self, kind: u8) -> bool {
        match kind {
            PORT_DESCRIPTION => self.port_description.is_some(),
            SYSTEM_NAME => self.system_name.is_some(),
            SYSTEM_DESCRIPTION => self.system_description.is_some(),
            SYSTEM_CAPABILITIES => self.capabilities.is_some(),
            _ => false,
        }
    }

    /// Reads an optional TLV; returns `None` if it is unknown, malformed or one too many.
    fn read(&mut self, kind: u8, value: &[u8]) -> Option<()> {
        match kind {
            PORT_DESCRIPTION => self.port_description = Some(bounded_text(value)?),
            SYSTEM_NAME => self.system_name = Some(bounded_text(value)?),
            SYSTEM_DESCRIPTION => self.system_description = Some(bounded_text(value)?),
            SYSTEM_CAPABILITIES => {
                let [a, b, c, d] = *value.first_chunk()?;
                let bits = |high, low| Capabilities(u16::from_be_bytes([high, low]));
                self.capabilities = Some((bits(a, b), bits(c, d)));
            }
            MANAGEMENT_ADDRESS if self.addresses.len() < MAX_ADDRESSES => {
                self.addresses.push(management_address(value)?);
            }
            ORGANIZATIONALLY_SPECIFIC => {
                let (head, value) = value.split_first_chunk::<4>()?;
                let [a, b, c, subtype] = *head;
                self.read_specific([a, b, c], subtype, value)?;
            }
            _ => return None,
        }
        Some(())
    }

    fn read_specific(&mut self, oui: [u8; 3], subtype: u8, value: &[u8]) -> Option<()> {
        match (oui, subtype) {
            (OUI_802_1, PORT_VLAN) => self.port_vlan = Some(u16::from_be_bytes(*value.first_chunk()?)),
            (OUI_802_1, VLAN_NAME) if self.vlans.len() < MAX_VLANS => {
                let ([a, b, size], rest) = value.split_first_chunk::<3>()?;
                let name = rest
                    .get(..usize::from(*size))
                    .filter(|name| name.len() <= MAX_VLAN_NAME_SIZE)?;
                let vid = u16::from_be_bytes([*a, *b]) & 0xfff;
                self.vlans.push(NamedVlan {
                    vid,
                    name: text(name),
                });
            }
            (OUI_802_1, LINK_AGGREGATION_802_1) | (OUI_802_3, LINK_AGGREGATION_802_3) => {
                let [status, id @ ..] = *value.first_chunk::<5>()?;
                self.aggregation = Some(Aggregation {
                    is_capable: status & 1 != 0,
                    is_enabled: status & 2 != 0,
                    port_id: u32::from_be_bytes(id),
                });
            }
            (OUI_802_3, MAX_FRAME_SIZE) => {
                self.max_frame_size = Some(u16::from_be_bytes(*value.first_chunk()?));
            }
            _ => return None,
        }
        Some(())
    }

    /// Returns the bytes after the EtherType. Optional TLVs that do not fit into `size` bytes are left out, from the last.
    pub fn emit(&self, size: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        push(&mut bytes, CHASSIS_ID, &self.chassis.value());
        push(&mut bytes, PORT_ID, &self.port.value());
        push(&mut bytes, TIME_TO_LIVE, &self.time_to_live_s.to_be_bytes());
        for (kind, value) in self.optional() {
            // The end TLV needs two bytes.
            if bytes.len() + 2 + value.len() + 2 > size {
                break;
            }
            push(&mut bytes, kind, &value);
        }
        push(&mut bytes, END, &[]);
        bytes
    }

    /// Returns the optional TLVs, the most useful first.
    fn optional(&self) -> Vec<(u8, Vec<u8>)> {
        let mut tlvs = Vec::new();
        let texts = [
            (PORT_DESCRIPTION, &self.port_description),
            (SYSTEM_NAME, &self.system_name),
            (SYSTEM_DESCRIPTION, &self.system_description),
        ];
        for (kind, text) in texts {
            tlvs.extend(text.as_deref().map(|text| (kind, bytes_of(text).to_vec())));
        }
        if let Some((has, enabled)) = self.capabilities {
            tlvs.push((
                SYSTEM_CAPABILITIES,
                [has.0.to_be_bytes(), enabled.0.to_be_bytes()].concat(),
            ));
        }
        tlvs.extend(
            self.addresses
                .iter()
                .map(|address| (MANAGEMENT_ADDRESS, address.value())),
        );
        let mut specific = |oui: [u8; 3], subtype: u8, value: &[u8]| {
            let value = [&oui[..], &[subtype], value].concat();
            tlvs.push((ORGANIZATIONALLY_SPECIFIC, value));
        };
        if let Some(vid) = self.port_vlan {
            specific(OUI_802_1, PORT_VLAN, &vid.to_be_bytes());
        }
        if let Some(aggregation) = self.aggregation {
            let status = u8::from(aggregation.is_capable) | u8::from(aggregation.is_enabled) << 1;
            let value = [&[status][..], &aggregation.port_id.to_be_bytes()].concat();
            // lldpd and Wireshark read both places; most switches read the older one only.
            specific(OUI_802_3, LINK_AGGREGATION_802_3, &value);
        }
        if let Some(size) = self.max_frame_size {
            specific(OUI_802_3, MAX_FRAME_SIZE, &size.to_be_bytes());
        }
        for vlan in &self.vlans {
            let name = truncated(&vlan.name, MAX_VLAN_NAME_SIZE).as_bytes();
            let value = [&vlan.vid.to_be_bytes()[..], &[name.len() as u8], name].concat();
            specific(OUI_802_1, VLAN_NAME, &value);
        }
        tlvs
    }
}

impl ManagementAddress {
    fn value(&self) -> Vec<u8> {
        let address = address_bytes(self.address);
        let numbering = if self.if_index.is_some() {
            NUMBERING_IF_INDEX
        } else {
            NUMBERING_UNKNOWN
        };
        let mut value = vec![address.len() as u8];
        value.extend(address);
        value.push(numbering);
        value.extend(self.if_index.unwrap_or(0).to_be_bytes());
        // No object identifier.
        value.push(0);
        value
    }
}

fn management_address(value: &[u8]) -> Option<ManagementAddress> {
    let (size, rest) = value.split_first()?;
    let (bytes, rest) = rest.split_at_checked(usize::from(*size))?;
    let (numbering, number) = rest.split_first()?;
    let number = u32::from_be_bytes(*number.first_chunk()?);
    Some(ManagementAddress {
        address: address(bytes)?,
        if_index: (*numbering == NUMBERING_IF_INDEX).then_some(number),
    })
}

fn push(bytes: &mut Vec<u8>, kind: u8, value: &[u8]) {
    let value = &value[..value.len().min(MAX_VALUE_SIZE)];
    bytes.extend((u16::from(kind) << 9 | value.len() as u16).to_be_bytes());
    bytes.extend(value);
}
