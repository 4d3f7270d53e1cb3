//! Pseudorandom numbers for reservoir sampling. They are not fit for secrets.

use millrace_types::split_mix;

/// A sequence of pseudorandom numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Returns a number below `limit`, or 0 if `limit` is 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        split_mix::next(&mut self.0).checked_rem(limit).unwrap_or(0)
    }
}
