//! Search for many patterns at once.
//!
//! ```text
//!  patterns ──build(Backend)──▶ Scanner ──scan(bytes)──▶ (identifier, end of the occurrence)
//! ```
//!
//! A [`Scanner`] works on blocks. A caller that scans a stream begins each block with the last
//! [`Scanner::longest`] - 1 bytes of the previous block, and says where the new bytes begin.

#![forbid(unsafe_code)]

mod automaton;
pub mod naive;
mod scanner;
mod windows;

pub use scanner::{BuildError, PATTERN_SIZE, PATTERNS, Pattern, Scanner};

/// The algorithm of a scanner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// Comparison of each pattern at each position.
    Naive,
    /// The automaton of Aho and Corasick.
    Automaton,
    /// Hashed windows of four bytes, after a filter by a bitmap of byte pairs.
    #[default]
    Windows,
}

impl Backend {
    /// Every back end.
    pub const ALL: [Backend; 3] = [Backend::Naive, Backend::Automaton, Backend::Windows];
}

/// Builds a scanner.
///
/// # Errors
/// Returns the first pattern whose size is not supported, or the limit that is exceeded.
pub fn build(backend: Backend, patterns: &[Pattern]) -> Result<Box<dyn Scanner>, BuildError> {
    if patterns.len() > PATTERNS {
        return Err(BuildError::Count {
            count: patterns.len(),
        });
    }
    let is_wrong = |pattern: &&Pattern| pattern.bytes.is_empty() || pattern.bytes.len() > PATTERN_SIZE;
    if let Some(pattern) = patterns.iter().find(is_wrong) {
        return Err(BuildError::Size {
            id: pattern.id,
            size: pattern.bytes.len(),
        });
    }
    Ok(match backend {
        Backend::Naive => Box::new(naive::Naive::new(patterns)),
        Backend::Automaton => Box::new(automaton::Automaton::new(patterns)?),
        Backend::Windows => Box::new(windows::Windows::new(patterns)),
    })
}
