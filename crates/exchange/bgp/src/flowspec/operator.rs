//! Operators of flow specifications (RFC 8955, sections 4.2.1.1 and 4.2.1.2).
//!
//! ```text
//!   numeric:  | e | a | len len | 0 | lt | gt | eq |     bitmask:  | e | a | len len | 0 | 0 | not | m |
//! ```
//! `e` marks the last operator of a component. `a` joins an operator to the previous one by AND, which binds
//! tighter than OR.

use core::fmt;
use core::ops::RangeInclusive;

use crate::reader::Reader;

const END: u8 = 0x80;
const AND: u8 = 0x40;
/// The position of the logarithm of the value's size, which has two bits.
const SIZE_SHIFT: u8 = 4;
const SIZE_MASK: u8 = 0x03;
// Bits of numeric operators.
const LESS: u8 = 0x04;
const GREATER: u8 = 0x02;
const EQUAL: u8 = 0x01;
// Bits of bitmask operators.
const NOT: u8 = 0x02;
const MATCH: u8 = 0x01;

/// A comparison of a field as a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NumericOperator {
    /// True to join this operator to the previous one by AND; ignored in the first operator.
    pub and: bool,
    /// True if lesser numbers match.
    pub less: bool,
    /// True if greater numbers match.
    pub greater: bool,
    /// True if the same number matches.
    pub equal: bool,
    /// The number.
    pub value: u64,
    /// The size of the number in the message: 1, 2, 4 or 8 bytes.
    pub size: u8,
}

/// A comparison of a field as bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BitmaskOperator {
    /// True to join this operator to the previous one by AND; ignored in the first operator.
    pub and: bool,
    /// True to invert the comparison.
    pub not: bool,
    /// True if all bits of the value must be set; false if one of them suffices.
    pub all: bool,
    /// The bits to compare.
    pub value: u64,
    /// The size of the value in the message: 1, 2, 4 or 8 bytes.
    pub size: u8,
}

/// Reads operators and their values up to the operator with the end bit. Returns `None` if the bytes end
/// before it.
fn read_all<T>(reader: &mut Reader<'_>, make: impl Fn(u8, u64, u8) -> T) -> Option<Vec<T>> {
    let mut operators = Vec::new();
    loop {
        let flags = reader.u8()?;
        let size = 1u8 << (flags >> SIZE_SHIFT & SIZE_MASK);
        let bytes = reader.take(usize::from(size))?;
        let value = bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        operators.push(make(flags, value, size));
        if flags & END != 0 {
            return Some(operators);
        }
    }
}

/// An operator as it is written, without the end bit.
struct Encoded {
    flags: u8,
    value: u64,
    /// The size of the value: 1, 2, 4 or 8 bytes.
    size: u8,
}

/// Appends operators with their values. The last one gets the end bit.
fn write_all(operators: impl ExactSizeIterator<Item = Encoded>, bytes: &mut Vec<u8>) {
    let last = operators.len().saturating_sub(1);
    for (index, operator) in operators.enumerate() {
        let size = operator.size.clamp(1, 8).next_power_of_two();
        let end = if index == last { END } else { 0 };
        bytes.push(operator.flags | end | (size.trailing_zeros() as u8) << SIZE_SHIFT);
        bytes.extend(operator.value.to_be_bytes().iter().skip(8 - usize::from(size)));
    }
}

/// Returns the flag if it is set, otherwise 0.
const fn bit(is_set: bool, flag: u8) -> u8 {
    if is_set { flag } else { 0 }
}

impl NumericOperator {
    pub(super) fn read_all(reader: &mut Reader<'_>) -> Option<Vec<NumericOperator>> {
        read_all(reader, |flags, value, size| NumericOperator {
            and: flags & AND != 0,
            less: flags & LESS != 0,
            greater: flags & GREATER != 0,
            equal: flags & EQUAL != 0,
            value,
            size,
        })
    }

    pub(super) fn write_all(operators: &[NumericOperator], bytes: &mut Vec<u8>) {
        let encoded = operators.iter().map(|operator| Encoded {
            flags: bit(operator.and, AND)
                | bit(operator.less, LESS)
                | bit(operator.greater, GREATER)
                | bit(operator.equal, EQUAL),
            value: operator.value,
            size: operator.size,
        });
        write_all(encoded, bytes);
    }

    /// Returns true if `number` satisfies the comparison.
    pub fn matches(&self, number: u64) -> bool {
        self.less && number < self.value
            || self.greater && number > self.value
            || self.equal && number == self.value
    }
}

impl BitmaskOperator {
    pub(super) fn read_all(reader: &mut Reader<'_>) -> Option<Vec<BitmaskOperator>> {
        read_all(reader, |flags, value, size| BitmaskOperator {
            and: flags & AND != 0,
            not: flags & NOT != 0,
            all: flags & MATCH != 0,
            value,
            size,
        })
    }

    pub(super) fn write_all(operators: &[BitmaskOperator], bytes: &mut Vec<u8>) {
        let encoded = operators.iter().map(|operator| Encoded {
            flags: bit(operator.and, AND) | bit(operator.not, NOT) | bit(operator.all, MATCH),
            value: operator.value,
            size: operator.size,
        });
        write_all(encoded, bytes);
    }

    /// Returns true if `bits` satisfy the comparison.
    pub fn matches(&self, bits: u64) -> bool {
        let common = bits & self.value;
        let matches = if self.all {
            common == self.value
        } else {
            common != 0
        };
        matches != self.not
    }
}

/// Returns the numbers from 0 to `max` that match, as ranges in ascending order with gaps between them.
pub fn ranges(operators: &[NumericOperator], max: u64) -> Vec<RangeInclusive<u64>> {
    // The result can change only at a value and at the number after it.
    let mut starts = vec![0];
    for operator in operators {
        starts.extend([operator.value, operator.value.saturating_add(1)]);
    }
    starts.retain(|start| *start <= max);
    starts.sort_unstable();
    starts.dedup();
    let mut ranges: Vec<RangeInclusive<u64>> = Vec::new();
    for (index, start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).map_or(max, |next| next - 1);
        let terms = operators.iter().map(|operator| Term {
            and: operator.and,
            matches: operator.matches(*start),
        });
        if !any_group(terms) {
            continue;
        }
        match ranges.last_mut() {
            Some(last) if last.end() + 1 == *start => *last = *last.start()..=end,
            _ => ranges.push(*start..=end),
        }
    }
    ranges
}

/// Returns true if the bits match the expression.
pub fn matches_bits(operators: &[BitmaskOperator], bits: u64) -> bool {
    any_group(operators.iter().map(|operator| Term {
        and: operator.and,
        matches: operator.matches(bits),
    }))
}

/// The outcome of one operator of an expression.
struct Term {
    /// True if the operator is joined to the previous one by AND.
    and: bool,
    matches: bool,
}

/// Evaluates an OR of ANDs.
fn any_group(terms: impl Iterator<Item = Term>) -> bool {
    let mut group = None;
    for Term { and, matches } in terms {
        match group {
            Some(true) if !and => return true,
            Some(so_far) if and => group = Some(so_far && matches),
            _ => group = Some(matches),
        }
    }
    group == Some(true)
}

impl fmt::Display for NumericOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match (self.less, self.greater, self.equal) {
            (false, false, false) => return f.write_str("never"),
            (true, true, true) => return f.write_str("any"),
            (false, false, true) => "=",
            (true, false, false) => "<",
            (true, false, true) => "<=",
            (false, true, false) => ">",
            (false, true, true) => ">=",
            (true, true, false) => "!=",
        };
        write!(f, "{sign}{}", self.value)
    }
}

impl fmt::Display for BitmaskOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = if self.not { "!" } else { "" };
        let all = if self.all { "=" } else { "" };
        write!(f, "{not}{all}{:#x}", self.value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn operator() -> impl Strategy<Value = NumericOperator> {
        (any::<[bool; 4]>(), 0u64..20).prop_map(|([and, less, greater, equal], value)| NumericOperator {
            and,
            less,
            greater,
            equal,
            value,
            size: 1,
        })
    }

    /// Evaluates the expression as an OR of ANDs without optimisation.
    fn slow(operators: &[NumericOperator], number: u64) -> bool {
        let mut groups: Vec<Vec<&NumericOperator>> = Vec::new();
        for operator in operators {
            match groups.last_mut() {
                Some(group) if operator.and => group.push(operator),
                _ => groups.push(vec![operator]),
            }
        }
        groups
            .iter()
            .any(|group| group.iter().all(|operator| operator.matches(number)))
    }

    proptest! {
        #[test]
        fn the_ranges_hold_exactly_the_numbers_that_match(
            operators in prop::collection::vec(operator(), 1..6),
        ) {
            let ranges = ranges(&operators, 15);
            for number in 0..=15 {
                let within = ranges.iter().any(|range| range.contains(&number));
                prop_assert_eq!(within, slow(&operators, number), "{} in {:?}", number, ranges);
            }
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end() + 1 < *pair[1].start()));
        }

        #[test]
        fn operators_are_written_as_they_are_read(operators in prop::collection::vec(operator(), 1..6)) {
            let mut bytes = Vec::new();
            NumericOperator::write_all(&operators, &mut bytes);
            let mut reader = Reader(&bytes);
            prop_assert_eq!(NumericOperator::read_all(&mut reader), Some(operators));
            prop_assert!(reader.is_empty());
        }
    }

    #[test]
    fn bitmasks_compare_all_or_any_bits() {
        let operator = |not, all| BitmaskOperator {
            and: false,
            not,
            all,
            value: 0b11,
            size: 1,
        };
        let outcomes = |operator: BitmaskOperator| [0, 1, 3, 7].map(|bits| operator.matches(bits));
        assert_eq!(outcomes(operator(false, true)), [false, false, true, true]);
        assert_eq!(outcomes(operator(true, true)), [true, true, false, false]);
        assert_eq!(outcomes(operator(false, false)), [false, true, true, true]);
        assert_eq!(outcomes(operator(true, false)), [true, false, false, false]);
    }
}
