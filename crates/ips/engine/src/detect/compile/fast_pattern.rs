//! The choice of the pattern that the prefilter searches: the explicit one, else the longest and most diverse.
//!
//! The choice changes the cost of a rule and never its result.

use millrace_ips_rules::options::content::{self, Content};

use super::super::program::FastPattern;

/// Largest size of a pattern of the prefilter in bytes. A scan of a stream repeats that many bytes less one.
pub(crate) const SIZE: usize = 32;

/// A content that may be the fast pattern, with its list.
pub(super) struct Candidate {
    pub(super) content: Content,
    /// Index of the buffer test, or none for the payload.
    pub(super) test: Option<u16>,
}

/// Returns the fast pattern, or none if all contents are negated.
pub(super) fn choose(candidates: &[Candidate]) -> Option<FastPattern> {
    let usable = |candidate: &&Candidate| !candidate.content.is_negated;
    let explicit = candidates
        .iter()
        .filter(usable)
        .find(|candidate| candidate.content.fast_pattern.is_some());
    let best = explicit.or_else(|| candidates.iter().filter(usable).max_by_key(|it| score(it)))?;
    let pattern = &best.content.pattern;
    let bytes = match best.content.fast_pattern {
        Some(content::FastPattern::Part { offset, size }) => {
            let from = (offset as usize).min(pattern.len());
            let to = from.saturating_add(size as usize).min(pattern.len());
            &pattern[from..to]
        }
        _ => pattern,
    };
    let bytes = if bytes.is_empty() { pattern } else { bytes };
    Some(FastPattern {
        bytes: rarest(bytes).to_vec(),
        nocase: best.content.nocase,
        test: best.test,
    })
}

/// Returns a larger value for a better pattern. It compares the class of the size first, then buffers before
/// the payload, then the sum of size and distinct bytes.
fn score(candidate: &Candidate) -> (usize, bool, usize) {
    let pattern = &candidate.content.pattern;
    let mut seen = [false; 256];
    let mut distinct = 0;
    for byte in pattern.iter().take(SIZE) {
        distinct += usize::from(!std::mem::replace(&mut seen[usize::from(*byte)], true));
    }
    // Patterns of one to three bytes occur everywhere, so a longer pattern of the payload is better.
    let class = usize::from(pattern.len() > 3) + usize::from(pattern.len() > 1);
    (
        class,
        candidate.test.is_some(),
        pattern.len().min(SIZE) + distinct,
    )
}

/// Returns the part of a long pattern with the most distinct bytes.
fn rarest(pattern: &[u8]) -> &[u8] {
    let distinct = |part: &&[u8]| {
        let mut seen = [false; 256];
        part.iter()
            .filter(|byte| !std::mem::replace(&mut seen[usize::from(**byte)], true))
            .count()
    };
    match pattern.len() > SIZE {
        true => pattern.windows(SIZE).max_by_key(distinct).unwrap_or(pattern),
        false => pattern,
    }
}
