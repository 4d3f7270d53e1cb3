//! The bytes beside a range.

/// Bytes before and behind a range that are inspected with it.
pub(super) const BESIDE: usize = 1024;

/// Adds bytes to the last ones of a sequence, of which at most [`BESIDE`] are kept.
pub(super) fn keep_last(kept: &mut Vec<u8>, bytes: &[u8]) {
    let new = &bytes[bytes.len().saturating_sub(BESIDE)..];
    let surplus = (kept.len() + new.len()).saturating_sub(BESIDE);
    kept.drain(..surplus);
    kept.extend_from_slice(new);
}
