//! Flow specifications (RFC 8955 for IPv4, RFC 8956 for IPv6): filter rules that BGP distributes as routes.
//!
//! A rule is a list of components in ascending order of their types; a packet matches the rule if it matches every
//! component. [`FlowRule`] keeps the bytes, which identify the route, and decodes them on request.

mod component;
mod error;
mod operator;
mod order;

use core::fmt;

pub use component::{BitmaskField, Component, NumericField, Pattern};
pub use error::FlowRuleError;
pub use operator::{BitmaskOperator, NumericOperator, matches_bits, ranges};

use crate::family::Afi;
use crate::reader::Reader;

/// A well-formed flow specification.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowRule {
    afi: Afi,
    bytes: Box<[u8]>,
}

impl FlowRule {
    /// Decodes a rule, which begins after the length field.
    ///
    /// # Errors
    /// [`FlowRuleError`]; RFC 8955, section 4.2, calls such a rule malformed.
    pub fn decode(afi: Afi, bytes: &[u8]) -> Result<FlowRule, FlowRuleError> {
        let mut reader = Reader(bytes);
        let mut last = 0;
        if bytes.is_empty() {
            return Err(FlowRuleError::Empty);
        }
        while let Some(number) = reader.u8() {
            if number <= last {
                return Err(FlowRuleError::Order {
                    first: last,
                    second: number,
                });
            }
            last = number;
            Component::read(number, &mut reader, afi)?;
        }
        Ok(FlowRule {
            afi,
            bytes: bytes.into(),
        })
    }

    /// Returns a rule with these components, sorted by type.
    ///
    /// # Errors
    /// [`FlowRuleError`] if two components have the same type, or a component is not valid for the family.
    pub fn new(afi: Afi, components: &[Component]) -> Result<FlowRule, FlowRuleError> {
        let mut sorted: Vec<&Component> = components.iter().collect();
        sorted.sort_by_key(|component| component.number());
        let mut bytes = Vec::new();
        for component in sorted {
            component.write(afi, &mut bytes);
        }
        FlowRule::decode(afi, &bytes)
    }

    /// Returns the wire format without the length field.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the address family of the packets that the rule matches.
    pub const fn afi(&self) -> Afi {
        self.afi
    }

    /// Returns the components in the order of their types.
    pub fn components(&self) -> Vec<Component> {
        let mut reader = Reader(&self.bytes);
        let mut components = Vec::new();
        // Construction has checked every component.
        while let Some(component) = reader
            .u8()
            .and_then(|number| Component::read(number, &mut reader, self.afi).ok())
        {
            components.push(component);
        }
        components
    }

    /// Returns the destination; `None` if the rule does not compare it.
    pub fn destination(&self) -> Option<Pattern> {
        match self.components().first() {
            Some(Component::Destination(pattern)) => Some(*pattern),
            _ => None,
        }
    }

    /// Returns a sort key. The rule with the lesser key applies first: the byte order of the keys is the
    /// order of precedence of RFC 8955, section 5.1, and RFC 8956, section 4.
    pub fn order_key(&self) -> String {
        order::key(&self.components())
    }
}

impl fmt::Display for FlowRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, component) in self.components().iter().enumerate() {
            let space = if index == 0 { "" } else { "; " };
            write!(f, "{space}{component}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 8955, section 4.3.1: packets to 192.0.2.0/24 with protocol TCP and port 25.
    const EXAMPLE: &[u8] = &[0x01, 0x18, 0xc0, 0x00, 0x02, 0x03, 0x81, 0x06, 0x04, 0x81, 0x19];

    #[test]
    fn the_first_example_of_rfc_8955_is_read_and_written() {
        let rule = FlowRule::decode(Afi::Ipv4, EXAMPLE).unwrap();
        assert_eq!(
            rule.to_string(),
            "destination 192.0.2.0/24; protocol =6; port =25"
        );
        assert_eq!(FlowRule::new(Afi::Ipv4, &rule.components()).unwrap(), rule);
    }

    #[test]
    fn the_second_example_of_rfc_8955_is_read() {
        let bytes = [
            0x01, 0x18, 0xc0, 0x00, 0x02, 0x02, 0x08, 0xcb, 0x04, 0x03, 0x89, 0x45, 0x8b, 0x91, 0x1f, 0x90,
        ];
        let rule = FlowRule::decode(Afi::Ipv4, &bytes).unwrap();
        assert_eq!(
            rule.to_string(),
            "destination 192.0.2.0/24; source 203.0.0.0/8; port >=137&<=139 =8080"
        );
    }

    #[test]
    fn an_example_of_rfc_8956_has_an_offset() {
        // RFC 8956, section 3.8.1: destination ::1234:5678:9a00:0/64-104.
        let bytes = [0x01, 0x68, 0x40, 0x12, 0x34, 0x56, 0x78, 0x9a];
        let rule = FlowRule::decode(Afi::Ipv6, &bytes).unwrap();
        assert_eq!(rule.to_string(), "destination ::1234:5678:9a00:0/104 offset 64");
        assert_eq!(FlowRule::new(Afi::Ipv6, &rule.components()).unwrap(), rule);
    }

    #[test]
    fn malformed_rules_are_named() {
        let error = |bytes: &[u8]| FlowRule::decode(Afi::Ipv4, bytes).unwrap_err();
        assert_eq!(error(&[]), FlowRuleError::Empty);
        assert_eq!(error(&[14, 1]), FlowRuleError::UnknownType(14));
        assert_eq!(error(&[13, 0x81, 1]), FlowRuleError::UnknownType(13));
        assert_eq!(
            error(&[3, 0x81, 6, 1, 0]),
            FlowRuleError::Order { first: 3, second: 1 }
        );
        assert_eq!(
            error(&[3, 0x81, 6, 3, 0x81, 6]),
            FlowRuleError::Order { first: 3, second: 3 }
        );
        for bytes in [
            &[1, 33, 1, 1, 1, 1, 1][..],
            &[1, 24, 1, 1],
            &[4, 0x01, 6],
            &[4, 0x91, 0],
        ] {
            assert_eq!(error(bytes), FlowRuleError::Malformed(bytes[0]), "{bytes:?}");
        }
    }
}
