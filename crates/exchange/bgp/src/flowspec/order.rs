//! The order of precedence of rules (RFC 8955, section 5.1; RFC 8956, section 4), as a text that sorts in
//! this order.
//!
//! ```text
//!   component   type, two hexadecimal digits
//!   prefix      offset (two digits), one digit 0 or 1 for each compared bit, then 2, so that the longer of two
//!               overlapping prefixes sorts first
//!   operators   their bytes in hexadecimal, then z, so that the longer of two lists with a common beginning
//!               sorts first
//!   rule        z at the end, so that a rule with a further component sorts first
//! ```

use core::net::IpAddr;

use super::component::{Component, Pattern};
use super::operator::{BitmaskOperator, NumericOperator};

pub(super) fn key(components: &[Component]) -> String {
    let mut key = String::new();
    for component in components {
        hex(&[component.number()], &mut key);
        let mut bytes = Vec::new();
        match component {
            Component::Destination(pattern) | Component::Source(pattern) => {
                write_pattern(*pattern, &mut key);
                continue;
            }
            Component::Numeric(_, operators) => NumericOperator::write_all(operators, &mut bytes),
            Component::Bitmask(_, operators) => BitmaskOperator::write_all(operators, &mut bytes),
        }
        hex(&bytes, &mut key);
        key.push('z');
    }
    key.push('z');
    key
}

fn write_pattern(pattern: Pattern, key: &mut String) {
    hex(&[pattern.offset], key);
    let bits = match pattern.address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    };
    for bit in pattern.offset..pattern.len {
        let is_set = bits >> (127 - u32::from(bit)) & 1 == 1;
        key.push(if is_set { '1' } else { '0' });
    }
    key.push('2');
}

fn hex(bytes: &[u8], key: &mut String) {
    for digit in bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]) {
        key.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
    }
}

#[cfg(test)]
mod tests {
    use core::cmp::Ordering;

    use proptest::prelude::*;

    use super::*;
    use crate::family::Afi;
    use crate::flowspec::{FlowRule, NumericField};
    use crate::prefix::Prefix;

    /// Compares two rules step by step, as RFC 8955, appendix A, does for IPv4. `Less` has precedence.
    fn compare(one: &FlowRule, other: &FlowRule) -> Ordering {
        let (ones, others) = (one.components(), other.components());
        for index in 0..ones.len().max(others.len()) {
            let (a, b) = match (ones.get(index), others.get(index)) {
                (Some(a), Some(b)) => (a, b),
                (None, _) => return Ordering::Greater,
                (_, None) => return Ordering::Less,
            };
            if a.number() != b.number() {
                return a.number().cmp(&b.number());
            }
            let prefix = |component: &Component| match component {
                Component::Destination(pattern) | Component::Source(pattern) => pattern.prefix(),
                _ => None,
            };
            let ordering = if let (Some(a), Some(b)) = (prefix(a), prefix(b)) {
                let shorter = a.len().min(b.len());
                let start = |prefix: Prefix| Prefix::new(prefix.address(), shorter);
                if start(a) == start(b) {
                    b.len().cmp(&a.len())
                } else {
                    a.address().cmp(&b.address())
                }
            } else {
                let bytes = |component: &Component| {
                    let mut bytes = Vec::new();
                    component.write(Afi::Ipv4, &mut bytes);
                    bytes
                };
                let (a, b) = (bytes(a), bytes(b));
                let common = a.len().min(b.len());
                a[..common].cmp(&b[..common]).then(b.len().cmp(&a.len()))
            };
            if ordering != Ordering::Equal {
                return ordering;
            }
        }
        Ordering::Equal
    }

    fn rule() -> impl Strategy<Value = FlowRule> {
        let prefix = (any::<u8>(), 0u8..=12).prop_map(|(bits, len)| {
            Pattern::from(Prefix::new(IpAddr::from([bits & 0xf0, bits << 4, 0, 0]), len).unwrap())
        });
        let operators = prop::collection::vec((any::<[bool; 4]>(), 0u64..400), 1..3).prop_map(|operators| {
            let make = |([and, less, greater, equal], value): ([bool; 4], u64)| NumericOperator {
                and,
                less,
                greater,
                equal,
                value,
                size: if value < 256 { 1 } else { 2 },
            };
            operators.into_iter().map(make).collect::<Vec<_>>()
        });
        let parts = (
            prop::option::of(prefix.clone()),
            prop::option::of(prefix),
            prop::option::of(operators.clone()),
            operators,
        );
        parts.prop_map(|(destination, source, protocols, ports)| {
            let components: Vec<_> = [
                destination.map(Component::Destination),
                source.map(Component::Source),
                protocols.map(|protocols| Component::Numeric(NumericField::Protocol, protocols)),
                Some(Component::Numeric(NumericField::Port, ports)),
            ]
            .into_iter()
            .flatten()
            .collect();
            FlowRule::new(Afi::Ipv4, &components).unwrap()
        })
    }

    proptest! {
        #[test]
        fn the_key_sorts_as_rfc_8955_compares(one in rule(), other in rule()) {
            prop_assert_eq!(one.order_key().cmp(&other.order_key()), compare(&one, &other));
        }
    }
}
