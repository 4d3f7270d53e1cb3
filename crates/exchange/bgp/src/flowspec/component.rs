//! Components of flow specifications (RFC 8955, section 4.2.2; RFC 8956, section 3).

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};

use super::error::FlowRuleError;
use super::operator::{BitmaskOperator, NumericOperator};
use crate::family::Afi;
use crate::prefix::{Prefix, padded};
use crate::reader::Reader;

/// The addresses that a component matches. Only the bits from `offset` up to `len` are compared (RFC 8956,
/// section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pattern {
    /// The address; bits before `offset` and from `len` on are zero.
    pub address: IpAddr,
    /// The position after the last compared bit, in bits from the start of the address.
    pub len: u8,
    /// The position of the first compared bit; 0 for IPv4.
    pub offset: u8,
}

impl Pattern {
    /// Returns the pattern as a prefix; `None` if the pattern has an offset.
    pub fn prefix(self) -> Option<Prefix> {
        if self.offset == 0 {
            Prefix::new(self.address, self.len)
        } else {
            None
        }
    }
}

impl From<Prefix> for Pattern {
    fn from(prefix: Prefix) -> Pattern {
        Pattern {
            address: prefix.address(),
            len: prefix.len(),
            offset: 0,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)?;
        if self.offset != 0 {
            write!(f, " offset {}", self.offset)?;
        }
        Ok(())
    }
}

/// The field that a numeric component compares.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum NumericField {
    /// The IP protocol. For IPv6, the upper-layer protocol: the first next header that is not an extension
    /// header.
    Protocol = 3,
    /// The source port or the destination port of TCP or UDP.
    Port = 4,
    /// Destination port of TCP or UDP.
    DestinationPort = 5,
    /// Source port of TCP or UDP.
    SourcePort = 6,
    IcmpType = 7,
    IcmpCode = 8,
    /// Length of the IP packet in bytes.
    PacketLength = 10,
    /// Differentiated services code point.
    Dscp = 11,
    /// Flow label of IPv6.
    FlowLabel = 13,
}

/// The field that a bitmask component compares.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum BitmaskField {
    /// The flags of TCP; FIN is bit 0.
    TcpFlags = 9,
    /// Bit 0 is DF, bit 1 "is a fragment other than the first", bit 2 "first fragment", bit 3 "last
    /// fragment".
    Fragment = 12,
}

impl NumericField {
    const ALL: [NumericField; 9] = [
        NumericField::Protocol,
        NumericField::Port,
        NumericField::DestinationPort,
        NumericField::SourcePort,
        NumericField::IcmpType,
        NumericField::IcmpCode,
        NumericField::PacketLength,
        NumericField::Dscp,
        NumericField::FlowLabel,
    ];

    /// Returns the field of a component type; `None` if the type compares no number, or not in this family.
    fn from_number(number: u8, afi: Afi) -> Option<NumericField> {
        NumericField::ALL
            .into_iter()
            .find(|field| *field as u8 == number)
            .filter(|field| *field != NumericField::FlowLabel || afi == Afi::Ipv6)
    }
}

impl BitmaskField {
    /// Returns the field of a component type; `None` if the type compares no bits.
    fn from_number(number: u8) -> Option<BitmaskField> {
        [BitmaskField::TcpFlags, BitmaskField::Fragment]
            .into_iter()
            .find(|field| *field as u8 == number)
    }
}

/// The component types of the addresses (RFC 8955, sections 4.2.2.1 and 4.2.2.2).
const DESTINATION: u8 = 1;
const SOURCE: u8 = 2;

/// A component of a rule.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Component {
    /// The destination address.
    Destination(Pattern),
    /// The source address.
    Source(Pattern),
    /// A comparison of a field as a number.
    Numeric(NumericField, Vec<NumericOperator>),
    /// A comparison of a field as bits.
    Bitmask(BitmaskField, Vec<BitmaskOperator>),
}

impl Component {
    /// Returns the component type (RFC 8955, section 4.2.2).
    pub const fn number(&self) -> u8 {
        match self {
            Component::Destination(_) => DESTINATION,
            Component::Source(_) => SOURCE,
            Component::Numeric(field, _) => *field as u8,
            Component::Bitmask(field, _) => *field as u8,
        }
    }

    /// Reads the rest of a component after its type.
    pub(super) fn read(number: u8, reader: &mut Reader<'_>, afi: Afi) -> Result<Component, FlowRuleError> {
        let malformed = FlowRuleError::Malformed(number);
        if matches!(number, DESTINATION | SOURCE) {
            let pattern = read_pattern(reader, afi).ok_or(malformed)?;
            return Ok(if number == DESTINATION {
                Component::Destination(pattern)
            } else {
                Component::Source(pattern)
            });
        }
        if let Some(field) = BitmaskField::from_number(number) {
            let operators = BitmaskOperator::read_all(reader).ok_or(malformed)?;
            return Ok(Component::Bitmask(field, operators));
        }
        let field = NumericField::from_number(number, afi).ok_or(FlowRuleError::UnknownType(number))?;
        let operators = NumericOperator::read_all(reader).ok_or(malformed)?;
        Ok(Component::Numeric(field, operators))
    }

    /// Appends the component with its type.
    pub(super) fn write(&self, afi: Afi, bytes: &mut Vec<u8>) {
        bytes.push(self.number());
        match self {
            Component::Destination(pattern) | Component::Source(pattern) => {
                write_pattern(*pattern, afi, bytes);
            }
            Component::Numeric(_, operators) => NumericOperator::write_all(operators, bytes),
            Component::Bitmask(_, operators) => BitmaskOperator::write_all(operators, bytes),
        }
    }
}

/// Reads an IPv4 prefix; for IPv6, reads a length, an offset and the bits between them.
fn read_pattern(reader: &mut Reader<'_>, afi: Afi) -> Option<Pattern> {
    if afi == Afi::Ipv4 {
        return Prefix::read(reader, afi).map(Pattern::from);
    }
    let (len, offset) = (reader.u8()?, reader.u8()?);
    // The offset is less than the length, unless both are 0 (RFC 8956, section 3.1).
    if len > 128 || offset > len || (offset == len && len != 0) {
        return None;
    }
    let count = len - offset;
    let bytes = reader.take(usize::from(count).div_ceil(8))?;
    let bits = u128::from_be_bytes(padded(bytes)?);
    let mask = u128::MAX.checked_shl(128 - u32::from(count)).unwrap_or(0);
    let address = (bits & mask).checked_shr(u32::from(offset)).unwrap_or(0);
    Some(Pattern {
        address: IpAddr::V6(Ipv6Addr::from_bits(address)),
        len,
        offset,
    })
}

fn write_pattern(pattern: Pattern, afi: Afi, bytes: &mut Vec<u8>) {
    match pattern.address {
        IpAddr::V6(address) if afi == Afi::Ipv6 => {
            bytes.extend([pattern.len, pattern.offset]);
            let count = usize::from(pattern.len.saturating_sub(pattern.offset)).div_ceil(8);
            let shifted = address
                .to_bits()
                .checked_shl(u32::from(pattern.offset))
                .unwrap_or(0);
            bytes.extend(shifted.to_be_bytes().iter().take(count));
        }
        address => {
            // A pattern of the other family is written with a length that no decoder accepts.
            let len = if Afi::of(address) == afi {
                pattern.len
            } else {
                u8::MAX
            };
            bytes.push(len);
            if let IpAddr::V4(address) = address {
                bytes.extend(address.octets().iter().take(usize::from(len).div_ceil(8)));
            }
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Component::Destination(pattern) => return write!(f, "destination {pattern}"),
            Component::Source(pattern) => return write!(f, "source {pattern}"),
            Component::Numeric(field, _) => match field {
                NumericField::Protocol => "protocol",
                NumericField::Port => "port",
                NumericField::DestinationPort => "destination port",
                NumericField::SourcePort => "source port",
                NumericField::IcmpType => "ICMP type",
                NumericField::IcmpCode => "ICMP code",
                NumericField::PacketLength => "packet length",
                NumericField::Dscp => "DSCP",
                NumericField::FlowLabel => "flow label",
            },
            Component::Bitmask(BitmaskField::TcpFlags, _) => "TCP flags",
            Component::Bitmask(BitmaskField::Fragment, _) => "fragment",
        };
        f.write_str(name)?;
        // "&" joins operators by AND, and a space joins them by OR.
        let mut write = |index: usize, is_and: bool, text: String| {
            let joint = if is_and && index > 0 { "&" } else { " " };
            write!(f, "{joint}{text}")
        };
        match self {
            Component::Numeric(_, operators) => operators
                .iter()
                .enumerate()
                .try_for_each(|(index, operator)| write(index, operator.and, operator.to_string())),
            Component::Bitmask(_, operators) => operators
                .iter()
                .enumerate()
                .try_for_each(|(index, operator)| write(index, operator.and, operator.to_string())),
            Component::Destination(_) | Component::Source(_) => Ok(()),
        }
    }
}
