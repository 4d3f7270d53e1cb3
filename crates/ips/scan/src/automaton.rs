//! The automaton of Aho and Corasick, from the crate `aho-corasick`.
//!
//! The automaton contains the lower-case form of every pattern. Patterns with the same lower-case form share
//! a state. A hit of a case-sensitive pattern is compared again with the original bytes.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

use crate::scanner::{BuildError, Pattern, Scanner, is_equal};

/// Largest sum of all pattern sizes, in bytes, for which the automaton is a DFA, a table with a row for each state.
const DENSE_SIZE: usize = 4096;

/// The automaton, and the patterns of each lower-case form.
#[derive(Debug)]
pub(crate) struct Automaton {
    automaton: AhoCorasick,
    /// The patterns, by the number of their lower-case form.
    patterns: Vec<Vec<Pattern>>,
    longest: usize,
}

impl Automaton {
    /// Builds the automaton.
    pub(crate) fn new(patterns: &[Pattern]) -> Result<Automaton, BuildError> {
        let mut folded: Vec<Vec<u8>> = Vec::new();
        let mut index: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut by_form: Vec<Vec<Pattern>> = Vec::new();
        for pattern in patterns {
            let form = pattern.bytes.to_ascii_lowercase();
            let at = *index.entry(form).or_insert_with_key(|form| {
                folded.push(form.clone());
                by_form.push(Vec::new());
                folded.len() - 1
            });
            if let Some(patterns) = by_form.get_mut(at) {
                patterns.push(pattern.clone());
            }
        }
        let size: usize = folded.iter().map(Vec::len).sum();
        let kind = match size <= DENSE_SIZE {
            true => AhoCorasickKind::DFA,
            false => AhoCorasickKind::ContiguousNFA,
        };
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .ascii_case_insensitive(true)
            .kind(Some(kind))
            .build(&folded)
            .map_err(|error| BuildError::Automaton {
                reason: error.to_string(),
            })?;
        Ok(Automaton {
            automaton,
            patterns: by_form,
            longest: folded.iter().map(Vec::len).max().unwrap_or(0),
        })
    }
}

impl Scanner for Automaton {
    fn scan(&self, bytes: &[u8], hit: &mut dyn FnMut(u32, usize)) {
        for found in self.automaton.find_overlapping_iter(bytes) {
            let Some(patterns) = self.patterns.get(found.pattern().as_usize()) else {
                continue;
            };
            for pattern in patterns {
                let is_hit = pattern.nocase || is_equal(pattern, &bytes[found.start()..found.end()]);
                if is_hit {
                    hit(pattern.id, found.end());
                }
            }
        }
    }

    fn longest(&self) -> usize {
        self.longest
    }

    fn memory(&self) -> usize {
        let patterns = self.patterns.iter().flatten();
        self.automaton.memory_usage()
            + patterns
                .map(|p| p.bytes.len() + size_of::<Pattern>())
                .sum::<usize>()
    }
}
