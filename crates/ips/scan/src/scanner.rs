//! The contract of all back ends: patterns, the search for them, and the reasons why one is not built.

use thiserror::Error;

/// The largest size of a pattern in bytes.
pub const PATTERN_SIZE: usize = 1 << 14;
/// The largest number of patterns of a scanner.
pub const PATTERNS: usize = 1 << 20;

/// Bytes to search for, and the number that a hit reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// The number that a hit reports; several patterns may have the same number.
    pub id: u32,
    pub bytes: Vec<u8>,
    /// True if ASCII letters match in upper and lower case.
    pub nocase: bool,
}

/// The reason why no scanner was built.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BuildError {
    /// A pattern has no bytes, or too many.
    #[error("pattern {id} has {size} bytes; expected 1 to {PATTERN_SIZE}")]
    Size {
        /// The identifier of the pattern.
        id: u32,
        /// The size of the pattern in bytes.
        size: usize,
    },
    /// There are too many patterns.
    #[error("{count} patterns; expected at most {PATTERNS}")]
    Count {
        /// The number of patterns.
        count: usize,
    },
    /// The automaton could not be built.
    #[error("the automaton was not built: {reason}; use fewer patterns or the back end `windows`")]
    Automaton {
        /// The message of the crate `aho-corasick`.
        reason: String,
    },
}

/// A search for many patterns in a block of bytes.
pub trait Scanner: std::fmt::Debug + Send + Sync {
    /// Calls `hit` with the identifier and the end of occurrences of the patterns, in no particular order: for each pattern that occurs
    /// at least once.
    fn scan(&self, bytes: &[u8], hit: &mut dyn FnMut(u32, usize));

    /// Calls `hit` as [`Scanner::scan`] does, for occurrences that end after the first `from` bytes.
    fn scan_new(&self, bytes: &[u8], from: usize, hit: &mut dyn FnMut(u32, usize)) {
        self.scan(bytes, &mut |id, end| {
            if end > from {
                hit(id, end);
            }
        });
    }

    /// Returns the size of the longest pattern in bytes.
    fn longest(&self) -> usize;

    /// Returns the approximate size of the scanner in bytes.
    fn memory(&self) -> usize;
}

/// Returns true if the bytes equal the pattern.
#[inline]
pub(crate) fn is_equal(pattern: &Pattern, bytes: &[u8]) -> bool {
    match pattern.nocase {
        true => pattern.bytes.eq_ignore_ascii_case(bytes),
        false => pattern.bytes == bytes,
    }
}
