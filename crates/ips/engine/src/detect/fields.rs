//! Conditions on what a parser says about a transaction, besides its buffers.

use millrace_ips_rules::options::number::{Comparison, NumberField};
use millrace_ips_rules::options::words::TextField;

use crate::app::Transaction;
use crate::flow::Direction;

/// Returns true if a value of the transaction satisfies a condition in words.
pub(super) fn has(
    _field: TextField,
    _value: &str,
    _transaction: &Transaction,
    _direction: Direction,
) -> bool {
    false
}

/// Returns true if a number of the transaction satisfies a comparison.
pub(super) fn has_number(
    _field: NumberField,
    _comparison: Comparison,
    _transaction: &Transaction,
    _direction: Direction,
) -> bool {
    false
}
