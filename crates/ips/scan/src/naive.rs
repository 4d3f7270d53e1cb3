//! The naive search, which is the reference for tests of the other back ends.

use crate::scanner::{Pattern, Scanner, is_equal};

/// Compares each pattern at each position.
#[derive(Debug, Clone)]
pub struct Naive {
    patterns: Vec<Pattern>,
}

impl Naive {
    /// Returns a scanner for patterns that are not empty.
    pub fn new(patterns: &[Pattern]) -> Naive {
        let mut patterns = patterns.to_vec();
        patterns.retain(|pattern| !pattern.bytes.is_empty());
        Naive { patterns }
    }
}

impl Scanner for Naive {
    fn scan(&self, bytes: &[u8], hit: &mut dyn FnMut(u32, usize)) {
        for pattern in &self.patterns {
            for (at, window) in bytes.windows(pattern.bytes.len()).enumerate() {
                if is_equal(pattern, window) {
                    hit(pattern.id, at + pattern.bytes.len());
                }
            }
        }
    }

    fn longest(&self) -> usize {
        self.patterns.iter().map(|p| p.bytes.len()).max().unwrap_or(0)
    }

    fn memory(&self) -> usize {
        self.patterns
            .iter()
            .map(|p| p.bytes.len() + size_of::<Pattern>())
            .sum()
    }
}
