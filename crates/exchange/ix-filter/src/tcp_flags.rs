//! Expressions over TCP flags as pairs of mask and value (RFC 8955, section 4.2.1.2).

use std::collections::BTreeSet;

use millrace_bgp::flowspec::BitmaskOperator;
use millrace_ix_model::{Reason, TcpFlagsMatch, reason};

/// The bits of the TCP flags and the reserved bits before them: 12 bits.
const BITS: u64 = 0xfff;
/// The largest number of pairs of one expression.
const PAIRS_MAX: usize = 512;
/// The largest number of combinations of pairs that the products of an expression compare. Without it, each of 250
/// operators may compare thousands.
const COMBINATIONS_MAX: usize = 16_384;

/// Returns pairs that together match exactly those flags that make the expression true. A mask of 0 matches
/// all flags.
///
/// # Errors
/// The reason in words.
pub(crate) fn pairs(operators: &[BitmaskOperator]) -> Result<Vec<TcpFlagsMatch>, Reason> {
    let mut all = BTreeSet::new();
    let mut group: Vec<(u16, u16)> = Vec::new();
    let mut combinations = 0;
    for (index, operator) in operators.iter().enumerate() {
        let alternatives = alternatives(operator);
        if operator.and && index > 0 {
            combinations += group.len() * alternatives.len();
            if combinations > COMBINATIONS_MAX {
                return Err(reason::flowspec_tcp_flags(PAIRS_MAX));
            }
            group = product(&group, &alternatives);
        } else {
            all.extend(group);
            group = alternatives;
        }
        if group.len() + all.len() > PAIRS_MAX {
            return Err(reason::flowspec_tcp_flags(PAIRS_MAX));
        }
    }
    all.extend(group);
    Ok(all
        .into_iter()
        .map(|(mask, value)| TcpFlagsMatch { mask, value })
        .collect())
}

/// Returns the pairs of one operator; none if it is never true.
fn alternatives(operator: &BitmaskOperator) -> Vec<(u16, u16)> {
    let outside = operator.value & !BITS != 0;
    let bits = (operator.value & BITS) as u16;
    let each = |value: fn(u16) -> u16| {
        (0..12)
            .map(|bit| 1 << bit)
            .filter(|bit| bits & bit != 0)
            .map(|bit| (bit, value(bit)))
            .collect()
    };
    // Bits beyond the flags are always 0.
    match (operator.all, operator.not) {
        (true, false) if outside => Vec::new(),
        (true, false) => vec![(bits, bits)],
        (true, true) if outside => vec![(0, 0)],
        (true, true) => each(|_| 0),
        (false, false) => each(|bit| bit),
        (false, true) => vec![(bits, 0)],
    }
}

/// Returns the pairs that match exactly the flags that both lists match.
fn product(ones: &[(u16, u16)], others: &[(u16, u16)]) -> Vec<(u16, u16)> {
    let mut pairs = BTreeSet::new();
    for (mask, value) in ones {
        for (other_mask, other_value) in others {
            let common = mask & other_mask;
            if value & common == other_value & common {
                pairs.insert((mask | other_mask, value | other_value));
            }
        }
    }
    pairs.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use millrace_bgp::flowspec::matches_bits;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn operators_whose_products_grow_are_refused() {
        let operator = BitmaskOperator {
            and: true,
            not: true,
            all: true,
            value: 0x1ff,
            size: 2,
        };
        assert_eq!(pairs(&[operator; 2]).unwrap().len(), 45);
        assert!(pairs(&[operator; 250]).is_err());
    }

    proptest! {
        #[test]
        fn the_pairs_match_exactly_what_the_expression_matches(
            operators in prop::collection::vec((any::<[bool; 3]>(), 0u64..0x2000), 1..4),
        ) {
            let operators: Vec<_> = operators
                .into_iter()
                .map(|([and, not, all], value)| BitmaskOperator { and, not, all, value, size: 2 })
                .collect();
            if let Ok(pairs) = pairs(&operators) {
                for flags in 0..=0xfffu16 {
                    let within = pairs.iter().any(|pair| flags & pair.mask == pair.value);
                    prop_assert_eq!(within, matches_bits(&operators, u64::from(flags)), "{:#x}", flags);
                }
            }
        }
    }
}
